/* SPDX-License-Identifier: Apache-2.0 */
/* Strongly connected components after R. Tarjan, "Depth-first search and linear graph algorithms",
 * SIAM J. Comput. 1(2), 1972; with a stack of its own, as a chain of waits may be long. */
#include "monitor/diagnosis/graph.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNSEEN 0u

int sl_graph_init(struct sl_graph *graph, uint32_t node_count)
{
    *graph = (struct sl_graph){.node_count = node_count};
    graph->first = calloc((size_t)node_count + 1, sizeof(*graph->first));
    graph->component = calloc((size_t)node_count + 1, sizeof(*graph->component));
    graph->is_sink = calloc((size_t)node_count + 1, sizeof(*graph->is_sink));
    if (graph->first != NULL && graph->component != NULL && graph->is_sink != NULL)
        return 0;
    sl_graph_fini(graph);
    return sl_fail(-ENOMEM, "no memory for a graph of %u nodes", node_count);
}

void sl_graph_fini(struct sl_graph *graph)
{
    free(graph->first);
    free(graph->edges);
    free(graph->component);
    free(graph->is_sink);
    *graph = (struct sl_graph){.first = NULL};
}

void sl_graph_clear(struct sl_graph *graph)
{
    memset(graph->first, 0, ((size_t)graph->node_count + 1) * sizeof(*graph->first));
    memset(graph->component, 0, ((size_t)graph->node_count + 1) * sizeof(*graph->component));
    memset(graph->is_sink, 0, ((size_t)graph->node_count + 1) * sizeof(*graph->is_sink));
    graph->edge_count = graph->component_count = 0;
}

int sl_graph_add(struct sl_graph *graph, uint32_t from, uint32_t to)
{
    if (graph->edge_count == graph->edge_cap) {
        uint32_t cap = graph->edge_cap == 0 ? 256 : graph->edge_cap * 2;
        struct sl_graph_edge *edges = reallocarray(graph->edges, cap, sizeof(*edges));

        if (edges == NULL || cap < graph->edge_cap)
            return sl_fail(-ENOMEM, "no memory for a graph of %u edges", cap);
        graph->edges = edges;
        graph->edge_cap = cap;
    }
    graph->edges[graph->edge_count] = (struct sl_graph_edge){.to = to, .next = graph->first[from]};
    graph->first[from] = ++graph->edge_count;
    return 0;
}

struct walk {
    struct sl_graph *graph;
    uint32_t *index, *low; /* by node; UNSEEN: not yet */
    uint32_t *path, *edge; /* where the search is, and its next edge there */
    uint32_t *open;        /* nodes whose component is not known yet */
    bool *is_open;         /* by node */
    uint32_t depth, open_count, seen;
};

static void enter(struct walk *walk, uint32_t node)
{
    walk->index[node] = walk->low[node] = ++walk->seen;
    walk->open[walk->open_count++] = node;
    walk->is_open[node] = true;
    walk->path[walk->depth] = node;
    walk->edge[walk->depth++] = walk->graph->first[node];
}

/* All edges of the node were followed. */
static void leave(struct walk *walk)
{
    uint32_t node = walk->path[--walk->depth], other;

    if (walk->depth > 0 && walk->low[node] < walk->low[walk->path[walk->depth - 1]])
        walk->low[walk->path[walk->depth - 1]] = walk->low[node];
    if (walk->low[node] != walk->index[node])
        return;
    do {
        other = walk->open[--walk->open_count];
        walk->is_open[other] = false;
        walk->graph->component[other] = walk->graph->component_count;
    } while (other != node);
    walk->graph->component_count++;
}

static void search(struct walk *walk, uint32_t from)
{
    enter(walk, from);
    while (walk->depth > 0) {
        uint32_t node = walk->path[walk->depth - 1], edge = walk->edge[walk->depth - 1], to;

        if (edge == 0) {
            leave(walk);
            continue;
        }
        walk->edge[walk->depth - 1] = walk->graph->edges[edge - 1].next;
        to = walk->graph->edges[edge - 1].to;
        if (walk->index[to] == UNSEEN)
            enter(walk, to);
        else if (walk->is_open[to] && walk->index[to] < walk->low[node])
            walk->low[node] = walk->index[to];
    }
}

int sl_graph_sinks(struct sl_graph *graph)
{
    size_t count = graph->node_count;
    uint32_t *room = calloc(5 * count + 1, sizeof(*room));
    struct walk walk = {.graph = graph, .is_open = calloc(count + 1, sizeof(bool))};

    if (room == NULL || walk.is_open == NULL) {
        free(room);
        free(walk.is_open);
        return sl_fail(-ENOMEM, "no memory to walk a graph of %u nodes", graph->node_count);
    }
    walk.index = room;
    walk.low = room + count;
    walk.path = room + 2 * count;
    walk.edge = room + 3 * count;
    walk.open = room + 4 * count;
    graph->component_count = 0;
    for (uint32_t node = 0; node < graph->node_count; node++)
        if (walk.index[node] == UNSEEN)
            search(&walk, node);
    free(room);
    free(walk.is_open);
    for (uint32_t i = 0; i < graph->component_count; i++)
        graph->is_sink[i] = true;
    for (uint32_t node = 0; node < graph->node_count; node++)
        for (uint32_t edge = graph->first[node]; edge != 0; edge = graph->edges[edge - 1].next)
            if (graph->component[graph->edges[edge - 1].to] != graph->component[node])
                graph->is_sink[graph->component[node]] = false;
    return 0;
}
