/* SPDX-License-Identifier: Apache-2.0 */
/* An instance's metrics. Labels are states alone: never a node, a job or a text. */
#include "monitor/cluster/view.h"

#include "monitor/metrics.h"

#include "core/err.h"

#include <errno.h>

static void number(enum sl_mon_format format, FILE *out, const char *name, const char *type,
                   const char *unit, const char *help, double value)
{
    sl_mon_metrics_family(format, out, name, type, unit, help);
    fprintf(out, "%s%s %.15g\n", name, type[0] == 'c' ? "_total" : "", value);
}

static void nodes(enum sl_mon_format format, FILE *out, const struct sl_cluster_totals *totals)
{
    static const char *const states[] = {"ok", "degraded", "bad", "silent"};
    const unsigned counts[] = {totals->ok, totals->degraded, totals->bad, totals->silent};

    sl_mon_metrics_family(format, out, "sluice_cluster_nodes", "gauge", "", "Nodes, by state.");
    for (unsigned i = 0; i < SL_ARRAY_LEN(states); i++) {
        sl_mon_metrics_open(out, "sluice_cluster_nodes", "state", states[i]);
        sl_mon_metrics_number(out, counts[i]);
    }
}

static void verdicts(enum sl_mon_format format, FILE *out, const struct sl_cluster_totals *totals)
{
    sl_mon_metrics_family(format, out, "sluice_cluster_verdicts", "gauge", "",
                          "Open verdicts, by severity.");
    sl_mon_metrics_open(out, "sluice_cluster_verdicts", "severity", "fatal");
    sl_mon_metrics_number(out, totals->fatal);
    sl_mon_metrics_open(out, "sluice_cluster_verdicts", "severity", "degraded");
    sl_mon_metrics_number(out, totals->open - totals->fatal);
}

int sl_cluster_metrics(const struct sl_cluster_view *view, bool openmetrics, FILE *out)
{
    enum sl_mon_format format = openmetrics ? SL_MON_OPENMETRICS : SL_MON_TEXT_FORMAT;
    const struct sl_cluster_counts *counts = sl_cluster_counts(view->model);
    struct sl_cluster_totals totals;
    int err = sl_cluster_totals(view, &totals);

    if (err != 0)
        return err;
    nodes(format, out, &totals);
    verdicts(format, out, &totals);
    number(format, out, "sluice_cluster_jobs", "gauge", "", "Jobs with ranks on nodes.",
           totals.jobs);
    number(format, out, "sluice_cluster_ranks", "gauge", "", "Ranks of jobs.", totals.ranks);
    number(format, out, "sluice_cluster_ranks_waiting", "gauge", "",
           "Ranks that wait in an operation.", totals.waiting);
    number(format, out, "sluice_cluster_observations", "counter", "",
           "Observations that were newer than what was known.", (double)counts->taken);
    number(format, out, "sluice_cluster_observations_refused", "counter", "",
           "Observations that could not be read.", (double)counts->refused);
    number(format, out, "sluice_cluster_observations_left_out", "counter", "",
           "Observations that there was no room for.", (double)counts->left_out);
    number(format, out, "sluice_cluster_memory_bytes", "gauge", "bytes",
           "What nodes said, as it is kept.", (double)counts->bytes);
    number(format, out, "sluice_cluster_judge_seconds", "gauge", "seconds",
           "How long the rules took last.", (double)view->judged_ns / 1e9);
    number(format, out, "sluice_cluster_agents_failing", "gauge", "",
           "Agents that did not answer when they were asked last.", view->collect.failing);
    number(format, out, "sluice_cluster_verdicts_opened", "counter", "",
           "Verdicts that were opened.", (double)view->book->opened);
    number(format, out, "sluice_cluster_broker_up", "gauge", "",
           "1: the broker is connected; 0: it is not, or there is none.", view->link.is_up);
    number(format, out, "sluice_cluster_actions", "counter", "",
           "Commands that this instance ran for verdicts.", (double)view->link.actions);
    if (openmetrics)
        fputs("# EOF\n", out);
    return ferror(out) ? sl_fail(-ENOMEM, "no memory for metrics") : 0;
}
