/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks have in common, taken off before anybody is compared. */
#include "monitor/diagnosis/peers_inside.h"
#include "monitor/diagnosis/population.h"
#include "monitor/diagnosis/sequences.h"

#include <errno.h>
#include <math.h>

/* The median over members of one population in each step; a step with fewer than three is not
 * used. */
static void take_step_off(const struct sl_peers *peers, const uint32_t *members, uint32_t count)
{
    for (uint32_t i = 0; i < peers->table->step_count; i++) {
        uint32_t known = 0;
        double middle;

        for (uint32_t k = 0; k < count; k++) {
            peers->scratch[k] = sl_peers_row(peers, members[k])[i];
            known += isnan(peers->scratch[k]) ? 0 : 1;
        }
        middle = known >= SL_PEERS_MIN ? sl_median(peers->scratch, count) : NAN;
        for (uint32_t k = 0; k < count; k++)
            sl_peers_row(peers, members[k])[i] -= middle;
    }
}

/* Members of one population lie together after this: groups is by rank. */
static void take_populations_off(struct sl_peers *peers, uint32_t *members, uint32_t count)
{
    uint32_t first = 0;

    for (uint32_t i = 1; i <= count; i++)
        if (i == count || peers->groups[members[i]] != peers->groups[members[first]]) {
            double off = 0;

            for (uint32_t k = first; k < i; k++)
                peers->scratch[peers->table->step_count + k - first] =
                    sl_peers_median(peers, members[k], 0, peers->table->step_count);
            off = sl_median(peers->scratch + peers->table->step_count, i - first);
            for (uint32_t k = first; k < i; k++)
                for (uint32_t step = 0; step < peers->table->step_count; step++)
                    sl_peers_row(peers, members[k])[step] -= off;
            first = i;
        }
}

/* The median of its first half. */
static double first_half(const struct sl_peers *peers, uint32_t rank)
{
    uint32_t steps = peers->table->step_count, half = steps / 2;

    return sl_peers_median(peers, rank, 0, half > 0 ? half : steps);
}

/* Where there are too few peers: what all ranks of the job have in common, each measured by its own
 * first half. Before anything else was taken off. */
static void take_common_off(const struct sl_peers *peers, const bool *is_small)
{
    uint32_t steps = peers->table->step_count;
    double *list = peers->scratch + steps;

    for (uint32_t k = 0; k < peers->count; k++)
        peers->middles[peers->order[k]] = first_half(peers, peers->order[k]);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t known = 0;
        double common;

        for (uint32_t k = 0; k < peers->count; k++) {
            double value =
                sl_peers_row(peers, peers->order[k])[i] - peers->middles[peers->order[k]];

            if (!isnan(value))
                list[known++] = value;
        }
        common = known >= SL_PEERS_MIN ? sl_median(list, known) : 0;
        for (uint32_t k = 0; k < peers->count; k++)
            if (is_small[peers->order[k]])
                sl_peers_row(peers, peers->order[k])[i] -= common + peers->middles[peers->order[k]];
    }
}

/* Which ranks have too few peers. */
static void find_small(const struct sl_peers *peers, bool *is_small)
{
    for (uint32_t first = 0, end; first < peers->count; first = end) {
        end = sl_peers_end(peers, first, false);
        for (uint32_t k = first; k < end; k++)
            is_small[peers->order[k]] = end - first < SL_PEERS_MIN;
    }
}

int sl_peers_take_off(struct sl_peers *peers, bool *is_small)
{
    int err;

    sl_peers_sort(peers);
    find_small(peers, is_small);
    take_common_off(peers, is_small);
    for (uint32_t first = 0, end; first < peers->count; first = end) {
        uint32_t *members = peers->order + first;

        end = sl_peers_end(peers, first, false);
        if (!is_small[members[0]])
            take_step_off(peers, members, end - first);
    }
    err = sl_sequences_take_deviations_off(peers->table, peers->order, peers->count);
    for (uint32_t first = 0, end; err == 0 && first < peers->count; first = end) {
        end = sl_peers_end(peers, first, false);
        if (!is_small[peers->order[first]])
            err =
                sl_population_find(peers->table, peers->order + first, end - first, peers->groups);
    }
    if (err != 0)
        return err;
    if (sl_population_agree(peers->table, peers->order, peers->count, peers->groups) != 0)
        return -ENOMEM;
    sl_peers_sort(peers);
    for (uint32_t first = 0, end; first < peers->count; first = end) {
        uint32_t *members = peers->order + first;

        end = sl_peers_end(peers, first, false);
        if (is_small[members[0]])
            continue;
        /* The median of two populations jumps from one to the other when one member changes; that
         * of what their members have in common does not. */
        take_populations_off(peers, members, end - first);
        take_step_off(peers, members, end - first);
        take_populations_off(peers, members, end - first);
    }
    return sl_sequences_take_off(peers->table, peers->order, peers->count);
}
