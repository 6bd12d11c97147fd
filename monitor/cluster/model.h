/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that was observed of a cluster: of each node and source the newest observation. Merging is
 * commutative, associative and idempotent, so instances that got the same observations, in any
 * order and however often, have the same model. No I/O, no clock.
 *
 * The newer of two observations has the larger (epoch, seq); with equal ones, the larger bytes.
 * A node that ended, or whose broker says that it is dead, has an observation of "alive" that says
 * so, with its epoch: the agent's next start, which has a larger epoch, is alive again.
 *
 * When this instance heard of a node last is no part of that, and told by whoever knows the time.
 */
#ifndef SL_MONITOR_CLUSTER_MODEL_H
#define SL_MONITOR_CLUSTER_MODEL_H

#include "monitor/read/facts.h"
#include "monitor/observe.h"

#define SL_CLUSTER_MESSAGE_MAX ((size_t)1 << 20) /* bytes of an observation */

/* The agent's three, and alive. */
enum { SL_CLUSTER_ALIVE = SL_OBSERVE_SOURCES, SL_CLUSTER_SOURCES };

struct sl_cluster_obs {
    uint64_t epoch, seq; /* 0, 0: there is none */
    int64_t time_ms;     /* of the node's wall clock */
    char *body;          /* JSON, as it was written */
    size_t len;
};

struct sl_cluster_node {
    char name[SL_OBSERVE_NODE];
    char boot_id[40];
    struct sl_cluster_obs obs[SL_CLUSTER_SOURCES];
    struct sl_facts facts;
    bool is_dead; /* alive says so, of the newest epoch */
    /* This instance's own: */
    uint64_t heard_ns; /* 0: never */
    char where[96];    /* whom it asks; "": it is told */
    char why[160];     /* why it does not hear of it; "": it does */
};

struct sl_cluster_limits {
    unsigned nodes;
    uint64_t bytes;
};

struct sl_cluster_model;

/* -ENOMEM. */
int sl_cluster_model_new(const struct sl_cluster_limits *limits, struct sl_cluster_model **out);
void sl_cluster_model_free(struct sl_cluster_model *model);

/*
 * Takes an observation: bytes as they came. node: whose it has to be, or NULL. *out: the node,
 * where it is not NULL. 1: something is newer; 0: nothing. -EBADMSG: it is none, or another node's.
 * -ENOSPC: there is no room for one more node, or for its bytes; nothing was taken. -ENOMEM.
 */
int sl_cluster_take(struct sl_cluster_model *model, const char *bytes, size_t len, const char *node,
                    struct sl_cluster_node **out);

/* The node of that name, NULL: there is none; add: it is made then. NULL: no room. */
struct sl_cluster_node *sl_cluster_node(struct sl_cluster_model *model, const char *name, bool add);
void sl_cluster_forget(struct sl_cluster_model *model, const char *name);

/* All of them, by name. */
struct sl_cluster_node *const *sl_cluster_nodes(struct sl_cluster_model *model, unsigned *count);

struct sl_cluster_counts {
    uint64_t taken, old, refused, left_out; /* observations */
    uint64_t bytes;
};

const struct sl_cluster_counts *sl_cluster_counts(const struct sl_cluster_model *model);
/* Changes with each observation that is newer. */
uint64_t sl_cluster_version(const struct sl_cluster_model *model);
/* A number of all that was observed: two models with the same observations have the same. */
uint64_t sl_cluster_digest(struct sl_cluster_model *model);

/* FNV-1a, to go on from; begin with SL_CLUSTER_HASH. */
#define SL_CLUSTER_HASH UINT64_C(0xcbf29ce484222325)
uint64_t sl_cluster_hash(uint64_t hash, const void *bytes, size_t len);

#endif
