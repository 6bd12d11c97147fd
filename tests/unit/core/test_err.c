/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
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

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    assert_string_equal(sluice_last_error(), "");
    sl_fail(-EIO, "theirs");
    assert_string_equal(sluice_last_error(), "theirs");
    return NULL;
}

static void each_thread_has_a_sentence_of_its_own(void **state)
{
    pthread_t thread;

    (void)state;
    sl_fail(-EIO, "mine");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_string_equal(sluice_last_error(), "mine");
}

static void a_sentence_too_long_is_cut(void **state)
{
    char words[3000];

    (void)state;
    memset(words, 'x', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    sl_fail(-EIO, "%s", words);
    assert_int_equal(strlen(sluice_last_error()), 1023);
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
        cmocka_unit_test(each_thread_has_a_sentence_of_its_own),
        cmocka_unit_test(a_sentence_too_long_is_cut),
        cmocka_unit_test(every_code_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
