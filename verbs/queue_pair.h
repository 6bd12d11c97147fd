/* SPDX-License-Identifier: Apache-2.0 */
/* A queue pair: the lane of a path. */
#ifndef SL_VERBS_QUEUE_PAIR_H
#define SL_VERBS_QUEUE_PAIR_H

#include "multipath/path.h"
#include "verbs/device.h"
#include "verbs/offer.h"
#include "verbs/rail.h"

#define SL_VERBS_SQ_WRS 63 /* of its send queue: a driver that keeps one place free doubles 64 */
#define SL_VERBS_SQ_WRS_MIN 15    /* where its completion queue has room for few more */
#define SL_VERBS_SQ_DRAIN 1       /* place is for draining */
#define SL_VERBS_DRAIN UINT32_MAX /* number of the last work request of a queue pair that stops */
#define SL_VERBS_BATCH 16
#define SL_VERBS_MAX_INLINE 256

struct sl_mlx5dv;

struct sl_verbs_path {
    struct sl_mp_path base;
    struct sl_verbs_rail *rail; /* base.rail, of the present lane */
    bool drained;               /* stopping: nothing older is to come from the completion queue */
    bool in_error;              /* the queue pair is: it was stopped */
    bool may_hold;              /* a receive buffer of the shared queue: it has listened */
    bool is_dirty;              /* in iface->dirty: batch[] is to be posted */
    struct sl_node dirty;
    uint32_t slot; /* in iface->paths: part of wr_id */
    struct ibv_qp *qp;
    struct sl_verbs_gid gid; /* of the rail, chosen for this peer */
    uint32_t psn, flow_label;
    bool has_route;        /* flow_label, lag_port and lid_bits are chosen, for this end */
    uint16_t route_misses; /* base.misses then */
    int32_t route_label;   /* and base.label */
    uint8_t lag_port;      /* of the rail's bond; 0: the driver's choice */
    uint8_t lag_active;    /* by which it leaves, as the driver says; 0: unknown */
    enum ibv_mtu mtu;
    unsigned max_inline;
    unsigned own_slots, receives; /* places of its own receive queue, 0: it shares; taken ones */
    /* Work requests that go to the NIC together, with one doorbell. */
    struct ibv_send_wr batch[SL_VERBS_BATCH];
    struct ibv_sge sges[SL_VERBS_BATCH];
    unsigned batch_count;
    /* Of setup alone, so behind what is posted with. */
    struct sl_verbs_pkey pkey; /* of the rail, chosen for this peer */
    uint16_t lid;              /* of InfiniBand: that this end sends from, and is sent to */
    uint8_t lid_bits;          /* its lower bits, chosen with the route */
    bool shuns_ece;            /* it did not come up with such options: goes without */
    struct ibv_ece ece;        /* options 0: none; offered, then in use */
    unsigned cq_places;        /* of its queue pair, in the completion queue */
};

static inline struct sl_verbs_path *sl_verbs_path_of(struct sl_mp_path *path)
{
    return (struct sl_verbs_path *)path;
}

/* A path of conn, with its place in the table of paths. */
int sl_verbs_path_create(struct sl_mp_conn *conn, struct sl_mp_path **out);
void sl_verbs_path_destroy(struct sl_mp_path *path);
/* A queue pair in INIT. */
int sl_verbs_path_make(struct sl_verbs_path *path);
/* To RTR and RTS with what the other end offered. */
int sl_verbs_path_connect(struct sl_verbs_path *path, const struct sl_verbs_offer *offer);
/* No packet of the queue pair changes memory from here on; what arrived before is handled. */
void sl_verbs_path_stop(struct sl_verbs_path *path);
void sl_verbs_path_unmake(struct sl_verbs_path *path);
void sl_verbs_path_post(struct sl_mp_path *path, const struct sl_mp_tx_frame *frame, bool signal);
void sl_verbs_path_write(struct sl_mp_path *path, const struct sl_mp_piece *piece);
/* Posts what is batched. */
void sl_verbs_path_flush(struct sl_verbs_path *path);

/* ece.c */
/* Of a queue pair in INIT: what this end has to offer. */
void sl_verbs_ece_ask(struct sl_verbs_path *path);
/* Before RTR, with what the other end offers, or took: sets what suits both. -EPROTO, or the
 * device's error. */
int sl_verbs_ece_set(struct sl_verbs_path *path, const struct sl_verbs_offer *theirs);
/* In RTR: what the device made of it, for the ACCEPT. */
void sl_verbs_ece_settle(struct sl_verbs_path *path);

/* mlx5.c */
/* How many ports a bonded device has; 0: it is none, or nobody knows. */
uint8_t sl_verbs_lag_ports(const struct sl_mlx5dv *mlx5dv, struct ibv_context *context);
/* The UDP source port by flow_label, for a queue pair in RTS, which may be in use. -ENOTSUP: this
 * device takes none, or refused it. */
int sl_verbs_mlx5_sport(struct sl_verbs_path *path);
/* For a queue pair in RTS. What the device does not take is logged. */
void sl_verbs_mlx5_route(struct sl_verbs_path *path);

#endif
