/* SPDX-License-Identifier: Apache-2.0 */
/* What a flow and its routes tell of themselves. */
#include "dpdk/proto/inside.h"

void sl_dp_flow_stats(const struct sl_dp_flow *flow, struct sl_dp_flow_stats *out)
{
    *out = flow->stats;
    out->payload_bytes = flow->mtu.payload;
}

static uint32_t cut_off(uint64_t ns)
{
    return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

void sl_dp_route_stats(const struct sl_dp_flow *flow, unsigned idx, struct sl_dp_route_stats *out)
{
    const struct sl_dp_route *route = &flow->route[idx];

    sl_dassert(idx < flow->route_count);
    *out = (struct sl_dp_route_stats){.is_up = route->is_up,
                                      .rtt_ns = cut_off(route->srtt_ns),
                                      .rtt_least_ns = cut_off(route->least_ns),
                                      .loss_ppm = route->loss_ppm,
                                      .window_bytes = (uint64_t)route->cc.window *
                                                      flow->mtu.payload / SL_DP_CC_ONE,
                                      .weight = route->weight,
                                      .is_avoided = route->is_avoided,
                                      .sent_bytes = route->sent_bytes,
                                      .sent_packets = route->sent_packets,
                                      .lost_packets = route->lost_packets,
                                      .marked_packets = route->marked_packets,
                                      .failures = route->failures};
}
