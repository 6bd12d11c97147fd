/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupts of drivers that have them, as a descriptor to sleep on. */
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <string.h>

#include <rte_config.h>
#include <rte_ethdev.h>

int sl_dpdk_port_fd(struct sl_dpdk_port *port)
{
    return port->has_interrupts ? rte_eth_dev_rx_intr_ctl_q_get_fd(port->id, 0) : -1;
}

int sl_dpdk_port_arm(struct sl_dpdk_port *port)
{
    int err = port->has_interrupts ? rte_eth_dev_rx_intr_enable(port->id, 0) : -ENOTSUP;

    if (err != 0)
        return sl_fail(err, "DPDK port '%s' has no interrupts: %s", port->name, strerror(-err));
    return 0;
}

void sl_dpdk_port_disarm(struct sl_dpdk_port *port)
{
    if (port->has_interrupts)
        (void)rte_eth_dev_rx_intr_disable(port->id, 0);
}
