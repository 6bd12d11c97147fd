/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine is taken, and what is said where none can be: with two engines that open or fail as
 * a case wants. */
#include "tcp/engine.h"

#include "core/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static int better_opens, other_opens; /* 0, or the error */

static int open_better(void **out)
{
    *out = &better_opens;
    return better_opens == 0 ? 0 : sl_fail(better_opens, "the better one does not open");
}

static int open_other(void **out)
{
    *out = &other_opens;
    return other_opens == 0 ? 0 : sl_fail(other_opens, "the other one does not open");
}

static const struct sl_tcp_engine_ops better = {.name = "epoll", .open = open_better},
                                      other = {.name = "uring", .open = open_other};

const struct sl_tcp_engine_ops *const sl_tcp_engines[] = {&better, &other, NULL};

static int choose(const char *name, int better_error, int other_error,
                  const struct sl_tcp_engine_ops **ops)
{
    void *engine;

    better_opens = better_error;
    other_opens = other_error;
    *ops = NULL;
    return sl_tcp_engine_open(name, ops, &engine);
}

static void the_first_that_opens_is_taken(void **state)
{
    const struct sl_tcp_engine_ops *ops;

    (void)state;
    assert_int_equal(choose("auto", 0, 0, &ops), 0);
    assert_ptr_equal(ops, &better);
    assert_int_equal(choose("auto", -EPERM, 0, &ops), 0);
    assert_ptr_equal(ops, &other);
    assert_int_equal(choose("uring", 0, 0, &ops), 0);
    assert_ptr_equal(ops, &other);
}

static void where_none_opens_the_best_says_why(void **state)
{
    const struct sl_tcp_engine_ops *ops;

    (void)state;
    assert_int_equal(choose("auto", -ENOMEM, -ENOSYS, &ops), -ENOMEM);
    assert_string_equal(sluice_last_error(), "the better one does not open");
    assert_int_equal(choose("uring", -ENOMEM, -ENOSYS, &ops), -ENOSYS);
    assert_string_equal(sluice_last_error(), "the other one does not open");
}

static void a_name_that_is_not_known_is_refused(void **state)
{
    const struct sl_tcp_engine_ops *ops;

    (void)state;
    assert_int_equal(choose("kqueue", 0, 0, &ops), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "must be auto, uring or epoll"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_that_opens_is_taken),
                                       cmocka_unit_test(where_none_opens_the_best_says_why),
                                       cmocka_unit_test(a_name_that_is_not_known_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
