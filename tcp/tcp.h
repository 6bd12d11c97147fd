/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the files of the tcp transport.
 *
 *   tcp.c     interfaces, and the table of the contract's operations
 *   ep.c      an endpoint from its making to its end
 *   agree.c   conclusions of both ends from both addresses
 *   progress.c  which sockets get a turn, and when the engine is asked
 *   conn.h    how connections come about: listen.c, pending.c, dial.c, conn.c; and again: redial.c
 *   send.c    messages cut into frames over the data connections
 *   receive.c frames put together to messages; match.c: which receive a frame is for
 *   channel.c several orders of messages on one endpoint
 *   engine.h  how sockets report that they are ready: epoll.c, uring.c
 *   frame.c   the bytes on the wire; address.c: those of an address; proof.c: proofs of both ends
 *   tls.h     encrypted connections
 *
 * An endpoint has one control connection (index 0), which is always read, and data connections
 * (from 1), which are read only as far as receives are posted: TCP itself holds back a sender.
 */
#ifndef SL_TCP_TCP_H
#define SL_TCP_TCP_H

#include "core/channel.h"
#include "core/config.h"
#include "core/crc.h"
#include "core/list.h"
#include "core/err.h"
#include "core/pending.h"
#include "core/state.h"
#include "core/transport.h"
#include "tcp/address.h"
#include "tcp/engine.h"
#include "tcp/frame.h"
#include "tcp/netif.h"
#include "tcp/proof.h"
#include "tcp/tls.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SL_TCP_QUEUE 256 /* sends, and receives, pending on one channel */
#define SL_TCP_FEW 8     /* receives that need no memory but the channel's */
#define SL_TCP_CARRY 16  /* the same, bytes of an element that was cut */
/* Read ahead on one connection: small frames come together, one of 8 KiB with room to spare, which
 * shows that it was all. */
#define SL_TCP_RX_BYTES (8192 + 2 * SL_TCP_FRAME_BYTES)
#define SL_TCP_STAGING_BYTES (256 << 10) /* stays in L2 while consume() reads the bytes of recv() */
#define SL_TCP_GRANULE_MAX 4096
#define SL_TCP_PENDING 512   /* accepted connections that are nobody's yet, at most */
#define SL_TCP_CTRL_QUEUE 32 /* control messages waiting for the socket */

enum sl_tcp_conn_state {
    SL_TCP_CLOSED,
    SL_TCP_DIALLING, /* connect() under way */
    SL_TCP_GREETED,  /* our hello is out, the answer is not in */
    SL_TCP_SECURING, /* both have proved themselves; TLS is on its way */
    SL_TCP_OPEN,
};

/* The piece of a message that a connection is sending. */
struct sl_tcp_tx_piece {
    bool active;
    uint32_t len, sent; /* payload bytes */
    uint32_t header_sent;
    uint64_t number;   /* of the send: see tx_head */
    const uint8_t *at; /* the next payload byte */
    uint8_t *own;      /* where these lie once the send is over; owned */
    uint8_t header[SL_TCP_FRAME_BYTES];
};

struct sl_tcp_conn {
    struct sl_tcp_watch watch; /* first: the engine hands it back */
    struct sl_tcp_ep *ep;
    struct sl_node ready; /* in iface->ready while there is something to try */
    bool is_ready;
    bool eof;     /* the peer will send no more */
    bool stalled; /* frame is for a receive that is not posted, or not its turn */
    bool have_frame;
    uint8_t idx;
    uint8_t state;           /* enum sl_tcp_conn_state */
    uint16_t hello_len;      /* of the answer, so far */
    uint32_t rx_pos, rx_end; /* unread part of rx */
    uint32_t piece_got;      /* payload bytes of frame that arrived */
    uint32_t crc;            /* over them */
    uint32_t last_channel;   /* of the frame before; the rest holds for that channel */
    uint32_t next_seq;       /* least that the next frame may carry */
    uint64_t next_off;
    struct sl_tcp_frame frame;
    struct sl_tcp_tx_piece tx;
    uint64_t deadline_ns; /* of the connect() under way */
    uint8_t *rx;          /* SL_TCP_RX_BYTES */
    struct sl_tls *tls;   /* owned; NULL: the socket carries our bytes as they are */
};

struct sl_tcp_tx_slot {
    const uint8_t *addr;
    uint64_t len, tag;
    uint64_t assigned;              /* bytes given to connections */
    uint64_t written;               /* bytes the kernel took */
    struct sl_req *req;             /* NULL once it has ended */
    struct sl_tcp_channel *channel; /* NULL once that is closed */
    uint32_t seq;
    bool over;
};

enum sl_tcp_rx_state { SL_TCP_RX_POSTED, SL_TCP_RX_GOING, SL_TCP_RX_DROPPING, SL_TCP_RX_DONE };

struct sl_tcp_rx_slot {
    const struct sl_sink *sink; /* NULL: the bytes are dropped */
    struct sl_req *req;         /* NULL once it has ended */
    uint64_t total, tag;        /* of the first frame */
    uint64_t got;               /* bytes that arrived, of all pieces */
    uint64_t consumed;          /* bytes given to consume() */
    uint64_t drained_ns;        /* when all that had come of it was read first; 0: not yet */
    uint64_t drained_got;       /* and how much that was */
    uint8_t state;
    bool wanted; /* a receive waits for it */
    bool kept;   /* sink and req are those of a struct sl_kept */
};

/* One order of messages, each way. */
struct sl_tcp_channel {
    struct sl_channel base; /* first; came: messages that are over, received or dropped */
    uint32_t tx_pending;    /* sends */
    uint32_t rx_mask;
    struct sl_tcp_rx_slot *rx; /* [rx_mask + 1]; its own few, or owned */
    /* Messages: the oldest that is not over, the next without a slot, the next without a receive.
     * Run free; a slot is at its number & rx_mask. */
    uint64_t rx_head, rx_tail, rx_next;
    /* Of a channel that an end has closed in the middle of a message, its last one: so many bytes
     * are sent of it. */
    uint64_t tx_cut, rx_cut;
    uint32_t carry_len; /* bytes at the end of the last delivery, less than a granule */
    uint32_t carry_room;
    uint8_t *carry;         /* its own, or owned */
    struct sl_node closing; /* in ep->closing */
    bool close_said;
    uint8_t small_carry[SL_TCP_CARRY];
    struct sl_tcp_rx_slot few[SL_TCP_FEW];
};

struct sl_tcp_ctrl_msg {
    uint16_t len;
    uint8_t bytes[SL_TCP_FRAME_BYTES + SL_CTRL_ROOM];
};

struct sl_tcp_queues {
    struct sl_tcp_tx_slot tx[SL_TCP_QUEUE];
    struct sl_tcp_ctrl_msg ctrl[SL_TCP_CTRL_QUEUE];
};

enum sl_tcp_ep_state { SL_TCP_EP_NEW, SL_TCP_EP_CONNECTING, SL_TCP_EP_UP, SL_TCP_EP_DOWN };

struct sl_tcp_ep {
    struct sl_ep base;
    struct sl_node link;   /* in iface->eps */
    struct sl_node active; /* in iface->active while receives are posted or sends wait */
    struct sl_node news;   /* in iface->news until progress reports it */
    bool is_active, has_news, is_failing, connect_over, dials, crc, tls, bye, same_host;
    bool redials;     /* it takes the place of one that was connected */
    bool at_first;    /* the peer is, or was, at the first of targets */
    bool peer_gone;   /* nobody is there any more */
    uint32_t attempt; /* the next one; of the end that does not dial: this one, or the least */
    /* on both sides auto, on what seems one host: the connection itself decides */
    bool crc_by_path;
    uint8_t state;                 /* enum sl_tcp_ep_state */
    struct sl_tls_terms tls_terms; /* of both ends */
    uint8_t token[SL_TCP_TOKEN_BYTES];
    uint8_t name[SL_TCP_NAME_BYTES], peer_name[SL_TCP_NAME_BYTES];
    uint8_t link_key[SL_DIGEST_BYTES]; /* once the peer's address is known */
    struct sl_tcp_iface *iface;
    struct sl_tcp_conn *conns; /* [1 + data_conns]; 0 is control */
    unsigned data_conns, open_conns, tx_next_conn, poll_conn;
    int down_status;
    char *why; /* of down_status (sl_text_set) */

    struct sl_req *connect_req;
    int connect_status; /* once connect_over */
    uint64_t connect_deadline_ns;
    struct sl_tcp_target targets[SL_TCP_ADDRS]; /* the peer's addresses, best first */
    unsigned target_count, target_idx;
    /* the first that took a connection and did not answer in its time */
    const struct sl_tcp_target *late;
    char local_text[64], peer_text[64];
    struct sl_tcp_knock *knock; /* owned; of one that redials and does not dial */
    char *tried; /* the result of each address, for the error (sl_text_set); NULL: none yet */
    int tried_status;

    struct sl_channels channels; /* of struct sl_tcp_channel */
    struct sl_node closing;      /* channels whose end the peer must learn */
    /* Sends: oldest unfinished, next to give out, next to post. Run free; a slot is at its number &
     * tx_mask. */
    uint64_t tx_head, tx_assign, tx_tail;
    uint32_t tx_mask;
    uint32_t rx_open; /* messages that are awaited or under way, of all channels */
    uint32_t piece_bytes;
    struct sl_req *inline_req; /* the send under way in send(): its end is its return value */
    bool inline_done;
    uint64_t sent_bytes, received_bytes;
    /* Rests of messages that were waited for when all before them was read: so much time passed,
     * for so many bytes of so many messages. */
    uint64_t arriving_ns, arriving_bytes, arriving_messages;
    struct sl_state_quickest quickest[2];
    unsigned ctrl_head, ctrl_count;
    uint32_t ctrl_sent; /* bytes of the oldest queued control message that are out */
    uint32_t ctrl_seq, ctrl_seq_in;
    struct sl_tcp_queues *queues; /* owned */
    struct sl_tcp_tx_slot *tx;    /* [tx_mask + 1]: of queues, or owned */
    struct sl_tcp_ctrl_msg *ctrl; /* [SL_TCP_CTRL_QUEUE]: of queues */
};

/* An accepted connection without an endpoint yet.
 * SL_PENDING_PROVED: it named an endpoint that was not connecting yet. Once that is, it gets our
 * answer, and is SL_PENDING_ASKED for its proof. */
struct sl_tcp_pending {
    struct sl_tcp_watch watch; /* first */
    struct sl_pending base;
    bool used;
    bool answered; /* it has our answer, and its proof is awaited */
    uint16_t got;  /* of the hello, then of the proof */
    struct sl_tcp_hello hello;
    uint8_t bytes[SL_TCP_HELLO_BYTES];
    uint8_t welcome[SL_TCP_WELCOME_BYTES];
    uint8_t proof[SL_TCP_PROOF_BYTES];
};

struct sl_tcp_iface {
    struct sl_iface base;
    struct sl_transport_ops ops; /* sl_tcp_ops, completed */
    const struct sl_config *config;
    const struct sl_tcp_engine_ops *engine_ops;
    void *engine;
    /* one for each of the first netifs; fd -1: none there */
    struct sl_tcp_watch listeners[SL_TCP_ADDRS];
    bool local_only; /* those of loopback alone */
    uint16_t port;
    uint8_t host_id[16];
    char congestion[16];
    struct sl_netif_list netifs;
    struct sl_node eps, active, ready, news;
    struct sl_tls_context *tls; /* owned; NULL: SLUICE_TCP_TLS is off */
    unsigned active_count, connecting;
    uint64_t accept_after_ns; /* not 0: descriptors ran out */
    uint64_t round, next_timer_ns;
    uint64_t closing_round; /* in which an endpoint was last destroyed, and */
    unsigned unsent_ms;     /* the time that those of it have waited to be heard */
    bool striped;           /* some endpoint has several data connections */
    int budget;             /* requests that may still end in this progress */
    struct sl_pending_set pending_set;
    struct sl_pending_log pending_log;
    struct sl_tcp_pending *pending; /* [SL_TCP_PENDING] */
    uint8_t *staging;               /* [SL_TCP_STAGING_BYTES + SL_TCP_GRANULE_MAX] */
};

/* conn.c */
/* Starts connecting: dials, or adopts connections that came early. */
int sl_tcp_connect_start(struct sl_tcp_ep *ep);
/* An endpoint that connects is failing: it will not be connected. */
void sl_tcp_connect_lost(struct sl_tcp_ep *ep);
/* Deadlines of hellos and connects. */
void sl_tcp_timers(struct sl_tcp_iface *iface);
void sl_tcp_conn_close(struct sl_tcp_conn *conn);

/* listen.c */
/* On the addresses that are published, all by one port. */
int sl_tcp_listen(struct sl_tcp_iface *iface);
/* No peer comes from outside: loopback alone, where it is among them. Before the first address is
 * told. */
void sl_tcp_listen_locally(struct sl_tcp_iface *iface);
void sl_tcp_unlisten(struct sl_tcp_iface *iface);

/* pending.c */
/* Engine events of sockets that are not open connections. */
void sl_tcp_accept(struct sl_tcp_iface *iface);
void sl_tcp_pending_event(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending);
/* Closes pending connections for an endpoint that goes away. */
void sl_tcp_pending_forget(struct sl_tcp_ep *ep);

/* dial.c */
/* The same of a connection that is not open yet: the dialling end's, or either's in the TLS
 * handshake. */
void sl_tcp_dial_event(struct sl_tcp_conn *conn);

/* send.c */
int sl_tcp_send(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req);
/* One try to write; how many things moved. */
int sl_tcp_conn_tx(struct sl_tcp_conn *conn);
/* A channel is closed: sends that have not begun vanish, and others go on without the
 * caller's memory. Their requests go into ended. */
void sl_tcp_drop_sends(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel, struct sl_node *ended);
/* All sends are over: their requests go into ended. */
void sl_tcp_forget_sends(struct sl_tcp_ep *ep, struct sl_node *ended);

/* receive.c */
/* One try to read; how many things moved. */
int sl_tcp_conn_rx(struct sl_tcp_conn *conn);
/* After the peer's farewell: the endpoint fails once a receive waits for a message that cannot
 * come, or all that was sent has been received. */
void sl_tcp_check_end(struct sl_tcp_ep *ep);

/* match.c */
int sl_tcp_recv(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req);
/* The slot that the connection's frame may be delivered to now, and its channel. NULL: stalled, or
 * the endpoint failed. */
struct sl_tcp_rx_slot *sl_tcp_rx_target(struct sl_tcp_conn *conn, struct sl_tcp_channel **channel);
/* The slot's message is over, received or dropped. Neither slot nor channel is valid after it. */
void sl_tcp_rx_finish(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                      struct sl_tcp_rx_slot *slot);
/* The message that the peer cut when it closed the channel is over here once no receive wants it
 * and all that was sent of it came. True: it is, as by sl_tcp_rx_finish(). */
bool sl_tcp_rx_cut(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel);
/* Messages that were begun, as far as is known here. */
uint64_t sl_tcp_rx_seen(const struct sl_tcp_channel *channel);
/* The receive that a stalled connection waited for may be there now: try again. */
void sl_tcp_unstall(struct sl_tcp_ep *ep);
/* A channel is closed, or the endpoint lost: no receive wants its messages any more. Their requests
 * go into ended. */
void sl_tcp_drop_receives(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                          struct sl_node *ended);

/* channel.c */
int sl_tcp_channels_init(struct sl_tcp_ep *ep);
void sl_tcp_channels_fini(struct sl_tcp_ep *ep);
int sl_tcp_channel_open(struct sl_ep *ep, uint32_t channel);
void sl_tcp_channel_close(struct sl_ep *ep, uint32_t channel);
uint64_t sl_tcp_channel_traffic(const struct sl_ep *ep, uint32_t channel);
bool sl_tcp_channel_starves(const struct sl_ep *ep, uint32_t channel);
/* On a message of a channel that is not known here. NULL: the endpoint failed. */
struct sl_tcp_channel *sl_tcp_channel_get(struct sl_tcp_ep *ep, uint32_t id);
/* The peer's CLOSE came. 0, or the status that the endpoint failed with. */
int sl_tcp_channel_peer_closed(struct sl_tcp_ep *ep, const struct sl_tcp_frame *frame);
/* The next CLOSE for the peer; false: there is none. */
bool sl_tcp_channel_next_close(struct sl_tcp_ep *ep, struct sl_tcp_frame *frame);
/* Forgets a closed channel that is over. */
void sl_tcp_channel_check_over(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel);
/* Messages are kept that no receive has taken yet. */
bool sl_tcp_channels_keep(const struct sl_tcp_ep *ep);
/* Ends all that is pending with status; what was kept whole can still be received. */
void sl_tcp_lose(struct sl_tcp_ep *ep, int status);
/* The same, with what is kept. */
void sl_tcp_cancel(struct sl_tcp_ep *ep, int status);

/* control.c */
int sl_tcp_ctrl(struct sl_ep *ep, const void *msg, size_t len);
int sl_tcp_ctrl_rx(struct sl_tcp_conn *conn);
/* All that is there, up to a farewell. False: there may be more, of a peer that goes on and on. */
bool sl_tcp_ctrl_rx_all(struct sl_tcp_ep *ep);
int sl_tcp_ctrl_tx(struct sl_tcp_conn *conn);
/* Best effort: the peer then knows an orderly end from a crash. */
void sl_tcp_say_bye(struct sl_tcp_ep *ep);

/* redial.c */
int sl_tcp_ep_redial(struct sl_ep *ep, struct sl_req *req, struct sl_ep **out);
void sl_tcp_knock_event(struct sl_tcp_knock *knock);

/* agree.c */
/* The conclusions of both from both addresses; the dialling end also where to dial. -EPROTO,
 * -EHOSTUNREACH. */
int sl_tcp_agree(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer);
uint8_t sl_tcp_wanted_crc(const struct sl_config *config);
/* Settles whether frames carry checksums, and how long they are. */
void sl_tcp_ep_set_crc(struct sl_tcp_ep *ep, bool crc);

/* ep.c */
int sl_tcp_ep_create(struct sl_iface *base, struct sl_ep **out);
int sl_tcp_ep_addr(struct sl_ep *base, struct sl_addr *out);
int sl_tcp_ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req);
/* Its connections, closed. -ENOMEM. */
int sl_tcp_conns_make(struct sl_tcp_ep *ep);
void sl_tcp_ep_destroy(struct sl_ep *base);
void sl_tcp_ep_describe(const struct sl_ep *base, char *out, size_t cap);
/* stats.c */
struct sl_state_path;
size_t sl_tcp_ep_stats(const struct sl_ep *base, struct sl_state_path *out, size_t cap);
/* "4 connections": those for messages. */
void sl_tcp_conns_describe(const struct sl_tcp_ep *ep, char *out, size_t cap);
/* Notes that the endpoint is lost; the next progress tells its owner. Returns status. */
int sl_tcp_ep_fail(struct sl_tcp_ep *ep, int status, const char *fmt, ...) SL_PRINTF(3, 4);
/* Puts the endpoint on the list for progress. */
void sl_tcp_ep_news(struct sl_tcp_ep *ep);
/* A socket call on conn failed with err, or (0) the peer closed it. */
void sl_tcp_conn_lost(struct sl_tcp_conn *conn, int err);
/* The code and sentence for a call on an endpoint that is not up. */
int sl_tcp_not_up(const struct sl_tcp_ep *ep);
void sl_tcp_ep_activate(struct sl_tcp_ep *ep);
/* Does nothing while something is pending. */
void sl_tcp_ep_deactivate(struct sl_tcp_ep *ep);

/* progress.c */
int sl_tcp_progress(struct sl_iface *base, unsigned budget);
int sl_tcp_wake_fd(struct sl_iface *base);
int sl_tcp_arm(struct sl_iface *base);
/* So few endpoints are awaited that their sockets are asked, and the engine now and then only. */
bool sl_tcp_asks_sockets(const struct sl_tcp_iface *iface);
void sl_tcp_conn_ready(struct sl_tcp_conn *conn);
void sl_tcp_conn_unready(struct sl_tcp_conn *conn);
/* True while a try makes sense without another event of the engine. */
bool sl_tcp_conn_has_work(const struct sl_tcp_conn *conn);

/* As recv() that does not wait. */
static inline ssize_t sl_tcp_read(struct sl_tcp_conn *conn, void *out, size_t len)
{
    if (SL_UNLIKELY(conn->tls != NULL))
        return sl_tls_recv(conn->tls, conn->watch.fd, &(struct iovec){out, len}, 1);
    return recv(conn->watch.fd, out, len, MSG_DONTWAIT);
}

static inline uint32_t sl_tcp_payload_crc(const void *bytes, size_t len)
{
    return sl_crc32c(0, bytes, len);
}

static inline struct sl_tcp_iface *sl_tcp_iface_of(struct sl_iface *iface)
{
    return (struct sl_tcp_iface *)iface;
}

static inline struct sl_tcp_ep *sl_tcp_ep_of(struct sl_ep *ep)
{
    return (struct sl_tcp_ep *)ep;
}

/* NULL: it is not known. */
static inline struct sl_tcp_channel *sl_tcp_channel_find(struct sl_tcp_ep *ep, uint32_t id)
{
    return (struct sl_tcp_channel *)sl_channels_find(&ep->channels, id);
}

static inline struct sl_tcp_rx_slot *sl_tcp_rx_slot(const struct sl_tcp_channel *channel,
                                                    uint64_t number)
{
    return &channel->rx[number & channel->rx_mask];
}

#endif
