/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce by encodings among hosts with the same number of ranks each: between hosts a host sends
 * its sum, not every rank's elements, so that a link carries a rank's share of them.
 *
 * Shards belong to ranks, as in oneshot.c. A rank first adds what the ranks of its host have of the
 * shards of all ranks with its place on their hosts (LOCAL), by the inner code. Of each such sum it
 * sends an encoding to the owner, which adds those of all hosts in their order (REDUCE), encodes
 * the sum once, and gives the bytes to its host and to the ranks with its place. These pass them on
 * to their hosts as they came. All decode them.
 *
 *   IN ─inner─ host ─add─ TMP ─code─ owner ─add─ TMP ─code─ its place ─as it came─ hosts ─ OUT
 */
#include "schedules/code_cost.h"
#include "schedules/pieces.h"

#include "core/err.h"

#include <stdlib.h>

enum { REDUCE, LOCAL, TAKE, GIVE, SENDS, RECVS }; /* channels */

#define LAG 2 /* rounds from what is given to a host's sum, and from there to the owner's */
#define AHEAD (2 * LAG + 1) /* rounds under way */
#define SUMS 2              /* places for sums of each kind */

struct hosts {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    const struct sl_code *code, *inner;
    uint32_t hosts, locals; /* how many, and ranks on each */
    uint32_t host, local;   /* of this rank */
    uint32_t *ranks;        /* [hosts][locals] */
    uint64_t stride, tiles, piece, rounds;
    struct sl_slot *give; /* [AHEAD][ranks]: this rank's elements, by the owner */
    struct sl_slot *take; /* [AHEAD][ranks]: of its host's ranks, [locals][hosts] */
    struct sl_slot *sums; /* [AHEAD][hosts]: this host's, by the owner's host */
    struct sl_slot *came; /* [AHEAD][hosts]: for this rank, by whose sum it is */
    struct sl_slot *done; /* [AHEAD][ranks]: complete, by the owner */
    uint32_t *sent;       /* [AHEAD][hosts][hosts + locals]: sends of done of this place's ranks */
    uint32_t local_read[SUMS], read[SUMS]; /* steps that read the sums in TMP last */
    uint32_t local_sums;                   /* so far */
};

static uint32_t rank_at(const struct hosts *h, uint32_t host, uint32_t local)
{
    return h->ranks[host * h->locals + local];
}

/* Shards of one place on all hosts lie side by side. */
static uint64_t place_of(const struct hosts *h, uint32_t host, uint32_t local)
{
    return local * h->hosts + host;
}

static uint64_t piece_len(const struct hosts *h, uint64_t place, uint64_t round)
{
    return sl_part_len(sl_part_len(h->shape->count, h->stride, place), h->piece, round);
}

static uint64_t piece_at(const struct hosts *h, uint64_t place, uint64_t round)
{
    return place * h->stride + round * h->piece;
}

static void in_stream(const struct hosts *h, unsigned stage, uint32_t rank, uint64_t place,
                      uint64_t round)
{
    sl_in_stream(h->s, stage, stage * h->shape->size + rank,
                 piece_at(h, place, round) / h->code->tile);
}

/* As in_stream(), for what decodes an encoding of that stage. */
static void from_stream(const struct hosts *h, unsigned stage, uint32_t rank, uint64_t place,
                        uint64_t round)
{
    sl_in_stream(h->s, 0, stage * h->shape->size + rank, piece_at(h, place, round) / h->code->tile);
}

/* This rank's elements of every shard, to the rank of its host that adds them up. */
static void give(struct hosts *h, uint64_t round)
{
    for (uint32_t i = 1; i <= h->locals; i++) {
        uint32_t local = (h->local + i) % h->locals;

        for (uint32_t host = 0; host < h->hosts; host++) {
            uint64_t place = place_of(h, host, local), len = piece_len(h, place, round);
            struct sl_slot *slot = &h->give[round % AHEAD * h->shape->size + place];

            if (len == 0)
                continue;
            slot->there = sl_add_encode(
                h->s, GIVE, SL_INNER_RUNNER, sl_in(piece_at(h, place, round)),
                sl_slot_renew(slot, h->inner, len), len, h->inner->up_to, slot->reader);
            in_stream(h, 0, h->shape->rank, place, round);
            if (local != h->local)
                slot->reader = sl_add_send_wire(h->s, SENDS, rank_at(h, h->host, local),
                                                &slot->wire, len, slot->there);
        }
    }
}

static struct sl_slot *taken(const struct hosts *h, uint64_t round, uint32_t local, uint32_t host)
{
    if (local == h->local)
        return &h->give[round % AHEAD * h->shape->size + place_of(h, host, local)];
    return &h->take[round % AHEAD * h->shape->size + local * h->hosts + host];
}

static void receive(struct hosts *h, uint64_t round)
{
    for (uint32_t i = 1; i < h->locals; i++) {
        uint32_t local = (h->local + h->locals - i) % h->locals;

        for (uint32_t host = 0; host < h->hosts; host++) {
            uint64_t len = piece_len(h, place_of(h, host, h->local), round);
            struct sl_slot *slot = taken(h, round, local, host);

            if (len != 0)
                slot->there = sl_add_recv_wire(h->s, RECVS, rank_at(h, h->host, local),
                                               sl_slot_renew(slot, h->inner, len), len,
                                               h->inner->up_to, slot->reader);
        }
    }
}

/* One step of a sum: the first operand is put there, the others are added. */
static uint32_t add(const struct hosts *h, unsigned channel, unsigned runner, struct sl_slot *slot,
                    struct sl_place to, uint64_t len, bool first, unsigned flags, uint32_t before)
{
    slot->reader = first ? sl_add_decode(h->s, channel, runner, &slot->wire, to, len, slot->there)
                         : sl_add_decode_reduce(h->s, channel, runner, &slot->wire, to, len, flags,
                                                slot->there);
    sl_add_dep(h->s, before);
    return slot->reader;
}

/* What this host has of the shards of its place, encoded for their owners. */
static void local_sums(struct hosts *h, uint64_t round)
{
    for (uint32_t i = 1; i <= h->hosts; i++) {
        uint32_t host = (h->host + i) % h->hosts;
        uint64_t place = place_of(h, host, h->local), len = piece_len(h, place, round);
        struct sl_slot *slot = &h->sums[round % AHEAD * h->hosts + host];
        uint32_t which = h->local_sums % SUMS, step = h->local_read[which];
        struct sl_place to = sl_tmp((SUMS + which) * h->piece);

        if (len == 0)
            continue;
        h->local_sums++;
        for (uint32_t local = 0; local < h->locals; local++) {
            step = add(h, LOCAL, SL_INNER_RUNNER, taken(h, round, local, host), to, len, local == 0,
                       0, step);
            from_stream(h, 0, rank_at(h, h->host, local), place, round);
        }
        slot->there = h->local_read[which] =
            sl_add_encode(h->s, LOCAL, SL_CODE_RUNNER, to, sl_slot_renew(slot, h->code, len), len,
                          h->code->up_to, step);
        sl_add_dep(h->s, slot->reader);
        in_stream(h, 1, h->shape->rank, place, round);
        if (host != h->host)
            slot->reader = sl_add_send_wire(h->s, SENDS, rank_at(h, host, h->local), &slot->wire,
                                            len, slot->there);
    }
}

static void receive_sums(struct hosts *h, uint64_t round)
{
    uint64_t len = piece_len(h, place_of(h, h->host, h->local), round);

    for (uint32_t i = 1; len != 0 && i < h->hosts; i++) {
        uint32_t host = (h->host + h->hosts - i) % h->hosts;
        struct sl_slot *slot = &h->came[round % AHEAD * h->hosts + host];

        slot->there =
            sl_add_recv_wire(h->s, RECVS, rank_at(h, host, h->local),
                             sl_slot_renew(slot, h->code, len), len, h->code->up_to, slot->reader);
    }
}

/* The hosts' sums of this rank's shard, in the order of hosts, encoded once. */
static void sum(struct hosts *h, uint64_t round)
{
    uint32_t rank = h->shape->rank, which = round % SUMS, step = h->read[which];
    uint64_t place = place_of(h, h->host, h->local), len = piece_len(h, place, round);
    struct sl_slot *slot = &h->done[round % AHEAD * h->shape->size + place];
    struct sl_place to = sl_tmp(which * h->piece);

    for (uint32_t host = 0; host < h->hosts; host++) {
        struct sl_slot *from = host == h->host ? &h->sums[round % AHEAD * h->hosts + host]
                                               : &h->came[round % AHEAD * h->hosts + host];

        step = add(h, REDUCE, SL_CODE_RUNNER, from, to, len, host == 0,
                   host + 1 == h->hosts ? SL_STEP_FINAL : 0, step);
        from_stream(h, 1, rank_at(h, host, h->local), place, round);
    }
    slot->there = h->read[which] =
        sl_add_encode(h->s, REDUCE, SL_CODE_RUNNER, to, sl_slot_renew(slot, h->code, len), len,
                      h->code->up_to, step);
    in_stream(h, 2, rank, place, round);
}

/* Those who read a slot of done last must be through before the next step that writes it. */
static void after_readers(struct hosts *h, const struct sl_slot *slot, uint32_t *sent)
{
    sl_add_dep(h->s, slot->reader);
    for (uint32_t i = 0; sent != NULL && i < h->hosts + h->locals; i++)
        sl_add_dep(h->s, sent[i]);
}

static void decode(struct hosts *h, uint64_t round, uint32_t host, uint32_t local)
{
    uint64_t place = place_of(h, host, local);
    struct sl_slot *slot = &h->done[round % AHEAD * h->shape->size + place];

    slot->reader =
        sl_add_decode(h->s, TAKE, SL_CODE_RUNNER, &slot->wire, sl_out(piece_at(h, place, round)),
                      piece_len(h, place, round), slot->there);
    from_stream(h, 2, rank_at(h, host, local), place, round);
}

static void take_done(struct hosts *h, uint64_t round, uint32_t host, uint32_t local, uint32_t from,
                      uint32_t *sent)
{
    uint64_t place = place_of(h, host, local), len = piece_len(h, place, round);
    struct sl_slot *slot = &h->done[round % AHEAD * h->shape->size + place];

    slot->there = sl_add_recv_wire(h->s, RECVS, from, sl_slot_renew(slot, h->code, len), len,
                                   h->code->up_to, SL_NO_DEP);
    after_readers(h, slot, sent);
}

/* The complete shards of this place, its own first: to the hosts of the others, and to its own. */
static void spread(struct hosts *h, uint64_t round)
{
    for (uint32_t i = 0; i < h->hosts; i++) {
        uint32_t host = (h->host + h->hosts - i) % h->hosts;
        uint64_t place = place_of(h, host, h->local), len = piece_len(h, place, round);
        struct sl_slot *slot = &h->done[round % AHEAD * h->shape->size + place];
        uint32_t *sent = &h->sent[(round % AHEAD * h->hosts + host) * (h->hosts + h->locals)];

        if (len == 0)
            continue;
        if (host == h->host) {
            sum(h, round);
            after_readers(h, slot, sent);
        } else {
            take_done(h, round, host, h->local, rank_at(h, host, h->local), sent);
        }
        for (uint32_t to = 1; host == h->host && to < h->hosts; to++)
            sent[to] = sl_add_send_wire(h->s, SENDS, rank_at(h, (host + to) % h->hosts, h->local),
                                        &slot->wire, len, slot->there);
        for (uint32_t to = 1; to < h->locals; to++)
            sent[h->hosts + to] =
                sl_add_send_wire(h->s, SENDS, rank_at(h, h->host, (h->local + to) % h->locals),
                                 &slot->wire, len, slot->there);
        decode(h, round, host, h->local);
    }
}

/* Those of the other places, from the ranks of this host that have them. */
static void collect(struct hosts *h, uint64_t round)
{
    for (uint32_t i = 1; i < h->locals; i++) {
        uint32_t local = (h->local + h->locals - i) % h->locals;

        for (uint32_t j = 0; j < h->hosts; j++) {
            uint32_t host = (h->host + h->hosts - j) % h->hosts;

            if (piece_len(h, place_of(h, host, local), round) == 0)
                continue;
            take_done(h, round, host, local, rank_at(h, h->host, local), NULL);
            decode(h, round, host, local);
        }
    }
}

static void build_rounds(struct hosts *h)
{
    for (uint64_t t = 0; t < h->rounds + 2 * LAG; t++) {
        if (t < h->rounds) {
            give(h, t);
            receive(h, t);
        }
        if (t >= LAG && t - LAG < h->rounds) {
            local_sums(h, t - LAG);
            receive_sums(h, t - LAG);
        }
        if (t >= 2 * LAG) {
            spread(h, t - 2 * LAG);
            collect(h, t - 2 * LAG);
        }
    }
}

/* Numbers the ranks by host and place. False: hosts have not as many each. */
static bool number_ranks(struct hosts *h, uint32_t *seen)
{
    const struct sl_shape *shape = h->shape;
    bool even = true;

    for (uint32_t r = 0; r < shape->size; r++) {
        uint32_t host = shape->host[r], local = seen[host]++;

        even &= local < h->locals;
        if (even)
            h->ranks[host * h->locals + local] = r;
        if (r == shape->rank) {
            h->host = host;
            h->local = local;
        }
    }
    return even;
}

/* -ENOTSUP: there is one host, or they have not as many ranks each, or but one. */
static int map_hosts(struct hosts *h)
{
    const struct sl_shape *shape = h->shape;
    uint32_t *seen = calloc(shape->size, sizeof(*seen));
    bool even = false;

    h->ranks = calloc(shape->size, sizeof(*h->ranks));
    h->hosts = 1;
    for (uint32_t r = 0; r < shape->size; r++)
        h->hosts = shape->host[r] + 1 > h->hosts ? shape->host[r] + 1 : h->hosts;
    h->locals = shape->size / h->hosts;
    if (seen == NULL || h->ranks == NULL) {
        free(seen);
        return sl_fail(-ENOMEM, "no memory to plan for %u ranks", shape->size);
    }
    if (h->hosts > 1 && h->locals > 1 && h->locals * h->hosts == shape->size)
        even = number_ranks(h, seen);
    free(seen);
    return even ? 0 : sl_fail(-ENOTSUP, "oneshot_hosts needs hosts with the same number of ranks");
}

static bool take_memory(struct hosts *h)
{
    size_t size = h->shape->size, slots = AHEAD * (3 * size + 2 * (size_t)h->hosts);
    size_t sends = AHEAD * (size_t)h->hosts * (h->hosts + h->locals);

    h->give = calloc(slots, sizeof(*h->give));
    h->sent = malloc(sends * sizeof(*h->sent));
    if (h->give == NULL || h->sent == NULL)
        return false;
    h->take = h->give + AHEAD * size;
    h->done = h->take + AHEAD * size;
    h->sums = h->done + AHEAD * size;
    h->came = h->sums + AHEAD * (size_t)h->hosts;
    for (size_t i = 0; i < slots; i++)
        h->give[i].reader = SL_NO_DEP;
    for (size_t i = 0; i < sends; i++)
        h->sent[i] = SL_NO_DEP;
    for (unsigned i = 0; i < SUMS; i++)
        h->read[i] = h->local_read[i] = SL_NO_DEP;
    return true;
}

static void take_wire(struct hosts *h, uint64_t shard)
{
    uint64_t rounds = sl_min(AHEAD, h->rounds), size = h->shape->size;
    uint64_t len = h->code->bytes(h->code, sl_min(h->piece, shard));
    uint64_t inner = h->inner->bytes(h->inner, sl_min(h->piece, shard));

    sl_slots_take(h->s, h->give, rounds * size, inner);
    sl_slots_take(h->s, h->take, rounds * size, inner);
    sl_slots_take(h->s, h->done, rounds * size, len);
    sl_slots_take(h->s, h->sums, rounds * h->hosts, len);
    sl_slots_take(h->s, h->came, rounds * h->hosts, len);
}

static int build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct hosts h = {.s = out, .shape = shape, .code = shape->code, .inner = shape->inner};
    uint64_t shard;

    sl_schedule_init(out, "oneshot_hosts");
    if (shape->size < 4 || shape->code == NULL || shape->inner == NULL || shape->host == NULL)
        return sl_fail(-ENOTSUP, "oneshot_hosts needs several hosts and codecs");
    int err = map_hosts(&h);

    if (err != 0) {
        free(h.ranks);
        return err;
    }
    if (!take_memory(&h))
        out->error = sl_fail(-ENOMEM, "no memory to plan for %u ranks", shape->size);
    h.stride = sl_code_shard(shape);
    shard = sl_min(h.stride, shape->count);
    if (out->error == 0 && shape->count != 0) {
        h.piece = sl_code_piece(shape, shard, AHEAD);
        h.rounds = sl_ceil_div(shard, h.piece);
        out->wide_tmp = shape->esize != sizeof(float);
        out->tmp_count = 2 * SUMS * h.piece;
        take_wire(&h, shard);
        build_rounds(&h);
    }
    free(h.ranks);
    free(h.give);
    free(h.sent);
    return sl_schedule_finish(out);
}

/* Within hosts: a part of the elements by the inner code, and back the whole of them by the outer
 * one. Between hosts each rank's share of both, over the link that its host's ranks have together.
 */
static double cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_code_work *outer = &shape->code->work;
    uint32_t locals = sl_code_locals(shape);

    if (shape->size < 4 || shape->count == 0 || shape->inner == NULL || locals < 2 ||
        locals == shape->size || shape->size % locals != 0)
        return -1;
    const struct sl_code_work *inner = &shape->inner->work;
    uint32_t hosts = shape->size / locals;
    uint64_t count = shape->count, shard = sl_min(sl_code_shard(shape), count);
    uint64_t share = sl_min(hosts * shard, count); /* of a rank, of what its host sums */
    double rounds = (double)sl_ceil_div(shard, sl_code_piece(shape, shard, AHEAD));
    double nears = (locals - 1.0) * hosts * rounds, fars = (hosts - 1.0) * rounds;
    struct sl_code_time time = {
        .work = sl_code_work_ns(costs, (double)count, inner->encode) +
                sl_code_work_ns(costs, (double)share, inner->decode) +
                sl_code_work_ns(costs, (double)((locals - 1) * share), inner->add) +
                sl_code_work_ns(costs, (double)(share + shard), outer->encode) +
                sl_code_work_ns(costs, (double)((hosts - 1) * shard), outer->add) +
                sl_code_work_ns(costs, (double)(count + shard), outer->decode),
        .latency = 2 * (costs->shm.alpha + costs->net.alpha) * sl_cost_crowd(costs),
        .rounds = rounds};

    sl_code_time_send(costs, &costs->shm, shape->inner, count - count / locals, nears, 1, &time);
    sl_code_time_send(costs, &costs->shm, shape->code, count - count / locals, nears, 1, &time);
    sl_code_time_send(costs, &costs->net, shape->code, 2 * (hosts - 1) * shard, 2 * fars, locals,
                      &time);
    return sl_code_time_total(&time);
}

const struct sl_algo sl_algo_oneshot_hosts = {
    .name = "oneshot_hosts",
    .colls = SL_BIT(SL_ALLREDUCE),
    .needs_hosts = true,
    .source = "",
    .recipe = "hosts",
    .build = build,
    .cost = cost,
};
