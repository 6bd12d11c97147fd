/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm transport inside: what its files share.
 *
 *     shm.c      operations table, open and close, probe, the progress loop and its housekeeping
 *     link.c     from ep_create to "data may flow"
 *     socket.c   what the socket brings from then on, and the end of an endpoint
 *     send.c receive.c arrive.c data.c     messages through the rings, and their progress
 *     channel.c  opens and closes channels, and ends what is posted (drop.c)
 *     large.c    large messages, read out of the sender's memory
 *     park.c     sleep without losing a wake-up
 *     map.c      memory that peers map
 *     read.c     process_vm_readv
 *     segment.c room.c    shared files: made, reserved, sealed, checked, mapped
 *     pass.c wire.c       unix socket messages with descriptors, and their checks
 *
 * One thread drives an interface with everything on it. Sockets are looked at rarely (they carry
 * set-up, control messages and the news of a death); the rings of endpoints that have something
 * posted are looked at in every progress call, no others.
 */
#ifndef SL_SHM_SHM_H
#define SL_SHM_SHM_H

#include "core/channel.h"
#include "core/err.h"
#include "core/list.h"
#include "core/pending.h"
#include "core/transport.h"
#include "shm/pass.h"
#include "shm/segment.h"
#include "shm/wire.h"

#include <stdbool.h>
#include <sys/types.h>

/* Posted receives of one channel, and posted sends of one endpoint (channel.c says what more): a
 * power of two. */
#define SHM_POSTED_MAX 64

/* Messages from this size on are lent, where that is agreed: below, two copies cost less than a
 * call. */
#define SHM_LARGE_MIN (64u << 10)

/* Most bytes of an element that a piece may have to keep whole for consume. */
#define SHM_CARRY_MAX 256

/* Connections that have proved nothing, at most. */
#define SHM_PENDING_MOST 256

struct shm_iface;
struct shm_ep;

/* Something that epoll watches. ready must not free what belongs to any source: shm_settle()
 * does. */
struct shm_source {
    int fd; /* -1: none */
    void (*ready)(struct shm_iface *iface, struct shm_source *source);
};

/* What an interface shows to all its peers, who map it for reading alone. */
struct shm_page {
    _Atomic uint32_t asleep; /* 0, or the number of this sleep */
    uint8_t pad[60];
    /* a random word: who reads it here and by process_vm_readv knows that it works */
    uint64_t trial;
};

/* A connection that has not yet said which endpoint it wants, or whose endpoint is not ready: the
 * latter has proved itself (SL_PENDING_PROVED). */
struct shm_pending {
    struct sl_pending base;
    struct shm_source source;
    struct shm_hello hello;
    int fds[SHM_FDS_MAX];
    unsigned fd_count;
    struct sl_node gone; /* in iface->gone once it is closed: it is freed after all events */
};

struct shm_iface {
    struct sl_iface base;
    struct sl_transport_ops ops; /* sl_shm_ops, completed */
    struct shm_source listener, event, timer;
    int epoll_fd, page_fd;
    int spare_fd; /* given up to tell a peer that no descriptor is left; -1: it is given up */
    struct shm_page *page;
    char name[SHM_NAME_MAX];
    uint16_t name_len;
    uint8_t host[16];
    bool barrier; /* membarrier(GLOBAL_EXPEDITED) works and all peers take part */
    bool events_due;
    uint32_t sleeps;
    unsigned polls;      /* progress calls since sockets were looked at */
    unsigned connecting; /* endpoints between connect and up: the sockets bring what they need */
    unsigned chores;     /* endpoints that wait for time to pass */
    unsigned ep_count;
    uint64_t look_ns;      /* when to look at the sockets again */
    struct sl_node eps;    /* all, by shm_ep.node */
    struct sl_node active; /* with something posted, by shm_ep.active */
    struct sl_pending_set pending;
    struct sl_pending_log pending_log;
    struct sl_node gone;                        /* shm_pending that are closed */
    uint64_t accept_after_ns;                   /* not 0: descriptors ran out */
    uint64_t accept_since_ns, accept_failed_ns; /* ... first and last at these times */
    bool accept_due;         /* connections wait at the listener, which is not watched */
    struct sl_node regions;  /* shm_region, ids rising */
    uint64_t region_id;      /* the last one given */
    size_t stream_min;       /* messages from this size on are stored past the caches */
    const char *read_reason; /* why SL_CAP_READ is off, or NULL */
    bool large_weighed;      /* whether reading is better has been looked into */
    char large_why[48];      /* ... and what that gave, for reports */
    uint8_t *stage;          /* where consume's bytes are read to; NULL: large messages by ring */
};

enum shm_state {
    SHM_NEW,
    SHM_DIAL,    /* HELLO must be sent; the peer's queue may be full: tried again and again */
    SHM_ASKED,   /* HELLO is sent, WELCOME expected */
    SHM_AWAITED, /* the peer dials */
    SHM_ANSWER,  /* WELCOME must be sent, as HELLO above */
    SHM_DOOMED,  /* the connection failed; progress tells */
    SHM_UP,
    SHM_LOST,
};

struct shm_channel;

/* A send that waits for room in the ring; or, without a request, the close of a channel. */
struct shm_posted_send {
    struct sl_node link; /* in shm_ep.sends, or in spare_sends */
    struct shm_channel *channel;
    const uint8_t *bytes;
    uint64_t len, off, tag;
    struct sl_req *req;
};

/* A message that lies in the ring as an address: its bytes are the peer's until it took the
 * cell. */
struct shm_lent {
    uint64_t pos, len;
    struct sl_req *req;
    uint32_t channel;
};

struct shm_posted_recv {
    const struct sl_sink *sink; /* lent, and handed to consume as it is: it may be part of more */
    struct sl_req *req;
};

/* The peer's last cell of a channel is its close, so sl_channel.sent and came are not counted. */
struct shm_channel {
    struct sl_channel base;
    unsigned recv_first; /* of base.posted receives */
    unsigned send_count; /* in shm_ep.sends */
    bool closing;        /* own is there: the close waits for a cell */
    /* The one place in shm_ep.sends that no other channel takes. */
    struct shm_posted_send own;
    struct shm_posted_recv recvs[SHM_POSTED_MAX];
};

struct shm_ep {
    struct sl_ep base;

    /* Sending. Positions count cells from the beginning of time; head and freed count bytes of the
     * room. */
    struct shm_lane tx;
    uint64_t tx_pos, tx_done;   /* next cell; cells given back, as last seen */
    uint64_t tx_head, tx_freed; /* bytes allotted; bytes given back */
    uint32_t tx_at;             /* next place in the room */
    unsigned queued, lent_count;
    struct sl_node sends; /* shm_posted_send, queued of them, in the order of the ring */
    unsigned send_count;  /* of them with a request */
    unsigned lent_first;

    /* Receiving. */
    struct shm_lane rx;
    uint64_t rx_pos;
    struct sl_channels channels; /* of struct shm_channel */
    /* The message under way, or the last one: where it goes and whose receive it ends, both NULL
     * when it is dropped. */
    const struct sl_sink *rx_sink;
    struct sl_req *rx_req;
    uint64_t rx_len, rx_off, rx_tag;
    int rx_status; /* 0, or why it is dropped: -EPROTO, -EMSGSIZE, -ECANCELED */
    uint32_t rx_channel;
    /* Channels closed here, by the peer not yet: its messages are dropped. */
    unsigned half_closed;
    bool rx_open; /* a message is under way: its first piece was taken */
    bool rx_lent; /* the message under way is read from rx_addr, in the peer */
    bool keeps;   /* a message was kept: receives may be due */
    bool woke;    /* something was published since the peer was last looked after */
    uint32_t carry_len;
    uint64_t rx_addr, rx_head; /* the head of its cell, as it was */

    uint32_t piece_max;
    bool is_active, damaged;
    bool leaving;  /* the peer is gone, its last messages are not */
    bool graceful; /* ... and it said good-bye */
    bool backlog;  /* regions remain to be told */
    bool gap;      /* a message went with the endpoint: the ring's are not the next */
    uint8_t state;
    uint32_t woken; /* the number of the peer's sleep that we have ended */
    struct sl_node active, node;
    uint64_t sent, received; /* bytes */
    int status;              /* why it is lost or doomed */
    char why[SHM_TEXT_MAX];

    struct shm_segment segment;
    struct shm_source source, death; /* socket; pidfd */
    struct shm_page *peer_page;
    int peer_event;
    pid_t peer_pid;
    struct shm_addr addr;        /* ours */
    struct shm_addr peer_addr;   /* theirs, once known */
    struct shm_pending *pending; /* came before ep_connect() */
    struct sl_req *connect_req;
    uint64_t deadline_ns;
    int segment_fd; /* until it is passed */
    uint32_t ring_bytes, cells;
    uint64_t told_region;  /* the last id that the peer was told */
    uint64_t heard_region; /* the last id that the peer told */
    unsigned peer_region_count;
    struct sl_node peer_regions;
    int read_state;      /* 1: works, 0: not tried, negative: does not */
    uint64_t trial_addr; /* where its page lies in the peer */

    uint64_t *room_end; /* tx_head after each cell, [cells] */
    struct sl_node spare_sends;
    struct shm_posted_send send_places[SHM_POSTED_MAX];
    struct shm_lent lent[SHM_POSTED_MAX];
    uint8_t carry[SHM_CARRY_MAX];
};

/* A region that this interface registered. */
struct shm_region {
    struct sl_node node;
    uint64_t id, len, fd_off;
    int fd; /* borrowed */
};

static inline struct shm_iface *shm_iface_of(struct sl_iface *iface)
{
    return (struct shm_iface *)iface;
}

static inline struct shm_ep *shm_ep_of(struct sl_ep *ep)
{
    return (struct shm_ep *)ep;
}

/* NULL: it is not known here. */
static inline struct shm_channel *shm_channel_find(struct shm_ep *ep, uint32_t id)
{
    return (struct shm_channel *)sl_channels_find(&ep->channels, id);
}

static inline struct shm_iface *shm_ep_iface(struct shm_ep *ep)
{
    return (struct shm_iface *)ep->base.iface;
}

/* shm.c */
int shm_watch(struct shm_iface *iface, struct shm_source *source, uint32_t events);
/* Stops watching and closes. */
void shm_source_close(struct shm_iface *iface, struct shm_source *source);

/* link.c */
int shm_ep_create(struct sl_iface *iface, struct sl_ep **out);
int shm_ep_addr(struct sl_ep *ep, struct sl_addr *out);
int shm_ep_connect(struct sl_ep *ep, const struct sl_addr *peer, struct sl_req *req);
/* The connection failed for the reason in the last error; the next progress ends the request. */
void shm_ep_doom(struct shm_ep *ep, int status);
/* A descriptor in reserve, for the moment in which there is no other: a peer can be told of it
 * then. */
void shm_spare_keep(struct shm_iface *iface);
void shm_spare_use(struct shm_iface *iface);

/* Closes a connection that came and is nobody's; shm_settle() frees it. */
void shm_pending_end(struct shm_iface *iface, struct shm_pending *pending);
/* Of a ring one way, for a process with that many peers. */
uint32_t shm_ring_bytes(const struct sl_config *config, unsigned peers);
void shm_listener_ready(struct shm_iface *iface, struct shm_source *source);
/* Retries, deadlines and departures: whatever time brings. Returns how many things moved. */
int shm_settle(struct shm_iface *iface, uint64_t now_ns);
/* Closes the listener, and all that came to it. */
void shm_stop_listening(struct sl_iface *iface);

/* socket.c */
/* What peer_asleep points to while no peer is mapped. */
extern const _Atomic uint32_t shm_always_awake;
void shm_ep_destroy(struct sl_ep *ep);
int shm_ctrl(struct sl_ep *ep, const void *msg, size_t len);
/* Of a connection that is made, or about to be. */
void shm_socket_ready(struct shm_iface *iface, struct shm_source *source);
/* A child that the peer forked holds the peer's socket open after the peer's death; a pidfd tells
 * of the process itself. Where the peer's pid is not visible (another pid namespace) the socket
 * must do. */
void shm_watch_process(struct shm_ep *ep);
/* The peer is gone: delivers what it left in the ring. True when it is over. */
bool shm_settle_leaving(struct shm_ep *ep);
/* The endpoint is lost: tells the handler, then ends what is posted. From progress only. */
void shm_ep_lose(struct shm_ep *ep, int status, const char *why);

/* send.c */
int shm_send(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req);
/* For a call on an endpoint that is not up, or on no open channel of it: why. */
int shm_refused(struct shm_ep *ep, uint32_t channel);
/* Is there a send that the peer has not taken whole? */
bool shm_ep_sending(struct shm_ep *ep);

/* receive.c */
int shm_recv(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req);
/* Is there something in the ring that no recv has taken? */
bool shm_ep_unread(const struct shm_ep *ep);
/* Does the peer's ring need a look: is something of it waited for, or dropped as it comes? */
static inline bool shm_ep_receives(const struct shm_ep *ep)
{
    return (ep->channels.wanting | ep->half_closed | ep->rx_open) != 0;
}

/* arrive.c */
/* Takes the closes that are next, though nobody waits for what is behind them: of a peer that has
 * left. */
void shm_take_closes(struct shm_ep *ep);

/* data.c */
int shm_data_init(struct shm_ep *ep);
/* Data may flow: closes of channels may wait already. */
void shm_ep_begin(struct shm_ep *ep);
/* Moves what is posted on ep, ends at most *budget requests. Returns how many things moved. */
int shm_ep_run(struct shm_ep *ep, unsigned *budget);
/* Could shm_ep_run() move something? */
bool shm_ep_ready(struct shm_ep *ep);

/* channel.c */
/* Of an endpoint that is made. -ENOMEM. */
int shm_channels_init(struct shm_ep *ep);
int shm_channel_open(struct sl_ep *ep, uint32_t id);
void shm_channel_close(struct sl_ep *ep, uint32_t id);
uint64_t shm_channel_traffic(const struct sl_ep *ep, uint32_t id);
bool shm_channel_starves(const struct sl_ep *ep, uint32_t id);
/* Is a message kept that no receive has claimed? */
bool shm_channels_keep(const struct shm_ep *ep);
/* Ends everything that is posted with status; what was kept whole can still be received. */
void shm_ep_lose_posted(struct shm_ep *ep, int status);
/* The same, with what is kept. */
void shm_ep_end_posted(struct shm_ep *ep, int status);

/* park.c */
bool shm_barrier_register(void);
int shm_fd(struct sl_iface *iface);
int shm_arm(struct sl_iface *iface);
void shm_disarm(struct sl_iface *iface);
void shm_wake(struct sl_ep *ep);
void shm_park_ready(struct shm_iface *iface, struct shm_source *source);

/* map.c */
int shm_mem_alloc(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out);
int shm_mem_back(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len);
void shm_mem_unback(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len);
void shm_mem_free(struct sl_iface *iface, struct sl_mem *mem);
int shm_mr_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
               struct sl_key *key);
void shm_mr_dereg(struct sl_iface *iface, struct sl_mr *mr);
int shm_map(struct sl_ep *ep, const struct sl_key *key, size_t len, void **out);
void shm_unmap(struct sl_ep *ep, void *ptr);
/* Tells the peer of regions that it does not know. True: more remain, its socket is full. */
bool shm_announce(struct shm_ep *ep);
/* The peer told of a region; fd is taken over. */
int shm_heard_region(struct shm_ep *ep, const struct shm_region_msg *msg, int fd);
void shm_heard_drop(struct shm_ep *ep, uint64_t id);
void shm_forget_regions(struct shm_ep *ep);

/* read.c */
/* Decides whether this process may read the memory of ep's peer, whose page lies at addr there. */
void shm_read_try(struct shm_ep *ep, uint64_t addr);
int shm_read(struct sl_ep *ep, uint64_t addr, void *dst, size_t len, struct sl_req *req);
/* Why no process may be read here at all, or NULL. */
const char *shm_read_refused(const struct sl_config *config);
/* 0 or a negative errno; addr is never looked at here. */
int shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len);
/* A dead peer's pid may already be somebody else's: what was read counts only if it still lives. */
bool shm_still_there(const struct shm_ep *ep);

/* large.c */
/* The trial read of ep's peer worked: offers to read its large messages where that is better. */
void shm_large_offer(struct shm_ep *ep);
/* May a message of len bytes be lent here, at addr in the peer? */
bool shm_large_possible(const struct shm_ep *ep, uint64_t addr, uint64_t len);
/* Reads the next piece of the message under way, whose cell is not given back here. 1: that was
 * all, or it is dropped (rx_status); 0: more is to come; -ECANCELED: its sender has taken it back;
 * other codes: it cannot be read. */
int shm_large_take(struct shm_ep *ep);
/* Loses the endpoint, as its peer is gone. Returns the status. */
int shm_large_lose_gone(struct shm_ep *ep);
/* Which way large messages go. */
void shm_large_describe(const struct shm_ep *ep, char *out, size_t cap);

/* copy_*.c */
/* memcpy past the caches: for results that nobody on this core reads soon. */
void shm_copy_stream(void *dst, const void *src, size_t len);

#endif
