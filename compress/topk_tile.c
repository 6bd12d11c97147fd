/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec "topk": the k largest elements of each tile. A tile: k places of 16 bits that ascend,
 * zeros up to 16 bytes, k values of bf16 (or f32, with bits=32), zeros up to 16 bytes. The last
 * tile has all its elements, if these are fewer than k.
 */
#include "compress/elements.h"
#include "compress/kernels.h"
#include "compress/tile.h"
#include "compress/tilewise.h"
#include "compress/topk_kernels.h"
#include "core/err.h"

static unsigned dtype_of_values(const struct sl_codec_spec *spec)
{
    return spec->bits == 32 ? SLUICE_F32 : SLUICE_BF16;
}

static size_t width_of(const struct sl_codec_spec *spec)
{
    return spec->bits == 32 ? 4 : 2;
}

static size_t kept_of(const struct sl_codec_spec *spec, size_t count)
{
    return spec->k < count ? spec->k : count;
}

static size_t places_len(size_t kept)
{
    return sl_codec_round16(kept * 2);
}

static size_t tile_len(const struct sl_codec_spec *spec, size_t count)
{
    size_t kept = kept_of(spec, count);

    return places_len(kept) + sl_codec_round16(kept * width_of(spec));
}

static int check(const struct sl_codec_spec *spec)
{
    if (spec->k == 0 || spec->k > SL_TILE)
        return sl_fail(-EINVAL, "codec topk keeps k=1 to %u of each %u elements, not %u", SL_TILE,
                       SL_TILE, spec->k);
    if (spec->bits != 0 && spec->bits != 32)
        return sl_fail(-EINVAL,
                       "codec topk has values of bf16, or of f32 with bits=32, not bits=%u",
                       spec->bits);
    return sl_codec_check_used(spec, SL_USES_K | SL_USES_BITS);
}

#define SAMPLE 128

/* What a good part of a tile's elements that are kept, and some others, will reach: of each 32nd
 * element one that is somewhat smaller than the least kept one should be. */
static uint32_t guess(const float *in, size_t count, size_t kept)
{
    size_t wanted = kept * SAMPLE / count, above;
    float sample[SAMPLE];

    if (count < SL_TILE || kept > SL_TILE / 4)
        return 0;
    for (size_t i = 0; i < SAMPLE; i++)
        sample[i] = in[i * (SL_TILE / SAMPLE)];
    return sl_topk_kth(sample, SAMPLE, wanted + wanted / 2 + 4, &above);
}

/* A tile and the maxima of its units: those below a threshold need no look. */
struct tile {
    const float *x;
    size_t count;
    uint32_t max[SL_TILE / SL_UNIT];
};

static size_t select_in(const struct tile *tile, uint32_t threshold, const struct sl_topk_out *out)
{
    sl_topk_select *select = sl_topk_best();
    size_t units = (tile->count + SL_UNIT - 1) / SL_UNIT, found = 0, end;

    for (size_t u = 0; u < units; u = end) {
        size_t first = u * SL_UNIT;

        end = u + 1;
        if (tile->max[u] < threshold)
            continue;
        while (end < units && tile->max[end] >= threshold)
            end++;
        found += select(
            tile->x + first, (end * SL_UNIT < tile->count ? end * SL_UNIT : tile->count) - first,
            threshold, (uint32_t)first,
            &(struct sl_topk_out){out->index + found, out->value + found, out->cap - found});
    }
    return found;
}

/* The elements that reach the least one of those to keep, and some. The hint is lowered until there
 * are enough. */
static size_t candidates(const struct tile *tile, size_t kept, uint32_t hint,
                         const struct sl_topk_out *out)
{
    uint32_t lower = 1 << 21; /* a quarter of an octave */

    for (;; lower *= 4) {
        size_t found = select_in(tile, hint, out);

        if (found >= kept)
            return found;
        hint = hint > lower ? hint - lower : 0;
    }
}

static void select_kept(const struct tile *tile, size_t kept, uint32_t *hint,
                        uint32_t index[SL_TILE], float value[SL_TILE])
{
    const struct sl_topk_out found = {index, value, SL_TILE};
    size_t above, done = 0;
    uint32_t from = *hint != 0 ? *hint : guess(tile->x, tile->count, kept);
    size_t n = candidates(tile, kept, from, &found);
    uint32_t least = sl_topk_kth(value, n, kept, &above);
    size_t equals = kept - above;

    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = sl_f32_bits(value[i]) & SL_BITS_ABS;

        if (magnitude < least || (magnitude == least && equals == 0))
            continue;
        equals -= magnitude == least;
        index[done] = index[i];
        value[done++] = value[i];
    }
    *hint = least > 1 << 20 ? least - (1 << 20) : 0;
}

void sl_topk_tile(const float *in, size_t count, size_t kept, uint32_t *hint,
                  uint32_t index[SL_TILE], float value[SL_TILE])
{
    struct tile tile = {.x = in, .count = count};

    memset(tile.max, 0xff, sizeof(tile.max)); /* not known: all of them are looked at */
    select_kept(&tile, kept, hint, index, value);
}

static void write_tile(const struct sl_codec_spec *spec, size_t count, const uint32_t *index,
                       const float *value, void *out)
{
    size_t kept = kept_of(spec, count);
    uint8_t *places = out;

    memset(out, 0, tile_len(spec, count));
    for (size_t i = 0; i < kept; i++) {
        uint16_t place = (uint16_t)index[i];

        memcpy(places + i * 2, &place, sizeof(place));
    }
    sl_elements_narrow(dtype_of_values(spec), value, kept, places + places_len(kept));
}

static void encode_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const float *in, size_t count, uint32_t *hint, void *out)
{
    uint32_t index[SL_TILE];
    float value[SL_TILE];

    sl_topk_tile(in, count, kept_of(spec, count), hint, index, value);
    write_tile(spec, count, index, value, out);
}

static int add_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                    size_t count, float *sum)
{
    size_t kept = kept_of(spec, count);
    const uint16_t *place = in;
    uint32_t wrong = 0;
    float value[SL_TILE];

    for (size_t i = 1; i < kept; i++)
        wrong |= place[i - 1] >= place[i];
    if (wrong || (kept > 0 && place[kept - 1] >= count))
        return sl_fail(-EBADMSG,
                       "a topk tile of %zu elements has places that do not ascend or lie outside",
                       count);
    sl_elements_widen(dtype_of_values(spec), (const char *)in + places_len(kept), kept, value);
    for (size_t i = 0; i < kept; i++)
        sum[place[i]] += value[i];
    return 0;
}

static void drop_wild(float *x)
{
    if ((sl_f32_bits(*x) & SL_BITS_ABS) >= SL_BITS_INF)
        *x = 0;
}

/* Takes off a tile what is sent of it, as it decodes. What is no number becomes 0: here, or
 * anywhere, of which the maxima know. */
static void take_off(const struct sl_codec_spec *spec, const struct tile *tile, const void *sent,
                     float *residual)
{
    size_t kept = kept_of(spec, SL_TILE);
    const uint16_t *place = sent;
    float value[SL_TILE];

    sl_elements_widen(dtype_of_values(spec), (const char *)sent + places_len(kept), kept, value);
    for (size_t i = 0; i < kept; i++) {
        residual[place[i]] -= value[i];
        drop_wild(&residual[place[i]]);
    }
    for (size_t u = 0; u < SL_TILE / SL_UNIT; u++)
        for (size_t i = u * SL_UNIT; tile->max[u] >= SL_BITS_INF && i < (u + 1) * SL_UNIT; i++)
            drop_wild(&residual[i]);
}

/* The residual is the sum, the tile's threshold is that of the tile before, and only what is sent
 * is decoded: 12 bytes an element move, and little happens in the cache. */
static size_t feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                       const void *in, float *residual, size_t count, void *out)
{
    size_t done = 0;
    uint32_t hint = 0;
    float floats[SL_TILE], value[SL_TILE];
    uint32_t index[SL_TILE];

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile whole = sl_tile_at(first, count);
        struct sl_input x = sl_tile_input(&whole, spec->dtype, in, count, floats);
        struct tile tile = {.x = residual + first, .count = SL_TILE};
        void *to = (char *)out + done;

        sl_codec_kernels()->feedback_maxima(&x, SL_TILE, SL_UNIT, residual + first, tile.max);
        select_kept(&tile, kept_of(spec, SL_TILE), &hint, index, value);
        write_tile(spec, SL_TILE, index, value, to);
        take_off(spec, &tile, to, residual + first);
        done += tile_len(spec, SL_TILE);
    }
    return done;
}

static const struct sl_tilewise tiles = {tile_len, encode_tile, add_tile};

SL_TILEWISE_FUNCTIONS

const struct sl_codec sl_codec_topk = {
    .name = "topk",
    .help = "the k largest elements of each 4096, and their places",
    .id = SL_CODEC_TOPK,
    .flags = SL_CODEC_FIXED | SL_CODEC_SPARSE,
    .check = check,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
    .feedback = feedback,
};
