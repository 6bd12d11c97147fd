/* SPDX-License-Identifier: Apache-2.0 */
/* A directed graph, and its strongly connected components that have no way out. */
#ifndef SL_MONITOR_DIAGNOSIS_GRAPH_H
#define SL_MONITOR_DIAGNOSIS_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_graph {
    uint32_t node_count;
    uint32_t *first; /* by node: its first edge plus 1; 0: none */
    struct sl_graph_edge {
        uint32_t to, next;
    } * edges;
    uint32_t edge_count, edge_cap;
    uint32_t *component; /* after sl_graph_sinks(): by node */
    uint32_t component_count;
    bool *is_sink; /* by component: no edge leaves it */
};

/* -ENOMEM. */
int sl_graph_init(struct sl_graph *graph, uint32_t node_count);
void sl_graph_fini(struct sl_graph *graph);
/* Without an edge, as after init. */
void sl_graph_clear(struct sl_graph *graph);
int sl_graph_add(struct sl_graph *graph, uint32_t from, uint32_t to);
int sl_graph_sinks(struct sl_graph *graph);

#endif
