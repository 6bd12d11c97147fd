/* SPDX-License-Identifier: Apache-2.0 */
/* Going to sleep: the barrier that makes every publisher see the sleeper, or be seen by it. */
#include "tests/unit/shm/side.h"

#include <linux/membarrier.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct side sleeper, sender;
static unsigned barriers;
static bool says,
    refuses; /* the sender publishes during the barrier; the kernel has no such call */
static uint32_t asleep_at_barrier;
static struct sl_req req; /* of the sleeper's receive, which may outlive a case that fails */
static struct sl_sink sink;
static char got[5];

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

/* The six arguments of any system call, as they come. */
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    static struct sl_req sent;

    if (number != SYS_membarrier || a != MEMBARRIER_CMD_GLOBAL_EXPEDITED)
        return __real_syscall(number, a, b, c, d, e, f);
    barriers++;
    asleep_at_barrier = atomic_load(&shm_iface_of(sleeper.iface)->page->asleep);
    if (says) {
        int woken = inside(&sender)->peer_event;

        inside(&sender)->peer_event = -1; /* it has read the word before: nobody is woken */
        assert_int_equal(side_send(&sender, "hello", 5, 1, &sent), 1);
        inside(&sender)->peer_event = woken;
    }
    if (refuses) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static int fresh(void **state)
{
    (void)state;
    side_open(&sleeper);
    side_open(&sender);
    sides_connect(&sleeper, &sender);
    /* What connecting left to do is done. */
    for (int i = 0; i < 2000; i++) {
        sl_shm_ops.progress(sleeper.iface, 64);
        sl_shm_ops.progress(sender.iface, 64);
    }
    barriers = 0;
    says = refuses = false;
    req = (struct sl_req){0};
    return 0;
}

static int clean(void **state)
{
    (void)state;
    side_close(&sleeper);
    side_close(&sender);
    return 0;
}

static void the_word_is_set_before_the_barrier(void **state)
{
    (void)state;
    if (!shm_iface_of(sleeper.iface)->barrier) {
        print_message("no membarrier here\n");
        skip();
    }
    assert_int_equal(shm_arm(sleeper.iface), 0);
    assert_int_equal(barriers, 1);
    assert_int_not_equal(asleep_at_barrier, 0);
    shm_disarm(sleeper.iface);
    assert_int_equal(atomic_load(&shm_iface_of(sleeper.iface)->page->asleep), 0);
}

static void what_is_published_during_the_barrier_keeps_it_awake(void **state)
{
    (void)state;
    if (!shm_iface_of(sleeper.iface)->barrier) {
        print_message("no membarrier here\n");
        skip();
    }
    assert_int_equal(side_recv(&sleeper, &sink, got, sizeof(got), 1, &req), 0);
    says = true;
    assert_int_equal(shm_arm(sleeper.iface), -EAGAIN);
    says = false;
    PUMP(&sleeper, NULL, req.status != SL_PENDING);
    assert_memory_equal(got, "hello", 5);
}

/* Then a timer bounds what a wake-up that is lost may cost. */
static void without_the_barrier_a_timer_wakes(void **state)
{
    struct pollfd poll_fd = {.fd = shm_fd(sleeper.iface), .events = POLLIN};
    (void)state;
    assert_int_equal(side_recv(&sleeper, &sink, got, sizeof(got), 1, &req), 0);
    refuses = true;
    assert_int_equal(shm_arm(sleeper.iface), 0);
    assert_int_equal(poll(&poll_fd, 1, 10000), 1);
    shm_disarm(sleeper.iface);
}

/* How often the sleeper was woken since the last look. */
static uint64_t wakes(void)
{
    uint64_t count = 0;

    return eventfd_read(shm_iface_of(sleeper.iface)->event.fd, &count) == 0 ? count : 0;
}

/* A system call per message, while the peer is on its way out of bed, would be the price of many
 * small ones. */
static void a_sleeper_is_woken_once_per_sleep(void **state)
{
    static struct sl_req sent;

    (void)state;
    wakes();
    for (int sleep = 0; sleep < 3; sleep++) {
        if (sleep == 2) /* the number starts again, past the 0 that says awake */
            shm_iface_of(sleeper.iface)->sleeps = UINT32_MAX;
        assert_int_equal(shm_arm(sleeper.iface), 0);
        assert_int_not_equal(atomic_load(&shm_iface_of(sleeper.iface)->page->asleep), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(side_send(&sender, "hello", 5, 1, &sent), 1);
        assert_int_equal(wakes(), 1);
        shm_disarm(sleeper.iface);
        assert_int_equal(side_send(&sender, "hello", 5, 1, &sent), 1);
        assert_int_equal(wakes(), 0);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {CASE(the_word_is_set_before_the_barrier),
                                       CASE(what_is_published_during_the_barrier_keeps_it_awake),
                                       CASE(without_the_barrier_a_timer_wakes),
                                       CASE(a_sleeper_is_woken_once_per_sleep)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
