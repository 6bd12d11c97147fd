/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the simulated transport share.
 *
 *   sim.c      the operations of the contract: interfaces, endpoints, progress
 *   channel.c  the channels of an endpoint
 *   message.c  messages and control messages between endpoints
 *   memory.c   memory that ranks map
 */
#ifndef SL_TESTING_SIM_INSIDE_H
#define SL_TESTING_SIM_INSIDE_H

#include "core/channel.h"
#include "testing/sim/net.h"

#define SL_SIM_NO_EP UINT32_MAX

struct sl_sim_channel {
    struct sl_channel base;
    struct sl_node recvs; /* sl_req.link of struct sl_req, in order */
    unsigned recv_count, send_count;
};

struct sl_sim_ep {
    struct sl_ep base;
    uint32_t idx, peer; /* numbers; peer SL_SIM_NO_EP before connect */
    struct sl_req *connect;
    bool connected, lost, told; /* lost: as soon as the inbox allows; told: down() was called */
    bool abrupt;                /* lost without waiting for what is in the inbox */
    int lost_status;
    const char *lost_why;
    uint64_t connect_limit;
    uint64_t last_arrival, last_ctrl, last_ack; /* of what this endpoint sent: order holds */
    struct sl_channels channels;
    struct sl_sim_channel *met; /* its first receive gets the first message of the inbox */
    unsigned ctrl_count;
    struct sl_node outbox, inbox, endings, ctrls;
    struct sl_node maps;
    struct sl_node link; /* of the interface */
    unsigned storm;
};

struct sl_sim_iface {
    struct sl_iface base;
    struct sl_transport_ops ops; /* sl_sim_ops, completed */
    struct sl_sim *sim;
    struct sl_sim_rank *rank;
    struct sl_node link, eps;
    unsigned ep_count;
    uint64_t stalled_until;
};

static inline struct sl_sim_ep *sl_sim_ep_of(struct sl_ep *ep)
{
    return (struct sl_sim_ep *)ep;
}

static inline struct sl_sim_iface *sl_sim_iface_of(struct sl_iface *iface)
{
    return (struct sl_sim_iface *)iface;
}

static inline struct sl_sim_iface *sl_sim_iface_of_ep(const struct sl_sim_ep *ep)
{
    return (struct sl_sim_iface *)ep->base.iface;
}

static inline uint32_t sl_sim_rank_of(const struct sl_sim_ep *ep)
{
    return sl_sim_iface_of_ep(ep)->rank->rank;
}

static inline struct sl_sim_ep *sl_sim_ep_find(struct sl_sim *sim, uint32_t idx)
{
    return idx < sim->ep_len ? sim->eps[idx] : NULL;
}

/* message.c */
int sl_sim_send(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req);
int sl_sim_recv(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req);
int sl_sim_ctrl(struct sl_ep *ep, const void *msg, size_t len);
/* One thing of its kind, from progress: tells the end of a send, hands over a control message, or a
 * piece of a message to its receive. False: there was none. */
bool sl_sim_tell_one(struct sl_sim *sim, struct sl_sim_ep *ep);
bool sl_sim_ctrl_one(struct sl_sim_ep *ep);
bool sl_sim_match_one(struct sl_sim *sim, struct sl_sim_ep *ep);
/* One receive of a message that was kept. */
bool sl_sim_settle_one(struct sl_sim_ep *ep);
/* Ends every send and receive of a channel of ep with status. */
void sl_sim_end_channel(struct sl_sim_ep *ep, struct sl_sim_channel *channel, int status);
/* Ends every send and receive of ep with status. */
void sl_sim_end_posted(struct sl_sim_ep *ep, int status);
/* Forgets what is on its way to ep. */
void sl_sim_inbox_clear(struct sl_sim_ep *ep);
void sl_sim_ctrls_clear(struct sl_sim_ep *ep);
/* How many messages are on their way to ep, and how many of these are there. */
void sl_sim_inbox_count(const struct sl_sim_ep *ep, unsigned *coming, unsigned *here);

/* channel.c */
int sl_sim_channels_init(struct sl_sim_ep *ep);
int sl_sim_channel_open(struct sl_ep *ep, uint32_t channel);
void sl_sim_channel_close(struct sl_ep *ep, uint32_t channel);
uint64_t sl_sim_channel_traffic(const struct sl_ep *ep, uint32_t channel);
bool sl_sim_channel_starves(const struct sl_ep *ep, uint32_t channel);
/* That a caller sends to or receives from; one that is not open is a violation. */
struct sl_sim_channel *sl_sim_channel_used(struct sl_sim_ep *ep, uint32_t channel);
/* A message of its was taken out of the inbox: it may be over. */
void sl_sim_channel_came(struct sl_sim_ep *ep, struct sl_sim_channel *channel);

/* memory.c */
int sl_sim_mem_alloc(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out);
int sl_sim_mem_back(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len);
void sl_sim_mem_unback(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len);
void sl_sim_mem_free(struct sl_iface *iface, struct sl_mem *mem);
int sl_sim_mr_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                  struct sl_key *key);
void sl_sim_mr_dereg(struct sl_iface *iface, struct sl_mr *mr);
int sl_sim_map(struct sl_ep *ep, const struct sl_key *key, size_t len, void **out);
void sl_sim_unmap(struct sl_ep *ep, void *ptr);
/* Ends what ep has mapped. */
void sl_sim_maps_end(struct sl_sim_ep *ep);
/* Everything was freed. */
void sl_sim_mems_check_empty(struct sl_sim *sim);

#endif
