/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks beside those that do the same. */
#include "monitor/diagnosis/peers_inside.h"
#include "core/err.h"
#include "monitor/diagnosis/change.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define SPREADS 4.0     /* between healthy members */
#define OWN_MARGIN 0.05 /* of its own history */
#define SLOWEST 20.0    /* times: slower than that is a hang */

static uint32_t known_steps(const struct sl_peers *peers, uint32_t rank)
{
    const double *row = sl_peers_row(peers, rank);
    uint32_t count = 0;

    for (uint32_t i = 0; i < peers->table->step_count; i++)
        count += isnan(row[i]) ? 0 : 1;
    return count;
}

/* ---- one role ---- */

/* Without peers a rank is slow only if half of the steps since are beyond `base`. What befalls
 * single steps all others may have as well, as where processors are short. */
static bool is_lasting(const struct sl_peers *peers, const struct sl_peers_role *role,
                       uint32_t rank, const struct sl_change *change, double base)
{
    return role->count >= SL_PEERS_MIN ||
           sl_peers_median(peers, rank, change->onset, change->alarm + 1) > base;
}

static void begin(const struct sl_peers *peers, const struct sl_peers_role *role, uint32_t rank,
                  double spread, struct sl_change *change)
{
    uint32_t steps = change->steps;

    sl_change_begin(change, peers->threshold, sl_peers_pauses(peers, role, rank),
                    log(SLOWEST) / spread);
    change->steps = steps;
}

/* Tests a rank's steps beyond `base`. */
static void test(const struct sl_peers *peers, const struct sl_peers_role *role, uint32_t rank,
                 double base, struct sl_change *change)
{
    double spread = fmax(role->within, sl_peers_spread(peers, rank, role->memory));
    const double *row = sl_peers_row(peers, rank);
    double before = 0;

    begin(peers, role, rank, spread, change);
    for (uint32_t i = 0; i < peers->table->step_count; i++) {
        double beyond = row[i] - base;

        if (isnan(beyond)) {
            change->steps++;
            continue;
        }
        sl_change_step(change, (beyond - role->memory * fmax(before, 0)) / spread);
        before = beyond;
        if (change->is_alarm && change->alarm == i && !is_lasting(peers, role, rank, change, base))
            begin(peers, role, rank, spread, change);
    }
}

static int add_suspect(struct sl_peers *peers, const struct sl_peers_role *role, uint32_t rank,
                       const struct sl_change *change, double base)
{
    struct sl_suspects *found = peers->found;
    struct sl_suspect *list = reallocarray(found->list, found->count + 1, sizeof(*list)), *it;
    double most = 0;

    if (list == NULL)
        return sl_fail(-ENOMEM, "no memory for what is slow in a job");
    found->list = list;
    it = &list[found->count++];
    for (uint32_t k = 0; k < role->count; k++)
        if (role->members[k] != rank)
            most = fmax(most, peers->middles[role->members[k]]);
    *it = (struct sl_suspect){
        .rank = rank,
        .onset = change->onset,
        .alarm = change->alarm,
        .peer_count = role->count - 1,
        .ratio = exp(sl_peers_median(peers, rank, change->onset, change->alarm + 1) - base),
        .spread = exp(most) - 1,
        .weight = change->most,
        .is_own = role->count < SL_PEERS_MIN};
    return 0;
}

/* Beside its peers; then beside its own first half, which a fault from the beginning is in. */
static int judge_rank(struct sl_peers *peers, const struct sl_peers_role *role, uint32_t rank)
{
    struct sl_change beside = {0}, own = {0};
    uint32_t half = peers->table->step_count / 2;
    double middle = 0;

    if (role->count >= SL_PEERS_MIN)
        test(peers, role, rank, fmax(log1p(peers->margin), SPREADS * role->between), &beside);
    if (known_steps(peers, rank) >= SL_PEERS_STEPS) {
        middle = sl_peers_median(peers, rank, 0, half);
        /* Who was faster than its peers, and is as they are now, is not slow: shorter sequences in
         * the first half are not all taken off. */
        if (role->count >= SL_PEERS_MIN)
            middle = fmax(middle, -SPREADS * role->between);
        test(peers, role, rank, middle + log1p(OWN_MARGIN), &own);
    }
    if (beside.is_alarm && (!own.is_alarm || beside.alarm <= own.alarm))
        return add_suspect(peers, role, rank, &beside, 0);
    return own.is_alarm ? add_suspect(peers, role, rank, &own, middle) : 0;
}

static int judge_role(struct sl_peers *peers, struct sl_peers_role *role)
{
    int err = 0;

    sl_peers_measure(peers, role);
    for (uint32_t k = 0; err == 0 && k < role->count; k++)
        err = judge_rank(peers, role, role->members[k]);
    return err;
}

/* ---- all roles ---- */

static int by_role(const void *a, const void *b, void *context)
{
    const struct sl_peers *peers = context;
    const uint64_t *roles = peers->table->roles;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    if (roles[x] != roles[y])
        return roles[x] < roles[y] ? -1 : 1;
    if (peers->groups[x] != peers->groups[y])
        return peers->groups[x] < peers->groups[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

void sl_peers_sort(struct sl_peers *peers)
{
    qsort_r(peers->order, peers->count, sizeof(*peers->order), by_role, peers);
}

uint32_t sl_peers_end(const struct sl_peers *peers, uint32_t first, bool with_groups)
{
    const uint64_t *roles = peers->table->roles;
    uint32_t end = first + 1;

    while (end < peers->count && roles[peers->order[end]] == roles[peers->order[first]] &&
           (!with_groups || peers->groups[peers->order[end]] == peers->groups[peers->order[first]]))
        end++;
    return end;
}

static void take_logs(struct sl_peers *peers)
{
    struct sl_peers_table *table = peers->table;

    for (uint32_t rank = 0; rank < table->rank_count; rank++) {
        double *row = sl_peers_row(peers, rank);
        bool has = false;

        for (uint32_t i = 0; i < table->step_count; i++) {
            row[i] = row[i] > 0 ? log(row[i]) : NAN;
            has = has || !isnan(row[i]);
        }
        if (has)
            peers->order[peers->count++] = rank;
    }
}

int sl_peers_judge(struct sl_peers_table *table, double threshold, double margin,
                   struct sl_suspects *found)
{
    struct sl_peers peers = {
        .table = table, .threshold = threshold, .margin = margin, .found = found};
    bool *is_small = calloc(table->rank_count + 1, sizeof(*is_small));
    int err = -ENOMEM;

    peers.order = calloc(table->rank_count + 1, sizeof(*peers.order));
    peers.groups = calloc(table->rank_count + 1, sizeof(*peers.groups));
    peers.middles = calloc(table->rank_count + 1, sizeof(*peers.middles));
    peers.scratch =
        calloc((size_t)table->rank_count + table->step_count + 1, 2 * sizeof(*peers.scratch));
    if (is_small != NULL && peers.order != NULL && peers.groups != NULL && peers.middles != NULL &&
        peers.scratch != NULL) {
        take_logs(&peers);
        err = sl_peers_take_off(&peers, is_small);
    }
    for (uint32_t first = 0, end; err == 0 && first < peers.count; first = end) {
        struct sl_peers_role role;

        end = sl_peers_end(&peers, first, true);
        role = (struct sl_peers_role){.members = peers.order + first, .count = end - first};
        err = judge_role(&peers, &role);
    }
    free(is_small);
    free(peers.order);
    free(peers.groups);
    free(peers.middles);
    free(peers.scratch);
    return err == -ENOMEM ? sl_fail(err, "no memory to compare the ranks of a job") : err;
}
