/* SPDX-License-Identifier: Apache-2.0 */
/* A timeline while it is read: of trace_timeline.c (events) and trace_lanes.c (threads) alone. */
#ifndef SL_MONITOR_READ_TRACE_TIMELINE_H
#define SL_MONITOR_READ_TRACE_TIMELINE_H

#include "monitor/read/trace.h"

struct sl_timeline_lane {
    int64_t process, thread;
    uint32_t name;                   /* text, 0: not told */
    uint32_t replica, stage, tensor; /* where the names tell them, else NONE */
    uint32_t rank;                   /* NONE: its events are left out */
    bool is_used, is_comm;           /* is_used: it has events */
};

struct sl_timeline_event {
    uint32_t lane, name, step;
    uint32_t rank;
    int64_t start_ns, end_ns;
};

/* Of a communicator: whose collectives were counted last. */
struct sl_timeline_turn {
    uint32_t rank;
    uint64_t next;
};

struct sl_timeline {
    struct sl_job *job;
    struct sl_timeline_lane *lanes;
    uint32_t *table; /* lanes by process and thread: index + 1, 0: free */
    struct sl_timeline_event *events;
    size_t lane_count, lane_cap, table_len, event_count, event_cap;
    struct sl_timeline_turn *turns; /* by communicator */
    uint32_t turn_count;
    uint32_t last; /* the lane of the event before */
    uint32_t replicas, stages, tensors;
};

/* Makes the thread be there, and the last one. */
int sl_timeline_find_lane(struct sl_timeline *timeline, int64_t process, int64_t thread);
/* An event that names a process or a thread. */
int sl_timeline_add_name(struct sl_timeline *timeline, const struct sl_trace_event *event);
/* All names are known: which rank each thread is of. name: of the file. */
int sl_timeline_name_ranks(struct sl_timeline *timeline, const char *name);
uint32_t sl_timeline_rank_of(const struct sl_timeline *timeline, uint32_t replica, uint32_t stage,
                             uint32_t tensor);

#endif
