/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"

#include <limits.h>
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
    char words[2 * SL_ERROR_TEXT_MAX];

    (void)state;
    memset(words, 'x', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    sl_fail(-EIO, "%s", words);
    assert_int_equal(strlen(sluice_last_error()), SL_ERROR_TEXT_MAX - 1);
}

static void what_has_no_room_in_a_text_is_cut(void **state)
{
    char text[8] = "";

    (void)state;
    assert_true(sl_text_add(text, sizeof(text), "%s", "abc"));
    assert_true(sl_text_add(text, sizeof(text), "%d", 1234));
    assert_string_equal(text, "abc1234");
    assert_false(sl_text_add(text, sizeof(text), "5"));
    assert_string_equal(text, "abc1234");
    text[5] = '\0';
    assert_false(sl_text_add(text, sizeof(text), "xyz"));
    assert_string_equal(text, "abc12xy");
    assert_false(sl_text_add(text, 3, "z")); /* of a text that is longer by now */
    assert_string_equal(text, "abc12xy");
}

static void an_error_has_code_area_and_no_culprit(void **state)
{
    (void)state;
    sl_fail(-ENODEV, "no device");
    assert_int_equal(sluice_error_code(), -ENODEV);
    assert_int_equal(sluice_error_culprit(), -1);
    assert_string_equal(sluice_error_area(), "core"); /* of this file */
    assert_string_equal(sluice_error_text(), "no device");
    sl_fail_in("rail.c", -EIO, "without a folder");
    assert_string_equal(sluice_error_area(), "");
    sl_fail_in("/a/folder_with_a_very_long_name/rail.c", -EIO, "with a long one");
    assert_string_equal(sluice_error_area(), "folder_with_a_v");
}

/* What clean-up keeps and gives back is all of it. */
static void an_error_that_was_taken_is_given_back_whole(void **state)
{
    struct sl_error first;
    char words[SL_ERROR_TEXT_MAX];

    (void)state;
    memset(words, 'x', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    sl_fail_in("../tools/nccl/dial.c", -EIO, "%s", words);
    sl_error_take(-EPROTO, &first);
    first.culprit = 7;
    sl_fail(-EINVAL, "of the clean-up");
    assert_int_equal(sl_fail_error(&first), -EPROTO);
    assert_int_equal(sluice_error_code(), -EPROTO);
    assert_int_equal(sluice_error_culprit(), 7);
    assert_string_equal(sluice_error_area(), "nccl");
    assert_string_equal(sluice_last_error(), words);
}

static void *look_at_nothing(void *arg)
{
    (void)arg;
    assert_int_equal(sluice_error_code(), 0);
    assert_int_equal(sluice_error_culprit(), -1);
    assert_string_equal(sluice_error_area(), "");
    return NULL;
}

static void a_thread_without_an_error_blames_nobody(void **state)
{
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, look_at_nothing, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void every_code_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(sluice_strerror(-ETIMEDOUT), "ETIMEDOUT: a peer was silent");
    assert_string_equal(sluice_strerror(0), "OK");
    assert_non_null(sluice_strerror(-99999));
    assert_string_equal(sluice_strerror(INT_MIN), "unknown error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_keeps_the_sentence_and_returns_the_code),
        cmocka_unit_test(fail_may_quote_the_last_sentence),
        cmocka_unit_test(each_thread_has_a_sentence_of_its_own),
        cmocka_unit_test(a_sentence_too_long_is_cut),
        cmocka_unit_test(what_has_no_room_in_a_text_is_cut),
        cmocka_unit_test(an_error_has_code_area_and_no_culprit),
        cmocka_unit_test(an_error_that_was_taken_is_given_back_whole),
        cmocka_unit_test(a_thread_without_an_error_blames_nobody),
        cmocka_unit_test(every_code_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
