/* SPDX-License-Identifier: Apache-2.0 */
/* Wires within the process. */
#include "core/clock.h"
#include "core/err.h"
#include "dpdk/port/ring.h"

#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define PLACES 512

/* What end `end` receives from, and the other one sends to. */
static void queue_name(const struct sl_dpdk_spec *spec, int end, char *out, size_t cap)
{
    int len = (int)strlen(spec->name) - 2;

    snprintf(out, cap, "sl_%.*s_%d", len - 5, spec->name + 5, end);
}

static int end_of(const struct sl_dpdk_spec *spec)
{
    return spec->name[strlen(spec->name) - 1] - '0';
}

static struct rte_ring *queue_of(const struct sl_dpdk_spec *spec, int end)
{
    char name[RTE_RING_NAMESIZE];
    struct rte_ring *ring;

    queue_name(spec, end, name, sizeof(name));
    ring = rte_ring_lookup(name);
    return ring != NULL ? ring : rte_ring_create(name, PLACES, SOCKET_ID_ANY, 0);
}

int sl_dpdk_ring_attach(const struct sl_dpdk_spec *spec, uint16_t *id)
{
    int end = end_of(spec);
    struct rte_ring *in = queue_of(spec, end), *out = queue_of(spec, !end);
    char name[SL_DPDK_NAME_MAX];
    int port;

    if (in == NULL || out == NULL)
        return sl_fail(-ENOMEM, "DPDK has no memory for '%s': %s", spec->name,
                       rte_strerror(rte_errno));
    queue_name(spec, end, name, sizeof(name));
    port = rte_eth_from_rings(name, &in, 1, &out, 1, 0);
    if (port < 0)
        return sl_fail(-ENODEV, "DPDK cannot make '%s': %s", spec->name, rte_strerror(rte_errno));
    *id = (uint16_t)port;
    return 0;
}

/* What nobody will receive any more goes; the queue itself is kept for the next wire of that name,
 * since the other end may have it. */
void sl_dpdk_ring_detach(const struct sl_dpdk_spec *spec)
{
    struct rte_ring *in = queue_of(spec, end_of(spec));
    void *packet;

    while (in != NULL && rte_ring_dequeue(in, &packet) == 0)
        rte_pktmbuf_free(packet);
}

uint32_t sl_dpdk_ring_segment(const struct sl_dpdk_spec *spec)
{
    static uint64_t process;
    char text[SL_DPDK_NAME_MAX + 32];

    if (process == 0)
        process = sl_seed() | 1;
    snprintf(text, sizeof(text), "%llx %.*s", (unsigned long long)process,
             (int)strlen(spec->name) - 2, spec->name);
    return sl_dpdk_hash(text);
}
