/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of sending and receiving through the rings. */
#ifndef SL_SHM_RING_H
#define SL_SHM_RING_H

#include "shm/shm.h"

/* Pieces moved for one endpoint before its other direction, and other endpoints, get their turn. */
#define SHM_PIECES_PER_TURN 4

static inline void shm_activate(struct shm_ep *ep)
{
    if (ep->is_active)
        return;
    ep->is_active = true;
    sl_list_push_back(&shm_ep_iface(ep)->active, &ep->active);
}

/* A sleeping peer is looked at after the store that it waits for: park.c says why that is
 * enough. */
static inline void shm_look_after_peer(struct shm_ep *ep)
{
    if (ep->woke) {
        ep->woke = false;
        atomic_signal_fence(memory_order_seq_cst); /* nor does the compiler swap the two */
        if (SL_UNLIKELY(atomic_load_explicit(ep->base.peer_asleep, memory_order_relaxed) != 0))
            shm_wake(&ep->base);
    }
}

static inline uint64_t shm_next_head(const struct shm_ep *ep)
{
    return atomic_load_explicit(&ep->rx.cells[ep->rx_pos & ep->rx.cell_mask].head,
                                memory_order_acquire);
}

static inline struct shm_cell *shm_next_cell(const struct shm_ep *ep)
{
    return &ep->rx.cells[ep->rx_pos & ep->rx.cell_mask];
}

static inline void shm_give_back(struct shm_ep *ep)
{
    ep->rx_pos++;
    atomic_store_explicit(ep->rx.taken, ep->rx_pos, memory_order_release);
    ep->woke = true;
}

static inline void shm_count_received(struct shm_ep *ep, struct shm_channel *channel, uint64_t len)
{
    ep->received += len;
    sl_channel_moved(&ep->base, &channel->base, len);
}

/* Bytes of the message under way, also of one that is dropped. A peer that sends on after its close
 * may find the channel forgotten. */
static inline void shm_count_begun(struct shm_ep *ep, uint64_t len)
{
    struct shm_channel *channel = shm_channel_find(ep, ep->rx_channel);

    if (SL_LIKELY(channel != NULL))
        shm_count_received(ep, channel, len);
}

static inline const struct shm_posted_recv *shm_pop_recv(struct shm_ep *ep,
                                                         struct shm_channel *channel)
{
    const struct shm_posted_recv *r = &channel->recvs[channel->recv_first];

    channel->recv_first = (channel->recv_first + 1) % SHM_POSTED_MAX;
    sl_channel_wants(&ep->channels, &channel->base, -1);
    return r;
}

/* May the message go there? 0, or why it is dropped. */
static inline int shm_check_message(const struct sl_sink *sink, uint64_t tag, uint64_t len)
{
    if (SL_LIKELY(sink != NULL && tag == sink->tag && sl_sink_takes(sink, len)))
        return 0;
    return sink == NULL ? -ECANCELED : tag != sink->tag ? -EPROTO : -EMSGSIZE;
}

/* Requests that are to end: sl_reqs_end(). */
struct shm_ended {
    struct sl_node whole; /* with 0: the peer had them */
    struct sl_node cut;
};

/* send.c */
int shm_run_sends(struct shm_ep *ep, unsigned *budget);
/* Ends the lent messages whose cells the peer has taken. */
int shm_run_lent(struct shm_ep *ep, unsigned *budget);
/* Could either move something? */
bool shm_sends_ready(struct shm_ep *ep);
/* Learns the cells that the peer has given back. */
void shm_refresh(struct shm_ep *ep);
/* A send leaves the queue. */
void shm_end_place(struct shm_ep *ep, struct shm_posted_send *s);
/* The peer hears that channel is closed: first, before other sends, or behind them. */
void shm_send_close(struct shm_ep *ep, struct shm_channel *channel, bool first);

/* receive.c */
/* head: of the cell that is next. */
int shm_run_recvs(struct shm_ep *ep, uint64_t head, unsigned *budget);
/* Could that move the cell that is next? */
bool shm_recvs_ready(struct shm_ep *ep);
/* arrive.c */
/* Takes the next cell, whose head was seen. 1: a message is over; 0: it is not; -EAGAIN: the cell
 * stays there; -EBADMSG: its numbers cannot be; other codes: the endpoint is lost. */
int shm_take_other(struct shm_ep *ep, uint64_t head);
/* The message of a receive that was just called, as far as its pieces are there. False: it is under
 * way, or the peer is damaged; req waits for its end. */
bool shm_take_pieces(struct shm_ep *ep, const struct sl_sink *sink, uint64_t len,
                     struct sl_req *req);

/* drop.c */
/* Takes all sends of a channel, or (NULL) of all, out of the queues; lent memory is lent no more
 * when it returns. True: the first cells of one are in the ring, the rest will not be. */
bool shm_drop_sends(struct shm_ep *ep, struct shm_channel *channel, struct shm_ended *out);
/* Takes all receives of a channel, or (NULL) of all, out of the queues: also that of the message
 * under way, whose rest is dropped. */
void shm_drop_recvs(struct shm_ep *ep, struct shm_channel *channel, struct shm_ended *out);

/* channel.c */
/* Forgets channel when both ends have closed it. */
void shm_channel_settle(struct shm_ep *ep, struct shm_channel *channel);

#endif
