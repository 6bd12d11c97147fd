/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec "randk": k elements of each tile at places that seed, stream, step and tile draw, the same
 * on all ranks, so that only values are sent, and messages may be added. A tile: k values of f32,
 * zeros up to 16 bytes; the last tile has all its elements, if these are fewer than k.
 *
 * With stochastic=on decoding multiplies by count / k: its mean is the input, for use without error
 * feedback. Otherwise values decode as they are, which error feedback needs: scaled, the residual
 * of what was sent would grow.
 *
 * Places: the numbers of 16 bits that philox draws for the tile's elements, in order, cut to as
 * many bits as a place has. The first k that differ and lie in the tile are taken; where k is above
 * half of the tile, the first that are left out. Should the numbers not do, which takes odds beyond
 * measure, the lowest free places follow.
 *
 * Source: S. U. Stich et al., "Sparsified SGD with memory", NeurIPS 2018.
 */
#include "compress/elements.h"
#include "compress/philox.h"
#include "compress/tilewise.h"
#include "core/err.h"

#define WORDS (SL_TILE / 64)

static size_t kept_of(const struct sl_codec_spec *spec, size_t count)
{
    return spec->k < count ? spec->k : count;
}

static size_t tile_len(const struct sl_codec_spec *spec, size_t count)
{
    return sl_codec_round16(kept_of(spec, count) * sizeof(float));
}

static int check(const struct sl_codec_spec *spec)
{
    if (spec->k == 0 || spec->k > SL_TILE)
        return sl_fail(-EINVAL, "codec randk keeps k=1 to %u of each %u elements, not %u", SL_TILE,
                       SL_TILE, spec->k);
    return sl_codec_check_used(spec, SL_USES_K | SL_USES_SEED);
}

/* Sets bit number place. False: it was set. */
static bool mark(uint64_t *bitmap, uint32_t place)
{
    uint64_t bit = UINT64_C(1) << place % 64;
    bool fresh = (bitmap[place / 64] & bit) == 0;

    bitmap[place / 64] |= bit;
    return fresh;
}

/* Sets the bits of n places below count. */
static void draw(const struct sl_codec_spec *spec, const struct sl_codec_at *at, size_t count,
                 size_t n, uint64_t bitmap[WORDS])
{
    uint32_t mask = count > 1 ? ~0u >> __builtin_clz((uint32_t)count - 1) : 0, numbers[4];

    for (uint32_t i = 0; n > 0 && i < SL_TILE / 8; i++) {
        uint64_t element = at->first / 8 + i;
        const uint32_t counter[4] = {(uint32_t)element, (uint32_t)(element >> 32), at->stream,
                                     at->step};

        sl_philox(counter, spec->seed, numbers);
        for (unsigned j = 0; n > 0 && j < 8; j++) {
            uint32_t place = (numbers[j >> 1] >> (j & 1) * 16) & mask;

            if (place < count && mark(bitmap, place))
                n--;
        }
    }
    for (uint32_t place = 0; n > 0; place++)
        n -= mark(bitmap, place);
}

/* The bits of the places that are kept. */
static void places_of(const struct sl_codec_spec *spec, const struct sl_codec_at *at, size_t count,
                      uint64_t bitmap[WORDS])
{
    size_t kept = kept_of(spec, count);

    memset(bitmap, 0, WORDS * sizeof(*bitmap));
    if (kept <= count / 2) {
        draw(spec, at, count, kept, bitmap);
        return;
    }
    draw(spec, at, count, count - kept, bitmap);
    for (size_t i = 0; i < count; i += 64)
        bitmap[i / 64] =
            ~bitmap[i / 64] & (count - i < 64 ? (UINT64_C(1) << (count - i)) - 1 : UINT64_MAX);
}

static void encode_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const float *in, size_t count, uint32_t *hint, void *out)
{
    uint64_t bitmap[WORDS];
    float *values = out;

    places_of(spec, at, count, bitmap);
    for (size_t w = 0; w * 64 < count; w++)
        for (uint64_t word = bitmap[w]; word != 0; word &= word - 1)
            *values++ = in[w * 64 + (unsigned)__builtin_ctzll(word)];
    memset(values, 0, tile_len(spec, count) - kept_of(spec, count) * sizeof(float));
}

static int add_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                    size_t count, float *sum)
{
    const float *values = in;
    uint64_t bitmap[WORDS];
    float scale = 1;

    if ((spec->flags & SL_SPEC_STOCHASTIC) != 0 && count > 0)
        scale = (float)count / (float)kept_of(spec, count);
    places_of(spec, at, count, bitmap);
    for (size_t w = 0; w * 64 < count; w++)
        for (uint64_t word = bitmap[w]; word != 0; word &= word - 1)
            sum[w * 64 + (unsigned)__builtin_ctzll(word)] += *values++ * scale;
    return 0;
}

static const struct sl_tilewise tiles = {tile_len, encode_tile, add_tile};

SL_TILEWISE_FUNCTIONS

const struct sl_codec sl_codec_randk = {
    .name = "randk",
    .help = "k random elements of each 4096, the same on all ranks: messages can be added",
    .id = SL_CODEC_RANDK,
    .flags = SL_CODEC_FIXED | SL_CODEC_LINEAR | SL_CODEC_STOCHASTIC | SL_CODEC_UNBIASED,
    .check = check,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
    .add = sl_tilewise_add_floats,
};
