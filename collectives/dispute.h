/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that call different things. Messages and windows carry what stands for all calls so far, so
 * whoever meets another run than its own knows that calls differ, now or before: it asks all ranks
 * what they called under that number, compares their earlier runs with its own, goes back to the
 * first call that differs, and ends with the list once all have answered.
 */
#ifndef SL_COLLECTIVES_DISPUTE_H
#define SL_COLLECTIVES_DISPUTE_H

#include "collectives/comm.h"

#define SL_EARLIER 24

/* What a rank says of a call, and of those before. Travels in control messages. */
struct sl_told {
    struct sl_signature call;
    uint32_t earlier[SL_EARLIER]; /* runs of the calls before it, the last first; 0: not known */
};

/* What this rank called under that number; NULL: nothing yet, or too long ago to know. */
const struct sl_signature *sl_call_remembered(const struct sluice_comm *comm, uint32_t seq);

/* What this rank says of call number seq. */
void sl_dispute_tell(const struct sluice_comm *comm, uint32_t seq, struct sl_told *out);

/* Compares what a peer says. asks: it disputes that call, be it with another rank. */
void sl_dispute_hear(struct sluice_comm *comm, const struct sl_told *told, bool asks);

/* A peer's call number seq, or one before, is not ours. Asks everybody what they called; the
 * verdict comes from a later tick. */
void sl_dispute_open(struct sluice_comm *comm, uint32_t seq);

/* All have answered, or had the time to. */
bool sl_dispute_is_ripe(const struct sluice_comm *comm, uint64_t now);

/* "ranks disagree on collective number 3: rank 0 called …". Returns the rank that is most likely
 * wrong, or -1. */
int32_t sl_dispute_describe(const struct sluice_comm *comm, char *out, size_t cap);

#endif
