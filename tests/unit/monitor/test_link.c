/* SPDX-License-Identifier: Apache-2.0 */
/* Links by rtnetlink: messages, what follows from their counts, and real flaps of a veth pair. */
#include "core/clock.h"
#include "core/err.h"
#include "core/rng.h"
#include "monitor/link.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- a message ---- */

#ifndef IFF_LOWER_UP
#define IFF_LOWER_UP 0x10000
#endif

static char bytes[1024] __attribute__((aligned(8)));

static struct nlmsghdr *message(unsigned flags, uint32_t ups, uint32_t downs)
{
    struct nlmsghdr *header = mnl_nlmsg_put_header(bytes);
    struct rtnl_link_stats64 stats = {.rx_bytes = 100, .tx_bytes = 23};
    struct ifinfomsg *info;

    header->nlmsg_type = RTM_NEWLINK;
    info = mnl_nlmsg_put_extra_header(header, sizeof(*info));
    *info = (struct ifinfomsg){.ifi_index = 7, .ifi_flags = flags};
    mnl_attr_put_strz(header, IFLA_IFNAME, "eth0");
    mnl_attr_put_u32(header, IFLA_CARRIER_UP_COUNT, ups);
    mnl_attr_put_u32(header, IFLA_CARRIER_DOWN_COUNT, downs);
    mnl_attr_put(header, IFLA_STATS64, sizeof(stats), &stats);
    return header;
}

static void a_message_is_read(void **state)
{
    struct nlmsghdr *header = message(IFF_UP | IFF_LOWER_UP, 5, 4);
    struct sl_mon_link link;

    (void)state;
    assert_true(sl_mon_link_parse(header, header->nlmsg_len, &link));
    assert_string_equal(link.name, "eth0");
    assert_int_equal(link.ifindex, 7);
    assert_true(link.is_wanted && link.has_carrier && link.has_counts && link.has_bytes);
    assert_false(link.is_gone || link.is_loopback);
    assert_int_equal(link.ups, 5);
    assert_int_equal(link.downs, 4);
    assert_int_equal(link.sent, 23);
    assert_int_equal(link.received, 100);
    header->nlmsg_type = RTM_DELLINK;
    assert_true(sl_mon_link_parse(header, header->nlmsg_len, &link));
    assert_true(link.is_gone);
    header->nlmsg_type = RTM_NEWADDR;
    assert_false(sl_mon_link_parse(header, header->nlmsg_len, &link));
}

/* Whatever bytes there are: no crash, no read beyond them, and a name that ends. */
static void damaged_messages_do_no_harm(void **state)
{
    struct sl_rng rng;
    struct sl_mon_link link;

    (void)state;
    sl_rng_init(&rng, 5);
    for (unsigned i = 0; i < 20000; i++) {
        struct nlmsghdr *header = message(IFF_UP, 1, 1);
        size_t len = header->nlmsg_len;

        for (unsigned n = (unsigned)sl_rng_below(&rng, 4); n > 0; n--)
            bytes[sl_rng_below(&rng, len)] = (char)sl_rng_u64(&rng);
        size_t cut = sl_rng_below(&rng, 2) != 0 ? sl_rng_below(&rng, len + 1) : len;
        char *copy = malloc(cut + 1); /* its end is watched by the address sanitizer */

        memcpy(copy, bytes, cut);
        if (cut >= sizeof(*header) && sl_mon_link_parse((void *)copy, cut, &link))
            assert_non_null(memchr(link.name, '\0', sizeof(link.name)));
        free(copy);
    }
}

/* ---- one after another ---- */

static struct sl_mon_link_track track;
static struct sl_mon_link_change change;
static uint64_t now_ns;

static void next(bool carrier, uint32_t ups, uint32_t downs)
{
    const struct sl_mon_link link = {
        .is_wanted = true, .has_carrier = carrier, .ups = ups, .downs = downs, .has_counts = true};

    now_ns += 10000000;
    sl_mon_link_track(&track, &link, now_ns, &change);
}

static int begin(void **state)
{
    (void)state;
    track = (struct sl_mon_link_track){.is_known = false};
    now_ns = 1000;
    return 0;
}

static void the_first_message_tells_of_no_flap(void **state)
{
    (void)state;
    next(true, 17, 16);
    assert_int_equal(change.flaps, 0);
    next(true, 17, 16);
    assert_int_equal(change.flaps, 0);
}

static void a_flap_has_its_duration(void **state)
{
    (void)state;
    next(true, 1, 0);
    next(false, 1, 1);
    assert_true(change.went_down);
    assert_int_equal(change.flaps, 0);
    next(true, 2, 1);
    assert_int_equal(change.flaps, 1);
    assert_int_equal(change.lasted_ns, 10000000);
}

static void flaps_that_were_merged_are_counted(void **state)
{
    (void)state;
    next(true, 1, 0);
    next(true, 4, 3); /* one message for three */
    assert_int_equal(change.flaps, 3);
    assert_int_equal(change.lasted_ns, 0);
    next(false, 6, 6); /* two, and then it stayed down */
    assert_int_equal(change.flaps, 2);
    assert_true(change.went_down);
    next(false, 7, 7);
    assert_int_equal(change.flaps, 1);
    next(true, 9, 8);
    assert_int_equal(change.flaps, 2);
}

static void what_an_administrator_does_is_no_flap(void **state)
{
    struct sl_mon_link link = {
        .is_wanted = true, .has_carrier = true, .ups = 1, .has_counts = true};

    (void)state;
    sl_mon_link_track(&track, &link, 1, &change);
    link.is_wanted = link.has_carrier = false;
    link.downs = 1;
    sl_mon_link_track(&track, &link, 2, &change);
    assert_false(change.went_down);
    link.is_wanted = link.has_carrier = true;
    link.ups = 2;
    sl_mon_link_track(&track, &link, 3, &change);
    assert_int_equal(change.flaps, 0);
}

/* ---- real ones ---- */

static uint64_t flaps, lasted_ns, told_ns;

static void take(void *arg, const struct sl_mon_link *link)
{
    (void)arg;
    if (strcmp(link->name, "sl_a") != 0)
        return;
    sl_mon_link_track(&track, link, link->at_ns, &change);
    flaps += change.flaps;
    if (change.flaps != 0) {
        lasted_ns = change.lasted_ns;
        told_ns = sl_now(&sl_clock_monotonic);
    }
}

static void wait_for(struct sl_mon_links *links, int ms)
{
    uint64_t until_ns = sl_now(&sl_clock_monotonic) + (uint64_t)ms * 1000000;
    struct pollfd fd = {.fd = sl_mon_links_fd(links), .events = POLLIN};

    while (sl_now(&sl_clock_monotonic) < until_ns)
        if (poll(&fd, 1, 5) > 0)
            assert_true(sl_mon_links_read(links, take, NULL) >= 0);
}

static void run(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void flaps_of_a_real_link_are_seen_each(void **state)
{
    static const unsigned lengths_ms[] = {10, 50, 200, 700};
    struct sl_mon_links *links;

    (void)state;
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 || system("ip link show lo >/dev/null") != 0) {
        print_message("no network namespace of its own (needs root and ip): skipped\n");
        skip();
    }
    run("ip link add sl_a type veth peer name sl_b && ip link set sl_a up && ip link set sl_b up");
    assert_int_equal(sl_mon_links_open(&links), 0);
    wait_for(links, 100);
    assert_true(track.is_known && track.had_carrier);
    for (unsigned i = 0; i < SL_ARRAY_LEN(lengths_ms); i++) {
        uint64_t before = flaps, ended_ns;

        run("ip link set sl_b down");
        wait_for(links, (int)lengths_ms[i]);
        run("ip link set sl_b up");
        ended_ns = sl_now(&sl_clock_monotonic);
        for (unsigned n = 0; n < 200 && flaps == before; n++)
            wait_for(links, 10);
        assert_int_equal(flaps, before + 1);
        print_message("%u ms: told %.1f ms after it ended, as %.1f ms\n", lengths_ms[i],
                      ((double)told_ns - (double)ended_ns) / 1e6, (double)lasted_ns / 1e6);
    }
    /* An owner that waited for its disk meanwhile. */
    uint64_t began_ns = sl_now(&sl_clock_monotonic);

    run("ip link set sl_b down && sleep 0.1 && ip link set sl_b up");
    uint64_t all_ns = sl_now(&sl_clock_monotonic) - began_ns;

    usleep(500000);
    wait_for(links, 10);
    /* The end is known as late as the thread is, and not as late as the owner. */
    assert_in_range(lasted_ns, 100000000, all_ns + 100000000);
    /* As fast as it goes: the counts tell. */
    uint64_t before = flaps;

    for (unsigned i = 0; i < 5; i++)
        run("ip link set sl_b down && ip link set sl_b up");
    for (unsigned n = 0; n < 300 && flaps < before + 5; n++) {
        assert_int_equal(sl_mon_links_ask(links), 0);
        wait_for(links, 10);
    }
    assert_int_equal(flaps, before + 5);
    sl_mon_links_close(links);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_read),
        cmocka_unit_test(damaged_messages_do_no_harm),
        cmocka_unit_test_setup(the_first_message_tells_of_no_flap, begin),
        cmocka_unit_test_setup(a_flap_has_its_duration, begin),
        cmocka_unit_test_setup(flaps_that_were_merged_are_counted, begin),
        cmocka_unit_test_setup(what_an_administrator_does_is_no_flap, begin),
        cmocka_unit_test_setup(flaps_of_a_real_link_are_seen_each, begin)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
