/* SPDX-License-Identifier: Apache-2.0 */
/* A sequential test by bets. */
#include "monitor/diagnosis/change.h"

#include <math.h>

#define KEPT 0.2        /* of the stake, whatever comes */
#define LEAST_STEPS 2.9 /* an alarm needs more */

/* What is bet on: that z reaches `least`; and how often health does (Student, 3 degrees of
 * freedom). */
static const struct {
    double least, tail;
} bets[SL_CHANGE_BETS] = {{1.5, 0.1153}, {2, 0.06967},      {3, 0.02884},    {4.5, 0.01025},
                          {7, 0.002993}, {10.5, 0.0009224}, {16, 0.0002655}, {24, 7.928e-05}};

double sl_change_threshold(double node_days, double ranks_per_node, double tests, double step_s)
{
    return log(node_days * ranks_per_node * tests * 86400 / step_s);
}

void sl_change_begin(struct sl_change *change, double threshold, double pauses)
{
    double all = threshold + log(SL_CHANGE_BETS);

    *change = (struct sl_change){.threshold = threshold};
    for (unsigned k = 0; k < SL_CHANGE_BETS; k++) {
        double tail = (1 - pauses) * bets[k].tail + pauses;

        change->gains[k] = fmin(log(KEPT + (1 - KEPT) / tail), all / LEAST_STEPS);
    }
}

double sl_change_least(unsigned bet)
{
    return bets[bet].least;
}

void sl_change_step(struct sl_change *change, double z)
{
    double best = 0;
    unsigned which = 0;

    for (unsigned k = 0; k < SL_CHANGE_BETS; k++) {
        if (change->sums[k] <= 0)
            change->begins[k] = change->steps;
        change->sums[k] += z >= bets[k].least ? change->gains[k] : log(KEPT);
        if (!(change->sums[k] > 0))
            change->sums[k] = 0;
        if (change->sums[k] > best) {
            best = change->sums[k];
            which = k;
        }
    }
    change->sum = fmax(0, best - log(SL_CHANGE_BETS));
    change->most = fmax(change->most, change->sum);
    if (change->sum >= change->threshold && !change->is_alarm) {
        change->is_alarm = true;
        change->onset = change->begins[which];
        change->alarm = change->steps;
    }
    change->steps++;
}
