/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each cell of a delay matrix is expected to take, and what it takes beyond that.
 *
 * A message takes as long as those of its size take between other ranks: the median over cells, by
 * size in steps of a half octave, with lines between them (so small messages, which cost a
 * latency, are never compared by the byte). Beyond the sizes that four cells have, small ones are
 * expected to take as long as the next larger, large ones in proportion: both err to the side of
 * health. Pairs below one leaf and pairs of different ones have medians of their own, where both
 * are known.
 *
 * Kinds of hardware are taken off after it (tiers): where ports fall into groups that are apart,
 * with three members and an eighth of all in each, a cell is compared with those whose slower end
 * is of the same group. Unless the slower group is one host, leaf or rail of four or more, and all
 * of it: that is a fault, not a kind.
 */
#ifndef SL_MONITOR_DIAGNOSIS_EXPECT_H
#define SL_MONITOR_DIAGNOSIS_EXPECT_H

#include "monitor/diagnosis/lift.h"
#include "monitor/diagnosis/matrix.h"

/* excess: by cell, room for all: the logarithm of the time over what is expected; NAN: there is
 * nothing to compare with. *tiers: how many kinds of hardware. 0 or -ENOMEM. */
int sl_expect(const struct sl_matrix *matrix, const struct sl_places *places, float *excess,
              uint32_t *tiers);

/* The second half: excess of other kinds of hardware is taken off. */
int sl_expect_tiers(const struct sl_matrix *matrix, const struct sl_places *places, float *excess,
                    uint32_t *tiers);

/* Of a list whose order changes: the element that would be at `at` if it were sorted. */
float sl_select(float *list, size_t count, size_t at);
/* The middle element, or both of an even count (at least 1). The order may change. */
void sl_middle_of(float *list, size_t count, float *lower, float *upper);
/* The median, the mean of the middle two; 0 of none. */
float sl_median_of(float *list, size_t count);
/* 1.4826 times the median distance from the median: a standard deviation, were it Gaussian. */
float sl_spread_of(float *list, size_t count);

#endif
