/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks at intervals: until it is stopped, never after, and with no signal of the program's. */
#include "core/clock.h"
#include "core/keeper.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define PATIENCE_NS (20 * SL_NS_PER_S)

struct watched {
    atomic_uint looks;
    atomic_bool inside, stay;
    pthread_t by;
    sigset_t blocked;
};

static void look(void *arg)
{
    struct watched *w = arg;

    w->by = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &w->blocked);
    atomic_store(&w->inside, true);
    while (atomic_load(&w->stay))
        sched_yield();
    atomic_store(&w->inside, false);
    atomic_fetch_add(&w->looks, 1);
}

static void await_looks(struct watched *w, unsigned enough)
{
    uint64_t end = sl_now(&sl_clock_monotonic) + PATIENCE_NS;

    while (atomic_load(&w->looks) < enough) {
        assert_true(sl_now(&sl_clock_monotonic) < end);
        sched_yield();
    }
}

static void it_looks_again_and_again_until_stopped(void **state)
{
    struct watched w = {0};
    struct sl_keeper keeper = {0};
    unsigned seen;

    (void)state;
    assert_int_equal(sl_keeper_start(&keeper, look, &w), 0);
    await_looks(&w, 3);
    sl_keeper_stop(&keeper);
    seen = atomic_load(&w.looks);
    assert_false(keeper.runs);
    sl_keeper_stop(&keeper); /* of one that does not run */
    assert_int_equal(sl_keeper_start(&keeper, look, &w), 0);
    await_looks(&w, seen + 1);
    sl_keeper_stop(&keeper);
}

static void it_leaves_signals_to_the_program(void **state)
{
    struct watched w = {0};
    struct sl_keeper keeper = {0};
    sigset_t here;

    (void)state;
    assert_int_equal(sl_keeper_start(&keeper, look, &w), 0);
    await_looks(&w, 1);
    sl_keeper_stop(&keeper);
    assert_false(pthread_equal(w.by, pthread_self()));
    assert_int_equal(sigismember(&w.blocked, SIGTERM), 1);
    assert_int_equal(sigismember(&w.blocked, SIGUSR1), 1);
    pthread_sigmask(SIG_SETMASK, NULL, &here); /* as it was */
    assert_int_equal(sigismember(&here, SIGTERM), 0);
}

static void *let_go(void *arg)
{
    struct watched *w = arg;

    while (!atomic_load(&w->inside))
        sched_yield();
    atomic_store(&w->stay, false);
    return NULL;
}

static void a_stop_waits_for_a_look_that_is_under_way(void **state)
{
    struct watched w = {.stay = true};
    struct sl_keeper keeper = {0};
    pthread_t other;

    (void)state;
    assert_int_equal(sl_keeper_start(&keeper, look, &w), 0);
    while (!atomic_load(&w.inside))
        sched_yield();
    assert_int_equal(pthread_create(&other, NULL, let_go, &w), 0);
    sl_keeper_stop(&keeper);
    assert_false(atomic_load(&w.inside));
    assert_int_equal(atomic_load(&w.looks), 1);
    pthread_join(other, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_looks_again_and_again_until_stopped),
        cmocka_unit_test(it_leaves_signals_to_the_program),
        cmocka_unit_test(a_stop_waits_for_a_look_that_is_under_way),
    };

    return cmocka_run_group_tests_name("keeper", tests, NULL, NULL);
}
