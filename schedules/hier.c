/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over several hosts: through windows inside each host, by messages between hosts. Allreduce is
 * here; blocks (all_gather, reduce_scatter) are in hier_blocks.c, what leaders do alone in
 * hier_lead.c.
 *
 * With as many ranks on every host, each vector chunk has one slice per local rank: rank i of a
 * host sums slice i over its host, goes round a ring with the ranks i of the other hosts, and shows
 * the result to its host. All ranks use the wire, each for its slice ("rails"). With uneven hosts
 * the first rank of each sums whole chunks and goes round for its host ("leaders").
 *
 * The windows' steps are in channel 0, the ring's in 1 and 2: chunk k is on the wire while chunk
 * k + 1 is summed. Slots of the way in and of the way out are apart, so neither waits for the
 * other.
 */
#include "schedules/hier.h"

#include "core/err.h"

#include <stdlib.h>

#define HIER_PIECE_BYTES (1024 * 1024)
#define IN_SLOTS 4
#define OUT_SLOTS 4

struct hier {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    struct sl_hier_map map;
    bool rails;
    uint32_t *across;       /* [hosts], owned: the ranks that this one goes round with, by host */
    uint64_t chunk, chunks; /* of the vector */
    uint64_t base, in_slot, out_slot;
};

static int hier_map(struct hier *h)
{
    int rc = sl_hier_map_init(&h->map, h->shape);

    if (rc != 0)
        return rc;
    h->rails = h->map.least == h->map.most;
    h->across = malloc(h->map.hosts * sizeof(*h->across));
    if (h->across == NULL) {
        sl_hier_map_fini(&h->map);
        return sl_fail(-ENOMEM, "no memory for a ring of %u hosts", h->map.hosts);
    }
    for (uint32_t i = 0; i < h->map.hosts; i++)
        h->across[i] = sl_hier_rank(&h->map, i, h->rails ? h->map.idx : 0);
    return 0;
}

static void hier_fini(struct hier *h)
{
    free(h->across);
    sl_hier_map_fini(&h->map);
}

/* False: the window is too small. All ranks cut alike, since the rings between hosts need it. */
static bool hier_cut(struct hier *h)
{
    const struct sl_shape *shape = h->shape;
    uint64_t piece = sl_min(sl_piece(shape, HIER_PIECE_BYTES), shape->count);

    h->base = SL_WIN_INLINE_BYTES / shape->esize;
    if (shape->win_count <= h->base)
        return false;
    /* A slice is rounded up to whole cache lines: that room is counted here. */
    uint64_t room = (shape->win_count - h->base) / (IN_SLOTS + OUT_SLOTS);
    uint64_t slack = h->map.most * (64 / sl_min(shape->esize, 64));
    piece = room > 2 * slack ? sl_min(piece, room - slack) : sl_min(piece, room / 2);
    if (piece == 0)
        return false;
    h->chunks = sl_ceil_div(shape->count, piece);
    h->chunk = sl_ceil_div(shape->count, h->chunks);
    h->chunks = sl_ceil_div(shape->count, h->chunk);
    h->in_slot = h->out_slot = h->chunk;
    return true;
}

static uint64_t in_slot(const struct hier *h, uint64_t chunk)
{
    return h->base + chunk % IN_SLOTS * h->in_slot;
}

static uint64_t out_slot(const struct hier *h, uint64_t chunk)
{
    return h->base + IN_SLOTS * h->in_slot + chunk % OUT_SLOTS * h->out_slot;
}

/* Slice i of a chunk, relative to the chunk. Leaders take it whole. */
static uint64_t slice(const struct hier *h, uint64_t chunk, uint32_t i, uint64_t *off)
{
    uint64_t len = sl_part_len(h->shape->count, h->chunk, chunk);
    uint64_t width = h->rails ? sl_part_width(len, h->map.local, h->shape->esize) : len;

    *off = sl_min(i * width, len);
    return sl_part_len(len, width, i);
}

static void put(const struct hier *h, uint64_t chunk, uint64_t from, uint64_t to)
{
    if (to > from)
        sl_add_copy(h->s, 0, sl_in(chunk * h->chunk + from), sl_win(in_slot(h, chunk) + from),
                    to - from, SL_NO_DEP);
}

/* This rank's slice, summed over its host, goes round the hosts. Returns the first step of the
 * ring. */
static void around(const struct hier *h, uint64_t chunk)
{
    uint64_t off, len = slice(h, chunk, h->map.idx, &off), at = chunk * h->chunk + off;
    uint32_t sum;

    if (len == 0)
        return;
    if (h->map.local == 1)
        sum = h->shape->in_place ? SL_NO_DEP
                                 : sl_add_copy(h->s, 0, sl_in(at), sl_out(at), len, SL_NO_DEP);
    else
        sum = sl_add_reduce_win(h->s, 0, sl_in(at), in_slot(h, chunk) + off, sl_out(at), len, 0,
                                SL_NO_DEP);
    sl_ring_between(h->s, h->shape, h->across, h->map.hosts, h->map.me, at, len, sum);
}

/* Shows this rank's complete slice to its host; it waits for all that the ring, steps [first,
 * last), brings. */
static void show(const struct hier *h, uint64_t chunk, uint32_t first, uint32_t last)
{
    uint64_t off, len = slice(h, chunk, h->map.idx, &off), at = chunk * h->chunk + off;

    if (len == 0)
        return;
    sl_add_copy(h->s, 0, sl_out(at), sl_win(out_slot(h, chunk) + off), len, SL_NO_DEP);
    for (uint32_t i = first; i < last && h->s->error == 0; i++) {
        if (sl_step_row(&h->s->steps[i])->message == SL_RECEIVES)
            sl_add_dep(h->s, i);
    }
}

static void get(const struct hier *h, uint64_t chunk, uint32_t i)
{
    uint64_t off, len = slice(h, chunk, i, &off);

    if (len > 0)
        sl_add_get(h->s, 0, h->s->group[i], out_slot(h, chunk) + off,
                   sl_out(chunk * h->chunk + off), len, SL_NO_DEP);
}

/* Rounds as in direct.c: 0 … chunks for the way in, and as many for the way out. ring_at[k] is the
 * first step of chunk k's ring. */
static void rails(const struct hier *h, uint32_t *ring_at)
{
    uint32_t chunks = (uint32_t)h->chunks;
    uint64_t off;

    for (uint32_t k = 0; k <= chunks; k++) {
        if (k < chunks) {
            uint64_t mine = slice(h, k, h->map.idx, &off);
            put(h, k, 0, off);
            put(h, k, off + mine, sl_part_len(h->shape->count, h->chunk, k));
        }
        if (k > 0) {
            sl_add_await(h->s, 0, SL_PEER_GROUP, k, SL_NO_DEP);
            ring_at[k - 1] = h->s->step_count;
            around(h, k - 1);
        }
        if (k < chunks)
            sl_add_post(h->s, 0, k + 1, SL_NO_DEP);
    }
    ring_at[chunks] = h->s->step_count;
    for (uint32_t k = 0; k <= chunks; k++) {
        if (k < chunks)
            show(h, k, ring_at[k], ring_at[k + 1]);
        if (k > 0) {
            sl_add_await(h->s, 0, SL_PEER_GROUP, chunks + k, SL_NO_DEP);
            for (uint32_t i = 1; i < h->map.local; i++)
                get(h, k - 1, (h->map.idx + i) % h->map.local);
        }
        if (k < chunks)
            sl_add_post(h->s, 0, chunks + k + 1, SL_NO_DEP);
    }
}

static void lead(const struct hier *h, uint32_t *ring_at)
{
    uint32_t chunks = (uint32_t)h->chunks;

    for (uint32_t k = 0; k < chunks; k++) {
        if (h->map.local > 1)
            sl_add_await(h->s, 0, SL_PEER_GROUP, k + 1, SL_NO_DEP);
        ring_at[k] = h->s->step_count;
        around(h, k);
        if (h->map.local > 1)
            sl_add_post(h->s, 0, k + 1, SL_NO_DEP);
    }
    ring_at[chunks] = h->s->step_count;
    for (uint32_t k = 0; k < chunks && h->map.local > 1; k++) {
        if (k >= OUT_SLOTS)
            sl_add_await(h->s, 0, SL_PEER_GROUP, chunks + k - OUT_SLOTS + 1, SL_NO_DEP);
        show(h, k, ring_at[k], ring_at[k + 1]);
        sl_add_post(h->s, 0, chunks + k + 1, SL_NO_DEP);
    }
}

static void follow(const struct hier *h)
{
    uint32_t chunks = (uint32_t)h->chunks, leader = h->s->group[0];

    for (uint32_t k = 0; k < chunks; k++) {
        if (k >= IN_SLOTS)
            sl_add_await(h->s, 0, leader, k - IN_SLOTS + 1, SL_NO_DEP);
        put(h, k, 0, sl_part_len(h->shape->count, h->chunk, k));
        sl_add_post(h->s, 0, k + 1, SL_NO_DEP);
    }
    for (uint32_t k = 0; k < chunks; k++) {
        sl_add_await(h->s, 0, leader, chunks + k + 1, SL_NO_DEP);
        get(h, k, 0);
        sl_add_post(h->s, 0, chunks + k + 1, SL_NO_DEP);
    }
}

static int hier_steps(struct hier *h)
{
    struct sl_schedule *s = h->s;
    uint32_t *ring_at = calloc(h->chunks + 1, sizeof(*ring_at));

    if (ring_at == NULL)
        return sl_fail(-ENOMEM, "no memory for %llu chunks", (unsigned long long)h->chunks);
    int rc = sl_hier_group(s, h->shape, &h->map);
    if (rc != 0) {
        free(ring_at);
        return rc;
    }
    if (h->map.local > 1)
        s->win_count = h->base + IN_SLOTS * h->in_slot + OUT_SLOTS * h->out_slot;
    if (h->rails)
        rails(h, ring_at);
    else if (h->map.idx == 0)
        lead(h, ring_at);
    else
        follow(h);
    free(ring_at);
    return sl_schedule_finish(s);
}

static int allreduce_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct hier h = {.s = out, .shape = shape};
    int rc = hier_map(&h);

    if (rc != 0)
        return rc;
    if (hier_cut(&h))
        rc = hier_steps(&h);
    else
        rc = sl_fail(-ENOTSUP, "hier needs larger windows than %llu elements",
                     (unsigned long long)shape->win_count);
    hier_fini(&h);
    return rc;
}

static double allreduce_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    struct hier h = {.shape = shape};
    double bytes = (double)shape->count * shape->esize, crowd = sl_cost_crowd(costs);

    if (shape->host == NULL || sl_one_host(shape) || hier_map(&h) != 0)
        return -1;
    bool fits = hier_cut(&h);
    hier_fini(&h);
    if (!fits)
        return -1;
    double g = h.map.most, hosts = h.map.hosts, chunks = (double)h.chunks;
    double share = h.rails ? bytes / g : bytes;
    double inside = h.rails
                        ? crowd * (2 * (g - 1) / g * bytes * costs->copy + bytes * costs->reduce)
                        : g * bytes * costs->reduce + 2 * crowd * bytes * costs->copy;
    /* The ranks of a host share its wire: together they carry the vector. */
    double wire = 2 * (hosts - 1) / hosts * bytes * costs->net.beta +
                  (hosts - 1) / hosts * share * costs->reduce;
    return inside + wire + crowd * 2 * chunks * costs->sync +
           2 * (hosts - 1) * (costs->net.alpha + chunks * 2 * costs->step);
}

static int hier_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "hier");
    if (shape->count == 0)
        return 0;
    switch (shape->coll) {
    case SL_ALLREDUCE: return allreduce_build(shape, out);
    case SL_BROADCAST:
    case SL_REDUCE: return sl_hier_lead_build(shape, false, out);
    default: return sl_hier_blocks_build(shape, out);
    }
}

static double hier_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    if (shape->count == 0)
        return -1;
    switch (shape->coll) {
    case SL_ALLREDUCE: return allreduce_cost(shape, costs);
    case SL_BROADCAST:
    case SL_REDUCE: return sl_hier_lead_cost(shape, false, costs);
    default: return sl_hier_blocks_cost(shape, costs);
    }
}

const struct sl_algo sl_algo_hier = {
    .name = "hier",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_ALL_GATHER) | SL_BIT(SL_REDUCE_SCATTER) |
             SL_BIT(SL_BROADCAST) | SL_BIT(SL_REDUCE),
    .needs_windows = true,
    .source = "",
    .build = hier_build,
    .cost = hier_cost,
};
