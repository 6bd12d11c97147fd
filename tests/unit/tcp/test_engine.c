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

static const struct sl_tcp_engine_ops better = {.kind = SL_TCP_ENGINE_EPOLL, .open = open_better},
                                      other = {.kind = SL_TCP_ENGINE_URING, .open = open_other};

const struct sl_tcp_engine_ops *const sl_tcp_engines[] = {&better, &other, NULL};

static int choose(enum sl_tcp_engine_kind kind, int better_error, int other_error,
                  const struct sl_tcp_engine_ops **ops)
{
    void *engine;

    better_opens = better_error;
    other_opens = other_error;
    *ops = NULL;
    return sl_tcp_engine_open(kind, ops, &engine);
}

static void the_first_that_opens_is_taken(void **state)
{
    const struct sl_tcp_engine_ops *ops;

    (void)state;
    assert_int_equal(choose(SL_TCP_ENGINE_AUTO, 0, 0, &ops), 0);
    assert_ptr_equal(ops, &better);
    assert_int_equal(choose(SL_TCP_ENGINE_AUTO, -EPERM, 0, &ops), 0);
    assert_ptr_equal(ops, &other);
    assert_int_equal(choose(SL_TCP_ENGINE_URING, 0, 0, &ops), 0);
    assert_ptr_equal(ops, &other);
}

static void where_none_opens_the_best_says_why(void **state)
{
    const struct sl_tcp_engine_ops *ops;

    (void)state;
    assert_int_equal(choose(SL_TCP_ENGINE_AUTO, -ENOMEM, -ENOSYS, &ops), -ENOMEM);
    assert_string_equal(sluice_last_error(), "the better one does not open");
    assert_int_equal(choose(SL_TCP_ENGINE_URING, -ENOMEM, -ENOSYS, &ops), -ENOSYS);
    assert_string_equal(sluice_last_error(), "the other one does not open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_that_opens_is_taken),
                                       cmocka_unit_test(where_none_opens_the_best_says_why)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
