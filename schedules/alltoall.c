/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in which every block goes straight to its place: pairwise all_to_all (of one size and of
 * many), linear gather and scatter, and the dissemination barrier. */
#include "schedules/build.h"

#include "core/err.h"

static const struct sl_place nowhere = {SL_BUF_NONE, 0};

/* Step i sends to rank + i and receives from rank - i, so that every rank is sent to by one rank at
 * a time. In place, a block is first copied aside, and only then overwritten. */
static void pairwise(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t n = shape->size, rank = shape->rank;
    uint64_t count = shape->count;

    for (uint32_t i = 1; shape->in_place && i < n; i++) {
        uint32_t to = (rank + i) % n;
        sl_add_copy(s, 2, sl_in(to * count), sl_tmp(to * count), count, SL_NO_DEP);
    }
    s->tmp_count = shape->in_place ? n * count : 0;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t to = (rank + i) % n, from = (rank + n - i) % n;
        /* Copy i - 1 moved block rank + i; block `from` is the copy for step n - i. */
        uint32_t copied_to = shape->in_place ? i - 1 : SL_NO_DEP;
        uint32_t copied_from = shape->in_place ? n - i - 1 : SL_NO_DEP;
        sl_add_send(s, 0, to, shape->in_place ? sl_tmp(to * count) : sl_in(to * count), count,
                    copied_to);
        sl_add_recv(s, 1, from, sl_out(from * count), count, copied_from);
    }
    if (!shape->in_place)
        sl_add_copy(s, 2, sl_in(rank * count), sl_out(rank * count), count, SL_NO_DEP);
}

static void pairwise_v(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t n = shape->size, rank = shape->rank;

    for (uint32_t i = 1; i < n; i++) {
        uint32_t to = (rank + i) % n, from = (rank + n - i) % n;
        /* Empty blocks travel too: the peer may think otherwise, and must hear of it. */
        sl_add_send(s, 0, to, shape->in_counts[to] > 0 ? sl_in(shape->in_offs[to]) : nowhere,
                    shape->in_counts[to], SL_NO_DEP);
        sl_add_recv(s, 1, from,
                    shape->out_counts[from] > 0 ? sl_out(shape->out_offs[from]) : nowhere,
                    shape->out_counts[from], SL_NO_DEP);
    }
    if (shape->in_counts[rank] > 0)
        sl_add_copy(s, 2, sl_in(shape->in_offs[rank]), sl_out(shape->out_offs[rank]),
                    shape->in_counts[rank], SL_NO_DEP);
}

static int pairwise_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "pairwise");
    if (shape->size < 2)
        return sl_fail(-ENOTSUP, "pairwise needs 2 ranks");
    if (shape->coll == SL_ALL_TO_ALL_V)
        pairwise_v(out, shape);
    else if (shape->count > 0)
        pairwise(out, shape);
    return sl_schedule_finish(out);
}

static double pairwise_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize;

    if (shape->size < 2)
        return -1;
    return sl_cost_crowd(costs) *
           ((shape->size - 1) * (link->alpha / 2 + bytes * link->beta + 2 * costs->step) +
            link->alpha / 2 + (shape->in_place ? shape->size : 1) * bytes * costs->copy);
}

static void gather(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint64_t count = shape->count;

    if (shape->rank != shape->root) {
        sl_add_send(s, 0, shape->root, sl_in(0), count, SL_NO_DEP);
        return;
    }
    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t from = (shape->rank + i) % shape->size;
        sl_add_recv(s, 0, from, sl_out(from * count), count, SL_NO_DEP);
    }
    if (!shape->in_place)
        sl_add_copy(s, 1, sl_in(0), sl_out(shape->rank * count), count, SL_NO_DEP);
}

static void scatter(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint64_t count = shape->count;

    if (shape->rank != shape->root) {
        sl_add_recv(s, 0, shape->root, sl_out(0), count, SL_NO_DEP);
        return;
    }
    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t to = (shape->rank + i) % shape->size;
        sl_add_send(s, 0, to, sl_in(to * count), count, SL_NO_DEP);
    }
    if (!shape->in_place)
        sl_add_copy(s, 1, sl_in(shape->rank * count), sl_out(0), count, SL_NO_DEP);
}

static int linear_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "linear");
    if (shape->size < 2)
        return sl_fail(-ENOTSUP, "linear needs 2 ranks");
    if (shape->count == 0)
        return 0;
    if (shape->coll == SL_GATHER)
        gather(out, shape);
    else
        scatter(out, shape);
    return sl_schedule_finish(out);
}

static double linear_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize;

    if (shape->size < 2)
        return -1;
    /* The root handles all messages; their latencies overlap. */
    return link->alpha + (shape->size - 1) * (link->alpha / 4 + bytes * link->beta + costs->step) +
           bytes * costs->copy;
}

/* D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", Int. J. Parallel
 * Programming 17(1), 1988. After round k a rank has heard of the 2^(k+1) - 1 ranks before it. */
static int dissemination_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    uint32_t n = shape->size, heard = SL_NO_DEP, all[32], rounds = 0;

    sl_schedule_init(out, "dissemination");
    if (n < 2)
        return sl_fail(-ENOTSUP, "a barrier by messages needs 2 ranks");
    for (uint64_t d = 1; d < n; d *= 2) {
        uint32_t to = (uint32_t)((shape->rank + d) % n),
                 from = (uint32_t)((shape->rank + n - d) % n);
        sl_add_send(out, 0, to, nowhere, 0, heard);
        for (uint32_t i = 0; i + 1 < rounds; i++)
            sl_add_dep(out, all[i]);
        heard = all[rounds++] = sl_add_recv(out, 1, from, nowhere, 0, SL_NO_DEP);
    }
    return sl_schedule_finish(out);
}

static double dissemination_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    if (shape->size < 2)
        return -1;
    return sl_log2_ceil(shape->size) * (sl_cost_link(shape, costs)->alpha + 2 * costs->step) *
           sl_cost_crowd(costs);
}

const struct sl_algo sl_algo_pairwise = {
    .name = "pairwise",
    .colls = SL_BIT(SL_ALL_TO_ALL) | SL_BIT(SL_ALL_TO_ALL_V),
    .source = "",
    .build = pairwise_build,
    .cost = pairwise_cost,
};

const struct sl_algo sl_algo_linear = {
    .name = "linear",
    .colls = SL_BIT(SL_GATHER) | SL_BIT(SL_SCATTER),
    .source = "",
    .build = linear_build,
    .cost = linear_cost,
};

const struct sl_algo sl_algo_dissemination = {
    .name = "dissemination",
    .colls = SL_BIT(SL_BARRIER),
    .source = "Hensgen, Finkel, Manber, IJPP 17(1), 1988",
    .build = dissemination_build,
    .cost = dissemination_cost,
};
