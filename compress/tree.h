/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and products of vectors in an order that is pinned, so that each rank and each device has
 * the same bits: f64, 16 lanes strided over each tile of 4096 elements, lanes added from 0 to 15,
 * tiles in order.
 */
#ifndef SL_COMPRESS_TREE_H
#define SL_COMPRESS_TREE_H

#include "compress/codec.h"

#define SL_TREE_LANES 16

static inline double sl_tree_lanes(const double lanes[SL_TREE_LANES])
{
    double sum = lanes[0];

    for (unsigned i = 1; i < SL_TREE_LANES; i++)
        sum += lanes[i];
    return sum;
}

/* Of one tile: count is SL_TILE at most. */
static inline double sl_tree_sum(const float *x, size_t count)
{
    double lanes[SL_TREE_LANES] = {0};
    size_t i = 0;

    for (; i + SL_TREE_LANES <= count; i += SL_TREE_LANES)
        for (unsigned j = 0; j < SL_TREE_LANES; j++)
            lanes[j] += (double)x[i + j];
    for (unsigned j = 0; i + j < count; j++)
        lanes[j] += (double)x[i + j];
    return sl_tree_lanes(lanes);
}

/* Of vectors of any length. A product of two f32 is exact in f64. */
static inline double sl_tree_dot(const float *x, const float *y, size_t count)
{
    double sum = 0;

    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t end = count - first < SL_TILE ? count : first + SL_TILE, i = first;
        double lanes[SL_TREE_LANES] = {0};

        for (; i + SL_TREE_LANES <= end; i += SL_TREE_LANES)
            for (unsigned j = 0; j < SL_TREE_LANES; j++)
                lanes[j] += (double)x[i + j] * (double)y[i + j];
        for (unsigned j = 0; i + j < end; j++)
            lanes[j] += (double)x[i + j] * (double)y[i + j];
        sum += sl_tree_lanes(lanes);
    }
    return sum;
}

#endif
