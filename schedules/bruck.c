/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few rounds for small blocks: all_gather and all_to_all in ⌈log₂ n⌉ messages per rank, and
 * reduce_scatter as the all_gather run backwards.
 *
 * J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems", IEEE TPDS 8(11), 1997. Any number of ranks.
 * The backward run is what NCCL calls PAT in its simplest form: sums flow up the trees down
 * which the blocks would be spread.
 */
#include "schedules/build.h"

#include "core/err.h"

#define ROUNDS_MAX 32

/* Steps that a later one must wait for, all of them: receives of different peers end in any
 * order. */
struct waits {
    uint32_t steps[2 * ROUNDS_MAX];
    uint32_t count;
};

static void wait_all(struct sl_schedule *s, const struct waits *waits)
{
    for (uint32_t i = 0; i < waits->count; i++)
        sl_add_dep(s, waits->steps[i]);
}

/* Block j of rank r is rank r + j's. Blocks [0, n) lie in OUT in one run, or in two where they
 * wrap. */
struct run {
    uint32_t first, blocks; /* real block, how many */
};

static uint32_t runs_from(uint32_t size, uint32_t start, uint32_t blocks, struct run *runs)
{
    uint32_t head = (uint32_t)sl_min(blocks, size - start);

    runs[0] = (struct run){start, head};
    runs[1] = (struct run){0, blocks - head};
    return blocks > head ? 2 : 1;
}

/* Round k: the blocks known so far go to rank - 2^k, as many come from rank + 2^k. */
static void all_gather(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t n = shape->size, rank = shape->rank;
    uint64_t count = shape->count;
    struct waits known = {.count = 0};
    struct run runs[2];

    if (!shape->in_place)
        known.steps[known.count++] =
            sl_add_copy(s, 2, sl_in(0), sl_out(rank * count), count, SL_NO_DEP);
    for (uint64_t d = 1; d < n; d *= 2) {
        uint32_t blocks = (uint32_t)sl_min(d, n - d), got[2];
        uint32_t to = (uint32_t)((rank + n - d) % n), from = (uint32_t)((rank + d) % n);
        uint32_t parts = runs_from(n, rank, blocks, runs);
        for (uint32_t i = 0; i < parts; i++) {
            sl_add_send(s, 0, to, sl_out(runs[i].first * count), runs[i].blocks * count, SL_NO_DEP);
            wait_all(s, &known);
        }
        parts = runs_from(n, from, blocks, runs);
        for (uint32_t i = 0; i < parts; i++)
            got[i] = sl_add_recv(s, 1, from, sl_out(runs[i].first * count), runs[i].blocks * count,
                                 SL_NO_DEP);
        for (uint32_t i = 0; i < parts; i++)
            known.steps[known.count++] = got[i];
    }
}

/* Backwards: TMP holds in place j what this rank knows of the sum for rank + j. */
static void reduce_scatter(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t n = shape->size, rank = shape->rank;
    uint64_t count = shape->count, d = 1;
    struct waits known = {.count = 0};

    known.steps[known.count++] =
        sl_add_copy(s, 2, sl_in(rank * count), sl_tmp(0), (n - rank) * count, SL_NO_DEP);
    if (rank > 0)
        known.steps[known.count++] =
            sl_add_copy(s, 2, sl_in(0), sl_tmp((n - rank) * count), rank * count, SL_NO_DEP);
    s->tmp_count = n * count;
    while (d * 2 < n)
        d *= 2;
    for (; d > 0; d /= 2) {
        uint64_t blocks = sl_min(d, n - d);
        uint32_t to = (uint32_t)((rank + d) % n), from = (uint32_t)((rank + n - d) % n);
        sl_add_send(s, 0, to, sl_tmp(d * count), blocks * count, SL_NO_DEP);
        wait_all(s, &known);
        uint32_t got = sl_add_recv_reduce(s, 1, from, sl_tmp(0), d == 1 ? sl_out(0) : sl_tmp(0),
                                          blocks * count, d == 1 ? SL_STEP_FINAL : 0, SL_NO_DEP);
        wait_all(s, &known);
        known.steps[known.count++] = got;
    }
}

/*
 * Block j (for rank + j) travels 2^k further in round k when j has bit k. The blocks of a round are
 * packed into one message. A block is first read where it lies in IN, and written to OUT once it
 * has made its last hop; in between it waits in TMP:
 *
 *   TMP  [0, n) waiting, by j · [n, n + h) packed to send · [n + h, n + 2h) received · copy of IN
 */
static void all_to_all(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t n = shape->size, rank = shape->rank, half = 0;
    uint32_t sent = SL_NO_DEP, last = SL_NO_DEP;
    uint64_t count = shape->count;

    for (uint64_t d = 1; d < n; d *= 2) {
        uint32_t blocks = 0;
        for (uint32_t j = 1; j < n; j++)
            blocks += (j & d) != 0;
        half = (uint32_t)sl_max(half, blocks);
    }
    uint64_t out_at = n, in_at = n + half, keep = n + 2ull * half;
    s->tmp_count = (keep + (shape->in_place ? n : 0)) * count;
    if (shape->in_place)
        sl_add_copy(s, 0, sl_in(0), sl_tmp(keep * count), n * count, SL_NO_DEP);
    else
        sl_add_copy(s, 0, sl_in(rank * count), sl_out(rank * count), count, SL_NO_DEP);
    for (uint64_t d = 1; d < n; d *= 2) {
        uint32_t to = (uint32_t)((rank + d) % n), from = (uint32_t)((rank + n - d) % n);
        uint32_t blocks = 0;
        for (uint32_t j = (uint32_t)d; j < n; j++) {
            if ((j & d) == 0)
                continue;
            uint64_t home = (rank + j) % n * count;
            struct sl_place src = shape->in_place ? sl_tmp(keep * count + home) : sl_in(home);
            if ((j & (d - 1)) != 0)
                src = sl_tmp(j * count);
            last = sl_add_copy(s, 0, src, sl_tmp((out_at + blocks++) * count), count, sent);
        }
        sent = sl_add_send(s, 1, to, sl_tmp(out_at * count), blocks * count, last);
        /* Packing comes after the unpacking of the round before, so the room is free. */
        uint32_t got = sl_add_recv(s, 2, from, sl_tmp(in_at * count), blocks * count, last);
        blocks = 0;
        for (uint32_t j = (uint32_t)d; j < n; j++) {
            if ((j & d) == 0)
                continue;
            bool there = j < 2 * d;
            sl_add_copy(s, 0, sl_tmp((in_at + blocks++) * count),
                        there ? sl_out((rank + n - j) % n * count) : sl_tmp(j * count), count, got);
        }
    }
}

static int bruck_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "bruck");
    if (shape->size < 2)
        return sl_fail(-ENOTSUP, "bruck needs 2 ranks");
    if (shape->count == 0)
        return 0;
    if (shape->coll == SL_ALL_GATHER)
        all_gather(out, shape);
    else if (shape->coll == SL_REDUCE_SCATTER)
        reduce_scatter(out, shape);
    else
        all_to_all(out, shape);
    return sl_schedule_finish(out);
}

static double bruck_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize, n = shape->size;
    double rounds = sl_log2_ceil(shape->size), crowd = sl_cost_crowd(costs);

    if (shape->size < 2)
        return -1;
    if (shape->coll == SL_ALL_GATHER)
        return crowd * (rounds * (link->alpha + 3 * costs->step) + (n - 1) * bytes * link->beta +
                        bytes * costs->copy);
    if (shape->coll == SL_REDUCE_SCATTER)
        return crowd * (rounds * (link->alpha + 2 * costs->step) + n * bytes * costs->copy +
                        (n - 1) * bytes * (link->beta + costs->reduce));
    return crowd * rounds *
           (link->alpha + n / 2 * bytes * (link->beta + 2 * costs->copy) + n * costs->step);
}

const struct sl_algo sl_algo_bruck = {
    .name = "bruck",
    .colls = SL_BIT(SL_ALL_GATHER) | SL_BIT(SL_REDUCE_SCATTER) | SL_BIT(SL_ALL_TO_ALL),
    .source = "Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8(11), 1997",
    .build = bruck_build,
    .cost = bruck_cost,
};
