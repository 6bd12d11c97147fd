/* SPDX-License-Identifier: Apache-2.0 */
/* A job for the page: who waits, who waits for whom, and how long messages take from rank to
 * rank. */
#include "monitor/cluster/view.h"

#include "core/err.h"
#include "monitor/json_add.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define WAITS_MAX 64  /* operations of a graph */
#define LISTED_MAX 64 /* ranks that a group names */

/* ---- jobs ---- */

static struct json_object *job_json(const struct sl_facts_job *job)
{
    struct json_object *out = json_object_new_object();
    unsigned waiting = 0, silent = 0;
    int64_t longest = 0;

    for (unsigned i = 0; i < job->rank_count; i++) {
        const struct sl_facts_rank *rank = &job->ranks[i];

        silent += rank->is_silent;
        if (!rank->fact->op.is_there)
            continue;
        waiting++;
        longest = rank->fact->op.for_ms > longest ? rank->fact->op.for_ms : longest;
    }
    sl_json_add_text(out, "name", job->name);
    sl_json_add_signed(out, "size", job->size);
    sl_json_add_signed(out, "ranks", job->rank_count);
    sl_json_add_signed(out, "waiting", waiting);
    sl_json_add_signed(out, "silent", silent);
    sl_json_add_signed(out, "longest_wait_ms", longest);
    return out;
}

struct json_object *sl_cluster_jobs_json(const struct sl_cluster_view *view)
{
    struct json_object *out = json_object_new_object(), *list = json_object_new_array();
    struct sl_facts_jobs jobs;

    if (sl_cluster_jobs_find(view->model, view->silent_before_ns, &jobs) != 0) {
        json_object_put(out);
        json_object_put(list);
        return NULL;
    }
    sl_json_add_signed(out, "version", 1);
    for (unsigned i = 0; i < jobs.count; i++)
        json_object_array_add(list, job_json(&jobs.list[i]));
    json_object_object_add(out, "jobs", list);
    sl_facts_jobs_free(&jobs);
    return out;
}

/* ---- the matrix ---- */

static int by_cell(const void *a, const void *b)
{
    const struct sl_job_edge *x = a, *y = b;

    if (x->src != y->src)
        return x->src < y->src ? -1 : 1;
    return x->dst < y->dst ? -1 : x->dst > y->dst;
}

/* [from, to, ns of a message, messages, bytes, sent again], over all paths between the two. */
static void add_cell(struct json_object *list, const struct sl_job_edge *edges, size_t count)
{
    struct json_object *cell = json_object_new_array();
    uint64_t messages = 0, timed = 0, bytes = 0, lost = 0;
    double seconds = 0;

    for (size_t i = 0; i < count; i++) {
        timed += edges[i].wait_s[SL_JOB_WAIT_WIRE] > 0 ? edges[i].messages : 0;
        if (edges[i].bytes == 0 && edges[i].wait_s[SL_JOB_WAIT_WIRE] > 0)
            continue; /* what the receiver timed, the sender has counted */
        messages += edges[i].messages;
        bytes += edges[i].bytes;
        lost += edges[i].lost;
    }
    for (size_t i = 0; i < count; i++)
        seconds += edges[i].wait_s[SL_JOB_WAIT_WIRE];
    json_object_array_add(cell, json_object_new_int64(edges->src));
    json_object_array_add(cell, json_object_new_int64(edges->dst));
    json_object_array_add(
        cell, json_object_new_int64(timed > 0 ? (int64_t)(seconds * 1e9 / (double)timed) : 0));
    json_object_array_add(cell, json_object_new_uint64(messages));
    json_object_array_add(cell, json_object_new_uint64(bytes));
    json_object_array_add(cell, json_object_new_uint64(lost));
    json_object_array_add(list, cell);
}

/* Over TCP a send is over when the kernel has it: what a message takes, its receiver knows. */
static int add_arriving(const struct sl_facts_job *from, struct sl_job *job)
{
    int err = 0;

    for (unsigned i = 0; i < from->rank_count; i++)
        for (unsigned k = 0; k < from->ranks[i].fact->path_count && err == 0; k++) {
            const struct sl_fact_path *path = &from->ranks[i].fact->paths[k];
            struct sl_job_edge edge = {.src = sl_facts_rank_of(job, path->comm, path->peer),
                                       .dst = from->ranks[i].fact->rank,
                                       .messages = path->arriving_messages};

            if (edge.src == SL_JOB_NONE || edge.dst >= job->rank_count || edge.messages == 0)
                continue;
            edge.wait_s[SL_JOB_WAIT_WIRE] = (double)path->arriving_ns / 1e9;
            err = sl_job_add_edge(job, &edge);
            err = err == -EBADMSG ? 0 : err;
        }
    return err;
}

static void add_cells(struct json_object *out, struct sl_job *job)
{
    struct json_object *list = json_object_new_array();
    size_t cells = 0, left_out = 0;

    if (job->edge_count > 0)
        qsort(job->edges, job->edge_count, sizeof(*job->edges), by_cell);
    for (size_t i = 0, end; i < job->edge_count; i = end) {
        for (end = i; end < job->edge_count && by_cell(&job->edges[i], &job->edges[end]) == 0;
             end++)
            continue;
        if (cells++ < SL_VIEW_CELLS)
            add_cell(list, &job->edges[i], end - i);
        else
            left_out++;
    }
    json_object_object_add(out, "cells", list);
    sl_json_add_signed(out, "left_out", (int64_t)left_out);
}

struct json_object *sl_cluster_matrix_json(const struct sl_cluster_view *view, const char *name)
{
    struct json_object *out = NULL, *hosts;
    struct sl_facts_jobs jobs;
    const struct sl_facts_job *from;
    struct sl_job *job;

    if (sl_cluster_jobs_find(view->model, view->silent_before_ns, &jobs) != 0)
        return NULL;
    from = sl_facts_job_named(&jobs, name);
    if (from != NULL && sl_facts_job_build(from, &job) == 0) {
        (void)add_arriving(from, job);
        out = json_object_new_object();
        hosts = json_object_new_array();
        sl_json_add_signed(out, "version", 1);
        sl_json_add_text(out, "job", from->name);
        sl_json_add_signed(out, "size", from->size);
        for (uint32_t i = 0; i < job->rank_count && i < from->size; i++)
            json_object_array_add(hosts,
                                  json_object_new_string(sl_job_string(job, job->ranks[i].host)));
        json_object_object_add(out, "hosts", hosts);
        add_cells(out, job);
        sl_job_free(job);
    }
    sl_facts_jobs_free(&jobs);
    return out;
}

/* ---- the graph of a hang ---- */

/* An operation of a communicator that ranks wait in. */
struct wait {
    uint32_t comm;
    uint64_t seq;
    const struct sl_job_op *op;
    int64_t since_ns;
    struct json_object *waiters, *behind; /* ranks */
    unsigned waiter_count, behind_count;
};

struct graph {
    const struct sl_facts_job *from;
    const struct sl_job *job;
    struct wait waits[WAITS_MAX];
    unsigned wait_count, left_out;
};

static struct wait *wait_of(struct graph *graph, const struct sl_job_op *op)
{
    for (unsigned i = 0; i < graph->wait_count; i++)
        if (graph->waits[i].comm == op->comm && graph->waits[i].seq == op->seq)
            return &graph->waits[i];
    if (graph->wait_count == WAITS_MAX) {
        graph->left_out++;
        return NULL;
    }
    graph->waits[graph->wait_count] = (struct wait){.comm = op->comm,
                                                    .seq = op->seq,
                                                    .op = op,
                                                    .since_ns = op->issue_ns,
                                                    .waiters = json_object_new_array(),
                                                    .behind = json_object_new_array()};
    return &graph->waits[graph->wait_count++];
}

static void add_rank(struct json_object *list, unsigned *count, uint32_t rank)
{
    if ((*count)++ < LISTED_MAX)
        json_object_array_add(list, json_object_new_int64(rank));
}

static void find_waits(struct graph *graph)
{
    const struct sl_job *job = graph->job;

    for (size_t i = 0; i < job->op_count; i++) {
        struct wait *wait = wait_of(graph, &job->ops[i]);

        if (wait == NULL)
            continue;
        add_rank(wait->waiters, &wait->waiter_count, job->ops[i].rank);
        if (job->ops[i].issue_ns < wait->since_ns)
            wait->since_ns = job->ops[i].issue_ns;
    }
    for (unsigned i = 0; i < graph->wait_count; i++)
        for (size_t k = 0; k < job->count_count; k++)
            if (job->counts[k].comm == graph->waits[i].comm &&
                job->counts[k].issued < graph->waits[i].seq)
                add_rank(graph->waits[i].behind, &graph->waits[i].behind_count,
                         job->counts[k].rank);
}

static struct json_object *wait_json(const struct graph *graph, const struct wait *wait)
{
    struct json_object *out = json_object_new_object();

    sl_json_add_text(out, "operation", sl_job_string(graph->job, wait->op->name));
    sl_json_add_text(out, "shape", sl_job_string(graph->job, wait->op->shape));
    sl_json_add_text(out, "communicator",
                     sl_job_string(graph->job, graph->job->comms[wait->comm].name));
    sl_json_add_signed(out, "number", (int64_t)wait->seq);
    sl_json_add_signed(out, "since_ms", wait->since_ns / 1000000);
    sl_json_add_signed(out, "waiting", wait->waiter_count);
    sl_json_add_signed(out, "not_there", wait->behind_count);
    json_object_object_add(out, "ranks_waiting", json_object_get(wait->waiters));
    json_object_object_add(out, "ranks_not_there", json_object_get(wait->behind));
    return out;
}

/* [rank, rank that it waits for]: as the ranks themselves say, of a message. */
static struct json_object *peers_json(const struct graph *graph)
{
    struct json_object *out = json_object_new_array();

    for (unsigned i = 0; i < graph->from->rank_count; i++) {
        const struct sl_facts_rank *rank = &graph->from->ranks[i];
        const struct sl_fact_op *op = &rank->fact->op;
        struct json_object *pair;
        char id[24];

        if (rank->is_silent || !op->is_there || op->peer < 0 ||
            json_object_array_length(out) >= 4 * SL_VIEW_SINGLE)
            continue;
        snprintf(id, sizeof(id), "%" PRIx64, op->comm);
        for (uint32_t c = 0; c < graph->job->comm_count; c++) {
            const struct sl_job_comm *comm = &graph->job->comms[c];

            if ((uint32_t)op->peer >= comm->member_count ||
                strcmp(sl_job_string(graph->job, comm->name), id) != 0)
                continue;
            pair = json_object_new_array();
            json_object_array_add(pair, json_object_new_int64(rank->fact->rank));
            json_object_array_add(pair, json_object_new_int64(comm->members[op->peer]));
            json_object_array_add(out, pair);
        }
    }
    return out;
}

static struct json_object *graph_json(struct graph *graph, int64_t now_ms)
{
    struct json_object *out = json_object_new_object(), *waits = json_object_new_array();
    struct json_object *hosts = json_object_new_object();
    char key[16];

    find_waits(graph);
    sl_json_add_signed(out, "version", 1);
    sl_json_add_text(out, "job", graph->from->name);
    sl_json_add_signed(out, "size", graph->from->size);
    sl_json_add_signed(out, "time_ms", now_ms);
    for (unsigned i = 0; i < graph->wait_count; i++) {
        json_object_array_add(waits, wait_json(graph, &graph->waits[i]));
        json_object_put(graph->waits[i].waiters);
        json_object_put(graph->waits[i].behind);
    }
    for (uint32_t i = 0; i < graph->job->rank_count && i < 1024; i++) {
        snprintf(key, sizeof(key), "%u", i);
        sl_json_add_text(hosts, key, sl_job_string(graph->job, graph->job->ranks[i].host));
    }
    json_object_object_add(out, "waits", waits);
    json_object_object_add(out, "peers", peers_json(graph));
    json_object_object_add(out, "hosts", hosts);
    sl_json_add_signed(out, "left_out", graph->left_out);
    return out;
}

struct json_object *sl_cluster_graph_json(const struct sl_cluster_view *view, const char *name)
{
    struct json_object *out = NULL;
    struct sl_facts_jobs jobs;
    struct graph graph = {.wait_count = 0};
    struct sl_job *job;

    if (sl_cluster_jobs_find(view->model, view->silent_before_ns, &jobs) != 0)
        return NULL;
    graph.from = sl_facts_job_named(&jobs, name);
    if (graph.from != NULL && sl_facts_job_build(graph.from, &job) == 0) {
        graph.job = job;
        out = graph_json(&graph, view->now_ms);
        sl_job_free(job);
    }
    sl_facts_jobs_free(&jobs);
    return out;
}
