/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting. Where the driver has interrupts, packets wake the sleeper. Most virtual ones have none:
 * then a timer does, soon after packets have come, and ever later while none do, so that a rank
 * which has nothing to do costs no core.
 */
#include "dpdk/iface.h"
#include "multipath/rounds.h"

#include <sys/epoll.h>
#include <unistd.h>

static int add(const struct sl_dpdk_iface *iface, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return sl_fail(-errno, "events of a DPDK interface cannot be waited for: %s",
                       sluice_strerror(-errno));
    return 0;
}

int sl_dpdk_sleep_open(struct sl_dpdk_iface *iface)
{
    int err = sl_nap_open(&iface->nap, sl_now(iface->mp.base.worker->clock));

    iface->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (err == 0 && iface->epoll_fd < 0)
        err = sl_fail(-errno, "epoll_create1 failed: %s", sluice_strerror(-errno));
    if (err == 0)
        err = add(iface, iface->nap.fd);
    if (err == 0)
        err = add(iface, iface->mp.sideband->ops->fd(iface->mp.sideband));
    for (size_t i = 0; i < iface->port_count && err == 0; i++)
        if (sl_dpdk_port_fd(iface->ports[i]) >= 0)
            err = add(iface, sl_dpdk_port_fd(iface->ports[i]));
    return err;
}

void sl_dpdk_sleep_close(struct sl_dpdk_iface *iface)
{
    sl_nap_close(&iface->nap);
    if (iface->epoll_fd >= 0)
        close(iface->epoll_fd);
}

int sl_dpdk_fd(struct sl_iface *base)
{
    return sl_dpdk_iface_of(base)->epoll_fd;
}

static void ports_arm(struct sl_dpdk_iface *iface)
{
    for (size_t i = 0; i < iface->port_count; i++)
        if (sl_dpdk_port_fd(iface->ports[i]) >= 0)
            sl_dpdk_port_arm(iface->ports[i]);
}

static void ports_disarm(struct sl_dpdk_iface *iface)
{
    for (size_t i = 0; i < iface->port_count; i++)
        if (sl_dpdk_port_fd(iface->ports[i]) >= 0)
            sl_dpdk_port_disarm(iface->ports[i]);
}

void sl_dpdk_disarm(struct sl_iface *base)
{
    struct sl_dpdk_iface *iface = sl_dpdk_iface_of(base);

    if (!iface->is_armed)
        return; /* work had slipped in */
    iface->is_armed = false;
    ports_disarm(iface);
    sl_nap_end(&iface->nap);
    iface->mp.sideband->ops->disarm(iface->mp.sideband);
    sl_mp_rounds_woken(&iface->mp);
}

int sl_dpdk_arm(struct sl_iface *base)
{
    struct sl_dpdk_iface *iface = sl_dpdk_iface_of(base);

    if (!sl_mp_may_sleep(&iface->mp))
        return -EAGAIN;
    ports_arm(iface);
    sl_mp_rounds_all(&iface->mp);
    sl_dp_engine_hurry(&iface->engine);
    if (base->ops->progress(base, SL_DPDK_BUDGET) != 0 ||
        iface->mp.sideband->ops->arm(iface->mp.sideband) != 0) {
        ports_disarm(iface);
        return -EAGAIN;
    }
    sl_nap_begin(&iface->nap, sl_now(iface->mp.base.worker->clock));
    iface->is_armed = true;
    return 0;
}
