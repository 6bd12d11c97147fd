/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks beside those that do the same, in noise: who stands out, and who only seems to. */
#include "core/rng.h"
#include "monitor/diagnosis/peers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define RANKS 24
#define STEPS 400
#define SLOW 5
#define FROM 200

static double values[RANKS * STEPS];
static const uint64_t roles[RANKS];
static const struct sl_job_rank ranks[RANKS];

static double normal_of(struct sl_rng *rng)
{
    double a = ((double)sl_rng_below(rng, 1u << 30) + 1) / (1u << 30);
    double b = (double)sl_rng_below(rng, 1u << 30) / (1u << 30);

    return sqrt(-2 * log(a)) * cos(2 * M_PI * b);
}

/* Heavy tails: Student's, 3 degrees of freedom. memory: what each step inherits of the last one.
 * apart: what a rank is slower than the one before it, for ever. slow: of rank SLOW, since FROM. */
static void make(double noise, double memory, double apart, double slow)
{
    struct sl_rng rng;

    sl_rng_init(&rng, 3);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        double before = 0;

        for (uint32_t step = 0; step < STEPS; step++) {
            double top = normal_of(&rng), sum = 0;

            for (int i = 0; i < 3; i++) {
                double x = normal_of(&rng);

                sum += x * x;
            }
            before = memory * before + noise * top / sqrt(sum / 3);
            values[rank * STEPS + step] =
                exp(before + apart * rank + (rank == SLOW && step >= FROM ? slow : 0));
        }
    }
}

static struct sl_suspects judge(double threshold)
{
    struct sl_peers_table table = {
        .rank_count = RANKS, .step_count = STEPS, .values = values, .roles = roles, .ranks = ranks};
    struct sl_suspects found = {.list = NULL};

    assert_int_equal(sl_peers_judge(&table, threshold, 0.10, &found), 0);
    return found;
}

/* Even where a false alarm a rank is asked for every 403 steps: 24 ranks, two tests. */
static void healthy_ranks_in_noise_are_left_alone(void **state)
{
    (void)state;
    make(0.02, 0, 0, 0);
    assert_int_equal(judge(6).count, 0);
}

static void steps_that_inherit_noise_make_no_alarm(void **state)
{
    (void)state;
    make(0.02, 0.9, 0, 0);
    assert_int_equal(judge(6).count, 0);
}

/* From the fastest to the slowest 12 %. */
static void peers_may_differ_for_ever(void **state)
{
    (void)state;
    make(0.002, 0, 0.005, 0);
    assert_int_equal(judge(20).count, 0);
}

static void a_rank_that_becomes_slow_in_noise_is_found(void **state)
{
    struct sl_suspects found;

    (void)state;
    make(0.02, 0, 0, 0.2);
    found = judge(25);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.list[0].rank, SLOW);
    assert_true(found.list[0].onset >= FROM - 3 && found.list[0].onset <= FROM + 3);
    assert_true(found.list[0].alarm < FROM + 40);
    assert_true(fabs(found.list[0].ratio - exp(0.2)) < 0.05);
    assert_int_equal(found.list[0].peer_count, RANKS - 1);
    free(found.list);
}

/* On processors that others have as well steps become uneven; this rank has no peers that would say
 * so. From FROM on 5 steps of 16 take 1.4 times, the others what they took. */
static void uneven_steps_of_a_rank_without_peers_are_no_slowness(void **state)
{
    static uint64_t alone[RANKS];
    struct sl_peers_table table = {
        .rank_count = RANKS, .step_count = STEPS, .values = values, .roles = alone, .ranks = ranks};
    struct sl_suspects found = {.list = NULL};

    (void)state;
    make(0.02, 0, 0, 0);
    alone[SLOW] = 1;
    for (uint32_t step = FROM; step < STEPS; step++)
        values[SLOW * STEPS + step] *= step * 7 % 16 < 5 ? 1.4 : 1;
    assert_int_equal(sl_peers_judge(&table, 25, 0.10, &found), 0);
    assert_int_equal(found.count, 0);
    /* Slowness that lasts is seen after them. */
    make(0.02, 0, 0, 0);
    for (uint32_t step = FROM; step < STEPS; step++)
        values[SLOW * STEPS + step] *= step >= FROM + 100 ? 1.5 : step * 7 % 16 < 5 ? 1.4 : 1;
    assert_int_equal(sl_peers_judge(&table, 25, 0.10, &found), 0);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.list[0].rank, SLOW);
    assert_true(found.list[0].is_own);
    assert_true(found.list[0].ratio > 1.4 && found.list[0].ratio < 1.6);
    free(found.list);
}

/* ---- replicas ---- */

#define STAGES 8
#define REPLICAS 8
#define SHORT 12 /* steps */
#define JOBS 400

struct short_job {
    uint32_t jobs;    /* how many; 0: JOBS */
    double sequences; /* spread of a replica's, from step to step */
    double kind;      /* what hosts of an odd number are slower */
    bool is_whole;    /* all hosts of a replica are of one kind */
    double slow;      /* of rank SLOW */
};

/* In how many of the jobs SLOW is accused; *others: how many other ranks are, in all of them. */
static uint32_t judge_short(const struct short_job *job, uint32_t *others)
{
    static double room[STAGES * REPLICAS * SHORT];
    static uint64_t its_roles[STAGES * REPLICAS];
    static uint32_t replicas[STAGES * REPLICAS];
    static struct sl_job_rank hosts[STAGES * REPLICAS];
    struct sl_peers_table table = {.rank_count = STAGES * REPLICAS,
                                   .step_count = SHORT,
                                   .values = room,
                                   .roles = its_roles,
                                   .replicas = replicas,
                                   .ranks = hosts};
    uint32_t hits = 0;
    struct sl_rng rng;

    *others = 0;
    sl_rng_init(&rng, 5);
    for (uint32_t trial = 0; trial < (job->jobs > 0 ? job->jobs : JOBS); trial++) {
        struct sl_suspects found = {.list = NULL};
        double longer[REPLICAS * SHORT];

        for (uint32_t i = 0; i < REPLICAS * SHORT; i++)
            longer[i] = job->sequences * normal_of(&rng);
        for (uint32_t rank = 0; rank < STAGES * REPLICAS; rank++) {
            uint32_t replica = rank % REPLICAS, stage = rank / REPLICAS;
            /* A host has two stages of two replicas, or of one. */
            uint32_t host = job->is_whole ? replica / 2 : stage / 2 + replica / 2;

            its_roles[rank] = stage;
            replicas[rank] = replica;
            hosts[rank] = (struct sl_job_rank){.host = 1 + stage / 2 * REPLICAS + replica / 2};
            for (uint32_t step = 0; step < SHORT; step++)
                room[rank * SHORT + step] =
                    exp(longer[replica * SHORT + step] + 0.005 * normal_of(&rng) +
                        (host % 2 == 1 ? job->kind : 0) + (rank == SLOW ? job->slow : 0));
        }
        assert_int_equal(sl_peers_judge(&table, 24, 0.10, &found), 0);
        for (uint32_t i = 0; i < found.count; i++) {
            hits += found.list[i].rank == SLOW;
            *others += found.list[i].rank != SLOW;
        }
        free(found.list);
    }
    return hits;
}

/* By chance some replicas have longer sequences in the first steps, and look like slower hosts: in
 * some stages, and not in others. */
static void longer_sequences_in_few_steps_are_no_kind_of_hosts(void **state)
{
    uint32_t others;

    (void)state;
    assert_int_equal(judge_short(&(struct short_job){.jobs = 1500, .sequences = 0.48}, &others), 0);
    assert_int_equal(others, 0);
}

static void two_kinds_of_hosts_in_few_steps(void **state)
{
    uint32_t others;

    (void)state;
    for (double sequences = 0; sequences < 0.2; sequences += 0.15) {
        judge_short(&(struct short_job){.sequences = sequences, .kind = 0.2, .is_whole = true},
                    &others);
        assert_int_equal(others, 0);
    }
    judge_short(&(struct short_job){.kind = 0.2}, &others);
    assert_int_equal(others, 0);
}

static void a_slow_rank_beside_longer_sequences_is_found_in_few_steps(void **state)
{
    uint32_t others, hits;

    (void)state;
    hits = judge_short(&(struct short_job){.sequences = 0.23, .slow = 0.25}, &others);
    assert_true(hits * 100 >= JOBS * 99);
    assert_int_equal(others, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_ranks_in_noise_are_left_alone),
        cmocka_unit_test(steps_that_inherit_noise_make_no_alarm),
        cmocka_unit_test(peers_may_differ_for_ever),
        cmocka_unit_test(a_rank_that_becomes_slow_in_noise_is_found),
        cmocka_unit_test(uneven_steps_of_a_rank_without_peers_are_no_slowness),
        cmocka_unit_test(longer_sequences_in_few_steps_are_no_kind_of_hosts),
        cmocka_unit_test(two_kinds_of_hosts_in_few_steps),
        cmocka_unit_test(a_slow_rank_beside_longer_sequences_is_found_in_few_steps),
    };

    return cmocka_run_group_tests_name("diagnosis_peers", tests, NULL, NULL);
}
