/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory as a dma-buf: which range is exported, and what is said when none is. */
#include "gdr/dmabuf.h"

#include "core/err.h"
#include "gdr/gpu.h"
#include "tests/fake/fake_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct fake_cuda *fake;
static char *gpu; /* two pages and a bit */
static struct sl_gpu_memory memory;

#define LEN 9000u

static int set_up(void **state)
{
    (void)state;
    fake = fake_cuda_create(2);
    sl_cuda_replace(fake_cuda_table(fake));
    gpu = fake_cuda_alloc(fake, 1, LEN, FAKE_CUDA_DEVICE);
    return sl_gpu_look(gpu, &memory) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fake_cuda_free(fake, gpu);
    assert_null(fake_cuda_misuse(fake));
    assert_int_equal(fake_cuda_live(fake), 0);
    sl_cuda_replace(NULL);
    fake_cuda_destroy(fake);
    return 0;
}

static void the_pages_around_a_range_are_exported(void **state)
{
    struct sl_mem mem;
    char byte = 0;

    (void)state;
    *fake_cuda_bytes(fake, gpu + 4096 + 11) = 77;
    assert_int_equal(sl_gpu_export(&memory, gpu + 4096 + 10, 4000, &mem), 0);
    assert_int_equal(mem.kind, SL_MEM_DMABUF);
    assert_ptr_equal(mem.addr, gpu + 4096 + 10);
    assert_int_equal(mem.len, 4000);
    assert_int_equal(mem.fd_off, 10);
    /* The file position is the fake's way to say where the range starts. */
    assert_int_equal(lseek(mem.fd, 0, SEEK_CUR), 4096);
    assert_int_equal(pread(mem.fd, &byte, 1, 4096 + (off_t)mem.fd_off + 1), 1);
    assert_int_equal(byte, 77);
    close(mem.fd);
    assert_int_equal(sl_gpu_export(&memory, gpu, LEN, &mem), 0);
    assert_int_equal(mem.fd_off, 0);
    close(mem.fd);
}

static void a_range_that_leaves_its_allocation_is_refused(void **state)
{
    struct sl_mem mem = {.fd = -7};

    (void)state;
    assert_int_equal(sl_gpu_export(&memory, gpu, LEN + 1, &mem), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "9001 bytes at "));
    assert_non_null(strstr(sluice_last_error(), "are not within one allocation of GPU 1 (Fake 1)"));
    assert_int_equal(sl_gpu_export(&memory, gpu + LEN - 1, 2, &mem), -EINVAL);
    assert_int_equal(sl_gpu_export(&memory, gpu - 1, 2, &mem), -EINVAL);
    assert_int_equal(sl_gpu_export(&memory, gpu + 5, SIZE_MAX, &mem), -EINVAL);
    assert_int_equal(mem.fd, -7);
    assert_int_equal(fake_cuda_exports(fake), 0);
}

static void managed_memory_is_refused(void **state)
{
    void *managed = fake_cuda_alloc(fake, 0, 100, FAKE_CUDA_MANAGED);
    struct sl_gpu_memory its;
    struct sl_mem mem;

    (void)state;
    assert_true(sl_gpu_look(managed, &its));
    assert_int_equal(sl_gpu_export(&its, managed, 100, &mem), -ENOTSUP);
    assert_non_null(
        strstr(sluice_last_error(), "managed memory moves between GPU 0 (Fake 0) and the host"));
    fake_cuda_free(fake, managed);
}

static void an_old_driver_or_a_device_that_cannot_is_told(void **state)
{
    struct sl_mem mem;

    (void)state;
    fake_cuda_device(fake, 1)->dma_buf = false;
    assert_int_equal(sl_gpu_export(&memory, gpu, 100, &mem), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "the driver of GPU 1 (Fake 1) exports no dma-buf"));
    fake_cuda_device(fake, 1)->dma_buf = true;
    fake_cuda_fail(fake, "cuMemGetHandleForAddressRange", 1, 1);
    assert_int_equal(sl_gpu_export(&memory, gpu, 100, &mem), -ENOTSUP);
    assert_string_equal(sluice_last_error(), "cuMemGetHandleForAddressRange failed: "
                                             "CUDA_ERROR_INVALID_VALUE (invalid argument)");
    fake_cuda_fail(fake, "cuCtxPushCurrent", 1, 1);
    assert_int_equal(sl_gpu_export(&memory, gpu, 100, &mem), -EIO);
    fake_cuda_table(fake)->cuMemGetHandleForAddressRange = NULL;
    assert_int_equal(sl_gpu_export(&memory, gpu, 100, &mem), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "older than that of CUDA 11.7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_pages_around_a_range_are_exported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_range_that_leaves_its_allocation_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(managed_memory_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_old_driver_or_a_device_that_cannot_is_told, set_up,
                                        tear_down)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
