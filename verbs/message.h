/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: sends, receives, the frames between them, and the grants of long ones. */
#ifndef SL_VERBS_MESSAGE_H
#define SL_VERBS_MESSAGE_H

#include "core/list.h"
#include "core/transport.h"
#include "verbs/frame.h"

struct sl_verbs_ep;
struct sl_verbs_iface;
struct sl_verbs_mr;
struct sl_verbs_path;
struct sl_verbs_piece;

#define SL_VERBS_CREDITS 16    /* frames that a peer may have unhandled here */
#define SL_VERBS_TX_QUEUE 256  /* sends that wait or are under way; more get -EAGAIN */
#define SL_VERBS_RX_QUEUE 512  /* must be more than SL_VERBS_TX_QUEUE + SL_VERBS_CREDITS */
#define SL_VERBS_GRANTS 64     /* given and not complete */
#define SL_VERBS_TX_GRANTS 256 /* GRANTS, and those whose writes arrived but are not retired here */
#define SL_VERBS_REDO (SL_VERBS_PATHS_MAX * SL_VERBS_WRITES_MAX)

/* A frame to send: registered on every rail, kept until its completion so that it can be sent
 * again. */
struct sl_verbs_tx_frame {
    struct sl_node link; /* free, or in its connection's list of frames to repeat */
    uint8_t *bytes;
    uint32_t len;
};

/* Pieces of staging memory: one half for what is sent, the other for what is received. */
struct sl_verbs_chunks {
    uint16_t *free;
    unsigned free_count;
};

struct sl_verbs_tx_msg {
    const uint8_t *addr;
    uint64_t len, granted, done;
    uint64_t tag;
    struct sl_verbs_mr *mr; /* NULL: through staging */
    struct sl_req *req;     /* NULL: this place is free */
    uint32_t number;
};

struct sl_verbs_tx_grant {
    struct sl_verbs_grant grant;
    struct sl_verbs_tx_msg *msg; /* NULL while its message was not sent */
    bool used;
    bool shorter; /* ... or takes a shorter one */
    bool is_gpu;  /* its memory is a GPU's: better written to than sent a frame for */
    uint32_t number;
    uint64_t tag, total;  /* of the message that the receiver expects */
    uint64_t dealt, done; /* bytes */
};

struct sl_verbs_rx_msg {
    const struct sl_sink *sink;
    struct sl_req *req; /* NULL: not posted */
    bool has_frame, has_rts, over;
    bool came;    /* in a frame, which may be through already */
    uint8_t rail; /* of the frame's buffer */
    uint32_t slot;
    uint8_t *copy;          /* one of ep->copies; NULL: the frame is in its buffer */
    uint32_t granted_count; /* its grants under way */
    struct sl_verbs_mr *mr;
    uint64_t tag, len;          /* as the sender said */
    uint64_t granted, consumed; /* bytes */
    int status;                 /* with which it will end */
};

struct sl_verbs_rx_grant {
    bool used, announced, complete;
    uint16_t chunk;
    uint16_t generation; /* how often the place was used, as far as an id has bits for it */
    uint32_t number;
    uint64_t off, len, got;
    uint8_t *addr;
};

/* message.c */
int sl_verbs_send(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req);
int sl_verbs_recv(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req);
/* A frame arrived in a receive buffer, which is given back unless it must wait. */
void sl_verbs_on_frame(struct sl_verbs_path *path, uint32_t slot, uint32_t got);
/* What could not be posted before. How many things moved. */
int sl_verbs_ep_push(struct sl_verbs_ep *ep);
/* Takes a frame from the pool and fills its header; NULL: none is free, or no path is up. */
struct sl_verbs_tx_frame *sl_verbs_frame_new(struct sl_verbs_ep *ep, uint8_t kind, uint32_t number);
/* Posts it; it is owned by the path, or by the list of frames to repeat. */
void sl_verbs_frame_post(struct sl_verbs_ep *ep, struct sl_verbs_tx_frame *frame);
void sl_verbs_frame_free(struct sl_verbs_iface *iface, struct sl_verbs_tx_frame *frame);
bool sl_verbs_can_post_frame(const struct sl_verbs_ep *ep);
/* Ends a receive, in progress. */
void sl_verbs_rx_end(struct sl_verbs_ep *ep, uint32_t number, int status);
/* Ends all that is pending with status. */
void sl_verbs_cancel(struct sl_verbs_ep *ep, int status);

/* write.c */
void sl_verbs_on_grant(struct sl_verbs_ep *ep, const struct sl_verbs_frame *frame,
                       const struct sl_verbs_grant *told);
/* A write of len bytes into that grant arrived. */
void sl_verbs_on_write(struct sl_verbs_path *path, uint32_t id, uint32_t len);
/* The grant that the peer means, or NULL. */
struct sl_verbs_rx_grant *sl_verbs_rx_grant_at(struct sl_verbs_ep *ep, uint32_t id);
/* Grants what may be granted to the message, as far as there is room. */
void sl_verbs_grant_more(struct sl_verbs_ep *ep, uint32_t number);
void sl_verbs_grants_announce(struct sl_verbs_ep *ep);
/* Deals granted bytes over the paths. How many pieces were posted. */
int sl_verbs_deal(struct sl_verbs_ep *ep);
/* A piece has arrived, or not: give up its staging, count or repeat it. */
void sl_verbs_piece_over(struct sl_verbs_ep *ep, const struct sl_verbs_piece *piece);
void sl_verbs_piece_redo(struct sl_verbs_ep *ep, const struct sl_verbs_piece *piece);
/* The message's length is known: its grants end there, and bytes that came before may have been
 * all. */
void sl_verbs_grants_trim(struct sl_verbs_ep *ep, uint32_t number);
/* Is the grant for a message of this tag and length? */
static inline bool sl_verbs_grant_fits(const struct sl_verbs_tx_grant *grant, uint64_t tag,
                                       uint64_t len)
{
    return grant->tag == tag && (grant->total == len || (grant->shorter && len < grant->total));
}

/* Binds grants that came before their message was sent. */
void sl_verbs_tx_bind_grants(struct sl_verbs_ep *ep, struct sl_verbs_tx_msg *msg);
void sl_verbs_write_cancel(struct sl_verbs_ep *ep);

#endif
