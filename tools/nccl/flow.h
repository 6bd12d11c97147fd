/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows: endpoints to the engine of a peer, which NCCL's connections share. Each connection is a
 * channel of a flow, set up by words over it (wire.h).
 *
 *     dialer                                   listener
 *     OPEN (channel, token of the handle)   ->
 *                                           <- ACCEPTED (channel), in the accept() that returns it;
 *                                              or REFUSED: nobody listens with that token
 *     GIVEN_UP (channel)                    ->   instead of waiting for either
 *
 * Each end numbers the channels that it opens, the end that dialed the flow by odd numbers. A
 * closed connection needs no word: the transport tells the other end (channel_starves).
 */
#ifndef SL_NCCL_FLOW_H
#define SL_NCCL_FLOW_H

#include "tools/nccl/adapt.h"

#define SL_NCCL_ASKS_MAX 1024 /* of one flow: OPENs that were not answered */

struct sl_nccl_flow {
    struct sl_node link; /* engine->flows */
    struct sl_nccl_engine *engine;
    uint32_t number;                /* wire-up's, while it comes about; 0 afterwards */
    bool holds;                     /* wire-up, for that */
    bool dialed;                    /* by this end */
    bool used;                      /* it has had a connection */
    uint8_t id[SL_WIREUP_ID_BYTES]; /* of the peer's engine */
    struct sl_nccl_handle to;       /* of a dial */
    uint32_t its_device;            /* by_device of the end that dials */
    struct sl_ep *ep;               /* NULL: it comes about, or does not */
    int lost;                       /* 0, or the errno that ended it */
    char *why;                      /* of it (sl_text_set) */
    uint32_t last_channel;
    struct sl_node comms; /* comm->on_flow: its connections, and those that wait for it */
    unsigned comm_count;
    struct sl_node asks; /* the peer's OPENs that nobody has accepted yet */
    unsigned ask_count;
    struct sl_node words; /* to be said */
    unsigned word_count;
    struct sl_node saying; /* engine->saying, when there are any; next NULL: it is not there */
    /* NCCL does not say which rank it is: "the peer at 192.0.2.7" */
    char peer_name[SL_NCCL_PEER_NAME];
};

struct sl_nccl_ask {
    struct sl_node link; /* flow->asks */
    struct sl_nccl_flow *flow;
    uint32_t channel;
    uint64_t token;
};

/* The engine is locked in all of these. */

int sl_nccl_flow_new(struct sl_nccl_engine *engine, const uint8_t id[SL_WIREUP_ID_BYTES],
                     struct sl_nccl_flow **out);
void sl_nccl_flow_free(struct sl_nccl_flow *flow);
/* It is of no use any more, nor are its connections. */
void sl_nccl_flow_lose(struct sl_nccl_flow *flow, int status, const char *why);

/* Those to that peer's engine that are up or come about, each once though both ends are here; the
 * least used one that takes another connection, or NULL. */
unsigned sl_nccl_flow_count(const struct sl_nccl_engine *engine,
                            const uint8_t id[SL_WIREUP_ID_BYTES], struct sl_nccl_flow **least);
bool sl_nccl_flow_has_channels(const struct sl_nccl_flow *flow);

/* The comm becomes one of the flow's, and none of it any more: then the transport touches no memory
 * of its requests. The last one takes the flow along. */
void sl_nccl_flow_join(struct sl_nccl_flow *flow, struct sl_nccl_comm *comm);
void sl_nccl_flow_leave(struct sl_nccl_comm *comm);

/* The comm is none of the flow's any more, which stays. A channel that it has stays open: whoever
 * has its endpoint closes it. */
void sl_nccl_flow_forget(struct sl_nccl_comm *comm);

/* Asks the peer for a channel for this comm. */
void sl_nccl_flow_ask(struct sl_nccl_comm *comm);
/* The first connection that a peer asks of that listener, over a flow that is up, or over any.
 * NULL: none. */
struct sl_nccl_ask *sl_nccl_flow_asked(const struct sl_nccl_engine *engine, uint64_t token,
                                       bool is_up);
/* Answers it, and frees it. */
void sl_nccl_flow_answer(struct sl_nccl_ask *ask, bool accepted);

/* A control message, untrusted. */
void sl_nccl_flow_hear(struct sl_nccl_flow *flow, const void *bytes, size_t len);

/* Sends words that wait. */
void sl_nccl_flows_say(struct sl_nccl_engine *engine);
/* Ends connections that the peer has closed, and flows that nobody needs. */
void sl_nccl_flows_tidy(struct sl_nccl_engine *engine);

#endif
