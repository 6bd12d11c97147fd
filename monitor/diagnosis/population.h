/* SPDX-License-Identifier: Apache-2.0 */
/* What makes ranks of one role differ that is no fault: kinds of hardware. */
#ifndef SL_MONITOR_DIAGNOSIS_POPULATION_H
#define SL_MONITOR_DIAGNOSIS_POPULATION_H

#include "monitor/diagnosis/peers.h"

#define SL_POPULATION_APART 0.03 /* logarithm: populations nearer than that are one */

/* Which population each member is of: groups, by rank, from 0 on. The table holds logarithms of
 * which the step's median was taken off. 0 or -ENOMEM. */
int sl_population_find(const struct sl_peers_table *table, const uint32_t *members, uint32_t count,
                       uint32_t *groups);

/* Hardware is a host's: where most ranks of a host, over all roles of two populations, are of the
 * slower kind or of the faster one, so are the others. members: role after role. 0 or -ENOMEM. */
int sl_population_agree(const struct sl_peers_table *table, const uint32_t *members, uint32_t count,
                        uint32_t *groups);

#endif
