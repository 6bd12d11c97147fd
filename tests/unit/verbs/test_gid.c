/* SPDX-License-Identifier: Apache-2.0 */
/* Which GID of a port is chosen, alone and towards a peer, and what is said when none fits. */
#include "core/config.h"
#include "verbs/config.h"
#include "core/err.h"
#include "core/rng.h"
#include "verbs/device.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define IB SL_VERBS_GID_IB
#define V1 SL_VERBS_GID_ROCE_V1
#define V2 SL_VERBS_GID_ROCE_V2

static struct sl_config config;
static struct sl_verbs_port port;
static struct sl_verbs_gid chosen;

static int fresh(void **state)
{
    sl_config_defaults(&config);
    memset(&port, 0, sizeof(port));
    memset(&chosen, 0, sizeof(chosen));
    snprintf(port.name, sizeof(port.name), "rxe0:1");
    return 0;
}

/* "192.0.2.1/24", or "192.0.2.1" where the length is not known; "192.0.2.1/0" is an orphan's. */
static struct sl_verbs_gid make(uint8_t type, const char *address)
{
    struct sl_verbs_gid gid = {.type = type};
    char text[64];
    char *slash;

    snprintf(text, sizeof(text), "%s", address);
    slash = strchr(text, '/');
    if (slash != NULL) {
        *slash = '\0';
        sscanf(slash + 1, "%hhu", &gid.prefix_len);
        gid.is_orphan = gid.prefix_len == 0;
    }
    gid.is_v4 = strchr(text, ':') == NULL;
    if (gid.is_v4) {
        gid.gid.raw[10] = gid.gid.raw[11] = 0xff;
        assert_int_equal(inet_pton(AF_INET, text, gid.gid.raw + 12), 1);
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, gid.gid.raw), 1);
    }
    gid.is_link_local =
        type != IB && (strncmp(text, "fe80", 4) == 0 || strncmp(text, "169.254", 7) == 0);
    return gid;
}

static void add(uint8_t index, uint8_t type, const char *address)
{
    struct sl_verbs_gid *gid = &port.gids[port.gid_count++];

    *gid = make(type, address);
    gid->index = index;
}

/* The index of the GID that is chosen, or a negative errno. */
static int choose(void)
{
    int err = sl_verbs_gid_choose(&config, &port, &chosen);

    return err != 0 ? err : chosen.index;
}

static int choose_for(uint8_t type, const char *address)
{
    struct sl_verbs_gid peer = make(type, address);
    int err = sl_verbs_gid_choose_for(&config, &port, &peer, &chosen);

    return err != 0 ? err : chosen.index;
}

/* What a NIC has: the same address twice, once of each type, link-local ones first. */
static void add_usual(void)
{
    add(0, V1, "fe80::a/64");
    add(1, V2, "fe80::a/64");
    add(2, V1, "192.0.2.1/24");
    add(3, V2, "192.0.2.1/24");
    add(4, V1, "2001:db8::1/64");
    add(5, V2, "2001:db8::1/64");
}

static void roce_v2_of_an_ipv4_address_is_the_first_choice(void **state)
{
    add_usual();
    assert_int_equal(choose(), 3);
    assert_int_equal(chosen.prefix_len, 24);
}

static void the_family_that_is_asked_for_is_kept_to(void **state)
{
    add_usual();
    assert_int_equal(sl_config_set(&config, "VERBS_GID_FAMILY", "ipv6"), 0);
    assert_int_equal(choose(), 5);
    assert_int_equal(sl_config_set(&config, "VERBS_GID_FAMILY", "ipv4"), 0);
    assert_int_equal(choose(), 3);
}

static void a_family_without_any_gid_is_an_error_that_tells_both(void **state)
{
    add(1, V2, "fe80::a/64");
    assert_int_equal(sl_config_set(&config, "VERBS_GID_FAMILY", "ipv4"), 0);
    assert_int_equal(choose(), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "rxe0:1"));
    assert_non_null(strstr(sluice_last_error(), "SLUICE_VERBS_GID_FAMILY ipv4"));
    assert_non_null(strstr(sluice_last_error(), "1: fe80::a (RoCE v2)"));
    assert_int_equal(sl_config_set(&config, "VERBS_GID_FAMILY", "ipx"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "ipx"));
}

static void an_index_that_is_asked_for_is_taken_whatever_it_is(void **state)
{
    add_usual();
    sl_verbs_config_edit(&config)->gid_index = 0;
    assert_int_equal(sl_config_set(&config, "VERBS_GID_FAMILY", "ipv4"), 0);
    assert_int_equal(choose(), 0);
    sl_verbs_config_edit(&config)->gid_index = 4;
    assert_int_equal(choose(), 4);
}

static void an_index_without_a_gid_is_an_error_that_lists_what_there_is(void **state)
{
    add(0, V1, "fe80::a/64");
    add(3, V2, "192.0.2.1/24");
    sl_verbs_config_edit(&config)->gid_index = 1;
    assert_int_equal(choose(), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_VERBS_GID_INDEX 1"));
    assert_non_null(strstr(sluice_last_error(), "0: fe80::a (RoCE v1), 3: 192.0.2.1 (RoCE v2)"));
}

static void a_port_without_gids_says_what_is_missing(void **state)
{
    assert_int_equal(choose(), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "address"));
}

static void a_list_of_gids_that_is_too_long_to_tell_is_cut(void **state)
{
    for (int i = 0; i < SL_VERBS_GIDS_MAX; i++)
        add((uint8_t)i, V2, "2001:db8:1111:2222:3333:4444:5555:6666");
    sl_verbs_config_edit(&config)->gid_index = 200;
    assert_int_equal(choose(), -ENODEV);
}

static void type_comes_before_reach(void **state)
{
    add(0, V1, "192.0.2.1/24");
    add(1, V2, "fe80::a/64");
    assert_int_equal(choose(), 1);
}

static void routable_addresses_come_before_link_local_ones(void **state)
{
    add(0, V2, "169.254.3.4/16");
    add(1, V2, "fe80::a/64");
    add(2, V2, "2001:db8::1/64");
    assert_int_equal(choose(), 2);
    port.gid_count = 2;
    assert_int_equal(choose(), 0); /* IPv4 of these two */
}

static void an_orphan_is_the_last_choice(void **state)
{
    add(0, V2, "fe80::1/0"); /* made of the MAC address; the interface has another */
    add(1, V1, "fe80::1/0");
    port.gids[1].is_orphan = false; /* RoCE v1 needs nobody to answer */
    assert_int_equal(choose(), 1);
    add(2, V2, "fe80::2/64");
    assert_int_equal(choose(), 2);
    assert_int_equal(choose_for(V2, "fe80::9/64"), 2);
    port.gid_count = 1;
    assert_int_equal(choose(), 0); /* better than none */
}

static void the_lowest_index_wins_among_equals(void **state)
{
    add(4, V2, "192.0.2.9/24");
    add(5, V2, "192.0.2.1/24");
    assert_int_equal(choose(), 4);
}

static void infiniband_takes_its_first_gid_whatever_the_family(void **state)
{
    add(0, IB, "fe80::2:c903:a:1");
    add(1, IB, "fe80::2:c903:a:2");
    assert_int_equal(sl_config_set(&config, "VERBS_GID_FAMILY", "ipv4"), 0);
    assert_int_equal(choose(), 0);
}

static void towards_a_peer_type_and_family_are_its_own(void **state)
{
    add_usual();
    assert_int_equal(choose_for(V2, "192.0.2.2/24"), 3);
    assert_int_equal(choose_for(V1, "192.0.2.2/24"), 2);
    assert_int_equal(choose_for(V2, "2001:db8::2/64"), 5);
    assert_int_equal(choose_for(V1, "2001:db8::2/64"), 4);
    assert_int_equal(choose_for(V2, "fe80::b/64"), 1);
    assert_int_equal(choose_for(V1, "fe80::b/64"), 0);
}

static void towards_a_peer_the_same_subnet_comes_first(void **state)
{
    add(0, V2, "192.0.2.1/24");
    add(1, V2, "198.51.100.1/24");
    add(2, V2, "203.0.113.1/24");
    assert_int_equal(choose_for(V2, "198.51.100.9/24"), 1);
    assert_int_equal(choose_for(V2, "203.0.113.9/24"), 2);
    assert_int_equal(choose_for(V2, "10.0.0.1/8"), 0);  /* routed */
    assert_int_equal(choose_for(V2, "203.0.113.9"), 0); /* its prefix is unknown */
}

static void towards_a_peer_even_a_link_local_subnet_beats_a_routed_one(void **state)
{
    add(0, V2, "192.0.2.1/24");
    add(1, V2, "169.254.0.1/16");
    assert_int_equal(choose_for(V2, "169.254.9.9/16"), 1);
    assert_int_equal(choose_for(V2, "169.254.9.9"), 1); /* alike, without a prefix */
    assert_int_equal(choose_for(V2, "10.0.0.1/8"), 0);
}

static void towards_a_peer_of_another_kind_nothing_fits(void **state)
{
    add(0, V2, "192.0.2.1/24");
    assert_int_equal(choose_for(V2, "2001:db8::1/64"), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "for the peer's 2001:db8::1 (RoCE v2)"));
    assert_int_equal(choose_for(V1, "192.0.2.2/24"), -ENODEV);
    assert_int_equal(choose_for(IB, "fe80::1"), -ENODEV);
}

static void towards_a_peer_an_index_that_does_not_reach_it_is_an_error(void **state)
{
    add_usual();
    sl_verbs_config_edit(&config)->gid_index = 3;
    assert_int_equal(choose_for(V2, "192.0.2.2/24"), 3);
    assert_int_equal(choose_for(V2, "10.0.0.1/8"), 3);
    assert_int_equal(choose_for(V2, "fe80::b/64"), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_VERBS_GID_INDEX 3"));
}

static void towards_a_peer_the_family_that_is_asked_for_is_kept_to(void **state)
{
    add_usual();
    assert_int_equal(sl_config_set(&config, "VERBS_GID_FAMILY", "ipv6"), 0);
    assert_int_equal(choose_for(V2, "192.0.2.2/24"), -ENODEV);
    assert_int_equal(choose_for(V2, "2001:db8::2/64"), 5);
}

static void subnets_are_compared_by_the_longer_prefix(void **state)
{
    static const struct {
        uint8_t type_a;
        const char *a;
        uint8_t type_b;
        const char *b;
        bool same;
    } cases[] = {
        {V2, "192.0.2.1/24", V2, "192.0.2.200/24", true},
        {V2, "192.0.2.1/24", V2, "192.0.3.1/24", false},
        {V2, "192.0.2.1/23", V2, "192.0.3.1/23", true},
        {V2, "192.0.2.1/25", V2, "192.0.2.129/25", false},
        {V2, "192.0.2.1/24", V2, "192.0.2.129/25", false},
        {V2, "192.0.2.1/24", V2, "192.0.2.5/25", true},
        {V2, "10.1.2.3/8", V2, "10.9.9.9/16", false},
        {V2, "192.0.2.1/32", V2, "192.0.2.2/32", false},
        {V2, "192.0.2.1/32", V2, "192.0.2.1/32", true},
        {V2, "192.0.2.1/31", V2, "192.0.2.0/31", true},
        {V2, "192.0.2.1", V2, "192.0.2.2/24", false},
        {V2, "192.0.2.1/24", V1, "192.0.2.2/24", false},
        {V2, "192.0.2.1/24", V2, "::ffff:c000:0202/120", false},
        {V2, "2001:db8::1/64", V2, "2001:db8::ffff/64", true},
        {V2, "2001:db8::1/64", V2, "2001:db8:0:1::1/64", false},
        {V2, "2001:db8::1/127", V2, "2001:db8::2/127", false},
        {V2, "2001:db8::1/128", V2, "2001:db8::1/128", true},
        {V2, "fe80::1/64", V2, "fe80::2/64", true},
        {IB, "fe80::1", IB, "fe80::2", true},
        {IB, "fe80::1", IB, "fe80:0:0:1::2", false},
        /* Lengths that only a broken or hostile peer claims. */
        {V2, "192.0.2.1/33", V2, "192.0.2.1/33", false},
        {V2, "192.0.2.1/255", V2, "192.0.2.1/24", false},
        {V2, "2001:db8::1/129", V2, "2001:db8::1/129", false},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_verbs_gid a = make(cases[i].type_a, cases[i].a),
                            b = make(cases[i].type_b, cases[i].b);

        if (sl_verbs_gid_same_subnet(&a, &b) != cases[i].same ||
            sl_verbs_gid_same_subnet(&b, &a) != cases[i].same)
            fail_msg("%s and %s", cases[i].a, cases[i].b);
    }
}

static void texts_are_those_of_addresses(void **state)
{
    char text[64];
    struct sl_verbs_gid gid = make(V2, "192.0.2.1/24");

    sl_verbs_gid_text(&gid, text, sizeof(text));
    assert_string_equal(text, "192.0.2.1 (RoCE v2)");
    gid = make(V1, "fe80::1/64");
    sl_verbs_gid_text(&gid, text, sizeof(text));
    assert_string_equal(text, "fe80::1 (RoCE v1)");
    gid = make(IB, "fe80::2:c903:a:1");
    sl_verbs_gid_text(&gid, text, sizeof(text));
    assert_string_equal(text, "fe80::2:c903:a:1 (InfiniBand)");
    gid.type = 9;
    sl_verbs_gid_text(&gid, text, sizeof(text));
    assert_string_equal(text, "fe80::2:c903:a:1 (unknown type)");
    sl_verbs_gid_text(&gid, text, 5);
    assert_string_equal(text, "fe80");
}

/* The rules as one would read them, one after the other, against a slow walk over every pair. */
static bool better(const struct sl_verbs_gid *a, const struct sl_verbs_gid *b)
{
    if (a->is_orphan != b->is_orphan)
        return b->is_orphan;
    if (a->type != b->type)
        return a->type == V2;
    if (a->is_link_local != b->is_link_local)
        return !a->is_link_local;
    if (a->is_v4 != b->is_v4)
        return a->is_v4;
    return a->index < b->index;
}

static void no_gid_of_a_random_table_is_better_than_the_chosen_one(void **state)
{
    static const char *const addresses[] = {"192.0.2.1/24", "192.0.2.1/0", "169.254.1.1/16",
                                            "fe80::1/64",   "fe80::1/0",   "2001:db8::1/64",
                                            "2001:db8::1"};
    struct sl_rng rng;

    sl_rng_init(&rng, 1);
    for (int round = 0; round < 2000; round++) {
        port.gid_count = 0;
        for (uint64_t i = sl_rng_range(&rng, 1, 12); i > 0; i--)
            add((uint8_t)(port.gid_count * 3), sl_rng_chance(&rng, 2) ? V1 : V2,
                addresses[sl_rng_below(&rng, SL_ARRAY_LEN(addresses))]);
        assert_true(choose() >= 0);
        for (unsigned i = 0; i < port.gid_count; i++)
            assert_false(better(&port.gids[i], &chosen));
    }
}

#define CASE(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(roce_v2_of_an_ipv4_address_is_the_first_choice),
        CASE(the_family_that_is_asked_for_is_kept_to),
        CASE(a_family_without_any_gid_is_an_error_that_tells_both),
        CASE(an_index_that_is_asked_for_is_taken_whatever_it_is),
        CASE(an_index_without_a_gid_is_an_error_that_lists_what_there_is),
        CASE(a_port_without_gids_says_what_is_missing),
        CASE(a_list_of_gids_that_is_too_long_to_tell_is_cut),
        CASE(type_comes_before_reach),
        CASE(routable_addresses_come_before_link_local_ones),
        CASE(an_orphan_is_the_last_choice),
        CASE(the_lowest_index_wins_among_equals),
        CASE(infiniband_takes_its_first_gid_whatever_the_family),
        CASE(towards_a_peer_type_and_family_are_its_own),
        CASE(towards_a_peer_the_same_subnet_comes_first),
        CASE(towards_a_peer_even_a_link_local_subnet_beats_a_routed_one),
        CASE(towards_a_peer_of_another_kind_nothing_fits),
        CASE(towards_a_peer_an_index_that_does_not_reach_it_is_an_error),
        CASE(towards_a_peer_the_family_that_is_asked_for_is_kept_to),
        CASE(subnets_are_compared_by_the_longer_prefix),
        CASE(texts_are_those_of_addresses),
        CASE(no_gid_of_a_random_table_is_better_than_the_chosen_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
