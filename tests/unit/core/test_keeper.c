/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks at intervals: until it is stopped, never after, and with no signal of the
 * program's. */
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
#define STAY_NS (50 * SL_NS_PER_MS)

struct watched {
    atomic_uint looks;
    atomic_bool inside, stay, stopping, stopped;
    struct sl_keeper keeper;
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

static void await(const atomic_bool *so)
{
    uint64_t end = sl_now(&sl_clock_monotonic) + PATIENCE_NS;

    while (!atomic_load(so)) {
        assert_true(sl_now(&sl_clock_monotonic) < end);
        sched_yield();
    }
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
    unsigned seen;

    (void)state;
    assert_int_equal(sl_keeper_start(&w.keeper, look, &w), 0);
    await_looks(&w, 3);
    sl_keeper_stop(&w.keeper);
    seen = atomic_load(&w.looks);
    assert_false(w.keeper.runs);
    sl_keeper_stop(&w.keeper); /* of one that does not run */
    assert_int_equal(sl_keeper_start(&w.keeper, look, &w), 0);
    await_looks(&w, seen + 1);
    sl_keeper_stop(&w.keeper);
}

static void it_leaves_signals_to_the_program(void **state)
{
    struct watched w = {0};
    sigset_t here;

    (void)state;
    assert_int_equal(sl_keeper_start(&w.keeper, look, &w), 0);
    await_looks(&w, 1);
    sl_keeper_stop(&w.keeper);
    assert_false(pthread_equal(w.by, pthread_self()));
    assert_int_equal(sigismember(&w.blocked, SIGTERM), 1);
    assert_int_equal(sigismember(&w.blocked, SIGUSR1), 1);
    pthread_sigmask(SIG_SETMASK, NULL, &here); /* as it was */
    assert_int_equal(sigismember(&here, SIGTERM), 0);
}

static void *stop(void *arg)
{
    struct watched *w = arg;

    atomic_store(&w->stopping, true);
    sl_keeper_stop(&w->keeper);
    atomic_store(&w->stopped, true);
    return NULL;
}

static void a_stop_waits_for_a_look_that_is_under_way(void **state)
{
    struct watched w = {.stay = true};
    pthread_t other;

    (void)state;
    assert_int_equal(sl_keeper_start(&w.keeper, look, &w), 0);
    await(&w.inside);
    assert_int_equal(pthread_create(&other, NULL, stop, &w), 0);
    await(&w.stopping);
    for (uint64_t end = sl_now(&sl_clock_monotonic) + STAY_NS; sl_now(&sl_clock_monotonic) < end;)
        assert_false(atomic_load(&w.stopped)); /* time enough to return too early */
    atomic_store(&w.stay, false);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&w.looks), 1);
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
