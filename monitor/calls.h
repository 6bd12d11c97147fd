/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of this host's ranks that are over, with their times, as their state pages keep the
 * last 512 of each: the answer to /v1/calls (docs/monitor-api.md).
 *
 * The agent keeps nothing of them: pages are read when somebody asks, in four calls of the kernel
 * for each. Who asks says since when, and gets of each page the oldest calls after that.
 */
#ifndef SL_MONITOR_CALLS_H
#define SL_MONITOR_CALLS_H

#include "monitor/ranks.h"

#include <stdio.h>

#define SL_MON_CALLS_EACH 512 /* of a page; one that says it has more is not believed */
/* A call is in its page some time after it ended: an answer goes that far back again. */
#define SL_MON_CALLS_AGAIN_NS (200 * (SL_MON_S / 1000))

/* now: until when, and how CLOCK_MONOTONIC and the wall clock go together. since_ns: of
 * CLOCK_MONOTONIC. limit: calls, shared by the pages; as many more as ended at the same time. As
 * JSON. -ENOMEM. */
int sl_mon_calls_write(const struct sl_mon_ranks *ranks, const struct sl_mon_time *now,
                       uint64_t since_ns, unsigned limit, FILE *out);

#endif
