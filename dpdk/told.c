/* SPDX-License-Identifier: Apache-2.0 */
/* The flows' callbacks: where bytes go, what arrived and what is over, noted and then told. */
#include "dpdk/events.h"
#include "dpdk/iface.h"
#include "dpdk/lane.h"

#include "core/log.h"
#include "multipath/conn.h"

#include <stdio.h>
#include <string.h>

#define OFFSET_BITS 31 /* of a write's place in its CTS that travel with each packet */

/* ---- packets, either way ---- */

static uint64_t cookie_of(const struct sl_dpdk_lane *lane, uint8_t message)
{
    return (uint64_t)lane->place << 32 | (uint32_t)lane->generation << 16 | message;
}

static int send_packet(struct sl_dp_flow *flow, const struct sl_dp_packet *packet)
{
    struct sl_dpdk_lane *lane = sl_dp_flow_owner(flow);
    struct sl_dpdk_rail *rail = lane->rail;
    struct sl_dpdk_route *route = &lane->routes[packet->route % SL_DP_ROUTES_MAX];
    int rc;

    if (SL_UNLIKELY(!route->is_made) && sl_dpdk_route_make(lane, packet->route) != 0)
        return -EAGAIN;
    rc = sl_dpdk_send(rail->iface->user, rail->port, packet->is_high ? &route->high : &route->way,
                      packet->head, packet->head_len, packet->payload, packet->payload_len,
                      packet->has_tail ? &packet->tail : NULL,
                      packet->is_lent && rail->info.sends_segments,
                      cookie_of(lane, packet->message));
    if (SL_UNLIKELY(rc < 0))
        return rc;
    lane->lent += (unsigned)rc;
    if (SL_UNLIKELY(lane->pieces_wait) &&
        sl_dp_flow_unsent(flow) < SL_DPDK_AHEAD_BYTES + packet->payload_len) {
        lane->pieces_wait = false;
        sl_mp_conn_activate(lane->base.conn);
    }
    return rc;
}

void sl_dpdk_on_sent(void *arg, uint64_t cookie)
{
    struct sl_dpdk_iface *iface = arg;
    uint32_t place = (uint32_t)(cookie >> 32);
    struct sl_dpdk_lane *lane = place < iface->lane_cap ? iface->lanes[place] : NULL;

    sl_assert(lane != NULL && lane->lent > 0); /* it is not destroyed before */
    lane->lent--;
    if (lane->flow != NULL && lane->generation == (uint16_t)(cookie >> 16))
        sl_dp_flow_sent(lane->flow, (uint8_t)cookie);
}

void sl_dpdk_on_packet(void *arg, struct sl_dpdk_port *port, uint32_t flow, const void *bytes,
                       size_t len, bool is_marked)
{
    struct sl_dpdk_iface *iface = arg;
    struct sl_dpdk_lane *lane = sl_dpdk_flows_find(&iface->flows, flow);

    if (SL_LIKELY(lane != NULL && lane->rail->port == port))
        sl_dp_flow_receive(lane->flow, bytes, len, is_marked, iface->engine.now_ns);
}

/* ---- where bytes go ---- */

/* The CTS says; a peer names no memory. */
static void *place_write(struct sl_dpdk_lane *lane, uint32_t imm, uint32_t off, uint32_t len)
{
    const struct sl_mp_rx_cts *cts = sl_mp_rx_cts_at(lane->base.conn, imm & 0xffff);
    uint64_t at = ((uint64_t)(imm >> 16) << OFFSET_BITS) + off;

    if (SL_UNLIKELY(cts == NULL || at > cts->len || len > cts->len - at))
        return NULL;
    return cts->addr + at;
}

/* The message that arrives next: all before it were noted. */
static bool is_next(const struct sl_dpdk_lane *lane, uint32_t imm)
{
    return imm >> 16 == (uint16_t)(lane->base.arrived + lane->told_count);
}

/* A buffer holds the frame until it is told, and longer if it has to wait. The last one is for the
 * frame that is next: others would hold it until that one has come, and that one wait for them. */
static void *place_frame(struct sl_dpdk_lane *lane, uint32_t imm, uint32_t off, uint32_t len)
{
    struct sl_dpdk_rail *rail = lane->rail;
    uint32_t *buffer = &lane->buffers[(imm >> 16) % SL_DP_MESSAGES_MAX];
    uint32_t room = rail->iface->mp.slot_bytes;

    if (SL_UNLIKELY(off > room || len > room - off))
        return NULL;
    if (*buffer == SL_DPDK_NO_BUFFER && (rail->buffers.free_count > 1 || is_next(lane, imm)))
        *buffer = sl_dpdk_buffer_take(rail);
    if (SL_UNLIKELY(*buffer == SL_DPDK_NO_BUFFER))
        return SL_DP_LATER;
    return sl_dpdk_buffer_bytes(rail, *buffer) + off;
}

static void *place(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t off, uint32_t len)
{
    struct sl_dpdk_lane *lane = sl_dp_flow_owner(flow);

    return is_write ? place_write(lane, imm, off, len) : place_frame(lane, imm, off, len);
}

/* ---- noted ---- */

static void to_tell(struct sl_dpdk_lane *lane)
{
    if (lane->is_telling)
        return;
    lane->is_telling = true;
    sl_list_push_back(&lane->rail->iface->telling, &lane->telling);
}

static void note_failure(struct sl_dpdk_lane *lane, const char *why)
{
    if (!lane->has_failed)
        snprintf(lane->why, sizeof(lane->why), "%s", why);
    lane->has_failed = true;
    to_tell(lane);
}

static void arrived(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t len)
{
    struct sl_dpdk_lane *lane = sl_dp_flow_owner(flow);

    /* The peer has no more than that under way before it hears that they came. */
    if (SL_UNLIKELY(lane->told_count == SL_DP_MESSAGES_MAX)) {
        note_failure(lane, "the peer sends more messages at a time than a path may have under way");
        return;
    }
    lane->told[(lane->told_first + lane->told_count++) % SL_DP_MESSAGES_MAX] =
        (struct sl_dpdk_told){.imm = imm, .len = len, .is_write = is_write};
    to_tell(lane);
}

static void retired(struct sl_dp_flow *flow, uint32_t ordinal)
{
    struct sl_dpdk_lane *lane = sl_dp_flow_owner(flow);

    lane->retired = ordinal;
    lane->has_retired = true;
    to_tell(lane);
}

static void failed(struct sl_dp_flow *flow, int status, const char *why)
{
    struct sl_dpdk_lane *lane = sl_dp_flow_owner(flow);

    (void)status;
    note_failure(lane, lane->rail->info.is_refused ? SL_DPDK_RAIL_REFUSED : why);
}

static void route_changed(struct sl_dp_flow *flow, unsigned route, bool up)
{
    const struct sl_dpdk_lane *lane = sl_dp_flow_owner(flow);
    uint16_t source_port = lane->routes[route % SL_DP_ROUTES_MAX].source_port;

    sl_log(up ? SL_LOG_INFO : SL_LOG_WARN, "dpdk",
           "path %u to %s by %s %s UDP source port %u, one of %u", lane->base.idx,
           sl_ep_peer_name(&lane->base.conn->base), lane->rail->base.name,
           up ? "uses again" : "sends nothing more, for now, from", source_port, lane->route_count);
    sl_mp_event(lane->base.conn->iface, up ? SL_EVENT_DPDK_ROUTE_UP : SL_EVENT_DPDK_ROUTE_DOWN,
                lane->base.conn->base.peer, lane->base.idx, source_port);
}

const struct sl_dp_ops sl_dpdk_flow_ops = {
    .packet = send_packet,
    .place = place,
    .arrived = arrived,
    .retired = retired,
    .failed = failed,
    .route_changed = route_changed,
};

/* ---- told ---- */

static void tell_frame(struct sl_dpdk_lane *lane, const struct sl_dpdk_told *told)
{
    uint32_t *place_of = &lane->buffers[(told->imm >> 16) % SL_DP_MESSAGES_MAX];
    uint32_t buffer = *place_of;

    if (SL_UNLIKELY(buffer == SL_DPDK_NO_BUFFER)) {
        sl_mp_failed(&lane->base, 0, "the peer sent a frame without a byte");
        return;
    }
    *place_of = SL_DPDK_NO_BUFFER;
    sl_mp_arrived(&lane->base, told->imm, sl_dpdk_buffer_bytes(lane->rail, buffer), buffer,
                  told->len);
}

/* Passes on one thing; the lane may be gone when it returns. The failure comes last. */
static void tell_one(struct sl_dpdk_lane *lane)
{
    char text[SL_DPDK_ADDRESS_TEXT];

    if (lane->has_retired) {
        lane->has_retired = false;
        sl_mp_retired(&lane->base, lane->retired, lane->rail->iface->engine.now_ns);
    } else if (lane->told_count > 0) {
        struct sl_dpdk_told told = lane->told[lane->told_first];

        lane->told_first = (lane->told_first + 1) % SL_DP_MESSAGES_MAX;
        lane->told_count--;
        if (told.is_write)
            sl_mp_written(&lane->base, sl_mp_imm(lane->base.arrived, told.imm & 0xffff), told.len);
        else
            tell_frame(lane, &told);
    } else {
        lane->is_telling = false;
        sl_list_remove(&lane->telling);
        if (lane->has_failed)
            sl_mp_failed(&lane->base, 0, "%s (UDP source port %u to %s)", lane->why,
                         sl_dpdk_lane_port(lane), sl_dpdk_address_text(&lane->remote, text));
        lane->has_failed = false;
    }
}

unsigned sl_dpdk_tell(struct sl_dpdk_iface *iface)
{
    unsigned count = 0;

    for (; !sl_list_empty(&iface->telling); count++)
        tell_one(sl_container_of(iface->telling.next, struct sl_dpdk_lane, telling));
    return count;
}

void sl_dpdk_tell_lane(struct sl_dpdk_lane *lane)
{
    while (lane->is_telling)
        tell_one(lane);
}

void sl_dpdk_told_forget(struct sl_dpdk_lane *lane)
{
    if (lane->is_telling)
        sl_list_remove(&lane->telling);
    lane->is_telling = lane->has_retired = lane->has_failed = false;
    lane->told_first = lane->told_count = 0;
    for (unsigned i = 0; i < SL_DP_MESSAGES_MAX; i++) {
        if (lane->buffers[i] != SL_DPDK_NO_BUFFER)
            sl_dpdk_buffer_put(lane->rail, lane->buffers[i]);
        lane->buffers[i] = SL_DPDK_NO_BUFFER;
    }
}
