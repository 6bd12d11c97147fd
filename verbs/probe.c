/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of this host for people: what each is, its GIDs, and which one would be used. */
#include "verbs/probe.h"

#include "core/err.h"
#include "core/host.h"
#include "core/sysfs.h"
#include "verbs/device.h"
#include "verbs/near.h"
#include "verbs/pkey.h"

#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *link_name(uint8_t link_layer)
{
    return link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
           : link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet"
                                                   : "unknown link";
}

static unsigned mtu_bytes(uint8_t mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

/* "GID 1  192.0.2.1/24 (RoCE v2) on eth0" */
static void gid_line(const struct sl_verbs_gid *gid, char *out, size_t cap)
{
    char text[80], prefix[8] = "", on[IF_NAMESIZE + 8] = "", name[IF_NAMESIZE];
    const char *type;

    sl_verbs_gid_text(gid, text, sizeof(text));
    type = strchr(text, ' ');
    if (gid->prefix_len != 0)
        snprintf(prefix, sizeof(prefix), "/%u", gid->prefix_len);
    if (gid->netdev != 0 && if_indextoname(gid->netdev, name) != NULL)
        snprintf(on, sizeof(on), " on %s", name);
    snprintf(out, cap, "GID %-3u %.*s%s%s%s", gid->index, (int)(type - text), text, prefix, type,
             on);
}

static void describe_gids(const struct sl_config *config, const struct sl_verbs_port *port,
                          struct sl_device *out)
{
    struct sl_verbs_gid chosen;
    bool has_chosen = port->why[0] == '\0' && sl_verbs_gid_choose(config, port, &chosen) == 0;
    const size_t room = sizeof(out->more) - 32; /* for the last line */

    for (unsigned i = 0; i < port->gid_count; i++) {
        char line[160];
        size_t used = strlen(out->more);

        gid_line(&port->gids[i], line, sizeof(line));
        if (!sl_text_add(out->more, room, "%s%s\n", line,
                         has_chosen && port->gids[i].index == chosen.index ? ", chosen" : "")) {
            out->more[used] = '\0';
            sl_text_add(out->more, sizeof(out->more), "and %u more GIDs\n", port->gid_count - i);
            return;
        }
    }
}

static void describe_subnet(const struct sl_config *config, const struct sl_verbs_port *port,
                            struct sl_device *out)
{
    struct sl_verbs_pkey pkey;

    sl_text_add(out->detail, sizeof(out->detail), ", LID %u", port->lid);
    if (port->lmc != 0)
        sl_text_add(out->detail, sizeof(out->detail), " to %u", port->lid + (1u << port->lmc) - 1);
    if (sl_verbs_pkey_choose(config, port, &pkey) == 0)
        sl_text_add(out->detail, sizeof(out->detail), ", P_Key 0x%04x at index %u", pkey.key,
                    pkey.index);
}

static void describe(const struct sl_config *config, const struct sl_verbs_port *port,
                     struct sl_device *out)
{
    char where[SL_VERBS_WHERE_MAX];

    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", port->name);
    snprintf(out->why, sizeof(out->why), "%s", port->why);
    sl_verbs_facts(port->device, port->num, out);
    sl_verbs_near_text(port, where, sizeof(where));
    if (port->state == IBV_PORT_NOP) /* nothing could be read */
        return;
    out->speed = port->speed;
    sl_text_add(out->detail, sizeof(out->detail), "%s, %s, MTU %u",
                sl_verbs_state_name(port->state), link_name(port->link_layer),
                mtu_bytes(port->mtu));
    if (port->link_layer == IBV_LINK_LAYER_INFINIBAND)
        describe_subnet(config, port, out);
    if (port->takes_dmabuf)
        sl_text_add(out->detail, sizeof(out->detail), ", GPU memory by dma-buf");
    if (where[0] != '\0')
        sl_text_add(out->detail, sizeof(out->detail), ", %s", where);
    describe_gids(config, port, out);
}

/* A software device (rxe, siw) has no bus of its own, but that of the interface that it is on. */
void sl_verbs_facts(const char *device, int port, struct sl_device *out)
{
    char path[PATH_MAX], line[64];
    unsigned w[4];

    out->port = port;
    sl_sysfs_path(path, sizeof(path), "class/infiniband/%s/device", device);
    sl_sysfs_pci(path, out);
    sl_sysfs_path(path, sizeof(path), "class/infiniband/%s/parent", device);
    if (out->pci_path[0] == '\0' && sl_host_line(path, line, sizeof(line))) {
        sl_sysfs_path(path, sizeof(path), "class/net/%s/device", line);
        sl_sysfs_pci(path, out);
    }
    sl_sysfs_path(path, sizeof(path), "class/infiniband/%s/node_guid", device);
    if (sl_host_line(path, line, sizeof(line)) &&
        sscanf(line, "%x:%x:%x:%x", &w[0], &w[1], &w[2], &w[3]) == 4)
        out->guid = (uint64_t)w[0] << 48 | (uint64_t)w[1] << 32 | (uint64_t)w[2] << 16 | w[3];
}

int sl_verbs_probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    struct sl_verbs_port *ports = calloc(cap > 0 ? cap : 1, sizeof(*ports));
    size_t found = 0;
    int err;

    if (ports == NULL)
        return sl_fail(-ENOMEM, "no memory to list %zu RDMA ports", cap);
    err = sl_verbs_ports_list(config, ports, cap, &found);
    if (err == 0) {
        for (size_t i = 0; i < found && i < cap; i++)
            describe(config, &ports[i], &out[i]);
        *count = found;
    }
    free(ports);
    return err;
}
