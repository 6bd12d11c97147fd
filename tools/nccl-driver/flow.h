/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flow is what NCCL's proxy calls an operation: messages on one comm, a window of them in flight,
 * each of several tags in order by itself. The receiving end posts one group for the next message
 * of every tag.
 */
#pragma once

#include "tools/nccl-driver/rank.h"

#define FLOW_WINDOW 32

enum flow_state { FLOW_RUN, FLOW_DONE, FLOW_FAILED };

struct flow_post { /* one request */
    void *request;
    struct net_phandle phandles[NET_GROUP];
    size_t sizes[NET_GROUP];
    bool arrived; /* the request is done, and the data is waited for (marker) */
};

struct flow {
    /* The caller's: */
    int conn;
    bool send;
    void *comm;
    unsigned subs; /* tags */
    int tags[NET_GROUP];
    unsigned steps; /* messages of each tag */
    unsigned window;
    const size_t *sizes; /* of messages: picked by connection, tag and step */
    unsigned size_count;
    size_t clip; /* receives have room for so much at most; 0: for the message and a bit more */
    uint64_t pause_ns; /* the sender is slow: so long after each message */
    atomic_int hold;   /* it posts its window and looks no further while this is set */
    bool marker;       /* receives may be done early */
    bool may_fail;     /* ends in FLOW_FAILED instead of a failed case */
    /* The flow's: */
    unsigned posted[NET_GROUP], done[NET_GROUP];
    int filled[NET_GROUP];
    uint8_t *memory[NET_GROUP];
    void *mrs[NET_GROUP];
    size_t stride, len;
    struct flow_post posts[NET_GROUP][FLOW_WINDOW];
    atomic_int state;
    atomic_uint asked; /* requests taken so far */
    atomic_uint moved; /* … and done */
    int result;        /* why it failed */
    struct flow *next;
};

/* Memory, its registration; then it moves. */
int flow_start(struct rank *r, struct flow *f);
/* Waits for the end. 0 too if it failed and may. */
int flow_await(struct rank *r, struct flow *f);
/* Deregistration and the end of the memory. */
int flow_stop(struct rank *r, struct flow *f);
void *flow_thread(void *rank);
size_t flow_size(const struct flow *f, int tag, unsigned step);
