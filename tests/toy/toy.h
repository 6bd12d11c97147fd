/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A toy runner and the algorithms that use it: codecs whose lengths are known at run time only,
 * copies and reductions by another, all of which end later.
 *
 * Runner 1 is a codec of variable length: 7 bits of an element to a byte, as many as it needs; so a
 * sum of u32 survives it. Runner 2 has a fixed length: four bytes an element, turned round.
 */
#ifndef SL_TESTS_TOY_H
#define SL_TESTS_TOY_H

#include "collectives/plan.h"
#include "core/rng.h"
#include "core/step.h"

#include <pthread.h>

#define TOY_JOBS 16

enum { TOY_VARIABLE = 1, TOY_FIXED = 2 };

struct toy_job {
    struct sl_work work;
    struct sl_req *req; /* NULL: free */
    uint32_t number;    /* from 1, of all that were taken */
    uint32_t left;      /* looks until it is done */
    bool done;          /* by the thread */
};

struct toy {
    struct sl_runner base;
    bool fixed;
    struct sl_rng rng;
    uint32_t delay_max; /* looks that a job takes; 0: it is done at once */
    uint32_t jobs_max;  /* taken at a time, at most TOY_JOBS */
    uint32_t fails_at;  /* the n-th job fails; 0: none */
    uint32_t hangs_at;  /* the n-th job never ends */
    uint32_t lies_at;   /* the n-th job tells a length that is not */
    struct toy_job jobs[TOY_JOBS];
    uint32_t taken, refused, cancelled; /* so far */
    uint64_t states;                    /* jobs that were handed a state */
    uint64_t after;                     /* jobs that are after another one */
    bool threaded;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
};

void toy_init(struct toy *toy, bool fixed, uint64_t seed);
/* From now on it takes jobs that are after others, and ends them later than these. Not by a
 * thread. */
void toy_keep_order(struct toy *toy);
/* Does its work on a thread from now on. */
void toy_start_thread(struct toy *toy);
void toy_fini(struct toy *toy);

/* Encoded shards to their owners, summed in rank order, encoded once more to all. */
extern const struct sl_algo toy_oneshot, toy_oneshot_fixed;
/* Round the ring, the bytes as they came. */
extern const struct sl_algo toy_ring;
/* Copies and reductions by the runner. */
extern const struct sl_algo toy_dma;

/* The recipe of one of them on this rank. runners must live as long as what is made by it. */
struct sl_recipe toy_recipe(const struct sl_algo *algo, struct sl_runner *runners[2],
                            struct toy *variable, struct toy *fixed);

#endif
