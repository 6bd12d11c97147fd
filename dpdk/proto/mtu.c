/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large packets may be. A flow begins with what surely passes; once a message needs more,
 * probes of the sizes that both ports could go by every route, the largest first. One that is
 * answered on all routes becomes the size of new packets. When large packets are lost and something
 * small passes by the same route, packets become small again, and larger ones are tried later.
 */
#include "dpdk/proto/inside.h"

#define TRIES 3u
#define OLD_STAMPS 16u /* an answer to one of so many probes counts for their size */
#define WAIT_LEAST_NS UINT64_C(1000000000) /* until all sizes are tried again; doubles */
#define WAIT_MOST_NS UINT64_C(60000000000)
#define LARGE_LOST 8u /* again, and none came; or two and as many timeouts */

static const uint16_t ladder[] = {8192, 4096, 3072, 2048};
static const uint8_t zeros[SL_DP_PAYLOAD_MOST + SL_DP_CRC_BYTES];

/* The next size to try below that one; 0: none that is worth it. */
static uint16_t below(const struct sl_dp_flow *flow, uint32_t size)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(ladder); i++)
        if (ladder[i] < size && ladder[i] < flow->ends.payload_most &&
            ladder[i] > flow->mtu.payload + flow->mtu.payload / 8)
            return ladder[i];
    return 0;
}

void sl_dp_mtu_init(struct sl_dp_flow *flow)
{
    flow->mtu =
        (struct sl_dp_mtu){.payload = (uint16_t)flow->ends.payload_least, .wait_ns = WAIT_LEAST_NS};
    if (flow->ends.payload_most == flow->ends.payload_least)
        flow->mtu.at_ns = SL_DP_NEVER;
}

/* ---- probes ---- */

void sl_dp_probe(struct sl_dp_flow *flow, struct sl_dp_route *route, uint16_t len)
{
    struct sl_dp_head head = flow->head;
    struct sl_dp_packet packet = {.head = &head,
                                  .head_len = sizeof(head),
                                  .payload = zeros,
                                  .payload_len = len,
                                  .route = (uint16_t)(route - flow->route)};

    if (flow->ends.crc && len != 0)
        packet.payload_len += SL_DP_CRC_BYTES; /* as DATA would be */
    route->probe.stamp++;
    route->probe.len = len;
    route->probe.sent_ns = flow->engine->now_ns;
    route->probe.is_out = true;
    head.kind_version = (uint8_t)(SL_DP_PROBE << 4 | flow->ends.version);
    head.route = (uint8_t)packet.route;
    head.stamp = route->probe.stamp;
    sl_dp_head_seal(&head);
    flow->engine->ops->packet(flow, &packet); /* if the port is full, this one is lost */
}

void sl_dp_probe_received(struct sl_dp_flow *flow, const struct sl_dp_head *head, size_t len)
{
    struct sl_dp_head answer = flow->head;
    struct sl_dp_packet packet = {.head = &answer, .head_len = sizeof(answer)};

    if (head->route >= SL_DP_ROUTES_MAX) {
        flow->engine->dropped_bad++;
        return;
    }
    answer.kind_version = (uint8_t)(SL_DP_PROBE_REPLY << 4 | flow->ends.version);
    answer.route = head->route;
    answer.offset = (uint32_t)len;
    answer.stamp = head->stamp;
    sl_dp_head_seal(&answer);
    packet.payload = zeros;
    /* By the way it came, even where this end has given that up. */
    packet.route = (uint16_t)(head->route % flow->route_count);
    flow->engine->ops->packet(flow, &packet);
}

static unsigned up(const struct sl_dp_flow *flow)
{
    unsigned routes = 0;

    for (unsigned i = 0; i < flow->route_count; i++)
        routes |= (unsigned)flow->route[i].is_up << i;
    return routes;
}

static void adopt(struct sl_dp_flow *flow)
{
    struct sl_dp_mtu *mtu = &flow->mtu;

    if (mtu->size == 0 || (up(flow) & ~mtu->passed) != 0)
        return;
    mtu->payload = mtu->size;
    mtu->size = 0;
    if (mtu->payload == flow->ends.payload_most) {
        mtu->at_ns = SL_DP_NEVER;
        return;
    }
    mtu->at_ns = flow->engine->now_ns + mtu->wait_ns;
}

void sl_dp_probe_answered(struct sl_dp_flow *flow, const struct sl_dp_head *head)
{
    struct sl_dp_route *route;

    if (head->route >= flow->route_count) {
        flow->engine->dropped_bad++;
        return;
    }
    route = &flow->route[head->route];
    if (route->is_up && flow->mtu.size != 0 && head->offset >= flow->mtu.size &&
        (uint16_t)(route->probe.stamp - head->stamp) < OLD_STAMPS) {
        flow->mtu.passed |= (uint16_t)(1u << head->route);
        adopt(flow);
    }
    if (!route->probe.is_out || head->stamp != route->probe.stamp ||
        head->offset < route->probe.len)
        return; /* an old one */
    route->probe.is_out = false;
    sl_dp_heard(flow);
    if (!route->is_up)
        sl_dp_route_answered(flow, route);
    else if (route->probe.len == 0)
        sl_dp_mtu_check(flow, route);
}

/* No answer: once more, or a smaller size, or later. */
static void go_on(struct sl_dp_flow *flow, uint64_t now_ns)
{
    struct sl_dp_mtu *mtu = &flow->mtu;

    if (mtu->size != 0 && ++mtu->tries < TRIES)
        return;
    mtu->size = mtu->size == 0 ? (uint16_t)flow->ends.payload_most : below(flow, mtu->size);
    mtu->tries = 0;
    mtu->passed = 0;
    if (mtu->size != 0)
        return;
    mtu->at_ns = now_ns + mtu->wait_ns;
    mtu->wait_ns = mtu->wait_ns * 2 < WAIT_MOST_NS ? mtu->wait_ns * 2 : WAIT_MOST_NS;
}

uint64_t sl_dp_mtu_probes(struct sl_dp_flow *flow, uint64_t now_ns)
{
    struct sl_dp_mtu *mtu = &flow->mtu;
    uint64_t try_ns = flow->engine->settings.rto_least_ns; /* the peer may not run */

    if (!sl_dp_busy(flow) || mtu->at_ns == SL_DP_NEVER)
        return SL_DP_NEVER; /* the next post goes on */
    if (now_ns < mtu->at_ns)
        return mtu->at_ns;
    go_on(flow, now_ns);
    if (mtu->size == 0)
        return mtu->at_ns;
    for (unsigned i = 0; i < flow->route_count; i++) {
        struct sl_dp_route *route = &flow->route[i];

        if (!route->is_up || (mtu->passed >> i & 1) != 0)
            continue;
        sl_dp_probe(flow, route, mtu->size);
        if (4 * route->srtt_ns > try_ns)
            try_ns = 4 * route->srtt_ns;
    }
    mtu->at_ns = now_ns + try_ns;
    return mtu->at_ns;
}

void sl_dp_mtu_check(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    struct sl_dp_mtu *mtu = &flow->mtu;

    /* After the first timeout, the small one was sent before the large ones went again. */
    if (mtu->payload == flow->ends.payload_least || route->timeouts == 1 ||
        route->large_lost < (route->timeouts == 0 ? LARGE_LOST : 2))
        return;
    mtu->payload = (uint16_t)flow->ends.payload_least;
    mtu->size = 0;
    mtu->at_ns = flow->engine->now_ns + mtu->wait_ns;
    mtu->wait_ns = mtu->wait_ns * 2 < WAIT_MOST_NS ? mtu->wait_ns * 2 : WAIT_MOST_NS;
    for (unsigned i = 0; i < flow->route_count; i++)
        flow->route[i].large_lost = 0;
    sl_dp_ready(flow);
}
