/* SPDX-License-Identifier: Apache-2.0 */
/* Directions that a seed makes, projections on them, and steps along them. */
#include "compress/seedscalar.h"

#include "compress/codec.h"
#include "compress/elements.h"
#include "compress/philox.h"
#include "compress/tree.h"
#include "core/err.h"

#define DRAW 128 /* signs of one draw */

/* Bits for the sign of each of the elements that begin at first. */
static void draw(const struct sl_direction *z, uint64_t first, uint32_t words[4])
{
    uint64_t number = first / DRAW;
    const uint32_t counter[4] = {(uint32_t)number, (uint32_t)(number >> 32), z->stream, z->step};

    sl_philox(counter, z->seed, words);
}

static uint32_t sign_of(const uint32_t words[4], size_t i)
{
    return words[i / 32] >> i % 32 << 31;
}

void sl_direction_fill(const struct sl_direction *z, uint64_t first, size_t count, float *out)
{
    memset(out, 0, count * sizeof(*out));
    sl_direction_apply(z, first, 1, count, out);
}

double sl_direction_project(const struct sl_direction *z, uint64_t first, const float *in,
                            size_t count)
{
    float signed_in[SL_TILE];
    uint32_t words[4];
    double sum = 0;

    sl_dassert(first % DRAW == 0);
    for (size_t tile = 0; tile < count; tile += SL_TILE) {
        size_t n = count - tile < SL_TILE ? count - tile : SL_TILE;

        for (size_t i = 0; i < n; i += DRAW) {
            size_t most = n - i < DRAW ? n - i : DRAW;

            draw(z, first + tile + i, words);
            for (size_t j = 0; j < most; j++)
                signed_in[i + j] = sl_f32_of(sl_f32_bits(in[tile + i + j]) ^ sign_of(words, j));
        }
        sum += sl_tree_sum(signed_in, n);
    }
    return sum;
}

void sl_direction_apply(const struct sl_direction *z, uint64_t first, float scalar, size_t count,
                        float *out)
{
    uint32_t words[4], bits = sl_f32_bits(scalar);

    sl_dassert(first % DRAW == 0);
    for (size_t i = 0; i < count; i += DRAW) {
        size_t most = count - i < DRAW ? count - i : DRAW;

        draw(z, first + i, words);
        for (size_t j = 0; j < most; j++)
            out[i + j] += sl_f32_of(bits ^ sign_of(words, j));
    }
}
