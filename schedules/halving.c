/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce between ranks whose distance doubles: of the whole vector (doubling, for small ones),
 * or of halves that shrink and grow again (halving, for medium ones).
 *
 * R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; R. Thakur,
 * R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 * Int. J. High Perf. Comp. Appl. 19(1), 2005. When the ranks are no power of two, the first ranks
 * fold: of two neighbours the upper hands its operand to the lower and gets the result at the end.
 *
 * Two partners compute one sum each with swapped operands, so the operand of the lower ranks is
 * always put first: REMOTE_FIRST on the upper of the two.
 */
#include "schedules/build.h"

#include "core/err.h"

struct fold {
    uint32_t power;          /* ranks that go on: a power of two */
    uint32_t extra;          /* ranks that fold into their neighbour */
    uint32_t place;          /* among those that go on; meaningless when away */
    bool away;               /* this rank has handed its operand over */
    uint32_t neighbor;       /* the other of a folding pair, or SL_NO_DEP */
    const uint32_t *members; /* ranks by index; NULL: all of the communicator */
};

static uint32_t member(const struct fold *fold, uint32_t idx)
{
    return fold->members == NULL ? idx : fold->members[idx];
}

/* For member idx of size. */
static struct fold fold_of(const uint32_t *members, uint32_t size, uint32_t idx)
{
    struct fold fold = {.power = 1, .neighbor = SL_NO_DEP, .members = members};

    while (fold.power * 2 <= size)
        fold.power *= 2;
    fold.extra = size - fold.power;
    if (idx < 2 * fold.extra) {
        fold.away = idx % 2 == 1;
        fold.neighbor = member(&fold, idx ^ 1);
        fold.place = idx / 2;
    } else {
        fold.place = idx - fold.extra;
    }
    return fold;
}

static uint32_t rank_of(const struct fold *fold, uint32_t place)
{
    return member(fold, place < fold->extra ? 2 * place : place + fold->extra);
}

/* A rank that is away: gives its operand, gets the result, in two channels from `channel` on.
 * Returns the step that brings it. */
static uint32_t stay_away(struct sl_schedule *s, uint64_t count, const struct fold *fold,
                          unsigned channel, struct sl_place operand, uint32_t start)
{
    sl_add_send(s, channel, fold->neighbor, operand, count, start);
    return sl_add_recv(s, channel + 1, fold->neighbor, sl_out(0), count, start);
}

/* The sum alternates between two vectors in TMP, since it is sent while the next one is made, and
 * ends in OUT. In three channels from `channel` on; the operand is there once step `start` has
 * ended; `aliased`: it lies in OUT. Returns the step that completes the sum. */
static uint32_t doubling(struct sl_schedule *s, uint64_t count, const struct fold *fold,
                         unsigned channel, struct sl_place operand, bool aliased, uint32_t start)
{
    struct sl_place acc = operand;
    uint32_t got = start, sent[3] = {SL_NO_DEP, SL_NO_DEP, SL_NO_DEP}; /* T0, T1, operand */
    unsigned at = 2, step = 0;

    if (fold->neighbor != SL_NO_DEP) {
        acc = sl_tmp(count);
        at = 1;
        got = sl_add_recv_reduce(s, channel + 1, fold->neighbor, operand, acc, count, 0, start);
    } else if (aliased && fold->power == 2) {
        /* OUT is written while the operand is on its way. */
        acc = sl_tmp(count);
        at = 1;
        got = sl_add_copy(s, channel + 2, operand, acc, count, start);
    }
    for (uint32_t d = 1; d < fold->power; d *= 2, step++) {
        uint32_t place = fold->place ^ d, peer = rank_of(fold, place);
        bool last = d * 2 == fold->power;
        struct sl_place next = last ? sl_out(0) : sl_tmp(step % 2 * count);
        uint32_t before = last ? (aliased ? sent[2] : SL_NO_DEP) : sent[step % 2];
        unsigned flags =
            (place < fold->place ? SL_STEP_REMOTE_FIRST : 0) | (last ? SL_STEP_FINAL : 0);

        sent[at] = sl_add_send(s, channel, peer, acc, count, got);
        got = sl_add_recv_reduce(s, channel + 1, peer, acc, next, count, flags, got);
        sl_add_dep(s, before);
        acc = next;
        at = step % 2;
    }
    s->tmp_count = sl_max(s->tmp_count, 2 * count);
    if (fold->neighbor != SL_NO_DEP)
        sl_add_send(s, channel, fold->neighbor, sl_out(0), count, got);
    return got;
}

uint32_t sl_doubling_between(struct sl_schedule *s, const struct sl_shape *shape,
                             const uint32_t *members, uint32_t size, uint32_t idx,
                             struct sl_place operand, uint32_t start)
{
    struct fold fold = fold_of(members, size, idx);
    bool aliased = shape->in_place && operand.buf == SL_BUF_IN;

    if (fold.away)
        return stay_away(s, shape->count, &fold, 1, operand, start);
    return doubling(s, shape->count, &fold, 1, operand, aliased, start);
}

/* Elements of parts [first, first + parts). */
static uint64_t span(uint64_t count, uint64_t width, uint32_t first, uint32_t parts)
{
    uint64_t from = sl_min(first * width, count), to = sl_min((first + parts) * width, count);

    return to - from;
}

static void halving(struct sl_schedule *s, const struct sl_shape *shape, const struct fold *fold)
{
    uint64_t count = shape->count, width = sl_part_width(count, fold->power, shape->esize);
    uint32_t first = 0, got = SL_NO_DEP;
    uint8_t acc = SL_BUF_IN;

    if (fold->neighbor != SL_NO_DEP) {
        got = sl_add_recv_reduce(s, 1, fold->neighbor, sl_in(0), sl_out(0), count, 0, SL_NO_DEP);
        acc = SL_BUF_OUT;
    }
    /* This rank's parts are [first, first + 2d) before a step and one half of them after it. */
    for (uint32_t d = fold->power / 2; d > 0; d /= 2) {
        uint32_t place = fold->place ^ d, peer = rank_of(fold, place);
        bool upper = (fold->place & d) != 0;
        uint32_t keep = upper ? first + d : first, give = upper ? first : first + d;
        uint64_t keeps = span(count, width, keep, d), gives = span(count, width, give, d);

        if (gives > 0)
            sl_add_send(s, 0, peer, (struct sl_place){acc, give * width}, gives, got);
        if (keeps > 0)
            got = sl_add_recv_reduce(
                s, 1, peer, (struct sl_place){acc, keep * width}, sl_out(keep * width), keeps,
                (upper ? SL_STEP_REMOTE_FIRST : 0) | (d == 1 ? SL_STEP_FINAL : 0), got);
        first = keep;
        acc = SL_BUF_OUT;
    }
    /* Receives of different peers may end in any order: a send waits for all of them. */
    uint32_t all[64], gathered = 0;
    all[gathered++] = got;
    for (uint32_t d = 1; d < fold->power; d *= 2) {
        uint32_t place = fold->place ^ d, peer = rank_of(fold, place);
        uint32_t take = first ^ d;
        uint64_t has = span(count, width, first, d), takes = span(count, width, take, d);

        if (has > 0) {
            sl_add_send(s, 0, peer, sl_out(first * width), has, all[0]);
            for (uint32_t i = 1; i < gathered; i++)
                sl_add_dep(s, all[i]);
        }
        if (takes > 0)
            all[gathered++] = sl_add_recv(s, 1, peer, sl_out(take * width), takes, SL_NO_DEP);
        first = sl_min(first, take);
    }
    if (fold->neighbor != SL_NO_DEP) {
        sl_add_send(s, 0, fold->neighbor, sl_out(0), count, all[0]);
        for (uint32_t i = 1; i < gathered; i++)
            sl_add_dep(s, all[i]);
    }
}

static int build(const struct sl_shape *shape, struct sl_schedule *out, bool whole)
{
    struct fold fold = fold_of(NULL, shape->size, shape->rank);

    if (shape->size < 2)
        return sl_fail(-ENOTSUP, "%s needs 2 ranks", out->algo);
    if (shape->count == 0)
        return 0;
    if (fold.away)
        stay_away(out, shape->count, &fold, 0, sl_in(0), SL_NO_DEP);
    else if (whole)
        doubling(out, shape->count, &fold, 0, sl_in(0), shape->in_place, SL_NO_DEP);
    else
        halving(out, shape, &fold);
    return sl_schedule_finish(out);
}

static int doubling_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "doubling");
    return build(shape, out, true);
}

static int halving_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "halving");
    return build(shape, out, false);
}

static double fold_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize;

    if (fold_of(NULL, shape->size, shape->rank).extra == 0)
        return 0;
    return 2 * link->alpha + bytes * (2 * link->beta + costs->reduce);
}

static double doubling_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize;

    if (shape->size < 2)
        return -1;
    return sl_cost_crowd(costs) *
           (fold_cost(shape, costs) +
            sl_log2_ceil(fold_of(NULL, shape->size, shape->rank).power) *
                (link->alpha + bytes * (link->beta + costs->reduce) + 2 * costs->step));
}

static double halving_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize,
           power = fold_of(NULL, shape->size, shape->rank).power;

    if (shape->size < 2)
        return -1;
    return sl_cost_crowd(costs) *
           (fold_cost(shape, costs) +
            2 * sl_log2_ceil((uint32_t)power) * (link->alpha + 2 * costs->step) +
            (power - 1) / power * bytes * (2 * link->beta + costs->reduce));
}

const struct sl_algo sl_algo_doubling = {
    .name = "doubling",
    .colls = SL_BIT(SL_ALLREDUCE),
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005",
    .build = doubling_build,
    .cost = doubling_cost,
};

const struct sl_algo sl_algo_halving = {
    .name = "halving",
    .colls = SL_BIT(SL_ALLREDUCE),
    .source = "Rabenseifner, ICCS 2004",
    .build = halving_build,
    .cost = halving_cost,
};
