/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prometheus's text form (version 0.0.4), one sample after another:
 *
 *     # TYPE XPU_TIMER_COMMON_HANG gauge
 *     XPU_TIMER_COMMON_HANG{ip="11.36.23.0",rank="4"} 0
 *     name{label="value with \" and \\"} 12.5 1748030377748
 */
#ifndef SL_MONITOR_READ_PROM_H
#define SL_MONITOR_READ_PROM_H

#include "monitor/read/lines.h"

#define SL_PROM_LABELS_MAX 64

struct sl_prom_label {
    const char *name, *value;
};

/* Its texts lie in the line, until the next sample is asked for. */
struct sl_prom {
    struct sl_lines lines;
    const char *name;
    struct sl_prom_label labels[SL_PROM_LABELS_MAX];
    unsigned label_count;
    double value;         /* infinite and not-a-number ones are as in the file */
    int64_t timestamp_ms; /* SL_JOB_NEVER: none */
};

int sl_prom_open(struct sl_prom *prom, struct sl_read_in *in);
void sl_prom_close(struct sl_prom *prom);
/* 1: there is one. 0: the end. Else an error, -EBADMSG with a sentence. */
int sl_prom_next(struct sl_prom *prom);
/* NULL: it has no such label. */
const char *sl_prom_label(const struct sl_prom *prom, const char *name);

/* Is one of the first lines a sample whose name begins so? */
bool sl_prom_has(const char *head, size_t len, const char *prefix);

#endif
