/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_rail.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIDS_MOST 256 /* places of a port's table that are read */
#define EMPTY_MOST 32 /* places, one after another: there are no more GIDs */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* of IPv4 in IPv6 */

/* ---- sysfs ---- */

static bool read_text(int folder, const char *name, char *out, size_t cap)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, out, cap - 1);

    if (fd >= 0)
        close(fd);
    out[len > 0 ? len : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return out[0] != '\0';
}

static bool is_zero(const uint8_t gid[16])
{
    static const uint8_t zero[8];

    return memcmp(gid + 8, zero, 8) == 0; /* a prefix alone is no GID */
}

/* 0: of no kind that is known. */
static uint8_t kind_of(int folder, unsigned index, bool is_ib, const uint8_t gid[16])
{
    char name[64], type[32];

    if (is_ib)
        return SL_PROBE_GID_IB;
    snprintf(name, sizeof(name), "gid_attrs/types/%u", index);
    if (!read_text(folder, name, type, sizeof(type)))
        return 0;
    if (strcmp(type, "RoCE v2") != 0)
        return SL_PROBE_GID_V1;
    if (memcmp(gid, mapped, sizeof(mapped)) == 0)
        return SL_PROBE_GID_V2_IP4;
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? SL_PROBE_GID_V2_LINK : SL_PROBE_GID_V2_IP6;
}

static void add_gid(struct sl_probe_rail *rail, const struct sl_probe_rail_gid *gid)
{
    for (unsigned i = 0; i < rail->gid_count; i++)
        if (rail->gids[i].kind == gid->kind)
            return;
    rail->gids[rail->gid_count++] = *gid;
}

static int compare(const void *left, const void *right)
{
    const struct sl_probe_rail_gid *a = left, *b = right;

    return a->kind - b->kind;
}

static void read_gids(int folder, const uint8_t *wanted, struct sl_probe_rail *rail)
{
    unsigned empty = 0;

    for (unsigned i = 0; i < GIDS_MOST && empty < EMPTY_MOST; i++) {
        struct sl_probe_rail_gid gid = {.index = i};
        char name[32], text[64];

        snprintf(name, sizeof(name), "gids/%u", i);
        if (!read_text(folder, name, text, sizeof(text)) ||
            inet_pton(AF_INET6, text, gid.gid) != 1 || is_zero(gid.gid)) {
            empty++;
            continue;
        }
        empty = 0;
        gid.kind = kind_of(folder, i, rail->is_ib, gid.gid);
        /* The same address is there as RoCE v1 and v2: then v2 counts. */
        if (gid.kind == 0 ||
            (wanted != NULL && (memcmp(gid.gid, wanted, 16) != 0 || gid.kind == SL_PROBE_GID_V1)))
            continue;
        add_gid(rail, &gid);
    }
    qsort(rail->gids, rail->gid_count, sizeof(rail->gids[0]), compare);
}

/* "4: ACTIVE" */
static void read_state(int folder, struct sl_probe_rail *rail)
{
    char text[64];
    const char *colon;

    if (!read_text(folder, "state", text, sizeof(text)))
        return;
    colon = strchr(text, ':');
    snprintf(rail->state, sizeof(rail->state), "%.15s", colon != NULL ? colon + 2 : text);
}

int sl_probe_rail_read(const char *root, const char *name, const uint8_t *wanted,
                       struct sl_probe_rail *out)
{
    const char *colon = strrchr(name, ':');
    char path[PATH_MAX], text[64];
    unsigned long port = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;
    int folder;

    if (port < 1 || port > 255 || name[0] == '.' || strchr(name, '/') != NULL ||
        strlen(name) >= sizeof(out->name))
        return sl_fail(-ENODEV, "'%s' is no RDMA port: they are named as mlx5_0:1", name);
    *out = (struct sl_probe_rail){.port = (unsigned)port};
    snprintf(out->device, sizeof(out->device), "%.*s", (int)(colon - name), name);
    snprintf(out->name, sizeof(out->name), "%s:%lu", out->device, port);
    snprintf(path, sizeof(path), "%s/%s/ports/%lu", root, out->device, port);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return sl_fail(-ENODEV, "there is no RDMA port %s here: `sluicectl ports` lists them",
                       out->name);
    out->is_ib = read_text(folder, "link_layer", text, sizeof(text)) && text[0] == 'I';
    out->lid = read_text(folder, "lid", text, sizeof(text)) ? (uint16_t)strtoul(text, NULL, 0) : 0;
    read_state(folder, out);
    read_gids(folder, wanted, out);
    close(folder);
    return 0;
}

static unsigned add_ports(const char *root, const char *device, struct sl_probe_rail *out,
                          unsigned most)
{
    char path[PATH_MAX], name[SL_PROBE_DEVICE + 16];
    unsigned count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s/ports", root, device);
    dir = opendir(path);
    if (dir == NULL)
        return 0;
    for (const struct dirent *at = readdir(dir); at != NULL && count < most; at = readdir(dir)) {
        snprintf(name, sizeof(name), "%s:%.8s", device, at->d_name);
        if (at->d_name[0] != '.' && sl_probe_rail_read(root, name, NULL, &out[count]) == 0 &&
            strcmp(out[count].state, "ACTIVE") == 0 && out[count].gid_count > 0)
            count++;
    }
    closedir(dir);
    return count;
}

unsigned sl_probe_rails(const char *root, struct sl_probe_rail *out, unsigned most)
{
    DIR *dir = opendir(root);
    unsigned count = 0;

    if (dir == NULL)
        return 0;
    for (const struct dirent *at = readdir(dir); at != NULL && count < most; at = readdir(dir))
        if (at->d_name[0] != '.' && strlen(at->d_name) < SL_PROBE_DEVICE)
            count += add_ports(root, at->d_name, out + count, most - count);
    closedir(dir);
    return count;
}

/* ---- GIDs ---- */

void sl_probe_gid_text(const uint8_t gid[16], char *out, size_t cap)
{
    if (inet_ntop(AF_INET6, gid, out, (socklen_t)cap) == NULL)
        out[0] = '\0';
}

static void as_gid(const struct sockaddr *address, uint8_t out[16], bool is_mask)
{
    if (address->sa_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
        return;
    }
    memcpy(out, mapped, sizeof(mapped));
    if (is_mask)
        memset(out, 0xff, sizeof(mapped));
    memcpy(out + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
}

static bool is_same(const uint8_t *a, const uint8_t *b, const uint8_t *mask)
{
    for (unsigned i = 0; i < 16; i++)
        if (((a[i] ^ b[i]) & mask[i]) != 0)
            return false;
    return true;
}

bool sl_probe_gid_is_near(uint8_t kind, const uint8_t mine[16], const uint8_t other[16])
{
    struct ifaddrs *list = NULL;
    bool is_near = false;

    if (kind == SL_PROBE_GID_IB)
        return memcmp(mine, other, 8) == 0;
    if ((kind != SL_PROBE_GID_V2_IP4 && kind != SL_PROBE_GID_V2_IP6) || getifaddrs(&list) != 0)
        return false;
    for (const struct ifaddrs *at = list; at != NULL && !is_near; at = at->ifa_next) {
        uint8_t address[16], mask[16];

        if (at->ifa_addr == NULL || at->ifa_netmask == NULL ||
            (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
            continue;
        as_gid(at->ifa_addr, address, false);
        as_gid(at->ifa_netmask, mask, true);
        is_near = memcmp(address, mine, 16) == 0 && is_same(mine, other, mask);
    }
    freeifaddrs(list);
    return is_near;
}
