/* SPDX-License-Identifier: Apache-2.0 */
/*
 * N ranks in one process and one thread on a simulated network, for tests and sluice-bench.
 *
 * Each rank is a fiber that runs ordinary blocking code; where that code waits, the worker's idle
 * hook (sl_sim_idle) hands the thread to the next fiber or lets the virtual clock jump to the next
 * event. One seed decides everything that is left to chance, so a run repeats exactly.
 * docs/design/0005-simulation.md tells the model.
 */
#ifndef SL_TESTING_SIM_SIM_H
#define SL_TESTING_SIM_SIM_H

#include "core/exchange.h"
#include "core/transport.h"
#include "core/wireup.h"

#include <stdbool.h>
#include <stdio.h>

struct sl_sim;

enum sl_sim_fault_kind {
    /* rank stops for good; every endpoint to it is lost for_ns later, SL_NEVER: nobody is told */
    SL_SIM_CRASH,
    SL_SIM_FREEZE, /* rank does nothing for for_ns */
    SL_SIM_CUT,    /* nothing passes from rank to peer for for_ns; then all of it does */
    SL_SIM_SLOW,   /* rank takes factor times longer between two looks at its network */
    SL_SIM_LOSE,   /* the connections of rank and peer are reset */
};

struct sl_sim_fault {
    enum sl_sim_fault_kind kind;
    uint32_t rank, peer;
    uint64_t at_ns, for_ns;
    uint32_t factor;
};

/* "1 in" fields: the event happens once in so many chances; 0: never. */
struct sl_sim_params {
    uint32_t ranks;
    const uint32_t *host; /* [ranks], borrowed for creation: who shares memory; NULL: all do */
    uint64_t seed;
    uint64_t latency_ns, jitter_ns;
    uint64_t ns_per_kib;                      /* of every link; 0: no limit */
    size_t eager_max;                         /* up to here sends are copied and may end at once */
    unsigned sends_max, recvs_max, ctrls_max; /* of an endpoint; more get -EAGAIN */
    bool windows;                             /* SL_CAP_MAP */
    uint32_t eagain_in;                       /* 1 in: a storm of -EAGAIN begins */
    uint32_t stall_in;                        /* 1 in: an interface moves nothing for a moment */
    uint32_t late_in;                  /* 1 in: a completion is told later than those after it */
    uint32_t ctrl_loss_in;             /* 1 in: a control message is lost */
    uint64_t calm_ns;                  /* chance faults end here; 0: they go on */
    const struct sl_sim_fault *faults; /* borrowed for creation */
    size_t fault_count;
    FILE *trace; /* a line per event, or NULL; borrowed */
};

/* A calm, quick network of so many ranks. */
void sl_sim_params_init(struct sl_sim_params *params, uint32_t ranks, uint64_t seed);

int sl_sim_create(const struct sl_sim_params *params, struct sl_sim **out);
void sl_sim_destroy(struct sl_sim *sim); /* takes NULL */

const struct sl_clock *sl_sim_clock(const struct sl_sim *sim);
uint64_t sl_sim_now(const struct sl_sim *sim);

/* The transport. open() needs a worker whose idle hook is sl_sim_idle. */
extern const struct sl_transport_ops sl_sim_ops;
/* Its pipes, for sl_comm_params.wire. */
extern const struct sl_wire_ops sl_sim_wire_ops;

/* For sl_worker.idle, with sl_sim_idle_arg() of the rank. In a fiber: the others' turn. Outside
 * fibers: the clock goes to the next event, at most 2 ms. */
void sl_sim_idle(struct sl_worker *worker);
void *sl_sim_idle_arg(struct sl_sim *sim, uint32_t rank);

/* Gives a rank its program. */
int sl_sim_spawn(struct sl_sim *sim, uint32_t rank, void (*program)(void *arg), void *arg);

/*
 * Runs until every program has returned. Crashed ranks are held until all others have; then they
 * run on, with every endpoint lost, so that they can clean up. -ETIMEDOUT: it is limit_ns on the
 * virtual clock, and some still run; the sentence names them. -EPROTO: a checker found something.
 */
int sl_sim_run(struct sl_sim *sim, uint64_t limit_ns);

/* The first rule that somebody broke (lent bytes changed, something left open), or NULL. */
const char *sl_sim_violation(const struct sl_sim *sim);

/* Nothing is left: interfaces, endpoints, memory, messages. Notes a violation otherwise. */
void sl_sim_check_empty(struct sl_sim *sim);

bool sl_sim_crashed(const struct sl_sim *sim, uint32_t rank);

struct sl_sim_stats {
    uint64_t events, messages, bytes, ctrls, eagains, resumes;
};
struct sl_sim_stats sl_sim_stats(const struct sl_sim *sim);

/* A fault that a program decides on: it happens now, whatever its at_ns. */
void sl_sim_fault_now(struct sl_sim *sim, const struct sl_sim_fault *fault);

/* The rank's links deliver so many thousandths of all from now on, as it tells those who ask; its
 * messages are as quick as ever. */
void sl_sim_deliver(struct sl_sim *sim, uint32_t rank, uint32_t thousandths);

/* Where ranks of one simulation swap addresses. */
struct sl_sim_meeting;
int sl_sim_meeting_create(struct sl_sim *sim, uint32_t size, uint64_t timeout_ns,
                          struct sl_sim_meeting **out);
void sl_sim_meeting_destroy(struct sl_sim_meeting *meeting); /* takes NULL */
/* The exchange of place idx, used by fiber rank. It lives as long as the meeting. */
struct sl_exchange *sl_sim_meeting_exchange(struct sl_sim_meeting *meeting, uint32_t idx,
                                            uint32_t rank);

#endif
