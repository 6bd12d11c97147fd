/* SPDX-License-Identifier: Apache-2.0 */
/* Whose memory a pointer names, and what its GPU needs to see what a NIC wrote. */
#include "gdr/gpu.h"

#include "core/err.h"
#include "tests/fake/fake_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct fake_cuda *fake;

static int set_up(void **state)
{
    (void)state;
    fake = fake_cuda_create(2);
    sl_cuda_replace(fake_cuda_table(fake));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(fake_cuda_misuse(fake));
    assert_int_equal(fake_cuda_live(fake), 0);
    sl_cuda_replace(NULL);
    fake_cuda_destroy(fake);
    return 0;
}

static void memory_of_a_gpu_is_told_with_its_device_and_allocation(void **state)
{
    struct sl_gpu_memory memory;
    char *a = fake_cuda_alloc(fake, 0, 100, FAKE_CUDA_DEVICE);
    char *b = fake_cuda_alloc(fake, 1, 5000, FAKE_CUDA_DEVICE);
    char name[64];

    (void)state;
    assert_true(sl_gpu_look(a + 99, NULL));
    assert_true(sl_gpu_look(b + 4999, &memory));
    assert_int_equal(memory.device, 1);
    assert_int_equal(memory.base, (uintptr_t)b);
    assert_int_equal(memory.len, 5000);
    assert_non_null(memory.context);
    assert_false(memory.is_managed);
    assert_int_equal(memory.order, SL_GPU_ORDERED);
    sl_gpu_name(&memory, name, sizeof(name));
    assert_string_equal(name, "GPU 1 (Fake 1)");
    fake_cuda_free(fake, a);
    fake_cuda_free(fake, b);
}

static void the_current_gpu_tells_its_address_as_sysfs_writes_it(void **state)
{
    char address[SL_GPU_ADDRESS_MAX] = "";
    void *context;

    (void)state;
    fake_cuda_device(fake, 1)->address = "0000:1B:00.0";
    assert_false(sl_gpu_address(address)); /* two are seen, and no context says which */
    assert_int_equal(fake_cuda_table(fake)->cuDevicePrimaryCtxRetain(&context, 1001), 0);
    assert_int_equal(fake_cuda_table(fake)->cuCtxPushCurrent_v2(context), 0);
    assert_true(sl_gpu_address(address));
    assert_string_equal(address, "0000:1b:00.0");
    fake_cuda_fail(fake, "cuDeviceGetPCIBusId", 1, 999);
    assert_false(sl_gpu_address(address));
    assert_int_equal(fake_cuda_table(fake)->cuCtxPopCurrent_v2(&context), 0);
}

static void the_only_gpu_needs_no_context(void **state)
{
    char address[SL_GPU_ADDRESS_MAX] = "";

    (void)state;
    fake_cuda_destroy(fake);
    fake = fake_cuda_create(1);
    sl_cuda_replace(fake_cuda_table(fake));
    fake_cuda_device(fake, 0)->address = "0001:AB:00.0";
    assert_true(sl_gpu_address(address));
    assert_string_equal(address, "0001:ab:00.0");
    sl_cuda_replace(NULL);
    assert_false(sl_gpu_address(address)); /* no driver */
}

static void ordinary_memory_is_not_a_gpus(void **state)
{
    struct sl_gpu_memory memory = {.device = 77};
    char *a = fake_cuda_alloc(fake, 0, 4096, FAKE_CUDA_DEVICE);

    (void)state;
    assert_false(sl_gpu_look(&memory, &memory));
    assert_false(sl_gpu_look(NULL, NULL));
    assert_false(sl_gpu_look(a + 4096, NULL));
    assert_int_equal(memory.device, 77);
    fake_cuda_free(fake, a);
    assert_false(sl_gpu_look(a, NULL));
}

static void memory_without_a_context_of_its_own_is_used_through_the_primary_one(void **state)
{
    struct sl_gpu_memory own, pooled;
    void *a = fake_cuda_alloc(fake, 1, 100, FAKE_CUDA_DEVICE);
    void *b = fake_cuda_alloc(fake, 1, 100, FAKE_CUDA_POOLED);

    (void)state;
    assert_true(sl_gpu_look(a, &own));
    assert_true(sl_gpu_look(b, &pooled));
    assert_ptr_equal(pooled.context, own.context);
    fake_cuda_free(fake, a);
    fake_cuda_free(fake, b);
}

static void a_gpu_without_a_context_still_has_its_memory_told(void **state)
{
    struct sl_gpu_memory memory;
    void *a = fake_cuda_alloc(fake, 0, 100, FAKE_CUDA_POOLED);

    (void)state;
    fake_cuda_fail(fake, "cuDevicePrimaryCtxRetain", 1, 2);
    assert_true(sl_gpu_look(a, &memory));
    assert_null(memory.context);
    fake_cuda_free(fake, a);
}

static void what_a_nic_wrote_needs_what_the_device_says(void **state)
{
    static const struct {
        int ordering, options;
        enum sl_gpu_order order;
    } cases[] = {{200, 0, SL_GPU_ORDERED}, {100, 0, SL_GPU_ORDERED}, {0, 1, SL_GPU_FLUSH},
                 {0, 3, SL_GPU_FLUSH},     {0, 2, SL_GPU_UNORDERED}, {0, 0, SL_GPU_UNORDERED}};
    void *a = fake_cuda_alloc(fake, 0, 100, FAKE_CUDA_DEVICE);
    struct sl_gpu_memory memory;

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(cases); i++) {
        fake_cuda_device(fake, 0)->ordering = cases[i].ordering;
        fake_cuda_device(fake, 0)->flush_options = cases[i].options;
        assert_true(sl_gpu_look(a, &memory));
        assert_int_equal(memory.order, cases[i].order);
    }
    /* A driver without the call cannot flush either. */
    fake_cuda_device(fake, 0)->flush_options = 1;
    fake_cuda_table(fake)->cuFlushGPUDirectRDMAWrites = NULL;
    assert_true(sl_gpu_look(a, &memory));
    assert_int_equal(memory.order, SL_GPU_UNORDERED);
    fake_cuda_free(fake, a);
}

static void a_flush_shows_the_gpu_what_was_written(void **state)
{
    char *a = fake_cuda_alloc(fake, 1, 100, FAKE_CUDA_DEVICE);
    struct sl_gpu_memory memory;

    (void)state;
    fake_cuda_device(fake, 1)->ordering = 0;
    assert_true(sl_gpu_look(a, &memory));
    *fake_cuda_bytes(fake, a + 7) = 42;
    assert_int_equal(*fake_cuda_seen(fake, a + 7), 0);
    assert_int_equal(sl_gpu_flush(&memory), 0);
    assert_int_equal(*fake_cuda_seen(fake, a + 7), 42);
    fake_cuda_fail(fake, "cuFlushGPUDirectRDMAWrites", 1, 1);
    assert_int_equal(sl_gpu_flush(&memory), -EIO);
    assert_string_equal(sluice_last_error(),
                        "cuFlushGPUDirectRDMAWrites failed: CUDA_ERROR_INVALID_VALUE "
                        "(invalid argument)");
    fake_cuda_fail(fake, "cuCtxPushCurrent", 1, 1);
    assert_int_equal(sl_gpu_flush(&memory), -EIO);
    fake_cuda_free(fake, a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_of_a_gpu_is_told_with_its_device_and_allocation,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(ordinary_memory_is_not_a_gpus, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_current_gpu_tells_its_address_as_sysfs_writes_it,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_only_gpu_needs_no_context, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            memory_without_a_context_of_its_own_is_used_through_the_primary_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_gpu_without_a_context_still_has_its_memory_told, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_a_nic_wrote_needs_what_the_device_says, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_flush_shows_the_gpu_what_was_written, set_up, tear_down)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
