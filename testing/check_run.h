/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one proof: what check.c (rules, result) and check_run.c (the run; check_setup.c its
 * tables) share. */
#ifndef SL_TESTING_CHECK_RUN_H
#define SL_TESTING_CHECK_RUN_H

#include "testing/check_mem.h"
#include "schedules/schedule.h"

#include "core/err.h"
#include "core/rng.h"

/* What the prover knows of a step beyond its data. "line": a channel of a rank, numbered over
 * all. */
struct sl_run_step {
    uint32_t line;
    uint32_t place; /* among the line's steps */
    /* messages: among those of the line; steps of runners: among those of all lines */
    uint32_t async_place;
    uint32_t left;      /* dependencies that have not completed */
    uint32_t out_first; /* steps that wait for this one, in outs[] */
    uint32_t out_count;
    uint32_t next;  /* step that follows in its pair's queue */
    uint32_t clock; /* slot of clocks[], or SL_SYM_NONE */
    uint8_t done;
};

struct sl_run_line {
    uint32_t rank;
    uint32_t first, count; /* its steps, in line_steps[] */
    uint32_t next;         /* first that has not started */
    uint32_t waiter_next;  /* list of lines that wait for a rank's counter */
    bool queued, waiting;  /* among ready · in a rank's list of waiters */
};

struct sl_run_rank {
    uint32_t base; /* number of its step 0 over all ranks */
    uint32_t line_base;
    uint32_t post_first, post_count; /* in posts[] */
    uint32_t last_post;              /* step that posted last, SL_SYM_NONE: none has */
    uint32_t waiters;                /* list of lines */
    struct sl_sym_region regions[SL_BUF_COUNT];
    uint64_t in_base, out_base; /* where IN and OUT begin in their regions */
    bool alias;                 /* IN and OUT are both in region SL_BUF_OUT */
};

/* Messages from one rank to another: steps that have started and are not yet matched. */
struct sl_run_pair {
    uint32_t send_first, send_last, recv_first, recv_last;
    bool queued;
};

struct sl_run {
    const struct sl_shape *shapes;
    const struct sl_schedule *schedules;
    uint32_t size;
    struct sl_rng rng;
    struct sl_run_rank *ranks;
    struct sl_run_pair *pairs; /* [from * size + to] */
    struct sl_run_line *lines;
    uint32_t line_count;
    struct sl_run_step *steps;
    uint32_t step_count, done_count;
    uint32_t *line_steps, *outs, *posts;
    uint64_t *ready; /* lines and pairs that can move */
    uint32_t ready_count;
    /*
     * Happened-before. A clock has two words per line: how many of its steps are known to have
     * started, and how many of its sends and receives are known to have completed (those of one
     * line are taken to complete in order). Then one word per step that a runner has: whether it is
     * known to have completed. 0 words: too large; then only what has really happened in this run
     * counts.
     */
    uint32_t clock_words;
    uint32_t *clocks, *line_clocks;
    struct sl_sym_nodes nodes;
    struct sl_sym_codes codes;
    struct sl_sym_strip strip, other, result;
    struct sl_sym_reader *readers;
    uint32_t reader_count, reader_cap;
};

static inline const struct sl_step *sl_run_data(const struct sl_run *run, uint32_t step)
{
    const struct sl_run_rank *rank = &run->ranks[run->lines[run->steps[step].line].rank];

    return &run->schedules[rank - run->ranks].steps[step - rank->base];
}

/* Keeps "rank r, step i (kind): …" as the last error and returns -EINVAL. */
int sl_run_fail(const struct sl_run *run, uint32_t step, const char *fmt, ...) SL_PRINTF(3, 4);

int sl_run_init(struct sl_run *run, const struct sl_shape *shapes,
                const struct sl_schedule *schedules, uint64_t seed);
void sl_run_fini(struct sl_run *run);
/* Puts what lies at [off, off + count) of a rank's buffer into *strip. clock: of who reads. */
int sl_run_read(struct sl_run *run, uint32_t step, const uint32_t *clock, uint32_t rank,
                uint8_t buf, uint64_t off, uint64_t count, struct sl_sym_strip *strip);
int sl_run_write(struct sl_run *run, uint32_t step, const uint32_t *clock, uint32_t rank,
                 uint8_t buf, uint64_t off, uint64_t count, const struct sl_sym_strip *strip);
/* check_terms.c */
int sl_run_encode_term(struct sl_run *run, uint32_t step, const struct sl_step *data,
                       const uint32_t *clock);
int sl_run_decode_sum(struct sl_run *run, uint32_t step, const struct sl_step *data,
                      const uint32_t *clock);
/* Runs all steps to the end. */
int sl_run_all(struct sl_run *run);
/* Whether rank `to` has ended knowing that every rank had begun; *missing is one that had not. */
bool sl_run_heard_all(const struct sl_run *run, uint32_t to, uint32_t *missing);

#endif
