/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What led to each verdict that opened, kept as a bundle (monitor/cases/case.h) in a folder: its
 * ID.case is judged again by `sluicectl replay`, and told in prose by `sluicectl explain ID`.
 *
 * A child process writes them, of the model as it was when it began: a job of thousands of ranks
 * takes seconds. The oldest ones give way.
 */
#ifndef SL_MONITOR_CLUSTER_CASES_H
#define SL_MONITOR_CLUSTER_CASES_H

#include "monitor/cluster/book.h"

struct sl_cases;

struct sl_cases_options {
    const char *folder;                /* "": none are kept */
    uint64_t bytes;                    /* of all of them, at most; of one a quarter */
    unsigned count;                    /* at most */
    void (*say)(const char *sentence); /* what people should know */
};

struct sl_cases_counts {
    uint64_t kept, failed; /* so far */
};

/* Makes the folder. -ENOMEM; where the folder cannot be made, a sentence, and none are kept. */
int sl_cases_new(const struct sl_cases_options *options, struct sl_cases **out);
void sl_cases_free(struct sl_cases *cases);
/* Now and then, right after the rules: of entries that are open and not kept yet, a child keeps
 * them; what it has done is noted in the entries. judge and model are what the rules had. */
void sl_cases_tick(struct sl_cases *cases, struct sl_cluster_model *model,
                   const struct sl_cluster_judge *judge, struct sl_book *book);
/* The bundle of that verdict: a file descriptor, the caller's. -ENOENT. */
int sl_cases_open(const struct sl_cases *cases, const char *id);
struct sl_cases_counts sl_cases_counts(const struct sl_cases *cases);

/* ---- for tests: what the child does ---- */

/* Keeps the verdicts with these ids, all of one job (""): of no job. *kept: how many were. -ENOENT,
 * -EFBIG, -ENOSPC, ... */
int sl_cases_keep(const struct sl_cases_options *options, struct sl_cluster_model *model,
                  const struct sl_cluster_judge *judge, const char *job,
                  const char (*ids)[SL_CLUSTER_ID], unsigned count, unsigned *kept);
/* Removes the oldest files until the rest is within bounds. */
void sl_cases_bound(const struct sl_cases_options *options);

#endif
