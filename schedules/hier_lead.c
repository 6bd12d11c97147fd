/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives over several hosts where one rank of each host, its leader, speaks for it: broadcast
 * and reduce along a chain of hosts (hier) or a binomial tree (hiertree), and small allreduces and
 * the barrier between leaders whose distance doubles (hiertree).
 *
 * The root leads its host. Pieces pass through a few window slots: in channel 0 leaders sum or show
 * piece k while channels 1 (sends) and 2 (receives) have others on the wire.
 */
#include "schedules/hier.h"

#include "core/err.h"

#define LEAD_PIECE_BYTES (128 * 1024)
#define LEAD_SLOTS 4

static const struct sl_place nowhere = {SL_BUF_NONE, 0};

struct lead {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    struct sl_hier_map map;
    bool rooted, leads;
    uint32_t leader;              /* of this host */
    uint32_t up, down[32], downs; /* leaders that this one speaks with; up: SL_NO_DEP at the root */
    uint64_t piece, pieces, stride, base;
};

static uint32_t leader_of(const struct lead *l, uint32_t host)
{
    uint32_t root = l->shape->root;

    return l->rooted && l->shape->host[root] == host ? root : sl_hier_rank(&l->map, host, 0);
}

/* The host at place v, counted from the root's. */
static uint32_t leader_at(const struct lead *l, uint32_t v)
{
    return leader_of(l, (v + l->shape->host[l->shape->root]) % l->map.hosts);
}

/* Largest subtree first: it has the longest way. */
static void link_up(struct lead *l, bool tree)
{
    uint32_t hosts = l->map.hosts, low = 1;
    uint32_t v = (l->map.me + hosts - l->shape->host[l->shape->root]) % hosts;

    l->up = SL_NO_DEP;
    if (!tree) {
        if (v > 0)
            l->up = leader_at(l, v - 1);
        if (v + 1 < hosts)
            l->down[l->downs++] = leader_at(l, v + 1);
        return;
    }
    while (v == 0 ? low < hosts : (v & low) == 0)
        low *= 2;
    if (v > 0)
        l->up = leader_at(l, v - low);
    for (uint32_t d = low / 2; d > 0; d /= 2) {
        if (v + d < hosts)
            l->down[l->downs++] = leader_at(l, v + d);
    }
}

static int lead_init(struct lead *l, const struct sl_shape *shape, bool tree)
{
    int rc = sl_hier_map_init(&l->map, shape);

    l->shape = shape;
    if (rc != 0)
        return rc;
    l->rooted = shape->coll == SL_BROADCAST || shape->coll == SL_REDUCE;
    l->leader = leader_of(l, l->map.me);
    l->leads = l->leader == shape->rank;
    if (shape->coll == SL_BARRIER)
        return 0;
    if (l->rooted)
        link_up(l, tree);
    l->piece = sl_hier_piece(shape, LEAD_PIECE_BYTES, LEAD_SLOTS, &l->base);
    if (l->piece > 0) {
        l->pieces = sl_ceil_div(shape->count, l->piece);
        l->stride = sl_hier_stride(shape, l->piece);
        return 0;
    }
    sl_hier_map_fini(&l->map);
    return sl_fail(-ENOTSUP, "hier needs larger windows than %llu elements",
                   (unsigned long long)shape->win_count);
}

static uint64_t slot(const struct lead *l, uint64_t k)
{
    return l->base + k % LEAD_SLOTS * l->stride;
}

static uint64_t len_of(const struct lead *l, uint64_t k)
{
    return sl_part_len(l->shape->count, l->piece, k);
}

/* The leader's piece k, there once `ready` has ended, to its host, when the slot's old readers are
 * done. */
static void show(const struct lead *l, uint64_t k, struct sl_place from, uint32_t ready)
{
    if (l->map.local == 1)
        return;
    if (k >= LEAD_SLOTS)
        sl_add_await(l->s, 0, SL_PEER_GROUP, (uint32_t)(k - LEAD_SLOTS + 1), SL_NO_DEP);
    sl_add_copy(l->s, 0, from, sl_win(slot(l, k)), len_of(l, k), ready);
    sl_add_post(l->s, 0, (uint32_t)k + 1, SL_NO_DEP);
}

static void get(const struct lead *l, uint64_t k)
{
    sl_add_await(l->s, 0, l->leader, (uint32_t)k + 1, SL_NO_DEP);
    sl_add_get(l->s, 0, l->leader, slot(l, k), sl_out(k * l->piece), len_of(l, k), SL_NO_DEP);
    sl_add_post(l->s, 0, (uint32_t)k + 1, SL_NO_DEP);
}

static void broadcast(const struct lead *l)
{
    bool root = l->up == SL_NO_DEP;

    for (uint64_t k = 0; k < l->pieces; k++) {
        uint64_t at = k * l->piece, len = len_of(l, k);
        struct sl_place src = root ? sl_in(at) : sl_out(at);
        uint32_t got = SL_NO_DEP;

        if (!l->leads) {
            get(l, k);
            continue;
        }
        if (!root)
            got = sl_add_recv(l->s, 2, l->up, src, len, SL_NO_DEP);
        for (uint32_t i = 0; i < l->downs; i++)
            sl_add_send(l->s, 1, l->down[i], src, len, got);
        show(l, k, src, got);
    }
    if (l->leads && root && !l->shape->in_place)
        sl_add_copy(l->s, 3, sl_in(0), sl_out(0), l->shape->count, SL_NO_DEP);
}

/* Sums on their way up are in LEAD_SLOTS pieces of TMP; at the root in OUT. */
static void reduce_piece(const struct lead *l, uint64_t k, uint32_t *sent)
{
    bool root = l->up == SL_NO_DEP;
    uint64_t at = k * l->piece, len = len_of(l, k);
    struct sl_place src = sl_in(at);
    struct sl_place acc = root ? sl_out(at) : sl_tmp(k % LEAD_SLOTS * l->piece);
    uint32_t got = root ? SL_NO_DEP : sent[k % LEAD_SLOTS];

    if (l->map.local > 1) {
        sl_add_await(l->s, 0, SL_PEER_GROUP, (uint32_t)k + 1, SL_NO_DEP);
        got = sl_add_reduce_win(l->s, 0, src, slot(l, k), acc, len, 0, got);
        src = acc;
        sl_add_post(l->s, 0, (uint32_t)k + 1, SL_NO_DEP);
    }
    /* Smallest subtree first: it is complete first. */
    for (uint32_t i = l->downs; i-- > 0;) {
        got = sl_add_recv_reduce(l->s, 2, l->down[i], src, acc, len,
                                 root && i == 0 ? SL_STEP_FINAL : 0, got);
        src = acc;
    }
    if (!root)
        sent[k % LEAD_SLOTS] = sl_add_send(l->s, 1, l->up, src, len, got);
}

static void put(const struct lead *l, uint64_t k)
{
    if (k >= LEAD_SLOTS)
        sl_add_await(l->s, 0, l->leader, (uint32_t)(k - LEAD_SLOTS + 1), SL_NO_DEP);
    sl_add_copy(l->s, 0, sl_in(k * l->piece), sl_win(slot(l, k)), len_of(l, k), SL_NO_DEP);
    sl_add_post(l->s, 0, (uint32_t)k + 1, SL_NO_DEP);
}

static void reduce(const struct lead *l)
{
    uint32_t sent[LEAD_SLOTS] = {SL_NO_DEP, SL_NO_DEP, SL_NO_DEP, SL_NO_DEP};

    for (uint64_t k = 0; k < l->pieces; k++) {
        if (l->leads)
            reduce_piece(l, k, sent);
        else
            put(l, k);
    }
    if (l->leads && l->up != SL_NO_DEP)
        l->s->tmp_count = sl_min(LEAD_SLOTS, l->pieces) * l->piece;
}

/* In one piece: in over one slot, out over another. */
static int small_allreduce(const struct lead *l)
{
    const struct sl_shape *shape = l->shape;
    uint32_t *leaders = l->map.ranks; /* hosts come in the order of their first ranks */
    struct sl_place operand = sl_in(0);
    uint32_t start = SL_NO_DEP;

    if (l->pieces > 1)
        return sl_fail(-ENOTSUP, "hiertree does small allreduces only; hier does this one");
    if (!l->leads) {
        put(l, 0);
        sl_add_await(l->s, 0, l->leader, 2, SL_NO_DEP);
        sl_add_get(l->s, 0, l->leader, slot(l, 1), sl_out(0), shape->count, SL_NO_DEP);
        sl_add_post(l->s, 0, 2, SL_NO_DEP);
        return 0;
    }
    if (l->map.local > 1) {
        operand = sl_tmp(2 * shape->count);
        l->s->tmp_count = 3 * shape->count;
        sl_add_await(l->s, 0, SL_PEER_GROUP, 1, SL_NO_DEP);
        start =
            sl_add_reduce_win(l->s, 0, sl_in(0), slot(l, 0), operand, shape->count, 0, SL_NO_DEP);
    }
    for (uint32_t h = 0; h < l->map.hosts; h++)
        leaders[h] = l->map.ranks[l->map.first[h]];
    uint32_t got =
        sl_doubling_between(l->s, shape, leaders, l->map.hosts, l->map.me, operand, start);
    if (l->map.local > 1) {
        sl_add_copy(l->s, 0, sl_out(0), sl_win(slot(l, 1)), shape->count, got);
        sl_add_post(l->s, 0, 2, SL_NO_DEP);
    }
    return 0;
}

/* Leaders wait for their hosts, spread the word, and let their hosts go. */
static void barrier(const struct lead *l)
{
    uint32_t hosts = l->map.hosts, heard[33], rounds = 0;

    if (!l->leads) {
        sl_add_post(l->s, 0, 1, SL_NO_DEP);
        sl_add_await(l->s, 0, l->leader, 1, SL_NO_DEP);
        return;
    }
    if (l->map.local > 1)
        heard[rounds++] = sl_add_await(l->s, 0, SL_PEER_GROUP, 1, SL_NO_DEP);
    for (uint64_t d = 1; d < hosts; d *= 2) {
        uint32_t to = leader_of(l, (uint32_t)((l->map.me + d) % hosts));
        uint32_t from = leader_of(l, (uint32_t)((l->map.me + hosts - d) % hosts));

        sl_add_send(l->s, 1, to, nowhere, 0, SL_NO_DEP);
        for (uint32_t i = 0; i < rounds; i++)
            sl_add_dep(l->s, heard[i]);
        heard[rounds++] = sl_add_recv(l->s, 2, from, nowhere, 0, SL_NO_DEP);
    }
    if (l->map.local > 1) {
        sl_add_post(l->s, 0, 1, SL_NO_DEP);
        for (uint32_t i = 0; i < rounds; i++)
            sl_add_dep(l->s, heard[i]);
    }
}

int sl_hier_lead_build(const struct sl_shape *shape, bool tree, struct sl_schedule *out)
{
    struct lead l = {.s = out};
    int rc;

    rc = lead_init(&l, shape, tree);
    if (rc != 0)
        return rc;
    rc = sl_hier_group(out, shape, &l.map);
    if (rc == 0) {
        if (l.map.local > 1 && shape->coll != SL_BARRIER)
            out->win_count = l.base + LEAD_SLOTS * l.stride;
        if (shape->coll == SL_BARRIER)
            barrier(&l);
        else if (shape->coll == SL_BROADCAST)
            broadcast(&l);
        else if (shape->coll == SL_REDUCE)
            reduce(&l);
        else
            rc = small_allreduce(&l);
    }
    if (rc == 0)
        rc = sl_schedule_finish(out);
    sl_hier_map_fini(&l.map);
    return rc;
}

double sl_hier_lead_cost(const struct sl_shape *shape, bool tree, const struct sl_costs *costs)
{
    struct lead l = {0};
    double bytes = (double)shape->count * shape->esize, crowd = sl_cost_crowd(costs);

    if (shape->host == NULL || sl_one_host(shape) || lead_init(&l, shape, tree) != 0)
        return -1;
    double g = l.map.most, hosts = l.map.hosts, levels = sl_log2_ceil(l.map.hosts);
    double piece = (double)l.piece * shape->esize, pieces = (double)l.pieces;
    sl_hier_map_fini(&l.map);
    if (shape->coll == SL_BARRIER)
        return 2 * crowd * costs->sync + levels * (costs->net.alpha + 2 * costs->step) * crowd;
    double sum = g * costs->reduce, hop = costs->net.alpha + 2 * costs->step * crowd;
    if (shape->coll == SL_ALLREDUCE)
        return pieces > 1 ? -1
                          : crowd * (bytes * (sum + 3 * costs->copy) + 2 * costs->sync) +
                                levels * (hop + bytes * (costs->net.beta + crowd * costs->reduce));
    double math = shape->coll == SL_REDUCE ? costs->reduce * crowd : 0;
    double inside = shape->coll == SL_REDUCE ? costs->copy + sum : 2 * costs->copy;
    /* The first piece goes all the way; the others follow at the pace of the slower of the host's
     * windows and the busiest link, which a tree's root uses once per child. */
    double way = tree ? levels : hosts - 1, fan = tree ? levels : 1;
    double wire = (bytes - piece) * fan * (costs->net.beta + math);
    double window = (bytes - piece) * crowd * inside +
                    crowd * (pieces - 1) * (2 * costs->sync + 4 * costs->step);
    return way * (hop + piece * (costs->net.beta + math)) + (wire > window ? wire : window) +
           crowd * (piece * inside + 2 * costs->sync + 4 * costs->step);
}

static int hiertree_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "hiertree");
    if (shape->count == 0 && shape->coll != SL_BARRIER)
        return 0;
    return sl_hier_lead_build(shape, true, out);
}

static double hiertree_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    if (shape->count == 0 && shape->coll != SL_BARRIER)
        return -1;
    return sl_hier_lead_cost(shape, true, costs);
}

const struct sl_algo sl_algo_hiertree = {
    .name = "hiertree",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_BROADCAST) | SL_BIT(SL_REDUCE) | SL_BIT(SL_BARRIER),
    .needs_windows = true,
    .source = "",
    .build = hiertree_build,
    .cost = hiertree_cost,
};
