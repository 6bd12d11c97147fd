/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of times in bins of powers of two: a few instructions to fill, right within a factor
 * of two. */
#ifndef SL_CORE_HISTOGRAM_H
#define SL_CORE_HISTOGRAM_H

#include <stdint.h>

#define SL_HISTOGRAM_BINS                                                                          \
    32 /* bin 0: 0 ns; bin i: from 2^(i-1) to below 2^i ns; the last: all longer ones too */

static inline unsigned sl_histogram_bin(uint64_t ns)
{
    unsigned bin = ns == 0 ? 0 : 64 - (unsigned)__builtin_clzll(ns);

    return bin < SL_HISTOGRAM_BINS ? bin : SL_HISTOGRAM_BINS - 1;
}

/* Times in it. */
uint64_t sl_histogram_total(const uint64_t bins[SL_HISTOGRAM_BINS]);

/* The time in ns that percent of 100 do not exceed, as if times lay evenly in their bin; 0 for an
 * empty one. */
double sl_histogram_percentile(const uint64_t bins[SL_HISTOGRAM_BINS], double percent);

#endif
