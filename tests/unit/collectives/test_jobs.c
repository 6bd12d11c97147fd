/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that runners have, over the real transport that the argument names: ranks are threads, and
 * the runner has a thread more or ends its jobs some looks later.
 */
#include "crew.h"

#include "collectives/operation.h"
#include "collectives/report.h"
#include "core/err.h"
#include "core/registry.h"
#include "tests/toy/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 3
#define N 5000
#define ROUNDS 20

static const char *transport;
static bool threaded, ordered;
static const struct sl_algo *algo;

struct rank {
    struct toy toys[2];
    struct sl_runner *runners[2];
    struct sl_recipe recipe;
    struct sluice_operation *operation;
    uint32_t in[N], out[RANKS * N];
};

static struct rank *rank_new(int number)
{
    struct rank *r = calloc(1, sizeof(*r));

    sl_assert(r != NULL);
    for (unsigned i = 0; i < 2; i++) {
        toy_init(&r->toys[i], i == 1, (uint64_t)number);
        r->toys[i].delay_max = 5;
        if (threaded)
            toy_start_thread(&r->toys[i]);
        if (ordered)
            toy_keep_order(&r->toys[i]);
    }
    r->recipe = toy_recipe(algo, r->runners, &r->toys[0], &r->toys[1]);
    return r;
}

static void rank_free(struct rank *r)
{
    sluice_operation_free(r->operation);
    toy_fini(&r->toys[0]);
    toy_fini(&r->toys[1]);
    free(r);
}

static int make(struct rank *r, struct sluice_comm *comm)
{
    struct sl_call call = {.coll = algo == &toy_ring ? SL_ALL_GATHER : SL_ALLREDUCE,
                           .dtype = SLUICE_U32,
                           .op = SLUICE_SUM,
                           .count = N};

    return sl_operation_create(comm, &call, &r->recipe, r->in, r->out, &r->operation);
}

static uint32_t value_of(int rank, uint32_t idx, uint32_t round)
{
    return (idx * 2654435761u + round) >> ((idx + (uint32_t)rank) % 30);
}

static bool is_right(const struct rank *r, uint32_t round)
{
    for (uint32_t i = 0; i < N; i++) {
        uint32_t sum = 0;

        for (int rank = 0; rank < RANKS; rank++) {
            uint32_t value = value_of(rank, i, round);

            sum += value;
            if (algo == &toy_ring && r->out[(uint32_t)rank * N + i] != value)
                return false;
        }
        if (algo != &toy_ring && r->out[i] != sum)
            return false;
    }
    return true;
}

static bool some_rounds(struct sluice_comm *comm, struct rank *r, int rank)
{
    struct sluice_req *req;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++)
            r->in[i] = value_of(rank, i, round);
        if (sluice_start(r->operation, &req) != 0 || sluice_wait(req) != 0 || !is_right(r, round))
            return false;
    }
    return true;
}

static void body(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    int state;

    CREW_EXPECT(make(r, comm) == 0);
    sl_operation_keep(r->operation, &state, NULL);
    CREW_EXPECT(some_rounds(comm, r, rank));
    CREW_EXPECT(r->toys[0].states == r->toys[0].taken && r->toys[1].states == r->toys[1].taken);
    CREW_EXPECT(r->toys[0].taken + r->toys[1].taken >= ROUNDS * 3);
    CREW_EXPECT(comm->calls.at_work == 0);
    /* Where lengths are known but once a step is over, nothing follows it before. */
    CREW_EXPECT((r->toys[0].after + r->toys[1].after != 0) ==
                (ordered && (algo == &toy_oneshot_fixed || algo == &toy_dma)));
    rank_free(r);
}

static void run(crew_body *what)
{
    const struct sl_transport_ops *ops = sl_transport_find(transport, strlen(transport));
    struct crew crew = {.ranks = RANKS, .settings = "", .ops = {ops, ops, ops}};

    RUN_CREW(&crew, what);
}

static void every_algorithm(void)
{
    static const struct sl_algo *const algos[] = {&toy_oneshot, &toy_oneshot_fixed, &toy_ring,
                                                  &toy_dma};

    for (size_t i = 0; i < SL_ARRAY_LEN(algos); i++) {
        algo = algos[i];
        run(body);
    }
}

static void jobs_end_some_looks_later(void **state)
{
    (void)state;
    threaded = false;
    every_algorithm();
}

static void jobs_are_done_by_a_thread(void **state)
{
    (void)state;
    threaded = true;
    every_algorithm();
}

static void jobs_follow_what_they_need_where_the_runner_keeps_an_order(void **state)
{
    (void)state;
    threaded = false;
    ordered = true;
    every_algorithm();
    ordered = false;
}

/* Rank 0's first job never ends: what it does meanwhile is told, and taken back. */
static void hangs(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_req *req;
    char text[1024];

    r->toys[0].hangs_at = rank == 0 ? 1 : 0;
    CREW_EXPECT(make(r, comm) == 0);
    CREW_EXPECT(sluice_start(r->operation, &req) == 0);
    if (rank == 0) {
        struct sl_waiting waiting;

        for (int i = 0; i < 1000 && comm->calls.at_work > 1; i++)
            CREW_EXPECT(sluice_test(req) == 0);
        sl_op_waiting(req, &waiting);
        CREW_EXPECT(waiting.rank == 0 && waiting.step == 0 && strcmp(waiting.runner, "toy") == 0);
        sl_report_op(req, text, sizeof(text));
        CREW_EXPECT(strstr(text, "at step 0 of 18, encode by toy, ") != NULL);
        sluice_comm_abort(comm);
    }
    CREW_EXPECT(sluice_wait(req) == -ECANCELED);
    CREW_EXPECT(strstr(sluice_last_error(), "rank 0 aborted the communicator") != NULL);
    CREW_EXPECT(comm->calls.at_work == 0 && (rank != 0 || r->toys[0].cancelled != 0));
    rank_free(r);
}

static void a_job_that_hangs_is_told_and_taken_back(void **state)
{
    (void)state;
    threaded = false;
    algo = &toy_oneshot;
    run(hangs);
}

/* A plan without the runners that its steps name is refused, one that others lack as another. */
static void lacks(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    r->recipe.runner_count = 0;
    CREW_EXPECT(make(r, comm) == -ENOTSUP && r->operation == NULL);
    CREW_EXPECT(strstr(sluice_last_error(), "nothing here runs step 0 (encode)") != NULL);
    r->recipe.runner_count = 2;
    if (rank == 1)
        r->runners[0] = r->runners[1];
    CREW_EXPECT(make(r, comm) == 0);
    CREW_EXPECT(sluice_start(r->operation, NULL) == -EPROTO);
    rank_free(r);
}

static void ranks_with_other_runners_differ(void **state)
{
    (void)state;
    threaded = false;
    algo = &toy_oneshot;
    run(lacks);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_end_some_looks_later),
        cmocka_unit_test(jobs_are_done_by_a_thread),
        cmocka_unit_test(jobs_follow_what_they_need_where_the_runner_keeps_an_order),
        cmocka_unit_test(a_job_that_hangs_is_told_and_taken_back),
        cmocka_unit_test(ranks_with_other_runners_differ),
    };

    transport = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests_name("jobs", tests, NULL, NULL);
}
