/* SPDX-License-Identifier: Apache-2.0 */
/* What was read of NCCL's RAS, and how its processes become ranks that other sources tell of. */
#ifndef SL_MONITOR_READ_RAS_H
#define SL_MONITOR_READ_RAS_H

#include "monitor/read/read.h"

struct sl_json;

/* A rank of a communicator. */
struct sl_ras_seen {
    uint32_t comm_rank, process, host; /* texts */
    uint32_t rank;                     /* of the job, once known */
    uint64_t pid;
    uint64_t counts[SL_JOB_KINDS];
    uint8_t has[SL_JOB_KINDS];
    bool is_missing, is_dead;
};

struct sl_ras_comm {
    uint32_t name, label;
    uint64_t hash;
    uint32_t size;
    uint32_t joined;     /* the communicator of the job that it is, or SL_JOB_NONE */
    size_t first, count; /* of seen */
};

struct sl_ras {
    struct sl_job *job;
    struct sl_json *json;
    struct sl_ras_comm *comms;
    struct sl_ras_seen *seen;
    size_t comm_count, comm_cap, seen_count, seen_cap;
    uint32_t *rank_of; /* by text: the process's rank plus 1; 0: none yet */
    size_t rank_of_len;
    int64_t at_ns;
    bool has_others;  /* other sources tell of the job, too */
    uint32_t refused; /* places at which another source has another process */
};

/* Before ranks are given: finds processes that another source tells of, and communicators. -ENOMEM.
 *
 * A process is the same where its place in a communicator (by NCCL's hash and size) and its number
 * are; or where its number and host are, and no other process has both. */
int sl_ras_join(struct sl_ras *ras);
/* Is the rank that was given one of another source? */
bool sl_ras_is_joined(const struct sl_ras *ras, const struct sl_ras_seen *seen);
/* Members of a communicator that files of events tell of. What RAS counts in it is left out: it was
 * counted at another time. */
int sl_ras_join_members(struct sl_ras *ras, const struct sl_ras_comm *comm);
/* What could not be joined, for people. */
int sl_ras_join_note(struct sl_ras *ras);

#endif
