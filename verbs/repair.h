/* SPDX-License-Identifier: Apache-2.0 */
/* How paths come, go and return. */
#ifndef SL_VERBS_REPAIR_H
#define SL_VERBS_REPAIR_H

#include "core/err.h"

#include <stdint.h>

struct sl_verbs_ep;
struct sl_verbs_path;
struct sl_verbs_record;

void sl_verbs_on_record(struct sl_verbs_ep *ep, const struct sl_verbs_record *record);
void sl_verbs_hello_send(struct sl_verbs_ep *ep);
/* Notes that the path has failed at this end; the next progress acts on it. */
void sl_verbs_path_fail(struct sl_verbs_path *path, const char *fmt, ...) SL_PRINTF(2, 3);
/* Acts on it. Never inside the handling of completions. */
void sl_verbs_path_end(struct sl_verbs_path *path);
/* A path for the frames, when there is one and none is being fenced. */
void sl_verbs_choose_frame_path(struct sl_verbs_ep *ep);
/* A ping has come, or one of ours is acknowledged. */
void sl_verbs_path_pinged(struct sl_verbs_path *path);
/* Offers that are due, deadlines. When to call it next, or SL_NEVER. */
uint64_t sl_verbs_repair_timers(struct sl_verbs_ep *ep, uint64_t now_ns);
/* Tries paths of this rail now: it, or the peer's, has returned. */
void sl_verbs_repair_soon(struct sl_verbs_ep *ep);

#endif
