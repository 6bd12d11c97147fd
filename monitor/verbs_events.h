/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events of RDMA devices (ibv_get_async_event(3)), as records written into a pipe: the
 * life of a process of its own, as to open a device asks its firmware, which may hang. libibverbs
 * is opened when it runs.
 */
#ifndef SL_MONITOR_VERBS_EVENTS_H
#define SL_MONITOR_VERBS_EVENTS_H

#include <stdbool.h>

/* only_hardware: devices in software are let alone, as they cannot be removed while somebody has
 * them open. The process's exit status. */
int sl_mon_verbs_events_run(int fd, bool only_hardware);

#endif
