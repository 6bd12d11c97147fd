/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator beside an application's own comes about on all ranks or on none. Ranks are
 * threads; the application's allgather is a table and a barrier. */
#include "core/err.h"
#include "tools/preload/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 3

struct job {
    pthread_barrier_t barrier;
    char table[RANKS][1 << 16];
    int refuse[RANKS];
    uint64_t facts[RANKS];
    int results[RANKS];
    char words[RANKS][256];
    double sums[RANKS];
    _Atomic int rounds, breaks_at; /* the original's own allgather fails in that round; 0: never */
};

struct rank {
    struct job *job;
    int rank;
};

static int allgather(void *arg, const void *in, size_t len, void *out)
{
    struct rank *self = arg;
    struct job *job = self->job;

    assert_true(len <= sizeof(job->table[0]));
    memcpy(job->table[self->rank], in, len);
    pthread_barrier_wait(&job->barrier);
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)out + (size_t)r * len, job->table[r], len);
    if (self->rank == 0)
        job->rounds++;
    pthread_barrier_wait(&job->barrier);
    return job->breaks_at != 0 && job->rounds >= job->breaks_at
               ? sl_fail(-EIO, "the original is lost")
               : 0;
}

static void *live(void *arg)
{
    struct rank *self = arg;
    struct job *job = self->job;
    struct sl_preload_peers peers = {.rank = self->rank,
                                     .size = RANKS,
                                     .arg = self,
                                     .allgather = allgather,
                                     .timeout_ms = 20000,
                                     .facts = job->facts[self->rank],
                                     .refuse = job->refuse[self->rank]};
    struct sluice_comm *comm = NULL;
    double mine = self->rank + 1;

    if (peers.refuse != 0)
        sl_fail(peers.refuse, "this rank will not");
    job->results[self->rank] = sl_preload_comm_create(&peers, &comm);
    snprintf(job->words[self->rank], sizeof(job->words[0]), "%s", sluice_last_error());
    if (job->results[self->rank] == 0) {
        sluice_allreduce(comm, &mine, &job->sums[self->rank], 1, SLUICE_F64, SLUICE_SUM, NULL);
        sluice_barrier(comm, NULL);
    }
    sluice_comm_destroy(comm);
    return NULL;
}

static void run(struct job *job)
{
    struct rank ranks[RANKS];
    pthread_t ids[RANKS];

    pthread_barrier_init(&job->barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){job, r};
        assert_int_equal(pthread_create(&ids[r], NULL, live, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_join(ids[r], NULL), 0);
    pthread_barrier_destroy(&job->barrier);
}

static void an_engine_is_made_over_the_originals_own_calls(void **state)
{
    struct job *job = *state;

    run(job);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(job->results[r], 0);
        assert_true(job->sums[r] == 6);
    }
}

static void one_that_refuses_makes_all_fail(void **state)
{
    struct job *job = *state;

    job->refuse[1] = -EMFILE;
    run(job);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(job->results[r], -EMFILE);
    assert_string_equal(job->words[1], "this rank will not");
    assert_non_null(strstr(job->words[0], "rank 1 could not make its part"));
}

static void ranks_with_other_rules_fail_together(void **state)
{
    struct job *job = *state;

    job->facts[2] = 1;
    run(job);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(job->results[r], -EPROTO);
    assert_non_null(strstr(job->words[0], "rank 2 takes calls by other rules"));
}

/* Whenever it happens: nobody is left waiting in a round that others do not come to. */
static void a_failure_in_any_round_ends_on_all_ranks(void **state)
{
    struct job *job = *state;
    int rounds;

    run(job);
    rounds = job->rounds;
    assert_true(rounds > 2);
    for (int at = 1; at <= rounds; at++) {
        job->rounds = 0;
        job->breaks_at = at;
        run(job);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(job->results[r], -EIO);
    }
}

static int begin(void **state)
{
    setenv("SLUICE_TUNE", "off", 1);
    setenv("SLUICE_TRANSPORT", "tcp", 1);
    *state = calloc(1, sizeof(struct job));
    return *state == NULL;
}

static int end(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_engine_is_made_over_the_originals_own_calls, begin, end),
        cmocka_unit_test_setup_teardown(one_that_refuses_makes_all_fail, begin, end),
        cmocka_unit_test_setup_teardown(ranks_with_other_rules_fail_together, begin, end),
        cmocka_unit_test_setup_teardown(a_failure_in_any_round_ends_on_all_ranks, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
