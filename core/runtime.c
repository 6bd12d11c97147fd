/* SPDX-License-Identifier: Apache-2.0 */
/* The list of workers, and the progress thread. */
#include "core/runtime.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/fork.h"
#include "core/list.h"
#include "core/nap.h"
#include "core/worker.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* Far below the time to notice that a path is dead (half a second), and nothing to a processor
 * that computes. */
#define LOOK_NS (50 * SL_NS_PER_MS)
#define SPIN_NS (2 * SL_NS_PER_MS) /* without a move: after it the thread naps */
#define NAP_NS (50 * 1000)
#define TIMELY_NS (200 * 1000)          /* between timely passes while something moves */
#define ELSEWHERE_NS (1 * SL_NS_PER_MS) /* ... and while their owner is there itself */
#define TIMELY_PART 4                   /* of a core's time, at most one part for timely passes */

static struct {
    pthread_mutex_t lock; /* of all below; held during passes */
    pthread_cond_t wake;
    struct sl_node errands;
    unsigned count, paces[SL_PACE_STEADY + 1];
    uint64_t timely_ns; /* when the next timely pass is due; SL_NEVER: there is no such errand */
    bool runs, ends;
    pthread_t thread;
} run = {.lock = PTHREAD_MUTEX_INITIALIZER, .errands = {&run.errands, &run.errands}};

static pthread_mutex_t workers_lock = PTHREAD_MUTEX_INITIALIZER;
/* The first list has those that threads use, any of which may be the next. Workers of the
 * simulator's ranks, of which there may be thousands, stay with their rank: they are in the others,
 * by its hash. */
#define LISTS 1024
static struct sl_node workers[LISTS];

/* In a child: its parent's lists, maybe as another thread was changing them. Nothing reads them;
 * leak checkers see them here. */
static struct sl_node *parents[2] __attribute__((used));

static void forget_parents(void)
{
    parents[0] = workers[0].next;
    parents[1] = run.errands.next;
    memset(workers, 0, sizeof(workers));
    sl_list_init(&run.errands);
    pthread_mutex_init(&workers_lock, NULL);
    pthread_mutex_init(&run.lock, NULL);
    run.count = 0;
    memset(run.paces, 0, sizeof(run.paces));
    run.runs = run.ends = false;
    atomic_store(&sl_worker_count, 0);
}

/* ---- workers ---- */

/* With the lock: where those that have the home of this one are. */
static struct sl_node *list_of(const struct sl_worker *worker)
{
    uint64_t hash = (uintptr_t)worker->idle_arg * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    struct sl_node *list = &workers[worker->idle != NULL ? 1 + hash % (LISTS - 1) : 0];

    if (list->next == NULL)
        sl_list_init(list);
    return list;
}

void sl_runtime_add_worker(struct sl_worker *worker)
{
    sl_fork_on_child(forget_parents);
    pthread_mutex_lock(&workers_lock);
    sl_list_push_back(list_of(worker), &worker->link);
    pthread_mutex_unlock(&workers_lock);
    atomic_fetch_add(&sl_worker_count, 1);
}

void sl_runtime_remove_worker(struct sl_worker *worker)
{
    pthread_mutex_lock(&workers_lock);
    sl_list_remove(&worker->link);
    pthread_mutex_unlock(&workers_lock);
    atomic_fetch_sub(&sl_worker_count, 1);
}

/* Takes other for a pass, if it is this thread's and no thread is inside. */
static bool borrow(const struct sl_worker *worker, struct sl_worker *other)
{
    return other != worker &&
           atomic_load_explicit(&other->home, memory_order_relaxed) == sl_worker_home(worker) &&
           !other->threaded && atomic_load_explicit(&other->shared, memory_order_relaxed) &&
           sl_worker_try(other);
}

/* The list is not held while they are used: a pass can end in a tear-down, which may take its
 * time. */
unsigned sl_runtime_borrow(struct sl_worker *worker, struct sl_worker **out, unsigned cap)
{
    struct sl_node *list;
    unsigned count = 0;

    if (atomic_load_explicit(&sl_worker_count, memory_order_relaxed) < 2 ||
        pthread_mutex_trylock(&workers_lock) != 0)
        return 0;
    list = list_of(worker);
    sl_list_foreach(list, node)
    {
        struct sl_worker *other = sl_container_of(node, struct sl_worker, link);

        if (count < cap && borrow(worker, other))
            out[count++] = other;
    }
    /* Those beyond cap come first the next time. */
    if (count == cap) {
        sl_list_remove(&out[0]->link);
        sl_list_push_back(list, &out[0]->link);
    }
    pthread_mutex_unlock(&workers_lock);
    return count;
}

/* ---- the progress thread ---- */

static struct timespec at_time(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SL_NS_PER_S),
                             .tv_nsec = (long)(ns % SL_NS_PER_S)};
}

static unsigned pass_over(enum sl_pace pace)
{
    unsigned moved = 0;

    sl_list_foreach(&run.errands, node)
    {
        struct sl_errand *errand = sl_container_of(node, struct sl_errand, link);

        if (errand->pace == pace && !atomic_load(&errand->leaves))
            moved += errand->pass(errand);
    }
    return moved;
}

/* Of this thread: what it was kept from running does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * SL_NS_PER_S + (uint64_t)time.tv_nsec;
}

static void timely_pass(struct sl_errand *errand, uint64_t now_ns)
{
    unsigned moved = errand->pass(errand);

    if (moved != 0)
        errand->moved_ns = now_ns;
    errand->due_ns =
        now_ns + (moved == SL_PASS_ELSEWHERE ? ELSEWHERE_NS
                                             : sl_nap_ns(now_ns - errand->moved_ns, TIMELY_NS));
}

/* Those that are due. When to come back: not before the others had their part of the core. */
static uint64_t pass_over_timely(uint64_t now_ns)
{
    uint64_t start_ns = cpu_ns(), next_ns = SL_NEVER, least_ns;

    sl_list_foreach(&run.errands, node)
    {
        struct sl_errand *errand = sl_container_of(node, struct sl_errand, link);

        if (errand->pace != SL_PACE_TIMELY || atomic_load(&errand->leaves))
            continue;
        if (errand->due_ns <= now_ns)
            timely_pass(errand, now_ns);
        if (errand->due_ns < next_ns)
            next_ns = errand->due_ns;
    }
    least_ns = sl_now(&sl_clock_monotonic) + (TIMELY_PART - 1) * (cpu_ns() - start_ns);
    return next_ns < least_ns ? least_ns : next_ns;
}

/* Lets go of the lock until there is more to do. */
static void rest(uint64_t next_ns, uint64_t idle_ns)
{
    struct timespec until = at_time(next_ns);

    if (run.paces[SL_PACE_STEADY] == 0) {
        pthread_cond_timedwait(&run.wake, &run.lock, &until);
        return;
    }
    pthread_mutex_unlock(&run.lock);
    if (idle_ns > SPIN_NS)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    else
        sched_yield();
    pthread_mutex_lock(&run.lock);
}

static void *progress(void *arg)
{
    uint64_t now = sl_now(&sl_clock_monotonic), look_ns = now + LOOK_NS, moved_ns = now;

    (void)arg;
    pthread_mutex_lock(&run.lock);
    while (!run.ends) {
        rest(look_ns < run.timely_ns ? look_ns : run.timely_ns, now - moved_ns);
        if (run.ends)
            break;
        now = sl_now(&sl_clock_monotonic);
        if (run.paces[SL_PACE_STEADY] != 0 && pass_over(SL_PACE_STEADY) != 0)
            moved_ns = now;
        if (now >= run.timely_ns)
            run.timely_ns = pass_over_timely(now);
        if (now >= look_ns) {
            pass_over(SL_PACE_LOOK);
            look_ns = now + LOOK_NS;
        }
    }
    pthread_mutex_unlock(&run.lock);
    return NULL;
}

/* With the lock. */
static int start_thread(void)
{
    pthread_condattr_t attr;
    sigset_t all, before;
    int err;

    sl_fork_on_child(forget_parents);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&run.wake, &attr);
    pthread_condattr_destroy(&attr);
    run.ends = false;
    run.timely_ns = SL_NEVER;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&run.thread, NULL, progress, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0) {
        pthread_cond_destroy(&run.wake);
        return sl_fail(-err, "the progress thread could not be started: %s", sluice_strerror(-err));
    }
    run.runs = true;
    return 0;
}

/* With starting and stopping apart: two threads may attach and detach at once. */
static pthread_mutex_t change = PTHREAD_MUTEX_INITIALIZER;

int sl_runtime_attach(struct sl_errand *errand)
{
    int err = 0;

    pthread_mutex_lock(&change);
    pthread_mutex_lock(&run.lock);
    if (!run.runs)
        err = start_thread();
    errand->attached = err == 0;
    if (err == 0) {
        atomic_store(&errand->leaves, false);
        sl_list_push_back(&run.errands, &errand->link);
        run.count++;
        run.paces[errand->pace]++;
        errand->moved_ns = errand->due_ns = sl_now(&sl_clock_monotonic);
        if (errand->pace == SL_PACE_TIMELY)
            run.timely_ns = errand->due_ns;
        pthread_cond_signal(&run.wake);
    }
    pthread_mutex_unlock(&run.lock);
    pthread_mutex_unlock(&change);
    return err;
}

static void stop_thread(void)
{
    pthread_mutex_lock(&run.lock);
    run.ends = true;
    pthread_cond_signal(&run.wake);
    pthread_mutex_unlock(&run.lock);
    pthread_join(run.thread, NULL);
    pthread_cond_destroy(&run.wake);
    run.runs = false;
}

void sl_runtime_detach(struct sl_errand *errand)
{
    bool last;

    if (!errand->attached)
        return;
    errand->attached = false;
    atomic_store(&errand->leaves, true);
    pthread_mutex_lock(&change);
    pthread_mutex_lock(&run.lock);
    sl_list_remove(&errand->link);
    run.paces[errand->pace]--;
    last = --run.count == 0;
    pthread_mutex_unlock(&run.lock);
    if (last)
        stop_thread();
    pthread_mutex_unlock(&change);
}

/* Before the code that it runs is unloaded. */
static void __attribute__((destructor)) end_with_the_library(void)
{
    if (run.runs)
        stop_thread();
}
