/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct exchanges among ranks whose links are not alike: a rank with slower links sums less of the
 * vector, so it sends its operands and fetches the results and does little for the others.
 *
 * The vector is cut into parts. Each part has a rank that works on it (`by`), and two hops:
 *
 *                    first hop                    second hop
 *   allreduce        all -> by, which sums        by -> all
 *   reduce_scatter   all but the owner -> by      by -> owner, which adds its own operand
 *   all_gather       owner -> by                  by -> all but the owner
 *
 * In the latter two the caller fixes who owns a block. An owner mostly works on it itself, and then
 * only one of the two hops is left; what is more than its share is given to faster ranks.
 *
 * Parts are cut into pieces, one per round. Round k of the first hop is followed by round k - lag
 * of the second, so both hops share the links for most of the time: a slow rank's links, which the
 * first hop loads one way and the second the other way, are full both ways.
 *
 * Each sum is computed once, in an order that the builder fixes. docs/design/0031.
 */
#include "schedules/weighted.h"

#include "core/err.h"
#include "schedules/shares.h"

#include <stdlib.h>

#define SLOTS_MAX (2 * SL_PARTS_LAG_MAX + 1)

enum { SENDS, RECEIVES, SUMS }; /* channels */

/* A part that this rank works on. A round's piece is in slot round % slots. */
struct work {
    uint64_t tmp;              /* slots for the sum, if that is not in OUT, then for operands */
    uint32_t done[SLOTS_MAX];  /* step that completes the piece */
    uint32_t sums[SLOTS_MAX];  /* its first REDUCE */
    uint32_t taken[SLOTS_MAX]; /* its send in the second hop */
};

struct weighted {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    struct sl_parts all;
    struct work *work; /* owned: of this rank's parts */
    uint32_t slots;    /* rounds of operands that wait in TMP */
};

/* ---- who, and where ---- */

static bool is_first_hop(const struct weighted *w, const struct sl_part *part, uint32_t from)
{
    if (from == part->by)
        return false;
    switch (w->shape->coll) {
    case SL_REDUCE_SCATTER: return from != part->owner;
    case SL_ALL_GATHER: return from == part->owner;
    default: return true;
    }
}

static bool is_second_hop(const struct weighted *w, const struct sl_part *part, uint32_t to)
{
    if (to == part->by)
        return false;
    switch (w->shape->coll) {
    case SL_REDUCE_SCATTER: return to == part->owner;
    case SL_ALL_GATHER: return to != part->owner;
    default: return true;
    }
}

/* This rank's operand of a piece. */
static struct sl_place operand(const struct weighted *w, const struct sl_part *part, uint32_t round)
{
    uint64_t off = part->at + round * part->piece;

    return sl_in(w->shape->coll == SL_REDUCE_SCATTER ? part->owner * w->shape->count + off : off);
}

static struct sl_place result(const struct weighted *w, const struct sl_part *part, uint32_t round)
{
    uint64_t off = part->at + round * part->piece;

    return sl_out(w->shape->coll == SL_ALL_GATHER ? part->owner * w->shape->count + off : off);
}

/* Where this rank, which works on the part, puts it together. */
static bool sums_in_tmp(const struct weighted *w, const struct sl_part *part)
{
    return w->shape->coll == SL_REDUCE_SCATTER && part->owner != part->by;
}

static struct sl_place place_of_sum(const struct weighted *w, const struct sl_part *part,
                                    const struct work *work, uint32_t round)
{
    if (sums_in_tmp(w, part))
        return sl_tmp(work->tmp + round % w->slots * part->piece);
    if (w->shape->coll == SL_ALL_GATHER && part->owner == part->by)
        return operand(w, part, round);
    return result(w, part, round);
}

/* Of the idx-th operand that comes; the 0th is added as it comes. */
static struct sl_place place_of_operand(const struct weighted *w, const struct sl_part *part,
                                        const struct work *work, uint32_t round, uint32_t idx)
{
    uint64_t base = work->tmp + (sums_in_tmp(w, part) ? w->slots * part->piece : 0);

    return sl_tmp(base + ((uint64_t)(idx - 1) * w->slots + round % w->slots) * part->piece);
}

/* Operands that come for a part. */
static uint32_t operands(const struct weighted *w, const struct sl_part *part)
{
    return w->shape->size - (part->owner != part->by ? 2 : 1);
}

static int take_work(struct weighted *w)
{
    uint32_t rank = w->shape->rank, first = w->all.first[rank],
             count = w->all.first[rank + 1] - first;

    w->work = calloc(count + 1u, sizeof(*w->work));
    if (w->work == NULL)
        return sl_fail(-ENOMEM, "no memory for %u parts", count);
    for (uint32_t i = 0; i < count && w->shape->coll != SL_ALL_GATHER; i++) {
        const struct sl_part *part = &w->all.parts[first + i];
        uint32_t slots = operands(w, part) - 1 + (sums_in_tmp(w, part) ? 1 : 0);

        w->work[i].tmp = w->s->tmp_count;
        w->s->tmp_count += slots * w->slots * part->piece;
    }
    return 0;
}

/* ---- the first hop ---- */

static void send_operands(const struct weighted *w, uint32_t round)
{
    const struct sl_shape *shape = w->shape;

    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t by = (shape->rank + i) % shape->size;

        for (uint32_t p = w->all.first[by]; p < w->all.first[by + 1]; p++) {
            const struct sl_part *part = &w->all.parts[p];
            uint64_t len = sl_piece_len(part, round);

            if (len > 0 && is_first_hop(w, part, shape->rank))
                sl_add_send(w->s, SENDS, by, operand(w, part, round), len, SL_NO_DEP);
        }
    }
}

/* The first operand is added to this rank's own as it comes: the sum's place must be free. */
static void receive_first(const struct weighted *w, const struct sl_part *part, struct work *work,
                          uint32_t round, uint32_t from)
{
    bool busy = sums_in_tmp(w, part) && round >= w->slots;
    bool last = operands(w, part) == 1 && !sums_in_tmp(w, part);

    work->done[round % w->slots] = sl_add_recv_reduce(
        w->s, RECEIVES, from, operand(w, part, round), place_of_sum(w, part, work, round),
        sl_piece_len(part, round), last ? SL_STEP_FINAL : 0,
        busy ? work->taken[round % w->slots] : SL_NO_DEP);
}

/* The others wait in TMP for their turn. Returns this operand's REDUCE. */
static void receive_other(const struct weighted *w, const struct sl_part *part,
                          const struct work *work, uint32_t round, uint32_t idx, uint32_t from)
{
    uint32_t free_since = round >= w->slots ? work->sums[round % w->slots] + idx - 1 : SL_NO_DEP;

    sl_add_recv(w->s, RECEIVES, from, place_of_operand(w, part, work, round, idx),
                sl_piece_len(part, round), free_since);
}

/* Adds up what came, in the order of the receives, of which `got` is the second. */
static void sum_up(const struct weighted *w, const struct sl_part *part, struct work *work,
                   uint32_t round, uint32_t got)
{
    struct sl_place sum = place_of_sum(w, part, work, round);
    uint32_t count = operands(w, part);

    work->sums[round % w->slots] = w->s->step_count;
    for (uint32_t idx = 1; idx < count; idx++) {
        bool last = idx + 1 == count && !sums_in_tmp(w, part);

        uint32_t step =
            sl_add_reduce(w->s, SUMS, place_of_operand(w, part, work, round, idx), sum,
                          sl_piece_len(part, round), last ? SL_STEP_FINAL : 0, got + idx - 1);
        if (idx == 1)
            sl_add_dep(w->s, got - 1);
        work->done[round % w->slots] = step;
    }
}

static void receive_part(const struct weighted *w, const struct sl_part *part, struct work *work,
                         uint32_t round)
{
    const struct sl_shape *shape = w->shape;
    uint32_t first = w->s->step_count, idx = 0;

    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t from = (shape->rank + shape->size - i) % shape->size;

        if (!is_first_hop(w, part, from))
            continue;
        if (shape->coll == SL_ALL_GATHER)
            work->done[round % w->slots] = sl_add_recv(w->s, RECEIVES, from, result(w, part, round),
                                                       sl_piece_len(part, round), SL_NO_DEP);
        else if (idx == 0)
            receive_first(w, part, work, round, from);
        else
            receive_other(w, part, work, round, idx, from);
        idx++;
    }
    if (shape->coll != SL_ALL_GATHER && idx > 1)
        sum_up(w, part, work, round, first + 1);
}

static void receive_operands(const struct weighted *w, uint32_t round)
{
    uint32_t rank = w->shape->rank;

    for (uint32_t p = w->all.first[rank]; p < w->all.first[rank + 1]; p++) {
        struct work *work = &w->work[p - w->all.first[rank]];

        work->done[round % w->slots] = SL_NO_DEP;
        if (sl_piece_len(&w->all.parts[p], round) > 0)
            receive_part(w, &w->all.parts[p], work, round);
    }
}

/* ---- the second hop ---- */

static void send_results_to(const struct weighted *w, uint32_t round, uint32_t to)
{
    uint32_t rank = w->shape->rank, first = w->all.first[rank];

    for (uint32_t p = first; p < w->all.first[rank + 1]; p++) {
        const struct sl_part *part = &w->all.parts[p];
        struct work *work = &w->work[p - first];

        if (sl_piece_len(part, round) > 0 && is_second_hop(w, part, to))
            work->taken[round % w->slots] =
                sl_add_send(w->s, SENDS, to, place_of_sum(w, part, work, round),
                            sl_piece_len(part, round), work->done[round % w->slots]);
    }
}

/* To those that work on no part, or to the others. */
static void send_results(const struct weighted *w, uint32_t round, bool to_idle)
{
    const struct sl_shape *shape = w->shape;

    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t to = (shape->rank + i) % shape->size;

        if (sl_parts_has(&w->all, to) == !to_idle)
            send_results_to(w, round, to);
    }
}

static void receive_results(const struct weighted *w, uint32_t round)
{
    const struct sl_shape *shape = w->shape;

    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t by = (shape->rank + shape->size - i) % shape->size;

        for (uint32_t p = w->all.first[by]; p < w->all.first[by + 1]; p++) {
            const struct sl_part *part = &w->all.parts[p];
            uint64_t len = sl_piece_len(part, round);

            if (len == 0 || !is_second_hop(w, part, shape->rank))
                continue;
            if (shape->coll == SL_REDUCE_SCATTER)
                sl_add_recv_reduce(w->s, RECEIVES, by, operand(w, part, round),
                                   result(w, part, round), len, SL_STEP_FINAL, SL_NO_DEP);
            else
                sl_add_recv(w->s, RECEIVES, by, result(w, part, round), len, SL_NO_DEP);
        }
    }
}

/* ---- all of it ---- */

static void all_rounds(const struct weighted *w)
{
    for (uint32_t round = 0; round < w->all.rounds + w->all.lag; round++) {
        if (round < w->all.rounds) {
            send_operands(w, round);
            receive_operands(w, round);
        }
        if (round >= w->all.lag) {
            /* Who fetches all results with slow links gets them first. */
            send_results(w, round - w->all.lag, true);
            send_results(w, round - w->all.lag, false);
            receive_results(w, round - w->all.lag);
        }
    }
}

static void own_block(const struct weighted *w)
{
    const struct sl_shape *shape = w->shape;

    if (shape->coll == SL_ALL_GATHER && !shape->in_place)
        sl_add_copy(w->s, SUMS, sl_in(0), sl_out(shape->rank * shape->count), shape->count,
                    SL_NO_DEP);
}

static int weighted_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct weighted w = {.s = out, .shape = shape};

    sl_schedule_init(out, "weighted");
    if (shape->size < 2 || shape->size > SL_SHARES_RANKS_MAX)
        return sl_fail(-ENOTSUP, "weighted needs 2 to %u ranks", SL_SHARES_RANKS_MAX);
    if (shape->count == 0)
        return 0;
    int rc = sl_parts_cut(&w.all, shape);

    w.slots = 2 * w.all.lag + 1;
    rc = rc ?: take_work(&w);
    if (rc == 0) {
        all_rounds(&w);
        own_block(&w);
        rc = sl_schedule_finish(out);
    }
    sl_parts_fini(&w.all);
    free(w.work);
    return rc;
}

/* Bytes that the busiest rank sends or receives, in time of the fastest's links: the bounds of
 * docs/design/0031. */
static double busiest(const struct sl_shape *shape)
{
    struct sl_speeds speeds = sl_speeds_of(shape->speed, shape->size);
    double n = shape->size, bytes = (double)shape->count * shape->esize;

    if (shape->coll != SL_ALLREDUCE)
        return (n - 1) * bytes / speeds.slowest;
    double together = 2 * (n - 1) * bytes / speeds.sum, alone = bytes / speeds.slowest;

    return together > alone ? together : alone;
}

/* They share its links, and each exchanges all of its vector. */
static uint32_t ranks_per_host(const struct sl_shape *shape)
{
    uint32_t hosts = 1;

    for (uint32_t r = 0; r < shape->size && shape->host != NULL; r++)
        hosts = shape->host[r] + 1 > hosts ? shape->host[r] + 1 : hosts;
    return (uint32_t)sl_ceil_div(shape->size, hosts);
}

/* Bytes are the bound; sums overlap them but for a piece; and both ends handle each message. */
static double weighted_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double n = shape->size, bytes = (double)shape->count * shape->esize;
    double crowd = sl_cost_crowd(costs), hops = shape->coll == SL_ALLREDUCE ? 2 : 1;
    struct sl_parts parts;

    if (shape->size < 2 || shape->size > SL_SHARES_RANKS_MAX || sl_parts_cut(&parts, shape) != 0)
        return -1;
    double pieces = parts.rounds > 1 ? parts.rounds : 1;
    double longest = shape->coll == SL_ALLREDUCE ? bytes / n : bytes;
    double wire =
        busiest(shape) * link->beta * (link == &costs->shm ? crowd : ranks_per_host(shape));
    double math = sl_coll_reduces(shape->coll) ? (n - 1) * longest * costs->reduce * crowd : 0;
    double slow = wire > math ? wire : math, fast = wire > math ? math : wire;

    sl_parts_fini(&parts);
    return hops * link->alpha * crowd + slow + fast / pieces +
           2 * hops * (n - 1) * pieces * costs->step * crowd;
}

const struct sl_algo sl_algo_weighted = {
    .name = "weighted",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_REDUCE_SCATTER) | SL_BIT(SL_ALL_GATHER),
    .needs_unequal = true,
    .source = "",
    .build = weighted_build,
    .cost = weighted_cost,
};
