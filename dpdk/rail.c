/* SPDX-License-Identifier: Apache-2.0 */
/* A port as a rail of multipath/: how it looks to peers, and its receive buffers. */
#include "dpdk/rail.h"

#include "core/err.h"
#include "dpdk/iface.h"
#include "dpdk/port/ports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BUFFERS 64
#define SPARE_BUFFERS 64 /* besides those of connections: for CTS and credits */
#define FULL_CONNS 64    /* connections with a buffer per credit; further ones share more */
#define SHARED_BUFFERS 4 /* and add so many */
#define PREFIX_MOST 32
#define PREFIX6_MOST 128
#define GRACE_NS (10 * SL_NS_PER_S) /* a NIC's link training takes seconds */
#define STEADY_NS SL_NS_PER_S
#define FRAME_LEAST 590 /* of Ethernet around the 576 bytes that each host takes by IPv4 */
#define FRAME6_LEAST (SL_DPDK_MTU6_LEAST + 14)

_Static_assert(sizeof(struct sl_dpdk_rail_info) == sizeof(struct sl_mp_rail_info) &&
                   offsetof(struct sl_dpdk_rail_info, usable) ==
                       offsetof(struct sl_mp_rail_info, usable) &&
                   offsetof(struct sl_dpdk_rail_info, keys) ==
                       offsetof(struct sl_mp_rail_info, keys),
               "the same bytes");

/* ---- as peers see it ---- */

struct sl_dpdk_rail_info sl_dpdk_rail_info_of(const struct sl_mp_rail_info *info)
{
    struct sl_dpdk_rail_info out;

    memcpy(&out, info, sizeof(out));
    return out;
}

int sl_dpdk_rail_info_check(const struct sl_mp_rail_info *info)
{
    struct sl_dpdk_rail_info rail = sl_dpdk_rail_info_of(info);
    struct sl_dpdk_address address = sl_dpdk_address_of(&rail);
    bool has_ip6 = sl_dpdk_has_ip6(&address);

    if (rail.prefix > PREFIX_MOST)
        return sl_fail(-EBADMSG, "a port has an IPv4 prefix of %u bits", rail.prefix);
    if (rail.prefix6 > PREFIX6_MOST)
        return sl_fail(-EBADMSG, "a port has an IPv6 prefix of %u bits", rail.prefix6);
    if (rail.ip6[0] == 0xff)
        return sl_fail(-EBADMSG, "a port has the IPv6 address of a group");
    if (!has_ip6 && !sl_dpdk_has_ip4(&address))
        return sl_fail(-EBADMSG, "a port has no IP address");
    if (sl_dpdk_frame_most(&rail) < (has_ip6 ? FRAME6_LEAST : FRAME_LEAST))
        return sl_fail(-EBADMSG,
                       "a port takes frames of %u bytes, which is too little for a packet",
                       sl_dpdk_frame_most(&rail));
    if ((rail.mac[0] & 1) != 0)
        return sl_fail(-EBADMSG, "a port has the MAC of a group");
    return 0;
}

struct sl_dpdk_address sl_dpdk_address_of(const struct sl_dpdk_rail_info *info)
{
    struct sl_dpdk_address out = {.prefix = info->prefix, .prefix6 = info->prefix6};

    memcpy(out.mac, info->mac, sizeof(out.mac));
    memcpy(out.ip, info->ip, sizeof(out.ip));
    memcpy(&out.udp_port, info->udp_port, sizeof(out.udp_port));
    memcpy(&out.segment, info->segment, sizeof(out.segment));
    memcpy(out.ip6, info->ip6, sizeof(out.ip6));
    return out;
}

static uint8_t log_of(uint64_t speed)
{
    return speed == 0 ? 0 : (uint8_t)(63 - __builtin_clzll(speed));
}

void sl_dpdk_rail_describe(const struct sl_mp_rail *base, struct sl_mp_rail_info *out)
{
    const struct sl_dpdk_rail *rail = (const struct sl_dpdk_rail *)base;
    const struct sl_dpdk_address *address = &rail->info.address;
    struct sl_dpdk_rail_info info = {
        .prefix = address->prefix,
        .prefix6 = address->prefix6,
        .usable = base->usable,
        .speed = log_of(rail->info.speed),
        .gateways = (uint8_t)((rail->info.has_gateway ? SL_DPDK_GATEWAY_4 : 0) |
                              (rail->info.has_gateway6 ? SL_DPDK_GATEWAY_6 : 0))};
    uint16_t frame_most =
        rail->info.frame_most > UINT16_MAX ? UINT16_MAX : (uint16_t)rail->info.frame_most;

    memcpy(info.mac, address->mac, sizeof(info.mac));
    memcpy(info.ip, address->ip, sizeof(info.ip));
    memcpy(info.udp_port, &address->udp_port, sizeof(info.udp_port));
    memcpy(info.segment, &address->segment, sizeof(info.segment));
    memcpy(info.ip6, address->ip6, sizeof(info.ip6));
    memcpy(info.frame_most, &frame_most, sizeof(info.frame_most));
    memcpy(out, &info, sizeof(info));
}

/* ---- the way to a peer's port ---- */

/* What addresses of one family say. */
static enum sl_mp_reach reach_of(bool is_link_local, bool is_theirs, bool is_one_subnet)
{
    if (is_link_local || is_theirs)
        return is_link_local && is_theirs ? SL_MP_REACH_UNKNOWN : SL_MP_REACH_NEVER;
    return is_one_subnet ? SL_MP_REACH_DIRECT : SL_MP_REACH_ROUTED;
}

static unsigned less(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static bool is_local4(const struct sl_dpdk_address *address)
{
    return address->ip[0] == 169 && address->ip[1] == 254;
}

static enum sl_mp_reach reach4(const struct sl_dpdk_address *a, const struct sl_dpdk_address *b)
{
    if (!sl_dpdk_has_ip4(a) || !sl_dpdk_has_ip4(b))
        return SL_MP_REACH_NEVER;
    return reach_of(is_local4(a), is_local4(b),
                    sl_dpdk_same_subnet(a->ip, b->ip, less(a->prefix, b->prefix)));
}

/* fe80::/10 */
static bool is_local6(const struct sl_dpdk_address *address)
{
    return address->ip6[0] == 0xfe && (address->ip6[1] & 0xc0) == 0x80;
}

static enum sl_mp_reach reach6(const struct sl_dpdk_address *a, const struct sl_dpdk_address *b)
{
    if (!sl_dpdk_has_ip6(a) || !sl_dpdk_has_ip6(b))
        return SL_MP_REACH_NEVER;
    return reach_of(is_local6(a), is_local6(b),
                    sl_dpdk_same_subnet(a->ip6, b->ip6, less(a->prefix6, b->prefix6)));
}

/* How good that is: a router is known to be there where both ends name one. */
static unsigned worth(enum sl_mp_reach reach, bool has_gateways)
{
    switch (reach) {
    case SL_MP_REACH_DIRECT: return 4;
    case SL_MP_REACH_ROUTED: return has_gateways ? 3 : 1;
    case SL_MP_REACH_UNKNOWN: return 2;
    case SL_MP_REACH_NEVER: break;
    }
    return 0;
}

/* IPv4 where both are as good, as its headers are shorter. What each end asks is the same in both
 * directions, so both come to the same answer. */
static bool is_better_by_ip6(const struct sl_dpdk_rail *rail, const struct sl_dpdk_rail_info *info,
                             const struct sl_dpdk_address *theirs)
{
    const struct sl_dpdk_address *ours = &rail->info.address;
    bool gateways4 = rail->info.has_gateway && (info->gateways & SL_DPDK_GATEWAY_4) != 0;
    bool gateways6 = rail->info.has_gateway6 && (info->gateways & SL_DPDK_GATEWAY_6) != 0;

    return worth(reach6(ours, theirs), gateways6) > worth(reach4(ours, theirs), gateways4);
}

struct sl_dpdk_address sl_dpdk_rail_towards(const struct sl_dpdk_rail *rail,
                                            const struct sl_dpdk_rail_info *info)
{
    struct sl_dpdk_address out = sl_dpdk_address_of(info);

    if (is_better_by_ip6(rail, info, &out)) {
        memset(out.ip, 0, sizeof(out.ip));
        out.prefix = 0;
    } else if (sl_dpdk_has_ip4(&out)) {
        memset(out.ip6, 0, sizeof(out.ip6));
        out.prefix6 = 0;
    }
    return out;
}

enum sl_mp_reach sl_dpdk_rail_reach(const struct sl_dpdk_rail *rail,
                                    const struct sl_mp_rail_info *remote)
{
    struct sl_dpdk_rail_info info = sl_dpdk_rail_info_of(remote);
    struct sl_dpdk_address theirs = sl_dpdk_address_of(&info);
    const struct sl_dpdk_address *ours = &rail->info.address;
    enum sl_mp_reach reach =
        is_better_by_ip6(rail, &info, &theirs) ? reach6(ours, &theirs) : reach4(ours, &theirs);

    if (memcmp(ours->mac, theirs.mac, sizeof(ours->mac)) == 0)
        return SL_MP_REACH_NEVER; /* it is that port, which hears others alone */
    if (ours->segment == 0 || theirs.segment == 0)
        return reach;
    if (!(sl_dpdk_has_ip4(ours) && sl_dpdk_has_ip4(&theirs)) &&
        !(sl_dpdk_has_ip6(ours) && sl_dpdk_has_ip6(&theirs)))
        return SL_MP_REACH_NEVER;
    return ours->segment == theirs.segment ? SL_MP_REACH_DIRECT : SL_MP_REACH_NEVER;
}

/* ---- its link ---- */

static void judge(struct sl_dpdk_rail *rail, uint64_t now_ns)
{
    sl_dpdk_port_info(rail->port, &rail->info);
    if (!rail->info.is_up)
        rail->up_since_ns = 0;
    else if (rail->up_since_ns == 0)
        rail->up_since_ns = now_ns;
    else if (now_ns - rail->up_since_ns >= STEADY_NS)
        rail->grace_until_ns = 0;
    rail->base.usable = rail->info.is_up || now_ns < rail->grace_until_ns;
    if (!rail->base.usable)
        snprintf(rail->base.why, sizeof(rail->base.why), "%s",
                 rail->info.is_refused ? SL_DPDK_RAIL_REFUSED : "its link is down");
    if (rail->info.speed != 0)
        rail->base.speed = rail->info.speed; /* not known before the link was up */
}

void sl_dpdk_rail_init(struct sl_dpdk_rail *rail, struct sl_dpdk_iface *iface, unsigned idx,
                       struct sl_dpdk_port *port, uint64_t now_ns)
{
    *rail =
        (struct sl_dpdk_rail){.iface = iface, .port = port, .grace_until_ns = now_ns + GRACE_NS};
    judge(rail, now_ns);
    rail->base.name = rail->info.name;
    rail->base.idx = idx;
    snprintf(rail->base.why, sizeof(rail->base.why), "its link is down");
}

bool sl_dpdk_rail_look(struct sl_dpdk_rail *rail, uint64_t now_ns)
{
    bool was_usable = rail->base.usable;

    judge(rail, now_ns);
    return was_usable != rail->base.usable;
}

/* ---- receive buffers ---- */

static int block_add(struct sl_dpdk_rail *rail)
{
    struct sl_dpdk_buffers *buffers = &rail->buffers;
    unsigned count = buffers->block_count + 1;
    size_t len = (size_t)BLOCK_BUFFERS * rail->iface->mp.slot_bytes;
    uint8_t **blocks = reallocarray(buffers->blocks, count, sizeof(*blocks));
    uint32_t *free_ones;

    if (blocks != NULL)
        buffers->blocks = blocks;
    free_ones = reallocarray(buffers->free, (size_t)count * BLOCK_BUFFERS, sizeof(*buffers->free));
    if (free_ones != NULL)
        buffers->free = free_ones;
    if (blocks != NULL && free_ones != NULL)
        blocks[count - 1] = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
    if (blocks == NULL || free_ones == NULL || blocks[count - 1] == NULL)
        return sl_fail(-ENOMEM, "no memory for %zu KiB of receive buffers of %s", len >> 10,
                       rail->base.name);
    for (uint32_t i = 0; i < BLOCK_BUFFERS; i++)
        buffers->free[buffers->free_count++] = buffers->block_count * BLOCK_BUFFERS + i;
    buffers->block_count++;
    return 0;
}

int sl_dpdk_buffers_provide(struct sl_dpdk_rail *rail, unsigned conns)
{
    unsigned full = conns < FULL_CONNS ? conns : FULL_CONNS;
    unsigned wanted = SPARE_BUFFERS + full * SL_MP_CREDITS + (conns - full) * SHARED_BUFFERS;
    int err = 0;

    while (err == 0 && rail->buffers.block_count * BLOCK_BUFFERS < wanted)
        err = block_add(rail);
    rail->buffers.short_at = SPARE_BUFFERS / 2;
    return err;
}

void sl_dpdk_buffer_put(struct sl_dpdk_rail *rail, uint32_t buffer)
{
    sl_dassert(buffer < rail->buffers.block_count * BLOCK_BUFFERS);
    rail->buffers.free[rail->buffers.free_count++] = buffer;
}

uint8_t *sl_dpdk_buffer_bytes(const struct sl_dpdk_rail *rail, uint32_t buffer)
{
    return rail->buffers.blocks[buffer / BLOCK_BUFFERS] +
           (size_t)(buffer % BLOCK_BUFFERS) * rail->iface->mp.slot_bytes;
}

void sl_dpdk_rail_fini(struct sl_dpdk_rail *rail)
{
    for (unsigned i = 0; i < rail->buffers.block_count; i++)
        free(rail->buffers.blocks[i]);
    free(rail->buffers.blocks);
    free(rail->buffers.free);
    rail->buffers = (struct sl_dpdk_buffers){0};
}
