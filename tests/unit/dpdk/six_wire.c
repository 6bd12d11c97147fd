/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/dpdk/six_wire.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_config.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

struct six_wire six;

static struct rte_mempool *pool;

int six_start(void)
{
    port_end_fill(six.payload, sizeof(six.payload));
    six_open(SIX_WIRE); /* EAL is started */
    six_part();
    pool = rte_pktmbuf_pool_create("stranger", 1023, 0, 0, SIX_FRAME_ROOM + 128, SOCKET_ID_ANY);
    return pool != NULL ? 0 : -1;
}

void six_open(const char *list)
{
    struct sl_dpdk_port_settings settings = {.list = list, .rank = -1, .local_rank = -1};

    if (port_end_open(&six.a, &settings, 0) != 0 || port_end_open(&six.b, &settings, 1) != 0)
        fail_msg("%s", sluice_last_error());
}

void six_join(const char *list)
{
    six_open(list);
    assert_int_equal(port_end_connect(&six.a, &six.b.own, 50000), 0);
    assert_int_equal(port_end_connect(&six.b, &six.a.own, 50001), 0);
}

void six_part(void)
{
    port_end_close(&six.a);
    port_end_close(&six.b);
}

static struct rte_ring *ring_to(unsigned end)
{
    return rte_ring_lookup(end == 0 ? "sl_six_0" : "sl_six_1");
}

/* The next frame on its way to that end is taken off the wire. */
bool six_take(unsigned end, struct six_frame *out)
{
    struct rte_mbuf *packet;
    const void *bytes;

    if (rte_ring_dequeue(ring_to(end), (void **)&packet) != 0)
        return false;
    out->len = packet->pkt_len;
    bytes = rte_pktmbuf_read(packet, 0, packet->pkt_len, out->bytes);
    if (bytes != out->bytes)
        memcpy(out->bytes, bytes, out->len);
    rte_pktmbuf_free(packet);
    return true;
}

/* Somebody puts a frame on it; flags are what the receiver's NIC says of it. */
void six_put_seen(unsigned end, const void *frame, size_t len, uint64_t flags)
{
    struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);

    assert_non_null(packet);
    packet->ol_flags |= flags;
    memcpy(rte_pktmbuf_append(packet, (uint16_t)len), frame, len);
    assert_int_equal(rte_ring_enqueue(ring_to(end), packet), 0);
}

void six_put(unsigned end, const void *frame, size_t len)
{
    six_put_seen(end, frame, len, 0);
}

/* A frame of a's to b, as it is on the wire. */
struct six_frame *six_sent(size_t len)
{
    static struct six_frame frame;

    assert_true(port_end_send(&six.a, six.payload, len, false) >= 0);
    port_end_poll(&six.a);
    assert_true(six_take(1, &frame));
    return &frame;
}

struct sl_dpdk_port_stats six_stats(struct port_end *end)
{
    struct sl_dpdk_port_stats stats;

    sl_dpdk_port_stats(end->port, &stats);
    return stats;
}

uint16_t six_sum(const uint8_t *bytes, size_t len, uint32_t sum)
{
    for (size_t i = 0; i < len; i++)
        sum += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
    while (sum >> 16 != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

uint16_t six_sum_of(const uint8_t *frame, uint8_t protocol)
{
    size_t len = (size_t)frame[18] << 8 | frame[19];

    return six_sum(frame + 54, len, six_sum(frame + 22, 32, (uint32_t)len + protocol));
}
