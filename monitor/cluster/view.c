/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/view.h"

#include "core/err.h"
#include "monitor/json_add.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

/* null: never. */
static void add_time(struct json_object *out, const char *key, int64_t ms)
{
    json_object_object_add(out, key, ms == 0 ? NULL : json_object_new_int64(ms));
}

/* ---- the whole ---- */

const char *sl_cluster_state_of(const struct sl_cluster_node *node, uint64_t silent_before_ns)
{
    if (sl_cluster_is_silent(node, silent_before_ns))
        return "silent";
    if (strcmp(node->facts.health, "bad") == 0)
        return "bad";
    return strcmp(node->facts.health, "ok") == 0 ? "ok" : "degraded";
}

int sl_cluster_totals(const struct sl_cluster_view *view, struct sl_cluster_totals *out)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(view->model, &count);
    struct sl_facts_jobs jobs;
    int err = sl_cluster_jobs_find(view->model, view->silent_before_ns, &jobs);

    *out = (struct sl_cluster_totals){.nodes = count, .jobs = jobs.count};
    for (unsigned i = 0; i < count; i++)
        switch (sl_cluster_state_of(nodes[i], view->silent_before_ns)[0]) {
        case 'o': out->ok++; break;
        case 'd': out->degraded++; break;
        case 'b': out->bad++; break;
        default: out->silent++; break;
        }
    for (unsigned i = 0; i < jobs.count; i++) {
        out->ranks += jobs.list[i].rank_count;
        for (unsigned k = 0; k < jobs.list[i].rank_count; k++)
            out->waiting += jobs.list[i].ranks[k].fact->op.is_there;
    }
    for (unsigned i = 0; i < view->book->count; i++)
        if (sl_book_is_open(&view->book->list[i])) {
            out->open++;
            out->fatal += view->book->list[i].verdict.is_fatal;
        }
    sl_facts_jobs_free(&jobs);
    return err;
}

static struct json_object *link_json(const struct sl_cluster_link *link)
{
    struct json_object *out = json_object_new_object();

    sl_json_add_bool(out, "asked_for", link->is_asked_for);
    sl_json_add_bool(out, "up", link->is_up);
    sl_json_add_text(out, "broker", link->where);
    sl_json_add_text(out, "why", link->why);
    sl_json_add_number(out, "messages", link->messages);
    sl_json_add_number(out, "published", link->published);
    sl_json_add_number(out, "actions", link->actions);
    return out;
}

static struct json_object *nodes_json(const struct sl_cluster_totals *totals)
{
    struct json_object *out = json_object_new_object();

    sl_json_add_number(out, "all", totals->nodes);
    sl_json_add_number(out, "ok", totals->ok);
    sl_json_add_number(out, "degraded", totals->degraded);
    sl_json_add_number(out, "bad", totals->bad);
    sl_json_add_number(out, "silent", totals->silent);
    return out;
}

struct json_object *sl_cluster_state_json(const struct sl_cluster_view *view)
{
    struct json_object *out = sl_http_object(), *http = json_object_new_object();
    const struct sl_cluster_counts *counts = sl_cluster_counts(view->model);
    struct sl_cluster_totals totals;

    if (out == NULL || sl_cluster_totals(view, &totals) != 0) {
        json_object_put(out);
        json_object_put(http);
        return NULL;
    }
    sl_json_add_text(out, "instance", view->instance);
    sl_json_add_text(out, "agent_version", view->version);
    sl_json_add_number(out, "time_ms", (uint64_t)view->now_ms);
    sl_json_add_number(out, "up_s", (view->now_ns - view->begun_ns) / 1000000000);
    json_object_object_add(out, "nodes", nodes_json(&totals));
    sl_json_add_number(out, "jobs", totals.jobs);
    sl_json_add_number(out, "ranks", totals.ranks);
    sl_json_add_number(out, "ranks_waiting", totals.waiting);
    sl_json_add_number(out, "verdicts_open", totals.open);
    sl_json_add_number(out, "verdicts_fatal", totals.fatal);
    sl_json_add_number(out, "changes", view->book->changes);
    sl_json_add_number(out, "observations", counts->taken);
    sl_json_add_number(out, "observations_old", counts->old);
    sl_json_add_number(out, "observations_refused", counts->refused);
    sl_json_add_number(out, "observations_left_out", counts->left_out);
    sl_json_add_number(out, "bytes", counts->bytes);
    sl_json_add_number(out, "judged_us", view->judged_ns / 1000);
    sl_json_add_number(http, "agents", view->collect.agents);
    sl_json_add_number(http, "failing", view->collect.failing);
    sl_json_add_number(http, "answers", view->collect.answers);
    sl_json_add_number(http, "failures", view->collect.failures);
    json_object_object_add(out, "http", http);
    json_object_object_add(out, "mqtt", link_json(&view->link));
    sl_json_add_text(out, "members_why", view->members_why);
    return out;
}

/* ---- nodes ---- */

static struct json_object *node_json(const struct sl_cluster_view *view,
                                     const struct sl_cluster_node *node)
{
    struct json_object *out = json_object_new_object();
    uint64_t ago = view->now_ns > node->heard_ns ? (view->now_ns - node->heard_ns) / 1000000000 : 0;

    sl_json_add_text(out, "name", node->name);
    sl_json_add_text(out, "state", sl_cluster_state_of(node, view->silent_before_ns));
    sl_json_add_text(out, "agent_version", node->facts.version);
    sl_json_add_text(out, "boot_id", node->boot_id);
    sl_json_add_text(out, "asked_at", node->where);
    sl_json_add_text(out, "why", node->why[0] != '\0' ? node->why : node->facts.why);
    sl_json_add_number(out, "heard_s", ago);
    add_time(out, "observed_ms", node->obs[SL_OBSERVE_STATUS].time_ms);
    sl_json_add_bool(out, "dead", node->is_dead);
    sl_json_add_number(out, "verdicts", node->facts.verdict_count);
    sl_json_add_number(out, "ranks", node->facts.rank_count);
    sl_json_add_number(out, "ports", node->facts.port_count);
    return out;
}

static struct json_object *answer_nodes(const struct sl_cluster_view *view,
                                        const struct sl_cluster_request *request)
{
    unsigned count, left = request->limit;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(view->model, &count);
    struct json_object *out = sl_http_object(), *list = json_object_new_array();
    bool is_more = false;

    for (unsigned i = 0; i < count; i++) {
        if (strcmp(nodes[i]->name, request->name) <= 0 ||
            (request->state[0] != '\0' &&
             strcmp(sl_cluster_state_of(nodes[i], view->silent_before_ns), request->state) != 0))
            continue;
        if (left == 0) {
            is_more = true;
            break;
        }
        json_object_array_add(list, node_json(view, nodes[i]));
        left--;
    }
    json_object_object_add(out, "nodes", list);
    sl_json_add_bool(out, "more", is_more);
    return out;
}

static struct json_object *answer_map(const struct sl_cluster_view *view)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(view->model, &count);
    struct json_object *out = sl_http_object(), *list = json_object_new_array();
    char *states = calloc(count + 1, 1);

    for (unsigned i = 0; states != NULL && i < count; i++) {
        json_object_array_add(list, json_object_new_string(nodes[i]->name));
        states[i] = sl_cluster_state_of(nodes[i], view->silent_before_ns)[0];
    }
    json_object_object_add(out, "names", list);
    sl_json_add_text(out, "states", states != NULL ? states : "");
    free(states);
    return out;
}

/* What it said, as it said it: the bodies are JSON of this process' own writing. */
static struct json_object *answer_node(const struct sl_cluster_view *view, const char *name)
{
    const struct sl_cluster_node *node = sl_cluster_node(view->model, name, false);
    struct json_object *out, *sources;

    if (node == NULL)
        return NULL;
    out = sl_http_object();
    sources = json_object_new_object();
    json_object_object_add(out, "node", node_json(view, node));
    for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
        if (node->obs[i].body != NULL)
            json_object_object_add(sources, sl_observe_names[i],
                                   json_tokener_parse(node->obs[i].body));
    json_object_object_add(out, "sources", sources);
    return out;
}

static struct json_object *answer_ports(const struct sl_cluster_view *view, const char *name)
{
    const struct sl_cluster_node *node = sl_cluster_node(view->model, name, false);
    struct json_object *out;

    if (node == NULL)
        return NULL;
    out = sl_http_object();
    sl_json_add_text(out, "node", node->name);
    json_object_object_add(out, "ports", sl_history_json(view->history, node));
    return out;
}

/* ---- verdicts ---- */

static struct json_object *texts(char *const *list, unsigned count)
{
    struct json_object *out = json_object_new_array();

    for (unsigned i = 0; i < count; i++)
        json_object_array_add(out, json_object_new_string(list[i]));
    return out;
}

static void add_share(struct json_object *out, const char *key, double share)
{
    char number[16];

    snprintf(number, sizeof(number), "%.3f", share);
    json_object_object_add(out, key, json_object_new_double_s(share, number));
}

/* What the diagnosis adds to a verdict: what may be behind it, and its word on isolation. */
static void add_fused(struct json_object *out, const struct sl_cluster_verdict *verdict)
{
    struct json_object *causes = json_object_new_array();

    for (unsigned i = 0; i < verdict->cause_count; i++) {
        struct json_object *one = json_object_new_object();

        sl_json_add_text(one, "fault", sl_fault_name((enum sl_fault)verdict->causes[i].fault));
        sl_json_add_text(one, "object", verdict->causes[i].object);
        add_share(one, "probability", verdict->causes[i].probability);
        json_object_array_add(causes, one);
    }
    json_object_object_add(out, "causes", causes);
    add_share(out, "elsewhere", verdict->elsewhere);
    add_share(out, "node_probability", verdict->node_probability);
    add_share(out, "threshold", verdict->threshold);
}

struct json_object *sl_cluster_verdict_json(const struct sl_book_entry *entry)
{
    const struct sl_cluster_verdict *verdict = &entry->verdict;
    struct json_object *out = json_object_new_object();

    sl_json_add_text(out, "id", verdict->id);
    sl_json_add_bool(out, "open", sl_book_is_open(entry));
    sl_json_add_text(out, "class", verdict->cls);
    sl_json_add_text(out, "object", verdict->object);
    sl_json_add_text(out, "node", verdict->node);
    sl_json_add_text(out, "job", verdict->job);
    sl_json_add_text(out, "severity", verdict->is_fatal ? "fatal" : "degraded");
    add_share(out, "probability", verdict->probability);
    add_time(out, "since_ms", verdict->since_ms);
    add_time(out, "opened_ms", entry->opened_ms);
    add_time(out, "closed_ms", entry->closed_ms);
    sl_json_add_number(out, "change", entry->change);
    json_object_object_add(out, "evidence", texts(verdict->evidence, verdict->evidence_count));
    json_object_object_add(out, "others", texts(verdict->others, verdict->other_count));
    add_fused(out, verdict);
    sl_json_add_bool(out, "isolate", entry->has_acted);
    sl_json_add_bool(out, "bundle", entry->has_case);
    return out;
}

static int by_change(const void *a, const void *b)
{
    const struct sl_book_entry *x = *(const struct sl_book_entry *const *)a,
                               *y = *(const struct sl_book_entry *const *)b;
    bool of_x = sl_book_is_open(x), of_y = sl_book_is_open(y);

    if (of_x != of_y)
        return of_x ? -1 : 1;
    if (x->verdict.is_fatal != y->verdict.is_fatal)
        return x->verdict.is_fatal ? -1 : 1;
    return x->change > y->change ? -1 : x->change < y->change;
}

/* Those that are open first, of these the fatal ones, then the newest. */
static struct json_object *answer_verdicts(const struct sl_cluster_view *view, bool is_open_only)
{
    const struct sl_book_entry **list = calloc(view->book->count + 1, sizeof(*list));
    struct json_object *out = sl_http_object(), *array = json_object_new_array();
    unsigned count = 0, shown = 0;

    for (unsigned i = 0; list != NULL && i < view->book->count; i++)
        if (view->book->list[i].opened_ms != 0 &&
            (!is_open_only || sl_book_is_open(&view->book->list[i])))
            list[count++] = &view->book->list[i];
    if (count > 0)
        qsort(list, count, sizeof(*list), by_change);
    for (; shown < count && shown < SL_CLUSTER_LIMIT_MAX; shown++)
        json_object_array_add(array, sl_cluster_verdict_json(list[shown]));
    free(list);
    json_object_object_add(out, "verdicts", array);
    sl_json_add_number(out, "left_out", count - shown);
    return out;
}

/* ---- one request ---- */

/* Nothing comes in, though something is asked for. */
static struct json_object *answer_health(const struct sl_cluster_view *view, int *status)
{
    struct json_object *out = sl_http_object();
    bool is_deaf = view->collect.agents > 0 && view->collect.failing == view->collect.agents;
    const char *why = view->link.is_asked_for && !view->link.is_up ? view->link.why
                      : is_deaf                                    ? "no agent answers"
                      : view->members_why[0] != '\0' && view->collect.agents == 0
                          ? view->members_why
                          : "";

    *status = why[0] == '\0' ? 200 : 503;
    sl_json_add_bool(out, "healthy", why[0] == '\0');
    sl_json_add_text(out, "why", why);
    return out;
}

static struct json_object *answer_index(void)
{
    struct json_object *out = sl_http_object(), *list = json_object_new_object();
    const char *path, *help;

    for (unsigned i = 0; (path = sl_cluster_endpoint(i, &help)) != NULL; i++)
        sl_json_add_text(list, path, help);
    json_object_object_add(out, "endpoints", list);
    return out;
}

/* NULL: there is no such thing, or no memory. */
static struct json_object *object_of(const struct sl_cluster_view *view,
                                     const struct sl_cluster_request *request, int *status)
{
    switch (request->what) {
    case SL_CLUSTER_INDEX: return answer_index();
    case SL_CLUSTER_HEALTH: return answer_health(view, status);
    case SL_CLUSTER_STATE: return sl_cluster_state_json(view);
    case SL_CLUSTER_NODES: return answer_nodes(view, request);
    case SL_CLUSTER_MAP: return answer_map(view);
    case SL_CLUSTER_NODE: return answer_node(view, request->name);
    case SL_CLUSTER_JOBS: return sl_cluster_jobs_json(view);
    case SL_CLUSTER_MATRIX: return sl_cluster_matrix_json(view, request->job);
    case SL_CLUSTER_GRAPH: return sl_cluster_graph_json(view, request->job);
    case SL_CLUSTER_PORTS: return answer_ports(view, request->name);
    default: return answer_verdicts(view, request->is_open_only);
    }
}

static int answer_metrics(const struct sl_cluster_view *view, bool openmetrics,
                          struct sl_http_answer *out)
{
    FILE *file = open_memstream(&out->body, &out->len);
    int err;

    if (file == NULL)
        return sl_fail(-ENOMEM, "no memory for metrics");
    out->type = sl_http_metrics_type(openmetrics);
    err = sl_cluster_metrics(view, openmetrics, file);
    if (fclose(file) != 0 && err == 0)
        err = sl_fail(-ENOMEM, "no memory for metrics");
    if (err != 0)
        free(out->body);
    return err;
}

int sl_cluster_answer(const struct sl_cluster_view *view, const struct sl_cluster_request *request,
                      bool openmetrics, struct sl_http_answer *out)
{
    struct json_object *object;

    if (request->status != 200)
        return sl_http_answer_error(request->status, request->why, out);
    *out = (struct sl_http_answer){.status = 200, .type = "application/json"};
    if (request->what == SL_CLUSTER_METRICS)
        return answer_metrics(view, openmetrics, out);
    object = object_of(view, request, &out->status);
    if (object == NULL)
        return sl_http_answer_error(404, "there is no node or job of that name", out);
    return sl_http_answer_object(object, out);
}
