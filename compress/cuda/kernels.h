/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a codec whose tiles are blocks with scales: one block of threads a tile. */
#ifndef SL_COMPRESS_CUDA_KERNELS_H
#define SL_COMPRESS_CUDA_KERNELS_H

#include "compress/cuda/sign.h"
#include "compress/cuda/tile.h"

template <class T>
struct sl_each {
    static const unsigned E = sl_vector<T>::N, STEPS = SL_TILE_ELEMENTS_EACH / E;
};

template <class C, unsigned E, bool RANDOM, bool DECODED>
SL_DEVICE void encode_tile(const struct sl_gpu_args &args, const sl_place<C> &place, uint8_t *out,
                           float *v)
{
    if constexpr (C::BITS == 1)
        encode_signs<C, E, DECODED>(place, out, v);
    else
        encode_values<C, E, RANDOM, DECODED>(args, place, out, v);
}

template <class C, unsigned E>
SL_DEVICE void decode_tile(const sl_place<C> &place, const uint8_t *in, float *v)
{
    if constexpr (C::BITS == 1)
        decode_signs<C, E>(place, in, v);
    else
        decode_values<C, E>(place, in, v);
}

template <class C, unsigned E>
SL_DEVICE void read_tile(const sl_place<C> &place, const uint8_t *in, sl_read<C, E> *out)
{
    if constexpr (C::BITS == 1)
        read_signs<C, E>(place, in, out);
    else
        read_values<C, E>(place, in, out);
}

template <class C, unsigned E>
SL_DEVICE void add_tile(const sl_read<C, E> &read, float *sum)
{
    if constexpr (C::BITS == 1)
        add_signs<C, E>(read, sum);
    else
        add_values<C, E>(read, sum);
}

template <class C, class T, bool RANDOM>
SL_DEVICE void encode(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_each<T>::E;
    const sl_place<C> place(args, blockIdx.x);
    float v[SL_TILE_ELEMENTS_EACH];

#pragma unroll
    for (unsigned s = 0; s < sl_each<T>::STEPS; s++)
        load<T, E>(args.in, place.first + element_of<E>(s), args.count, v + s * E);
    encode_tile<C, E, RANDOM, false>(args, place, (uint8_t *)args.out + place.at, v);
}

/* What stays of a value that was sent as another. */
SL_DEVICE float residual_of(float value, float sent)
{
    float left = __fadd_rn(value, -sent);

    /* Neither what was no number nor what shares a block with it is sent again. */
    return (__float_as_uint(left) & SL_MAGNITUDE) < SL_INFINITE ? left : 0;
}

template <class C, class T, bool RANDOM>
SL_DEVICE void feedback(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_each<T>::E;
    const sl_place<C> place(args, blockIdx.x);
    float v[SL_TILE_ELEMENTS_EACH], r[SL_TILE_ELEMENTS_EACH];

#pragma unroll
    for (unsigned s = 0; s < sl_each<T>::STEPS; s++) {
        uint64_t i = place.first + element_of<E>(s);

        load<T, E>(args.in, i, args.count, v + s * E);
#pragma unroll
        for (unsigned j = 0; j < E; j += 4)
            load<sl_f32, 4>(args.residual, i + j, args.count, r + s * E + j);
    }
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
        r[j] = v[j] = __fadd_rn(v[j], r[j]);
    encode_tile<C, E, RANDOM, true>(args, place, (uint8_t *)args.out + place.at, v);
#pragma unroll
    for (unsigned s = 0; s < sl_each<T>::STEPS; s++) {
#pragma unroll
        for (unsigned j = s * E; j < s * E + E; j++)
            r[j] = residual_of(r[j], v[j]);
#pragma unroll
        for (unsigned j = 0; j < E; j += 4)
            store<sl_f32, 4>(args.residual, place.first + element_of<E>(s) + j, args.count,
                             r + s * E + j);
    }
}

template <class C, class T>
SL_DEVICE void decode(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_each<T>::E;
    const sl_place<C> place(args, blockIdx.x);
    float v[SL_TILE_ELEMENTS_EACH];

    decode_tile<C, E>(place, (const uint8_t *)args.in + place.at, v);
#pragma unroll
    for (unsigned s = 0; s < sl_each<T>::STEPS; s++)
        store<T, E>(args.out, place.first + element_of<E>(s), args.count, v + s * E);
}

template <class C>
SL_DEVICE void decode_add(const struct sl_gpu_args &args)
{
    constexpr unsigned E = 4, STEPS = SL_TILE_ELEMENTS_EACH / E;
    const sl_place<C> place(args, blockIdx.x);
    float v[SL_TILE_ELEMENTS_EACH], sum[SL_TILE_ELEMENTS_EACH];

#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
        load<sl_f32, E>(args.out, place.first + element_of<E>(s), args.count, sum + s * E);
    decode_tile<C, E>(place, (const uint8_t *)args.in + place.at, v);
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
        v[j] = __fadd_rn(sum[j], v[j]);
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++)
        store<sl_f32, E>(args.out, place.first + element_of<E>(s), args.count, v + s * E);
}

/* How sums read messages: 16 bytes at a time, if scales allow it, and as many messages at once as
 * registers hold beside the sums. */
template <class C>
struct sl_sums {
    static const unsigned E = C::BITS == 16 ? 8 : C::BITS == 8 || C::BLOCK == 16 ? 16 : 32;
    static const unsigned AT_ONCE = C::BITS == 16 ? 2 : C::BITS == 8 ? 4 : 8;
};

/* In the order of ranks, each element alone, in f32. */
template <class C, bool RANDOM>
SL_DEVICE void reduce(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_sums<C>::E, AT_ONCE = sl_sums<C>::AT_ONCE;
    const sl_place<C> place(args, blockIdx.x);
    float sum[SL_TILE_ELEMENTS_EACH];

#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
        sum[j] = -0.0f; /* which no summand is changed by */
#pragma unroll 1
    for (unsigned w = 0; w < args.ranks; w += AT_ONCE) {
        sl_read<C, E> reads[AT_ONCE] = {};

#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; i++)
            if (w + i < args.ranks)
                read_tile<C, E>(place, (const uint8_t *)args.ranks_in[w + i] + place.at, &reads[i]);
#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; i++)
            if (w + i < args.ranks)
                add_tile<C, E>(reads[i], sum);
    }
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++) {
        unsigned e = element_of<E>(j / E) + j % E;

        sum[j] = e < place.n ? __fmul_rn(sum[j], args.factor) : 0;
    }
    encode_tile<C, E, RANDOM, false>(args, place, (uint8_t *)args.out + place.at, sum);
}

#define SL_CODEC_KERNELS_OF(name, codec, dtype)                                                    \
    SL_KERNEL(sl_##name##_encode_##dtype, encode<codec, sl_##dtype, false>)                        \
    SL_KERNEL(sl_##name##_feedback_##dtype, feedback<codec, sl_##dtype, false>)                    \
    SL_KERNEL(sl_##name##_decode_##dtype, decode<codec, sl_##dtype>)

#define SL_CODEC_KERNELS(name, codec)                                                              \
    SL_CODEC_KERNELS_OF(name, codec, f32)                                                          \
    SL_CODEC_KERNELS_OF(name, codec, bf16)                                                         \
    SL_CODEC_KERNELS_OF(name, codec, f16)                                                          \
    SL_KERNEL(sl_##name##_decode_add, decode_add<codec>)                                           \
    SL_KERNEL(sl_##name##_reduce, reduce<codec, false>)

#define SL_CODEC_RANDOM_KERNELS(name, codec)                                                       \
    SL_KERNEL(sl_##name##_encode_f32_random, encode<codec, sl_f32, true>)                          \
    SL_KERNEL(sl_##name##_encode_bf16_random, encode<codec, sl_bf16, true>)                        \
    SL_KERNEL(sl_##name##_encode_f16_random, encode<codec, sl_f16, true>)                          \
    SL_KERNEL(sl_##name##_feedback_f32_random, feedback<codec, sl_f32, true>)                      \
    SL_KERNEL(sl_##name##_feedback_bf16_random, feedback<codec, sl_bf16, true>)                    \
    SL_KERNEL(sl_##name##_feedback_f16_random, feedback<codec, sl_f16, true>)                      \
    SL_KERNEL(sl_##name##_reduce_random, reduce<codec, true>)

#endif
