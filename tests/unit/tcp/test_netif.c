/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp/netif.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_netif_list all, chosen;
static char why[512];

static struct sl_netif *put(const char *name, const char *addr)
{
    struct sl_netif *netif = &all.items[all.count++];

    memset(netif, 0, sizeof(*netif));
    snprintf(netif->name, sizeof(netif->name), "%s", name);
    netif->up = true;
    netif->loopback = strcmp(name, "lo") == 0;
    if (strchr(addr, ':') != NULL) {
        netif->addr.ss_family = AF_INET6;
        inet_pton(AF_INET6, addr, &((struct sockaddr_in6 *)&netif->addr)->sin6_addr);
    } else {
        netif->addr.ss_family = AF_INET;
        inet_pton(AF_INET, addr, &((struct sockaddr_in *)&netif->addr)->sin_addr);
    }
    return netif;
}

/* A host with a fast and a slow network, containers and a virtual machine. */
static int host(void **state)
{
    (void)state;
    all.count = 0;
    put("lo", "127.0.0.1");
    put("lo", "::1");
    put("docker0", "172.17.0.1")->bridge = true;
    put("virbr0", "192.168.122.1")->bridge = true;
    put("eth0", "10.0.0.5")->default_route = true;
    put("eth0", "fe80::5")->default_route = true;
    put("eth1", "10.1.0.5")->speed_mbit = 100000;
    put("eth2", "10.2.0.5")->up = false;
    put("ens9", "fd00::9");
    return 0;
}

/* "eth0 eth1 lo": names in order, an address each. */
static const char *names(const char *spec)
{
    static char text[512];

    text[0] = '\0';
    assert_int_equal(sl_netif_choose(&all, spec, &chosen, why, sizeof(why)), 0);
    for (unsigned i = 0; i < chosen.count; i++) {
        if (i > 0)
            strcat(text, " ");
        strcat(text, chosen.items[i].name);
        if (sl_sockaddr_link_local(&chosen.items[i].addr))
            strcat(text, "!");
    }
    return text;
}

static void the_default_route_leads_and_bridges_stay_out(void **state)
{
    (void)state;
    assert_string_equal(names(""), "eth0 eth1 ens9 eth0! lo lo");
    assert_non_null(strstr(why, "docker0 is a bridge"));
    assert_non_null(strstr(why, "virbr0"));
    assert_non_null(strstr(why, "eth2 is down"));
}

static void names_prefixes_and_exclusions_choose(void **state)
{
    (void)state;
    assert_string_equal(names("eth1"), "eth1");
    assert_string_equal(names("eth*"), "eth0 eth1 eth0!");
    assert_string_equal(names("eth*,!eth0"), "eth1");
    assert_string_equal(names("!eth*,!lo"), "ens9");
}

static void ranges_choose_by_address(void **state)
{
    (void)state;
    assert_string_equal(names("10.0.0.0/15"), "eth0 eth1");
    assert_string_equal(names("10.0.0.0/8,!10.1.0.0/16"), "eth0");
    assert_string_equal(names("fd00::/8"), "ens9");
    assert_string_equal(names("127.0.0.1"), "lo");
}

static void a_bridge_is_taken_when_it_is_named_or_the_way_out(void **state)
{
    (void)state;
    assert_string_equal(names("docker0"), "docker0");
    all.items[2].bridge_uplink = true;
    assert_string_equal(names("!eth*,!ens*,!lo"), "docker0");
}

static void what_is_not_understood_is_refused_with_the_item(void **state)
{
    (void)state;
    assert_int_equal(sl_netif_choose(&all, "eth0,10.0.0.0/33", &chosen, why, sizeof(why)), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "10.0.0.0/33"));
    assert_int_equal(sl_netif_choose(&all, "10.0/8x", &chosen, why, sizeof(why)), -EINVAL);
    assert_int_equal(sl_netif_choose(&all, "!", &chosen, why, sizeof(why)), -EINVAL);
}

static void nothing_left_is_an_error_that_says_why(void **state)
{
    (void)state;
    assert_int_equal(sl_netif_choose(&all, "ib0", &chosen, why, sizeof(why)), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_INTERFACE"));
}

static void this_host_has_a_loopback(void **state)
{
    bool found = false;

    (void)state;
    assert_int_equal(sl_netif_scan(&all), 0);
    for (unsigned i = 0; i < all.count; i++)
        found |= all.items[i].loopback && sl_sockaddr_loopback(&all.items[i].addr);
    assert_true(found);
}

static void addresses_are_written_as_people_write_them(void **state)
{
    static const char *const like[][3] = {{"192.0.2.7", "192.0.2.7", "192.0.2.7:4711"},
                                          {"::ffff:192.0.2.7", "192.0.2.7", "192.0.2.7:4711"},
                                          {"fd00::2", "fd00::2", "[fd00::2]:4711"}};
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof(like) / sizeof(like[0]); i++) {
        struct sl_netif *netif = put("eth0", like[i][0]);

        ((struct sockaddr_in *)&netif->addr)->sin_port = htons(4711);
        sl_sockaddr_host(&netif->addr, text, sizeof(text));
        assert_string_equal(text, like[i][1]);
        sl_sockaddr_text(&netif->addr, text, sizeof(text));
        assert_string_equal(text, like[i][2]);
        sl_sockaddr_text(&netif->addr, text, 5);
        assert_memory_equal(text, like[i][2], 4);
        assert_int_equal(text[4], '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_default_route_leads_and_bridges_stay_out, host),
        cmocka_unit_test_setup(names_prefixes_and_exclusions_choose, host),
        cmocka_unit_test_setup(ranges_choose_by_address, host),
        cmocka_unit_test_setup(a_bridge_is_taken_when_it_is_named_or_the_way_out, host),
        cmocka_unit_test_setup(what_is_not_understood_is_refused_with_the_item, host),
        cmocka_unit_test_setup(nothing_left_is_an_error_that_says_why, host),
        cmocka_unit_test_setup(addresses_are_written_as_people_write_them, host),
        cmocka_unit_test_setup(this_host_has_a_loopback, host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
