/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wire for dpdk/proto, in virtual time: nodes with an engine and a port each, flows between them,
 * and what can happen to packets on each route of each direction. Chance is one seed.
 *
 *   flow -> port (rate, room) -> path (loss, ...) -> queue (rate, limit, marks) -> delay -> inbox
 *
 * A node takes what is in its inbox when it runs: when packets came or its engine wants to, no
 * sooner than poll_ns after the last time, and not while it is asleep.
 */
#ifndef SL_TESTS_SIM_DP_WIRE_H
#define SL_TESTS_SIM_DP_WIRE_H

#include "core/rng.h"
#include "dpdk/proto/flow.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DP_NODES_MAX 16
#define DP_ENDS_MAX 64
#define DP_PPM 1000000u

/* An output port of a switch that several paths may share. */
struct dp_queue {
    uint64_t rate; /* bytes per second */
    uint64_t limit_bytes, mark_bytes;
    bool is_phantom; /* marks by a queue that drains 5 % slower */
    bool has_high;   /* packets of the high class go first */
    uint64_t free_ns, phantom_ns, high_ns;
    uint64_t last_cost_ns;                             /* of a packet of the other class */
    uint64_t drops, marks, packets, bytes, depth_most; /* what happened */
    double depth_sum;
};

/* A network may know nothing of classes, serve the high one first, have it wait behind the other
 * one by mistake, or drop it. */
enum dp_class { DP_CLASS_UNKNOWN, DP_CLASS_FIRST, DP_CLASS_LAST, DP_CLASS_DROPPED };

/* One route in one direction. */
struct dp_path {
    uint64_t delay_ns, jitter_ns, spike_ns; /* jitter keeps the order; a spike and reorder do not */
    uint32_t loss_ppm, double_ppm, damage_ppm, payload_damage_ppm, reorder_ppm, spike_ppm;
    uint32_t frame_most; /* bytes that pass, from the header on; 0: any */
    enum dp_class class; /* what becomes of packets of the high class */
    bool is_dead;
    struct dp_queue *queue;
    uint64_t last_ns[2]; /* arrival of the last one that kept the order; and of the high class */
    uint64_t packets, lost;
};

struct dp_end;

struct dp_user {
    void *(*place)(struct dp_end *end, bool is_write, uint32_t imm, uint32_t off, uint32_t len);
    void (*arrived)(struct dp_end *end, bool is_write, uint32_t imm, uint32_t len);
    void (*retired)(struct dp_end *end, uint32_t ordinal);
    void (*failed)(struct dp_end *end, int status, const char *why);
};

struct dp_node {
    struct dp_wire *wire;
    struct sl_dp_engine engine;
    uint64_t poll_ns, rate; /* bytes per second of its port; 0: any */
    uint64_t ring_ns;       /* its queue has room for so long */
    unsigned budget;        /* of a run */
    uint32_t keep_ppm;      /* payloads that the port reads later */
    uint64_t asleep_ns;     /* until then it does not run */
    uint64_t slice_ns;      /* it shares its core: runs for so long in each second slice ... */
    bool is_odd;            /* ... of those with odd numbers */
    uint32_t inbox_most;    /* packets that wait for it; more find its peers' ports full; 0: any */
    uint32_t waiting;
    uint64_t run_ns, next_ns, line_ns;
    struct dp_packet *inbox, **inbox_end;
    bool is_dead;
    size_t memory; /* bytes that its engine holds */
    uint64_t full; /* times that the port was */
};

struct dp_end {
    struct dp_node *node;
    struct dp_end *peer;
    struct sl_dp_flow *flow;
    struct sl_dp_ends ends;
    const struct dp_user *user;
    void *arg;
    struct dp_path path[SL_DP_ROUTES_MAX];
    uint32_t kept; /* payloads that the port still reads */
    bool is_closed;
    unsigned ups, downs; /* of routes */
};

struct dp_event;
struct dp_packet;

struct dp_wire {
    struct sl_rng rng;
    uint64_t now_ns, events, count, cap;
    struct dp_event *heap;
    struct dp_node node[DP_NODES_MAX];
    struct dp_end end[DP_ENDS_MAX];
    unsigned nodes, ends;
    uint32_t number; /* of the last flow */
    /* Sees each packet as it goes, if there; may keep a copy. */
    void (*watch)(struct dp_wire *wire, struct dp_end *from, const void *bytes, size_t len);
    void *watch_arg;
};

void dp_wire_init(struct dp_wire *wire, uint64_t seed);
/* Closes what is open. */
void dp_wire_fini(struct dp_wire *wire);
struct dp_node *dp_node_add(struct dp_wire *wire, const struct sl_dp_settings *settings);
/* A flow between two nodes; out[0] is a's end. Settings of paths are set in out[i]->path[]. */
void dp_flow_add(struct dp_wire *wire, struct dp_node *a, struct dp_node *b,
                 const struct sl_dp_ends *ends, const struct dp_user *user, struct dp_end *out[2]);
void dp_end_close(struct dp_end *end);
/* Bytes of anyone, at that node's port at once. */
void dp_wire_inject(struct dp_wire *wire, struct dp_end *to, const void *bytes, size_t len);
/* The node runs soon: its user has posted something. */
void dp_node_wake(struct dp_node *node);
/* Handles what happens up to that time; false: nothing happens any more. */
bool dp_wire_run(struct dp_wire *wire, uint64_t until_ns);

#endif
