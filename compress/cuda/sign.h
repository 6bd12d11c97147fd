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

/* Where element i of the tile lies in shared memory: by fours, which lanes that hold 32 neighbours
 * write in different banks. */
SL_DEVICE unsigned sign_place(unsigned i)
{
    return i ^ (i / 32 % 8 * 4);
}

/* Of a magnitude. Conversions are slow, and those of one tile are all one warp's. */
SL_DEVICE double sign_double(uint32_t mag)
{
    if (mag < 0x00800000)
        return (double)__uint_as_float(mag);
    return __hiloint2double((int)((mag >> 3) + (896u << 20)), (int)(mag << 29));
}

/* The tile's mean of magnitudes, for all threads. The warp that adds changes from tile to tile: all
 * first warps of blocks would lie on the same quarter of a processor. */
template <class C>
SL_DEVICE float mean_of_tile(const sl_place<C> &place, const float *tile)
{
    __shared__ double lanes[16];
    __shared__ float mean;
    unsigned at = (threadIdx.x + blockIdx.x % 4 * 32) % SL_GPU_THREADS;

    if (at < 16) {
        double sum = 0;

#pragma unroll 16
        for (unsigned i = 0; i < SL_GPU_TILE; i += 16) {
            uint32_t mag = __float_as_uint(tile[sign_place(i + at)]) & SL_MAGNITUDE;

            sum = __dadd_rn(sum, sign_double(mag));
        }
        lanes[at] = sum;
    }
    __syncwarp();
    if (at == 0) {
        double sum = lanes[0];

#pragma unroll
        for (unsigned i = 1; i < 16; i++)
            sum = __dadd_rn(sum, lanes[i]);
        mean = __double2float_rn(__ddiv_rn(sum, (double)place.n));
    }
    __syncthreads();
    return mean;
}

/* Bit k: the thread's k-th element is below zero, to where the tile's bits are. */
template <unsigned E>
SL_DEVICE void gather_signs(uint32_t mine, uint8_t *bits)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E;

    if constexpr (E == 32) {
        ((uint32_t *)bits)[threadIdx.x] = mine;
    } else if constexpr (E == 8) {
#pragma unroll
        for (unsigned s = 0; s < STEPS; s++)
            bits[element_of<E>(s) / 8] = (uint8_t)(mine >> s * E);
    } else { /* half of a byte: the neighbours take turns */
        uint32_t other = __shfl_xor_sync(SL_ALL, mine, 1);
        unsigned odd = threadIdx.x & 1;
        uint32_t low = odd ? other : mine, high = odd ? mine : other;

#pragma unroll
        for (unsigned s = 0; s < STEPS; s += 2)
            bits[element_of<E>(s + odd) / 8] =
                (uint8_t)((low >> (s + odd) * 4 & 0xf) | (high >> (s + odd) * 4 & 0xf) << 4);
    }
}

template <class C, unsigned E, bool DECODED>
SL_DEVICE void encode_signs(const sl_place<C> &place, uint8_t *out, float *v)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E;
    __shared__ uint4 shared[SL_GPU_TILE / 4], bits[SL_GPU_TILE / 128];
    uint32_t most = 0, negative = 0;
    float mean;
    bool finite;

#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
#pragma unroll
        for (unsigned j = 0; j < E; j += 4) {
            const float *from = v + s * E + j;

            shared[sign_place(element_of<E>(s) + j) / 4] =
                make_uint4(__float_as_uint(from[0]), __float_as_uint(from[1]),
                           __float_as_uint(from[2]), __float_as_uint(from[3]));
#pragma unroll
            for (unsigned k = 0; k < 4; k++) {
                uint32_t mag = __float_as_uint(from[k]) & SL_MAGNITUDE;

                most = mag > most ? mag : most;
                negative |= from[k] < 0 ? 1u << (s * E + j + k) : 0;
            }
        }
    gather_signs<E>(negative, (uint8_t *)bits);
    finite = max_of_block(most) < SL_INFINITE;
    mean = mean_of_tile(place, (const float *)shared);
    mean = finite ? mean : __uint_as_float(SL_NAN_BITS);
    if (threadIdx.x * 16 < place.codes)
        ((uint4 *)(out + C::HEAD))[threadIdx.x] =
            finite ? bits[threadIdx.x] : make_uint4(0, 0, 0, 0);
    if (threadIdx.x == SL_GPU_THREADS - 1)
        *(uint4 *)out = make_uint4(__float_as_uint(mean), 0, 0, 0);
    if constexpr (DECODED) {
#pragma unroll
        for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
            v[j] = v[j] < 0 && finite ? -mean : mean;
    }
}

template <class C, unsigned E>
SL_DEVICE void read_signs(const sl_place<C> &place, const uint8_t *in, sl_read<C, E> *out)
{
    out->stored[0] = *(const uint32_t *)in;
    in += C::HEAD;
#pragma unroll
    for (unsigned s = 0; s < out->STEPS; s++) {
        unsigned e = element_of<E>(s);

        out->words[s][0] = e < place.n ? ((const uint32_t *)in)[e / 32] >> e % 32 : 0;
    }
}

template <class C, unsigned E>
SL_DEVICE float sign_in(const sl_read<C, E> &read, unsigned s, unsigned j)
{
    return __uint_as_float(read.stored[0] ^ (read.words[s][0] << (31 - j) & 0x80000000));
}

template <class C, unsigned E>
SL_DEVICE void decode_signs(const sl_place<C> &place, const uint8_t *in, float *v)
{
    sl_read<C, E> read = {};

    read_signs<C, E>(place, in, &read);
#pragma unroll
    for (unsigned s = 0; s < read.STEPS; s++)
#pragma unroll
        for (unsigned j = 0; j < E; j++)
            v[s * E + j] = sign_in(read, s, j);
}

template <class C, unsigned E>
SL_DEVICE void add_signs(const sl_read<C, E> &read, float *sum)
{
#pragma unroll
    for (unsigned s = 0; s < read.STEPS; s++)
#pragma unroll
        for (unsigned j = 0; j < E; j++)
            sum[s * E + j] = __fadd_rn(sum[s * E + j], sign_in(read, s, j));
}

#endif
