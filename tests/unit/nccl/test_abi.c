/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of our frozen headers are those of NCCL's own, where a toolkit has them. Sizes and
 * offsets of each version are held by the headers themselves.
 */
#include "tools/nccl/abi_env.h"
#include "tools/nccl/abi_profiler_v4.h"
#include "tools/nccl/abi_profiler_v5.h"
#include "tools/nccl/abi_tuner.h"
#include "tools/nccl/abi_v12.h"
#include "tools/nccl/abi_v6.h"
#include "tools/nccl/abi_v8.h"

#include <sluice/types.h>

#if HAVE_NCCL_HEADER
#include <nccl.h>
#include <nccl_device/net_device.h>
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void results_have_the_numbers_of_nccl(void **state)
{
    (void)state;
#if HAVE_NCCL_HEADER
    assert_int_equal(SL_NCCL_SUCCESS, ncclSuccess);
    assert_int_equal(SL_NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
    assert_int_equal(SL_NCCL_SYSTEM_ERROR, ncclSystemError);
    assert_int_equal(SL_NCCL_INTERNAL_ERROR, ncclInternalError);
    assert_int_equal(SL_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
    assert_int_equal(SL_NCCL_INVALID_USAGE, ncclInvalidUsage);
    assert_int_equal(SL_NCCL_REMOTE_ERROR, ncclRemoteError);
#else
    print_message("no toolkit here has nccl.h\n");
    skip();
#endif
}

static void device_handles_are_laid_out_as_in_nccl(void **state)
{
    (void)state;
#if HAVE_NCCL_HEADER
    assert_int_equal(SL_NCCL_DEVICE_HOST, NCCL_NET_DEVICE_HOST);
    assert_int_equal(SL_NCCL_DEVICE_UNPACK, NCCL_NET_DEVICE_UNPACK);
    assert_int_equal(SL_NCCL_DEVICE_VERSION_INVALID, NCCL_NET_DEVICE_INVALID_VERSION);
    assert_int_equal(sizeof(struct sl_nccl_device_handle), sizeof(ncclNetDeviceHandle_v11_t));
    assert_int_equal(offsetof(struct sl_nccl_device_handle, version),
                     offsetof(ncclNetDeviceHandle_v11_t, netDeviceVersion));
    assert_int_equal(offsetof(struct sl_nccl_device_handle, handle),
                     offsetof(ncclNetDeviceHandle_v11_t, handle));
    assert_int_equal(offsetof(struct sl_nccl_device_handle, needs_proxy_progress),
                     offsetof(ncclNetDeviceHandle_v11_t, needsProxyProgress));
#else
    print_message("no toolkit here has nccl.h\n");
    skip();
#endif
}

static void types_and_operators_have_the_numbers_of_nccl(void **state)
{
    (void)state;
#if HAVE_NCCL_HEADER
    assert_int_equal(SLUICE_I8, ncclInt8);
    assert_int_equal(SLUICE_U64, ncclUint64);
    assert_int_equal(SLUICE_F16, ncclFloat16);
    assert_int_equal(SLUICE_F64, ncclFloat64);
    assert_int_equal(SLUICE_BF16, ncclBfloat16);
    assert_int_equal(SLUICE_SUM, ncclSum);
    assert_int_equal(SLUICE_AVG, ncclAvg);
#else
    print_message("no toolkit here has nccl.h\n");
    skip();
#endif
}

static void what_the_compatibility_layers_rely_on_holds(void **state)
{
    (void)state;
    /* v6 is v8 without regIsGlobal in front of speed. */
    assert_int_equal(offsetof(struct sl_nccl_net_props_v8, speed),
                     offsetof(struct sl_nccl_net_props_v6, speed) + sizeof(int));
    /* v12's wider list of devices is all that moves what stands behind it. */
    assert_int_equal(offsetof(struct sl_nccl_net_props_v12, p2p_bytes_max),
                     offsetof(struct sl_nccl_net_props_v11, p2p_bytes_max) + 4 * sizeof(int));
    assert_int_equal(sizeof(struct sl_nccl_net_v11), sizeof(struct sl_nccl_net_v12));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_have_the_numbers_of_nccl),
        cmocka_unit_test(device_handles_are_laid_out_as_in_nccl),
        cmocka_unit_test(types_and_operators_have_the_numbers_of_nccl),
        cmocka_unit_test(what_the_compatibility_layers_rely_on_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
