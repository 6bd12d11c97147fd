/* SPDX-License-Identifier: Apache-2.0 */
/* The life of lanes: a flow number and a secret, a flow once the peer's are known, its end; and
 * what is posted to it. */
#include "dpdk/lane.h"

#include "core/log.h"
#include "dpdk/config.h"
#include "dpdk/iface.h"
#include "multipath/conn.h"
#include "multipath/steer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LANES_MIN 64
#define LANES_MAX (1u << 20)
#define RECALL_NS (200 * SL_NS_PER_MS) /* for a port to let go of the user's memory */
#define UNKNOWN_PS 100                 /* per byte, of a port that does not tell its speed */
#define OFFSET_BITS 31                 /* of a write's place in its CTS: as in told.c */

struct sl_dpdk_iface *sl_dpdk_lane_iface(const struct sl_dpdk_lane *lane)
{
    return sl_dpdk_iface_of(&lane->base.conn->iface->base);
}

static int place_take(struct sl_dpdk_iface *iface, struct sl_dpdk_lane *lane)
{
    uint32_t place = 0, cap = iface->lane_cap == 0 ? LANES_MIN : 2 * iface->lane_cap;
    struct sl_dpdk_lane **lanes;

    while (place < iface->lane_cap && iface->lanes[place] != NULL)
        place++;
    if (place == iface->lane_cap) {
        lanes = cap > LANES_MAX ? NULL : reallocarray(iface->lanes, cap, sizeof(*lanes));
        if (lanes == NULL)
            return sl_fail(-ENOMEM, "no memory for %u paths", cap);
        memset(lanes + iface->lane_cap, 0, (cap - iface->lane_cap) * sizeof(*lanes));
        iface->lanes = lanes;
        iface->lane_cap = cap;
    }
    iface->lanes[place] = lane;
    lane->place = place;
    return 0;
}

static int create(struct sl_mp_conn *conn, struct sl_mp_path **out)
{
    struct sl_dpdk_iface *iface = sl_dpdk_iface_of(&conn->iface->base);
    struct sl_dpdk_lane *lane = calloc(1, sizeof(*lane));
    int err;

    if (lane == NULL)
        return sl_fail(-ENOMEM, "no memory for a path to %s", sl_ep_peer_name(&conn->base));
    err = place_take(iface, lane);
    if (err != 0) {
        free(lane);
        return err;
    }
    lane->base.conn = conn;
    lane->base.lanes = &sl_dpdk_lanes;
    lane->base.depth = SL_MP_WINDOW;
    for (unsigned i = 0; i < SL_DP_MESSAGES_MAX; i++)
        lane->buffers[i] = SL_DPDK_NO_BUFFER;
    *out = &lane->base;
    return 0;
}

static int draw_secret(uint64_t *out)
{
    if (getrandom(out, sizeof(*out), 0) != (ssize_t)sizeof(*out))
        return sl_fail(-EIO, "the kernel gives no random bytes for the secret of a path");
    return 0;
}

/* Number and secret of this end. */
static int open_lane(struct sl_mp_path *path, const struct sl_mp_rail_info *remote,
                     const struct sl_mp_offer *theirs)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);
    struct sl_dpdk_iface *iface = sl_dpdk_lane_iface(lane);
    struct sl_dpdk_rail_info info = sl_dpdk_rail_info_of(remote);
    enum sl_mp_reach reach;
    int err;

    (void)theirs;
    path->lanes->close(path);
    iface->mp.opens -= iface->mp.opens > 0;
    lane->rail = (struct sl_dpdk_rail *)path->rail;
    lane->remote = sl_dpdk_rail_towards(lane->rail, &info);
    reach = sl_dpdk_rail_reach(lane->rail, remote);
    if (reach == SL_MP_REACH_NEVER)
        return sl_fail(-EHOSTUNREACH,
                       "%s and the peer's port %u are one port, on different wires, or one has "
                       "IPv4 alone and the other one IPv6",
                       path->rail->name, path->remote_rail);
    lane->is_direct = lane->rail->info.address.segment != 0 &&
                      lane->rail->info.address.segment == lane->remote.segment;
    lane->route_count = sl_dpdk_routes_wanted(lane);
    sl_dpdk_route_choose(lane);
    err = draw_secret(&lane->secret);
    if (err == 0)
        err = sl_dpdk_flow_number(iface->user, &lane->number);
    return err;
}

/* Headers are made anew; -EAGAIN is for later. */
static int make_routes(struct sl_dpdk_lane *lane)
{
    int err = 0;

    for (unsigned i = 0; i < lane->route_count && (err == 0 || err == -EAGAIN); i++)
        err = sl_dpdk_route_make(lane, i);
    return err == -EAGAIN ? 0 : err;
}

static void measure_nothing_yet(struct sl_dpdk_lane *lane)
{
    uint64_t speed = lane->rail->info.speed;
    const struct sl_dpdk_config *config = sl_dpdk_config(lane->rail->iface->config);

    lane->base.nominal_ps = speed != 0 ? UINT64_C(1000000000000) / speed : UNKNOWN_PS;
    if (lane->base.nominal_ps == 0)
        lane->base.nominal_ps = 1;
    lane->base.repeat_ns = (uint64_t)config->rto_min_ms * SL_NS_PER_MS;
    lane->base.probe_bytes = SL_DPDK_PROBE_BYTES;
}

static int connect_lane(struct sl_mp_path *path, const struct sl_mp_offer *theirs)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);
    struct sl_dpdk_iface *iface = sl_dpdk_lane_iface(lane);
    struct sl_dpdk_rail_info remote = sl_dpdk_rail_info_of(&theirs->rail);
    struct sl_dp_ends ends;
    int err = sl_dpdk_agree(lane, theirs, &ends);

    lane->remote = sl_dpdk_rail_towards(lane->rail, &remote);
    if (err == 0)
        err = make_routes(lane);
    if (err == 0)
        err = sl_dp_flow_open(&iface->engine, &ends, lane, &lane->flow);
    if (err != 0)
        return err;
    lane->generation++;
    lane->pieces_wait = false;
    measure_nothing_yet(lane);
    lane->base.packet_bytes = ends.payload_most;
    err = sl_dpdk_flows_add(&iface->flows, lane->number, lane);
    if (err != 0) {
        sl_dp_flow_close(lane->flow);
        lane->flow = NULL;
        return err;
    }
    sl_mp_steer_routes(path);
    return 0;
}

/* ---- its end ---- */

/* The port reads no byte of the user's memory for this lane any more. A device that stands still
 * may take a while to say so. */
static void recall(struct sl_dpdk_lane *lane)
{
    struct sl_dpdk_iface *iface = sl_dpdk_lane_iface(lane);
    const struct sl_clock *clock = iface->mp.base.worker->clock;
    uint64_t deadline_ns = sl_now(clock) + RECALL_NS;

    if (lane->lent == 0)
        return;
    sl_dpdk_flush(iface->user, lane->rail->port);
    sl_dpdk_drop(iface->user, lane->rail->port);
    while (lane->lent > 0) {
        sl_dpdk_user_poll(iface->user, lane->rail->port, SL_DPDK_BUDGET);
        if (lane->lent > 0 && sl_now(clock) >= deadline_ns) {
            sl_warn("dpdk", "%s still has %u payloads of a path to %s in its queue",
                    lane->rail->base.name, lane->lent, sl_ep_peer_name(&lane->base.conn->base));
            return;
        }
    }
}

/* One line for people. */
static void say_how_it_went(const struct sl_dpdk_lane *lane)
{
    struct sl_dp_flow_stats all;
    struct sl_dp_route_stats route;

    if (!sl_log_enabled("dpdk", SL_LOG_DEBUG))
        return;
    sl_dp_flow_stats(lane->flow, &all);
    sl_dp_route_stats(lane->flow, 0, &route);
    sl_debug("dpdk",
             "path %u to %s: %llu packets of up to %u bytes sent, %llu again (%llu in vain), %llu "
             "timeouts; %llu came, %llu repeated; first route: RTT %u us, at least %u us, window "
             "%llu bytes, %llu lost, %llu marked",
             lane->base.idx, sl_ep_peer_name(&lane->base.conn->base),
             (unsigned long long)all.sent_packets, all.payload_bytes,
             (unsigned long long)all.resent_packets, (unsigned long long)all.spurious_packets,
             (unsigned long long)all.timeouts, (unsigned long long)all.received_packets,
             (unsigned long long)all.repeated_packets, route.rtt_ns / 1000,
             route.rtt_least_ns / 1000, (unsigned long long)route.window_bytes,
             (unsigned long long)route.lost_packets, (unsigned long long)route.marked_packets);
}

/* Nothing is placed or sent any more, and the port reads nothing of it. */
static void flow_end(struct sl_dpdk_lane *lane)
{
    say_how_it_went(lane);
    sl_dpdk_flows_remove(&sl_dpdk_lane_iface(lane)->flows, lane->number);
    sl_dp_flow_close(lane->flow);
    lane->flow = NULL;
    recall(lane);
    sl_dpdk_told_forget(lane);
}

/* What came is told first. */
static void stop(struct sl_mp_path *path)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);

    if (lane->flow == NULL)
        return;
    sl_dpdk_user_poll(sl_dpdk_lane_iface(lane)->user, lane->rail->port, SL_DPDK_BUDGET);
    sl_dpdk_tell_lane(lane);
    if (lane->flow != NULL) /* else one of those who were told has stopped it */
        flow_end(lane);
}

static void close_lane(struct sl_mp_path *path)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);

    if (lane->flow != NULL)
        flow_end(lane);
    if (lane->number != 0)
        sl_dpdk_flow_forget(sl_dpdk_lane_iface(lane)->user, lane->number);
    lane->number = 0;
}

/* Its place stays taken while a port may name it. */
static void destroy(struct sl_mp_path *path)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);

    close_lane(path);
    if (lane->lent > 0)
        return;
    sl_dpdk_lane_iface(lane)->lanes[lane->place] = NULL;
    free(lane);
}

static int route_lane(struct sl_mp_path *path)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);

    sl_dpdk_route_choose(lane);
    return make_routes(lane);
}

/* ---- data ---- */

/* In progress packets leave at the end of the round. Outside of it nobody knows when the next one
 * comes: they leave at once, and are stamped with the time that it is now, which for a small
 * message is read once it has left. */
static void flow_post(struct sl_dpdk_lane *lane, bool is_write, uint32_t imm, uint32_t base,
                      const void *bytes, uint32_t len)
{
    struct sl_dpdk_iface *iface = lane->rail->iface;
    const struct sl_clock *clock = iface->mp.base.worker->clock;

    if (SL_LIKELY(iface->mp.in_progress)) {
        sl_dp_flow_post(lane->flow, is_write, imm, base, bytes, len);
    } else if (sl_dp_flow_post_early(lane->flow, is_write, imm, base, bytes, len)) {
        sl_dpdk_flush(iface->user, lane->rail->port);
        sl_dp_flow_left(lane->flow, sl_now(clock));
    } else {
        sl_dp_engine_tick(&iface->engine, sl_now(clock));
        sl_dp_flow_post(lane->flow, is_write, imm, base, bytes, len);
        sl_dpdk_flush(iface->user, lane->rail->port);
    }
}

static void post(struct sl_mp_path *path, const struct sl_mp_tx_frame *frame, bool signal)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);

    (void)signal; /* each message is acknowledged by itself */
    sl_dp_flow_expect(lane->flow, false);
    flow_post(lane, false, sl_mp_imm(path->posted - 1, 0), 0, frame->bytes, frame->len);
}

/* Does this path carry more of the message, where each of the others takes a piece first? */
static bool more_follows(const struct sl_mp_path *path, const struct sl_mp_tx_cts *cts)
{
    uint64_t others = path->conn->path_count - 1;

    return cts->cts.len - cts->dealt > others * path->piece_bytes;
}

/* Packets say where in the CTS their bytes belong: the upper bits with the id, the lower ones each
 * for itself. */
static void write_piece(struct sl_mp_path *path, const struct sl_mp_piece *piece)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);
    const struct sl_mp_cts *cts = &piece->cts->cts;
    uint32_t upper = (uint32_t)(piece->off >> OFFSET_BITS);
    uint32_t lower = (uint32_t)(piece->off & ((UINT64_C(1) << OFFSET_BITS) - 1));

    sl_dp_flow_expect(lane->flow, more_follows(path, piece->cts));
    flow_post(lane, true, sl_mp_imm(upper, cts->id & 0xffff), lower, sl_mp_piece_bytes(path, piece),
              piece->len);
}

static bool is_full(struct sl_mp_path *path)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);

    lane->pieces_wait = sl_dp_flow_unsent(lane->flow) >= SL_DPDK_AHEAD_BYTES;
    return lane->pieces_wait;
}

static int provide(struct sl_mp_iface *base, unsigned conns)
{
    struct sl_dpdk_iface *iface = sl_dpdk_iface_of(&base->base);
    int err = 0;

    for (unsigned i = 0; i < base->rail_count && err == 0; i++)
        err = sl_dpdk_buffers_provide(&iface->rails[i], conns);
    return err;
}

static void release(struct sl_mp_rail *rail, uint32_t buffer)
{
    sl_dpdk_buffer_put((struct sl_dpdk_rail *)rail, buffer);
}

static bool is_short(const struct sl_mp_path *path)
{
    const struct sl_dpdk_rail *rail = (const struct sl_dpdk_rail *)path->rail;

    return rail->buffers.free_count < rail->buffers.short_at;
}

static unsigned poll_lane(struct sl_mp_path *path)
{
    return sl_dpdk_move(sl_dpdk_lane_iface(sl_dpdk_lane_of(path)), SL_DPDK_BUDGET);
}

/* "net_memif0:49155 > 10.1.0.2": the first UDP source port, and the peer's address. */
static void name(const struct sl_mp_path *path, char *out, size_t cap)
{
    const struct sl_dpdk_lane *lane = (const struct sl_dpdk_lane *)path;
    char text[SL_DPDK_ADDRESS_TEXT];

    snprintf(out, cap, "%.70s:%u > %s", path->rail->name, sl_dpdk_lane_port(lane),
             sl_dpdk_address_text(&lane->remote, text));
}

const struct sl_mp_lanes sl_dpdk_lanes = {
    .check = sl_dpdk_control_check,
    .provide = provide,
    .plan = sl_dpdk_plan,
    .describe = sl_dpdk_rail_describe,
    .create = create,
    .destroy = destroy,
    .open = open_lane,
    .offer = sl_dpdk_offer,
    .connect = connect_lane,
    .stop = stop,
    .route = route_lane,
    .close = close_lane,
    .post = post,
    .write = write_piece,
    .is_full = is_full,
    .release = release,
    .is_short = is_short,
    .poll = poll_lane,
    .routes = sl_dpdk_route_count,
    .tell_route = sl_dpdk_route_tell,
    .weigh_route = sl_dpdk_route_weigh,
    .name = name,
};
