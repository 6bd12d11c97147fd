/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/case_lines.h"

#include "monitor/cluster/jobs.h"
#include "monitor/read/lines.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define ENVELOPE 512 /* bytes of a line beside the body, at most */

/* ---- lines ---- */

/* What is longer than a reader takes is left out: no agent writes so much. */
static void say_source(const struct sl_cluster_node *node, unsigned source, const char *body,
                       FILE *out)
{
    const struct sl_cluster_obs *obs = &node->obs[source];

    if (body == NULL || strlen(body) > SL_LINE_MAX - ENVELOPE)
        return;
    fprintf(out,
            "{\"version\":1,\"node\":\"%s\",\"epoch\":%" PRIu64 ",\"seq\":%" PRIu64
            ",\"time_ms\":%" PRId64 ",\"sources\":{\"%s\":%s}}\n",
            node->name, obs->epoch, obs->seq, obs->time_ms, sl_observe_names[source], body);
}

/* Nothing more is heard of it. */
static int say_silence(const struct sl_facts_seen *seen, FILE *out)
{
    struct json_object *why = json_object_new_string(seen->why);
    const char *text =
        why != NULL ? json_object_to_json_string_ext(why, JSON_C_TO_STRING_NOSLASHESCAPE) : NULL;

    if (text != NULL)
        fprintf(out,
                "{\"version\":1,\"node\":\"%s\",\"epoch\":%" PRIu64
                ",\"seq\":0,\"time_ms\":%" PRId64 ",\"silent\":true,\"dead\":%s,\"why\":%s}\n",
                seen->facts->name, seen->facts->epoch, seen->last_ms,
                seen->is_dead ? "true" : "false", text);
    json_object_put(why);
    return text != NULL ? 0 : sl_fail(-ENOMEM, "no memory for a case");
}

static int say_nodes(struct sl_cluster_model *model, uint64_t silent_before_ns, FILE *out)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(model, &count);
    int err = 0;

    for (unsigned i = 0; i < count && err == 0; i++) {
        const struct sl_facts_seen seen = sl_cluster_seen(nodes[i], silent_before_ns);

        say_source(nodes[i], SL_OBSERVE_STATUS, nodes[i]->obs[SL_OBSERVE_STATUS].body, out);
        if (seen.is_silent)
            err = say_silence(&seen, out);
    }
    return err;
}

/* ---- ranks of one job ---- */

static bool is_among(struct json_object *rank, const struct sl_facts_rank *const *ranks,
                     unsigned count)
{
    struct json_object *pid, *number;

    if (!json_object_is_type(rank, json_type_object) ||
        !json_object_object_get_ex(rank, "pid", &pid) ||
        !json_object_object_get_ex(rank, "rank", &number))
        return false;
    for (unsigned i = 0; i < count; i++)
        if (ranks[i]->fact->pid == json_object_get_int64(pid) &&
            ranks[i]->fact->rank == json_object_get_int64(number))
            return true;
    return false;
}

/* The body with the job's ranks alone. */
static int say_some(const struct sl_cluster_node *node, const struct sl_facts_rank *const *ranks,
                    unsigned count, FILE *out)
{
    struct json_object *body = json_tokener_parse(node->obs[SL_OBSERVE_RANKS].body), *list = NULL,
                       *kept = json_object_new_array();
    const char *text;

    if (body == NULL || kept == NULL) {
        json_object_put(body);
        json_object_put(kept);
        return sl_fail(-ENOMEM, "no memory for a case");
    }
    (void)json_object_object_get_ex(body, "ranks", &list);
    for (size_t i = 0; list != NULL && i < json_object_array_length(list); i++)
        if (is_among(json_object_array_get_idx(list, i), ranks, count))
            json_object_array_add(kept, json_object_get(json_object_array_get_idx(list, i)));
    json_object_object_add(body, "ranks", kept);
    text = json_object_to_json_string_ext(body,
                                          JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    say_source(node, SL_OBSERVE_RANKS, text, out);
    json_object_put(body);
    return 0;
}

static int say_node(struct sl_cluster_model *model, uint64_t silent_before_ns,
                    const struct sl_facts_rank *const *ranks, unsigned count, FILE *out)
{
    const struct sl_cluster_node *node = sl_cluster_node(model, ranks[0]->node->name, false);
    struct sl_facts_seen seen;
    int err = 0;

    if (node == NULL)
        return 0;
    seen = sl_cluster_seen(node, silent_before_ns);
    say_source(node, SL_OBSERVE_STATUS, node->obs[SL_OBSERVE_STATUS].body, out);
    if (count == node->facts.rank_count)
        say_source(node, SL_OBSERVE_RANKS, node->obs[SL_OBSERVE_RANKS].body, out);
    else
        err = say_some(node, ranks, count, out);
    return err == 0 && seen.is_silent ? say_silence(&seen, out) : err;
}

static int by_node(const void *a, const void *b)
{
    const struct sl_facts_rank *x = *(const struct sl_facts_rank *const *)a,
                               *y = *(const struct sl_facts_rank *const *)b;

    return strcmp(x->node->name, y->node->name);
}

static int say_job(struct sl_cluster_model *model, uint64_t silent_before_ns,
                   const struct sl_facts_job *job, FILE *out)
{
    const struct sl_facts_rank **ranks = reallocarray(NULL, job->rank_count, sizeof(*ranks));
    int err = 0;

    if (ranks == NULL)
        return sl_fail(-ENOMEM, "no memory for a case");
    for (unsigned i = 0; i < job->rank_count; i++)
        ranks[i] = &job->ranks[i];
    qsort(ranks, job->rank_count, sizeof(*ranks), by_node);
    for (unsigned i = 0, end; i < job->rank_count && err == 0; i = end) {
        for (end = i; end < job->rank_count && by_node(&ranks[i], &ranks[end]) == 0; end++)
            continue;
        err = say_node(model, silent_before_ns, &ranks[i], end - i, out);
    }
    free(ranks);
    return err;
}

int sl_cluster_case_lines(struct sl_cluster_model *model, uint64_t silent_before_ns,
                          const char *job, FILE *out)
{
    struct sl_facts_jobs jobs;
    const struct sl_facts_job *found;
    int err;

    if (job[0] == '\0') {
        err = say_nodes(model, silent_before_ns, out);
    } else {
        err = sl_cluster_jobs_find(model, silent_before_ns, &jobs);
        if (err != 0)
            return err;
        found = sl_facts_job_named(&jobs, job);
        err = found != NULL ? say_job(model, silent_before_ns, found, out)
                            : sl_fail(-ENOENT, "there is no job %s any more", job);
        sl_facts_jobs_free(&jobs);
    }
    if (err == 0 && (fflush(out) != 0 || ferror(out)))
        err = sl_fail(-EIO, "the lines of a case cannot be written");
    return err;
}
