/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an instance answers: JSON of its model and book, docs/cluster.md has the fields. They are
 * added to and never change their meaning. No I/O.
 */
#ifndef SL_MONITOR_CLUSTER_VIEW_H
#define SL_MONITOR_CLUSTER_VIEW_H

#include "monitor/cluster/cases.h"
#include "monitor/cluster/collect.h"
#include "monitor/cluster/history.h"
#include "monitor/cluster/jobs.h"
#include "monitor/cluster/request.h"
#include "monitor/http_answer.h"

#include <stdio.h>

#define SL_VIEW_CELLS 262144 /* of a matrix; more are left out, and counted */
#define SL_VIEW_SINGLE 48    /* ranks of a graph that are drawn one by one; more in groups */

/* How the broker is. */
struct sl_cluster_link {
    bool is_asked_for, is_up;
    uint64_t messages, refused, published, actions;
    char where[128], why[160];
};

struct sl_cluster_view {
    const char *instance, *version;
    struct sl_cluster_model *model;
    const struct sl_book *book;
    const struct sl_history *history;
    const struct sl_cases *cases;
    struct sl_collect_counts collect;
    struct sl_cluster_link link;
    const char *members_why;
    uint64_t now_ns, silent_before_ns, begun_ns;
    int64_t now_ms;
    uint64_t judged_ns; /* how long the rules took last */
};

/* -ENOMEM. What cannot be answered is an answer too, with its status. Not of PAGE, LIVE and BUNDLE.
 */
int sl_cluster_answer(const struct sl_cluster_view *view, const struct sl_cluster_request *request,
                      bool openmetrics, struct sl_http_answer *out);
/* "ok", "degraded", "bad", "silent". */
const char *sl_cluster_state_of(const struct sl_cluster_node *node, uint64_t silent_before_ns);

struct sl_cluster_totals {
    unsigned nodes, ok, degraded, bad, silent, jobs, ranks, waiting, open, fatal;
};

int sl_cluster_totals(const struct sl_cluster_view *view, struct sl_cluster_totals *out);
/* One of /v1/verdicts. */
struct json_object *sl_cluster_verdict_json(const struct sl_book_entry *entry);
/* The object of /v1/cluster. */
struct json_object *sl_cluster_state_json(const struct sl_cluster_view *view);

/* view_job.c. NULL: there is no such job, or no memory. */
struct json_object *sl_cluster_jobs_json(const struct sl_cluster_view *view);
struct json_object *sl_cluster_matrix_json(const struct sl_cluster_view *view, const char *job);
struct json_object *sl_cluster_graph_json(const struct sl_cluster_view *view, const char *job);
/* view_metrics.c */
int sl_cluster_metrics(const struct sl_cluster_view *view, bool openmetrics, FILE *out);

#endif
