/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long what passes from rank to rank takes: each message its bytes over the NIC's speed, times
 * what is wrong with sender, receiver, link and leaf, times chance. A collective takes as long as
 * its slowest edge makes it. What each edge waited for is added up, as proxies of NCCL do.
 */
#ifndef SL_MONITOR_SIMULATE_WIRE_H
#define SL_MONITOR_SIMULATE_WIRE_H

#include "monitor/simulate/calls.h"

struct sl_play_edge {
    uint32_t src, dst, comm;
    uint32_t share;    /* of a collective's bytes, how much goes by it: share / 65536 */
    uint32_t messages; /* of one collective */
    double factor;     /* of what lasts, above 1: kinds of hardware, the fault */
    uint64_t count, bytes;
    double wire_s, data_s;
};

struct sl_play_wire {
    const struct sl_play_plan *plan;
    struct sl_play_edge *edges; /* by communicator */
    uint32_t *first;            /* of communicator c: edges[first[c]] to edges[first[c + 1]] */
    struct sl_rng rng;
};

/* Does what is slow make messages from src to dst slow? */
bool sl_play_wire_is_hit(const struct sl_play_plan *plan, uint32_t src, uint32_t dst);
int sl_play_wire_init(struct sl_play_wire *wire, const struct sl_play_plan *plan);
void sl_play_wire_fini(struct sl_play_wire *wire);
/* Seconds of a collective of so many bytes. */
double sl_play_wire_collective(struct sl_play_wire *wire, uint32_t comm, uint64_t bytes);
/* Of a message. */
double sl_play_wire_message(struct sl_play_wire *wire, uint32_t comm, uint32_t src, uint32_t dst,
                            uint64_t bytes);
/* The rank's edge in the communicator that hangs where its network does: one to another host, if
 * there is one. NULL: none. */
struct sl_play_edge *sl_play_wire_stuck(const struct sl_play_wire *wire, uint32_t comm,
                                        uint32_t src);
/* It has waited for so long, and the others for it. */
void sl_play_wire_stick(struct sl_play_wire *wire, uint32_t comm, uint32_t src, double seconds);
bool sl_play_wire_is_inside(const struct sl_play_plan *plan, uint32_t a, uint32_t b);

#endif
