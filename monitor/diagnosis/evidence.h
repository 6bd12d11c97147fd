/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What node agents told, as likelihood ratios: how much likelier it is to see that where a part of
 * the host is at fault than where nothing is. The table is in evidence.c, with its sources.
 */
#ifndef SL_MONITOR_DIAGNOSIS_EVIDENCE_H
#define SL_MONITOR_DIAGNOSIS_EVIDENCE_H

#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

struct sl_evidence {
    uint32_t host;           /* text */
    uint8_t family;          /* of several of a family that accuse the same the strongest counts */
    double ratio[SL_FAULTS]; /* P(seen | that part is at fault) / P(seen | it is not); 1: it tells
                              * nothing of that part */
    size_t event;            /* in job->events */
};

struct sl_evidence_list {
    struct sl_evidence *list; /* by host, family, then the strongest first */
    size_t count;
    uint32_t *heard; /* hosts whose agents answered then, ascending */
    size_t heard_count;
};

/* Of an incident at when_ns (SL_JOB_NEVER: not known, and all that was told counts). What was bad
 * within 10 minutes of it counts whole; further away the ratio's logarithm halves each hour. The
 * order in which events were added does not matter. -ENOMEM. */
int sl_evidence_find(const struct sl_job *job, int64_t when_ns, struct sl_evidence_list *out);
void sl_evidence_free(struct sl_evidence_list *evidence);
/* Of the host: from *first on, the number. */
size_t sl_evidence_of(const struct sl_evidence_list *evidence, uint32_t host, size_t *first);
bool sl_evidence_heard(const struct sl_evidence_list *evidence, uint32_t host);

/* All of a host's evidence: by what to multiply the odds of each of its parts. Silence of an agent
 * that was heard counts against parts whose faults it sees as a rule. device: "mlx5_3", of which
 * alone ports' conditions count, "mlx5_0:1"'s do not; "": all do. */
void sl_evidence_weigh(const struct sl_evidence_list *evidence, const struct sl_job *job,
                       uint32_t host, const char *device, double out[SL_FAULTS]);
/* Is it of another port than those of the device? */
bool sl_evidence_is_elsewhere(const struct sl_job *job, const struct sl_evidence *it,
                              const char *device);
/* By what silence of an agent that was heard multiplies the odds of a part: below 1. */
double sl_evidence_silence(enum sl_fault fault);

#endif
