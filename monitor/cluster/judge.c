/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/judge.h"

#include "monitor/cluster/jobs.h"
#include "monitor/diagnosis/verdict_text.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENTENCES_MAX 64

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for the cluster's verdicts");
}

/* ---- the list ---- */

struct sl_cluster_verdict *sl_cluster_verdict_add(struct sl_cluster_verdicts *verdicts,
                                                  const char *id)
{
    struct sl_cluster_verdict *verdict;

    if (verdicts->count == verdicts->cap) {
        unsigned cap = verdicts->cap == 0 ? 16 : 2 * verdicts->cap;
        struct sl_cluster_verdict *list = reallocarray(verdicts->list, cap, sizeof(*list));

        if (list == NULL) {
            (void)no_memory();
            return NULL;
        }
        verdicts->list = list;
        verdicts->cap = cap;
    }
    verdict = &verdicts->list[verdicts->count++];
    memset(verdict, 0, sizeof(*verdict));
    snprintf(verdict->id, sizeof(verdict->id), "%s", id);
    return verdict;
}

/* A text of the caller's, of which the list takes over the memory. */
static int add(char ***list, unsigned *count, char *text)
{
    bool is_full = *count >= SENTENCES_MAX;
    char **more = text != NULL && !is_full ? reallocarray(*list, *count + 1, sizeof(**list)) : NULL;

    if (more == NULL) {
        free(text);
        return is_full ? 0 : no_memory();
    }
    *list = more;
    more[(*count)++] = text;
    return 0;
}

void sl_cluster_verdict_fini(struct sl_cluster_verdict *verdict)
{
    for (unsigned i = 0; i < verdict->evidence_count; i++)
        free(verdict->evidence[i]);
    for (unsigned i = 0; i < verdict->other_count; i++)
        free(verdict->others[i]);
    free(verdict->evidence);
    free(verdict->others);
    verdict->evidence = verdict->others = NULL;
    verdict->evidence_count = verdict->other_count = 0;
}

void sl_cluster_verdicts_free(struct sl_cluster_verdicts *verdicts)
{
    for (unsigned i = 0; i < verdicts->count; i++)
        sl_cluster_verdict_fini(&verdicts->list[i]);
    free(verdicts->list);
    *verdicts = (struct sl_cluster_verdicts){.count = 0};
}

static int by_id(const void *a, const void *b)
{
    const struct sl_cluster_verdict *x = a, *y = b;
    int order = strcmp(x->id, y->id);

    return order != 0 ? order : strcmp(x->object, y->object);
}

static void sort(struct sl_cluster_verdicts *verdicts)
{
    unsigned kept = 0;

    if (verdicts->count > 0)
        qsort(verdicts->list, verdicts->count, sizeof(*verdicts->list), by_id);
    for (unsigned i = 0; i < verdicts->count; i++)
        if (kept > 0 && strcmp(verdicts->list[kept - 1].id, verdicts->list[i].id) == 0)
            sl_cluster_verdict_fini(&verdicts->list[i]);
        else
            verdicts->list[kept++] = verdicts->list[i];
    verdicts->count = kept;
}

/* ---- verdicts of the diagnosis ---- */

static int take_texts(const struct sl_job *job, const struct sl_verdict *verdict,
                      struct sl_cluster_verdict *out)
{
    char text[192];
    int err = 0;

    for (uint32_t i = 0; i < verdict->evidence_count && err == 0; i++)
        err = add(&out->evidence, &out->evidence_count, strdup(verdict->evidence[i]));
    for (uint32_t i = 0; i < verdict->other_count && err == 0; i++) {
        sl_object_text(job, &verdict->others[i], text, sizeof(text));
        err = add(&out->others, &out->other_count, strdup(text));
    }
    return err;
}

static void take_causes(const struct sl_job *job, const struct sl_verdict *verdict,
                        struct sl_cluster_verdict *out)
{
    out->cause_count = verdict->cause_count < SL_CAUSES_MAX ? verdict->cause_count : SL_CAUSES_MAX;
    for (uint32_t i = 0; i < out->cause_count; i++) {
        out->causes[i].fault = verdict->causes[i].fault;
        out->causes[i].probability = verdict->causes[i].probability;
        sl_object_text(job, &verdict->causes[i].object, out->causes[i].object,
                       sizeof(out->causes[i].object));
    }
    out->elsewhere = verdict->elsewhere;
    out->node_probability = verdict->node_probability;
    out->threshold = verdict->threshold;
    out->act = verdict->act;
}

struct sl_cluster_verdict *sl_cluster_take_verdict(struct sl_cluster_verdicts *verdicts,
                                                   const struct sl_job *job,
                                                   const struct sl_verdict *verdict)
{
    struct sl_cluster_verdict *out = sl_cluster_verdict_add(verdicts, verdict->id);

    if (out == NULL)
        return NULL;
    snprintf(out->cls, sizeof(out->cls), "%s", sl_verdict_class_name(verdict->cls));
    sl_object_text(job, &verdict->accused, out->object, sizeof(out->object));
    snprintf(out->node, sizeof(out->node), "%s", sl_job_string(job, verdict->node));
    out->probability = verdict->probability;
    out->since_ms = verdict->since_ns == SL_JOB_NEVER ? 0 : verdict->since_ns / 1000000;
    take_causes(job, verdict, out);
    return take_texts(job, verdict, out) == 0 ? out : NULL;
}

struct sl_case_options sl_cluster_case_options(const struct sl_cluster_judge *judge,
                                               const char *job)
{
    struct sl_case_options options = SL_CASE_OPTIONS;

    options.stall_ns = judge->stall_ms * 1000000;
    options.false_isolations = judge->false_isolations;
    snprintf(options.scope, sizeof(options.scope), "%s", job);
    return options;
}

/* ---- nodes ---- */

/* An agent's verdict keeps the name that the agent gave it. */
static int take_node(const struct sl_job *job, const struct sl_verdict *verdict,
                     struct sl_cluster_verdicts *out)
{
    const struct sl_job_event *event = &job->events[verdict->event > 0 ? verdict->event - 1 : 0];
    struct sl_cluster_verdict *taken = sl_cluster_take_verdict(out, job, verdict);
    const char *node = sl_job_string(job, verdict->accused.name);

    if (taken == NULL)
        return -ENOMEM;
    taken->is_fatal = verdict->event == 0 || event->is_fatal;
    snprintf(taken->node, sizeof(taken->node), "%s", node);
    if (verdict->event == 0) {
        snprintf(taken->object, sizeof(taken->object), "node %s", node);
        return 0;
    }
    snprintf(taken->cls, sizeof(taken->cls), "%s", sl_job_string(job, event->cls));
    snprintf(taken->object, sizeof(taken->object), "%s %s", sl_job_string(job, event->kind),
             sl_job_string(job, event->subject));
    return 0;
}

static int judge_nodes(const struct sl_job *job, const struct sl_cluster_judge *options,
                       struct sl_cluster_verdicts *out)
{
    const struct sl_case_options of_case = sl_cluster_case_options(options, "");
    const struct sl_judge_options rules = sl_case_rules(&of_case);
    struct sl_verdicts verdicts = {.list = NULL};
    int err = sl_judge(job, &rules, &verdicts);

    for (uint32_t i = 0; i < verdicts.count && err == 0; i++)
        if (verdicts.list[i].cls >= SL_VERDICT_JOB_CLASSES)
            err = take_node(job, &verdicts.list[i], out);
    sl_verdicts_free(&verdicts);
    return err;
}

/* All nodes in one: what many of them have at once is nobody's fault (diagnosis/evidence.h). */
static int build_nodes(struct sl_cluster_model *model, uint64_t silent_before_ns,
                       struct sl_job *job)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(model, &count);
    int err = 0;

    for (unsigned i = 0; i < count && err == 0; i++) {
        const struct sl_facts_seen seen = sl_cluster_seen(nodes[i], silent_before_ns);

        err = sl_facts_add_node(&seen, job);
    }
    return err == 0 ? sl_job_seal(job) : err;
}

static bool is_anything_wrong(struct sl_cluster_model *model, uint64_t silent_before_ns)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(model, &count);

    for (unsigned i = 0; i < count; i++)
        if (nodes[i]->facts.verdict_count > 0 || sl_cluster_is_silent(nodes[i], silent_before_ns))
            return true;
    return false;
}

static int judge_all_nodes(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                           struct sl_cluster_verdicts *out)
{
    struct sl_job *job;
    int err;

    if (!is_anything_wrong(model, options->silent_before_ns))
        return 0;
    job = sl_job_new();
    if (job == NULL)
        return no_memory();
    err = sl_cluster_past_add(options->history, job);
    if (err == 0)
        err = build_nodes(model, options->silent_before_ns, job);
    if (err == 0)
        err = judge_nodes(job, options, out);
    sl_job_free(job);
    return err;
}

int sl_cluster_judge(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                     struct sl_cluster_verdicts *out)
{
    int err;

    *out = (struct sl_cluster_verdicts){.count = 0};
    err = judge_all_nodes(model, options, out);
    if (err == 0)
        err = sl_cluster_judge_jobs(model, options, out);
    sort(out);
    if (err != 0)
        sl_cluster_verdicts_free(out);
    return err;
}
