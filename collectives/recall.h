/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error feedback of ordinary calls: what a codec has lost of the elements of a call, for the next
 * one with the same buffer. A persistent operation knows what comes again; of calls it is taken to
 * be what has the same collective, type, count and address, as buckets of gradients have.
 *
 * A communicator keeps so many bytes of it; what was unused for longest goes first. It concerns
 * this rank's encodings alone, so others may keep less, or nothing.
 */
#ifndef SL_COLLECTIVES_RECALL_H
#define SL_COLLECTIVES_RECALL_H

#include "collectives/code.h"

struct sl_recalled;

/* Whether calls by this plan, which has a coding, keep anything: those that give addends. What
 * others send is no error that a later call could make up for. */
bool sl_recall_concerns(const struct sl_plan *plan);

/* What calls like this one keep: found, or made. NULL: nothing. Lent to the operation until
 * sl_recall_end(). */
struct sl_recalled *sl_recall_begin(struct sluice_comm *comm, const struct sl_plan *plan,
                                    const void *in);
/* Takes NULL. */
void sl_recall_end(struct sl_recalled *recalled);

/* For runners, as a persistent operation's; recalled may be NULL. */
void *sl_recalled_state(const struct sl_recalled *recalled);

/* Forgets everything; what operations under way have when they end. */
void sl_recall_drop(struct sluice_comm *comm);

#endif
