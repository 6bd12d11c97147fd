/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up jobs: they are what they are said to be, and the rules find what is wrong in them. */
#include "monitor/cases/judge.h"
#include "monitor/simulate/calls.h"
#include "monitor/simulate/play.h"
#include "monitor/simulate/quiet.h"
#include "monitor/simulate/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define JOBS 12

static int judge(const struct sl_job *job, struct sl_verdicts *verdicts)
{
    static const struct sl_judge_options options = SL_JUDGE_OPTIONS;

    return sl_judge(job, &options, verdicts);
}

static struct sl_job *play(const struct sl_play_plan *plan)
{
    struct sl_job *job;

    assert_int_equal(sl_play_job(plan, &job), 0);
    assert_int_equal(sl_job_seal(job), 0);
    return job;
}

static void the_same_seed_makes_the_same_job(void **state)
{
    struct sl_play_plan plan;
    struct sl_job *a, *b;

    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        sl_play_draw(&plan, 32, seed);
        a = play(&plan);
        b = play(&plan);
        assert_int_equal(a->op_count, b->op_count);
        assert_memory_equal(a->ops, b->ops, a->op_count * sizeof(*a->ops));
        assert_memory_equal(a->edges, b->edges, a->edge_count * sizeof(*a->edges));
        sl_job_free(a);
        sl_job_free(b);
    }
}

/* Every member calls a communicator's n-th collective with the same bytes, and ends it after all
 * have come; what is sent is received. */
static void healthy_jobs_end_what_they_call(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sl_play_plan plan;
        struct sl_job *job;
        uint64_t sends = 0, receives = 0, *bytes;
        int64_t *latest;

        sl_play_draw(&plan, 32, seed);
        plan.steps = 3;
        job = play(&plan);
        bytes = calloc((size_t)job->comm_count * 4096, sizeof(*bytes));
        latest = calloc((size_t)job->comm_count * 4096, sizeof(*latest));
        for (size_t i = 0; i < job->op_count; i++) {
            const struct sl_job_op *op = &job->ops[i];

            assert_int_equal(op->state, SL_JOB_DONE);
            assert_true(op->issue_ns <= op->start_ns && op->start_ns <= op->end_ns);
            sends += op->kind == SL_JOB_SEND;
            receives += op->kind == SL_JOB_RECV;
            if (op->comm == SL_JOB_NONE || op->peer != SL_JOB_NONE)
                continue;
            assert_true(op->seq > 0 && op->seq < 4096);
            if (bytes[op->comm * 4096 + op->seq] != 0)
                assert_int_equal(bytes[op->comm * 4096 + op->seq], op->bytes);
            bytes[op->comm * 4096 + op->seq] = op->bytes;
            if (op->start_ns > latest[op->comm * 4096 + op->seq])
                latest[op->comm * 4096 + op->seq] = op->start_ns;
        }
        for (size_t i = 0; i < job->op_count; i++) { /* clocks differ by up to 20 ms */
            const struct sl_job_op *op = &job->ops[i];

            if (op->comm != SL_JOB_NONE && op->peer == SL_JOB_NONE)
                assert_true(op->end_ns + 20000000 > latest[op->comm * 4096 + op->seq]);
        }
        assert_int_equal(sends, receives);
        free(bytes);
        free(latest);
        sl_job_free(job);
    }
}

static void members_of_communicators_know_them(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct sl_play_plan plan;

        sl_play_draw(&plan, 64, seed);
        for (uint32_t comm = 0; comm < sl_play_comms(&plan); comm++) {
            enum sl_play_comm_kind kind = sl_play_comm_kind(&plan, comm);
            uint32_t first, step, count = sl_play_members(&plan, comm, &first, &step);

            assert_true(count > 1);
            for (uint32_t i = 0; i < count; i++)
                assert_int_equal(sl_play_comm_of(&plan, kind, first + i * step), comm);
        }
    }
}

static void numbers_that_make_no_job_are_refused(void **state)
{
    struct sl_play_plan plan;
    struct sl_job *job;

    (void)state;
    sl_play_default(&plan);
    plan.experts = 3;
    assert_int_equal(sl_play_job(&plan, &job), -22);
    sl_play_default(&plan);
    plan.batches = 25;
    assert_int_equal(sl_play_job(&plan, &job), -22);
    sl_play_default(&plan);
    plan.tensor = 0;
    assert_int_equal(sl_play_job(&plan, &job), -22);
}

static void accuses(enum sl_verdict_class cls, double strength)
{
    struct sl_trials trials;

    assert_int_equal(sl_trials_run(64, cls, strength, 1000, JOBS, false, judge, &trials), 0);
    if (trials.found < trials.identifiable || trials.wrong > 0)
        fail_msg("%s: %u of %u jobs identifiable, %u found, %u accuse an innocent one",
                 sl_verdict_class_name(cls), trials.identifiable, trials.count, trials.found,
                 trials.wrong);
    assert_true(trials.identifiable >= JOBS / 6);
    if (cls < SL_VERDICT_SLOW_RANK)
        assert_int_equal(trials.in_set, trials.count);
}

static void each_hang_is_found(void **state)
{
    (void)state;
    for (unsigned cls = SL_VERDICT_HOST_STALLED; cls <= SL_VERDICT_MISMATCH; cls++)
        accuses((enum sl_verdict_class)cls, 1);
}

static void a_rank_that_is_half_as_slow_again_is_found(void **state)
{
    (void)state;
    accuses(SL_VERDICT_SLOW_RANK, 1.5);
}

/* Leaves, rails, planes, spines by their names; who sends, who receives, and links. */
static void slow_parts_of_the_network_are_found(void **state)
{
    (void)state;
    for (unsigned cls = SL_VERDICT_SLOW_SENDER; cls <= SL_VERDICT_SLOW_GROUP; cls++)
        accuses((enum sl_verdict_class)cls, 2);
}

static void healthy_jobs_accuse_nobody(void **state)
{
    struct sl_trials trials;

    (void)state;
    assert_int_equal(
        sl_trials_run(64, SL_VERDICT_NOT_HUNG, 1, 5000, 2 * JOBS, false, judge, &trials), 0);
    assert_int_equal(trials.silent, trials.count);
}

static void healthy_ranks_accuse_nobody_for_days(void **state)
{
    struct sl_quiet quiet;

    (void)state;
    assert_int_equal(sl_quiet_run(7, 3, 10000, &quiet), 0);
    assert_int_equal(quiet.alarms, 0);
    /* The mean of which nothing is seen in one of 20 is 3. */
    assert_true(quiet.bound > 2.99 / quiet.node_days * 10000 &&
                quiet.bound < 3.01 / quiet.node_days * 10000);
}

/* ---- seeds that found something ---- */

static void seed_is(uint64_t seed, enum sl_verdict_class cls, double strength, struct sl_trial *out)
{
    struct sl_play_plan plan;

    sl_play_draw(&plan, 64, seed);
    if (cls != SL_VERDICT_NOT_HUNG)
        assert_true(sl_play_draw_fault(&plan, cls, strength));
    assert_int_equal(sl_trial_run(&plan, judge, out), 0);
    assert_int_equal(out->wrong, 0);
}

/* Four healthy ranks were slow: hosts two calls ahead call while their GPUs compute. */
static void seed_13_hosts_that_call_early(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(13, SL_VERDICT_NOT_HUNG, 1, &trial);
    assert_true(trial.is_silent);
}

/* A GPU stopped, and the program was a deadlock by what hosts had called already. */
static void seeds_18_33_35_calls_ahead_make_no_circle(void **state)
{
    static const uint64_t seeds[] = {18, 33, 35};
    struct sl_trial trial;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        seed_is(seeds[i], SL_VERDICT_GPU_STUCK, 1, &trial);
        assert_true(trial.is_in_set);
    }
}

/* A GPU stopped, and a link of 0.1 s was accused of a hang of 120. */
static void seeds_2_25_some_link_is_always_the_slowest(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(2, SL_VERDICT_GPU_STUCK, 1, &trial);
    assert_true(trial.is_in_set);
    seed_is(25, SL_VERDICT_GPU_STUCK, 1, &trial);
    assert_true(trial.is_in_set);
}

/* Two kinds of hosts: the slow rank was the widest gap, and none was found. */
static void seeds_6_22_43_a_slow_rank_beside_two_kinds(void **state)
{
    static const uint64_t seeds[] = {6, 22, 43};
    struct sl_trial trial;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        seed_is(seeds[i], SL_VERDICT_SLOW_RANK, 1.5, &trial);
        assert_true(trial.is_found);
    }
}

/* One of two kinds became slow, the median of both jumped, and up to 15 others were accused. */
static void seeds_26_271_a_median_of_two_kinds(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(26, SL_VERDICT_SLOW_RANK, 1.5, &trial);
    assert_true(trial.is_found);
    seed_is(271, SL_VERDICT_SLOW_RANK, 1.5, &trial);
    assert_true(trial.is_found);
}

/* Two kinds of hosts, 5 to 30 % apart, were one population with a slow rank between or beside them,
 * and what healthy members differ by hid it; what longer sequences leave was taken for memory. */
static void seeds_1016_1029_1067_1134_kinds_that_are_near(void **state)
{
    static const struct {
        uint64_t seed;
        double strength;
    } seeds[] = {{1016, 1.1}, {1029, 1.15}, {1067, 1.15}, {1134, 1.1}, {1058, 1.2}};
    struct sl_trial trial;

    (void)state;
    for (unsigned i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        seed_is(seeds[i].seed, SL_VERDICT_SLOW_RANK, seeds[i].strength, &trial);
        assert_true(trial.is_found);
    }
}

/* A bet that spread its stake over all strengths in each step anew needed more steps than there
 * were. */
static void seeds_1110_1142_few_steps(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(1110, SL_VERDICT_SLOW_RANK, 1.15, &trial);
    assert_true(trial.is_found);
    seed_is(1142, SL_VERDICT_SLOW_RANK, 1.15, &trial);
    assert_true(trial.is_found);
}

/* Two stages, and shorter sequences in the first half than in the second: a healthy rank had become
 * slow. */
static void seed_50098_shorter_sequences_before(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(50098, SL_VERDICT_NOT_HUNG, 1, &trial);
    assert_true(trial.is_silent);
}

/* Two kinds of hosts, and few steps: ranks of the slower kind lay in between. */
static void seed_20048_between_two_kinds(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(20048, SL_VERDICT_DEAD, 2, &trial);
    assert_true(trial.is_found);
    assert_int_equal(trial.wrong, 0);
}

/* A link hung in the twelfth step: until then three replicas had longer sequences, which looked
 * like slower hosts in six roles of eight. Of the other two, a rank each was slow. */
static void seed_108_longer_sequences_before_a_hang(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(108, SL_VERDICT_COMM_STUCK, 1, &trial);
    assert_true(trial.is_found);
    seed_is(108, SL_VERDICT_GPU_STUCK, 1, &trial);
    assert_true(trial.is_in_set);
}

/* A message hung for two minutes, among 16 to its receiver: who was slow to receive all. */
static void seed_38802_a_message_that_hangs_is_not_slow(void **state)
{
    struct sl_trial trial;

    (void)state;
    seed_is(38802, SL_VERDICT_COMM_STUCK, 1, &trial);
    assert_true(trial.is_found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_makes_the_same_job),
        cmocka_unit_test(healthy_jobs_end_what_they_call),
        cmocka_unit_test(members_of_communicators_know_them),
        cmocka_unit_test(numbers_that_make_no_job_are_refused),
        cmocka_unit_test(each_hang_is_found),
        cmocka_unit_test(a_rank_that_is_half_as_slow_again_is_found),
        cmocka_unit_test(slow_parts_of_the_network_are_found),
        cmocka_unit_test(healthy_jobs_accuse_nobody),
        cmocka_unit_test(healthy_ranks_accuse_nobody_for_days),
        cmocka_unit_test(seed_13_hosts_that_call_early),
        cmocka_unit_test(seeds_18_33_35_calls_ahead_make_no_circle),
        cmocka_unit_test(seeds_2_25_some_link_is_always_the_slowest),
        cmocka_unit_test(seeds_6_22_43_a_slow_rank_beside_two_kinds),
        cmocka_unit_test(seeds_26_271_a_median_of_two_kinds),
        cmocka_unit_test(seeds_1016_1029_1067_1134_kinds_that_are_near),
        cmocka_unit_test(seeds_1110_1142_few_steps),
        cmocka_unit_test(seed_50098_shorter_sequences_before),
        cmocka_unit_test(seed_20048_between_two_kinds),
        cmocka_unit_test(seed_108_longer_sequences_before_a_hang),
        cmocka_unit_test(seed_38802_a_message_that_hangs_is_not_slow),
    };

    return cmocka_run_group_tests_name("diagnosis_simulate", tests, NULL, NULL);
}
