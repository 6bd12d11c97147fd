/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread: it passes over what is attached, never after, with no signal of the
 * program's, and is there only while it has errands. */
#include "core/clock.h"
#include "core/err.h"
#include "core/fork.h"
#include "core/list.h"
#include "core/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* The thread sanitizer refuses new threads in the child of a process that had some. */
#ifdef __SANITIZE_THREAD__
#define THREADS_AFTER_FORK false
#else
#define THREADS_AFTER_FORK true
#endif

#define PATIENCE_NS (20 * SL_NS_PER_S)
#define STAY_NS (50 * SL_NS_PER_MS)

static int own_threads; /* of this process, a sanitizer's with them */

struct watched {
    atomic_uint looks;
    atomic_bool inside, stay, stopping, stopped;
    struct sl_errand errand;
    pthread_t by;
    sigset_t blocked;
};

static unsigned look(struct sl_errand *errand)
{
    struct watched *w = sl_container_of(errand, struct watched, errand);

    w->by = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &w->blocked);
    atomic_store(&w->inside, true);
    while (atomic_load(&w->stay))
        sched_yield();
    atomic_store(&w->inside, false);
    atomic_fetch_add(&w->looks, 1);
    return 0;
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

/* Of this process. */
static int threads(void)
{
    char line[128];
    int count = -1;
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Threads: %d", &count) == 1)
            break;
    fclose(file);
    return count;
}

/* The kernel takes a thread off its list a little after it was joined. */
static void await_threads(int count)
{
    uint64_t end = sl_now(&sl_clock_monotonic) + PATIENCE_NS;

    while (threads() != count) {
        assert_true(sl_now(&sl_clock_monotonic) < end);
        sched_yield();
    }
}

static void it_looks_again_and_again_until_stopped(void **state)
{
    struct watched w = {.errand = {.pass = look}};
    unsigned seen;

    (void)state;
    assert_int_equal(sl_runtime_attach(&w.errand), 0);
    await_looks(&w, 3);
    sl_runtime_detach(&w.errand);
    seen = atomic_load(&w.looks);
    await_threads(own_threads);
    sl_runtime_detach(&w.errand); /* of one that does not run */
    assert_int_equal(sl_runtime_attach(&w.errand), 0);
    await_looks(&w, seen + 1);
    sl_runtime_detach(&w.errand);
}

static void it_leaves_signals_to_the_program(void **state)
{
    struct watched w = {.errand = {.pass = look}};
    sigset_t here;

    (void)state;
    assert_int_equal(sl_runtime_attach(&w.errand), 0);
    await_looks(&w, 1);
    sl_runtime_detach(&w.errand);
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
    sl_runtime_detach(&w->errand);
    atomic_store(&w->stopped, true);
    return NULL;
}

static void a_stop_waits_for_a_look_that_is_under_way(void **state)
{
    struct watched w = {.errand = {.pass = look}, .stay = true};
    pthread_t other;

    (void)state;
    assert_int_equal(sl_runtime_attach(&w.errand), 0);
    await(&w.inside);
    assert_int_equal(pthread_create(&other, NULL, stop, &w), 0);
    await(&w.stopping);
    for (uint64_t end = sl_now(&sl_clock_monotonic) + STAY_NS; sl_now(&sl_clock_monotonic) < end;)
        assert_false(atomic_load(&w.stopped)); /* time enough to return too early */
    atomic_store(&w.stay, false);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&w.looks), 1);
}

static void steady_errands_are_passed_over_all_the_time(void **state)
{
    struct watched steady = {.errand = {.pass = look, .pace = SL_PACE_STEADY}};
    struct watched w = {.errand = {.pass = look}};

    (void)state;
    assert_int_equal(sl_runtime_attach(&w.errand), 0);
    assert_int_equal(sl_runtime_attach(&steady.errand), 0);
    await_looks(&w, 2);
    assert_true(atomic_load(&steady.looks) > 20 * atomic_load(&w.looks));
    sl_runtime_detach(&steady.errand);
    await_looks(&w, atomic_load(&w.looks) + 1); /* the other one has its thread still */
    sl_runtime_detach(&w.errand);
    await_threads(own_threads);
}

static void *come_and_go(void *arg)
{
    struct watched *w = arg;

    for (int i = 0; i < 50; i++) {
        if (sl_runtime_attach(&w->errand) != 0)
            return arg;
        sl_runtime_detach(&w->errand);
    }
    return NULL;
}

static void threads_attach_at_once(void **state)
{
    struct watched w[2] = {{.errand = {.pass = look, .pace = SL_PACE_STEADY}},
                           {.errand = {.pass = look}}};
    pthread_t thread[2];
    void *failed;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, &w[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    await_threads(own_threads);
}

static void a_child_has_no_thread(void **state)
{
    struct watched w = {.errand = {.pass = look}}, own = {.errand = {.pass = look}};
    int status = -1;

    (void)state;
    assert_int_equal(sl_runtime_attach(&w.errand), 0);
    await_looks(&w, 1);
    sl_fork_life();
    pid_t child = fork();

    if (child == 0) {
        int before = threads();

        if (THREADS_AFTER_FORK && sl_runtime_attach(&own.errand) != 0)
            _exit(1);
        if (THREADS_AFTER_FORK)
            await_looks(&own, 2);
        sl_runtime_detach(&own.errand);
        await_threads(before);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    await_looks(&w, atomic_load(&w.looks) + 1);
    sl_runtime_detach(&w.errand);
}

static void *nothing(void *arg)
{
    return arg;
}

int main(void)
{
    pthread_t first;

    pthread_create(&first, NULL, nothing, NULL); /* a sanitizer's own comes with it */
    pthread_join(first, NULL);
    own_threads = threads();
    for (uint64_t end = sl_now(&sl_clock_monotonic) + STAY_NS; sl_now(&sl_clock_monotonic) < end;)
        own_threads = threads() < own_threads ? threads() : own_threads;

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_looks_again_and_again_until_stopped),
        cmocka_unit_test(it_leaves_signals_to_the_program),
        cmocka_unit_test(a_stop_waits_for_a_look_that_is_under_way),
        cmocka_unit_test(steady_errands_are_passed_over_all_the_time),
        cmocka_unit_test(threads_attach_at_once),
        cmocka_unit_test(a_child_has_no_thread),
    };

    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
