/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that died, hang, or call something else: noticing, blaming, telling.
 *
 * A rank that waits without a move tells all peers what it is in and whom it waits for. From that
 * each rank can follow the chain of waits to the rank that is silent, and sees calls that differ.
 * Whoever ends an operation with an error tells all peers the culprit before it closes its
 * endpoints, so that every rank reports the same cause.
 */
#ifndef SL_COLLECTIVES_HEALTH_H
#define SL_COLLECTIVES_HEALTH_H

#include "collectives/plan.h"

enum sl_ctrl_type { SL_CTRL_STATUS = 1, SL_CTRL_ABORT = 2, SL_CTRL_BYE = 3 };

/* How each control message begins. */
struct sl_ctrl_head {
    uint8_t type, flags; /* enum sl_ctrl_type */
    uint16_t reserved;
    uint32_t channel; /* of the communicator */
};

/* A control message of that rank. */
void sl_health_ctrl(struct sluice_comm *comm, uint32_t rank, const void *msg, size_t len);
/* That rank is through with a communicator that is broken here. */
void sl_health_parts(struct sluice_comm *comm, uint32_t rank);
/* One that is too short to say of which communicator it is. */
void sl_health_odd_ctrl(const struct sl_ep *ep, size_t len);

/* The connection to that rank is lost. */
void sl_health_down(struct sluice_comm *comm, uint32_t rank, int status, const char *why);

/* Tells a rank that waits in a communicator which is broken here, or (NULL) which this rank has
 * left. */
void sl_health_answer(const struct sluice_comm *comm, struct sl_ep *ep, uint32_t channel);

/* A message step ended with an error. */
void sl_health_step_failed(struct sluice_req *op, const struct sl_step *step,
                           const struct sl_req *req, int status);

/* Something waits for the next tick without delay. */
static inline bool sl_health_urgent(const struct sluice_comm *comm)
{
    return comm->health.mismatch_ns != 0 || comm->health.pending_ns != 0;
}

/* Looks after deadlines, statuses and verdicts. now is the worker's clock; comm->wait.idle_ns is
 * up to date. */
void sl_health_tick(struct sluice_comm *comm, uint64_t now);

/* After an error: tells the peers, closes the endpoints, ends every operation. Not from a
 * callback. */
void sl_health_tear_down(struct sluice_comm *comm);

/* Tells the peers that this rank leaves in good order. */
void sl_health_goodbye(struct sluice_comm *comm);

/* "0-2,5", of the ranks whose bit is set. Cuts at cap. */
void sl_format_ranks(const bool *set, uint32_t size, char *out, size_t cap);

#endif
