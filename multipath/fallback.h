/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and writes over the sideband while no path is up. */
#ifndef SL_MULTIPATH_FALLBACK_H
#define SL_MULTIPATH_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>

struct sl_mp_conn;
struct sl_mp_path;

#define SL_MP_FALLBACK_DEPTH 15 /* units over the sideband; one place is for the last */

/* After the first HELLO: when both ends may, listens for what the other sends over the
 * sideband. */
int sl_mp_fallback_open(struct sl_mp_conn *conn);
/* After the sideband is gone. */
void sl_mp_fallback_close(struct sl_mp_conn *conn);
/* No path has been up for a while; one is up again; the other end has handled all. */
void sl_mp_fallback_begin(struct sl_mp_conn *conn);
void sl_mp_fallback_end(struct sl_mp_conn *conn);
void sl_mp_fallback_ended(struct sl_mp_conn *conn);
/* The sideband as a path, while it is one; or NULL. */
struct sl_mp_path *sl_mp_fallback_path(const struct sl_mp_conn *conn);
/* What the sideband had no room for. How many things moved. */
int sl_mp_fallback_push(struct sl_mp_conn *conn);
/* May data be under way over it? Until the other end has handled all. */
bool sl_mp_fallback_in_use(const struct sl_mp_conn *conn);
bool sl_mp_fallback_has_work(const struct sl_mp_conn *conn);
/* It, once it has been one; or NULL. */
const struct sl_mp_path *sl_mp_fallback_past(const struct sl_mp_conn *conn);

#endif
