/* SPDX-License-Identifier: Apache-2.0 */
/* What selftime.c (own time) and roles.c (who does the same) share. */
#ifndef SL_MONITOR_DIAGNOSIS_SELFTIME_PART_H
#define SL_MONITOR_DIAGNOSIS_SELFTIME_PART_H

#include "monitor/diagnosis/selftime.h"

/* A step of a rank, before all ranks' steps are laid side by side. */
struct sl_selftime_part {
    uint32_t rank, step;
    double seconds;
    int64_t begin_ns, end_ns;
    uint64_t whole, rough; /* what it did: with sizes, and without */
};

static inline uint64_t sl_selftime_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* Parts lie by rank. Sets the roles, and the replicas, of all ranks. steps: by operation, its step
 * or SL_JOB_NONE. */
void sl_selftime_name_roles(const struct sl_job *job, const struct sl_selftime_part *parts,
                            size_t count, const uint32_t *steps, struct sl_selftime *self);
void sl_selftime_find_replicas(const struct sl_job *job, const uint32_t *steps,
                               struct sl_selftime *self);

#endif
