/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the wait-for graph accuses: who is waited for and waits for nobody. Probabilities are an
 * order of trust, not measured: what was seen directly is above what follows from what is missing.
 */
#include "monitor/diagnosis/hang.h"
#include "core/err.h"
#include "monitor/diagnosis/hang_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SURE 0.95
#define LIKELY 0.9
#define PLAUSIBLE 0.6
#define CYCLE_MAX 32 /* ranks of a cycle that are named */

static struct sl_object rank_object(uint32_t rank)
{
    return (struct sl_object){.kind = SL_OBJECT_RANK, .a = rank, .b = SL_JOB_NONE};
}

static struct sl_object program_object(uint32_t rank)
{
    return (struct sl_object){.kind = SL_OBJECT_PROGRAM, .a = rank, .b = SL_JOB_NONE};
}

/* ---- one rank ---- */

static int accuse_stuck(struct sl_hang *hang, uint32_t rank)
{
    struct sl_verdict *verdict =
        sl_verdict_add(hang->verdicts, SL_VERDICT_GPU_STUCK, rank_object(rank), SURE);

    return verdict == NULL ? -ENOMEM : sl_hang_say_stuck(hang, verdict, rank);
}

static int accuse_waited(struct sl_hang *hang, uint32_t rank)
{
    const struct sl_job *job = hang->job;
    bool is_gone = job->ranks[rank].is_gone,
         is_counted = hang->index.first_of[rank] < hang->index.first_of[rank + 1];
    struct sl_verdict *verdict;
    char name[SL_HANG_NAME];
    int err;

    for (size_t i = hang->index.first_of[rank]; i < hang->index.first_of[rank + 1]; i++)
        is_counted =
            is_counted && hang->index.is_counted[hang->index.slots[hang->index.slots_of[i]].comm];
    is_counted = is_counted && !hang->index.has_two_looks;
    verdict = sl_verdict_add(hang->verdicts, is_gone ? SL_VERDICT_DEAD : SL_VERDICT_HOST_STALLED,
                             rank_object(rank), is_counted ? PLAUSIBLE : LIKELY);
    if (verdict == NULL)
        return -ENOMEM;
    sl_hang_rank_name(hang, rank, name);
    if (is_gone) {
        verdict->probability = SURE;
        err = sl_verdict_say(verdict, "the process of %s is gone", name);
        return err == 0 ? sl_hang_say_waited(hang, verdict, rank) : err;
    }
    err = sl_hang_say_waited(hang, verdict, rank);
    if (err == 0 && is_counted)
        err = sl_verdict_say(verdict, "collectives were counted once: a second look, some seconds "
                                      "later, would tell whether they move");
    else if (err == 0)
        err = sl_verdict_say(verdict,
                             "nothing that %s called is pending: its process does not come "
                             "to the next call",
                             name);
    return err;
}

/* ---- all have called it ---- */

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
            err = sl_verdict_other(verdict, rank_object(rank));
            continue;
        }
        verdict =
            sl_verdict_add(hang->verdicts, SL_VERDICT_DEAD, rank_object(rank), PLAUSIBLE / silent);
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
            verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_GPU_STUCK, rank_object(slot->rank),
                                     LIKELY);
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

/* The edge between members that spent the longest on the wire; NULL: no edge says so. */
static const struct sl_job_edge *worst_edge(const struct sl_hang *hang, uint32_t comm)
{
    const struct sl_job_edge *worst = NULL;

    for (size_t i = 0; i < hang->job->edge_count; i++) {
        const struct sl_job_edge *edge = &hang->job->edges[i];
        bool is_wire = edge->wait_s[SL_JOB_WAIT_WIRE] > 0;

        for (unsigned state = 0; state < SL_JOB_WAITS; state++)
            is_wire = is_wire && edge->wait_s[state] <= edge->wait_s[SL_JOB_WAIT_WIRE];
        if (!is_wire || (edge->comm != comm && edge->comm != SL_JOB_NONE) ||
            (worst != NULL && edge->wait_s[SL_JOB_WAIT_WIRE] <= worst->wait_s[SL_JOB_WAIT_WIRE]) ||
            sl_hang_slot_of(&hang->index, edge->src, comm) == NULL ||
            sl_hang_slot_of(&hang->index, edge->dst, comm) == NULL)
            continue;
        worst = edge;
    }
    return worst;
}

static int accuse_link(struct sl_hang *hang, const struct sl_job_edge *edge, size_t op)
{
    struct sl_object link = {
        .kind = SL_OBJECT_LINK, .a = edge->src, .b = edge->dst, .name = edge->path};
    struct sl_verdict *verdict =
        sl_verdict_add(hang->verdicts, SL_VERDICT_COMM_STUCK, link, LIKELY);
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
    verdict = least == NULL ? NULL
                            : sl_verdict_add(hang->verdicts, SL_VERDICT_COMM_STUCK,
                                             rank_object(least->rank), LIKELY / count);
    err = verdict == NULL ? -ENOMEM : sl_hang_say_comm(hang, verdict, op);
    if (err == 0 && alike == 1 && count > 1) {
        verdict->probability = PLAUSIBLE;
        err = sl_verdict_say(verdict, "%s has called the least after it",
                             sl_hang_rank_name(hang, least->rank, name));
    }
    for (size_t i = first[0]; i < first[1] && err == 0; i++)
        if (slots[i].has_first && slots[i].first == seq && &slots[i] != least)
            err = sl_verdict_other(verdict, rank_object(slots[i].rank));
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
    edge = worst_edge(hang, comm);
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
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_COMM_STUCK, link, LIKELY);
    return verdict == NULL ? -ENOMEM : sl_hang_say_comm(hang, verdict, op);
}

/* Its peer is one of which nothing is known. */
static int accuse_silent_peer(struct sl_hang *hang, size_t op)
{
    const struct sl_job_op *it = &hang->job->ops[op];
    struct sl_verdict *verdict;

    if (sl_hang_is_told(hang, it->peer) || is_accused(hang, it->peer))
        return 0;
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_DEAD, rank_object(it->peer), PLAUSIBLE);
    return verdict == NULL ? -ENOMEM
                           : sl_verdict_say(verdict,
                                            "rank %u waits for a message from or to rank %u, of "
                                            "which nothing is known",
                                            it->rank, it->peer);
}

/* ---- cycles ---- */

/* The next rank on a way through the component; marks: by node, all equal to `mark` were seen. */
static uint32_t next_rank(const struct sl_hang *hang, uint32_t from, uint32_t *queue,
                          uint32_t *marks, uint32_t mark)
{
    const struct sl_graph *graph = &hang->graph;
    uint32_t head = 0, tail = 0;

    queue[tail++] = from;
    marks[from] = mark;
    while (head < tail) {
        uint32_t node = queue[head++];

        for (uint32_t edge = graph->first[node]; edge != 0; edge = graph->edges[edge - 1].next) {
            uint32_t to = graph->edges[edge - 1].to;

            if (graph->component[to] != graph->component[from] || marks[to] == mark)
                continue;
            if (to < hang->job->rank_count)
                return to;
            marks[to] = mark;
            queue[tail++] = to;
        }
    }
    return SL_JOB_NONE;
}

static int say_cycle(struct sl_hang *hang, struct sl_verdict *verdict, const uint32_t *cycle,
                     uint32_t length)
{
    int err = 0;

    for (uint32_t i = 0; i < length && err == 0; i++) {
        uint32_t next = cycle[(i + 1) % length];

        if (i < CYCLE_MAX)
            err = sl_hang_say_step(hang, verdict, cycle[i], next);
        if (err == 0 && i > 0)
            err = sl_verdict_other(verdict, rank_object(cycle[i]));
    }
    return err;
}

/* From any of its ranks on until a rank comes again: where the cycle begins in `cycle`. */
static uint32_t find_cycle(struct sl_hang *hang, uint32_t start, uint32_t *cycle, uint32_t *room,
                           uint32_t *length)
{
    uint32_t nodes = hang->graph.node_count, rank = start;
    uint32_t *seen = room + 2 * (size_t)nodes;

    *length = 0;
    while (rank != SL_JOB_NONE && seen[rank] == 0) {
        cycle[(*length)++] = rank;
        seen[rank] = *length;
        rank = next_rank(hang, rank, room, room + nodes, *length);
    }
    return rank != SL_JOB_NONE ? seen[rank] - 1 : 0;
}

/* Which of two queues comes first matters only where nothing else is wrong. */
static int accuse_cycle(struct sl_hang *hang, uint32_t start, bool has_others)
{
    uint32_t *room = calloc((size_t)3 * hang->graph.node_count + 1, sizeof(*room));
    uint32_t *cycle = reallocarray(NULL, hang->job->rank_count, sizeof(*cycle));
    struct sl_verdict *verdict = NULL;
    uint32_t length, begin;
    bool is_weak = false;
    int err = -ENOMEM;

    if (room == NULL || cycle == NULL)
        goto out;
    begin = find_cycle(hang, start, cycle, room, &length);
    for (uint32_t i = begin; i < length; i++)
        is_weak = is_weak ||
                  sl_hang_step_of(hang, cycle[i], cycle[i + 1 < length ? i + 1 : begin]).reason ==
                      SL_HANG_EARLIER;
    err = 0;
    if (is_weak && has_others)
        goto out;
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_DEADLOCK, program_object(cycle[begin]),
                             is_weak ? PLAUSIBLE : LIKELY);
    err = verdict == NULL ? -ENOMEM : say_cycle(hang, verdict, cycle + begin, length - begin);
out:
    free(room);
    free(cycle);
    return err;
}

/* ---- all of them ---- */

/* Of the component: how many ranks, and the first of them. */
struct part {
    uint32_t ranks, first;
};

static int accuse_mismatches(struct sl_hang *hang)
{
    int err = 0;

    for (uint32_t i = 0; i < hang->mismatch_count && err == 0; i++) {
        const struct sl_hang_mismatch *mismatch = &hang->mismatches[i];
        struct sl_verdict *verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_MISMATCH,
                                                    program_object(mismatch->rank), SURE);

        err = verdict == NULL ? -ENOMEM : sl_hang_say_mismatch(hang, verdict, mismatch);
    }
    return err;
}

/* What is seen for certain, and who is waited for and waits for nobody. */
static int accuse_ranks(struct sl_hang *hang, const struct part *parts)
{
    int err = accuse_mismatches(hang);

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        uint32_t part = hang->graph.component[r];

        if (hang->is_stuck[r]) {
            err = accuse_stuck(hang, r);
            continue;
        }
        if (!hang->graph.is_sink[part] || parts[part].ranks != 1 || hang->waiters[r] == 0)
            continue;
        if (hang->job->ranks[r].is_gone ||
            (hang->index.head[r] == SL_HANG_NO_OP && sl_hang_is_told(hang, r)))
            err = accuse_waited(hang, r);
    }
    return err;
}

static int accuse_cycles(struct sl_hang *hang, const struct part *parts, bool has_others)
{
    int err = 0;

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        uint32_t part = hang->graph.component[r];

        if (hang->graph.is_sink[part] && parts[part].ranks > 1 && parts[part].first == r)
            err = accuse_cycle(hang, r, has_others);
    }
    return err;
}

/* The operation that a rank is at, which waits for nobody who is known; SL_HANG_NO_OP: none. */
static size_t end_of_chain(const struct sl_hang *hang, const struct part *parts, uint32_t rank)
{
    uint32_t part = hang->graph.component[rank];

    return hang->graph.is_sink[part] && parts[part].ranks == 1 ? hang->index.head[rank]
                                                               : SL_HANG_NO_OP;
}

/* Of the communicators at which chains end: those with members of which nothing is known, the
 * fewest first, as one such rank may explain several communicators. */
static int accuse_all_silent(struct sl_hang *hang, const struct part *parts)
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
static int accuse_comms(struct sl_hang *hang, const struct part *parts)
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

static int accuse(struct sl_hang *hang)
{
    struct part *parts = calloc(hang->graph.node_count + 1, sizeof(*parts));
    uint32_t before = hang->verdicts->count;
    int err;

    if (parts == NULL)
        return sl_fail(-ENOMEM, "no memory to judge a hang");
    for (uint32_t r = hang->job->rank_count; r-- > 0;) {
        parts[hang->graph.component[r]].ranks++;
        parts[hang->graph.component[r]].first = r;
    }
    err = accuse_ranks(hang, parts);
    if (err == 0)
        err = accuse_cycles(hang, parts, hang->verdicts->count > before);
    if (err == 0 && hang->verdicts->count == before)
        err = accuse_all_silent(hang, parts);
    if (err == 0 && hang->verdicts->count == before)
        err = accuse_comms(hang, parts);
    free(parts);
    return err;
}

/* ---- is it a hang? ---- */

static int say_fine(struct sl_hang *hang, const char *why)
{
    struct sl_object job = {.kind = SL_OBJECT_PROGRAM, .a = SL_JOB_NONE, .b = SL_JOB_NONE};
    struct sl_verdict *verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_NOT_HUNG, job, LIKELY);

    return verdict == NULL ? -ENOMEM : sl_verdict_say(verdict, "%s", why);
}

/* NULL: it may be one. */
static const char *why_fine(const struct sl_hang *hang)
{
    bool is_pending = false, is_waiting = false, is_moving = false;

    for (size_t i = 0; i < hang->job->op_count; i++) {
        const struct sl_job_op *op = &hang->job->ops[i];

        if (op->comm >= hang->job->comm_count || !sl_hang_is_pending(op))
            continue;
        is_pending = true;
        if (hang->options->now_ns == SL_JOB_NEVER || op->issue_ns == SL_JOB_NEVER ||
            hang->options->now_ns - op->issue_ns >= hang->options->stall_ns)
            return NULL;
    }
    for (size_t i = 0; i < hang->index.slot_count; i++)
        is_waiting = is_waiting ||
                     (hang->index.slots[i].has_first && hang->index.slots[i].op == SL_HANG_NO_OP);
    if (is_waiting || (hang->mismatch_count > 0 && !is_pending))
        return NULL;
    for (uint32_t c = 0; c < hang->job->comm_count; c++)
        is_moving = is_moving || hang->index.is_moving[c];
    if (is_pending)
        return "all operations that are pending are still within their deadline";
    return is_moving ? "collectives went on between the two looks"
                     : "no operation is pending, and all ranks have come as far";
}

static int judge(struct sl_hang *hang)
{
    uint32_t before = hang->verdicts->count;
    const char *fine;
    int err = sl_hang_wait(hang);

    if (err != 0)
        return err;
    fine = why_fine(hang);
    if (fine != NULL)
        return say_fine(hang, fine);
    err = sl_graph_sinks(&hang->graph);
    if (err == 0)
        err = accuse(hang);
    if (err == 0 && hang->verdicts->count == before)
        err = say_fine(hang, "nobody is waited for who does not go on");
    sl_verdicts_sort(hang->verdicts);
    return err;
}

int sl_hang_find(const struct sl_job *job, const struct sl_hang_options *options,
                 struct sl_verdicts *verdicts)
{
    struct sl_hang_options own = *options;
    struct sl_hang hang = {.job = job, .options = &own, .verdicts = verdicts};
    size_t nodes;
    int err;

    if (own.now_ns == SL_JOB_NEVER)
        own.now_ns = job->now_ns;
    err = sl_hang_index_make(job, &hang.index);
    if (err != 0)
        return err;
    nodes = job->rank_count + hang.index.slot_count + 2 * (size_t)job->comm_count + 1;
    hang.waiters = calloc(job->rank_count + 1, sizeof(*hang.waiters));
    hang.is_stuck = calloc(job->rank_count + 1, sizeof(*hang.is_stuck));
    hang.stuck_slot = calloc(job->rank_count + 1, sizeof(*hang.stuck_slot));
    hang.stuck_by = calloc(job->rank_count + 1, sizeof(*hang.stuck_by));
    if (hang.waiters == NULL || hang.is_stuck == NULL || hang.stuck_slot == NULL ||
        hang.stuck_by == NULL || nodes >= UINT32_MAX)
        err = sl_fail(-ENOMEM, "no memory to compare %u ranks", job->rank_count);
    if (err == 0)
        err = sl_graph_init(&hang.graph, (uint32_t)nodes);
    if (err == 0)
        err = judge(&hang);
    sl_graph_fini(&hang.graph);
    sl_hang_index_free(&hang.index);
    free(hang.waiters);
    free(hang.is_stuck);
    free(hang.stuck_slot);
    free(hang.stuck_by);
    free(hang.mismatches);
    return err;
}
