/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void fail_keeps_the_sentence_and_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(sl_fail(-EIO, "qp 0x%x is gone", 0x1a2), -EIO);
    assert_string_equal(sluice_last_error(), "qp 0x1a2 is gone");
}

static void fail_may_quote_the_last_sentence(void **state)
{
    (void)state;
    sl_fail(-EIO, "inner");
    sl_fail(-EIO, "outer: %s", sluice_last_error());
    assert_string_equal(sluice_last_error(), "outer: inner");
}

static void every_code_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(sluice_strerror(-ETIMEDOUT), "ETIMEDOUT: a peer was silent");
    assert_string_equal(sluice_strerror(0), "OK");
    assert_non_null(sluice_strerror(-99999));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_keeps_the_sentence_and_returns_the_code),
        cmocka_unit_test(fail_may_quote_the_last_sentence),
        cmocka_unit_test(every_code_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
