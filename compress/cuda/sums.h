/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of sums in f32 beside their codec: a product, and elements of 16 bits. */
#ifndef SL_COMPRESS_CUDA_SUMS_H
#define SL_COMPRESS_CUDA_SUMS_H

#include "compress/cuda/tile.h"

/* out = out * factor */
SL_DEVICE void scale_sums(const struct sl_gpu_args &args)
{
    constexpr unsigned E = 4, STEPS = SL_TILE_ELEMENTS_EACH / E;
    const uint64_t first = (uint64_t)blockIdx.x * SL_GPU_TILE;
    float v[SL_TILE_ELEMENTS_EACH];

#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
        load<sl_f32, E>(args.out, first + element_of<E>(s), args.count, v + s * E);
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
        v[j] = __fmul_rn(v[j], args.factor);
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
        store<sl_f32, E>(args.out, first + element_of<E>(s), args.count, v + s * E);
}

/* out: elements of T, nearest to the sums of in. */
template <class T>
SL_DEVICE void narrow_sums(const struct sl_gpu_args &args)
{
    constexpr unsigned E = 8, STEPS = SL_TILE_ELEMENTS_EACH / E;
    const uint64_t first = (uint64_t)blockIdx.x * SL_GPU_TILE;
    float v[SL_TILE_ELEMENTS_EACH];

#pragma unroll
    for (unsigned s = 0; s < STEPS; s++) {
#pragma unroll
        for (unsigned j = 0; j < E; j += 4)
            load<sl_f32, 4>(args.in, first + element_of<E>(s) + j, args.count, v + s * E + j);
    }
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
        store<T, E>(args.out, first + element_of<E>(s), args.count, v + s * E);
}

#endif
