/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking this node out of service, and bringing it back: what isolate.h wants is stored
 * (actions.h), told as a line of JSON, performed by a plug in a child process (isolate_plug.h,
 * job.h), and told again with what came of it. In shadow mode all but the performing.
 *
 * One thread, the agent's; no call waits.
 */
#ifndef SL_MONITOR_ISOLATION_H
#define SL_MONITOR_ISOLATION_H

#include "monitor/config.h"
#include "monitor/metrics.h"
#include "monitor/store.h"

struct json_object;

struct sl_isolation;

struct sl_isolation_options {
    const struct sl_mon_config *config; /* borrowed for as long as it is open */
    const char *boot_id;
    FILE *log; /* borrowed: lines of JSON */
};

/* *out is NULL where nobody asks for isolation. -EINVAL, -ENOTSUP: the configuration asks for what
 * is not there; -EACCES, -ENOSPC, -EIO: of the store, which is open. */
int sl_isolation_open(const struct sl_isolation_options *options, struct sl_isolation **out);
/* What is being performed is cut short, and repeated when it is open again. */
void sl_isolation_close(struct sl_isolation *isolation);
/* Once a period. Takes NULL. */
void sl_isolation_tick(struct sl_isolation *isolation, struct sl_mon_store *store,
                       const struct sl_mon_time *now);
/* These take NULL, too: then there is no isolation. */
void sl_isolation_metrics(const struct sl_isolation *isolation, enum sl_mon_format format,
                          FILE *out);
/* Adds "isolation" to out. */
void sl_isolation_json(const struct sl_isolation *isolation, struct json_object *out);

#endif
