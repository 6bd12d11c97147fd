/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_gather and reduce_scatter over several hosts.
 *
 * Between hosts run `rails` rings: as many as the smallest host has ranks, ring i through rank i of
 * every host. Ring i carries, for each host, the blocks of that host's ranks i, i + rails, …: its
 * *charges* there. With even hosts that is one block per host, and every rank carries its own.
 *
 * all_gather: ranks of a host read each other's block (first rounds), the rings run, and the
 * carriers show what has arrived, piece after piece (second rounds).
 * reduce_scatter: a carrier sums each charge over its host (first rounds), adds it to what comes
 * round the ring, and shows its host's complete blocks to those whom it carries (second rounds;
 * none with even hosts).
 *
 * Windows are in channel 0, the rings in 1 and 2. Both rounds have window areas of their own, so
 * the second need not wait for readers of the first. All carriers of a host are in the same ring
 * step in a round: so a round waits only for earlier ring steps, here and elsewhere, and never in a
 * circle.
 */
#include "schedules/hier.h"

#include "core/err.h"

#include <stdlib.h>

#define BLOCKS_PIECE_BYTES (128 * 1024)

struct blocks {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    struct sl_hier_map map;
    uint32_t rails;
    bool carrier;
    uint32_t next, prev;    /* a carrier's ring */
    uint64_t piece, pieces; /* of a block */
    uint64_t stride;        /* elements from one piece to the next in a window */
    uint64_t base, base2;   /* areas of the first and the second rounds */
    uint32_t post;          /* value of the last POST */
    uint32_t round;         /* of the rounds under way */
    uint32_t *got; /* by (ring step, charge, piece): when it is here; or sent, two steps' worth */
};

/* One piece of one charge in one step of the rings. */
struct item {
    uint32_t step, host, charge;
    uint64_t piece;
};

static bool blocks_cut(struct blocks *b)
{
    uint64_t first = b->shape->coll == SL_REDUCE_SCATTER ? b->rails : 1;

    b->piece = sl_hier_piece(b->shape, BLOCKS_PIECE_BYTES, HIER_SLOTS * (first + 1), &b->base);
    if (b->piece == 0)
        return false;
    b->pieces = sl_ceil_div(b->shape->count, b->piece);
    b->stride = sl_hier_stride(b->shape, b->piece);
    b->base2 = b->base + HIER_SLOTS * first * b->stride;
    return true;
}

static int blocks_init(struct blocks *b, const struct sl_shape *shape)
{
    int rc = sl_hier_map_init(&b->map, shape);

    b->shape = shape;
    if (rc != 0)
        return rc;
    b->rails = b->map.least;
    b->carrier = b->map.idx < b->rails;
    if (b->carrier) {
        b->next = sl_hier_rank(&b->map, (b->map.me + 1) % b->map.hosts, b->map.idx);
        b->prev = sl_hier_rank(&b->map, (b->map.me + b->map.hosts - 1) % b->map.hosts, b->map.idx);
    }
    if (blocks_cut(b))
        return 0;
    sl_hier_map_fini(&b->map);
    return sl_fail(-ENOTSUP, "hier needs larger windows than %llu elements",
                   (unsigned long long)shape->win_count);
}

static uint32_t charges_of(const struct blocks *b, uint32_t host)
{
    return (uint32_t)sl_ceil_div(sl_hier_ranks_of(&b->map, host), b->rails);
}

/* Whether carrier i has that item; its rank to *rank. */
static bool item_of(const struct blocks *b, uint32_t i, const struct item *it, uint32_t *rank)
{
    uint32_t idx = it->charge * b->rails + i;

    if (i >= b->rails || idx >= sl_hier_ranks_of(&b->map, it->host))
        return false;
    *rank = sl_hier_rank(&b->map, it->host, idx);
    return true;
}

static uint64_t len_of(const struct blocks *b, uint64_t piece)
{
    return sl_part_len(b->shape->count, b->piece, piece);
}

/* Where a piece lies in a vector with a block per rank. */
static uint64_t at(const struct blocks *b, uint32_t rank, uint64_t piece)
{
    return rank * b->shape->count + piece * b->piece;
}

static uint32_t *got_at(const struct blocks *b, const struct item *it, uint32_t steps)
{
    uint32_t most = (uint32_t)sl_ceil_div(b->map.most, b->rails);

    return &b->got[((uint64_t)(it->step % steps) * most + it->charge) * b->pieces + it->piece];
}

/* Rounds as in direct.c: of each item, stage; one round later, when all have staged it, take. Who
 * has posted a round has taken what was staged two rounds before, so that slot is free. */
typedef void rounds_fn(struct blocks *b, const struct item *it, uint32_t round);

struct rounds {
    rounds_fn *stage, *take;
    struct item before;
};

static void round_next(struct blocks *b, struct rounds *r, const struct item *it)
{
    r->stage(b, it, b->round);
    if (b->round > 0) {
        sl_add_await(b->s, 0, SL_PEER_GROUP, b->post, SL_NO_DEP);
        r->take(b, &r->before, b->round - 1);
    }
    sl_add_post(b->s, 0, ++b->post, SL_NO_DEP);
    r->before = *it;
    b->round++;
}

static void rounds_end(struct blocks *b, struct rounds *r)
{
    if (b->round == 0)
        return;
    sl_add_await(b->s, 0, SL_PEER_GROUP, b->post, SL_NO_DEP);
    r->take(b, &r->before, b->round - 1);
    b->round = 0;
}

/* ---- all_gather ---- */

static void stage_own(struct blocks *b, const struct item *it, uint32_t round)
{
    sl_add_copy(b->s, 0, sl_in(it->piece * b->piece),
                sl_win(b->base + round % HIER_SLOTS * b->stride), len_of(b, it->piece), SL_NO_DEP);
}

static void take_neighbours(struct blocks *b, const struct item *it, uint32_t round)
{
    for (uint32_t i = 1; i < b->map.local; i++) {
        uint32_t peer = sl_hier_rank(&b->map, b->map.me, (b->map.idx + i) % b->map.local);
        sl_add_get(b->s, 0, peer, b->base + round % HIER_SLOTS * b->stride,
                   sl_out(at(b, peer, it->piece)), len_of(b, it->piece), SL_NO_DEP);
    }
}

static void stage_arrived(struct blocks *b, const struct item *it, uint32_t round)
{
    uint32_t rank;

    if (item_of(b, b->map.idx, it, &rank))
        sl_add_copy(b->s, 0, sl_out(at(b, rank, it->piece)),
                    sl_win(b->base2 + round % HIER_SLOTS * b->stride), len_of(b, it->piece),
                    *got_at(b, it, b->map.hosts));
}

static void take_arrived(struct blocks *b, const struct item *it, uint32_t round)
{
    uint32_t rank;

    for (uint32_t i = 0; i < b->rails; i++) {
        if (i != b->map.idx && item_of(b, i, it, &rank))
            sl_add_get(b->s, 0, sl_hier_rank(&b->map, b->map.me, i),
                       b->base2 + round % HIER_SLOTS * b->stride, sl_out(at(b, rank, it->piece)),
                       len_of(b, it->piece), SL_NO_DEP);
    }
}

/* This carrier's part of ring step `step`: sends what the step before brought, receives the
 * next. */
static void gather_ring_step(struct blocks *b, uint32_t step, uint32_t here)
{
    const struct sl_hier_map *map = &b->map;
    struct item it = {step, (map->me + map->hosts - step) % map->hosts, 0, 0};
    uint32_t rank;

    for (; it.charge < charges_of(b, it.host); it.charge++) {
        for (it.piece = 0; it.piece < b->pieces; it.piece++) {
            if (!item_of(b, map->idx, &it, &rank))
                continue;
            bool own = rank == b->shape->rank;
            uint64_t len = len_of(b, it.piece);
            struct sl_place place = sl_out(at(b, rank, it.piece));
            uint32_t dep = own ? SL_NO_DEP : here;
            if (step > 0)
                dep = *got_at(b, &it, map->hosts) =
                    sl_add_recv(b->s, 2, b->prev, place, len, SL_NO_DEP);
            if (step + 1 < map->hosts)
                sl_add_send(b->s, 1, b->next, own ? sl_in(it.piece * b->piece) : place, len, dep);
        }
    }
}

static void all_gather(struct blocks *b)
{
    const struct sl_hier_map *map = &b->map;
    struct rounds own = {.stage = stage_own, .take = take_neighbours};
    struct rounds rest = {.stage = stage_arrived, .take = take_arrived};
    uint32_t here = SL_NO_DEP;

    for (struct item it = {0}; map->local > 1 && it.piece < b->pieces; it.piece++)
        round_next(b, &own, &it);
    if (!b->shape->in_place)
        sl_add_copy(b->s, 0, sl_in(0), sl_out(at(b, b->shape->rank, 0)), b->shape->count,
                    SL_NO_DEP);
    if (map->local > 1) {
        rounds_end(b, &own);
        here = b->s->step_count - 1;
    }
    for (uint32_t step = 0; b->carrier && step < map->hosts; step++)
        gather_ring_step(b, step, here);
    for (uint32_t step = 1; map->local > 1 && step < map->hosts; step++) {
        struct item it = {step, (map->me + map->hosts - step) % map->hosts, 0, 0};
        for (; it.charge < charges_of(b, it.host); it.charge++) {
            for (it.piece = 0; it.piece < b->pieces; it.piece++)
                round_next(b, &rest, &it);
        }
    }
    rounds_end(b, &rest);
}

/* ---- reduce_scatter ---- */

/* Sums on their way are in TMP, the charges of two ring steps in turn. */
static uint64_t sum_at(const struct blocks *b, const struct item *it)
{
    uint64_t most = sl_ceil_div(b->map.most, b->rails);

    return (it->step % 2 * most + it->charge) * b->shape->count + it->piece * b->piece;
}

static uint64_t rail_slot(const struct blocks *b, uint32_t round, uint32_t rail)
{
    return b->base + (round % HIER_SLOTS * (uint64_t)b->rails + rail) * b->stride;
}

static void stage_operands(struct blocks *b, const struct item *it, uint32_t round)
{
    uint32_t rank;

    for (uint32_t i = 0; i < b->rails; i++) {
        if (i != b->map.idx && item_of(b, i, it, &rank))
            sl_add_copy(b->s, 0, sl_in(at(b, rank, it->piece)), sl_win(rail_slot(b, round, i)),
                        len_of(b, it->piece), SL_NO_DEP);
    }
}

/* The host's sum of this carrier's charge joins the ring. */
static void sum_and_pass(struct blocks *b, const struct item *it, uint32_t round)
{
    bool last = it->step + 1 == b->map.hosts;
    uint64_t len = len_of(b, it->piece);
    struct sl_place sum = sl_tmp(sum_at(b, it)), dst = sum;
    uint32_t *sent = got_at(b, it, 2), rank = 0, done;

    if (!item_of(b, b->map.idx, it, &rank))
        return;
    if (b->map.local > 1) {
        done = sl_add_reduce_win(b->s, 0, sl_in(at(b, rank, it->piece)),
                                 rail_slot(b, round, b->map.idx), sum, len, 0, *sent);
    } else {
        sum = sl_in(at(b, rank, it->piece));
        done = *sent; /* NOLINT(clang-analyzer-core.uninitialized.Assign): set for each piece */
    }
    if (last && rank == b->shape->rank)
        dst = sl_out(it->piece * b->piece);
    if (it->step > 0)
        done = sl_add_recv_reduce(b->s, 2, b->prev, sum, dst, len,
                                  SL_STEP_REMOTE_FIRST | (last ? SL_STEP_FINAL : 0), done);
    else
        dst = sum;
    *sent = last ? done : sl_add_send(b->s, 1, b->next, dst, len, done);
}

static void stage_complete(struct blocks *b, const struct item *it, uint32_t round)
{
    uint32_t rank;

    if (item_of(b, b->map.idx, it, &rank))
        sl_add_copy(b->s, 0, sl_tmp(sum_at(b, it)),
                    sl_win(b->base2 + round % HIER_SLOTS * b->stride), len_of(b, it->piece),
                    *got_at(b, it, 2));
}

static void take_complete(struct blocks *b, const struct item *it, uint32_t round)
{
    if (b->map.idx / b->rails == it->charge)
        sl_add_get(b->s, 0, sl_hier_rank(&b->map, b->map.me, b->map.idx % b->rails),
                   b->base2 + round % HIER_SLOTS * b->stride, sl_out(it->piece * b->piece),
                   len_of(b, it->piece), SL_NO_DEP);
}

static void reduce_scatter(struct blocks *b)
{
    const struct sl_hier_map *map = &b->map;
    struct rounds sums = {.stage = stage_operands, .take = sum_and_pass};
    struct rounds rest = {.stage = stage_complete, .take = take_complete};

    for (uint32_t step = 0; step < map->hosts; step++) {
        struct item it = {step, (map->me + 2 * map->hosts - 1 - step) % map->hosts, 0, 0};
        for (; it.charge < charges_of(b, it.host); it.charge++) {
            for (it.piece = 0; it.piece < b->pieces; it.piece++) {
                if (map->local > 1)
                    round_next(b, &sums, &it);
                else
                    sum_and_pass(b, &it, 0);
            }
        }
    }
    rounds_end(b, &sums);
    struct item it = {map->hosts - 1, map->me, 1, 0};
    for (; it.charge < charges_of(b, map->me); it.charge++) {
        for (it.piece = 0; it.piece < b->pieces; it.piece++)
            round_next(b, &rest, &it);
    }
    rounds_end(b, &rest);
    if (b->carrier)
        b->s->tmp_count = 2 * sl_ceil_div(map->most, b->rails) * b->shape->count;
}

/* ---- both ---- */

int sl_hier_blocks_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct blocks b = {.s = out};
    int rc = blocks_init(&b, shape);

    if (rc != 0)
        return rc;
    uint64_t steps = shape->coll == SL_ALL_GATHER ? b.map.hosts : 2;
    uint64_t places = steps * sl_ceil_div(b.map.most, b.rails) * b.pieces;
    rc = sl_hier_group(out, shape, &b.map);
    b.got = malloc(places * sizeof(*b.got));
    if (b.got == NULL && rc == 0)
        rc = sl_fail(-ENOMEM, "no memory for %llu pieces", (unsigned long long)places);
    for (uint64_t i = 0; i < places && rc == 0; i++)
        b.got[i] = SL_NO_DEP;
    if (rc == 0) {
        if (b.map.local > 1)
            out->win_count = b.base2 + HIER_SLOTS * b.stride;
        if (shape->coll == SL_ALL_GATHER)
            all_gather(&b);
        else
            reduce_scatter(&b);
        rc = sl_schedule_finish(out);
    }
    free(b.got);
    sl_hier_map_fini(&b.map);
    return rc;
}

double sl_hier_blocks_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    struct blocks b = {0};
    double bytes = (double)shape->count * shape->esize, crowd = sl_cost_crowd(costs);

    if (shape->count == 0 || shape->host == NULL || sl_one_host(shape) ||
        blocks_init(&b, shape) != 0)
        return -1;
    double n = shape->size, g = b.map.most, hosts = b.map.hosts, rails = b.rails;
    double rounds = n / rails * (double)b.pieces, inside, math = 0;
    if (shape->coll == SL_ALL_GATHER) {
        /* Shown once per carrier, read by all the others. */
        inside = n * bytes * (1 + 1 / g) * costs->copy;
    } else {
        inside = n * bytes * costs->copy + n / rails * g * bytes * costs->reduce;
        math = (hosts - 1) * g / rails * bytes * costs->reduce;
    }
    /* The ranks of a host share its wire. */
    double wire = (hosts - 1) * (costs->net.alpha + g * bytes * costs->net.beta);
    sl_hier_map_fini(&b.map);
    return wire + crowd * (inside + math) + crowd * rounds * costs->sync +
           2 * rounds * (1 + rails) * costs->step * crowd;
}
