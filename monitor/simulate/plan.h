/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training job that is made up, and the fault in it: what play.h plays, and what the rules are
 * measured by, since the truth is known.
 *
 * Ranks are numbered as Megatron does: tensor ranks are next to each other, then replicas, then
 * stages; ranks_per_host of them are one host, each with a NIC of its own (its rail). Times are
 * seconds, sizes bytes. Everything that is drawn follows from the seed.
 */
#ifndef SL_MONITOR_SIMULATE_PLAN_H
#define SL_MONITOR_SIMULATE_PLAN_H

#include "core/rng.h"
#include "monitor/diagnosis/verdict.h"

#include <stdbool.h>
#include <stdint.h>

enum sl_play_algorithm {
    SL_PLAY_RING,    /* `channels` rings, each through the members in another order */
    SL_PLAY_TREE,    /* a binary tree, up and down */
    SL_PLAY_ALLTOALL /* everybody to everybody, as reduce-scatter and allgather in one hop do */
};

/* What of the network can be slow for all that passes it. */
enum sl_play_group {
    SL_PLAY_LEAF,  /* a leaf switch: one rail of hosts_per_leaf hosts */
    SL_PLAY_RAIL,  /* the same NIC of all hosts */
    SL_PLAY_PLANE, /* two rails */
    SL_PLAY_SPINE, /* a switch above the leaves of a rail, of some pairs of them */
    SL_PLAY_GROUPS
};

#define SL_PLAY_SPINES 4 /* above the leaves of a rail */

/* What is wrong, one thing a job. */
struct sl_play_fault {
    uint8_t cls;       /* enum sl_verdict_class; SL_VERDICT_NOT_HUNG: nothing */
    uint32_t rank;     /* whose fault it is; of a link the sender, of a group its number */
    uint8_t group;     /* enum sl_play_group */
    uint32_t peer;     /* of a link: the receiver */
    uint32_t step;     /* since when; before it all is well */
    uint32_t call;     /* of a hang: at which of the rank's calls in that step */
    double strength;   /* of slowness: how many times longer, above 1 */
    bool is_in_kernel; /* of a stuck GPU: all others end that call; else nobody does, as it stops
                        * before it takes part */
};

struct sl_play_plan {
    uint64_t seed;
    uint32_t tensor, stages, replicas; /* their product is the number of ranks */
    uint32_t experts;                  /* ranks of an all-to-all group, of a replica group: divides
                                        * replicas; 0: no experts */
    uint32_t batches;                  /* micro-batches of a step */
    uint32_t steps;
    uint32_t ahead;          /* calls that a host is before its GPU, at most; 1 to 64 */
    uint32_t ranks_per_host; /* each with a rail of its own */
    uint32_t hosts_per_leaf; /* whose NICs of one rail are on one leaf switch */
    uint8_t algorithm;       /* of the replicas' collectives */
    uint32_t channels;       /* of SL_PLAY_RING */
    double compute_s;        /* a stage's forward pass of a micro-batch */
    double noise;            /* of compute: the spread of its logarithm, from step to step */
    double jitter;           /* of messages: the same, from one to the next */
    double pauses;           /* how often a rank pauses in a step, for 1 to 30 forward passes */
    double stages_differ;    /* up to how much a stage is heavier than the lightest */
    double sequences;        /* of a replica in a step, all its stages alike: the spread */
    double second_kind;      /* of hosts' hardware: how much slower; 0: there is one kind */
    bool has_compute;        /* the source lists compute, as traces do */
    bool has_layout;         /* it tells stages and replicas */
    bool has_edges;          /* it tells what passed from rank to rank */
    bool has_fabric;         /* and where NICs lead: leaves, rails, planes, and routes by spines */
    bool has_starts;         /* of a pending call it tells whether the GPU is at it */
    struct sl_play_fault fault;
};

uint32_t sl_play_ranks(const struct sl_play_plan *plan);
uint32_t sl_play_stage(const struct sl_play_plan *plan, uint32_t rank);
uint32_t sl_play_replica(const struct sl_play_plan *plan, uint32_t rank);
uint32_t sl_play_tensor(const struct sl_play_plan *plan, uint32_t rank);
uint32_t sl_play_host(const struct sl_play_plan *plan, uint32_t rank);
/* Which rail a message takes: the receiver's, as what goes to another rail changes it inside of the
 * sender's host (NCCL's PXN). */
uint32_t sl_play_rail(const struct sl_play_plan *plan, uint32_t src, uint32_t dst);
/* The leaf switch of the rail that the rank's host is on. */
uint32_t sl_play_leaf(const struct sl_play_plan *plan, uint32_t rank, uint32_t rail);
/* The spine that messages from a leaf to another one of its rail pass. */
uint32_t sl_play_spine(const struct sl_play_plan *plan, uint32_t from, uint32_t to, uint32_t rail);
/* Does a message between hosts pass that? */
bool sl_play_passes(const struct sl_play_plan *plan, uint32_t src, uint32_t dst,
                    enum sl_play_group group, uint32_t number);

/* What is not said otherwise: 64 ranks, 40 steps, rings, health. */
void sl_play_default(struct sl_play_plan *plan);
/* Draws shape, noise and heterogeneity of a job of about `ranks` ranks, healthy. */
void sl_play_draw(struct sl_play_plan *plan, uint32_t ranks, uint64_t seed);
/* Draws whose fault of that class it is, and when, for a job that sl_play_draw() made. False: this
 * job cannot have it (no such link, no such group). */
bool sl_play_draw_fault(struct sl_play_plan *plan, enum sl_verdict_class cls, double strength);
/* -EINVAL with a sentence where the numbers make no job. */
int sl_play_check(const struct sl_play_plan *plan);

#endif
