/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a network that stand out for so long that two windows of time say so which share no
 * message.
 *
 * A window alone accuses where health would show as much once in the budget's time, with every
 * window judged anew (comm.h). Of noise that passes, two of them have the product of two such
 * chances. What a healthy part differs by for ever is in both; that is drawn once a job and not
 * with each window, and taken here as drawn once an hour. So each of the two is asked for the
 * evidence that an hour's window is, where noise that passes counts by the product of both looks'
 * messages (comm.h); what they have is not added up (docs/design/0050-diagnosis.md).
 *
 * In between a part may stand out less, as one look has more noise than the next: by what a window
 * of a hundred days is asked for (e^7.5 where an hour's is asked for e^15.3). A look in which it
 * does not, or in which another part stands out, begins anew.
 */
#ifndef SL_MONITOR_DIAGNOSIS_COMM_LASTING_H
#define SL_MONITOR_DIAGNOSIS_COMM_LASTING_H

#include "monitor/diagnosis/comm.h"

struct sl_comm_lasting {
    char *names;      /* of the parts that are followed, with their classes: a line for each */
    int64_t since_ns; /* they stood out in that look, and in all since, if less */
};

/* A look at a sealed job, by any steady clock. apart_ns: how old the messages of a job are at most.
 * Where the same parts have stood out for as long, and do in this look, options become those that
 * accuse them; for a caller that judges by them next. 0 or -ENOMEM. */
int sl_comm_lasting_look(struct sl_comm_lasting *lasting, const struct sl_job *job, int64_t now_ns,
                         int64_t apart_ns, struct sl_comm_options *options);
void sl_comm_lasting_free(struct sl_comm_lasting *lasting);

#endif
