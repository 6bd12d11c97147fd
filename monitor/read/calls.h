/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are over, from a node agent's /v1/calls: the latest 512 of each process of its host,
 * put together from answer after answer, each of which begins where the one before ended.
 *
 * An answer that is not right in all its parts is refused whole. Memory goes by what an answer has,
 * not by what it says that it has.
 */
#ifndef SL_MONITOR_READ_CALLS_H
#define SL_MONITOR_READ_CALLS_H

#include "monitor/read/page.h"

#define SL_CALLS_EACH 512 /* of a process that are kept: the newest */

struct sl_calls_process {
    struct sl_state_process self; /* pid, start_ticks, rank, size, job, host: the rest is 0 */
    uint32_t page;                /* of those of the process */
    struct sl_page_comm *comms;   /* number, id, rank, size */
    struct sl_state_call
        *calls; /* by number, which is half of turn; times as the process has them */
    uint32_t comm_count, call_count;
    bool is_seen; /* the answer that is being taken has it */
};

struct sl_calls {
    struct sl_calls_process *list;
    uint32_t count;
    int64_t now_ns;  /* of the host's CLOCK_MONOTONIC, at the latest answer */
    int64_t wall_ns; /* of a time of it, to have nanoseconds since 1970 */
    uint64_t next;   /* since when to ask; 0: all */
};

/* Processes that the answer does not have are forgotten. -EBADMSG with a sentence, and all is as it
 * was; -ENOMEM. */
int sl_calls_take(struct sl_calls *calls, struct json_object *answer);
/* To a page of the same process (sl_page_of_agent()), by the identity of its communicators and in
 * its time. -ENOMEM. */
int sl_calls_give(const struct sl_calls *calls, struct sl_page *page);
void sl_calls_free(struct sl_calls *calls);

#endif
