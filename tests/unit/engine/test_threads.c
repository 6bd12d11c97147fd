/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads at one communicator: SLUICE_PROGRESS=thread, and an abort from another thread. For the
 * thread sanitizer, and plain. */
#include "core/err.h"

#include <sluice/sluice.h>

#include <setjmp.h>
#include <stdarg.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <time.h>

#define RANKS 3
#define ROUNDS 30
#define CALLERS 2
#define N 500

struct rank {
    struct sluice_unique_id id;
    struct sluice_comm *comm;
    int me, code;
    _Atomic int started;
    char text[256];
    int32_t buf[CALLERS][N];
};

static struct rank ranks[RANKS];

static void note(struct rank *r, int err)
{
    if (err == 0 || r->code != 0)
        return;
    r->code = err;
    snprintf(r->text, sizeof(r->text), "%s", sluice_last_error());
}

static void on_ranks(void *(*body)(void *))
{
    struct sluice_unique_id id;
    pthread_t thread[RANKS];

    setenv("SLUICE_TUNE", "off", 1);
    setenv("SLUICE_TIMEOUT_MS", "20000", 1);
    setenv("SLUICE_INTERFACE", "lo", 1);
    assert_int_equal(sluice_unique_id_create(&id), 0);
    for (int i = 0; i < RANKS; i++) {
        memset(&ranks[i], 0, sizeof(ranks[i]));
        ranks[i].id = id;
        ranks[i].me = i;
        assert_int_equal(pthread_create(&thread[i], NULL, body, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
}

static void *collect(void *arg)
{
    struct rank *r = arg;
    struct sluice_comm *child = NULL;
    struct sluice_req *req[CALLERS] = {NULL};

    note(r, sluice_comm_create_id(&r->id, r->me, RANKS, NULL, &r->comm));
    for (int round = 0; round < ROUNDS && r->code == 0; round++) {
        for (int c = 0; c < CALLERS && r->code == 0; c++) {
            for (int i = 0; i < N; i++)
                r->buf[c][i] = r->me + c + round;
            note(r, sluice_allreduce(r->comm, r->buf[c], r->buf[c], N, SLUICE_I32, SLUICE_SUM, &req[c]));
        }
        while (r->code == 0 && round % 2 == 0 && sluice_test(req[0]) == 0)
            ;
        for (int c = 0; c < CALLERS && r->code == 0; c++) {
            note(r, sluice_wait(req[c]));
            sluice_req_free(req[c]);
            for (int i = 0; i < N && r->code == 0; i++)
                if (r->buf[c][i] != 3 + 3 * (c + round))
                    r->code = -EBADMSG;
        }
    }
    if (r->code == 0)
        note(r, sluice_comm_split(r->comm, 0, r->me, &child));
    if (r->code == 0)
        note(r, sluice_barrier(child, NULL));
    sluice_comm_destroy(child);
    sluice_comm_destroy(r->comm);
    return NULL;
}

static void a_thread_of_the_communicator_makes_progress_beside_its_callers(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "thread", 1);
    on_ranks(collect);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].code != 0)
            fail_msg("rank %d: %d: %s", i, ranks[i].code, ranks[i].text);
}

static void *abort_soon(void *arg)
{
    struct rank *r = arg;
    struct timespec pause = {.tv_nsec = 1000000};

    while (r->started == 0)
        nanosleep(&pause, NULL);
    nanosleep(&pause, NULL);
    sluice_comm_abort(r->comm);
    sluice_comm_abort(r->comm);
    return NULL;
}

static void *until_aborted(void *arg)
{
    struct rank *r = arg;
    pthread_t thread;

    note(r, sluice_comm_create_id(&r->id, r->me, RANKS, NULL, &r->comm));
    if (r->me == 1 && r->code == 0)
        pthread_create(&thread, NULL, abort_soon, r);
    int aborts = r->me == 1 && r->code == 0;

    while (r->code == 0) {
        note(r, sluice_allreduce(r->comm, r->buf[0], r->buf[1], N, SLUICE_I32, SLUICE_MAX, NULL));
        r->started = 1;
    }
    if (aborts)
        pthread_join(thread, NULL);
    sluice_comm_destroy(r->comm);
    return NULL;
}

static void expect_aborted(void)
{
    on_ranks(until_aborted);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].code != -ECANCELED || strstr(ranks[i].text, "rank 1 aborted") == NULL)
            fail_msg("rank %d: %d: %s", i, ranks[i].code, ranks[i].text);
}

static void an_abort_from_another_thread_ends_all_ranks(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "caller", 1);
    expect_aborted();
}

static void an_abort_ends_all_ranks_that_have_threads(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "thread", 1);
    expect_aborted();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_of_the_communicator_makes_progress_beside_its_callers),
        cmocka_unit_test(an_abort_from_another_thread_ends_all_ranks),
        cmocka_unit_test(an_abort_ends_all_ranks_that_have_threads),
    };

    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
