/* SPDX-License-Identifier: Apache-2.0 */
/* How paths come, go and return. */
#ifndef SL_MULTIPATH_REPAIR_H
#define SL_MULTIPATH_REPAIR_H

#include "multipath/path.h"

#include <stddef.h>
#include <stdint.h>

struct sl_mp_control;

/* ---- repair.c: up ---- */

/* What the peer says of connections and paths. */
void sl_mp_on_control(struct sl_mp_conn *conn, const struct sl_mp_control *control);
/* A ping has come; proven: the other end has seen enough of them arrive. */
void sl_mp_path_on_ping(struct sl_mp_path *path, bool proven);
/* One of ours is acknowledged. */
void sl_mp_path_pinged(struct sl_mp_path *path);
/* Offers that are due, deadlines. When to call it next, or SL_NEVER. */
uint64_t sl_mp_repair_timers(struct sl_mp_conn *conn, uint64_t now_ns);
/* Tries idle paths now: a rail, or the peer's, has returned. */
void sl_mp_repair_soon(struct sl_mp_conn *conn);
/* To that state; most wait for a time. */
void sl_mp_path_enter(struct sl_mp_path *path, enum sl_mp_path_state state);
/* Idle again; the leading end tries later, ever later while it keeps failing, but at once where
 * nothing was wrong with it. */
void sl_mp_path_rest(struct sl_mp_path *path);
/* "mlx5_0:1: transport retry counter exceeded; mlx5_1:1: port is down". Where there is no room for
 * all that is known: of every rail one reason, or its begin, and "and N more". */
void sl_mp_reasons(const struct sl_mp_conn *conn, char out[SL_MP_REASONS_BYTES]);

/* ---- fence.c: down ---- */

/* Acts on a failure that was noted. Never inside the handling of completions. */
void sl_mp_path_end(struct sl_mp_path *path);
/* Of all that have failed; how many. */
int sl_mp_paths_end(struct sl_mp_conn *conn);
/* The other end has stopped the path. */
void sl_mp_on_down(struct sl_mp_path *path, const struct sl_mp_control *control);
/* A path for the frames, when there is one and none is being fenced. */
void sl_mp_choose_frame_path(struct sl_mp_conn *conn);
/* The paths that could be had are up. Before the first frame one is chosen of those that are as
 * good, by the turn of this rank among its host's: not all of them use one port for frames. */
void sl_mp_frames_begin(struct sl_mp_conn *conn);
void sl_mp_refuse_send(struct sl_mp_conn *conn, const struct sl_mp_path *path, const char *why);

#endif
