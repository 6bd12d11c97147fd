/* SPDX-License-Identifier: Apache-2.0 */
/* Who is slow in recorded jobs of known truth. They lie beside the tree; each test is skipped
 * without them. */
#include "monitor/diagnosis/slow.h"
#include "monitor/read/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static const struct sl_slow_options options = SL_SLOW_OPTIONS;

static struct sl_job *slowed; /* the job with one slowed worker, once it was read */

static struct sl_verdicts judge_kept(const struct sl_job *job)
{
    struct sl_verdicts verdicts = {0};

    assert_int_equal(sl_slow_find(job, &options, &verdicts), 0);
    for (uint32_t i = 0; i < verdicts.count; i++)
        for (uint32_t k = 0; k < verdicts.list[i].evidence_count; k++)
            printf("# %s\n", verdicts.list[i].evidence[k]);
    return verdicts;
}

/* Verdicts of the job, which is freed. */
static struct sl_verdicts judge(struct sl_job *job)
{
    struct sl_verdicts verdicts = judge_kept(job);

    sl_job_free(job);
    return verdicts;
}

static void is_rank(struct sl_verdicts *verdicts, uint32_t rank, double least, double most)
{
    assert_int_equal(verdicts->count, 1);
    assert_int_equal(verdicts->list[0].cls, SL_VERDICT_SLOW_RANK);
    assert_int_equal(verdicts->list[0].accused.kind, SL_OBJECT_RANK);
    assert_int_equal(verdicts->list[0].accused.a, rank);
    assert_true(verdicts->list[0].probability >= least && verdicts->list[0].probability <= most);
    assert_true(verdicts->list[0].evidence_count >= 2);
    sl_verdicts_free(verdicts);
}

static struct sl_job *read_data(const char *name)
{
    const char *folder = getenv("SLUICE_TEST_DATA");
    struct sl_job *job;
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder != NULL ? folder : "", name);
    file = fopen(path, "r");
    if (file == NULL) {
        print_message("no recorded file %s\n", path);
        skip();
    }
    fclose(file);
    job = sl_job_new();
    assert_int_equal(sl_read_file(job, path), 0);
    assert_int_equal(sl_job_seal(job), 0);
    return job;
}

static struct sl_job *read_slowed(void)
{
    if (slowed == NULL)
        slowed = read_data("straggler/timeline-AR.json.gz");
    return slowed;
}

static int forget(void **state)
{
    (void)state;
    sl_job_free(slowed);
    return 0;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* What reading the trace and judging it took. */
static double slowed_took;

static void the_slowed_worker_of_the_recorded_job_is_accused_alone(void **state)
{
    double begin = seconds();
    struct sl_job *job = read_slowed();
    struct sl_verdicts verdicts;

    (void)state;
    assert_int_equal(job->op_count, 117216);
    assert_int_equal(job->ranks[0].replica, 0);
    assert_int_equal(job->ranks[0].stage, 0);
    verdicts = judge_kept(job);
    is_rank(&verdicts, 0, 0.99, 1);
    slowed_took = seconds() - begin;
}

/* A case of its own, since a processor that is emulated takes longer. */
static void its_trace_takes_less_than_two_seconds_of_processor(void **state)
{
    (void)state;
    if (slowed_took == 0) {
        print_message("the trace was not judged\n");
        skip();
    }
    print_message("%.3f s of processor\n", slowed_took);
#ifndef __SANITIZE_ADDRESS__
    assert_true(slowed_took < 2);
#endif
}

/* The job as it was after so many steps. */
static struct sl_job *first_steps(const struct sl_job *from, uint32_t last)
{
    struct sl_job *job = sl_job_new();

    for (uint32_t i = 0; i < from->comm_count; i++) {
        const struct sl_job_comm *it = &from->comms[i];
        const char *name = sl_job_string(from, it->name);
        uint32_t comm;

        assert_int_equal(sl_job_add_comm(job, sl_job_text(job, name, strlen(name)), &comm), 0);
        assert_int_equal(sl_job_set_members(job, comm, it->members, it->member_count), 0);
    }
    for (size_t i = 0; i < from->op_count; i++)
        if (from->ops[i].step <= last)
            assert_int_equal(sl_job_add_op(job, &from->ops[i]), 0);
    for (uint32_t i = 0; i < job->rank_count; i++) {
        job->ranks[i].replica = from->ranks[i].replica;
        job->ranks[i].stage = from->ranks[i].stage;
        job->ranks[i].tensor = from->ranks[i].tensor;
    }
    assert_int_equal(sl_job_seal(job), 0);
    return job;
}

static void three_steps_of_it_are_enough(void **state)
{
    struct sl_job *job = read_slowed();
    struct sl_verdicts verdicts = judge(first_steps(job, 27)); /* 16, 21 and 27 were recorded */

    (void)state;
    is_rank(&verdicts, 0, 0.9, 1);
    verdicts = judge(first_steps(job, 21));
    assert_int_equal(verdicts.count, 0);
    sl_verdicts_free(&verdicts);
}

/* The naive rule, as a control: it must fail on this job, or the job shows nothing. */
static void last_to_arrive_accuses_others_before_the_guilty(void **state)
{
    struct sl_job *job = read_slowed();
    double lag[16] = {0};
    uint32_t worst = 0, ahead = 0;

    (void)state;
    assert_int_equal(job->rank_count, 16);
    for (uint32_t rank = 0; rank < 16; rank++)
        for (size_t i = job->first_op[rank]; i < job->first_op[rank + 1]; i++) {
            const struct sl_job_op *op = &job->ops[i];
            int64_t first = op->start_ns;

            if (strcmp(sl_job_string(job, op->name), "layernorm-grads-all-reduce") != 0)
                continue;
            for (uint32_t peer = 0; peer < 16; peer++)
                for (size_t k = job->first_op[peer]; k < job->first_op[peer + 1]; k++)
                    if (job->ops[k].comm == op->comm && job->ops[k].seq == op->seq &&
                        job->ops[k].name == op->name && job->ops[k].start_ns < first)
                        first = job->ops[k].start_ns;
            lag[rank] += (double)(op->start_ns - first) * 1e-9;
        }
    for (uint32_t rank = 0; rank < 16; rank++) {
        worst = lag[rank] > lag[worst] ? rank : worst;
        ahead += lag[rank] > lag[0];
    }
    assert_int_not_equal(worst, 0);
    assert_true(ahead >= 2);
}

static void worker_6_of_the_first_mini_batch_job_is_found(void **state)
{
    struct sl_verdicts verdicts = judge(read_data("minibatch/job_1_norm.csv"));

    (void)state;
    assert_int_equal(verdicts.count, 1);
    assert_non_null(strstr(verdicts.list[0].evidence[0], "from sample 1811 on"));
    is_rank(&verdicts, 6, 0.9, 1);
}

static void the_second_mini_batch_job_is_healthy(void **state)
{
    struct sl_verdicts verdicts = judge(read_data("minibatch/job_2_norm.csv"));

    (void)state;
    assert_int_equal(verdicts.count, 0);
    sl_verdicts_free(&verdicts);
}

static struct sl_verdicts judge_gauges(struct sl_job *job)
{
    struct sl_verdicts verdicts = {0};

    assert_int_equal(sl_slow_find(job, &options, &verdicts), 0);
    assert_int_equal(sl_gauges_find(job, &verdicts), 0);
    sl_job_free(job);
    return verdicts;
}

static void a_scrape_says_that_nobody_or_everybody_hangs(void **state)
{
    struct sl_verdicts verdicts = judge_gauges(read_data("xpu-timer/normal.prom"));

    (void)state;
    assert_int_equal(verdicts.count, 0);
    sl_verdicts_free(&verdicts);
    verdicts = judge_gauges(read_data("xpu-timer/hang-all.prom"));
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.list[0].cls, SL_VERDICT_COMM_STUCK);
    assert_int_equal(verdicts.list[0].other_count, 7);
    sl_verdicts_free(&verdicts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowed_worker_of_the_recorded_job_is_accused_alone),
        cmocka_unit_test(its_trace_takes_less_than_two_seconds_of_processor),
        cmocka_unit_test(three_steps_of_it_are_enough),
        cmocka_unit_test(last_to_arrive_accuses_others_before_the_guilty),
        cmocka_unit_test(worker_6_of_the_first_mini_batch_job_is_found),
        cmocka_unit_test(the_second_mini_batch_job_is_healthy),
        cmocka_unit_test(a_scrape_says_that_nobody_or_everybody_hangs),
    };

    return cmocka_run_group_tests_name("diagnosis_slow_recorded", tests, NULL, forget);
}
