/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels of an endpoint: several orders of messages over one connection, for transports.
 *
 * Communicators share the connection to a peer process. Each has a channel of it, by a number that
 * both ends know, and the n-th message of a channel meets the n-th receive of that channel. A
 * transport keeps a table of channels per endpoint (struct sl_channels) and embeds struct
 * sl_channel in what it notes per channel: posted receives, numbers of messages.
 *
 * A message that arrives without a receive waits where it is, and holds the peer back. It must not
 * hold back other channels: when another channel of the endpoint has a receive that waits, the
 * transport asks sl_channel_keep() for memory and lets the message in. Its receive finds it there:
 *
 *     recv()      if (sl_channel_claim(...)) return 0;   a message was kept; else post it
 *     arrival     channel = sl_channels_get(...); without a receive:
 *                 if (sl_channels_wanting(...)) kept = sl_channel_keep(...), and goes on as if
 *                 kept->sink and kept->req had been posted; else leaves the message where it is
 *     progress    sl_channels_settle(...) when sl_channels_due(), of lost endpoints, too
 *     loss        sl_channels_lost(...); recv() of a lost endpoint claims what was kept
 *
 * A channel ends when both ends have closed it: sl_channel_over(). One thread at a time.
 */
#ifndef SL_CORE_CHANNEL_H
#define SL_CORE_CHANNEL_H

#include "core/list.h"
#include "core/transport.h"

/* Channels of which only the peer has spoken yet. */
#define SL_CHANNELS_UNOPENED_MAX 4096

struct sl_channel {
    struct sl_channel *next; /* in its bucket */
    uint32_t id;
    bool open, closed; /* here; neither: the peer was first */
    bool peer_closed;
    uint32_t posted;     /* receives that no message has met: the transport counts, by _wants() */
    uint64_t sent, came; /* messages begun each way: the transport's numbers */
    uint64_t traffic;    /* payload bytes moved, either way: sl_channel_moved() */
    struct sl_node kept; /* messages without a receive, in their order */
    uint64_t peer_sent;  /* once it has closed */
};

struct sl_channels {
    struct sl_channel *last;     /* that was asked for; never NULL: channel 0 is always there */
    struct sl_channel **buckets; /* a power of two */
    uint32_t bucket_count, count, unopened;
    uint32_t wanting; /* receives posted that no message has met, of all channels */
    size_t bytes;     /* of what the transport embeds a channel in */
    struct sl_node due;
};

/* A message that is kept: a receive of the transport's own. */
struct sl_kept {
    struct sl_node link; /* of the channel, or of those that are due */
    struct sl_channels *channels;
    struct sl_sink sink;
    struct sl_req req;
    bool whole;
    const struct sl_sink *claimed; /* by whom it was received; NULL: by nobody yet */
    struct sl_req *claimer;
    uint8_t bytes[];
};

/* bytes: of the struct that begins with a struct sl_channel; what follows is zero. Opens channel 0.
 * -ENOMEM. */
int sl_channels_init(struct sl_channels *channels, size_t bytes);
/* Frees all, with what is kept. Nothing is claimed any more: sl_channels_cancel() came before. */
void sl_channels_fini(struct sl_channels *channels);

struct sl_channel *sl_channels_search(struct sl_channels *channels, uint32_t id);

/* NULL: it is not known here. */
static inline struct sl_channel *sl_channels_find(struct sl_channels *channels, uint32_t id)
{
    return channels->last->id == id ? channels->last : sl_channels_search(channels, id);
}

/* Each in turn, in no order of meaning; after NULL: the first. NULL: there are no more. */
struct sl_channel *sl_channels_next(const struct sl_channels *channels,
                                    const struct sl_channel *after);

/* On a message of the peer's: the channel, made when the peer is the first to speak of it. NULL:
 * no memory, or the peer names more than SL_CHANNELS_UNOPENED_MAX; with a sentence. */
struct sl_channel *sl_channels_get(struct sl_channels *channels, uint32_t id);

/* For the contract's channel_traffic() and channel_starves(). */
uint64_t sl_channels_traffic(const struct sl_channels *channels, uint32_t id);
bool sl_channels_starve(const struct sl_channels *channels, uint32_t id);

/* Payload bytes of a message have moved, in or out: so transports count traffic. */
static inline void sl_channel_moved(const struct sl_ep *ep, struct sl_channel *channel,
                                    uint64_t len)
{
    ep->iface->traffic += len;
    channel->traffic += len;
}

/* For the contract's channel_open(). -EINVAL: it is open, or was; -ENOMEM. */
int sl_channels_open(struct sl_channels *channels, uint32_t id, struct sl_channel **out);

/* For channel_close(), after the transport has ended what it had posted there: ends claims with
 * status, frees what is kept whole. What the transport still fills goes on, and is freed then. */
void sl_channel_close(struct sl_channels *channels, struct sl_channel *channel, int status);
/* The peer has closed it, after so many messages. */
static inline void sl_channel_peer_closed(struct sl_channel *channel, uint64_t sent)
{
    channel->peer_closed = true;
    channel->peer_sent = sent;
}
/* Both ends have closed it and all of its messages are here: nothing will speak of it again. */
static inline bool sl_channel_over(const struct sl_channel *channel)
{
    return channel->closed && channel->peer_closed && channel->came >= channel->peer_sent;
}
/* Forgets one that is over. */
void sl_channels_remove(struct sl_channels *channels, struct sl_channel *channel);

/* For a call on a channel that is not open. -EINVAL. */
int sl_channel_not_open(const struct sl_ep *ep, uint32_t id);

/* Ends the requests of a list, by their links: done() may use the endpoint, so they leave its
 * queues first. */
void sl_reqs_end(struct sl_node *reqs, int status);

/* A receive was posted (1), or met its message or was taken back (-1). */
static inline void sl_channel_wants(struct sl_channels *channels, struct sl_channel *channel,
                                    int change)
{
    channel->posted += (uint32_t)change;
    channels->wanting += (uint32_t)change;
}

/* Some channel other than this one has a receive that waits. */
static inline bool sl_channels_wanting(const struct sl_channels *channels,
                                       const struct sl_channel *channel)
{
    return channels->wanting != channel->posted;
}

#define SL_KEPT_MAX                                                                                \
    (UINT64_C(1) << 30) /* a peer's word for a length takes no more memory than this */

/* Memory for a message that has no receive. When req ends with 0 it is whole; any other status is
 * that of its receive. NULL: no memory, or longer than SL_KEPT_MAX; the message waits where it is.
 */
struct sl_kept *sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                uint64_t tag, uint64_t len);

bool sl_channel_claim_kept(struct sl_channels *channels, struct sl_channel *channel,
                           const struct sl_sink *sink, struct sl_req *req);

/* Gives the first message that is kept and not claimed to this receive; req ends in a later
 * progress. False: there is none. */
static inline bool sl_channel_claim(struct sl_channels *channels, struct sl_channel *channel,
                                    const struct sl_sink *sink, struct sl_req *req)
{
    return __builtin_expect(!sl_list_empty(&channel->kept), 0) &&
           sl_channel_claim_kept(channels, channel, sink, req);
}

/* Receives of kept messages are to be ended: the endpoint needs progress. */
static inline bool sl_channels_due(const struct sl_channels *channels)
{
    return !sl_list_empty(&channels->due);
}

/* Ends up to budget of them. Returns how many. */
unsigned sl_channels_settle(struct sl_channels *channels, unsigned budget);

/* The endpoint is lost, and the transport fills nothing any more, but has not ended what it was
 * filling: it does so after this. What is whole can still be claimed, and is settled. What is not
 * is dropped, with what came behind it in its channel, as receives meet messages in their order;
 * claims of it end with status. */
void sl_channels_lost(struct sl_channels *channels, int status);

/* The endpoint is destroyed: ends all claims with status. */
void sl_channels_cancel(struct sl_channels *channels, int status);

#endif
