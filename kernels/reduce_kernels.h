/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel files share: their tables, and the list that reduce.c chooses from. */
#ifndef SL_KERNELS_REDUCE_KERNELS_H
#define SL_KERNELS_REDUCE_KERNELS_H

#include "kernels/reduce.h"

#include <stddef.h>

extern const struct sl_kernels sl_kernels_c;
extern const struct sl_kernels sl_kernels_avx2;
extern const struct sl_kernels sl_kernels_avx512;
extern const struct sl_kernels sl_kernels_neon;

struct sl_kernels_choice {
    enum sl_kernel kind;
    const struct sl_kernels *kernels;
    /* What this CPU lacks ("AVX2 or F16C"), NULL when the kernels run here. */
    const char *(*lacks)(void);
};

/* The fastest first; the last one runs everywhere. One file of this architecture defines it:
 * reduce_x86.c, reduce_arm64.c or reduce_any.c. */
extern const struct sl_kernels_choice sl_kernels_choices[];
extern const size_t sl_kernels_choice_count;

/* A float's canonical quiet NaN: the only NaN that kernels write, so that results do not depend on
 * which operand's payload an instruction, or a compiler that swaps operands, happens to keep. */
#define SL_NAN_F32 0x7fc00000u
#define SL_NAN_F64 0x7ff8000000000000ull

/* Below this, the fence after stores past the caches costs more (about 150 ns) than they save. */
#define SL_STREAM_BYTES_MIN 2048

#define SL_INLINE static inline __attribute__((always_inline))
#define SL_NOINLINE __attribute__((noinline))

#define SL_PASTE_(a, b) a##b
#define SL_PASTE(a, b) SL_PASTE_(a, b)

/* One row of a table of functions: the functions of one element type. */
#define SL_REDUCE_ROW(type)                                                                        \
    {                                                                                              \
        [SLUICE_SUM] = type##_sum, [SLUICE_PROD] = type##_prod, [SLUICE_MAX] = type##_max,         \
        [SLUICE_MIN] = type##_min                                                                  \
    }
#define SL_REDUCE_STREAM_ROW(type)                                                                 \
    {                                                                                              \
        [SLUICE_SUM] = type##_sum_stream, [SLUICE_PROD] = type##_prod_stream,                      \
        [SLUICE_MAX] = type##_max_stream, [SLUICE_MIN] = type##_min_stream                         \
    }
#define SL_REDUCE_TABLE(row)                                                                       \
    {                                                                                              \
        [SLUICE_I8] = row(i8), [SLUICE_U8] = row(u8), [SLUICE_I32] = row(i32),                     \
        [SLUICE_U32] = row(u32), [SLUICE_I64] = row(i64), [SLUICE_U64] = row(u64),                 \
        [SLUICE_F16] = row(f16), [SLUICE_F32] = row(f32), [SLUICE_F64] = row(f64),                 \
        [SLUICE_BF16] = row(bf16)                                                                  \
    }

#endif
