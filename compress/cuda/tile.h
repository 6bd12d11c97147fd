/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile of 4,096 elements by a block of 128 threads: each warp has 1,024 neighbours, each thread
 * 32 of them in registers, E at a time, 16 bytes of input. Lane l of warp w holds in step s
 *
 *     elements  w * 1024 + s * 32 * E + l * E ... + E - 1
 *
 * so that a warp reads and writes whole lines, and the lanes that share a scale are neighbours.
 *
 * A codec is a struct C:
 *     BLOCK     elements that share a scale, 0: none do
 *     BITS      of a code
 *     HEAD      bytes before the scales
 *     SCALE     bytes of a scale
 *     OF_TILE   scales depend on the tile's largest value
 * and functions: head_of<UP>(largest of the tile), scale_of<UP>(largest of a block, head), which
 * round scales up where codes are drawn at random and to nearest otherwise, code_of(x, scale),
 * random_code_of(x, scale, 16 random bits), value_of(code, scale), read_head(), read_scale(). Codes
 * where the scale's inverse is 0 may be any, and are not used. summand_of() is value_of() where a
 * NaN may be any: it takes it from the scale's value.
 */
#ifndef SL_COMPRESS_CUDA_TILE_H
#define SL_COMPRESS_CUDA_TILE_H

#include "compress/cuda/device.h"

#define SL_TILE_ELEMENTS_EACH 32 /* of a thread */

/* Of the tile, where scales depend on it. */
struct sl_head {
    uint32_t stored[4];
    float scale, inverse;
    int base;
};

struct sl_scale {
    float value, inverse; /* 0 and 0: all codes are 0 */
    uint32_t stored;
    bool is_nan;
};

/* Where a tile lies: its elements, bytes of its parts. */
template <class C>
struct sl_place {
    uint64_t first; /* of its elements in the message */
    unsigned n;     /* how many */
    unsigned scales, codes;
    size_t at; /* of its bytes in the message */

    SL_DEVICE_MEMBER sl_place(const struct sl_gpu_args &args, unsigned tile)
    {
        uint64_t left;

        first = (uint64_t)tile * SL_GPU_TILE;
        left = args.count - first;
        n = left < SL_GPU_TILE ? (unsigned)left : SL_GPU_TILE;
        at = (size_t)tile * bytes(SL_GPU_TILE);
        scales = scale_bytes(n);
        codes = code_bytes(n);
    }
    static SL_DEVICE_MEMBER constexpr unsigned round16(unsigned len)
    {
        return (len + 15) & ~15u;
    }
    static SL_DEVICE_MEMBER constexpr unsigned blocks(unsigned n)
    {
        return C::BLOCK == 0
                   ? 0
                   : (n + (C::BLOCK == 0 ? 1 : C::BLOCK) - 1) / (C::BLOCK == 0 ? 1 : C::BLOCK);
    }
    static SL_DEVICE_MEMBER constexpr unsigned scale_bytes(unsigned n)
    {
        return round16(blocks(n) * C::SCALE);
    }
    static SL_DEVICE_MEMBER constexpr unsigned code_bytes(unsigned n)
    {
        return round16(((C::BLOCK == 0 ? n : blocks(n) * C::BLOCK) * C::BITS + 7) / 8);
    }
    static SL_DEVICE_MEMBER constexpr unsigned bytes(unsigned n)
    {
        return C::HEAD + scale_bytes(n) + code_bytes(n);
    }
};

/* Element of a thread, step s, in its tile. */
template <unsigned E>
SL_DEVICE unsigned element_of(unsigned s)
{
    return threadIdx.x / 32 * 1024 + s * 32 * E + threadIdx.x % 32 * E;
}

template <unsigned E, unsigned BITS>
SL_DEVICE void put_codes(void *out, const uint32_t *words)
{
    if constexpr (E * BITS == 128)
        *(uint4 *)out = make_uint4(words[0], words[1], words[2], words[3]);
    else if constexpr (E * BITS == 64)
        *(uint2 *)out = make_uint2(words[0], words[1]);
    else
        *(typename sl_codes<E * BITS / 8>::word *)out =
            (typename sl_codes<E * BITS / 8>::word) words[0];
}

template <unsigned E, unsigned BITS>
SL_DEVICE void get_codes(const void *in, uint32_t *words)
{
    if constexpr (E * BITS == 128) {
        uint4 w = *(const uint4 *)in;

        words[0] = w.x;
        words[1] = w.y;
        words[2] = w.z;
        words[3] = w.w;
    } else if constexpr (E * BITS == 64) {
        uint2 w = *(const uint2 *)in;

        words[0] = w.x;
        words[1] = w.y;
    } else {
        words[0] = *(const typename sl_codes<E * BITS / 8>::word *)in;
    }
}

/*
 * Random bits of a thread's four elements in steps s and s + 1. Eight elements share a draw, and
 * the neighbour has the others: the even one draws for step s, the odd one for step s + 1, and they
 * swap halves.
 */
SL_DEVICE void random_pair(const struct sl_gpu_args &args, uint64_t tile_first, unsigned s,
                           uint32_t words[2][2])
{
    unsigned odd = threadIdx.x & 1;
    uint32_t drawn[4], give0, give1, got0, got1;

    philox((args.first + tile_first + element_of<4>(s + odd)) / 8, args, drawn);
    give0 = odd ? drawn[0] : drawn[2];
    give1 = odd ? drawn[1] : drawn[3];
    got0 = __shfl_xor_sync(SL_ALL, give0, 1);
    got1 = __shfl_xor_sync(SL_ALL, give1, 1);
    words[0][0] = odd ? got0 : drawn[0];
    words[0][1] = odd ? got1 : drawn[1];
    words[1][0] = odd ? drawn[2] : got0;
    words[1][1] = odd ? drawn[3] : got1;
}

/*
 * Scales of a thread's steps from its values, and the tile's head and scales into *out. A scale
 * takes two divisions, which are long: the lanes of a warp share its scales out among them, and
 * tell each other by shared memory.
 */
template <class C, unsigned E, bool RANDOM, bool DECODED>
SL_DEVICE void encode_scales(const float *v, const sl_place<C> &place, uint8_t *out,
                             sl_scale *scales)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E, LANES = C::BLOCK / E;
    constexpr unsigned BLOCKS = SL_GPU_TILE / C::BLOCK, EACH = BLOCKS / (SL_GPU_THREADS / 32);
    __shared__ uint4 stored[(C::HEAD + BLOCKS * C::SCALE) / 16];
    __shared__ uint32_t maxima[BLOCKS];
    __shared__ float inverses[BLOCKS], values[DECODED ? BLOCKS : 1];
    uint8_t *at = (uint8_t *)stored + C::HEAD;
    uint32_t all = 0;
    sl_head head = {};

#pragma unroll
    for (unsigned s = 0; s < STEPS; s++) {
        uint32_t most = 0;

#pragma unroll
        for (unsigned j = 0; j < E; j++) {
            uint32_t mag = __float_as_uint(v[s * E + j]) & SL_MAGNITUDE;

            most = mag > most ? mag : most;
        }
        most = max_of_lanes<LANES>(most);
        all = C::counts(most) && most > all ? most : all;
        if (threadIdx.x % LANES == 0)
            maxima[element_of<E>(s) / C::BLOCK] = most;
    }
    if constexpr (C::OF_TILE) {
        head = C::template head_of<RANDOM>(max_of_block(all));
        if (threadIdx.x == 0)
            stored[0] = make_uint4(head.stored[0], head.stored[1], head.stored[2], head.stored[3]);
    } else {
        __syncwarp();
    }
#pragma unroll
    for (unsigned k = 0; k < EACH; k += 32) {
        unsigned b = threadIdx.x / 32 * EACH + k + threadIdx.x % 32;

        if (k + threadIdx.x % 32 < EACH) {
            sl_scale scale = C::template scale_of<RANDOM>(maxima[b], head);

            inverses[b] = scale.inverse;
            if constexpr (DECODED)
                values[b] = scale.is_nan ? __uint_as_float(SL_NAN_BITS) : scale.value;
            if constexpr (C::SCALE == 2)
                ((uint16_t *)at)[b] = (uint16_t)scale.stored;
            else
                at[b] = (uint8_t)scale.stored;
        }
    }
    __syncthreads();
    if (threadIdx.x < (C::HEAD + place.scales) / 16)
        ((uint4 *)out)[threadIdx.x] = stored[threadIdx.x];
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++) {
        unsigned b = element_of<E>(s) / C::BLOCK;

        scales[s].inverse = inverses[b];
        if constexpr (DECODED) {
            scales[s].value = values[b];
            scales[s].is_nan = !(values[b] == values[b]);
        }
    }
}

/* v: the thread's values, beyond the tile's end 0. DECODED: they become what a decoder will see. */
template <class C, unsigned E, bool RANDOM, bool DECODED>
SL_DEVICE void encode_values(const struct sl_gpu_args &args, const sl_place<C> &place, uint8_t *out,
                             float *v)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E, WORDS = (E * C::BITS + 31) / 32;
    sl_scale scales[STEPS] = {};
    uint32_t pair[2][2], drawn[4];

    if constexpr (C::BLOCK != 0)
        encode_scales<C, E, RANDOM, DECODED>(v, place, out, scales);
    out += C::HEAD + place.scales;
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++) {
        uint32_t words[WORDS] = {};
        unsigned at = element_of<E>(s) * C::BITS / 8;
        bool none = C::BLOCK != 0 && scales[s].inverse == 0;

        if constexpr (RANDOM && E == 4)
            if (s % 2 == 0)
                random_pair(args, place.first, s, pair);
#pragma unroll
        for (unsigned j = 0; j < E; j++) {
            uint32_t code;

            if constexpr (RANDOM) {
                if (E >= 8 && j % 8 == 0)
                    philox((args.first + place.first + element_of<E>(s) + j) / 8, args, drawn);
                code = C::random_code_of(v[s * E + j], scales[s],
                                         random_16(E == 4 ? pair[s % 2] : drawn, j % 8));
            } else {
                code = C::code_of(v[s * E + j], scales[s]);
            }
            if constexpr (DECODED) {
                code = none ? 0 : code;
                v[s * E + j] = C::value_of(code, scales[s]);
            }
            words[j * C::BITS / 32] |= code << j * C::BITS % 32;
        }
        if constexpr (!DECODED)
#pragma unroll
            for (unsigned i = 0; i < WORDS; i++)
                words[i] = none ? 0 : words[i];
        if (at < place.codes)
            put_codes<E, C::BITS>(out + at, words);
    }
}

/* What a thread reads of a message. */
template <class C, unsigned E>
struct sl_read {
    static const unsigned STEPS = SL_TILE_ELEMENTS_EACH / E, WORDS = (E * C::BITS + 31) / 32;
    uint32_t words[STEPS][WORDS], stored[STEPS];
    sl_head head;
};

/* Nothing of it is looked at yet, so that all of it is on its way at once. */
template <class C, unsigned E>
SL_DEVICE void read_values(const sl_place<C> &place, const uint8_t *in, sl_read<C, E> *out)
{
    if constexpr (C::HEAD != 0)
        out->head = C::read_head(in);
    in += C::HEAD;
#pragma unroll
    for (unsigned s = 0; s < out->STEPS; s++) {
        unsigned e = element_of<E>(s);

        out->stored[s] = 0;
#pragma unroll
        for (unsigned i = 0; i < out->WORDS; i++)
            out->words[s][i] = 0;
        if (e >= place.n)
            continue;
        if constexpr (C::BLOCK != 0 && C::SCALE == 2)
            out->stored[s] = ((const uint16_t *)in)[e / (C::BLOCK == 0 ? 1 : C::BLOCK)];
        else if constexpr (C::BLOCK != 0)
            out->stored[s] = in[e / (C::BLOCK == 0 ? 1 : C::BLOCK)];
        get_codes<E, C::BITS>(in + place.scales + e * C::BITS / 8, out->words[s]);
    }
}

template <class C, unsigned E>
SL_DEVICE uint32_t code_in(const sl_read<C, E> &read, unsigned s, unsigned j)
{
    return read.words[s][j * C::BITS / 32] >> j * C::BITS % 32 & (uint32_t)((1ull << C::BITS) - 1);
}

/* The thread's values; beyond the tile's end some of no meaning. */
template <class C, unsigned E>
SL_DEVICE void decode_values(const sl_place<C> &place, const uint8_t *in, float *v)
{
    sl_read<C, E> read = {};

    read_values<C, E>(place, in, &read);
#pragma unroll
    for (unsigned s = 0; s < read.STEPS; s++) {
        sl_scale scale = C::read_scale(read.stored[s], read.head);

#pragma unroll
        for (unsigned j = 0; j < E; j++)
            v[s * E + j] = C::value_of(code_in(read, s, j), scale);
    }
}

template <class C, unsigned E>
SL_DEVICE void add_values(const sl_read<C, E> &read, float *sum)
{
#pragma unroll
    for (unsigned s = 0; s < read.STEPS; s++) {
        sl_scale scale = C::read_scale(read.stored[s], read.head);

        scale.value = scale.is_nan ? __uint_as_float(SL_NAN_BITS) : scale.value;
#pragma unroll
        for (unsigned j = 0; j < E; j++)
            sum[s * E + j] = __fadd_rn(sum[s * E + j], C::summand_of(code_in(read, s, j), scale));
    }
}

#endif
