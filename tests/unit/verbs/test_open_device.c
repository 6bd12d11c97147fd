/* SPDX-License-Identifier: Apache-2.0 */
/* A process has each device open once, and what the device reports reaches every interface. */
#include "tests/fake/fake_ibv.h"
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/memlock.h"
#include "verbs/verbs.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define IFACES 8

static struct fake_ibv *fake;
static struct sl_config config;
static struct sl_worker workers[IFACES];
static struct sl_verbs_iface *ifaces[IFACES];

/* The machine's own limit is not what is tested. */
bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);

bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    (void)more, (void)why, (void)cap;
    return true;
}

static int fresh(void **state)
{
    fake = fake_ibv_create(1);
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
    sl_config_defaults(&config);
    sl_verbs_config_edit(&config)->mp.staging_bytes = 1 << 20;
    memset(ifaces, 0, sizeof(ifaces));
    for (unsigned i = 0; i < IFACES; i++) {
        workers[i] = (struct sl_worker){.clock = &sl_clock_monotonic, .config = &config};
        sl_rng_init(&workers[i].rng, i + 1);
    }
    return 0;
}

static void close_one(unsigned i)
{
    if (ifaces[i] != NULL)
        sl_verbs_ops.close(&ifaces[i]->mp.base);
    ifaces[i] = NULL;
}

/* The last interface closes the devices. */
static int clean(void **state)
{
    for (unsigned i = 0; i < IFACES; i++)
        close_one(i);
    assert_null(fake_ibv_misuse(fake));
    assert_int_equal(fake_ibv_live(fake), 0);
    fake_ibv_destroy(fake);
    sl_ibv_replace(NULL, NULL);
    return 0;
}

static void add(const char *name, unsigned ports)
{
    struct fake_ibv_device params;

    fake_ibv_device_init(&params, name);
    params.attr.phys_port_cnt = (uint8_t)ports;
    fake_ibv_device_add(fake, &params);
}

static void open_one(unsigned i)
{
    struct sl_iface *iface = NULL;

    if (sl_verbs_ops.open(&workers[i], NULL, NULL, &iface) != 0)
        fail_msg("%s", sluice_last_error());
    ifaces[i] = sl_verbs_iface_of(iface);
}

static unsigned opens(void)
{
    return (unsigned)fake_ibv_calls(fake, FAKE_IBV_OPEN_DEVICE);
}

static void progress(unsigned i)
{
    assert_true(ifaces[i]->mp.base.ops->progress(&ifaces[i]->mp.base, 64) >= 0);
}

static bool is_usable(unsigned i)
{
    return ifaces[i]->rails[0].base.usable;
}

#define UNTIL(i, condition)                                                                        \
    do {                                                                                           \
        uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;                     \
                                                                                                   \
        while (!(condition) && sl_now(&sl_clock_monotonic) < deadline_ns)                          \
            progress(i);                                                                           \
        assert_true(condition);                                                                    \
    } while (0)

/* Would a thread that sleeps for this interface wake up? */
static bool is_rung(unsigned i)
{
    struct pollfd fd = {.fd = sl_verbs_ops.fd(&ifaces[i]->mp.base), .events = POLLIN};

    return poll(&fd, 1, 0) == 1;
}

static void eight_interfaces_open_a_device_as_often_as_one_does(void **state)
{
    add("a0", 1);
    add("b0", 2);
    for (unsigned i = 0; i < IFACES; i++) {
        open_one(i);
        assert_int_equal(ifaces[i]->mp.rail_count, 3);
        assert_int_equal(opens(), 2);
        assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_CONTEXT), 2);
        assert_int_equal(fake_ibv_calls(fake, FAKE_IBV_ALLOC_PD), 2);
        assert_ptr_equal(ifaces[i]->rails[0].device, ifaces[0]->rails[0].device);
        assert_ptr_equal(ifaces[i]->rails[1].device, ifaces[i]->rails[2].device);
    }
    close_one(0);
    assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_CONTEXT), 2);
}

static void a_device_that_nobody_uses_is_closed_and_opened_again(void **state)
{
    add("a0", 1);
    open_one(0);
    close_one(0);
    assert_int_equal(fake_ibv_live(fake), 0);
    open_one(0);
    assert_int_equal(opens(), 2);
}

static void devices_that_were_listed_only_are_closed(void **state)
{
    add("a0", 1);
    add("b0", 1);
    assert_int_equal(sl_config_set(&config, "VERBS_DEVICES", "b0"), 0);
    open_one(0);
    assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_CONTEXT), 1);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_DOWN);
    assert_true(sl_verbs_ops.open(&workers[1], NULL, NULL, &(struct sl_iface *){NULL}) != 0);
    assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_CONTEXT), 1);
}

static void a_port_event_that_one_reads_reaches_and_wakes_the_others(void **state)
{
    add("a0", 1);
    for (unsigned i = 0; i < IFACES; i++)
        open_one(i);
    for (unsigned i = 0; i < IFACES; i++)
        assert_false(is_rung(i));
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN);
    for (unsigned i = 0; i < IFACES; i++)
        assert_true(is_rung(i));
    UNTIL(0, !is_usable(0));
    assert_false(is_rung(0));
    for (unsigned i = 1; i < IFACES; i++) {
        assert_true(is_usable(i));
        assert_true(is_rung(i));
        UNTIL(i, !is_usable(i));
        assert_false(is_rung(i));
    }
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_ACTIVE);
    for (unsigned i = 0; i < IFACES; i++)
        UNTIL(i, is_usable(i));
}

static void each_port_hears_of_itself_alone(void **state)
{
    add("a0", 2);
    open_one(0);
    open_one(1);
    fake_ibv_port_set(fake, 0, 2, IBV_PORT_DOWN);
    UNTIL(0, ifaces[1]->rails[1].listener.count == 1);
    assert_int_equal(ifaces[1]->rails[0].listener.count, 0);
    for (unsigned i = 0; i < 2; i++) {
        UNTIL(i, !ifaces[i]->rails[1].base.usable);
        assert_true(ifaces[i]->rails[0].base.usable);
    }
}

static void an_error_of_one_interfaces_queue_is_that_interfaces_alone(void **state)
{
    add("a0", 1);
    open_one(0);
    open_one(1);
    fake_ibv_cq_error(fake, ifaces[1]->rails[0].cq);
    UNTIL(0, ifaces[1]->rails[0].listener.count == 1);
    UNTIL(1, !is_usable(1));
    assert_true(is_usable(0));
}

static void a_port_that_flaps_while_nobody_listens_says_so_once(void **state)
{
    add("a0", 1);
    open_one(0);
    open_one(1);
    for (unsigned i = 0; i < 20; i++) {
        fake_ibv_port_set(fake, 0, 1, i % 2 == 0 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
        UNTIL(0, is_usable(0) == (i % 2 != 0));
    }
    assert_int_equal(ifaces[1]->rails[0].listener.count, 2);
    assert_false(ifaces[1]->rails[0].listener.overflowed);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN);
    UNTIL(1, !is_usable(1));
}

static void a_device_that_failed_is_opened_anew_beside_the_dead_one(void **state)
{
    add("a0", 1);
    open_one(0);
    fake_ibv_device_fatal(fake, 0);
    UNTIL(0, !is_usable(0));
    open_one(1);
    assert_int_equal(opens(), 2);
    assert_true(ifaces[0]->rails[0].device != ifaces[1]->rails[0].device);
    open_one(2);
    assert_int_equal(opens(), 2);
    close_one(0);
    assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_CONTEXT), 1);
}

static void a_device_that_was_pulled_and_is_back_is_opened_anew(void **state)
{
    add("a0", 1);
    open_one(0);
    fake_ibv_device_remove(fake, 0);
    fake_ibv_device_return(fake, 0);
    open_one(1); /* before anybody read of it */
    assert_int_equal(opens(), 2);
    assert_true(is_usable(1));
}

static void a_device_that_gives_no_domain_leaves_nothing(void **state)
{
    add("a0", 1);
    fake_ibv_fail(fake, FAKE_IBV_ALLOC_PD, 2, ENOMEM);
    fake_ibv_table(fake)->ibv_reg_dmabuf_mr = NULL;
    open_one(0);
    close_one(0);
    assert_true(sl_verbs_ops.open(&workers[0], NULL, NULL, &(struct sl_iface *){NULL}) != 0);
    assert_non_null(strstr(sluice_last_error(), "a0 gives no protection domain"));
}

/* In the child: 0, or the number of what is wrong. */
static int child(void)
{
    struct sl_iface *iface;
    unsigned before = opens();

    if (sl_verbs_ops.open(&workers[1], NULL, NULL, &iface) != 0)
        return 1;
    if (opens() != before + 1)
        return 2;
    if (sl_verbs_iface_of(iface)->rails[0].device == ifaces[0]->rails[0].device)
        return 3;
    sl_verbs_ops.close(iface);
    /* The parent's are untouched. */
    return fake_ibv_live_of(fake, FAKE_IBV_CONTEXT) == 1 ? 0 : 4;
}

static void a_child_opens_its_own(void **state)
{
    int status;

    add("a0", 1);
    open_one(0);
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(child());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    open_one(1);
    assert_int_equal(opens(), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(eight_interfaces_open_a_device_as_often_as_one_does),
        CASE(a_device_that_nobody_uses_is_closed_and_opened_again),
        CASE(devices_that_were_listed_only_are_closed),
        CASE(a_port_event_that_one_reads_reaches_and_wakes_the_others),
        CASE(each_port_hears_of_itself_alone),
        CASE(an_error_of_one_interfaces_queue_is_that_interfaces_alone),
        CASE(a_port_that_flaps_while_nobody_listens_says_so_once),
        CASE(a_device_that_failed_is_opened_anew_beside_the_dead_one),
        CASE(a_device_that_was_pulled_and_is_back_is_opened_anew),
        CASE(a_device_that_gives_no_domain_leaves_nothing),
        CASE(a_child_opens_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
