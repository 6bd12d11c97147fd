/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One queue pair: made, connected, posted to, retired. What is posted is numbered from 0 in each
 * epoch; the number travels in wr_id, so completions of an earlier epoch are known and left alone.
 */
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"

#include <stdlib.h>
#include <string.h>

#define SIGNAL_EVERY 8 /* frames between completions that are asked for */
#define STOP_TRIES 4
#define DRAIN_NS (5 * SL_NS_PER_MS)
#define FORGET_AFTER_NS SL_NS_PER_S
#define FORGET_NS (50 * SL_NS_PER_MS)
#define SLOT_SHIFT 44
#define EPOCH_SHIFT 32
#define EPOCH_MASK 0xfff

static uint64_t wr_id(const struct sl_mp_path *path, uint32_t ordinal)
{
    return (uint64_t)path->slot << SLOT_SHIFT |
           (uint64_t)(path->epoch & EPOCH_MASK) << EPOCH_SHIFT | ordinal;
}

static int slot_take(struct sl_verbs_iface *iface, struct sl_mp_path *path)
{
    uint32_t slot = 0;

    while (slot < iface->path_cap && iface->paths[slot] != NULL)
        slot++;
    if (slot == iface->path_cap) {
        uint32_t cap = slot == 0 ? 64 : 2 * slot;
        struct sl_mp_path **paths =
            cap > 1 << 19 ? NULL : reallocarray(iface->paths, cap, sizeof(struct sl_mp_path *));

        if (paths == NULL)
            return sl_fail(-ENOMEM, "no memory for %u paths", cap);
        memset(paths + slot, 0, (cap - slot) * sizeof(struct sl_mp_path *));
        iface->paths = paths;
        iface->path_cap = cap;
    }
    iface->paths[slot] = path;
    path->slot = slot;
    return 0;
}

int sl_mp_path_add(struct sl_mp_conn *conn, unsigned idx, struct sl_mp_path **out)
{
    struct sl_mp_path *path = calloc(1, sizeof(*path));
    int err;

    if (path == NULL)
        return sl_fail(-ENOMEM, "no memory for a path to %s", sl_ep_peer_name(&conn->base));
    err = slot_take(conn->iface, path);
    if (err != 0) {
        free(path);
        return err;
    }
    path->conn = conn;
    path->idx = (uint8_t)idx;
    conn->paths[idx] = path;
    if (conn->path_count <= idx)
        conn->path_count = idx + 1;
    *out = path;
    return 0;
}

void sl_verbs_path_free(struct sl_mp_path *path)
{
    if (path == NULL)
        return;
    sl_verbs_path_unmake(path);
    path->conn->iface->paths[path->slot] = NULL;
    free(path);
}

/* ---- states of the queue pair ---- */

static int to_init(struct sl_mp_path *path)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = path->rail->port.num,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int err = (path->conn->iface->ibv->ibv_modify_qp)(
        path->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    return err == 0 ? 0
                    : sl_fail(-err, "a queue pair of %s could not be initialised: %s",
                              path->rail->port.name, sluice_strerror(-err));
}

static struct ibv_qp *qp_create(struct sl_mp_path *path)
{
    struct sl_verbs_rail *rail = path->rail;
    struct ibv_qp_init_attr init = {
        .send_cq = rail->cq,
        .recv_cq = rail->cq,
        .srq = path->own_slots != 0 ? NULL : rail->srq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = SL_VERBS_SQ_WRS,
                .max_send_sge = 1,
                .max_recv_wr = path->own_slots,
                .max_recv_sge = path->own_slots != 0,
                .max_inline_data = SL_VERBS_MAX_INLINE},
    };
    struct ibv_qp *qp;

    /* Devices differ in what they can take inline, and only trying tells. */
    for (;;) {
        qp = (path->conn->iface->ibv->ibv_create_qp)(rail->pd, &init);
        if (qp != NULL || init.cap.max_inline_data == 0)
            break;
        init.cap.max_inline_data = init.cap.max_inline_data > 64 ? 64 : 0;
    }
    path->max_inline = init.cap.max_inline_data;
    return qp;
}

int sl_verbs_path_make(struct sl_mp_path *path)
{
    int err;

    sl_verbs_path_unmake(path);
    path->conn->iface->makes -= path->conn->iface->makes > 0;
    path->own_slots = sl_verbs_own_receives(path->rail);
    if (path->own_slots == 0 && path->rail->srq == NULL)
        return sl_fail(
            -ENOMEM,
            "%s shares no receive queue, and its completion queue has no room for one more "
            "queue pair's",
            path->rail->port.name);
    path->qp = qp_create(path);
    if (path->qp == NULL) {
        err = errno != 0 ? errno : ENOMEM;
        path->own_slots = 0;
        return sl_fail(-err, "%s has no queue pair left: %s", path->rail->port.name,
                       sluice_strerror(-err));
    }
    path->receives = 0;
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
    path->posted = path->retired = path->arrived = path->unsignalled = path->writes = 0;
    path->carried = 0;
    path->in_flight = 0;
    path->batch_count = 0;
    path->failing = false;
    path->wc_status = 0;
    path->psn = (uint32_t)sl_rng_below(&path->conn->iface->base.worker->rng, 1 << 24);
    return 0;
}

static int to_rtr(struct sl_mp_path *path, const struct sl_mp_offer *offer)
{
    const struct sl_config *config = path->conn->iface->config;
    struct sl_verbs_rail *rail = path->rail;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = path->mtu,
        .dest_qp_num = offer->qpn,
        .rq_psn = offer->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = (uint8_t)config->verbs_rnr_timer,
        .ah_attr = {.dlid = offer->rail.lid,
                    .sl = (uint8_t)config->verbs_service_level,
                    .port_num = rail->port.num},
    };

    if (rail->port.link_layer == IBV_LINK_LAYER_ETHERNET || !path->gid.is_link_local) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh =
            (struct ibv_global_route){.sgid_index = path->gid.index,
                                      .hop_limit = 64,
                                      .flow_label = path->flow_label,
                                      .traffic_class = (uint8_t)config->verbs_traffic_class};
        memcpy(&attr.ah_attr.grh.dgid, offer->rail.gid, sizeof(offer->rail.gid));
    }
    int err = (path->conn->iface->ibv->ibv_modify_qp)(
        path->qp, &attr,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

    return err == 0 ? 0
                    : sl_fail(-err, "%s has no route to the peer's rail: %s", rail->port.name,
                              sluice_strerror(-err));
}

static int to_rts(struct sl_mp_path *path)
{
    const struct sl_config *config = path->conn->iface->config;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = (uint8_t)config->verbs_timeout,
        .retry_cnt = (uint8_t)config->verbs_retry_count,
        .rnr_retry = 7, /* for ever: a peer without receive buffers is busy, not dead */
        .sq_psn = path->psn,
        .max_rd_atomic = 1,
    };
    int err = (path->conn->iface->ibv->ibv_modify_qp)(path->qp, &attr,
                                                      IBV_QP_STATE | IBV_QP_TIMEOUT |
                                                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);

    return err == 0 ? 0
                    : sl_fail(-err, "a queue pair of %s could not be made ready: %s",
                              path->rail->port.name, sluice_strerror(-err));
}

int sl_verbs_path_connect(struct sl_mp_path *path, const struct sl_mp_offer *offer)
{
    int64_t wanted = path->conn->iface->config->verbs_mtu;
    enum ibv_mtu mtu = path->rail->port.mtu;
    int err;

    if (offer->rail.mtu < mtu)
        mtu = offer->rail.mtu;
    while (wanted != 0 && mtu > IBV_MTU_256 && 128 << mtu > wanted)
        mtu--;
    path->mtu = mtu;
    path->nominal_ps =
        path->rail->port.speed != 0 ? UINT64_C(1000000000000) / path->rail->port.speed : 1000;
    if (path->nominal_ps == 0)
        path->nominal_ps = 1;
    err = to_rtr(path, offer);
    if (err == 0)
        err = to_rts(path);
    if (err == 0)
        sl_verbs_mlx5_route(path);
    return err;
}

/* From its return on the device accepts no packet for this queue pair. A device that is gone cannot
 * either. */
static bool to_error(struct sl_mp_path *path)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    int err = 1;

    for (unsigned i = 0; i < STOP_TRIES && err != 0; i++)
        err = (path->conn->iface->ibv->ibv_modify_qp)(path->qp, &attr, IBV_QP_STATE);
    return err == 0;
}

/* Handles what arrived before. A completion may show up after the queue pair has stopped, but not
 * after the one of a work request that is posted now: the drain work request. */
static void drain(struct sl_mp_path *path)
{
    struct sl_verbs_rail *rail = path->rail;
    const struct sl_clock *clock = path->conn->iface->base.worker->clock;
    struct ibv_send_wr *bad, last = {.wr_id = wr_id(path, SL_VERBS_DRAIN),
                                     .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_SIGNALED};
    uint64_t deadline_ns = sl_now(clock) + DRAIN_NS;
    int n = 0, err = -1;

    path->drained = false;
    for (unsigned i = 0; i < STOP_TRIES && err != 0; i++)
        err = ibv_post_send(path->qp, &last, &bad);
    if (err != 0)
        path->drained = true; /* the device is gone */
    do
        n = sl_verbs_rail_poll(rail, 64);
    while (n > 0 || (n == 0 && !path->drained && sl_now(clock) < deadline_ns));
}

void sl_verbs_path_stop(struct sl_mp_path *path)
{
    if (path->qp == NULL)
        return;
    path->failing = true; /* nothing goes by it any more, and it comes up no more */
    path->batch_count = 0;
    if (to_error(path)) {
        drain(path);
    } else {
        while (sl_verbs_rail_poll(path->rail, 64) > 0)
            ;
        sl_verbs_path_unmake(path); /* accepts nothing either */
        return;
    }
    sl_verbs_qpn_remove(path->rail, path->qp->qp_num);
}

void sl_verbs_path_unmake(struct sl_mp_path *path)
{
    if (path->is_dirty) {
        path->is_dirty = false;
        sl_list_remove(&path->dirty);
    }
    if (path->qp == NULL)
        return;
    sl_verbs_qpn_remove(path->rail, path->qp->qp_num);
    (path->conn->iface->ibv->ibv_destroy_qp)(path->qp);
    path->qp = NULL;
    path->batch_count = 0;
    sl_verbs_own_leave(path);
}

/* ---- posting ---- */

/* The sideband takes the place of a path without a rail. */
static bool is_tcp(const struct sl_mp_path *path)
{
    return path->rail == NULL;
}

bool sl_mp_path_has_room(const struct sl_mp_path *path)
{
    if (SL_UNLIKELY(is_tcp(path)))
        return path->posted - path->retired < SL_MP_FALLBACK_DEPTH;
    return path->posted - path->retired < SL_VERBS_SQ_ROOM;
}

void sl_verbs_path_flush(struct sl_mp_path *path)
{
    struct ibv_send_wr *bad = NULL;
    unsigned count = path->batch_count;

    path->batch_count = 0;
    if (count == 0 || path->failing)
        return;
    for (unsigned i = 0; i + 1 < count; i++)
        path->batch[i].next = &path->batch[i + 1];
    path->batch[count - 1].next = NULL;
    int err = ibv_post_send(path->qp, path->batch, &bad);

    if (SL_UNLIKELY(err != 0))
        sl_mp_path_fail(path, "posting failed: %s", sluice_strerror(-err));
}

/* A place for one more work request, its number already in it. Inline whatever its callers hold:
 * the compiler takes a probe for a large function, though it is a nop. */
__attribute__((always_inline)) static inline struct ibv_send_wr *wr_new(struct sl_mp_path *path,
                                                                        bool signal)
{
    struct sl_verbs_iface *iface = path->conn->iface;

    if (path->batch_count == SL_VERBS_BATCH)
        sl_verbs_path_flush(path);
    struct ibv_send_wr *wr = &path->batch[path->batch_count];

    path->unsignalled = signal ? 0 : path->unsignalled + 1;
    *wr = (struct ibv_send_wr){.wr_id = wr_id(path, path->posted),
                               .sg_list = &path->sges[path->batch_count],
                               .num_sge = 1,
                               .send_flags = signal ? IBV_SEND_SIGNALED : 0};
    path->wrs[path->posted % SL_MP_WINDOW].posted_ns =
        signal ? sl_now(iface->base.worker->clock) : 0;
    path->posted++;
    path->batch_count++;
    if (iface->batching && !path->is_dirty) {
        path->is_dirty = true;
        sl_list_push_back(&iface->dirty, &path->dirty);
    }
    return wr;
}

static void post_end(struct sl_mp_path *path)
{
    if (!path->conn->iface->batching)
        sl_verbs_path_flush(path);
}

static void post_bytes(struct sl_mp_path *path, struct ibv_send_wr *wr, const uint8_t *bytes,
                       uint32_t len)
{
    const struct sl_verbs_iface *iface = path->conn->iface;

    *wr->sg_list = (struct ibv_sge){
        .addr = (uintptr_t)bytes, .length = len, .lkey = iface->frames.mr[path->rail->idx]->lkey};
    wr->opcode = IBV_WR_SEND_WITH_IMM;
    wr->imm_data = htobe32(sl_mp_imm(path->posted - 1, 0));
    if (len <= path->max_inline)
        wr->send_flags |= IBV_SEND_INLINE;
}

static void post_tcp(struct sl_mp_path *path)
{
    path->wrs[path->posted % SL_MP_WINDOW].posted_ns =
        sl_now(path->conn->iface->base.worker->clock);
    path->posted++;
    sl_mp_fallback_post(path);
}

void sl_mp_path_post_frame(struct sl_mp_path *path, struct sl_mp_tx_frame *frame)
{
    struct sl_verbs_iface *iface = path->conn->iface;
    struct sl_mp_wr *control = &path->wrs[path->posted % SL_MP_WINDOW];
    bool signal = path->unsignalled + 1 >= SIGNAL_EVERY ||
                  path->posted + 1 - path->retired > SL_MP_WINDOW / 2 ||
                  iface->free_frame_count < SL_MP_TX_FRAMES / 4;

    control->kind = SL_MP_WR_FRAME;
    control->len = frame->len;
    control->frame = frame;
    SL_PROBE4(frame_post, path->conn->base.peer, path->idx, path->posted, frame->len);
    path->in_flight += frame->len;
    path->stats.sent_messages++;
    path->stats.sent_bytes += frame->len;
    if (SL_UNLIKELY(is_tcp(path))) {
        post_tcp(path);
        return;
    }
    post_bytes(path, wr_new(path, signal), frame->bytes, frame->len);
    post_end(path);
}

void sl_mp_path_post_control(struct sl_mp_path *path, struct sl_mp_tx_frame *frame)
{
    struct sl_mp_wr *control = &path->wrs[path->posted % SL_MP_WINDOW];
    struct ibv_send_wr *wr = wr_new(path, true);

    control->kind = SL_MP_WR_CONTROL;
    control->len = frame->len;
    control->frame = frame;
    post_bytes(path, wr, frame->bytes, frame->len);
    path->in_flight += frame->len;
    post_end(path);
}

void sl_mp_path_ping(struct sl_mp_path *path)
{
    const struct sl_mp_tx_frame *ping = &path->conn->iface->ping;
    struct sl_mp_wr *control = &path->wrs[path->posted % SL_MP_WINDOW];
    struct ibv_send_wr *wr = wr_new(path, true);

    control->kind = SL_MP_WR_PING;
    control->len = ping->len;
    post_bytes(path, wr, ping->bytes, ping->len);
    path->in_flight += ping->len;
    post_end(path);
}

/* A rate that was bad long ago says little: a second after its last write half of what it is worse
 * than the port's is forgotten every 50 ms, so that the path is tried again. */
static uint64_t rate_of(const struct sl_mp_path *path)
{
    uint64_t now_ns = path->conn->iface->ticked_ns, halves;

    if (path->ps_per_byte == 0)
        return path->nominal_ps;
    if (path->ps_per_byte <= path->nominal_ps || path->writes > 0 ||
        now_ns < path->last_done_ns + FORGET_AFTER_NS)
        return path->ps_per_byte;
    halves = (now_ns - path->last_done_ns - FORGET_AFTER_NS) / FORGET_NS;
    return path->nominal_ps + (halves < 64 ? (path->ps_per_byte - path->nominal_ps) >> halves : 0);
}

void sl_mp_path_post_write(struct sl_mp_path *path, const struct sl_mp_piece *piece)
{
    const struct sl_verbs_iface *iface = path->conn->iface;
    const struct sl_mp_tx_cts *cts = piece->cts;
    struct sl_mp_wr *control = &path->wrs[path->posted % SL_MP_WINDOW];

    control->kind = SL_MP_WR_WRITE;
    control->len = piece->len;
    control->piece = *piece;
    if (path->ps_per_byte > path->nominal_ps)
        path->ps_per_byte = rate_of(path);
    path->writes++;
    SL_PROBE4(write_post, path->conn->base.peer, path->idx, path->posted, piece->len);
    path->in_flight += piece->len;
    path->stats.sent_messages++;
    path->stats.sent_bytes += piece->len;
    if (SL_UNLIKELY(is_tcp(path))) {
        post_tcp(path);
        return;
    }

    struct ibv_send_wr *wr = wr_new(path, true);
    unsigned rail = path->rail->idx;

    if (piece->chunk != SL_MP_NO_CHUNK)
        *wr->sg_list = (struct ibv_sge){.addr = (uintptr_t)iface->staging.bytes +
                                                (size_t)piece->chunk * SL_MP_CHUNK_BYTES,
                                        .length = piece->len,
                                        .lkey = iface->staging.mr[rail]->lkey};
    else
        *wr->sg_list =
            (struct ibv_sge){.addr = (uintptr_t)cts->msg->addr + cts->cts.off + piece->off,
                             .length = piece->len,
                             .lkey = cts->msg->mr->mr[rail]->lkey};
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->imm_data = htobe32(sl_mp_imm(path->posted - 1, cts->cts.id));
    wr->wr.rdma.remote_addr = cts->cts.addr + piece->off;
    wr->wr.rdma.rkey = cts->cts.rkeys[path->remote_rail];
    post_end(path);
}

/* ---- completions ---- */

static void measure(struct sl_mp_path *path, const struct sl_mp_wr *wr, uint64_t now_ns)
{
    uint64_t took = now_ns - wr->posted_ns;

    SL_PROBE4(complete, path->conn->base.peer, path->idx, wr->len, took);
    path->stats.histogram[sl_histogram_bin(took)]++;
    if (wr->kind != SL_MP_WR_WRITE) {
        path->latency_ns = path->latency_ns == 0 ? took : (7 * path->latency_ns + took) / 8;
    } else if (wr->len != 0) {
        /* Time that was this write's alone: since the one before it ended, or since it was
         * posted. */
        uint64_t since = path->last_done_ns > wr->posted_ns ? path->last_done_ns : wr->posted_ns;
        uint64_t ps = (now_ns - since) * 1000 / wr->len;

        path->ps_per_byte = path->ps_per_byte == 0 ? ps : (7 * path->ps_per_byte + ps) / 8;
        path->last_done_ns = now_ns;
    }
}

void sl_mp_path_retire(struct sl_mp_path *path, uint32_t ordinal, uint64_t now_ns)
{
    struct sl_mp_conn *conn = path->conn;

    while ((int32_t)(ordinal - path->retired) >= 0 && path->retired != path->posted) {
        struct sl_mp_wr wr = path->wrs[path->retired++ % SL_MP_WINDOW];

        path->in_flight -= wr.len;
        if (wr.posted_ns != 0)
            measure(path, &wr, now_ns);
        if (wr.kind == SL_MP_WR_PING) {
            sl_mp_path_pinged(path);
            continue;
        }
        path->carried = path->retired;
        if (wr.kind == SL_MP_WR_WRITE) {
            path->writes--;
            sl_mp_piece_over(conn, &wr.piece);
            continue;
        }
        if (wr.kind == SL_MP_WR_CONTROL)
            sl_mp_control_arrived(conn, wr.frame);
        sl_mp_frame_free(conn->iface, wr.frame);
    }
}

void sl_mp_path_salvage(struct sl_mp_path *path, uint32_t arrived)
{
    struct sl_mp_conn *conn = path->conn;
    uint64_t before = path->stats.resent;
    struct sl_node *later =
        conn->repeat.next; /* frames that wait to be repeated come after this path's */

    while (path->retired != path->posted) {
        uint32_t ordinal = path->retired++;
        struct sl_mp_wr wr = path->wrs[ordinal % SL_MP_WINDOW];
        bool had = (int32_t)(arrived - ordinal) > 0;

        path->in_flight -= wr.len;
        if (wr.kind == SL_MP_WR_PING)
            continue;
        if (wr.kind == SL_MP_WR_WRITE) {
            path->writes--;
            path->stats.resent += !had;
            if (had)
                sl_mp_piece_over(conn, &wr.piece);
            else
                sl_mp_piece_redo(conn, &wr.piece);
        } else if (wr.kind == SL_MP_WR_FRAME && !had) {
            path->stats.resent++;
            sl_list_push_back(later, &wr.frame->link);
        } else if (wr.kind == SL_MP_WR_CONTROL && !had) {
            sl_mp_control_lost(conn, wr.frame);
        } else {
            if (wr.kind == SL_MP_WR_CONTROL)
                sl_mp_control_arrived(conn, wr.frame);
            sl_mp_frame_free(conn->iface, wr.frame);
        }
    }
    if (path->stats.resent != before) {
        SL_PROBE3(resend, conn->base.peer, path->idx, path->stats.resent - before);
        sl_mp_event(conn->iface, SL_EVENT_RESEND, conn->base.peer, path->idx,
                    path->stats.resent - before);
    }
}

unsigned sl_mp_rail_in_use(const struct sl_mp_conn *conn)
{
    unsigned first = SL_MP_RAILS_ALL;

    for (unsigned i = 0; i < conn->path_count && conn->iface->config->verbs_reserve == SL_ON; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (path != NULL && path->state == SL_MP_PATH_UP && !path->failing &&
            path->rail->idx < first)
            first = path->rail->idx;
    }
    return first;
}

struct sl_mp_path *sl_mp_path_best(struct sl_mp_conn *conn, uint64_t len)
{
    struct sl_mp_path *best = NULL;
    unsigned rail = sl_mp_rail_in_use(conn);
    uint64_t best_ps = 0;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path == NULL || path->state != SL_MP_PATH_UP || path->failing ||
            (rail != SL_MP_RAILS_ALL && path->rail->idx != rail) ||
            path->writes >= SL_MP_WRITES_MAX || !sl_mp_path_has_room(path))
            continue;
        uint64_t ps = path->latency_ns * 1000 + (path->in_flight + len) * rate_of(path);

        if (best == NULL || ps < best_ps) {
            best = path;
            best_ps = ps;
        }
    }
    if (best == NULL && conn->paths_up == 0) {
        best = sl_mp_fallback_path(conn);
        if (best != NULL && !sl_mp_path_has_room(best))
            best = NULL;
    }
    return best;
}
