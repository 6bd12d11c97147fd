/* SPDX-License-Identifier: Apache-2.0 */
/* The UDP source ports of a lane's routes, and the headers that packets of each have. */
#include "dpdk/config.h"
#include "dpdk/iface.h"
#include "dpdk/lane.h"

#include "core/log.h"
#include "core/rng.h"
#include "core/state.h"
#include "multipath/conn.h"

#include <stdio.h>
#include <string.h>

#define SOURCE_PORT_FIRST 0xc000u /* the dynamic ports */
#define SOURCE_PORTS 0x4000u
#define ROUTES_AUTO 4

/* What labels are drawn from: another row for each connection, direction, path and try. The nonces
 * are drawn by each process for each of its connections, so ranks that share a port, or reach the
 * same one, do not draw alike. */
static uint64_t seed_of(const struct sl_mp_conn *conn, const struct sl_mp_path *path)
{
    struct sl_rng rng;

    sl_rng_init(&rng, conn->nonce);
    sl_rng_init(&rng, sl_rng_u64(&rng) ^ conn->peer.nonce);
    sl_rng_init(&rng, sl_rng_u64(&rng) ^ (uint64_t)path->idx << 16 ^ path->misses);
    return sl_rng_u64(&rng);
}

/* The label by the user's list, or a draw that the connection's other paths have no part in. */
static void draw_label(struct sl_dpdk_lane *lane)
{
    const struct sl_mp_conn *conn = lane->base.conn;
    struct sl_mp_path_wishes wishes = sl_dpdk_path_wishes(lane->rail->iface->config);
    struct sl_mp_path_spec specs[SL_MP_PATHS_MAX];
    size_t count = 0, at = 0;

    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_dpdk_lane *other = (const struct sl_dpdk_lane *)conn->paths[i];

        if (other == NULL || other->base.rail == NULL)
            continue;
        if (other == lane)
            at = count;
        specs[count++] = (struct sl_mp_path_spec){
            .local_rail = (uint8_t)other->base.rail->idx,
            .remote_rail = other->base.remote_rail,
            .turn = other->base.turn,
            .flow_label = other->has_label ? other->label : SL_PATH_LABEL_OPEN};
    }
    lane->base.spare = !sl_mp_plan_route(&wishes, 0, seed_of(conn, &lane->base), specs, count, at);
    lane->label = specs[at].flow_label;
}

static bool has_port(const struct sl_dpdk_lane *lane, unsigned count, uint16_t source_port)
{
    for (unsigned i = 0; i < count; i++)
        if (lane->routes[i].source_port == source_port)
            return true;
    return false;
}

/* The first is the label's own; the others follow from it, and all differ. */
static void choose_ports(struct sl_dpdk_lane *lane)
{
    struct sl_rng rng;

    sl_rng_init(&rng, lane->label);
    for (unsigned i = 0; i < lane->route_count; i++) {
        uint16_t source_port = sl_mp_udp_sport(lane->label);

        while (has_port(lane, i, source_port))
            source_port = (uint16_t)(SOURCE_PORT_FIRST + sl_rng_below(&rng, SOURCE_PORTS));
        lane->routes[i] = (struct sl_dpdk_route){.source_port = source_port};
    }
}

unsigned sl_dpdk_routes_wanted(const struct sl_dpdk_lane *lane)
{
    unsigned routes = (unsigned)sl_dpdk_config(lane->rail->iface->config)->routes;

    return routes != 0 ? routes : lane->is_direct ? 1 : ROUTES_AUTO;
}

void sl_dpdk_route_choose(struct sl_dpdk_lane *lane)
{
    struct sl_mp_path *path = &lane->base;

    if (lane->has_label && lane->label_misses == path->misses && lane->label_wanted == path->label)
        return;
    draw_label(lane);
    path->spare |= path->rail->is_far;
    lane->has_label = true;
    lane->label_misses = path->misses;
    lane->label_wanted = path->label;
    if (path->label != SL_PATH_TABLE_UNSAID)
        lane->label = (uint32_t)path->label;
    choose_ports(lane);
    path->shown.label = lane->label;
    path->shown.source_port = sl_dpdk_lane_port(lane);
    sl_debug("dpdk", "path %u to %s sends from UDP source port %u, and %u more", path->idx,
             sl_ep_peer_name(&path->conn->base), sl_dpdk_lane_port(lane), lane->route_count - 1);
}

/* The label of which the source port follows: of the first route that of the lane, and the others
 * differ from it as their source ports do. */
static uint32_t label_of(const struct sl_dpdk_lane *lane, uint16_t source_port)
{
    return lane->label ^ (uint32_t)(source_port ^ sl_mp_udp_sport(lane->label));
}

int sl_dpdk_route_make(struct sl_dpdk_lane *lane, unsigned i)
{
    struct sl_dpdk_route *route = &lane->routes[i % SL_DP_ROUTES_MAX];
    const struct sl_dpdk_config *config = sl_dpdk_config(lane->rail->iface->config);
    int err = sl_dpdk_way_make(lane->rail->port, &lane->remote, route->source_port,
                               (uint8_t)config->traffic_class, &route->way);

    if (err == 0)
        err = sl_dpdk_way_make(lane->rail->port, &lane->remote, route->source_port,
                               sl_dpdk_high_class(config), &route->high);
    route->is_made = err == 0;
    if (err != 0)
        return err;
    sl_dpdk_way_label(&route->way, label_of(lane, route->source_port));
    sl_dpdk_way_label(&route->high, label_of(lane, route->source_port));
    return 0;
}

/* ---- as a planner sees them ---- */

/* One alone is its path. */
unsigned sl_dpdk_route_count(const struct sl_mp_path *path)
{
    const struct sl_dpdk_lane *lane = (const struct sl_dpdk_lane *)path;

    return lane->flow != NULL && lane->route_count > 1 ? lane->route_count : 0;
}

/* "net_memif0:49155/2 > 10.1.0.2": of the third. Its messages are packets. */
void sl_dpdk_route_tell(const struct sl_mp_path *path, unsigned route, struct sl_state_path *out)
{
    const struct sl_dpdk_lane *lane = (const struct sl_dpdk_lane *)path;
    char text[SL_DPDK_ADDRESS_TEXT];
    struct sl_dp_route_stats stats;

    sl_dp_route_stats(lane->flow, route, &stats);
    out->sent_bytes = stats.sent_bytes;
    out->sent_messages = stats.sent_packets;
    out->resent = stats.lost_packets;
    out->failures = stats.failures;
    out->ups = stats.failures + stats.is_up;
    out->source_port = lane->routes[route].source_port;
    out->weight = stats.weight;
    out->is_avoided = stats.is_avoided;
    snprintf(out->name, sizeof(out->name), "%.70s:%u/%u > %s", path->rail->name, out->source_port,
             route, sl_dpdk_address_text(&lane->remote, text));
    snprintf(out->state, sizeof(out->state), "%s", stats.is_up ? "up" : "down");
    if (stats.failures > 0)
        snprintf(out->why, sizeof(out->why), "given up: it lost all, or far more than others");
}

bool sl_dpdk_route_weigh(struct sl_mp_path *path, unsigned route, unsigned weight, bool is_avoided)
{
    struct sl_dpdk_lane *lane = sl_dpdk_lane_of(path);
    struct sl_dp_route_stats stats;

    sl_dp_route_stats(lane->flow, route, &stats);
    if (stats.weight == weight && stats.is_avoided == is_avoided)
        return false;
    sl_dp_route_weight(lane->flow, route, weight, is_avoided);
    return true;
}
