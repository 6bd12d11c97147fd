/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Count sketches, and codec "sketch": a table of rows x k floats for each tile, zeros up to 16
 * bytes, whatever the number of its elements. Cells are found by multiplying and shifting (M.
 * Dietzfelbinger, 1996): h = a i + b of 64 bits, the sign its highest bit, the column by the next
 * 32; a and b of row r are the words of philox for counter r.
 */
#include "compress/sketch.h"

#include "compress/elements.h"
#include "compress/philox.h"
#include "compress/tilewise.h"
#include "core/err.h"

#define LANES 64 /* elements that are estimated together */

struct hash {
    uint64_t a, b;
};

static void hashes_of(const struct sl_sketch *sketch, struct hash hashes[SL_SKETCH_ROWS_MOST])
{
    for (uint32_t r = 0; r < sketch->rows; r++) {
        const uint32_t counter[4] = {r, 0, 0, 0};
        uint32_t words[4];

        sl_philox(counter, sketch->seed, words);
        hashes[r].a = ((uint64_t)words[1] << 32 | words[0]) | 1;
        hashes[r].b = (uint64_t)words[3] << 32 | words[2];
    }
}

static uint64_t hash_of(struct hash hash, uint64_t element)
{
    return hash.a * element + hash.b;
}

static uint32_t column_of(uint64_t h, uint32_t columns)
{
    return (uint32_t)((h >> 31 & 0xffffffff) * columns >> 32);
}

static float with_sign_of(uint64_t h, float x)
{
    return sl_f32_of(sl_f32_bits(x) ^ (uint32_t)(h >> 63) << 31);
}

void sl_sketch_add(const struct sl_sketch *sketch, uint64_t first, const float *in, size_t count,
                   float *table)
{
    struct hash hashes[SL_SKETCH_ROWS_MOST];

    hashes_of(sketch, hashes);
    for (uint32_t r = 0; r < sketch->rows; r++) {
        float *row = table + (size_t)r * sketch->columns;

        for (size_t i = 0; i < count; i++) {
            uint64_t h = hash_of(hashes[r], first + i);

            row[column_of(h, sketch->columns)] += with_sign_of(h, in[i]);
        }
    }
}

/* Order of all floats as that of integers, NaN beyond the infinities: so the median does not depend
 * on how a CPU compares. Its own inverse. */
static int32_t order_of(int32_t bits)
{
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

/* Sorts each column of a few rows, neighbours by neighbours, many columns at once. */
static void sort_columns(int32_t (*cells)[LANES], uint32_t rows)
{
    for (uint32_t round = 0; round < rows; round++)
        for (uint32_t r = round % 2; r + 1 < rows; r += 2)
            for (unsigned i = 0; i < LANES; i++) {
                int32_t a = cells[r][i], b = cells[r + 1][i];

                cells[r][i] = a < b ? a : b;
                cells[r + 1][i] = a < b ? b : a;
            }
}

static float without_payload(float x)
{
    return (sl_f32_bits(x) & SL_BITS_ABS) > SL_BITS_INF ? sl_f32_of(SL_BITS_NAN) : x;
}

/* Up to LANES estimates. */
static void estimate_lanes(const struct sl_sketch *sketch, const struct hash *hashes,
                           const float *table, uint64_t first, size_t count, float *out)
{
    int32_t cells[SL_SKETCH_ROWS_MOST][LANES];

    sl_assert(sketch->rows > 0);
    for (uint32_t r = 0; r < sketch->rows; r++) {
        const float *row = table + (size_t)r * sketch->columns;

        for (size_t i = 0; i < LANES; i++) {
            uint64_t h = hash_of(hashes[r], first + i);
            float x = with_sign_of(h, row[column_of(h, sketch->columns)]);

            cells[r][i] = order_of((int32_t)sl_f32_bits(x));
        }
    }
    sort_columns(cells, sketch->rows);
    for (size_t i = 0; i < count; i++)
        out[i] = without_payload(sl_f32_of((uint32_t)order_of(cells[sketch->rows / 2][i])));
}

void sl_sketch_estimate(const struct sl_sketch *sketch, const float *table, uint64_t first,
                        size_t count, float *out)
{
    struct hash hashes[SL_SKETCH_ROWS_MOST];

    hashes_of(sketch, hashes);
    for (size_t i = 0; i < count; i += LANES)
        estimate_lanes(sketch, hashes, table, first + i, count - i < LANES ? count - i : LANES,
                       out + i);
}

size_t sl_sketch_topk(const struct sl_sketch *sketch, const float *table, size_t count, size_t k,
                      float *scratch, struct sl_topk_work *work, const struct sl_topk_out *out)
{
    sl_sketch_estimate(sketch, table, 0, count, scratch);
    return sl_topk_exact(scratch, count, k, 0, work, out, NULL);
}

static struct sl_sketch sketch_of(const struct sl_codec_spec *spec)
{
    return (struct sl_sketch){.rows = spec->rows, .columns = spec->k, .seed = spec->seed};
}

static int check(const struct sl_codec_spec *spec)
{
    if (spec->rows % 2 == 0 || spec->rows > SL_SKETCH_ROWS_MOST)
        return sl_fail(-EINVAL, "codec sketch has an odd number of rows up to %u, not rows=%u",
                       SL_SKETCH_ROWS_MOST, spec->rows);
    if (spec->k == 0 || (uint64_t)spec->k * spec->rows > SL_TILE)
        return sl_fail(-EINVAL,
                       "codec sketch has k=1 columns and more, up to %u cells in all rows, "
                       "not k=%u",
                       SL_TILE, spec->k);
    return sl_codec_check_used(spec, SL_USES_K | SL_USES_ROWS | SL_USES_SEED);
}

static size_t tile_len(const struct sl_codec_spec *spec, size_t count)
{
    return sl_codec_round16((size_t)spec->rows * spec->k * sizeof(float));
}

static void encode_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const float *in, size_t count, uint32_t *hint, void *out)
{
    struct sl_sketch sketch = sketch_of(spec);
    float *table = out;

    memset(out, 0, tile_len(spec, count));
    sl_sketch_add(&sketch, at->first, in, count, table);
    for (size_t i = 0; i < (size_t)sketch.rows * sketch.columns; i++)
        table[i] = without_payload(table[i]);
}

static int add_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                    size_t count, float *sum)
{
    struct sl_sketch sketch = sketch_of(spec);
    float estimates[LANES];

    for (size_t first = 0; first < count; first += LANES) {
        size_t n = count - first < LANES ? count - first : LANES;

        sl_sketch_estimate(&sketch, in, at->first + first, n, estimates);
        for (size_t i = 0; i < n; i++)
            sum[first + i] += estimates[i];
    }
    return 0;
}

static const struct sl_tilewise tiles = {tile_len, encode_tile, add_tile};

SL_TILEWISE_FUNCTIONS

const struct sl_codec sl_codec_sketch = {
    .name = "sketch",
    .help = "a count sketch of rows x k floats for each 4096: messages can be added",
    .id = SL_CODEC_SKETCH,
    .flags = SL_CODEC_FIXED | SL_CODEC_LINEAR,
    .check = check,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
    .add = sl_tilewise_add_floats,
};
