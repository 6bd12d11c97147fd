/* SPDX-License-Identifier: Apache-2.0 */
/* Who is slow: jobs made here, of which one rank is, or none. */
#include "core/rng.h"
#include "monitor/diagnosis/fuse.h"
#include "monitor/diagnosis/selftime.h"
#include "monitor/diagnosis/slow.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A job of replicas x stages, made step by step: each rank computes, sends on, and all of a stage
 * reduce; factor tells how much slower a rank computes in a step. */
struct shape {
    uint32_t replicas, stages, steps;
    double (*factor)(const struct shape *shape, uint32_t replica, uint32_t stage, uint32_t step);
    uint32_t ranks_per_host;
    bool is_gap;    /* no operations of computing: its time passes between collectives */
    bool is_untold; /* steps have no numbers */
    bool has_layout;
    bool has_messages; /* between ranks 0 and 1, before the steps */
    uint32_t wire_ms;  /* what a collective takes once all are there; 0: 1 */
};

static const struct sl_slow_options options = SL_SLOW_OPTIONS;

static uint32_t comm_of(struct sl_job *job, const char *kind, uint32_t index, const uint32_t *ranks,
                        uint32_t count)
{
    char name[32];
    uint32_t comm;

    snprintf(name, sizeof(name), "%s %u", kind, index);
    assert_int_equal(sl_job_add_comm(job, sl_job_text(job, name, strlen(name)), &comm), 0);
    assert_int_equal(sl_job_set_members(job, comm, ranks, count), 0);
    return comm;
}

static void add(struct sl_job *job, const struct shape *shape, uint32_t rank, uint32_t step,
                enum sl_job_kind kind, uint32_t comm, int64_t start, int64_t end)
{
    struct sl_job_op op = {.rank = rank,
                           .comm = comm,
                           .peer = SL_JOB_NONE,
                           .name = sl_job_text(job, "x", 1),
                           .step = shape->is_untold ? SL_JOB_NONE : step,
                           .seq = step,
                           .bytes =
                               kind == SL_JOB_COMPUTE ? 0 : 4096 * (rank / shape->replicas + 1),
                           .issue_ns = shape->is_gap ? start : SL_JOB_NEVER,
                           .start_ns = start,
                           .end_ns = end,
                           .kind = (uint8_t)kind,
                           .state = SL_JOB_DONE};

    assert_int_equal(sl_job_add_op(job, &op), 0);
}

/* Everybody waits in the collective of its stage for the slowest, and all stages for each other: so
 * waits are inherited by the whole job. */
static void make_step(struct sl_job *job, const struct shape *shape, const uint32_t *comms,
                      uint32_t step, int64_t *now, struct sl_rng *rng)
{
    uint32_t count = shape->replicas * shape->stages;
    int64_t wire_ns = 1000000 * (int64_t)(shape->wire_ms > 0 ? shape->wire_ms : 1);
    int64_t end[64], last = 0;

    assert_true(count <= 64);
    for (uint32_t rank = 0; rank < count; rank++) {
        uint32_t stage = rank / shape->replicas, replica = rank % shape->replicas;
        double noise = 1 + 0.002 * ((double)sl_rng_below(rng, 1001) / 500 - 1);
        double ms = 100 * (stage + 1) * noise * shape->factor(shape, replica, stage, step);

        end[rank] = *now + (int64_t)(ms * 1e6);
        last = end[rank] > last ? end[rank] : last;
        if (!shape->is_gap)
            add(job, shape, rank, step, SL_JOB_COMPUTE, SL_JOB_NONE, *now, end[rank]);
    }
    for (uint32_t rank = 0; rank < count; rank++)
        add(job, shape, rank, step, SL_JOB_ALLREDUCE, comms[rank / shape->replicas], end[rank],
            last + wire_ns);
    *now = last + wire_ns;
}

/* Two ranks measure their link before the first step, as communicators that choose between
 * algorithms do. */
static void make_messages(struct sl_job *job, uint32_t comm)
{
    for (uint32_t i = 0; i < 70; i++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct sl_job_op op = {.rank = rank,
                                   .comm = comm,
                                   .peer = 1 - rank,
                                   .name = sl_job_text(job, "x", 1),
                                   .step = SL_JOB_NONE,
                                   .seq = i + 1,
                                   .bytes = 64,
                                   .issue_ns = 100000000 + 1000000 * (int64_t)i,
                                   .start_ns = SL_JOB_NEVER,
                                   .end_ns = 100500000 + 1000000 * (int64_t)i,
                                   .kind = (i + rank) % 2 == 0 ? SL_JOB_SEND : SL_JOB_RECV,
                                   .state = SL_JOB_DONE};

            assert_int_equal(sl_job_add_op(job, &op), 0);
        }
}

static struct sl_job *make(const struct shape *shape)
{
    struct sl_job *job = sl_job_new();
    uint32_t comms[64], ranks[64];
    int64_t now = 1000000000;
    struct sl_rng rng;

    sl_rng_init(&rng, 16);
    for (uint32_t stage = 0; stage < shape->stages; stage++) {
        for (uint32_t i = 0; i < shape->replicas; i++)
            ranks[i] = stage * shape->replicas + i;
        comms[stage] = comm_of(job, "data", stage, ranks, shape->replicas);
    }
    if (shape->has_messages)
        make_messages(job, comms[0]);
    for (uint32_t step = 0; step < shape->steps; step++)
        make_step(job, shape, comms, step, &now, &rng);
    for (uint32_t rank = 0; rank < job->rank_count; rank++) {
        char host[16];

        snprintf(host, sizeof(host), "host%u",
                 shape->ranks_per_host > 0 ? rank / shape->ranks_per_host : 0);
        if (shape->ranks_per_host > 0)
            job->ranks[rank].host = sl_job_text(job, host, strlen(host));
        if (!shape->has_layout)
            continue;
        job->ranks[rank].replica = rank % shape->replicas;
        job->ranks[rank].stage = rank / shape->replicas;
        job->ranks[rank].tensor = 0;
    }
    assert_int_equal(sl_job_seal(job), 0);
    return job;
}

/* Verdicts of the job, which is freed. */
static struct sl_verdicts judge(struct sl_job *job)
{
    struct sl_verdicts verdicts = {0};

    assert_int_equal(sl_slow_find(job, &options, &verdicts), 0);
    for (uint32_t i = 0; i < verdicts.count; i++)
        for (uint32_t k = 0; k < verdicts.list[i].evidence_count; k++)
            printf("# %s\n", verdicts.list[i].evidence[k]);
    sl_job_free(job);
    return verdicts;
}

static void is_silent(const struct shape *shape)
{
    struct sl_verdicts verdicts = judge(make(shape));

    assert_int_equal(verdicts.count, 0);
    sl_verdicts_free(&verdicts);
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

/* ---- who is slow by what ---- */

static double nobody(const struct shape *shape, uint32_t replica, uint32_t stage, uint32_t step)
{
    (void)shape, (void)replica, (void)stage, (void)step;
    return 1;
}

static double rank_1_by_half(const struct shape *shape, uint32_t replica, uint32_t stage,
                             uint32_t step)
{
    (void)shape, (void)stage, (void)step;
    return replica == 1 ? 1.5 : 1;
}

static double one_by_half(const struct shape *shape, uint32_t replica, uint32_t stage,
                          uint32_t step)
{
    (void)shape, (void)step;
    return replica == 2 && stage == 1 ? 1.5 : 1;
}

static double one_by_a_fifth_from_20(const struct shape *shape, uint32_t replica, uint32_t stage,
                                     uint32_t step)
{
    (void)shape;
    return replica == 0 && stage == 0 && step >= 20 ? 1.2 : 1;
}

/* Longer sequences: all stages of the replica, in some steps more than in others. */
static double replica_3(const struct shape *shape, uint32_t replica, uint32_t stage, uint32_t step)
{
    (void)shape, (void)stage;
    return replica == 3 ? 1.4 + 0.1 * (step % 3) : 1;
}

static double two_kinds(const struct shape *shape, uint32_t replica, uint32_t stage, uint32_t step)
{
    (void)stage, (void)step;
    return replica < shape->replicas / 4 ? 1.3 : 1;
}

static double all_from_20(const struct shape *shape, uint32_t replica, uint32_t stage,
                          uint32_t step)
{
    (void)shape, (void)replica, (void)stage;
    return step >= 20 ? 1.7 : 1;
}

static double long_pauses(const struct shape *shape, uint32_t replica, uint32_t stage,
                          uint32_t step)
{
    (void)shape, (void)stage;
    return replica == 1 && (step == 10 || step == 11 || step == 30) ? 30 : 1;
}

static double host_1(const struct shape *shape, uint32_t replica, uint32_t stage, uint32_t step)
{
    (void)stage, (void)step;
    return replica / shape->ranks_per_host == 1 ? 1.25 : 1;
}

static double first_of_host_1(const struct shape *shape, uint32_t replica, uint32_t stage,
                              uint32_t step)
{
    (void)stage, (void)step;
    return replica == shape->ranks_per_host ? 1.25 : 1;
}

static double two_from_12(const struct shape *shape, uint32_t replica, uint32_t stage,
                          uint32_t step)
{
    (void)shape, (void)stage;
    return (replica == 1 || replica == 2) && step >= 12 ? 1.4 : 1;
}

static void a_slow_rank_is_found_and_nobody_else(void **state)
{
    struct shape shape = {.replicas = 4, .stages = 3, .steps = 12, .factor = one_by_half};
    struct sl_verdicts verdicts;

    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        shape.has_layout = layout;
        verdicts = judge(make(&shape));
        is_rank(&verdicts, 1 * 4 + 2, 0.99, 1);
    }
}

static void a_rank_that_becomes_slow_is_found_with_its_onset(void **state)
{
    struct shape shape = {
        .replicas = 4, .stages = 2, .steps = 40, .factor = one_by_a_fifth_from_20};
    struct sl_job *job = make(&shape);
    int64_t since = SL_JOB_NEVER;
    struct sl_verdicts verdicts;

    (void)state;
    for (size_t i = job->first_op[0]; i < job->first_op[1] && since == SL_JOB_NEVER; i++)
        if (job->ops[i].step == 20)
            since = job->ops[i].start_ns;
    verdicts = judge(job);
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.list[0].since_ns, since);
    is_rank(&verdicts, 0, 0.9, 1);
}

static void time_between_collectives_is_own_time_where_nothing_else_is_known(void **state)
{
    struct shape shape = {
        .replicas = 5, .stages = 1, .steps = 12, .factor = one_by_half, .is_gap = true};
    struct sl_verdicts verdicts;

    (void)state;
    shape.stages = 2;
    verdicts = judge(make(&shape));
    is_rank(&verdicts, 1 * 5 + 2, 0.99, 1);
}

/* Of steps that are nearly all messages, half as much again of one rank's work is less than a
 * hundredth. */
static void who_costs_the_job_nothing_is_not_accused(void **state)
{
    struct shape shape = {
        .replicas = 4, .stages = 2, .steps = 12, .factor = one_by_half, .is_gap = true};
    struct sl_verdicts verdicts;

    (void)state;
    shape.wire_ms = 12000;
    is_silent(&shape);
    shape.wire_ms = 3000;
    verdicts = judge(make(&shape));
    is_rank(&verdicts, 1 * 4 + 2, 0.99, 1);
}

/* By its collectives alone one would be some ms, and too many be put together. */
static void a_step_lasts_until_the_next_begins(void **state)
{
    struct shape shape = {
        .replicas = 4, .stages = 2, .steps = 30, .factor = nobody, .is_gap = true};
    struct sl_job *job = make(&shape);
    struct sl_selftime self;

    (void)state;
    assert_int_equal(sl_selftime_find(job, 0.6, &self), 0);
    assert_in_range(self.step_count, 7, 15);
    assert_true(self.step_s >= 0.4 && self.step_s <= 0.9);
    sl_selftime_fini(&self);
    sl_job_free(job);
}

static void steps_that_nobody_told_are_found(void **state)
{
    struct shape shape = {.replicas = 4,
                          .stages = 2,
                          .steps = 12,
                          .factor = one_by_half,
                          .is_untold = true,
                          .is_gap = true};
    struct sl_verdicts verdicts = judge(make(&shape));

    (void)state;
    is_rank(&verdicts, 1 * 4 + 2, 0.99, 1);
}

/* Rank 1 was taken for the next stage of a pipeline, and had no peers. */
static void messages_before_the_steps_make_no_pipeline(void **state)
{
    struct shape shape = {.replicas = 8,
                          .stages = 1,
                          .steps = 200,
                          .factor = rank_1_by_half,
                          .is_untold = true,
                          .is_gap = true,
                          .has_messages = true};
    struct sl_verdicts verdicts = judge(make(&shape));

    (void)state;
    assert_int_equal(verdicts.count, 1);
    assert_non_null(strstr(verdicts.list[0].evidence[0], "that of the 7 ranks that do the same"));
    is_rank(&verdicts, 1, 0.99, 1);
}

static void healthy_jobs_are_silent(void **state)
{
    (void)state;
    is_silent(&(struct shape){.replicas = 4, .stages = 4, .steps = 40, .factor = nobody});
    is_silent(&(struct shape){.replicas = 1, .stages = 4, .steps = 40, .factor = nobody});
}

static void longer_sequences_of_a_replica_are_no_fault(void **state)
{
    (void)state;
    is_silent(&(struct shape){
        .replicas = 6, .stages = 4, .steps = 40, .factor = replica_3, .has_layout = true});
}

static void two_kinds_of_hardware_are_no_fault(void **state)
{
    (void)state;
    is_silent(&(struct shape){.replicas = 8, .stages = 2, .steps = 40, .factor = two_kinds});
    is_silent(&(struct shape){.replicas = 16, .stages = 1, .steps = 8, .factor = two_kinds});
}

static void a_job_that_becomes_slow_as_a_whole_accuses_nobody(void **state)
{
    (void)state;
    is_silent(&(struct shape){.replicas = 4, .stages = 2, .steps = 40, .factor = all_from_20});
    is_silent(&(struct shape){.replicas = 1, .stages = 4, .steps = 40, .factor = all_from_20});
}

static void pauses_are_no_fault(void **state)
{
    (void)state;
    is_silent(&(struct shape){.replicas = 4, .stages = 2, .steps = 40, .factor = long_pauses});
}

static void too_few_peers_leave_a_rank_to_its_own_history(void **state)
{
    struct shape shape = {
        .replicas = 1, .stages = 4, .steps = 40, .factor = one_by_a_fifth_from_20};
    struct sl_verdicts verdicts = judge(make(&shape));

    (void)state;
    is_rank(&verdicts, 0, 0.3, 0.5);
}

static void a_host_all_of_whose_ranks_are_slow_is_accused_itself(void **state)
{
    struct shape shape = {
        .replicas = 16, .stages = 1, .steps = 12, .factor = host_1, .ranks_per_host = 4};
    struct sl_job *job = make(&shape);
    uint32_t host = job->ranks[4].host;
    struct sl_verdicts verdicts = judge(job);

    (void)state;
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.list[0].accused.kind, SL_OBJECT_HOST);
    assert_int_equal(verdicts.list[0].accused.name, host);
    sl_verdicts_free(&verdicts);
}

static void one_slow_rank_does_not_accuse_its_host(void **state)
{
    struct shape shape = {
        .replicas = 16, .stages = 1, .steps = 12, .factor = first_of_host_1, .ranks_per_host = 4};
    struct sl_verdicts verdicts = judge(make(&shape));

    (void)state;
    is_rank(&verdicts, 4, 0.9, 1);
}

/* Two kinds of hardware are there from the first step on. */
static void ranks_that_become_slow_together_are_no_other_hardware(void **state)
{
    struct shape shape = {.replicas = 8, .stages = 1, .steps = 40, .factor = two_from_12};
    struct sl_verdicts verdicts = judge(make(&shape));

    (void)state;
    assert_int_equal(verdicts.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(verdicts.list[i].accused.a, i + 1);
        assert_true(verdicts.list[i].probability > 0.9);
    }
    sl_verdicts_free(&verdicts);
}

/* Scrapes that do not say when they were made are in the order of their files. */
static void a_gauge_of_own_work_tells_who_is_slow(void **state)
{
    struct sl_job *job = sl_job_new();
    uint32_t name = sl_job_text(job, "XPU_TIMER_MM_KERNEL_AVG_LATENCY", 31);
    struct sl_verdicts verdicts;

    (void)state;
    for (int scrape = 0; scrape < 12; scrape++)
        for (uint32_t rank = 0; rank < 5; rank++) {
            struct sl_job_sample sample = {
                .rank = rank, .name = name, .value = rank == 3 ? 150 : 100};

            assert_int_equal(sl_job_add_sample(job, &sample), 0);
        }
    assert_int_equal(sl_job_seal(job), 0);
    verdicts = judge(job);
    is_rank(&verdicts, 3, 0.9, 1);
}

static void the_shortest_period_that_lasts_to_the_end_is_found(void **state)
{
    const uint64_t list[] = {9, 9, 7, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    const uint64_t none[] = {1, 2, 3, 4, 5, 6, 7};
    size_t at, period;

    (void)state;
    assert_int_equal(sl_period_find(list, 14, &at, &period), 0);
    assert_int_equal(period, 3);
    assert_int_equal(list[at], 1);
    assert_int_equal(at, 5);
    assert_int_equal(sl_period_find(none, 7, &at, &period), -ENOENT);
}

static struct sl_verdicts judge_gauges(struct sl_job *job)
{
    struct sl_verdicts verdicts = {0};

    assert_int_equal(sl_slow_find(job, &options, &verdicts), 0);
    assert_int_equal(sl_gauges_find(job, &verdicts), 0);
    sl_job_free(job);
    return verdicts;
}

static void who_does_not_hang_while_others_do_has_not_come(void **state)
{
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts;
    uint32_t name = sl_job_text(job, "XPU_TIMER_COMMON_HANG", 21);

    (void)state;
    for (uint32_t rank = 0; rank < 8; rank++)
        for (int scrape = 0; scrape < 2; scrape++) {
            struct sl_job_sample sample = {
                .rank = rank, .name = name, .value = scrape == 1 && rank != 5};

            assert_int_equal(sl_job_add_sample(job, &sample), 0);
        }
    assert_int_equal(sl_job_seal(job), 0);
    verdicts = judge_gauges(job);
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.list[0].cls, SL_VERDICT_HOST_STALLED);
    assert_int_equal(verdicts.list[0].accused.a, 5);
    assert_int_equal(verdicts.list[0].other_count, 0);
    sl_verdicts_free(&verdicts);
}

/* The one that they wait for may not have been scraped, or it is the program. */
static void a_host_whose_ranks_all_hang_is_not_isolated(void **state)
{
    static const struct sl_fuse_options fuse = SL_FUSE_OPTIONS;
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts = {0};
    uint32_t name = sl_job_text(job, "XPU_TIMER_COMMON_HANG", 21);

    (void)state;
    for (uint32_t rank = 0; rank < 8; rank++) {
        struct sl_job_sample sample = {.rank = rank, .name = name, .value = 1};

        assert_int_equal(sl_job_add_sample(job, &sample), 0);
        job->ranks[rank].host = sl_job_text(job, "node3", 5);
    }
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(sl_gauges_find(job, &verdicts), 0);
    assert_int_equal(sl_fuse(job, &fuse, &verdicts), 0);
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.list[0].cls, SL_VERDICT_COMM_STUCK);
    assert_int_equal(verdicts.list[0].other_count, 7);
    assert_false(verdicts.list[0].act);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_whose_ranks_all_hang_is_not_isolated),
        cmocka_unit_test(a_slow_rank_is_found_and_nobody_else),
        cmocka_unit_test(a_rank_that_becomes_slow_is_found_with_its_onset),
        cmocka_unit_test(time_between_collectives_is_own_time_where_nothing_else_is_known),
        cmocka_unit_test(who_costs_the_job_nothing_is_not_accused),
        cmocka_unit_test(a_step_lasts_until_the_next_begins),
        cmocka_unit_test(steps_that_nobody_told_are_found),
        cmocka_unit_test(messages_before_the_steps_make_no_pipeline),
        cmocka_unit_test(healthy_jobs_are_silent),
        cmocka_unit_test(longer_sequences_of_a_replica_are_no_fault),
        cmocka_unit_test(two_kinds_of_hardware_are_no_fault),
        cmocka_unit_test(a_job_that_becomes_slow_as_a_whole_accuses_nobody),
        cmocka_unit_test(pauses_are_no_fault),
        cmocka_unit_test(too_few_peers_leave_a_rank_to_its_own_history),
        cmocka_unit_test(a_host_all_of_whose_ranks_are_slow_is_accused_itself),
        cmocka_unit_test(one_slow_rank_does_not_accuse_its_host),
        cmocka_unit_test(ranks_that_become_slow_together_are_no_other_hardware),
        cmocka_unit_test(a_gauge_of_own_work_tells_who_is_slow),
        cmocka_unit_test(the_shortest_period_that_lasts_to_the_end_is_found),
        cmocka_unit_test(who_does_not_hang_while_others_do_has_not_come),
    };

    return cmocka_run_group_tests_name("diagnosis_slow", tests, NULL, NULL);
}
