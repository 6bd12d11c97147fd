/* SPDX-License-Identifier: Apache-2.0 */
/* What makes replicas differ from step to step that is no fault: longer sequences. */
#ifndef SL_MONITOR_DIAGNOSIS_SEQUENCES_H
#define SL_MONITOR_DIAGNOSIS_SEQUENCES_H

#include "monitor/diagnosis/peers.h"

/* Takes off what sequences make, so that what lasts can be seen: kinds of hardware, faults. Where
 * all ranks but one are as slow as their replicas, what all stages of a replica have in common.
 * Else, as kinds cut through replicas, by how much they deviate alike from the steps around. Of two
 * stages each has that taken off which the other foretells. The table holds logarithms of which the
 * step's median was taken off. 0 or -ENOMEM. */
int sl_sequences_take_deviations_off(struct sl_peers_table *table, const uint32_t *members,
                                     uint32_t count);

/* Takes off what all stages of a replica have in common in each step. 0 or -ENOMEM. */
int sl_sequences_take_off(struct sl_peers_table *table, const uint32_t *members, uint32_t count);

#endif
