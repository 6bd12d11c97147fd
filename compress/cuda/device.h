/* SPDX-License-Identifier: Apache-2.0 */
/* What all kernels of codecs use: elements in and out, maxima of a few lanes, random numbers. */
#ifndef SL_COMPRESS_CUDA_DEVICE_H
#define SL_COMPRESS_CUDA_DEVICE_H

#include "compress/cuda/args.h"

#ifdef __CUDACC__
/* Entry points by the names that gpu.c asks for. The arguments stay in constant memory. */
#define SL_KERNEL(name, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(SL_GPU_THREADS, 5)                                \
        name(const __grid_constant__ struct sl_gpu_args args)                                      \
    {                                                                                              \
        __VA_ARGS__(args);                                                                         \
    }
#else
#include "compress/cuda/emulate.h"
#endif

#define SL_DEVICE static __device__ __forceinline__
#ifdef __CUDACC__
#define SL_DEVICE_MEMBER __device__ __forceinline__
#else
#define SL_DEVICE_MEMBER inline
#endif
#define SL_ALL 0xffffffffu /* lanes */

#define SL_MAGNITUDE 0x7fffffffu
#define SL_INFINITE 0x7f800000u
#define SL_NAN_BITS 0x7fc00000u /* the one NaN that codecs make */

/* ---- elements ---- */

struct sl_f32 {
    typedef float stored;
};
struct sl_bf16 {
    typedef uint16_t stored;
};
struct sl_f16 {
    typedef uint16_t stored;
};

/* ---- conversions that GPUs have an instruction for; of a NaN some NaN ---- */

#ifdef __CUDACC__
SL_DEVICE float f16_to_f32(uint16_t half)
{
    float out;

    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(half));
    return out;
}
SL_DEVICE uint16_t f32_to_f16(float x)
{
    uint16_t out;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
    return out;
}
SL_DEVICE uint16_t f32_to_bf16(float x)
{
    uint16_t out;

    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
    return out;
}
#endif

SL_DEVICE float widen(sl_f32, float x)
{
    return x;
}
SL_DEVICE float widen(sl_bf16, uint16_t half)
{
    return __uint_as_float((uint32_t)half << 16);
}
SL_DEVICE float widen(sl_f16, uint16_t half)
{
    float x = f16_to_f32(half);

    /* A NaN becomes quiet, and keeps its other bits. */
    return x == x ? x
                  : __uint_as_float((uint32_t)(half & 0x8000) << 16 | SL_NAN_BITS |
                                    (uint32_t)(half & 0x3ff) << 13);
}

SL_DEVICE float narrow(sl_f32, float x)
{
    return x;
}
SL_DEVICE uint16_t narrow(sl_bf16, float x)
{
    uint16_t half = f32_to_bf16(x);

    return x == x ? half : SL_NAN_BITS >> 16;
}
SL_DEVICE uint16_t narrow(sl_f16, float x)
{
    uint16_t half = f32_to_f16(x);

    return x == x ? half : 0x7e00;
}

/* 16 bits as 0 to 1, by operations of which a GPU makes as many as of sums; conversions of integers
 * are several times slower. */
SL_DEVICE float fraction(uint32_t random)
{
    return __fadd_rn(__uint_as_float(0x3f800000 | random << 7), -1.0f);
}

/* The nearest integer, or the one below, in the low bits of a float's: |x| < 2^22. */
#define SL_WHOLE 0x4b400000u /* 1.5 * 2^23: numbers near it have steps of 1 */
SL_DEVICE uint32_t nearest_bits(float x)
{
    return __float_as_uint(__fadd_rn(x, __uint_as_float(SL_WHOLE)));
}
SL_DEVICE uint32_t below_bits(float x)
{
    return __float_as_uint(__fadd_rd(x, __uint_as_float(SL_WHOLE)));
}

/* Up or down at random, by 16 random bits. */
SL_DEVICE uint16_t random_narrow(sl_bf16, float x, uint32_t random)
{
    uint32_t bits = __float_as_uint(x);

    return (uint16_t)((bits & SL_MAGNITUDE) > SL_INFINITE ? SL_NAN_BITS >> 16
                                                          : (bits + random) >> 16);
}
SL_DEVICE uint16_t random_narrow(sl_f16, float x, uint32_t random)
{
    uint32_t bits = __float_as_uint(x), mag = bits & SL_MAGNITUDE, sign = bits >> 16 & 0x8000, half;

    if (mag > SL_INFINITE)
        return 0x7e00;
    if (mag < 0x38800000) /* in units of 2^-24 */
        half = (uint32_t)__fadd_rn(__fmul_rn(__uint_as_float(mag), 0x1p24f), fraction(random));
    else
        half = ((mag + (random >> 3)) >> 13) - (112u << 10);
    return (uint16_t)(sign | (half > 0x7c00 ? 0x7c00 : half));
}

/* 16 bytes of elements at a time, in and out. */
template <class T>
struct sl_vector {
    static const unsigned N = 16 / sizeof(typename T::stored);
    union {
        uint4 words;
        typename T::stored at[N];
    };
};

SL_DEVICE bool aligned(const void *at, size_t to)
{
    return ((uintptr_t)at & (to - 1)) == 0;
}

/* N elements from element i on; 0 from element end on. */
template <class T, unsigned N>
SL_DEVICE void load(const void *in, uint64_t i, uint64_t end, float *out)
{
    typedef typename T::stored stored;
    const stored *from = (const stored *)in + i;

    if (i + N <= end && aligned(from, N * sizeof(stored))) {
        sl_vector<T> v;

        if (N * sizeof(stored) == 16)
            v.words = *(const uint4 *)from;
        else {
            const uint2 half = *(const uint2 *)from;

            v.words.x = half.x;
            v.words.y = half.y;
        }
#pragma unroll
        for (unsigned j = 0; j < N; j++)
            out[j] = widen(T(), v.at[j]);
        return;
    }
#pragma unroll
    for (unsigned j = 0; j < N; j++)
        out[j] = i + j < end ? widen(T(), from[j]) : 0;
}

template <class T, unsigned N>
SL_DEVICE void store(void *out, uint64_t i, uint64_t end, const float *in)
{
    typedef typename T::stored stored;
    stored *to = (stored *)out + i;

    if (i + N <= end && aligned(to, N * sizeof(stored))) {
        sl_vector<T> v;

#pragma unroll
        for (unsigned j = 0; j < N; j++)
            v.at[j] = narrow(T(), in[j]);
        if (N * sizeof(stored) == 16)
            *(uint4 *)to = v.words;
        else
            *(uint2 *)to = make_uint2(v.words.x, v.words.y);
        return;
    }
#pragma unroll
    for (unsigned j = 0; j < N; j++)
        if (i + j < end)
            to[j] = narrow(T(), in[j]);
}

/* BYTES of codes as one access: 1 to 16, a power of two. */
template <unsigned BYTES>
struct sl_codes;
template <>
struct sl_codes<1> {
    typedef uint8_t word;
};
template <>
struct sl_codes<2> {
    typedef uint16_t word;
};
template <>
struct sl_codes<4> {
    typedef uint32_t word;
};
template <>
struct sl_codes<8> {
    typedef uint2 word;
};
template <>
struct sl_codes<16> {
    typedef uint4 word;
};

/* ---- lanes ---- */

/* The largest of LANES neighbours, known to all of them. */
template <unsigned LANES>
SL_DEVICE uint32_t max_of_lanes(uint32_t value)
{
    if constexpr (LANES == 32) {
        return __reduce_max_sync(SL_ALL, value);
    } else {
#pragma unroll
        for (unsigned by = LANES / 2; by > 0; by /= 2) {
            uint32_t other = __shfl_xor_sync(SL_ALL, value, by);

            value = other > value ? other : value;
        }
        return value;
    }
}

/* The sum over the lanes before this one. */
SL_DEVICE uint32_t lanes_before(uint32_t value)
{
    uint32_t sum = value;

#pragma unroll
    for (unsigned by = 1; by < 32; by *= 2) {
        uint32_t other = __shfl_up_sync(SL_ALL, sum, by);

        sum += threadIdx.x % 32 >= by ? other : 0;
    }
    return sum - value;
}

/* Of the whole block of threads. Leaves the threads together. */
SL_DEVICE uint32_t max_of_block(uint32_t value)
{
    __shared__ uint32_t of_warp[SL_GPU_THREADS / 32];

    value = __reduce_max_sync(SL_ALL, value);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (unsigned i = 0; i < SL_GPU_THREADS / 32; i++)
        value = of_warp[i] > value ? of_warp[i] : value;
    return value;
}

/* ---- random numbers: compress/philox.h ---- */

SL_DEVICE void philox(uint64_t eight, const struct sl_gpu_args &args, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)eight, c1 = (uint32_t)(eight >> 32), c2 = args.stream, c3 = args.step;
    uint32_t k0 = (uint32_t)args.seed, k1 = (uint32_t)(args.seed >> 32);

#pragma unroll
    for (unsigned i = 0; i < 10; i++) {
        uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;

        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

SL_DEVICE uint32_t random_16(const uint32_t *words, unsigned j)
{
    return words[j / 2] >> (j & 1) * 16 & 0xffff;
}

#endif
