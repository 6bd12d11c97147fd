/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that runners have and encodings of run-time length, by the real executor on simulated
 * networks, one run per seed: results are right, or every rank has an error that names the one
 * whose runner broke. Arguments: seeds.h.
 */
#include "collectives/operation.h"
#include "core/err.h"
#include "tests/sim/ranks.h"
#include "tests/sim/seeds.h"
#include "tests/toy/toy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 8
#define COUNT_MAX 600
#define LIMIT_NS (60 * SL_NS_PER_S)

enum mode { WELL, BREAKS, LIES, HANGS, ABORTS, CRASHES };

static const char *const modes[] = {"well", "breaks", "lies", "hangs", "aborts", "crashes"};

struct run {
    uint64_t seed;
    enum mode mode;
    uint32_t ranks, count, rounds, culprit, at_job, delay_max, jobs_max;
    const struct sl_algo *algo;
    struct sl_sim_params params;
    struct sl_sim_fault fault;
    struct sl_config config;
};

struct place {
    struct run *run;
    uint32_t rank, started, refused, cancelled;
    int result;
    char text[512];
    struct toy toys[2];
};

static void draw(struct run *r, uint64_t seed)
{
    static const struct sl_algo *const algos[] = {&toy_oneshot, &toy_oneshot_fixed, &toy_ring,
                                                  &toy_dma};
    struct sl_rng rng;

    *r = (struct run){.seed = seed, .algo = algos[seed % 4]};
    sl_rng_init(&rng, seed);
    r->mode = sl_rng_chance(&rng, 2) ? WELL : (enum mode)sl_rng_range(&rng, BREAKS, CRASHES);
    r->ranks = (uint32_t)sl_rng_range(&rng, 2, RANKS_MAX);
    r->count = (uint32_t)sl_rng_range(&rng, 1, sl_rng_chance(&rng, 2) ? 20 : COUNT_MAX);
    r->rounds = (uint32_t)sl_rng_range(&rng, 1, 5);
    r->culprit = (uint32_t)sl_rng_below(&rng, r->ranks);
    r->at_job = 1;
    r->delay_max = sl_rng_chance(&rng, 4) ? 0 : (uint32_t)sl_rng_range(&rng, 1, 40);
    r->jobs_max = (uint32_t)sl_rng_range(&rng, 1, TOY_JOBS);
    sl_sim_params_init(&r->params, r->ranks, sl_rng_u64(&rng));
    r->params.latency_ns = UINT64_C(1) << sl_rng_range(&rng, 6, 16);
    r->params.jitter_ns = sl_rng_chance(&rng, 2) ? UINT64_C(1) << sl_rng_below(&rng, 18) : 0;
    r->params.eager_max = sl_rng_chance(&rng, 3) ? 0 : UINT64_C(1) << sl_rng_below(&rng, 12);
    r->params.sends_max = (unsigned)sl_rng_range(&rng, 1, 16);
    r->params.recvs_max = (unsigned)sl_rng_range(&rng, 1, 16);
    r->params.eagain_in = sl_rng_chance(&rng, 2) ? (uint32_t)sl_rng_range(&rng, 2, 60) : 0;
    r->params.stall_in = sl_rng_chance(&rng, 2) ? (uint32_t)sl_rng_range(&rng, 20, 400) : 0;
    r->params.late_in = sl_rng_chance(&rng, 2) ? (uint32_t)sl_rng_range(&rng, 2, 6) : 0;
    r->fault = (struct sl_sim_fault){
        SL_SIM_CRASH, r->culprit, 0, sl_rng_below(&rng, 1 << 20), sl_rng_below(&rng, 1 << 20), 0};
    r->params.faults = &r->fault;
    r->params.fault_count = r->mode == CRASHES;
    sl_config_defaults(&r->config);
    r->config.timeout_ms = 400;
    r->config.connect_timeout_ms = 2000;
    r->config.status_signal = SL_OFF;
    r->config.tune = SL_TUNE_OFF;
}

static uint32_t value_of(const struct run *r, uint32_t round, uint32_t rank, uint32_t idx)
{
    /* Of all lengths that the codec has. */
    return (idx * 2654435761u + rank * 40503u + round) >> ((idx + rank + (uint32_t)r->seed) % 30);
}

static bool is_right(const struct run *r, uint32_t round, const uint32_t *out)
{
    bool gathers = r->algo == &toy_ring;

    for (uint32_t i = 0; i < (gathers ? r->ranks * r->count : r->count); i++) {
        uint32_t want = gathers ? value_of(r, round, i / r->count, i % r->count) : 0;

        for (uint32_t rank = 0; rank < r->ranks && !gathers; rank++)
            want += value_of(r, round, rank, i);
        if (out[i] != want)
            return false;
    }
    return true;
}

static int make(struct place *p, struct sluice_comm *comm, const uint32_t *in, uint32_t *out,
                struct sluice_operation **made)
{
    struct run *r = p->run;
    struct sl_call call = {.coll = r->algo == &toy_ring ? SL_ALL_GATHER : SL_ALLREDUCE,
                           .dtype = SLUICE_U32,
                           .op = SLUICE_SUM,
                           .count = r->count};
    struct sl_runner *runners[2];

    for (unsigned i = 0; i < 2; i++) {
        struct toy *toy = &p->toys[i];

        toy_init(toy, i == 1, r->seed * 31 + p->rank);
        toy->delay_max = r->delay_max;
        toy->jobs_max = r->jobs_max;
        toy->fails_at = r->mode == BREAKS && p->rank == r->culprit ? r->at_job : 0;
        toy->lies_at = r->mode == LIES && p->rank == r->culprit ? r->at_job : 0;
        toy->hangs_at = r->mode == HANGS && p->rank == r->culprit ? r->at_job : 0;
    }
    struct sl_recipe recipe = toy_recipe(r->algo, runners, &p->toys[0], &p->toys[1]);

    return sl_operation_create(comm, &call, &recipe, in, out, made);
}

static int run_rounds(struct place *p, struct sluice_comm *comm)
{
    static uint32_t in[RANKS_MAX][COUNT_MAX], out[RANKS_MAX][RANKS_MAX * COUNT_MAX];
    struct run *r = p->run;
    struct sluice_operation *operation;
    int err = make(p, comm, in[p->rank], out[p->rank], &operation);

    for (uint32_t round = 0; round < r->rounds && err == 0; round++) {
        for (uint32_t i = 0; i < r->count; i++)
            in[p->rank][i] = value_of(r, round, p->rank, i);
        memset(out[p->rank], 0x5c, sizeof(out[p->rank]));
        if (r->mode == ABORTS && p->rank == r->culprit)
            sluice_comm_abort(comm);
        err = sluice_start(operation, NULL);
        if (err == 0 && !is_right(r, round, out[p->rank]))
            err = sl_fail(-EBADMSG, "round %u has wrong elements", round);
        p->started++;
    }
    if (err != 0)
        snprintf(p->text, sizeof(p->text), "%s", sluice_last_error());
    sluice_operation_free(operation);
    return err;
}

static void live(const struct sim_rank *rank)
{
    struct place *p = (struct place *)rank->all->arg + rank->number;
    struct sl_comm_params params = sim_comm_params(rank, p->run->seed, &p->run->config);
    struct sluice_comm *comm = NULL;

    p->result = sl_comm_create(rank->exchange, &params, &comm);
    if (p->result != 0)
        snprintf(p->text, sizeof(p->text), "%s", sluice_last_error());
    else
        p->result = run_rounds(p, comm);
    sluice_comm_destroy(comm);
    p->refused = p->toys[0].refused + p->toys[1].refused;
    p->cancelled = p->toys[0].cancelled + p->toys[1].cancelled;
}

/* The jobs of toy_dma follow its sends, and tell no length: its peers may have all they need. */
static bool must_fail(const struct run *r, const struct place *p)
{
    if (r->mode == WELL || r->mode == CRASHES || (r->mode == LIES && r->algo == &toy_dma))
        return false;
    return r->algo != &toy_dma || p->rank == r->culprit;
}

static bool judge(void *arg, uint32_t rank, char *why, size_t cap)
{
    const struct place *p = (const struct place *)arg + rank;
    const struct run *r = p->run;
    bool failed = must_fail(r, p), good;
    char culprit[32];

    snprintf(culprit, sizeof(culprit), "rank %u", r->culprit);
    /* Who waits for a rank that hangs may know of the next one in the chain only. */
    if (r->mode == HANGS || r->mode == CRASHES)
        snprintf(culprit, sizeof(culprit), "rank");
    if (p->result == -EBADMSG)
        good = false;
    else if (p->result < 0)
        good = r->mode != WELL &&
               (strstr(p->text, culprit) != NULL || (r->mode == CRASHES && p->rank == r->culprit));
    else
        good = !failed;
    /* The one whose step it was says which. */
    if (good && failed && r->mode != ABORTS && p->rank == r->culprit)
        good = strstr(p->text, "step") != NULL && strstr(p->text, "toy") != NULL;
    if (!good)
        snprintf(why, cap, "%s, %s: rank %u ended with %d: %s", r->algo->name, modes[r->mode],
                 p->rank, p->result, p->text);
    return good;
}

static bool run_seed(uint64_t seed, bool tell, bool trace, char *why, size_t cap)
{
    struct place *places = calloc(RANKS_MAX, sizeof(*places));
    struct run r;

    sl_assert(places != NULL);
    draw(&r, seed);
    r.params.trace = trace ? stdout : NULL;
    for (uint32_t i = 0; i < r.ranks; i++) {
        places[i].run = &r;
        places[i].rank = i;
    }
    const struct sim_ranks ranks = {&r.params, r.ranks, LIMIT_NS, live, judge, places};
    bool good = sim_ranks_run(&ranks, why, cap);

    for (uint32_t i = 0; i < r.ranks && tell; i++)
        printf("# rank %u: %d after %u starts, runner full %u times, %u jobs taken back: %s\n", i,
               places[i].result, places[i].started, places[i].refused, places[i].cancelled,
               places[i].text);
    if (tell)
        printf("# %s of %u ranks, %u elements, %s, delay %u, %u jobs\n", r.algo->name, r.ranks,
               r.count, modes[r.mode], r.delay_max, r.jobs_max);
    if (good)
        free(places);
    return good;
}

int main(int argc, char **argv)
{
    static const struct seeds seeds = {"sim_toy", run_seed, NULL};

    return seeds_main(&seeds, argc, argv);
}
