/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's part of C++ that the kernels of this folder use, for a plain C++ compiler: blocks run one
 * after another, or some at once (sl_emu_at_once()), the threads of a block as fibers that change
 * places where they wait for each other.
 *
 * So sanitizers see each access, bytes can be compared without a GPU, and two mistakes that a GPU
 * hides are found: a thread that misses a shuffle or a barrier that its siblings wait in, and a
 * missing barrier, as the order in which threads run is drawn anew for each block.
 *
 * Numbers differ from a GPU's in one way: which NaN a sum of floats is. Kernels compare NaNs, and
 * make them of constants.
 */
#ifndef SL_COMPRESS_CUDA_EMULATE_H
#define SL_COMPRESS_CUDA_EMULATE_H

#include "compress/cuda/emulated.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct sl_emu_id {
    unsigned x;
};

/* What all threads of the block see; set by sl_emu_run(). */
extern "C" {
extern __thread struct sl_emu_id sl_emu_thread, sl_emu_block;
extern struct sl_emu_id sl_emu_grid;

/* Each waits for the threads of its warp or block, which must come to the same call. */
uint32_t sl_emu_exchange(uint32_t value, unsigned from); /* what lane from gave */
uint32_t sl_emu_ballot(int value);
uint32_t sl_emu_warp_max(uint32_t value);
uint32_t sl_emu_warp_sum(uint32_t value);
void sl_emu_barrier(void);
}

/* One for each kernel, before main(). */
struct sl_emu_named {
    sl_emu_named(const char *name, sl_emu_kernel kernel);
    const char *name;
    sl_emu_kernel kernel;
    struct sl_emu_named *next;
};

#define SL_KERNEL(name, ...)                                                                       \
    static void name(const struct sl_gpu_args *args)                                               \
    {                                                                                              \
        __VA_ARGS__(*args);                                                                        \
    }                                                                                              \
    static struct sl_emu_named name##_named(#name, name);

#define __device__
#define __forceinline__ inline
#define __shared__ static __thread /* a block runs on one thread of the host */
#define threadIdx sl_emu_thread
#define blockIdx sl_emu_block
#define gridDim sl_emu_grid

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return uint2{x, y};
}

static inline void __syncthreads(void)
{
    sl_emu_barrier();
}
static inline uint32_t __shfl_sync(uint32_t, uint32_t value, unsigned from)
{
    return sl_emu_exchange(value, from % 32);
}
static inline uint32_t __shfl_xor_sync(uint32_t, uint32_t value, unsigned mask)
{
    return sl_emu_exchange(value, (sl_emu_thread.x % 32) ^ mask);
}
static inline uint32_t __shfl_up_sync(uint32_t, uint32_t value, unsigned by)
{
    unsigned lane = sl_emu_thread.x % 32;

    return sl_emu_exchange(value, lane >= by ? lane - by : lane);
}
static inline uint32_t __reduce_add_sync(uint32_t, uint32_t value)
{
    return sl_emu_warp_sum(value);
}
static inline uint32_t __ballot_sync(uint32_t, int value)
{
    return sl_emu_ballot(value);
}
static inline uint32_t __reduce_max_sync(uint32_t, uint32_t value)
{
    return sl_emu_warp_max(value);
}

static inline int __popc(uint32_t value)
{
    return __builtin_popcount(value);
}
static inline int __ffs(int value)
{
    return __builtin_ffs(value);
}
static inline int __clz(uint32_t value)
{
    return value == 0 ? 32 : __builtin_clz(value);
}
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t which)
{
    uint64_t both = (uint64_t)high << 32 | low;
    uint32_t out = 0;

    for (unsigned i = 0; i < 4; i++)
        out |= (uint32_t)(both >> (which >> i * 4 & 7) * 8 & 0xff) << i * 8;
    return out;
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
static inline uint32_t __float_as_uint(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}
static inline float __uint_as_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fadd_rd(float a, float whole) /* of an a below 2^22 to 1.5 * 2^23 */
{
    return floorf(a) + whole;
}
/* As the GPU's conversions: to the nearest, and 0x7fff of a NaN. */
static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exp = half >> 10 & 0x1f, man = half & 0x3ff;

    if (exp == 0x1f)
        return __uint_as_float(man != 0 ? 0x7fffffff : sign | 0x7f800000);
    if (exp != 0)
        return __uint_as_float(sign | (exp + 112) << 23 | man << 13);
    return __uint_as_float(sign | __float_as_uint((float)man * 0x1p-24f));
}
static inline uint16_t f32_to_f16(float x)
{
    uint32_t bits = __float_as_uint(x), mag = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;

    if (mag > 0x7f800000)
        return 0x7fff;
    if (mag >= 0x47800000) /* 65536 */
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000) /* 2^-14: the sum's last place is worth 2^-24 */
        return (uint16_t)(sign | (__float_as_uint(__uint_as_float(mag) + 0.5f) - 0x3f000000));
    mag += 0xfff + (mag >> 13 & 1);
    return (uint16_t)(sign | (mag - 0x38000000) >> 13);
}
static inline uint16_t f32_to_bf16(float x)
{
    uint32_t bits = __float_as_uint(x);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline double __hiloint2double(int high, int low)
{
    uint64_t bits = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline float __double2float_rn(double value)
{
    return (float)value;
}
static inline uint32_t atomicAdd(uint32_t *at, uint32_t value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
static inline uint32_t atomicMax(uint32_t *at, uint32_t value)
{
    uint32_t was = __atomic_load_n(at, __ATOMIC_RELAXED);

    while (value > was &&
           !__atomic_compare_exchange_n(at, &was, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return was;
}
static inline void __syncwarp(void)
{
    sl_emu_ballot(0);
}
static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif
