/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which further messages would tell the members of an ambiguity set apart: the fewest probes (from
 * rank to rank) of which every two members differ in one that only one of them makes slow. Of
 * {link i>j, sender i, receiver j} these are two: from i to another rank, and from another rank to
 * j.
 */
#ifndef SL_MONITOR_DIAGNOSIS_PROBE_PLAN_H
#define SL_MONITOR_DIAGNOSIS_PROBE_PLAN_H

#include "monitor/diagnosis/lift.h"

#define SL_PROBES_MAX 16
#define SL_PROBE_SET_MAX 64

struct sl_probe {
    uint32_t src, dst, path;
    uint64_t slow; /* members of the set, as bits, which would make it slow */
};

struct sl_probe_plan {
    struct sl_probe probes[SL_PROBES_MAX];
    uint32_t count;
    uint32_t
        parts; /* into which the set falls then: as many as members, where all are told apart */
};

/* is_bad: by rank, not to be used as the other end (it is accused of something); pairs that were
 * seen already tell nothing new. 0 or -ENOMEM. */
int sl_probe_plan(const struct sl_places *places, const struct sl_element *set, uint32_t count,
                  const uint8_t *is_bad, struct sl_probe_plan *plan);

#endif
