/* SPDX-License-Identifier: Apache-2.0 */
/* A file of the profiler, copied and printed; for sluice-nccl-events and its tests. */
#ifndef SL_NCCL_EVENTS_VIEW_H
#define SL_NCCL_EVENTS_VIEW_H

#include "core/state_read.h"
#include "tools/nccl/events.h"

#include <stdio.h>

/* Two readings, one after the other: records count that have the same turn in both. */
struct sl_nccl_events_copy {
    struct sl_state_process process;
    struct sl_nccl_event_head head;
    uint32_t slot_count, ring_count, comm_count;
    struct sl_nccl_event_comm comm[SL_NCCL_EVENTS_COMMS];
    bool comm_is[SL_NCCL_EVENTS_COMMS]; /* there is one, whole */
    struct sl_nccl_event_record *slots, *slots_again, *ring, *ring_again;
};

/* Copies the file, also of a hostile or active writer. -EPROTO: it holds no events. */
int sl_nccl_events_read(int fd, struct sl_nccl_events_copy *out);
void sl_nccl_events_free(struct sl_nccl_events_copy *copy);

/* A JSON object per line: process and communicators, past events, open events. */
void sl_nccl_events_print_head(const struct sl_nccl_events_copy *copy, FILE *out);
void sl_nccl_events_print_ring(const struct sl_nccl_events_copy *copy, FILE *out);
void sl_nccl_events_print_open(const struct sl_nccl_events_copy *copy, uint64_t now_ns, FILE *out);

#endif
