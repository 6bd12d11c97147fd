/* SPDX-License-Identifier: Apache-2.0 */
/* Who is inside of a worker, on a machine with weak memory (machine.h): one at a time, whoever
 * calls, waits, borrows or is the progress thread. */
#include "tests/model/story.h"

#include "core/list.h"
#include "core/worker.h"

static struct sl_worker workers[2];
static struct sl_member members[2];
static uint64_t *const guarded = (void *)model_shared;
static char one_thread, another_thread;

/* What a pass over a worker touches. */
static unsigned touch(struct sl_member *member)
{
    (void)member;
    ++*guarded;
    return 0;
}

static void look(struct sl_member *member, unsigned moved)
{
    (void)member, (void)moved;
}

static void no_idle(struct sl_worker *worker)
{
    (void)worker;
}

static void fresh(unsigned i)
{
    workers[i] = (struct sl_worker){.idle = no_idle, .idle_arg = &one_thread, .wake_fd = -1};
    members[i] = (struct sl_member){.move = touch, .look = look};
    sl_list_init(&workers[i].members);
    sl_list_push_back(&workers[i].members, &members[i].link);
    workers[i].member_count = 1;
}

static void call(void)
{
    sl_worker_enter(workers);
    ++*guarded;
    sl_worker_exit(workers);
}

static void caller(void)
{
    call();
    call();
}

/* A call that waits lets others in. */
static void waiter(void)
{
    sl_worker_enter(workers);
    ++*guarded;
    sl_worker_step_aside(workers);
    ++*guarded;
    sl_worker_exit(workers);
}

static void progress_thread(void)
{
    sl_worker_pass(workers);
    sl_worker_pass(workers);
}

static void shared_begin(void)
{
    fresh(0);
    workers[0].threaded = true;
    atomic_store(&workers[0].shared, true);
}

/* One thread has called both workers, the second of which is no more. */
static void only_begin(void)
{
    for (unsigned i = 0; i < 2; i++) {
        fresh(i);
        sl_runtime_add_worker(&workers[i]);
    }
    call();
    sl_runtime_remove_worker(&workers[1]);
}

/* It makes another one, and waits there. */
static void maker(void)
{
    atomic_fetch_add(&sl_worker_count, 1);
    sl_worker_move_others(&workers[1], &members[1]);
    atomic_fetch_sub(&sl_worker_count, 1);
}

static void other_caller(void)
{
    workers[0].idle_arg = &another_thread;
    call();
}

static void only_end(void)
{
    sl_runtime_remove_worker(&workers[0]);
}

static void one_at_a_time_is_inside(void **state)
{
    static const struct model_story thread = {
        shared_begin, {caller, progress_thread, caller}, NULL};
    static const struct model_story aside = {shared_begin, {waiter, caller, waiter}, NULL};
    static const struct model_story only = {only_begin, {maker, other_caller}, only_end};

    (void)state;
    run_story(&thread, 4, 60000);
    run_story(&aside, 4, 60000);
    run_story(&only, 4, 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time_is_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
