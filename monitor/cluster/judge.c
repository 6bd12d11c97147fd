/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/judge.h"

#include "monitor/cluster/jobs.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENTENCES_MAX 64

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for the cluster's verdicts");
}

/* ---- the list ---- */

struct sl_cluster_verdict *sl_cluster_verdict_add(struct sl_cluster_verdicts *verdicts, uint64_t id)
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
    snprintf(verdict->id, sizeof(verdict->id), "%016" PRIx64, id);
    return verdict;
}

/* A text of the caller's, of which the list takes over the memory. */
static int add(char ***list, unsigned *count, char *text)
{
    char **more = text != NULL && *count < SENTENCES_MAX
                      ? reallocarray(*list, *count + 1, sizeof(**list))
                      : NULL;

    if (more == NULL) {
        free(text);
        return text != NULL && *count >= SENTENCES_MAX ? 0 : no_memory();
    }
    *list = more;
    more[(*count)++] = text;
    return 0;
}

int sl_cluster_say(struct sl_cluster_verdict *verdict, const char *format, ...)
{
    va_list args;
    char *text = NULL;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    return add(&verdict->evidence, &verdict->evidence_count, text);
}

int sl_cluster_other(struct sl_cluster_verdict *verdict, const char *object)
{
    return add(&verdict->others, &verdict->other_count, strdup(object));
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

uint64_t sl_cluster_hash_text(uint64_t hash, const char *text)
{
    return sl_cluster_hash(hash, text, strlen(text) + 1);
}

/* ---- nodes ---- */

static uint64_t id_of(const char *what, const char *node)
{
    return sl_cluster_hash_text(sl_cluster_hash_text(SL_CLUSTER_HASH, what), node);
}

static uint64_t epoch_of(const struct sl_cluster_node *node)
{
    uint64_t epoch = 0;

    for (unsigned i = 0; i < SL_CLUSTER_SOURCES; i++)
        epoch = node->obs[i].epoch > epoch ? node->obs[i].epoch : epoch;
    return epoch;
}

static int64_t last_ms(const struct sl_cluster_node *node)
{
    int64_t last = 0;

    for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
        last = node->obs[i].time_ms > last ? node->obs[i].time_ms : last;
    return last;
}

/* One start of the agent's is one silence: however often it is found. */
static int judge_silence(const struct sl_cluster_node *node, const struct sl_cluster_judge *options,
                         struct sl_cluster_verdicts *out)
{
    uint64_t epoch = epoch_of(node), id = id_of("node_silent", node->name);
    struct sl_cluster_verdict *verdict;
    int err;

    if (!sl_cluster_is_silent(node, options->silent_before_ns))
        return 0;
    verdict = sl_cluster_verdict_add(out, sl_cluster_hash(id, &epoch, sizeof(epoch)));
    if (verdict == NULL)
        return -ENOMEM;
    snprintf(verdict->cls, sizeof(verdict->cls), "node_silent");
    snprintf(verdict->object, sizeof(verdict->object), "node %s", node->name);
    snprintf(verdict->node, sizeof(verdict->node), "%s", node->name);
    verdict->is_fatal = true;
    verdict->probability = node->is_dead ? 0.95 : 0.9;
    verdict->since_ms = last_ms(node);
    if (node->is_dead)
        err = sl_cluster_say(verdict, "the broker lost its agent, or the agent ended");
    else if (epoch == 0)
        err = sl_cluster_say(verdict, "it was never heard of");
    else
        err = sl_cluster_say(verdict, "nothing was heard of it for %lld s",
                             (long long)((options->now_ms - verdict->since_ms) / 1000));
    if (err == 0 && node->why[0] != '\0')
        err = sl_cluster_say(verdict, "%s", node->why);
    return err;
}

/* The agent's own verdict, which it opened once. */
static int judge_one(const struct sl_cluster_node *node, const struct sl_fact_verdict *fact,
                     struct sl_cluster_verdicts *out)
{
    uint64_t id = id_of("agent", node->name);
    struct sl_cluster_verdict *verdict;

    id = sl_cluster_hash(id, &fact->id, sizeof(fact->id));
    id = sl_cluster_hash(id, &fact->opened_ms, sizeof(fact->opened_ms));
    verdict = sl_cluster_verdict_add(out, id);
    if (verdict == NULL)
        return -ENOMEM;
    snprintf(verdict->cls, sizeof(verdict->cls), "%s", fact->cls);
    snprintf(verdict->object, sizeof(verdict->object), "%s %s", fact->kind, fact->subject);
    snprintf(verdict->node, sizeof(verdict->node), "%s", node->name);
    verdict->is_fatal = fact->is_fatal;
    verdict->probability = 1;
    verdict->since_ms = fact->opened_ms;
    return sl_cluster_say(verdict, "%s: %s", fact->check, fact->text);
}

static int judge_node(const struct sl_cluster_node *node, const struct sl_cluster_judge *options,
                      struct sl_cluster_verdicts *out)
{
    int err = judge_silence(node, options, out);

    for (unsigned i = 0; i < node->facts.verdict_count && err == 0; i++)
        err = judge_one(node, &node->facts.verdicts[i], out);
    return err;
}

int sl_cluster_judge(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                     struct sl_cluster_verdicts *out)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(model, &count);
    int err = 0;

    *out = (struct sl_cluster_verdicts){.count = 0};
    for (unsigned i = 0; i < count && err == 0; i++)
        err = judge_node(nodes[i], options, out);
    if (err == 0)
        err = sl_cluster_judge_jobs(model, options, out);
    sort(out);
    if (err != 0)
        sl_cluster_verdicts_free(out);
    return err;
}
