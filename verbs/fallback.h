/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and writes over the sideband while no path is up. */
#ifndef SL_VERBS_FALLBACK_H
#define SL_VERBS_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>

struct sl_verbs_ep;
struct sl_verbs_path;

#define SL_VERBS_TCP_DEPTH 15 /* units over the sideband; one place is for the last */

/* After the first HELLO: when both ends may, listens for what the other sends over the
 * sideband. */
int sl_verbs_tcp_open(struct sl_verbs_ep *ep);
/* After the sideband is gone. */
void sl_verbs_tcp_close(struct sl_verbs_ep *ep);
/* No path has been up for a while; one is up again; the other end has handled all. */
void sl_verbs_tcp_begin(struct sl_verbs_ep *ep);
void sl_verbs_tcp_end(struct sl_verbs_ep *ep);
void sl_verbs_tcp_ended(struct sl_verbs_ep *ep);
/* The sideband as a path, while it is one; or NULL. */
struct sl_verbs_path *sl_verbs_tcp_path(const struct sl_verbs_ep *ep);
/* Sends what wr says, which is posted on path already. */
void sl_verbs_tcp_post(struct sl_verbs_path *path);
/* What the sideband had no room for. How many things moved. */
int sl_verbs_tcp_push(struct sl_verbs_ep *ep);
bool sl_verbs_tcp_has_work(const struct sl_verbs_ep *ep);
/* It, once it has been one; or NULL. */
const struct sl_verbs_path *sl_verbs_tcp_past(const struct sl_verbs_ep *ep);
const uint8_t *sl_verbs_tcp_frame(const struct sl_verbs_ep *ep);

#endif
