/* SPDX-License-Identifier: Apache-2.0 */
/* Asks another agent over RDMA how the way from a port here to one there is; for a process of its
 * own, as it waits, and as a device may hang. */
#ifndef SL_MONITOR_PROBE_RDMA_H
#define SL_MONITOR_PROBE_RDMA_H

#include "monitor/probe_ask.h"
#include "monitor/probe_rail.h"

#define SL_PROBE_RDMA_NS UINT64_C(20000000000) /* besides count times gap, at most */

/*
 * Where to send it asks over UDP, of the agent at order->to; then as sl_probe_udp() does, by
 * datagrams of RDMA (UD). out->why: what is missing at which end.
 */
void sl_probe_rdma(const struct sl_probe_order *order, struct sl_probe_report *out);

/* Which of the peer's ports a port here is to probe: the one that is named (wanted); else the only
 * one in a network with it, or the one of its name among those; else the one of its name. *gid: of
 * this port. NULL, with a sentence. */
const struct sl_probe_port *sl_probe_choose(const struct sl_probe_rail *rail,
                                            const struct sl_probe_port *ports, unsigned count,
                                            const char *wanted,
                                            const struct sl_probe_rail_gid **gid);

#endif
