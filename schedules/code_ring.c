/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring of encodings: what is on the way is decoded, added to and encoded again at each hop.
 *
 * Shard b begins at rank b + 1, which encodes its elements of it. Each rank on the way decodes what
 * comes, adds its own elements as they are, and encodes the sum for the next one. Rank b completes
 * it, encodes it once, and these bytes go round as they are: all decode them, rank b too.
 *
 *   IN ─encode─ wire ┄ wire ─decode, add IN─ TMP ─encode─ wire ┄ ... ┄ wire ─decode─ OUT
 *      GIVE    SENDS  RECVS      HOPS                                        TAKE
 *
 * A rank has two neighbours, whatever the number of ranks is, and sends as many bytes as in one
 * shot (oneshot.c); but a value goes through the codec at each hop, so that the error grows with
 * the ranks: it is for those who ask for it. reduce_scatter is the first half.
 *
 * Pieces of all shards go round in batches: while one is encoded, others are on the wire. What a
 * step writes was read a batch's messages ago, and messages of both halves meet in one order, so
 * nothing waits in a circle; passing on takes two places a piece, since a place is free only once
 * the next rank has its bytes.
 *
 * P. Patarasuk, X. Yuan, JPDC 69(2), 2009, for the ring.
 */
#include "schedules/code_cost.h"
#include "schedules/pieces.h"

#include "core/err.h"

enum { HOPS, TAKE, GIVE, SENDS, RECVS }; /* channels */

#define PARTS 4 /* of a shard that is not long, so that they overlap */
#define SUMS 2  /* places for sums */

/* Places of the wire that are used in turns. */
struct turns {
    struct sl_slot slots[2 * SL_AHEAD_MOST];
    uint32_t sent[2 * SL_AHEAD_MOST]; /* step that sends from there, where another reads it, too */
    uint32_t count, next;
};

struct ring {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    uint32_t next, prev; /* ranks */
    uint64_t shard;      /* elements of the longest one */
    uint64_t stride;     /* from shard to shard */
    uint64_t tiles;      /* of a shard, as the codec numbers them */
    uint64_t piece, pieces;
    uint64_t batch;          /* pieces of a shard that go round together */
    struct turns came, made; /* sums that are on the way */
    struct turns done;       /* complete, made here or passed on */
    uint32_t read[SUMS];     /* step that read the sum last */
    uint32_t sums;           /* so far */
};

/* The rank whose shard this one has after so many hops, from its own neighbour's on. */
static uint32_t behind(const struct ring *ring, uint32_t hops)
{
    return (ring->shape->rank + 2 * ring->shape->size - hops) % ring->shape->size;
}

static uint64_t piece_len(const struct ring *ring, uint32_t owner, uint64_t piece)
{
    uint64_t shard = ring->shape->coll == SL_ALLREDUCE
                         ? sl_part_len(ring->shape->count, ring->stride, owner)
                         : ring->shard;

    return sl_part_len(shard, ring->piece, piece);
}

static uint64_t piece_at(const struct ring *ring, uint32_t owner, uint64_t piece)
{
    return owner * ring->stride + piece * ring->piece;
}

static uint64_t tile_of(const struct ring *ring, uint32_t owner, uint64_t piece)
{
    return owner * ring->tiles + piece * (ring->piece / ring->shape->code->tile);
}

static struct sl_slot *turn(struct turns *turns, uint32_t **sent)
{
    uint32_t at = turns->next++ % turns->count;

    *sent = &turns->sent[at];
    return &turns->slots[at];
}

/* Encodes what is there once step `there` has ended, in turn. A tile is encoded once by a rank in
 * each stage, and in one stage alone. Returns the step. */
static uint32_t encode(struct ring *ring, unsigned channel, struct turns *turns, unsigned stage,
                       struct sl_place from, uint32_t owner, uint64_t piece, uint32_t there,
                       struct sl_slot **out)
{
    const struct sl_code *code = ring->shape->code;
    uint64_t len = piece_len(ring, owner, piece);
    uint32_t *sent;
    struct sl_slot *slot = turn(turns, &sent);

    slot->there = sl_add_encode(ring->s, channel, SL_CODE_RUNNER, from,
                                sl_slot_renew(slot, code, len), len, code->up_to, there);
    sl_in_stream(ring->s, stage, ring->shape->rank, tile_of(ring, owner, piece));
    sl_add_dep(ring->s, *sent);
    sl_add_dep(ring->s, slot->reader);
    *sent = sl_add_send_wire(ring->s, SENDS, ring->next, &slot->wire, len, slot->there);
    *out = slot;
    return slot->there;
}

/* This rank's elements of the shard that begins here. What is lost of them is kept as that of sums:
 * another number of ranks begins elsewhere. */
static void give(struct ring *ring, uint64_t piece)
{
    uint32_t owner = behind(ring, 1);
    struct sl_slot *slot;

    if (piece_len(ring, owner, piece) != 0)
        encode(ring, GIVE, &ring->made, 1, sl_in(piece_at(ring, owner, piece)), owner, piece,
               SL_NO_DEP, &slot);
}

/* What comes, and this rank's elements, added up there. Returns the step that completes it. */
static uint32_t add(struct ring *ring, uint32_t owner, uint64_t piece, struct sl_place to,
                    uint32_t free)
{
    uint64_t len = piece_len(ring, owner, piece);
    bool last = owner == ring->shape->rank;
    uint32_t own, *sent;
    struct sl_slot *slot = turn(&ring->came, &sent);

    slot->there =
        sl_add_recv_wire(ring->s, RECVS, ring->prev, sl_slot_renew(slot, ring->shape->code, len),
                         len, ring->shape->code->up_to, slot->reader);
    own = sl_add_copy(ring->s, HOPS, sl_in(piece_at(ring, owner, piece)), to, len, free);
    sl_by_runner(ring->s, SL_CODE_RUNNER);
    slot->reader = sl_add_decode_reduce(ring->s, HOPS, SL_CODE_RUNNER, &slot->wire, to, len,
                                        last ? SL_STEP_FINAL : 0, slot->there);
    sl_in_stream(ring->s, 0, ring->prev, tile_of(ring, owner, piece));
    sl_add_dep(ring->s, own);
    return slot->reader;
}

static void decode(struct ring *ring, struct sl_slot *slot, uint32_t owner, uint64_t piece)
{
    slot->reader = sl_add_decode(ring->s, TAKE, SL_CODE_RUNNER, &slot->wire,
                                 sl_out(piece_at(ring, owner, piece)),
                                 piece_len(ring, owner, piece), slot->there);
    sl_in_stream(ring->s, 0, owner, tile_of(ring, owner, piece));
}

/* The last sum of reduce_scatter is its result. */
static void deliver(struct ring *ring, uint64_t piece, struct sl_place sum, uint32_t *read)
{
    uint32_t rank = ring->shape->rank;
    struct sl_place out = sl_out(piece * ring->piece);

    if (!ring->s->wide_tmp) {
        add(ring, rank, piece, out, SL_NO_DEP);
        return;
    }
    *read = sl_add_copy(ring->s, HOPS, sum, out, piece_len(ring, rank, piece),
                        add(ring, rank, piece, sum, *read));
    sl_by_runner(ring->s, SL_CODE_RUNNER);
}

static void hop(struct ring *ring, uint32_t hops, uint64_t piece)
{
    uint32_t owner = behind(ring, hops + 2), which = ring->sums % SUMS, *read = &ring->read[which];
    struct sl_place sum = sl_tmp(which * ring->piece);
    bool last = owner == ring->shape->rank;
    struct sl_slot *slot;

    if (piece_len(ring, owner, piece) == 0)
        return;
    ring->sums++;
    if (last && ring->shape->coll == SL_REDUCE_SCATTER) {
        deliver(ring, piece, sum, read);
        return;
    }
    *read = encode(ring, HOPS, last ? &ring->done : &ring->made, last ? 2 : 1, sum, owner, piece,
                   add(ring, owner, piece, sum, *read), &slot);
    if (last)
        decode(ring, slot, owner, piece);
}

/* Others' complete shards, on to the next rank as they came. */
static void pass(struct ring *ring, uint32_t hops, uint64_t piece)
{
    uint32_t owner = behind(ring, hops + 1), *sent;
    uint64_t len = piece_len(ring, owner, piece);

    if (len == 0)
        return;
    struct sl_slot *slot = turn(&ring->done, &sent);

    slot->there =
        sl_add_recv_wire(ring->s, RECVS, ring->prev, sl_slot_renew(slot, ring->shape->code, len),
                         len, ring->shape->code->up_to, slot->reader);
    sl_add_dep(ring->s, *sent);
    *sent = SL_NO_DEP;
    if (hops + 2 < ring->shape->size)
        *sent = sl_add_send_wire(ring->s, SENDS, ring->next, &slot->wire, len, slot->there);
    decode(ring, slot, owner, piece);
}

/* Pieces [first, end) of all shards, all the way round. */
static void build_batch(struct ring *ring, uint64_t first, uint64_t end)
{
    uint32_t size = ring->shape->size;

    for (uint64_t p = first; p < end; p++)
        give(ring, p);
    for (uint32_t hops = 0; hops + 1 < size; hops++)
        for (uint64_t p = first; p < end; p++)
            hop(ring, hops, p);
    for (uint32_t hops = 0; ring->shape->coll == SL_ALLREDUCE && hops + 1 < size; hops++)
        for (uint64_t p = first; p < end; p++)
            pass(ring, hops, p);
}

static void turns_take(struct ring *ring, struct turns *turns, uint64_t count)
{
    const struct sl_code *code = ring->shape->code;

    turns->count = (uint32_t)count;
    for (uint32_t i = 0; i < turns->count; i++)
        turns->sent[i] = turns->slots[i].reader = SL_NO_DEP;
    sl_slots_take(ring->s, turns->slots, count,
                  code->bytes(code, sl_min(ring->piece, ring->shard)));
}

static void cut(struct ring *ring)
{
    const struct sl_shape *shape = ring->shape;
    bool all = shape->coll == SL_ALLREDUCE;

    ring->stride = all ? sl_code_shard(shape) : shape->count;
    ring->shard = sl_min(ring->stride, shape->count);
    ring->tiles = sl_ceil_div(ring->shard, shape->code->tile);
    ring->piece = sl_code_piece(shape, ring->shard, PARTS);
    ring->pieces = sl_ceil_div(ring->shard, ring->piece);
    ring->batch = sl_min(ring->pieces, sl_code_ahead(shape, ring->piece, all ? 4 : 2));
    ring->s->wide_tmp = shape->esize != sizeof(float);
    ring->s->tmp_count = SUMS * ring->piece;
    turns_take(ring, &ring->came, ring->batch);
    turns_take(ring, &ring->made, ring->batch);
    turns_take(ring, &ring->done, all ? 2 * ring->batch : 0);
}

static int build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct ring ring = {
        .s = out,
        .shape = shape,
        .next = (shape->rank + 1) % shape->size,
        .prev = (shape->rank + shape->size - 1) % shape->size,
    };

    sl_schedule_init(out, "code_ring");
    if (shape->size < 2 || shape->code == NULL)
        return sl_fail(-ENOTSUP, "code_ring needs 2 ranks and a codec");
    if (shape->count == 0)
        return 0;
    for (unsigned i = 0; i < SUMS; i++)
        ring.read[i] = SL_NO_DEP;
    cut(&ring);
    for (uint64_t first = 0; first < ring.pieces; first += ring.batch)
        build_batch(&ring, first, sl_min(first + ring.batch, ring.pieces));
    return sl_schedule_finish(out);
}

/* Ranks of a host that send to another one: of the host that has most. */
static uint32_t crossings(const struct sl_shape *shape)
{
    uint32_t most = 0;

    for (uint32_t host = 0; shape->host != NULL && host < shape->size; host++) {
        uint32_t here = 0;

        for (uint32_t r = 0; r < shape->size; r++)
            here += shape->host[r] == host && shape->host[(r + 1) % shape->size] != host;
        most = here > most ? here : most;
    }
    return most;
}

/* All ranks send at once, and as fast as the slowest link. A hop of one piece has nothing to
 * overlap with. */
static double cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_code_work *work = &shape->code->work;
    bool all = shape->coll == SL_ALLREDUCE;

    if (shape->size < 2 || shape->count == 0)
        return -1;
    uint64_t shard = all ? sl_min(sl_code_shard(shape), shape->count) : shape->count;
    uint64_t pieces = sl_ceil_div(shard, sl_code_piece(shape, shard, PARTS));
    uint64_t summed = (shape->size - 1) * shard, hops = (all ? 2 : 1) * (shape->size - 1ull);
    uint32_t crossing = crossings(shape);
    const struct sl_link_cost *link = crossing != 0 ? &costs->net : &costs->shm;
    double crowd = sl_cost_crowd(costs);
    struct sl_code_time time = {
        .work = sl_code_work_ns(costs, (double)(all ? shape->count : summed), work->encode) +
                sl_code_work_ns(costs, (double)summed, work->add) +
                sl_code_work_ns(costs, (double)(all ? shape->count : 0), work->decode) +
                (double)(summed * sizeof(float)) * costs->copy * crowd,
        .latency = (double)hops * link->alpha * crowd,
        .rounds = (double)sl_min(pieces, PARTS)};

    sl_code_time_send(costs, link, shape->code, hops * shard, (double)(hops * pieces),
                      crossing != 0 ? crossing : 1, &time);
    return sl_code_time_total(&time);
}

/* Its error is that of (ranks + 1) / 2 encodings. */
static bool never(const struct sl_shape *shape)
{
    return false;
}

const struct sl_algo sl_algo_code_ring = {
    .name = "code_ring",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_REDUCE_SCATTER),
    .source = "Patarasuk, Yuan, JPDC 69(2), 2009",
    .recipe = "ring",
    .unasked = never,
    .build = build,
    .cost = cost,
};
