/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for algorithms: read, found, applied; and NCCL's choice left alone without one. */
#include "core/err.h"
#include "tools/nccl/abi_tuner.h"
#include "tools/nccl/tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define CELLS (SL_NCCL_ALGOS * SL_NCCL_PROTOS)

extern const struct sl_nccl_tuner_v3 ncclTunerPlugin_v3;
extern const struct sl_nccl_tuner_v6 ncclTunerPlugin_v6;

static void rules_are_read_part_by_part(void **state)
{
    struct sl_nccl_rules rules;

    (void)state;
    assert_int_equal(sl_nccl_rules_read("all_reduce:1M-64M=ring/simple,channels=4,chunk=512k; "
                                        "ALL_GATHER=*/LL128;*:-4k=tree/*;broadcast:2k-=ring/ll\n"
                                        "# a comment\n\n*=*/simple",
                                        &rules),
                     0);
    assert_int_equal(rules.count, 5);
    assert_int_equal(rules.rules[0].func, SL_NCCL_ALL_REDUCE);
    assert_int_equal(rules.rules[0].bytes_min, 1 << 20);
    assert_int_equal(rules.rules[0].bytes_max, 64 << 20);
    assert_int_equal(rules.rules[0].algo, SL_NCCL_ALGO_RING);
    assert_int_equal(rules.rules[0].proto, SL_NCCL_PROTO_SIMPLE);
    assert_int_equal(rules.rules[0].channels, 4);
    assert_int_equal(rules.rules[0].chunk_bytes, 512 << 10);
    assert_int_equal(rules.rules[1].func, SL_NCCL_ALL_GATHER);
    assert_int_equal(rules.rules[1].algo, -1);
    assert_int_equal(rules.rules[1].proto, SL_NCCL_PROTO_LL128);
    assert_int_equal(rules.rules[2].func, -1);
    assert_int_equal(rules.rules[2].bytes_min, 0);
    assert_int_equal(rules.rules[2].bytes_max, 4096);
    assert_int_equal(rules.rules[2].proto, -1);
    assert_int_equal(rules.rules[3].bytes_min, 2048);
    assert_true(rules.rules[3].bytes_max == INT64_MAX);
    assert_int_equal(rules.rules[4].func, -1);
}

static void what_is_no_rule_is_named(void **state)
{
    static const char *const wrong[] = {"all_reduce",
                                        "=ring/simple",
                                        "all_reduce=ring",
                                        "all_reduce=ring/simpel",
                                        "sum=ring/ll",
                                        "all_reduce:5=ring/ll",
                                        "all_reduce:x-y=ring/ll",
                                        "all_reduce=ring/ll,channels=0",
                                        "all_reduce=ring/ll,chanels=2",
                                        "all_reduce=ring/ll,",
                                        "all_reduce:=ring/ll"};
    struct sl_nccl_rules rules;

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(wrong); i++) {
        assert_int_equal(sl_nccl_rules_read(wrong[i], &rules), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), wrong[i]));
    }
    assert_int_equal(sl_nccl_rules_read("", &rules), 0);
    assert_int_equal(rules.count, 0);
}

static void the_first_rule_that_fits_counts(void **state)
{
    struct sl_nccl_rules rules;

    (void)state;
    assert_int_equal(sl_nccl_rules_read("all_reduce:4k-8k=tree/ll;all_reduce=ring/simple", &rules),
                     0);
    assert_ptr_equal(sl_nccl_rule_for(&rules, SL_NCCL_ALL_REDUCE, 4096), &rules.rules[0]);
    assert_ptr_equal(sl_nccl_rule_for(&rules, SL_NCCL_ALL_REDUCE, 8192), &rules.rules[0]);
    assert_ptr_equal(sl_nccl_rule_for(&rules, SL_NCCL_ALL_REDUCE, 8193), &rules.rules[1]);
    assert_null(sl_nccl_rule_for(&rules, SL_NCCL_BROADCAST, 4096));
}

static void fill(float *costs)
{
    for (int i = 0; i < CELLS; i++)
        costs[i] = (float)(i + 1);
}

static void a_rule_strikes_out_all_that_it_does_not_name(void **state)
{
    struct sl_nccl_rules rules;
    float costs[CELLS];
    int channels = 9;

    (void)state;
    fill(costs);
    assert_int_equal(sl_nccl_rules_read("*=*/simple,channels=3", &rules), 0);
    sl_nccl_rule_apply(&rules.rules[0], costs, SL_NCCL_ALGOS, SL_NCCL_PROTOS, &channels);
    for (int i = 0; i < CELLS; i++)
        assert_true(costs[i] == (i % SL_NCCL_PROTOS == SL_NCCL_PROTO_SIMPLE ? (float)(i + 1)
                                                                            : SL_NCCL_COST_IGNORE));
    assert_int_equal(channels, 3);
}

static void a_rule_for_what_nccl_cannot_do_changes_nothing(void **state)
{
    struct sl_nccl_rules rules;
    float costs[CELLS], before[CELLS];
    int channels = 9;

    (void)state;
    fill(costs);
    for (int p = 0; p < SL_NCCL_PROTOS; p++)
        costs[SL_NCCL_ALGO_NVLS * SL_NCCL_PROTOS + p] = SL_NCCL_COST_IGNORE;
    memcpy(before, costs, sizeof(before));
    assert_int_equal(sl_nccl_rules_read("*=nvls/*,channels=3", &rules), 0);
    sl_nccl_rule_apply(&rules.rules[0], costs, SL_NCCL_ALGOS, SL_NCCL_PROTOS, &channels);
    assert_memory_equal(costs, before, sizeof(before));
    assert_int_equal(channels, 9);
}

static void without_a_setting_nccl_chooses(void **state)
{
    float costs[CELLS], before[CELLS];
    void *ctx = (void *)(uintptr_t)1;
    int channels = 0;
    size_t chunk = 77;

    (void)state;
    unsetenv("SLUICE_NCCL_TUNER");
    fill(costs);
    memcpy(before, costs, sizeof(before));
    assert_int_equal(ncclTunerPlugin_v6.init(&ctx, 1, 2, 2, NULL, NULL, NULL), SL_NCCL_SUCCESS);
    assert_int_equal(ncclTunerPlugin_v6.choose(ctx, SL_NCCL_ALL_REDUCE, 1 << 20, 1,
                                               (float **)(void *)costs, SL_NCCL_ALGOS,
                                               SL_NCCL_PROTOS, 0, &channels),
                     SL_NCCL_SUCCESS);
    assert_int_equal(ncclTunerPlugin_v6.chunk(ctx, SL_NCCL_ALL_REDUCE, 1, 1, 2, 1, &chunk),
                     SL_NCCL_SUCCESS);
    assert_memory_equal(costs, before, sizeof(before));
    assert_int_equal(chunk, 77);
    assert_int_equal(ncclTunerPlugin_v6.finalize(ctx), SL_NCCL_SUCCESS);
}

static void a_file_of_rules_is_followed(void **state)
{
    char path[] = "/tmp/sluice-tuner-XXXXXX", setting[64];
    int fd = mkstemp(path), channels = 0;
    float costs[CELLS];
    void *ctx = NULL;
    size_t chunk = 77;

    (void)state;
    assert_true(fd >= 0);
    dprintf(fd, "# far away\nall_reduce:1M- = ring/simple\n");
    dprintf(fd, "all_reduce:1M-=ring/simple,channels=2,chunk=4M\n");
    snprintf(setting, sizeof(setting), "@%s", path);
    setenv("SLUICE_NCCL_TUNER", setting, 1);
    /* Blanks inside are no rule: the whole is refused, and NCCL chooses. */
    assert_int_equal(ncclTunerPlugin_v3.init(2, 2, NULL, &ctx), SL_NCCL_SUCCESS);
    assert_null(ctx);
    assert_int_equal(ftruncate(fd, 0), 0);
    lseek(fd, 0, SEEK_SET);
    dprintf(fd, "# far away\n  all_reduce:1M-=ring/simple,channels=2,chunk=4M  \n");
    assert_int_equal(ncclTunerPlugin_v3.init(2, 2, NULL, &ctx), SL_NCCL_SUCCESS);
    assert_non_null(ctx);
    fill(costs);
    assert_int_equal(ncclTunerPlugin_v3.choose(ctx, SL_NCCL_ALL_REDUCE, 1 << 20, 1,
                                               (float **)(void *)costs, SL_NCCL_ALGOS,
                                               SL_NCCL_PROTOS, &channels),
                     SL_NCCL_SUCCESS);
    assert_true(costs[SL_NCCL_ALGO_TREE * SL_NCCL_PROTOS + SL_NCCL_PROTO_SIMPLE] ==
                SL_NCCL_COST_IGNORE);
    assert_true(costs[SL_NCCL_ALGO_RING * SL_NCCL_PROTOS + SL_NCCL_PROTO_SIMPLE] > 0);
    assert_int_equal(channels, 2);
    ncclTunerPlugin_v6.chunk(ctx, SL_NCCL_ALL_REDUCE, 1 << 20, SL_NCCL_ALGO_RING,
                             SL_NCCL_PROTO_SIMPLE, 2, &chunk);
    assert_int_equal(chunk, 4 << 20);
    ncclTunerPlugin_v3.finalize(ctx);
    unsetenv("SLUICE_NCCL_TUNER");
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_read_part_by_part),
        cmocka_unit_test(what_is_no_rule_is_named),
        cmocka_unit_test(the_first_rule_that_fits_counts),
        cmocka_unit_test(a_rule_strikes_out_all_that_it_does_not_name),
        cmocka_unit_test(a_rule_for_what_nccl_cannot_do_changes_nothing),
        cmocka_unit_test(without_a_setting_nccl_chooses),
        cmocka_unit_test(a_file_of_rules_is_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
