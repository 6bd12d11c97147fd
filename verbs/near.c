/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports are near this rank. What is not known to be farther than another one is near. */
#include "verbs/near.h"

#include "core/transport.h"
#include "gdr/gpu.h"
#include "verbs/config.h"
#include "verbs/device.h"
#include "multipath/path_list.h"
#include "verbs/probe.h"

#include <stdio.h>
#include <string.h>

/* Does the list name devices, rather than say by patterns and exclusions which may be used? */
static bool names_devices(const char *list)
{
    for (; *list != '\0'; list += strcspn(list, ","), list += *list == ',') {
        size_t len = strcspn(list, ",");

        if (len > 0 && *list != '^' && memchr(list, '*', len) == NULL)
            return true;
    }
    return false;
}

void sl_verbs_near_begin(const struct sl_config *config, struct sl_verbs_near *out)
{
    const struct sl_verbs_config *own = sl_verbs_config(config);
    uint64_t cores[SL_CPU_WORDS];
    char gpu[SL_GPU_ADDRESS_MAX];

    *out = (struct sl_verbs_near){.nearest = {.kind = SL_DISTANCE_UNKNOWN}};
    sl_host_cores(cores);
    sl_locality_read(cores, sl_gpu_address(gpu) ? gpu : NULL, &out->rank);
    out->matters = own->locality != SL_VERBS_LOCALITY_OFF && sl_path_list_auto(own->mp.paths) &&
                   (own->locality == SL_VERBS_LOCALITY_NEAR || !names_devices(own->devices));
    out->leaves_out = out->matters && own->locality == SL_VERBS_LOCALITY_NEAR;
}

void sl_verbs_near_measure(struct sl_verbs_near *near, struct sl_verbs_port *port, bool counts)
{
    struct sl_device facts;

    sl_verbs_facts(port->device, port->num, &facts);
    port->node = facts.numa_node;
    port->distance = sl_locality_distance(&near->rank, &facts);
    if (counts && sl_distance_compare(&port->distance, &near->nearest) < 0)
        near->nearest = port->distance;
}

void sl_verbs_near_judge(const struct sl_verbs_near *near, struct sl_verbs_port *port)
{
    bool is_far = near->matters && port->distance.kind != SL_DISTANCE_UNKNOWN &&
                  sl_distance_compare(&port->distance, &near->nearest) > 0;

    if (!is_far || !near->leaves_out) {
        port->is_far = is_far;
        return;
    }
    port->may_return = false;
    snprintf(port->why, sizeof(port->why),
             "left out by SLUICE_VERBS_LOCALITY=near: others are nearer to this rank's %s",
             near->rank.gpu_path[0] != '\0' ? "GPU" : "cores");
}

void sl_verbs_near_text(const struct sl_verbs_port *port, char *out, size_t cap)
{
    static const char *const names[] = {
        [SL_DISTANCE_SWITCH] = " (on the GPU's PCI switch",
        [SL_DISTANCE_SWITCHES] = " (on the GPU's root port",
        [SL_DISTANCE_NODE] = " (near",
        [SL_DISTANCE_OTHER] = " (far",
        [SL_DISTANCE_UNKNOWN] = "",
    };
    const char *name = names[port->distance.kind];
    char node[32] = "on an unknown NUMA node";

    if (port->node >= 0)
        snprintf(node, sizeof(node), "NUMA node %d", port->node);
    out[0] = '\0';
    if (port->node >= 0 || name[0] != '\0')
        snprintf(out, cap, "%s%s%s%s", node, name, port->is_far ? ", in reserve" : "",
                 name[0] != '\0' ? ")" : "");
}
