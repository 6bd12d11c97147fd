/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DPDK transport: messages over raw Ethernet ports, by a reliable protocol of our own.
 *
 * Layers: dpdk/proto (flows over packets) and dpdk/cc (congestion control) know no I/O; dpdk/port
 * drives the ports; multipath/ deals messages over paths. Here they are joined:
 *
 *   dpdk.c    operations, progress          lane.c   flows as lanes of multipath/
 *   iface.c   what a worker has open        told.c   what flows tell, and where bytes go
 *   rail.c    ports as rails, buffers       offer.c  what peers tell each other
 *   sleep.c   waiting without spinning      route.c  UDP source ports
 *   flows.c   from flow numbers to lanes    probe.c  ports for people
 *
 * docs/design/0048-dpdk.md
 */
#ifndef SL_DPDK_DPDK_H
#define SL_DPDK_DPDK_H

#include "core/transport.h"

extern const struct sl_transport_ops sl_dpdk_ops;

int sl_dpdk_probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count);

#endif
