/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequential test with a stated number of false alarms: has a rank begun to take longer?
 *
 * Each step gives z, how far the rank is above what is healthy, in units of the healthy spread. A
 * bet that z reaches a pays
 *
 *     L(z) = 0.2 + 0.8 [z >= a] / P(a)     P: how often health reaches a, by Student's distribution
 *                                             with 3 degrees of freedom (heavy tails: a pause of 10
 *                                             spreads comes once in 1,000 steps)
 *
 * whose mean is at most 1 as long as healthy ranks reach a no more often. Where peers pause (a
 * share `pauses` of their steps), P has that share in it: a pause then counts log(1 / pauses) at
 * most. The sum W = max(0, W + min(log L, cap)) is Page's CUSUM. Its alarm at W >= h comes, under
 * health, after exp(h) steps on average or later, whatever else the distribution is (G. Lorden,
 * "Procedures for reacting to a change in distribution", Ann. Math. Stat. 42, 1971, theorem 2; J.
 * Shin, A. Ramdas, A. Rinaldo, "E-detectors", New Engl. J. Stat. Data Sci. 2, 2024, for bets in
 * place of true densities).
 *
 * How slow the rank is, nobody knows: eight such bets run, with a from 1.5 to 24, each with an
 * eighth of the stake: the evidence is the best W less log 8. One bet that spread its stake over
 * all z in each step anew paid for not knowing in every step, and saw a slowness of 4 spreads after
 * 16 steps, where these need 10.
 *
 * The budget is one false alarm in `node_days` days of one node, over all ranks, tests and series:
 *
 *     h = log(node_days * ranks_per_node * tests * 86400 s / step_s)
 *
 * for 10,000 node-days, 8 ranks a node, 2 tests and steps of 1 s: h = 23.4; of 46 s: 19.5. No step
 * counts more than a third of that (the cap makes the mean of L smaller still): fewer than three steps
 * never make an alarm, however long one pause was.
 */
#ifndef SL_MONITOR_DIAGNOSIS_CHANGE_H
#define SL_MONITOR_DIAGNOSIS_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#define SL_CHANGE_BETS 8

struct sl_change {
    double threshold;                /* h */
    double gains[SL_CHANGE_BETS];    /* log L of each bet, where z reaches it */
    double sums[SL_CHANGE_BETS];     /* W of each bet */
    uint32_t begins[SL_CHANGE_BETS]; /* the step since which it is above 0 */
    double sum;                      /* the evidence after the last step */
    double most;                     /* that it was */
    uint32_t steps;                  /* seen */
    uint32_t onset, alarm;           /* steps, once is_alarm */
    bool is_alarm;
};

double sl_change_threshold(double node_days, double ranks_per_node, double tests, double step_s);
/* pauses: the share of long ones among healthy steps, 0 to 1. */
void sl_change_begin(struct sl_change *change, double threshold, double pauses);
/* The next step. */
void sl_change_step(struct sl_change *change, double z);
/* From which z on the bet wins. */
double sl_change_least(unsigned bet);

#endif
