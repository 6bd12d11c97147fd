/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule 2: who has not ended what another member has ended.
 *
 * That a member has ended a collective proves that all have done their own part, and not that all
 * have passed on what they had to: in a ring a rank's data reaches the last of the others through
 * all between them. A rank that is stopped after its own part keeps those behind it from ending. So
 * who has not ended is held by members that do not go on, and by the one whose data it says it
 * waits for. Only who waits for nobody else, or for one that goes on, is stuck itself.
 */
#include "core/err.h"
#include "monitor/diagnosis/hang_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HOLDERS 2 /* the node of a communicator that leads to all members that do not go on */

/* Nobody can end such an operation before all members have done their part. */
static bool needs_all(uint8_t kind)
{
    return kind == SL_JOB_ALLREDUCE || kind == SL_JOB_ALLGATHER || kind == SL_JOB_REDUCE_SCATTER ||
           kind == SL_JOB_ALLTOALL || kind == SL_JOB_BARRIER;
}

/* The newest that the member is known to have ended. */
static uint64_t done_of(const struct sl_hang_slot *slot)
{
    uint64_t all = slot->has_first       ? slot->first - (slot->first > 0)
                   : slot->is_end_untold ? 0
                                         : slot->last;

    return slot->done > all ? slot->done : all;
}

/* It does not go on, whatever it waits for. */
static bool is_at_rest(const struct sl_hang *hang, uint32_t rank)
{
    return hang->job->ranks[rank].is_gone || sl_hang_is_halted(hang, rank);
}

static bool has_one_at_rest(const struct sl_hang *hang, uint32_t comm)
{
    size_t count;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);

    for (size_t i = 0; i < count; i++)
        if (is_at_rest(hang, slots[i].rank))
            return true;
    return false;
}

static uint32_t awaited_in(const struct sl_hang *hang, size_t op)
{
    const struct sl_job_op *it = &hang->job->ops[op];
    const struct sl_job_comm *comm = &hang->job->comms[it->comm];
    uint32_t place = it->awaits_place, rank;

    if (place == 0 || place > comm->member_count)
        return SL_JOB_NONE;
    rank = comm->members[place - 1];
    return rank == it->rank ? SL_JOB_NONE : rank;
}

uint32_t sl_hang_awaited_by(const struct sl_hang *hang, uint32_t rank)
{
    return awaited_in(hang, hang->index.slots[hang->stuck_slot[rank]].op);
}

static uint32_t comm_of_held(const struct sl_hang *hang, uint32_t rank)
{
    return hang->index.slots[hang->stuck_slot[rank]].comm;
}

bool sl_hang_holds(const struct sl_hang *hang, uint32_t rank, uint32_t held)
{
    uint32_t awaited = sl_hang_awaited_by(hang, held);

    return awaited == rank ||
           (awaited == SL_JOB_NONE && is_at_rest(hang, rank) &&
            sl_hang_slot_of(&hang->index, rank, comm_of_held(hang, held)) != NULL);
}

/* ---- who it is about ---- */

/* Is this member further back than `done`, in what needs all? */
static bool is_behind(const struct sl_hang *hang, const struct sl_hang_slot *slot, uint64_t done)
{
    const struct sl_job_op *op = slot->has_first ? &hang->job->ops[slot->op] : NULL;

    return op != NULL && slot->first <= done && needs_all(op->kind) && op->state != SL_JOB_FAILED &&
           !is_at_rest(hang, slot->rank);
}

void sl_hang_see_stuck(struct sl_hang *hang, uint32_t comm)
{
    size_t count, best = 0, begin = hang->index.first_slot[comm];
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);
    int is_rest = -1; /* not looked yet */

    if (hang->index.is_counted[comm] ||
        (hang->mismatch_count > 0 && hang->mismatches[hang->mismatch_count - 1].comm == comm))
        return;
    for (size_t i = 1; i < count; i++)
        if (done_of(&slots[i]) > done_of(&slots[best]))
            best = i;
    for (size_t i = 0; i < count; i++) {
        uint32_t rank = slots[i].rank;
        bool is_held;

        if (i == best || hang->is_held[rank] || !is_behind(hang, &slots[i], done_of(&slots[best])))
            continue;
        if (is_rest < 0)
            is_rest = has_one_at_rest(hang, comm);
        is_held = is_rest == 1 || awaited_in(hang, slots[i].op) != SL_JOB_NONE;
        if (hang->is_stuck[rank] && !is_held)
            continue;
        hang->is_held[rank] = is_held;
        hang->is_stuck[rank] = !is_held;
        hang->stuck_slot[rank] = begin + i;
        hang->stuck_by[rank] = begin + best;
    }
}

/* ---- edges ---- */

/* Members that do not go on, as they were drawn. */
static bool has_holders(const struct sl_hang *hang, uint32_t comm)
{
    return hang->graph.first[sl_hang_comm_node(hang, comm, HOLDERS)] != 0;
}

int sl_hang_wait_held(struct sl_hang *hang)
{
    bool *is_drawn = calloc(hang->job->comm_count + 1, sizeof(*is_drawn));
    int err = is_drawn == NULL ? -ENOMEM : 0;

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        uint32_t comm, node, awaited;
        size_t count;
        const struct sl_hang_slot *slots;

        if (!hang->is_held[r])
            continue;
        comm = comm_of_held(hang, r);
        node = sl_hang_comm_node(hang, comm, HOLDERS);
        awaited = sl_hang_awaited_by(hang, r);
        slots = sl_hang_slots_of(hang, comm, &count);
        for (size_t i = 0; i < count && !is_drawn[comm] && err == 0; i++) {
            if (!is_at_rest(hang, slots[i].rank))
                continue;
            hang->waiters[slots[i].rank]++;
            err = sl_graph_add(&hang->graph, node, slots[i].rank);
        }
        is_drawn[comm] = true;
        if (err == 0 && has_holders(hang, comm))
            err = sl_graph_add(&hang->graph, r, node);
        if (err == 0 && awaited != SL_JOB_NONE && sl_hang_is_told(hang, awaited)) {
            hang->waiters[awaited]++;
            err = sl_graph_add(&hang->graph, r, awaited);
        }
    }
    free(is_drawn);
    return err;
}

/* ---- who is held by nobody but himself ---- */

/* Whom it waits for is not held itself: the end of a chain of those that are. */
static bool is_end(const struct sl_hang *hang, uint32_t rank)
{
    uint32_t awaited = sl_hang_awaited_by(hang, rank);

    return awaited == SL_JOB_NONE || !hang->is_held[awaited] ||
           comm_of_held(hang, awaited) != comm_of_held(hang, rank);
}

/* Whoever is in a circle waits in the end for itself. True: some were, and are stuck now. */
static bool free_circles(struct sl_hang *hang, struct sl_hang_part *parts)
{
    const struct sl_job *job = hang->job;
    bool has_any = false;

    for (uint32_t r = 0; r < job->rank_count; r++)
        if (hang->is_held[r] && is_end(hang, r))
            parts[hang->graph.component[r]].has_end = true;
    for (uint32_t r = 0; r < job->rank_count; r++) {
        struct sl_hang_part *part = &parts[hang->graph.component[r]];

        if (!hang->is_held[r] || part->ranks < 2 || has_holders(hang, comm_of_held(hang, r)) ||
            (part->has_end && !is_end(hang, r)))
            continue;
        hang->is_stuck[r] = true;
        has_any = true;
    }
    for (uint32_t r = 0; r < job->rank_count && has_any; r++)
        hang->is_held[r] = hang->is_held[r] && !hang->is_stuck[r];
    return has_any;
}

int sl_hang_draw(struct sl_hang *hang, struct sl_hang_part *parts)
{
    int err;

    do {
        sl_graph_clear(&hang->graph);
        memset(parts, 0, ((size_t)hang->graph.node_count + 1) * sizeof(*parts));
        err = sl_hang_wait(hang);
        if (err == 0)
            err = sl_graph_sinks(&hang->graph);
        for (uint32_t r = hang->job->rank_count; r-- > 0 && err == 0;) {
            parts[hang->graph.component[r]].ranks++;
            parts[hang->graph.component[r]].first = r;
        }
    } while (err == 0 && free_circles(hang, parts));
    return err;
}
