/* SPDX-License-Identifier: Apache-2.0 */
/* The interfaces of a process register memory once with each device, and let go of it with the last
 * claim; also from two threads. */
#include "tests/fake/fake_ibv.h"
#include "tests/fake/fake_ibv_inside.h"
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/memlock.h"
#include "verbs/verbs.h"

#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define IFACES 8
#define PAGE 4096
#define PAGES 16
#define CLAIMS 6
#define TURNS 4000

static struct fake_ibv *fake;
static struct sl_config config[IFACES];
static struct sl_worker workers[IFACES];
static struct sl_iface *ifaces[IFACES];
static uint8_t *bytes;

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
    memset(ifaces, 0, sizeof(ifaces));
    bytes = aligned_alloc(PAGE, PAGES * PAGE);
    assert_non_null(bytes);
    for (unsigned i = 0; i < IFACES; i++) {
        sl_config_defaults(&config[i]);
        sl_verbs_config_edit(&config[i])->mp.staging_bytes = 1 << 20;
        sl_verbs_config_edit(&config[i])->mp.lazy = SL_OFF;
        workers[i] = (struct sl_worker){.clock = &sl_clock_monotonic, .config = &config[i]};
        sl_rng_init(&workers[i].rng, i + 1);
    }
    return 0;
}

static void close_one(unsigned i)
{
    if (ifaces[i] != NULL)
        sl_verbs_ops.close(ifaces[i]);
    ifaces[i] = NULL;
}

static int clean(void **state)
{
    for (unsigned i = 0; i < IFACES; i++)
        close_one(i);
    assert_null(fake_ibv_misuse(fake));
    assert_int_equal(fake_ibv_live(fake), 0);
    fake_ibv_destroy(fake);
    sl_ibv_replace(NULL, NULL);
    free(bytes);
    return 0;
}

static void add(const char *name, unsigned ports)
{
    struct fake_ibv_device params;

    fake_ibv_device_init(&params, name);
    params.attr.phys_port_cnt = (uint8_t)ports;
    fake_ibv_device_add(fake, &params);
}

static void open_ifaces(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (sl_verbs_ops.open(&workers[i], NULL, NULL, &ifaces[i]) != 0)
            fail_msg("%s", sluice_last_error());
}

static int reg_at(unsigned i, void *addr, size_t len, struct sl_mr **out)
{
    struct sl_mem mem = {.addr = addr, .len = len, .kind = SL_MEM_HOST, .fd = -1};

    return sl_verbs_ops.mr_reg(ifaces[i], &mem, out, NULL);
}

static struct sl_mr *reg(unsigned i, size_t off, size_t len)
{
    struct sl_mr *mr = NULL;

    if (reg_at(i, bytes + off, len, &mr) != 0)
        fail_msg("%s", sluice_last_error());
    return mr;
}

static void dereg(unsigned i, struct sl_mr *mr)
{
    sl_verbs_ops.mr_dereg(ifaces[i], mr);
}

static const struct sl_verbs_mr *mr_of(const struct sl_mr *mr)
{
    return ((const struct sl_mem_region *)mr)->handle;
}

/* What the device has registered now. */
static unsigned live(void)
{
    return fake_ibv_live_of(fake, FAKE_IBV_MR);
}

/* Would a message from there be sent without a copy? */
static bool is_found(unsigned i, size_t off, size_t len)
{
    return sl_mp_region_find(&sl_verbs_iface_of(ifaces[i])->mp, NULL, bytes + off, len) != NULL;
}

static void eight_interfaces_register_a_range_once(void **state)
{
    struct sl_mr *mrs[IFACES];

    add("a0", 1);
    add("b0", 2);
    open_ifaces(IFACES);
    unsigned before = live();
    uint64_t calls = fake_ibv_calls(fake, FAKE_IBV_REG_MR);

    for (unsigned i = 0; i < IFACES; i++) {
        mrs[i] = reg(i, 0, PAGE);
        assert_int_equal(live() - before, 2);
        assert_int_equal(fake_ibv_calls(fake, FAKE_IBV_REG_MR) - calls, 2);
        assert_ptr_equal(mr_of(mrs[i])->claims[0].mr, mr_of(mrs[0])->claims[0].mr);
        assert_ptr_equal(mr_of(mrs[i])->claims[1].mr, mr_of(mrs[i])->claims[2].mr);
        assert_int_equal(mr_of(mrs[i])->base.rkeys[1], mr_of(mrs[0])->base.rkeys[2]);
        assert_true(is_found(i, 10, 100));
    }
    for (unsigned i = 0; i < IFACES; i++) {
        assert_int_equal(live() - before, 2);
        dereg(i, mrs[i]);
        assert_false(is_found(i, 10, 100));
    }
    assert_int_equal(live(), before);
}

static void a_part_of_what_another_one_registered_needs_no_registration(void **state)
{
    add("a0", 1);
    open_ifaces(2);
    unsigned before = live();
    struct sl_mr *whole = reg(0, 0, 4 * PAGE), *part = reg(1, PAGE, PAGE);

    assert_int_equal(live() - before, 1);
    assert_true(is_found(1, PAGE, PAGE));
    assert_false(is_found(1, 0, PAGE)); /* it has not claimed that */
    dereg(0, whole);
    assert_int_equal(live() - before, 1);
    assert_true(is_found(1, PAGE, PAGE));
    dereg(1, part);
    assert_int_equal(live(), before);
}

static void pools_of_interfaces_are_their_own(void **state)
{
    add("a0", 1);
    open_ifaces(1);
    unsigned one = live();

    close_one(0);
    open_ifaces(2);
    assert_int_equal(live(), 2 * one);
}

/* A user gave memory back and forgot its claim, and the kernel gave the addresses to a pool. */
static void pools_use_nothing_that_was_registered_before(void **state)
{
    const size_t len = 64 << 20;
    struct sl_mr *forgotten = NULL;
    bool inside = false;

    add("a0", 2);
    open_ifaces(1);
    uint8_t *area = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(area != MAP_FAILED);
    assert_int_equal(reg_at(0, area, len, &forgotten), 0);
    munmap(area, len);
    if (sl_verbs_ops.open(&workers[1], NULL, NULL, &ifaces[1]) != 0)
        fail_msg("%s", sluice_last_error());
    const struct sl_verbs_iface *iface = sl_verbs_iface_of(ifaces[1]);

    for (unsigned i = 0; i < 2; i++) {
        const struct sl_verbs_pool *pool = i == 0 ? &iface->frames : &iface->staging;

        inside |= pool->bytes >= area && pool->bytes + pool->len <= area + len;
        assert_ptr_equal(pool->mr[0]->addr, pool->bytes);
        assert_int_equal(pool->mr[0]->length, pool->len);
        assert_ptr_equal(pool->mr[1], pool->mr[0]); /* another port of the same device */
    }
    if (!inside)
        print_message("the kernel gave the addresses to nobody\n");
    dereg(0, forgotten);
}

static bool peers_write(struct ibv_mr *mr)
{
    return (FAKE_OF(fake_mr, mr)->access & IBV_ACCESS_REMOTE_WRITE) != 0;
}

/* A peer that knows a key may write there, whatever it was told: so frames and receive buffers have
 * none that it could write by. */
static void peers_may_write_to_staging_and_users_memory_alone(void **state)
{
    const struct sl_verbs_iface *iface;
    struct sl_mr *mr;

    (void)state;
    add("a0", 1);
    open_ifaces(1);
    iface = sl_verbs_iface_of(ifaces[0]);
    mr = reg(0, 0, PAGE);
    assert_true(peers_write(iface->staging.mr[0]));
    assert_true(peers_write(mr_of(mr)->claims[0].mr));
    assert_false(peers_write(iface->frames.mr[0]));
    assert_int_equal(iface->mp.lanes->provide(&sl_verbs_iface_of(ifaces[0])->mp, 1), 0);
    assert_true(iface->rails[0].block_count > 0);
    for (unsigned i = 0; i < iface->rails[0].block_count; i++)
        assert_false(peers_write(iface->rails[0].blocks[i].mr));
    dereg(0, mr);
}

static void settings_that_differ_share_no_registration(void **state)
{
    add("a0", 1);
    sl_verbs_config_edit(&config[1])->relaxed_ordering = SL_OFF;
    open_ifaces(3);
    unsigned before = live();
    struct sl_mr *mrs[3];

    for (unsigned i = 0; i < 3; i++)
        mrs[i] = reg(i, 0, PAGE);
    assert_int_equal(live() - before, 2);
    assert_ptr_equal(mr_of(mrs[0])->claims[0].mr, mr_of(mrs[2])->claims[0].mr);
    for (unsigned i = 0; i < 3; i++)
        dereg(i, mrs[i]);
    assert_int_equal(live(), before);
}

static void memory_that_one_reports_gone_is_gone_for_all(void **state)
{
    struct sl_mr *old[3], *fresh_one[3];

    add("a0", 1);
    open_ifaces(3);
    unsigned before = live();

    for (unsigned i = 0; i < 3; i++)
        old[i] = reg(i, 0, PAGE);
    struct sl_mr *beside = reg(1, 2 * PAGE, PAGE);

    assert_int_equal(sl_verbs_ops.mem_gone(ifaces[0], bytes + 8, 8), 1);
    assert_false(is_found(0, 0, PAGE));
    /* Something else lies there now: nobody gets the old registration, however it asks. */
    for (unsigned i = 0; i < 3; i++) {
        fresh_one[i] = reg(i, 0, PAGE);
        assert_ptr_not_equal(mr_of(fresh_one[i])->claims[0].mr, mr_of(old[i])->claims[0].mr);
        assert_true(is_found(i, 0, PAGE));
    }
    assert_true(is_found(1, 2 * PAGE, PAGE));
    assert_int_equal(live() - before, 3);
    for (unsigned i = 0; i < 3; i++)
        dereg(i, old[i]);
    assert_int_equal(live() - before, 2);
    for (unsigned i = 0; i < 3; i++)
        dereg(i, fresh_one[i]);
    dereg(1, beside);
    assert_int_equal(live(), before);
}

static void one_that_only_progresses_hears_of_it_too(void **state)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;

    add("a0", 1);
    open_ifaces(2);
    struct sl_mr *mr = reg(1, 0, PAGE);

    assert_int_equal(sl_verbs_ops.mem_gone(ifaces[0], bytes, PAGE), 0); /* none of its own */
    while (is_found(1, 0, PAGE) && sl_now(&sl_clock_monotonic) < deadline_ns)
        assert_true(ifaces[1]->ops->progress(ifaces[1], 64) >= 0);
    assert_false(is_found(1, 0, PAGE));
    dereg(1, mr);
}

/* There is room for eight; what comes then makes the last one larger. */
static void many_ranges_that_went_unheard_are_all_gone(void **state)
{
    static const unsigned went[] = {0, 2, 4, 6, 8, 10, 12, 13, 14, 11};
    struct sl_mr *mrs[PAGES];

    static_assert(SL_ARRAY_LEN(went) == SL_VERBS_GONE_MAX + 2, "one on either side");
    add("a0", 1);
    open_ifaces(2);
    for (unsigned i = 0; i < PAGES; i++)
        mrs[i] = reg(1, i * PAGE, PAGE);
    for (unsigned i = 0; i < SL_ARRAY_LEN(went); i++)
        sl_verbs_ops.mem_gone(ifaces[0], bytes + went[i] * PAGE, PAGE);
    struct sl_mr *more = reg(1, PAGE, PAGE);

    for (unsigned i = 0; i < SL_ARRAY_LEN(went); i++)
        assert_false(is_found(1, went[i] * PAGE, PAGE));
    assert_true(is_found(1, PAGE, PAGE));
    assert_true(is_found(1, 15 * PAGE, PAGE));
    for (unsigned i = 0; i < PAGES; i++)
        dereg(1, mrs[i]);
    dereg(1, more);
}

static void a_registration_that_fails_leaves_nothing(void **state)
{
    struct sl_mr *mr = NULL;

    add("a0", 1);
    add("b0", 1);
    open_ifaces(2);
    unsigned before = live();
    struct sl_mr *first = reg(0, 0, PAGE);

    fake_ibv_table(fake)->ibv_reg_mr_iova2 = NULL; /* else it tries twice */
    fake_ibv_fail(fake, FAKE_IBV_REG_MR, 2, ENOMEM);
    assert_int_equal(reg_at(1, bytes + PAGE, PAGE, &mr), -ENOMEM);
    assert_non_null(strstr(sluice_last_error(), "b0: 4 KiB of memory cannot be registered"));
    assert_int_equal(live() - before, 2);
    dereg(0, first);
    assert_int_equal(live(), before);
}

/* Claims and returns ranges that overlap with those of the other thread, and reports some gone. */
static void *churn(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    struct sl_mr *mrs[CLAIMS] = {NULL};
    struct sl_rng rng;
    uintptr_t wrong = 0;

    sl_rng_init(&rng, 100 + me);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned slot = (unsigned)sl_rng_below(&rng, CLAIMS);
        size_t off = sl_rng_below(&rng, PAGES - 1) * PAGE;
        size_t len = (1 + sl_rng_below(&rng, PAGES - off / PAGE)) * PAGE;

        if (mrs[slot] != NULL)
            dereg(me, mrs[slot]);
        mrs[slot] = NULL;
        if (sl_rng_below(&rng, 20) == 0)
            sl_verbs_ops.mem_gone(ifaces[me], bytes + off, len);
        if (reg_at(me, bytes + off, len, &mrs[slot]) != 0)
            return (void *)1;
        const struct ibv_mr *mr = mr_of(mrs[slot])->claims[0].mr;

        wrong |= (uint8_t *)mr->addr > bytes + off ||
                 (uint8_t *)mr->addr + mr->length < bytes + off + len;
    }
    for (unsigned i = 0; i < CLAIMS; i++)
        if (mrs[i] != NULL)
            dereg(me, mrs[i]);
    return (void *)(wrong * 2);
}

static void two_threads_claim_the_same_ranges_on_two_interfaces(void **state)
{
    pthread_t threads[2];
    void *result;

    add("a0", 1);
    open_ifaces(2);
    unsigned before = live();
    uint64_t calls = fake_ibv_calls(fake, FAKE_IBV_REG_MR);

    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)i), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(live(), before);
    assert_in_range(fake_ibv_calls(fake, FAKE_IBV_REG_MR) - calls, 1, 2 * TURNS - 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(eight_interfaces_register_a_range_once),
        CASE(a_part_of_what_another_one_registered_needs_no_registration),
        CASE(pools_of_interfaces_are_their_own),
        CASE(pools_use_nothing_that_was_registered_before),
        CASE(peers_may_write_to_staging_and_users_memory_alone),
        CASE(settings_that_differ_share_no_registration),
        CASE(memory_that_one_reports_gone_is_gone_for_all),
        CASE(one_that_only_progresses_hears_of_it_too),
        CASE(many_ranges_that_went_unheard_are_all_gone),
        CASE(a_registration_that_fails_leaves_nothing),
        CASE(two_threads_claim_the_same_ranges_on_two_interfaces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
