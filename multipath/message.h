/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: sends, receives, the frames between them, and the CTS frames of long ones. */
#ifndef SL_MULTIPATH_MESSAGE_H
#define SL_MULTIPATH_MESSAGE_H

#include "core/list.h"
#include "core/transport.h"
#include "multipath/frame.h"

struct sl_mp_channel;
struct sl_mp_conn;
struct sl_mp_grant;
struct sl_mp_iface;
struct sl_mp_rail;
struct sl_mp_region;
struct sl_mp_path;
struct sl_mp_piece;

#define SL_MP_FALLBACK_DEPTH 15 /* units over the sideband; one place is for the last */
#define SL_MP_CREDITS 16        /* frames that a peer may have unhandled here */
#define SL_MP_CREDITS_DUE (SL_MP_CREDITS / 2)
#define SL_MP_HELD_MAX 4   /* of them that wait for a receive, while another channel's one waits */
#define SL_MP_TX_QUEUE 256 /* of a channel: sends from the oldest that is not over, and receives */
#define SL_MP_RX_QUEUE 512 /* how far ends may be apart: more than SL_MP_TX_QUEUE + SL_MP_CREDITS */
#define SL_MP_RX_CTS_MAX 64  /* sent and not complete */
#define SL_MP_TX_CTS_MAX 256 /* that came, or whose writes arrived but are not retired here */
#define SL_MP_CHUNK_BYTES (256u << 10)

/* A frame to send: registered on every rail, kept until its completion so that it can be sent
 * again. */
struct sl_mp_tx_frame {
    struct sl_node link; /* free, or in its connection's list of frames to repeat */
    uint8_t *bytes;
    uint32_t len;
};

/* Pieces of staging memory: one half for what is sent, the other for what is received. */
struct sl_mp_chunks {
    uint16_t *free;
    unsigned free_count, count;
};

struct sl_mp_tx_msg {
    const uint8_t *addr;
    uint64_t len, covered, done;
    uint64_t due; /* of len, to be done: less once the peer has closed the channel */
    uint64_t tag;
    struct sl_mp_region *mr; /* NULL: through staging */
    struct sl_req *req;
    uint32_t number;
};

struct sl_mp_tx_cts {
    struct sl_node all, link; /* of conn->all_cts; of conn->early or conn->deal */
    struct sl_mp_cts cts;
    struct sl_mp_channel *channel;
    struct sl_mp_tx_msg *msg; /* NULL: it was not sent yet, or its channel is closed */
    bool is_bound;            /* its message was sent */
    bool shorter;             /* ... or takes a shorter one */
    bool is_gpu;              /* its memory is a GPU's: better written to than sent a frame for */
    uint16_t rails;           /* of the peer that have it: a bit each */
    uint32_t number;
    uint64_t tag, total;  /* of the message that the receiver expects */
    uint64_t dealt, done; /* bytes */
};

struct sl_mp_rx_msg {
    struct sl_node link; /* of conn->late, starved or gpu_waits; next NULL: it never was in one */
    struct sl_mp_channel *channel;
    uint32_t number;
    bool has_frame, has_rts, over;
    bool came;          /* in a frame, which may be through already */
    bool is_kept;       /* the frame's bytes are on the heap, and its credit is back */
    int status;         /* with which it will end */
    uint32_t cts_count; /* its CTS frames under way */
    const struct sl_sink *sink;
    struct sl_req *req; /* NULL: not posted */
    struct sl_mp_region *mr;
    uint64_t tag, len;          /* as the sender said */
    uint64_t covered, consumed; /* bytes */
    /* a frame that waits */
    struct sl_mp_rail *rail; /* of its buffer; NULL: it was copied out of it */
    uint32_t buffer;
    const uint8_t *bytes; /* there, in conn->copies or on the heap */
};

struct sl_mp_rx_cts {
    bool used, announced, complete;
    bool renewed; /* announced with keys of a rail that has others by now */
    bool is_back; /* its keys end, and the message came by other means */
    uint16_t chunk;
    uint16_t generation; /* how often the place was used, as far as an id has bits for it */
    struct sl_mp_channel *channel;
    struct sl_mp_rx_msg *msg; /* NULL: its channel is closed, and the peer may yet write */
    uint64_t off, len, got;
    uint8_t *addr;
    struct sl_mp_grant *grant; /* its own keys; NULL: those of its region, or of staging */
};

/* send.c */
int sl_mp_send(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req);
/* The peer has another receive for that message: it is over. */
void sl_mp_on_drop(struct sl_mp_channel *channel, uint32_t number);
/* Takes a frame from the pool and fills its header; NULL: none is free, or no path is up. Who names
 * a channel counts it. */
struct sl_mp_tx_frame *sl_mp_frame_new(struct sl_mp_conn *conn, uint8_t kind, uint32_t channel,
                                       uint32_t number);
/* Posts it with so many bytes of payload; it is owned by the path, or by the list of frames to
 * repeat. */
void sl_mp_frame_post(struct sl_mp_conn *conn, struct sl_mp_tx_frame *frame, uint32_t payload);
void sl_mp_frame_free(struct sl_mp_iface *iface, struct sl_mp_tx_frame *frame);
bool sl_mp_can_post_frame(const struct sl_mp_conn *ep);
/* A long send is over: gives its place up, and returns its request, which is to be ended. */
struct sl_req *sl_mp_tx_end(struct sl_mp_channel *channel, struct sl_mp_tx_msg *msg);
/* Is a long send not over, on any channel? */
bool sl_mp_tx_busy(const struct sl_mp_conn *conn);
/* Gives all sends of a channel up; their requests go into the list. */
void sl_mp_tx_strip(struct sl_mp_channel *channel, struct sl_node *reqs);
/* Ends well what the peer wants no more, as far as no write of it is under way. */
void sl_mp_tx_dropped(struct sl_mp_channel *channel);
/* Notes that the connection is lost for that. Returns -ENOMEM. */
int sl_mp_no_memory(struct sl_mp_conn *conn);

/* receive.c */
int sl_mp_recv(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req);
/* A frame arrived in a receive buffer, which is given back unless it must wait. */
void sl_mp_on_frame(struct sl_mp_path *path, const uint8_t *bytes, uint32_t buffer, uint32_t got);
/* Ends a receive, in progress. */
void sl_mp_rx_end(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg, int status);
/* Has it end in the next progress. */
void sl_mp_rx_end_later(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg, int status);
/* Gives all receives and waiting messages of a channel up; requests go into the list. */
void sl_mp_rx_strip(struct sl_mp_channel *channel, struct sl_node *reqs);

/* held.c */
/* Keeps a frame until its receive is posted: in its buffer, which its sender has a credit less for.
 * But not the last ones, which many connections share: the frame that all others wait for may need
 * one. And on the heap, when others of its kind are many and another channel's receive waits. */
void sl_mp_hold(struct sl_mp_path *path, struct sl_mp_rx_msg *msg, const uint8_t *payload,
                uint32_t buffer);
/* A receive begins to wait: frames of other channels that have none leave it enough credits. */
void sl_mp_keep_held(struct sl_mp_conn *conn);
/* The peer has left: what it had sent on the channel stays for receives to come, and holds nobody's
 * buffer. */
void sl_mp_keep_left(struct sl_mp_channel *channel);
/* Frames that wait in buffers of that rail move to the heap. */
void sl_mp_keep_all(struct sl_mp_conn *conn, const struct sl_mp_rail *rail);
/* The bytes of a frame that waited are not needed any more: its credit goes back. */
void sl_mp_rx_release(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg);
/* Has a frame that waited copied into GPU memory. False: the way there is busy. */
bool sl_mp_rx_copy(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg);
/* Does a receive of any channel but this one wait? channel NULL: of any. */
bool sl_mp_rx_waits(const struct sl_mp_conn *conn, const struct sl_mp_channel *but);

/* message.c */
/* What could not be posted before. How many things moved. */
int sl_mp_conn_push(struct sl_mp_conn *ep);
/* No DROP of that channel is sent any more. */
void sl_mp_drops_forget(struct sl_mp_channel *channel);
/* What a connection took of the heap for its messages goes back. */
void sl_mp_forget(struct sl_mp_conn *conn);
/* Ends all that is pending with status. */
void sl_mp_cancel(struct sl_mp_conn *conn, int status);

/* cts.c */
/* A write of len bytes into that CTS arrived. */
void sl_mp_on_write(struct sl_mp_path *path, uint32_t id, uint32_t len);
/* The CTS that the peer means, or NULL. */
struct sl_mp_rx_cts *sl_mp_rx_cts_at(struct sl_mp_conn *conn, uint32_t id);
/* Sends what CTS the message may have now, as far as there is room. */
void sl_mp_cts_more(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg);
/* May a receive that sink describes name staging before its sender asks? */
bool sl_mp_cts_stages_early(const struct sl_mp_conn *conn, const struct sl_sink *sink);
void sl_mp_cts_announce(struct sl_mp_conn *ep);
/* A rail has new keys: the peer is to have them, too, for what it has not written. */
void sl_mp_cts_renew(struct sl_mp_conn *conn);
/* The message's length is known: its CTS frames end there, and bytes that came before may have been
 * all. */
void sl_mp_cts_trim(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg);
/* Memory of its CTS is no longer the peer's, which has not written: the tags or lengths differ, or
 * the message came in a frame. False: keys of it live; it ends, with that status, when they do. */
bool sl_mp_cts_take_back(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg, int status);
/* A message of conn->late: it waits for the end of keys, or ends. */
void sl_mp_cts_late(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg);
/* One end has closed the channel: CTS that the peer does not know of are none. Of an end that has
 * closed it itself, others stay without their message until the peer writes no more. */
void sl_mp_cts_withdraw(struct sl_mp_channel *channel);
/* The peer writes nothing more to the channel. */
void sl_mp_cts_free(struct sl_mp_channel *channel);
/* May the peer write to memory that the channel's user lent? */
bool sl_mp_cts_lent(const struct sl_mp_channel *channel);
/* No CTS is the peer's any more. */
void sl_mp_cts_cancel(struct sl_mp_conn *conn);

/* write.c */
void sl_mp_on_cts(struct sl_mp_channel *channel, const struct sl_mp_frame *frame,
                  const struct sl_mp_cts *told);
/* The peer has told of its rails: keys that it told before of one which has others now are no
 * more. */
void sl_mp_tx_keys_check(struct sl_mp_conn *conn);
/* Deals bytes that are clear to send over the paths. How many pieces were posted. */
int sl_mp_deal(struct sl_mp_conn *ep);
/* A piece has arrived, or not: give up its staging, count or repeat it. */
void sl_mp_piece_over(struct sl_mp_conn *conn, const struct sl_mp_piece *piece);
void sl_mp_piece_redo(struct sl_mp_conn *conn, const struct sl_mp_piece *piece);
/* Is what wants a message of a tag and length, or of fewer bytes, for one of these? */
static inline bool sl_mp_suits(uint64_t tag, uint64_t len, uint64_t wanted, uint64_t total,
                               bool shorter)
{
    return tag == wanted && (len == total || (shorter && len < total));
}

/* Is the CTS for a message of this tag and length? */
static inline bool sl_mp_cts_fits(const struct sl_mp_tx_cts *cts, uint64_t tag, uint64_t len)
{
    return sl_mp_suits(tag, len, cts->tag, cts->total, cts->shorter);
}

void sl_mp_tx_cts_free(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts);
/* Takes it out of those that came before their message. */
void sl_mp_early_take(struct sl_mp_tx_cts *cts);
/* Binds CTS frames that came before their message was sent. */
void sl_mp_tx_bind_cts(struct sl_mp_channel *channel, struct sl_mp_tx_msg *msg);
/* One end has closed the channel: nothing more of its messages is posted. */
void sl_mp_tx_stop(struct sl_mp_channel *channel);
void sl_mp_write_cancel(struct sl_mp_conn *ep);

#endif
