/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data to send and the answers to expect, computed apart from the library.
 *
 * Every element is a function of (seed, rank, index), so each rank knows what all ranks sent
 * without asking them. Copies carry random bits, all of them compared. Integers, minima and maxima
 * are exact. Float sums, products and averages must lie within the rounding errors that any order
 * of n - 1 roundings can make: |got - exact| <= (n - 1) u Σ|x|, u the type's unit roundoff.
 */
#ifndef SB_VERIFY_H
#define SB_VERIFY_H

#include "bench.h"

#define SB_NO_OP (-1)

/* Fills dst with elements first, first + 1, … of rank. op SB_NO_OP: random bits; otherwise values
 * that n ranks can reduce with op and no overflow. dst may be unaligned. */
void sb_fill(void *dst, enum sluice_dtype dtype, int op, uint64_t seed, int rank, int size,
             uint64_t first, size_t count);

/* How many of got[count] differ from what rank sent from first on. */
uint64_t sb_check_copy(const void *got, enum sluice_dtype dtype, int op, uint64_t seed, int rank,
                       int size, uint64_t first, size_t count);

/* How many of got[count] are not the reduction over all ranks of elements first, …. */
uint64_t sb_check_reduce(const void *got, enum sluice_dtype dtype, enum sluice_op op, uint64_t seed,
                         int size, uint64_t first, size_t count);

/* Sums of squares: of what results should be, and of what they lack of it. */
struct sb_error {
    double power, error;
};

/* For floats, those of got[count] are added, as the two functions above compare them. */
void sb_error_copy(const void *got, enum sluice_dtype dtype, int op, uint64_t seed, int rank,
                   int size, uint64_t first, size_t count, struct sb_error *sum);
void sb_error_reduce(const void *got, enum sluice_dtype dtype, enum sluice_op op, uint64_t seed,
                     int size, uint64_t first, size_t count, struct sb_error *sum);

/* A checksum that any changed bit changes with near certainty. */
uint64_t sb_hash(const void *bytes, size_t len);

#endif
