/* SPDX-License-Identifier: Apache-2.0 */
/* Which rail is connected to which. Hosts are written as the subnets of their rails. */
#include "core/rng.h"
#include "multipath/pairs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_mp_pair pairs[SL_MP_PAIRS_MAX];
static size_t count;

static enum sl_mp_reach reach_of(char local, char remote)
{
    if (local == '?' || remote == '?')
        return SL_MP_REACH_UNKNOWN;
    if (local == '-' || remote == '-')
        return SL_MP_REACH_NEVER;
    return (local | 32) == (remote | 32) ? SL_MP_REACH_DIRECT : SL_MP_REACH_ROUTED;
}

static uint16_t far_of(const char *rails)
{
    uint16_t far = 0;

    for (unsigned i = 0; rails[i] != '\0'; i++)
        far |= (uint16_t)((rails[i] >= 'a' && rails[i] <= 'z') << i);
    return far;
}

/* A letter a rail: its subnet, ? where it is not known, - of a link that suits none. Small letters:
 * it is far. */
static void pair(const char *local, const char *remote)
{
    struct sl_mp_reaches reaches = {.local_rails = (unsigned)strlen(local),
                                    .remote_rails = (unsigned)strlen(remote),
                                    .local_far = far_of(local),
                                    .remote_far = far_of(remote)};

    for (unsigned i = 0; local[i] != '\0'; i++)
        for (unsigned j = 0; remote[j] != '\0'; j++)
            reaches.reach[i][j] = (uint8_t)reach_of(local[i], remote[j]);
    count = sl_mp_pairs(&reaches, pairs);
}

static void expect(const char *local, const char *remote, const char *list)
{
    char text[SL_MP_PAIRS_MAX * 8] = "";
    size_t len = 0;

    pair(local, remote);
    for (size_t i = 0; i < count; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u>%u", i > 0 ? "," : "",
                                pairs[i].local, pairs[i].remote);
    assert_string_equal(text, list);
}

static void rails_of_equal_hosts_have_those_of_their_number(void **state)
{
    (void)state;
    expect("A", "A", "0>0");
    expect("ABCD", "ABCD", "0>0,1>1,2>2,3>3");
    expect("AAAA", "AAAA", "0>0,1>1,2>2,3>3");
    expect("????", "????", "0>0,1>1,2>2,3>3");
    expect("ABCD", "EFGH", "0>0,1>1,2>2,3>3"); /* a router each */
}

static void rails_that_are_near_at_both_ends_meet(void **state)
{
    (void)state;
    expect("aaaaaaaA", "Aaaaaaaa", "0>7,1>1,2>2,3>3,4>4,5>5,6>6,7>0");
    expect("aaAaaaaa", "aaAaaaaa", "0>0,1>1,2>2,3>3,4>4,5>5,6>6,7>7");
    expect("AAAAaaaa", "aaaaAAAA", "0>4,1>5,2>6,3>7,4>0,5>1,6>2,7>3");
    expect("AAAAAAAA", "aaaAaaaa", "0>0,1>1,2>2,3>3,4>4,5>5,6>6,7>7");
    expect("AAAA", "AAaa", "0>0,1>1,2>2,3>3");
    expect("aA", "AAA", "0>0,1>1,0>2");
    /* Only within a subnet: by routers, or where nothing is known, numbers are a better guess. */
    expect("abcD", "Efgh", "0>0,1>1,2>2,3>3");
    expect("aBcd", "abcD", "0>0,1>1,2>2,3>3");
    expect("AabB", "aABb", "0>1,1>0,2>3,3>2");
}

/* 0 and 1 reach each other's numbers, 0 alone reaches 1: near or not, both are paired. */
static void what_is_near_gives_way_for_one_pair_more(void **state)
{
    struct sl_mp_reaches r = {.local_rails = 2, .remote_rails = 2, .local_far = 2, .remote_far = 2};

    (void)state;
    memset(r.reach, SL_MP_REACH_ROUTED, sizeof(r.reach));
    r.reach[0][0] = r.reach[0][1] = r.reach[1][0] = SL_MP_REACH_DIRECT;
    assert_int_equal(sl_mp_pairs(&r, pairs), 2);
    assert_int_equal(pairs[0].remote, 1);
    assert_int_equal(pairs[1].remote, 0);
}

static void the_order_of_rails_does_not_matter_where_subnets_tell(void **state)
{
    (void)state;
    expect("BA", "AB", "0>1,1>0");
    expect("ABCDEFGH", "HGFEDCBA", "0>7,1>6,2>5,3>4,4>3,5>2,6>1,7>0");
    expect("AABB", "BBAA", "0>2,1>3,2>0,3>1");
    expect("ABAB", "AABB", "0>0,1>2,2>1,3>3");
}

static void a_host_without_its_first_rail_pairs_the_rest_rightly(void **state)
{
    (void)state;
    expect("BCDEFGH", "ABCDEFGH", "0>1,1>2,2>3,3>4,4>5,5>6,6>7");
    expect("ABCDEFGH", "BCDEFGH", "1>0,2>1,3>2,4>3,5>4,6>5,7>6");
}

static void rails_of_one_subnet_are_spread_evenly(void **state)
{
    (void)state;
    expect("AAAAAAA", "AAAAAAAA", "0>0,1>1,2>2,3>3,4>4,5>5,6>6,0>7");
    expect("AAA", "AA", "0>0,1>1,2>0");
    expect("AA", "AAA", "0>0,1>1,0>2");
    expect("AAAAA", "AA", "0>0,1>1,2>0,3>1,4>0");
    expect("A", "AAAA", "0>0,0>1,0>2,0>3");
    expect("AABB", "AB", "0>0,2>1,1>0,3>1"); /* each within its own */
    expect("???", "??", "0>0,1>1,2>0");
    expect("ABC", "DE", "0>0,1>1,2>0");
}

static void rails_whose_subnet_the_peer_lacks_meet_each_other_alone(void **state)
{
    (void)state;
    expect("AB", "BC", "0>1,1>0"); /* there may be a router between A and C */
    expect("AB", "B", "1>0");
    expect("B", "AB", "0>1");
    expect("SABC", "SDEF", "0>0,1>1,2>2,3>3"); /* one network for storage, routed ones beside it */
}

static void an_unknown_rail_takes_what_the_others_leave(void **state)
{
    (void)state;
    expect("A?C", "CBA", "0>2,1>1,2>0");
    expect("A?CD", "ABCD", "0>0,1>1,2>2,3>3");
    expect("AA?A", "AAAA", "0>0,1>1,2>2,3>3");
    expect("AB?", "AB", "0>0,1>1"); /* not beside those that are known */
}

static void rails_that_cannot_be_connected_are_left_out(void **state)
{
    (void)state;
    expect("-AB", "BA", "1>1,2>0");
    expect("A-", "-A", "0>1");
    expect("--", "ABC", "0>0,1>1,0>2"); /* the attempts tell why */
    expect("-", "AB", "0>0,0>1");
}

/* What one rail's pair costs the others: of rails that match in one way only, all are matched. */
static void as_many_as_possible_have_one_of_their_own_subnet(void **state)
{
    /* 0 reaches 0 and 1, 1 reaches 0 only: 0 has to give way. */
    struct sl_mp_reaches r = {.local_rails = 3, .remote_rails = 3};

    (void)state;
    memset(r.reach, SL_MP_REACH_ROUTED, sizeof(r.reach));
    r.reach[0][0] = r.reach[0][1] = r.reach[1][0] = r.reach[1][2] = r.reach[2][0] =
        SL_MP_REACH_DIRECT;
    assert_int_equal(sl_mp_pairs(&r, pairs), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(r.reach[pairs[i].local][pairs[i].remote], SL_MP_REACH_DIRECT);
}

/* Rails of one subnet are paired within it, as often as the larger end has rails there, and no rail
 * has two more than another of its subnet. Seen from the other end it is as good. */
static void drawn_hosts_are_paired_within_their_subnets(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 1);
    for (unsigned round = 0; round < 20000; round++) {
        char host[2][SL_MP_RAILS_MAX + 1] = {{0}};
        unsigned paths[2][SL_MP_RAILS_MAX] = {{0}}, kinds = 1 + (unsigned)sl_rng_below(&rng, 4);

        for (unsigned end = 0; end < 2; end++)
            for (uint64_t i = 1 + sl_rng_below(&rng, SL_MP_RAILS_MAX); i > 0; i--)
                host[end][i - 1] = (char)('A' + sl_rng_below(&rng, kinds));
        pair(host[0], host[1]);
        for (size_t i = 0; i < count; i++) {
            paths[0][pairs[i].local]++;
            paths[1][pairs[i].remote]++;
        }
        for (char kind = 'A'; kind < 'A' + (char)kinds; kind++) {
            unsigned rails[2] = {0}, least[2] = {99, 99}, most[2] = {0}, sum = 0;

            for (unsigned end = 0; end < 2; end++)
                for (unsigned i = 0; host[end][i] != '\0'; i++)
                    if (host[end][i] == kind) {
                        rails[end]++;
                        least[end] = paths[end][i] < least[end] ? paths[end][i] : least[end];
                        most[end] = paths[end][i] > most[end] ? paths[end][i] : most[end];
                    }
            if (rails[0] == 0 || rails[1] == 0)
                continue;
            for (size_t i = 0; i < count; i++) {
                assert_int_equal(host[0][pairs[i].local] == kind, host[1][pairs[i].remote] == kind);
                sum += host[0][pairs[i].local] == kind;
            }
            assert_int_equal(sum, rails[0] > rails[1] ? rails[0] : rails[1]);
            for (unsigned end = 0; end < 2; end++)
                assert_true(least[end] >= 1 && most[end] - least[end] <= 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rails_of_equal_hosts_have_those_of_their_number),
        cmocka_unit_test(rails_that_are_near_at_both_ends_meet),
        cmocka_unit_test(what_is_near_gives_way_for_one_pair_more),
        cmocka_unit_test(the_order_of_rails_does_not_matter_where_subnets_tell),
        cmocka_unit_test(a_host_without_its_first_rail_pairs_the_rest_rightly),
        cmocka_unit_test(rails_of_one_subnet_are_spread_evenly),
        cmocka_unit_test(rails_whose_subnet_the_peer_lacks_meet_each_other_alone),
        cmocka_unit_test(an_unknown_rail_takes_what_the_others_leave),
        cmocka_unit_test(rails_that_cannot_be_connected_are_left_out),
        cmocka_unit_test(as_many_as_possible_have_one_of_their_own_subnet),
        cmocka_unit_test(drawn_hosts_are_paired_within_their_subnets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
