/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ports of a job's hosts lead: of what ibnetdiscover prints, adapters named "HOST DEVICE"
 * and the leaves that they are on. */
#include "core/err.h"
#include "monitor/read/fabric.h"
#include "monitor/read/formats.h"

#include <errno.h>
#include <string.h>

static int add_port(struct sl_job *job, const struct sl_fabric *fabric,
                    const struct sl_fabric_port *port)
{
    const struct sl_fabric_node *adapter = &fabric->nodes[port->node];
    const struct sl_fabric_node *leaf = &fabric->nodes[fabric->ports[port->peer].node];
    size_t host = strcspn(adapter->name, " ");
    const char *device = adapter->name + host + strspn(adapter->name + host, " ");
    struct sl_job_port it = {.host = sl_job_text(job, adapter->name, host),
                             .device = sl_job_text(job, device, strcspn(device, " ")),
                             .leaf = sl_job_text(job, leaf->name, strlen(leaf->name)),
                             .mbps = port->mbps};

    /* A rail is the same device of all hosts. */
    it.rail = it.device;
    if (it.host == SL_JOB_NONE || it.device == SL_JOB_NONE || it.leaf == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the ports of a fabric");
    return it.host != 0 ? sl_job_add_port(job, &it) : 0;
}

static int add_ports(struct sl_job *job, const struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->port_count; i++) {
        const struct sl_fabric_port *port = &fabric->ports[i];
        const struct sl_fabric_node *node = &fabric->nodes[port->node];
        int err;

        if (node->kind != SL_FABRIC_ADAPTER || node->is_inside ||
            fabric->nodes[fabric->ports[port->peer].node].kind != SL_FABRIC_SWITCH)
            continue;
        err = add_port(job, fabric, port);
        if (err != 0)
            return err;
    }
    return 0;
}

static int read_fabric(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_fabric fabric = {0};
    int err = sl_fabric_read(&fabric, in);

    if (err == 0)
        err = add_ports(job, &fabric);
    sl_fabric_fini(&fabric);
    return err;
}

const struct sl_read_format sl_read_ibnetdiscover = {
    .name = "ibnetdiscover", .is = sl_fabric_is, .read = read_fabric};
