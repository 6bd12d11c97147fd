/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bit an element, its sign, and the mean magnitude of each tile. It needs error feedback.
 *
 * Source: S. P. Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression
 * schemes", ICML 2019.
 */
#include "compress/codecs.h"
#include "compress/elements.h"
#include "compress/tile.h"

#define HEAD 16 /* bytes: the mean, zeros */
#define TILE_LEN (HEAD + SL_TILE / 8)

static size_t bits_len(size_t count)
{
    return sl_codec_round16((count + 7) / 8);
}

static size_t sign_size(const struct sl_codec_spec *spec, size_t count)
{
    size_t rest = count % SL_TILE;

    return count / SL_TILE * TILE_LEN + (rest > 0 ? HEAD + bits_len(rest) : 0);
}

static float mean_of(const double lanes[16], size_t count)
{
    double sum = 0;

    for (unsigned i = 0; i < 16; i++)
        sum += lanes[i];
    return (float)(sum / (double)count);
}

/* What sign_encode() of the kernels found of a tile. */
struct found {
    uint32_t max;
    double lanes[16];
    char bits[SL_TILE / 8];
};

/* Returns the mean, which is NaN where the tile is not finite. */
static float write_tile(const struct found *found, size_t count, char *out)
{
    float mean = found->max >= SL_BITS_INF ? sl_f32_of(SL_BITS_NAN) : mean_of(found->lanes, count);

    memset(out, 0, HEAD + bits_len(count));
    memcpy(out, &mean, sizeof(mean));
    if (found->max < SL_BITS_INF)
        memcpy(out + HEAD, found->bits, bits_len(count));
    return mean;
}

static size_t sign_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, size_t count, void *out)
{
    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        struct sl_input x = sl_tile_input(&tile, spec->dtype, in, count, scratch);
        struct found found;

        found.max = sl_codec_kernels()->sign_encode(&x, tile.units, found.lanes, found.bits);
        write_tile(&found, tile.count, (char *)out + first / SL_TILE * TILE_LEN);
    }
    return sign_size(spec, count);
}

/* The sum lies in the residual from the first pass to the last. */
static size_t sign_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                            const void *in, float *residual, size_t count, void *out)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE], mean, *sum = residual + first;
        struct sl_input x = sl_tile_input(&tile, spec->dtype, in, count, scratch);
        struct found found;

        found.max = kernels->feedback_sign_sum(&x, sum, SL_TILE, found.lanes, found.bits);
        mean = write_tile(&found, SL_TILE, (char *)out + first / SL_TILE * TILE_LEN);
        kernels->feedback_sign(sum, SL_TILE, mean, x.next);
    }
    return sign_size(spec, count);
}

static int sign_decode_to(const struct sl_codec_spec *spec, const void *in, size_t len,
                          size_t count, unsigned dtype, void *out, bool add)
{
    int err = sl_codec_check_len(spec, len, count);

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE) {
        const char *from = (const char *)in + first / SL_TILE * TILE_LEN;
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE], mean;
        struct sl_output to = sl_tile_output(&tile, dtype, out, count, add, scratch);

        memcpy(&mean, from, sizeof(mean));
        sl_codec_kernels()->sign_decode(from + HEAD, tile.units, mean, &to);
        if (to.at == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
    sl_tile_fence(add ? 0 : count * sl_dtype_bytes(dtype));
    return err;
}

static int sign_decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                       const void *in, size_t len, size_t count, void *out)
{
    return sign_decode_to(spec, in, len, count, spec->dtype, out, false);
}

static int sign_decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                           const void *in, size_t len, size_t count, float *sum)
{
    return sign_decode_to(spec, in, len, count, SLUICE_F32, sum, true);
}

const struct sl_codec sl_codec_sign = {
    .name = "sign",
    .help = "one bit an element, and the mean magnitude of each 4096",
    .id = SL_CODEC_SIGN,
    .flags = SL_CODEC_FIXED,
    .size = sign_size,
    .encode = sign_encode,
    .decode = sign_decode,
    .decode_add = sign_decode_add,
    .feedback = sign_feedback,
};
