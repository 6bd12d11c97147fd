/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction and copy kernels for NEON (Advanced SIMD), which is part of every 64-bit ARM that runs
 * Linux: needs no flags and no question to the CPU.
 *
 * Two registers make a vec, as stores past the caches come in pairs. Only IEEE operations are used
 * whose results are the same on all architectures: no fused multiply-add, no estimates.
 */
#include "kernels/reduce_kernels.h"

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint8x16_t a, b;
} vec;
#define VEC_BYTES 32

SL_INLINE vec vec_load(const void *p)
{
    return (vec){vld1q_u8(p), vld1q_u8((const uint8_t *)p + 16)};
}

SL_INLINE void vec_store(void *p, vec v)
{
    vst1q_u8(p, v.a);
    vst1q_u8((uint8_t *)p + 16, v.b);
}

/* There is no intrinsic for it. A hint that these lines are not wanted again soon; for the order of
 * stores it is a store like any other. */
SL_INLINE void vec_stream(void *p, vec v)
{
    __asm__ volatile("stnp %q1, %q2, [%0]" : : "r"(p), "w"(v.a), "w"(v.b) : "memory");
}

/* A release store that follows is enough. */
SL_INLINE void vec_stream_end(void)
{
}

/* Moves len < VEC_BYTES bytes by the binary digits of len. */
SL_INLINE void move_part(char *dst, const char *src, size_t len, unsigned elem)
{
    size_t at = 0;

#pragma GCC unroll 5
    for (size_t n = VEC_BYTES / 2; n >= elem; n /= 2) {
        if ((len & n) != 0) {
            memcpy(dst + at, src + at, n);
            at += n;
        }
    }
}

SL_INLINE vec vec_load_part(const void *p, size_t len, unsigned elem)
{
    char part[VEC_BYTES] __attribute__((aligned(16))) = {0};

    move_part(part, p, len, elem);
    return vec_load(part);
}

SL_INLINE void vec_store_part(void *p, vec v, size_t len, unsigned elem)
{
    char part[VEC_BYTES] __attribute__((aligned(16)));

    vec_store(part, v);
    move_part(p, part, len, elem);
}

/* f32 and what is computed in f32. */

SL_INLINE float32x4_t f32q_canonical(float32x4_t x)
{
    return vbslq_f32(vceqq_f32(x, x), x, vreinterpretq_f32_u32(vdupq_n_u32(SL_NAN_F32)));
}

/* FMAX and FMIN are what reduce.h asks for: a NaN operand makes a NaN, and -0 < +0. */
SL_INLINE float32x4_t f32q_combine(float32x4_t x, float32x4_t y, enum sluice_op op)
{
    return op == SLUICE_SUM    ? vaddq_f32(x, y)
           : op == SLUICE_PROD ? vmulq_f32(x, y)
           : op == SLUICE_MAX  ? vmaxq_f32(x, y)
                               : vminq_f32(x, y);
}

SL_INLINE float32x4_t f32q_divide(float32x4_t x, unsigned divisor)
{
    return vdivq_f32(x, vdupq_n_f32((float)divisor));
}

typedef struct {
    float32x4_t a, b;
} f32_acc;

SL_INLINE f32_acc f32_unpack(vec v)
{
    return (f32_acc){vreinterpretq_f32_u8(v.a), vreinterpretq_f32_u8(v.b)};
}

SL_INLINE vec f32_pack(f32_acc x)
{
    return (vec){vreinterpretq_u8_f32(f32q_canonical(x.a)),
                 vreinterpretq_u8_f32(f32q_canonical(x.b))};
}

SL_INLINE f32_acc f32_combine(f32_acc x, f32_acc y, enum sluice_op op)
{
    return (f32_acc){f32q_combine(x.a, y.a, op), f32q_combine(x.b, y.b, op)};
}

SL_INLINE f32_acc f32_divide(f32_acc x, unsigned divisor)
{
    return (f32_acc){f32q_divide(x.a, divisor), f32q_divide(x.b, divisor)};
}

#define TYPE f32
#define ELEM_BYTES 4
#include "kernels/reduce_simd.h"

/* Half-width types: two accumulators of f32 for each register of the vec. */

typedef struct {
    f32_acc a, b;
} half_acc;

SL_INLINE half_acc half_combine(half_acc x, half_acc y, enum sluice_op op)
{
    return (half_acc){f32_combine(x.a, y.a, op), f32_combine(x.b, y.b, op)};
}

SL_INLINE half_acc half_divide(half_acc x, unsigned divisor)
{
    return (half_acc){f32_divide(x.a, divisor), f32_divide(x.b, divisor)};
}

/* Replaces what lies above infinity, sign aside, by a quiet NaN: half the work that it would be
 * before rounding. */
SL_INLINE uint16x8_t half_canonical(uint16x8_t x, uint16_t infinity, uint16_t nan)
{
    uint16x8_t is_nan = vcgtq_u16(vandq_u16(x, vdupq_n_u16(0x7fff)), vdupq_n_u16(infinity));

    return vbslq_u16(is_nan, vdupq_n_u16(nan), x);
}

typedef half_acc f16_acc;

SL_INLINE f32_acc f16q_unpack(uint8x16_t v)
{
    float16x8_t x = vreinterpretq_f16_u8(v);

    return (f32_acc){vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
}

SL_INLINE half_acc f16_unpack(vec v)
{
    return (half_acc){f16q_unpack(v.a), f16q_unpack(v.b)};
}

/* FCVTN rounds to nearest even. */
SL_INLINE uint8x16_t f16q_pack(f32_acc x)
{
    float16x8_t both = vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b);

    return vreinterpretq_u8_u16(half_canonical(vreinterpretq_u16_f16(both), 0x7c00, 0x7e00));
}

SL_INLINE vec f16_pack(half_acc x)
{
    return (vec){f16q_pack(x.a), f16q_pack(x.b)};
}

#define f16_combine half_combine
#define f16_divide half_divide
#define TYPE f16
#define ELEM_BYTES 2
#include "kernels/reduce_simd.h"

typedef half_acc bf16_acc;

/* Elements of even and of odd place: no shuffle, since bf16 is the upper half of an f32. */
SL_INLINE f32_acc bf16q_unpack(uint8x16_t v)
{
    uint32x4_t both = vreinterpretq_u32_u8(v);

    return (f32_acc){vreinterpretq_f32_u32(vshlq_n_u32(both, 16)),
                     vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000)))};
}

SL_INLINE half_acc bf16_unpack(vec v)
{
    return (half_acc){bf16q_unpack(v.a), bf16q_unpack(v.b)};
}

/* To nearest even, in the upper 16 bits. A NaN does not overflow: its low bits are 0, like those of
 * the operands it came from. */
SL_INLINE uint32x4_t bf16_round(float32x4_t x)
{
    uint32x4_t bits = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));

    return vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
}

SL_INLINE uint8x16_t bf16q_pack(f32_acc x)
{
    /* The upper halves of the even ones, shifted in below the upper halves of the odd ones. */
    uint32x4_t both = vsriq_n_u32(bf16_round(x.b), bf16_round(x.a), 16);

    return vreinterpretq_u8_u16(half_canonical(vreinterpretq_u16_u32(both), 0x7f80, 0x7fc0));
}

SL_INLINE vec bf16_pack(half_acc x)
{
    return (vec){bf16q_pack(x.a), bf16q_pack(x.b)};
}

#define bf16_combine half_combine
#define bf16_divide half_divide
#define TYPE bf16
#define ELEM_BYTES 2
#include "kernels/reduce_simd.h"

/* f64 */

typedef struct {
    float64x2_t a, b;
} f64_acc;

SL_INLINE float64x2_t f64q_combine(float64x2_t x, float64x2_t y, enum sluice_op op)
{
    return op == SLUICE_SUM    ? vaddq_f64(x, y)
           : op == SLUICE_PROD ? vmulq_f64(x, y)
           : op == SLUICE_MAX  ? vmaxq_f64(x, y)
                               : vminq_f64(x, y);
}

SL_INLINE uint8x16_t f64q_pack(float64x2_t x)
{
    float64x2_t nan = vreinterpretq_f64_u64(vdupq_n_u64(SL_NAN_F64));

    return vreinterpretq_u8_f64(vbslq_f64(vceqq_f64(x, x), x, nan));
}

SL_INLINE f64_acc f64_unpack(vec v)
{
    return (f64_acc){vreinterpretq_f64_u8(v.a), vreinterpretq_f64_u8(v.b)};
}

SL_INLINE vec f64_pack(f64_acc x)
{
    return (vec){f64q_pack(x.a), f64q_pack(x.b)};
}

SL_INLINE f64_acc f64_combine(f64_acc x, f64_acc y, enum sluice_op op)
{
    return (f64_acc){f64q_combine(x.a, y.a, op), f64q_combine(x.b, y.b, op)};
}

SL_INLINE f64_acc f64_divide(f64_acc x, unsigned divisor)
{
    float64x2_t by = vdupq_n_f64((double)divisor);

    return (f64_acc){vdivq_f64(x.a, by), vdivq_f64(x.b, by)};
}

#define TYPE f64
#define ELEM_BYTES 8
#include "kernels/reduce_simd.h"

/* Integers: the accumulator is the vec. They wrap around, so they are added and multiplied without
 * sign, where C defines that. */

/* Low 64 bits of 64-bit products, from 32-bit halves. */
SL_INLINE uint64x2_t u64q_product(uint64x2_t x, uint64x2_t y)
{
    uint32x4_t cross = vmulq_u32((uint32x4_t)x, vrev64q_u32((uint32x4_t)y));

    return vmlal_u32(vshlq_n_u64(vpaddlq_u32(cross), 32), vmovn_u64(x), vmovn_u64(y));
}

SL_INLINE int64x2_t i64q_max(int64x2_t x, int64x2_t y)
{
    return vbslq_s64(vcgtq_s64(x, y), x, y);
}

SL_INLINE int64x2_t i64q_min(int64x2_t x, int64x2_t y)
{
    return vbslq_s64(vcgtq_s64(x, y), y, x);
}

SL_INLINE uint64x2_t u64q_max(uint64x2_t x, uint64x2_t y)
{
    return vbslq_u64(vcgtq_u64(x, y), x, y);
}

SL_INLINE uint64x2_t u64q_min(uint64x2_t x, uint64x2_t y)
{
    return vbslq_u64(vcgtq_u64(x, y), y, x);
}

/* plain: a register of elements without sign, to add and multiply; lanes: of the type itself. */
#define DEFINE_COMBINE(type, plain, add, product, lanes, max, min)                                 \
    SL_INLINE uint8x16_t type##q_combine(uint8x16_t x, uint8x16_t y, enum sluice_op op)            \
    {                                                                                              \
        if (op == SLUICE_SUM)                                                                      \
            return (uint8x16_t)add((plain)x, (plain)y);                                            \
        if (op == SLUICE_PROD)                                                                     \
            return (uint8x16_t)product((plain)x, (plain)y);                                        \
        return op == SLUICE_MAX ? (uint8x16_t)max((lanes)x, (lanes)y)                              \
                                : (uint8x16_t)min((lanes)x, (lanes)y);                             \
    }                                                                                              \
    SL_INLINE vec type##_combine(vec x, vec y, enum sluice_op op)                                  \
    {                                                                                              \
        return (vec){type##q_combine(x.a, y.a, op), type##q_combine(x.b, y.b, op)};                \
    }
DEFINE_COMBINE(i8, uint8x16_t, vaddq_u8, vmulq_u8, int8x16_t, vmaxq_s8, vminq_s8)
DEFINE_COMBINE(u8, uint8x16_t, vaddq_u8, vmulq_u8, uint8x16_t, vmaxq_u8, vminq_u8)
DEFINE_COMBINE(i32, uint32x4_t, vaddq_u32, vmulq_u32, int32x4_t, vmaxq_s32, vminq_s32)
DEFINE_COMBINE(u32, uint32x4_t, vaddq_u32, vmulq_u32, uint32x4_t, vmaxq_u32, vminq_u32)
DEFINE_COMBINE(i64, uint64x2_t, vaddq_u64, u64q_product, int64x2_t, i64q_max, i64q_min)
DEFINE_COMBINE(u64, uint64x2_t, vaddq_u64, u64q_product, uint64x2_t, u64q_max, u64q_min)
#undef DEFINE_COMBINE

#include "kernels/reduce_simd_int.h"
#include "kernels/copy_simd.h"

/* The C library's copy is made of the same registers. */
static void copy_cached(void *dst, const void *src, size_t len)
{
    memcpy(dst, src, len);
}

const struct sl_kernels sl_kernels_neon = {
    .name = "neon",
    .reduce = SL_REDUCE_TABLE(SL_REDUCE_ROW),
    .reduce_stream = SL_REDUCE_TABLE(SL_REDUCE_STREAM_ROW),
    .copy = copy_cached,
    .copy_stream = copy_stream,
};
