/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is slow (rule 6.2): own time of each rank and step (selftime.h), and numbers that ranks
 * measured of their own work, beside those of peers (peers.h), by a sequential test (change.h).
 */
#ifndef SL_MONITOR_DIAGNOSIS_SLOW_H
#define SL_MONITOR_DIAGNOSIS_SLOW_H

#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

struct sl_slow_options {
    double node_days;      /* of one false alarm */
    double ranks_per_node; /* 0: by the hosts that are known, else 8 */
    double margin;         /* by how much healthy peers may differ for ever */
    double faults;         /* a node's and day's, as far as is known before: for the probability */
    /* Shorter steps are put together: what disturbs a host for a moment (its scheduler, its
     * interrupts) would be several of them, and each evidence of its own. */
    double step_least_s;
};

#define SL_SLOW_OPTIONS                                                                            \
    {                                                                                              \
        .node_days = 10000, .margin = 0.10, .faults = 0.001                                        \
    }

/* Adds a verdict for each rank that is slow, or for a host where all its ranks are. The job must be
 * sealed. 0 or -ENOMEM. */
int sl_slow_find(const struct sl_job *job, const struct sl_slow_options *options,
                 struct sl_verdicts *verdicts);

/* Hangs by xpu_timer's gauges: all ranks of a scrape, or some. 0 or -ENOMEM. */
int sl_gauges_find(const struct sl_job *job, struct sl_verdicts *verdicts);

#endif
