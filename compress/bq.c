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
    static const struct shape shapes[] = {
        {8, 128, {.drop = 16, .most = 0x7c01, .quantile = 127}},
        {4, 32, {.bytes = true, .drop = 20, .most = 0x7e1, .quantile = 7}},
        {2, 32, {.bytes = true, .drop = 20, .most = 0x7f7, .quantile = 1}}};

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
    at.codes = at.scales + sl_codec_round16(blocks * (shape->scales.bytes ? 1u : 2u));
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
    _Alignas(uint16_t) char codes[SL_BLOCKS_MAX]; /* of scales, as they are sent */
};

static size_t scale_bytes(const struct shape *shape)
{
    return shape->scales.bytes ? 1 : 2;
}

/* Writes the scales of a tile, those behind its end 0. */
static void put_scales(const struct shape *shape, const struct sl_tile *tile,
                       const struct blocks *blocks, int base, char *out)
{
    struct layout at = layout_of(shape, tile->count);
    size_t len = at.blocks * scale_bytes(shape);

    if (shape->scales.bytes) {
        memset(out, 0, HEAD);
        out[0] = (char)(base == SL_SCALE_NO_BASE ? 0 : base);
    }
    memcpy(out + at.scales, blocks->codes, len);
    memset(out + at.scales + len, 0, at.codes - at.scales - len);
}

/* Codes of blocks that are not finite become 0, and what is left of their sums, if there is a
 * residual. */
static void clear_wild(const struct shape *shape, const uint32_t *max, size_t blocks,
                       float *residual, uint8_t *codes)
{
    size_t len = (size_t)shape->block * shape->bits / 8;
    uint32_t largest = 0;

    for (size_t b = 0; b < blocks; b++)
        largest = max[b] > largest ? max[b] : largest;
    for (size_t b = 0; largest >= SL_BITS_INF && b < blocks; b++) {
        if (max[b] < SL_BITS_INF)
            continue;
        memset(codes + b * len, 0, len);
        if (residual != NULL)
            memset(residual + b * shape->block, 0, shape->block * sizeof(*residual));
    }
}

/* What one encoding of a message has in common with all its tiles. */
struct work {
    const struct sl_codec_spec *spec;
    const struct sl_codec_at *at;
    const struct shape *shape;
    struct sl_scales scales;
    const struct sl_codec_kernels *kernels;
    size_t tile_len;
    bool stream;
};

static struct work work_of(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                           size_t len)
{
    const struct shape *shape = shape_of(spec);
    struct sl_scales scales = shape->scales;

    /* At random the largest must not clip, or its mean would be less than it is. */
    scales.up = (spec->flags & SL_SPEC_STOCHASTIC) != 0;
    return (struct work){.spec = spec,
                         .at = at,
                         .shape = shape,
                         .scales = scales,
                         .kernels = sl_codec_kernels(),
                         .tile_len = layout_of(shape, SL_TILE).len,
                         .stream = len >= SL_STREAM_BYTES};
}

/* Elements that are still in registers' reach when their scales are known: so memory and arithmetic
 * have work at the same time, and lines come as the CPU's own prefetching brings them. */
#define PART ((size_t)1024)
#define PARTS (SL_TILE / PART)

/* A tile that is being encoded. */
struct encoding {
    struct blocks blocks;
    int base[PARTS]; /* of each part's scales */
    float *residual; /* or NULL: of elements alone */
    float *sums;     /* those of a residual, kept where codes are at random; or NULL */
    uint8_t *codes;
};

/* A block below its tile's range is a zero block: what was sent of its sum is taken back. Rounded
 * to nearest, it is added again, which is exact: it is between half of the sum and twice it, or 0,
 * so the difference was exact, too (P. Sterbenz, "Floating-point computation", 1974). */
static void take_back(const struct shape *shape, const struct encoding *tile, size_t b)
{
    uint8_t *codes = tile->codes + b * shape->block * shape->bits / 8;
    size_t first = b * shape->block;

    if (tile->sums != NULL)
        memcpy(tile->residual + first, tile->sums + first, shape->block * sizeof(float));
    else if (tile->residual != NULL)
        sl_codec_kernels_c.decode(
            shape->bits, codes, shape->block, shape->block, &tile->blocks.scale[b],
            &(struct sl_output){tile->residual + first, SLUICE_F32, SL_PUT_ADD});
    memset(codes, 0, (size_t)shape->block * shape->bits / 8);
}

/* Bytes of a part, over the tile's base instead of their own, which is lower by down eighths.
 * Returns whether any became 0. */
static bool rebase(uint8_t bytes[PART / 32], unsigned down)
{
    uint8_t lower = down < SL_SCALE_NAN ? (uint8_t)down : SL_SCALE_NAN, lost = 0;

    for (size_t b = 0; b < PART / 32; b++) {
        uint8_t rest = bytes[b] > lower ? (uint8_t)(bytes[b] - lower) : 0;

        rest = bytes[b] == SL_SCALE_NAN ? SL_SCALE_NAN : rest;
        lost |= (uint8_t)((bytes[b] != 0) & (rest == 0));
        bytes[b] = rest;
    }
    return lost != 0;
}

/* Brings all bytes to the base of the tile, which it returns. */
static int join(const struct shape *shape, struct encoding *tile)
{
    uint8_t *bytes = (uint8_t *)tile->blocks.codes;
    int most = SL_SCALE_NO_BASE;
    bool lost = false;

    for (size_t p = 0; p < PARTS; p++)
        most = tile->base[p] > most ? tile->base[p] : most;
    for (size_t p = 0; p < PARTS; p++)
        if (tile->base[p] < most && tile->base[p] != SL_SCALE_NO_BASE)
            lost |= rebase(bytes + p * PART / 32, 8 * (unsigned)(most - tile->base[p]));
    for (size_t b = 0; lost && b < SL_TILE / 32; b++)
        if (bytes[b] == 0 && tile->blocks.scale[b] != 0)
            take_back(shape, tile, b);
    return most;
}

/* The part's random numbers in room, or NULL where it rounds to nearest. They take as long as
 * memory does, so what is looked at next is asked for before. */
static const uint16_t *draw(const struct work *work, size_t first, size_t count,
                            const struct sl_input *x, const float *residual, uint16_t *room)
{
    if ((work->spec->flags & SL_SPEC_STOCHASTIC) == 0)
        return NULL;
    for (size_t i = 0; i < count * sl_dtype_bytes(x->dtype); i += 64)
        __builtin_prefetch((const char *)x->at + i, 0, 2);
    for (size_t i = 0; residual != NULL && i < count; i += 16)
        __builtin_prefetch(residual + i, 1, 2);
    work->kernels->random(work->at->first + first, count, work->at->stream, work->at->step,
                          work->spec->seed, room);
    return room;
}

/* x, rotated in room. */
static struct sl_input rotate(const struct work *work, const struct sl_input *x, size_t count,
                              float room[PART])
{
    unsigned block = work->shape->block;

    work->kernels->rotate(sl_elements_floats(x->dtype, x->at, count, room), count, block,
                          1.0f / (float)block, room);
    return (struct sl_input){.at = room, .dtype = SLUICE_F32};
}

/* Scales and codes of elements, or of the sums that they become in a residual, if there is one.
 * first: of the tile, which begins at element start of the message. */
static void encode_part(const struct work *work, struct encoding *tile, size_t start, size_t first,
                        size_t count, const struct sl_input *elements)
{
    const struct sl_codec_kernels *kernels = work->kernels;
    const struct shape *shape = work->shape;
    struct blocks *blocks = &tile->blocks;
    size_t b = first / shape->block, block = shape->block;
    uint8_t *codes = tile->codes + first * shape->bits / 8;
    float room[PART], *sum = tile->residual != NULL ? tile->residual + first : NULL;
    uint16_t numbers[PART];
    struct sl_input x = sl_input_from(elements, first);
    const uint16_t *random = draw(work, start + first, count, &x, sum, numbers);

    if ((work->spec->flags & SL_SPEC_ROTATED) != 0)
        x = rotate(work, &x, count, room);
    if (sum != NULL)
        kernels->feedback_maxima(&x, count, block, sum, blocks->max + b);
    else
        kernels->maxima(&x, count, block, blocks->max + b);
    if (sum != NULL && tile->sums != NULL)
        memcpy(tile->sums + first, sum, count * sizeof(*sum));
    tile->base[first / PART] =
        kernels->scales(&work->scales, blocks->max + b, count / block, blocks->scale + b,
                        blocks->inverse + b, blocks->codes + b * scale_bytes(shape));
    if (sum != NULL)
        kernels->feedback_codes(shape->bits, sum, count, block, blocks->inverse + b,
                                blocks->scale + b, random, work->stream, codes);
    else
        kernels->codes(shape->bits, &x, count, block, blocks->inverse + b, random, work->stream,
                       codes);
}

/* x: whole units. What lies behind the blocks of a tile's elements is 0, and so are its codes.
 * residual: NULL, or of a whole tile. */
static void encode_tile(const struct work *work, const struct sl_tile *tile,
                        const struct sl_input *x, float *residual, char *out)
{
    const struct shape *shape = work->shape;
    struct layout at = layout_of(shape, tile->count);
    bool whole = tile->count == SL_TILE, at_random = (work->spec->flags & SL_SPEC_STOCHASTIC) != 0;
    _Alignas(64) uint8_t spare[SL_TILE];
    float sums[SL_TILE];
    struct encoding now = {.residual = residual,
                           .sums =
                               residual != NULL && at_random && shape->scales.bytes ? sums : NULL,
                           .codes = whole ? (uint8_t *)out + at.codes : spare};

    for (size_t p = 0; p < PARTS; p++)
        now.base[p] = SL_SCALE_NO_BASE;
    for (size_t first = 0; first < tile->units; first += PART)
        encode_part(work, &now, tile->first, first,
                    tile->units - first < PART ? tile->units - first : PART, x);
    put_scales(shape, tile, &now.blocks, shape->scales.bytes ? join(shape, &now) : 0, out);
    clear_wild(shape, now.blocks.max, at.blocks, residual, now.codes);
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
        struct sl_input x = sl_tile_input(&tile, spec->dtype, in, count, scratch);

        encode_tile(&work, &tile, &x, NULL, (char *)out + first / SL_TILE * work.tile_len);
    }
    sl_tile_fence(len);
    return len;
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
        struct sl_input x = sl_tile_input(&tile, spec->dtype, in, count, scratch);

        encode_tile(&work, &tile, &x, residual + first,
                    (char *)out + first / SL_TILE * work.tile_len);
    }
    sl_tile_fence(len);
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

/* Where rotated blocks go, which come as floats and are stored alone: what is added is
 * delivered. */
static struct sl_output to_floats(const struct sl_tile *tile, unsigned dtype, void *out,
                                  size_t count, bool add, float scratch[SL_TILE])
{
    struct sl_output to = {.dtype = SLUICE_F32};

    to.at = sl_tile_target(tile, dtype, out, count, add, scratch, &to.put);
    to.at = to.put == SL_PUT_ADD ? scratch : to.at;
    return to;
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
        struct sl_output to = rotated ? to_floats(&tile, dtype, out, count, add, scratch)
                                      : sl_tile_output(&tile, dtype, out, count, add, scratch);

        read_scales(shape, from, at.blocks, scale);
        if (tile.count < SL_TILE) {
            memset(spare, 0, sizeof(spare));
            codes = memcpy(spare, codes, at.code_len);
        }
        if (rotated) {
            kernels->decode(shape->bits, codes, tile.units, shape->block, scale,
                            &(struct sl_output){scratch, SLUICE_F32, SL_PUT_STORE});
            kernels->rotate(scratch, tile.units, shape->block, 1.0f, to.at);
        } else {
            kernels->decode(shape->bits, codes, tile.units, shape->block, scale, &to);
        }
        if (to.at == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
    sl_tile_fence(add ? 0 : count * sl_dtype_bytes(dtype));
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
