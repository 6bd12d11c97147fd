/* SPDX-License-Identifier: Apache-2.0 */
/* The path list: what a user may say, what auto stands for, and the labels. */
#include "core/err.h"
#include "multipath/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define CAP 64

static struct sl_mp_path_spec specs[CAP];
static size_t count;

static struct sl_mp_path_wishes wishes_of(const char *list, int64_t per_rail)
{
    return (struct sl_mp_path_wishes){
        .area = "toy", .variable = "SLUICE_TOY_PATHS", .list = list, .per_rail = per_rail};
}

/* Plans, and chooses the route of each path in turn, with as many ports of bonds. */
static int plan_with(const char *list, int64_t per_rail, const struct sl_mp_plan_ends *ends,
                     uint64_t seed, size_t cap)
{
    struct sl_mp_path_wishes wishes = wishes_of(list, per_rail);
    int err = sl_mp_plan(&wishes, ends, specs, cap, &count);

    for (size_t i = 0; i < count && err == 0; i++)
        (void)sl_mp_plan_route(&wishes, ends->lag_ports[specs[i].local_rail], seed + i, specs,
                               count, i);
    return err;
}

static int plan(const char *paths, unsigned local, unsigned remote)
{
    return plan_with(paths, 0, &(struct sl_mp_plan_ends){.rails = {local, remote, {{0}}}}, 42, CAP);
}

static int plan_auto(unsigned local, unsigned remote, int64_t per_rail, uint64_t seed, size_t cap)
{
    return plan_with("auto", per_rail, &(struct sl_mp_plan_ends){.rails = {local, remote, {{0}}}},
                     seed, cap);
}

/* The rails of the list as "0>0,1>1". */
static const char *rails(void)
{
    static char text[CAP * 4 + 1];
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u>%u", i == 0 ? "" : ",",
                                specs[i].local_rail, specs[i].remote_rail);
    return text;
}

static bool same_labels(const struct sl_mp_path_spec *a)
{
    for (size_t i = 0; i < count; i++)
        if (a[i].flow_label != specs[i].flow_label)
            return false;
    return true;
}

static void auto_gives_each_rail_the_peers_of_the_same_number(void **state)
{
    assert_int_equal(plan_auto(1, 1, 0, 1, CAP), 0);
    assert_string_equal(rails(), "0>0");
    assert_int_equal(plan_auto(3, 3, 0, 1, CAP), 0);
    assert_string_equal(rails(), "0>0,1>1,2>2");
}

static void auto_uses_every_rail_of_the_end_that_has_more(void **state)
{
    assert_int_equal(plan_auto(3, 2, 0, 1, CAP), 0);
    assert_string_equal(rails(), "0>0,1>1,2>0");
    assert_int_equal(plan_auto(2, 3, 0, 1, CAP), 0);
    assert_string_equal(rails(), "0>0,1>1,0>2");
}

static void several_paths_of_a_rail_come_after_one_of_each(void **state)
{
    assert_int_equal(plan_auto(2, 2, 3, 1, CAP), 0);
    assert_string_equal(rails(), "0>0,1>1,0>0,1>1,0>0,1>1");
}

static void the_largest_automatic_list_fits(void **state)
{
    assert_int_equal(plan_auto(8, 8, 8, 1, CAP), 0);
    assert_int_equal(count, CAP);
}

static void labels_of_auto_differ_in_their_source_ports_and_come_back_for_a_seed(void **state)
{
    struct sl_mp_path_spec first[CAP];

    for (uint64_t seed = 0; seed < 500; seed++) {
        assert_int_equal(plan_auto(8, 8, 8, seed, CAP), 0);
        for (size_t i = 0; i < count; i++) {
            assert_in_range(specs[i].flow_label, 1, SL_PATH_LABEL_MAX);
            for (size_t j = 0; j < i; j++)
                assert_int_not_equal(sl_mp_udp_sport(specs[i].flow_label),
                                     sl_mp_udp_sport(specs[j].flow_label));
        }
    }
    memcpy(first, specs, sizeof(first));
    assert_int_equal(plan_auto(8, 8, 8, 499, CAP), 0);
    assert_true(same_labels(first));
    assert_int_equal(plan_auto(8, 8, 8, 500, CAP), 0);
    assert_false(same_labels(first));
}

static void a_list_is_taken_in_its_order_with_its_labels(void **state)
{
    assert_int_equal(plan("1>0/beef,0>1/0xC0DE,1>1/fffff,0>0/0", 2, 2), 0);
    assert_string_equal(rails(), "1>0,0>1,1>1,0>0");
    assert_int_equal(specs[0].flow_label, 0xbeef);
    assert_int_equal(specs[1].flow_label, 0xc0de);
    assert_int_equal(specs[2].flow_label, 0xfffff);
    assert_int_equal(specs[3].flow_label, 0);
}

static void an_entry_without_a_label_gets_one_that_no_other_has(void **state)
{
    uint32_t drawn;

    assert_int_equal(plan("0>0,0>0", 1, 1), 0);
    drawn = specs[0].flow_label;
    assert_int_not_equal(drawn, 0);
    assert_int_not_equal(drawn, specs[1].flow_label);

    /* A later entry asks for just the label that would have been drawn. */
    char list[64];
    snprintf(list, sizeof(list), "0>0,0>0/%x", drawn);
    assert_int_equal(plan(list, 1, 1), 0);
    assert_int_equal(specs[1].flow_label, drawn);
    assert_int_not_equal(sl_mp_udp_sport(specs[0].flow_label), sl_mp_udp_sport(drawn));
}

static void a_path_has_what_the_list_says_of_its_turn_there(void **state)
{
    struct sl_mp_path_spec path = {.local_rail = 0, .remote_rail = 1};
    struct sl_mp_path_wishes wishes = wishes_of("0>1/a,1>0/b,0>1/c@3", 0);

    assert_true(sl_mp_plan_route(&wishes, 0, 7, &path, 1, 0));
    assert_int_equal(path.flow_label, 0xa);
    assert_int_equal(path.lag_port, 0);
    path.turn = 1;
    assert_true(sl_mp_plan_route(&wishes, 0, 7, &path, 1, 0));
    assert_int_equal(path.flow_label, 0xc);
    assert_int_equal(path.lag_port, 3);
    /* A third one there is the peer's wish alone: a drawn label, as with auto. */
    path.turn = 2;
    assert_false(sl_mp_plan_route(&wishes, 0, 7, &path, 1, 0));
    assert_in_range(path.flow_label, 0x10, SL_PATH_LABEL_MAX);
    wishes.list = "auto";
    assert_true(sl_mp_plan_route(&wishes, 0, 7, &path, 1, 0));
}

static void entries_for_rails_that_are_not_there_are_left_out(void **state)
{
    assert_int_equal(plan("0>0,1>1,0>1", 1, 2), 0);
    assert_string_equal(rails(), "0>0,0>1");
    assert_int_equal(plan("0>1,1>1", 2, 1), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "'0>1,1>1'"));
}

static void an_entry_that_cannot_be_read_is_named(void **state)
{
    static const struct {
        const char *list, *entry;
    } cases[] = {
        {"0>0,x>1", "'x>1'"},
        {"0>0,", "''"},
        {",0>0", "''"},
        {"0", "'0'"},
        {"0-1", "'0-1'"},
        {"0>", "'0>'"},
        {"0>1x", "'0>1x'"},
        {"0>0/", "'0>0/'"},
        {"0>0/0x", "'0>0/0x'"},
        {"0>0/100000", "100000"},
        {"0>0/-1", "'0>0/-1'"},
        {"0>0/12g", "'0>0/12g'"},
        {"16>0", "'16>0'"},
        {"0>16", "'0>16'"},
        {"0 >0", "'0 >0'"},
        {"0>0 ,1>1", "'0>0 '"},
        {"-1>0", "'-1>0'"},
        {"0>a", "'0>a'"},
        {"0>0/1/2", "'0>0/1/2'"},
        {"auto,0>0", "'auto'"},
        {"4294967296>0", "'4294967296>0'"},
        {"0>99999999999999999999", "'0>99999999999999999999'"},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        assert_int_equal(plan(cases[i].list, 2, 2), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), "SLUICE_TOY_PATHS"));
        assert_non_null(strstr(sluice_last_error(), cases[i].entry));
    }
}

static void more_paths_of_a_rail_than_fit_are_as_many_as_fit(void **state)
{
    assert_int_equal(plan_auto(2, 2, 2, 1, 3), 0);
    assert_string_equal(rails(), "0>0,1>1");
    assert_int_equal(plan_auto(8, 8, 8, 1, SL_MP_PATHS_MAX), 0);
    assert_int_equal(count, 64);
    assert_int_equal(plan_auto(5, 5, 3, 1, 12), 0);
    assert_int_equal(count, 10);
    assert_int_equal(plan_auto(16, 16, 8, 1, SL_MP_PATHS_MAX), 0);
    assert_int_equal(count, 64);
}

static void more_listed_paths_than_fit_are_an_error_that_names_the_first(void **state)
{
    struct sl_mp_plan_ends ends = {.rails = {2, 2, {{0}}}};

    assert_int_equal(plan_with("0>0,0>1,1>0,1>1", 0, &ends, 1, 3), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "1>1 is one more than the 3"));
}

static void an_error_leaves_the_count_alone(void **state)
{
    count = 77;
    assert_int_equal(plan("nothing", 1, 1), -EINVAL);
    assert_int_equal(count, 77);
    assert_int_equal(plan("auto", 0, 1), -EINVAL);
    assert_int_equal(count, 77);
}

static void source_ports_are_those_of_roce_v2(void **state)
{
    /* The low 14 bits, and the 6 above them folded in, over 0xc000. */
    assert_int_equal(sl_mp_udp_sport(0), 0xc000);
    assert_int_equal(sl_mp_udp_sport(0x3fff), 0xffff);
    assert_int_equal(sl_mp_udp_sport(0x4000), 0xc001);
    assert_int_equal(sl_mp_udp_sport(0xfc000), 0xc03f);
    assert_int_equal(sl_mp_udp_sport(0xc0de), 0xc0dd);
    assert_int_equal(sl_mp_udp_sport(0xfffff), 0xffc0);
    assert_int_equal(sl_mp_udp_sport(0x12345), 0xe341);
    assert_int_equal(sl_mp_udp_sport(0xfff00001), 0xc001); /* 20 bits count */
}

static int plan_bonds(const char *paths, int64_t per_rail, unsigned local, unsigned remote,
                      const uint8_t *lag_ports, size_t cap)
{
    struct sl_mp_plan_ends ends = {.rails = {local, remote, {{0}}}};

    memcpy(ends.lag_ports, lag_ports, local);
    return plan_with(paths, per_rail, &ends, 42, cap);
}

/* The list as "0>0@1,1>1". */
static const char *lag_ports(void)
{
    static char text[CAP * 6 + 1];
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u>%u", i == 0 ? "" : ",",
                                specs[i].local_rail, specs[i].remote_rail);
        if (specs[i].lag_port != 0)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "@%u", specs[i].lag_port);
    }
    return text;
}

static void a_bond_has_a_path_for_each_of_its_ports_where_there_is_room(void **state)
{
    static const uint8_t one[] = {2}, four[] = {4}, mixed[] = {2, 0}, many[] = {2, 2, 2, 2, 2};

    (void)state;
    assert_int_equal(plan_bonds("auto", 0, 1, 1, one, 8), 0);
    assert_string_equal(lag_ports(), "0>0@1,0>0@2");
    assert_int_equal(plan_bonds("auto", 0, 1, 1, four, 8), 0);
    assert_string_equal(lag_ports(), "0>0@1,0>0@2,0>0@3,0>0@4");
    assert_int_equal(plan_bonds("auto", 0, 2, 2, mixed, 8), 0);
    assert_string_equal(lag_ports(), "0>0@1,1>1,0>0@2,1>1");
    assert_int_equal(plan_bonds("auto", 0, 5, 5, many, 8), 0);
    assert_string_equal(lag_ports(), "0>0@1,1>1@1,2>2@1,3>3@1,4>4@1");
    assert_int_equal(plan_bonds("auto", 1, 1, 1, one, 8), 0);
    assert_string_equal(lag_ports(), "0>0@1");
    assert_int_equal(plan_bonds("auto", 3, 1, 1, one, 8), 0);
    assert_string_equal(lag_ports(), "0>0@1,0>0@2,0>0@1");
}

static void an_entry_may_name_the_port_of_a_bond(void **state)
{
    static const uint8_t bond[] = {2, 0};

    (void)state;
    assert_int_equal(plan_bonds("0>0@2,0>0/c0de@1,0>0,1>1/beef,0>0,1>1@4", 0, 2, 2, bond, 8), 0);
    assert_string_equal(lag_ports(), "0>0@2,0>0@1,0>0@1,1>1,0>0@2,1>1@4");
    assert_int_equal(specs[1].flow_label, 0xc0de);
    assert_int_equal(specs[3].flow_label, 0xbeef);
}

static void a_port_of_a_bond_that_cannot_be_read_is_named(void **state)
{
    static const char *const bad[] = {"0>0@",       "0>0@0",     "0>0@5",  "0>0@1x",
                                      "0>0@1/beef", "0>0/c0de@", "0>0/@1", "0>0@@1"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(plan(bad[i], 1, 1), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), bad[i]));
    }
    assert_int_equal(plan("0>0x", 1, 1), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "but not with /LABEL or @PORT"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_gives_each_rail_the_peers_of_the_same_number),
        cmocka_unit_test(auto_uses_every_rail_of_the_end_that_has_more),
        cmocka_unit_test(several_paths_of_a_rail_come_after_one_of_each),
        cmocka_unit_test(the_largest_automatic_list_fits),
        cmocka_unit_test(labels_of_auto_differ_in_their_source_ports_and_come_back_for_a_seed),
        cmocka_unit_test(a_list_is_taken_in_its_order_with_its_labels),
        cmocka_unit_test(an_entry_without_a_label_gets_one_that_no_other_has),
        cmocka_unit_test(a_path_has_what_the_list_says_of_its_turn_there),
        cmocka_unit_test(entries_for_rails_that_are_not_there_are_left_out),
        cmocka_unit_test(an_entry_that_cannot_be_read_is_named),
        cmocka_unit_test(more_paths_of_a_rail_than_fit_are_as_many_as_fit),
        cmocka_unit_test(more_listed_paths_than_fit_are_an_error_that_names_the_first),
        cmocka_unit_test(an_error_leaves_the_count_alone),
        cmocka_unit_test(source_ports_are_those_of_roce_v2),
        cmocka_unit_test(a_bond_has_a_path_for_each_of_its_ports_where_there_is_room),
        cmocka_unit_test(an_entry_may_name_the_port_of_a_bond),
        cmocka_unit_test(a_port_of_a_bond_that_cannot_be_read_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
