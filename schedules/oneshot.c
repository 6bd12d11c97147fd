/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives that send encodings: what is sent is encoded once where it is made, and passed on as
 * it came.
 *
 * allreduce: every rank encodes each shard of its vector for the rank that owns the shard. The
 * owner adds what all ranks gave, its own encoding too, in f32 and in the order of ranks, encodes
 * the sum once and gives the same bytes to all. All decode them, the owner too. So a value has gone
 * through the codec twice, whatever the number of ranks is, and all have the same bits.
 *
 *   IN ─encode─ wire ─to the owner─ wire ─decode, add─ TMP ─encode─ wire ─to all─ wire ─decode─ OUT
 *      GIVE           SENDS, RECVS        REDUCE            REDUCE        SENDS, RECVS   TAKE
 *
 * reduce_scatter is its first half, all_gather its second, all_to_all the first without a sum.
 *
 * Shards are cut into pieces of whole tiles, which overlap: so many rounds of pieces are under way
 * at once, and then places of the wire and of TMP are used again. REDUCE and TAKE come before GIVE,
 * so that a processor that encodes and decodes itself first does what peers wait for.
 */
#include "schedules/code_cost.h"
#include "schedules/pieces.h"

#include "core/err.h"

#include <stdlib.h>

enum { REDUCE, TAKE, GIVE, SENDS, RECVS }; /* channels */

#define PARTS 4 /* of a shard that is not long, so that they overlap */
#define SUMS 2  /* places for sums */

struct oneshot {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    const struct sl_code *code;
    uint64_t shard;  /* elements of the longest one */
    uint64_t stride; /* from shard to shard */
    uint64_t tiles;  /* of a shard, as the codec numbers them */
    uint64_t piece;
    uint64_t rounds;
    uint64_t ahead; /* of them are under way */
    /* [ahead * size] each: shards for their owners · of this rank's, by who gave them · of all,
     * complete; this rank's own is the one that it makes */
    struct sl_slot *give, *take, *done;
    uint32_t *sent;      /* [ahead * size]: steps that read this rank's own of done */
    uint32_t read[SUMS]; /* step that read the sum last */
};

static struct sl_slot *slot_of(const struct oneshot *o, struct sl_slot *slots, uint64_t round,
                               uint32_t rank)
{
    return &slots[round % o->ahead * o->shape->size + rank];
}

static uint64_t shard_len(const struct oneshot *o, uint32_t owner)
{
    return o->shape->coll == SL_ALLREDUCE ? sl_part_len(o->shape->count, o->stride, owner)
                                          : o->shard;
}

static uint64_t piece_len(const struct oneshot *o, uint32_t owner, uint64_t round)
{
    return sl_part_len(shard_len(o, owner), o->piece, round);
}

/* Where a piece lies in a buffer that has all shards. */
static uint64_t piece_at(const struct oneshot *o, uint32_t owner, uint64_t round)
{
    return owner * o->stride + round * o->piece;
}

/* A block of all_gather is all that its rank encodes. */
static uint64_t tile_of(const struct oneshot *o, uint32_t owner, uint64_t round)
{
    uint64_t first = o->shape->coll == SL_ALL_GATHER ? 0 : owner * o->tiles;

    return first + round * (o->piece / o->code->tile);
}

/* The owner's encodings have streams of their own, behind those of the ranks. */
static uint32_t owners_stream(const struct oneshot *o, uint32_t owner)
{
    return o->shape->coll == SL_ALL_GATHER ? owner : o->shape->size + owner;
}

/* This rank's part of every shard, to its owner. */
static void give(struct oneshot *o, uint64_t round)
{
    const struct sl_shape *shape = o->shape;

    for (uint32_t i = 1; i <= shape->size; i++) {
        uint32_t p = (shape->rank + i) % shape->size;
        uint64_t len = piece_len(o, p, round);
        struct sl_slot *slot = slot_of(o, o->give, round, p);

        if (len == 0 || (p == shape->rank && shape->coll == SL_ALL_TO_ALL))
            continue;
        slot->there =
            sl_add_encode(o->s, GIVE, SL_CODE_RUNNER, sl_in(piece_at(o, p, round)),
                          sl_slot_renew(slot, o->code, len), len, o->code->up_to, slot->reader);
        sl_in_stream(o->s, 0, shape->rank, tile_of(o, p, round));
        if (p != shape->rank)
            slot->reader = sl_add_send_wire(o->s, SENDS, p, &slot->wire, len, slot->there);
    }
}

/* What the others give of this rank's shard. */
static void receive(struct oneshot *o, uint64_t round)
{
    const struct sl_shape *shape = o->shape;
    uint64_t len = piece_len(o, shape->rank, round);

    for (uint32_t i = 1; len != 0 && i < shape->size; i++) {
        uint32_t r = (shape->rank + shape->size - i) % shape->size;
        struct sl_slot *slot = slot_of(o, o->take, round, r);

        slot->there = sl_add_recv_wire(o->s, RECVS, r, sl_slot_renew(slot, o->code, len), len,
                                       o->code->up_to, slot->reader);
    }
}

/* Adds what all gave, in the order of ranks. Returns the last step. */
static uint32_t sum(struct oneshot *o, uint64_t round, struct sl_place to, uint32_t free)
{
    uint32_t rank = o->shape->rank, size = o->shape->size, step = free;
    uint64_t len = piece_len(o, rank, round);
    const struct sl_slot *own = slot_of(o, o->give, round, rank);

    for (uint32_t r = 0; r < size; r++) {
        struct sl_slot *slot = slot_of(o, r == rank ? o->give : o->take, round, r);
        uint32_t before = step;

        if (r == 0)
            step = sl_add_decode(o->s, REDUCE, SL_CODE_RUNNER, &slot->wire, to, len, slot->there);
        else
            step = sl_add_decode_reduce(o->s, REDUCE, SL_CODE_RUNNER, &slot->wire, to, len,
                                        r + 1 == size ? SL_STEP_FINAL : 0, slot->there);
        sl_in_stream(o->s, 0, r, tile_of(o, rank, round));
        sl_add_dep(o->s, before);
        if (r == 0 && rank != 0 && to.buf == SL_BUF_OUT)
            sl_add_dep(o->s, own->there); /* in place the sum comes where its operand was */
        slot->reader = step;
    }
    return step;
}

/* Encodes this rank's complete shard once, for all. Returns the step that read it. */
static uint32_t publish(struct oneshot *o, uint64_t round, struct sl_place from, uint32_t there)
{
    uint32_t rank = o->shape->rank, size = o->shape->size;
    uint64_t len = piece_len(o, rank, round), tile = tile_of(o, rank, round);
    struct sl_slot *slot = slot_of(o, o->done, round, rank);
    uint32_t *sent = &o->sent[round % o->ahead * size], stream = owners_stream(o, rank);
    bool summed = o->shape->coll == SL_ALLREDUCE;

    slot->there = sl_add_encode(o->s, summed ? REDUCE : GIVE, SL_CODE_RUNNER, from,
                                sl_slot_renew(slot, o->code, len), len, o->code->up_to, there);
    sl_in_stream(o->s, summed ? 1 : 0, stream, tile);
    sl_add_dep(o->s, slot->reader);
    for (uint32_t p = 0; p < size; p++)
        sl_add_dep(o->s, sent[p]); /* NOLINT(clang-analyzer-core.CallAndMessage): build() set it */
    for (uint32_t i = 1; i < size; i++) {
        uint32_t p = (rank + i) % size;

        sent[p] = sl_add_send_wire(o->s, SENDS, p, &slot->wire, len, slot->there);
    }
    slot->reader = sl_add_decode(o->s, TAKE, SL_CODE_RUNNER, &slot->wire,
                                 sl_out(piece_at(o, rank, round)), len, slot->there);
    sl_in_stream(o->s, 0, stream, tile);
    return slot->there;
}

/* The others' complete shards. */
static void collect(struct oneshot *o, uint64_t round)
{
    const struct sl_shape *shape = o->shape;

    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t p = (shape->rank + shape->size - i) % shape->size;
        uint64_t len = piece_len(o, p, round);
        struct sl_slot *slot = slot_of(o, o->done, round, p);

        if (len == 0)
            continue;
        slot->there = sl_add_recv_wire(o->s, RECVS, p, sl_slot_renew(slot, o->code, len), len,
                                       o->code->up_to, slot->reader);
        slot->reader = sl_add_decode(o->s, TAKE, SL_CODE_RUNNER, &slot->wire,
                                     sl_out(piece_at(o, p, round)), len, slot->there);
        sl_in_stream(o->s, 0, owners_stream(o, p), tile_of(o, p, round));
    }
}

/* all_to_all: what each rank gave goes to its place. */
static void place(struct oneshot *o, uint64_t round)
{
    const struct sl_shape *shape = o->shape;
    uint64_t len = piece_len(o, shape->rank, round);

    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t r = (shape->rank + shape->size - i) % shape->size;
        struct sl_slot *slot = slot_of(o, o->take, round, r);

        slot->reader = sl_add_decode(o->s, TAKE, SL_CODE_RUNNER, &slot->wire,
                                     sl_out(piece_at(o, r, round)), len, slot->there);
        sl_in_stream(o->s, 0, r, tile_of(o, shape->rank, round));
        if (shape->in_place) /* this rank's elements for r lie there */
            sl_add_dep(o->s, slot_of(o, o->give, round, r)->there);
    }
}

/* The second half of a round: what the first half gave has come. */
static void end_round(struct oneshot *o, uint64_t round)
{
    uint32_t rank = o->shape->rank, *read = &o->read[round % SUMS];
    uint64_t len = piece_len(o, rank, round);
    struct sl_place scratch = sl_tmp(round % SUMS * o->piece);

    switch (o->shape->coll) {
    case SL_ALLREDUCE:
        if (len != 0)
            *read = publish(o, round, scratch, sum(o, round, scratch, *read));
        collect(o, round);
        break;
    case SL_REDUCE_SCATTER:
        if (!o->s->wide_tmp) {
            sum(o, round, sl_out(round * o->piece), SL_NO_DEP);
            break;
        }
        *read = sl_add_copy(o->s, REDUCE, scratch, sl_out(round * o->piece), len,
                            sum(o, round, scratch, *read));
        sl_by_runner(o->s, SL_CODE_RUNNER);
        break;
    case SL_ALL_GATHER:
        publish(o, round, sl_in(round * o->piece), SL_NO_DEP);
        collect(o, round);
        break;
    default: place(o, round);
    }
}

static void build_rounds(struct oneshot *o)
{
    bool gives = o->shape->coll != SL_ALL_GATHER;
    uint64_t ahead = gives ? o->ahead - 1 : 0;

    for (uint64_t t = 0; t < o->rounds + ahead; t++) {
        if (gives && t < o->rounds) {
            give(o, t);
            receive(o, t);
        }
        if (t >= ahead)
            end_round(o, t - ahead);
    }
    if (o->shape->coll == SL_ALL_TO_ALL && !o->shape->in_place)
        sl_add_copy(o->s, RECVS + 1, sl_in(o->shape->rank * o->stride),
                    sl_out(o->shape->rank * o->stride), o->shard, SL_NO_DEP);
}

static void cut(struct oneshot *o)
{
    const struct sl_shape *shape = o->shape;
    o->shard = o->stride = shape->count;
    if (shape->coll == SL_ALLREDUCE) {
        o->stride = sl_code_shard(shape);
        o->shard = sl_min(o->stride, shape->count);
    }
    o->tiles = sl_ceil_div(o->shard, o->code->tile);
    o->piece = sl_code_piece_for_all(shape, o->shard, PARTS);
    o->rounds = sl_ceil_div(o->shard, o->piece);
    o->ahead = sl_code_ahead(shape, o->piece, 2 * (uint64_t)shape->size);
    o->s->wide_tmp = shape->esize != sizeof(float);
    if (shape->coll == SL_ALLREDUCE || (shape->coll == SL_REDUCE_SCATTER && o->s->wide_tmp))
        o->s->tmp_count = SUMS * o->piece;
}

static int build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct oneshot o = {.s = out, .shape = shape, .code = shape->code};

    sl_schedule_init(out, "oneshot");
    if (shape->size < 2 || shape->code == NULL)
        return sl_fail(-ENOTSUP, "oneshot needs 2 ranks and a codec");
    if (shape->count == 0)
        return 0;
    cut(&o);
    size_t slots = o.ahead * shape->size;

    o.give = calloc(3 * slots, sizeof(*o.give));
    o.sent = malloc(slots * sizeof(*o.sent));
    if (o.give == NULL || o.sent == NULL) {
        free(o.give);
        free(o.sent);
        return sl_fail(-ENOMEM, "no memory to plan for %u ranks", shape->size);
    }
    o.take = o.give + slots;
    o.done = o.take + slots;
    for (size_t i = 0; i < slots; i++)
        o.sent[i] = o.give[i].reader = o.take[i].reader = o.done[i].reader = SL_NO_DEP;
    for (unsigned i = 0; i < SUMS; i++)
        o.read[i] = SL_NO_DEP;
    uint64_t len = o.code->bytes(o.code, sl_min(o.piece, o.shard));
    uint64_t used = sl_min(o.ahead, o.rounds) * shape->size;

    if (shape->coll != SL_ALL_GATHER) {
        sl_slots_take(out, o.give, used, len);
        sl_slots_take(out, o.take, used, len);
    }
    if (shape->coll == SL_ALLREDUCE || shape->coll == SL_ALL_GATHER)
        sl_slots_take(out, o.done, used, len);
    build_rounds(&o);
    free(o.give);
    free(o.sent);
    return sl_schedule_finish(out);
}

/* Elements that a rank encodes, adds, decodes and sends: of the rank whose shard is the longest. */
struct amounts {
    uint64_t encoded, added, decoded, sent, shard;
    unsigned phases; /* in which every rank sends to every other */
};

static struct amounts amounts_of(const struct sl_shape *shape)
{
    uint64_t n = shape->size, count = shape->count, others = (n - 1) * count;
    uint64_t shard = sl_min(sl_code_shard(shape), count);

    switch (shape->coll) {
    case SL_ALLREDUCE: /* the first operand of a sum is decoded, not added */
        return (struct amounts){.encoded = count + shard,
                                .added = (n - 1) * shard,
                                .decoded = shard + count,
                                .sent = count - shard + (n - 1) * shard,
                                .shard = shard,
                                .phases = 2};
    case SL_REDUCE_SCATTER:
        return (struct amounts){n * count, (n - 1) * count, count, others, count, 1};
    case SL_ALL_GATHER: return (struct amounts){count, 0, n * count, others, count, 1};
    default: return (struct amounts){others, 0, others, others, count, 1};
    }
}

static double cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_code_work *work = &shape->code->work;

    if (shape->size < 2 || shape->count == 0)
        return -1;
    struct amounts all = amounts_of(shape);
    double rounds = (double)sl_ceil_div(all.shard, sl_code_piece_for_all(shape, all.shard, PARTS));
    struct sl_code_time time = {.work = sl_code_work_ns(costs, (double)all.encoded, work->encode) +
                                        sl_code_work_ns(costs, (double)all.added, work->add) +
                                        sl_code_work_ns(costs, (double)all.decoded, work->decode),
                                .latency = all.phases * sl_cost_link(shape, costs)->alpha *
                                           sl_cost_crowd(costs),
                                .rounds = rounds};

    sl_code_time_send_all(shape, costs, shape->code, all.sent,
                          all.phases * (shape->size - 1.0) * rounds, &time);
    return sl_code_time_total(&time);
}

const struct sl_algo sl_algo_oneshot = {
    .name = "oneshot",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_REDUCE_SCATTER) | SL_BIT(SL_ALL_GATHER) |
             SL_BIT(SL_ALL_TO_ALL),
    .source = "",
    .recipe = "oneshot",
    .build = build,
    .cost = cost,
};
