/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the hang rules share: hang_wait.c finds who waits for whom, hang_stuck.c who
 * has not ended what others have, hang.c accuses who waits for nobody, hang_comm.c what all have
 * called, hang_say.c words it. */
#ifndef SL_MONITOR_DIAGNOSIS_HANG_INSIDE_H
#define SL_MONITOR_DIAGNOSIS_HANG_INSIDE_H

#include "monitor/diagnosis/graph.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/diagnosis/hang_index.h"

/* The oldest operation of a communicator that some member has not ended, where they differ. */
struct sl_hang_mismatch {
    uint32_t comm;
    size_t op, other; /* of the side with fewer ranks, and of the other one; NO_OP: by counts */
    uint32_t few, many;
    uint32_t rank, other_rank; /* one of each */
    bool is_order;             /* each called what the other calls next */
};

struct sl_hang {
    const struct sl_job *job;
    const struct sl_hang_options *options;
    struct sl_hang_index index;
    struct sl_graph graph; /* nodes: ranks, then slots, three a communicator, the program */
    uint32_t *waiters;     /* by rank: in how many communicators it is waited for by rule 1 */
    bool is_pending,
        is_given_up; /* something is; and failed for a rank, which goes on without it */
    bool is_overdue; /* something has been pending for a stall, or nobody knows for how long */
    bool is_early;   /* all that is pending and has not failed is younger: who does not go on is not
                      * known yet */
    bool is_heads_only; /* waits are those of what each rank is at, as GPUs work in turn */
    bool *is_stuck;     /* by rank: rule 2 */
    bool *is_held;      /* by rank: rule 2, but somebody else may keep it from ending */
    size_t *stuck_slot; /* by rank, of both: where */
    size_t *stuck_by;   /* by rank: the slot that ended it */
    struct sl_hang_mismatch *mismatches;
    uint32_t mismatch_count;
    struct sl_verdicts *verdicts;
};

/* Probabilities of a verdict's set: seen directly; what follows from what is missing; from the
 * order of calls alone; likelier explained elsewhere. Of made-up hangs the first three were right
 * each time (docs/perf/diagnosis.md): what they leave is for what those jobs do not have, several
 * streams (which break the order) and sources that leave things out, and is not measured. Nor is
 * the last, which those jobs do not give. */
#define SL_HANG_SURE 0.99
#define SL_HANG_LIKELY 0.98
#define SL_HANG_ORDER 0.9
#define SL_HANG_PLAUSIBLE 0.6

#define SL_HANG_MOVED_NS (5 * (int64_t)1000000000) /* who waits looks fifty times a second */

/* Of the component: how many ranks, and the first of them. */
struct sl_hang_part {
    uint32_t ranks, first;
    bool has_end; /* some rank in it is held by one that is not held itself */
};

static inline struct sl_object sl_hang_rank_object(uint32_t rank)
{
    return (struct sl_object){.kind = SL_OBJECT_RANK, .a = rank, .b = SL_JOB_NONE};
}

/* The nodes. */
static inline uint32_t sl_hang_slot_node(const struct sl_hang *hang, size_t slot)
{
    return hang->job->rank_count + (uint32_t)slot;
}

static inline uint32_t sl_hang_comm_node(const struct sl_hang *hang, uint32_t comm, unsigned which)
{
    return hang->job->rank_count + (uint32_t)hang->index.slot_count + 3 * comm + which;
}

static inline uint32_t sl_hang_program_node(const struct sl_hang *hang)
{
    return sl_hang_comm_node(hang, hang->job->comm_count, 0);
}

/* Can somebody say, or is it certain, that the rank has not come further? */
static inline bool sl_hang_is_told(const struct sl_hang *hang, uint32_t rank)
{
    return hang->job->ranks[rank].is_told || hang->job->ranks[rank].is_gone;
}

/* Its process does not run, or does not look after what it has begun. */
static inline bool sl_hang_is_halted(const struct sl_hang *hang, uint32_t rank)
{
    const struct sl_job_rank *it = &hang->job->ranks[rank];
    int64_t now = hang->options->now_ns, stall = hang->options->stall_ns;

    if (it->halt != 0)
        return true;
    return it->moved_ns != SL_JOB_NEVER && now != SL_JOB_NEVER &&
           hang->index.head[rank] != SL_HANG_NO_OP &&
           now - it->moved_ns >= (stall < SL_HANG_MOVED_NS ? stall : SL_HANG_MOVED_NS);
}

/* It does not go on because of itself: what it waits for is no matter. */
static inline bool sl_hang_is_cause(const struct sl_hang *hang, uint32_t rank)
{
    return hang->is_stuck[rank] || hang->job->ranks[rank].is_gone || sl_hang_is_halted(hang, rank);
}

static inline struct sl_hang_slot *sl_hang_slots_of(const struct sl_hang *hang, uint32_t comm,
                                                    size_t *count)
{
    *count = hang->index.first_slot[comm + 1] - hang->index.first_slot[comm];
    return &hang->index.slots[hang->index.first_slot[comm]];
}

/* The rank's oldest pending operation is at this slot's first. */
bool sl_hang_is_at_head(const struct sl_hang *hang, const struct sl_hang_slot *slot);

/* job, options and verdicts are set, the rest is 0. sl_hang_close() even if it fails. -ENOMEM. */
int sl_hang_open(struct sl_hang *hang);
void sl_hang_close(struct sl_hang *hang);
/* Fills is_stuck, is_held and mismatches. -ENOMEM. */
int sl_hang_see(struct sl_hang *hang);
/* Fills the graph, which has no edges, and waiters, after sl_hang_see(). -ENOMEM. */
int sl_hang_wait(struct sl_hang *hang);
/* The same, and finds where chains end; who is held by nobody but himself becomes stuck. parts: by
 * component, room for as many as there are nodes. -ENOMEM. */
int sl_hang_draw(struct sl_hang *hang, struct sl_hang_part *parts);

/* hang_stuck.c. The members of the communicator that rule 2 is about. */
void sl_hang_see_stuck(struct sl_hang *hang, uint32_t comm);
/* Edges of those that are held. -ENOMEM. */
int sl_hang_wait_held(struct sl_hang *hang);
/* Of a rank that is stuck or held: whose data it says it waits for; SL_JOB_NONE: not told. */
uint32_t sl_hang_awaited_by(const struct sl_hang *hang, uint32_t rank);
/* Does this rank, as far as is told, keep the other one from ending? */
bool sl_hang_holds(const struct sl_hang *hang, uint32_t rank, uint32_t held);

/* hang_ahead.c. late: by rank, who has not called what others wait in; cleared for those whom it
 * explains otherwise. -ENOMEM. */
int sl_hang_accuse_ahead(struct sl_hang *hang, bool *late);

/* parts: by component. Members of which nothing is known, at the ends of chains. -ENOMEM. */
int sl_hang_accuse_all_silent(struct sl_hang *hang, const struct sl_hang_part *parts);
/* What all have called and nobody has ended, at the ends of chains. -ENOMEM. */
int sl_hang_accuse_comms(struct sl_hang *hang, const struct sl_hang_part *parts);

/* Why a rank waits for another one; SL_HANG_NOT: it does not, as far as is seen directly. */
enum sl_hang_reason {
    SL_HANG_NOT,
    SL_HANG_NOT_ISSUED, /* a collective */
    SL_HANG_NO_MESSAGE, /* the other half of a message was not issued */
    SL_HANG_EARLIER     /* it is at something earlier */
};

struct sl_hang_step {
    enum sl_hang_reason reason;
    size_t op; /* of the one that waits; SL_HANG_NO_OP where it was counted */
    uint32_t comm;
};

struct sl_hang_step sl_hang_step_of(const struct sl_hang *hang, uint32_t rank, uint32_t next);

/* Sentences, on a verdict; since_ns is set. -ENOMEM. */
int sl_hang_say_waited(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank);
/* Its process does not run; who waits for it where it is. */
int sl_hang_say_halted(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank);
int sl_hang_say_stuck(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank);
/* Whom the rank keeps from ending what it has ended itself; nothing where there is nobody. */
int sl_hang_say_holds(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank);
int sl_hang_say_mismatch(const struct sl_hang *hang, struct sl_verdict *verdict,
                         const struct sl_hang_mismatch *mismatch);
int sl_hang_say_step(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank,
                     uint32_t next);
/* All members have called this operation, and nobody has ended it. */
int sl_hang_say_comm(const struct sl_hang *hang, struct sl_verdict *verdict, size_t op);

/* "rank 3 (host h0)". */
#define SL_HANG_NAME 320
const char *sl_hang_comm_name(const struct sl_hang *hang, uint32_t comm);
const char *sl_hang_rank_name(const struct sl_hang *hang, uint32_t rank, char out[SL_HANG_NAME]);

#endif
