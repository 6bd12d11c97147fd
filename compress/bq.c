/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block quantisation: integers of 8, 4 or 2 bits, a scale for each block of them.
 *
 *   bq8   blocks of 128, a scale in bf16 each
 *   bq4   blocks of 32, scales of 8 bits: an unsigned float of 5 and 3 bits over the tile's base
 *   bq2   the same with -1, 0 and 1
 */
#include "compress/codecs.h"
#include "compress/elements.h"
#include "compress/tile.h"

#define BLOCKS_MAX (SL_TILE / 32)
#define SCALE_NAN 255    /* of 8 bits */
#define SCALE_TOP 30     /* exponent of the code of a tile's largest scale */
#define HEAD 16          /* bytes before scales of 8 bits: the base, zeros */
#define FLOAT_BIAS 127   /* of an f32's exponent */
#define LEAST 0x00800000 /* 2^-126 */

struct shape {
    uint8_t bits, block;
    bool bytes;     /* scales of 8 bits, over a base */
    uint8_t drop;   /* bits of an f32 that the scale has not */
    uint32_t most;  /* the largest scale, those bits dropped: its product by most code is finite */
    float quantile; /* the largest code */
};

static const struct shape *shape_of(const struct sl_codec_spec *spec)
{
    static const struct shape shapes[] = {{8, 128, false, 16, 0x7c01, 127.0f},
                                          {4, 32, true, 20, 0x7e1, 7.0f},
                                          {2, 32, true, 20, 0x7f7, 1.0f}};

    return &shapes[spec->id - SL_CODEC_BQ8];
}

/* Where the parts of a tile of count elements lie. */
struct layout {
    size_t blocks, scales, codes, code_len, len;
};

static struct layout layout_of(const struct shape *shape, size_t count)
{
    size_t blocks = (count + shape->block - 1) / shape->block;
    struct layout at = {.blocks = blocks, .scales = shape->bytes ? HEAD : 0};

    if (count == 0)
        return (struct layout){0};
    at.codes = at.scales + sl_codec_round16(blocks * (shape->bytes ? 1 : 2));
    at.code_len = blocks * shape->block * shape->bits / 8;
    at.len = at.codes + sl_codec_round16(at.code_len);
    return at;
}

static int bq_check(const struct sl_codec_spec *spec)
{
    return sl_codec_check_used(spec, spec->id == SL_CODEC_BQ2 ? 0 : SL_USES_ROTATED);
}

static size_t bq_size(const struct sl_codec_spec *spec, size_t count)
{
    const struct shape *shape = shape_of(spec);

    return count / SL_TILE * layout_of(shape, SL_TILE).len + layout_of(shape, count % SL_TILE).len;
}

/* The scale of each block, as the f32's bits without those dropped; 0: of zeros, or not finite. */
static void find_scales(const struct shape *shape, const uint32_t *max, size_t blocks,
                        uint32_t *scale)
{
    const uint32_t up = (1u << shape->drop) - 1, least = LEAST >> shape->drop;

    for (size_t b = 0; b < blocks; b++) {
        uint32_t s = (sl_f32_bits(sl_f32_of(max[b]) / shape->quantile) + up) >> shape->drop;

        s = s < least ? least : s;
        s = s > shape->most ? shape->most : s;
        scale[b] = max[b] < LEAST || max[b] >= SL_BITS_INF ? 0 : s;
    }
}

static void write_halves(const uint32_t *max, const uint32_t *scale, size_t blocks, uint16_t *out)
{
    for (size_t b = 0; b < blocks; b++)
        out[b] = (uint16_t)(max[b] >= SL_BITS_INF ? SL_BITS_NAN >> 16 : scale[b]);
}

/* Scales too small for the base become 0. */
static void write_bytes(const uint32_t *max, uint32_t *scale, size_t blocks, uint8_t *head)
{
    uint32_t top = 0, lowest;

    for (size_t b = 0; b < blocks; b++)
        top = scale[b] > top ? scale[b] : top;
    memset(head, 0, HEAD);
    lowest = 0;
    if (top > 0) {
        int base = (int)(top >> 3) - FLOAT_BIAS;

        head[0] = (uint8_t)(int8_t)base;
        lowest = (uint32_t)(8 * (base + FLOAT_BIAS - SCALE_TOP)); /* may be below 0, modulo 2^32 */
    }
    for (size_t b = 0; b < blocks; b++) {
        int32_t code = (int32_t)(scale[b] - lowest);

        if (code < 1 || scale[b] == 0)
            code = 0, scale[b] = 0;
        head[HEAD + b] = (uint8_t)(max[b] >= SL_BITS_INF ? SCALE_NAN : code);
    }
}

/* Correctly rounded; 0 for the scale 0. */
static void invert(const struct shape *shape, const uint32_t *scale, size_t blocks, float *inverse)
{
    for (size_t b = 0; b < blocks; b++) {
        float one = 1.0f / sl_f32_of(scale[b] << shape->drop);

        inverse[b] = scale[b] != 0 ? one : 0.0f;
    }
}

/* x: whole units. What lies behind the blocks of count elements is 0, and so are its codes. */
static void encode_tile(const struct shape *shape, const struct sl_tile *tile, const float *x,
                        const uint16_t *random, const void *ahead, bool stream, char *out)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    struct layout at = layout_of(shape, tile->count);
    size_t blocks = tile->units / shape->block;
    uint32_t max[BLOCKS_MAX], scale[BLOCKS_MAX];
    uint8_t spare[SL_TILE];
    float inverse[BLOCKS_MAX];

    kernels->maxima(x, tile->units, shape->block, max);
    find_scales(shape, max, blocks, scale);
    memset(out + at.scales, 0, at.codes - at.scales);
    if (shape->bytes)
        write_bytes(max, scale, at.blocks, (uint8_t *)out);
    else
        write_halves(max, scale, at.blocks, (uint16_t *)(void *)out);
    invert(shape, scale, blocks, inverse);
    if (tile->count == SL_TILE) {
        kernels->codes(shape->bits, x, SL_TILE, shape->block, inverse, random, ahead, stream,
                       out + at.codes);
        return;
    }
    kernels->codes(shape->bits, x, tile->units, shape->block, inverse, random, NULL, false, spare);
    memcpy(out + at.codes, spare, at.code_len);
    memset(out + at.codes + at.code_len, 0, at.len - at.codes - at.code_len);
}

static size_t bq_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const void *in, size_t count, void *out)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    const struct shape *shape = shape_of(spec);
    size_t step = layout_of(shape, SL_TILE).len, len = bq_size(spec, count);
    bool stream = len >= SL_STREAM_BYTES, at_random = (spec->flags & SL_SPEC_STOCHASTIC) != 0;

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        uint16_t random[SL_TILE];
        const void *ahead;
        const float *x = sl_tile_floats(&tile, spec->dtype, in, count, scratch, &ahead);

        if ((spec->flags & SL_SPEC_ROTATED) != 0) {
            kernels->rotate(x, tile.units, shape->block, 1.0f / shape->block, scratch);
            x = scratch;
        }
        if (at_random)
            kernels->random(at->first + first, tile.units, at->stream, at->step, spec->seed,
                            random);
        encode_tile(shape, &tile, x, at_random ? random : NULL, ahead, stream,
                    (char *)out + first / SL_TILE * step);
    }
    return len;
}

static void read_scales(const struct shape *shape, const char *in, size_t blocks, float *scale)
{
    const uint16_t *halves = (const uint16_t *)(const void *)in;
    const uint8_t *bytes = (const uint8_t *)in + HEAD;
    int32_t lowest = 8 * ((int8_t)in[0] + FLOAT_BIAS - SCALE_TOP);

    if (!shape->bytes) {
        for (size_t b = 0; b < blocks; b++)
            scale[b] = sl_f32_of_bf16(halves[b]);
        return;
    }
    for (size_t b = 0; b < blocks; b++) {
        int32_t s = bytes[b] + lowest;
        uint32_t bits = s > 0x7f7 || bytes[b] == SCALE_NAN ? SL_BITS_NAN : (uint32_t)s << 20;

        scale[b] = sl_f32_of(bytes[b] == 0 || (s < 8 && bytes[b] != SCALE_NAN) ? 0 : bits);
    }
}

static int bq_decode_to(const struct sl_codec_spec *spec, const void *in, size_t len, size_t count,
                        unsigned dtype, void *out, bool add)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    const struct shape *shape = shape_of(spec);
    bool rotated = (spec->flags & SL_SPEC_ROTATED) != 0;
    size_t step = layout_of(shape, SL_TILE).len;
    int err = sl_codec_check_len(spec, len, count);

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE) {
        const char *from = (const char *)in + first / SL_TILE * step;
        struct sl_tile tile = sl_tile_at(first, count);
        struct layout at = layout_of(shape, tile.count);
        float scratch[SL_TILE], scale[BLOCKS_MAX] = {0};
        uint8_t spare[SL_TILE];
        const void *codes = from + at.codes;
        enum sl_put put = SL_PUT_STORE;
        float *to =
            rotated ? scratch : sl_tile_target(&tile, dtype, out, count, add, scratch, &put);

        read_scales(shape, from, at.blocks, scale);
        if (tile.count < SL_TILE) {
            memset(spare, 0, sizeof(spare));
            codes = memcpy(spare, codes, at.code_len);
        }
        kernels->decode(shape->bits, codes, tile.units, shape->block, scale, put, to);
        if (rotated)
            kernels->rotate(scratch, tile.units, shape->block, 1.0f, scratch);
        if (to == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
    return err;
}

static int bq_decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t len, size_t count, void *out)
{
    return bq_decode_to(spec, in, len, count, spec->dtype, out, false);
}

static int bq_decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                         const void *in, size_t len, size_t count, float *sum)
{
    return bq_decode_to(spec, in, len, count, SLUICE_F32, sum, true);
}

#define BQ_ROW(bits, text)                                                                         \
    {                                                                                              \
        .name = "bq" #bits, .help = text, .id = SL_CODEC_BQ##bits,                                 \
        .flags = SL_CODEC_FIXED | SL_CODEC_STOCHASTIC | SL_CODEC_UNBIASED, .check = bq_check,      \
        .size = bq_size, .encode = bq_encode, .decode = bq_decode, .decode_add = bq_decode_add     \
    }

const struct sl_codec sl_codec_bq8 = BQ_ROW(8, "8 bits an element, a scale for each 128");
const struct sl_codec sl_codec_bq4 = BQ_ROW(4, "4 bits an element, a scale for each 32");
const struct sl_codec sl_codec_bq2 = BQ_ROW(2, "-1, 0 or 1 for each element, a scale for each 32");
