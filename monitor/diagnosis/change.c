/* SPDX-License-Identifier: Apache-2.0 */
/* A sequential test by bets. */
#include "monitor/diagnosis/change.h"

#include <math.h>

#define KEPT 0.2        /* of the stake, whatever comes */
#define LOWER 2.0       /* z below it is no sign of slowness */
#define LEAST_STEPS 2.9 /* an alarm needs more */
#define ALL (SL_CHANGE_LEVELS + 1)

/* Of the stake: what is bet on any slowness, and on each level. */
#define WIDE 0.75
#define LEVEL (0.25 / SL_CHANGE_LEVELS)

/* What is bet on: that z reaches `least`; and how often health does (Student, 3 degrees of
 * freedom). */
static const struct {
    double least, tail;
} levels[SL_CHANGE_LEVELS] = {
    {1.5, 0.1154}, {2, 0.06968}, {3, 0.02885}, {4.5, 0.01026}, {7, 0.002994}};

double sl_change_threshold(double node_days, double ranks_per_node, double tests, double step_s)
{
    return log(node_days * ranks_per_node * tests * 86400 / step_s);
}

void sl_change_begin(struct sl_change *change, double threshold, double pauses, double upper)
{
    *change = (struct sl_change){
        .threshold = threshold, .pauses = pauses, .upper = upper < LOWER * 4 ? LOWER * 4 : upper};
    for (unsigned k = 0; k < SL_CHANGE_LEVELS; k++) {
        double tail = (1 - pauses) * levels[k].tail + pauses;

        change->gains[k] =
            fmin(log(KEPT + (1 - KEPT) / tail), (threshold - log(LEVEL)) / LEAST_STEPS);
    }
}

/* log L(z) of the bet on any slowness. */
static double wide(const struct sl_change *change, double z)
{
    double healthy, slow, square;

    if (z <= LOWER)
        return log(KEPT);
    if (z > change->upper)
        z = change->upper;
    square = 1 + z * z / 3;
    healthy = 2 / (M_PI * sqrt(3) * square * square);
    /* Above upper the bet stays as it is there: under f that has a third of what is bet at
     * upper. */
    slow = 1 / (z * (log(change->upper / LOWER) + 1.0 / 3));
    healthy = (1 - change->pauses) * healthy + change->pauses * slow;
    return fmin(log(KEPT + (1 - KEPT) * slow / healthy),
                (change->threshold - log(WIDE)) / LEAST_STEPS);
}

double sl_change_gain(const struct sl_change *change, unsigned bet, double z)
{
    if (bet == 0)
        return wide(change, z);
    return z >= levels[bet - 1].least ? change->gains[bet - 1] : log(KEPT);
}

/* log of the mean of exp(W), each with its share of the stake. */
static double evidence_of(const struct sl_change *change, double best)
{
    double sum = 0;

    for (unsigned k = 0; k < ALL; k++)
        sum += (k == 0 ? WIDE : LEVEL) * exp(change->sums[k] - best);
    return best + log(sum);
}

void sl_change_step(struct sl_change *change, double z)
{
    double best = 0;
    unsigned which = 0;

    for (unsigned k = 0; k < ALL; k++) {
        double sum;

        if (change->sums[k] <= 0)
            change->begins[k] = change->steps;
        change->sums[k] += sl_change_gain(change, k, z);
        if (!(change->sums[k] > 0))
            change->sums[k] = 0;
        sum = change->sums[k] + (k == 0 ? log(WIDE) : log(LEVEL));
        if (sum > best) {
            best = sum;
            which = k;
        }
    }
    /* It is between `best` and log(6) more: what is far from an alarm needs no logarithm. */
    change->sum = best + log(ALL) >= change->threshold ? evidence_of(change, best) : best;
    change->most = fmax(change->most, change->sum);
    if (change->sum >= change->threshold && !change->is_alarm) {
        change->is_alarm = true;
        change->onset = change->begins[which];
        change->alarm = change->steps;
    }
    change->steps++;
}
