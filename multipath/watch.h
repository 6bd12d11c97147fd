/* SPDX-License-Identifier: Apache-2.0 */
/* How paths that are up do, looked at now and then: nothing of it costs a message anything. */
#ifndef SL_MULTIPATH_WATCH_H
#define SL_MULTIPATH_WATCH_H

#include "multipath/iface.h"

/* With each run of the timers: looks at some of the connections. */
void sl_mp_watch(struct sl_mp_iface *iface, uint64_t now_ns);

/* Nothing has come back of what went by the only path that is up, for long? */
bool sl_mp_watch_waits(struct sl_mp_path *path, uint64_t now_ns);

#endif
