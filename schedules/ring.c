/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings: bandwidth-optimal allreduce, reduce_scatter and all_gather, one way or both ways round,
 * and pipelined chains for broadcast and reduce.
 *
 * P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * J. Parallel Distrib. Comput. 69(2), 2009. Blocks travel in pieces, so that a piece is reduced
 * while the next one is on the wire; a piece is sent on as soon as it alone has arrived.
 *
 * Block b begins at rank b + 1, passes b + 2, …, and is complete at rank b. Each sum is
 * computed once, so all ranks get the same bits whatever the operand order is; incoming is
 * put first, which makes it a plain running sum.
 */
#include "schedules/build.h"

#include "core/err.h"

#define RING_PIECE_BYTES (128 * 1024)
/* Pieces of a chain's reduction that may be in TMP at once: received, waiting, being sent. */
#define CHAIN_SLOTS 4

/* One direction round the ring, over a part of the vector. */
struct ring {
    struct sl_schedule *s;
    uint32_t size, pos;  /* pos counts ranks in the direction of travel */
    uint32_t next, prev; /* ranks */
    bool backward;
    unsigned send_channel, recv_channel;
    uint64_t base; /* block b is [base + b * stride, + block_len) */
    uint64_t stride, width;
    uint64_t limit; /* blocks end here, counted from base */
    uint64_t piece;
    uint8_t from;   /* where this rank's operand is: SL_BUF_IN, or SL_BUF_OUT */
    uint32_t start; /* … once this step has ended, or SL_NO_DEP */
};

static uint64_t block_of(const struct ring *ring, uint32_t pos)
{
    return ring->backward ? (ring->size - pos) % ring->size : pos;
}

static uint64_t block_off(const struct ring *ring, uint32_t pos)
{
    return ring->base + block_of(ring, pos) * ring->stride;
}

static uint64_t block_len(const struct ring *ring, uint32_t pos)
{
    uint64_t start = block_of(ring, pos) * ring->stride;

    return start >= ring->limit ? 0 : sl_min(ring->width, ring->limit - start);
}

/* Position `back` steps behind this one. */
static uint32_t pos_behind(const struct ring *ring, uint32_t back)
{
    return (ring->pos + 2 * ring->size - back) % ring->size;
}

/* Sends a block in pieces; piece i waits for step first_dep + i, or all for the ring's start when
 * first_dep is SL_NO_DEP. Returns the first send. */
static uint32_t send_block(const struct ring *ring, struct sl_place src, uint64_t len,
                           uint32_t first_dep)
{
    uint32_t first = ring->s->step_count, i = 0;

    for (uint64_t off = 0; off < len; off += ring->piece, i++) {
        sl_add_send(ring->s, ring->send_channel, ring->next,
                    (struct sl_place){src.buf, src.off + off}, sl_min(ring->piece, len - off),
                    first_dep == SL_NO_DEP ? ring->start : first_dep + i);
    }
    return first;
}

/* The reduce-scatter half: leaves block pos complete at dst_final (or, when acc is SL_BUF_OUT, in
 * its place of OUT). Partial sums go to OUT in place, or through two slots of TMP. Returns the
 * first of the steps that complete this rank's block. */
static uint32_t reduce_scatter_phase(const struct ring *ring, uint8_t acc, uint64_t tmp_base,
                                     struct sl_place dst_final)
{
    uint32_t got = SL_NO_DEP, sent_before = SL_NO_DEP;

    for (uint32_t step = 0; step + 1 < ring->size; step++) {
        uint32_t give = pos_behind(ring, step + 1), take = pos_behind(ring, step + 2);
        bool last = step + 2 == ring->size;
        struct sl_place src = {ring->from, block_off(ring, give)};
        struct sl_place dst = dst_final;

        if (step > 0)
            src = acc == SL_BUF_OUT ? sl_out(block_off(ring, give))
                                    : sl_tmp(tmp_base + (step - 1) % 2 * ring->width);
        uint32_t sent = send_block(ring, src, block_len(ring, give), got);

        if (acc == SL_BUF_OUT)
            dst = sl_out(block_off(ring, take));
        else if (!last)
            dst = sl_tmp(tmp_base + step % 2 * ring->width);
        uint64_t len = block_len(ring, take);
        uint32_t first = ring->s->step_count, i = 0;
        for (uint64_t off = 0; off < len; off += ring->piece, i++) {
            /* A slot of TMP is free once the send that read it two steps ago has ended. */
            uint32_t dep = acc == SL_BUF_TMP && !last && step >= 2 ? sent_before + i : ring->start;
            sl_add_recv_reduce(ring->s, ring->recv_channel, ring->prev,
                               (struct sl_place){ring->from, block_off(ring, take) + off},
                               (struct sl_place){dst.buf, dst.off + off},
                               sl_min(ring->piece, len - off),
                               SL_STEP_REMOTE_FIRST | (last ? SL_STEP_FINAL : 0), dep);
        }
        got = first;
        sent_before = sent;
    }
    return got;
}

/* The all-gather half: block pos is in `own` once the steps from `got` on have ended. */
static void all_gather_phase(const struct ring *ring, struct sl_place own, uint32_t got)
{
    for (uint32_t step = 0; step + 1 < ring->size; step++) {
        uint32_t give = pos_behind(ring, step), take = pos_behind(ring, step + 1);
        struct sl_place src = step == 0 ? own : sl_out(block_off(ring, give));

        send_block(ring, src, block_len(ring, give), got);
        got = ring->s->step_count;
        uint64_t len = block_len(ring, take);
        for (uint64_t off = 0; off < len; off += ring->piece)
            sl_add_recv(ring->s, ring->recv_channel, ring->prev,
                        sl_out(block_off(ring, take) + off), sl_min(ring->piece, len - off),
                        SL_NO_DEP);
    }
}

static void ring_init(struct ring *ring, struct sl_schedule *s, const struct sl_shape *shape,
                      bool backward)
{
    uint32_t up = (shape->rank + 1) % shape->size;
    uint32_t down = (shape->rank + shape->size - 1) % shape->size;

    *ring = (struct ring){
        .s = s,
        .size = shape->size,
        .pos = backward ? (shape->size - shape->rank) % shape->size : shape->rank,
        .next = backward ? down : up,
        .prev = backward ? up : down,
        .backward = backward,
        .send_channel = backward ? 2 : 0,
        .recv_channel = backward ? 3 : 1,
        .piece = sl_piece(shape, RING_PIECE_BYTES),
        .from = SL_BUF_IN,
        .start = SL_NO_DEP,
    };
}

/* Rounds down to whole cache lines where that leaves something. */
static uint64_t half_of(const struct sl_shape *shape, uint64_t count)
{
    uint64_t line = shape->esize < 64 ? 64 / shape->esize : 1, half = count / 2;

    return half > line ? half - half % line : half;
}

/* One direction over elements [from, from + count) of the vector, or of each block. */
static void ring_part(struct sl_schedule *s, const struct sl_shape *shape, bool backward,
                      uint64_t from, uint64_t count)
{
    struct ring ring;

    if (count == 0)
        return;
    ring_init(&ring, s, shape, backward);
    ring.base = from;
    if (shape->coll == SL_ALLREDUCE) {
        ring.stride = ring.width = sl_part_width(count, shape->size, shape->esize);
        ring.limit = count;
        uint32_t got = reduce_scatter_phase(&ring, SL_BUF_OUT, 0, sl_out(0));
        all_gather_phase(&ring, sl_out(block_off(&ring, ring.pos)), got);
        return;
    }
    ring.stride = shape->count;
    ring.width = count;
    ring.limit = UINT64_MAX;
    if (shape->coll == SL_REDUCE_SCATTER) {
        if (shape->size > 2) {
            reduce_scatter_phase(&ring, SL_BUF_TMP, s->tmp_count, sl_out(from));
            s->tmp_count += shape->size > 3 ? 2 * count : count;
        } else {
            reduce_scatter_phase(&ring, SL_BUF_TMP, 0, sl_out(from));
        }
        return;
    }
    all_gather_phase(&ring, sl_in(from), SL_NO_DEP);
}

static void own_block(struct sl_schedule *s, const struct sl_shape *shape)
{
    if (shape->coll == SL_ALL_GATHER && !shape->in_place && shape->count > 0)
        sl_add_copy(s, s->channel_count, sl_in(0), sl_out(shape->rank * shape->count), shape->count,
                    SL_NO_DEP);
}

void sl_ring_between(struct sl_schedule *s, const struct sl_shape *shape, const uint32_t *members,
                     uint32_t size, uint32_t idx, uint64_t base, uint64_t count, uint32_t start)
{
    uint64_t width = sl_part_width(count, size, shape->esize);
    struct ring ring = {
        .s = s,
        .size = size,
        .pos = idx,
        .next = members[(idx + 1) % size],
        .prev = members[(idx + size - 1) % size],
        .send_channel = 1,
        .recv_channel = 2,
        .base = base,
        .stride = width,
        .width = width,
        .limit = count,
        .piece = sl_piece(shape, RING_PIECE_BYTES),
        .from = SL_BUF_OUT,
        .start = start,
    };
    uint32_t got = reduce_scatter_phase(&ring, SL_BUF_OUT, 0, sl_out(0));

    all_gather_phase(&ring, sl_out(block_off(&ring, ring.pos)), got);
}

static void chain_broadcast(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint64_t piece = sl_piece(shape, RING_PIECE_BYTES);
    uint32_t pos = (shape->rank + shape->size - shape->root) % shape->size;
    uint32_t next = (shape->rank + 1) % shape->size;
    uint32_t prev = (shape->rank + shape->size - 1) % shape->size;

    for (uint64_t off = 0; off < shape->count; off += piece) {
        uint64_t len = sl_min(piece, shape->count - off);
        uint32_t got = SL_NO_DEP;
        if (pos > 0)
            got = sl_add_recv(s, 1, prev, sl_out(off), len, SL_NO_DEP);
        if (pos + 1 < shape->size)
            sl_add_send(s, 0, next, pos == 0 ? sl_in(off) : sl_out(off), len, got);
    }
    if (pos == 0 && !shape->in_place)
        sl_add_copy(s, 2, sl_in(0), sl_out(0), shape->count, SL_NO_DEP);
}

/* Sums travel down the ranks: root + size - 1 first, root last. */
static void chain_reduce(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint64_t piece = sl_piece(shape, RING_PIECE_BYTES);
    uint32_t pos = (shape->rank + shape->size - shape->root) % shape->size;
    uint32_t above = (shape->rank + 1) % shape->size;
    uint32_t below = (shape->rank + shape->size - 1) % shape->size;
    uint32_t sent[CHAIN_SLOTS], idx = 0;

    for (uint64_t off = 0; off < shape->count; off += piece, idx++) {
        uint64_t len = sl_min(piece, shape->count - off);
        struct sl_place dst = sl_tmp(idx % CHAIN_SLOTS * piece);
        uint32_t got = SL_NO_DEP;

        if (pos == 0) {
            sl_add_recv_reduce(s, 1, above, sl_in(off), sl_out(off), len, SL_STEP_FINAL, SL_NO_DEP);
            continue;
        }
        if (pos + 1 < shape->size)
            got = sl_add_recv_reduce(s, 1, above, sl_in(off), dst, len, 0,
                                     idx < CHAIN_SLOTS ? SL_NO_DEP : sent[idx % CHAIN_SLOTS]);
        else
            dst = sl_in(off);
        sent[idx % CHAIN_SLOTS] = sl_add_send(s, 0, below, dst, len, got);
    }
    if (pos > 0 && pos + 1 < shape->size)
        s->tmp_count = sl_min(CHAIN_SLOTS * piece, sl_ceil_div(shape->count, piece) * piece);
}

static int ring_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "ring");
    if (shape->size < 2)
        return sl_fail(-ENOTSUP, "a ring needs 2 ranks");
    if (shape->count == 0)
        return 0;
    if (shape->coll == SL_BROADCAST)
        chain_broadcast(out, shape);
    else if (shape->coll == SL_REDUCE)
        chain_reduce(out, shape);
    else
        ring_part(out, shape, false, 0, shape->count);
    own_block(out, shape);
    return sl_schedule_finish(out);
}

static int biring_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    uint64_t half = half_of(shape, shape->count);

    sl_schedule_init(out, "biring");
    if (shape->size < 3)
        return sl_fail(-ENOTSUP, "a bidirectional ring needs 3 ranks, of which no two share both "
                                 "links; ring does the same for 2");
    ring_part(out, shape, false, 0, shape->count - half);
    ring_part(out, shape, true, shape->count - half, half);
    own_block(out, shape);
    return sl_schedule_finish(out);
}

/* A block passes through size - 1 links; its pieces overlap wire and reduction, so that each step
 * costs the slower of the two, and the faster one only for the piece that cannot overlap. */
static double ring_steps(const struct sl_shape *shape, const struct sl_costs *costs, double bytes,
                         bool reduce)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double crowd = sl_cost_crowd(costs);
    double piece = (double)(sl_piece(shape, RING_PIECE_BYTES) * shape->esize);
    double wire = link->beta * (link == &costs->shm ? crowd : 1);
    double math = reduce ? costs->reduce * crowd : 0;
    double slow = wire > math ? wire : math, fast = wire > math ? math : wire;
    double pieces = bytes / piece < 1 ? 1 : bytes / piece;

    return link->alpha * crowd + bytes * slow + (bytes < piece ? bytes : piece) * fast +
           2 * pieces * costs->step * crowd;
}

static double ring_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    double n = shape->size, bytes = (double)shape->count * shape->esize;

    if (shape->size < 2)
        return -1;
    switch (shape->coll) {
    case SL_ALLREDUCE:
        return (n - 1) * (ring_steps(shape, costs, bytes / n, true) +
                          ring_steps(shape, costs, bytes / n, false));
    case SL_REDUCE_SCATTER: return (n - 1) * ring_steps(shape, costs, bytes, true);
    case SL_ALL_GATHER: return (n - 1) * ring_steps(shape, costs, bytes, false);
    default: {
        /* A chain is filled by one piece per link, then all links work at once. */
        double piece = (double)(sl_piece(shape, RING_PIECE_BYTES) * shape->esize);
        bool reduce = shape->coll == SL_REDUCE;
        if (piece > bytes)
            piece = bytes;
        return (n - 2) * ring_steps(shape, costs, piece, reduce) +
               ring_steps(shape, costs, bytes, reduce);
    }
    }
}

/* Both directions at once pay only where a rank has two links; over one NIC or one memory the
 * bytes are the same, and there are twice as many messages. */
static double biring_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    if (shape->size < 3)
        return -1;
    return ring_cost(shape, costs) +
           2 * (shape->size - 1) * (costs->step + sl_cost_link(shape, costs)->alpha / 2);
}

const struct sl_algo sl_algo_ring = {
    .name = "ring",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_REDUCE_SCATTER) | SL_BIT(SL_ALL_GATHER) |
             SL_BIT(SL_BROADCAST) | SL_BIT(SL_REDUCE),
    .source = "Patarasuk, Yuan, JPDC 69(2), 2009",
    .build = ring_build,
    .cost = ring_cost,
};

const struct sl_algo sl_algo_biring = {
    .name = "biring",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_REDUCE_SCATTER) | SL_BIT(SL_ALL_GATHER),
    .source = "Patarasuk, Yuan, JPDC 69(2), 2009, both ways round",
    .build = biring_build,
    .cost = biring_cost,
};
