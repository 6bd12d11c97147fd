/* SPDX-License-Identifier: Apache-2.0 */
/* Which texts are a range of ports. */
#include "core/port_range.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void two_ports_are_a_range(void **state)
{
    static const struct {
        const char *text;
        unsigned low, high, count;
    } cases[] = {{"1-2", 1, 2, 2},
                 {"5-5", 5, 5, 1},
                 {"1-65535", 1, 65535, 65535},
                 {"65535-65535", 65535, 65535, 1},
                 {"007-08", 7, 8, 2}};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_port_range range = {0, 0};

        assert_int_equal(sl_port_range_parse(cases[i].text, &range), 0);
        assert_int_equal(range.low, cases[i].low);
        assert_int_equal(range.high, cases[i].high);
        assert_int_equal(sl_port_range_count(&range), cases[i].count);
    }
}

static void an_empty_text_is_any_port(void **state)
{
    struct sl_port_range range = {7, 7};

    (void)state;
    assert_int_equal(sl_port_range_parse("", &range), 0);
    assert_int_equal(range.low, 0);
    assert_int_equal(range.high, 0);
}

static void what_is_no_range_is_refused_and_leaves_none(void **state)
{
    static const char *const texts[] = {"9-3",
                                        "0-4",
                                        "0-0",
                                        "1-0",
                                        "70000-70001",
                                        "1-65536",
                                        "65536-65537",
                                        "1-4294967298",
                                        "4294967297-4294967298",
                                        "18446744073709551617-18446744073709551618",
                                        "1-",
                                        "-2",
                                        "-",
                                        "1",
                                        "1-2x",
                                        "x1-2",
                                        "1-2-3",
                                        "1--2",
                                        "+1-2",
                                        "1-+2",
                                        "1:2",
                                        "0x1-0x2",
                                        " 1-2",
                                        "1-2 ",
                                        "1 -2",
                                        "1- 2",
                                        " ",
                                        "1-2\n",
                                        "any"};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++) {
        struct sl_port_range range = {7, 8};

        assert_int_equal(sl_port_range_parse(texts[i], &range), -EINVAL);
        assert_int_equal(range.low, 7);
        assert_int_equal(range.high, 8);
        assert_non_null(strstr(sluice_last_error(), texts[i]));
    }
    assert_int_equal(sl_port_range_parse("9-3", &(struct sl_port_range){0, 0}), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_PORT_RANGE is '9-3', but must be low-high: two ports from 1 to "
                        "65535, such as 20000-20999");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ports_are_a_range),
        cmocka_unit_test(an_empty_text_is_any_port),
        cmocka_unit_test(what_is_no_range_is_refused_and_leaves_none),
    };

    return cmocka_run_group_tests_name("port_range", tests, NULL, NULL);
}
