/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The injector: a callback of DPDK's behind each receive burst. A packet that is held back waits in
 * one of a few places until so many packets have passed it, or its time has come.
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/inject.h"
#include "dpdk/port/inside.h"

#include <stdlib.h>
#include <string.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define HELD 64
#define PASS_MOST 16
#define UDP_SOURCE 34 /* place in a frame, of IPv4 and IPv6 */
#define UDP6_SOURCE 54

struct held {
    struct rte_mbuf *packet; /* NULL: free */
    uint64_t after;          /* goes on when so many packets were seen, ... */
    uint64_t until_ns;       /* ... or at this moment */
};

struct sl_dpdk_inject {
    struct sl_dpdk_faults faults;
    const struct rte_eth_rxtx_callback *callback;
    uint64_t chance, seen, count;
    struct held held[HELD];
    unsigned held_count;
};

static uint32_t chance(struct sl_dpdk_inject *inject)
{
    inject->chance ^= inject->chance << 13;
    inject->chance ^= inject->chance >> 7;
    inject->chance ^= inject->chance << 17;
    return (uint32_t)(inject->chance >> 32);
}

static bool happens(struct sl_dpdk_inject *inject, uint32_t share)
{
    bool does = share != 0 && chance(inject) <= share;

    inject->count += does;
    return does;
}

static bool is_meant(const struct sl_dpdk_inject *inject, const struct rte_mbuf *packet)
{
    const uint8_t *frame = rte_pktmbuf_mtod(packet, const uint8_t *), *at = frame;

    if (inject->faults.source_port == 0)
        return true;
    if (packet->data_len < SL_DPDK_WAY6_BYTES) /* the protocol's header is behind either */
        return false;
    at += frame[12] == 0x86 && frame[13] == 0xdd ? UDP6_SOURCE : UDP_SOURCE;
    return (at[0] << 8 | at[1]) == inject->faults.source_port;
}

/* False: there is no place. */
static bool hold(struct sl_dpdk_inject *inject, struct rte_mbuf *packet, uint64_t after,
                 uint64_t now_ns)
{
    for (unsigned i = 0; i < HELD; i++) {
        if (inject->held[i].packet != NULL)
            continue;
        inject->held[i] = (struct held){packet, after, now_ns + inject->faults.delay_ns};
        inject->held_count++;
        return true;
    }
    return false;
}

/* What the packet becomes: so many of out. */
static unsigned change(struct sl_dpdk_port *port, struct rte_mbuf *packet, struct rte_mbuf **out,
                       unsigned room, uint64_t now_ns)
{
    struct sl_dpdk_inject *inject = port->inject;
    const struct sl_dpdk_faults *faults = &inject->faults;
    unsigned count = 0;

    if (happens(inject, faults->loss)) {
        rte_pktmbuf_free(packet);
        return 0;
    }
    if (happens(inject, faults->corrupt)) {
        uint32_t at = chance(inject) % packet->data_len;

        rte_pktmbuf_mtod(packet, uint8_t *)[at] ^= (uint8_t)(1 + chance(inject) % 255);
    }
    if (room > 1 && happens(inject, faults->dup)) {
        struct rte_mbuf *copy = rte_pktmbuf_copy(packet, port->large, 0, UINT32_MAX);

        if (copy != NULL)
            out[count++] = copy;
    }
    if (happens(inject, faults->delay) && hold(inject, packet, UINT64_MAX, now_ns))
        return count;
    if (happens(inject, faults->reorder) &&
        hold(inject, packet, inject->seen + 1 + chance(inject) % PASS_MOST, now_ns))
        return count;
    out[count++] = packet;
    return count;
}

static unsigned release(struct sl_dpdk_inject *inject, struct rte_mbuf **out, unsigned room,
                        uint64_t now_ns)
{
    unsigned count = 0;

    for (unsigned i = 0; inject->held_count > 0 && i < HELD && count < room; i++) {
        struct held *held = &inject->held[i];

        if (held->packet == NULL || (inject->seen < held->after && now_ns < held->until_ns))
            continue;
        out[count++] = held->packet;
        held->packet = NULL;
        inject->held_count--;
    }
    return count;
}

/* Behind each receive burst, an empty one as well. Under the port's rx. */
static uint16_t inject(uint16_t id, uint16_t queue, struct rte_mbuf **packets, uint16_t count,
                       uint16_t most, void *arg)
{
    struct sl_dpdk_port *port = arg;
    struct sl_dpdk_inject *inject = port->inject;
    uint64_t now_ns = sl_now(&sl_clock_monotonic);
    struct rte_mbuf *in[SL_DPDK_BURST];
    unsigned have = 0;

    (void)id;
    (void)queue;
    if (count > SL_DPDK_BURST) /* a burst of somebody else */
        return count;
    memcpy(in, packets, count * sizeof(in[0]));
    for (unsigned i = 0; i < count; i++) {
        inject->seen++;
        if (is_meant(inject, in[i]))
            have += change(port, in[i], packets + have, most - have - (count - i - 1), now_ns);
        else
            packets[have++] = in[i];
    }
    return (uint16_t)(have + release(inject, packets + have, most - have, now_ns));
}

int sl_dpdk_inject_start(struct sl_dpdk_port *port, const char *text)
{
    struct sl_dpdk_faults faults;
    int err;

    if (text == NULL || *text == '\0')
        return 0;
    err = sl_dpdk_faults_parse(text, &faults);
    if (err != 0)
        return err;
    port->inject = calloc(1, sizeof(*port->inject));
    if (port->inject == NULL)
        return sl_fail(-ENOMEM, "no memory to inject faults");
    port->inject->faults = faults;
    port->inject->chance = faults.seed * UINT64_C(0x9e3779b97f4a7c15) + port->idx + 1;
    port->inject->callback = rte_eth_add_rx_callback(port->id, 0, inject, port);
    if (port->inject->callback == NULL) {
        free(port->inject);
        port->inject = NULL;
        return sl_fail(-ENOTSUP, "this DPDK is built without callbacks: nothing can be injected");
    }
    sl_info("dpdk", "port %s has faults injected: %s", port->name, text);
    return 0;
}

void sl_dpdk_inject_stop(struct sl_dpdk_port *port)
{
    struct sl_dpdk_inject *inject = port->inject;

    if (inject == NULL)
        return;
    (void)rte_eth_remove_rx_callback(port->id, 0, inject->callback);
    for (unsigned i = 0; i < HELD; i++)
        rte_pktmbuf_free(inject->held[i].packet);
    free(inject);
    port->inject = NULL;
}

uint64_t sl_dpdk_inject_count(const struct sl_dpdk_port *port)
{
    return port->inject != NULL ? port->inject->count : 0;
}
