/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile as one mean of magnitudes and a bit an element, by a block of 128 threads.
 *
 * The mean's sums are pinned: 16 lanes in f64, strided over the tile, each in order. So 16 threads
 * add 256 numbers each, from shared memory, where the other blocks of the processor hide them.
 */
#ifndef SL_COMPRESS_CUDA_SIGN_H
#define SL_COMPRESS_CUDA_SIGN_H

#include "compress/cuda/tile.h"

struct sl_codec_sign {
    static const unsigned HEAD = 16, BLOCK = 0, SCALE = 0, BITS = 1;
};

/* The tile's mean of magnitudes, for all threads. */
template <class C>
SL_DEVICE float mean_of_tile(const sl_place<C> &place, const float *tile)
{
    __shared__ double lanes[16];
    __shared__ float mean;

    if (threadIdx.x < 16) {
        double sum = 0;

#pragma unroll 8
        for (unsigned i = threadIdx.x; i < SL_GPU_TILE; i += 16)
            sum = __dadd_rn(sum, (double)__uint_as_float(__float_as_uint(tile[i]) & SL_MAGNITUDE));
        lanes[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = lanes[0];

#pragma unroll
        for (unsigned i = 1; i < 16; i++)
            sum = __dadd_rn(sum, lanes[i]);
        mean = __double2float_rn(__ddiv_rn(sum, (double)place.n));
    }
    __syncthreads();
    return mean;
}

template <class C, unsigned E, bool DECODED>
SL_DEVICE void encode_signs(const sl_place<C> &place, uint8_t *out, float *v)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E;
    __shared__ uint4 shared[SL_GPU_TILE / 4];
    float *tile = (float *)shared;
    unsigned lane = threadIdx.x % 32, first = threadIdx.x / 32 * 1024;
    uint32_t most = 0, bits = 0;
    float mean;
    bool finite;

#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
#pragma unroll
        for (unsigned j = 0; j < E; j += 4) {
            const float *from = v + s * E + j;

            shared[(element_of<E>(s) + j) / 4] =
                make_uint4(__float_as_uint(from[0]), __float_as_uint(from[1]),
                           __float_as_uint(from[2]), __float_as_uint(from[3]));
#pragma unroll
            for (unsigned k = 0; k < 4; k++) {
                uint32_t mag = __float_as_uint(from[k]) & SL_MAGNITUDE;

                most = mag > most ? mag : most;
            }
        }
    finite = max_of_block(most) < SL_INFINITE;
    mean = mean_of_tile(place, tile);
    mean = finite ? mean : __uint_as_float(SL_NAN_BITS);
    /* Lane k keeps the bits of the warp's elements 32 k and on. */
#pragma unroll
    for (unsigned k = 0; k < 32; k++) {
        uint32_t of_lanes = __ballot_sync(SL_ALL, tile[first + k * 32 + lane] < 0);

        bits = k == lane ? of_lanes : bits;
    }
    bits = finite ? bits : 0;
    if (threadIdx.x * 4 < place.codes)
        ((uint32_t *)(out + C::HEAD))[threadIdx.x] = bits;
    if (threadIdx.x == 0)
        *(uint4 *)out = make_uint4(__float_as_uint(mean), 0, 0, 0);
    if constexpr (DECODED) {
#pragma unroll
        for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
            v[j] = v[j] < 0 && finite ? -mean : mean;
    }
}

template <class C, unsigned E>
SL_DEVICE void decode_signs(const sl_place<C> &place, const uint8_t *in, float *v)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E;
    uint32_t mean = *(const uint32_t *)in, words[STEPS];

    in += C::HEAD;
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++) {
        unsigned e = element_of<E>(s);

        words[s] = e < place.n ? ((const uint32_t *)in)[e / 32] >> e % 32 : 0;
    }
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
#pragma unroll
        for (unsigned j = 0; j < E; j++)
            v[s * E + j] = __uint_as_float(mean ^ (words[s] >> j & 1) << 31);
}

#endif
