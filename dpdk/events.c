/* SPDX-License-Identifier: Apache-2.0 */
/* The words of what happens to ports and routes. */
#include "dpdk/events.h"

#include "core/err.h"
#include "multipath/events.h"

static const struct sl_event_kind kinds[] = {
    {SL_EVENT_DPDK_PORT_DOWN, "dpdk_port_down", "rail", "", SL_EVENT_SHOW},
    {SL_EVENT_DPDK_PORT_UP, "dpdk_port_up", "rail", "", SL_EVENT_SHOW_FIRST},
    {SL_EVENT_DPDK_ROUTE_DOWN, "route_down", "path", "udp_port", SL_EVENT_SHOW},
    {SL_EVENT_DPDK_ROUTE_UP, "route_up", "path", "udp_port", SL_EVENT_SHOW},
};

const struct sl_event_set sl_dpdk_events = {
    .area = "dpdk", .kinds = kinds, .count = SL_ARRAY_LEN(kinds), .also = &sl_mp_events};
