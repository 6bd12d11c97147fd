/* SPDX-License-Identifier: Apache-2.0 */
/* Faults beneath the plugin: strangers, a peer that dies or stands still, reset and lost
 * connections. */
#include "tools/nccl-driver/cases.h"

#include "tools/nccl-driver/netns.h"
#include "tools/nccl-driver/resources.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ENDLESS 1000000000u
#define SHORT_NS (300 * MS) /* a fault that a plugin should outlive */
#define LONG_NS (7000 * MS) /* longer than timeouts that tests set */

static const size_t bulk[] = {4096, 65536, 262144};
static const struct flow endless = {
    .steps = ENDLESS, .sizes = bulk, .size_count = COUNT(bulk), .may_fail = true};

/* The length of a fault, not a wait for something. */
static void lasts(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

    nanosleep(&t, NULL);
}

/* Strangers call every listener: in silence, with nonsense, and hang up; before and while peers
 * connect. */
static int strangers_do_not_disturb(struct rank *r)
{
    static const char *const words[] = {
        NULL, "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", "\x16\x03\x01", NULL,
        /* NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one long text */
        "0000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000"};
    const struct flow like = {.steps = 20, .sizes = case_small, .size_count = case_small_count};
    struct conn conns[2];
    int called = 0;

    if (rank_start(r) != 0)
        return -1;
    for (int round = 0; round < 3; round++) {
        uint8_t handle[NET_HANDLE_BYTES];
        struct job listen = {.kind = JOB_LISTEN, .conn = round, .ctx = r->ctx, .handle = handle};
        struct job accept = {.kind = JOB_ACCEPT, .conn = round};
        struct job connect = {.kind = JOB_CONNECT, .conn = round, .ctx = r->ctx, .handle = handle};
        struct job close = {.kind = JOB_CLOSE_LISTEN, .conn = round};

        if (rank_do(r, &listen) != 0)
            return -1;
        accept.listen = close.comm = listen.comm;
        rank_submit(r, &accept);
        for (size_t w = 0; w < COUNT(words); w++)
            called += resources_call_listeners(words[w]);
        if (round == 1)
            resources_hang_up();
        rank_submit(r, &connect);
        if (rank_await(r, &connect) != 0 || rank_await(r, &accept) != 0 || rank_do(r, &close) != 0)
            return -1;
        conns[0] = (struct conn){.id = round,
                                 .from = r->idx,
                                 .to = r->idx,
                                 .send_comm = connect.comm,
                                 .recv_comm = accept.comm};
        if (case_carry(r, conns, 1, &like) != 0)
            return -1;
        rank_close(r, conns, 1);
    }
    resources_hang_up();
    if (called == 0)
        watch_skip("the plugin listens on no socket that a stranger could reach");
    return rank_stop(r);
}

/* The end of requests on a connection that is gone: these two results, in time. */
static int ended_well(struct rank *r, const struct flow *f)
{
    if (atomic_load(&f->state) == FLOW_DONE)
        return 0;
    if (f->result != NET_REMOTE && f->result != NET_SYSTEM) {
        watch_about(f->conn, -1);
        return watch_fail("a lost peer is %s: it should be ncclRemoteError or ncclSystemError",
                          net_result_name(f->result));
    }
    return 0;
}

static int all_end(struct rank *r, struct flow *flows, unsigned count)
{
    uint64_t start = watch_now();

    watch_wait("the end of the requests");
    for (unsigned i = 0; i < count; i++) {
        while (atomic_load(&flows[i].state) == FLOW_RUN && !watch_failed()) {
            if (watch_now() - start > case_fault_ns) {
                watch_about(flows[i].conn, flows[i].done[0]);
                watch_fail("%s neither done nor failed %llu ms after the fault (%u posted)",
                           flows[i].send ? "a send is" : "a receive is",
                           (unsigned long long)((watch_now() - start) / MS), flows[i].posted[0]);
            }
            sched_yield();
        }
        if (watch_failed() || ended_well(r, &flows[i]) != 0)
            return -1;
    }
    watch_leave(false);
    return 0;
}

/* Connections 0 and 1 carry; on 2 rank 0 waits for a message, on 3 for room to send: rank 1 does
 * nothing. */
static int open_four(struct rank *r, struct conn conns[4], struct flow **flows, unsigned *count)
{
    case_ring(r, conns, 4, 0);
    if (rank_start(r) != 0 || rank_connect(r, conns, 4) != 0)
        return -1;
    if (case_begin(r, conns, r->idx == 0 ? 4 : 2, &endless, flows, count) != 0)
        return -1;
    return case_moved(r, *flows, 2, 16);
}

static int tell_pid(struct rank *r, pid_t *pid)
{
    if (r->idx == 1) {
        *pid = getpid();
        return boot_send(r, 0, pid, sizeof(*pid));
    }
    return boot_recv(r, 1, pid, sizeof(*pid));
}

static int a_killed_peer_ends_every_request(struct rank *r)
{
    struct conn conns[4];
    struct flow *flows;
    unsigned count;
    char word;
    pid_t pid;
    int rc;

    if (open_four(r, conns, &flows, &count) != 0 || tell_pid(r, &pid) != 0)
        return -1;
    if (r->idx == 1)
        return boot_recv(r, 0, &word, 1); /* it never comes */
    kill(pid, SIGKILL);
    rc = all_end(r, flows, count);
    return rc == 0 ? case_abort(r, conns, 4, flows, count, ABORT_PROTECT) : rc;
}

/* A peer that computes for long looks the same to a plugin, so it is waited for; ns is how long. */
static int stand_still(struct rank *r, uint64_t ns)
{
    const struct flow like = {.steps = 1500, .sizes = bulk, .size_count = COUNT(bulk)};
    struct conn conns[2];
    struct flow *flows;
    unsigned count;
    pid_t pid;

    case_ring(r, conns, 2, 0);
    if (rank_start(r) != 0 || rank_connect(r, conns, 2) != 0 || tell_pid(r, &pid) != 0 ||
        case_begin(r, conns, 2, &like, &flows, &count) != 0 || case_moved(r, flows, count, 16) != 0)
        return -1;
    if (r->idx == 0) {
        kill(pid, SIGSTOP);
        lasts(ns);
        kill(pid, SIGCONT);
    }
    if (case_end(r, flows, count) != 0)
        return -1;
    rank_close(r, conns, 2);
    return rank_stop(r);
}

static int a_peer_that_stands_still_for_a_moment_is_waited_for(struct rank *r)
{
    return stand_still(r, SHORT_NS);
}

static int a_peer_that_stands_still_for_long_is_waited_for(struct rank *r)
{
    return stand_still(r, LONG_NS);
}

/* Peers that gave up each other's connections: all ends, at least on the rank that was not at
 * fault. */
static int give_up(struct rank *r, struct conn *conns, unsigned conn_count, struct flow *flows,
                   unsigned count)
{
    if (all_end(r, flows, count) != 0 || boot_barrier(r) != 0)
        return -1;
    return case_abort(r, conns, conn_count, flows, count, ABORT_POISON);
}

static int reset_connections_recover_or_end_in_time(struct rank *r)
{
    const struct flow like = {
        .steps = 3000, .sizes = bulk, .size_count = COUNT(bulk), .may_fail = true};
    struct conn conns[2];
    struct flow *flows;
    unsigned count;

    case_ring(r, conns, 2, 0);
    if (rank_start(r) != 0 || rank_connect(r, conns, 2) != 0 || boot_barrier(r) != 0 ||
        case_begin(r, conns, 2, &like, &flows, &count) != 0 || case_moved(r, flows, count, 16) != 0)
        return -1;
    if (r->idx == 0 && resources_reset_tcp() == 0)
        watch_skip("the plugin has no TCP connection to reset");
    return give_up(r, conns, 2, flows, count);
}

/* for_ns is how long; 0: for good. */
static int cut(struct rank *r, uint64_t for_ns)
{
    const struct flow like = {.steps = for_ns != 0 ? 3000 : ENDLESS,
                              .sizes = bulk,
                              .size_count = COUNT(bulk),
                              .may_fail = true};
    struct conn conns[2];
    struct flow *flows;
    unsigned count;

    case_ring(r, conns, 2, 0);
    if (rank_start(r) != 0 || rank_connect(r, conns, 2) != 0)
        return -1;
    if (resources_tcp() == 0) { /* on both ranks or on none */
        watch_skip("the plugin has no TCP connection to cut");
        rank_close(r, conns, 2);
        return rank_stop(r);
    }
    if (case_begin(r, conns, 2, &like, &flows, &count) != 0 ||
        case_moved(r, flows, count, 16) != 0 || boot_barrier(r) != 0)
        return -1;
    if (r->idx == 0 && netns_loopback(false) != 0)
        return watch_fail("the link cannot be taken down");
    if (r->idx == 0 && for_ns != 0) {
        lasts(for_ns);
        netns_loopback(true);
    }
    return give_up(r, conns, 2, flows, count);
}

static int a_link_lost_for_a_moment_recovers_or_ends_in_time(struct rank *r)
{
    return cut(r, SHORT_NS);
}

static int a_link_lost_for_good_ends_every_request(struct rank *r)
{
    return cut(r, 0);
}

/* Rank 0 decides, after each round, for both. */
static int told_to_end(struct rank *r, char *end)
{
    *end = access(case_until, F_OK) == 0;
    return r->idx == 0 ? boot_send(r, 1, end, 1) : boot_recv(r, 0, end, 1);
}

/* Traffic while somebody else breaks the network: each rank prints its rounds, no request may fail.
 */
static int traffic_goes_on_until_told(struct rank *r)
{
    static const size_t sizes[] = {0, 100, 4096, 65536, 200001};
    struct flow like = {.steps = 24, .sizes = sizes, .size_count = COUNT(sizes)};
    struct conn conns[4];
    char end = 0;

    if (case_until == NULL)
        return watch_skip("it needs --until FILE");
    case_ring(r, conns, 4, 0);
    if (rank_start(r) != 0 || rank_connect(r, conns, 4) != 0)
        return -1;
    for (unsigned round = 1; !end; round++) {
        like.subs = round % 2 == 0 ? (unsigned)r->props.max_recvs : 1;
        for (unsigned s = 0; s < like.subs; s++)
            like.tags[s] = (int)(5 * s + round % 3);
        /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): max_recvs is at least 1 */
        like.steps = 24 / like.subs;
        if (case_carry(r, conns, 4, &like) != 0 || told_to_end(r, &end) != 0)
            return -1;
        printf("# round %u of rank %d\n", round, r->idx);
        fflush(stdout);
    }
    rank_close(r, conns, 4);
    return rank_stop(r);
}

/* Waits until somebody else has broken the network. */
static int broken(void)
{
    watch_wait("the fault");
    while (access(case_until, F_OK) != 0)
        if (watch_over(0))
            return -1;
        else
            sched_yield();
    watch_leave(false);
    return 0;
}

/* Sixteen connections, of one context or of as many as are said, while somebody else counts what
 * they need. */
static int stay_connected(struct rank *r, unsigned contexts)
{
    enum { CONNS = 16 };
    const struct flow like = {.steps = 20, .sizes = bulk, .size_count = COUNT(bulk)};
    struct rank ranks[CONNS / 2];
    struct conn conns[CONNS];
    unsigned each = CONNS / contexts;

    if (case_until == NULL)
        return watch_skip("it needs --until FILE");
    for (unsigned i = 0; i < contexts; i++) {
        struct conn *own = &conns[i * each];

        ranks[i] = *r;
        ranks[i].rng = r->rng + i;
        case_ring(r, own, each, (int)(i * each));
        if (rank_start(&ranks[i]) != 0 || rank_connect(&ranks[i], own, each) != 0 ||
            case_carry(&ranks[i], own, each, &like) != 0)
            return -1;
    }
    printf("# the connections of rank %d are there\n", r->idx);
    fflush(stdout);
    if (broken() != 0)
        return -1;
    for (unsigned i = 0; i < contexts; i++) {
        rank_close(&ranks[i], &conns[i * each], each);
        if (rank_stop(&ranks[i]) != 0)
            return -1;
    }
    return 0;
}

static int connections_of_one_context_stay(struct rank *r)
{
    return stay_connected(r, 1);
}

static int connections_of_eight_contexts_stay(struct rank *r)
{
    return stay_connected(r, 8);
}

/*
 * The receiver's requests are done, so NCCL does not call its plugin any more, while what the
 * sender would learn that from is lost: the sends must end all the same.
 */
static int sends_end_though_the_receiver_rests(struct rank *r)
{
    static const size_t size[] = {20001}; /* all that is in flight passes without an acknowledge */
    const struct flow like = {.steps = NET_STEPS, .sizes = size, .size_count = 1};
    struct conn conns[1] = {{.id = 0, .from = 0, .to = 1}};
    struct flow *flows = NULL;
    unsigned count = 0;
    char word = 'e';

    if (case_until == NULL)
        return watch_skip("it needs --until FILE");
    if (rank_start(r) != 0 || rank_connect(r, conns, 1) != 0 || case_carry(r, conns, 1, &like) != 0)
        return -1;
    if (r->idx == 1) {
        if (case_begin(r, conns, 1, &like, &flows, &count) != 0 ||
            case_asked(flows, count, like.steps) != 0)
            return -1;
        printf("# the receives are posted\n");
        fflush(stdout);
        if (flow_await(r, &flows[0]) != 0 ||
            boot_recv(r, 0, &word, 1) != 0) /* in no call of the plugin */
            return -1;
    } else if (broken() != 0 || case_begin(r, conns, 1, &like, &flows, &count) != 0 ||
               flow_await(r, &flows[0]) != 0 || boot_send(r, 1, &word, 1) != 0) {
        return -1;
    }
    if (case_end(r, flows, count) != 0 || case_carry(r, conns, 1, &like) != 0)
        return -1;
    rank_close(r, conns, 1);
    return rank_stop(r);
}

const struct driver_case cases_fault[] = {
    {NAMED(strangers_do_not_disturb), 1, CASE_THREADS | CASE_FAULT},
    {NAMED(a_peer_that_stands_still_for_a_moment_is_waited_for), 2, CASE_PROCESSES | CASE_FAULT},
    {NAMED(a_killed_peer_ends_every_request), 2, CASE_PROCESSES | CASE_FAULT | CASE_DIES},
    {NAMED(reset_connections_recover_or_end_in_time), 2, CASE_PROCESSES | CASE_FAULT},
    {NAMED(a_link_lost_for_a_moment_recovers_or_ends_in_time), 2,
     CASE_PROCESSES | CASE_FAULT | CASE_NETNS},
    {NAMED(a_link_lost_for_good_ends_every_request), 2,
     CASE_PROCESSES | CASE_FAULT | CASE_NETNS | CASE_EXTRA},
    {NAMED(sends_end_though_the_receiver_rests), 2, CASE_PROCESSES | CASE_EXTRA},
    {NAMED(traffic_goes_on_until_told), 2, CASE_PROCESSES | CASE_EXTRA},
    {NAMED(connections_of_one_context_stay), 2, CASE_PROCESSES | CASE_EXTRA},
    {NAMED(connections_of_eight_contexts_stay), 2, CASE_PROCESSES | CASE_EXTRA},
    {NAMED(a_peer_that_stands_still_for_long_is_waited_for), 2,
     CASE_PROCESSES | CASE_FAULT | CASE_EXTRA},
};
const unsigned cases_fault_count = COUNT(cases_fault);
