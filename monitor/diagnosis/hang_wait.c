/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for whom. A rank waits for all members of a communicator that are further back than it;
 * to have as many edges as members and not the square of it, the members are put in order, each has
 * a node that leads to it and to the node before, and a rank has one edge to the last node that is
 * further back.
 */
#include "monitor/diagnosis/hang_inside.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool sl_hang_is_at_head(const struct sl_hang *hang, const struct sl_hang_slot *slot)
{
    size_t head = hang->index.head[slot->rank];
    const struct sl_job_op *op;

    /* Who does not go on is at nothing. */
    if (head == SL_HANG_NO_OP || !slot->has_first || hang->job->ranks[slot->rank].is_gone ||
        sl_hang_is_halted(hang, slot->rank))
        return false;
    op = &hang->job->ops[head];
    return op->comm == slot->comm && !sl_hang_is_message(op) && op->seq == slot->first;
}

/* The oldest pending one of all members; UINT64_MAX: nothing is pending. */
static uint64_t front_of(const struct sl_hang_slot *slots, size_t count)
{
    uint64_t front = UINT64_MAX;

    for (size_t i = 0; i < count; i++)
        if (slots[i].has_first && slots[i].first < front)
            front = slots[i].first;
    return front;
}

/* Can it be said that the member has not come further than its `last`? Not of one whose source has
 * forgotten what it did here, while it is at something elsewhere. */
static bool may_be_behind(const struct sl_hang *hang, const struct sl_hang_slot *slot)
{
    return sl_hang_is_told(hang, slot->rank) &&
           (slot->is_known || hang->job->ranks[slot->rank].is_gone ||
            hang->index.head[slot->rank] == SL_HANG_NO_OP);
}

/* ---- rule 1 ---- */

struct place {
    uint64_t last;
    size_t slot;
};

static int by_last(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->last != y->last)
        return x->last < y->last ? -1 : 1;
    return x->slot < y->slot ? -1 : 1;
}

/* Those who are known not to have come to `seq`: how many of the ordered ones. */
static size_t count_behind(const struct place *places, size_t count, uint64_t seq)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (places[middle].last < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int wait_for_issue(struct sl_hang *hang, uint32_t comm, struct place *places)
{
    size_t count, told = 0, begin = hang->index.first_slot[comm];
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);
    uint64_t furthest = 0;
    int err = 0;

    for (size_t i = 0; i < count; i++)
        if (may_be_behind(hang, &slots[i]))
            places[told++] = (struct place){.last = slots[i].last, .slot = i};
    qsort(places, told, sizeof(*places), by_last);
    for (size_t i = 0; i < told && err == 0; i++) {
        uint32_t node = sl_hang_slot_node(hang, begin + i);

        err = sl_graph_add(&hang->graph, node, slots[places[i].slot].rank);
        if (err == 0 && i > 0)
            err = sl_graph_add(&hang->graph, node, node - 1);
    }
    for (size_t i = 0; i < count && err == 0; i++) {
        size_t behind = slots[i].has_first ? count_behind(places, told, slots[i].first) : 0;

        if (slots[i].has_first && slots[i].first > furthest)
            furthest = slots[i].first;
        if (behind == 0 || sl_hang_is_cause(hang, slots[i].rank) ||
            (hang->is_heads_only && slots[i].op != SL_HANG_NO_OP &&
             !sl_hang_is_at_head(hang, &slots[i])))
            continue;
        err =
            sl_graph_add(&hang->graph, slots[i].rank, sl_hang_slot_node(hang, begin + behind - 1));
    }
    for (size_t i = 0; i < told && places[i].last < furthest; i++)
        hang->waiters[slots[places[i].slot].rank]++;
    return err;
}

/* ---- all have issued it ---- */

/* Who does not go on is waited for by all others that are at the oldest pending operation. */
static void count_waiters(struct sl_hang *hang, const struct sl_hang_slot *slots, size_t count,
                          uint64_t front)
{
    size_t waiting = 0;

    for (size_t i = 0; i < count; i++)
        waiting += slots[i].has_first && sl_hang_is_at_head(hang, &slots[i]);
    for (size_t i = 0; i < count; i++)
        if (slots[i].has_first && slots[i].first == front && waiting > 0 &&
            sl_hang_is_cause(hang, slots[i].rank) && !hang->is_stuck[slots[i].rank])
            hang->waiters[slots[i].rank]++;
}

/* At the head of a rank, and what a member is still at something earlier: two nodes a communicator,
 * one that leads to members that have the oldest pending operation and are not at it, one that
 * leads to all that have it (for those who are further). */
static int wait_for_heads(struct sl_hang *hang, uint32_t comm)
{
    size_t count;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);
    uint64_t front = front_of(slots, count);
    bool has_earlier = false;
    int err = 0;

    if (hang->index.is_counted[comm])
        return 0;
    count_waiters(hang, slots, count, front);
    for (size_t i = 0; i < count; i++)
        has_earlier = has_earlier || (slots[i].has_first && slots[i].first == front &&
                                      !sl_hang_is_at_head(hang, &slots[i]));
    for (size_t i = 0; i < count && err == 0; i++) {
        bool is_at_head = sl_hang_is_at_head(hang, &slots[i]);
        uint32_t rank = slots[i].rank;

        if (slots[i].has_first && slots[i].first == front) {
            err = sl_graph_add(&hang->graph, sl_hang_comm_node(hang, comm, 1), rank);
            if (err == 0 && !is_at_head)
                err = sl_graph_add(&hang->graph, sl_hang_comm_node(hang, comm, 0), rank);
        }
        if (err == 0 && is_at_head && !sl_hang_is_cause(hang, rank) &&
            (has_earlier || slots[i].first > front))
            err = sl_graph_add(&hang->graph, rank,
                               sl_hang_comm_node(hang, comm, slots[i].first == front ? 0 : 1));
    }
    return err;
}

/* ---- messages ---- */

static int wait_for(struct sl_hang *hang, uint32_t rank, uint32_t peer, bool is_certain)
{
    if (sl_hang_is_cause(hang, rank) || !sl_hang_is_told(hang, peer))
        return 0;
    if (is_certain || sl_hang_is_cause(hang, peer))
        hang->waiters[peer]++;
    return sl_graph_add(&hang->graph, rank, peer);
}

/* Is the rank at this message, or at another one of the same batch? */
static bool is_at_message(const struct sl_hang *hang, uint32_t rank, size_t op)
{
    size_t head = hang->index.head[rank];
    const struct sl_job_op *a, *b;

    if (op == SL_HANG_NO_OP || head == SL_HANG_NO_OP || sl_hang_is_halted(hang, rank))
        return false;
    a = &hang->job->ops[op];
    b = &hang->job->ops[head];
    return op == head || (a->is_seq_own && b->is_seq_own && a->comm == b->comm &&
                          a->seq == b->seq && sl_hang_is_message(b));
}

/* Does the rank wait for this half of a message? */
static bool may_wait(const struct sl_hang *hang, uint32_t rank, size_t op)
{
    return op != SL_HANG_NO_OP && (!hang->is_heads_only || is_at_message(hang, rank, op));
}

/* Numbers of both ends are the same. */
static int wait_by_number(struct sl_hang *hang, const struct sl_hang_pair *pair)
{
    const struct sl_job_op *ops = hang->job->ops;
    int err = 0;

    if (may_wait(hang, pair->dst, pair->recv) && pair->sent < ops[pair->recv].seq)
        err = wait_for(hang, pair->dst, pair->src, true);
    if (err == 0 && may_wait(hang, pair->src, pair->send) && pair->received < ops[pair->send].seq)
        err = wait_for(hang, pair->src, pair->dst, true);
    return err;
}

/* They are not, and only pending ones can be compared. A receiver cannot have what was not sent, so
 * a sender with more of them waits. A sender may have ended what the receiver still has to take:
 * that the receiver waits for it is believed only of a receiver that is at nothing earlier. */
static int wait_by_order(struct sl_hang *hang, const struct sl_hang_pair *pair)
{
    if (pair->sends > pair->recvs)
        return may_wait(hang, pair->src, pair->send) ? wait_for(hang, pair->src, pair->dst, true)
                                                     : 0;
    if (pair->recvs > pair->sends && is_at_message(hang, pair->dst, pair->recv))
        return wait_for(hang, pair->dst, pair->src, true);
    return 0;
}

static int wait_for_messages(struct sl_hang *hang)
{
    int err = 0;

    for (size_t i = 0; i < hang->index.pair_count && err == 0; i++) {
        const struct sl_hang_pair *pair = &hang->index.pairs[i];
        bool send_at, recv_at;

        err = pair->is_own ? wait_by_order(hang, pair) : wait_by_number(hang, pair);
        if (pair->send == SL_HANG_NO_OP || pair->recv == SL_HANG_NO_OP || err != 0)
            continue;
        /* Both have issued it: whoever is at it waits for the other one, if that is not. */
        send_at = is_at_message(hang, pair->src, pair->send);
        recv_at = is_at_message(hang, pair->dst, pair->recv);
        if (send_at && !recv_at)
            err = wait_for(hang, pair->src, pair->dst, false);
        else if (recv_at && !send_at)
            err = wait_for(hang, pair->dst, pair->src, false);
    }
    return err;
}

/* ---- different calls ---- */

static bool differ(const struct sl_job *job, size_t a, size_t b)
{
    const struct sl_job_op *x = &job->ops[a], *y = &job->ops[b];

    if (x->kind == SL_JOB_OTHER || y->kind == SL_JOB_OTHER)
        return false;
    return x->kind != y->kind || (x->shape != y->shape && x->shape != 0 && y->shape != 0);
}

/* The rank's operation after this one in the same communicator. */
static size_t next_in_comm(const struct sl_job *job, size_t op)
{
    const struct sl_job_op *it = &job->ops[op];

    for (size_t i = op + 1; i < job->first_op[it->rank + 1]; i++)
        if (job->ops[i].comm == it->comm && !sl_hang_is_message(&job->ops[i]) &&
            job->ops[i].seq > it->seq)
            return i;
    return SL_HANG_NO_OP;
}

static bool is_swapped(const struct sl_job *job, size_t a, size_t b)
{
    size_t next_a = next_in_comm(job, a), next_b = next_in_comm(job, b);

    return next_a != SL_HANG_NO_OP && next_b != SL_HANG_NO_OP && !differ(job, next_a, b) &&
           !differ(job, next_b, a);
}

/* Both sides of what the oldest pending operation is, by Boyer and Moore's vote: the majority's
 * side is the other one. */
static bool compare_ops(struct sl_hang *hang, uint32_t comm, uint64_t front,
                        struct sl_hang_mismatch *out)
{
    size_t count, kept = SL_HANG_NO_OP, votes = 0;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);

    *out = (struct sl_hang_mismatch){.comm = comm, .op = SL_HANG_NO_OP};
    for (size_t i = 0; i < count; i++) {
        if (!slots[i].has_first || slots[i].first != front || slots[i].op == SL_HANG_NO_OP)
            continue;
        if (votes == 0)
            kept = slots[i].op;
        votes += votes == 0 || !differ(hang->job, kept, slots[i].op) ? 1 : -1;
    }
    for (size_t i = 0; i < count && kept != SL_HANG_NO_OP; i++) {
        if (!slots[i].has_first || slots[i].first != front)
            continue;
        if (!differ(hang->job, kept, slots[i].op)) {
            if (out->many++ == 0)
                out->other = slots[i].op;
            continue;
        }
        if (out->few++ == 0)
            out->op = slots[i].op;
    }
    if (out->few == 0)
        return false;
    out->rank = hang->job->ops[out->op].rank;
    out->other_rank = hang->job->ops[out->other].rank;
    out->is_order = is_swapped(hang->job, out->op, out->other);
    return true;
}

/* As many collectives, and of other kinds. */
static bool compare_counts(struct sl_hang *hang, uint32_t comm, struct sl_hang_mismatch *out)
{
    size_t count;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count), *kept = NULL;
    size_t votes = 0;

    *out = (struct sl_hang_mismatch){
        .comm = comm, .op = SL_HANG_NO_OP, .other = SL_HANG_NO_OP, .rank = SL_JOB_NONE};
    for (size_t i = 0; i < count; i++) {
        if (!slots[i].is_known)
            continue;
        if (votes == 0)
            kept = &slots[i];
        votes += votes == 0 || kept->mix == slots[i].mix ? 1 : -1;
    }
    for (size_t i = 0; i < count && kept != NULL; i++) {
        if (!slots[i].is_known || slots[i].last != kept->last)
            continue;
        out->many += slots[i].mix == kept->mix;
        out->few += slots[i].mix != kept->mix;
        if (slots[i].mix != kept->mix && out->few == 1)
            out->rank = slots[i].rank;
        if (slots[i].mix == kept->mix && out->many == 1)
            out->other_rank = slots[i].rank;
    }
    return out->few > 0;
}

/* Whoever is at such an operation waits for the program to be mended. */
static int blame_program(struct sl_hang *hang, const struct sl_hang_mismatch *mismatch)
{
    size_t count;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, mismatch->comm, &count);
    uint64_t front = front_of(slots, count);
    int err = 0;

    for (size_t i = 0; i < count && err == 0; i++)
        if (hang->index.is_counted[mismatch->comm] ||
            (slots[i].has_first && slots[i].first == front))
            err = sl_graph_add(&hang->graph, slots[i].rank, sl_hang_program_node(hang));
    return err;
}

static int find_mismatch(struct sl_hang *hang, uint32_t comm)
{
    size_t count;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);
    struct sl_hang_mismatch mismatch, *more;
    uint64_t front = front_of(slots, count);
    bool is_one;

    if (hang->index.is_counted[comm])
        is_one = !hang->index.is_moving[comm] && compare_counts(hang, comm, &mismatch);
    else
        is_one = front != UINT64_MAX && compare_ops(hang, comm, front, &mismatch);
    if (!is_one)
        return 0;
    more = reallocarray(hang->mismatches, hang->mismatch_count + 1, sizeof(*more));
    if (more == NULL)
        return -ENOMEM;
    hang->mismatches = more;
    more[hang->mismatch_count++] = mismatch;
    return 0;
}

int sl_hang_see(struct sl_hang *hang)
{
    int err = 0;

    for (uint32_t c = 0; c < hang->job->comm_count && err == 0; c++) {
        err = find_mismatch(hang, c);
        if (err == 0)
            sl_hang_see_stuck(hang, c);
    }
    return err;
}

int sl_hang_wait(struct sl_hang *hang)
{
    struct place *places = reallocarray(NULL, hang->index.slot_count + 1, sizeof(*places));
    int err = places == NULL ? -ENOMEM : 0;

    memset(hang->waiters, 0, hang->job->rank_count * sizeof(*hang->waiters));
    for (uint32_t i = 0; i < hang->mismatch_count && err == 0; i++)
        err = blame_program(hang, &hang->mismatches[i]);
    for (uint32_t c = 0; c < hang->job->comm_count && err == 0; c++) {
        err = wait_for_issue(hang, c, places);
        if (err == 0)
            err = wait_for_heads(hang, c);
    }
    if (err == 0)
        err = wait_for_messages(hang);
    if (err == 0)
        err = sl_hang_wait_held(hang);
    free(places);
    return err;
}
