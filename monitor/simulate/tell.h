/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a played job, and how it is told as sources tell it (job.h). */
#ifndef SL_MONITOR_SIMULATE_TELL_H
#define SL_MONITOR_SIMULATE_TELL_H

#include "monitor/simulate/calls.h"
#include "monitor/simulate/wire.h"

#define SL_PLAY_AHEAD 128     /* calls of a rank whose ends are remembered */
#define SL_PLAY_BATCHES 24    /* of a step, at most */
#define SL_PLAY_LATER_S 120.0 /* after all has stopped: when a hung job is looked at */

struct sl_play_rank {
    uint32_t step, call; /* at which its GPU is */
    bool is_at;          /* in a collective */
    bool is_queued;
    uint64_t done; /* calls that have ended */
    double now_s;  /* when its GPU is free */
    double called_s, issue_s, start_s;
    double ended[SL_PLAY_AHEAD];
    double clock_s; /* by how much its clock is before the true one */
    uint32_t pause_call;
    uint64_t seq[SL_PLAY_COMM_KINDS]; /* collectives that it has called */
    uint64_t sent[2], received[2];    /* messages: forward and back */
    struct sl_rng rng;
};

struct sl_play_comm {
    uint32_t arrived;
    double latest_s;
    uint64_t bytes;
    uint8_t kind;
    bool is_wrong, has_fault;
};

struct sl_play {
    const struct sl_play_plan *plan;
    struct sl_job *job;
    struct sl_play_wire wire;
    struct sl_play_rank *ranks;
    struct sl_play_call *calls; /* stride a rank */
    uint32_t *lengths;
    struct sl_play_comm *comms;
    double *mail; /* of rank, direction and batch: when it comes; 0: it was not sent */
    uint32_t *queue;
    uint64_t head, tail;
    uint32_t rank_count, stride;
    int err;
};

/* Ranks, hosts, communicators. */
int sl_play_tell_job(struct sl_play *play);
/* A call that has ended. */
int sl_play_tell_done(struct sl_play *play, uint32_t rank, const struct sl_play_call *call,
                      double issue_s, double start_s, double end_s);
/* What is pending, what edges waited for, when it is looked at. */
int sl_play_tell_rest(struct sl_play *play);

#endif
