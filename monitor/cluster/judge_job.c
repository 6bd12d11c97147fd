/* SPDX-License-Identifier: Apache-2.0 */
/* What the diagnosis says of each job, and what agents know of those whom it accuses. */
#include "monitor/cluster/judge.h"

#include "monitor/cases/judge.h"
#include "monitor/cluster/jobs.h"
#include "monitor/diagnosis/verdict_text.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Checks of a process that keep a rank from going on (monitor/check.h): what explains most,
 * first. */
static const char *const halting[] = {"stopped",   "died",    "blocked",
                                      "throttled", "starved", "memory_pressure"};

struct judging {
    const struct sl_cluster_judge *options;
    const struct sl_cluster_job *cluster_job;
    const struct sl_job *job;
    struct sl_cluster_verdicts *out;
};

/* ---- ids ---- */

static const struct sl_cluster_rank *find_rank(const struct sl_cluster_job *job, uint32_t rank)
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

static uint64_t begun_by(const struct sl_cluster_rank *rank)
{
    uint64_t begun = 0;

    for (unsigned i = 0; rank != NULL && i < rank->fact->comm_count; i++)
        begun += rank->fact->comms[i].begun;
    return begun;
}

static bool is_hang(uint8_t cls)
{
    return cls <= SL_VERDICT_MISMATCH;
}

/* Which hang of that object it is: who hangs begins nothing more. Being slow goes on. */
static uint64_t incident_of(const struct judging *judging, const struct sl_verdict *verdict)
{
    const struct sl_cluster_job *job = judging->cluster_job;
    uint64_t begun = 0;

    if (!is_hang(verdict->cls))
        return 0;
    if (verdict->accused.kind == SL_OBJECT_RANK)
        return begun_by(find_rank(job, verdict->accused.a));
    for (unsigned i = 0; i < job->rank_count; i++)
        begun += begun_by(&job->ranks[i]);
    return begun;
}

/* Not the id of fuse.h: times that agents tell of one hang differ by what passed since their
 * looks. */
static uint64_t id_of(const struct judging *judging, const struct sl_verdict *verdict)
{
    uint64_t incident = incident_of(judging, verdict);
    uint64_t id = sl_cluster_hash_text(SL_CLUSTER_HASH, "job");

    id = sl_cluster_hash_text(id, judging->cluster_job->name);
    id = sl_cluster_hash_text(id, sl_verdict_class_name(verdict->cls));
    id = sl_cluster_hash(id, &verdict->accused.kind, sizeof(verdict->accused.kind));
    id = sl_cluster_hash(id, &verdict->accused.a, sizeof(verdict->accused.a));
    id = sl_cluster_hash(id, &verdict->accused.b, sizeof(verdict->accused.b));
    id = sl_cluster_hash_text(id, sl_job_string(judging->job, verdict->accused.name));
    return sl_cluster_hash(id, &incident, sizeof(incident));
}

/* ---- what agents know of it ---- */

/* The agent's open verdict on the rank's process, or NULL. */
static const struct sl_fact_verdict *halted_by(const struct sl_cluster_rank *rank)
{
    char subject[24];

    if (rank == NULL)
        return NULL;
    snprintf(subject, sizeof(subject), "pid %d", rank->fact->pid);
    for (unsigned k = 0; k < SL_ARRAY_LEN(halting); k++)
        for (unsigned i = 0; i < rank->node->facts.verdict_count; i++) {
            const struct sl_fact_verdict *fact = &rank->node->facts.verdicts[i];

            if (strcmp(fact->check, halting[k]) == 0 && strcmp(fact->kind, "process") == 0 &&
                strcmp(fact->subject, subject) == 0)
                return fact;
        }
    return NULL;
}

static bool is_in_set(const struct sl_verdict *verdict, uint32_t rank)
{
    if (verdict->accused.kind == SL_OBJECT_RANK && verdict->accused.a == rank)
        return true;
    for (uint32_t i = 0; i < verdict->other_count; i++)
        if (verdict->others[i].kind == SL_OBJECT_RANK && verdict->others[i].a == rank)
            return true;
    return false;
}

/* Of a set that the job's own records cannot tell apart, the one rank that its host's agent says is
 * kept from going on. It takes the accused's place; the others stay named. */
static const struct sl_cluster_rank *narrow(const struct judging *judging,
                                            struct sl_verdict *verdict)
{
    const struct sl_cluster_job *job = judging->cluster_job;
    const struct sl_cluster_rank *found = NULL;

    if (!is_hang(verdict->cls))
        return NULL;
    for (unsigned i = 0; i < job->rank_count; i++) {
        if (!is_in_set(verdict, job->ranks[i].fact->rank) || halted_by(&job->ranks[i]) == NULL)
            continue;
        if (found != NULL)
            return NULL;
        found = &job->ranks[i];
    }
    if (found == NULL)
        return NULL;
    for (uint32_t i = 0; i < verdict->other_count; i++)
        if (verdict->others[i].kind == SL_OBJECT_RANK &&
            verdict->others[i].a == found->fact->rank) {
            verdict->others[i] = verdict->accused;
            verdict->accused.kind = SL_OBJECT_RANK;
            verdict->accused.a = found->fact->rank;
            verdict->accused.b = SL_JOB_NONE;
            verdict->accused.name = 0;
        }
    verdict->probability = verdict->probability > 0.9 ? verdict->probability : 0.9;
    return found;
}

/* ---- verdicts of the diagnosis ---- */

static const char *node_of(const struct judging *judging, const struct sl_object *object)
{
    const struct sl_cluster_rank *rank =
        object->kind == SL_OBJECT_RANK ? find_rank(judging->cluster_job, object->a) : NULL;

    return rank != NULL ? rank->node->name : "";
}

static int take_verdict(const struct judging *judging, struct sl_verdict *verdict)
{
    const struct sl_cluster_rank *halted = narrow(judging, verdict);
    struct sl_cluster_verdict *out = sl_cluster_verdict_add(judging->out, id_of(judging, verdict));
    char text[192];
    int err = 0;

    if (out == NULL)
        return -ENOMEM;
    snprintf(out->cls, sizeof(out->cls), "%s", sl_verdict_class_name(verdict->cls));
    sl_object_text(judging->job, &verdict->accused, out->object, sizeof(out->object));
    snprintf(out->job, sizeof(out->job), "%s", judging->cluster_job->name);
    snprintf(out->node, sizeof(out->node), "%s", node_of(judging, &verdict->accused));
    if (out->node[0] == '\0' && verdict->node != 0)
        snprintf(out->node, sizeof(out->node), "%s", sl_job_string(judging->job, verdict->node));
    out->is_fatal = is_hang(verdict->cls);
    out->probability = verdict->probability;
    out->since_ms = verdict->since_ns == SL_JOB_NEVER ? 0 : verdict->since_ns / 1000000;
    if (halted != NULL)
        err = sl_cluster_say(out, "the agent of %s says of rank %u: %s: %s", halted->node->name,
                             halted->fact->rank, halted_by(halted)->check, halted_by(halted)->text);
    for (uint32_t i = 0; i < verdict->evidence_count && err == 0; i++)
        err = sl_cluster_say(out, "%s", verdict->evidence[i]);
    for (uint32_t i = 0; i < verdict->other_count && err == 0; i++) {
        sl_object_text(judging->job, &verdict->others[i], text, sizeof(text));
        err = sl_cluster_other(out, text);
    }
    return err;
}

static int run_rules(const struct judging *judging, struct sl_verdicts *verdicts)
{
    struct sl_judge_options options = SL_JUDGE_OPTIONS;

    options.hang.now_ns = judging->job->now_ns;
    options.hang.stall_ns = judging->options->stall_ms * 1000000;
    options.fuse.scope = judging->cluster_job->name;
    return sl_judge(judging->job, &options, verdicts);
}

/* Is anybody at anything? Without it, who is behind is merely not there yet. */
static bool has_waiter(const struct sl_cluster_job *job)
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
    err = sl_cluster_job_build(judging->cluster_job, &job);
    if (err != 0)
        return err;
    judging->job = job;
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
    struct sl_cluster_jobs jobs;
    int err = sl_cluster_jobs_find(model, options->silent_before_ns, &jobs);

    for (unsigned i = 0; i < jobs.count && err == 0; i++) {
        struct judging judging = {.options = options, .cluster_job = &jobs.list[i], .out = out};

        err = judge_job(&judging);
    }
    sl_cluster_jobs_free(&jobs);
    return err;
}
