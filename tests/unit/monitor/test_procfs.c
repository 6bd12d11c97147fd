/* SPDX-License-Identifier: Apache-2.0 */
/* One process and its threads: of a tree of the test, and this one. */
#include "monitor/procfs.h"

#include "pages.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_mon_procfs *procfs;
static struct sl_mon_proc *proc;
static struct sl_proc_stat stat_now;
static struct sl_mon_process_reading reading;

static int begin(void **state)
{
    char root[128];

    (void)state;
    tree_begin();
    snprintf(root, sizeof(root), "%s/proc", tree);
    assert_int_equal(sl_mon_procfs_open(root, &procfs), 0);
    tree_process(4711, "train", 'S', 300000, "/");
    proc = NULL;
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_proc_close(proc);
    sl_mon_procfs_close(procfs);
    tree_end();
    return 0;
}

static void open_proc(int pid)
{
    assert_int_equal(sl_mon_proc_open(procfs, pid, &proc), 0);
}

static void read_proc(void)
{
    sl_mon_procfs_begin(procfs);
    assert_int_equal(sl_mon_proc_stat(proc, &stat_now), 0);
    sl_mon_proc_read(proc, &stat_now, &reading);
}

static void threads(unsigned count)
{
    char text[256];

    snprintf(text, sizeof(text),
             "4711 (train) S 1 1 1 0 -1 0 0 0 9 0 100 50 0 0 20 0 %u 0 300000 0\n", count);
    tree_put(text, "proc/4711/stat");
}

static void thread(int tid, uint64_t run_ms, unsigned slices, char state)
{
    char text[128];

    snprintf(text, sizeof(text), "%llu000000 5 %u\n", (unsigned long long)run_ms, slices);
    tree_put(text, "proc/4711/task/%d/schedstat", tid);
    snprintf(text, sizeof(text), "%d (t) %c 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0\n", tid,
             state);
    tree_put(text, "proc/4711/task/%d/stat", tid);
}

static const struct sl_mon_thread_reading *find(int tid)
{
    for (unsigned i = 0; i < reading.thread_count; i++)
        if (reading.threads[i].tid == tid)
            return &reading.threads[i];
    return NULL;
}

static void a_process_is_read_whole(void **state)
{
    (void)state;
    open_proc(4711);
    read_proc();
    assert_true(reading.has_sched);
    assert_int_equal(reading.thread_count, 1);
    assert_int_equal(reading.threads[0].tid, 4711);
    assert_int_equal(reading.threads[0].state, 'S');
    assert_int_equal(reading.threads[0].run_ns, 1000000);
    assert_int_equal(reading.threads[0].wait_ns, 2000);
    assert_int_equal(reading.threads[0].slices, 10);
    assert_int_equal(reading.cpu_ns, sl_mon_procfs_ticks_ns(150));
}

static void one_that_is_gone_or_a_zombie_says_so(void **state)
{
    (void)state;
    assert_int_equal(sl_mon_proc_open(procfs, 1, &proc), -ESRCH);
    open_proc(4711);
    tree_process(4711, "train", 'Z', 300000, "/");
    assert_int_equal(sl_mon_proc_stat(proc, &stat_now), -ESRCH);
    /* Its first thread has ended, and others go on. */
    tree_put("4711 (t) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 5 0\n", "proc/4711/stat");
    assert_int_equal(sl_mon_proc_stat(proc, &stat_now), 0);
    tree_remove("proc/4711");
    assert_int_equal(sl_mon_proc_stat(proc, &stat_now), -ESRCH);
}

static void the_busiest_threads_are_read(void **state)
{
    (void)state;
    threads(41);
    for (int i = 1; i <= 40; i++)
        thread(4711 + i, 10, 1, 'S');
    thread(4711, 5000, 1, 'S');
    open_proc(4711);
    for (unsigned i = 0; i < 30; i++) { /* within it they run */
        thread(4720, 10 + i * 500, 2 + i, 'R');
        thread(4745, 10 + i * 900, 2 + i, 'R');
        thread(4751, 10 + i * 100, 2 + i, 'R');
        read_proc();
    }
    assert_int_equal(reading.thread_count, SL_MON_PROCESS_THREADS);
    assert_int_equal(reading.threads[0].tid, 4711);
    assert_non_null(find(4720));
    assert_non_null(find(4745));
    assert_non_null(find(4751));
    for (unsigned i = 0; i < 30; i++) { /* another one does */
        thread(4730, 10 + i * 900, 2 + i, 'R');
        read_proc();
    }
    assert_non_null(find(4730));
}

static void a_thread_that_stands_still_shows_its_state(void **state)
{
    (void)state;
    threads(2);
    thread(4720, 900, 5, 'D');
    open_proc(4711);
    for (unsigned i = 0; i < 20; i++)
        read_proc();
    assert_non_null(find(4720));
    assert_int_equal(find(4720)->state, 'D');
    threads(10); /* others come, and run: it hangs, and stays */
    for (unsigned i = 0; i < 30; i++) {
        for (int k = 1; k < 8; k++)
            thread(4720 + k, 10 + (i * 100) * (unsigned)k, 2 + i, 'R');
        read_proc();
    }
    assert_non_null(find(4720));
    assert_non_null(find(4727));
    assert_non_null(find(4726));
    assert_null(find(4725));
    thread(4720, 901, 6, 'D');
    read_proc();
    assert_int_equal(find(4720)->state, 0); /* it has run: nobody asks */
    tree_remove("proc/4711/task/4720");
    read_proc();
    assert_null(find(4720));
}

static void many_threads_take_several_periods(void **state)
{
    (void)state;
    threads(200);
    for (int i = 1; i < 200; i++)
        thread(5000 + i, 10, 1, 'S');
    thread(5199, 5000, 1, 'S');
    open_proc(4711);
    unsigned periods = 0;

    do {
        read_proc();
        assert_true(++periods < 20);
    } while (find(5199) == NULL);
    assert_true(periods >= 4); /* 48 files in each */
}

static void no_scheduler_statistics_is_no_harm(void **state)
{
    (void)state;
    tree_remove("proc/4711/schedstat");
    open_proc(4711);
    read_proc();
    assert_false(reading.has_sched);
    assert_int_equal(reading.thread_count, 1);
}

/* ---- the real thing ---- */

static void *spin(void *arg)
{
    volatile unsigned long count = 0;
    const atomic_int *go = arg;

    while (atomic_load(go) != 0)
        count++;
    return NULL;
}

static void this_process_and_its_thread_are_found(void **state)
{
    atomic_int go = 1;
    struct sl_mon_procfs *real;
    struct sl_mon_proc *self;
    uint64_t before = 0, after = 0;
    pthread_t other;

    (void)state;
    assert_int_equal(sl_mon_procfs_open("/proc", &real), 0);
    assert_int_equal(sl_mon_proc_open(real, getpid(), &self), 0);
    assert_int_equal(pthread_create(&other, NULL, spin, &go), 0);
    for (unsigned i = 0; i < 30; i++) {
        const struct timespec pause = {.tv_nsec = 3000000};

        nanosleep(&pause, NULL);
        sl_mon_procfs_begin(real);
        assert_int_equal(sl_mon_proc_stat(self, &stat_now), 0);
        sl_mon_proc_read(self, &stat_now, &reading);
        if (reading.thread_count > 1 && before == 0)
            before = reading.threads[1].run_ns;
        else if (reading.thread_count > 1)
            after = reading.threads[1].run_ns;
    }
    atomic_store(&go, 0);
    pthread_join(other, NULL);
    sl_mon_proc_close(self);
    sl_mon_procfs_close(real);
    assert_true(reading.cpus > 0);
    if (!reading.has_sched) {
        print_message("no /proc/PID/schedstat: skipped\n");
        skip();
    }
    assert_true(after > before);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_process_is_read_whole),
        CASE(one_that_is_gone_or_a_zombie_says_so),
        CASE(the_busiest_threads_are_read),
        CASE(a_thread_that_stands_still_shows_its_state),
        CASE(many_threads_take_several_periods),
        CASE(no_scheduler_statistics_is_no_harm),
        CASE(this_process_and_its_thread_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
