/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that ranks measured of their own work, side by side. Only such numbers are taken of which
 * more means slower and which no other rank prolongs: times of mini-batches, and of matrix
 * products. A collective's time is none: of it, who is late has the least.
 */
#ifndef SL_MONITOR_DIAGNOSIS_SERIES_H
#define SL_MONITOR_DIAGNOSIS_SERIES_H

#include "monitor/diagnosis/job.h"

struct sl_series {
    uint32_t name, step_count;
    int64_t *at;     /* of each step: a time, or an iteration's number */
    double *values;  /* of rank r in the i-th step: [r * step_count + i]; NAN: none */
    uint64_t *roles; /* by rank: stage and tensor rank, where they are told */
    double step_s;   /* between two steps; 0: not known */
};

/* All of a job, series after series. */
struct sl_series_list {
    const struct sl_job *job;
    struct sl_series_value *values;
    size_t value_count;
    size_t next;    /* of values: where the next series begins */
    uint32_t count; /* of series */
};

int sl_series_open(const struct sl_job *job, struct sl_series_list *list);
void sl_series_close(struct sl_series_list *list);
/* 1: the next one; its step_count is 0 where there is nothing to compare. 0: there is none.
 * -ENOMEM. sl_series_fini() in any case. */
int sl_series_next(struct sl_series_list *list, struct sl_series *series);
void sl_series_fini(struct sl_series *series);

/* A time in ns of this age, or the number of an iteration? */
bool sl_series_is_time(int64_t at);

#endif
