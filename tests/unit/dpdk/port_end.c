/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/dpdk/port_end.h"
#include "core/clock.h"
#include "dpdk/proto/wire.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) * 7 + 5);
}

void port_end_fill(uint8_t *payload, size_t len)
{
    for (size_t i = 0; i < len; i++)
        payload[i] = byte_at(i);
}

static void came(void *arg, struct sl_dpdk_port *port, uint32_t flow, const void *bytes, size_t len,
                 bool is_marked)
{
    struct port_end *end = arg;
    const uint8_t *payload = (const uint8_t *)bytes + PORT_END_HEAD;
    uint64_t count;

    end->came++;
    end->came_bytes += len;
    end->marked += is_marked;
    end->last_len = (uint32_t)(len - PORT_END_HEAD);
    memcpy(&count, (const uint8_t *)bytes + 8, 8);
    end->out_of_order += end->came > 1 && count != end->last_count + 1;
    end->last_count = count;
    for (size_t i = 0; i < end->last_len && !end->skips_check; i++) {
        if (payload[i] != byte_at(i)) {
            end->damaged++;
            break;
        }
    }
    if (flow != end->own.flow || port != end->port)
        end->damaged++;
    if (end->echoes)
        (void)port_end_send(end, payload, end->last_len, false);
}

static void returned(void *arg, uint64_t cookie)
{
    struct port_end *end = arg;

    (void)cookie;
    end->returned++;
}

int port_end_open(struct port_end *end, const struct sl_dpdk_port_settings *settings, unsigned port)
{
    struct sl_dpdk_port_info info;
    int err;

    memset(end, 0, sizeof(*end));
    err = sl_dpdk_ports_get(settings, end->ports, SL_DPDK_PORTS_MAX, &end->port_count);
    if (err != 0)
        return err;
    end->port = end->ports[port];
    err = sl_dpdk_user_open(came, returned, end, &end->user);
    if (err == 0)
        err = sl_dpdk_flow_number(end->user, &end->own.flow);
    sl_dpdk_port_info(end->port, &info);
    end->own.address = info.address;
    return err;
}

int port_end_connect(struct port_end *end, const struct port_hello *peer, uint16_t source_port)
{
    end->peer = *peer;
    return sl_dpdk_way_make(end->port, &peer->address, source_port, 0, &end->way);
}

void port_end_close(struct port_end *end)
{
    sl_dpdk_user_close(end->user);
    sl_dpdk_ports_put(end->ports, end->port_count);
    end->user = NULL;
}

int port_end_send(struct port_end *end, const uint8_t *payload, size_t len, bool may_keep)
{
    uint8_t head[PORT_END_HEAD] = {SL_DP_DATA << 4 | SL_DP_VERSION};
    int err;

    memcpy(head + offsetof(struct sl_dp_head, flow), &end->peer.flow, 4);
    memcpy(head + 8, &end->sent, 8);
    err = sl_dpdk_send(end->user, end->port, &end->way, head, sizeof(head), payload, len, NULL,
                       may_keep, end->sent);
    end->sent += err >= 0;
    return err;
}

void port_end_poll(struct port_end *end)
{
    sl_dpdk_user_poll(end->user, end->port, 64);
    sl_dpdk_flush(end->user, end->port);
}

bool port_end_wait(struct port_end *end, const uint64_t *count, uint64_t least, int ms)
{
    uint64_t until = sl_now(&sl_clock_monotonic) + (uint64_t)ms * SL_NS_PER_MS;

    while (*count < least) {
        port_end_poll(end);
        if (sl_now(&sl_clock_monotonic) > until)
            return false;
        sched_yield();
    }
    return true;
}

bool port_end_wait_up(struct port_end *end, int ms)
{
    uint64_t until = sl_now(&sl_clock_monotonic) + (uint64_t)ms * SL_NS_PER_MS;
    struct sl_dpdk_port_info info;

    for (;;) {
        sl_dpdk_port_info(end->port, &info);
        if (info.is_up)
            return true;
        if (sl_now(&sl_clock_monotonic) > until)
            return false;
        port_end_poll(end);
        sched_yield();
    }
}
