/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that returns, in real time: a thread registers what users have registered, while they
 * take memory back and register more. The device takes as long as a case wants it to.
 *
 * The fake has one caller at a time: the owner has its lock while it calls, the thread for its own
 * calls. No call of the owner may wait for the thread: it would have to wait here for ever.
 */
#include "tests/fake/fake_ibv.h"
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/memlock.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PAGE 4096
#define PAGES 8
#define LIMIT_NS (20 * SL_NS_PER_S)

static struct fake_ibv *fake;
static struct sl_config config;
static struct sl_worker worker;
static struct sl_iface *iface;
static uint8_t *bytes;
static struct sl_mr *mrs[PAGES];

static pthread_t owner;
static pthread_mutex_t fake_lock;
/* The gate that the thread's registrations wait at, in their order. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned came, admitted;
    void *at[PAGES + 1]; /* addresses of those that came */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

/* The machine's own limit is not what is tested. */
bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    (void)more, (void)why, (void)cap;
    return true;
}

static void admit(unsigned count)
{
    pthread_mutex_lock(&gate.lock);
    gate.admitted = count;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.lock);
}

static unsigned came(void)
{
    pthread_mutex_lock(&gate.lock);
    unsigned count = gate.came;

    pthread_mutex_unlock(&gate.lock);
    return count;
}

/* Who waits for a thread has said all that it has to say: what it is at ends now. */
int __wrap_pthread_join(pthread_t thread, void **result)
{
    admit(PAGES);
    return __real_pthread_join(thread, result);
}

static struct ibv_mr *(*fake_reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);

static struct ibv_mr *slow_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    if (!pthread_equal(pthread_self(), owner)) {
        pthread_mutex_lock(&gate.lock);
        unsigned turn = gate.came++;

        gate.at[turn % SL_ARRAY_LEN(gate.at)] = addr;
        while (turn >= gate.admitted)
            pthread_cond_wait(&gate.moved, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
    }
    pthread_mutex_lock(&fake_lock);
    struct ibv_mr *mr = fake_reg_mr(pd, addr, len, access);

    pthread_mutex_unlock(&fake_lock);
    return mr;
}

static struct sl_verbs_rail *rail(void)
{
    return &sl_verbs_iface_of(iface)->rails[0];
}

static void progress(void)
{
    pthread_mutex_lock(&fake_lock);
    fake_ibv_run(fake, 2);
    assert_true(iface->ops->progress(iface, 64) >= 0);
    pthread_mutex_unlock(&fake_lock);
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t limit_ns = sl_now(&sl_clock_monotonic) + LIMIT_NS;                                \
                                                                                                   \
        while (!(condition)) {                                                                     \
            if (sl_now(&sl_clock_monotonic) > limit_ns)                                            \
                fail_msg("in time: %s", #condition);                                               \
            progress();                                                                            \
        }                                                                                          \
    } while (0)

static void reg(unsigned page)
{
    struct sl_mem mem = {.addr = bytes + page * PAGE, .len = PAGE, .kind = SL_MEM_HOST, .fd = -1};

    pthread_mutex_lock(&fake_lock);
    if (sl_verbs_ops.mr_reg(iface, &mem, &mrs[page], NULL) != 0)
        fail_msg("%s", sluice_last_error());
    pthread_mutex_unlock(&fake_lock);
}

static void dereg(unsigned page)
{
    pthread_mutex_lock(&fake_lock);
    sl_verbs_ops.mr_dereg(iface, mrs[page]);
    pthread_mutex_unlock(&fake_lock);
    mrs[page] = NULL;
}

/* Of the rail; NULL: nothing. */
static struct ibv_mr *claimed(unsigned page)
{
    const struct sl_verbs_mr *mr = ((const struct sl_mem_region *)mrs[page])->handle;

    return mr->claims[0].mr;
}

static void returns(void)
{
    pthread_mutex_lock(&fake_lock);
    fake_ibv_device_remove(fake, 0);
    pthread_mutex_unlock(&fake_lock);
    UNTIL(rail()->is_lost);
    pthread_mutex_lock(&fake_lock);
    fake_ibv_device_return(fake, 0);
    pthread_mutex_unlock(&fake_lock);
}

/* All pages are registered, and the device is back; its thread is at the page, counted from 0. */
static void returns_as_far_as(unsigned page)
{
    admit(page);
    returns();
    UNTIL(came() == page + 1);
    assert_false(rail()->base.usable);
}

static void is_usable_at_last(void)
{
    admit(PAGES + 1);
    UNTIL(rail()->base.usable);
    for (unsigned i = 0; i < PAGES; i++)
        if (mrs[i] != NULL) {
            assert_non_null(claimed(i));
            assert_ptr_equal(claimed(i)->addr, bytes + i * PAGE);
            assert_ptr_equal(claimed(i)->context, rail()->device->context);
        }
}

static int fresh(void **state)
{
    struct fake_ibv_device params;
    pthread_mutexattr_t again;

    (void)state;
    owner = pthread_self();
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&fake_lock, &again);
    gate.came = gate.admitted = 0;
    fake = fake_ibv_create(1);
    fake_ibv_device_init(&params, "a0");
    fake_ibv_device_add(fake, &params);
    fake_reg_mr = fake_ibv_table(fake)->ibv_reg_mr;
    fake_ibv_table(fake)->ibv_reg_mr = slow_reg_mr;
    fake_ibv_table(fake)->ibv_reg_mr_iova2 = NULL;
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
    bytes = aligned_alloc(PAGE, PAGES * PAGE);
    sl_config_defaults(&config);
    sl_verbs_config_edit(&config)->mp.staging_bytes = 1 << 20;
    worker = (struct sl_worker){.clock = &sl_clock_monotonic, .config = &config};
    sl_rng_init(&worker.rng, 1);
    if (sl_verbs_ops.open(&worker, NULL, NULL, &iface) != 0)
        fail_msg("%s", sluice_last_error());
    for (unsigned i = 0; i < PAGES; i++)
        reg(i);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PAGES && iface != NULL; i++)
        if (mrs[i] != NULL)
            dereg(i);
    if (iface != NULL)
        sl_verbs_ops.close(iface);
    iface = NULL;
    if (fake_ibv_misuse(fake) != NULL)
        fail_msg("%s", fake_ibv_misuse(fake));
    assert_int_equal(fake_ibv_live(fake), 0);
    fake_ibv_destroy(fake);
    sl_ibv_replace(NULL, NULL);
    pthread_mutex_destroy(&fake_lock);
    free(bytes);
    return 0;
}

static void what_the_thread_registers_is_what_is_used(void **state)
{
    (void)state;
    returns_as_far_as(PAGES - 1);
    uint64_t before = fake_ibv_calls(fake, FAKE_IBV_REG_MR);

    is_usable_at_last();
    assert_int_equal(fake_ibv_calls(fake, FAKE_IBV_REG_MR) - before, 3); /* and two pools */
    assert_int_equal(came(), PAGES);
}

/* Other memory lies there by then. */
static void memory_taken_back_meanwhile_is_never_found_again(void **state)
{
    static const unsigned again[] = {0, 3, 6};
    unsigned before;

    (void)state;
    returns_as_far_as(3); /* one is registered, one about to be, one not yet */
    before = fake_ibv_live_of(fake, FAKE_IBV_MR);
    for (unsigned i = 0; i < SL_ARRAY_LEN(again); i++) {
        dereg(again[i]);
        reg(again[i]);
    }
    is_usable_at_last();
    for (unsigned i = 0; i < came(); i++)
        assert_ptr_not_equal(gate.at[i], bytes + 6 * PAGE);
    /* Five by the thread, three by their new users, and two pools; none is left of those that
     * were taken back. */
    assert_int_equal(fake_ibv_live_of(fake, FAKE_IBV_MR) - before, PAGES - 3 + 2);
}

static void memory_taken_back_for_good_leaves_nothing(void **state)
{
    (void)state;
    returns_as_far_as(PAGES - 1);
    for (unsigned i = 0; i < PAGES; i++)
        dereg(i);
    unsigned before = fake_ibv_live_of(fake, FAKE_IBV_MR);

    is_usable_at_last();
    assert_int_equal(before - fake_ibv_live_of(fake, FAKE_IBV_MR), PAGES - 1 - 2);
}

/* No call waits for what the device is at: the gate is shut. */
static void memory_registered_meanwhile_waits_for_nobody_and_comes_along(void **state)
{
    (void)state;
    dereg(5);
    admit(0);
    returns();
    UNTIL(came() == 1);
    reg(5);
    assert_null(claimed(5));
    pthread_mutex_lock(&fake_lock);
    assert_int_equal(sl_verbs_ops.mem_gone(iface, bytes + 5 * PAGE + 100, 1), 1);
    pthread_mutex_unlock(&fake_lock);
    dereg(5);
    reg(5);
    is_usable_at_last();
}

/* Its user has said so, and forgot to deregister it: no device could register it any more. */
static void memory_that_is_gone_keeps_no_device_out(void **state)
{
    static const unsigned gone[] = {2, 6}; /* before, and while the thread is at another one */

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(gone); i++) {
        if (i == 1)
            returns_as_far_as(4);
        pthread_mutex_lock(&fake_lock);
        assert_int_equal(sl_verbs_ops.mem_gone(iface, bytes + gone[i] * PAGE, 1), 1);
        pthread_mutex_unlock(&fake_lock);
    }
    admit(PAGES);
    UNTIL(rail()->base.usable);
    assert_int_equal(came(), PAGES - 2);
    for (unsigned i = 0; i < SL_ARRAY_LEN(gone); i++) {
        assert_null(claimed(gone[i]));
        dereg(gone[i]);
    }
    is_usable_at_last();
}

/* What was begun is waited for, and nothing else: gigabytes take seconds. */
static void closing_waits_for_one_registration_at_most(void **state)
{
    (void)state;
    returns_as_far_as(2);
    sl_verbs_ops.close(iface); /* opens the gate as it waits */
    iface = NULL;
    memset(mrs, 0, sizeof(mrs));
    assert_int_equal(came(), 3);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {
        CASE(what_the_thread_registers_is_what_is_used),
        CASE(memory_taken_back_meanwhile_is_never_found_again),
        CASE(memory_taken_back_for_good_leaves_nothing),
        CASE(memory_registered_meanwhile_waits_for_nobody_and_comes_along),
        CASE(memory_that_is_gone_keeps_no_device_out),
        CASE(closing_waits_for_one_registration_at_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
