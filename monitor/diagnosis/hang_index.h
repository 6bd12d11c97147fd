/* SPDX-License-Identifier: Apache-2.0 */
/* A job as the hang rules need it: of each member of each communicator how far it has come, and of
 * each pair of ranks how far their messages have. */
#ifndef SL_MONITOR_DIAGNOSIS_HANG_INDEX_H
#define SL_MONITOR_DIAGNOSIS_HANG_INDEX_H

#include "monitor/diagnosis/job.h"

#define SL_HANG_NO_OP SIZE_MAX

/* A member of a communicator. */
struct sl_hang_slot {
    uint32_t rank, comm;
    bool is_known;         /* some source tells how far it has come */
    bool is_end_untold;    /* of its last ones it is not known whether they have ended */
    bool has_first;        /* something is pending */
    uint64_t first;        /* the oldest that is pending */
    uint64_t last;         /* the newest that was issued; 0: none */
    uint64_t done;         /* it has ended this one, and all before */
    size_t op;             /* first's; SL_HANG_NO_OP where it was counted */
    uint64_t counted, was; /* by counts of kinds: at the last look and at the first */
    uint64_t mix;          /* tells counts of other kinds with the same sum apart */
};

/* Messages from src to dst in a communicator. */
struct sl_hang_pair {
    uint32_t comm, src, dst;
    bool is_own;               /* numbers of both ends cannot be compared */
    size_t send, recv;         /* the oldest pending ones; SL_HANG_NO_OP */
    uint64_t sends, recvs;     /* how many are pending */
    uint64_t sent, received;   /* the newest that were issued */
    uint64_t ended_s, ended_r; /* the newest that ended */
};

struct sl_hang_index {
    const struct sl_job *job;
    size_t *first_slot; /* of communicator c: slots first_slot[c] to first_slot[c + 1] */
    struct sl_hang_slot *slots;
    size_t slot_count;
    size_t *first_of, *slots_of; /* of rank r: slots slots_of[first_of[r]] ..., by communicator */
    struct sl_hang_pair *pairs;  /* by communicator, src, dst */
    size_t pair_count;
    size_t *head;       /* by rank: the oldest op that is pending; SL_HANG_NO_OP */
    bool *has_messages; /* by communicator */
    bool *is_counted;   /* by communicator: all that is known are counts of kinds */
    bool *is_moving;    /* by communicator: the counts grew from the first look to the last */
    bool has_two_looks;
};

/* -ENOMEM. */
int sl_hang_index_make(const struct sl_job *job, struct sl_hang_index *out);
void sl_hang_index_free(struct sl_hang_index *index);
struct sl_hang_slot *sl_hang_slot_of(const struct sl_hang_index *index, uint32_t rank,
                                     uint32_t comm);
struct sl_hang_pair *sl_hang_pair_of(const struct sl_hang_index *index, uint32_t comm, uint32_t src,
                                     uint32_t dst);

/* What failed is over for its rank, and never will be for the others. */
static inline bool sl_hang_is_pending(const struct sl_job_op *op)
{
    return op->state != SL_JOB_DONE;
}

static inline bool sl_hang_is_message(const struct sl_job_op *op)
{
    return op->kind == SL_JOB_SEND || op->kind == SL_JOB_RECV;
}

#endif
