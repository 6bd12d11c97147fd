/* SPDX-License-Identifier: Apache-2.0 */
/* Reads sysfs, where every device of the kernel is a directory. */
#include "core/sysfs.h"

#include "core/host.h"
#include "core/transport.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[PATH_MAX] = "/sys";

void sl_sysfs_replace(const char *given)
{
    if (given == NULL || realpath(given, root) == NULL)
        memcpy(root, "/sys", sizeof("/sys"));
}

void sl_sysfs_path(char *out, size_t cap, const char *fmt, ...)
{
    int len = snprintf(out, cap, "%s/", root);
    va_list args;

    if (len < 0 || (size_t)len >= cap)
        return;
    va_start(args, fmt);
    vsnprintf(out + len, cap - (size_t)len, fmt, args);
    va_end(args);
}

/* Whether the directory at is a device of a PCI bus. */
static bool is_pci(const char *at)
{
    char subsystem[PATH_MAX + 16], target[PATH_MAX];

    snprintf(subsystem, sizeof(subsystem), "%s/subsystem", at);
    return realpath(subsystem, target) != NULL && strcmp(strrchr(target, '/'), "/pci") == 0;
}

static int read_node(const char *pci_path)
{
    char path[300], line[32];

    snprintf(path, sizeof(path), "%s/numa_node", pci_path);
    return sl_host_line(path, line, sizeof(line)) ? atoi(line) : -1;
}

void sl_sysfs_pci(const char *directory, struct sl_device *out)
{
    char at[PATH_MAX];
    size_t bare = strlen(root) + strlen("/devices/");

    out->pci_path[0] = '\0';
    out->numa_node = -1;
    if (realpath(directory, at) == NULL)
        return;
    while (strlen(at) > bare && !is_pci(at))
        *strrchr(at, '/') = '\0';
    if (strlen(at) <= bare || strlen(at) >= sizeof(out->pci_path))
        return;
    memcpy(out->pci_path, at, strlen(at) + 1);
    out->numa_node = read_node(out->pci_path);
}

/* 0: it has none. */
static uint64_t mac_of(const char *netif)
{
    char path[PATH_MAX], line[64];
    unsigned b[6];

    sl_sysfs_path(path, sizeof(path), "class/net/%s/address", netif);
    if (!sl_host_line(path, line, sizeof(line)) ||
        sscanf(line, "%x:%x:%x:%x:%x:%x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]) != 6)
        return 0;
    return (uint64_t)b[0] << 40 | (uint64_t)b[1] << 32 | (uint64_t)b[2] << 24 |
           (uint64_t)b[3] << 16 | (uint64_t)b[4] << 8 | b[5];
}

void sl_sysfs_netif(const char *name, struct sl_device *out)
{
    char path[PATH_MAX];

    sl_sysfs_path(path, sizeof(path), "class/net/%s/device", name);
    sl_sysfs_pci(path, out);
    out->guid = mac_of(name);
}
