/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads at one communicator: SLUICE_PROGRESS=thread, the progress thread that looks after
 * paths, and an abort from another thread. For the thread sanitizer, and plain. */
#include "core/clock.h"
#include "core/err.h"
#include "core/registry.h"
#include "core/rng.h"
#include "core/transport.h"
#include "core/worker.h"

#include <sluice/sluice.h>

#include <setjmp.h>
#include <stdarg.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
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

/* ---- a transport that says it repairs paths, or must answer, and counts who moves it ---- */

static const struct sl_transport_ops *real;
static struct sl_transport_ops mending;
static uint32_t mends; /* capabilities that it says it has, besides */
static _Thread_local bool
    calls; /* this thread is in a call of the library: it is not the progress thread */
static _Atomic unsigned kept; /* moved by the progress thread */

int __real_sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                             unsigned *count);
int __wrap_sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                             unsigned *count);

static int open_mending(struct sl_worker *worker, const struct sl_device *dev,
                        const struct sl_handler *handler, struct sl_iface **out)
{
    int err = real->open(worker, dev, handler, out);

    if (err == 0)
        (*out)->caps |= mends;
    return err;
}

static int progress_mending(struct sl_iface *iface, unsigned budget)
{
    if (!calls) {
        /* As transports do that repair: they draw from the worker's generator. */
        sl_rng_u64(&iface->worker->rng);
        atomic_fetch_add(&kept, 1);
    }
    return real->progress(iface, budget);
}

int __wrap_sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                             unsigned *count)
{
    int err = __real_sl_transport_list(list, out, cap, count);

    if (err == 0 && mending.open != NULL)
        out[0] = &mending;
    return err;
}

/* All of SLUICE_TRANSPORT, which names one here. */
static void say_it_mends(uint32_t so)
{
    const char *name = getenv("SLUICE_TRANSPORT");

    real = sl_transport_find(name, strlen(name));
    mending = *real;
    mending.open = open_mending;
    mending.progress = progress_mending;
    mends = so;
    atomic_store(&kept, 0);
}

/* In no call, until the progress thread has moved the transports a few times. */
static void rest(struct rank *r)
{
    uint64_t end = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;
    unsigned before = atomic_load(&kept);

    while (r->code == 0 && atomic_load(&kept) < before + 3 * RANKS) {
        if (sl_now(&sl_clock_monotonic) > end)
            note(r, sl_fail(-ETIMEDOUT, "nobody looks after its transports"));
        sched_yield();
    }
}

/* Rank 0 waits in the parent while the progress thread polls its child, which its waiting moves,
 * too. */
static void wait_beside_the_thread(struct rank *r)
{
    for (int round = 0; round < 3 && r->code == 0; round++) {
        if (r->me != 0)
            rest(r);
        if (r->code == 0)
            note(r,
                 sluice_allreduce(r->comm, r->buf[0], r->buf[0], N, SLUICE_I32, SLUICE_MAX, NULL));
    }
}

/* ---- collectives beside other threads ---- */

static void *collect(void *arg)
{
    struct rank *r = arg;
    struct sluice_comm *child = NULL;
    struct sluice_req *req[CALLERS] = {NULL};

    calls = true;
    note(r, sluice_comm_create_id(&r->id, r->me, RANKS, NULL, &r->comm));
    for (int round = 0; round < ROUNDS && r->code == 0; round++) {
        if (mends != 0 && round % 10 == 9)
            rest(r);
        for (int c = 0; c < CALLERS && r->code == 0; c++) {
            for (int i = 0; i < N; i++)
                r->buf[c][i] = r->me + c + round;
            note(r, sluice_allreduce(r->comm, r->buf[c], r->buf[c], N, SLUICE_I32, SLUICE_SUM,
                                     &req[c]));
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
    if (mends != 0)
        wait_beside_the_thread(r);
    sluice_comm_destroy(child);
    sluice_comm_destroy(r->comm);
    return NULL;
}

static void expect_collected(void)
{
    on_ranks(collect);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].code != 0)
            fail_msg("rank %d: %d: %s", i, ranks[i].code, ranks[i].text);
}

static void a_thread_of_the_communicator_makes_progress_beside_its_callers(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "thread", 1);
    expect_collected();
}

static void paths_are_looked_after_while_nobody_calls(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "caller", 1);
    say_it_mends(SL_CAP_REPAIRS);
    expect_collected();
    say_it_mends(0);
}

static void peers_are_answered_while_nobody_calls(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "caller", 1);
    say_it_mends(SL_CAP_TIMELY);
    expect_collected();
    say_it_mends(0);
}

static void transports_that_mend_nothing_are_left_alone_between_calls(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "caller", 1);
    say_it_mends(0);
    expect_collected();
    assert_int_equal(atomic_load(&kept), 0);
}

/* Starts, and frees under way, while the communicator's thread moves operations and ends them. The
 * last outlives the communicator. */
static void *start_again(void *arg)
{
    struct sluice_operation *operation = NULL;
    struct rank *r = arg;
    struct sluice_req *req;

    note(r, sluice_comm_create_id(&r->id, r->me, RANKS, NULL, &r->comm));
    for (int i = 0; i < 50 && r->code == 0; i++) {
        note(r, sluice_allreduce_init(r->comm, r->buf[0], r->buf[1], N, SLUICE_I32, SLUICE_MAX,
                                      &operation));
        for (int start = 0; start < 3 && r->code == 0; start++) {
            note(r, sluice_start(operation, &req));
            if (r->code == 0 && start < 2)
                note(r, sluice_wait(req));
        }
        if (i % 2 == 0 && r->code == 0) {
            sluice_operation_free(operation); /* maybe under way */
            operation = NULL;
            note(r, sluice_barrier(r->comm, NULL));
        } else if (r->code == 0) {
            note(r, sluice_wait(req));
            note(r, sluice_barrier(r->comm, NULL));
            if (i < 49)
                sluice_operation_free(operation);
        }
    }
    sluice_comm_destroy(r->comm);
    if (r->code == 0 && sluice_start(operation, NULL) != -EINVAL)
        note(r, sl_fail(-EBADMSG, "an operation starts without its communicator"));
    sluice_operation_free(operation);
    return NULL;
}

static void operations_are_started_and_freed_beside_the_thread(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "thread", 1);
    on_ranks(start_again);
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
        cmocka_unit_test(paths_are_looked_after_while_nobody_calls),
        cmocka_unit_test(peers_are_answered_while_nobody_calls),
        cmocka_unit_test(transports_that_mend_nothing_are_left_alone_between_calls),
        cmocka_unit_test(operations_are_started_and_freed_beside_the_thread),
        cmocka_unit_test(an_abort_from_another_thread_ends_all_ranks),
        cmocka_unit_test(an_abort_ends_all_ranks_that_have_threads),
    };

    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
