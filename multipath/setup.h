/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a connection is made: its address, the sideband to the peer, HELLO, the paths that it is to
 * have. From there on repair.c makes each path, now and whenever it returns. Nothing of the message
 * protocol is in here.
 */
#ifndef SL_MULTIPATH_SETUP_H
#define SL_MULTIPATH_SETUP_H

#include "core/log.h"
#include "core/transport.h"
#include "multipath/control.h"
#include "multipath/plan.h"

struct sl_mp_conn;

/* Operations of core/transport.h, for an interface that is a struct sl_mp_iface. */
int sl_mp_ep_create(struct sl_iface *iface, struct sl_ep **out);
int sl_mp_ep_addr(struct sl_ep *ep, struct sl_addr *out);
int sl_mp_ep_connect(struct sl_ep *ep, const struct sl_addr *peer, struct sl_req *req);
void sl_mp_ep_destroy(struct sl_ep *ep);

/* The sideband is up at this end, or could not be had. */
void sl_mp_on_sideband_up(struct sl_req *req);
/* Our rails, at first and when one has changed. */
void sl_mp_hello_send(struct sl_mp_conn *conn);
void sl_mp_on_hello(struct sl_mp_conn *conn, const struct sl_mp_hello *hello);
/* The end that does not lead asks for paths: those that are not there yet are added. */
void sl_mp_on_paths(struct sl_mp_conn *conn, const struct sl_mp_paths *theirs);
/* For a lane's owner: sl_mp_plan() between this end's rails and the peer's. Rails of this end that
 * no path goes by are logged at that level, with the owner's reason, a sentence part. */
int sl_mp_paths_plan(struct sl_mp_conn *conn, const struct sl_mp_path_wishes *wishes,
                     const struct sl_mp_plan_ends *ends, enum sl_log_level level, const char *why,
                     struct sl_mp_paths *out);
/* Is the connection up by now, or in vain? */
void sl_mp_setup_timers(struct sl_mp_conn *conn, uint64_t now_ns);

#endif
