/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs "row8" and "rowe4m3": rows of row=N elements, such as the tokens of an all-to-all, each
 * with a scale of its own. A row that is small beside its neighbours loses no more than they do.
 *
 *   tile: | scales of its rows in bf16, zeros up to 16 bytes | their codes, zeros up to 16 bytes |
 *
 * A tile is as many whole rows as reach SL_TILE elements; of a message only the last row may be
 * short. Scales and codes are those of bq8's and e4m3's blocks (docs/design/0041-codecs.md).
 */
#include "compress/rows.h"

#include "compress/codecs.h"
#include "compress/elements.h"
#include "compress/scaled.h"
#include "compress/tile.h"
#include "core/err.h"

#define ROWS_MOST (SL_TILE / SL_ROW_LEAST) /* of a tile */
#define UNITS (SL_TILE / SL_UNIT)

_Static_assert(SL_ROW_MOST <= SL_TILE_MOST, "a row is a tile, if it is that long");
/* Scales are made as those of a tile's blocks, so there is room for no more. */
_Static_assert(SL_ROW_LEAST *SL_BLOCKS_MAX >= SL_TILE, "a tile's rows are no more than blocks");

static const struct sl_scales *scales_of(const struct sl_codec_spec *spec)
{
    static const struct sl_scales integers = {false, 16, 0x7c01, 127.0f};

    return spec->id == SL_CODEC_ROW8 ? &integers : &sl_scaled_e4m3.halves;
}

size_t sl_rows_tile(size_t row)
{
    return (SL_TILE + row - 1) / row * row;
}

/* Where the parts of a tile of count elements lie. */
struct layout {
    size_t rows, codes, len;
};

static struct layout layout_of(size_t row, size_t count)
{
    size_t rows = (count + row - 1) / row, codes = sl_codec_round16(rows * 2);

    return (struct layout){rows, codes, codes + sl_codec_round16(count)};
}

static int check(const struct sl_codec_spec *spec)
{
    if (spec->row < SL_ROW_LEAST || spec->row > SL_ROW_MOST)
        return sl_fail(-EINVAL,
                       "codec %s has a scale for each row: row=%d to %d elements are one, not %u",
                       sl_codec_by_id(spec->id)->name, SL_ROW_LEAST, SL_ROW_MOST, spec->row);
    return sl_codec_check_used(spec, SL_USES_ROW);
}

static size_t size(const struct sl_codec_spec *spec, size_t count)
{
    size_t tile = sl_rows_tile(spec->row);

    return count / tile * layout_of(spec->row, tile).len + layout_of(spec->row, count % tile).len;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Up to SL_TILE elements of a row, as kernels take them. */
static struct sl_tile part_at(size_t first, size_t end)
{
    struct sl_tile part = sl_tile_at(0, end - first);

    part.first = first;
    return part;
}

/* ---- encoding ---- */

/* The largest magnitude's bits of elements [first, end). */
static uint32_t maximum(const struct sl_codec_spec *spec, const void *in, size_t first, size_t end)
{
    uint32_t most = 0;

    for (; first < end; first += SL_TILE) {
        struct sl_tile part = part_at(first, end);
        float scratch[SL_TILE];
        uint32_t max[UNITS];
        struct sl_input x = sl_tile_input(&part, spec->dtype, in, end, scratch);

        sl_codec_kernels()->maxima(&x, part.units, SL_UNIT, max);
        for (size_t u = 0; u < part.units / SL_UNIT; u++)
            most = max[u] > most ? max[u] : most;
    }
    return most;
}

/* The codes of elements [first, end), which have that inverse of their scale. */
static void encode_row(const struct sl_codec_spec *spec, const void *in, size_t first, size_t end,
                       float inverse, uint8_t *out)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    float inverses[UNITS];

    for (size_t u = 0; u < UNITS; u++)
        inverses[u] = inverse;
    for (; first < end; first += SL_TILE, out += SL_TILE) {
        struct sl_tile part = part_at(first, end);
        _Alignas(64) uint8_t codes[SL_TILE];
        float scratch[SL_TILE];
        struct sl_input x = sl_tile_input(&part, spec->dtype, in, end, scratch);

        if (spec->id == SL_CODEC_ROW8)
            kernels->codes(8, &x, part.units, SL_UNIT, inverses, NULL, false, codes);
        else
            sl_scaled_kernels_of(kernels)->encode[SL_MINI_E4M3](&x, part.units, SL_UNIT, inverses,
                                                                false, codes);
        memcpy(out, codes, part.count);
    }
}

/* Elements [first, end) of the message. */
static void encode_tile(const struct sl_codec_spec *spec, const void *in, size_t first, size_t end,
                        uint8_t *out)
{
    struct layout at = layout_of(spec->row, end - first);
    uint8_t *codes = out + at.codes;
    uint32_t max[ROWS_MOST];
    float values[ROWS_MOST], inverses[ROWS_MOST];

    for (size_t r = 0; r < at.rows; r++)
        max[r] = maximum(spec, in, first + r * spec->row, least(first + (r + 1) * spec->row, end));
    memset(codes - 16, 0, 16);
    sl_codec_kernels()->scales(scales_of(spec), max, at.rows, values, inverses, out);
    memset(out + at.len - 16, 0, 16);
    for (size_t r = 0; r < at.rows; r++) {
        size_t from = first + r * spec->row, to = least(from + spec->row, end);

        if (sl_f32_bits(inverses[r]) == 0) /* zeros, or what is no number */
            memset(codes, 0, to - from);
        else
            encode_row(spec, in, from, to, inverses[r], codes);
        codes += to - from;
    }
}

static size_t encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t count, void *out)
{
    size_t tile = sl_rows_tile(spec->row), step = layout_of(spec->row, tile).len;

    for (size_t first = 0; first < count; first += tile)
        encode_tile(spec, in, first, least(first + tile, count),
                    (uint8_t *)out + first / tile * step);
    return size(spec, count);
}

/* ---- decoding ---- */

/* A row's codes to elements [first, end) of out, or added to them. */
static void decode_row(const struct sl_codec_spec *spec, const uint8_t *in, float scale,
                       unsigned dtype, void *out, size_t first, size_t end, bool add)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    float scales[UNITS];

    for (size_t u = 0; u < UNITS; u++)
        scales[u] = scale;
    for (; first < end; first += SL_TILE, in += SL_TILE) {
        struct sl_tile part = part_at(first, end);
        _Alignas(64) uint8_t codes[SL_TILE];
        float scratch[SL_TILE];
        struct sl_output to = sl_tile_output(&part, dtype, out, 0, add, scratch);

        memcpy(codes, in, part.count);
        memset(codes + part.count, 0, part.units - part.count);
        if (spec->id == SL_CODEC_ROW8)
            kernels->decode(8, codes, part.units, SL_UNIT, scales, &to);
        else
            sl_scaled_kernels_of(kernels)->decode[SL_MINI_E4M3](codes, part.units, SL_UNIT, scales,
                                                                &to);
        if (to.at == scratch)
            sl_tile_deliver(&part, dtype, out, add, scratch);
    }
}

static int decode_to(const struct sl_codec_spec *spec, const void *in, size_t len, size_t count,
                     unsigned dtype, void *out, bool add)
{
    size_t tile = sl_rows_tile(spec->row), step = layout_of(spec->row, tile).len;
    int err = sl_codec_check_len(spec, len, count);

    for (size_t first = 0; err == 0 && first < count; first += tile) {
        size_t end = least(first + tile, count);
        const uint8_t *from = (const uint8_t *)in + first / tile * step;
        struct layout at = layout_of(spec->row, end - first);
        float scales[ROWS_MOST];

        sl_scaled_read_bf16(from, at.rows, scales);
        for (size_t r = 0; r < at.rows; r++)
            decode_row(spec, from + at.codes + r * spec->row, scales[r], dtype, out,
                       first + r * spec->row, least(first + (r + 1) * spec->row, end), add);
    }
    return err;
}

static int decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                  size_t len, size_t count, void *out)
{
    return decode_to(spec, in, len, count, spec->dtype, out, false);
}

static int decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t len, size_t count, float *sum)
{
    return decode_to(spec, in, len, count, SLUICE_F32, sum, true);
}

#define ROW(number, word, text)                                                                    \
    {                                                                                              \
        .name = word, .help = text, .id = number, .flags = SL_CODEC_FIXED, .check = check,         \
        .size = size, .encode = encode, .decode = decode, .decode_add = decode_add                 \
    }

const struct sl_codec sl_codec_row8 =
    ROW(SL_CODEC_ROW8, "row8", "8 bits an element, a scale for each row of row=N");
const struct sl_codec sl_codec_rowe4m3 =
    ROW(SL_CODEC_ROWE4M3, "rowe4m3", "8-bit floats, a scale for each row of row=N");
