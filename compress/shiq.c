/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared-scale integers, and codec "shiq": a tile is its scales in bf16 (64 bytes when it is full;
 * as many as it has blocks, zeros up to 16 bytes), then its codes, zeros up to 16 bytes.
 */
#include "compress/shiq.h"

#include "compress/elements.h"
#include "compress/kernels.h"
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

static unsigned ranks_of(const struct sl_codec_spec *spec)
{
    return spec->ranks > 0 ? spec->ranks : 1;
}

/* The largest code of one rank. */
static int largest_of(const struct sl_codec_spec *spec)
{
    return (int)((wide(spec) ? 32767u : 127u) / ranks_of(spec));
}

static int check(const struct sl_codec_spec *spec)
{
    unsigned most = wide(spec) ? 32767 : 127;

    if (spec->bits != 0 && spec->bits != 16)
        return sl_fail(-EINVAL,
                       "codec shiq has codes of 8 bits, or of 16 with bits=16, not bits=%u",
                       spec->bits);
    if (spec->ranks > most)
        return sl_fail(-EINVAL, "codec shiq adds up messages of ranks=1 to %u, not %u", most,
                       spec->ranks);
    return sl_codec_check_used(spec, SL_USES_BITS | SL_USES_RANKS);
}

/* Least and largest scales as in bq8. */
static uint32_t scale_of(uint32_t max, int largest)
{
    uint32_t bits, most;

    if (max >= SL_BITS_INF)
        return SL_BITS_NAN;
    if (max < TINY)
        return 0;
    bits = (sl_f32_bits(sl_f32_of(max) / (float)largest) + 0xffff) & 0xffff0000;
    most = sl_f32_bits(LARGEST / (float)largest) & 0xffff0000;
    return bits < TINY ? TINY : bits > most ? most : bits;
}

/* The scales that a tile needs. */
static void tile_scales(const struct sl_codec_spec *spec, const float *in, size_t count,
                        uint32_t *scales)
{
    size_t whole = count / BLOCK * BLOCK, blocks = sl_shiq_scale_count(count);
    float last[BLOCK] = {0};

    sl_codec_kernels()->maxima(&(struct sl_input){.at = in, .dtype = SLUICE_F32}, whole, BLOCK,
                               scales);
    if (whole < count) {
        memcpy(last, in + whole, (count - whole) * sizeof(*in));
        sl_codec_kernels()->maxima(&(struct sl_input){.at = last, .dtype = SLUICE_F32}, BLOCK,
                                   BLOCK, scales + whole / BLOCK);
    }
    for (size_t b = 0; b < blocks; b++)
        scales[b] = scale_of(scales[b], largest_of(spec));
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

static bool is_random(const struct sl_codec_spec *spec)
{
    return (spec->flags & SL_SPEC_STOCHASTIC) != 0;
}

/* A tile's blocks at once: kernels take whole ones. */
struct work {
    const float *in;
    size_t blocks;
    float inverse[SL_TILE / BLOCK]; /* 0: all codes are */
    uint16_t random[SL_TILE];
};

static void quantise_narrow(const struct sl_codec_spec *spec, const struct work *w, int8_t *codes)
{
    const struct sl_input in = {.at = w->in, .dtype = SLUICE_F32};
    int8_t largest = (int8_t)largest_of(spec);

    sl_codec_kernels()->codes(8, &in, w->blocks * BLOCK, BLOCK, w->inverse,
                              is_random(spec) ? w->random : NULL, false, codes);
    for (size_t i = 0; i < w->blocks * BLOCK; i++) {
        int8_t code = codes[i] > largest ? largest : codes[i];

        codes[i] = code < -largest ? (int8_t)-largest : code;
    }
    for (size_t b = 0; b < w->blocks; b++)
        if (w->inverse[b] == 0)
            memset(codes + b * BLOCK, 0, BLOCK);
}

static void quantise_wide(const struct sl_codec_spec *spec, const struct work *w, int16_t *codes)
{
    float largest = (float)largest_of(spec);

    for (size_t b = 0; b < w->blocks; b++) {
        const float *in = w->in + b * BLOCK;
        int16_t *out = codes + b * BLOCK;

        if (w->inverse[b] == 0)
            memset(out, 0, BLOCK * sizeof(*out));
        else if (!is_random(spec))
            for (size_t i = 0; i < BLOCK; i++)
                out[i] = (int16_t)nearest(in[i], w->inverse[b], largest);
        else
            for (size_t i = 0; i < BLOCK; i++)
                out[i] =
                    (int16_t)at_random(in[i], w->inverse[b], largest, w->random[b * BLOCK + i]);
    }
}

/* Codes of a tile. What is no whole number of blocks goes by way of ones that zeros fill up. */
static void quantise_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const float *in, size_t count, const uint32_t *scales, void *codes)
{
    bool whole = count % BLOCK == 0;
    struct work w;
    uint16_t filled_codes[SL_TILE];
    void *to = whole ? codes : filled_codes;
    float filled[SL_TILE];

    w.in = in;
    w.blocks = sl_shiq_scale_count(count);
    if (!whole) {
        memcpy(filled, in, count * sizeof(*in));
        memset(filled + count, 0, (w.blocks * BLOCK - count) * sizeof(*in));
        w.in = filled;
    }
    for (size_t b = 0; b < w.blocks; b++)
        w.inverse[b] = scales[b] == 0 || scales[b] >= SL_BITS_INF ? 0 : 1 / sl_f32_of(scales[b]);
    if (is_random(spec))
        sl_codec_kernels()->random(at->first, w.blocks * BLOCK, at->stream, at->step, spec->seed,
                                   w.random);
    if (wide(spec))
        quantise_wide(spec, &w, (int16_t *)to);
    else
        quantise_narrow(spec, &w, (int8_t *)to);
    if (!whole)
        memcpy(codes, to, count * width_of(spec));
}

static int load_code(const struct sl_codec_spec *spec, const void *codes, size_t i)
{
    return wide(spec) ? ((const int16_t *)codes)[i] : ((const int8_t *)codes)[i];
}

/* Some codes as floats. */
static void load_codes(const struct sl_codec_spec *spec, const void *codes, size_t first,
                       size_t count, float *out)
{
    const int16_t *halves = (const int16_t *)codes + first;
    const int8_t *bytes = (const int8_t *)codes + first;

    if (wide(spec))
        for (size_t i = 0; i < count; i++)
            out[i] = halves[i];
    else
        for (size_t i = 0; i < count; i++)
            out[i] = bytes[i];
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
    float floats[SL_TILE];

    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE;

        tile_scales(spec, sl_elements_floats(spec->dtype, element_of(spec, in, first), n, floats),
                    n, scales + first / BLOCK);
    }
}

void sl_shiq_quantise(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t count, const uint32_t *scales, void *codes)
{
    struct sl_codec_at here = *at;
    float floats[SL_TILE];

    for (size_t first = 0; first < count; first += SL_TILE, here.first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE;

        quantise_tile(spec, &here,
                      sl_elements_floats(spec->dtype, element_of(spec, in, first), n, floats), n,
                      scales + first / BLOCK, (char *)codes + first * width_of(spec));
    }
}

void sl_shiq_dequantise(const struct sl_codec_spec *spec, const void *codes, size_t count,
                        const uint32_t *scales, float factor, void *out)
{
    float floats[BLOCK];

    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = block_count(first, count);
        float scale = sl_f32_of(scales[first / BLOCK]);

        load_codes(spec, codes, first, n, floats);
        for (size_t i = 0; i < n; i++)
            floats[i] *= scale;
        for (size_t i = 0; i < n && factor != 1; i++)
            floats[i] *= factor;
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
    size_t blocks = sl_shiq_scale_count(count), codes = scales_len(count);
    size_t end = codes + count * width_of(spec);
    uint32_t own[SL_TILE / BLOCK];

    if (scales == NULL) {
        tile_scales(spec, in, count, own);
        scales = own;
    }
    memset(out, 0, codes);
    for (size_t b = 0; b < blocks; b++)
        ((uint16_t *)out)[b] = (uint16_t)(scales[b] >> 16);
    quantise_tile(spec, at, in, count, scales, (char *)out + codes);
    memset((char *)out + end, 0, tile_len(spec, count) - end);
}

static void encode_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const float *in, size_t count, uint32_t *hint, void *out)
{
    encode_blocks(spec, at, in, count, NULL, out);
}

static int add_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                    size_t count, float *sum)
{
    float floats[BLOCK];

    for (size_t first = 0; first < count; first += BLOCK) {
        float scale = sl_f32_of_bf16(((const uint16_t *)in)[first / BLOCK]);
        size_t n = block_count(first, count);

        load_codes(spec, (const char *)in + scales_len(count), first, n, floats);
        for (size_t i = 0; i < n; i++)
            sum[first + i] += floats[i] * scale;
    }
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

        encode_blocks(spec, &here,
                      sl_elements_floats(spec->dtype, element_of(spec, in, first), n, floats), n,
                      scales + first / BLOCK, (char *)out + done);
        done += tile_len(spec, n);
    }
    return done;
}

/* Whether all sums are such that ranks could make; then, they are made. */
static int add_codes(const struct sl_codec_spec *spec, void *sum, const void *in, size_t count)
{
    int most = largest_of(spec) * (int)ranks_of(spec), wrong = 0;

    for (size_t i = 0; i < count; i++) {
        int code = load_code(spec, sum, i) + load_code(spec, in, i);

        wrong |= code > most || code < -most;
    }
    if (wrong)
        return sl_fail(-EBADMSG, "sums of shiq codes are larger than %u ranks could make them",
                       ranks_of(spec));
    for (size_t i = 0; i < count; i++) {
        if (wide(spec))
            ((int16_t *)sum)[i] += ((const int16_t *)in)[i];
        else
            ((int8_t *)sum)[i] += ((const int8_t *)in)[i];
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
