/* SPDX-License-Identifier: Apache-2.0 */
/* How paths come, go and return. */
#ifndef SL_MULTIPATH_REPAIR_H
#define SL_MULTIPATH_REPAIR_H

#include "core/err.h"

#include <stdint.h>

struct sl_mp_conn;
struct sl_mp_path;
struct sl_mp_control;

void sl_mp_on_control(struct sl_mp_conn *conn, const struct sl_mp_control *control);
void sl_mp_hello_send(struct sl_mp_conn *conn);
/* Notes that the path has failed at this end; the next progress acts on it. */
void sl_mp_path_fail(struct sl_mp_path *path, const char *fmt, ...) SL_PRINTF(2, 3);
/* Acts on it. Never inside the handling of completions. */
void sl_mp_path_end(struct sl_mp_path *path);
/* A path for the frames, when there is one and none is being fenced. */
void sl_mp_choose_frame_path(struct sl_mp_conn *conn);
/* A ping has come, or one of ours is acknowledged. */
void sl_mp_path_pinged(struct sl_mp_path *path);
/* Offers that are due, deadlines. When to call it next, or SL_NEVER. */
uint64_t sl_mp_repair_timers(struct sl_mp_conn *conn, uint64_t now_ns);
/* Tries paths of this rail now: it, or the peer's, has returned. */
void sl_mp_repair_soon(struct sl_mp_conn *conn);

#endif
