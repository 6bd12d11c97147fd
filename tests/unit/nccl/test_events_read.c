/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that the plugin's profiler itself writes, as sources of the diagnosis: each rank is a
 * process that is told by NCCL's calls what four ranks in a ring do, and the rules accuse who has
 * to be.
 */
#include "core/err.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/read/read.h"
#include "tools/nccl/abi_profiler_v5.h"
#include "tools/nccl/profiler.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define RANKS 4

extern const struct sl_nccl_profiler_v5 ncclProfiler_v5;
static const struct sl_nccl_profiler_v5 *const profiler = &ncclProfiler_v5;

/* ---- one rank, in a process of its own ---- */

struct rank {
    void *ctx, *send, *recv;
    uint64_t seq;
    int number;
};

static void *begin_event(const struct rank *rank, struct sl_nccl_profile_event_v5 what)
{
    void *event = NULL;

    what.rank = rank->number;
    profiler->start(rank->ctx, &event, &what);
    return event;
}

static void *begin_part(const struct rank *rank, void *parent, int peer, int is_send)
{
    return begin_event(
        rank, (struct sl_nccl_profile_event_v5){
                  .type = SL_NCCL_PROFILE_PROXY_OP,
                  .parent = parent,
                  .proxy_op = {.pid = getpid(), .peer = peer, .steps = 1, .is_send = is_send}});
}

/* It is enqueued, and the proxy has what there is to send and to receive. */
static void begin_call(struct rank *rank, const char *func)
{
    void *call =
        begin_event(rank, (struct sl_nccl_profile_event_v5){.type = SL_NCCL_PROFILE_COLL,
                                                            .coll = {.seq = rank->seq++,
                                                                     .func = func,
                                                                     .count = 1000,
                                                                     .datatype = "ncclFloat32",
                                                                     .algo = "RING",
                                                                     .proto = "SIMPLE",
                                                                     .channels = 1}});

    rank->send = begin_part(rank, call, (rank->number + 1) % RANKS, 1);
    rank->recv = begin_part(rank, call, (rank->number + RANKS - 1) % RANKS, 0);
    profiler->stop(call);
}

static void *begin_step(const struct rank *rank, void *part, int state)
{
    void *step = begin_event(rank, (struct sl_nccl_profile_event_v5){
                                       .type = SL_NCCL_PROFILE_PROXY_STEP, .parent = part});

    profiler->state(step, (enum sl_nccl_profile_state)state, NULL);
    return step;
}

static void end_call(struct rank *rank)
{
    union sl_nccl_profile_args args = {.proxy_step.bytes = 4096};
    void *send = begin_step(rank, rank->send, SL_NCCL_STATE_SEND_GPU_WAIT),
         *recv = begin_step(rank, rank->recv, SL_NCCL_STATE_RECV_WAIT);

    profiler->state(send, SL_NCCL_STATE_SEND_WAIT, &args);
    profiler->stop(send);
    profiler->state(recv, SL_NCCL_STATE_RECV_GPU_WAIT, &args);
    profiler->stop(recv);
    profiler->stop(rank->send);
    profiler->stop(rank->recv);
}

/* Steps that do not end. */
static void wait_in(struct rank *rank, int send, int recv)
{
    if (send != 0)
        begin_step(rank, rank->send, send);
    if (recv != 0)
        begin_step(rank, rank->recv, recv);
}

static void message(struct rank *rank, const char *func, int peer, int is_send, int state)
{
    void *call = begin_event(
        rank, (struct sl_nccl_profile_event_v5){.type = SL_NCCL_PROFILE_P2P,
                                                .p2p = {.func = func, .count = 1, .peer = peer}});

    begin_step(rank, begin_part(rank, call, peer, is_send), state);
    profiler->stop(call);
}

enum { GPU = SL_NCCL_STATE_SEND_GPU_WAIT, WIRE = SL_NCCL_STATE_SEND_WAIT };
enum { PEER = SL_NCCL_STATE_SEND_PEER_WAIT, DATA = SL_NCCL_STATE_RECV_WAIT };
enum { TAKE = SL_NCCL_STATE_RECV_GPU_WAIT };

/* ---- jobs ---- */

static void all_is_well(struct rank *rank)
{
    begin_call(rank, "AllReduce");
    end_call(rank);
}

static void one_has_not_called(struct rank *rank)
{
    if (rank->number == 3)
        return;
    begin_call(rank, "AllReduce");
    wait_in(rank, GPU, DATA);
}

/* Data comes to it and is not taken, and none of its own comes. */
static void a_gpu_does_not_start(struct rank *rank)
{
    begin_call(rank, "AllReduce");
    if (rank->number == 2)
        wait_in(rank, GPU, TAKE);
    else
        wait_in(rank, rank->number == 1 ? PEER : GPU, DATA);
}

static void the_network_does_not_take_it(struct rank *rank)
{
    begin_call(rank, "AllReduce");
    wait_in(rank, rank->number == 1 ? WIRE : GPU, DATA);
}

/* Rank 2 has ended it, has not passed on all, and is stopped. */
static void one_is_stopped_within(struct rank *rank)
{
    begin_call(rank, "AllGather");
    if (rank->number == 3) {
        wait_in(rank, 0, DATA);
        return;
    }
    end_call(rank);
    if (rank->number == 2)
        return;
    begin_call(rank, "AllReduce");
    wait_in(rank, GPU, DATA);
}

/* All are in it, and its steps say the same as the others'. */
static void one_is_stopped_beside_the_others(struct rank *rank)
{
    begin_call(rank, "AllReduce");
    wait_in(rank, GPU, DATA);
}

static void one_dies(struct rank *rank)
{
    if (rank->number == 1)
        return;
    begin_call(rank, "AllReduce");
    wait_in(rank, GPU, DATA);
}

static void one_does_not_send(struct rank *rank)
{
    all_is_well(rank);
    if (rank->number == 0)
        message(rank, "Recv", 1, 0, DATA);
}

/* More than the slots hold at once. */
static void events_are_dropped(struct rank *rank)
{
    if (rank->number != 3)
        begin_call(rank, "AllReduce");
    for (int i = 0; i < 5000; i++)
        begin_event(rank, (struct sl_nccl_profile_event_v5){.type = SL_NCCL_PROFILE_PROXY_STEP});
    if (rank->number == 3)
        begin_call(rank, "AllReduce");
}

/* ---- the parent ---- */

struct crew {
    pid_t pids[RANKS];
    char files[RANKS][128];
};

static void play(void (*act)(struct rank *rank), int number, int out)
{
    struct rank rank = {.number = number};
    char path[128] = "";
    int mask = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("SLUICE_NCCL_PROFILE", "steps", 1);
    setenv("SLUICE_NCCL_PROFILE_EVENTS", "256", 1);
    profiler->init(&rank.ctx, 0xabc, &mask, "world", 2, RANKS, number, NULL);
    for (int i = 0; i < 3; i++) {
        begin_call(&rank, "AllReduce");
        end_call(&rank);
    }
    rank.seq = act == one_is_stopped_within ? 0 : rank.seq;
    act(&rank);
    snprintf(path, sizeof(path), "%s", sl_nccl_profile_path());
    if (write(out, path, sizeof(path)) != sizeof(path))
        _exit(1);
    for (;;)
        pause();
}

static void start(struct crew *crew, void (*act)(struct rank *rank))
{
    for (int r = 0; r < RANKS; r++) {
        int ends[2];

        assert_int_equal(pipe(ends), 0);
        crew->pids[r] = fork();
        assert_true(crew->pids[r] >= 0);
        if (crew->pids[r] == 0)
            play(act, r, ends[1]);
        close(ends[1]);
        assert_int_equal(read(ends[0], crew->files[r], sizeof(crew->files[r])), 128);
        close(ends[0]);
    }
}

static void stop(struct crew *crew)
{
    for (int r = 0; r < RANKS; r++) {
        kill(crew->pids[r], SIGKILL);
        waitpid(crew->pids[r], NULL, 0);
        unlink(crew->files[r]);
    }
}

static struct sl_job *read_them(struct crew *crew, struct sl_verdicts *verdicts)
{
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER, .stall_ns = 50000000};
    const struct timespec pause = {.tv_nsec = 100000000};
    struct sl_job *job = sl_job_new();

    nanosleep(&pause, NULL);
    *verdicts = (struct sl_verdicts){.list = NULL};
    for (int r = 0; r < RANKS; r++)
        if (sl_read_file(job, crew->files[r]) != 0)
            fail_msg("%s", sluice_last_error());
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(sl_hang_find(job, &options, verdicts), 0);
    return job;
}

/* cls, and the rank or the link's ends. */
static void expect(struct crew *crew, enum sl_verdict_class cls, uint32_t a, uint32_t b)
{
    struct sl_verdicts verdicts;
    struct sl_job *job = read_them(crew, &verdicts);

    stop(crew);
    if (verdicts.count != 1 || verdicts.list[0].cls != cls)
        fail_msg("%u verdicts, %s of %u: %s", verdicts.count,
                 sl_verdict_class_name(verdicts.list[0].cls), verdicts.list[0].accused.a,
                 verdicts.list[0].evidence[0]);
    assert_int_equal(verdicts.list[0].accused.a, a);
    if (b != SL_JOB_NONE)
        assert_int_equal(verdicts.list[0].accused.b, b);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

#define ACCUSES(name, cls, a, b)                                                                   \
    static void name##_is_told(void **state)                                                       \
    {                                                                                              \
        struct crew crew;                                                                          \
                                                                                                   \
        (void)state;                                                                               \
        start(&crew, name);                                                                        \
        expect(&crew, cls, a, b);                                                                  \
    }

ACCUSES(one_has_not_called, SL_VERDICT_HOST_STALLED, 3, SL_JOB_NONE)
ACCUSES(a_gpu_does_not_start, SL_VERDICT_GPU_STUCK, 2, SL_JOB_NONE)
ACCUSES(the_network_does_not_take_it, SL_VERDICT_COMM_STUCK, 1, 2)
ACCUSES(one_does_not_send, SL_VERDICT_HOST_STALLED, 1, SL_JOB_NONE)
ACCUSES(events_are_dropped, SL_VERDICT_NOT_HUNG, SL_JOB_NONE, SL_JOB_NONE)

static void one_that_is_stopped_is_told(void **state)
{
    static void (*const acts[])(struct rank *) = {one_is_stopped_within,
                                                  one_is_stopped_beside_the_others};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct crew crew;

        start(&crew, acts[i]);
        kill(crew.pids[2], SIGSTOP);
        expect(&crew, SL_VERDICT_HOST_STALLED, 2, SL_JOB_NONE);
    }
}

static void one_that_dies_is_told(void **state)
{
    struct crew crew;

    (void)state;
    start(&crew, one_dies);
    kill(crew.pids[1], SIGKILL);
    waitpid(crew.pids[1], NULL, 0);
    expect(&crew, SL_VERDICT_DEAD, 1, SL_JOB_NONE);
    /* As it is where nobody waits for it, in a container whose first process does not. */
    start(&crew, one_dies);
    kill(crew.pids[1], SIGKILL);
    expect(&crew, SL_VERDICT_DEAD, 1, SL_JOB_NONE);
}

static void what_has_passed_becomes_edges_and_operations(void **state)
{
    struct sl_verdicts verdicts;
    struct crew crew;
    struct sl_job *job;
    size_t sent = 0;

    (void)state;
    start(&crew, all_is_well);
    job = read_them(&crew, &verdicts);
    stop(&crew);
    assert_int_equal(verdicts.list[0].cls, SL_VERDICT_NOT_HUNG);
    assert_int_equal(job->rank_count, RANKS);
    assert_int_equal(job->comm_count, 1);
    assert_string_equal(sl_job_string(job, job->comms[0].label),
                        "world, communicator 0000000000000abc of 4 ranks");
    assert_int_equal(job->op_count, RANKS * 4);
    for (size_t i = 0; i < job->op_count; i++) {
        assert_int_equal(job->ops[i].kind, SL_JOB_ALLREDUCE);
        assert_int_equal(job->ops[i].state, SL_JOB_DONE);
        assert_int_equal(job->ops[i].seq, i % 4 + 1);
        assert_true(job->ops[i].end_ns > job->ops[i].issue_ns);
        assert_string_equal(sl_job_string(job, job->ops[i].shape), "1000 ncclFlo");
    }
    for (size_t i = 0; i < job->edge_count; i++) {
        const struct sl_job_edge *edge = &job->edges[i];

        assert_int_equal(edge->dst, (edge->src + 1) % RANKS);
        if (edge->messages == 0) { /* what the receiver says of it */
            assert_true(edge->wait_s[SL_JOB_WAIT_DATA] > 0);
            continue;
        }
        sent++;
        assert_int_equal(edge->messages, 4);
        assert_int_equal(edge->bytes, 4 * 4096);
        assert_true(edge->wait_s[SL_JOB_WAIT_GPU] > 0 && edge->wait_s[SL_JOB_WAIT_WIRE] > 0);
    }
    assert_int_equal(sent, RANKS);
    assert_int_equal(job->edge_count, 2 * RANKS);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

static void copy_of(const char *from, const char *to, size_t most)
{
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    char *bytes = malloc(most);

    assert_true(in != NULL && out != NULL && bytes != NULL);
    most = fread(bytes, 1, most, in);
    assert_int_equal(fwrite(bytes, 1, most, out), most);
    fclose(in);
    fclose(out);
    free(bytes);
}

/* A copy tells the same of a process that is long gone, by the clock of the file alone. */
static void a_copy_is_read_and_a_part_of_one_refused(void **state)
{
    char path[] = "/tmp/sluice-nccl-copy-XXXXXX";
    struct sl_job *job = sl_job_new();
    struct crew crew;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    start(&crew, one_has_not_called);
    copy_of(crew.files[0], path, 16 << 20);
    stop(&crew);
    if (sl_read_file(job, path) != 0)
        fail_msg("%s", sluice_last_error());
    assert_false(job->ranks[0].is_gone);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->op_count, 4);
    assert_true(job->now_ns > job->ops[3].issue_ns);
    assert_int_equal(job->ops[3].state, SL_JOB_STARTED);
    assert_int_equal(job->ops[3].awaits_place, RANKS); /* data of rank 3 */
    assert_int_equal(truncate(path, 70000), 0);
    assert_int_equal(sl_read_file(job, path), -EBADMSG);
    sl_job_free(job);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_passed_becomes_edges_and_operations),
        cmocka_unit_test(one_has_not_called_is_told),
        cmocka_unit_test(a_gpu_does_not_start_is_told),
        cmocka_unit_test(the_network_does_not_take_it_is_told),
        cmocka_unit_test(one_that_is_stopped_is_told),
        cmocka_unit_test(one_that_dies_is_told),
        cmocka_unit_test(one_does_not_send_is_told),
        cmocka_unit_test(events_are_dropped_is_told),
        cmocka_unit_test(a_copy_is_read_and_a_part_of_one_refused),
    };

    return cmocka_run_group_tests_name("nccl_events_read", tests, NULL, NULL);
}
