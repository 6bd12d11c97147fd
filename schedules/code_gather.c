/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce by gathering: every rank encodes its vector once, everybody gets the bytes, and adds up
 * what they stand for, in the order of ranks.
 *
 *   IN ─encode─ wire ─to all─ wire ─decode, add─ OUT
 *      GIVE          SENDS, RECVS     TAKE
 *
 * A value goes through the codec once, and the sum is kept whole: for codecs that send few elements
 * of many, whose sums have more than one encoding holds (top-k). All add the same bytes in the same
 * order, this rank's own too, so all have the same bits. What a rank sends grows with the number of
 * ranks, where one shot (oneshot.c) does not: it is for few ranks or few elements.
 */
#include "schedules/code_cost.h"
#include "schedules/pieces.h"

#include "core/err.h"

#include <stdlib.h>

enum { TAKE, GIVE, SENDS, RECVS }; /* channels */

#define PARTS 4 /* of a vector that is not long, so that they overlap */
#define SUMS 2  /* places for sums */

struct gather {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    uint64_t piece, rounds, ahead; /* so many rounds are under way */
    struct sl_slot *came; /* [ahead * size]: by whose it is; this rank's own is what it sends */
    uint32_t *sent;       /* [ahead * size]: steps that read this rank's own */
    uint32_t read[SUMS];  /* step that read the sum last */
};

static struct sl_slot *slot_of(const struct gather *g, uint64_t round, uint32_t rank)
{
    return &g->came[round % g->ahead * g->shape->size + rank];
}

static uint64_t piece_len(const struct gather *g, uint64_t round)
{
    return sl_part_len(g->shape->count, g->piece, round);
}

static uint64_t tile_of(const struct gather *g, uint64_t round)
{
    return round * (g->piece / g->shape->code->tile);
}

/* This rank's elements to all others. */
static void give(struct gather *g, uint64_t round)
{
    const struct sl_code *code = g->shape->code;
    uint32_t rank = g->shape->rank, size = g->shape->size;
    uint32_t *sent = &g->sent[round % g->ahead * size];
    struct sl_slot *slot = slot_of(g, round, rank);
    uint64_t len = piece_len(g, round);

    slot->there = sl_add_encode(g->s, GIVE, SL_CODE_RUNNER, sl_in(round * g->piece),
                                sl_slot_renew(slot, code, len), len, code->up_to, slot->reader);
    sl_in_stream(g->s, 0, rank, tile_of(g, round));
    for (uint32_t p = 0; p < size; p++)
        sl_add_dep(g->s, sent[p]); /* NOLINT(clang-analyzer-core.CallAndMessage): build() set it */
    for (uint32_t i = 1; i < size; i++) {
        uint32_t p = (rank + i) % size;

        sent[p] = sl_add_send_wire(g->s, SENDS, p, &slot->wire, len, slot->there);
    }
}

static void receive(struct gather *g, uint64_t round)
{
    const struct sl_code *code = g->shape->code;
    uint32_t rank = g->shape->rank, size = g->shape->size;
    uint64_t len = piece_len(g, round);

    for (uint32_t i = 1; i < size; i++) {
        uint32_t r = (rank + size - i) % size;
        struct sl_slot *slot = slot_of(g, round, r);

        slot->there = sl_add_recv_wire(g->s, RECVS, r, sl_slot_renew(slot, code, len), len,
                                       code->up_to, slot->reader);
    }
}

/* Adds up what all gave, in the order of ranks. Returns the last step. */
static uint32_t sum(struct gather *g, uint64_t round, struct sl_place to, uint32_t free)
{
    uint32_t size = g->shape->size, step = free;
    uint64_t len = piece_len(g, round);

    for (uint32_t r = 0; r < size; r++) {
        struct sl_slot *slot = slot_of(g, round, r);
        uint32_t before = step;

        if (r == 0)
            step = sl_add_decode(g->s, TAKE, SL_CODE_RUNNER, &slot->wire, to, len, slot->there);
        else
            step = sl_add_decode_reduce(g->s, TAKE, SL_CODE_RUNNER, &slot->wire, to, len,
                                        r + 1 == size ? SL_STEP_FINAL : 0, slot->there);
        sl_in_stream(g->s, 0, r, tile_of(g, round));
        sl_add_dep(g->s, before);
        if (r == 0 && to.buf == SL_BUF_OUT) /* in place the sum comes where its operand was */
            sl_add_dep(g->s, slot_of(g, round, g->shape->rank)->there);
        slot->reader = step;
    }
    return step;
}

static void take(struct gather *g, uint64_t round)
{
    struct sl_place out = sl_out(round * g->piece), scratch = sl_tmp(round % SUMS * g->piece);
    uint32_t *read = &g->read[round % SUMS];

    if (!g->s->wide_tmp) {
        sum(g, round, out, SL_NO_DEP);
        return;
    }
    *read =
        sl_add_copy(g->s, TAKE, scratch, out, piece_len(g, round), sum(g, round, scratch, *read));
    sl_by_runner(g->s, SL_CODE_RUNNER);
}

static void build_rounds(struct gather *g)
{
    for (uint64_t t = 0; t < g->rounds + g->ahead - 1; t++) {
        if (t < g->rounds) {
            give(g, t);
            receive(g, t);
        }
        if (t >= g->ahead - 1)
            take(g, t - (g->ahead - 1));
    }
}

static int build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct gather g = {.s = out, .shape = shape};

    sl_schedule_init(out, "code_gather");
    if (shape->size < 2 || shape->code == NULL)
        return sl_fail(-ENOTSUP, "code_gather needs 2 ranks and a codec");
    if (shape->count == 0)
        return 0;
    g.piece = sl_code_piece(shape, shape->count, PARTS);
    g.rounds = sl_ceil_div(shape->count, g.piece);
    g.ahead = sl_code_ahead(shape, g.piece, shape->size);
    size_t slots = g.ahead * shape->size;

    g.came = calloc(slots, sizeof(*g.came));
    g.sent = malloc(slots * sizeof(*g.sent));
    if (g.came == NULL || g.sent == NULL) {
        free(g.came);
        free(g.sent);
        return sl_fail(-ENOMEM, "no memory to plan for %u ranks", shape->size);
    }
    for (size_t i = 0; i < slots; i++)
        g.sent[i] = g.came[i].reader = SL_NO_DEP;
    for (unsigned i = 0; i < SUMS; i++)
        g.read[i] = SL_NO_DEP;
    out->wide_tmp = shape->esize != sizeof(float);
    out->tmp_count = out->wide_tmp ? SUMS * g.piece : 0;
    sl_slots_take(out, g.came, sl_min(g.ahead, g.rounds) * shape->size,
                  shape->code->bytes(shape->code, sl_min(g.piece, shape->count)));
    build_rounds(&g);
    free(g.came);
    free(g.sent);
    return sl_schedule_finish(out);
}

static double cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_code_work *work = &shape->code->work;
    uint64_t count = shape->count, others = shape->size - 1;

    if (shape->size < 2 || count == 0)
        return -1;
    double rounds = (double)sl_ceil_div(count, sl_code_piece(shape, count, PARTS));
    struct sl_code_time time = {.work = sl_code_work_ns(costs, (double)count, work->encode) +
                                        sl_code_work_ns(costs, (double)count, work->decode) +
                                        sl_code_work_ns(costs, (double)(others * count), work->add),
                                .latency = sl_cost_link(shape, costs)->alpha * sl_cost_crowd(costs),
                                .rounds = rounds};

    sl_code_time_send_all(shape, costs, shape->code, others * count, (double)others * rounds,
                          &time);
    return sl_code_time_total(&time);
}

/* Than one shot, of the rank that sends most there, whose sum is cut to what one encoding has. So
 * for two ranks, and where one rank alone would own all elements. */
static bool sends_no_more(const struct sl_shape *shape)
{
    const struct sl_code *code = shape->code;
    uint64_t shard = sl_min(sl_code_shard(shape), shape->count), rest = shape->count - shard;
    uint64_t others = shape->size - 1, given = rest != 0 ? code->bytes(code, rest) : 0;

    return code->sparse &&
           others * code->bytes(code, shape->count) <= given + others * code->bytes(code, shard);
}

const struct sl_algo sl_algo_code_gather = {
    .name = "code_gather",
    .colls = SL_BIT(SL_ALLREDUCE),
    .source = "",
    .recipe = "gather",
    .unasked = sends_no_more,
    .build = build,
    .cost = cost,
};
