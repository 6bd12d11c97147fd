/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses an algorithm for a shape: the cheapest by its cost function, or the one SLUICE_ALGO
 * names. */
#include "collectives/select.h"

#include "collectives/code.h"
#include "core/err.h"
#include "schedules/shares.h"

#include <string.h>

#define MESSAGES_DO_WORSE 1.25 /* measured: 1.1 at 64 KiB, 1.2 at 1 MiB, 2 ranks */
/* Costs of messages that are measured one after the other differ by a third (docs/perf.md):
 * predictions that are closer than this decide nothing. Then windows are taken, whose costs vary
 * less. */
#define UNDECIDED 1.1

/* Messages where windows would do as well. */
static bool replaces_windows(const struct sluice_comm *comm, const struct sl_algo *algo,
                             const struct sl_shape *shape)
{
    return !algo->needs_windows && shape->win_count != 0 && comm->host_count == 1;
}

static double uncorrected(const struct sluice_comm *comm, const struct sl_algo *algo,
                          const struct sl_shape *shape)
{
    if ((algo->colls & 1u << shape->coll) == 0 || (algo->needs_windows && shape->win_count == 0))
        return -1;
    struct sl_costs costs = comm->costs;

    /* All others have a part in everything, and so are as slow as the slowest rank's links. */
    if (shape->speed != NULL && !algo->needs_unequal)
        costs.net.beta /= sl_speeds_of(shape->speed, shape->size).slowest;
    double cost = algo->cost(shape, &costs);

    /* Messages inside a host were measured on one warm buffer; over a whole vector they do
     * worse. */
    return replaces_windows(comm, algo, shape) ? cost * MESSAGES_DO_WORSE : cost;
}

static double cost_of(const struct sluice_comm *comm, const struct sl_algo *algo,
                      const struct sl_shape *shape)
{
    double factor = algo->needs_windows ? comm->correction.windows : comm->correction.messages;

    return uncorrected(comm, algo, shape) * (factor != 0 ? factor : 1);
}

double sl_select_predict(const struct sluice_comm *comm, const struct sl_shape *shape,
                         const char *algo)
{
    const struct sl_algo *found = sl_algo_find(algo, strlen(algo));

    return found != NULL ? uncorrected(comm, found, shape) : -1;
}

/* The selector may take it. */
static bool is_eligible(const struct sl_algo *algo, const struct sl_shape *shape)
{
    return !algo->needs_unequal || shape->speed != NULL;
}

static const struct sl_algo *cheapest(const struct sluice_comm *comm, const struct sl_shape *shape)
{
    const struct sl_algo *best = NULL;
    double best_cost = 0;

    for (const struct sl_algo *const *a = sl_algos; *a != NULL; a++) {
        double cost = is_eligible(*a, shape) ? cost_of(comm, *a, shape) : -1;

        if (replaces_windows(comm, *a, shape))
            cost *= UNDECIDED;
        if (cost >= 0 && (best == NULL || cost < best_cost)) {
            best = *a;
            best_cost = cost;
        }
    }
    return best;
}

static void set_chunk(const struct sluice_comm *comm, struct sl_shape *shape)
{
    shape->chunk = (uint64_t)comm->config.chunk_bytes / shape->esize;
    if (comm->config.chunk_bytes != 0 && shape->chunk == 0)
        shape->chunk = 1;
}

static int choose(const struct sluice_comm *comm, struct sl_shape *shape,
                  const struct sl_algo **out, bool *forced)
{
    int err = sl_forced_algo(comm->config.algo, shape->coll, out);

    if (err != 0)
        return err;
    set_chunk(comm, shape);
    *forced = *out != NULL && comm->size > 1;
    if (!*forced)
        *out = cheapest(comm, shape);
    else if (cost_of(comm, *out, shape) < 0)
        return sl_fail(-EINVAL, "SLUICE_ALGO forces %s, which cannot do this %s: %s", (*out)->name,
                       sl_coll_name(shape->coll),
                       (*out)->needs_windows && shape->win_count == 0
                           ? "these ranks share no windows"
                           : "the size, the number of ranks or their hosts do not suit it");
    return *out != NULL ? 0
                        : sl_fail(-ENOTSUP, "no algorithm does this %s", sl_coll_name(shape->coll));
}

/* The algorithms that reduce a code's terms: as if a user had called for each. */
static int choose_within(const struct sluice_comm *comm, struct sl_shape *shape)
{
    int err = 0;

    for (uint32_t i = 0; err == 0 && shape->count != 0 && i < shape->code->term_count; i++) {
        struct sl_shape term;
        bool forced;

        sl_term_shape(shape, i, &term);
        err = choose(comm, &term, &shape->within[i], &forced);
    }
    return err;
}

double sl_select_coded(const struct sluice_comm *comm, const struct sl_algo *algo,
                       const struct sl_shape *shape)
{
    struct sl_shape copy = *shape;

    set_chunk(comm, &copy);
    if (algo->cost == NULL || (algo->needs_terms && choose_within(comm, &copy) != 0))
        return -1;
    return cost_of(comm, algo, &copy);
}

void sl_select_explain_terms(const struct sluice_comm *comm, const struct sl_shape *shape,
                             FILE *out)
{
    struct sl_shape copy = *shape;
    int err = choose_within(comm, &copy);

    for (uint32_t i = 0; err == 0 && i < shape->code->term_count; i++)
        fprintf(out, "    with an allreduce of %llu %s, %s, by %s\n",
                (unsigned long long)sl_term_count(shape, i),
                sluice_dtype_name((enum sluice_dtype)shape->code->terms[i].dtype),
                sluice_op_name((enum sluice_op)shape->code->terms[i].op), copy.within[i]->name);
}

const struct sl_algo *sl_select_raw(const struct sluice_comm *comm, const struct sl_shape *shape,
                                    double *ns)
{
    const struct sl_algo *algo;
    struct sl_shape copy = *shape;
    bool forced;

    copy.code = copy.inner = NULL;
    if (choose(comm, &copy, &algo, &forced) != 0)
        return NULL; /* it will be said when that is built */
    *ns = cost_of(comm, algo, &copy);
    return algo;
}

int sl_select_build(const struct sluice_comm *comm, struct sl_shape *shape, struct sl_schedule *out)
{
    const struct sl_algo *algo;
    bool forced;
    int err = choose(comm, shape, &algo, &forced);

    return err != 0 ? err : algo->build(shape, out);
}

int sl_select_build_as(const struct sluice_comm *comm, const struct sl_algo *algo,
                       struct sl_shape *shape, struct sl_schedule *out)
{
    if ((algo->colls & 1u << shape->coll) == 0 || (algo->needs_windows && shape->win_count == 0))
        return sl_fail(-ENOTSUP, "%s cannot do this %s", algo->name, sl_coll_name(shape->coll));
    set_chunk(comm, shape);
    int err = algo->needs_terms ? choose_within(comm, shape) : 0;

    return err ?: algo->build(shape, out);
}

int sl_select_explain(const struct sluice_comm *comm, const struct sl_call *call, FILE *out)
{
    const struct sl_algo *chosen;
    struct sl_coding_choice coded;
    struct sl_shape shape;
    bool forced;

    sl_call_shape(comm, call, &shape);
    int err = choose(comm, &shape, &chosen, &forced);

    if (err != 0)
        return err;
    sl_coding_choose(comm->coding, comm, call, comm->speeds.now, &coded);
    fprintf(out, "%s of %llu %s on %u rank%s, %u host%s: %s (%s)\n", sl_coll_name(call->coll),
            (unsigned long long)call->count, sluice_dtype_name(call->dtype), comm->size,
            comm->size == 1 ? "" : "s", comm->host_count, comm->host_count == 1 ? "" : "s",
            coded.taken ? coded.algo->name : chosen->name,
            coded.taken ? "compressed"
            : forced    ? "forced by SLUICE_ALGO"
                        : "predicted fastest");
    fprintf(
        out,
        "  costs (%s): message in a host %.0f ns + %.3f ns/B, between hosts %.0f ns + %.3f ns/B, "
        "sync %.0f ns, copy %.3f ns/B, reduce %.3f ns/B, %u rank%s a core\n",
        comm->costs_source, comm->costs.shm.alpha, comm->costs.shm.beta, comm->costs.net.alpha,
        comm->costs.net.beta, comm->costs.sync, comm->costs.copy, comm->costs.reduce,
        comm->costs.ranks_per_core, comm->costs.ranks_per_core == 1 ? "" : "s");
    if (comm->coding != NULL)
        sl_coding_explain(comm, call, &coded, out);
    if (shape.speed != NULL)
        fprintf(out,
                "  links: the slowest rank's deliver %.3f of the fastest's, all together %.3f\n",
                sl_speeds_of(shape.speed, shape.size).slowest,
                sl_speeds_of(shape.speed, shape.size).sum);
    for (const struct sl_algo *const *a = sl_algos; *a != NULL; a++) {
        double cost = cost_of(comm, *a, &shape);

        if (((*a)->colls & 1u << call->coll) == 0)
            continue;
        if (!is_eligible(*a, &shape) && cost >= 0)
            fprintf(out, "  %-14s %12.2f us, only for links that differ\n", (*a)->name,
                    cost / 1000);
        else if (cost >= 0)
            fprintf(out, "  %-14s %12.2f us\n", (*a)->name, cost / 1000);
        else
            fprintf(out, "  %-14s %15s\n", (*a)->name,
                    (*a)->needs_windows && shape.win_count == 0 ? "no windows" : "does not suit");
    }
    if (shape.win_count != 0 && comm->host_count == 1)
        fprintf(out, "  messages are taken for windows only if they are a tenth faster\n");
    return 0;
}
