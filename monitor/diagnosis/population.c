/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of hardware, and longer sequences. */
#include "monitor/diagnosis/population.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define APART_MIN 0.05 /* logarithm: populations nearer than that are one */
#define DEPTH_MAX 3    /* splits of splits: at most 8 populations */
#define EARLY_MIN 3    /* steps by which members are told apart at the beginning */

struct member {
    uint32_t rank;
    double early, all; /* medians of its first quarter and of all steps */
};

struct finder {
    const struct sl_peers_table *table;
    uint32_t *groups;
    uint32_t group_count;
    uint32_t least; /* members of a population */
};

static int by_all(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->all != y->all)
        return x->all < y->all ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Where the largest gap in the sorted list is: the index of the first behind it. */
static uint32_t widest_gap(const struct member *list, uint32_t count, double *gap)
{
    uint32_t at = 1;

    *gap = 0;
    for (uint32_t i = 1; i < count; i++)
        if (list[i].all - list[i - 1].all > *gap) {
            *gap = list[i].all - list[i - 1].all;
            at = i;
        }
    return at;
}

/* Were they apart at the beginning as well? */
static bool is_lasting(const struct member *list, uint32_t at, uint32_t count)
{
    double middle = (list[at - 1].all + list[at].all) / 2;

    for (uint32_t i = 0; i < count; i++)
        if ((list[i].early > middle) != (i >= at))
            return false;
    return true;
}

/* All slower ones are of one host that is known, and all others are of others: the host it is. */
static bool is_one_host(const struct finder *finder, const struct member *list, uint32_t at,
                        uint32_t count)
{
    const struct sl_job_rank *ranks = finder->table->ranks;
    uint32_t host = ranks[list[at].rank].host, other = 0;

    if (host == 0)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t its = ranks[list[i].rank].host;

        if ((its == host) != (i >= at))
            return false;
        if (i < at && i > 0 && its != ranks[list[0].rank].host)
            other++;
    }
    return other > 0; /* two hosts, one faster than the other, are two kinds of hardware as well */
}

static void split(struct finder *finder, const struct member *list, uint32_t count, unsigned depth)
{
    double gap, low, high;
    uint32_t at, group;

    if (count < 2 || depth == DEPTH_MAX)
        return;
    at = widest_gap(list, count, &gap);
    low = list[at - 1].all - list[0].all;
    high = list[count - 1].all - list[at].all;
    if (gap < APART_MIN || at < finder->least || count - at < finder->least ||
        fmax(low, high) > gap / 2 || !is_lasting(list, at, count) ||
        is_one_host(finder, list, at, count))
        return;
    group = ++finder->group_count;
    for (uint32_t i = at; i < count; i++)
        finder->groups[list[i].rank] = group;
    split(finder, list, at, depth + 1);
    split(finder, list + at, count - at, depth + 1);
}

int sl_population_find(const struct sl_peers_table *table, const uint32_t *members, uint32_t count,
                       uint32_t *groups)
{
    struct finder finder = {.table = table, .groups = groups};
    uint32_t steps = table->step_count, early = steps / 4 > EARLY_MIN ? steps / 4 : EARLY_MIN;
    struct member *list = reallocarray(NULL, count + 1, sizeof(*list));
    double *scratch = reallocarray(NULL, steps + 1, sizeof(*scratch));

    if (list == NULL || scratch == NULL) {
        free(list);
        free(scratch);
        return -ENOMEM;
    }
    early = early < steps ? early : steps;
    for (uint32_t i = 0; i < count; i++) {
        const double *row = table->values + (size_t)members[i] * steps;

        list[i].rank = members[i];
        memcpy(scratch, row, early * sizeof(*scratch));
        list[i].early = sl_median(scratch, early);
        memcpy(scratch, row, steps * sizeof(*scratch));
        list[i].all = sl_median(scratch, steps);
        groups[members[i]] = 0;
    }
    qsort(list, count, sizeof(*list), by_all);
    finder.least = count / 10 > 2 ? count / 10 : 2;
    split(&finder, list, count, 0);
    free(list);
    free(scratch);
    return 0;
}

/* ---- longer sequences ---- */

struct place {
    uint32_t replica, rank;
    uint64_t role;
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

int sl_population_take_replicas_off(struct sl_peers_table *table, const uint32_t *members,
                                    uint32_t count)
{
    struct place *list;
    double *scratch;
    uint32_t known = 0;

    if (table->replicas == NULL)
        return 0;
    list = reallocarray(NULL, count + 1, sizeof(*list));
    scratch = reallocarray(NULL, count + 1, sizeof(*scratch));
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
    for (uint32_t first = 0, end; first < known; first = end) {
        for (end = first; end < known && list[end].replica == list[first].replica;)
            end++;
        take_off(table, list + first, end - first, scratch);
    }
    free(list);
    free(scratch);
    return 0;
}
