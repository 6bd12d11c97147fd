/* SPDX-License-Identifier: Apache-2.0 */
/* Records: sent twice, handled once. */
#ifndef SL_VERBS_TALK_H
#define SL_VERBS_TALK_H

#include "verbs/record.h"

struct sl_verbs_ep;
struct sl_verbs_path;
struct sl_verbs_tx_frame;

#define SL_VERBS_RECORDS 64 /* that the peer has not handled */

/* Sends it by the sideband and by a path. */
void sl_verbs_record_send(struct sl_verbs_ep *ep, struct sl_verbs_record *record);
void sl_verbs_record_flush(struct sl_verbs_ep *ep);
/* The frame of a record has arrived; or has not, and its path is gone. */
void sl_verbs_record_arrived(struct sl_verbs_ep *ep, const struct sl_verbs_tx_frame *frame);
void sl_verbs_record_lost(struct sl_verbs_ep *ep, struct sl_verbs_tx_frame *frame);
/* The path has stopped: whether its records arrived is not known until its fence, for which they
 * may be needed. Without a sideband others carry them too. */
void sl_verbs_records_stranded(struct sl_verbs_path *path);
/* The sideband is gone, and what it had taken with it: paths carry all that the peer has not told
 * of. */
void sl_verbs_records_requeue(struct sl_verbs_ep *ep);
/* Keeps a record that came, by whichever way; the next progress handles it. */
void sl_verbs_record_take(struct sl_verbs_ep *ep, const void *bytes, size_t len);
/* Handles those that are due; how many. */
int sl_verbs_inbox_run(struct sl_verbs_ep *ep);
/* A control message of the caller. */
int sl_verbs_ctrl(struct sl_ep *ep, const void *msg, size_t len);

#endif
