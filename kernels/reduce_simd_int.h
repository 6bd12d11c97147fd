/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the reductions of all integer types, whose accumulators are the vectors themselves (see
 * reduce_simd.h). The file that includes it has defined i8_combine … u64_combine.
 */

SL_INLINE vec int_same(vec v)
{
    return v;
}

typedef vec i8_acc, u8_acc, i32_acc, u32_acc, i64_acc, u64_acc;
#define i8_unpack int_same
#define i8_pack int_same
#define u8_unpack int_same
#define u8_pack int_same
#define i32_unpack int_same
#define i32_pack int_same
#define u32_unpack int_same
#define u32_pack int_same
#define i64_unpack int_same
#define i64_pack int_same
#define u64_unpack int_same
#define u64_pack int_same

/* No vector divides integers: averages of them go one by one, in one place per type, since that is
 * much code. */
#define DEFINE_DIVIDE(type, elem, wide)                                                            \
    static SL_NOINLINE vec type##_divide(vec v, unsigned divisor)                                  \
    {                                                                                              \
        union {                                                                                    \
            vec v;                                                                                 \
            elem e[VEC_BYTES / sizeof(elem)];                                                      \
        } u = {.v = v};                                                                            \
                                                                                                   \
        for (unsigned i = 0; i < VEC_BYTES / sizeof(elem); i++)                                    \
            u.e[i] = (elem)(u.e[i] / (wide)divisor);                                               \
        return u.v;                                                                                \
    }
DEFINE_DIVIDE(i8, int8_t, int64_t)
DEFINE_DIVIDE(u8, uint8_t, uint32_t)
DEFINE_DIVIDE(i32, int32_t, int64_t)
DEFINE_DIVIDE(u32, uint32_t, uint32_t)
DEFINE_DIVIDE(i64, int64_t, int64_t)
DEFINE_DIVIDE(u64, uint64_t, uint64_t)
#undef DEFINE_DIVIDE

#define TYPE i8
#define ELEM_BYTES 1
#include "kernels/reduce_simd.h"
#define TYPE u8
#define ELEM_BYTES 1
#include "kernels/reduce_simd.h"
#define TYPE i32
#define ELEM_BYTES 4
#include "kernels/reduce_simd.h"
#define TYPE u32
#define ELEM_BYTES 4
#include "kernels/reduce_simd.h"
#define TYPE i64
#define ELEM_BYTES 8
#include "kernels/reduce_simd.h"
#define TYPE u64
#define ELEM_BYTES 8
#include "kernels/reduce_simd.h"
