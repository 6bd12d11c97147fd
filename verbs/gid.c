/* SPDX-License-Identifier: Apache-2.0 */
/* The GIDs of a port: what they are, and which one to use towards a peer. */
#include "core/config.h"
#include "verbs/config.h"
#include "core/err.h"
#include "core/host.h"
#include "verbs/gid.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#define GID_TABLE_MAX 256 /* an index is a byte on the wire */

static const char *const type_names[] = {"InfiniBand", "RoCE v1", "RoCE v2"};

static const struct in6_addr *address_of(const struct sl_verbs_gid *gid)
{
    return (const struct in6_addr *)(const void *)gid->gid.raw;
}

static bool is_empty(const union ibv_gid *gid)
{
    static const union ibv_gid none;

    return memcmp(gid, &none, sizeof(none)) == 0;
}

/* The first line of a file below the device's folder in sysfs; false: it cannot be read. */
static bool read_line(const struct ibv_device *device, const char *path, char *out, size_t cap)
{
    char full[IBV_SYSFS_PATH_MAX + 64];

    snprintf(full, sizeof(full), "%s/%s", device->ibdev_path, path);
    return sl_host_line(full, out, cap);
}

/* What the kernel calls an entry's type. Kernels without these files know only RoCE v1. */
static uint8_t type_from_sysfs(const struct ibv_device *device, const struct sl_verbs_port *port,
                               unsigned index)
{
    char path[64], text[32];

    if (port->link_layer != IBV_LINK_LAYER_ETHERNET)
        return SL_VERBS_GID_IB;
    snprintf(path, sizeof(path), "ports/%u/gid_attrs/types/%u", port->num, index);
    if (read_line(device, path, text, sizeof(text)) && strcmp(text, "RoCE v2") == 0)
        return SL_VERBS_GID_ROCE_V2;
    return SL_VERBS_GID_ROCE_V1;
}

static uint32_t netdev_from_sysfs(const struct ibv_device *device, const struct sl_verbs_port *port,
                                  unsigned index)
{
    char path[64], text[IF_NAMESIZE + 1];

    snprintf(path, sizeof(path), "ports/%u/gid_attrs/ndevs/%u", port->num, index);
    return read_line(device, path, text, sizeof(text)) ? if_nametoindex(text) : 0;
}

/* One entry of the table; false: there is none at that index. */
static bool read_entry(const struct sl_ibv *ibv, struct ibv_context *context,
                       const struct sl_verbs_port *port, unsigned index, struct sl_verbs_gid *out)
{
    memset(out, 0, sizeof(*out));
    out->index = (uint8_t)index;
    if (ibv->_ibv_query_gid_ex != NULL) {
        struct ibv_gid_entry entry = {0};

        if ((ibv->_ibv_query_gid_ex)(context, port->num, index, &entry, 0, sizeof(entry)) != 0 ||
            is_empty(&entry.gid))
            return false;
        out->gid = entry.gid;
        out->type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? SL_VERBS_GID_ROCE_V2
                    : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? SL_VERBS_GID_ROCE_V1
                                                             : SL_VERBS_GID_IB;
        out->netdev = entry.ndev_ifindex;
        return true;
    }
    if ((ibv->ibv_query_gid)(context, port->num, (int)index, &out->gid) != 0 || is_empty(&out->gid))
        return false;
    out->type = type_from_sysfs(context->device, port, index);
    out->netdev = netdev_from_sysfs(context->device, port, index);
    return true;
}

static void describe_address(struct sl_verbs_gid *gid)
{
    const struct in6_addr *address = address_of(gid);

    if (gid->type ==
        SL_VERBS_GID_IB) /* fe80::/64 is the default subnet there: nothing of lesser reach */
        return;
    gid->is_v4 = IN6_IS_ADDR_V4MAPPED(address);
    gid->is_link_local = gid->is_v4 ? gid->gid.raw[12] == 169 && gid->gid.raw[13] == 254
                                    : IN6_IS_ADDR_LINKLOCAL(address);
}

static bool same_address(const struct sl_verbs_gid *gid, const struct sockaddr *address)
{
    const void *at = address;

    if (address->sa_family == AF_INET6 && !gid->is_v4)
        return memcmp(&((const struct sockaddr_in6 *)at)->sin6_addr, gid->gid.raw, 16) == 0;
    if (address->sa_family == AF_INET && gid->is_v4)
        return memcmp(&((const struct sockaddr_in *)at)->sin_addr, gid->gid.raw + 12, 4) == 0;
    return false;
}

static uint8_t mask_len(const struct sockaddr *mask)
{
    const uint8_t *bytes;
    unsigned len, count = 0;

    if (mask->sa_family == AF_INET6) {
        bytes = ((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr.s6_addr;
        len = 16;
    } else {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
        len = 4;
    }
    for (unsigned i = 0; i < len; i++)
        count += (unsigned)__builtin_popcount(bytes[i]);
    return (uint8_t)count;
}

/* Finds each GID's address on this host's interfaces: which one it is, and how long its prefix. */
static void find_prefixes(struct sl_verbs_port *port)
{
    struct ifaddrs *list;

    if (getifaddrs(&list) != 0)
        return; /* prefixes stay unknown */
    for (unsigned i = 0; i < port->gid_count; i++) {
        struct sl_verbs_gid *gid = &port->gids[i];
        char name[IF_NAMESIZE];

        for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
            if (gid->type == SL_VERBS_GID_IB || at->ifa_addr == NULL || at->ifa_netmask == NULL ||
                !same_address(gid, at->ifa_addr))
                continue;
            if (gid->netdev != 0 && gid->netdev != if_nametoindex(at->ifa_name))
                continue;
            gid->netdev = if_nametoindex(at->ifa_name);
            gid->prefix_len = mask_len(at->ifa_netmask);
            break;
        }
        /* An interface that is not seen here is in another network namespace: that says nothing. */
        gid->is_orphan = gid->type == SL_VERBS_GID_ROCE_V2 && gid->prefix_len == 0 &&
                         gid->netdev != 0 && if_indextoname(gid->netdev, name) != NULL;
    }
    freeifaddrs(list);
}

void sl_verbs_gids_read(const struct sl_ibv *ibv, struct ibv_context *context, unsigned table_len,
                        struct sl_verbs_port *port)
{
    port->gid_count = 0;
    for (unsigned i = 0; i < table_len && i < GID_TABLE_MAX && port->gid_count < SL_VERBS_GIDS_MAX;
         i++) {
        struct sl_verbs_gid *gid = &port->gids[port->gid_count];

        if (!read_entry(ibv, context, port, i, gid))
            continue;
        describe_address(gid);
        port->gid_count++;
    }
    find_prefixes(port);
}

void sl_verbs_gid_text(const struct sl_verbs_gid *gid, char *out, size_t cap)
{
    char address[INET6_ADDRSTRLEN] = "?";

    if (gid->is_v4)
        inet_ntop(AF_INET, gid->gid.raw + 12, address, sizeof(address));
    else
        inet_ntop(AF_INET6, gid->gid.raw, address, sizeof(address));
    snprintf(out, cap, "%s (%s)", address,
             gid->type < SL_ARRAY_LEN(type_names) ? type_names[gid->type] : "unknown type");
}

bool sl_verbs_gid_same_subnet(const struct sl_verbs_gid *a, const struct sl_verbs_gid *b)
{
    const uint8_t *left = a->gid.raw, *right = b->gid.raw;
    unsigned bits, first;

    if (a->type != b->type || a->is_v4 != b->is_v4)
        return false;
    if (a->type == SL_VERBS_GID_IB)
        return memcmp(left, right, 8) == 0; /* the subnet prefix */
    if (a->prefix_len == 0 || b->prefix_len == 0)
        return false;
    /* Each end must see the other on its link: so by the longer prefix. */
    bits = a->prefix_len > b->prefix_len ? a->prefix_len : b->prefix_len;
    first = a->is_v4 ? 12 : 0;
    if (bits > (16 - first) * 8) /* a peer may claim anything */
        return false;
    left += first;
    right += first;
    if (memcmp(left, right, bits / 8) != 0)
        return false;
    return bits % 8 == 0 || (left[bits / 8] ^ right[bits / 8]) >> (8 - bits % 8) == 0;
}

enum sl_mp_reach sl_verbs_gid_reach(const struct sl_verbs_gid *a, const struct sl_verbs_gid *b)
{
    bool is_ib = a->type == SL_VERBS_GID_IB;

    if (!is_ib &&
        (a->is_link_local || b->is_link_local || a->prefix_len == 0 || b->prefix_len == 0))
        return SL_MP_REACH_UNKNOWN;
    return sl_verbs_gid_same_subnet(a, b) ? SL_MP_REACH_DIRECT : SL_MP_REACH_ROUTED;
}

/* May this one be used: what the settings ask for, and the peer's kind? */
static bool fits(const struct sl_verbs_gid *gid, int64_t index, enum sl_verbs_gid_family family,
                 const struct sl_verbs_gid *peer)
{
    if (peer != NULL && (gid->type != peer->type || gid->is_v4 != peer->is_v4))
        return false;
    if (index >= 0)
        return gid->index == index;
    return gid->type == SL_VERBS_GID_IB || family == SL_VERBS_FAMILY_ANY ||
           gid->is_v4 == (family == SL_VERBS_FAMILY_IPV4);
}

/*
 * Larger is better; of equals the first in the table wins. Orphans are what a port has before its
 * interface has an address: made of the MAC address, while the interface makes its own of something
 * else.
 */
static unsigned merit(const struct sl_verbs_gid *gid, const struct sl_verbs_gid *peer)
{
    unsigned merit = 0;

    merit |= !gid->is_orphan ? 1u << 7 : 0;
    if (peer != NULL) {
        merit |= sl_verbs_gid_same_subnet(gid, peer) ? 1u << 6 : 0;
        merit |= gid->is_link_local == peer->is_link_local ? 1u << 5 : 0;
    }
    merit |= (unsigned)gid->type << 3;
    merit |= !gid->is_link_local ? 1u << 2 : 0;
    merit |= gid->is_v4 ? 1u << 1 : 0;
    return merit;
}

/* What there is, what was asked for. */
static int fail_none(const struct sl_config *config, const struct sl_verbs_port *port,
                     const struct sl_verbs_gid *peer)
{
    char have[256] = "", to[96] = "", wish[96] = "";

    if (port->gid_count == 0)
        sl_text_add(have, sizeof(have), "no GID at all (does its interface have an address?)");
    for (unsigned i = 0; i < port->gid_count; i++) {
        char text[64];

        sl_verbs_gid_text(&port->gids[i], text, sizeof(text));
        sl_text_add(have, sizeof(have), "%s%u: %s", i == 0 ? "only " : ", ", port->gids[i].index,
                    text);
    }
    if (peer != NULL) {
        char text[64];

        sl_verbs_gid_text(peer, text, sizeof(text));
        snprintf(to, sizeof(to), " for the peer's %s", text);
    }
    if (sl_verbs_config(config)->gid_index >= 0)
        snprintf(wish, sizeof(wish), " with SLUICE_VERBS_GID_INDEX %d",
                 (int)sl_verbs_config(config)->gid_index);
    else if (sl_verbs_config(config)->gid_family != SL_VERBS_FAMILY_ANY)
        snprintf(wish, sizeof(wish), " with SLUICE_VERBS_GID_FAMILY %s",
                 sl_verbs_config(config)->gid_family == SL_VERBS_FAMILY_IPV4 ? "ipv4" : "ipv6");
    return sl_fail(-ENODEV, "port %s has no GID%s%s; it has %s", port->name, to, wish, have);
}

int sl_verbs_gid_choose_for(const struct sl_config *config, const struct sl_verbs_port *port,
                            const struct sl_verbs_gid *peer, struct sl_verbs_gid *out)
{
    const struct sl_verbs_gid *best = NULL;
    enum sl_verbs_gid_family family = sl_verbs_config(config)->gid_family;

    for (unsigned i = 0; i < port->gid_count; i++) {
        const struct sl_verbs_gid *gid = &port->gids[i];

        if (fits(gid, sl_verbs_config(config)->gid_index, family, peer) &&
            (best == NULL || merit(gid, peer) > merit(best, peer)))
            best = gid;
    }
    if (best == NULL)
        return fail_none(config, port, peer);
    *out = *best;
    return 0;
}

int sl_verbs_gid_choose(const struct sl_config *config, const struct sl_verbs_port *port,
                        struct sl_verbs_gid *out)
{
    return sl_verbs_gid_choose_for(config, port, NULL, out);
}
