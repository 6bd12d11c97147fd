/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a port: its device, its queues, its events; and closing it. */
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/queue_pair.h"
#include "verbs/rail.h"
#include "verbs/window.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CQ_ENTRIES 32768

static int watch_fd(struct sl_verbs_iface *iface, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    int flags = fcntl(fd, F_GETFL);

    /* Another port of the same device may have brought it. */
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST))
        return sl_fail(-errno, "a device's events cannot be waited for: %s",
                       sluice_strerror(-errno));
    return 0;
}

/* The device may stay open: then its events are no business of this rail any more. */
static void events_close(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    bool is_last = true;

    sl_verbs_device_unlisten(rail->device, &rail->listener);
    if (rail->listener.bell >= 0)
        close(rail->listener.bell);
    for (unsigned i = 0; i < SL_MP_RAILS_MAX; i++)
        is_last &= &iface->rails[i] == rail || iface->rails[i].device != rail->device;
    if (is_last)
        (void)epoll_ctl(iface->epoll_fd, EPOLL_CTL_DEL, rail->device->context->async_fd, NULL);
}

/* Others that have the device open may read its events first: then they ring a bell. */
static int events_open(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    int err = watch_fd(iface, rail->device->context->async_fd);

    if (err != 0)
        return err;
    rail->listener.port = rail->port.num;
    rail->listener.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rail->listener.bell < 0)
        return sl_fail(-errno, "no bell for the events of %s: %s", rail->device->name,
                       sluice_strerror(-errno));
    err = watch_fd(iface, rail->listener.bell);
    if (err == 0)
        sl_verbs_device_listen(rail->device, &rail->listener);
    return err;
}

/* Where receive buffers wait: in a queue that all share, or in queues of queue pairs' own. */
static int receives_choose(struct sl_verbs_rail *rail, const struct ibv_device_attr *attr, int cqes)
{
    int64_t wanted = sl_verbs_config(rail->iface->config)->srq;
    bool shares = wanted != SL_OFF && attr->max_srq > 0;

    if (wanted == SL_ON && !shares)
        return sl_fail(
            -ENOTSUP,
            "%s has no shared receive queues, which SLUICE_VERBS_SRQ=on asks for: set it to auto",
            rail->port.name);
    if (shares)
        rail->srq_room = attr->max_srq_wr > 0 && attr->max_srq_wr < CQ_ENTRIES
                             ? (unsigned)attr->max_srq_wr
                             : CQ_ENTRIES;
    rail->own_room = (unsigned)cqes / 2; /* the other half is for what is sent */
    rail->own_most = attr->max_qp_wr > 0 && attr->max_qp_wr < SL_VERBS_OWN_SLOTS
                         ? (unsigned)attr->max_qp_wr
                         : SL_VERBS_OWN_SLOTS;
    return 0;
}

static int queues_open(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    const struct sl_ibv *ibv = iface->ibv;
    struct ibv_device_attr attr = {0};
    int cqes = CQ_ENTRIES, most = CQ_ENTRIES;

    if (ibv->ibv_query_device(rail->device->context, &attr) == 0 && attr.max_cqe > 0)
        most = attr.max_cqe;
    cqes = most < cqes ? most : cqes;
    rail->is_soft = attr.vendor_id == SL_VERBS_SOFT_ROCE;
    int err = receives_choose(rail, &attr, cqes);

    if (err != 0)
        return err;
    err = sl_verbs_cq_open(rail, (unsigned)cqes, (unsigned)most);
    if (err != 0)
        return err;
    struct ibv_srq_init_attr init = {.srq_context = &rail->listener,
                                     .attr = {.max_wr = rail->srq_room, .max_sge = 1}};

    if (rail->srq_room != 0)
        rail->srq = ibv->ibv_create_srq(rail->domain, &init);
    if (rail->srq_room != 0 && rail->srq == NULL) {
        err = errno != 0 ? errno : ENOMEM;
        return sl_fail(-err, "%s gives no receive queue: %s", rail->port.name,
                       sluice_strerror(-err));
    }
    return watch_fd(iface, rail->channel->fd);
}

/* But for its name, its number and its place. */
void sl_verbs_rail_close(struct sl_verbs_rail *rail)
{
    const struct sl_verbs_rail bare = {.base = rail->base,
                                       .iface = rail->iface,
                                       .port = rail->port,
                                       .gid = rail->gid,
                                       .pkey = rail->pkey,
                                       .retry_ns = rail->retry_ns,
                                       .has_memory = rail->has_memory,
                                       .is_lost = true};

    if (rail->device == NULL)
        return;
    const struct sl_ibv *ibv = rail->iface->ibv;

    sl_verbs_leave_now(rail);
    sl_verbs_windows_leave(rail);
    if (rail->srq != NULL)
        ibv->ibv_destroy_srq(rail->srq);
    sl_verbs_slots_close(rail);
    free(rail->qpns);
    sl_verbs_cq_close(rail);
    events_close(rail);
    sl_verbs_device_put(rail->device);
    *rail = bare;
}

int sl_verbs_rail_open(struct sl_verbs_rail *rail)
{
    const struct sl_config *config = rail->iface->config;
    int err = sl_verbs_device_get(rail->iface->ibv, rail->port.device, NULL, &rail->device);

    if (err != 0)
        return err;
    rail->is_lost = rail->is_asleep = false;
    rail->listener.bell = -1;
    rail->memory = &rail->device->memory[(sl_verbs_config(config)->relaxed_ordering != SL_OFF) +
                                         (rail->iface->windows != NULL ? 2 : 0)];
    err = events_open(rail);
    if (err == 0)
        err = queues_open(rail);
    if (err == 0)
        err = sl_verbs_windows_join(rail);
    if (err != 0)
        sl_verbs_rail_close(rail);
    return err;
}

int sl_verbs_rail_rest(struct sl_verbs_rail *rail)
{
    const struct sl_ibv *ibv = rail->iface->ibv;
    struct ibv_device_attr attr = {0};
    struct sl_verbs_device *device;
    int err = sl_verbs_device_get(ibv, rail->port.device, NULL, &device);

    if (err != 0)
        return err;
    (void)ibv->ibv_query_device(device->context, &attr);
    rail->is_soft = attr.vendor_id == SL_VERBS_SOFT_ROCE;
    rail->takes_dmabuf = sl_verbs_device_takes_dmabuf(device);
    sl_verbs_device_put(device);
    rail->is_lost = rail->is_asleep = true;
    sl_verbs_rail_judge(rail);
    return 0;
}
