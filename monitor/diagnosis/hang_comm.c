/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a hang accuses where nobody is waited for who has not called: what all whose data is here
 * have called and none has ended, and ranks of which nothing is known. */
#include "core/err.h"
#include "monitor/diagnosis/hang_inside.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MUCH 3.0 /* times what the next edge spent on the wire */

static bool is_accused(const struct sl_hang *hang, uint32_t rank)
{
    for (uint32_t i = 0; i < hang->verdicts->count; i++) {
        const struct sl_verdict *it = &hang->verdicts->list[i];

        if (it->cls == SL_VERDICT_DEAD && it->accused.a == rank)
            return true;
        for (uint32_t k = 0; k < it->other_count; k++)
            if (it->cls == SL_VERDICT_DEAD && it->others[k].a == rank)
                return true;
    }
    return false;
}

static uint32_t count_silent(const struct sl_hang *hang, uint32_t comm)
{
    uint32_t silent = 0;

    for (size_t i = hang->index.first_slot[comm]; i < hang->index.first_slot[comm + 1]; i++)
        silent += !sl_hang_is_told(hang, hang->index.slots[i].rank);
    return silent;
}

/* Members of which nothing is known are the first to be asked for, unless one of them was already:
 * that one explains this communicator as well. */
static int accuse_silent(struct sl_hang *hang, uint32_t comm)
{
    const size_t *first = &hang->index.first_slot[comm];
    uint32_t silent = count_silent(hang, comm);
    struct sl_verdict *verdict = NULL;
    int err = 0;

    for (size_t i = first[0]; i < first[1]; i++)
        if (!sl_hang_is_told(hang, hang->index.slots[i].rank) &&
            is_accused(hang, hang->index.slots[i].rank))
            return 0;
    for (size_t i = first[0]; i < first[1] && silent > 0 && err == 0; i++) {
        uint32_t rank = hang->index.slots[i].rank;

        if (sl_hang_is_told(hang, rank))
            continue;
        if (verdict != NULL) {
            err = sl_verdict_other(verdict, sl_hang_rank_object(rank));
            continue;
        }
        verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_DEAD, sl_hang_rank_object(rank),
                                 SL_HANG_PLAUSIBLE / silent);
        if (verdict == NULL)
            return -ENOMEM;
        err = sl_verdict_say(verdict,
                             "nothing is known of %u of the members of %s that are waited for: "
                             "their processes are gone, do not answer, or what they wrote is not "
                             "here",
                             silent, sl_hang_comm_name(hang, comm));
    }
    return err;
}

/* Some GPUs are at the operation and some are not. */
static int accuse_unstarted(struct sl_hang *hang, uint32_t comm, uint64_t seq, bool *has_any)
{
    const size_t *first = &hang->index.first_slot[comm];
    uint32_t started = 0, waiting = 0;
    int err = 0;

    for (unsigned turn = 0; turn < 2; turn++)
        for (size_t i = first[0]; i < first[1] && err == 0; i++) {
            const struct sl_hang_slot *slot = &hang->index.slots[i];
            bool is_started = slot->has_first && slot->first == seq &&
                              hang->job->ops[slot->op].state == SL_JOB_STARTED;
            struct sl_verdict *verdict;
            char name[SL_HANG_NAME];

            if (!slot->has_first || slot->first != seq)
                continue;
            if (turn == 0) {
                started += is_started;
                waiting += !is_started;
                continue;
            }
            if (is_started || started == 0)
                continue;
            verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_GPU_STUCK,
                                     sl_hang_rank_object(slot->rank), SL_HANG_LIKELY);
            if (verdict == NULL)
                return -ENOMEM;
            err = sl_verdict_say(verdict,
                                 "the GPU of %s has not started what the GPUs of %u other "
                                 "members have",
                                 sl_hang_rank_name(hang, slot->rank, name), started);
            if (err == 0)
                err = sl_hang_say_comm(hang, verdict, slot->op);
        }
    *has_any = started > 0 && waiting > 0;
    return err;
}

/* Its messages were on the wire for longer than they waited for anything else, and between
 * members. */
static bool is_on_wire(const struct sl_hang *hang, const struct sl_job_edge *edge, uint32_t comm)
{
    bool is_wire = edge->wait_s[SL_JOB_WAIT_WIRE] > 0;

    for (unsigned state = 0; state < SL_JOB_WAITS; state++)
        is_wire = is_wire && edge->wait_s[state] <= edge->wait_s[SL_JOB_WAIT_WIRE];
    return is_wire && (edge->comm == comm || edge->comm == SL_JOB_NONE) &&
           sl_hang_slot_of(&hang->index, edge->src, comm) != NULL &&
           sl_hang_slot_of(&hang->index, edge->dst, comm) != NULL;
}

/* The edge that spent the longest on the wire, if that is a hang's time: half of what the operation
 * is pending for, or where that is not known much more than any other. NULL: no edge says so. Times
 * are of the whole job, and some edge is always the slowest. */
static const struct sl_job_edge *worst_edge(const struct sl_hang *hang, uint32_t comm, size_t op)
{
    const struct sl_job_edge *worst = NULL;
    int64_t since_ns = hang->job->ops[op].issue_ns, now_ns = hang->options->now_ns;
    double least_s = 0;

    for (size_t i = 0; i < hang->job->edge_count; i++) {
        const struct sl_job_edge *edge = &hang->job->edges[i];
        double wire_s = edge->wait_s[SL_JOB_WAIT_WIRE];

        if (!is_on_wire(hang, edge, comm))
            continue;
        if (worst != NULL && wire_s <= worst->wait_s[SL_JOB_WAIT_WIRE]) {
            least_s = fmax(least_s, MUCH * wire_s);
            continue;
        }
        least_s = worst != NULL ? fmax(least_s, MUCH * worst->wait_s[SL_JOB_WAIT_WIRE]) : 0;
        worst = edge;
    }
    if (since_ns != SL_JOB_NEVER && now_ns != SL_JOB_NEVER)
        least_s = (double)(now_ns - since_ns) * 0.5e-9;
    return worst != NULL && worst->wait_s[SL_JOB_WAIT_WIRE] >= least_s ? worst : NULL;
}

static int accuse_link(struct sl_hang *hang, const struct sl_job_edge *edge, size_t op)
{
    struct sl_object link = {
        .kind = SL_OBJECT_LINK, .a = edge->src, .b = edge->dst, .name = edge->path};
    struct sl_verdict *verdict =
        sl_verdict_add(hang->verdicts, SL_VERDICT_COMM_STUCK, link, SL_HANG_LIKELY);
    int err = verdict == NULL ? -ENOMEM : sl_hang_say_comm(hang, verdict, op);

    if (err == 0)
        err = sl_verdict_say(verdict,
                             "of all messages in it, those from rank %u to rank %u have "
                             "been on the wire the longest (%.1f s)",
                             edge->src, edge->dst, edge->wait_s[SL_JOB_WAIT_WIRE]);
    return err;
}

/* Has one come less far than the other? A host that waits for its own GPU calls nothing more. */
static bool is_behind(const struct sl_hang *hang, const struct sl_hang_slot *a,
                      const struct sl_hang_slot *b)
{
    if (a->last != b->last)
        return a->last < b->last;
    return hang->waiters[a->rank] > 0 && hang->waiters[b->rank] == 0;
}

static int accuse_members(struct sl_hang *hang, uint32_t comm, uint64_t seq, size_t op)
{
    const size_t *first = &hang->index.first_slot[comm];
    const struct sl_hang_slot *least = NULL, *slots = hang->index.slots;
    struct sl_verdict *verdict;
    uint32_t count = 0, alike = 0;
    char name[SL_HANG_NAME];
    int err;

    for (size_t i = first[0]; i < first[1]; i++) {
        if (!slots[i].has_first || slots[i].first != seq)
            continue;
        count++;
        if (least == NULL || is_behind(hang, &slots[i], least)) {
            least = &slots[i];
            alike = 0;
        }
        alike += !is_behind(hang, least, &slots[i]);
    }
    verdict = least == NULL
                  ? NULL
                  : sl_verdict_add(hang->verdicts, SL_VERDICT_COMM_STUCK,
                                   sl_hang_rank_object(least->rank), SL_HANG_LIKELY / count);
    err = verdict == NULL ? -ENOMEM : sl_hang_say_comm(hang, verdict, op);
    if (err == 0 && alike == 1 && count > 1) {
        verdict->probability = SL_HANG_PLAUSIBLE;
        err = sl_verdict_say(verdict, "%s has called the least after it",
                             sl_hang_rank_name(hang, least->rank, name));
    }
    for (size_t i = first[0]; i < first[1] && err == 0; i++)
        if (slots[i].has_first && slots[i].first == seq && &slots[i] != least)
            err = sl_verdict_other(verdict, sl_hang_rank_object(slots[i].rank));
    return err;
}

static int accuse_comm(struct sl_hang *hang, uint32_t comm, size_t op)
{
    const struct sl_job_edge *edge;
    uint64_t seq = hang->job->ops[op].seq;
    bool is_done;
    int err = accuse_unstarted(hang, comm, seq, &is_done);

    if (err != 0 || is_done)
        return err;
    edge = worst_edge(hang, comm, op);
    return edge != NULL ? accuse_link(hang, edge, op) : accuse_members(hang, comm, seq, op);
}

static int accuse_message(struct sl_hang *hang, size_t op)
{
    const struct sl_job_op *it = &hang->job->ops[op];
    bool is_send = it->kind == SL_JOB_SEND;
    struct sl_object link = {.kind = SL_OBJECT_LINK,
                             .a = is_send ? it->rank : it->peer,
                             .b = is_send ? it->peer : it->rank};
    struct sl_verdict *verdict;

    for (uint32_t i = 0; i < hang->verdicts->count; i++) {
        const struct sl_object *old = &hang->verdicts->list[i].accused;

        if (old->kind == SL_OBJECT_LINK && old->a == link.a && old->b == link.b)
            return 0;
    }
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_COMM_STUCK, link, SL_HANG_LIKELY);
    return verdict == NULL ? -ENOMEM : sl_hang_say_comm(hang, verdict, op);
}

/* Its peer is one of which nothing is known. */
static int accuse_silent_peer(struct sl_hang *hang, size_t op)
{
    const struct sl_job_op *it = &hang->job->ops[op];
    struct sl_verdict *verdict;

    if (sl_hang_is_told(hang, it->peer) || is_accused(hang, it->peer))
        return 0;
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_DEAD, sl_hang_rank_object(it->peer),
                             SL_HANG_PLAUSIBLE);
    return verdict == NULL ? -ENOMEM
                           : sl_verdict_say(verdict,
                                            "rank %u waits for a message from or to rank %u, of "
                                            "which nothing is known",
                                            it->rank, it->peer);
}

/* The operation that a rank is at, which waits for nobody who is known; SL_HANG_NO_OP: none. */
static size_t end_of_chain(const struct sl_hang *hang, const struct sl_hang_part *parts,
                           uint32_t rank)
{
    uint32_t part = hang->graph.component[rank];

    return hang->graph.is_sink[part] && parts[part].ranks == 1 ? hang->index.head[rank]
                                                               : SL_HANG_NO_OP;
}

/* Of the communicators at which chains end: those with members of which nothing is known, the
 * fewest first, as one such rank may explain several communicators. */
int sl_hang_accuse_all_silent(struct sl_hang *hang, const struct sl_hang_part *parts)
{
    uint32_t *silent = calloc(hang->job->comm_count + 1, sizeof(*silent)), least = 1, next;
    int err = silent == NULL ? -ENOMEM : 0;

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        size_t head = end_of_chain(hang, parts, r);

        if (head == SL_HANG_NO_OP)
            continue;
        if (sl_hang_is_message(&hang->job->ops[head]))
            err = accuse_silent_peer(hang, head);
        else
            silent[hang->job->ops[head].comm] = UINT32_MAX;
    }
    for (uint32_t c = 0; c < hang->job->comm_count && err == 0; c++)
        silent[c] = silent[c] > 0 || (hang->index.is_counted[c] && !hang->index.is_moving[c])
                        ? count_silent(hang, c)
                        : 0;
    for (; least < UINT32_MAX && err == 0; least = next) {
        next = UINT32_MAX;
        for (uint32_t c = 0; c < hang->job->comm_count && err == 0; c++) {
            if (silent[c] == least)
                err = accuse_silent(hang, c);
            else if (silent[c] > least && silent[c] < next)
                next = silent[c];
        }
    }
    free(silent);
    return err;
}

/* Nobody is to blame so far: what all have called and nobody has ended. */
int sl_hang_accuse_comms(struct sl_hang *hang, const struct sl_hang_part *parts)
{
    bool *is_done = calloc(hang->job->comm_count + 1, sizeof(*is_done));
    int err = is_done == NULL ? -ENOMEM : 0;

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        size_t head = end_of_chain(hang, parts, r);

        if (head == SL_HANG_NO_OP)
            continue;
        if (sl_hang_is_message(&hang->job->ops[head])) {
            err = accuse_message(hang, head);
        } else if (!is_done[hang->job->ops[head].comm]) {
            is_done[hang->job->ops[head].comm] = true;
            err = accuse_comm(hang, hang->job->ops[head].comm, head);
        }
    }
    free(is_done);
    return err;
}
