/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels of a connection: each has numbers of messages of its own; frames, credits and paths are
 * shared.
 *
 * An end that closes a channel takes its memory back at once. Two control messages say so to the
 * peer, CLOSE when it has closed, CLOSED when none of its own writes is under way any more; an end
 * that gets a CLOSE answers with its CLOSED. When both ends have said both and all of it is here,
 * the channel is forgotten (docs/design/0020-multipath.md).
 */
#ifndef SL_MULTIPATH_CHANNEL_H
#define SL_MULTIPATH_CHANNEL_H

#include "core/channel.h"
#include "multipath/message.h"

#define SL_MP_TABLE_MIN 8

struct sl_mp_conn;
struct sl_mp_control;

struct sl_mp_channel {
    struct sl_channel base; /* sent and came count the frames that name it */
    struct sl_mp_conn *conn;
    struct sl_node all;     /* in conn->all_channels */
    struct sl_node telling; /* in conn->telling while something of its end is to be done */
    bool is_telling;
    bool ends; /* closed, here or by the peer: nothing more is sent to it */
    bool close_told, closed_told, peer_stopped; /* CLOSE, CLOSED went; the peer's CLOSED came */

    /* Messages by number, which runs free; the place of one is number & mask. */
    uint32_t tx_next;            /* of the next send */
    uint32_t tx_oldest;          /* long message not over, or tx_next */
    uint32_t rx_next, rx_oldest; /* of the next recv; not over, or rx_next */
    uint32_t rx_known;         /* behind the last that is posted or here: all before have a place */
    uint32_t tx_mask, rx_mask; /* the tables grow */
    struct sl_mp_tx_msg **tx;  /* NULL: over, or went in a frame */
    struct sl_mp_rx_msg **rx;  /* from rx_oldest up to rx_known */
    unsigned rts_waiting;      /* messages that their senders announced, and no receive has met */
    struct sl_node early;      /* CTS that came before their message */
    unsigned early_count, early_gpu_count;
    unsigned tx_cts;           /* CTS that messages are written by */
    unsigned gpu_copies;       /* under way */
    uint64_t written, arrived; /* bytes in writes that have arrived at the peer, here */
    uint64_t peer_written;     /* what its CLOSED says */
    struct sl_mp_tx_msg *tx_first[SL_MP_TABLE_MIN];
    struct sl_mp_rx_msg *rx_first[SL_MP_TABLE_MIN];
};

static inline struct sl_mp_channel *sl_mp_channel_of(struct sl_channel *channel)
{
    return (struct sl_mp_channel *)channel;
}

/* What another message of that number is, or NULL: it is over, or went in a frame. */
static inline struct sl_mp_tx_msg *sl_mp_tx_at(const struct sl_mp_channel *channel, uint32_t number)
{
    return channel->tx[number & channel->tx_mask];
}

/* Of a number that has a place. */
static inline struct sl_mp_rx_msg *sl_mp_rx_at(const struct sl_mp_channel *channel, uint32_t number)
{
    return channel->rx[number & channel->rx_mask];
}

/* The contract's. */
int sl_mp_channel_open(struct sl_ep *ep, uint32_t id);
void sl_mp_channel_close(struct sl_ep *ep, uint32_t id);
uint64_t sl_mp_channel_traffic(const struct sl_ep *ep, uint32_t id);
bool sl_mp_channel_starves(const struct sl_ep *ep, uint32_t id);

/* Channel 0, of a connection that begins. -ENOMEM. */
int sl_mp_channels_init(struct sl_mp_conn *conn);
void sl_mp_channels_fini(struct sl_mp_conn *conn);
/* The channel that the peer names. NULL: no memory, or too many, with a sentence and its code. */
struct sl_mp_channel *sl_mp_channel_named(struct sl_mp_conn *conn, uint32_t id, int *err);
/* Room for one more message that has to have a place. False: no memory. */
bool sl_mp_tx_grow(struct sl_mp_channel *channel);
bool sl_mp_rx_grow(struct sl_mp_channel *channel);

/* The peer says CLOSE or CLOSED. */
void sl_mp_on_close(struct sl_mp_conn *conn, const struct sl_mp_control *control);
/* Something of the end of a channel may be due. */
void sl_mp_channel_tell(struct sl_mp_channel *channel);
/* Bytes have arrived after the peer's CLOSED. */
void sl_mp_channel_arrived(struct sl_mp_channel *channel);
/* Says what is due and finds room. */
int sl_mp_channels_push(struct sl_mp_conn *conn);
/* Takes all requests of the channel into a list, and gives up what was noted for them. */
void sl_mp_channel_strip(struct sl_mp_channel *channel, struct sl_node *reqs);

#endif
