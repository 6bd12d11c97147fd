/* SPDX-License-Identifier: Apache-2.0 */
/* Transports that have to answer in time: the progress thread moves them while their owner
 * computes, soon after something came, with a bounded part of a core, and not beside an owner that
 * moves them itself. Upper bounds hold on any machine; lower ones leave room for a loaded one. */
#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/list.h"
#include "core/nap.h"
#include "core/runtime.h"
#include "core/transport.h"
#include "core/worker.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t now(void)
{
    return sl_now(&sl_clock_monotonic);
}

static uint64_t cpu_of(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * SL_NS_PER_S + (uint64_t)time.tv_nsec;
}

/* ---- errands ---- */

struct watched {
    _Atomic unsigned passes, moves; /* moves: what each pass says from here on */
    _Atomic uint64_t burns_ns;      /* of its core, in each pass */
    struct sl_errand errand;
};

static unsigned pass(struct sl_errand *errand)
{
    struct watched *w = sl_container_of(errand, struct watched, errand);
    uint64_t end = cpu_of(CLOCK_THREAD_CPUTIME_ID) + atomic_load(&w->burns_ns);

    while (atomic_load(&w->burns_ns) != 0 && cpu_of(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
    atomic_fetch_add(&w->passes, 1);
    return atomic_load(&w->moves);
}

/* How many passes there were meanwhile, and how long it was. */
static unsigned watch(struct watched *w, uint64_t for_ns, uint64_t *took_ns)
{
    unsigned before = atomic_load(&w->passes);
    uint64_t start = now();

    usleep((useconds_t)(for_ns / 1000));
    unsigned passes = atomic_load(&w->passes) - before;

    *took_ns = now() - start;
    return passes;
}

static void passes_come_often_while_something_moves_and_seldom_afterwards(void **state)
{
    struct watched w = {.moves = 1, .errand = {.pace = SL_PACE_TIMELY, .pass = pass}};
    uint64_t took;
    unsigned passes;

    (void)state;
    assert_int_equal(sl_runtime_attach(&w.errand), 0);
    passes = watch(&w, 100 * SL_NS_PER_MS, &took);
    assert_in_range(passes, 10, took / (200 * 1000) + 2);
    atomic_store(&w.moves, 0);
    usleep(100 * 1000); /* from 200 us on by an eighth each time: long enough for 2 ms */
    passes = watch(&w, 200 * SL_NS_PER_MS, &took);
    assert_in_range(passes, 5, took / (2 * SL_NS_PER_MS) + 2);
    atomic_store(&w.moves, SL_PASS_ELSEWHERE);
    passes = watch(&w, 100 * SL_NS_PER_MS, &took);
    assert_in_range(passes, 5, took / SL_NS_PER_MS + 2);
    sl_runtime_detach(&w.errand);
}

static void all_of_them_together_get_a_quarter_of_a_core_at_most(void **state)
{
    struct watched w[2] = {
        {.moves = 1, .burns_ns = SL_NS_PER_MS, .errand = {.pace = SL_PACE_TIMELY, .pass = pass}},
        {.moves = 1, .burns_ns = SL_NS_PER_MS, .errand = {.pace = SL_PACE_TIMELY, .pass = pass}}};
    uint64_t took;
    unsigned passes;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sl_runtime_attach(&w[i].errand), 0);
    passes = watch(&w[0], 400 * SL_NS_PER_MS, &took);
    assert_in_range(passes, 5, took / (8 * SL_NS_PER_MS) + 2);
    assert_true(atomic_load(&w[1].passes) + 2 >= passes);
    for (int i = 0; i < 2; i++)
        sl_runtime_detach(&w[i].errand);
}

/* ---- workers ---- */

/* What a peer has sent waits for an answer. */
static _Atomic uint64_t asked_ns;
static _Atomic unsigned answers, by_owner, by_thread;
static uint64_t worst_ns, sum_ns;
static uint64_t owner_ns,
    closest_ns; /* the owner's last pass; the least from one to the thread's */
static _Thread_local bool is_owner;

static int progress(struct sl_iface *iface, unsigned budget)
{
    uint64_t asked = atomic_exchange(&asked_ns, 0);

    (void)iface, (void)budget;
    atomic_fetch_add(is_owner ? &by_owner : &by_thread, 1);
    if (is_owner)
        owner_ns = now();
    else if (now() - owner_ns < closest_ns)
        closest_ns = now() - owner_ns;
    if (asked == 0)
        return 0;
    uint64_t late = now() - asked;

    worst_ns = late > worst_ns ? late : worst_ns;
    sum_ns += late;
    atomic_fetch_add(&answers, 1);
    return 1;
}

static void close_iface(struct sl_iface *iface)
{
    (void)iface;
}

static const struct sl_transport_ops wire_ops = {.progress = progress, .close = close_iface};

static unsigned no_move(struct sl_member *member)
{
    (void)member;
    return 0;
}

/* As while ranks meet: its member has not joined. */
static struct sl_worker *worker_made(struct sl_iface *iface, struct sl_member *member)
{
    struct sl_config config;
    struct sl_worker *worker;

    sl_config_defaults(&config);
    worker = sl_worker_new(&config);
    assert_non_null(worker);
    worker->clock = &sl_clock_monotonic;
    *iface = (struct sl_iface){.ops = &wire_ops, .worker = worker, .caps = SL_CAP_TIMELY};
    worker->slots[0] = (struct sl_iface_slot){.ops = &wire_ops, .iface = iface};
    worker->slot_count = 1;
    member->move = no_move;
    is_owner = true;
    asked_ns = 0;
    answers = by_owner = by_thread = 0;
    worst_ns = sum_ns = owner_ns = 0;
    closest_ns = SL_NEVER;
    return worker;
}

static struct sl_worker *worker_with(struct sl_iface *iface, struct sl_member *member)
{
    struct sl_worker *worker = worker_made(iface, member);

    assert_int_equal(sl_worker_join(worker, member), 0);
    sl_worker_exit(worker);
    return worker;
}

static void worker_end(struct sl_worker *worker, struct sl_member *member)
{
    sl_worker_enter(worker);
    sl_worker_leave(worker, member);
    sl_worker_exit(worker);
    sl_worker_put(worker);
}

/* Computes for 400 ms, while a message comes every 20 ms. */
static void a_peer_is_answered_soon_while_the_rank_computes(void **state)
{
    struct sl_member member = {0};
    struct sl_iface iface;
    struct sl_worker *worker = worker_with(&iface, &member);
    uint64_t start = now(), own = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    uint64_t all = cpu_of(CLOCK_PROCESS_CPUTIME_ID), next = start;
    unsigned asked = 0;

    (void)state;
    while (now() < start + 400 * SL_NS_PER_MS || atomic_load(&asked_ns) != 0) {
        if (now() < next || atomic_load(&asked_ns) != 0 || asked == 20)
            continue;
        next = now() + 20 * SL_NS_PER_MS;
        atomic_store(&asked_ns, now());
        asked++;
    }
    uint64_t took = now() - start;
    uint64_t thread = cpu_of(CLOCK_PROCESS_CPUTIME_ID) - all;

    thread -= cpu_of(CLOCK_THREAD_CPUTIME_ID) - own;
    worker_end(worker, &member);
    assert_int_equal(answers, asked);
    assert_int_equal(by_owner, 0);
    printf("# %u messages answered after %llu us on the mean, %llu us at most, by %llu permille of "
           "a core\n",
           asked, (unsigned long long)(sum_ns / asked / 1000),
           (unsigned long long)(worst_ns / 1000), (unsigned long long)(1000 * thread / took));
    assert_true(sum_ns / asked < 20 * SL_NS_PER_MS);
    assert_true(thread < took / 4 + 5 * SL_NS_PER_MS);
}

/* The owner waits for all ranks, which moves nothing; then it goes on by itself. */
static void expect_lent(struct sl_worker *worker)
{
    unsigned before = atomic_load(&answers), passes;

    sl_worker_lend(worker);
    atomic_store(&asked_ns, now());
    for (uint64_t end = now() + 10 * SL_NS_PER_S; now() < end && atomic_load(&answers) == before;)
        usleep(100);
    assert_int_equal(atomic_load(&answers), before + 1);
    sl_worker_take_back(worker);
    passes = atomic_load(&by_thread);
    usleep(50 * 1000);
    assert_int_equal(atomic_load(&by_thread), passes);
}

static void a_peer_is_answered_while_ranks_meet(void **state)
{
    struct sl_member member = {0};
    struct sl_iface iface;
    struct sl_worker *worker = worker_made(&iface, &member);

    (void)state;
    expect_lent(worker);
    expect_lent(worker);
    assert_int_equal(sl_worker_join(worker, &member), 0);
    sl_worker_exit(worker);
    atomic_store(&asked_ns, now());
    for (uint64_t end = now() + 10 * SL_NS_PER_S; now() < end && atomic_load(&answers) < 3;)
        usleep(100);
    assert_int_equal(atomic_load(&answers), 3);
    assert_int_equal(by_owner, 0);
    worker_end(worker, &member);
}

static void ranks_that_do_not_meet_leave_no_thread(void **state)
{
    struct sl_member member = {0};
    struct sl_iface iface;
    struct sl_worker *worker = worker_made(&iface, &member);

    (void)state;
    expect_lent(worker);
    assert_true(worker->timely.attached);
    sl_worker_close(worker);
    assert_false(worker->timely.attached);
    sl_worker_put(worker);
}

static void an_owner_that_moves_its_transports_itself_is_left_alone(void **state)
{
    struct sl_member member = {0};
    struct sl_iface iface;
    struct sl_worker *worker = worker_with(&iface, &member);

    (void)state;
    for (uint64_t end = now() + 100 * SL_NS_PER_MS; now() < end;) {
        sl_worker_enter(worker);
        sl_worker_move_ifaces(worker, 0);
        sl_worker_exit(worker);
    }
    /* Where this thread is kept from its core for so long, the other one may come. */
    assert_true(closest_ns >= 200 * 1000);
    worker_end(worker, &member);
}

/* As one that sleeps in a call does: a pass every 2 ms, which moves nothing. */
static void an_owner_that_sleeps_does_not_keep_the_thread_awake(void **state)
{
    struct sl_member member = {0};
    struct sl_iface iface;
    struct sl_worker *worker = worker_with(&iface, &member);
    uint64_t start;
    unsigned before = 0;

    (void)state;
    start = now();
    for (uint64_t silent_ns = 0; silent_ns < 700 * SL_NS_PER_MS; silent_ns = now() - start) {
        if (before == 0 && silent_ns > 400 * SL_NS_PER_MS)
            before = 1 + by_thread; /* from here on naps are 5 ms long */
        sl_worker_enter(worker);
        sl_worker_move_ifaces(worker, 0);
        sl_worker_exit(worker);
        usleep(2000);
    }
    /* It is late now and then, and the thread's turn comes. */
    assert_true(1 + by_thread - before < 150);
    worker_end(worker, &member);
}

/* ---- naps ---- */

static void a_nap_is_an_eighth_of_the_silence_and_its_timer_ends_it(void **state)
{
    struct sl_nap nap;
    struct pollfd fd;

    (void)state;
    assert_int_equal(sl_nap_open(&nap, now()), 0);
    fd = (struct pollfd){.fd = nap.fd, .events = POLLIN};
    assert_int_equal(sl_nap_begin(&nap, nap.moved_ns), SL_NAP_LEAST_NS);
    assert_int_equal(poll(&fd, 1, 10000), 1);
    sl_nap_end(&nap);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(sl_nap_begin(&nap, nap.moved_ns + 8 * SL_NS_PER_MS), SL_NS_PER_MS);
    assert_int_equal(sl_nap_begin(&nap, nap.moved_ns + 100 * SL_NS_PER_MS), SL_NAP_SOON_NS);
    assert_int_equal(sl_nap_begin(&nap, nap.moved_ns + 192 * SL_NS_PER_MS), 3 * SL_NS_PER_MS);
    assert_int_equal(sl_nap_begin(&nap, nap.moved_ns + SL_NS_PER_S), SL_NAP_MOST_NS);
    sl_nap_moved(&nap, nap.moved_ns + SL_NS_PER_S);
    assert_int_equal(sl_nap_begin(&nap, nap.moved_ns), SL_NAP_LEAST_NS);
    sl_nap_close(&nap);
    assert_int_equal(nap.fd, -1);
    sl_nap_close(&nap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_come_often_while_something_moves_and_seldom_afterwards),
        cmocka_unit_test(all_of_them_together_get_a_quarter_of_a_core_at_most),
        cmocka_unit_test(a_peer_is_answered_soon_while_the_rank_computes),
        cmocka_unit_test(a_peer_is_answered_while_ranks_meet),
        cmocka_unit_test(ranks_that_do_not_meet_leave_no_thread),
        cmocka_unit_test(an_owner_that_moves_its_transports_itself_is_left_alone),
        cmocka_unit_test(an_owner_that_sleeps_does_not_keep_the_thread_awake),
        cmocka_unit_test(a_nap_is_an_eighth_of_the_silence_and_its_timer_ends_it),
    };

    return cmocka_run_group_tests_name("timely", tests, NULL, NULL);
}
