/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequential test with a stated number of false alarms: has a rank begun to take longer?
 *
 * Each step gives z, how far the rank is above what is healthy, in units of the healthy spread. The
 * bet on it is a likelihood ratio, a number whose mean is at most 1 as long as the rank is healthy:
 *
 *     L(z) = 0.2 + 0.8 g(z) / f(z)     f: Student's density with 3 degrees of freedom (heavy tails:
 *                                         a pause of 10 spreads comes once in 1,000 steps)
 *                                      g: uniform in log z from 2 to upper (any slowness)
 *
 * Such a bet pays in every step for not knowing how slow the rank is. So a quarter of the stake is
 * on five further bets, each on a level a from 1.5 to 7:
 *
 *     L(z) = 0.2 + 0.8 [z >= a] / P(z >= a)
 *
 * which sees a slowness that is small and lasts in fewer steps. Where peers pause (a share `pauses`
 * of their steps), f and P have as much of pauses in them: a pause then counts log(1 / pauses) at
 * most.
 *
 * L grows with z, so its mean is at most 1 as well where healthy ranks are above z less often than
 * f says. The sum W = max(0, W + min(log L, cap)) of each bet is Page's CUSUM, and the evidence the
 * logarithm of the mean of exp(W), each with its share of the stake. Its alarm at h comes, under
 * health, after exp(h) steps on average or later, whatever else the distribution is (G. Lorden,
 * "Procedures for reacting to a change in distribution", Ann. Math. Stat. 42, 1971, theorem 2; J.
 * Shin, A. Ramdas, A. Rinaldo, "E-detectors", New Engl. J. Stat. Data Sci. 2, 2024, for bets in
 * place of true densities).
 *
 * The budget is one false alarm in `node_days` days of one node, over all ranks, tests and series:
 *
 *     h = log(node_days * ranks_per_node * tests * 86400 s / step_s)
 *
 * for 10,000 node-days, 8 ranks a node, 2 tests and steps of 1 s: h = 23.4; of 46 s: 19.5. No step
 * counts more than a third of that (the cap makes the mean of L smaller still): fewer than three
 * steps never make an alarm, however long one pause was.
 */
#ifndef SL_MONITOR_DIAGNOSIS_CHANGE_H
#define SL_MONITOR_DIAGNOSIS_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#define SL_CHANGE_LEVELS 5
#define SL_CHANGE_BETS (SL_CHANGE_LEVELS + 1) /* the first is on any slowness */

struct sl_change {
    double threshold;                /* h */
    double pauses, upper;            /* the caller's */
    double gains[SL_CHANGE_LEVELS];  /* log L of the bet on each level, where z reaches it */
    double sums[SL_CHANGE_BETS];     /* W of each bet */
    uint32_t begins[SL_CHANGE_BETS]; /* the step since which it is above 0 */
    double sum;            /* the evidence after the last step; far below h less than it */
    double most;           /* that it was */
    uint32_t steps;        /* seen */
    uint32_t onset, alarm; /* steps, once is_alarm */
    bool is_alarm;
};

double sl_change_threshold(double node_days, double ranks_per_node, double tests, double step_s);
/* pauses: the share of long ones among healthy steps, 0 to 1. upper: the largest z that slowness is
 * thought to give. */
void sl_change_begin(struct sl_change *change, double threshold, double pauses, double upper);
/* The next step. */
void sl_change_step(struct sl_change *change, double z);
/* log L(z) of a bet. */
double sl_change_gain(const struct sl_change *change, unsigned bet, double z);

#endif
