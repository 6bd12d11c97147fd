/* SPDX-License-Identifier: Apache-2.0 */
/* A dump of PyTorch's Flight Recorder while it is read: flight.c has what is around the entries,
 * flight_ops.c the entries. */
#ifndef SL_MONITOR_READ_FLIGHT_OPS_H
#define SL_MONITOR_READ_FLIGHT_OPS_H

#include "monitor/diagnosis/job.h"
#include "monitor/read/value.h"

#define SL_FLIGHT_NAME 128

struct sl_flight_group {
    char name[SL_FLIGHT_NAME], desc[SL_FLIGHT_NAME];
    uint32_t comm;
    int64_t status_id; /* its number in "pg_status", by the entries; -1: they do not say */
    int64_t order_id;  /* the same by the order of both numbers */
};

struct sl_flight {
    struct sl_job *job;
    const char *file;
    struct sl_values values;
    uint32_t root, rank;
    struct sl_flight_group *groups;
    size_t group_count;
    uint32_t *ranks; /* of the group that is read */
    size_t rank_cap;
    uint32_t *own; /* those that are members of all groups */
    uint32_t own_count;
    bool is_narrowed; /* own was set */
};

/* The group of that name. Where it is not there, it is made, without a communicator: comm is to be
 * set then (SL_JOB_NONE). */
int sl_flight_group(struct sl_flight *flight, const char *name, const char *desc,
                    struct sl_flight_group **out);
/* Makes its communicator of the first `count` of flight->ranks. */
int sl_flight_comm(struct sl_flight *flight, struct sl_flight_group *group, uint32_t count);
/* A text that can be printed, cut to cap; "" where value is none. */
void sl_flight_text(const struct sl_flight *flight, uint32_t value, char *out, size_t cap);
/* All entries into the job. */
int sl_flight_entries(struct sl_flight *flight);

#endif
