/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that call different things: whoever meets another call than its own asks all ranks what they called
 * under that number, and ends with the list once all have answered.
 */
#ifndef SL_COLLECTIVES_DISPUTE_H
#define SL_COLLECTIVES_DISPUTE_H

#include "collectives/comm.h"

/* What this rank called under that number; NULL: nothing yet, or too long ago to know. */
const struct sl_signature *sl_call_remembered(const struct sluice_comm *comm, uint32_t seq);

/* A peer's call number seq is not ours. Asks everybody what they called; the verdict comes from a later
 * tick. */
void sl_dispute_open(struct sluice_comm *comm, uint32_t seq);

/* All have answered, or had the time to. */
bool sl_dispute_is_ripe(const struct sluice_comm *comm, uint64_t now);

/* The verdict, which breaks the communicator. */
void sl_dispute_decide(struct sluice_comm *comm);

#endif
