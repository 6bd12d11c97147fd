/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of 4 to 16,384 ranks that a fault of one rank has stopped: exactly that rank is accused, and
 * in less than a second. */
#include "core/rng.h"
#include "job_maker.h"
#include "job_play.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* How long the rules took. */
static double check(const struct play *play)
{
    struct sl_job *job = play_job(play);
    struct sl_verdicts verdicts;
    char expected[64];
    double begin;

    snprintf(expected, sizeof(expected), "%s %u", play->is_gpu ? "gpu_stuck" : "host_stalled",
             play->fault_rank);
    assert_int_equal(sl_job_seal(job), 0);
    begin = seconds();
    judge_job(job, 2000, &verdicts);
    begin = seconds() - begin;
    if (strcmp(verdicts_text(&verdicts), expected) != 0)
        fail_msg("tensor %u, stages %u, replicas %u, ahead %u, own %d, call %u: %s is told as %s",
                 play->tensor, play->stages, play->replicas, play->ahead, play->is_seq_own,
                 play->fault_at, expected, verdicts_text(&verdicts));
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return begin;
}

/* A GPU that stops in a message is the message's affair: whether the peer has ended its half tells
 * nothing. */
static void draw_fault(struct sl_rng *rng, struct play *play)
{
    uint32_t ranks = play->tensor * play->stages * play->replicas;

    play->ahead = 1 + (uint32_t)(sl_rng_u64(rng) % 8);
    play->is_seq_own = sl_rng_u64(rng) % 2 != 0;
    play->fault_rank = (uint32_t)(sl_rng_u64(rng) % ranks);
    play->is_gpu = sl_rng_u64(rng) % 2 != 0;
    do
        play->fault_at = (uint32_t)(sl_rng_u64(rng) % play_length(play, play->fault_rank));
    while (play->is_gpu && !play_is_collective(play, play->fault_rank, play->fault_at));
}

static void the_rank_at_fault_is_accused_in_small_jobs(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 16);
    for (unsigned i = 0; i < 400; i++) {
        struct play play = {.tensor = 2u << sl_rng_u64(&rng) % 3,
                            .stages = 1 + (uint32_t)(sl_rng_u64(&rng) % 4),
                            .replicas = 1 + (uint32_t)(sl_rng_u64(&rng) % 4)};

        draw_fault(&rng, &play);
        check(&play);
    }
}

static void the_rank_at_fault_is_accused_in_large_jobs(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 17);
    for (uint32_t replicas = 4; replicas <= 256; replicas *= 4) {
        struct play play = {.tensor = 8, .stages = 8, .replicas = replicas};
        double took;

        draw_fault(&rng, &play);
        took = check(&play);
        printf("# %u ranks: %.0f ms\n", 8 * play.stages * replicas, took * 1e3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        assert_true(took < 1);
#endif
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_at_fault_is_accused_in_small_jobs),
        cmocka_unit_test(the_rank_at_fault_is_accused_in_large_jobs),
    };

    return cmocka_run_group_tests_name("diagnosis_hang_large", tests, NULL, NULL);
}
