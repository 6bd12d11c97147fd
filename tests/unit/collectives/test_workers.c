/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of one worker, used by several threads: siblings at once, one after the other, with
 * the process's progress thread beside them, and while a thread sleeps in one of them. For the
 * thread sanitizer, and plain. */
#include "collectives/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 2
#define CHILDREN 3
#define ROUNDS 40
#define N 3000

struct user { /* a thread that has one communicator */
    struct sluice_comm *comm;
    int me, seed, code;
    char text[256];
    int32_t in[N], out[N];
};

struct rank {
    struct sluice_unique_id id;
    int me, code;
    char text[256];
    struct user users[CHILDREN];
};

static struct rank ranks[RANKS];

static void note(int *code, char text[256], int err)
{
    if (err == 0 || *code != 0)
        return;
    *code = err;
    snprintf(text, 256, "%s", sluice_last_error());
}

static void add_up(struct user *u, int round, struct sluice_req **req)
{
    for (int i = 0; i < N; i++)
        u->in[i] = u->me + u->seed + round + i;
    note(&u->code, u->text,
         sluice_allreduce(u->comm, u->in, u->out, N, SLUICE_I32, SLUICE_SUM, req));
}

static void check(struct user *u, int round)
{
    for (int i = 0; i < N && u->code == 0; i++)
        if (u->out[i] != RANKS * (u->seed + round + i) + RANKS * (RANKS - 1) / 2)
            u->code = -EBADMSG;
}

static void *use(void *arg)
{
    struct user *u = arg;
    struct sluice_req *req = NULL;

    for (int round = 0; round < ROUNDS && u->code == 0; round++) {
        add_up(u, round, round % 3 == 0 ? &req : NULL);
        if (u->code == 0 && round % 3 == 0) {
            note(&u->code, u->text, sluice_wait(req));
            sluice_req_free(req);
        }
        check(u, round);
    }
    return NULL;
}

/* One thread for each child, at once; the children of a rank live on one worker. */
static void at_once(struct rank *r)
{
    pthread_t thread[CHILDREN];

    for (int c = 0; c < CHILDREN; c++)
        pthread_create(&thread[c], NULL, use, &r->users[c]);
    for (int c = 0; c < CHILDREN; c++)
        pthread_join(thread[c], NULL);
}

/* All children by one thread, with operations on all of them under way. */
static void crosswise(struct rank *r)
{
    struct sluice_req *req[CHILDREN] = {NULL};

    for (int round = 0; round < ROUNDS; round++) {
        for (int c = 0; c < CHILDREN; c++)
            add_up(&r->users[c], round, &req[c]);
        for (int i = 0; i < CHILDREN; i++) {
            int c = r->me == 0 ? i : CHILDREN - 1 - i;
            struct user *u = &r->users[c];

            if (u->code != 0)
                return;
            note(&u->code, u->text, sluice_wait(req[c]));
            sluice_req_free(req[c]);
            check(u, round);
        }
    }
}

static void (*body)(struct rank *r);

static void *live(void *arg)
{
    struct rank *r = arg;
    struct sluice_comm *world = NULL;

    note(&r->code, r->text, sluice_comm_create_id(&r->id, r->me, RANKS, NULL, &world));
    for (int c = 0; c < CHILDREN && r->code == 0; c++) {
        struct user *u = &r->users[c];

        u->me = r->me;
        u->seed = 100 * c;
        note(&r->code, r->text, sluice_comm_split(world, 0, r->me, &u->comm));
        if (r->code == 0 && u->comm->worker != world->worker)
            r->code = -EXDEV;
    }
    if (r->code == 0)
        body(r);
    /* The parent goes first: its children live on. */
    sluice_comm_destroy(world);
    if (r->code == 0)
        use(&r->users[0]);
    for (int c = 0; c < CHILDREN; c++) {
        if (r->code == 0 && r->users[c].code != 0) {
            r->code = r->users[c].code;
            memcpy(r->text, r->users[c].text, sizeof(r->text));
        }
        sluice_comm_destroy(r->users[c].comm);
    }
    return NULL;
}

static void run(void (*what)(struct rank *r), const char *progress, const char *spin_us)
{
    struct sluice_unique_id id;
    pthread_t thread[RANKS];

    body = what;
    setenv("SLUICE_TUNE", "off", 1);
    setenv("SLUICE_TIMEOUT_MS", "20000", 1);
    setenv("SLUICE_INTERFACE", "lo", 1);
    setenv("SLUICE_PROGRESS", progress, 1);
    setenv("SLUICE_SPIN_US", spin_us, 1);
    assert_int_equal(sluice_unique_id_create(&id), 0);
    memset(ranks, 0, sizeof(ranks));
    for (int i = 0; i < RANKS; i++) {
        ranks[i].id = id;
        ranks[i].me = i;
        assert_int_equal(pthread_create(&thread[i], NULL, live, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].code != 0)
            fail_msg("rank %d: %d: %s", i, ranks[i].code, ranks[i].text);
}

static void threads_use_siblings_at_once(void **state)
{
    (void)state;
    run(at_once, "caller", "100");
}

static void a_thread_that_sleeps_lets_others_in(void **state)
{
    (void)state;
    run(at_once, "caller", "0");
}

static void threads_use_siblings_beside_the_progress_thread(void **state)
{
    (void)state;
    run(at_once, "thread", "100");
}

static void one_thread_uses_all_siblings(void **state)
{
    (void)state;
    run(crosswise, "caller", "100");
    run(crosswise, "caller", "0");
    run(crosswise, "thread", "0");
}

/* ---- a lone worker ---- */

static void *wait_for(void *arg)
{
    pthread_barrier_wait(arg);
    return NULL;
}

/* The second thread may be making a communicator that joins. */
static void with_a_second_thread_calls_claim_their_worker(void **state)
{
    struct sl_worker *worker;
    struct sl_config config;
    pthread_barrier_t end;
    pthread_t thread;

    (void)state;
    sl_config_defaults(&config);
    worker = sl_worker_new(&config);
    assert_non_null(worker);
    pthread_barrier_init(&end, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, wait_for, &end), 0);
    sl_worker_enter(worker);
    assert_int_equal(atomic_load(&worker->claimed), 1);
    sl_worker_exit(worker);
    assert_int_equal(atomic_load(&worker->claimed), 0);
    pthread_barrier_wait(&end);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&end);
    sl_worker_put(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_second_thread_calls_claim_their_worker),
        cmocka_unit_test(threads_use_siblings_at_once),
        cmocka_unit_test(a_thread_that_sleeps_lets_others_in),
        cmocka_unit_test(threads_use_siblings_beside_the_progress_thread),
        cmocka_unit_test(one_thread_uses_all_siblings),
    };

    return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}
