/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"
#include "core/path_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HEAD "sluice-paths 1\n"

static int parse(const char *text, struct sl_path_table *out)
{
    return sl_path_table_parse(text, strlen(text), out);
}

static void a_table_says_what_is_wanted_of_paths(void **state)
{
    struct sl_path_table table;

    (void)state;
    assert_int_equal(parse(HEAD "# of the planner\n"
                                "job=train rank=3 peer=7 path=2 weight=50 label=c0de\n"
                                "\n"
                                "until 1800000000\n"
                                "path=1 avoid\n"
                                "end 2\n",
                           &table),
                     0);
    assert_int_equal(table.count, 2);
    assert_int_equal(table.until_s, 1800000000);
    assert_int_equal(table.rules[0].job_len, 5);
    assert_memory_equal(table.rules[0].job, "train", 5);
    assert_int_equal(table.rules[0].rank, 3);
    assert_int_equal(table.rules[0].peer, 7);
    assert_int_equal(table.rules[0].path, 2);
    assert_int_equal(table.rules[0].weight, 50);
    assert_int_equal(table.rules[0].label, 0xc0de);
    assert_int_equal(table.rules[0].avoid, SL_PATH_TABLE_UNSAID);
    assert_int_equal(table.rules[1].peer, SL_PATH_TABLE_ALL);
    assert_int_equal(table.rules[1].avoid, 1);
    sl_path_table_fini(&table);
}

static void what_is_no_table_is_refused_whole(void **state)
{
    static const char *const bad[] = {
        "",
        "\n",
        "sluice-paths 2\nend 0\n",
        HEAD,
        HEAD "path=1 avoid\n",
        HEAD "path=1 avoid\nend 0\n",
        HEAD "path=1 avoid\nend 2\n",
        HEAD "path=1 avoid\nend 1",
        HEAD "path=1 avoid\nend 1\n\n",
        HEAD "path=1 avoid\nend 1\npath=2 avoid\n",
        HEAD "path=1\nend 1\n",
        HEAD "path=1  avoid\nend 1\n",
        HEAD "path=1 path=2 avoid\nend 1\n",
        HEAD "path=-1 avoid\nend 1\n",
        HEAD "path=1048577 avoid\nend 1\n",
        HEAD "path=1 avoid use\nend 1\n",
        HEAD "path=1 weight=0\nend 1\n",
        HEAD "path=1 weight=101\nend 1\n",
        HEAD "path=1 label=100000\nend 1\n",
        HEAD "path=1 label=0x10\nend 1\n",
        HEAD "job=a\"b avoid\nend 1\n",
        HEAD "job= avoid\nend 1\n",
        HEAD "route=1 avoid\nend 1\n",
        HEAD "until 0\nend 0\n",
        HEAD "until 5\nuntil 6\nend 0\n",
    };
    struct sl_path_table table = {.count = 9};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        assert_int_equal(parse(bad[i], &table), -EBADMSG);
        assert_int_equal(table.count, 9); /* untouched */
        assert_null(table.rules);
    }
    assert_int_equal(parse(HEAD "path=1 avoid\npath=1 weight=x\nend 2\n", &table), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "line 3"));
    /* A zero in the midst of a line is no end of it. */
    assert_int_equal(sl_path_table_parse(HEAD "avoid\0\nend 1\n", sizeof(HEAD) + 12, &table),
                     -EBADMSG);
}

static void more_rules_than_a_table_holds_are_refused(void **state)
{
    size_t cap = SL_PATH_TABLE_BYTES_MAX + 64, len = strlen(HEAD);
    char *text = malloc(cap);
    struct sl_path_table table = {0};

    (void)state;
    assert_non_null(text);
    memcpy(text, HEAD, len);
    for (unsigned i = 0; i <= SL_PATH_TABLE_RULES_MAX; i++, len += 6)
        memcpy(text + len, "avoid\n", 6);
    memcpy(text + len, "end 16385\n", 10);
    assert_int_equal(sl_path_table_parse(text, len + 10, &table), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "more rules"));
    memcpy(text + len - 6, "end 16384\n", 10);
    assert_int_equal(sl_path_table_parse(text, len + 4, &table), 0);
    assert_int_equal(table.count, SL_PATH_TABLE_RULES_MAX);
    sl_path_table_fini(&table);
    memset(text + strlen(HEAD), '#', cap - strlen(HEAD));
    text[cap - 1] = '\n';
    assert_int_equal(sl_path_table_parse(text, cap, &table), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "more than 1048576 bytes"));
    free(text);
}

static void what_is_printed_is_read_again(void **state)
{
    static const char text[] = HEAD "until 1800000000\n"
                                    "job=train rank=0 peer=1 path=0 weight=100 label=0 use\n"
                                    "avoid\n"
                                    "end 2\n";
    struct sl_path_table table;
    char *printed;
    size_t len;

    (void)state;
    assert_int_equal(parse(text, &table), 0);
    assert_int_equal(sl_path_table_print(&table, &printed, &len), 0);
    assert_string_equal(printed, text);
    assert_int_equal(len, strlen(text));
    free(printed);
    table.rules[1].weight = 0;
    assert_int_equal(sl_path_table_print(&table, &printed, &len), -EINVAL);
    sl_path_table_fini(&table);
}

static void rules_are_for_ranks_of_jobs(void **state)
{
    struct sl_path_table table;

    (void)state;
    assert_int_equal(
        parse(HEAD "job=a rank=1 avoid\njob=a avoid\nrank=1 avoid\navoid\nend 4\n", &table), 0);
    const struct sl_path_rule *rules = table.rules;

    assert_true(sl_path_rule_is_for(&rules[0], "a", 1));
    assert_false(sl_path_rule_is_for(&rules[0], "a", 2));
    assert_false(sl_path_rule_is_for(&rules[0], "ab", 1));
    assert_false(sl_path_rule_is_for(&rules[0], "", 1));
    assert_true(sl_path_rule_is_for(&rules[1], "a", -1));
    assert_false(sl_path_rule_is_for(&rules[2], "b", -1));
    assert_true(sl_path_rule_is_for(&rules[2], "b", 1));
    assert_true(sl_path_rule_is_for(&rules[3], "", -1));
    sl_path_table_fini(&table);
}

static void the_later_rule_counts_in_what_it_says(void **state)
{
    struct sl_path_table table;
    struct sl_path_setting is;

    (void)state;
    assert_int_equal(parse(HEAD "weight=80 label=5\n"
                                "peer=1 avoid\n"
                                "peer=1 path=2 weight=10 use\n"
                                "end 3\n",
                           &table),
                     0);
    is = sl_path_rules_apply(table.rules, table.count, 0, 2, NULL);
    assert_int_equal(is.weight, 80);
    assert_int_equal(is.label, 5);
    assert_false(is.avoid);
    is = sl_path_rules_apply(table.rules, table.count, 1, 0, NULL);
    assert_int_equal(is.weight, 80);
    assert_true(is.avoid);
    is = sl_path_rules_apply(table.rules, table.count, 1, 2, NULL);
    assert_int_equal(is.weight, 10);
    assert_int_equal(is.label, 5);
    assert_false(is.avoid);
    is = sl_path_rules_apply(table.rules, table.count, -1, 2, NULL); /* a peer without a rank */
    assert_int_equal(is.weight, 80);
    is = sl_path_rules_apply(NULL, 0, 1, 2, NULL);
    assert_int_equal(is.weight, SL_PATH_TABLE_WEIGHT_MAX);
    assert_int_equal(is.label, SL_PATH_TABLE_UNSAID);
    assert_false(is.avoid);
    sl_path_table_fini(&table);
}

static void a_rule_of_a_port_is_for_paths_by_it(void **state)
{
    struct sl_path_table table;
    char text[256], name[SL_PATH_TABLE_PORT_MAX + 2];

    (void)state;
    assert_int_equal(
        parse(HEAD "port=mlx5_0:1 avoid\npeer=1 port=mlx5_1:1 weight=7\nend 2\n", &table), 0);
    assert_int_equal(table.rules[0].port_len, 8);
    assert_true(sl_path_rules_apply(table.rules, table.count, 1, 0, "mlx5_0:1").avoid);
    assert_false(sl_path_rules_apply(table.rules, table.count, 1, 0, "mlx5_0:12").avoid);
    assert_false(sl_path_rules_apply(table.rules, table.count, 1, 0, "mlx5_0:").avoid);
    assert_false(sl_path_rules_apply(table.rules, table.count, 1, 0, NULL).avoid);
    assert_int_equal(sl_path_rules_apply(table.rules, table.count, 1, 0, "mlx5_1:1").weight, 7);
    assert_int_equal(sl_path_rules_apply(table.rules, table.count, 2, 0, "mlx5_1:1").weight, 100);
    sl_path_table_fini(&table);
    assert_int_equal(parse(HEAD "port=a port=b avoid\nend 1\n", &table), -EBADMSG);
    assert_int_equal(parse(HEAD "port= avoid\nend 1\n", &table), -EBADMSG);
    memset(name, 'p', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    snprintf(text, sizeof(text), HEAD "port=%s avoid\nend 1\n", name);
    assert_int_equal(parse(text, &table), -EBADMSG);
    snprintf(text, sizeof(text), HEAD "port=%s avoid\nend 1\n", name + 1);
    assert_int_equal(parse(text, &table), 0);
    sl_path_table_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_says_what_is_wanted_of_paths),
        cmocka_unit_test(what_is_no_table_is_refused_whole),
        cmocka_unit_test(more_rules_than_a_table_holds_are_refused),
        cmocka_unit_test(what_is_printed_is_read_again),
        cmocka_unit_test(rules_are_for_ranks_of_jobs),
        cmocka_unit_test(the_later_rule_counts_in_what_it_says),
        cmocka_unit_test(a_rule_of_a_port_is_for_paths_by_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
