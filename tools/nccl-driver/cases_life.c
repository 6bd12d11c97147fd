/* SPDX-License-Identifier: Apache-2.0 */
/* How jobs begin and end: listeners nobody accepts on, aborts, half-open connections, contexts,
 * unloading. */
#include "tools/nccl-driver/cases.h"

#include "tools/nccl-driver/resources.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ENDLESS 1000000000u
#define STILL_TURNS 16u

static const size_t bulk[] = {4096, 65536, 262144};
static const struct flow endless = {
    .steps = ENDLESS, .sizes = bulk, .size_count = COUNT(bulk), .may_fail = true};

static int listen_on(struct rank *r, int id, uint8_t *handle, void **comm)
{
    struct job job = {.kind = JOB_LISTEN, .conn = id, .ctx = r->ctx, .handle = handle};
    int rc = rank_do(r, &job);

    *comm = job.comm;
    return rc;
}

static int close_listener(struct rank *r, int id, void *comm)
{
    struct job job = {.kind = JOB_CLOSE_LISTEN, .conn = id, .comm = comm};

    return rank_do(r, &job);
}

/* Connections shared between ranks leave listeners without an accept; one has even been connected
 * to. */
static int listeners_close_without_an_accept(struct rank *r)
{
    uint8_t handles[2][NET_HANDLE_BYTES];
    struct job connect = {.kind = JOB_CONNECT, .conn = 101, .may_fail = true};
    void *listeners[2];

    if (rank_start(r) != 0)
        return -1;
    if (r->idx == 0) {
        for (int i = 0; i < 2; i++)
            if (listen_on(r, 100 + i, handles[i], &listeners[i]) != 0)
                return -1;
        if (boot_send(r, 1, handles[1], NET_HANDLE_BYTES) != 0 || boot_barrier(r) != 0 ||
            close_listener(r, 100, listeners[0]) != 0 || close_listener(r, 101, listeners[1]) != 0)
            return -1;
    } else {
        if (boot_recv(r, 0, handles[1], NET_HANDLE_BYTES) != 0)
            return -1;
        connect.ctx = r->ctx;
        connect.handle = handles[1];
        rank_submit(r, &connect); /* never accepted: it stays pending, fails, or comes up */
        if (boot_barrier(r) != 0)
            return -1;
    }
    if (case_quick(r, 0) != 0 || boot_barrier(r) != 0)
        return -1;
    if (connect.done && connect.comm != NULL) {
        struct job close = {.kind = JOB_CLOSE_SEND, .conn = 101, .comm = connect.comm};

        if (rank_do(r, &close) != 0)
            return -1;
    }
    return rank_stop(r);
}

/* Three connections out of one listener, in whatever order. */
static int one_listener_accepts_several(struct rank *r)
{
    const struct flow like = {.steps = 20, .sizes = case_small, .size_count = case_small_count};
    uint8_t handle[NET_HANDLE_BYTES], copies[3][NET_HANDLE_BYTES];
    struct conn conns[3] = {0};
    struct job jobs[3];
    void *listener = NULL;

    if (rank_start(r) != 0)
        return -1;
    if (r->idx == 0 &&
        (listen_on(r, 0, handle, &listener) != 0 || boot_send(r, 1, handle, sizeof(handle)) != 0))
        return -1;
    if (r->idx == 1 && boot_recv(r, 0, handle, sizeof(handle)) != 0)
        return -1;
    for (int i = 0; i < 3; i++) { /* one after the other, so that each end knows which is which */
        memcpy(copies[i], handle, sizeof(handle));
        jobs[i] = (struct job){.kind = r->idx == 0 ? JOB_ACCEPT : JOB_CONNECT,
                               .conn = i,
                               .ctx = r->ctx,
                               .listen = listener,
                               .handle = copies[i]};
        if (rank_do(r, &jobs[i]) != 0 || boot_barrier(r) != 0)
            return -1;
        conns[i] = (struct conn){.id = i, .from = 1, .to = 0};
        *(r->idx == 0 ? &conns[i].recv_comm : &conns[i].send_comm) = jobs[i].comm;
    }
    if (case_carry(r, conns, 3, &like) != 0 || boot_barrier(r) != 0)
        return -1;
    rank_close(r, conns, 3);
    if (listener != NULL && close_listener(r, 0, listener) != 0)
        return -1;
    return rank_stop(r);
}

static int connections_come_up_while_others_move(struct rank *r)
{
    const struct flow like = {.steps = 400, .sizes = bulk, .size_count = 2};
    const struct flow few = {.steps = 10, .sizes = case_small, .size_count = case_small_count};
    struct conn busy[4], more[18];
    struct flow *flows;
    unsigned count;

    case_ring(r, busy, 4, 0);
    case_ring(r, more, COUNT(more), 50);
    if (rank_start(r) != 0 || rank_connect(r, busy, 4) != 0 ||
        case_begin(r, busy, 4, &like, &flows, &count) != 0 ||
        rank_connect(r, more, COUNT(more)) != 0 || case_carry(r, more, COUNT(more), &few) != 0)
        return -1;
    rank_close(r, more, COUNT(more));
    if (case_end(r, flows, count) != 0)
        return -1;
    rank_close(r, busy, 4);
    return rank_stop(r);
}

/* Until nothing moves any more: what the other end does not take stays where it is. A progress
 * thread that had no processor has not stood still. */
static int stand_still(struct rank *r, struct flow *flows, unsigned count)
{
    uint64_t last = watch_now();
    unsigned before = 0;

    watch_wait("windows to fill");
    while (watch_now() - last < 50 * MS || atomic_load(&r->idle) < STILL_TURNS) {
        unsigned now = 0, running = 0;

        for (unsigned i = 0; i < count; i++) {
            now += atomic_load(&flows[i].moved);
            running += atomic_load(&flows[i].state) == FLOW_RUN;
        }
        if (running == 0)
            break;
        if (now != before)
            last = watch_now();
        before = now;
        if (watch_over(0))
            return -1;
        sched_yield();
    }
    watch_leave(false);
    return 0;
}

/* The receiver has posted a window and looks away until the sender, if it can end, has closed
 * everything. */
static int send_and_close(struct rank *r, int id, size_t size)
{
    const struct flow like = {
        .steps = NET_STEPS, .sizes = &size, .size_count = 1, .hold = r->idx == 0};
    struct conn conn = {.id = id, .from = 1, .to = 0};
    struct flow *flows;
    unsigned count;
    char word = 'c';
    bool ended;

    if (rank_start(r) != 0 || rank_connect(r, &conn, 1) != 0 ||
        case_begin(r, &conn, 1, &like, &flows, &count) != 0)
        return -1;
    if (r->idx == 0) {
        if (boot_recv(r, 1, &word, 1) != 0)
            return -1;
        atomic_store(&flows[0].hold, 0);
        if (case_end(r, flows, count) != 0)
            return -1;
        rank_close(r, &conn, 1);
        return rank_stop(r);
    }
    if (stand_still(r, flows, count) != 0)
        return -1;
    ended = atomic_load(&flows[0].state) == FLOW_DONE;
    if (!ended && boot_send(r, 0, &word, 1) != 0)
        return -1;
    if (case_end(r, flows, count) != 0)
        return -1;
    rank_close(r, &conn, 1);
    if (rank_stop(r) != 0)
        return -1;
    return ended ? boot_send(r, 0, &word, 1) : 0;
}

/* What a send's request says is done must arrive, though the sender closes, finalizes and ends at
 * once. */
static int what_is_sent_arrives_though_the_sender_closes(struct rank *r)
{
    static const size_t sizes[] = {1, 65536, 262144, 524288, 786432, 1 << 20, 2 << 20};

    for (int i = 0; i < (int)COUNT(sizes); i++)
        if (send_and_close(r, i, sizes[i]) != 0)
            return -1;
    return 0;
}

static int abort_in_flight(struct rank *r, enum case_abort mode)
{
    struct conn conns[4];
    struct flow *flows;
    unsigned count;

    case_ring(r, conns, 4, 0);
    if (rank_start(r) != 0 || rank_connect(r, conns, 4) != 0 ||
        case_begin(r, conns, 4, &endless, &flows, &count) != 0 ||
        case_moved(r, flows, count, 24) != 0 || boot_barrier(r) != 0)
        return -1;
    /* Rank 1 goes on for a while: what rank 0 had in flight arrives whole or not at all. */
    if (r->idx == 1) {
        char word;

        if (boot_recv(r, 0, &word, 1) != 0)
            return -1;
        return case_abort(r, conns, 4, flows, count, mode);
    }
    if (case_abort(r, conns, 4, flows, count, mode) != 0)
        return -1;
    return boot_send(r, 1, "a", 1);
}

static int aborted_memory_is_not_touched(struct rank *r)
{
    return abort_in_flight(r, ABORT_PROTECT);
}

static int aborted_memory_is_neither_read_nor_written(struct rank *r)
{
    return abort_in_flight(r, ABORT_POISON);
}

/* The other end stands still, so the windows are full of what has gone nowhere yet. */
static int a_stalled_transfer_is_aborted(struct rank *r)
{
    static const size_t large[] = {4 << 20};
    const struct flow like = {.steps = ENDLESS, .sizes = large, .size_count = 1, .may_fail = true};
    struct conn conns[2];
    struct flow *flows;
    unsigned count;

    case_ring(r, conns, 2, 0);
    if (rank_start(r) != 0 || rank_connect(r, conns, 2) != 0 ||
        case_begin(r, conns, 2, &like, &flows, &count) != 0 || case_moved(r, flows, count, 1) != 0)
        return -1;
    if (r->idx == 1)
        rank_stop_progress(r);
    if (boot_barrier(r) != 0 || (r->idx == 0 && stand_still(r, flows, count) != 0) ||
        (r->idx == 0 && case_abort(r, conns, 2, flows, count, ABORT_PROTECT) != 0) ||
        boot_barrier(r) != 0)
        return -1;
    return r->idx == 0 ? 0 : case_abort(r, conns, 2, flows, count, ABORT_PROTECT);
}

/* One attempt of a connect that nobody accepts and of an accept that nobody connects to; both left
 * behind. */
static int half_open_once(struct rank *r)
{
    uint8_t handles[3][NET_HANDLE_BYTES];
    void *listeners[3];
    struct job jobs[3];

    if (rank_start(r) != 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        if (listen_on(r, i, handles[i], &listeners[i]) != 0)
            return -1;
        jobs[i] = (struct job){.kind = i == 2 ? JOB_ACCEPT : JOB_CONNECT,
                               .conn = i,
                               .ctx = r->ctx,
                               .handle = handles[i],
                               .listen = listeners[i],
                               .may_fail = true};
        rank_submit(r, &jobs[i]);
    }
    watch_wait("some attempts to connect");
    for (int i = 0; i < 3; i++)
        for (bool enough = false; !enough && !watch_over(0); sched_yield()) {
            pthread_mutex_lock(&r->lock);
            enough = jobs[i].done || jobs[i].polls >= 20;
            pthread_mutex_unlock(&r->lock);
        }
    watch_leave(false);
    rank_stop_threads(r); /* nobody asks after the connections again */
    for (int i = 0; i < 2; i++)
        if (jobs[i].done && jobs[i].comm != NULL && net_close_send(r->net, jobs[i].comm) != NET_OK)
            return watch_fail("closeSend failed");
    for (int i = 0; i < 3; i++)
        if (net_close_listen(r->net, listeners[i]) != NET_OK)
            return watch_fail("closeListen failed");
    return rank_stop(r);
}

/* A leak grows all the time; what an allocator holds back for a while does not. */
static int many_times(struct rank *r, int (*once)(struct rank *), const char *what)
{
    enum { WARM = 4, HALF = 5 };
    struct resources before, between, after;

    if (!net_has_contexts(r->net))
        return watch_skip("no finalize before v11");
    for (int i = 0; i < WARM + 2 * HALF; i++) {
        if (i == WARM) /* whatever is kept for good is there by now */
            resources_count(&before);
        if (i == WARM + HALF)
            resources_count(&between);
        if (once(r) != 0)
            return -1;
    }
    resources_count(&after);
    between.heap_bytes =
        between.heap_bytes > before.heap_bytes + 64 * HALF ? between.heap_bytes : after.heap_bytes;
    before.heap_bytes = between.heap_bytes;
    return resources_compare(&before, &after, 2 * HALF, 32, what);
}

static int half_open_connections_are_freed_by_finalize(struct rank *r)
{
    return many_times(r, half_open_once, "half-open connections");
}

static int quick_once(struct rank *r)
{
    struct conn conn = {.id = 0, .from = r->idx, .to = r->idx};
    const struct flow like = {.steps = 20, .sizes = case_small, .size_count = case_small_count};

    if (rank_start(r) != 0 || rank_connect(r, &conn, 1) != 0 || case_carry(r, &conn, 1, &like) != 0)
        return -1;
    rank_close(r, &conn, 1);
    return rank_stop(r);
}

static int contexts_come_and_go_without_a_trace(struct rank *r)
{
    return many_times(r, quick_once, "finished jobs");
}

static int abort_once(struct rank *r)
{
    struct conn conn = {.id = 0, .from = r->idx, .to = r->idx};
    struct flow *flows;
    unsigned count;

    if (rank_start(r) != 0 || rank_connect(r, &conn, 1) != 0 ||
        case_begin(r, &conn, 1, &endless, &flows, &count) != 0 ||
        case_moved(r, flows, count, 10) != 0)
        return -1;
    return case_abort(r, &conn, 1, flows, count, ABORT_POISON);
}

static int aborted_jobs_leave_no_trace(struct rank *r)
{
    return many_times(r, abort_once, "aborted jobs");
}

/* Two families of communicators in one process: other is a second context, and each has a ring of
 * count connections. */
static int two_contexts(struct rank *r, struct rank *other, struct conn *first, struct conn *second,
                        unsigned count)
{
    *other = *r;
    other->rng = r->rng + 77;
    case_ring(r, first, count, 0);
    case_ring(r, second, count, 100);
    if (rank_start(r) != 0 || rank_start(other) != 0 || rank_connect(r, first, count) != 0 ||
        rank_connect(other, second, count) != 0)
        return -1;
    return 0;
}

/* One ends while the other is in the middle of its messages. */
static int two_contexts_live_side_by_side(struct rank *r)
{
    const struct flow like = {.steps = 300, .sizes = bulk, .size_count = COUNT(bulk), .hold = 1};
    struct rank other;
    struct conn first[2], second[2];
    struct flow *flows;
    unsigned count;

    if (two_contexts(r, &other, first, second, 2) != 0 ||
        case_begin(&other, second, 2, &like, &flows, &count) != 0 ||
        case_asked(flows, count, 1) != 0)
        return -1;
    if (case_quick(r, 20) != 0)
        return -1;
    rank_close(r, first, 2);
    if (rank_stop(r) != 0)
        return -1;
    for (unsigned i = 0; i < count; i++)
        atomic_store(&flows[i].hold, 0);
    if (case_end(&other, flows, count) != 0)
        return -1;
    if (case_quick(&other, 30) != 0) /* what is made afterwards works as well */
        return -1;
    rank_close(&other, second, 2);
    return rank_stop(&other);
}

/* The connections of both come up in an order of each rank's own, and move all at once. */
static int many_connections_of_two_contexts_keep_apart(struct rank *r)
{
    const struct flow like = {.steps = 60, .sizes = bulk, .size_count = COUNT(bulk)};
    struct rank other;
    struct conn first[16], second[16];
    struct flow *flows[2];
    unsigned count[2];

    if (two_contexts(r, &other, first, second, COUNT(first)) != 0 ||
        case_begin(r, first, COUNT(first), &like, &flows[0], &count[0]) != 0 ||
        case_begin(&other, second, COUNT(second), &like, &flows[1], &count[1]) != 0 ||
        case_end(&other, flows[1], count[1]) != 0 || case_end(r, flows[0], count[0]) != 0)
        return -1;
    rank_close(r, first, COUNT(first));
    rank_close(&other, second, COUNT(second));
    return rank_stop(r) != 0 || rank_stop(&other) != 0 ? -1 : 0;
}

static int one_context_is_aborted_while_another_moves(struct rank *r)
{
    const struct flow like = {.steps = 2000, .sizes = bulk, .size_count = COUNT(bulk)};
    struct rank other;
    struct conn first[4], second[4];
    struct flow *flows[2];
    unsigned count[2];

    if (two_contexts(r, &other, first, second, COUNT(first)) != 0 ||
        case_begin(r, first, COUNT(first), &endless, &flows[0], &count[0]) != 0 ||
        case_begin(&other, second, COUNT(second), &like, &flows[1], &count[1]) != 0 ||
        case_moved(r, flows[0], count[0], 8) != 0 ||
        case_abort(r, first, COUNT(first), flows[0], count[0], ABORT_PROTECT) != 0 ||
        case_end(&other, flows[1], count[1]) != 0)
        return -1;
    rank_close(&other, second, COUNT(second));
    return rank_stop(&other);
}

/* Of a plugin whose connections share sockets: those after the first open none. So many are first
 * that each end has begun as many as there may be endpoints by SLUICE_NCCL_FLOWS, unless it says
 * more than 4. */
static int more_connections_open_no_more_sockets(struct rank *r)
{
    struct conn first[8], more[8];
    int before;

    case_ring(r, first, COUNT(first), 0);
    case_ring(r, more, COUNT(more), 20);
    if (rank_start(r) != 0 || rank_connect(r, first, COUNT(first)) != 0)
        return -1;
    before = resources_tcp();
    if (rank_connect(r, more, COUNT(more)) != 0)
        return -1;
    if (before == 0 || resources_tcp() != before)
        return watch_fail("%d TCP connections, and %d after more connections of NCCL", before,
                          resources_tcp());
    if (case_quick(r, 50) != 0 || boot_barrier(r) != 0)
        return -1;
    rank_close(r, first, COUNT(first));
    rank_close(r, more, COUNT(more));
    return rank_stop(r);
}

static int the_library_is_loaded_again_and_again(struct rank *r)
{
    struct resources before, after;
    int version = r->net->version;
    const char *path = r->net->path;
    char why[200];

    for (int i = 0; i < 8; i++) {
        if (i == 3)
            resources_count(&before);
        if (quick_once(r) != 0)
            return -1;
        net_close(r->net);
        if (net_open(r->net, path, version, why, sizeof(why)) != 0)
            return watch_fail("%s", why);
    }
    resources_count(&after);
    if (!net_has_contexts(r->net))
        return 0;
    /* The loader itself keeps a few bytes each time. */
    return resources_compare(&before, &after, 5, -1, "unloaded libraries");
}

static int null_is_taken_where_nccl_passes_it(struct rank *r)
{
    if (net_has_contexts(r->net) && net_finalize(r->net, NULL) != NET_OK)
        return watch_fail("finalize(NULL), as after a failed init, is no success");
    if (rank_start(r) != 0)
        return -1;
    if (net_close_send(r->net, NULL) != NET_OK || net_close_recv(r->net, NULL) != NET_OK ||
        net_close_listen(r->net, NULL) != NET_OK)
        return watch_fail("a close of NULL is no success");
    if (rank_stop(r) != 0)
        return -1;
    if (net_has_contexts(r->net) && net_finalize(r->net, NULL) != NET_OK)
        return watch_fail("finalize(NULL) is no success");
    return 0;
}

/* Registrations of one buffer overlap, repeat and end in any order. */
static int registrations_overlap(struct rank *r)
{
    enum { MRS = 16 };
    static uint8_t memory[RANKS_MOST][1 << 18];
    struct conn conn = {.id = 0, .from = r->idx, .to = r->idx};
    struct job jobs[MRS];

    if (rank_start(r) != 0 || rank_connect(r, &conn, 1) != 0)
        return -1;
    for (int i = 0; i < MRS; i++) {
        size_t start = i % 4 * 4096u + (i % 3 == 0 ? 8 : 0);

        jobs[i] = (struct job){.kind = JOB_REG,
                               .comm = i % 2 ? conn.send_comm : conn.recv_comm,
                               .data = memory[r->idx] + start,
                               .len = i % 5 == 0 ? 1 : sizeof(memory[0]) - start};
        if (rank_do(r, &jobs[i]) != 0)
            return -1;
    }
    for (int i = 0; i < MRS; i++) {
        struct job *job = &jobs[(i * 7 + 3) % MRS];

        job->kind = JOB_DEREG;
        if (rank_do(r, job) != 0)
            return -1;
    }
    rank_close(r, &conn, 1);
    return rank_stop(r);
}

const struct driver_case cases_life[] = {
    {NAMED(null_is_taken_where_nccl_passes_it), 1, CASE_THREADS},
    {NAMED(registrations_overlap), 1, CASE_THREADS},
    {NAMED(listeners_close_without_an_accept), 2, CASE_ANYWHERE},
    {NAMED(one_listener_accepts_several), 2, CASE_ANYWHERE},
    {NAMED(connections_come_up_while_others_move), 3, CASE_ANYWHERE},
    {NAMED(what_is_sent_arrives_though_the_sender_closes), 2, CASE_ANYWHERE},
    {NAMED(aborted_memory_is_not_touched), 2, CASE_ANYWHERE},
    {NAMED(aborted_memory_is_neither_read_nor_written), 2, CASE_ANYWHERE},
    {NAMED(a_stalled_transfer_is_aborted), 2, CASE_ANYWHERE},
    {NAMED(two_contexts_live_side_by_side), 2, CASE_ANYWHERE},
    {NAMED(many_connections_of_two_contexts_keep_apart), 2, CASE_ANYWHERE},
    {NAMED(one_context_is_aborted_while_another_moves), 2, CASE_ANYWHERE},
    {NAMED(more_connections_open_no_more_sockets), 2, CASE_PROCESSES | CASE_EXTRA},
    {NAMED(half_open_connections_are_freed_by_finalize), 1, CASE_THREADS},
    {NAMED(contexts_come_and_go_without_a_trace), 1, CASE_THREADS},
    {NAMED(aborted_jobs_leave_no_trace), 1, CASE_THREADS},
    {NAMED(the_library_is_loaded_again_and_again), 1, CASE_THREADS},
};
const unsigned cases_life_count = COUNT(cases_life);
