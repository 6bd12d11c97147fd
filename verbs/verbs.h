/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs transport; docs/design/0007-rdma.md says how it works.
 *
 *   verbs.c    the operations of the contract; progress; sleep
 *   iface.c    interfaces · endpoint.c connections: made, up, lost, ended, and the sideband beside
 *              them
 *   device.c   ports and GIDs: what there is · probe.c lists it · plan.c which paths a connection
 *              has
 *   rail.c     an open port: its queues, completions, asynchronous events · slots.c receive buffers
 *   mr.c       registered memory, on every rail · gpu.c GPU memory
 *   path.c     a queue pair: made, connected, posted to, retired
 *   mlx5.c     routes that only NVIDIA's devices let us choose · stats.c what is told of paths
 *   talk.c     records: sent twice, handled once
 *   repair.c   what the two ends say to each other so that paths come, go and return
 *   fallback.c frames and writes over the sideband while no path is up
 *   message.c  sends, receives, frames in their order · write.c long messages: CTS, pieces,
 *              staging
 *   frame.c record.c   bytes from the peer
 */
#ifndef SL_VERBS_VERBS_H
#define SL_VERBS_VERBS_H

#include "core/transport.h"

extern const struct sl_transport_ops sl_verbs_ops;

/* stats.c */
size_t sl_mp_stats(const struct sl_ep *ep, struct sl_path_stat *out, size_t cap);

#endif
