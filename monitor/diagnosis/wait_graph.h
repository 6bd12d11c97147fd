/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wait-for graph of a hang, small enough to be looked at: each rank that waits points to one
 * that it waits for, on a shortest way to an accused one; ranks that are at the same and as far
 * from an accused one are one box. Boxes get coarser until there are few, so that 16,384 ranks fit
 * on a page.
 */
#ifndef SL_MONITOR_DIAGNOSIS_WAIT_GRAPH_H
#define SL_MONITOR_DIAGNOSIS_WAIT_GRAPH_H

#include "monitor/diagnosis/hang.h"
#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

#include <stdio.h>

#define SL_WAIT_BOXES_MAX 48 /* above it boxes are made coarser */
#define SL_WAIT_DEPTH_MAX 7  /* columns; what is further away is in the last one */

enum sl_wait_role {
    SL_WAIT_ACCUSED,
    SL_WAIT_WAITS,  /* for an accused one, directly or by way of others */
    SL_WAIT_ASTRAY, /* something is pending, but no way leads to an accused one */
    SL_WAIT_FREE    /* nothing is pending, or nothing is known */
};

struct sl_wait_box {
    enum sl_wait_role role;
    uint32_t depth, count; /* steps to an accused one; ranks */
    char ranks[96];        /* "rank 9 (host h2)", "ranks 0-7, 9 (9)" */
    char what[160];        /* "all_reduce 3460 of TENSOR (63)"; "host_stalled, 90 %" */
};

struct sl_wait_arrow {
    uint32_t from, to, count; /* boxes; ranks that wait so */
};

struct sl_wait_graph {
    struct sl_wait_box *boxes; /* accused ones, then by depth, then the largest first */
    uint32_t box_count;
    struct sl_wait_arrow *arrows; /* by from, to */
    uint32_t arrow_count;
    uint32_t rank_count;
};

/* verdicts: what the rules said of the job. -ENOMEM. */
int sl_wait_graph_make(const struct sl_job *job, const struct sl_hang_options *options,
                       struct sl_verdicts *verdicts, struct sl_wait_graph *out);
void sl_wait_graph_free(struct sl_wait_graph *graph);

/* Graphviz's language. */
void sl_wait_graph_dot(const struct sl_wait_graph *graph, FILE *out);
/* A drawing, laid out here: accused ones on the right, who waits on the left. */
void sl_wait_graph_svg(const struct sl_wait_graph *graph, FILE *out);

#endif
