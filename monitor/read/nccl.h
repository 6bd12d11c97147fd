/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL's profiler tells of a process, in one form whether it comes from the file of Sluice's
 * plugin (docs/nccl.md) or from a trace of NCCL's example plugin; and how that becomes a part of a
 * job.
 *
 * A collective's own event ends when it is enqueued. It goes on as long as something that is part
 * of it does: an operation of the proxy, or a kernel on a channel. Of one without such parts it is
 * not told whether it has ended.
 */
#ifndef SL_MONITOR_READ_NCCL_H
#define SL_MONITOR_READ_NCCL_H

#include "core/state.h"
#include "monitor/diagnosis/job.h"

struct sl_read_in;

struct sl_nccl_comm {
    uint64_t id;          /* the same on all ranks */
    uint32_t rank, ranks; /* its own place; ranks 0: there is none */
    uint64_t calls;       /* collectives that have begun; 0: not told */
    int64_t start_ns;
    char name[33];
};

/* A collective, a send or a receive. */
struct sl_nccl_call {
    uint64_t id, seq, count;
    int64_t start_ns, end_ns; /* end: of the last part that is over */
    int64_t kernel_ns;        /* when its GPU came to it; SL_JOB_NEVER: not told */
    uint32_t comm, parts, open;
    uint32_t at_gpu, at_others; /* open steps, by what they wait for */
    uint32_t awaits;            /* plus 1: the member that its oldest waiting step waits for */
    int64_t awaits_since_ns;
    int32_t root; /* of a message the peer; -1: none */
    bool is_message, has_kernel;
    char func[17], datatype[9];
};

/* What the proxy does for a call to or from a peer, or a kernel of it on a channel. */
struct sl_nccl_part {
    uint64_t id, call;
    uint32_t comm, peer; /* SL_JOB_NONE: a kernel */
    bool is_send, is_open;
    uint64_t messages, bytes;     /* steps that are over */
    double wait_s[SL_JOB_WAITS];  /* of them */
    double waits_s[SL_JOB_WAITS]; /* of the one that is going on the longest, so far */
    uint32_t at_gpu, at_others;   /* as of a call, as the next two */
    uint32_t awaits;
    int64_t awaits_since_ns;
    int64_t start_ns, at_ns; /* when it began, and when it began or was over */
};

struct sl_nccl_tale {
    const char *name; /* of the file, for sentences */
    char host[65], process[96];
    struct sl_state_process self; /* as sl_page_identity() needs it; 0: not told */
    int64_t now_ns;               /* of its clock: as it was looked at, or the latest time in it */
    int64_t wall_ns;
    char halt[32];                       /* why the process does not run, or "" */
    bool is_gone, has_kernels, is_lossy; /* lossy: events were dropped */
    struct sl_nccl_comm *comms;
    struct sl_nccl_call *calls;
    struct sl_nccl_part *parts;
    size_t comm_count, comm_cap, call_count, call_cap, part_count, part_cap;
};

/* Zeroed room for one more. NULL: no memory. */
struct sl_nccl_comm *sl_nccl_add_comm(struct sl_nccl_tale *tale);
struct sl_nccl_call *sl_nccl_add_call(struct sl_nccl_tale *tale);
struct sl_nccl_part *sl_nccl_add_part(struct sl_nccl_tale *tale);
void sl_nccl_free(struct sl_nccl_tale *tale);

/* Ends of what a step in that state (NCCL's number) waits for: SL_JOB_WAITS: nothing known. */
enum sl_job_wait sl_nccl_wait_of(unsigned state);

/* Into the job; parts find their calls by id. -EBADMSG with a sentence, -ENOMEM. */
int sl_nccl_take(struct sl_job *job, struct sl_nccl_tale *tale);

#endif
