/* SPDX-License-Identifier: Apache-2.0 */
/* A port as a rail of multipath/: how it looks to peers, and its receive buffers. */
#ifndef SL_DPDK_RAIL_H
#define SL_DPDK_RAIL_H

#include "dpdk/port/port.h"
#include "multipath/lane.h"
#include "multipath/pairs.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_dpdk_iface;

#define SL_DPDK_NO_BUFFER UINT32_MAX

/* For the frames that arrive, of all lanes of a rail: taken with a frame's first packet. */
struct sl_dpdk_buffers {
    uint8_t **blocks; /* of SL_DPDK_BLOCK_BUFFERS each */
    unsigned block_count;
    uint32_t *free;
    unsigned free_count, short_at;
};

/* Why nothing passes, where the port says is_refused. */
#define SL_DPDK_RAIL_REFUSED                                                                       \
    "the process that listens at its memif socket takes no connection: is it stopped?"

struct sl_dpdk_rail {
    struct sl_mp_rail base;
    struct sl_dpdk_iface *iface;
    struct sl_dpdk_port *port;
    struct sl_dpdk_port_info info; /* as it was looked at last */
    /* Until then a link that was never up for long counts as one that comes: the peer's end of a
     * virtual wire may be opened a little later, and a NIC that is started shows the link that it
     * had, and then loses it to negotiate anew. */
    uint64_t grace_until_ns;
    uint64_t up_since_ns; /* 0: it is down */
    struct sl_dpdk_buffers buffers;
};

/* struct sl_dpdk_rail_info.gateways */
#define SL_DPDK_GATEWAY_4 1u
#define SL_DPDK_GATEWAY_6 2u

/* A rail as its owner describes it: struct sl_mp_rail_info. */
struct sl_dpdk_rail_info {
    uint8_t mac[6], ip[4], prefix, prefix6;
    uint8_t udp_port[2], segment[4], ip6[16];
    uint8_t usable;
    uint8_t frame_most[2]; /* bytes of the largest frame, Ethernet header included */
    uint8_t speed;         /* binary logarithm of bytes per second; 0: unknown */
    uint8_t gateways;      /* that it has, of which families: the bits above */
    uint8_t keys;          /* struct sl_mp_rail_info's */
    uint8_t still_more[2];
};

struct sl_dpdk_rail_info sl_dpdk_rail_info_of(const struct sl_mp_rail_info *info);
/* -EBADMSG: what a peer says of a rail makes no sense. */
int sl_dpdk_rail_info_check(const struct sl_mp_rail_info *info);
struct sl_dpdk_address sl_dpdk_address_of(const struct sl_dpdk_rail_info *info);
/* The peer's address with the IP address alone by which the rail reaches it best, if any: both ends
 * come to the same family. */
struct sl_dpdk_address sl_dpdk_rail_towards(const struct sl_dpdk_rail *rail,
                                            const struct sl_dpdk_rail_info *info);
static inline uint32_t sl_dpdk_frame_most(const struct sl_dpdk_rail_info *info)
{
    return info->frame_most[0] | (uint32_t)info->frame_most[1] << 8;
}
/* struct sl_mp_lanes.describe */
void sl_dpdk_rail_describe(const struct sl_mp_rail *rail, struct sl_mp_rail_info *out);

/* What is known of the way to a peer's port. */
enum sl_mp_reach sl_dpdk_rail_reach(const struct sl_dpdk_rail *rail,
                                    const struct sl_mp_rail_info *remote);

/* A rail on that port, with no buffers yet. */
void sl_dpdk_rail_init(struct sl_dpdk_rail *rail, struct sl_dpdk_iface *iface, unsigned idx,
                       struct sl_dpdk_port *port, uint64_t now_ns);
void sl_dpdk_rail_fini(struct sl_dpdk_rail *rail);
/* Looks at its link. True: it can be used now and could not before, or the reverse. */
bool sl_dpdk_rail_look(struct sl_dpdk_rail *rail, uint64_t now_ns);

/* Buffers for so many connections. -ENOMEM. */
int sl_dpdk_buffers_provide(struct sl_dpdk_rail *rail, unsigned conns);
/* SL_DPDK_NO_BUFFER: none is free. */
static inline uint32_t sl_dpdk_buffer_take(struct sl_dpdk_rail *rail)
{
    struct sl_dpdk_buffers *buffers = &rail->buffers;

    return buffers->free_count == 0 ? SL_DPDK_NO_BUFFER : buffers->free[--buffers->free_count];
}
void sl_dpdk_buffer_put(struct sl_dpdk_rail *rail, uint32_t buffer);
uint8_t *sl_dpdk_buffer_bytes(const struct sl_dpdk_rail *rail, uint32_t buffer);

#endif
