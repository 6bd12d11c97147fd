/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that NCCL may choose from, with what it wants to know of each. */
#include "tools/nccl/adapt.h"

#include "core/host.h"
#include "core/log.h"
#include "core/registry.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPEED_UNKNOWN_MBIT 10000 /* what NCCL itself assumes */

/* The directory of the PCI device that path belongs to: itself, or the nearest above (virtio's
 * device lies under one). "": it is on no PCI bus. */
static void pci_directory(const char *path, char *out, size_t cap)
{
    char at[PATH_MAX], subsystem[PATH_MAX + 16], target[PATH_MAX];

    out[0] = '\0';
    if (realpath(path, at) == NULL)
        return;
    while (strlen(at) > strlen("/sys/devices/")) {
        char *slash = strrchr(at, '/');

        snprintf(subsystem, sizeof(subsystem), "%s/subsystem", at);
        if (realpath(subsystem, target) != NULL && strcmp(strrchr(target, '/'), "/pci") == 0) {
            if (strlen(at) < cap)
                memcpy(out, at, strlen(at) + 1);
            return;
        }
        *slash = '\0';
    }
}

/* 0: it has none. */
static uint64_t mac_of(const char *netif)
{
    char path[320], line[64];
    unsigned b[6];

    snprintf(path, sizeof(path), "/sys/class/net/%s/address", netif);
    if (!sl_host_line(path, line, sizeof(line)) ||
        sscanf(line, "%x:%x:%x:%x:%x:%x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]) != 6)
        return 0;
    return (uint64_t)b[0] << 40 | (uint64_t)b[1] << 32 | (uint64_t)b[2] << 24 |
           (uint64_t)b[3] << 16 | (uint64_t)b[4] << 8 | b[5];
}

static void netif_facts(struct sl_nccl_device *dev)
{
    char path[320];

    snprintf(path, sizeof(path), "/sys/class/net/%s/device", dev->found.name);
    pci_directory(path, dev->pci_path, sizeof(dev->pci_path));
    dev->guid = mac_of(dev->found.name);
}

/* "mlx5_0:1". A software device (rxe, siw) has no bus of its own, but that of the interface that it
 * is on. */
static void verbs_facts(struct sl_nccl_device *dev)
{
    char name[80], path[320], line[64];
    const char *colon = strrchr(dev->found.name, ':');
    unsigned w[4];

    snprintf(name, sizeof(name), "%.*s",
             colon != NULL ? (int)(colon - dev->found.name) : (int)sizeof(name) - 1,
             dev->found.name);
    dev->port = colon != NULL ? atoi(colon + 1) : 1;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", name);
    pci_directory(path, dev->pci_path, sizeof(dev->pci_path));
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/parent", name);
    if (dev->pci_path[0] == '\0' && sl_host_line(path, line, sizeof(line))) {
        snprintf(path, sizeof(path), "/sys/class/net/%s/device", line);
        pci_directory(path, dev->pci_path, sizeof(dev->pci_path));
    }
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/node_guid", name);
    if (sl_host_line(path, line, sizeof(line)) &&
        sscanf(line, "%x:%x:%x:%x", &w[0], &w[1], &w[2], &w[3]) == 4)
        dev->guid = (uint64_t)w[0] << 48 | (uint64_t)w[1] << 32 | (uint64_t)w[2] << 16 | w[3];
}

static void facts(struct sl_nccl_device *dev, unsigned idx)
{
    uint64_t mbit = dev->found.speed / 125000;

    dev->port = 1;
    if (strcmp(dev->ops->name, "verbs") == 0)
        verbs_facts(dev);
    else if (strcmp(dev->ops->name, "tcp") == 0)
        netif_facts(dev);
    if (dev->guid == 0)
        dev->guid = idx + 1; /* NCCL takes equal ones for functions of one chip */
    dev->speed_mbit = mbit == 0 ? SPEED_UNKNOWN_MBIT : mbit > INT_MAX ? INT_MAX : (int)mbit;
}

/* Loopback reaches no other host: it is a device only where there is nothing else, or where it is
 * asked for. */
static bool wanted(const struct sl_config *config, const struct sl_device *dev, bool others)
{
    return dev->why[0] == '\0' &&
           (!others || strcmp(dev->name, "lo") != 0 || strstr(config->interface, "lo") != NULL);
}

static int find_of(const struct sl_config *config, const struct sl_transport_ops *ops,
                   struct sl_nccl_device_list *out)
{
    struct sl_device *found = calloc(SL_NCCL_DEVICES_MAX, sizeof(*found));
    size_t count = 0;
    bool others = false;
    int err;

    if (found == NULL)
        return sl_fail(-ENOMEM, "no memory to list devices");
    err = ops->probe(config, found, SL_NCCL_DEVICES_MAX, &count);
    if (err != 0)
        count = 0;
    if (count > SL_NCCL_DEVICES_MAX)
        count = SL_NCCL_DEVICES_MAX;
    for (size_t i = 0; i < count; i++)
        others |= found[i].why[0] == '\0' && strcmp(found[i].name, "lo") != 0;
    for (size_t i = 0; i < count; i++) {
        struct sl_nccl_device *dev = &out->items[out->count];

        if (!wanted(config, &found[i], others && strcmp(ops->name, "tcp") == 0))
            continue;
        *dev = (struct sl_nccl_device){.found = found[i], .ops = ops};
        facts(dev, out->count);
        out->count++;
    }
    free(found);
    return err;
}

int sl_nccl_devices_find(const struct sl_config *config, struct sl_nccl_device_list *out)
{
    const char *list = strcmp(config->transport, "auto") == 0 ? "verbs,tcp,shm" : config->transport;
    const struct sl_transport_ops *shm = NULL;
    char why[400] = "";
    size_t used = 0;

    out->count = 0;
    while (*list != '\0' && out->count == 0) {
        size_t len = strcspn(list, ",");
        const struct sl_transport_ops *ops = sl_transport_find(list, len);

        if (ops != NULL && strcmp(ops->name, "shm") == 0)
            shm = ops;
        else if (ops == NULL && strcmp(config->transport, "auto") != 0)
            return sl_fail(-ENODEV, "SLUICE_TRANSPORT: there is no transport '%.*s' in this build",
                           (int)len, list);
        else if (ops != NULL && find_of(config, ops, out) != 0 && used < sizeof(why))
            used += (size_t)snprintf(why + used, sizeof(why) - used, "; %s: %s", ops->name,
                                     sluice_last_error());
        list += len + (list[len] == ',');
    }
    /* Memory is no way to another host: it is a device of its own only where nothing else is
     * allowed. */
    if (out->count == 0 && shm != NULL)
        find_of(config, shm, out);
    if (out->count == 0)
        return sl_fail(-ENODEV, "there is no device for NCCL among the transports '%s'%s",
                       config->transport, why);
    for (unsigned i = 0; i < out->count; i++)
        sl_info("nccl", "device %u: %s %s, %d Mbit/s, port %d, GUID %016llx, %s", i,
                out->items[i].ops->name, out->items[i].found.name, out->items[i].speed_mbit,
                out->items[i].port, (unsigned long long)out->items[i].guid,
                out->items[i].pci_path[0] != '\0' ? out->items[i].pci_path : "virtual");
    return 0;
}
