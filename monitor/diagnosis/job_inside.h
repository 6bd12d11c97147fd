/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a job share. */
#ifndef SL_MONITOR_DIAGNOSIS_JOB_INSIDE_H
#define SL_MONITOR_DIAGNOSIS_JOB_INSIDE_H

#include "monitor/diagnosis/job_late.h"
#include "monitor/diagnosis/job_members.h"
#include "monitor/diagnosis/text.h"

/* What waits until all else is there. */
struct sl_job_late {
    sl_job_late_take *take;
    sl_job_late_end *end;
    void *arg;
};

struct sl_job_inside {
    struct sl_texts texts;
    uint32_t *comm_of; /* by text: the communicator of that name */
    size_t comm_of_cap;
    uint32_t *rank_of; /* by text: the rank of the process of that identity */
    size_t rank_of_cap;
    struct sl_job_members members;
    struct sl_job_late *late;
    uint32_t *notes; /* texts */
    size_t late_count, note_count;
    size_t rank_cap, comm_cap, op_cap, count_cap, edge_cap, sample_cap, first_cap, event_cap,
        fault_cap, node_cap;
    size_t port_cap, route_cap, late_cap, note_cap;
};

/* Makes room for one more. list: the address of a pointer to the first. -ENOMEM. */
int sl_job_grow(void *list, size_t *cap, size_t count, size_t size);

/* Takes what waits, in the order in which it came. */
int sl_job_take_late(struct sl_job *job);
void sl_job_free_late(struct sl_job_inside *inside);

#endif
