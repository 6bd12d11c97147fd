/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes communicators, buffers, children and plans, when memory is short: the first allocation
 * of rank 0 fails, then the second, to the end. Each time an error says so, or the call does
 * without; nothing leaks, no descriptor stays open, and nothing is taken down that was never made.
 * Ranks are threads over the transport that SLUICE_TRANSPORT names.
 */
#include "collectives/comm.h"
#include "core/clock.h"
#include "core/err.h"
#include "lib/api.h"
#include "tests/unit/collectives/meeting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 2
#define N 100
#define SWEEP_MAX 300 /* allocations of one constructor */

/* ---- allocations: counted, and failed ---- */

#define LIVE_MAX 16384

static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static void *live[LIVE_MAX];
static size_t live_count;
static _Thread_local long fails_at; /* the allocation of this thread that fails; 0: none does */
static _Thread_local bool failed;
static _Thread_local unsigned long asked; /* allocations of this thread so far */

static void *made(void *memory)
{
    pthread_mutex_lock(&live_lock);
    if (memory != NULL && live_count < LIVE_MAX)
        live[live_count++] = memory;
    pthread_mutex_unlock(&live_lock);
    return memory;
}

static void gone(const void *memory)
{
    pthread_mutex_lock(&live_lock);
    for (size_t i = 0; i < live_count; i++) {
        if (live[i] == memory) {
            live[i] = live[--live_count];
            break;
        }
    }
    pthread_mutex_unlock(&live_lock);
}

static bool fails(void)
{
    asked++;
    if (fails_at == 0 || --fails_at != 0)
        return false;
    failed = true;
    return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **out, size_t align, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : made(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : made(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    gone(old);
    return made(__real_realloc(old, size));
}

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
    int err = fails() ? ENOMEM : __real_posix_memalign(out, align, size);

    if (err == 0)
        made(*out);
    return err;
}

void __wrap_free(void *memory)
{
    gone(memory);
    __real_free(memory);
}

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (dir != NULL && readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* ---- ranks, which meet in this process ---- */

struct rank {
    struct attendance attendance;
    int (*body)(struct sluice_comm *comm, int rank);
    bool patient;
    long fails_at; /* in body, or with no body in the constructor */
    int code;
    bool failed;
    char text[512];
};

static void note(struct rank *r, int code)
{
    r->code = code;
    if (code != 0)
        snprintf(r->text, sizeof(r->text), "%s", sluice_last_error());
}

static _Thread_local struct rank *own;

/* Over the exchange of this thread's rank. */
static int create(struct sluice_comm **out)
{
    struct rank *r = own;
    struct sl_config config;

    sl_config_defaults(&config);
    config.timeout_ms = 3000;
    config.connect_timeout_ms = r->patient ? 30000 : 300;
    config.tune = SL_TUNE_OFF;
    snprintf(config.interface, sizeof(config.interface), "lo");
    snprintf(config.transport, sizeof(config.transport), "%s", getenv("SLUICE_TRANSPORT"));
    struct sl_comm_params params = {.config = &config,
                                    .clock = &sl_clock_monotonic,
                                    .seed = (uint64_t)r->attendance.exchange.rank + 1};

    return sl_comm_create(&r->attendance.exchange, &params, out);
}

static void *live_as(void *arg)
{
    struct rank *r = arg;
    struct sluice_comm *comm = NULL;

    own = r;
    fails_at = r->body == NULL ? r->fails_at : 0;
    note(r, create(&comm));
    if (r->body != NULL && r->code == 0) {
        fails_at = r->fails_at;
        note(r, r->body(comm, r->attendance.exchange.rank));
    }
    fails_at = 0;
    r->failed = failed;
    meeting_close(r->attendance.meeting);
    sluice_comm_destroy(comm);
    return NULL;
}

/* Rank 0 lacks memory at its n-th allocation; 0: at none. false: it made fewer. A peer of one that
 * lacks memory waits for it in vain, one that lacks nothing may take long on a busy machine:
 * patient. */
static bool run(int (*body)(struct sluice_comm *comm, int rank), long n, bool patient,
                struct rank *first)
{
    static struct meeting meeting;
    struct rank ranks[RANKS];
    pthread_t thread[RANKS];

    meeting_open(&meeting);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){.attendance = meeting_attend(&meeting, i, RANKS),
                                 .body = body,
                                 .patient = patient,
                                 .fails_at = i == 0 ? n : 0};
        assert_int_equal(pthread_create(&thread[i], NULL, live_as, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    *first = ranks[0];
    return ranks[0].failed;
}

/* Lacking memory is the error, also where a peer could not be connected for it; or there is none:
 * the call did without. */
static void judge(const struct rank *r, long n)
{
    if (r->code != 0 && r->code != -ENOMEM)
        fail_msg("allocation %ld: %d: %s", n, r->code, r->text);
}

static void must_do_with_memory(int (*body)(struct sluice_comm *comm, int rank))
{
    struct rank first;

    run(body, 0, true, &first);
    if (first.code != 0)
        fail_msg("with memory: %d: %s", first.code, first.text);
}

static void sweep(int (*body)(struct sluice_comm *comm, int rank), long at_least)
{
    struct rank first;
    long n;

    must_do_with_memory(body); /* what the process keeps is taken here */
    size_t live_before = live_count;
    int open_before = open_descriptors();

    for (n = 1; n < SWEEP_MAX; n++) {
        bool lacked = run(body, n, false, &first);

        if (first.code == -EHOSTUNREACH) /* was it that, or the short time? */
            lacked = run(body, n, true, &first);
        judge(&first, n);
        if (!lacked)
            break;
        if (live_count != live_before || open_descriptors() != open_before)
            fail_msg("allocation %ld: %ld blocks and %d descriptors are left", n,
                     (long)(live_count - live_before), open_descriptors() - open_before);
    }
    assert_int_equal(first.code, 0);
    must_do_with_memory(body);
    assert_true(n > at_least);
}

/* ---- what is swept ---- */

static int allocate(struct sluice_comm *comm, int rank)
{
    void *memory = &memory;
    int err = sluice_alloc(comm, 65536, &memory);

    if (err != 0 && memory != NULL)
        return sl_fail(-EINVAL, "memory is given by a call that failed");
    sluice_free(comm, memory);
    return err;
}

static int register_memory(struct sluice_comm *comm, int rank)
{
    static char memory[RANKS][65536];
    struct sluice_buffer *buffer = (struct sluice_buffer *)&buffer;
    int err = sluice_register(comm, memory[rank], sizeof(memory[rank]), &buffer);

    if (err != 0 && buffer != NULL)
        return sl_fail(-EINVAL, "a registration is given by a call that failed");
    sluice_deregister(comm, buffer);
    return err == -ENOTSUP ? 0 : err;
}

static int split(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *child = (struct sluice_comm *)&child;
    int err = sluice_comm_split(comm, 0, rank, &child);

    if (err != 0 && child != NULL)
        return sl_fail(-EINVAL, "a communicator is given by a call that failed");
    sluice_comm_destroy(child);
    return err;
}

/* Joins the first one's family. */
static int make_second(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *second = (struct sluice_comm *)&second;
    int err = create(&second);

    if (err != 0)
        return err;
    if (second->family != comm->family)
        err = sl_fail(-EBADMSG, "the second communicator shares nothing");
    sluice_comm_destroy(second);
    return err;
}

/* A call that lacked memory has taken nothing: the same call again does it. */
static int sum(struct sluice_comm *comm, int rank)
{
    struct sluice_req *req = (struct sluice_req *)&req;
    int32_t in[N], out[N];

    for (int i = 0; i < N; i++)
        in[i] = rank + i;
    int err = sluice_allreduce(comm, in, out, N, SLUICE_I32, SLUICE_SUM, &req);

    if (err != 0 && (err != -ENOMEM || req != NULL))
        return err;
    if (err != 0)
        err = sluice_allreduce(comm, in, out, N, SLUICE_I32, SLUICE_SUM, &req);
    if (err == 0)
        err = sluice_wait(req);
    sluice_req_free(req);
    for (int i = 0; i < N && err == 0; i++)
        if (out[i] != 2 * i + 1)
            err = sl_fail(-EBADMSG, "element %d is %d", i, out[i]);
    return err;
}

/* All memory that starts need is taken when the operation is made. */
static int start_often(struct sluice_comm *comm, int rank)
{
    struct sluice_operation *operation = (struct sluice_operation *)&operation;
    int32_t in[N], out[N] = {0};

    for (int i = 0; i < N; i++)
        in[i] = rank + i;
    int err = sluice_allreduce_init(comm, in, out, N, SLUICE_I32, SLUICE_SUM, &operation);

    if (err != 0 && (err != -ENOMEM || operation != NULL))
        return err;
    if (err != 0)
        err = sluice_allreduce_init(comm, in, out, N, SLUICE_I32, SLUICE_SUM, &operation);
    if (err == 0)
        err = sluice_start(operation, NULL); /* connects the ranks, where nothing did before */
    /* A peer may leave early, which is noted as an error: a thread's first takes memory for its
     * text, and the second where that failed. */
    for (int i = 0; i < 2; i++)
        sl_fail(-EAGAIN, "no start has failed");
    unsigned long before = asked;

    for (int i = 0; i < 20 && err == 0; i++)
        err = sluice_start(operation, NULL);
    if (err == 0 && asked != before)
        err = sl_fail(-EBADMSG, "starts asked for memory %lu times", asked - before);
    sluice_operation_free(operation);
    for (int i = 0; i < N && err == 0; i++)
        if (out[i] != 2 * i + 1)
            err = sl_fail(-EBADMSG, "element %d is %d", i, out[i]);
    return err;
}

static const char *operations_codec;

/* A setting that lacked memory has changed nothing; an operation goes as before. */
static int compress(struct sluice_comm *comm, int rank)
{
    static float in[RANKS][N], out[RANKS][N];
    struct sluice_operation *operation = NULL;
    int err = 0;

    for (int i = 0; i < N; i++)
        in[rank][i] = 1;
    for (int setting = 0; setting < 2; setting++) { /* the operation's is one shot */
        err = sluice_comm_set_compression(comm, "bq8:when=always,min=0,feedback=on,recipe=gather");
        if (err != 0 && (err != -ENOMEM || comm->coding != NULL))
            return err;
    }
    for (int tries = 0; tries < 2 && operation == NULL; tries++)
        err =
            sluice_allreduce_init(comm, in[rank], out[rank], N, SLUICE_F32, SLUICE_SUM, &operation);
    if (err != 0)
        return err;
    err = sluice_operation_set_compression(operation, operations_codec);
    if (err == -ENOMEM)
        err = sluice_operation_set_compression(operation, operations_codec);
    err = err ?: sluice_start(operation, NULL);
    if (err == -ENOMEM) /* connects the ranks, where nothing did before */
        err = sluice_start(operation, NULL);
    for (int i = 0; i < N && err == 0; i++)
        if (out[rank][i] < 1.9f || out[rank][i] > 2.1f)
            err = sl_fail(-EBADMSG, "element %d is %g", i, (double)out[rank][i]);
    sluice_operation_free(operation);
    return err;
}

/* Calls keep residuals if there is memory for them; once they have them they ask for no more. */
static int recall(struct sluice_comm *comm, int rank)
{
    static float in[RANKS][N], out[RANKS][N];
    unsigned long before = 0;
    int err = 0;

    for (int i = 0; i < N; i++)
        in[rank][i] = 1;
    for (int tries = 0; tries < 2; tries++)
        err = sluice_comm_set_compression(comm, "bq8:when=always,min=0,feedback=on");
    for (int i = 0; i < 8 && err == 0; i++) {
        before = i == 4 ? asked : before;
        err = sluice_allreduce(comm, in[rank], out[rank], N, SLUICE_F32, SLUICE_SUM, NULL);
        if (i == 0 && err == -ENOMEM)
            err = sluice_allreduce(comm, in[rank], out[rank], N, SLUICE_F32, SLUICE_SUM, NULL);
    }
    if (err == 0 && asked != before)
        err = sl_fail(-EBADMSG, "calls asked for memory %lu times", asked - before);
    for (int i = 0; i < N && err == 0; i++)
        if (out[rank][i] < 1.9f || out[rank][i] > 2.1f)
            err = sl_fail(-EBADMSG, "element %d is %g", i, (double)out[rank][i]);
    return err;
}

static void communicators_are_made_or_not(void **state)
{
    sweep(NULL, 10);
}

static void buffers_are_made_or_not(void **state)
{
    sweep(allocate, 1);
}

static void registrations_are_made_or_not(void **state)
{
    sweep(register_memory, 1);
}

static void children_are_made_or_not(void **state)
{
    sweep(split, 12);
}

static void second_communicators_are_made_or_not(void **state)
{
    sweep(make_second, 12);
}

static void a_call_without_memory_can_be_made_again(void **state)
{
    sweep(sum, 8);
}

static void calls_keep_residuals_or_not(void **state)
{
    sweep(recall, 10);
}

static void compression_is_set_or_not(void **state)
{
    (void)state;
    operations_codec = "bq4:when=always,min=0,feedback=on";
    sweep(compress, 15);
}

static void encodings_that_add_are_planned_or_not(void **state)
{
    (void)state;
    operations_codec = "shiq:when=always,min=0,feedback=on";
    sweep(compress, 15);
}

static void operations_are_made_or_not_and_take_no_memory_to_start(void **state)
{
    sweep(start_often, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators_are_made_or_not),
        cmocka_unit_test(buffers_are_made_or_not),
        cmocka_unit_test(registrations_are_made_or_not),
        cmocka_unit_test(children_are_made_or_not),
        cmocka_unit_test(second_communicators_are_made_or_not),
        cmocka_unit_test(a_call_without_memory_can_be_made_again),
        cmocka_unit_test(compression_is_set_or_not),
        cmocka_unit_test(calls_keep_residuals_or_not),
        cmocka_unit_test(encodings_that_add_are_planned_or_not),
        cmocka_unit_test(operations_are_made_or_not_and_take_no_memory_to_start),
    };

    return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
