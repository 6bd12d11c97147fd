/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of verdicts: their order, their evidence, their names. */
#include "monitor/diagnosis/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_object rank_of(uint32_t rank)
{
    return (struct sl_object){.kind = SL_OBJECT_RANK, .a = rank, .b = SL_JOB_NONE};
}

static void the_order_is_the_same_whatever_came_first(void **state)
{
    static const enum sl_verdict_class classes[] = {SL_VERDICT_DEAD, SL_VERDICT_HOST_STALLED};

    (void)state;
    for (unsigned turn = 0; turn < 24; turn++) {
        struct sl_verdicts verdicts = {.list = NULL};

        for (unsigned i = 0; i < 24; i++) {
            unsigned n = (i * 5 + turn) % 24;

            assert_non_null(sl_verdict_add(&verdicts, classes[n / 12], rank_of(n % 12), 1));
        }
        sl_verdicts_sort(&verdicts);
        for (unsigned i = 0; i < 24; i++) {
            assert_int_equal(verdicts.list[i].cls, classes[1 - i / 12]);
            assert_int_equal(verdicts.list[i].accused.a, i % 12);
        }
        sl_verdicts_free(&verdicts);
    }
}

static void evidence_and_others_stay_in_order(void **state)
{
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_verdict *verdict = sl_verdict_add(&verdicts, SL_VERDICT_COMM_STUCK, rank_of(0), 0.5);
    char text[32];

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(sl_verdict_say(verdict, "sentence %u", i), 0);
        assert_int_equal(sl_verdict_other(verdict, rank_of(i + 1)), 0);
    }
    assert_int_equal(verdict->evidence_count, 100);
    assert_int_equal(verdict->other_count, 100);
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "sentence %u", i);
        assert_string_equal(verdict->evidence[i], text);
        assert_int_equal(verdict->others[i].a, i + 1);
    }
    sl_verdicts_free(&verdicts);
    assert_int_equal(verdicts.count, 0);
}

static void every_class_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SL_VERDICT_CLASSES; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(sl_verdict_class_name(i), sl_verdict_class_name(k));
    assert_string_equal(sl_verdict_class_name(SL_VERDICT_CLASSES), "unknown");
}

static void a_class_is_dropped_where_there_are_others(void **state)
{
    struct sl_verdicts verdicts = {.list = NULL};

    (void)state;
    assert_non_null(sl_verdict_add(&verdicts, SL_VERDICT_NOT_HUNG, rank_of(0), 1));
    sl_verdicts_drop(&verdicts, SL_VERDICT_NOT_HUNG);
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(sl_verdict_say(&verdicts.list[0], "why"), 0);
    assert_non_null(sl_verdict_add(&verdicts, SL_VERDICT_SLOW_RANK, rank_of(7), 1));
    sl_verdicts_drop(&verdicts, SL_VERDICT_NOT_HUNG);
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.list[0].accused.a, 7);
    sl_verdicts_free(&verdicts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_the_same_whatever_came_first),
        cmocka_unit_test(evidence_and_others_stay_in_order),
        cmocka_unit_test(every_class_has_a_name_of_its_own),
        cmocka_unit_test(a_class_is_dropped_where_there_are_others),
    };

    return cmocka_run_group_tests_name("diagnosis_verdict", tests, NULL, NULL);
}
