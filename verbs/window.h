/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows: keys of one CTS (SLUICE_VERBS_KEYS=window). */
#ifndef SL_VERBS_WINDOW_H
#define SL_VERBS_WINDOW_H

#include "multipath/grant.h"

#include <stdbool.h>

#define SL_VERBS_WINDOWS 128 /* of an interface, on each rail: CTS with keys of their own */

struct sl_verbs_iface;
struct sl_verbs_rail;
struct sl_verbs_windows;

/* Before the rails are opened; They go to sl_verbs_windows_free(). -ENOMEM. */
int sl_verbs_windows_new(struct sl_verbs_iface *iface);
void sl_verbs_windows_free(struct sl_verbs_iface *iface);
/* The windows of an open rail, and the queue pair that binds them. -ENOTSUP: its device has none.
 * Does nothing, as the next three, where the interface has no windows. */
int sl_verbs_windows_join(struct sl_verbs_rail *rail);
/* The port can be used, maybe for the first time: its queue pair can be connected now. True: it
 * was not before. */
bool sl_verbs_windows_ready(struct sl_verbs_rail *rail);
/* Nothing more comes of the device: what is pending there never ends. */
void sl_verbs_windows_lose(struct sl_verbs_rail *rail);
/* Gives up what join() took. */
void sl_verbs_windows_leave(struct sl_verbs_rail *rail);

#endif
