/* SPDX-License-Identifier: Apache-2.0 */
/* The first allocation fails, then the second, to the end: a dump is read and a job is judged, or
 * there is no memory, and nothing else happens. Linked with --wrap of what allocates. */
#include "job_maker.h"
#include "job_play.h"
#include "monitor/diagnosis/fuse.h"
#include "monitor/diagnosis/wait_graph.h"
#include "net_maker.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static unsigned left; /* allocations until one fails; 0: none does */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

static bool fails(void)
{
    return left > 0 && --left == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return fails() ? NULL : __real_reallocarray(old, count, size);
}

static int judge(struct sl_job *job)
{
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER, .stall_ns = SL_HANG_STALL_NS};
    static const struct sl_fuse_options fuse = SL_FUSE_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_wait_graph graph;
    int err = sl_job_seal(job);

    if (err == 0)
        err = sl_hang_find(job, &options, &verdicts);
    if (err == 0)
        err = sl_fuse(job, &fuse, &verdicts);
    if (err == 0)
        err = sl_wait_graph_make(job, &options, &verdicts, &graph);
    if (err == 0)
        sl_wait_graph_free(&graph);
    sl_verdicts_free(&verdicts);
    return err;
}

/* What agents and a history tell of the hosts of ranks 0 to 3. */
static void tell(struct sl_job *job)
{
    for (uint32_t r = 0; r < 4; r++) {
        char name[8];
        uint32_t host = sl_job_text(job, name, (size_t)snprintf(name, sizeof(name), "h%u", r));
        struct sl_job_event event = {
            .host = host, .check = sl_job_text(job, "gpu_ecc", 7), .at_ns = SL_JOB_NEVER};
        struct sl_job_fault fault = {.host = host, .at_ns = r};

        job->ranks[r].host = host;
        assert_int_equal(sl_job_add_event(job, &event), 0);
        assert_int_equal(sl_job_add_fault(job, &fault), 0);
    }
}

/* Reads a file of the corpus and judges it, with the n-th allocation failing. */
static int read_and_judge(const char *bytes, size_t len, unsigned n)
{
    struct sl_job *job;
    int err;

    left = n;
    job = sl_job_new();
    err = job == NULL ? -ENOMEM : sl_read_bytes(job, "_dump_1", bytes, len);
    if (err == 0)
        err = judge(job);
    sl_job_free(job);
    return err;
}

static void a_dump_is_read_or_there_is_no_memory(void **state)
{
    static char bytes[16 << 10];
    char path[1024];
    unsigned n = 0;
    size_t len;
    FILE *file;
    int err;

    (void)state;
    snprintf(path, sizeof(path), "%s/diagnosis_flight/protocol-2", getenv("SLUICE_TEST_CORPUS"));
    file = fopen(path, "rb");
    assert_non_null(file);
    len = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    do {
        err = read_and_judge(bytes, len, ++n);
        assert_int_equal(err, left == 0 ? -ENOMEM : 0);
    } while (left == 0);
    assert_true(n > 20);
    left = 0;
}

static void a_job_is_judged_or_there_is_no_memory(void **state)
{
    struct play play = {.tensor = 2, .stages = 2, .replicas = 2, .ahead = 3, .fault_at = 2};

    (void)state;
    for (play.fault_rank = 0; play.fault_rank < 8; play.fault_rank++)
        for (unsigned gpu = 0; gpu < 2; gpu++) {
            struct sl_job *job;
            unsigned n = 0;
            int err;

            play.is_gpu = gpu;
            job = play_job(&play);
            tell(job);
            do {
                left = ++n;
                err = judge(job);
                assert_int_equal(err, left == 0 ? -ENOMEM : 0);
            } while (left == 0);
            left = 0;
            assert_true(n > 10);
            sl_job_free(job);
        }
}

static double slow_sender(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    (void)context;
    (void)dst;
    (void)path;
    return src == 5 ? 2 : 1;
}

/* A network with hosts, leaves, routes and a set to be probed. */
static void make_net(struct net *net)
{
    net_begin(net, 24, 1);
    net->factor = slow_sender;
    for (uint32_t r = 0; r < 24; r++) {
        struct sl_job_route route = {.src = r, .dst = (r + 1) % 24};
        char host[8], leaf[8];

        snprintf(host, sizeof(host), "h%u", r / 2);
        snprintf(leaf, sizeof(leaf), "l%u", r / 6);
        net_host(net, r, host);
        net_port(net, host, "", leaf);
        route.via = sl_job_text(net->job, leaf, strlen(leaf));
        assert_int_equal(sl_job_add_route(net->job, &route), 0);
    }
    net_ring(net, 1);
    assert_int_equal(sl_job_seal(net->job), 0);
}

static void messages_are_judged_or_there_is_no_memory(void **state)
{
    static const struct sl_comm_options options = SL_COMM_OPTIONS;
    struct net net;
    unsigned n = 0;
    int err;

    (void)state;
    make_net(&net);
    do {
        struct sl_verdicts verdicts = {.list = NULL};

        left = ++n;
        err = sl_comm_find(net.job, &options, &verdicts);
        assert_int_equal(err, left == 0 ? -ENOMEM : 0);
        assert_true(err != 0 || verdicts.count == 1);
        sl_verdicts_free(&verdicts);
    } while (left == 0);
    left = 0;
    assert_true(n > 40);
    net_end(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dump_is_read_or_there_is_no_memory),
        cmocka_unit_test(a_job_is_judged_or_there_is_no_memory),
        cmocka_unit_test(messages_are_judged_or_there_is_no_memory),
    };

    return cmocka_run_group_tests_name("diagnosis_memory", tests, NULL, NULL);
}
