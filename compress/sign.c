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

static size_t sign_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, size_t count, void *out)
{
    for (size_t first = 0; first < count; first += SL_TILE) {
        char *to = (char *)out + first / SL_TILE * TILE_LEN;
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE], mean;
        const void *ahead;
        const float *x = sl_tile_floats(&tile, spec->dtype, in, count, scratch, &ahead);
        double lanes[16];
        char bits[SL_TILE / 8];
        bool whole = tile.count == SL_TILE;
        uint32_t max =
            sl_codec_kernels()->sign_encode(x, tile.units, lanes, whole ? to + HEAD : bits);

        memset(to, 0, HEAD);
        mean = max >= SL_BITS_INF ? sl_f32_of(SL_BITS_NAN) : mean_of(lanes, tile.count);
        memcpy(to, &mean, sizeof(mean));
        if (!whole) /* Units are whole, and so are their 16 bytes. */
            memcpy(to + HEAD, bits, bits_len(tile.count));
        if (max >= SL_BITS_INF)
            memset(to + HEAD, 0, bits_len(tile.count));
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
        enum sl_put put;
        float *to = sl_tile_target(&tile, dtype, out, count, add, scratch, &put);

        memcpy(&mean, from, sizeof(mean));
        sl_codec_kernels()->sign_decode(from + HEAD, tile.units, mean, put, to);
        if (to == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
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
};
