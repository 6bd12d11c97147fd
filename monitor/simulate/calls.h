/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank of a played job calls in a step, and the communicators of the job. */
#ifndef SL_MONITOR_SIMULATE_CALLS_H
#define SL_MONITOR_SIMULATE_CALLS_H

#include "monitor/simulate/plan.h"

enum sl_play_comm_kind {
    SL_PLAY_TENSOR,
    SL_PLAY_EXPERT,
    SL_PLAY_REPLICA,
    SL_PLAY_PIPELINE,
    SL_PLAY_WORLD,
    SL_PLAY_COMM_KINDS
};

struct sl_play_call {
    uint32_t comm; /* SL_JOB_NONE: compute */
    uint32_t peer; /* of a message, else SL_JOB_NONE */
    uint64_t bytes;
    double compute_s; /* of compute, in a healthy step */
    uint8_t kind;     /* enum sl_job_kind */
    uint8_t batch;    /* of a message: which of the step's */
    bool is_back;     /* of a message: a gradient */
};

#define SL_PLAY_CALLS_MAX 256 /* of a rank in a step */

/* What the rank calls in a step; how many. `heavier` is its stage's factor. */
uint32_t sl_play_calls(const struct sl_play_plan *plan, uint32_t rank, double heavier,
                       struct sl_play_call *out);

/* Communicators are numbered from 0 on, kind after kind; those of one member are none. */
uint32_t sl_play_comms(const struct sl_play_plan *plan);
enum sl_play_comm_kind sl_play_comm_kind(const struct sl_play_plan *plan, uint32_t comm);
/* Members first, first + step, ...: how many. */
uint32_t sl_play_members(const struct sl_play_plan *plan, uint32_t comm, uint32_t *first,
                         uint32_t *step);
/* The rank's communicator of that kind; SL_JOB_NONE: it is in none. */
uint32_t sl_play_comm_of(const struct sl_play_plan *plan, enum sl_play_comm_kind kind,
                         uint32_t rank);

#endif
