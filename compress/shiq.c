/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared-scale integers, and codec "shiq": a tile is its scales in bf16 (64 bytes when it is full;
 * as many as it has blocks, zeros up to 16 bytes), then its codes, zeros up to 16 bytes.
 */
#include "compress/shiq.h"

#include "compress/elements.h"
#include "compress/philox.h"
#include "compress/tilewise.h"
#include "core/err.h"

#define BLOCK SL_SHIQ_BLOCK
#define TINY 0x00800000u         /* 2^-126 */
#define LARGEST 0x1.fffffep+127f /* number */
#define ROUNDER 12582912.0f      /* 1.5 * 2^23: sums with it are whole numbers */

static bool wide(const struct sl_codec_spec *spec)
{
    return spec->bits == 16;
}

static size_t width_of(const struct sl_codec_spec *spec)
{
    return wide(spec) ? 2 : 1;
}

/* The largest code of one rank. */
static int largest_of(const struct sl_codec_spec *spec)
{
    return (int)((wide(spec) ? 32767u : 127u) / spec->ranks);
}

static int check(const struct sl_codec_spec *spec)
{
    unsigned most = wide(spec) ? 32767 : 127;

    if (spec->bits != 0 && spec->bits != 16)
        return sl_fail(-EINVAL,
                       "codec shiq has codes of 8 bits, or of 16 with bits=16, not bits=%u",
                       spec->bits);
    if (spec->ranks == 0 || spec->ranks > most)
        return sl_fail(-EINVAL, "codec shiq adds up messages of ranks=1 to %u, not %u", most,
                       spec->ranks);
    return sl_codec_check_used(spec, SL_USES_BITS | SL_USES_RANKS);
}

/* Least and largest scales as in bq8. */
static uint32_t scale_of(const float *in, size_t count, int largest)
{
    uint32_t max = 0, bits, most;

    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = sl_f32_bits(in[i]) & SL_BITS_ABS;

        max = magnitude > max ? magnitude : max;
    }
    if (max >= SL_BITS_INF)
        return SL_BITS_NAN;
    if (max < TINY)
        return 0;
    bits = (sl_f32_bits(sl_f32_of(max) / (float)largest) + 0xffff) & 0xffff0000;
    most = sl_f32_bits(LARGEST / (float)largest) & 0xffff0000;
    return bits < TINY ? TINY : bits > most ? most : bits;
}

/* x in units of the scale, to nearest even; NaN, which only foreign scales let through, is low. */
static int nearest(float x, float inverse, float largest)
{
    float code = x * inverse;

    code = code >= -largest ? code : -largest;
    code = code <= largest ? code : largest;
    return (int)((code + ROUNDER) - ROUNDER);
}

static int at_random(float x, float inverse, float largest, uint32_t u)
{
    float code = x * inverse + (float)u * 0x1p-16f;
    int whole;

    code = code >= -largest ? code : -largest;
    code = code <= largest ? code : largest;
    whole = (int)code;
    return whole - ((float)whole > code);
}

/* Codes of a block; at: that of its first element. */
static void quantise_block(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                           const float *in, size_t count, uint32_t scale, int codes[BLOCK])
{
    float largest = (float)largest_of(spec), inverse;

    memset(codes, 0, BLOCK * sizeof(*codes));
    if (scale == 0 || scale >= SL_BITS_INF)
        return;
    inverse = 1.0f / sl_f32_of(scale);
    if ((spec->flags & SL_SPEC_STOCHASTIC) == 0)
        for (size_t i = 0; i < count; i++)
            codes[i] = nearest(in[i], inverse, largest);
    else
        for (size_t i = 0; i < count; i++)
            codes[i] = at_random(in[i], inverse, largest,
                                 sl_philox_16(at->first + i, at->stream, at->step, spec->seed));
}

static void store_codes(const struct sl_codec_spec *spec, const int *codes, size_t count,
                        size_t first, void *out)
{
    if (wide(spec)) {
        for (size_t i = 0; i < count; i++)
            ((int16_t *)out)[first + i] = (int16_t)codes[i];
        return;
    }
    for (size_t i = 0; i < count; i++)
        ((int8_t *)out)[first + i] = (int8_t)codes[i];
}

static int load_code(const struct sl_codec_spec *spec, const void *codes, size_t i)
{
    return wide(spec) ? ((const int16_t *)codes)[i] : ((const int8_t *)codes)[i];
}

static size_t block_count(size_t first, size_t count)
{
    return count - first < BLOCK ? count - first : BLOCK;
}

static const void *element_of(const struct sl_codec_spec *spec, const void *in, size_t i)
{
    return (const char *)in + i * (spec->dtype == SLUICE_F32 ? 4 : 2);
}

void sl_shiq_scales(const struct sl_codec_spec *spec, const void *in, size_t count,
                    uint32_t *scales)
{
    float floats[BLOCK];

    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = block_count(first, count);

        sl_elements_widen(spec->dtype, element_of(spec, in, first), n, floats);
        scales[first / BLOCK] = scale_of(floats, n, largest_of(spec));
    }
}

void sl_shiq_quantise(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t count, const uint32_t *scales, void *codes)
{
    struct sl_codec_at here = *at;
    float floats[BLOCK];
    int block[BLOCK];

    for (size_t first = 0; first < count; first += BLOCK, here.first += BLOCK) {
        size_t n = block_count(first, count);

        sl_elements_widen(spec->dtype, element_of(spec, in, first), n, floats);
        quantise_block(spec, &here, floats, n, scales[first / BLOCK], block);
        store_codes(spec, block, n, first, codes);
    }
}

void sl_shiq_dequantise(const struct sl_codec_spec *spec, const void *codes, size_t count,
                        const uint32_t *scales, float factor, void *out)
{
    float floats[BLOCK];

    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = block_count(first, count);
        float scale = sl_f32_of(scales[first / BLOCK]);

        for (size_t i = 0; i < n; i++)
            floats[i] = (float)load_code(spec, codes, first + i) * scale * factor;
        sl_elements_narrow(spec->dtype, floats, n,
                           (char *)out + first * (spec->dtype == SLUICE_F32 ? 4 : 2));
    }
}

static size_t scales_len(size_t count)
{
    return sl_codec_round16(sl_shiq_scale_count(count) * 2);
}

static size_t tile_len(const struct sl_codec_spec *spec, size_t count)
{
    return scales_len(count) + sl_codec_round16(count * width_of(spec));
}

/* scales: NULL for those that the elements need. */
static void encode_blocks(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const float *in, size_t count, const uint32_t *scales, void *out)
{
    uint8_t *codes = (uint8_t *)out + scales_len(count);
    struct sl_codec_at here = *at;
    int block[BLOCK];

    memset(out, 0, tile_len(spec, count));
    for (size_t first = 0; first < count; first += BLOCK, here.first += BLOCK) {
        size_t n = block_count(first, count);
        uint32_t scale =
            scales != NULL ? scales[first / BLOCK] : scale_of(in + first, n, largest_of(spec));

        ((uint16_t *)out)[first / BLOCK] = (uint16_t)(scale >> 16);
        quantise_block(spec, &here, in + first, n, scale, block);
        store_codes(spec, block, n, first, codes);
    }
}

static void encode_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const float *in, size_t count, uint32_t *hint, void *out)
{
    encode_blocks(spec, at, in, count, NULL, out);
}

static int add_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                    size_t count, float *sum)
{
    const uint8_t *codes = (const uint8_t *)in + scales_len(count);

    for (size_t i = 0; i < count; i++)
        sum[i] +=
            (float)load_code(spec, codes, i) * sl_f32_of_bf16(((const uint16_t *)in)[i / BLOCK]);
    return 0;
}

static const struct sl_tilewise tiles = {tile_len, encode_tile, add_tile};

SL_TILEWISE_FUNCTIONS

size_t sl_shiq_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t count, const uint32_t *scales, void *out)
{
    struct sl_codec_at here = *at;
    float floats[SL_TILE];
    size_t done = 0;

    for (size_t first = 0; first < count; first += SL_TILE, here.first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE;

        sl_elements_widen(spec->dtype, element_of(spec, in, first), n, floats);
        encode_blocks(spec, &here, floats, n, scales + first / BLOCK, (char *)out + done);
        done += tile_len(spec, n);
    }
    return done;
}

/* Whether all sums are such that ranks could make; then, they are made. */
static int add_codes(const struct sl_codec_spec *spec, void *sum, const void *in, size_t count)
{
    int most = largest_of(spec) * (int)spec->ranks, wrong = 0;

    for (size_t i = 0; i < count; i++) {
        int code = load_code(spec, sum, i) + load_code(spec, in, i);

        wrong |= code > most || code < -most;
    }
    if (wrong)
        return sl_fail(-EBADMSG, "sums of shiq codes are larger than %u ranks could make them",
                       spec->ranks);
    for (size_t i = 0; i < count; i++) {
        int code = load_code(spec, sum, i) + load_code(spec, in, i);

        store_codes(spec, &code, 1, i, sum);
    }
    return 0;
}

static int add(const struct sl_codec_spec *spec, void *sum, const void *in, size_t len,
               size_t count)
{
    size_t done = 0;
    int err = sl_codec_check_len(spec, len, count);

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE, codes = scales_len(n);

        if (memcmp((char *)sum + done, (const char *)in + done, codes) != 0)
            return sl_fail(-EBADMSG, "shiq messages have other scales than the sum they are to be "
                                     "added to: ranks agree on the largest ones first");
        err = add_codes(spec, (char *)sum + done + codes, (const char *)in + done + codes, n);
        done += tile_len(spec, n);
    }
    return err;
}

const struct sl_codec sl_codec_shiq = {
    .name = "shiq",
    .help = "integers with scales that all ranks share: messages can be added, exactly",
    .id = SL_CODEC_SHIQ,
    .flags = SL_CODEC_FIXED | SL_CODEC_LINEAR | SL_CODEC_STOCHASTIC | SL_CODEC_UNBIASED,
    .check = check,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
    .add = add,
};
