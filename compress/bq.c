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
#include "compress/scaled.h"
#include "compress/tile.h"

#define HEAD 16 /* bytes before scales of 8 bits: the base, zeros */

struct shape {
    uint8_t bits, block;
    struct sl_scales scales;
};

static const struct shape *shape_of(const struct sl_codec_spec *spec)
{
    static const struct shape shapes[] = {{8, 128, {false, 16, 0x7c01, 127.0f}},
                                          {4, 32, {true, 20, 0x7e1, 7.0f}},
                                          {2, 32, {true, 20, 0x7f7, 1.0f}}};

    return &shapes[spec->id - SL_CODEC_BQ8];
}

/* Where the parts of a tile of count elements lie. */
struct layout {
    size_t blocks, scales, codes, code_len, len;
};

static struct layout layout_of(const struct shape *shape, size_t count)
{
    size_t blocks = (count + shape->block - 1) / shape->block;
    struct layout at = {.blocks = blocks, .scales = shape->scales.bytes ? HEAD : 0};

    if (count == 0)
        return (struct layout){0};
    at.codes = at.scales + sl_codec_round16(blocks * (shape->scales.bytes ? 1 : 2));
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

/* What is known of a tile's blocks. */
struct blocks {
    uint32_t max[SL_BLOCKS_MAX]; /* of magnitudes, as bits */
    float scale[SL_BLOCKS_MAX], inverse[SL_BLOCKS_MAX];
};

/* From their maxima: finds and writes the scales of a tile, those behind its end 0. */
static void write_scales(const struct shape *shape, const struct sl_tile *tile,
                         struct blocks *blocks, char *out)
{
    size_t count = tile->units / shape->block;
    struct layout at = layout_of(shape, tile->count);
    _Alignas(uint16_t) char codes[SL_BLOCKS_MAX];
    int base = sl_codec_kernels()->scales(&shape->scales, blocks->max, count, blocks->scale,
                                          blocks->inverse, codes);
    size_t len = at.blocks * (shape->scales.bytes ? 1 : 2);

    if (shape->scales.bytes) {
        memset(out, 0, HEAD);
        out[0] = (char)base;
    }
    memcpy(out + at.scales, codes, len);
    memset(out + at.scales + len, 0, at.codes - at.scales - len);
}

/* Codes of blocks that are not finite become 0. */
static void clear_codes(const struct shape *shape, const uint32_t *max, size_t blocks,
                        uint8_t *codes)
{
    size_t len = (size_t)shape->block * shape->bits / 8;
    uint32_t largest = 0;

    for (size_t b = 0; b < blocks; b++)
        largest = max[b] > largest ? max[b] : largest;
    for (size_t b = 0; largest >= SL_BITS_INF && b < blocks; b++)
        if (max[b] >= SL_BITS_INF)
            memset(codes + b * len, 0, len);
}

/* What one encoding of a message has in common with all its tiles. */
struct work {
    const struct sl_codec_spec *spec;
    const struct sl_codec_at *at;
    const struct shape *shape;
    const struct sl_codec_kernels *kernels;
    size_t tile_len;
    bool stream;
};

static struct work work_of(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                           size_t len)
{
    const struct shape *shape = shape_of(spec);

    return (struct work){
        spec, at, shape, sl_codec_kernels(), layout_of(shape, SL_TILE).len, len >= SL_STREAM_BYTES};
}

/* The tile's random numbers in room, or NULL where it rounds to nearest. */
static const uint16_t *draw(const struct work *work, const struct sl_tile *tile, uint16_t *room)
{
    if ((work->spec->flags & SL_SPEC_STOCHASTIC) == 0)
        return NULL;
    work->kernels->random(work->at->first + tile->first, tile->units, work->at->stream,
                          work->at->step, work->spec->seed, room);
    return room;
}

/* x: whole units. What lies behind the blocks of count elements is 0, and so are its codes. */
static void encode_tile(const struct work *work, const struct sl_tile *tile, const float *x,
                        const void *next, char *out)
{
    const struct shape *shape = work->shape;
    struct layout at = layout_of(shape, tile->count);
    bool whole = tile->count == SL_TILE;
    uint16_t room[SL_TILE];
    const uint16_t *random = draw(work, tile, room);
    uint8_t spare[SL_TILE], *codes = whole ? (uint8_t *)out + at.codes : spare;
    struct blocks blocks;

    work->kernels->maxima(x, tile->units, shape->block, next, blocks.max);
    write_scales(shape, tile, &blocks, out);
    work->kernels->codes(shape->bits, x, tile->units, shape->block, blocks.inverse, random, next,
                         whole && work->stream, codes);
    clear_codes(shape, blocks.max, at.blocks, codes);
    if (whole)
        return;
    memcpy(out + at.codes, spare, at.code_len);
    memset(out + at.codes + at.code_len, 0, at.len - at.codes - at.code_len);
}

static size_t bq_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const void *in, size_t count, void *out)
{
    size_t len = bq_size(spec, count);
    struct work work = work_of(spec, at, len);

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        const void *next;
        const float *x = sl_tile_floats(&tile, spec->dtype, in, count, scratch, &next);

        if ((spec->flags & SL_SPEC_ROTATED) != 0) {
            work.kernels->rotate(x, tile.units, work.shape->block, 1.0f / work.shape->block,
                                 scratch);
            x = scratch;
        }
        encode_tile(&work, &tile, x, next, (char *)out + first / SL_TILE * work.tile_len);
    }
    work.kernels->fence();
    return len;
}

/* The sum lies in the residual from the first pass to the last. */
static void feedback_tile(const struct work *work, const struct sl_tile *tile, const float *x,
                          float *residual, const void *next, char *out)
{
    const struct shape *shape = work->shape;
    size_t count = SL_TILE / shape->block, at = layout_of(shape, SL_TILE).codes;
    uint16_t room[SL_TILE];
    const uint16_t *random = draw(work, tile, room);
    struct blocks blocks;

    work->kernels->feedback_maxima(x, SL_TILE, shape->block, residual, blocks.max);
    write_scales(shape, tile, &blocks, out);
    work->kernels->feedback_codes(shape->bits, residual, SL_TILE, shape->block, blocks.inverse,
                                  blocks.scale, random, next, work->stream, out + at);
    clear_codes(shape, blocks.max, count, (uint8_t *)out + at);
}

/* Not for rotated blocks, which are no longer there when it is known what of them was sent. */
static size_t bq_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, float *residual, size_t count, void *out)
{
    size_t len = bq_size(spec, count);
    struct work work = work_of(spec, at, len);

    if ((spec->flags & SL_SPEC_ROTATED) != 0)
        return 0;
    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        const void *next;
        const float *x = sl_tile_floats(&tile, spec->dtype, in, count, scratch, &next);

        feedback_tile(&work, &tile, x, residual + first, next,
                      (char *)out + first / SL_TILE * work.tile_len);
    }
    work.kernels->fence();
    return len;
}

static void read_scales(const struct shape *shape, const char *in, size_t blocks, float *scale)
{
    const uint8_t *bytes = (const uint8_t *)in + HEAD;
    int32_t lowest = 8 * ((int8_t)in[0] + 127 - SL_SCALE_TOP);

    if (!shape->scales.bytes) {
        sl_scaled_read_bf16((const uint8_t *)in, blocks, scale);
        return;
    }
    for (size_t b = 0; b < blocks; b++) {
        int32_t s = bytes[b] + lowest;
        uint32_t bits = s > 0x7f7 || bytes[b] == SL_SCALE_NAN ? SL_BITS_NAN : (uint32_t)s << 20;

        scale[b] = sl_f32_of(bytes[b] == 0 || (s < 8 && bytes[b] != SL_SCALE_NAN) ? 0 : bits);
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
        float scratch[SL_TILE], scale[SL_BLOCKS_MAX] = {0};
        uint8_t spare[SL_TILE];
        const void *codes = from + at.codes;
        enum sl_put put;
        float *to = sl_tile_target(&tile, dtype, out, count, add, scratch, &put);

        read_scales(shape, from, at.blocks, scale);
        if (tile.count < SL_TILE) {
            memset(spare, 0, sizeof(spare));
            codes = memcpy(spare, codes, at.code_len);
        }
        if (rotated) {
            to = put == SL_PUT_ADD ? scratch : to;
            kernels->decode(shape->bits, codes, tile.units, shape->block, scale, SL_PUT_STORE,
                            scratch);
            kernels->rotate(scratch, tile.units, shape->block, 1.0f, to);
        } else {
            kernels->decode(shape->bits, codes, tile.units, shape->block, scale, put, to);
        }
        if (to == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
    kernels->fence();
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
        .size = bq_size, .encode = bq_encode, .decode = bq_decode, .decode_add = bq_decode_add,    \
        .feedback = bq_feedback                                                                    \
    }

const struct sl_codec sl_codec_bq8 = BQ_ROW(8, "8 bits an element, a scale for each 128");
const struct sl_codec sl_codec_bq4 = BQ_ROW(4, "4 bits an element, a scale for each 32");
const struct sl_codec sl_codec_bq2 = BQ_ROW(2, "-1, 0 or 1 for each element, a scale for each 32");
