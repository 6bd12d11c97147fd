/* SPDX-License-Identifier: Apache-2.0 */
/* An open port: what arrives there, and what the device reports. */
#include "verbs/rail.h"

#include "verbs/events.h"
#include "verbs/iface.h"
#include "verbs/pkey.h"
#include "verbs/queue_pair.h"
#include "verbs/window.h"

#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define POLL_BATCH 16
#define REREAD_NS (200 * SL_NS_PER_MS) /* between readings of a port that is not usable */
#define QPNS_MIN 64

/* ---- the hash from queue pair number to path ---- */

static struct sl_verbs_qpn *qpn_place(const struct sl_verbs_rail *rail, uint32_t qpn)
{
    uint32_t at = qpn * UINT32_C(0x9e3779b1) >> 8;

    while (rail->qpns[at & rail->qpn_mask].qpn != 0 && rail->qpns[at & rail->qpn_mask].qpn != qpn)
        at++;
    return &rail->qpns[at & rail->qpn_mask];
}

static int qpns_grow(struct sl_verbs_rail *rail)
{
    uint32_t cap = rail->qpns == NULL ? QPNS_MIN : 2 * (rail->qpn_mask + 1);
    struct sl_verbs_qpn *old = rail->qpns, *qpns = calloc(cap, sizeof(*qpns));
    uint32_t old_cap = old == NULL ? 0 : rail->qpn_mask + 1;

    if (qpns == NULL)
        return sl_fail(-ENOMEM, "no memory for a table of %u queue pairs", cap);
    rail->qpns = qpns;
    rail->qpn_mask = cap - 1;
    for (uint32_t i = 0; i < old_cap; i++)
        if (old[i].qpn != 0)
            *qpn_place(rail, old[i].qpn) = old[i];
    free(old);
    return 0;
}

int sl_verbs_qpn_add(struct sl_verbs_rail *rail, uint32_t qpn, struct sl_verbs_path *path)
{
    if (rail->qpns == NULL || 2 * (rail->qpn_count + 1) > rail->qpn_mask) {
        int err = qpns_grow(rail);

        if (err != 0)
            return err;
    }
    *qpn_place(rail, qpn) = (struct sl_verbs_qpn){qpn, path};
    rail->qpn_count++;
    return 0;
}

void sl_verbs_qpn_remove(struct sl_verbs_rail *rail, uint32_t qpn)
{
    if (rail->qpns == NULL || qpn_place(rail, qpn)->qpn != qpn)
        return;
    rail->qpn_count--;
    *qpn_place(rail, qpn) = (struct sl_verbs_qpn){0};
    /* Those behind it in the same run may have been pushed there by it. */
    for (uint32_t i = (uint32_t)(qpn_place(rail, qpn) - rail->qpns) + 1;
         rail->qpns[i & rail->qpn_mask].qpn != 0; i++) {
        struct sl_verbs_qpn moved = rail->qpns[i & rail->qpn_mask];

        rail->qpns[i & rail->qpn_mask].qpn = 0;
        *qpn_place(rail, moved.qpn) = moved;
    }
}

static struct sl_verbs_path *path_of(const struct sl_verbs_rail *rail, uint32_t qpn)
{
    const struct sl_verbs_qpn *place = rail->qpns == NULL ? NULL : qpn_place(rail, qpn);

    return place == NULL || place->qpn != qpn ? NULL : place->path;
}

/* ---- completions ---- */

/* A send or write ended. An error takes the path out, whatever it is: the queue pair is in ERR. */
static void on_sent(struct sl_verbs_rail *rail, const struct ibv_wc *wc, uint64_t now_ns)
{
    struct sl_verbs_iface *iface = rail->iface;
    uint32_t slot = (uint32_t)(wc->wr_id >> 44) & 0x7ffff;
    uint16_t epoch = (wc->wr_id >> 32) & 0xfff;
    struct sl_verbs_path *path = slot < iface->path_cap ? iface->paths[slot] : NULL;

    if (path == NULL || path->qp == NULL || (path->base.epoch & 0xfff) != epoch)
        return; /* of an epoch that is over */
    if (SL_UNLIKELY((uint32_t)wc->wr_id == SL_VERBS_DRAIN))
        path->drained = true;
    else if (SL_LIKELY(wc->status == IBV_WC_SUCCESS))
        sl_mp_retired(&path->base, (uint32_t)wc->wr_id, now_ns);
    else
        sl_mp_failed(&path->base, wc->status, "%s", iface->ibv->ibv_wc_status_str(wc->status));
}

static void on_arrived(struct sl_verbs_rail *rail, const struct ibv_wc *wc)
{
    struct sl_verbs_path *path = path_of(rail, wc->qp_num);
    uint32_t slot = (uint32_t)wc->wr_id, imm = be32toh(wc->imm_data);

    if (SL_UNLIKELY(!sl_verbs_slot_take(rail, wc->wr_id)))
        return;
    /* After its fence a path's arrivals do not count: the peer sends them again by another. */
    if (path == NULL || wc->status != IBV_WC_SUCCESS) {
        sl_verbs_slot_flushed(rail, slot);
        if (path != NULL)
            sl_mp_failed(&path->base, wc->status, "%s",
                         rail->iface->ibv->ibv_wc_status_str(wc->status));
        return;
    }
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        sl_verbs_slot_put(rail, slot);
        sl_mp_written(&path->base, imm, wc->byte_len);
    } else {
        sl_mp_arrived(&path->base, imm, sl_verbs_slot_bytes(rail, slot), slot, wc->byte_len);
    }
}

unsigned sl_verbs_rail_poll(struct sl_verbs_rail *rail, unsigned budget)
{
    struct ibv_wc wc[POLL_BATCH];
    unsigned total = 0;

    while (total < budget && SL_LIKELY(rail->cq != NULL)) {
        int n = ibv_poll_cq(rail->cq, POLL_BATCH, wc);
        uint64_t now_ns = 0;

        if (n == 0)
            break;
        if (SL_UNLIKELY(n < 0)) {
            sl_verbs_rail_lose(rail, "its completion queue is lost");
            break;
        }
        for (int i = 0; i < n; i++) {
            if ((wc[i].wr_id & SL_VERBS_SLOT_BIT) != 0) {
                on_arrived(rail, &wc[i]);
                continue;
            }
            if (now_ns == 0)
                now_ns = sl_now(rail->iface->mp.base.worker->clock);
            on_sent(rail, &wc[i], now_ns);
        }
        total += (unsigned)n;
        if (n < POLL_BATCH)
            break;
    }
    return total;
}

void sl_verbs_rail_arm(struct sl_verbs_rail *rail)
{
    if (!rail->is_lost && ibv_req_notify_cq(rail->cq, 0) != 0)
        sl_verbs_rail_lose(rail, "its completion queue is lost");
}

void sl_verbs_rail_disarm(struct sl_verbs_rail *rail)
{
    struct ibv_cq *cq;
    void *arg;

    while (rail->channel != NULL &&
           rail->iface->ibv->ibv_get_cq_event(rail->channel, &cq, &arg) == 0)
        rail->cq_events++;
}

/* ---- the port ---- */

/* Paths that began at this rail end, unless everything about it is as it was. */
static void fail_paths(struct sl_verbs_rail *rail, const char *why)
{
    for (uint32_t i = 0; i < rail->iface->path_cap; i++) {
        struct sl_verbs_path *path = rail->iface->paths[i];

        if (path != NULL && path->rail == rail && path->qp != NULL)
            sl_mp_failed(&path->base, 0, "%s", why);
    }
}

void sl_verbs_rail_judge(struct sl_verbs_rail *rail)
{
    const struct sl_config *config = rail->iface->config;

    rail->base.usable = false;
    /* Without a link, too: peers pair rails by the subnets of their addresses. */
    int no_gid = sl_verbs_gid_choose(config, &rail->port, &rail->gid);

    if (rail->port.why[0] != '\0') {
        snprintf(rail->base.why, sizeof(rail->base.why), "%s", rail->port.why);
    } else if (no_gid != 0 || sl_verbs_pkey_choose(config, &rail->port, &rail->pkey) != 0) {
        snprintf(rail->base.why, sizeof(rail->base.why), "%s", sluice_last_error());
    } else {
        rail->base.usable = true;
        rail->base.why[0] = '\0';
    }
}

/* False: it turns out to be lost. */
static bool reread(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    char name[SL_VERBS_NAME_MAX];
    uint8_t num = rail->port.num;
    struct sl_verbs_port *port = malloc(sizeof(*port));

    if (port == NULL) {
        rail->base.usable = false;
        return true;
    }
    memcpy(name, rail->port.name, sizeof(name));
    int err = sl_verbs_port_read(iface->ibv, rail->device->context, num, port);

    if (err != 0) {
        /* Soft-RoCE's device answers until all who have it open have closed it. */
        if (err == -ENODEV)
            atomic_store(&rail->device->is_dead, true);
        if (sl_verbs_rail_is_gone(rail)) {
            free(port);
            return false;
        }
        rail->base.usable = false;
        snprintf(rail->base.why, sizeof(rail->base.why), "%s", sluice_last_error());
    } else {
        memcpy(port->name, name, sizeof(name));
        memcpy(port->device, rail->port.device, sizeof(port->device));
        rail->port = *port;
        rail->base.speed = port->speed;
        sl_verbs_rail_judge(rail);
    }
    free(port);
    return true;
}

static bool has_gid(const struct sl_verbs_port *port, const struct sl_verbs_gid *gid)
{
    for (unsigned i = 0; i < port->gid_count; i++)
        if (port->gids[i].index == gid->index && port->gids[i].type == gid->type &&
            memcmp(&port->gids[i].gid, &gid->gid, sizeof(gid->gid)) == 0)
            return true;
    return false;
}

/* A path whose own GID, LID or P_Key has gone or moved carries nothing any more. */
static void fail_moved(struct sl_verbs_rail *rail)
{
    for (uint32_t i = 0; i < rail->iface->path_cap; i++) {
        struct sl_verbs_path *path = rail->iface->paths[i];

        if (path == NULL || path->rail != rail || path->qp == NULL)
            continue;
        if (!has_gid(&rail->port, &path->gid))
            sl_mp_failed(&path->base, 0, "the GID of %s has changed", rail->port.name);
        else if (path->lid != rail->port.lid + path->lid_bits % (1u << rail->port.lmc))
            sl_mp_failed(&path->base, 0, "the LID of %s has changed", rail->port.name);
        else if (!sl_verbs_pkey_is_there(&rail->port, &path->pkey))
            sl_mp_failed(&path->base, 0, "the P_Key 0x%04x of %s has moved or is gone",
                         path->pkey.key, rail->port.name);
    }
}

/* Descriptors of a device that was taken away are readable for ever: nobody could sleep. */
static void unwatch(struct sl_verbs_rail *rail)
{
    int epoll_fd = rail->iface->epoll_fd;

    (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, rail->channel->fd, NULL);
    if (atomic_load(&rail->device->is_dead))
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, rail->device->context->async_fd, NULL);
}

void sl_verbs_rail_lose(struct sl_verbs_rail *rail, const char *why)
{
    struct sl_mp_iface *iface = &rail->iface->mp;

    if (rail->is_lost)
        return;
    rail->is_lost = iface->uneven = true;
    rail->reread_at_ns = sl_now(iface->base.worker->clock) + rail->retry_ns;
    if (rail->base.usable)
        sl_mp_event(iface, SL_EVENT_PORT_DOWN, -1, rail->base.idx, rail->port.state);
    rail->base.usable = false;
    snprintf(rail->base.why, sizeof(rail->base.why), "%s", why);
    sl_warn("verbs", "%s is out until its device can be opened again: %s", rail->port.name, why);
    if (rail->device != NULL)
        unwatch(rail);
    sl_verbs_windows_lose(rail);
    fail_paths(rail, why);
    sl_mp_rails_changed(iface, false);
}

bool sl_verbs_rail_is_gone(struct sl_verbs_rail *rail)
{
    if (!rail->is_lost && !sl_verbs_device_is_alive(rail->device))
        sl_verbs_rail_lose(rail, "its device is gone");
    return rail->is_lost;
}

void sl_verbs_rail_refresh(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    bool was_usable = rail->base.usable;
    struct sl_verbs_gid old = rail->gid;
    uint16_t old_key = rail->pkey.key, old_lid = rail->port.lid;
    uint64_t now_ns = sl_now(iface->mp.base.worker->clock);

    if (rail->is_lost || rail->rejoin != NULL)
        return; /* whatever becomes of the port */
    if (!reread(rail))
        return;
    if (was_usable != rail->base.usable)
        sl_mp_event(&iface->mp, rail->base.usable ? SL_EVENT_PORT_UP : SL_EVENT_PORT_DOWN, -1,
                    rail->base.idx, rail->port.state);
    if (old.gid.global.interface_id != 0 &&
        (old.index != rail->gid.index || memcmp(&old.gid, &rail->gid.gid, sizeof(old.gid)) != 0))
        sl_mp_event(&iface->mp, SL_EVENT_GID_CHANGE, -1, rail->base.idx, rail->gid.index);
    rail->reread_at_ns = rail->base.usable ? SL_NEVER : now_ns + REREAD_NS;
    if (!rail->base.usable) {
        if (was_usable)
            sl_warn("verbs", "%s is out: %s", rail->port.name, rail->base.why);
        fail_paths(rail, rail->base.why);
    } else {
        if (!was_usable)
            sl_info("verbs", "%s is usable", rail->port.name);
        if (sl_verbs_windows_ready(rail))
            sl_mp_rail_joined(&iface->mp); /* those that were made without it */
        fail_moved(rail);
    }
    if (was_usable == rail->base.usable && old_key == rail->pkey.key && old_lid == rail->port.lid &&
        memcmp(&old.gid, &rail->gid.gid, sizeof(old.gid)) == 0)
        return;
    sl_mp_rails_changed(&iface->mp, true);
}

static void on_event(struct sl_verbs_rail *rail, const struct sl_verbs_event *event)
{
    const char *name = rail->iface->ibv->ibv_event_type_str(event->type);

    sl_log(event->type == IBV_EVENT_QP_LAST_WQE_REACHED ? SL_LOG_DEBUG : SL_LOG_INFO, "verbs",
           "%s reports: %s", rail->port.name, name);
    switch (event->type) {
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        if (event->type == IBV_EVENT_PORT_ERR)
            fail_paths(rail, name);
        sl_verbs_rail_refresh(rail);
        return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR: {
        struct sl_verbs_path *path = path_of(rail, event->subject);

        if (path != NULL)
            sl_mp_failed(&path->base, 0, "%s", name);
        return;
    }
    case IBV_EVENT_QP_LAST_WQE_REACHED: sl_verbs_leave_reached(rail, event->subject); return;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR: sl_verbs_rail_lose(rail, name); return;
    default: return;
    }
}

int sl_verbs_rail_events(struct sl_verbs_rail *rail)
{
    struct sl_verbs_event events[SL_VERBS_EVENTS_MAX];
    uint64_t now_ns = sl_now(rail->iface->mp.base.worker->clock);
    bool overflowed;
    unsigned count;

    if ((rail->is_lost && !rail->is_asleep) || rail->rejoin != NULL)
        sl_verbs_rail_rejoin(rail, now_ns);
    if (rail->device == NULL)
        return 0;
    count = sl_verbs_device_events(rail->device, &rail->listener, events, &overflowed);

    for (unsigned i = 0; i < count; i++)
        on_event(rail, &events[i]);
    if (overflowed)
        fail_paths(rail, "many queue pairs failed at once");
    sl_verbs_leave_timers(rail, now_ns);
    if (now_ns >= rail->reread_at_ns && !rail->is_lost)
        sl_verbs_rail_refresh(rail);
    return (int)count;
}
