/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers. Ports whose drivers hold none (memif, af_packet, ring) share pools by the size of a
 * buffer; others have one of their own, as large as their rings. Small buffers, of headers and
 * short messages, are shared by all.
 */
#include "core/err.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/kept.h"

#include <stdio.h>

#include <rte_config.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#define CACHE 64         /* buffers that a thread keeps for itself */
#define SMALL_COUNT 4095 /* sent packets that drivers or other engines have not given back */
#define LARGE_COUNT 2047 /* received ones: bursts and inboxes, and copies that wait */
/* What a driver takes of a buffer beside the frame (a VLAN tag, virtio's header), and in which
 * steps NICs are told a buffer's size: ixgbe in KiB, others in less. What does not fit is refused,
 * or comes in two buffers, which costs a copy. */
#define NIC_BESIDE 16
#define NIC_GRAIN 1024

struct pool {
    struct rte_mempool *memory;
    uint32_t room;
    unsigned users;
};
static struct pool shared[SL_DPDK_PORTS_MAX + 1];
static unsigned number; /* of pools made: their names */

static int make(unsigned count, uint32_t room, bool plain, struct rte_mempool **out)
{
    uint16_t private = plain ? 0 : RTE_ALIGN(sizeof(struct sl_dpdk_kept), RTE_MBUF_PRIV_ALIGN);
    char name[RTE_MEMPOOL_NAMESIZE];

    snprintf(name, sizeof(name), "sluice_%u", number++);
    *out = rte_pktmbuf_pool_create(name, count, CACHE, private, (uint16_t)room, SOCKET_ID_ANY);
    if (*out != NULL)
        return 0;
    if (rte_errno == EINVAL)
        return sl_fail_text(-ENOTSUP,
                            "DPDK makes no pools of buffers here: its driver mempool_ring "
                            "is not installed (Debian: librte-mempool-ring23)");
    return sl_fail(rte_errno != 0 ? -rte_errno : -ENOMEM,
                   "DPDK has no memory for %u buffers of %u bytes (%s): raise "
                   "SLUICE_DPDK_MEMORY_MIB, or the limit of huge pages",
                   count, room, rte_strerror(rte_errno));
}

static int get_shared(unsigned count, uint32_t room, struct rte_mempool **out)
{
    struct pool *unused = NULL;

    for (size_t i = 0; i < SL_ARRAY_LEN(shared); i++) {
        if (shared[i].users > 0 && shared[i].room == room) {
            shared[i].users++;
            *out = shared[i].memory;
            return 0;
        }
        if (shared[i].users == 0 && unused == NULL)
            unused = &shared[i];
    }
    sl_assert(unused != NULL); /* a size for each port, and the small one */
    int err = make(count, room, false, &unused->memory);
    if (err != 0)
        return err;
    unused->room = room;
    unused->users = 1;
    *out = unused->memory;
    return 0;
}

static void put(struct rte_mempool *memory)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(shared); i++) {
        if (shared[i].users == 0 || shared[i].memory != memory)
            continue;
        if (--shared[i].users > 0)
            return;
    }
    rte_mempool_free(memory);
}

int sl_dpdk_pools_get(struct sl_dpdk_port *port, unsigned descriptors)
{
    uint32_t grain = port->spec.kind == SL_DPDK_PCI ? NIC_GRAIN : 64;
    uint32_t room = RTE_PKTMBUF_HEADROOM + RTE_ALIGN(port->frame_most + NIC_BESIDE, grain);
    int err;

    if (port->traits.room != 0)
        room = port->traits.room;
    if (room > UINT16_MAX)
        return sl_fail(-EINVAL, "DPDK port '%s' has buffers of %u bytes, and %d are the most",
                       port->name, room, UINT16_MAX);
    if (port->traits.holds_buffers)
        err = make(descriptors + LARGE_COUNT, room, port->traits.own_pool, &port->large);
    else
        err = get_shared(LARGE_COUNT, room, &port->large);
    if (err != 0)
        return err;
    err = get_shared(SMALL_COUNT, RTE_PKTMBUF_HEADROOM + SL_DPDK_SMALL_ROOM, &port->small);
    if (err != 0)
        put(port->large);
    return err;
}

void sl_dpdk_pools_put(struct sl_dpdk_port *port)
{
    put(port->small);
    put(port->large);
    port->small = port->large = NULL;
}
