/* SPDX-License-Identifier: Apache-2.0 */
/* A path: a queue pair, what is posted to it, and what it measured. */
#ifndef SL_MULTIPATH_PATH_H
#define SL_MULTIPATH_PATH_H

#include "core/histogram.h"
#include "core/list.h"
#include "verbs/rail.h"
#include "multipath/control.h"

struct sl_mp_conn;
struct sl_mp_tx_frame;
struct sl_mp_tx_cts;
struct sl_mlx5dv;

#define SL_MP_PATHS_MAX 8
#define SL_MP_WINDOW 64 /* places for work requests of a path */
#define SL_VERBS_SQ_WRS                                                                            \
    63 /* of its queue pair: where a driver keeps one place free, 64 take double */
#define SL_VERBS_SQ_ROOM (SL_VERBS_SQ_WRS - 1) /* one place is for draining */
#define SL_VERBS_DRAIN UINT32_MAX /* number of the last work request of a queue pair that stops */
#define SL_MP_WRITES_MAX 16       /* of them writes */
#define SL_VERBS_BATCH 16
#define SL_VERBS_MAX_INLINE 256

enum sl_mp_path_state {
    SL_MP_PATH_IDLE,     /* no queue pair; the leading end tries at next_try_ns */
    SL_MP_PATH_OFFERED,  /* leading end: waits for ACCEPT */
    SL_MP_PATH_ACCEPTED, /* other end: connected, waits for the first ping */
    SL_MP_PATH_PINGING,  /* connected and has pinged; repair.c says for what it waits */
    SL_MP_PATH_UP,
    SL_MP_PATH_FENCING, /* was up and has ended here; waits for the other end's DOWN */
};

enum sl_mp_wr_kind {
    SL_MP_WR_PING,
    SL_MP_WR_FRAME,
    SL_MP_WR_WRITE,
    SL_MP_WR_CONTROL,
};

/* A part of what a CTS names: what one write carries. */
struct sl_mp_piece {
    struct sl_mp_tx_cts *cts;
    uint64_t off; /* in the CTS */
    uint32_t len;
    uint16_t chunk; /* staging that holds its bytes, or SL_MP_NO_CHUNK */
};
#define SL_MP_NO_CHUNK UINT16_MAX

/* A posted work request until it is retired. */
struct sl_mp_wr {
    uint8_t kind;
    uint32_t len;
    uint64_t posted_ns; /* 0: not timed */
    union {
        struct sl_mp_tx_frame *frame;
        struct sl_mp_piece piece;
    };
};

struct sl_mp_path_stats {
    uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
    uint64_t resent, failures, ups;
    uint64_t histogram[SL_HISTOGRAM_BINS]; /* of completion times: core/histogram.h */
};

struct sl_mp_path {
    struct sl_mp_conn *conn;
    uint8_t idx, state, remote_rail;
    bool tried;    /* came up or failed once */
    bool leads;    /* this end offers */
    bool failing;  /* has failed; the next progress acts on it */
    bool drained;  /* stopping: nothing older is to come from the completion queue */
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
    /* Counters of the epoch; index of wrs[] is counter % SL_MP_WINDOW. */
    uint32_t posted, retired, arrived, unsignalled, writes;
    uint32_t carried;   /* retired ones up to the last that is no ping */
    uint64_t in_flight; /* bytes */
    struct sl_mp_wr wrs[SL_MP_WINDOW];
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
    char why[SL_MP_WHY]; /* its last failure */
    struct sl_mp_path_stats stats;
};

/* A path of ep, idle, with its place in the table of paths. */
int sl_mp_path_add(struct sl_mp_conn *conn, unsigned idx, struct sl_mp_path **out);
void sl_verbs_path_free(struct sl_mp_path *path);
/* A queue pair in INIT, the epoch's counters at 0. */
int sl_verbs_path_make(struct sl_mp_path *path);
/* Posts what is batched. */
void sl_verbs_path_flush(struct sl_mp_path *path);
/* To RTR and RTS with what the other end offered. */
int sl_verbs_path_connect(struct sl_mp_path *path, const struct sl_mp_offer *offer);
/* No packet of the queue pair changes memory from here on; what arrived before is handled. */
void sl_verbs_path_stop(struct sl_mp_path *path);
void sl_verbs_path_unmake(struct sl_mp_path *path);
bool sl_mp_path_has_room(const struct sl_mp_path *path);
/* Posts a frame that only has to arrive. */
void sl_mp_path_ping(struct sl_mp_path *path);
/* Posts a frame that is not in the order of frames. */
void sl_mp_path_post_control(struct sl_mp_path *path, struct sl_mp_tx_frame *frame);
/* Posts a frame that has its header. The frame belongs to the path until it is retired. */
void sl_mp_path_post_frame(struct sl_mp_path *path, struct sl_mp_tx_frame *frame);
void sl_mp_path_post_write(struct sl_mp_path *path, const struct sl_mp_piece *piece);
/* A completion of a send or write: everything up to `ordinal` is over. */
void sl_mp_path_retire(struct sl_mp_path *path, uint32_t ordinal, uint64_t now_ns);
/* After both ends have stopped: what the other end had is over, the rest is for other paths. */
void sl_mp_path_salvage(struct sl_mp_path *path, uint32_t arrived);
/* With SLUICE_VERBS_RESERVE the rail that data goes by now: the first that has a path which is
 * up. */
#define SL_MP_RAILS_ALL UINT32_MAX
unsigned sl_mp_rail_in_use(const struct sl_mp_conn *conn);
/* The path by which len more bytes would arrive first, of those with room for a write; or NULL. */
struct sl_mp_path *sl_mp_path_best(struct sl_mp_conn *conn, uint64_t len);

/* mlx5.c */
/* How many ports a bonded device has; 0: it is none, or nobody knows. */
uint8_t sl_verbs_lag_ports(const struct sl_mlx5dv *mlx5dv, struct ibv_context *context);
/* For a queue pair in RTS. What the device does not take is logged. */
void sl_verbs_mlx5_route(struct sl_mp_path *path);

#endif
