/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL's profiler tells, as times: when a rank's GPU came to a collective. */
#include "monitor/diagnosis/slow.h"
#include "monitor/read/nccl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 4
#define STEPS 30
#define MS ((int64_t)1000000)

/* Each rank calls at once, as training scripts do, whose GPU still computes: its kernel begins
 * after 15 ms, that of the slow rank after 45. All end it together. */
static void fill(struct sl_nccl_tale *tale, uint32_t rank, uint32_t slow, bool has_kernels)
{
    struct sl_nccl_comm *comm = sl_nccl_add_comm(tale);

    assert_non_null(comm);
    *comm = (struct sl_nccl_comm){.id = 0xabc, .rank = rank, .ranks = RANKS};
    tale->has_kernels = has_kernels;
    tale->wall_ns = 1000 * MS;
    for (uint32_t step = 0; step < STEPS; step++) {
        int64_t call_ns = (int64_t)(1 + step) * 50 * MS,
                noise = (rank * 7 + step * 3) % 11 * MS / 40;
        struct sl_nccl_call *call = sl_nccl_add_call(tale);
        struct sl_nccl_part *proxy = sl_nccl_add_part(tale), *kernel = NULL;

        if (call == NULL || proxy == NULL) {
            fail_msg("no memory");
            return;
        }
        *call = (struct sl_nccl_call){.id = step + 1,
                                      .seq = step,
                                      .count = 1000,
                                      .start_ns = call_ns,
                                      .kernel_ns = SL_JOB_NEVER,
                                      .root = -1};
        snprintf(call->func, sizeof(call->func), "AllReduce");
        snprintf(call->datatype, sizeof(call->datatype), "ncclFloat");
        *proxy = (struct sl_nccl_part){.id = 1000 + step,
                                       .call = call->id,
                                       .peer = (rank + 1) % RANKS,
                                       .is_send = true,
                                       .start_ns = call_ns + MS,
                                       .at_ns = call_ns + 47 * MS};
        if (!has_kernels)
            continue;
        kernel = sl_nccl_add_part(tale);
        if (kernel == NULL) {
            fail_msg("no memory");
            return;
        }
        *kernel = (struct sl_nccl_part){.id = 2000 + step,
                                        .call = call->id,
                                        .peer = SL_JOB_NONE,
                                        .start_ns = call_ns + (rank == slow ? 45 : 15) * MS + noise,
                                        .at_ns = call_ns + 48 * MS};
    }
}

static struct sl_job *make(uint32_t slow, bool has_kernels)
{
    struct sl_job *job = sl_job_new();

    assert_non_null(job);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct sl_nccl_tale tale = {.name = "file", .host = "h"};

        snprintf(tale.process, sizeof(tale.process), "pid %u on h", 100 + rank);
        fill(&tale, rank, slow, has_kernels);
        assert_int_equal(sl_nccl_take(job, &tale), 0);
        sl_nccl_free(&tale);
    }
    assert_int_equal(sl_job_seal(job), 0);
    return job;
}

static void expect(uint32_t slow, bool has_kernels, bool is_told)
{
    const struct sl_slow_options options = SL_SLOW_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job = make(slow, has_kernels);

    assert_int_equal(sl_slow_find(job, &options, &verdicts), 0);
    assert_int_equal(verdicts.count, is_told);
    if (is_told) {
        assert_int_equal(verdicts.list[0].cls, SL_VERDICT_SLOW_RANK);
        assert_int_equal(verdicts.list[0].accused.a, slow);
    }
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

static void a_gpu_that_comes_late_to_its_kernels_is_slow(void **state)
{
    (void)state;
    expect(2, true, true);
    expect(SL_JOB_NONE, true, false);
}

/* Without kernels it is not told when a GPU came to a collective: all call it at once. */
static void without_kernels_nobody_is_slow(void **state)
{
    (void)state;
    expect(2, false, false);
}

static void a_call_starts_with_its_first_kernel(void **state)
{
    struct sl_job *job = make(2, true);

    (void)state;
    for (size_t i = 0; i < job->op_count; i++) {
        int64_t late = job->ops[i].start_ns - job->ops[i].issue_ns;

        assert_true(late >= (job->ops[i].rank == 2 ? 45 : 15) * MS && late < 46 * MS);
    }
    sl_job_free(job);
    job = make(2, false);
    for (size_t i = 0; i < job->op_count; i++)
        assert_true(job->ops[i].start_ns == SL_JOB_NEVER);
    sl_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_comes_late_to_its_kernels_is_slow),
        cmocka_unit_test(without_kernels_nobody_is_slow),
        cmocka_unit_test(a_call_starts_with_its_first_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
