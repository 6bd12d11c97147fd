/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the reductions of all element types of x86, whose kernel files differ in their vectors
 * alone (see reduce_simd.h). The file that includes it has defined, beside vec and its functions,
 *   MM(name)                         the intrinsic of that name for its vectors
 *   ps, pd                           vectors of f32 and f64, as long as a vec
 *   ps_of(v), pd_of(v), vec_of_ps(a), vec_of_pd(a)    the same bits
 *   vec_and(v, w)
 *   ps_canonical(a), pd_canonical(a)                  NaN as the contract has it
 *   ps_range(a, b, max), pd_range(a, b, max)          maximum or minimum, by the contract
 *   ps_pair                          two ps, a and b, the elements of a half-width vec
 *   f16_unpack(v), f16_pack(pair), bf16_pack(pair)
 *   epi8_product(a, b), i64_combine(a, b, op), u64_combine(a, b, op)
 */

/* f32 and what is computed in f32. */

SL_INLINE ps ps_combine(ps a, ps b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? MM(add_ps)(a, b)
           : op == SLUICE_PROD ? MM(mul_ps)(a, b)
                               : ps_range(a, b, op == SLUICE_MAX);
}

SL_INLINE ps ps_divide(ps a, unsigned divisor)
{
    return MM(div_ps)(a, MM(set1_ps)((float)divisor));
}

typedef ps f32_acc;

SL_INLINE ps f32_unpack(vec v)
{
    return ps_of(v);
}

SL_INLINE vec f32_pack(ps a)
{
    return vec_of_ps(ps_canonical(a));
}

#define f32_combine ps_combine
#define f32_divide ps_divide
#define TYPE f32
#define ELEM_BYTES 4
#include "kernels/reduce_simd.h"

/* Half-width types. */

SL_INLINE ps_pair pair_combine(ps_pair x, ps_pair y, enum sluice_op op)
{
    return (ps_pair){ps_combine(x.a, y.a, op), ps_combine(x.b, y.b, op)};
}

SL_INLINE ps_pair pair_divide(ps_pair x, unsigned divisor)
{
    return (ps_pair){ps_divide(x.a, divisor), ps_divide(x.b, divisor)};
}

typedef ps_pair f16_acc;

#define f16_combine pair_combine
#define f16_divide pair_divide
#define TYPE f16
#define ELEM_BYTES 2
#include "kernels/reduce_simd.h"

typedef ps_pair bf16_acc;

/* Elements of even and of odd place: no shuffle, since bf16 is the upper half of an f32. */
SL_INLINE ps_pair bf16_unpack(vec v)
{
    return (ps_pair){ps_of(MM(slli_epi32)(v, 16)),
                     ps_of(vec_and(v, MM(set1_epi32)((int)0xffff0000)))};
}

#define bf16_combine pair_combine
#define bf16_divide pair_divide
#define TYPE bf16
#define ELEM_BYTES 2
#include "kernels/reduce_simd.h"

/* f64 */

typedef pd f64_acc;

SL_INLINE pd f64_unpack(vec v)
{
    return pd_of(v);
}

SL_INLINE vec f64_pack(pd a)
{
    return vec_of_pd(pd_canonical(a));
}

SL_INLINE pd f64_combine(pd a, pd b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? MM(add_pd)(a, b)
           : op == SLUICE_PROD ? MM(mul_pd)(a, b)
                               : pd_range(a, b, op == SLUICE_MAX);
}

SL_INLINE pd f64_divide(pd a, unsigned divisor)
{
    return MM(div_pd)(a, MM(set1_pd)((double)divisor));
}

#define TYPE f64
#define ELEM_BYTES 8
#include "kernels/reduce_simd.h"

/* Integers: the accumulator is the vec. */

SL_INLINE vec i8_combine(vec a, vec b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? MM(add_epi8)(a, b)
           : op == SLUICE_PROD ? epi8_product(a, b)
           : op == SLUICE_MAX  ? MM(max_epi8)(a, b)
                               : MM(min_epi8)(a, b);
}

SL_INLINE vec u8_combine(vec a, vec b, enum sluice_op op)
{
    return op == SLUICE_MAX   ? MM(max_epu8)(a, b)
           : op == SLUICE_MIN ? MM(min_epu8)(a, b)
                              : i8_combine(a, b, op);
}

SL_INLINE vec i32_combine(vec a, vec b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? MM(add_epi32)(a, b)
           : op == SLUICE_PROD ? MM(mullo_epi32)(a, b)
           : op == SLUICE_MAX  ? MM(max_epi32)(a, b)
                               : MM(min_epi32)(a, b);
}

SL_INLINE vec u32_combine(vec a, vec b, enum sluice_op op)
{
    return op == SLUICE_MAX   ? MM(max_epu32)(a, b)
           : op == SLUICE_MIN ? MM(min_epu32)(a, b)
                              : i32_combine(a, b, op);
}

#include "kernels/reduce_simd_int.h"
#include "kernels/copy_simd.h"
