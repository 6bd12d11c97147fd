/* SPDX-License-Identifier: Apache-2.0 */
/* How far healthy members of a role are from each other, and the steps of one member. */
#include "monitor/diagnosis/peers_inside.h"

#include <math.h>

#define SPREAD_MIN 0.01 /* no clock and no GPU is steadier: 1 % */
#define PAUSE 20.0      /* spreads: Student's density has one in 7,000 steps beyond */
#define UNSTEADY 5      /* a pause in so many steps is none any more */
#define NORMAL 1.4826   /* from a median of absolute values to a standard deviation */

/* A rank's steps around the median of their half of the job: so that one that became slow is not
 * taken for an unsteady one. To the end of scratch; NAN as they are. */
static double *around(const struct sl_peers *peers, uint32_t rank)
{
    uint32_t steps = peers->table->step_count, half = steps >= SL_PEERS_STEPS ? steps / 2 : steps;
    double early = sl_peers_median(peers, rank, 0, half);
    double late = half < steps ? sl_peers_median(peers, rank, half, steps) : early;
    double *out = peers->scratch + steps + peers->table->rank_count;

    for (uint32_t i = 0; i < steps; i++)
        out[i] = sl_peers_row(peers, rank)[i] - (i < half ? early : late);
    return out;
}

/* What a member's steps inherit: their correlation with the ones before, in which no step counts
 * more than three spreads. */
static double correlation_of(const struct sl_peers *peers, uint32_t rank)
{
    const double *list = around(peers, rank);
    double both = 0, square = 0, most;

    for (uint32_t i = 0; i < peers->table->step_count; i++)
        peers->scratch[i] = fabs(list[i]);
    most = 3 * NORMAL * sl_median(peers->scratch, peers->table->step_count);
    for (uint32_t i = 0; i + 1 < peers->table->step_count; i++) {
        double one = fmax(-most, fmin(most, list[i]));
        double next = fmax(-most, fmin(most, list[i + 1]));

        if (isnan(list[i]) || isnan(list[i + 1]))
            continue;
        both += one * next;
        square += one * one;
    }
    return square > 0 ? both / square : 0;
}

/* Of the role: the median over members. */
static double memory_of(const struct sl_peers *peers, const struct sl_peers_role *role)
{
    double *list = peers->scratch + peers->table->step_count;

    if (peers->table->step_count < SL_PEERS_STEPS)
        return 0;
    for (uint32_t k = 0; k < role->count; k++)
        list[k] = correlation_of(peers, role->members[k]);
    return fmin(0.95, fmax(0, sl_median(list, role->count)));
}

double sl_peers_spread(const struct sl_peers *peers, uint32_t rank, double memory)
{
    const double *list = around(peers, rank);
    size_t count = 0;

    for (uint32_t i = 1; i < peers->table->step_count; i++)
        if (!isnan(list[i]) && !isnan(list[i - 1]))
            peers->scratch[count++] = fabs(list[i] - memory * list[i - 1]);
    return fmax(SPREAD_MIN, NORMAL * sl_median(peers->scratch, count));
}

/* Steps of a member that are far above those around them; how many it has of all in *steps. One
 * that pauses in many of them is none to learn from. */
static uint32_t pauses_of(const struct sl_peers *peers, const struct sl_peers_role *role,
                          uint32_t rank, uint32_t *steps)
{
    const double *list = around(peers, rank);
    uint32_t pauses = 0;

    *steps = 0;
    for (uint32_t i = 1; i < peers->table->step_count; i++) {
        double news = list[i] - role->memory * list[i - 1];

        *steps += isnan(news) ? 0 : 1;
        pauses += news > PAUSE * role->within;
    }
    if (pauses <= *steps / UNSTEADY)
        return pauses;
    *steps = 0;
    return 0;
}

double sl_peers_pauses(const struct sl_peers *peers, const struct sl_peers_role *role,
                       uint32_t rank)
{
    uint32_t steps, own = pauses_of(peers, role, rank, &steps);

    return role->steps > steps ? (double)(role->pauses - own) / (double)(role->steps - steps) : 0;
}

/* Of three in four members 19 steps of 20 are within what is taken for no noise at all: what one
 * inherits from the one before is no matter then. */
static bool is_steady(const struct sl_peers *peers, const struct sl_peers_role *role)
{
    uint32_t steps = peers->table->step_count, steady = 0;

    for (uint32_t k = 0; k < role->count; k++) {
        const double *list = around(peers, role->members[k]);
        uint32_t far = 0;

        for (uint32_t i = 0; i < steps; i++)
            far += fabs(list[i]) > 2 * SPREAD_MIN;
        steady += far <= steps / 20;
    }
    return 4 * steady >= 3 * role->count;
}

void sl_peers_measure(const struct sl_peers *peers, struct sl_peers_role *role)
{
    double *list = peers->scratch + peers->table->step_count;

    role->memory = is_steady(peers, role) ? 0 : memory_of(peers, role);
    for (uint32_t k = 0; k < role->count; k++) {
        uint32_t rank = role->members[k];

        peers->middles[rank] = sl_peers_median(peers, rank, 0, peers->table->step_count);
        list[k] = fabs(peers->middles[rank]);
    }
    role->between = NORMAL * sl_median(list, role->count);
    for (uint32_t k = 0; k < role->count; k++)
        list[k] = sl_peers_spread(peers, role->members[k], role->memory);
    role->within = fmax(SPREAD_MIN, sl_median(list, role->count));
    for (uint32_t k = 0; k < role->count; k++) {
        uint32_t steps;

        role->pauses += pauses_of(peers, role, role->members[k], &steps);
        role->steps += steps;
    }
}
