/* SPDX-License-Identifier: Apache-2.0 */
/* What sinfo says of all nodes, as rows of text: who is out, by whom, and who was first. */
#include "core/err.h"
#include "monitor/isolate_slurm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_isolate_view view(const char *text, const char *node)
{
    struct sl_isolate_view out;

    if (sl_slurm_view(text, node, &out) != 0)
        fail_msg("%s", sluice_last_error());
    return out;
}

static void a_node_of_two_partitions_is_one_node(void **state)
{
    struct sl_isolate_view out = view("n1|idle|Unknown|none\nn1|idle|Unknown|none\n"
                                      "n2|down*|2026-11-25T10:00:00|gone\n"
                                      "n2|down*|2026-11-25T10:00:00|gone\n",
                                      "n1");

    (void)state;
    assert_int_equal(out.node, SL_ISOLATE_IS_IN);
    assert_int_equal(out.all, 2);
    assert_int_equal(out.before, 1);
}

static void names_are_whole(void **state)
{
    (void)state;
    assert_int_equal(view("n1|idle|Unknown|none\nn10|idle|Unknown|none\n", "n1").all, 2);
    assert_int_equal(view("n10|drained|x|y\nn1|idle|Unknown|none\n", "n1").node, SL_ISOLATE_IS_IN);
    assert_int_equal(view("n10|drained|t|x\nn1|idle|Unknown|none\n", "n10").node,
                     SL_ISOLATE_OUT_BY_OTHERS);
    struct sl_isolate_view out = {.all = 77};

    assert_int_equal(sl_slurm_view("n10|idle|Unknown|none\n", "n1", &out), -ENOENT);
    assert_int_equal(sl_slurm_view("", "n1", &out), -ENOENT);
    assert_int_equal(out.all, 77);
}

static void states_that_carry_no_work_are_out(void **state)
{
    static const char *const outs[] = {"drained", "drained*", "draining@", "down", "down*",
                                       "down~",   "fail",     "failing*",  "error"};
    static const char *const ins[] = {"idle",      "idle~",    "mixed",   "mixed-",
                                      "allocated", "unknown*", "planned", "reserved",
                                      "draine",    "download", ""};
    char text[128];

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(outs); i++) {
        snprintf(text, sizeof(text), "n1|idle|Unknown|none\nn2|%s|t|r", outs[i]);
        assert_int_equal(view(text, "n1").before, 1);
    }
    for (unsigned i = 0; i < SL_ARRAY_LEN(ins); i++) {
        snprintf(text, sizeof(text), "n1|idle|Unknown|none\nn2|%s|t|r", ins[i]);
        assert_int_equal(view(text, "n1").before, 0);
    }
}

static void by_whom_is_said_by_the_reason(void **state)
{
    struct sl_isolate_view out = view("n1|draining|t|sluice[17.3f2a9c1d]: NICDown | x\n", "n1");

    (void)state;
    assert_int_equal(out.node, SL_ISOLATE_OUT_BY_US);
    assert_string_equal(out.mark, "17.3f2a9c1d");
    assert_int_equal(view("n1|drained|t|a new fan\n", "n1").node, SL_ISOLATE_OUT_BY_OTHERS);
    assert_int_equal(view("n1|drained|t|sluice[]: x\n", "n1").node, SL_ISOLATE_OUT_BY_OTHERS);
    assert_int_equal(view("n1|drained|t|sluice[17.b\n", "n1").node, SL_ISOLATE_OUT_BY_OTHERS);
    assert_int_equal(view("n1|drained|t|mine: sluice[17.b]\n", "n1").node,
                     SL_ISOLATE_OUT_BY_OTHERS);
    assert_int_equal(view("n1|drained|t|\n", "n1").node, SL_ISOLATE_OUT_BY_OTHERS);
    /* One that went down is not ours to bring up, and may be drained. */
    assert_int_equal(view("n1|down*|t|sluice[17.b]: x\n", "n1").node, SL_ISOLATE_IS_IN);
}

/* Those of others were always before; of ours the earlier, and of one second the lesser name. */
static void who_went_first_is_told_by_time_and_name(void **state)
{
    static const char text[] = "n1|drained|2026-11-25T10:00:05|sluice[1.b]: x\n"
                               "n2|drained|2026-11-25T10:00:05|sluice[2.b]: x\n"
                               "n3|drained|2026-11-25T10:00:04|sluice[3.b]: x\n"
                               "n4|drained|2026-11-25T10:00:09|a new fan\n"
                               "n5|idle|Unknown|none\n";

    (void)state;
    assert_int_equal(view(text, "n3").before, 1);
    assert_int_equal(view(text, "n1").before, 2);
    assert_int_equal(view(text, "n2").before, 3);
    assert_int_equal(view(text, "n4").before, 3);
    assert_int_equal(view(text, "n5").before, 4);
    assert_int_equal(view(text, "n5").all, 5);
}

static void what_is_no_row_counts_for_nothing(void **state)
{
    (void)state;
    assert_int_equal(view("\n\nslurm_load: warning\nn1|idle|t|r\nn2|idle\n", "n1").all, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_node_of_two_partitions_is_one_node),
                                       cmocka_unit_test(names_are_whole),
                                       cmocka_unit_test(states_that_carry_no_work_are_out),
                                       cmocka_unit_test(by_whom_is_said_by_the_reason),
                                       cmocka_unit_test(who_went_first_is_told_by_time_and_name),
                                       cmocka_unit_test(what_is_no_row_counts_for_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
