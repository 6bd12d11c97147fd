/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to ports and routes: kinds for the event ring. */
#ifndef SL_DPDK_EVENTS_H
#define SL_DPDK_EVENTS_H

#include "core/event.h"

enum {
    SL_EVENT_DPDK_PORT_DOWN = 17,
    SL_EVENT_DPDK_PORT_UP = 18,
    SL_EVENT_DPDK_ROUTE_DOWN = 19,
    SL_EVENT_DPDK_ROUTE_UP = 20,
};

extern const struct sl_event_set sl_dpdk_events;

#endif
