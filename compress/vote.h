/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Majority votes over signs, counted in bit-sliced form: bit p of 64 counters lies in one word of
 * plane p, so that a vote of 64 elements is added by a few operations on words, and counters of
 * groups of ranks add up to those of all.
 *
 * Signs: bit j of word i is element 64 i + j, set where it is below zero, as in the codec "sign":
 * neither 0 nor -0 nor NaN is. Counters: planes one after the other, each of as many words.
 *
 * Source: J. Bernstein et al., "signSGD with majority vote is communication efficient and fault
 * tolerant", ICLR 2019; B. Liu et al., "Communication efficient distributed training with
 * Distributed Lion", NeurIPS 2024.
 */
#ifndef SL_COMPRESS_VOTE_H
#define SL_COMPRESS_VOTE_H

#include <stddef.h>
#include <stdint.h>

#define SL_VOTE_PLANES_MOST 32

/* Words of count signs, or of one plane of their counters. */
static inline size_t sl_vote_words(size_t count)
{
    return count / 64 + (count % 64 != 0);
}

/* Planes of counters of so many ranks, and so bits of a counter on a wire. */
static inline unsigned sl_vote_planes(uint32_t ranks)
{
    return 32 - (unsigned)__builtin_clz(ranks | 1);
}

/* Bits past the last element are 0. */
void sl_vote_signs(const float *in, size_t count, uint64_t *signs);

/* Counters of nobody are all zeros. What does not fit into the planes is lost: planes are those of
 * all ranks whose votes are added. */
void sl_vote_add(uint64_t *counters, unsigned planes, const uint64_t *signs, size_t words);

/* counters += more, which has as many planes or fewer. */
void sl_vote_merge(uint64_t *counters, unsigned planes, const uint64_t *more, unsigned more_planes,
                   size_t words);

/* below: set where more than half of the ranks are below zero. ties, if not NULL: set where exactly
 * half of them are; there, below is 0, as for the sign of 0, and whoever wants no step where votes
 * are even looks at ties. */
void sl_vote_majority(const uint64_t *counters, unsigned planes, uint32_t ranks, size_t words,
                      uint64_t *below, uint64_t *ties);

/* out[i] = scale * (ranks not below zero - ranks below zero): the sum of the votes. */
void sl_vote_sum(const uint64_t *counters, unsigned planes, uint32_t ranks, float scale,
                 size_t count, float *out);

/* out[i] = scale, with the sign of the vote. */
void sl_vote_apply(const uint64_t *below, float scale, size_t count, float *out);

#endif
