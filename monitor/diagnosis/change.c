/* SPDX-License-Identifier: Apache-2.0 */
/* A sequential test by bets. */
#include "monitor/diagnosis/change.h"

#include <math.h>

#define KEPT 0.2        /* of the stake, whatever comes */
#define LOWER 2.0       /* z below it is no sign of slowness */
#define LEAST_STEPS 2.9 /* an alarm needs more */

double sl_change_threshold(double node_days, double ranks_per_node, double tests, double step_s)
{
    return log(node_days * ranks_per_node * tests * 86400 / step_s);
}

void sl_change_begin(struct sl_change *change, double threshold)
{
    *change = (struct sl_change){.threshold = threshold};
}

/* log L(z). */
static double bet(double z, double upper, double pauses)
{
    double healthy, slow, square;

    if (z <= LOWER)
        return log(KEPT);
    if (upper < LOWER * 4)
        upper = LOWER * 4;
    if (z > upper)
        z = upper;
    square = 1 + z * z / 3;
    healthy = 2 / (M_PI * sqrt(3) * square * square);
    /* Above upper the bet stays as it is there: under f that has a third of what is bet at
     * upper. */
    slow = 1 / (z * (log(upper / LOWER) + 1.0 / 3));
    healthy = (1 - pauses) * healthy + pauses * slow;
    return log(KEPT + (1 - KEPT) * slow / healthy);
}

void sl_change_step(struct sl_change *change, double z, double upper)
{
    double cap = change->threshold / LEAST_STEPS, gain = bet(z, upper, change->pauses);

    if (change->sum <= 0)
        change->begin = change->steps;
    change->sum += gain < cap ? gain : cap;
    if (change->sum < 0)
        change->sum = 0;
    if (change->sum > change->most)
        change->most = change->sum;
    if (change->sum >= change->threshold && !change->is_alarm) {
        change->is_alarm = true;
        change->onset = change->begin;
        change->alarm = change->steps;
    }
    change->steps++;
}
