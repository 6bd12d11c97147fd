/* SPDX-License-Identifier: Apache-2.0 */
/* The sideband of a connection: lost, and dialled again. */
#ifndef SL_MULTIPATH_SIDEBAND_H
#define SL_MULTIPATH_SIDEBAND_H

#include "multipath/conn.h"

/* Memory that was lent to it is the user's again; the peer hears that we are gone. */
void sl_mp_sideband_close(struct sl_mp_conn *conn);
/* The connection is down, and a BYE is on its way: closes it once the peer has hung up, or ten
 * seconds later, or with the endpoint. */
void sl_mp_sideband_close_when_heard(struct sl_mp_conn *conn);
/* Has the peer? When to ask again. */
uint64_t sl_mp_sideband_heard(struct sl_mp_conn *conn, uint64_t now_ns);
/* The endpoint is being destroyed while the sideband is lost: a path says so, and gets a little
 * time for it. */
void sl_mp_sideband_farewell(struct sl_mp_conn *conn);
/* It was up, and is not being dialled. */
static inline bool sl_mp_sideband_lost(const struct sl_mp_conn *conn)
{
    return !conn->sideband_up && !conn->dialling &&
           (conn->state == SL_MP_CONN_CONNECTING || conn->state == SL_MP_CONN_UP);
}
/* The peer has closed its endpoint. Nothing is asked of it, and nothing that fails is a fault. */
static inline bool sl_mp_peer_leaves(const struct sl_mp_conn *conn)
{
    return conn->left || (conn->sideband != NULL && conn->sideband->left);
}
/* Dials one that is lost, if the time has come. */
void sl_mp_sideband_try(struct sl_mp_conn *conn);
/* The peer says that it lost the sideband; that it has closed its endpoint. */
void sl_mp_on_sideband_over(struct sl_mp_conn *conn, const struct sl_mp_control *control);
void sl_mp_on_leave(struct sl_mp_conn *conn);

#endif
