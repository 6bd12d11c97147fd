/* SPDX-License-Identifier: Apache-2.0 */
/* Transmit queues: messages of rtnetlink, and when a queue stands still. */
#include "core/err.h"
#include "core/rng.h"
#include "monitor/queue.h"
#include "tests/unit/monitor/engine_bed.h"

#include <libmnl/libmnl.h>
#include <linux/gen_stats.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* ---- messages ---- */

static char bytes[1024] __attribute__((aligned(8)));

static struct nlmsghdr *qdisc_message(uint32_t parent, const char *kind)
{
    struct gnet_stats_basic basic = {.bytes = 5000000000, .packets = 9};
    struct gnet_stats_queue queue = {
        .qlen = 2, .backlog = 3000, .drops = 4, .requeues = 5, .overlimits = 6};
    struct nlmsghdr *header = mnl_nlmsg_put_header(bytes);
    struct nlattr *nest;
    struct tcmsg *tc;

    header->nlmsg_type = RTM_NEWQDISC;
    tc = mnl_nlmsg_put_extra_header(header, sizeof(*tc));
    *tc = (struct tcmsg){.tcm_ifindex = 3, .tcm_handle = 0x80010000, .tcm_parent = parent};
    mnl_attr_put_strz(header, TCA_KIND, kind);
    nest = mnl_attr_nest_start(header, TCA_STATS2);
    mnl_attr_put(header, TCA_STATS_BASIC, sizeof(basic), &basic);
    mnl_attr_put(header, TCA_STATS_QUEUE, sizeof(queue), &queue);
    mnl_attr_nest_end(header, nest);
    return header;
}

static void a_qdisc_is_read(void **state)
{
    struct nlmsghdr *header = qdisc_message(TC_H_ROOT, "fq_codel");
    struct sl_mon_qdisc read;

    (void)state;
    assert_true(sl_mon_qdisc_parse(header, header->nlmsg_len, &read));
    assert_true(read.ifindex == 3 && read.is_root && !read.is_many);
    assert_true(read.bytes == 5000000000 && read.backlog == 3000);
    assert_true(read.drops == 4 && read.requeues == 5 && read.overlimits == 6);
    header = qdisc_message(TC_H_ROOT, "mq");
    assert_true(sl_mon_qdisc_parse(header, header->nlmsg_len, &read));
    assert_true(read.is_many);
    header = qdisc_message(TC_H_ROOT, "noqueue");
    assert_false(sl_mon_qdisc_parse(header, header->nlmsg_len, &read));
    header = qdisc_message(TC_H_INGRESS, "ingress");
    assert_false(sl_mon_qdisc_parse(header, header->nlmsg_len, &read));
}

static void what_an_interface_sent_is_read(void **state)
{
    struct nlmsghdr *header = mnl_nlmsg_put_header(bytes);
    struct rtnl_link_stats64 stats = {.tx_bytes = 77, .tx_dropped = 3};
    struct if_stats_msg *message;
    struct sl_mon_sent read;

    (void)state;
    header->nlmsg_type = RTM_NEWSTATS;
    message = mnl_nlmsg_put_extra_header(header, sizeof(*message));
    *message = (struct if_stats_msg){.ifindex = 3};
    mnl_attr_put(header, IFLA_STATS_LINK_64, sizeof(stats), &stats);
    assert_true(sl_mon_sent_parse(header, header->nlmsg_len, &read));
    assert_true(read.ifindex == 3 && read.bytes == 77 && read.dropped == 3);
}

static void damaged_messages_do_no_harm(void **state)
{
    struct sl_mon_qdisc qdisc;
    struct sl_mon_sent sent;
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 4);
    for (unsigned i = 0; i < 20000; i++) {
        struct nlmsghdr *header = qdisc_message(TC_H_ROOT, "fq_codel");
        size_t len = header->nlmsg_len;

        for (unsigned n = 0; n < 3; n++)
            bytes[sl_rng_below(&rng, len)] = (char)sl_rng_u64(&rng);
        len = sl_rng_below(&rng, len + 1);
        (void)sl_mon_qdisc_parse(header, len, &qdisc);
        header->nlmsg_type = RTM_NEWSTATS;
        (void)sl_mon_sent_parse(header, len, &sent);
    }
}

static void a_line_of_softnet_is_read(void **state)
{
    uint64_t dropped, squeezed;

    (void)state;
    assert_true(sl_mon_softnet_parse("0134458e 0000000a 00000005 00000000\n", &dropped, &squeezed));
    assert_int_equal(dropped, 10);
    assert_int_equal(squeezed, 5);
    assert_false(sl_mon_softnet_parse("0134458e", &dropped, &squeezed));
    assert_false(sl_mon_softnet_parse("", &dropped, &squeezed));
}

/* ---- readings ---- */

static struct sl_mon_queues *queues;
static struct sl_mon_sent sent;
static struct sl_mon_qdisc many, qdiscs[2];
static struct sl_mon_tx tx[2];

static int begin(void **state)
{
    (void)state;
    engine_begin(8);
    assert_int_equal(sl_mon_queues_create(mon, &queues), 0);
    sent = (struct sl_mon_sent){.ifindex = 3, .bytes = 1000};
    many =
        (struct sl_mon_qdisc){.ifindex = 3, .parent = TC_H_ROOT, .is_root = true, .is_many = true};
    for (unsigned i = 0; i < 2; i++) {
        qdiscs[i] = (struct sl_mon_qdisc){.ifindex = 3, .parent = i + 1};
        tx[i] = (struct sl_mon_tx){.has_inflight = true, .has_timeouts = true};
    }
    return 0;
}

static int end(void **state)
{
    sl_mon_queues_destroy(queues);
    return engine_end(state);
}

static void reading(void)
{
    now.mono_ns += SL_MON_S;
    sl_mon_set_time(mon, &now);
    sl_mon_queues_begin(queues);
    sl_mon_queues_netif(queues, "eth0", &sent);
    sl_mon_queues_qdisc(queues, &many);
    for (unsigned i = 0; i < 2; i++) {
        sl_mon_queues_qdisc(queues, &qdiscs[i]);
        sl_mon_queues_tx(queues, 3, i, &tx[i]);
    }
    sl_mon_queues_end(queues);
}

/* Both queues send, and something waits. */
static void busy(unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++) {
        sent.bytes += 2000000;
        qdiscs[0].bytes += 1000000;
        qdiscs[1].bytes += 1000000;
        qdiscs[0].backlog = 1000 * (i % 3);
        tx[0].inflight = 5000 * (i % 2);
        reading();
    }
    qdiscs[0].backlog = 0;
    tx[0].inflight = 0;
}

static bool is_stalled(void)
{
    const struct sl_mon_subject *port = sl_mon_find(mon, SL_MON_PORT, "eth0");

    return port != NULL && sl_mon_condition(port, SL_MON_CHECK_PORT_STALL)->state == SL_MON_BAD;
}

static void a_busy_interface_is_quiet(void **state)
{
    (void)state;
    busy(60);
    for (unsigned i = 0; i < 60; i++)
        reading(); /* and an idle one */
    assert_int_equal(told, 0);
}

static void one_queue_that_stands_still_is_told(void **state)
{
    (void)state;
    busy(10);
    qdiscs[1].backlog = 9000;
    tx[1].inflight = 4000;
    for (unsigned i = 0; i < 4; i++) {
        sent.bytes += 1000000;
        qdiscs[0].bytes += 1000000;
        reading();
    }
    assert_true(is_stalled());
    assert_string_equal(last_text, "9000 bytes wait for transmit queue 1, 4000 are in it, and none "
                                   "was sent in 1.0 s");
}

/* The device took bytes and never says that it sent them; nothing waits behind them. */
static void bytes_that_stay_in_the_device_are_told(void **state)
{
    (void)state;
    busy(10);
    tx[0].inflight = 4000;
    qdiscs[0].backlog = 0;
    for (unsigned i = 0; i < 5; i++) {
        sent.bytes += 1000000;
        qdiscs[1].bytes += 1000000;
        reading();
    }
    assert_true(is_stalled());
}

/* A TAP whose reader was stopped: the device takes packets, throws them away and sends none. */
static void a_device_that_sends_nothing_is_told(void **state)
{
    (void)state;
    busy(10);
    for (unsigned i = 0; i < 10 && !is_stalled(); i++) {
        if (i % 2 == 0) { /* a sender that backs off tries less and less */
            qdiscs[0].bytes += 1500;
            sent.dropped++;
        }
        qdiscs[0].backlog = 0;
        tx[0].inflight = 0;
        reading();
    }
    assert_true(is_stalled());
    busy(400);
    assert_false(is_stalled());
}

/* That there is no link is another check's, and what is thrown away for want of one no stall. */
static void an_interface_without_a_link_does_not_stand_still(void **state)
{
    (void)state;
    busy(10);
    sent.is_down = true;
    for (unsigned i = 0; i < 20; i++) {
        qdiscs[0].backlog = 1500;
        sent.dropped++;
        reading();
    }
    assert_int_equal(told, 0);
    sent.is_down = false;
    busy(10);
    assert_int_equal(told, 0);
    for (unsigned i = 0; i < 5; i++) {
        sent.dropped++;
        reading();
    }
    assert_true(is_stalled());
}

static void a_second_that_stands_still_is_no_stall(void **state)
{
    (void)state;
    busy(10);
    qdiscs[1].backlog = 9000;
    for (unsigned i = 0; i < 3; i++)
        reading();
    qdiscs[1].backlog = 0;
    busy(10);
    assert_false(is_stalled());
}

static void a_driver_that_gives_up_is_told(void **state)
{
    (void)state;
    busy(10);
    for (unsigned i = 0; i < 3; i++) {
        tx[1].timeouts++;
        busy(1);
    }
    assert_true(is_stalled());
}

/* Below classes (HTB) a queue may wait for others, by design. */
static void a_queue_of_a_class_may_wait(void **state)
{
    (void)state;
    many.is_many = false;
    qdiscs[1].parent = 0x10010;
    qdiscs[1].backlog = 9000;
    busy(20);
    assert_int_equal(told, 0);
}

static void a_queue_below_one_of_many_may_wait(void **state)
{
    (void)state;
    qdiscs[1].parent = 0x10010;
    qdiscs[1].backlog = 9000;
    for (unsigned i = 0; i < 20; i++) {
        sent.bytes += 1000000;
        qdiscs[0].bytes += 1000000;
        reading();
    }
    assert_int_equal(told, 0);
}

static void counts_add_up(void **state)
{
    struct sl_mon_queue_view view;

    (void)state;
    qdiscs[0].drops = 100;
    tx[0].timeouts = 7; /* before the agent began */
    busy(3);
    qdiscs[0].drops += 5;
    tx[0].timeouts += 2;
    busy(1);
    assert_true(sl_mon_queues_view(queues, 0, &view));
    assert_string_equal(view.name, "eth0");
    assert_int_equal(view.drops, 5);
    assert_int_equal(view.timeouts, 2);
    assert_false(sl_mon_queues_view(queues, SL_MON_QUEUE_NETIFS_MAX, &view));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_qdisc_is_read),
                                       cmocka_unit_test(what_an_interface_sent_is_read),
                                       cmocka_unit_test(damaged_messages_do_no_harm),
                                       cmocka_unit_test(a_line_of_softnet_is_read),
                                       CASE(a_busy_interface_is_quiet),
                                       CASE(one_queue_that_stands_still_is_told),
                                       CASE(bytes_that_stay_in_the_device_are_told),
                                       CASE(a_device_that_sends_nothing_is_told),
                                       CASE(an_interface_without_a_link_does_not_stand_still),
                                       CASE(a_second_that_stands_still_is_no_stall),
                                       CASE(a_driver_that_gives_up_is_told),
                                       CASE(a_queue_of_a_class_may_wait),
                                       CASE(a_queue_below_one_of_many_may_wait),
                                       CASE(counts_add_up)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
