/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks' links deliver, agreed on while operations run.
 *
 * Plans go by it, so all ranks must go by the same of the same operation on. Every SL_SPEEDS_PERIOD
 * operations, before a large one begins, each rank starts an all_gather of what its own links
 * deliver; what it brings counts from the first large one that comes SL_SPEEDS_PERIOD operations
 * later. Collectives are numbered alike on all ranks, so all switch at the same one, whenever the
 * all_gather ends on each. docs/design/0031-weighted-schedules.md.
 */
#ifndef SL_COLLECTIVES_SPEEDS_H
#define SL_COLLECTIVES_SPEEDS_H

#include "collectives/plan.h"

#define SL_SPEEDS_PERIOD 64
#define SL_SPEEDS_LEAST_BYTES (1 << 20) /* of a large operation: shares are for such */

/* All ranks have heard of each other and have their transports: whether they exchange speeds, and
 * what operations go by until then. */
void sl_speeds_begin(struct sluice_comm *comm);

/* A large operation of a communicator that exchanges speeds. */
static inline bool sl_speeds_concern(const struct sluice_comm *comm, const struct sl_call *call)
{
    return SL_UNLIKELY(comm->speeds.exchanges) && call->coll <= SL_ALL_GATHER &&
           call->count * sluice_dtype_size(call->dtype) >= SL_SPEEDS_LEAST_BYTES;
}

/* Before a call that is concerned finds its plan: begins an exchange, or takes what one brought,
 * and forgets the plans that were made for other speeds, when it is time. -EAGAIN: an operation of
 * SL_SPEEDS_PERIOD calls ago is still in flight. -ENOMEM, or the communicator's error. */
int sl_speeds_turn(struct sluice_comm *comm);

/* An exchange of its own is in flight: the user's operations are one less than active_count. */
bool sl_speeds_in_flight(const struct sluice_comm *comm);

/* The communicator is about to be destroyed: waits for what is under way, which others need. */
void sl_speeds_settle(struct sluice_comm *comm);
/* It has no operation in flight any more. */
void sl_speeds_end(struct sluice_comm *comm);

#endif
