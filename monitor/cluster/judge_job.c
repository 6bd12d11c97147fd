/* SPDX-License-Identifier: Apache-2.0 */
/* What the diagnosis says of each job. */
#include "monitor/cluster/judge.h"

#include "monitor/cluster/jobs.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct judging {
    const struct sl_cluster_judge *options;
    const struct sl_facts_job *cluster_job;
    const struct sl_job *job;
    struct sl_cluster_verdicts *out;
};

static const struct sl_facts_rank *find_rank(const struct sl_facts_job *job, uint32_t rank)
{
    unsigned low = 0, high = job->rank_count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (job->ranks[middle].fact->rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < job->rank_count && job->ranks[low].fact->rank == rank ? &job->ranks[low] : NULL;
}

static bool is_hang(uint8_t cls)
{
    return cls <= SL_VERDICT_MISMATCH;
}

/* ---- verdicts of the diagnosis ---- */

static const char *node_of(const struct judging *judging, const struct sl_object *object)
{
    const struct sl_facts_rank *rank =
        object->kind == SL_OBJECT_RANK ? find_rank(judging->cluster_job, object->a) : NULL;

    return rank != NULL ? rank->node->name : "";
}

static int take_verdict(const struct judging *judging, const struct sl_verdict *verdict)
{
    struct sl_cluster_verdict *out = sl_cluster_take_verdict(judging->out, judging->job, verdict);
    const char *node = node_of(judging, &verdict->accused);

    if (out == NULL)
        return -ENOMEM;
    out->is_fatal = is_hang(verdict->cls);
    snprintf(out->job, sizeof(out->job), "%s", judging->cluster_job->name);
    if (node[0] != '\0')
        snprintf(out->node, sizeof(out->node), "%s", node);
    return 0;
}

static int run_rules(const struct judging *judging, struct sl_verdicts *verdicts)
{
    const struct sl_case_options options =
        sl_cluster_case_options(judging->options, judging->cluster_job->name);
    const struct sl_judge_options rules = sl_case_rules(&options);

    return sl_judge(judging->job, &rules, verdicts);
}

/* Is anybody at anything? Without it, who is behind is merely not there yet. */
static bool has_waiter(const struct sl_facts_job *job)
{
    for (unsigned i = 0; i < job->rank_count; i++)
        if (!job->ranks[i].is_silent && job->ranks[i].fact->op.is_there)
            return true;
    return false;
}

static int judge_job(struct judging *judging)
{
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job;
    int err;

    if (!has_waiter(judging->cluster_job))
        return 0;
    job = sl_job_new();
    if (job == NULL)
        return sl_fail(-ENOMEM, "no memory for a job");
    judging->job = job;
    err = sl_cluster_past_add(judging->options->history, job);
    if (err == 0)
        err = sl_facts_job_add(judging->cluster_job, job);
    if (err == 0)
        err = sl_job_seal(job);
    if (err == 0)
        err = run_rules(judging, &verdicts);
    for (uint32_t i = 0; i < verdicts.count && err == 0; i++)
        if (verdicts.list[i].cls != SL_VERDICT_NOT_HUNG)
            err = take_verdict(judging, &verdicts.list[i]);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return err;
}

int sl_cluster_judge_jobs(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                          struct sl_cluster_verdicts *out)
{
    struct sl_facts_jobs jobs;
    int err = sl_cluster_jobs_find(model, options->silent_before_ns, &jobs);

    for (unsigned i = 0; i < jobs.count && err == 0; i++) {
        struct judging judging = {.options = options, .cluster_job = &jobs.list[i], .out = out};

        err = judge_job(&judging);
    }
    sl_facts_jobs_free(&jobs);
    return err;
}
