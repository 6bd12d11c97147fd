/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: sent twice, handled once. */
#ifndef SL_MULTIPATH_CONTROL_QUEUE_H
#define SL_MULTIPATH_CONTROL_QUEUE_H

#include "multipath/control.h"

#include <stdbool.h>

struct sl_mp_conn;
struct sl_mp_path;
struct sl_mp_tx_frame;

/* That the peer has not handled: a DOWN for each path may come at once, beside what waits for room
 * (sl_mp_control_room). */
#define SL_MP_CONTROLS 128

/* A place in the queue for the sideband. */
struct sl_mp_queued {
    uint32_t seq; /* of one in conn->unhandled, unless it has been handled since */
    bool is_ack;  /* no number, and nothing but what `handled` says */
    bool by_path; /* on one now */
    bool arrived; /* by one */
};

/* All that is kept goes back. */
void sl_mp_controls_forget(struct sl_mp_conn *conn);
/* Sends it by the sideband and by a path. */
void sl_mp_control_send(struct sl_mp_conn *conn, struct sl_mp_control *control);
void sl_mp_control_flush(struct sl_mp_conn *conn);
/* The frame of a control message has arrived; or has not, and its path is gone. */
void sl_mp_control_arrived(struct sl_mp_conn *conn, const struct sl_mp_tx_frame *frame);
void sl_mp_control_lost(struct sl_mp_conn *conn, struct sl_mp_tx_frame *frame);
/* The path has stopped: whether its control messages arrived is not known until its fence, for
 * which they may be needed. Without a sideband others carry them too. */
void sl_mp_controls_stranded(struct sl_mp_path *path);
/* The sideband is gone, and what it had taken with it: paths, or the next sideband, carry all that
 * the peer has not told of. */
void sl_mp_controls_requeue(struct sl_mp_conn *conn);
/* Keeps a control message that came, by whichever way; the next progress handles it. */
void sl_mp_control_take(struct sl_mp_conn *conn, const void *bytes, size_t len);
/* Handles those that are due; how many. */
int sl_mp_inbox_run(struct sl_mp_conn *conn);
/* Is there room for one that can wait, beside those that paths need? */
bool sl_mp_control_room(const struct sl_mp_conn *conn);
/* A control message of the caller. */
int sl_mp_ctrl(struct sl_ep *ep, const void *msg, size_t len);

#endif
