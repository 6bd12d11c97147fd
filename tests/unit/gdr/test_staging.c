/* SPDX-License-Identifier: Apache-2.0 */
/* Short messages into GPU memory: in order, late, and never after their owner is gone. */
#include "gdr/staging.h"

#include "core/clock.h"
#include "core/err.h"
#include "tests/fake/fake_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define BUFFERS 4u
#define BUFFER_LEN 256u

static struct fake_cuda *fake;
static char *gpu;
static struct sl_gpu_memory memory;
static struct sl_gpu_stage *stage;
static uint32_t ended[32];
static int statuses[32];
static unsigned ended_count;
static int owners[2];
static uint64_t now_ns;

/* Each look takes a millisecond. */
static uint64_t look(const struct sl_clock *clock)
{
    (void)clock;
    now_ns += SL_NS_PER_MS;
    return now_ns;
}

static const struct sl_clock virtual_clock = {look};

static int set_up(void **state)
{
    (void)state;
    fake = fake_cuda_create(2);
    sl_cuda_replace(fake_cuda_table(fake));
    gpu = fake_cuda_alloc(fake, 1, 8192, FAKE_CUDA_DEVICE);
    ended_count = 0;
    if (!sl_gpu_look(gpu, &memory))
        return -1;
    return sl_gpu_stage_create(&memory, &virtual_clock, BUFFER_LEN, BUFFERS, &stage);
}

static int tear_down(void **state)
{
    (void)state;
    while (sl_gpu_stage_busy(stage) > 0)
        sl_gpu_stage_progress(stage);
    sl_gpu_stage_destroy(stage);
    fake_cuda_free(fake, gpu);
    assert_null(fake_cuda_misuse(fake));
    assert_int_equal(fake_cuda_live(fake), 0);
    sl_cuda_replace(NULL);
    fake_cuda_destroy(fake);
    return 0;
}

static void copied(void *owner, uint32_t number, int status)
{
    assert_true(owner == &owners[0] || owner == &owners[1]);
    statuses[ended_count] = status;
    ended[ended_count++] = number;
}

static int copy(uint32_t number, unsigned owner)
{
    char bytes[BUFFER_LEN];

    /* Borrowed: what becomes of it after the call does not matter. */
    memset(bytes, (int)number + 1, sizeof(bytes));
    int err = sl_gpu_stage_copy(stage, gpu + number * BUFFER_LEN, bytes, sizeof(bytes), copied,
                                &owners[owner], number);

    memset(bytes, 0xee, sizeof(bytes));
    return err;
}

static void check_copied(uint32_t number)
{
    for (unsigned i = 0; i < BUFFER_LEN; i++)
        assert_int_equal(fake_cuda_bytes(fake, gpu)[number * BUFFER_LEN + i], number + 1);
}

static void copies_end_in_their_order_when_the_gpu_has_made_them(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(copy(i, 0), 0);
    assert_int_equal(sl_gpu_stage_busy(stage), 3);
    assert_int_equal(sl_gpu_stage_progress(stage), 0); /* the fake takes three looks */
    assert_int_equal(ended_count, 0);
    for (unsigned i = 0; i < 10; i++)
        sl_gpu_stage_progress(stage);
    assert_int_equal(ended_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(ended[i], i);
        assert_int_equal(statuses[i], 0);
        check_copied(i);
    }
    assert_int_equal(sl_gpu_stage_busy(stage), 0);
}

static void a_full_ring_takes_nothing_until_one_has_ended(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < BUFFERS; i++)
        assert_int_equal(copy(i, 0), 0);
    assert_int_equal(copy(9, 0), -EAGAIN);
    assert_int_equal(fake_cuda_copies(fake), BUFFERS);
    while (ended_count < BUFFERS)
        sl_gpu_stage_progress(stage);
    for (uint32_t i = BUFFERS; i < 3 * BUFFERS; i++) {
        while (copy(i, 0) == -EAGAIN)
            sl_gpu_stage_progress(stage);
    }
    while (sl_gpu_stage_busy(stage) > 0)
        sl_gpu_stage_progress(stage);
    for (uint32_t i = 0; i < 3 * BUFFERS; i++)
        check_copied(i);
}

static void a_copy_that_the_driver_refuses_is_an_error_at_once(void **state)
{
    (void)state;
    fake_cuda_fail(fake, "cuMemcpyHtoDAsync", 1, 1);
    assert_int_equal(copy(0, 0), -EIO);
    assert_string_equal(sluice_last_error(),
                        "cuMemcpyHtoDAsync failed: CUDA_ERROR_INVALID_VALUE (invalid argument)");
    fake_cuda_fail(fake, "cuCtxPushCurrent", 1, 1);
    assert_int_equal(copy(0, 0), -EIO);
    assert_int_equal(sl_gpu_stage_busy(stage), 0);
    assert_int_equal(copy(0, 0), 0);
}

static void a_copy_that_fails_on_the_gpu_ends_with_an_error(void **state)
{
    (void)state;
    assert_int_equal(copy(0, 0), 0);
    fake_cuda_fail(fake, "cuEventQuery", 1, 700);
    assert_int_equal(sl_gpu_stage_progress(stage), 1);
    assert_int_equal(ended_count, 1);
    assert_int_equal(statuses[0], -EIO);
    /* The stream itself still has it; what comes next is well. */
    assert_int_equal(copy(1, 0), 0);
    while (ended_count < 2)
        sl_gpu_stage_progress(stage);
    assert_int_equal(statuses[1], 0);
}

static void a_forgotten_owner_hears_nothing_and_its_memory_is_not_written_any_more(void **state)
{
    (void)state;
    fake_cuda_delay(fake, 20);
    assert_int_equal(copy(0, 0), 0);
    assert_int_equal(copy(1, 1), 0);
    assert_int_equal(copy(2, 0), 0);
    sl_gpu_stage_forget(stage, &owners[0]);
    check_copied(2); /* it is over, not merely forgotten */
    assert_int_equal(ended_count, 0);
    while (sl_gpu_stage_busy(stage) > 0)
        sl_gpu_stage_progress(stage);
    assert_int_equal(ended_count, 1);
    assert_int_equal(ended[0], 1);
    sl_gpu_stage_forget(stage, &owners[1]); /* has none */
}

static void a_gpu_that_never_ends_is_not_waited_for_for_ever(void **state)
{
    uint64_t before_ns = now_ns;

    (void)state;
    fake_cuda_delay(fake, 1000000);
    assert_int_equal(copy(0, 0), 0);
    sl_gpu_stage_forget(stage, &owners[0]);
    assert_in_range(now_ns - before_ns, SL_NS_PER_S, 10 * SL_NS_PER_S);
    fake_cuda_delay(fake, 1);
}

static void it_serves_memory_of_its_context_only(void **state)
{
    struct sl_gpu_memory other;
    void *there = fake_cuda_alloc(fake, 0, 100, FAKE_CUDA_DEVICE);

    (void)state;
    assert_true(sl_gpu_look(there, &other));
    assert_true(sl_gpu_stage_serves(stage, &memory));
    assert_false(sl_gpu_stage_serves(stage, &other));
    fake_cuda_free(fake, there);
}

static void what_cannot_be_made_leaves_nothing_behind(void **state)
{
    static const struct {
        const char *call;
        unsigned nth;
        int err;
    } cases[] = {{"cuMemHostAlloc", 1, -ENOMEM},
                 {"cuStreamCreate", 1, -EIO},
                 {"cuEventCreate", 1, -EIO},
                 {"cuEventCreate", BUFFERS, -EIO},
                 {"cuCtxPushCurrent", 1, -EIO}};
    struct sl_gpu_memory bare = memory;
    struct sl_gpu_stage *out = NULL;
    unsigned live = fake_cuda_live(fake);

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(cases); i++) {
        fake_cuda_fail(fake, cases[i].call, cases[i].nth, 2);
        assert_int_equal(sl_gpu_stage_create(&memory, &virtual_clock, BUFFER_LEN, BUFFERS, &out),
                         cases[i].err);
        assert_null(out);
        assert_int_equal(fake_cuda_live(fake), live);
    }
    bare.context = NULL;
    assert_int_equal(sl_gpu_stage_create(&bare, &virtual_clock, BUFFER_LEN, BUFFERS, &out),
                     -ENOTSUP);
    sl_gpu_stage_destroy(NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(copies_end_in_their_order_when_the_gpu_has_made_them),
        CASE(a_full_ring_takes_nothing_until_one_has_ended),
        CASE(a_copy_that_the_driver_refuses_is_an_error_at_once),
        CASE(a_copy_that_fails_on_the_gpu_ends_with_an_error),
        CASE(a_forgotten_owner_hears_nothing_and_its_memory_is_not_written_any_more),
        CASE(a_gpu_that_never_ends_is_not_waited_for_for_ever),
        CASE(it_serves_memory_of_its_context_only),
        CASE(what_cannot_be_made_leaves_nothing_behind)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
