/* SPDX-License-Identifier: Apache-2.0 */
/* The UDP source ports of a lane's routes, and the headers that packets of each have. */
#include "dpdk/config.h"
#include "dpdk/iface.h"
#include "dpdk/lane.h"

#include "core/log.h"
#include "core/rng.h"
#include "multipath/conn.h"

#define SOURCE_PORT_FIRST 0xc000u /* the dynamic ports */
#define SOURCE_PORTS 0x4000u

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

int sl_dpdk_route_make(struct sl_dpdk_lane *lane, unsigned i)
{
    struct sl_dpdk_route *route = &lane->routes[i % SL_DP_ROUTES_MAX];
    const struct sl_dpdk_config *config = sl_dpdk_config(lane->rail->iface->config);
    int err = sl_dpdk_way_make(lane->rail->port, &lane->remote, route->source_port,
                               (uint8_t)config->traffic_class, &route->way);

    route->is_made = err == 0;
    return err;
}
