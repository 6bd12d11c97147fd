/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec "topk": the k largest elements of each tile. A tile: k places of 16 bits that ascend,
 * zeros up to 16 bytes, k values of bf16 (or f32, with bits=32), zeros up to 16 bytes. The last
 * tile has all its elements, if these are fewer than k.
 */
#include "compress/elements.h"
#include "compress/kernels.h"
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

/* The elements that reach the least one of those to keep, and some. The hint is lowered until there
 * are enough. */
static size_t candidates(const float *in, size_t count, size_t kept, uint32_t hint,
                         const struct sl_topk_out *out)
{
    sl_topk_select *select = sl_topk_best();
    uint32_t lower = 1 << 21; /* a quarter of an octave */

    for (;; lower *= 4) {
        size_t found = select(in, count, hint, 0, out);

        if (found >= kept)
            return found;
        hint = hint > lower ? hint - lower : 0;
    }
}

void sl_topk_tile(const float *in, size_t count, size_t kept, uint32_t *hint,
                  uint32_t index[SL_TILE], float value[SL_TILE])
{
    const struct sl_topk_out found = {index, value, SL_TILE};
    size_t above, done = 0;
    size_t n = candidates(in, count, kept, *hint != 0 ? *hint : guess(in, count, kept), &found);
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

static void encode_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const float *in, size_t count, uint32_t *hint, void *out)
{
    size_t kept = kept_of(spec, count);
    uint32_t index[SL_TILE];
    float value[SL_TILE];
    uint8_t *places = out;

    memset(out, 0, tile_len(spec, count));
    sl_topk_tile(in, count, kept, hint, index, value);
    for (size_t i = 0; i < kept; i++) {
        uint16_t place = (uint16_t)index[i];

        memcpy(places + i * 2, &place, sizeof(place));
    }
    sl_elements_narrow(dtype_of_values(spec), value, kept, places + places_len(kept));
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

/* What is no number becomes 0, wherever it is. */
static void drop_wild(float *x)
{
    uint32_t wild = 0;

    for (size_t i = 0; i < SL_TILE; i++)
        wild |= (sl_f32_bits(x[i]) & SL_BITS_ABS) >= SL_BITS_INF;
    for (size_t i = 0; wild && i < SL_TILE; i++)
        if ((sl_f32_bits(x[i]) & SL_BITS_ABS) >= SL_BITS_INF)
            x[i] = 0;
}

/* Takes off a tile what is sent of it, as it decodes. */
static void take_off(const struct sl_codec_spec *spec, const void *sent, float *residual)
{
    size_t kept = kept_of(spec, SL_TILE);
    const uint16_t *place = sent;
    float value[SL_TILE];

    sl_elements_widen(dtype_of_values(spec), (const char *)sent + places_len(kept), kept, value);
    for (size_t i = 0; i < kept; i++)
        residual[place[i]] -= value[i];
    drop_wild(residual);
}

/* The residual is the sum, the tile's threshold is that of the tile before, and only what is sent
 * is decoded: 12 bytes an element move, and little happens in the cache. */
static size_t feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                       const void *in, float *residual, size_t count, void *out)
{
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2, done = 0;
    uint32_t hint = 0;
    float floats[SL_TILE];

    for (size_t first = 0; first < count; first += SL_TILE) {
        const void *from = (const char *)in + first * elem;
        const float *x = sl_elements_floats(spec->dtype, from, SL_TILE, floats);
        void *to = (char *)out + done;

        sl_codec_kernels()->feedback_sum(x, residual + first, SL_TILE, residual + first);
        encode_tile(spec, at, residual + first, SL_TILE, &hint, to);
        take_off(spec, to, residual + first);
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
