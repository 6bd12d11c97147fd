/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a wire, and several engines, in one process. */
#include "core/clock.h"
#include "core/log.h"
#include "dpdk/port/port.h"
#include "dpdk/proto/wire.h"
#include "tests/unit/dpdk/port_pair.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint8_t payload[9000];

static void packets_of_any_length_arrive_whole_copied_or_lent(void **state)
{
    static const size_t lens[] = {0, 1, 7, 64, 255, 256, 257, 511, 512, 513, 1400, 4096, 8900};
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
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
    port_pair_close(&a, &b);
}

static void a_tail_follows_the_payload(void **state)
{
    struct port_end a, b;
    uint8_t head[PORT_END_HEAD] = {0}, all[404];
    uint32_t tail;

    (void)state;
    port_pair_open(&a, &b, NULL);
    port_end_fill(all, sizeof(all));
    memcpy(&tail, all + 400, 4);
    memcpy(head + offsetof(struct sl_dp_head, flow), &b.own.flow, 4);
    assert_int_equal(
        sl_dpdk_send(a.user, a.port, &a.way, head, sizeof(head), all, 400, &tail, true, 0), 0);
    assert_true(sl_dpdk_flush(a.user, a.port) == 1);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    assert_int_equal(b.last_len, 404);
    assert_int_equal(b.damaged, 0);
    port_pair_close(&a, &b);
}

static void a_full_port_says_so_and_takes_more_when_it_was_emptied(void **state)
{
    struct port_end a, b;
    unsigned count = 0;

    (void)state;
    port_pair_open(&a, &b, NULL);
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
    port_pair_close(&a, &b);
}

static void what_is_dropped_comes_back_and_does_not_arrive(void **state)
{
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(port_end_send(&a, payload, 1000, true), 1);
    sl_dpdk_drop(a.user, a.port);
    port_end_poll(&a);
    assert_int_equal(a.returned, 10);
    assert_false(port_end_wait(&b, &b.came, 1, 5));
    port_pair_close(&a, &b);
}

static void closing_returns_what_was_lent(void **state)
{
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
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
    port_pair_open(&a, &b, NULL);
    assert_int_equal(port_end_send(&a, payload, 10, false), 0);
    port_end_poll(&a);
    sl_dpdk_flow_forget(b.user, b.own.flow);
    assert_false(port_end_wait(&b, &b.came, 1, 5));
    sl_dpdk_port_stats(b.port, &stats);
    assert_int_equal(stats.unknown, 1);
    port_pair_close(&a, &b);
}

static void numbers_of_flows_differ_and_do_not_return_soon(void **state)
{
    static uint32_t numbers[3000];
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    for (unsigned i = 0; i < 3000; i++) {
        assert_int_equal(sl_dpdk_flow_number(a.user, &numbers[i]), 0);
        assert_int_not_equal(numbers[i], 0);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(numbers[i], numbers[j]);
        if (i % 2 == 0)
            sl_dpdk_flow_forget(a.user, numbers[i]);
    }
    port_pair_close(&a, &b);
}

/* Though hardly any are left: before the next case, which makes many. */
static void a_place_of_a_flow_is_not_taken_again_at_once(void **state)
{
    uint32_t numbers[256], held[250];
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    for (unsigned i = 0; i < 250; i++)
        assert_int_equal(sl_dpdk_flow_number(a.user, &held[i]), 0);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(sl_dpdk_flow_number(a.user, &numbers[i]), 0);
        sl_dpdk_flow_forget(a.user, numbers[i]);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(numbers[i] & 0xffff, numbers[j] & 0xffff);
    }
    port_pair_close(&a, &b);
}

static void a_user_cannot_forget_anothers_flow(void **state)
{
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    sl_dpdk_flow_forget(a.user, b.own.flow);
    assert_int_equal(port_end_send(&a, payload, 10, false), 0);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    port_pair_close(&a, &b);
}

static void the_inbox_keeps_what_another_engine_took(void **state)
{
    struct port_end a, b, c;

    (void)state;
    port_pair_open(&a, &b, NULL);
    struct sl_dpdk_port_settings settings = port_pair_settings(NULL);
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
    port_pair_close(&a, &b);
}

static void an_inbox_forgets_with_its_flow(void **state)
{
    struct port_end a, b, c;

    (void)state;
    port_pair_open(&a, &b, NULL);
    struct sl_dpdk_port_settings settings = port_pair_settings(NULL);
    assert_int_equal(port_end_open(&c, &settings, 1), 0);
    assert_true(port_end_send(&a, payload, 300, false) >= 0);
    port_end_poll(&a);
    port_end_poll(&c);
    sl_dpdk_flow_forget(b.user, b.own.flow);
    assert_false(port_end_wait(&b, &b.came, 1, 5));
    port_end_close(&c);
    port_pair_close(&a, &b);
}

static void a_port_stays_until_its_last_user_leaves(void **state)
{
    struct sl_dpdk_port_settings settings = port_pair_settings(NULL);
    struct port_end a, b, c;

    (void)state;
    port_pair_open(&a, &b, NULL);
    assert_int_equal(port_end_open(&c, &settings, 1), 0);
    port_end_close(&c);
    assert_int_equal(port_end_send(&a, payload, 300, true), 1);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    port_pair_close(&a, &b);
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
    port_pair_open(&a, &b, "loss=0.1,seed=3");
    shower(&a, &b, 4000);
    assert_in_range(b.came, 3500, 3700);
    assert_int_equal(b.damaged, 0);
    sl_dpdk_port_stats(b.port, &stats);
    assert_int_equal(stats.injected, 4000 - b.came);
    port_pair_close(&a, &b);

    port_pair_open(&a, &b, "dup=0.1,seed=3");
    shower(&a, &b, 4000);
    assert_in_range(b.came, 4300, 4500);
    assert_int_equal(b.damaged, 0);
    port_pair_close(&a, &b);

    port_pair_open(&a, &b, "corrupt=0.5,seed=3");
    shower(&a, &b, 4000);
    assert_in_range(b.came, 3000, 3900); /* where headers were hit, it is not ours any more */
    assert_in_range(b.damaged, 900, 2000);
    port_pair_close(&a, &b);
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
    port_pair_open(&a, &b, "reorder=0.05,delay=0.05,delay_us=300,seed=5");
    shower(&a, &b, 3000);
    assert_true(port_end_wait(&b, &b.came, 3000, WAIT_MS));
    assert_int_equal(b.came, 3000);
    assert_int_equal(b.damaged, 0);
    port_pair_close(&a, &b);

    port_pair_open(&a, &b, "reorder=0.05,seed=5");
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
    port_pair_close(&a, &b);
}

static void faults_may_be_for_one_source_port(void **state)
{
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, "loss=1,port=50000");
    shower(&a, &b, 100);
    assert_int_equal(b.came, 0);
    assert_int_equal(port_end_connect(&a, &b.own, 50007), 0);
    shower(&a, &b, 100);
    assert_int_equal(b.came, 100);
    port_pair_close(&a, &b);
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

/* Pairs of engines share the two ports, each on a thread of its own: whoever takes a packet from
 * the port, each engine gets its own in their order. */
static void engines_of_a_process_share_ports(void **state)
{
    enum { PAIRS = 3, PACKETS = 1500 };
    struct talker talkers[2 * PAIRS];
    pthread_t threads[2 * PAIRS];
    _Atomic bool stop = false;

    (void)state;
    for (unsigned i = 0; i < 2 * PAIRS; i += 2)
        port_pair_open(&talkers[i].end, &talkers[i + 1].end, NULL);
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
        assert_int_equal(talkers[i].end.out_of_order, 0);
    }
    for (unsigned i = 0; i < 2 * PAIRS; i++)
        port_end_close(&talkers[i].end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(injected_faults_happen_as_often_as_asked),
        cmocka_unit_test(reordered_and_delayed_packets_come_later_but_come),
        cmocka_unit_test(faults_may_be_for_one_source_port),
        cmocka_unit_test(engines_of_a_process_share_ports),
    };

    if (getenv("PEER_LOG") != NULL)
        sl_log_configure(getenv("PEER_LOG"));
    port_end_fill(payload, sizeof(payload));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
