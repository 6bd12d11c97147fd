/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of tiles that are encoded one by one. */
#include "compress/tilewise.h"

#include "compress/elements.h"

size_t sl_tilewise_size(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                        size_t count)
{
    size_t rest = count % SL_TILE;

    return count / SL_TILE * tiles->len(spec, SL_TILE) + (rest > 0 ? tiles->len(spec, rest) : 0);
}

static size_t elements_of(size_t first, size_t count)
{
    return count - first < SL_TILE ? count - first : SL_TILE;
}

size_t sl_tilewise_encode(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                          const struct sl_codec_at *at, const void *in, size_t count, void *out)
{
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2, done = 0;
    struct sl_codec_at here = *at;
    uint32_t hint = 0;
    float floats[SL_TILE];

    for (size_t first = 0; first < count; first += SL_TILE, here.first += SL_TILE) {
        size_t n = elements_of(first, count);

        tiles->encode(spec, &here,
                      sl_elements_floats(spec->dtype, (const char *)in + first * elem, n, floats),
                      n, &hint, (char *)out + done);
        done += tiles->len(spec, n);
    }
    return done;
}

int sl_tilewise_decode(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                       const struct sl_codec_at *at, const void *in, size_t len, size_t count,
                       void *out)
{
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2, step = tiles->len(spec, SL_TILE), done = 0;
    int err = sl_codec_check_len(spec, len, count);
    bool in_place = spec->dtype == SLUICE_F32 && (uintptr_t)out % sizeof(float) == 0;
    struct sl_codec_at here = *at;
    float scratch[SL_TILE];

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE, here.first += SL_TILE) {
        float *sum = in_place ? (float *)out + first : scratch;
        size_t n = elements_of(first, count);

        memset(sum, 0, n * sizeof(*sum));
        err = tiles->add(spec, &here, (const char *)in + done, n, sum);
        if (err == 0 && !in_place)
            sl_elements_narrow(spec->dtype, sum, n, (char *)out + first * elem);
        done += step;
    }
    return err;
}

int sl_tilewise_decode_add(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                           const struct sl_codec_at *at, const void *in, size_t len, size_t count,
                           float *sum)
{
    size_t step = tiles->len(spec, SL_TILE), done = 0;
    int err = sl_codec_check_len(spec, len, count);
    struct sl_codec_at here = *at;

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE, here.first += SL_TILE) {
        err = tiles->add(spec, &here, (const char *)in + done, elements_of(first, count),
                         sum + first);
        done += step;
    }
    return err;
}

int sl_tilewise_add_floats(const struct sl_codec_spec *spec, void *sum, const void *in, size_t len,
                           size_t count)
{
    int err = sl_codec_check_len(spec, len, count);
    const float *from = in;
    float *to = sum;

    for (size_t i = 0; err == 0 && i < len / sizeof(float); i++)
        to[i] += from[i];
    return err;
}
