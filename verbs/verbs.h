/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the verbs transport share; docs/design/0007-rdma.md says how it works.
 *
 *   verbs.c    the operations of the contract; progress; sleep
 *   iface.c    interfaces · endpoint.c connections: made, up, lost, ended, and the sideband beside
 *              them
 *   device.c   ports and GIDs: what there is · probe.c lists it · plan.c which paths a connection
 *              has
 *   rail.c     an open port: its queues, completions, asynchronous events · slots.c receive buffers
 *   mr.c       registered memory, on every rail · gpu.c GPU memory
 *   path.c     a queue pair: made, connected, posted to, retired
 *   mlx5.c     routes that only NVIDIA's devices let us choose · stats.c what is told of paths
 *   talk.c     records: sent twice, handled once
 *   repair.c   what the two ends say to each other so that paths come, go and return
 *   fallback.c frames and writes over the sideband while no path is up
 *   message.c  sends, receives, frames in their order · write.c long messages: grants, pieces,
 *              staging
 *   frame.c record.c   bytes from the peer
 */
#ifndef SL_VERBS_VERBS_H
#define SL_VERBS_VERBS_H

#include "core/config.h"
#include "core/err.h"
#include "core/event.h"
#include "core/histogram.h"
#include "core/list.h"
#include "core/mem.h"
#include "core/transport.h"
#include "gdr/gpu.h"
#include "verbs/device.h"
#include "verbs/frame.h"
#include "verbs/record.h"

#include <stdbool.h>

#define SL_VERBS_PATHS_MAX 8
#define SL_VERBS_SQ_DEPTH 64 /* places for work requests of a path */
#define SL_VERBS_SQ_WRS                                                                            \
    63 /* of its queue pair: where a driver keeps one place free, 64 take double */
#define SL_VERBS_SQ_ROOM (SL_VERBS_SQ_WRS - 1) /* one place is for the mark */
#define SL_VERBS_MARK UINT32_MAX /* number of the last work request of a queue pair that stops */
#define SL_VERBS_WRITES_MAX 16   /* of them writes */
#define SL_VERBS_BATCH 16
#define SL_VERBS_TCP_DEPTH 15    /* units over the sideband; one place is for the last */
#define SL_VERBS_CREDITS 16      /* frames that a peer may have unhandled here */
#define SL_VERBS_SPARE_SLOTS 128 /* receive buffers besides those: for grants, writes, credits */
#define SL_VERBS_FULL_EPS                                                                          \
    64 /* so many connections have a buffer per credit; further ones share more */
#define SL_VERBS_SHARED_SLOTS 4 /* and add so many */
#define SL_VERBS_OWN_EPS                                                                           \
    0 /* up to so many connections have receive buffers of their own all the same */
#define SL_VERBS_OWN_SLOTS                                                                         \
    96 /* of a queue pair: more than its peer may have under way, and credits */
#define SL_VERBS_OWN_SLOTS_MIN 16 /* once the completion queue has room for few more */
#define SL_VERBS_BLOCK_SLOTS 64
#define SL_VERBS_BLOCKS_MAX 4096
#define SL_VERBS_TX_QUEUE 256  /* sends that wait or are under way; more get -EAGAIN */
#define SL_VERBS_RX_QUEUE 512  /* must be more than SL_VERBS_TX_QUEUE + SL_VERBS_CREDITS */
#define SL_VERBS_GRANTS 64     /* given and not complete */
#define SL_VERBS_TX_GRANTS 256 /* GRANTS, and those whose writes arrived but are not retired here */
#define SL_VERBS_TX_FRAMES 512 /* of an interface: frames until their completion */
#define SL_VERBS_RECORDS 64    /* that the peer has not handled */
#define SL_VERBS_REDO (SL_VERBS_PATHS_MAX * SL_VERBS_WRITES_MAX)
#define SL_VERBS_CHUNK_BYTES (256u << 10)
#define SL_VERBS_MAX_INLINE 256
#define SL_VERBS_ACCESS                                                                            \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) /* to registered memory */
#define SL_VERBS_STAGES_MAX 16 /* CUDA contexts whose memory is registered */
#define SL_VERBS_MAKES 16 /* queue pairs in one round of progress: each takes the kernel long */

struct sl_gpu_stage;
struct sl_verbs_iface;
struct sl_verbs_ep;

/* ---- pools ---- */

/* A frame to send: registered on every rail, kept until its completion so that it can be sent
 * again. */
struct sl_verbs_tx_frame {
    struct sl_node link; /* free, or in its connection's list of frames to repeat */
    uint8_t *bytes;
    uint32_t len;
};

/* Registered memory of our own, on every rail. */
struct sl_verbs_pool {
    uint8_t *bytes;
    size_t len;
    struct ibv_mr *mr[SL_VERBS_RAILS_MAX];
};

/* Pieces of staging memory: one half for what is sent, the other for what is received. */
struct sl_verbs_chunks {
    uint16_t *free;
    unsigned free_count;
};

/* The user's memory: a region on every usable rail. */
struct sl_verbs_mr {
    size_t len;
    struct ibv_mr *mr[SL_VERBS_RAILS_MAX];
    bool is_gpu;
    struct sl_gpu_memory gpu;
    struct sl_gpu_stage *stage;
};

/* ---- rails ---- */

/* Whose arrivals a queue pair's number stands for. */
struct sl_verbs_qpn {
    uint32_t qpn; /* 0: empty */
    struct sl_verbs_path *path;
};

#define SL_VERBS_SLOT_BIT (UINT64_C(1) << 63) /* in wr_id: a receive */
#define SL_VERBS_OWN_BIT (UINT64_C(1) << 62)  /* one of a queue pair's own */
#define SL_VERBS_SLOT_SHARED UINT32_MAX
#define SL_VERBS_SLOT_FREE (UINT32_MAX - 1)
#define SL_VERBS_SLOT_LEFT                                                                         \
    (UINT32_MAX - 2) /* its queue pair is gone, and it is in somebody's hands */

/* A receive buffer. */
struct sl_verbs_slot {
    /* place in iface->paths of the one whose queue it waits in, or one of the above */
    uint32_t owner;
    uint32_t stay; /* counts its times at the NIC */
    bool at_nic;
};

struct sl_verbs_rail {
    struct sl_verbs_iface *iface;
    unsigned idx;
    bool open, usable;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    bool is_mlx5, takes_dmabuf;
    uint8_t lag_ports; /* of a bond: how many; else 0 */
    unsigned max_inline, cq_events;
    struct sl_verbs_port port;
    struct sl_verbs_gid gid;
    uint64_t look_at_ns; /* not usable: when to read the port again */
    char why[160];       /* not usable, and why */
    /* receive buffers */
    struct sl_verbs_block {
        uint8_t *bytes;
        struct ibv_mr *mr;
        struct sl_verbs_slot *slots;
    } * blocks;
    unsigned block_count, shared_blocks, srq_room;
    unsigned slots_free; /* at the NIC, in the shared queue */
    /* while there are no more connections, queue pairs have queues of their own */
    unsigned own_eps;
    unsigned own_room, own_count,
        own_most;         /* places in such queues: how many there may be, are, and of one */
    uint32_t *free_slots; /* in no queue, and in nobody's hands */
    unsigned free_count;
    struct sl_verbs_qpn *qpns;
    uint32_t qpn_mask, qpn_count;
};

/* ---- paths ---- */

enum sl_verbs_path_state {
    SL_VERBS_PATH_IDLE,     /* no queue pair; the leading end tries at next_try_ns */
    SL_VERBS_PATH_OFFERED,  /* leading end: waits for ACCEPT */
    SL_VERBS_PATH_ACCEPTED, /* other end: connected, waits for the first ping */
    SL_VERBS_PATH_PINGING,  /* connected and has pinged; repair.c says for what it waits */
    SL_VERBS_PATH_UP,
    SL_VERBS_PATH_FENCING, /* was up and has ended here; waits for the other end's DOWN */
};

enum sl_verbs_wr_kind {
    SL_VERBS_WR_PING,
    SL_VERBS_WR_FRAME,
    SL_VERBS_WR_WRITE,
    SL_VERBS_WR_RECORD,
};

/* A part of a granted part of a message: what one write carries. */
struct sl_verbs_piece {
    struct sl_verbs_tx_grant *grant;
    uint64_t off; /* in the grant */
    uint32_t len;
    uint16_t chunk; /* staging that holds its bytes, or SL_VERBS_NO_CHUNK */
};
#define SL_VERBS_NO_CHUNK UINT16_MAX

/* A posted work request until it is retired. */
struct sl_verbs_wr {
    uint8_t kind;
    uint32_t len;
    uint64_t posted_ns; /* 0: not timed */
    union {
        struct sl_verbs_tx_frame *frame;
        struct sl_verbs_piece piece;
    };
};

struct sl_verbs_path_stats {
    uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
    uint64_t resent, failures, ups;
    uint64_t histogram[SL_HISTOGRAM_BINS]; /* of completion times: core/histogram.h */
};

struct sl_verbs_path {
    struct sl_verbs_ep *ep;
    uint8_t idx, state, remote_rail;
    bool tried;    /* came up or failed once */
    bool leads;    /* this end offers */
    bool failing;  /* has failed; the next progress acts on it */
    bool marked;   /* stopping: nothing older is to come from the completion queue */
    bool is_dirty; /* in iface->dirty: batch[] is to be posted */
    struct sl_node dirty;
    uint16_t epoch;
    uint16_t wc_status; /* of the completion that failed it, or 0 */
    uint32_t slot;      /* in iface->paths: part of wr_id */
    struct sl_verbs_rail *rail;
    struct ibv_qp *qp;
    struct sl_verbs_gid gid; /* of the rail, chosen for this peer */
    uint32_t psn, flow_label;
    uint8_t lag_port;   /* of the rail's bond: as the path list says; 0: the driver's choice */
    uint8_t lag_active; /* by which it leaves, as the driver says; 0: unknown */
    enum ibv_mtu mtu;
    unsigned max_inline;
    unsigned own_slots, receives; /* places of its own receive queue, 0: it shares; taken ones */
    /* Counters of the epoch; index of wrs[] is counter % SL_VERBS_SQ_DEPTH. */
    uint32_t posted, retired, arrived, unsignalled, writes;
    uint32_t carried;   /* retired ones up to the last that is no ping */
    uint64_t in_flight; /* bytes */
    struct sl_verbs_wr wrs[SL_VERBS_SQ_DEPTH];
    /* Work requests that go to the NIC together, with one doorbell. */
    struct ibv_send_wr batch[SL_VERBS_BATCH];
    struct ibv_sge sges[SL_VERBS_BATCH];
    unsigned batch_count;
    /* measured */
    uint64_t nominal_ps;   /* per byte, by the port's speed */
    uint64_t last_done_ns; /* end of a write */
    uint64_t latency_ns;   /* of frames, moving average */
    uint64_t ps_per_byte;  /* of writes, moving average */
    uint64_t next_try_ns, deadline_ns, backoff_ns;
    char why[SL_VERBS_WHY]; /* its last failure */
    struct sl_verbs_path_stats stats;
};

/* ---- messages ---- */

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

/* ---- connections ---- */

enum sl_verbs_ep_state {
    SL_VERBS_EP_NEW,
    SL_VERBS_EP_CONNECTING,
    SL_VERBS_EP_UP,
    SL_VERBS_EP_DOWN
};

struct sl_verbs_ep {
    struct sl_ep base;
    struct sl_verbs_iface *iface;
    struct sl_node link;   /* in iface->eps */
    struct sl_node active; /* in iface->active while progress must look after it */
    struct sl_node timed;  /* in iface->timed while it waits for a time */
    uint64_t due_ns;       /* then: which */
    bool is_timed;
    bool is_active, failing, leads, has_hello, sideband_up;
    bool left; /* the peer is gone: what it sent may still be received */
    uint8_t state;
    uint32_t eager_bytes;
    uint64_t nonce;
    struct sl_ep *sideband;
    struct sl_req sideband_req;
    struct sl_req *connect_req;
    uint64_t connect_deadline_ns, settle_ns;
    int down_status;
    char why[256];

    struct sl_verbs_hello peer;
    struct sl_verbs_path *paths[SL_VERBS_PATHS_MAX];
    unsigned path_count, paths_expected, paths_up;
    struct sl_verbs_path *frame_path; /* carries the frames; NULL: none is up, or see below */
    /* carried them and has failed; the peer has not said what it had */
    struct sl_verbs_path *fencing;
    uint64_t no_path_since_ns; /* 0: there is one */
    uint64_t ping_at_ns;       /* next one by each path; only without a sideband */

    /* frames */
    uint32_t fseq_out, fseq_in;
    unsigned credits;      /* frames that the peer has room for */
    unsigned credits_owed; /* handled here and not told yet */
    struct sl_node repeat; /* frames of a path that ended, in their order */
    /* messages; numbers run free, their place is number % size of the queue */
    uint32_t tx_next;            /* of the next send */
    uint32_t tx_oldest;          /* long message not over, or tx_next */
    uint32_t rx_next, rx_oldest; /* of the next recv; not over, or rx_next */
    struct sl_verbs_tx_msg tx[SL_VERBS_TX_QUEUE];
    struct sl_verbs_rx_msg rx[SL_VERBS_RX_QUEUE];
    struct sl_verbs_rx_grant rx_grants[SL_VERBS_GRANTS];
    struct sl_verbs_tx_grant tx_grants[SL_VERBS_TX_GRANTS];
    uint16_t deal[SL_VERBS_TX_GRANTS]; /* grants with bytes to deal, in the order they came */
    unsigned deal_head, deal_count, early_count, early_gpu_count, unannounced;
    struct sl_verbs_piece redo[SL_VERBS_REDO];
    unsigned redo_count;
    uint32_t drops[SL_VERBS_RX_QUEUE]; /* numbers to DROP */
    unsigned drop_count;
    uint32_t late[SL_VERBS_RX_QUEUE]; /* receives to end in progress */
    unsigned late_count;
    unsigned held; /* frames that wait for their receive, or for the way into its GPU's memory */
    unsigned gpu_waits, gpu_copies; /* of them the latter; copies under way */
    bool wants_staging;

    struct sl_verbs_tcp *tcp; /* NULL: data never goes over the sideband */

    /* Records that the sideband has not taken. */
    struct sl_verbs_record records[SL_VERBS_RECORDS];
    /* by number: what the peer has not told of */
    struct sl_verbs_record unhandled[SL_VERBS_RECORDS];
    bool by_path[SL_VERBS_RECORDS]; /* on one now */
    bool arrived[SL_VERBS_RECORDS]; /* by one */
    unsigned record_head, record_count;
    uint32_t record_out, record_in;                 /* numbers of the next ones */
    uint32_t record_handled;                        /* of ours, by the peer */
    uint32_t record_told;                           /* of the peer's, as it knows */
    uint32_t hello_seq;                             /* of our last HELLO */
    bool hello_due;                                 /* rails have changed since */
    struct sl_verbs_record inbox[SL_VERBS_RECORDS]; /* by number; handled in progress */
    bool in_inbox[SL_VERBS_RECORDS];

    /* Where frames are kept that cannot stay in their buffers: one for each credit, of slot_bytes.
     * The bits say which are in use. Pages that were never used cost nothing. */
    uint32_t copies_used;
    uint8_t copies[];
};

_Static_assert(SL_VERBS_CREDITS < 32, "a bit for each in copies_used");

struct sl_verbs_iface {
    struct sl_iface base;
    struct sl_transport_ops ops; /* sl_verbs_ops, completed */
    const struct sl_config *config;
    const struct sl_ibv *ibv;
    const struct sl_mlx5dv *mlx5dv;
    struct sl_iface *sideband;
    struct sl_verbs_rail rails[SL_VERBS_RAILS_MAX];
    unsigned rail_count;
    uint32_t eager_bytes, slot_bytes;
    struct sl_verbs_pool frames, staging;
    struct sl_verbs_tx_frame tx_frames[SL_VERBS_TX_FRAMES];
    struct sl_verbs_tx_frame ping; /* all are the same, so one place is enough */
    struct sl_node free_frames;
    unsigned free_frame_count;
    struct sl_verbs_chunks tx_chunks, rx_chunks;
    struct sl_node eps, active, timed, dirty;
    bool batching; /* inside progress: work requests are posted at its end */
    unsigned ep_count, connecting;
    unsigned makes;          /* queue pairs that this round of progress may still make */
    struct sl_mem_cache mem; /* handles are struct sl_verbs_mr */
    struct sl_gpu_stage *stages[SL_VERBS_STAGES_MAX];
    unsigned stage_count;
    struct sl_verbs_path **paths; /* by slot */
    uint32_t path_cap;
    uint64_t round, next_timer_ns;
    uint64_t ticked_ns; /* when timers ran last: the time for what need not be exact */
    int epoll_fd;
    unsigned budget;
};

extern const struct sl_transport_ops sl_verbs_ops;

/* A line in the event ring; peer as in core/event.h. */
static inline void sl_verbs_event(const struct sl_verbs_iface *iface, enum sl_event_kind kind,
                                  int peer, uint64_t a, uint64_t b)
{
    sl_event(iface->base.worker, kind, peer < 0 ? SL_EVENT_NOBODY : (uint32_t)peer, a, b);
}

static inline struct sl_verbs_ep *sl_verbs_ep_of(struct sl_ep *ep)
{
    return (struct sl_verbs_ep *)ep;
}

static inline struct sl_verbs_iface *sl_verbs_iface_of(struct sl_iface *iface)
{
    return (struct sl_verbs_iface *)iface;
}

/* iface.c */
int sl_verbs_iface_open(struct sl_worker *worker, const struct sl_device *dev,
                        const struct sl_handler *handler, struct sl_iface **out);
void sl_verbs_iface_close(struct sl_iface *base);

/* endpoint.c */
int sl_verbs_ep_create(struct sl_iface *base, struct sl_ep **out);
int sl_verbs_ep_addr(struct sl_ep *base, struct sl_addr *out);
int sl_verbs_ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req);
void sl_verbs_ep_destroy(struct sl_ep *base);
void sl_verbs_ep_describe(const struct sl_ep *base, char *out, size_t cap);
/* What an interface's sideband calls. */
struct sl_handler sl_verbs_sideband_handler(struct sl_verbs_iface *iface);
/* Notes that the connection is lost; the next progress tells its owner. Returns status. */
int sl_verbs_ep_fail(struct sl_verbs_ep *ep, int status, const char *fmt, ...) SL_PRINTF(3, 4);
/* Ends what was noted so. */
void sl_verbs_ep_lost(struct sl_verbs_ep *ep);
/* Its peer said farewell: notes the loss once all that came before is handled. */
void sl_verbs_ep_leave(struct sl_verbs_ep *ep);
void sl_verbs_ep_activate(struct sl_verbs_ep *ep);
/* It waits for a time: the next look at the clock asks for which. */
void sl_verbs_ep_time(struct sl_verbs_ep *ep);
void sl_verbs_ep_untime(struct sl_verbs_ep *ep);
/* The code and sentence for a call on a connection that is not up. */
int sl_verbs_not_up(const struct sl_verbs_ep *ep);

/* rail.c */
int sl_verbs_rail_open(struct sl_verbs_iface *iface, const struct sl_verbs_port *port,
                       unsigned idx);
void sl_verbs_rail_close(struct sl_verbs_rail *rail);
/* Handles up to budget completions; how many, or the code of a queue that is lost. */
int sl_verbs_rail_poll(struct sl_verbs_rail *rail, unsigned budget);
/* Asynchronous events, and ports that are awaited; how many things happened. */
int sl_verbs_rail_events(struct sl_verbs_rail *rail);
/* Looks at the port again: usable or not, which GID. Tells the connections what changed. */
void sl_verbs_rail_refresh(struct sl_verbs_rail *rail);
int sl_verbs_qpn_add(struct sl_verbs_rail *rail, uint32_t qpn, struct sl_verbs_path *path);
void sl_verbs_qpn_remove(struct sl_verbs_rail *rail, uint32_t qpn);
void sl_verbs_rail_info(const struct sl_verbs_rail *rail, struct sl_verbs_rail_info *out);

/* slots.c */
/* Receive buffers for so many connections, where they share them. */
int sl_verbs_rail_provide(struct sl_verbs_rail *rail, unsigned eps);
/* Gives a receive buffer back: to the NIC, unless its queue pair is gone. */
void sl_verbs_slot_put(struct sl_verbs_rail *rail, uint32_t slot);
const uint8_t *sl_verbs_slot_bytes(const struct sl_verbs_rail *rail, uint32_t slot);
/* The buffer of a completion is in the caller's hands now. False: the completion is of a stay that
 * is over. */
bool sl_verbs_own_take(struct sl_verbs_rail *rail, uint64_t wr_id);
static inline bool sl_verbs_slot_take(struct sl_verbs_rail *rail, uint64_t wr_id)
{
    if (SL_UNLIKELY((wr_id & SL_VERBS_OWN_BIT) != 0))
        return sl_verbs_own_take(rail, wr_id);
    rail->slots_free--;
    return true;
}
/* As sl_verbs_slot_put(), for one that came back from a queue pair which takes nothing any more. */
void sl_verbs_slot_flushed(struct sl_verbs_rail *rail, uint32_t slot);
/* How many receive buffers a new queue pair is to have of its own; 0: it shares. */
unsigned sl_verbs_own_receives(const struct sl_verbs_rail *rail);
/* Posts path->own_slots of them to its new queue pair. What fails half-way is for
 * sl_verbs_own_leave(). */
int sl_verbs_own_fill(struct sl_verbs_path *path);
/* Its queue pair is gone. */
void sl_verbs_own_leave(struct sl_verbs_path *path);
/* Are so few left at the NIC that a frame which has to wait should be copied out of its own? */
bool sl_verbs_few_receives(const struct sl_verbs_path *path);
void sl_verbs_slots_close(struct sl_verbs_rail *rail);

/* mr.c */
int sl_verbs_pool_init(struct sl_verbs_iface *iface, size_t len, struct sl_verbs_pool *out);
void sl_verbs_pool_fini(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool);
int sl_verbs_mr_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                    struct sl_key *key);
void sl_verbs_mr_dereg(struct sl_iface *iface, struct sl_mr *mr);
void sl_verbs_mem_init(struct sl_verbs_iface *iface);
unsigned sl_verbs_mem_gone(struct sl_iface *iface, void *addr, size_t len);
/* The registration of a range, given by the caller or found; NULL: none, or its memory went
 * away. */
static inline struct sl_verbs_mr *sl_verbs_mr_find(struct sl_verbs_iface *iface,
                                                   const struct sl_mr *given, const void *addr,
                                                   size_t len)
{
    const struct sl_mem_region *region = (const struct sl_mem_region *)given;

    if (region == NULL)
        region = sl_mem_cache_find(&iface->mem, addr, len);
    return region != NULL && !region->dead ? region->handle : NULL;
}
/* The region of GPU memory that a message lies in, dead or alive; NULL: it is not GPU memory. */
static inline const struct sl_mem_region *sl_verbs_gpu_region(struct sl_verbs_iface *iface,
                                                              const struct sl_mr *given,
                                                              const void *addr, size_t len)
{
    const struct sl_mem_region *region = (const struct sl_mem_region *)given;

    if (region == NULL && SL_UNLIKELY(iface->mem.gpu_regions != 0))
        region = sl_mem_cache_find(&iface->mem, addr, len);
    return region != NULL && SL_UNLIKELY(!sl_mem_is_host(region->kind)) ? region : NULL;
}
/* One registration; the error is a sentence about limits where it is one. */
int sl_verbs_reg(const struct sl_verbs_rail *rail, void *addr, size_t len, struct ibv_mr **out);
/* The same on every rail, or none. */
int sl_verbs_reg_all(struct sl_verbs_iface *iface, void *addr, size_t len, struct ibv_mr **mr);
void sl_verbs_dereg_all(struct sl_verbs_iface *iface, struct ibv_mr **mr);

/* gpu.c */
/* May GPU memory be registered with all rails, as far as they and the settings go? */
bool sl_verbs_gpu_possible(const struct sl_verbs_iface *iface);
/* On every rail, or none. -ENOTSUP, with the reason. */
int sl_verbs_gpu_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem,
                     struct sl_verbs_mr *mr);
/* -EINVAL: its memory went away. */
int sl_verbs_gpu_check(const struct sl_mem_region *region);
/* All that was written into it has arrived: it becomes visible to the GPU. -EIO. */
int sl_verbs_gpu_arrived(const struct sl_verbs_mr *mr);
/* Bytes of a frame for a posted receive, borrowed: the receive ends in progress. -EAGAIN: later.
 * -EIO. */
int sl_verbs_gpu_copy(struct sl_verbs_ep *ep, uint32_t number, const uint8_t *bytes, size_t len);
int sl_verbs_gpu_progress(struct sl_verbs_iface *iface);
bool sl_verbs_gpu_busy(const struct sl_verbs_iface *iface);
/* No copy touches memory of this connection's receives any more, and none ends one. */
void sl_verbs_gpu_forget(struct sl_verbs_ep *ep);
void sl_verbs_gpu_close(struct sl_verbs_iface *iface);

/* mlx5.c */
/* How many ports a bonded device has; 0: it is none, or nobody knows. */
uint8_t sl_verbs_lag_ports(const struct sl_mlx5dv *mlx5dv, struct ibv_context *context);
/* For a queue pair in RTS. What the device does not take is logged. */
void sl_verbs_mlx5_route(struct sl_verbs_path *path);

/* path.c */
/* A path of ep, idle, with its place in the table of paths. */
int sl_verbs_path_add(struct sl_verbs_ep *ep, unsigned idx, struct sl_verbs_path **out);
void sl_verbs_path_free(struct sl_verbs_path *path);
/* A queue pair in INIT, the epoch's counters at 0. */
int sl_verbs_path_make(struct sl_verbs_path *path);
/* Posts what is batched. */
void sl_verbs_path_flush(struct sl_verbs_path *path);
/* To RTR and RTS with what the other end offered. */
int sl_verbs_path_connect(struct sl_verbs_path *path, const struct sl_verbs_offer *offer);
/* No packet of the queue pair changes memory from here on; what arrived before is handled. */
void sl_verbs_path_stop(struct sl_verbs_path *path);
void sl_verbs_path_unmake(struct sl_verbs_path *path);
bool sl_verbs_path_has_room(const struct sl_verbs_path *path);
/* Posts a frame that only has to arrive. */
void sl_verbs_path_ping(struct sl_verbs_path *path);
/* Posts a frame that is not in the order of frames. */
void sl_verbs_path_post_record(struct sl_verbs_path *path, struct sl_verbs_tx_frame *frame);
/* Posts a frame that has its header. The frame belongs to the path until it is retired. */
void sl_verbs_path_post_frame(struct sl_verbs_path *path, struct sl_verbs_tx_frame *frame);
void sl_verbs_path_post_write(struct sl_verbs_path *path, const struct sl_verbs_piece *piece);
/* A completion of a send or write: everything up to `ordinal` is over. */
void sl_verbs_path_retire(struct sl_verbs_path *path, uint32_t ordinal, uint64_t now_ns);
/* After both ends have stopped: what the other end had is over, the rest is for other paths. */
void sl_verbs_path_salvage(struct sl_verbs_path *path, uint32_t arrived);
/* With SLUICE_VERBS_RESERVE the rail that data goes by now: the first that has a path which is
 * up. */
#define SL_VERBS_RAILS_ALL UINT32_MAX
unsigned sl_verbs_rail_in_use(const struct sl_verbs_ep *ep);
/* The path by which len more bytes would arrive first, of those with room for a write; or NULL. */
struct sl_verbs_path *sl_verbs_path_best(struct sl_verbs_ep *ep, uint64_t len);

/* talk.c */
/* Sends it by the sideband and by a path. */
void sl_verbs_record_send(struct sl_verbs_ep *ep, struct sl_verbs_record *record);
void sl_verbs_record_flush(struct sl_verbs_ep *ep);
/* The frame of a record has arrived; or has not, and its path is gone. */
void sl_verbs_record_arrived(struct sl_verbs_ep *ep, const struct sl_verbs_tx_frame *frame);
void sl_verbs_record_lost(struct sl_verbs_ep *ep, struct sl_verbs_tx_frame *frame);
/* The path has stopped: whether its records arrived is not known until its fence, for which they
 * may be needed. Without a sideband others carry them too. */
void sl_verbs_records_stranded(struct sl_verbs_path *path);
/* The sideband is gone, and what it had taken with it: paths carry all that the peer has not told
 * of. */
void sl_verbs_records_requeue(struct sl_verbs_ep *ep);
/* Keeps a record that came, by whichever way; the next progress handles it. */
void sl_verbs_record_take(struct sl_verbs_ep *ep, const void *bytes, size_t len);
/* Handles those that are due; how many. */
int sl_verbs_inbox_run(struct sl_verbs_ep *ep);
/* A control message of the caller. */
int sl_verbs_ctrl(struct sl_ep *ep, const void *msg, size_t len);

/* fallback.c */
/* After the first HELLO: when both ends may, listens for what the other sends over the
 * sideband. */
int sl_verbs_tcp_open(struct sl_verbs_ep *ep);
/* After the sideband is gone. */
void sl_verbs_tcp_close(struct sl_verbs_ep *ep);
/* No path has been up for a while; one is up again; the other end has handled all. */
void sl_verbs_tcp_begin(struct sl_verbs_ep *ep);
void sl_verbs_tcp_end(struct sl_verbs_ep *ep);
void sl_verbs_tcp_ended(struct sl_verbs_ep *ep);
/* The sideband as a path, while it is one; or NULL. */
struct sl_verbs_path *sl_verbs_tcp_path(const struct sl_verbs_ep *ep);
/* Sends what wr says, which is posted on path already. */
void sl_verbs_tcp_post(struct sl_verbs_path *path);
/* What the sideband had no room for. How many things moved. */
int sl_verbs_tcp_push(struct sl_verbs_ep *ep);
bool sl_verbs_tcp_has_work(const struct sl_verbs_ep *ep);
/* It, once it has been one; or NULL. */
const struct sl_verbs_path *sl_verbs_tcp_past(const struct sl_verbs_ep *ep);
const uint8_t *sl_verbs_tcp_frame(const struct sl_verbs_ep *ep);

/* stats.c */
size_t sl_verbs_ep_stats(const struct sl_ep *ep, struct sl_path_stat *out, size_t cap);

/* repair.c */
void sl_verbs_on_record(struct sl_verbs_ep *ep, const struct sl_verbs_record *record);
void sl_verbs_hello_send(struct sl_verbs_ep *ep);
/* Notes that the path has failed at this end; the next progress acts on it. */
void sl_verbs_path_fail(struct sl_verbs_path *path, const char *fmt, ...) SL_PRINTF(2, 3);
/* Acts on it. Never inside the handling of completions. */
void sl_verbs_path_end(struct sl_verbs_path *path);
/* A path for the frames, when there is one and none is being fenced. */
void sl_verbs_choose_frame_path(struct sl_verbs_ep *ep);
/* A ping has come, or one of ours is acknowledged. */
void sl_verbs_path_pinged(struct sl_verbs_path *path);
/* Offers that are due, deadlines. When to call it next, or SL_NEVER. */
uint64_t sl_verbs_repair_timers(struct sl_verbs_ep *ep, uint64_t now_ns);
/* Tries paths of this rail now: it, or the peer's, has returned. */
void sl_verbs_repair_soon(struct sl_verbs_ep *ep);

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

static inline struct sl_verbs_tx_msg *sl_verbs_tx_at(struct sl_verbs_ep *ep, uint32_t number)
{
    return &ep->tx[number % SL_VERBS_TX_QUEUE];
}

static inline struct sl_verbs_rx_msg *sl_verbs_rx_at(struct sl_verbs_ep *ep, uint32_t number)
{
    return &ep->rx[number % SL_VERBS_RX_QUEUE];
}

#endif
