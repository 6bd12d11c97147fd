/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction and copy kernels, chosen once at run time by what the CPU has. */
#ifndef SL_KERNELS_REDUCE_H
#define SL_KERNELS_REDUCE_H

#include "core/config.h"

#include <sluice/types.h>

#include <stddef.h>

/*
 * dst[i] = src[0][i] ⊕ src[1][i] ⊕ … ⊕ src[nsrc - 1][i], always in this order; f16 and bf16 widen
 * each operand to f32, add in f32 and round once, to nearest even. divisor > 1 divides the sum
 * (averages): floats in f32 or f64, integers toward zero. copy, when not NULL, gets the same bytes
 * as dst, always through the caches.
 *
 * dst and copy may equal any src exactly, or not overlap it at all; never each other. Any
 * alignment, fastest where dst is aligned to its elements. nsrc from 1 to any.
 *
 * All kernels give the same bits for all inputs. A NaN result is always the canonical quiet NaN
 * (0x7e00, 0x7fc0, 0x7fc00000, 0x7ff8000000000000), of sums, products and single sources too: which
 * operand's payload an instruction keeps depends on an order that compilers are free to change. min
 * and max: a NaN operand makes the result NaN; -0 < +0, so the bits do not depend on order.
 */
typedef void sl_reduce_fn(void *dst, void *copy, const void *const *src, unsigned nsrc,
                          size_t count, unsigned divisor);

typedef void sl_copy_fn(void *dst, const void *src, size_t len);

struct sl_kernels {
    const char *name; /* "avx512", "avx2", "neon", "c" */
    /* [op] for SLUICE_SUM … SLUICE_MIN; averages are SLUICE_SUM with a divisor */
    sl_reduce_fn *reduce[SLUICE_DTYPE_COUNT][4];
    /* the same with stores to dst that go past the caches; ends with a store fence. Results below
     * 2 KiB, where the fence would cost more, and plain C go through the caches. */
    sl_reduce_fn *reduce_stream[SLUICE_DTYPE_COUNT][4];
    sl_copy_fn *copy;        /* through the caches */
    sl_copy_fn *copy_stream; /* past the caches; ends with a store fence */
};

/* -ENOTSUP: this CPU or build lacks it (the sentence says what). */
int sl_kernels_select(enum sl_kernel kind, const struct sl_kernels **out);

#endif
