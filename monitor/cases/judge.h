/* SPDX-License-Identifier: Apache-2.0 */
/* All rules over one job, in one order: sluicectl, a cluster's daemon and a replay run this. */
#ifndef SL_MONITOR_CASES_JUDGE_H
#define SL_MONITOR_CASES_JUDGE_H

#include "monitor/diagnosis/comm.h"
#include "monitor/diagnosis/fuse.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/diagnosis/nodes.h"
#include "monitor/diagnosis/slow.h"
#include "monitor/diagnosis/verdict.h"

/* Goes up when the same inputs may give other verdicts, sentences or numbers: bundles have it. */
#define SL_RULES_VERSION 1

struct sl_judge_options {
    struct sl_hang_options hang;
    struct sl_slow_options slow;
    struct sl_comm_options comm;
    struct sl_fuse_options fuse;
};

#define SL_JUDGE_OPTIONS                                                                           \
    {                                                                                              \
        .hang = {.now_ns = SL_JOB_NEVER, .stall_ns = SL_HANG_STALL_NS}, .slow = SL_SLOW_OPTIONS,   \
        .comm = SL_COMM_OPTIONS, .fuse = SL_FUSE_OPTIONS                                           \
    }

/* Of a sealed job: adds its verdicts, sorted, at least one (SL_VERDICT_NOT_HUNG: nothing is wrong).
 * -ENOMEM. */
int sl_judge(const struct sl_job *job, const struct sl_judge_options *options,
             struct sl_verdicts *verdicts);

/* Some verdict says that something is wrong. */
bool sl_verdicts_accuse(const struct sl_verdicts *verdicts);

#endif
