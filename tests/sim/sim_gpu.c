/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on GPU memory, by the real engine in simulated networks and on an emulated GPU, whose
 * memory the processor is killed for touching: results are those of the plain reference, bit for
 * bit, and what fails says so.
 */
#include "tests/sim/gpu_ranks.h"

#include "core/err.h"
#include "core/rng.h"
#include "tests/unit/compress/emulated_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define ALWAYS "min=1,when=always" /* ranks on the host, too, however short the call is */

/* An allreduce of three ranks by bq8. */
static void usual(void)
{
    gpu_job = (struct gpu_job){.setting = "bq8:" ALWAYS};
    assert_int_equal(sl_codec_parse("bq8", &gpu_job.ref.spec), 0);
    gpu_job.ref.coll = SL_ALLREDUCE;
    gpu_job.ref.op = SLUICE_SUM;
    gpu_job.ref.ranks = 3;
    gpu_job.ref.hosts = 1;
    gpu_job.ref.count = 3 * SL_TILE + 77;
}

static void assert_all_well(const char *what)
{
    for (uint32_t i = 0; i < gpu_job.ref.ranks; i++)
        if (gpu_results[i] != 0)
            fail_msg("%s: rank %u ended with %d: %s", what, i, gpu_results[i], gpu_whys[i]);
}

/* ---- cases ---- */

static void draw(struct sl_rng *rng)
{
    static const char *const codecs[] = {"bq8",  "bq4",  "bq4:stochastic=on,seed=7", "e4m3", "bf16",
                                         "sign", "mxfp4"};
    static const enum sl_coll colls[] = {SL_ALLREDUCE,  SL_ALLREDUCE, SL_REDUCE_SCATTER,
                                         SL_ALL_GATHER, SL_BROADCAST, SL_ALL_TO_ALL};
    static const enum sluice_dtype dtypes[] = {SLUICE_F32, SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    const char *codec = codecs[sl_rng_below(rng, SL_ARRAY_LEN(codecs))];

    usual();
    assert_int_equal(sl_codec_parse(codec, &gpu_job.ref.spec), 0);
    gpu_job.ref.coll = colls[sl_rng_below(rng, SL_ARRAY_LEN(colls))];
    gpu_job.ref.spec.dtype = (uint8_t)dtypes[sl_rng_below(rng, SL_ARRAY_LEN(dtypes))];
    gpu_job.ref.op = sl_rng_chance(rng, 2) ? SLUICE_AVG : SLUICE_SUM;
    gpu_job.ref.ranks = (uint32_t)sl_rng_range(rng, 2, GPU_RANKS_MAX);
    gpu_job.ref.root = (uint32_t)sl_rng_below(rng, gpu_job.ref.ranks);
    gpu_job.ref.count = sl_rng_range(rng, 1, 9000);
    if (gpu_job.ref.coll != SL_ALLREDUCE && gpu_job.ref.coll != SL_BROADCAST)
        gpu_job.ref.count = gpu_job.ref.count / gpu_job.ref.ranks + 1;
    gpu_job.in_place = sl_rng_chance(rng, 3);
    gpu_job.kept = gpu_job.ref.coll == SL_ALLREDUCE && sl_rng_chance(rng, 2);
    gpu_job.swaps = !gpu_job.kept && sl_rng_chance(rng, 3);
    gpu_job.ref.feedback =
        gpu_job.ref.coll == SL_ALLREDUCE && !gpu_job.swaps && sl_rng_chance(rng, 2);
    snprintf(gpu_job.setting, sizeof(gpu_job.setting), "%s%c" ALWAYS "%s", codec,
             strchr(codec, ':') != NULL ? ',' : ':', gpu_job.ref.feedback ? ",feedback=on" : "");
    gpu_job.on_host = sl_rng_chance(rng, 3) ? 1u << sl_rng_below(rng, gpu_job.ref.ranks) : 0;
    gpu_job.many_hosts = gpu_job.on_host == 0 && !gpu_job.swaps && sl_rng_chance(rng, 2);
    gpu_job.late = sl_rng_chance(rng, 3);
}

static void results_are_those_of_the_processor_whatever_the_call(void **state)
{
    struct sl_rng rng;
    char what[160];

    (void)state;
    sl_rng_init(&rng, 14);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        draw(&rng);
        snprintf(what, sizeof(what), "seed %u: %s of %u %s by %s, %u ranks%s%s%s%s", (unsigned)seed,
                 sl_coll_name(gpu_job.ref.coll), (unsigned)gpu_job.ref.count,
                 sluice_dtype_name((enum sluice_dtype)gpu_job.ref.spec.dtype), gpu_job.setting,
                 gpu_job.ref.ranks, gpu_job.in_place ? ", in place" : "",
                 gpu_job.kept ? ", kept" : "", gpu_job.on_host != 0 ? ", one on the host" : "",
                 gpu_job.late ? ", late" : "");
        gpu_job_run(seed);
        assert_all_well(what);
        assert_true(emulated_gpu_kernels() != 0);
    }
}

static void operations_that_overlap_are_right_each(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        usual();
        assert_int_equal(sl_codec_parse("bq4:stochastic=on,seed=9", &gpu_job.ref.spec), 0);
        snprintf(gpu_job.setting, sizeof(gpu_job.setting),
                 "bq4:stochastic=on,seed=9," ALWAYS ",feedback=on");
        gpu_job.ref.feedback = true;
        gpu_job.pairs = true;
        gpu_job_run(seed);
        assert_all_well("two operations");
        assert_true(gpu_launched >= 4);
    }
}

/* The rank that something goes wrong on is 1. */
static void assert_ends(int result, const char *word)
{
    if (gpu_results[1] != result || strstr(gpu_whys[1], word) == NULL)
        fail_msg("rank 1 ended with %d: %s", gpu_results[1], gpu_whys[1]);
    for (uint32_t i = 0; i < gpu_job.ref.ranks; i++)
        if (i != 1 && (gpu_results[i] == 0 || gpu_results[i] == -EBADMSG))
            fail_msg("rank %u ended with %d: %s", i, gpu_results[i], gpu_whys[i]);
}

static void fail_a_kernel(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("kernel", 3, 700);
}

static void a_kernel_that_fails_ends_the_call_on_all_ranks(void **state)
{
    unsigned failed = 0;

    (void)state;
    usual();
    gpu_job.before = fail_a_kernel;
    gpu_job_run(1);
    /* One GPU is all ranks': whoever asks first is told, the others then, too, or by the first. */
    for (uint32_t i = 0; i < gpu_job.ref.ranks; i++) {
        assert_true(gpu_results[i] != 0 && gpu_results[i] != -EBADMSG);
        failed += strstr(gpu_whys[i], "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL;
    }
    assert_true(failed != 0);
}

static void refuse_a_launch(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuLaunchKernel", 1, 700);
}

static void a_kernel_that_cannot_be_started_is_named_with_its_step(void **state)
{
    (void)state;
    usual();
    gpu_job.on_host = 5; /* the driver is rank 1's alone */
    gpu_job.before = refuse_a_launch;
    gpu_job_run(2);
    assert_ends(-EIO, "by codec");
    assert_non_null(strstr(gpu_whys[1], "cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_non_null(strstr(gpu_whys[0], "rank 1"));
}

static void refuse_an_event(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuEventQuery", 2, 700);
}

static void a_context_that_is_lost_ends_the_call(void **state)
{
    (void)state;
    usual();
    gpu_job.on_host = 5;
    gpu_job.before = refuse_an_event;
    gpu_job_run(3);
    assert_ends(-EIO, "a codec's kernel on the GPU failed: CUDA_ERROR_ILLEGAL_ADDRESS");
}

static void refuse_memory(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuMemAlloc", 1, 2);
}

static void refuse_pinned_memory(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuMemHostAlloc", 1, 2);
}

static void a_gpu_without_memory_refuses_the_call(void **state)
{
    (void)state;
    usual();
    gpu_job.on_host = 5;
    gpu_job.before = refuse_memory;
    gpu_job_run(4);
    assert_ends(-ENOMEM, "no memory on the GPU for");
    gpu_job.before = refuse_pinned_memory;
    gpu_job_run(5);
    assert_ends(-ENOMEM, "no pinned memory for");
}

static void a_call_that_is_aborted_leaves_no_kernel_behind(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 6; seed++) {
        usual();
        gpu_job.on_host = 5;
        gpu_job.aborts = 4 + 3 * seed;
        gpu_job_run(seed); /* it looks for kernels that touch memory later */
        assert_ends(-ECANCELED, "rank");
        assert_true(gpu_launched >= 4); /* all that could begin, before anybody asked */
    }
}

/* A call that rank 1's library refuses, of which others see nothing. */
static void refused(int result, const char *word)
{
    gpu_job.alone = true;
    gpu_job_run(1);
    if (gpu_results[1] != result || strstr(gpu_whys[1], word) == NULL)
        fail_msg("%s: %d: %s", gpu_job.setting, gpu_results[1], gpu_whys[1]);
}

static void what_a_gpu_cannot_do_is_refused_in_a_sentence(void **state)
{
    (void)state;
    usual();
    snprintf(gpu_job.setting, sizeof(gpu_job.setting), "bq8:min=1M");
    refused(-ENOTSUP, "goes by no codec: switch compression on, with min=0");
    snprintf(gpu_job.setting, sizeof(gpu_job.setting), "topk:k=41," ALWAYS);
    refused(-ENOTSUP, "topk does not work on GPU memory: these do: bf16, fp16, bq8, ");
    snprintf(gpu_job.setting, sizeof(gpu_job.setting), "bq8:rotated=on," ALWAYS);
    refused(-ENOTSUP, "bq8 with rotated=on does not work on GPU memory");
    snprintf(gpu_job.setting, sizeof(gpu_job.setting), "bq8:measure=on," ALWAYS);
    refused(-ENOTSUP, "bq8 with measure=on");
    snprintf(gpu_job.setting, sizeof(gpu_job.setting), "sign:vote=on," ALWAYS);
    refused(-ENOTSUP, "sign with vote=on");
    usual();
    gpu_job.setting[0] = '\0'; /* never switched on */
    refused(-ENOTSUP, "goes by no codec: switch compression on");
    usual();
    gpu_job.ref.op = SLUICE_MAX;
    refused(-ENOTSUP, "allreduce of 12365 f32 is on GPU memory");
    usual();
    gpu_job.two_sides = true;
    refused(-EINVAL, "allreduce: the input buffer is GPU memory, and the other is not");
    usual();
    gpu_job.two_gpus = true;
    refused(-EINVAL, "the input is memory of GPU 0, the output of GPU 1");
}

static void a_rank_alone_is_told_that_nothing_is_sent(void **state)
{
    (void)state;
    usual();
    gpu_job.ref.ranks = 1;
    gpu_job_run(1);
    assert_int_equal(gpu_results[0], -ENOTSUP);
    assert_non_null(strstr(gpu_whys[0], "of one rank alone: nothing is sent"));
}

/* A second operation is on another GPU than the first. */
static void a_communicator_compresses_on_one_gpu(void **state)
{
    (void)state;
    usual();
    gpu_job.pairs = gpu_job.moves = true;
    refused(-ENOTSUP, "a communicator compresses on one GPU, and GPU 1 is not");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_processor_whatever_the_call),
        cmocka_unit_test(operations_that_overlap_are_right_each),
        cmocka_unit_test(a_kernel_that_fails_ends_the_call_on_all_ranks),
        cmocka_unit_test(a_kernel_that_cannot_be_started_is_named_with_its_step),
        cmocka_unit_test(a_context_that_is_lost_ends_the_call),
        cmocka_unit_test(a_gpu_without_memory_refuses_the_call),
        cmocka_unit_test(a_call_that_is_aborted_leaves_no_kernel_behind),
        cmocka_unit_test(what_a_gpu_cannot_do_is_refused_in_a_sentence),
        cmocka_unit_test(a_rank_alone_is_told_that_nothing_is_sent),
        cmocka_unit_test(a_communicator_compresses_on_one_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
