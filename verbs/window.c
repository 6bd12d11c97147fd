/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory windows of type 1: a key that gives a peer the bytes of one CTS, and is dead when they are
 * in. A region is then registered without remote write, so its own key gives nothing.
 * (docs/design/0039-keys-that-expire.md)
 *
 * Windows are bound by a queue pair of the rail's own, connected to itself, over which no packet
 * ever goes: a path that fails takes no bind with it, and no path's work requests are numbered
 * around them. A window of type 1 belongs to the protection domain, so every path of the rail may
 * be written by.
 *
 * A bind that fails leaves nobody sure of what the window's key is. So its window is given up,
 * which ends its key at once, and another one is made; and the queue pair is connected anew.
 */
#include "verbs/window.h"

#include "verbs/config.h"
#include "verbs/iface.h"

#include "core/log.h"

#include <stdlib.h>

#define CUT_NS (5 * SL_NS_PER_MS) /* for what is under way, when keys must end at once */
#define POLL_BATCH 16
#define WR_BINDS 1u /* in wr_id: a bind to bytes, and not to nothing */
#define WR_PLACE_SHIFT 1
#define WR_USE_SHIFT 16

struct grant {
    struct sl_mp_grant base;
    struct sl_node link; /* of those that are free */
    uint32_t use;        /* how often it was opened: a completion is of one of them */
    const struct sl_verbs_mr *mr;
    uint64_t addr, len;
    struct ibv_mw *mw[SL_MP_RAILS_MAX]; /* NULL: the device gave none */
    uint16_t bound;                     /* rails whose window may be bound */
};

/* Of a rail. */
struct queue {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    unsigned under_way;
    bool is_ready;  /* connected */
    bool is_broken; /* a bind has failed; connected anew when all have come back */
};

struct sl_verbs_windows {
    struct sl_node free;
    unsigned free_count;
    struct queue queues[SL_MP_RAILS_MAX];
    struct grant grants[SL_VERBS_WINDOWS];
};

static const struct sl_mp_grants grants;

static struct grant *grant_of(struct sl_mp_grant *grant)
{
    return (struct grant *)grant;
}

static struct sl_verbs_iface *iface_of(struct sl_mp_iface *iface)
{
    return (struct sl_verbs_iface *)iface;
}

static struct queue *queue_of(const struct sl_verbs_rail *rail)
{
    return &rail->iface->windows->queues[rail->base.idx];
}

static uint16_t bit_of(const struct sl_verbs_rail *rail)
{
    return (uint16_t)(1u << rail->base.idx);
}

/* ---- binding ---- */

/* Its key is dead when this returns. */
static void replace(struct sl_verbs_rail *rail, struct grant *grant)
{
    struct ibv_mw **mw = &grant->mw[rail->base.idx];
    struct ibv_pd *pd = (*mw)->pd;

    grant->base.rails &= (uint16_t)~bit_of(rail);
    grant->base.pending &= (uint16_t)~bit_of(rail);
    grant->bound &= (uint16_t)~bit_of(rail);
    if (ibv_dealloc_mw(*mw) != 0 && !rail->is_lost)
        sl_verbs_rail_lose(rail, "it does not take a memory window's key back");
    *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
}

/* To its bytes, or to nothing. To nothing it names the region, too: soft-RoCE's library asks it for
 * its key. */
static bool post(struct sl_verbs_rail *rail, struct grant *grant, bool binds)
{
    struct queue *queue = queue_of(rail);
    unsigned i = rail->base.idx;
    uint64_t place = (uint64_t)(grant - rail->iface->windows->grants);
    struct ibv_mw_bind bind = {
        .wr_id =
            (uint64_t)grant->use << WR_USE_SHIFT | place << WR_PLACE_SHIFT | (binds ? WR_BINDS : 0),
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {.mr = grant->mr->claims[i].mr,
                      .addr = grant->addr,
                      .length = binds ? grant->len : 0,
                      .mw_access_flags = binds ? IBV_ACCESS_REMOTE_WRITE : 0}};

    if (ibv_bind_mw(queue->qp, grant->mw[i], &bind) != 0)
        return false;
    queue->under_way++;
    grant->base.pending |= bit_of(rail);
    if (binds) {
        grant->bound |= bit_of(rail);
        grant->base.rkeys[i] = grant->mw[i]->rkey;
    }
    return true;
}

static void unbind(struct sl_verbs_rail *rail, struct grant *grant)
{
    if (!post(rail, grant, false))
        replace(rail, grant);
}

static bool can_bind(const struct sl_verbs_rail *rail, const struct grant *grant)
{
    const struct queue *queue = queue_of(rail);

    return !rail->is_lost && queue->is_ready && !queue->is_broken &&
           grant->mr->claims[rail->base.idx].mr != NULL && grant->mw[rail->base.idx] != NULL &&
           ((grant->bound | grant->base.pending) & bit_of(rail)) == 0;
}

static void renew(struct sl_mp_iface *base, struct sl_mp_grant *grant)
{
    struct sl_verbs_iface *iface = iface_of(base);

    for (unsigned i = 0; i < base->rail_count; i++)
        if (can_bind(&iface->rails[i], grant_of(grant)) &&
            !post(&iface->rails[i], grant_of(grant), true))
            grant->is_refused = true;
}

static struct sl_mp_grant *open_grant(struct sl_mp_iface *base, struct sl_mp_region *region,
                                      void *addr, size_t len, bool asked)
{
    struct sl_verbs_windows *windows = iface_of(base)->windows;

    if (windows->free_count == 0 || (!asked && windows->free_count <= SL_VERBS_WINDOWS / 2))
        return NULL;
    struct grant *grant = sl_container_of(sl_list_pop_front(&windows->free), struct grant, link);

    windows->free_count--;
    grant->base = (struct sl_mp_grant){.by = &grants};
    grant->use++;
    grant->mr = (const struct sl_verbs_mr *)region;
    grant->addr = (uintptr_t)addr;
    grant->len = len;
    renew(base, &grant->base);
    return &grant->base;
}

static void end(struct sl_mp_iface *base, struct sl_mp_grant *given)
{
    struct sl_verbs_iface *iface = iface_of(base);
    struct grant *grant = grant_of(given);

    given->is_ending = true;
    for (unsigned i = 0; i < base->rail_count; i++)
        if ((grant->bound & ~given->pending & 1u << i) != 0)
            unbind(&iface->rails[i], grant);
}

static void put(struct sl_mp_iface *base, struct sl_mp_grant *grant)
{
    struct sl_verbs_windows *windows = iface_of(base)->windows;

    /* The one that was used longest ago comes next: a key has 8 bits of its own. */
    sl_list_push_back(&windows->free, &grant_of(grant)->link);
    windows->free_count++;
}

/* ---- completions ---- */

static int connect_self(struct sl_verbs_rail *rail);

static void failed(struct sl_verbs_rail *rail, enum ibv_wc_status status)
{
    struct queue *queue = queue_of(rail);

    if (!queue->is_broken)
        sl_warn("verbs",
                "%s could not bind a memory window: %s; messages go without it, and with "
                "SLUICE_VERBS_KEYS=region none is needed",
                rail->port.name, rail->iface->ibv->ibv_wc_status_str(status));
    queue->is_broken = true;
}

static void bound(struct sl_verbs_rail *rail, const struct ibv_wc *wc)
{
    struct sl_verbs_windows *windows = rail->iface->windows;
    struct grant *grant = &windows->grants[wc->wr_id >> WR_PLACE_SHIFT & (SL_VERBS_WINDOWS - 1)];
    bool binds = (wc->wr_id & WR_BINDS) != 0;

    queue_of(rail)->under_way--;
    if (wc->status != IBV_WC_SUCCESS)
        failed(rail, wc->status);
    if (grant->use != (uint32_t)(wc->wr_id >> WR_USE_SHIFT) ||
        (grant->base.pending & bit_of(rail)) == 0)
        return; /* it was cut */
    if (wc->status != IBV_WC_SUCCESS) {
        grant->base.is_refused |= binds;
        replace(rail, grant);
        return;
    }
    grant->base.pending &= (uint16_t)~bit_of(rail);
    if (!binds)
        grant->bound &= (uint16_t)~bit_of(rail);
    else if (grant->base.is_ending)
        unbind(rail, grant);
    else
        grant->base.rails |= bit_of(rail);
}

static void poll_rail(struct sl_verbs_rail *rail)
{
    struct queue *queue = queue_of(rail);
    struct ibv_wc wc[POLL_BATCH];

    if (!queue->is_ready || queue->under_way == 0)
        return;
    int n = ibv_poll_cq(queue->cq, POLL_BATCH, wc);

    if (n < 0) {
        sl_verbs_rail_lose(rail, "the completion queue of its memory windows is lost");
        return;
    }
    for (int i = 0; i < n; i++)
        bound(rail, &wc[i]);
    if (SL_LIKELY(!queue->is_broken) || queue->under_way != 0)
        return;
    queue->is_broken = false;
    if (connect_self(rail) != 0) {
        queue->is_ready = false; /* until the port's state changes */
        sl_warn("verbs", "%s", sluice_last_error());
    }
}

static void poll(struct sl_mp_iface *base)
{
    for (unsigned i = 0; i < base->rail_count; i++)
        poll_rail(&iface_of(base)->rails[i]);
}

static void cut(struct sl_mp_iface *base, struct sl_mp_grant *grant)
{
    struct sl_verbs_iface *iface = iface_of(base);
    uint64_t deadline_ns = sl_now(base->base.worker->clock) + CUT_NS;

    if (!grant->is_ending)
        end(base, grant);
    while (grant->pending != 0 && sl_now(base->base.worker->clock) < deadline_ns)
        poll(base);
    for (unsigned i = 0; i < base->rail_count; i++)
        if ((grant->pending & 1u << i) != 0)
            replace(&iface->rails[i], grant_of(grant));
    put(base, grant);
}

static const struct sl_mp_grants grants = {
    .open = open_grant, .renew = renew, .end = end, .put = put, .cut = cut, .poll = poll};

/* ---- a rail's ---- */

static int to_state(struct sl_verbs_rail *rail, struct ibv_qp_attr *attr, int mask)
{
    int err = (rail->iface->ibv->ibv_modify_qp)(queue_of(rail)->qp, attr, mask | IBV_QP_STATE);

    return err == 0 ? 0
                    : sl_fail(-err, "%s could not connect the queue pair of its memory windows: %s",
                              rail->port.name, sluice_strerror(-err));
}

/* To itself, from whatever state: it only has to be one that works requests off. */
static int connect_self(struct sl_verbs_rail *rail)
{
    uint32_t qpn = queue_of(rail)->qp->qp_num;
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = rail->port.num};
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = rail->port.mtu,
        .dest_qp_num = qpn,
        .ah_attr = {.dlid = rail->port.lid, .port_num = rail->port.num},
    };
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6};

    if (rail->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
        rtr.ah_attr.is_global = 1;
        rtr.ah_attr.grh = (struct ibv_global_route){
            .dgid = rail->gid.gid, .sgid_index = rail->gid.index, .hop_limit = 1};
    }
    int err = to_state(rail, &reset, 0);

    if (err == 0)
        err = to_state(rail, &init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (err == 0)
        err = to_state(rail, &rtr,
                       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (err == 0)
        err = to_state(rail, &rts,
                       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
    return err;
}

bool sl_verbs_windows_ready(struct sl_verbs_rail *rail)
{
    struct queue *queue = rail->iface->windows == NULL ? NULL : queue_of(rail);

    if (queue == NULL || queue->qp == NULL || queue->is_ready)
        return false;
    queue->is_ready = connect_self(rail) == 0;
    if (!queue->is_ready)
        sl_warn("verbs", "%s", sluice_last_error());
    return queue->is_ready;
}

static int none(const struct sl_verbs_rail *rail, const char *what)
{
    int err = errno != 0 ? errno : ENOTSUP;

    return sl_fail(-err,
                   "%s gives no %s, which SLUICE_VERBS_KEYS=window asks for: %s; set it to region",
                   rail->port.name, what, sluice_strerror(-err));
}

int sl_verbs_windows_join(struct sl_verbs_rail *rail)
{
    struct sl_verbs_windows *windows = rail->iface->windows;
    const struct sl_ibv *ibv = rail->iface->ibv;
    struct ibv_pd *pd;

    if (windows == NULL)
        return 0;
    struct queue *queue = queue_of(rail);
    int err = sl_verbs_device_pd(rail->device, &pd);

    if (err != 0)
        return err;
    *queue = (struct queue){0};
    errno = 0;
    for (unsigned i = 0; i < SL_VERBS_WINDOWS; i++) {
        windows->grants[i].mw[rail->base.idx] = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
        if (windows->grants[i].mw[rail->base.idx] == NULL)
            return none(rail, "memory windows");
    }
    /* A window has one bind under way, and one more that was cut. */
    queue->cq =
        ibv->ibv_create_cq(rail->device->context, 2 * SL_VERBS_WINDOWS, &rail->listener, NULL, 0);
    if (queue->cq == NULL)
        return none(rail, "completion queue for memory windows");
    struct ibv_qp_init_attr init = {.qp_context = &rail->listener,
                                    .send_cq = queue->cq,
                                    .recv_cq = queue->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 2 * SL_VERBS_WINDOWS,
                                            .max_send_sge = 1,
                                            .max_recv_wr = 1,
                                            .max_recv_sge = 1}};

    queue->qp = (ibv->ibv_create_qp)(pd, &init);
    return queue->qp != NULL ? 0 : none(rail, "queue pair for memory windows");
}

void sl_verbs_windows_lose(struct sl_verbs_rail *rail)
{
    struct sl_verbs_windows *windows = rail->iface->windows;

    if (windows == NULL)
        return;
    queue_of(rail)->is_ready = false;
    queue_of(rail)->under_way = 0;
    for (unsigned i = 0; i < SL_VERBS_WINDOWS; i++) {
        struct grant *grant = &windows->grants[i];

        grant->base.rails &= (uint16_t)~bit_of(rail);
        grant->base.pending &= (uint16_t)~bit_of(rail);
        grant->bound &= (uint16_t)~bit_of(rail);
    }
}

void sl_verbs_windows_leave(struct sl_verbs_rail *rail)
{
    struct sl_verbs_windows *windows = rail->iface->windows;

    if (windows == NULL)
        return;
    struct queue *queue = queue_of(rail);

    sl_verbs_windows_lose(rail);
    if (queue->qp != NULL)
        (rail->iface->ibv->ibv_destroy_qp)(queue->qp);
    if (queue->cq != NULL)
        rail->iface->ibv->ibv_destroy_cq(queue->cq);
    *queue = (struct queue){0};
    for (unsigned i = 0; i < SL_VERBS_WINDOWS; i++) {
        struct ibv_mw **mw = &windows->grants[i].mw[rail->base.idx];

        if (*mw != NULL)
            ibv_dealloc_mw(*mw);
        *mw = NULL;
    }
}

int sl_verbs_windows_new(struct sl_verbs_iface *iface)
{
    struct sl_verbs_windows *windows = calloc(1, sizeof(*windows));

    if (windows == NULL)
        return sl_fail(-ENOMEM, "no memory for a table of memory windows");
    sl_list_init(&windows->free);
    for (unsigned i = 0; i < SL_VERBS_WINDOWS; i++)
        sl_list_push_back(&windows->free, &windows->grants[i].link);
    windows->free_count = SL_VERBS_WINDOWS;
    iface->windows = windows;
    iface->mp.grants = &grants;
    return 0;
}

void sl_verbs_windows_free(struct sl_verbs_iface *iface)
{
    free(iface->windows);
}
