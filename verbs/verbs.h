/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs transport; docs/design/0007-rdma.md says how it works.
 *
 * Messages, control messages, the life of paths and the fallback are multipath/'s. Here is the
 * rest:
 *
 *   verbs.c    the operations of the contract; progress; sleep
 *   iface.c    interfaces
 *   device.c   ports: what there is · gid.c their GIDs · pkey.c their partitions · probe.c lists
 *   lid.c      LIDs of InfiniBand's paths
 *   queue_pair.c  the lanes: made, connected, posted to, stopped · offer.c how the peer sees them
 *   rail.c     an open port: its completions, asynchronous events · slots.c receive buffers
 *   cq.c       its completion queue: length, owner, interrupt
 *   leave.c    queue pairs that are stopped, until they can be destroyed
 *   rail_open.c  opens and closes one · rejoin.c  has a lost one back, and wakes one in reserve
 *   mr.c       registered memory, on every rail · gpu.c GPU memory
 *   mlx5.c     routes that only NVIDIA's devices let us choose · ece.c what two of one vendor can
 *   rate.c     speeds, and their codes
 */
#ifndef SL_VERBS_VERBS_H
#define SL_VERBS_VERBS_H

#include "core/transport.h"

extern const struct sl_transport_ops sl_verbs_ops;

#endif
