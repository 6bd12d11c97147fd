/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observations that node agents publish (docs/cluster.md), one a line, of one job: answers of
 * /v1/observation, messages of a broker, or what an instance that watches a cluster has kept of an
 * incident. Of a node's source the newest counts, in whatever order they come.
 *
 * Of a node of which an instance hears nothing more it adds a line without sources, "silent":true
 * and why.
 */
#include "core/err.h"
#include "monitor/read/facts_job.h"
#include "monitor/read/formats.h"
#include "monitor/read/json.h"
#include "monitor/read/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16

enum { STATUS, RANKS, ALIVE, SOURCES };

struct node {
    struct sl_facts facts;
    uint64_t epoch[SOURCES], seq[SOURCES]; /* epoch 0: there is none */
    int64_t last_ms;
    bool is_silent, is_alive, is_dead;
    char why[161];
};

struct reading {
    struct node **nodes; /* by name */
    unsigned count, cap;
};

static int no_memory(const char *name)
{
    return sl_fail(-ENOMEM, "no memory to read %s", name);
}

static void free_all(struct reading *reading)
{
    for (unsigned i = 0; i < reading->count; i++) {
        sl_facts_fini(&reading->nodes[i]->facts);
        free(reading->nodes[i]);
    }
    free(reading->nodes);
}

/* ---- nodes ---- */

/* Where it stands, or would. Files are by name mostly: the end is tried first. */
static unsigned place_of(const struct reading *reading, const char *name)
{
    unsigned low = 0, high = reading->count;

    if (high > 0 && strcmp(reading->nodes[high - 1]->facts.name, name) < 0)
        return high;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (strcmp(reading->nodes[middle]->facts.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* NULL without memory. */
static struct node *node_of(struct reading *reading, const char *name)
{
    unsigned at = place_of(reading, name);
    struct node *node;

    if (at < reading->count && strcmp(reading->nodes[at]->facts.name, name) == 0)
        return reading->nodes[at];
    if (reading->count == reading->cap) {
        unsigned cap = reading->cap == 0 ? 64 : 2 * reading->cap;
        struct node **nodes = reallocarray(reading->nodes, cap, sizeof(struct node *));

        if (nodes == NULL)
            return NULL;
        reading->nodes = nodes;
        reading->cap = cap;
    }
    node = calloc(1, sizeof(*node));
    if (node == NULL)
        return NULL;
    snprintf(node->facts.name, sizeof(node->facts.name), "%s", name);
    memmove(&reading->nodes[at + 1], &reading->nodes[at],
            (reading->count - at) * sizeof(struct node *));
    reading->nodes[at] = node;
    reading->count++;
    return node;
}

/* ---- a line ---- */

struct line {
    uint64_t epoch, seq;
    int64_t time_ms;
    bool is_silence;
};

/* Notes its number, where it is newer than what is known of that source. */
static bool is_newer(struct node *node, unsigned source, const struct line *line)
{
    if (line->epoch < node->epoch[source] ||
        (line->epoch == node->epoch[source] && line->seq < node->seq[source]))
        return false;
    node->epoch[source] = line->epoch;
    node->seq[source] = line->seq;
    return true;
}

static void take_silence(struct node *node, struct json_object *object)
{
    size_t len = 0;
    const char *why = sl_json_text(sl_json_get(object, "why"), &len);

    node->is_silent = true;
    node->is_dead = json_object_get_boolean(sl_json_get(object, "dead"));
    if (len >= sizeof(node->why))
        len = sizeof(node->why) - 1;
    for (size_t i = 0; i < len; i++)
        node->why[i] = why[i] >= ' ' && why[i] <= '~' ? why[i] : '?';
    node->why[len] = '\0';
}

static int take(struct node *node, const struct line *line, struct json_object *object)
{
    struct json_object *sources = sl_json_get(object, "sources"),
                       *status = sl_json_get(sources, "status"),
                       *ranks = sl_json_get(sources, "ranks"),
                       *alive = sl_json_get(object, "alive");
    int err = 0;

    if (line->epoch > node->facts.epoch)
        node->facts.epoch = line->epoch;
    if (line->time_ms > node->last_ms)
        node->last_ms = line->time_ms;
    if (line->is_silence) {
        take_silence(node, object);
        return 0;
    }
    if (alive != NULL && is_newer(node, ALIVE, line))
        node->is_alive = json_object_get_boolean(alive);
    if (status != NULL && is_newer(node, STATUS, line)) {
        err = sl_facts_status(&node->facts, status);
        node->facts.status_ms = line->time_ms;
    }
    if (err == 0 && ranks != NULL && is_newer(node, RANKS, line)) {
        err = sl_facts_ranks(&node->facts, ranks);
        node->facts.ranks_ms = line->time_ms;
    }
    return err;
}

static int read_line(struct reading *reading, const struct sl_lines *lines,
                     struct json_object *object)
{
    struct line line = {.is_silence = json_object_get_boolean(sl_json_get(object, "silent"))};
    struct node *node;
    uint64_t version, time_ms;
    size_t len = 0;
    const char *name = sl_json_text(sl_json_get(object, "node"), &len);
    int err;

    if (!sl_json_u64(sl_json_get(object, "version"), &version) || version != 1)
        return sl_lines_bad(lines, "the observation's version is not 1");
    if (name == NULL || len == 0 || len >= sizeof(node->facts.name) || strlen(name) != len)
        return sl_lines_bad(lines, "the observation names no node");
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return sl_lines_bad(lines, "the observation names no node");
    if (!sl_json_u64(sl_json_get(object, "epoch"), &line.epoch) ||
        (line.epoch == 0 && !line.is_silence) ||
        !sl_json_u64(sl_json_get(object, "seq"), &line.seq) ||
        !sl_json_u64(sl_json_get(object, "time_ms"), &time_ms) || time_ms > INT64_MAX / 1000000)
        return sl_lines_bad(lines, "the observation's epoch, seq or time_ms is none");
    line.time_ms = (int64_t)time_ms;
    node = node_of(reading, name);
    if (node == NULL)
        return no_memory(lines->in->name);
    err = take(node, &line, object);
    return err == -EBADMSG ? sl_lines_bad(lines, "what %s observed is damaged", name) : err;
}

static int read_all(struct reading *reading, struct sl_lines *lines)
{
    struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
    int err = tokener == NULL ? no_memory(lines->in->name) : 0;

    if (err == 0)
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    while (err == 0 && (err = sl_lines_next(lines)) == 1) {
        struct json_object *object;

        err = 0;
        if (lines->len == 0)
            continue;
        json_tokener_reset(tokener);
        object = json_tokener_parse_ex(tokener, lines->text, (int)lines->len + 1);
        err = json_object_is_type(object, json_type_object)
                  ? read_line(reading, lines, object)
                  : sl_lines_bad(lines, "that is no object of JSON");
        json_object_put(object);
    }
    if (tokener != NULL)
        json_tokener_free(tokener);
    return err;
}

/* ---- all of it ---- */

static struct sl_facts_seen seen_of(const struct node *node)
{
    bool is_ended =
        node->epoch[ALIVE] != 0 && !node->is_alive && node->epoch[ALIVE] == node->facts.epoch;

    return (struct sl_facts_seen){.facts = &node->facts,
                                  .is_silent = node->is_silent || is_ended,
                                  .is_dead = node->is_dead || is_ended,
                                  .last_ms = node->last_ms,
                                  .why = node->why};
}

static int add_jobs(const struct reading *reading, const char *name,
                    const struct sl_facts_seen *seen, struct sl_job *job)
{
    struct sl_facts_jobs jobs;
    int err = sl_facts_jobs_find(seen, reading->count, &jobs);

    if (err == 0 && jobs.count > 1)
        err = sl_fail(-EBADMSG,
                      "%s has ranks of %u jobs, \"%s\" and \"%s\" among them: give those of "
                      "one",
                      name, jobs.count, jobs.list[0].name, jobs.list[1].name);
    if (err == 0 && jobs.count == 1)
        err = sl_facts_job_add(&jobs.list[0], job);
    sl_facts_jobs_free(&jobs);
    for (unsigned i = 0; i < reading->count && err == 0; i++)
        if (seen[i].facts->rank_count == 0)
            err = sl_facts_add_node(&seen[i], job);
    return err;
}

static int finish(const struct reading *reading, const char *name, struct sl_job *job)
{
    struct sl_facts_seen *seen = reallocarray(NULL, (size_t)reading->count + 1, sizeof(*seen));
    int err;

    if (seen == NULL)
        return no_memory(name);
    for (unsigned i = 0; i < reading->count; i++)
        seen[i] = seen_of(reading->nodes[i]);
    err = add_jobs(reading, name, seen, job);
    free(seen);
    return err;
}

static int read_observations(struct sl_job *job, struct sl_read_in *in)
{
    struct reading reading = {.count = 0};
    struct sl_lines lines;
    int err = sl_lines_open(&lines, in);

    if (err == 0)
        err = read_all(&reading, &lines);
    if (err == 0)
        err = finish(&reading, in->name, job);
    sl_lines_close(&lines);
    free_all(&reading);
    return err;
}

static bool is_observations(const char *head, size_t len)
{
    static const char begin[] = "{\"version\":1,\"node\":\"";

    return len >= sizeof(begin) && memcmp(head, begin, sizeof(begin) - 1) == 0 &&
           sl_read_has(head, len < 256 ? len : 256, "\"epoch\":");
}

const struct sl_read_format sl_read_observations = {
    .name = "node agents' observations", .is = is_observations, .read = read_observations};
