/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of hardware. */
#include "monitor/diagnosis/population.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 3   /* splits of splits: at most 8 populations */
#define EARLY_MIN 3   /* steps by which members are told apart at the beginning */
#define OUTLIER_MIN 3 /* members of a population, of which one may be faulty */
#define VOTES_MIN 3   /* ranks of a host that tell which kind it is */

struct member {
    uint32_t rank;
    double early, all; /* medians of its first quarter and of all steps: what is hardware was
                        * there from the first step on */
};

struct finder {
    const struct sl_peers_table *table;
    uint32_t *groups;
    uint32_t group_count;
    uint32_t least; /* members of a population */
};

static int by_early(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->early != y->early)
        return x->early < y->early ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Where the largest gap in the sorted list is that leaves `least` members on either side: the index
 * of the first behind it. 0: there are too few. */
static uint32_t widest_gap(const struct member *list, uint32_t count, uint32_t least, double *gap)
{
    uint32_t at = 0;

    *gap = 0;
    for (uint32_t i = least; i + least <= count; i++)
        if (list[i].early - list[i - 1].early > *gap) {
            *gap = list[i].early - list[i - 1].early;
            at = i;
        }
    return at;
}

/* How far members of one kind are apart. Of three or more the slowest may be a faulty one. */
static double width_of(const struct member *list, uint32_t count)
{
    return list[count - (count >= OUTLIER_MIN ? 2 : 1)].early - list[0].early;
}

/* Are they apart to the end? One may have become slow, or of many some. */
static bool is_lasting(const struct member *list, uint32_t at, uint32_t count)
{
    double middle = (list[at - 1].early + list[at].early) / 2;
    uint32_t slower = 0, faster = 0;

    for (uint32_t i = 0; i < count; i++) {
        slower += list[i].all > middle && i < at;
        faster += list[i].all <= middle && i >= at;
    }
    return slower + faster <= (count >= 2 * OUTLIER_MIN ? 1 + count / 20 : faster == 0 ? 1 : 0);
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

/* Where the list falls into two kinds: the index of the first of the slower one. 0: it does not. */
static uint32_t part(const struct finder *finder, const struct member *list, uint32_t count)
{
    double gap;
    uint32_t at = count < 2 * finder->least ? 0 : widest_gap(list, count, finder->least, &gap);

    if (at == 0 || gap < SL_POPULATION_APART || width_of(list, at) > gap / 2 ||
        width_of(list + at, count - at) > gap / 2 || !is_lasting(list, at, count) ||
        is_one_host(finder, list, at, count))
        return 0;
    return at;
}

/* A host's hardware is of one kind: are the others of the member's host of the slower one? */
static bool has_slower_host(const struct finder *finder, const struct member *list, uint32_t at,
                            uint32_t count, const struct member *one)
{
    const struct sl_job_rank *ranks = finder->table->ranks;
    uint32_t host = ranks[one->rank].host, faster = 0, slower = 0;

    for (uint32_t i = 0; host != 0 && i < count; i++) {
        faster += i < at && ranks[list[i].rank].host == host;
        slower += i >= at && ranks[list[i].rank].host == host;
    }
    return slower > faster;
}

/* The list without one member, which lies between two kinds: it becomes the first of the slower
 * kind where its host is of that, else the last of the faster one, and is slow then. 0: it does not
 * fall into two even so. */
static uint32_t part_without(const struct finder *finder, struct member *list, uint32_t count,
                             uint32_t one)
{
    struct member between = list[one];
    bool is_slower;
    uint32_t at;

    memmove(list + one, list + one + 1, (count - one - 1) * sizeof(*list));
    at = part(finder, list, count - 1);
    if (at == 0) {
        memmove(list + one + 1, list + one, (count - one - 1) * sizeof(*list));
        list[one] = between;
        return 0;
    }
    is_slower = has_slower_host(finder, list, at, count - 1, &between);
    memmove(list + at + 1, list + at, (count - at - 1) * sizeof(*list));
    list[at] = between;
    return is_slower ? at : at + 1;
}

static void split(struct finder *finder, struct member *list, uint32_t count, unsigned depth)
{
    uint32_t at, group, widest;
    double gap;

    if (count < 2 * finder->least || depth == DEPTH_MAX)
        return;
    at = part(finder, list, count);
    widest = at == 0 ? widest_gap(list, count, finder->least, &gap) : 0;
    if (widest > 0 && count > 2 * finder->least && count > OUTLIER_MIN) {
        at = part_without(finder, list, count, widest);
        at = at == 0 ? part_without(finder, list, count, widest - 1) : at;
    }
    if (at == 0)
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
    qsort(list, count, sizeof(*list), by_early);
    finder.least = count / 10 > 2 ? count / 10 : 2;
    split(&finder, list, count, 0);
    free(list);
    free(scratch);
    return 0;
}

/* ---- hosts ---- */

struct vote {
    uint32_t host, rank;
    bool is_slow;
};

static int by_host(const void *a, const void *b)
{
    const struct vote *x = a, *y = b;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Members of a role with exactly two populations: which is the slower one, SL_JOB_NONE where there
 * are not two. */
static uint32_t slower_of(const struct sl_peers_table *table, const uint32_t *members,
                          uint32_t count, const uint32_t *groups, double *scratch)
{
    uint32_t first = groups[members[0]], second = SL_JOB_NONE;
    double middle[2] = {0, 0};

    for (uint32_t i = 1; i < count; i++) {
        if (groups[members[i]] == first || groups[members[i]] == second)
            continue;
        if (second != SL_JOB_NONE)
            return SL_JOB_NONE;
        second = groups[members[i]];
    }
    if (second == SL_JOB_NONE)
        return SL_JOB_NONE;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(scratch, table->values + (size_t)members[i] * table->step_count,
               table->step_count * sizeof(*scratch));
        middle[groups[members[i]] != first] += sl_median(scratch, table->step_count);
    }
    for (uint32_t i = 0, own = 0; i <= count; i++) {
        if (i < count) {
            own += groups[members[i]] == first;
            continue;
        }
        middle[0] /= own;
        middle[1] /= count - own;
    }
    return middle[0] > middle[1] ? first : second;
}

/* Two thirds of a host's ranks, and more than the others, are of one kind: all are. */
static void agree(const struct vote *votes, uint32_t count, const uint32_t *other, uint32_t *groups)
{
    uint32_t slow = 0;

    for (uint32_t i = 0; i < count; i++)
        slow += votes[i].is_slow;
    if (count < VOTES_MIN || (3 * slow < 2 * count && 3 * slow > count))
        return;
    for (uint32_t i = 0; i < count; i++)
        if (votes[i].is_slow != (2 * slow > count))
            groups[votes[i].rank] = other[votes[i].rank];
}

int sl_population_agree(const struct sl_peers_table *table, const uint32_t *members, uint32_t count,
                        uint32_t *groups)
{
    struct vote *votes = reallocarray(NULL, count + 1, sizeof(*votes));
    uint32_t *other = calloc(table->rank_count + 1, sizeof(*other)), known = 0;
    double *scratch = reallocarray(NULL, table->step_count + 1, sizeof(*scratch));

    for (uint32_t first = 0, end;
         first < count && votes != NULL && other != NULL && scratch != NULL; first = end) {
        uint32_t slower, faster = SL_JOB_NONE;

        for (end = first + 1;
             end < count && table->roles[members[end]] == table->roles[members[first]];)
            end++;
        slower = slower_of(table, members + first, end - first, groups, scratch);
        for (uint32_t i = first; i < end && slower != SL_JOB_NONE; i++)
            if (groups[members[i]] != slower)
                faster = groups[members[i]];
        for (uint32_t i = first; i < end && slower != SL_JOB_NONE; i++) {
            uint32_t rank = members[i];

            if (table->ranks[rank].host == 0)
                continue;
            other[rank] = groups[rank] == slower ? faster : slower;
            votes[known++] = (struct vote){
                .host = table->ranks[rank].host, .rank = rank, .is_slow = groups[rank] == slower};
        }
    }
    if (votes != NULL && other != NULL && scratch != NULL) {
        qsort(votes, known, sizeof(*votes), by_host);
        for (uint32_t first = 0, end; first < known; first = end) {
            for (end = first + 1; end < known && votes[end].host == votes[first].host;)
                end++;
            agree(votes + first, end - first, other, groups);
        }
    }
    count = votes != NULL && other != NULL && scratch != NULL;
    free(votes);
    free(other);
    free(scratch);
    return count ? 0 : -ENOMEM;
}
