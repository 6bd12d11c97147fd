/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a wire, and several engines, in one process; and DPDK's start, in children. */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/ports.h"
#include "dpdk/proto/wire.h"
#include "tests/unit/dpdk/port_end.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_ip.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define WAIT_MS 5000
#define IP_AT 14 /* in a frame */
#define UDP_AT 34

static uint8_t payload[9000];

static struct sl_dpdk_port_settings wire(const char *inject)
{
    return (struct sl_dpdk_port_settings){
        .list = "ring:a/0 ring:a/1", .inject = inject, .rank = -1, .local_rank = -1};
}

/* Both ends, connected. */
static void join(struct port_end *a, struct port_end *b, const char *inject)
{
    struct sl_dpdk_port_settings settings = wire(inject);

    assert_int_equal(port_end_open(a, &settings, 0), 0);
    assert_int_equal(port_end_open(b, &settings, 1), 0);
    assert_int_equal(port_end_connect(a, &b->own, 50000), 0);
    assert_int_equal(port_end_connect(b, &a->own, 50001), 0);
}

static void part(struct port_end *a, struct port_end *b)
{
    port_end_close(a);
    port_end_close(b);
}

/* ---- starting DPDK: once a process, so in children, before this one does ---- */

static void in_a_child(int (*act)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(act());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int open_list(const char *list)
{
    static struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port_settings settings = {.list = list, .rank = -1, .local_rank = -1};
    size_t count;

    return sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count);
}

/* One descriptor more, where EAL needs two: it gives up halfway. */
static int fail_twice(void)
{
    int next = dup(0);
    struct rlimit files = {(rlim_t)next + 1, (rlim_t)next + 1};

    close(next);
    if (setrlimit(RLIMIT_NOFILE, &files) != 0 || open_list("net_null0") != -EMFILE)
        return 1;
    return open_list("net_null0") == -EMFILE && strstr(sluice_last_error(), "a new one") != NULL
               ? 0
               : 2;
}

static void a_start_that_failed_is_told_again_and_ends_nothing(void **state)
{
    (void)state;
    in_a_child(fail_twice);
}

static int start_before(void)
{
    char *words[] = {"test", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry"};
    char text[256] = "";
    FILE *own = fmemopen(text, sizeof(text), "w");

    if (rte_eal_init(SL_ARRAY_LEN(words), words) < 0 || rte_openlog_stream(own) != 0)
        return 1;
    if (open_list("net_null0") != 0)
        return 2;
    rte_log(RTE_LOG_ERR, RTE_LOGTYPE_USER1, "a line of the program\n");
    fflush(own);
    return strstr(text, "a line of the program") != NULL ? 0 : 3;
}

static void a_program_that_has_started_dpdk_keeps_its_log(void **state)
{
    (void)state;
    in_a_child(start_before);
}

/* Each with buffers of a size of its own: 400 MB in all. */
static int open_many(void)
{
    char list[512] = "";

    for (unsigned i = 0; i < 12; i++)
        sl_text_add(list, sizeof(list), "net_null%u@mtu=%u ", i, SL_DPDK_MTU_MOST - 64 * i);
    return open_list(list) == 0 ? 0 : 1;
}

static void there_is_memory_for_many_ports(void **state)
{
    (void)state;
    in_a_child(open_many);
}

static void the_threads_affinity_and_signals_stay_as_they_were(void **state)
{
    struct sl_dpdk_port_settings settings = wire(NULL);
    cpu_set_t before, after;
    sigset_t signals_before, signals_after;
    struct port_end a;

    (void)state;
    sched_getaffinity(0, sizeof(before), &before);
    pthread_sigmask(SIG_SETMASK, NULL, &signals_before);
    assert_int_equal(port_end_open(&a, &settings, 0), 0);
    sched_getaffinity(0, sizeof(after), &after);
    pthread_sigmask(SIG_SETMASK, NULL, &signals_after);
    assert_true(CPU_EQUAL(&before, &after));
    for (int i = 1; i < NSIG; i++)
        assert_int_equal(sigismember(&signals_before, i), sigismember(&signals_after, i));
    port_end_close(&a);
}

static void a_port_tells_what_it_is(void **state)
{
    struct sl_dpdk_port_settings settings = wire(NULL);
    struct sl_dpdk_port_info info, other;
    struct port_end a;

    (void)state;
    assert_int_equal(port_end_open(&a, &settings, 0), 0);
    sl_dpdk_port_info(a.ports[0], &info);
    sl_dpdk_port_info(a.ports[1], &other);
    assert_string_equal(info.name, "ring:a/0");
    assert_string_equal(info.driver, "net_ring");
    assert_int_equal(info.frame_most, 9014);
    assert_true(info.is_up);
    assert_true(info.sends_segments);
    assert_int_equal(info.address.ip[0], 169);
    assert_int_equal(info.address.prefix, 16);
    assert_int_equal(info.address.udp_port, SL_DPDK_UDP_PORT);
    assert_int_equal(info.address.segment, other.address.segment);
    assert_int_equal(sl_dpdk_port_fd(a.port), -1);
    assert_int_equal(sl_dpdk_port_arm(a.port), -ENOTSUP);
    port_end_close(&a);
}

/* Two NICs of a host are rarely on one wire: pairs are made by subnets then. */
static void a_nic_is_on_a_wire_only_if_it_is_named(void **state)
{
    struct sl_dpdk_port_settings settings = {
        .list = "net_null0@ip=10.1.0.2/24 net_null1@ip=10.2.0.2/24@segment=blue",
        .rank = -1,
        .local_rank = -1};
    struct sl_dpdk_port_info info, named;
    struct port_end a;

    (void)state;
    assert_int_equal(port_end_open(&a, &settings, 0), 0);
    sl_dpdk_port_info(a.ports[0], &info);
    sl_dpdk_port_info(a.ports[1], &named);
    assert_int_equal(info.address.segment, 0);
    assert_int_equal(named.address.segment, sl_dpdk_hash("blue"));
    port_end_close(&a);
}

static uint32_t frame_most_of(const char *driver, const char *args)
{
    struct sl_dpdk_spec spec = {.kind = SL_DPDK_VDEV};
    struct sl_dpdk_traits traits;

    snprintf(spec.args, sizeof(spec.args), "%s", args);
    sl_dpdk_driver_traits(driver, &spec, &traits);
    return traits.frame_most;
}

static void a_port_that_takes_too_little_says_what_to_change(void **state)
{
    static const char *const lists[] = {"net_null0", "net_memif9,socket=/tmp/none.sock,bsize=500"};
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    size_t count;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_dpdk_port_settings settings = {
            .list = lists[i], .mtu = i == 0 ? 575 : 0, .rank = -1, .local_rank = -1};

        assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), "576 are the least"));
    }
    assert_int_equal(frame_most_of("net_af_packet", "framesz=2048"), 1968);
    assert_int_equal(frame_most_of("net_af_packet", "framesz=16"), 1);
}

/* "lo" has 65,536 bytes, and a buffer less. */
static void an_interface_with_a_huge_mtu_has_usual_frames(void **state)
{
    struct sl_dpdk_spec spec = {.kind = SL_DPDK_VDEV, .name = "net_af_packet0", .args = "iface=lo"};

    (void)state;
    assert_int_equal(sl_dpdk_driver_args(&spec), 0);
    assert_int_equal(spec.mtu, SL_DPDK_MTU_USUAL);
    assert_non_null(strstr(spec.args, "framesz="));
}

static void packets_of_any_length_arrive_whole_copied_or_lent(void **state)
{
    static const size_t lens[] = {0, 1, 7, 64, 255, 256, 257, 511, 512, 513, 1400, 4096, 8900};
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    for (unsigned lent = 0; lent < 2; lent++) {
        for (size_t i = 0; i < SL_ARRAY_LEN(lens); i++) {
            uint64_t before = b.came;
            int result = port_end_send(&a, payload, lens[i], lent);

            assert_int_equal(result, lent && lens[i] > 256);
            port_end_poll(&a);
            assert_true(port_end_wait(&b, &b.came, before + 1, WAIT_MS));
            assert_int_equal(b.last_len, lens[i]);
        }
    }
    assert_int_equal(b.damaged, 0);
    assert_int_equal(b.came, 2 * SL_ARRAY_LEN(lens));
    assert_true(port_end_wait(&a, &a.returned, 7, WAIT_MS));
    port_end_poll(&a);
    assert_int_equal(a.returned, 7);
    part(&a, &b);
}

static void a_tail_follows_the_payload(void **state)
{
    struct port_end a, b;
    uint8_t head[PORT_END_HEAD] = {0}, all[404];
    uint32_t tail;

    (void)state;
    join(&a, &b, NULL);
    port_end_fill(all, sizeof(all));
    memcpy(&tail, all + 400, 4);
    memcpy(head + offsetof(struct sl_dp_head, flow), &b.own.flow, 4);
    assert_int_equal(
        sl_dpdk_send(a.user, a.port, &a.way, head, sizeof(head), all, 400, &tail, true, 0), 0);
    assert_true(sl_dpdk_flush(a.user, a.port) == 1);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    assert_int_equal(b.last_len, 404);
    assert_int_equal(b.damaged, 0);
    part(&a, &b);
}

static void a_full_port_says_so_and_takes_more_when_it_was_emptied(void **state)
{
    struct port_end a, b;
    unsigned count = 0;

    (void)state;
    join(&a, &b, NULL);
    while (count < 5000 && port_end_send(&a, payload, 100, false) >= 0)
        count++;
    assert_in_range(count, 512, 600);
    assert_int_equal(port_end_send(&a, payload, 100, false), -EAGAIN);
    assert_true(port_end_wait(&b, &b.came, 500, WAIT_MS));
    assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    while (b.came < a.sent) {
        port_end_poll(&a);
        assert_true(port_end_wait(&b, &b.came, b.came + 1, WAIT_MS));
    }
    assert_int_equal(b.damaged, 0);
    assert_int_equal(b.last_count, a.sent - 1);
    part(&a, &b);
}

static void what_is_dropped_comes_back_and_does_not_arrive(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(port_end_send(&a, payload, 1000, true), 1);
    sl_dpdk_drop(a.user, a.port);
    port_end_poll(&a);
    assert_int_equal(a.returned, 10);
    assert_false(port_end_wait(&b, &b.came, 1, 5));
    part(&a, &b);
}

static void closing_returns_what_was_lent(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(port_end_send(&a, payload, 1000, true), 1);
    sl_dpdk_user_close(a.user);
    assert_int_equal(a.returned, 10);
    sl_dpdk_ports_put(a.ports, a.port_count);
    port_end_close(&b);
}

static void a_flow_that_was_forgotten_gets_nothing_more(void **state)
{
    struct sl_dpdk_port_stats stats;
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    assert_int_equal(port_end_send(&a, payload, 10, false), 0);
    port_end_poll(&a);
    sl_dpdk_flow_forget(b.user, b.own.flow);
    assert_false(port_end_wait(&b, &b.came, 1, 5));
    sl_dpdk_port_stats(b.port, &stats);
    assert_int_equal(stats.unknown, 1);
    part(&a, &b);
}

static void numbers_of_flows_differ_and_do_not_return_soon(void **state)
{
    static uint32_t numbers[3000];
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    for (unsigned i = 0; i < 3000; i++) {
        assert_int_equal(sl_dpdk_flow_number(a.user, &numbers[i]), 0);
        assert_int_not_equal(numbers[i], 0);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(numbers[i], numbers[j]);
        if (i % 2 == 0)
            sl_dpdk_flow_forget(a.user, numbers[i]);
    }
    part(&a, &b);
}

/* Though hardly any are left: before the next case, which makes many. */
static void a_place_of_a_flow_is_not_taken_again_at_once(void **state)
{
    uint32_t numbers[256], held[250];
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    for (unsigned i = 0; i < 250; i++)
        assert_int_equal(sl_dpdk_flow_number(a.user, &held[i]), 0);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(sl_dpdk_flow_number(a.user, &numbers[i]), 0);
        sl_dpdk_flow_forget(a.user, numbers[i]);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(numbers[i] & 0xffff, numbers[j] & 0xffff);
    }
    part(&a, &b);
}

static void a_user_cannot_forget_anothers_flow(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    sl_dpdk_flow_forget(a.user, b.own.flow);
    assert_int_equal(port_end_send(&a, payload, 10, false), 0);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    part(&a, &b);
}

static void the_inbox_keeps_what_another_engine_took(void **state)
{
    struct port_end a, b, c;

    (void)state;
    join(&a, &b, NULL);
    struct sl_dpdk_port_settings settings = wire(NULL);
    assert_int_equal(port_end_open(&c, &settings, 1), 0); /* shares the port with b */
    for (unsigned i = 0; i < 40; i++)
        assert_true(port_end_send(&a, payload, 300, false) >= 0);
    port_end_poll(&a);
    for (unsigned i = 0; i < 10; i++)
        port_end_poll(&c);
    assert_int_equal(c.came, 0);
    assert_int_equal(b.came, 0);
    /* More that b takes itself comes behind it. */
    assert_true(port_end_send(&a, payload, 300, false) >= 0);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 41, WAIT_MS));
    assert_int_equal(b.last_count, 40);
    assert_int_equal(b.damaged, 0);
    port_end_close(&c);
    part(&a, &b);
}

static void an_inbox_forgets_with_its_flow(void **state)
{
    struct port_end a, b, c;

    (void)state;
    join(&a, &b, NULL);
    struct sl_dpdk_port_settings settings = wire(NULL);
    assert_int_equal(port_end_open(&c, &settings, 1), 0);
    assert_true(port_end_send(&a, payload, 300, false) >= 0);
    port_end_poll(&a);
    port_end_poll(&c);
    sl_dpdk_flow_forget(b.user, b.own.flow);
    assert_false(port_end_wait(&b, &b.came, 1, 5));
    port_end_close(&c);
    part(&a, &b);
}

static void a_port_stays_until_its_last_user_leaves(void **state)
{
    struct sl_dpdk_port_settings settings = wire(NULL);
    struct port_end a, b, c;

    (void)state;
    join(&a, &b, NULL);
    assert_int_equal(port_end_open(&c, &settings, 1), 0);
    port_end_close(&c);
    assert_int_equal(port_end_send(&a, payload, 300, true), 1);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    part(&a, &b);
}

/* ---- frames as they are on the wire ---- */

static void put_16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put_checksum(uint8_t *frame)
{
    struct rte_ipv4_hdr ip;

    memcpy(&ip, frame + IP_AT, sizeof(ip));
    ip.hdr_checksum = 0;
    ip.hdr_checksum = (uint16_t)~rte_raw_cksum(&ip, sizeof(ip));
    memcpy(frame + IP_AT, &ip, sizeof(ip));
}

/* What is on its way to the second end. */
static struct rte_mbuf *take_frame(void)
{
    void *frame = NULL;

    assert_int_equal(rte_ring_dequeue(rte_ring_lookup("sl_a_1"), &frame), 0);
    return frame;
}

/* A good frame of a's with 100 bytes, changed by the caller, goes on to b. */
static uint8_t *start_frame(struct port_end *a, struct rte_mbuf **out)
{
    assert_int_equal(port_end_send(a, payload, 100, false), 0);
    assert_int_equal(sl_dpdk_flush(a->user, a->port), 1);
    *out = take_frame();
    return rte_pktmbuf_mtod(*out, uint8_t *);
}

static void send_frame(struct rte_mbuf *frame)
{
    assert_int_equal(rte_ring_enqueue(rte_ring_lookup("sl_a_1"), frame), 0);
}

static void checksums_are_right_for_all_addresses_and_lengths(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    for (unsigned i = 0; i < 1000; i++) {
        struct port_hello peer = b.own;

        peer.address.ip[2] = (uint8_t)(i * 37);
        peer.address.ip[3] = (uint8_t)(i * 101);
        assert_int_equal(sl_dpdk_way_make(a.port, &peer.address, 50000, (uint8_t)i, &a.way), 0);
        assert_int_equal(port_end_send(&a, payload, i * 8, false), 0);
        assert_int_equal(sl_dpdk_flush(a.user, a.port), 1);
        struct rte_mbuf *frame = take_frame();
        const uint8_t *ip = rte_pktmbuf_mtod_offset(frame, const uint8_t *, IP_AT);
        assert_int_equal(rte_raw_cksum(ip, 20), 0xffff);
        assert_int_equal(ip[2] << 8 | ip[3], i * 8 + PORT_END_HEAD + 28);
        rte_pktmbuf_free(frame);
    }
    part(&a, &b);
}

static void frames_for_others_are_counted_and_dropped(void **state)
{
    static const struct {
        unsigned at, value;
        bool good_sum;
    } cases[] = {
        {12, 0x86dd, true},                                      /* IPv6 */
        {IP_AT, 0x4602, true},                                   /* with options */
        {IP_AT, 0x6502, true},                                   /* version 6 */
        {IP_AT + 6, 0x2000, true},                               /* fragments */
        {IP_AT + 6, 0x4001, true},                               /* the last one */
        {IP_AT + 8, 0x4006, true},                               /* TCP */
        {IP_AT + 10, 0x1234, false},                             /* a wrong checksum */
        {IP_AT + 16, 0x0808, true},                              /* another address, either half */
        {IP_AT + 18, 0x0808, true},  {UDP_AT + 2, 0x0808, true}, /* another port */
        {IP_AT + 2, 161, true},                                  /* one byte more than there is */
        {IP_AT + 2, 0xffff, true},                               /* as many as can be */
        {IP_AT + 2, 159, true},                                  /* less than UDP says */
        {UDP_AT + 4, 141, true},                                 /* UDP says more than IP */
        {UDP_AT + 4, 0, true},                                   /* nothing */
        {UDP_AT + 4, 8 + 31, true}, /* one less than a header of ours */
    };
    struct sl_dpdk_port_stats before, after;
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    sl_dpdk_port_stats(b.port, &before);
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct rte_mbuf *frame;
        uint8_t *bytes = start_frame(&a, &frame);

        put_16(bytes + cases[i].at, cases[i].value);
        if (cases[i].good_sum)
            put_checksum(bytes);
        send_frame(frame);
        assert_false(port_end_wait(&b, &b.came, 1, 1));
        sl_dpdk_port_stats(b.port, &after);
        if (after.foreign != before.foreign + i + 1)
            fail_msg("case %zu was not counted", i);
    }
    assert_int_equal(after.received, before.received);
    part(&a, &b);
}

/* Ethernet's least length; and a second segment that is nothing else. */
static void padding_is_cut_off(void **state)
{
    struct rte_mbuf *frame, *more;
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    (void)start_frame(&a, &frame);
    memset(rte_pktmbuf_append(frame, 20), 0x55, 20);
    send_frame(frame);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    assert_int_equal(b.last_len, 100);
    (void)start_frame(&a, &frame);
    more = rte_pktmbuf_copy(frame, frame->pool, 0, 20);
    assert_int_equal(rte_pktmbuf_chain(frame, more), 0);
    send_frame(frame);
    assert_true(port_end_wait(&b, &b.came, 2, WAIT_MS));
    assert_int_equal(b.last_len, 100);
    assert_int_equal(b.damaged, 0);
    part(&a, &b);
}

static void random_frames_reach_nobody(void **state)
{
    struct port_end a, b;
    uint64_t chance = 88172645463325252u;
    uint8_t junk[200], head[32];

    (void)state;
    join(&a, &b, NULL);
    for (unsigned round = 0; round < 20000; round++) {
        struct sl_dpdk_way way = a.way;

        for (size_t i = 0; i < sizeof(junk); i++) {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            junk[i] = (uint8_t)(chance >> 24);
        }
        memcpy(head, junk + 100, sizeof(head));
        if (round % 2 == 0) /* headers that are nearly good */
            way.head[junk[0] % sizeof(way.head)] = junk[1];
        else
            memcpy(way.head + 12, junk, sizeof(way.head) - 12);
        (void)sl_dpdk_send(a.user, a.port, &way, head, junk[2] % 33, junk, junk[3] % 128, NULL,
                           false, 0);
        port_end_poll(&a);
        port_end_poll(&b);
    }
    assert_int_equal(b.came, 0);
    part(&a, &b);
}

/* ---- marks and ways ---- */

static void a_packet_that_was_marked_on_its_way_is_told(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    assert_int_equal(a.way.head[15] & 3, 2); /* may be marked */
    assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    a.way.head[15] |= 3; /* as a switch does it: the checksum as well */
    uint16_t sum = (uint16_t)((a.way.head[24] << 8 | a.way.head[25]) - 1);
    a.way.head[24] = (uint8_t)(sum >> 8);
    a.way.head[25] = (uint8_t)sum;
    assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 2, WAIT_MS));
    assert_int_equal(b.marked, 1);
    part(&a, &b);
}

static void the_traffic_class_and_the_source_port_are_in_the_headers(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    assert_int_equal(sl_dpdk_way_make(a.port, &b.own.address, 0xc123, 0x68, &a.way), 0);
    assert_int_equal(a.way.head[15], 0x6a);
    assert_int_equal(a.way.head[34], 0xc1);
    assert_int_equal(a.way.head[35], 0x23);
    assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    part(&a, &b);
}

static void a_peer_without_a_mac_is_asked_for_it(void **state)
{
    struct port_hello peer;
    struct port_end a, b;
    int err;

    (void)state;
    join(&a, &b, NULL);
    peer = b.own;
    memset(peer.address.mac, 0, 6);
    assert_int_equal(port_end_connect(&a, &peer, 50000), -EAGAIN);
    for (unsigned i = 0; i < 1000 && (err = port_end_connect(&a, &peer, 50000)) == -EAGAIN; i++) {
        port_end_poll(&b);
        port_end_poll(&a);
    }
    assert_int_equal(err, 0);
    assert_memory_equal(a.way.head, b.own.address.mac, 6);
    part(&a, &b);
}

static void a_peer_in_another_subnet_needs_a_gateway(void **state)
{
    struct port_hello peer;
    struct port_end a, b;

    (void)state;
    join(&a, &b, NULL);
    peer = b.own;
    peer.address.ip[0] = 10;
    assert_int_equal(port_end_connect(&a, &peer, 50000), -EHOSTUNREACH);
    assert_non_null(strstr(sluice_last_error(), "@gw="));
    part(&a, &b);
}

/* ---- faults ---- */

static void shower(struct port_end *a, struct port_end *b, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        assert_true(port_end_send(a, payload, 200, false) >= 0);
        port_end_poll(a);
        port_end_poll(b);
    }
    port_end_wait(b, &b->came, UINT64_MAX, 3);
}

static void injected_faults_happen_as_often_as_asked(void **state)
{
    struct sl_dpdk_port_stats stats;
    struct port_end a, b;

    (void)state;
    join(&a, &b, "loss=0.1,seed=3");
    shower(&a, &b, 4000);
    assert_in_range(b.came, 3500, 3700);
    assert_int_equal(b.damaged, 0);
    sl_dpdk_port_stats(b.port, &stats);
    assert_int_equal(stats.injected, 4000 - b.came);
    part(&a, &b);

    join(&a, &b, "dup=0.1,seed=3");
    shower(&a, &b, 4000);
    assert_in_range(b.came, 4300, 4500);
    assert_int_equal(b.damaged, 0);
    part(&a, &b);

    join(&a, &b, "corrupt=0.5,seed=3");
    shower(&a, &b, 4000);
    assert_in_range(b.came, 3000, 3900); /* where headers were hit, it is not ours any more */
    assert_in_range(b.damaged, 900, 2000);
    part(&a, &b);
}

static uint64_t out_of_order;
static void note_order(void *arg, struct sl_dpdk_port *port, uint32_t flow, const void *bytes,
                       size_t len, bool is_marked)
{
    uint64_t count, *last = arg;

    (void)port, (void)flow, (void)len, (void)is_marked;
    memcpy(&count, (const uint8_t *)bytes + 8, 8);
    out_of_order += count < *last;
    *last = count;
}

static void reordered_and_delayed_packets_come_later_but_come(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, "reorder=0.05,delay=0.05,delay_us=300,seed=5");
    shower(&a, &b, 3000);
    assert_true(port_end_wait(&b, &b.came, 3000, WAIT_MS));
    assert_int_equal(b.came, 3000);
    assert_int_equal(b.damaged, 0);
    part(&a, &b);

    join(&a, &b, "reorder=0.05,seed=5");
    struct sl_dpdk_user *user;
    uint64_t last = 0;
    sl_dpdk_user_close(b.user);
    b.user = NULL;
    assert_int_equal(sl_dpdk_user_open(note_order, NULL, &last, &user), 0);
    assert_int_equal(sl_dpdk_flow_number(user, &a.peer.flow), 0);
    for (unsigned i = 0; i < 2000; i++) {
        assert_int_equal(port_end_send(&a, payload, 20, false), 0);
        port_end_poll(&a);
        sl_dpdk_user_poll(user, b.port, 64);
    }
    assert_in_range(out_of_order, 50, 400);
    sl_dpdk_user_close(user);
    part(&a, &b);
}

static void faults_may_be_for_one_source_port(void **state)
{
    struct port_end a, b;

    (void)state;
    join(&a, &b, "loss=1,port=50000");
    shower(&a, &b, 100);
    assert_int_equal(b.came, 0);
    assert_int_equal(port_end_connect(&a, &b.own, 50007), 0);
    shower(&a, &b, 100);
    assert_int_equal(b.came, 100);
    part(&a, &b);
}

/* ---- threads ---- */

struct talker {
    struct port_end end;
    _Atomic bool *stop;
    uint64_t wanted;
};

static void *talk(void *arg)
{
    struct talker *talker = arg;
    struct port_end *end = &talker->end;
    uint64_t until = sl_now(&sl_clock_monotonic) + 20000 * SL_NS_PER_MS;

    while ((end->came < talker->wanted || !atomic_load(talker->stop)) &&
           sl_now(&sl_clock_monotonic) < until) {
        if (end->sent < talker->wanted && end->sent < end->came + 64)
            (void)port_end_send(end, payload, end->sent % 1000, end->sent % 2);
        port_end_poll(end);
        sched_yield();
    }
    return NULL;
}

/* Pairs of engines share the two ports, each on a thread of its own. */
static void engines_of_a_process_share_ports(void **state)
{
    enum { PAIRS = 3, PACKETS = 1500 };
    struct talker talkers[2 * PAIRS];
    pthread_t threads[2 * PAIRS];
    _Atomic bool stop = false;

    (void)state;
    for (unsigned i = 0; i < 2 * PAIRS; i += 2)
        join(&talkers[i].end, &talkers[i + 1].end, NULL);
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        talkers[i].stop = &stop;
        talkers[i].wanted = PACKETS;
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &talkers[i]), 0);
    }
    /* Each goes on polling until all have everything. */
    uint64_t until = sl_now(&sl_clock_monotonic) + 15000 * SL_NS_PER_MS;
    bool all = false;
    while (!all && sl_now(&sl_clock_monotonic) < until) {
        all = true;
        for (unsigned i = 0; i < 2 * PAIRS; i++)
            all &= *(volatile uint64_t *)&talkers[i].end.came >= PACKETS;
        sched_yield();
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 2 * PAIRS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        assert_int_equal(talkers[i].end.came, PACKETS);
        assert_int_equal(talkers[i].end.damaged, 0);
        assert_int_equal(talkers[i].end.last_count, PACKETS - 1);
    }
    for (unsigned i = 0; i < 2 * PAIRS; i++)
        port_end_close(&talkers[i].end);
}

/* ---- lists ---- */

static void ports_that_are_not_there_are_told(void **state)
{
    struct sl_dpdk_port_settings settings = {.list = "", .rank = -1, .local_rank = -1};
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    size_t count;

    (void)state;
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    settings.list = "net_nothing0";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "net_nothing0"));
    settings.list = "lo";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "net_af_packet0,iface=lo"));
    settings.list = "0000:ff:1f.7";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    settings.list = "ring:a/0 net_af_packet0,iface=nosuch0";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "nosuch0"));
    settings.list = "ring:a/0 ring:a/1";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, 1, &count), -EINVAL);
    settings.inject = "loss=2";
    assert_int_equal(sl_dpdk_ports_get(&settings, ports, SL_DPDK_PORTS_MAX, &count), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "loss=2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_failed_is_told_again_and_ends_nothing),
        cmocka_unit_test(a_program_that_has_started_dpdk_keeps_its_log),
        cmocka_unit_test(there_is_memory_for_many_ports),
        cmocka_unit_test(the_threads_affinity_and_signals_stay_as_they_were),
        cmocka_unit_test(a_port_tells_what_it_is),
        cmocka_unit_test(a_nic_is_on_a_wire_only_if_it_is_named),
        cmocka_unit_test(a_port_that_takes_too_little_says_what_to_change),
        cmocka_unit_test(an_interface_with_a_huge_mtu_has_usual_frames),
        cmocka_unit_test(packets_of_any_length_arrive_whole_copied_or_lent),
        cmocka_unit_test(a_tail_follows_the_payload),
        cmocka_unit_test(a_full_port_says_so_and_takes_more_when_it_was_emptied),
        cmocka_unit_test(what_is_dropped_comes_back_and_does_not_arrive),
        cmocka_unit_test(closing_returns_what_was_lent),
        cmocka_unit_test(a_flow_that_was_forgotten_gets_nothing_more),
        cmocka_unit_test(a_place_of_a_flow_is_not_taken_again_at_once),
        cmocka_unit_test(numbers_of_flows_differ_and_do_not_return_soon),
        cmocka_unit_test(a_user_cannot_forget_anothers_flow),
        cmocka_unit_test(the_inbox_keeps_what_another_engine_took),
        cmocka_unit_test(an_inbox_forgets_with_its_flow),
        cmocka_unit_test(a_port_stays_until_its_last_user_leaves),
        cmocka_unit_test(checksums_are_right_for_all_addresses_and_lengths),
        cmocka_unit_test(frames_for_others_are_counted_and_dropped),
        cmocka_unit_test(padding_is_cut_off),
        cmocka_unit_test(random_frames_reach_nobody),
        cmocka_unit_test(a_packet_that_was_marked_on_its_way_is_told),
        cmocka_unit_test(the_traffic_class_and_the_source_port_are_in_the_headers),
        cmocka_unit_test(a_peer_without_a_mac_is_asked_for_it),
        cmocka_unit_test(a_peer_in_another_subnet_needs_a_gateway),
        cmocka_unit_test(injected_faults_happen_as_often_as_asked),
        cmocka_unit_test(reordered_and_delayed_packets_come_later_but_come),
        cmocka_unit_test(faults_may_be_for_one_source_port),
        cmocka_unit_test(engines_of_a_process_share_ports),
        cmocka_unit_test(ports_that_are_not_there_are_told),
    };

    if (getenv("PEER_LOG") != NULL)
        sl_log_configure(getenv("PEER_LOG"));
    port_end_fill(payload, sizeof(payload));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
