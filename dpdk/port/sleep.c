/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupts of drivers that have them, as a descriptor to sleep on: an epoll instance with the
 * driver's in it, since only DPDK knows how that is to be emptied. */
#include "core/err.h"
#include "core/fork.h"
#include "dpdk/port/inside.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_epoll.h>
#include <rte_ethdev.h>

/* Some drivers take the wish at configuration, and have none. */
void sl_dpdk_port_sleep_open(struct sl_dpdk_port *port)
{
    port->sleep_fd = -1;
    if (!port->has_interrupts || !port->has_started ||
        rte_eth_dev_rx_intr_ctl_q_get_fd(port->id, 0) < 0)
        return;
    int fd = sl_fork_closes(epoll_create1(EPOLL_CLOEXEC));
    if (fd < 0)
        return;
    if (rte_eth_dev_rx_intr_ctl_q(port->id, 0, fd, RTE_INTR_EVENT_ADD, NULL) == 0 &&
        rte_eth_dev_rx_intr_enable(port->id, 0) == 0) {
        (void)rte_eth_dev_rx_intr_disable(port->id, 0);
        port->sleep_fd = fd;
        return;
    }
    close(fd);
}

void sl_dpdk_port_sleep_close(struct sl_dpdk_port *port)
{
    if (port->sleep_fd < 0)
        return;
    (void)rte_eth_dev_rx_intr_ctl_q(port->id, 0, port->sleep_fd, RTE_INTR_EVENT_DEL, NULL);
    close(port->sleep_fd);
    port->sleep_fd = -1;
}

int sl_dpdk_port_fd(struct sl_dpdk_port *port)
{
    return port->sleep_fd;
}

int sl_dpdk_port_arm(struct sl_dpdk_port *port)
{
    int err = port->sleep_fd >= 0 ? rte_eth_dev_rx_intr_enable(port->id, 0) : -ENOTSUP;

    if (err != 0)
        return sl_fail(err, "DPDK port '%s' has no interrupts: %s", port->name, strerror(-err));
    return 0;
}

void sl_dpdk_port_disarm(struct sl_dpdk_port *port)
{
    struct rte_epoll_event event;

    if (port->sleep_fd < 0)
        return;
    (void)rte_eth_dev_rx_intr_disable(port->id, 0);
    (void)rte_epoll_wait(port->sleep_fd, &event, 1, 0); /* empties it */
}
