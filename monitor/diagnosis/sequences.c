/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages of one pipeline have in common: longer sequences. */
#include "monitor/diagnosis/sequences.h"
#include "core/err.h"
#include "monitor/diagnosis/population.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AROUND 4      /* steps before and behind one, that it is compared with */
#define NORMAL 1.4826 /* from a median of absolute values to a standard deviation */
#define ERRORS 4.0    /* of a median of steps: nearer than that is together */
#define APART_MOST 1  /* ranks of a job that are not with their replica: a slow one */

struct place {
    uint32_t replica, rank;
    uint64_t role;
    double level, error; /* beyond what its replica has in common */
};

static int by_replica(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->replica != y->replica)
        return x->replica < y->replica ? -1 : 1;
    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_role(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static uint32_t roles_of(const struct place *list, uint32_t count)
{
    uint32_t roles = 1;

    for (uint32_t i = 1; i < count; i++)
        roles += list[i].role != list[i - 1].role;
    return roles;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* In one step. With two stages a median would halve a fault in one: the smaller is common to
 * both. */
static double common_of(double *list, uint32_t count, uint32_t roles)
{
    uint32_t known = 0;

    for (uint32_t i = 0; i < count; i++)
        if (!isnan(list[i]))
            list[known++] = list[i];
    if (known < 2)
        return 0;
    qsort(list, known, sizeof(*list), by_value);
    return roles > 2 ? list[(known - 1) / 2] : fmax(0, list[(known - 1) / 4]);
}

/* ---- two stages ---- */

/* Sums of a regression through 0. */
struct slope {
    double both, square;
};

static double *row_of(const struct sl_peers_table *table, uint32_t rank)
{
    return table->values + (size_t)rank * table->step_count;
}

/* How a rank's step deviates from the steps around it, at most three spreads: a fault that lasts is
 * no deviation. scratch: three times the steps; the deviations are in its first part. NAN as they
 * are. */
static void deviations(const struct sl_peers_table *table, uint32_t rank, double *scratch)
{
    const double *row = row_of(table, rank);
    uint32_t steps = table->step_count;
    double *room = scratch + 2 * (size_t)steps, most;

    for (uint32_t step = 0; step < steps; step++) {
        uint32_t from = step > AROUND ? step - AROUND : 0;
        uint32_t to = step + AROUND < steps ? step + AROUND + 1 : steps;

        memcpy(room, row + from, (to - from) * sizeof(*room));
        scratch[step] = row[step] - sl_median(room, to - from);
    }
    for (uint32_t step = 0; step < steps; step++)
        room[step] = fabs(scratch[step]);
    most = 3 * NORMAL * sl_median(room, steps);
    for (uint32_t step = 0; step < steps; step++)
        if (!isnan(scratch[step]))
            scratch[step] = fmax(-most, fmin(most, scratch[step]));
}

static void add_slope(const struct sl_peers_table *table, const struct place *pair, double *scratch,
                      struct slope *slope)
{
    double *other = scratch + table->step_count;

    deviations(table, pair[1].rank, scratch);
    memcpy(other, scratch, table->step_count * sizeof(*other));
    deviations(table, pair[0].rank, scratch);
    for (uint32_t step = 0; step < table->step_count; step++) {
        if (isnan(scratch[step]) || isnan(other[step]))
            continue;
        slope->both += 2 * scratch[step] * other[step];
        slope->square += scratch[step] * scratch[step] + other[step] * other[step];
    }
}

/* Of each stage what the other one foretells: where sequences differ from step to step both deviate
 * alike, and a fault in one is not halved. */
static void take_foretold_off(struct sl_peers_table *table, const struct place *pair, double slope,
                              double *scratch)
{
    double *other = scratch + table->step_count;

    deviations(table, pair[1].rank, scratch);
    memcpy(other, scratch, table->step_count * sizeof(*other));
    deviations(table, pair[0].rank, scratch);
    for (uint32_t step = 0; step < table->step_count; step++) {
        if (isnan(scratch[step]) || isnan(other[step]))
            continue;
        row_of(table, pair[0].rank)[step] -= slope * other[step];
        row_of(table, pair[1].rank)[step] -= slope * scratch[step];
    }
}

/* ---- more than two ---- */

/* Of all ranks of a replica their median deviation. room: a row a rank, and more for one. */
static void take_median_off(struct sl_peers_table *table, const struct place *list, uint32_t count,
                            double *scratch)
{
    uint32_t steps = table->step_count;
    double *rows = scratch + 3 * (size_t)steps;

    for (uint32_t i = 0; i < count; i++) {
        deviations(table, list[i].rank, scratch);
        memcpy(rows + (size_t)i * steps, scratch, steps * sizeof(*scratch));
    }
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t known = 0;
        double common;

        for (uint32_t i = 0; i < count; i++)
            if (!isnan(rows[(size_t)i * steps + step]))
                scratch[known++] = rows[(size_t)i * steps + step];
        common = known > 2 ? sl_median(scratch, known) : 0;
        for (uint32_t i = 0; i < count; i++)
            row_of(table, list[i].rank)[step] -= common;
    }
}

/* ---- all of a replica ---- */

static void take_off(struct sl_peers_table *table, const struct place *list, uint32_t count,
                     double *scratch)
{
    uint32_t steps = table->step_count, roles = roles_of(list, count);

    if (roles < 2)
        return; /* one stage: longer sequences and slower hardware look alike */
    for (uint32_t step = 0; step < steps; step++) {
        double common;

        for (uint32_t i = 0; i < count; i++)
            scratch[i] = table->values[(size_t)list[i].rank * steps + step];
        common = common_of(scratch, count, roles);
        for (uint32_t i = 0; i < count; i++)
            table->values[(size_t)list[i].rank * steps + step] -= common;
    }
}

/* How far each rank of a replica is from it over all steps, and how well that is known. */
static void take_levels(const struct sl_peers_table *table, struct place *list, uint32_t count,
                        double *scratch)
{
    uint32_t steps = table->step_count;
    double *beyond = scratch + steps, *room = beyond + steps;

    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i < count; i++)
            beyond[i] = row_of(table, list[i].rank)[step];
        scratch[step] = common_of(beyond, count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t known = 0;

        for (uint32_t step = 0; step < steps; step++) {
            beyond[known] = row_of(table, list[i].rank)[step] - scratch[step];
            known += isnan(beyond[known]) ? 0 : 1;
        }
        memcpy(room, beyond, known * sizeof(*room));
        list[i].level = sl_median(room, known);
        for (uint32_t k = 0; k < known; k++)
            room[k] = fabs(beyond[k] - list[i].level);
        list[i].error = NORMAL * sl_median(room, known) / sqrt(known > 0 ? known : 1);
    }
}

/* Are all ranks with their replicas, but for a slow one? Nearer than kinds of hardware are, or than
 * their steps' noise explains. The median of a role in a step, which was taken off, moves with one
 * rank of it: what all of a role are apart is no kind. */
static bool are_together(struct place *list, uint32_t count, double *scratch)
{
    uint32_t apart = 0;

    qsort(list, count, sizeof(*list), by_role);
    for (uint32_t first = 0, end; first < count; first = end) {
        double middle;

        for (end = first; end < count && list[end].role == list[first].role; end++)
            scratch[end - first] = list[end].level;
        middle = sl_median(scratch, end - first);
        for (uint32_t i = first; i < end; i++)
            apart +=
                fabs(list[i].level - middle) > fmax(SL_POPULATION_APART, ERRORS * list[i].error);
    }
    qsort(list, count, sizeof(*list), by_replica);
    return apart <= APART_MOST;
}

static uint32_t end_of_replica(const struct place *list, uint32_t first, uint32_t count)
{
    uint32_t end = first;

    while (end < count && list[end].replica == list[first].replica)
        end++;
    return end;
}

static void take_deviations_off(struct sl_peers_table *table, struct place *list, uint32_t count,
                                double *scratch)
{
    struct slope slope = {0};
    bool is_together;

    for (uint32_t first = 0, end; first < count; first = end) {
        end = end_of_replica(list, first, count);
        if (end - first == 2 && list[first].role != list[first + 1].role)
            add_slope(table, list + first, scratch, &slope);
        if (roles_of(list + first, end - first) > 2)
            take_levels(table, list + first, end - first, scratch);
    }
    is_together = are_together(list, count, scratch);
    for (uint32_t first = 0, end; first < count; first = end) {
        end = end_of_replica(list, first, count);
        if (roles_of(list + first, end - first) > 2 && is_together)
            take_off(table, list + first, end - first, scratch);
        else if (roles_of(list + first, end - first) > 2)
            take_median_off(table, list + first, end - first, scratch);
        else if (end - first == 2 && list[first].role != list[first + 1].role && slope.both > 0)
            take_foretold_off(table, list + first, slope.both / slope.square, scratch);
    }
}

static void take_all_off(struct sl_peers_table *table, struct place *list, uint32_t count,
                         double *scratch)
{
    for (uint32_t first = 0, end; first < count; first = end) {
        end = end_of_replica(list, first, count);
        take_off(table, list + first, end - first, scratch);
    }
}

typedef void sequences_work(struct sl_peers_table *table, struct place *list, uint32_t count,
                            double *scratch);

/* On members of known replicas, replica after replica. */
static int by_replicas(struct sl_peers_table *table, const uint32_t *members, uint32_t count,
                       sequences_work *work)
{
    struct place *list;
    double *scratch;
    uint32_t known = 0;

    if (table->replicas == NULL)
        return 0;
    list = reallocarray(NULL, count + 1, sizeof(*list));
    scratch =
        reallocarray(NULL, (size_t)count + 4, ((size_t)table->step_count + 1) * sizeof(*scratch));
    if (list == NULL || scratch == NULL) {
        free(list);
        free(scratch);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        if (table->replicas[members[i]] != SL_JOB_NONE)
            list[known++] = (struct place){.replica = table->replicas[members[i]],
                                           .rank = members[i],
                                           .role = table->roles[members[i]]};
    qsort(list, known, sizeof(*list), by_replica);
    work(table, list, known, scratch);
    free(list);
    free(scratch);
    return 0;
}

int sl_sequences_take_deviations_off(struct sl_peers_table *table, const uint32_t *members,
                                     uint32_t count)
{
    return by_replicas(table, members, count, take_deviations_off);
}

int sl_sequences_take_off(struct sl_peers_table *table, const uint32_t *members, uint32_t count)
{
    return by_replicas(table, members, count, take_all_off);
}
