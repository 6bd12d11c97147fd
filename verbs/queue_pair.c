/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs, the lanes of this transport: made, connected, posted to, stopped. The number of what
 * is posted travels in wr_id with its epoch, so completions of an earlier epoch are known and left
 * alone.
 */
#include "verbs/queue_pair.h"

#include "core/log.h"
#include "multipath/conn.h"
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/rate.h"

#include <stdlib.h>
#include <string.h>

#define STOP_TRIES 4
#define DRAIN_NS (5 * SL_NS_PER_MS)
#define DRAIN_POLLS 256 /* beyond, that found nothing: the thread may have been off its processor */
#define SLOT_SHIFT 44
#define EPOCH_SHIFT 32
#define EPOCH_MASK 0xfff

static struct sl_verbs_iface *iface_of(const struct sl_verbs_path *path)
{
    return sl_verbs_iface_of(&path->base.conn->iface->base);
}

static uint64_t wr_id(const struct sl_verbs_path *path, uint32_t ordinal)
{
    return (uint64_t)path->slot << SLOT_SHIFT |
           (uint64_t)(path->base.epoch & EPOCH_MASK) << EPOCH_SHIFT | ordinal;
}

static int slot_take(struct sl_verbs_iface *iface, struct sl_verbs_path *path)
{
    uint32_t slot = 0;

    while (slot < iface->path_cap && iface->paths[slot] != NULL)
        slot++;
    if (slot == iface->path_cap) {
        uint32_t cap = slot == 0 ? 64 : 2 * slot;
        struct sl_verbs_path **paths =
            cap > 1 << 19 ? NULL : reallocarray(iface->paths, cap, sizeof(struct sl_verbs_path *));

        if (paths == NULL)
            return sl_fail(-ENOMEM, "no memory for %u paths", cap);
        memset(paths + slot, 0, (cap - slot) * sizeof(struct sl_verbs_path *));
        iface->paths = paths;
        iface->path_cap = cap;
    }
    iface->paths[slot] = path;
    path->slot = slot;
    return 0;
}

int sl_verbs_path_create(struct sl_mp_conn *conn, struct sl_mp_path **out)
{
    struct sl_verbs_path *path = calloc(1, sizeof(*path));
    int err;

    if (path == NULL)
        return sl_fail(-ENOMEM, "no memory for a path to %s", sl_ep_peer_name(&conn->base));
    err = slot_take(sl_verbs_iface_of(&conn->iface->base), path);
    if (err != 0) {
        free(path);
        return err;
    }
    path->base.conn = conn;
    path->base.lanes = &sl_verbs_lanes;
    path->base.depth = SL_VERBS_SQ_WRS - SL_VERBS_SQ_DRAIN;
    *out = &path->base;
    return 0;
}

/* ---- states of the queue pair ---- */

static int to_init(struct sl_verbs_path *path)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = path->pkey.index,
                               .port_num = path->rail->port.num,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int err = (iface_of(path)->ibv->ibv_modify_qp)(
        path->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    return err == 0 ? 0
                    : sl_fail(-err, "a queue pair of %s could not be initialised: %s",
                              path->rail->port.name, sluice_strerror(-err));
}

static struct ibv_qp *qp_create(struct sl_verbs_path *path)
{
    struct sl_verbs_rail *rail = path->rail;
    struct ibv_qp_init_attr init = {
        .qp_context = &rail->listener,
        .send_cq = rail->cq,
        .recv_cq = rail->cq,
        .srq = path->own_slots != 0 ? NULL : rail->srq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = path->base.depth + SL_VERBS_SQ_DRAIN,
                .max_send_sge = 1,
                .max_recv_wr = path->own_slots,
                .max_recv_sge = path->own_slots != 0,
                .max_inline_data = SL_VERBS_MAX_INLINE},
    };
    struct ibv_qp *qp;

    /* Devices differ in what they can take inline, and only trying tells. */
    for (;;) {
        qp = (iface_of(path)->ibv->ibv_create_qp)(rail->domain, &init);
        if (qp != NULL || init.cap.max_inline_data == 0)
            break;
        init.cap.max_inline_data = init.cap.max_inline_data > 64 ? 64 : 0;
    }
    path->max_inline = init.cap.max_inline_data;
    return qp;
}

/* From its return on the device accepts no packet for this queue pair. A device that is gone cannot
 * either. */
static bool to_error(struct sl_verbs_path *path)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    int err = 1;

    for (unsigned i = 0; i < STOP_TRIES && err != 0; i++)
        err = (iface_of(path)->ibv->ibv_modify_qp)(path->qp, &attr, IBV_QP_STATE);
    path->in_error = err == 0;
    return err == 0;
}

/* May its queue pair stay behind without it? Then nothing that was sent by it may be told of any
 * more: the path's slot, which completions name, may be another's by then. */
static bool may_leave(struct sl_verbs_path *path)
{
    if (!path->may_hold)
        return false;
    return path->in_error ? path->drained : path->base.posted == 0 && to_error(path);
}

void sl_verbs_path_unmake(struct sl_verbs_path *path)
{
    if (path->is_dirty) {
        path->is_dirty = false;
        sl_list_remove(&path->dirty);
    }
    if (path->qp == NULL)
        return;
    sl_verbs_qpn_remove(path->rail, path->qp->qp_num);
    if (may_leave(path)) {
        sl_verbs_leave(path->rail, path->qp, path->cq_places);
    } else {
        (iface_of(path)->ibv->ibv_destroy_qp)(path->qp);
        sl_verbs_cq_give(path->rail, path->cq_places);
    }
    path->qp = NULL;
    path->batch_count = 0;
    sl_verbs_own_leave(path);
}

/* Has its connection no other path, nor one that is being made, on whichever rail? */
static bool is_first(const struct sl_verbs_path *path)
{
    const struct sl_mp_conn *conn = path->base.conn;

    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *other = conn->paths[i];

        if (other != NULL && other != &path->base && !other->failing &&
            other->state != SL_MP_PATH_IDLE && other->state != SL_MP_PATH_FENCING)
            return false;
    }
    return true;
}

int sl_verbs_path_make(struct sl_verbs_path *path)
{
    bool first = is_first(path);
    unsigned sends;
    int err;

    sl_verbs_path_unmake(path);
    iface_of(path)->mp.opens -= iface_of(path)->mp.opens > 0;
    path->own_slots = sl_verbs_own_receives(path->rail, first);
    if (path->own_slots == 0 && path->rail->srq == NULL)
        return sl_fail(
            -ENOMEM,
            "%s shares no receive queue, and its completion queue has no room for one more "
            "queue pair's",
            path->rail->port.name);
    sends = sl_verbs_cq_take_sends(path->rail, path->own_slots, first);
    if (sends == 0)
        return sl_fail(
            -ENOMEM,
            "the completion queue of %s has no room for one more path: its %d entries "
            "are those that its device can have; SLUICE_VERBS_PATHS_PER_RAIL=1, or fewer "
            "peers, need fewer",
            path->rail->port.name, path->rail->cq->cqe);
    path->base.depth = sends - SL_VERBS_SQ_DRAIN;
    path->cq_places = sends + path->own_slots;
    path->qp = qp_create(path);
    if (path->qp == NULL) {
        err = errno != 0 ? errno : ENOMEM;
        sl_verbs_cq_give(path->rail, path->cq_places);
        path->own_slots = 0;
        return sl_fail(-err, "%s has no queue pair left: %s", path->rail->port.name,
                       sluice_strerror(-err));
    }
    path->receives = 0;
    path->in_error = path->may_hold = path->drained = false;
    path->rail->own_count += path->own_slots;
    err = to_init(path);
    if (err == 0)
        err = sl_verbs_qpn_add(path->rail, path->qp->qp_num, path);
    if (err == 0)
        err = sl_verbs_own_fill(path);
    if (err != 0) {
        sl_verbs_path_unmake(path);
        return err;
    }
    path->batch_count = 0;
    path->psn = (uint32_t)sl_rng_below(&iface_of(path)->mp.base.worker->rng, 1 << 24);
    return 0;
}

static uint8_t static_rate(const struct sl_verbs_path *path, const struct sl_verbs_offer *offer)
{
    return sl_verbs_config(iface_of(path)->config)->static_rate == SL_VERBS_RATE_OFF
               ? IBV_RATE_MAX
               : sl_verbs_rate_towards(path->rail->port.speed, offer->rail.rate);
}

static int to_rtr(struct sl_verbs_path *path, const struct sl_verbs_offer *offer)
{
    const struct sl_config *config = iface_of(path)->config;
    struct sl_verbs_rail *rail = path->rail;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = path->mtu,
        .dest_qp_num = offer->qpn,
        .rq_psn = offer->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = (uint8_t)sl_verbs_config(config)->rnr_timer,
        .ah_attr = {.dlid = offer->rail.lid,
                    .sl = (uint8_t)sl_verbs_config(config)->service_level,
                    .static_rate = static_rate(path, offer),
                    .src_path_bits = (uint8_t)(path->lid - rail->port.lid),
                    .port_num = rail->port.num},
    };

    if (rail->port.link_layer == IBV_LINK_LAYER_ETHERNET || !path->gid.is_link_local) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh = (struct ibv_global_route){
            .sgid_index = path->gid.index,
            .hop_limit = 64,
            .flow_label = path->flow_label,
            .traffic_class = (uint8_t)sl_verbs_config(config)->traffic_class};
        memcpy(&attr.ah_attr.grh.dgid, offer->rail.gid, sizeof(offer->rail.gid));
    }
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    int err = (iface_of(path)->ibv->ibv_modify_qp)(path->qp, &attr, mask);

    if (err != 0 && err != ETIMEDOUT && attr.ah_attr.static_rate != IBV_RATE_MAX) {
        sl_debug("verbs", "%s does not take the rate code %u, and sends at its own speed: %s",
                 rail->port.name, attr.ah_attr.static_rate, sluice_strerror(-err));
        attr.ah_attr.static_rate = IBV_RATE_MAX;
        err = (iface_of(path)->ibv->ibv_modify_qp)(path->qp, &attr, mask);
    }

    return err == 0 ? 0
                    : sl_fail(-err, "%s has no route to the peer's rail: %s", rail->port.name,
                              sluice_strerror(-err));
}

static int to_rts(struct sl_verbs_path *path)
{
    const struct sl_config *config = iface_of(path)->config;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = (uint8_t)sl_verbs_config(config)->timeout,
        .retry_cnt = (uint8_t)sl_verbs_config(config)->retry_count,
        .rnr_retry = 7, /* for ever: a peer without receive buffers is busy, not dead */
        .sq_psn = path->psn,
        .max_rd_atomic = 1,
    };
    int err = (iface_of(path)->ibv->ibv_modify_qp)(path->qp, &attr,
                                                   IBV_QP_STATE | IBV_QP_TIMEOUT |
                                                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);

    return err == 0 ? 0
                    : sl_fail(-err, "a queue pair of %s could not be made ready: %s",
                              path->rail->port.name, sluice_strerror(-err));
}

int sl_verbs_path_connect(struct sl_verbs_path *path, const struct sl_verbs_offer *offer)
{
    int64_t wanted = sl_verbs_config(iface_of(path)->config)->mtu;
    enum ibv_mtu mtu = path->rail->port.mtu;
    int err;

    if (offer->rail.mtu < mtu)
        mtu = offer->rail.mtu;
    while (wanted != 0 && mtu > IBV_MTU_256 && 128 << mtu > wanted)
        mtu--;
    path->mtu = mtu;
    path->base.nominal_ps =
        path->rail->port.speed != 0 ? UINT64_C(1000000000000) / path->rail->port.speed : 1000;
    if (path->base.nominal_ps == 0)
        path->base.nominal_ps = 1;
    path->base.probe_bytes = 128u << mtu;
    path->base.repeat_ns = UINT64_C(4096) << sl_verbs_config(iface_of(path)->config)->timeout;
    err = sl_verbs_ece_set(path, offer);
    if (err == 0)
        err = to_rtr(path, offer);
    path->may_hold = err == 0 && path->own_slots == 0;
    if (err != 0 && err != -ETIMEDOUT && path->ece.options != 0)
        path->shuns_ece = true;
    if (err == 0) {
        sl_verbs_ece_settle(path);
        err = to_rts(path);
    }
    if (err == 0)
        sl_verbs_mlx5_route(path);
    return err;
}

/* Handles what arrived before. A completion may show up after the queue pair has stopped, but not
 * after the one of a work request that is posted now: the drain work request. */
static void drain(struct sl_verbs_path *path)
{
    struct sl_verbs_rail *rail = path->rail;
    const struct sl_clock *clock = iface_of(path)->mp.base.worker->clock;
    struct ibv_send_wr *bad, last = {.wr_id = wr_id(path, SL_VERBS_DRAIN),
                                     .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_SIGNALED};
    uint64_t deadline_ns = sl_now(clock) + DRAIN_NS;
    unsigned n = 0, late = 0;
    int err = -1;

    path->drained = false;
    for (unsigned i = 0; i < STOP_TRIES && err != 0; i++)
        err = ibv_post_send(path->qp, &last, &bad);
    if (err != 0)
        path->drained = true; /* the device is gone */
    do {
        n = sl_verbs_rail_poll(rail, 64);
        late += n == 0 && sl_now(clock) >= deadline_ns;
    } while (n > 0 || (!path->drained && !rail->is_lost && late < DRAIN_POLLS));
}

void sl_verbs_path_stop(struct sl_verbs_path *path)
{
    if (path->qp == NULL)
        return;
    path->batch_count = 0;
    if (to_error(path)) {
        drain(path);
    } else {
        while (sl_verbs_rail_poll(path->rail, 64) > 0)
            ;
        path->may_hold = false; /* what it holds is lost: it has to be destroyed now */
        sl_verbs_path_unmake(path);
        return;
    }
    sl_verbs_qpn_remove(path->rail, path->qp->qp_num);
}

void sl_verbs_path_destroy(struct sl_mp_path *base)
{
    struct sl_verbs_path *path = sl_verbs_path_of(base);

    sl_verbs_path_unmake(path);
    iface_of(path)->paths[path->slot] = NULL;
    free(path);
}

/* ---- posting ---- */

void sl_verbs_path_flush(struct sl_verbs_path *path)
{
    struct ibv_send_wr *bad = NULL;
    unsigned count = path->batch_count;

    path->batch_count = 0;
    if (count == 0 || path->base.failing)
        return;
    for (unsigned i = 0; i + 1 < count; i++)
        path->batch[i].next = &path->batch[i + 1];
    path->batch[count - 1].next = NULL;
    int err = ibv_post_send(path->qp, path->batch, &bad);

    if (SL_UNLIKELY(err != 0))
        sl_mp_failed(&path->base, 0, "posting failed: %s", sluice_strerror(-err));
}

/* A place for one more work request, its number already in it. */
static inline struct ibv_send_wr *wr_new(struct sl_verbs_path *path, uint32_t number, bool signal)
{
    if (path->batch_count == SL_VERBS_BATCH)
        sl_verbs_path_flush(path);
    unsigned place = path->batch_count++;
    struct ibv_send_wr *wr = &path->batch[place];

    *wr = (struct ibv_send_wr){.wr_id = wr_id(path, number),
                               .sg_list = &path->sges[place],
                               .num_sge = 1,
                               .send_flags = signal ? IBV_SEND_SIGNALED : 0};
    return wr;
}

/* Inside progress it waits for more. */
static inline void post_end(struct sl_verbs_path *path, struct sl_verbs_iface *iface)
{
    if (!iface->mp.in_progress) {
        sl_verbs_path_flush(path);
    } else if (!path->is_dirty) {
        path->is_dirty = true;
        sl_list_push_back(&iface->dirty, &path->dirty);
    }
}

void sl_verbs_path_post(struct sl_mp_path *base, const struct sl_mp_tx_frame *frame, bool signal)
{
    struct sl_verbs_path *path = sl_verbs_path_of(base);
    struct sl_verbs_iface *iface = path->rail->iface;
    uint32_t number = base->posted - 1;
    struct ibv_send_wr *wr = wr_new(path, number, signal);

    *wr->sg_list = (struct ibv_sge){.addr = (uintptr_t)frame->bytes,
                                    .length = frame->len,
                                    .lkey = iface->frames.mr[path->rail->base.idx]->lkey};
    wr->opcode = IBV_WR_SEND_WITH_IMM;
    wr->imm_data = htobe32(sl_mp_imm(number, 0));
    if (frame->len <= path->max_inline)
        wr->send_flags |= IBV_SEND_INLINE;
    post_end(path, iface);
}

void sl_verbs_path_write(struct sl_mp_path *base, const struct sl_mp_piece *piece)
{
    struct sl_verbs_path *path = sl_verbs_path_of(base);
    struct sl_verbs_iface *iface = path->rail->iface;
    uint32_t number = base->posted - 1;
    struct ibv_send_wr *wr = wr_new(path, number, true);
    const struct sl_mp_tx_cts *cts = piece->cts;
    const struct sl_verbs_mr *mr = (const struct sl_verbs_mr *)cts->msg->mr;
    unsigned rail = path->rail->base.idx;

    *wr->sg_list =
        (struct ibv_sge){.addr = (uintptr_t)sl_mp_piece_bytes(base, piece),
                         .length = piece->len,
                         .lkey = piece->chunk != SL_MP_NO_CHUNK ? iface->staging.mr[rail]->lkey
                                                                : mr->claims[rail].mr->lkey};
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = htobe32(sl_mp_imm(number, cts->cts.id));
    wr->wr.rdma.remote_addr = cts->cts.addr + piece->off;
    wr->wr.rdma.rkey = cts->cts.rkeys[base->remote_rail];
    post_end(path, iface);
}
