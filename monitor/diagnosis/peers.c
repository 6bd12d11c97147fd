/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks beside those that do the same. */
#include "monitor/diagnosis/peers.h"
#include "core/err.h"
#include "monitor/diagnosis/change.h"
#include "monitor/diagnosis/population.h"
#include "monitor/diagnosis/sequences.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_MIN 3
#define SPREAD_MIN 0.01 /* no clock and no GPU is steadier: 1 % */
#define SPREADS 4.0     /* between healthy members */
#define HISTORY_MIN 20  /* steps, to compare a rank with itself */
#define OWN_MARGIN 0.05 /* of its own history */
#define PAUSE 20.0      /* spreads: Student's density has one in 7,000 steps beyond */
#define UNSTEADY 5      /* a pause in so many steps is none any more */
#define SLOWEST 20.0    /* times: slower than that is a hang */
#define NORMAL 1.4826   /* from a median of absolute values to a standard deviation */

struct judge {
    struct sl_peers_table *table;
    double threshold, margin;
    struct sl_suspects *found;
    uint32_t *order;  /* ranks that have values, role after role */
    uint32_t *groups; /* by rank: its population */
    double *middles;  /* by rank: the median of its steps */
    double *scratch;  /* room for the steps of a rank, all ranks, and the steps once more */
    uint32_t count;
};

/* A role: members order[first] to order[first + count]. */
struct role {
    const uint32_t *members;
    uint32_t count;
    double between;         /* the spread of healthy members' medians */
    double memory;          /* what a step inherits from the one before, 0 to 0.95 */
    double within;          /* the spread of steps of one member, without that */
    uint64_t steps, pauses; /* of all members but unsteady ones, and how many of them are long */
};

/* ---- medians ---- */

static double *row_of(const struct judge *judge, uint32_t rank)
{
    return judge->table->values + (size_t)rank * judge->table->step_count;
}

/* Of a rank's steps from..to. */
static double median_of(const struct judge *judge, uint32_t rank, uint32_t from, uint32_t to)
{
    memcpy(judge->scratch, row_of(judge, rank) + from, (to - from) * sizeof(double));
    return sl_median(judge->scratch, to - from);
}

static uint32_t known_steps(const struct judge *judge, uint32_t rank)
{
    const double *row = row_of(judge, rank);
    uint32_t count = 0;

    for (uint32_t i = 0; i < judge->table->step_count; i++)
        count += isnan(row[i]) ? 0 : 1;
    return count;
}

/* ---- what is taken off ---- */

/* The median over members of one population in each step; a step with fewer than three is not
 * used. */
static void take_step_off(const struct judge *judge, const uint32_t *members, uint32_t count)
{
    for (uint32_t i = 0; i < judge->table->step_count; i++) {
        uint32_t known = 0;
        double middle;

        for (uint32_t k = 0; k < count; k++) {
            judge->scratch[k] = row_of(judge, members[k])[i];
            known += isnan(judge->scratch[k]) ? 0 : 1;
        }
        middle = known >= PEERS_MIN ? sl_median(judge->scratch, count) : NAN;
        for (uint32_t k = 0; k < count; k++)
            row_of(judge, members[k])[i] -= middle;
    }
}

/* Members of one population lie together after this: groups is by rank. */
static void take_populations_off(struct judge *judge, uint32_t *members, uint32_t count)
{
    uint32_t first = 0;

    for (uint32_t i = 1; i <= count; i++)
        if (i == count || judge->groups[members[i]] != judge->groups[members[first]]) {
            double off = 0;

            for (uint32_t k = first; k < i; k++)
                judge->scratch[judge->table->step_count + k - first] =
                    median_of(judge, members[k], 0, judge->table->step_count);
            off = sl_median(judge->scratch + judge->table->step_count, i - first);
            for (uint32_t k = first; k < i; k++)
                for (uint32_t step = 0; step < judge->table->step_count; step++)
                    row_of(judge, members[k])[step] -= off;
            first = i;
        }
}

/* The median of its first half. */
static double first_half(const struct judge *judge, uint32_t rank)
{
    uint32_t steps = judge->table->step_count, half = steps / 2;

    return median_of(judge, rank, 0, half > 0 ? half : steps);
}

/* Where there are too few peers: what all ranks of the job have in common, each measured by its own
 * first half. Before anything else was taken off. */
static void take_common_off(const struct judge *judge, const bool *is_small)
{
    uint32_t steps = judge->table->step_count;
    double *list = judge->scratch + steps;

    for (uint32_t k = 0; k < judge->count; k++)
        judge->middles[judge->order[k]] = first_half(judge, judge->order[k]);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t known = 0;
        double common;

        for (uint32_t k = 0; k < judge->count; k++) {
            double value = row_of(judge, judge->order[k])[i] - judge->middles[judge->order[k]];

            if (!isnan(value))
                list[known++] = value;
        }
        common = known >= PEERS_MIN ? sl_median(list, known) : 0;
        for (uint32_t k = 0; k < judge->count; k++)
            if (is_small[judge->order[k]])
                row_of(judge, judge->order[k])[i] -= common + judge->middles[judge->order[k]];
    }
}

/* ---- one role ---- */

/* A rank's steps around the median of their half of the job: so that one that became slow is not
 * taken for an unsteady one. To the end of scratch; NAN as they are. */
static double *around(const struct judge *judge, uint32_t rank)
{
    uint32_t steps = judge->table->step_count, half = steps >= HISTORY_MIN ? steps / 2 : steps;
    double early = median_of(judge, rank, 0, half);
    double late = half < steps ? median_of(judge, rank, half, steps) : early;
    double *out = judge->scratch + steps + judge->table->rank_count;

    for (uint32_t i = 0; i < steps; i++)
        out[i] = row_of(judge, rank)[i] - (i < half ? early : late);
    return out;
}

/* What a member's steps inherit: their correlation with the ones before, in which no step counts
 * more than three spreads. */
static double correlation_of(const struct judge *judge, uint32_t rank)
{
    const double *list = around(judge, rank);
    double both = 0, square = 0, most;

    for (uint32_t i = 0; i < judge->table->step_count; i++)
        judge->scratch[i] = fabs(list[i]);
    most = 3 * NORMAL * sl_median(judge->scratch, judge->table->step_count);
    for (uint32_t i = 0; i + 1 < judge->table->step_count; i++) {
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
static double memory_of(const struct judge *judge, const struct role *role)
{
    double *list = judge->scratch + judge->table->step_count;

    if (judge->table->step_count < HISTORY_MIN)
        return 0;
    for (uint32_t k = 0; k < role->count; k++)
        list[k] = correlation_of(judge, role->members[k]);
    return fmin(0.95, fmax(0, sl_median(list, role->count)));
}

/* The spread of what a member's step adds to what it inherits. */
static double spread_of(const struct judge *judge, uint32_t rank, double memory)
{
    const double *list = around(judge, rank);
    size_t count = 0;

    for (uint32_t i = 1; i < judge->table->step_count; i++)
        if (!isnan(list[i]) && !isnan(list[i - 1]))
            judge->scratch[count++] = fabs(list[i] - memory * list[i - 1]);
    return fmax(SPREAD_MIN, NORMAL * sl_median(judge->scratch, count));
}

/* Steps of a member that are far above those around them; how many it has of all in *steps. One
 * that pauses in many of them is none to learn from. */
static uint32_t pauses_of(const struct judge *judge, const struct role *role, uint32_t rank,
                          uint32_t *steps)
{
    const double *list = around(judge, rank);
    uint32_t pauses = 0;

    *steps = 0;
    for (uint32_t i = 1; i < judge->table->step_count; i++) {
        double news = list[i] - role->memory * list[i - 1];

        *steps += isnan(news) ? 0 : 1;
        pauses += news > PAUSE * role->within;
    }
    if (pauses <= *steps / UNSTEADY)
        return pauses;
    *steps = 0;
    return 0;
}

/* The share of long steps among those of the others. */
static double pauses_beside(const struct judge *judge, const struct role *role, uint32_t rank)
{
    uint32_t steps, own = pauses_of(judge, role, rank, &steps);

    return role->steps > steps ? (double)(role->pauses - own) / (double)(role->steps - steps) : 0;
}

/* Of three in four members 19 steps of 20 are within what is taken for no noise at all: what one
 * inherits from the one before is no matter then. */
static bool is_steady(const struct judge *judge, const struct role *role)
{
    uint32_t steps = judge->table->step_count, steady = 0;

    for (uint32_t k = 0; k < role->count; k++) {
        const double *list = around(judge, role->members[k]);
        uint32_t far = 0;

        for (uint32_t i = 0; i < steps; i++)
            far += fabs(list[i]) > 2 * SPREAD_MIN;
        steady += far <= steps / 20;
    }
    return 4 * steady >= 3 * role->count;
}

static void measure(const struct judge *judge, struct role *role)
{
    double *list = judge->scratch + judge->table->step_count;

    role->memory = is_steady(judge, role) ? 0 : memory_of(judge, role);
    for (uint32_t k = 0; k < role->count; k++) {
        uint32_t rank = role->members[k];

        judge->middles[rank] = median_of(judge, rank, 0, judge->table->step_count);
        list[k] = fabs(judge->middles[rank]);
    }
    role->between = NORMAL * sl_median(list, role->count);
    for (uint32_t k = 0; k < role->count; k++)
        list[k] = spread_of(judge, role->members[k], role->memory);
    role->within = fmax(SPREAD_MIN, sl_median(list, role->count));
    for (uint32_t k = 0; k < role->count; k++) {
        uint32_t steps;

        role->pauses += pauses_of(judge, role, role->members[k], &steps);
        role->steps += steps;
    }
}

/* Tests a rank's steps beyond `base`. */
static void test(const struct judge *judge, const struct role *role, uint32_t rank, double base,
                 struct sl_change *change)
{
    double spread = fmax(role->within, spread_of(judge, rank, role->memory));
    const double *row = row_of(judge, rank);
    double before = 0;

    sl_change_begin(change, judge->threshold, pauses_beside(judge, role, rank),
                    log(SLOWEST) / spread);
    for (uint32_t i = 0; i < judge->table->step_count; i++) {
        double beyond = row[i] - base;

        if (isnan(beyond)) {
            change->steps++;
            continue;
        }
        sl_change_step(change, (beyond - role->memory * fmax(before, 0)) / spread);
        before = beyond;
    }
}

static int add_suspect(struct judge *judge, const struct role *role, uint32_t rank,
                       const struct sl_change *change, double base)
{
    struct sl_suspects *found = judge->found;
    struct sl_suspect *list = reallocarray(found->list, found->count + 1, sizeof(*list)), *it;
    double most = 0;

    if (list == NULL)
        return sl_fail(-ENOMEM, "no memory for what is slow in a job");
    found->list = list;
    it = &list[found->count++];
    for (uint32_t k = 0; k < role->count; k++)
        if (role->members[k] != rank)
            most = fmax(most, judge->middles[role->members[k]]);
    *it = (struct sl_suspect){
        .rank = rank,
        .onset = change->onset,
        .alarm = change->alarm,
        .peer_count = role->count - 1,
        .ratio = exp(median_of(judge, rank, change->onset, change->alarm + 1) - base),
        .spread = exp(most) - 1,
        .weight = change->most,
        .is_own = role->count < PEERS_MIN};
    return 0;
}

/* Beside its peers; then beside its own first half, which a fault from the beginning is in. */
static int judge_rank(struct judge *judge, const struct role *role, uint32_t rank)
{
    struct sl_change peers = {0}, own = {0};
    uint32_t half = judge->table->step_count / 2;
    double middle = 0;

    if (role->count >= PEERS_MIN)
        test(judge, role, rank, fmax(log1p(judge->margin), SPREADS * role->between), &peers);
    if (known_steps(judge, rank) >= HISTORY_MIN) {
        middle = median_of(judge, rank, 0, half);
        /* Who was faster than its peers, and is as they are now, is not slow: shorter sequences in
         * the first half are not all taken off. */
        if (role->count >= PEERS_MIN)
            middle = fmax(middle, -SPREADS * role->between);
        test(judge, role, rank, middle + log1p(OWN_MARGIN), &own);
    }
    if (peers.is_alarm && (!own.is_alarm || peers.alarm <= own.alarm))
        return add_suspect(judge, role, rank, &peers, 0);
    return own.is_alarm ? add_suspect(judge, role, rank, &own, middle) : 0;
}

static int judge_role(struct judge *judge, struct role *role)
{
    int err = 0;

    measure(judge, role);
    for (uint32_t k = 0; err == 0 && k < role->count; k++)
        err = judge_rank(judge, role, role->members[k]);
    return err;
}

/* ---- all roles ---- */

static int by_role(const void *a, const void *b, void *context)
{
    const struct judge *judge = context;
    const uint64_t *roles = judge->table->roles;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    if (roles[x] != roles[y])
        return roles[x] < roles[y] ? -1 : 1;
    if (judge->groups[x] != judge->groups[y])
        return judge->groups[x] < judge->groups[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void sort_ranks(struct judge *judge)
{
    qsort_r(judge->order, judge->count, sizeof(*judge->order), by_role, judge);
}

static uint32_t end_of(const struct judge *judge, uint32_t first, bool with_groups)
{
    const uint64_t *roles = judge->table->roles;
    uint32_t end = first + 1;

    while (end < judge->count && roles[judge->order[end]] == roles[judge->order[first]] &&
           (!with_groups || judge->groups[judge->order[end]] == judge->groups[judge->order[first]]))
        end++;
    return end;
}

static void take_logs(struct judge *judge)
{
    struct sl_peers_table *table = judge->table;

    for (uint32_t rank = 0; rank < table->rank_count; rank++) {
        double *row = row_of(judge, rank);
        bool has = false;

        for (uint32_t i = 0; i < table->step_count; i++) {
            row[i] = row[i] > 0 ? log(row[i]) : NAN;
            has = has || !isnan(row[i]);
        }
        if (has)
            judge->order[judge->count++] = rank;
    }
}

/* Which ranks have too few peers. */
static void find_small(const struct judge *judge, bool *is_small)
{
    for (uint32_t first = 0, end; first < judge->count; first = end) {
        end = end_of(judge, first, false);
        for (uint32_t k = first; k < end; k++)
            is_small[judge->order[k]] = end - first < PEERS_MIN;
    }
}

/* Roles lie together after it, and in each its populations. */
static int prepare(struct judge *judge, bool *is_small)
{
    int err;

    sort_ranks(judge);
    find_small(judge, is_small);
    take_common_off(judge, is_small);
    for (uint32_t first = 0, end; first < judge->count; first = end) {
        uint32_t *members = judge->order + first;

        end = end_of(judge, first, false);
        if (!is_small[members[0]])
            take_step_off(judge, members, end - first);
    }
    err = sl_sequences_take_deviations_off(judge->table, judge->order, judge->count);
    for (uint32_t first = 0, end; err == 0 && first < judge->count; first = end) {
        end = end_of(judge, first, false);
        if (!is_small[judge->order[first]])
            err =
                sl_population_find(judge->table, judge->order + first, end - first, judge->groups);
    }
    if (err != 0)
        return err;
    if (sl_population_agree(judge->table, judge->order, judge->count, judge->groups) != 0)
        return -ENOMEM;
    sort_ranks(judge);
    for (uint32_t first = 0, end; first < judge->count; first = end) {
        uint32_t *members = judge->order + first;

        end = end_of(judge, first, false);
        if (is_small[members[0]])
            continue;
        /* The median of two populations jumps from one to the other when one member changes; that
         * of what their members have in common does not. */
        take_populations_off(judge, members, end - first);
        take_step_off(judge, members, end - first);
        take_populations_off(judge, members, end - first);
    }
    return sl_sequences_take_off(judge->table, judge->order, judge->count);
}

int sl_peers_judge(struct sl_peers_table *table, double threshold, double margin,
                   struct sl_suspects *found)
{
    struct judge judge = {.table = table, .threshold = threshold, .margin = margin, .found = found};
    bool *is_small = calloc(table->rank_count + 1, sizeof(*is_small));
    int err = -ENOMEM;

    judge.order = calloc(table->rank_count + 1, sizeof(*judge.order));
    judge.groups = calloc(table->rank_count + 1, sizeof(*judge.groups));
    judge.middles = calloc(table->rank_count + 1, sizeof(*judge.middles));
    judge.scratch =
        calloc((size_t)table->rank_count + table->step_count + 1, 2 * sizeof(*judge.scratch));
    if (is_small != NULL && judge.order != NULL && judge.groups != NULL && judge.middles != NULL &&
        judge.scratch != NULL) {
        take_logs(&judge);
        err = prepare(&judge, is_small);
    }
    for (uint32_t first = 0, end; err == 0 && first < judge.count; first = end) {
        struct role role;

        end = end_of(&judge, first, true);
        role = (struct role){.members = judge.order + first, .count = end - first};
        err = judge_role(&judge, &role);
    }
    free(is_small);
    free(judge.order);
    free(judge.groups);
    free(judge.middles);
    free(judge.scratch);
    return err == -ENOMEM ? sl_fail(err, "no memory to compare the ranks of a job") : err;
}
