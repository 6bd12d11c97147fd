/* SPDX-License-Identifier: Apache-2.0 */
/* What comm.c (the rule), comm_weigh.c (its evidence) and comm_say.c (its verdicts) share. */
#ifndef SL_MONITOR_DIAGNOSIS_COMM_INSIDE_H
#define SL_MONITOR_DIAGNOSIS_COMM_INSIDE_H

#include "monitor/diagnosis/additive.h"
#include "monitor/diagnosis/ambiguity.h"
#include "monitor/diagnosis/comm.h"

struct sl_comm_view {
    const struct sl_job *job;
    const struct sl_comm_options *options;
    struct sl_verdicts *verdicts;
    const struct sl_matrix *matrix;
    const struct sl_places *places;
    enum sl_job_wait state;
    double nodes;
    float *excess;          /* by cell: beyond what is expected, and what earlier rounds explain */
    struct sl_additive fit; /* of the first round's excess */
    float *scratch;         /* room for all cells */
    double group_spread[SL_ELEMENT_KINDS]; /* 0: not yet known; NAN: cannot be */
    uint32_t tiers;
    bool is_short;  /* there was no memory to weigh something */
    unsigned round; /* from 0 on */
};

/* How slow a candidate is, and what that is worth. */
struct sl_comm_weight {
    double ratio;                          /* to what is expected */
    double spread;                         /* of healthy parts of its kind: a logarithm */
    double evidence;                       /* W */
    double threshold;                      /* h */
    double messages, bytes, lost, seconds; /* of its slow cells */
};

void sl_comm_weigh(struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                   const struct sl_candidate *candidate, struct sl_comm_weight *out);

/* Adds the fault's verdict. is_bad: by rank, touched by any fault. 0 or -ENOMEM. */
int sl_comm_say(const struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                const struct sl_comm_fault *fault, const struct sl_comm_weight *weight,
                const uint8_t *is_bad);

#endif
