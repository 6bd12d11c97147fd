/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and writes over the sideband while no path is up. */
#ifndef SL_MULTIPATH_FALLBACK_H
#define SL_MULTIPATH_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>

struct sl_mp_conn;
struct sl_mp_path;

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
bool sl_mp_fallback_has_work(const struct sl_mp_conn *conn);
/* It has units that must arrive before a frame goes by another path. */
bool sl_mp_fallback_holds(const struct sl_mp_conn *conn);
/* The sideband has not taken all of them. */
bool sl_mp_fallback_sends(const struct sl_mp_conn *conn);

/* ---- the sideband is lost, and dialled again ---- */

/* What the peer has not said it had waits for the peer's word of it, as on a path that failed. */
void sl_mp_fallback_lost(struct sl_mp_conn *conn);
/* Nothing is lent to the sideband any more. */
void sl_mp_fallback_renew(struct sl_mp_conn *conn);
/* It is up again: listens. */
void sl_mp_fallback_resume(struct sl_mp_conn *conn);
/* The peer's word: it had so many units by connections of the sideband before that one. */
void sl_mp_fallback_over(struct sl_mp_conn *conn, uint32_t before, uint64_t arrived);
/* Units that arrived here. */
uint32_t sl_mp_fallback_arrived(const struct sl_mp_conn *conn);
/* The path, in whatever state; NULL: there is none. */
struct sl_mp_path *sl_mp_fallback_any(const struct sl_mp_conn *conn);
/* It, once it has been one; or NULL. */
const struct sl_mp_path *sl_mp_fallback_past(const struct sl_mp_conn *conn);

#endif
