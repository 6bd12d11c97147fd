/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of SLUICE_PRELOAD_NCCL; and the numbers of the shim's NCCL interface beside NCCL's own
 * header. */
#include "tools/preload/nccl/rules.h"
#include "tools/preload/nccl_calls.h"

#include "core/err.h"

#include <sluice/types.h>

#if HAVE_NCCL_HEADER
#include <nccl.h>
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void all_takes_every_collective_of_any_size(void **state)
{
    (void)state;
    assert_int_equal(nccl_rules_read("all"), 0);
    for (int call = SL_NCCL_AllReduce; call <= SL_NCCL_Scatter; call++) {
        assert_true(nccl_rules_take((enum sl_nccl_call)call, 1));
        assert_true(nccl_rules_take((enum sl_nccl_call)call, SIZE_MAX / 4));
    }
    assert_false(nccl_rules_take(SL_NCCL_GroupStart, 1));
    assert_false(nccl_rules_take(SL_NCCL_CommAbort, 1));
}

static void an_empty_call_is_never_taken(void **state)
{
    (void)state;
    assert_int_equal(nccl_rules_read("all"), 0);
    assert_false(nccl_rules_take(SL_NCCL_AllReduce, 0));
}

static void sizes_have_both_ends_included(void **state)
{
    (void)state;
    assert_int_equal(nccl_rules_read("allreduce:1K-2M,all_gather:64K-,broadcast:-8"), 0);
    assert_false(nccl_rules_take(SL_NCCL_AllReduce, 1023));
    assert_true(nccl_rules_take(SL_NCCL_AllReduce, 1024));
    assert_true(nccl_rules_take(SL_NCCL_AllReduce, 2 << 20));
    assert_false(nccl_rules_take(SL_NCCL_AllReduce, (2 << 20) + 1));
    assert_false(nccl_rules_take(SL_NCCL_AllGather, 65535));
    assert_true(nccl_rules_take(SL_NCCL_AllGather, (size_t)1 << 40));
    assert_true(nccl_rules_take(SL_NCCL_Bcast, 8));
    assert_false(nccl_rules_take(SL_NCCL_Broadcast, 9));
    assert_false(nccl_rules_take(SL_NCCL_Reduce, 1024));
}

static void later_words_count_over_earlier_ones(void **state)
{
    (void)state;
    assert_int_equal(nccl_rules_read("all,allreduce:1M-"), 0);
    assert_false(nccl_rules_take(SL_NCCL_AllReduce, 1024));
    assert_true(nccl_rules_take(SL_NCCL_Reduce, 1024));
}

static void what_is_not_understood_is_quoted(void **state)
{
    static const char *const wrong[][2] = {
        {"allredoce", "'allredoce' is no call"},
        {"allreduce:1M", "'1M' is no range"},
        {"allreduce:2M-1M", "'2M-1M' is no range"},
        {"allreduce:x-y", "'x-y' is no range"},
        {"send", "'send' is no call"},
    };

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(wrong); i++) {
        assert_int_equal(nccl_rules_read(wrong[i][0]), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), wrong[i][1]));
    }
}

static void other_rules_have_another_hash(void **state)
{
    uint64_t hash;

    (void)state;
    nccl_rules_read("allreduce:1K-2M");
    hash = nccl_rules_hash();
    nccl_rules_read("allreduce:1K-2M,");
    assert_true(nccl_rules_hash() == hash);
    nccl_rules_read("allreduce:1K-3M");
    assert_true(nccl_rules_hash() != hash);
}

static void numbers_are_those_of_nccl(void **state)
{
    (void)state;
#if HAVE_NCCL_HEADER
    assert_int_equal(NCCL_SUCCESS, ncclSuccess);
    assert_int_equal(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
    assert_int_equal(NCCL_REMOTE_ERROR, ncclRemoteError);
    assert_int_equal(NCCL_IN_PROGRESS, ncclInProgress);
    assert_int_equal(sizeof(struct nccl_unique_id), sizeof(ncclUniqueId));
    assert_int_equal((int)SLUICE_I8, (int)ncclInt8);
    assert_int_equal((int)SLUICE_F16, (int)ncclFloat16);
    assert_int_equal((int)SLUICE_BF16, (int)ncclBfloat16);
    assert_int_equal((int)SLUICE_F64, (int)ncclFloat64);
    assert_int_equal((int)SLUICE_SUM, (int)ncclSum);
    assert_int_equal((int)SLUICE_PROD, (int)ncclProd);
    assert_int_equal((int)SLUICE_MAX, (int)ncclMax);
    assert_int_equal((int)SLUICE_MIN, (int)ncclMin);
    assert_int_equal((int)SLUICE_AVG, (int)ncclAvg);
/* NCCL has functions of these names. */
#define SAME(call, ret, params, args) assert_true(sizeof(&nccl##call) == sizeof(ret(*) params));
    SL_NCCL_CALLS(SAME)
#undef SAME
#else
    print_message("no toolkit here has nccl.h\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_takes_every_collective_of_any_size),
        cmocka_unit_test(an_empty_call_is_never_taken),
        cmocka_unit_test(sizes_have_both_ends_included),
        cmocka_unit_test(later_words_count_over_earlier_ones),
        cmocka_unit_test(what_is_not_understood_is_quoted),
        cmocka_unit_test(other_rules_have_another_hash),
        cmocka_unit_test(numbers_are_those_of_nccl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
