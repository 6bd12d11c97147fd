/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the wait-for graph accuses: who is waited for and waits for nobody. Probabilities:
 * hang_inside.h.
 */
#include "monitor/diagnosis/hang.h"
#include "core/err.h"
#include "monitor/diagnosis/hang_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CYCLE_MAX 32 /* ranks of a cycle that are named */

static struct sl_object program_object(uint32_t rank)
{
    return (struct sl_object){.kind = SL_OBJECT_PROGRAM, .a = rank, .b = SL_JOB_NONE};
}

/* ---- one rank ---- */

/* Whose data it waits for has ended its part and goes on: the data is lost between them. */
static int accuse_unheard(struct sl_hang *hang, uint32_t rank, uint32_t from)
{
    struct sl_object link = {.kind = SL_OBJECT_LINK, .a = from, .b = rank};
    struct sl_verdict *verdict =
        sl_verdict_add(hang->verdicts, SL_VERDICT_COMM_STUCK, link, SL_HANG_LIKELY);
    int err = verdict == NULL ? -ENOMEM : sl_hang_say_stuck(hang, verdict, rank);

    if (err == 0)
        err = sl_verdict_other(verdict, sl_hang_rank_object(rank));
    return err == 0 ? sl_verdict_other(verdict, sl_hang_rank_object(from)) : err;
}

static int accuse_stuck(struct sl_hang *hang, uint32_t rank)
{
    uint32_t from = sl_hang_awaited_by(hang, rank);
    struct sl_verdict *verdict;

    if (from != SL_JOB_NONE)
        return accuse_unheard(hang, rank, from);
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_GPU_STUCK, sl_hang_rank_object(rank),
                             SL_HANG_SURE);
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
    verdict =
        sl_verdict_add(hang->verdicts, is_gone ? SL_VERDICT_DEAD : SL_VERDICT_HOST_STALLED,
                       sl_hang_rank_object(rank), is_counted ? SL_HANG_PLAUSIBLE : SL_HANG_LIKELY);
    if (verdict == NULL)
        return -ENOMEM;
    sl_hang_rank_name(hang, rank, name);
    if (is_gone || sl_hang_is_halted(hang, rank)) {
        verdict->probability =
            is_gone || hang->job->ranks[rank].halt != 0 ? SL_HANG_SURE : SL_HANG_LIKELY;
        err = is_gone ? sl_verdict_say(verdict, "the process of %s is gone", name)
                      : sl_hang_say_halted(hang, verdict, rank);
        if (err == 0)
            err = sl_hang_say_waited(hang, verdict, rank);
        return err == 0 ? sl_hang_say_holds(hang, verdict, rank) : err;
    }
    err = sl_hang_say_waited(hang, verdict, rank);
    if (err == 0)
        err = sl_hang_say_holds(hang, verdict, rank);
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
            err = sl_verdict_other(verdict, sl_hang_rank_object(cycle[i]));
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

/* That one is at what another has called after something else makes a cycle only of what each rank
 * is at, and is looked for where nothing else is wrong. */
static int accuse_cycle(struct sl_hang *hang, uint32_t start)
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
    if (is_weak && !hang->is_heads_only)
        goto out;
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_DEADLOCK, program_object(cycle[begin]),
                             is_weak ? SL_HANG_ORDER : SL_HANG_LIKELY);
    err = verdict == NULL ? -ENOMEM : say_cycle(hang, verdict, cycle + begin, length - begin);
out:
    free(room);
    free(cycle);
    return err;
}

/* ---- all of them ---- */

static int accuse_mismatches(struct sl_hang *hang)
{
    int err = 0;

    for (uint32_t i = 0; i < hang->mismatch_count && err == 0; i++) {
        const struct sl_hang_mismatch *mismatch = &hang->mismatches[i];
        struct sl_verdict *verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_MISMATCH,
                                                    program_object(mismatch->rank), SL_HANG_SURE);

        err = verdict == NULL ? -ENOMEM : sl_hang_say_mismatch(hang, verdict, mismatch);
    }
    return err;
}

/* It is waited for, and waits for nobody. */
static bool is_waited(const struct sl_hang *hang, const struct sl_hang_part *parts, uint32_t rank)
{
    uint32_t part = hang->graph.component[rank];

    return !hang->is_stuck[rank] && hang->graph.is_sink[part] && parts[part].ranks == 1 &&
           hang->waiters[rank] > 0;
}

/* Whose process is gone, or does not run: that is seen, however short the others have waited. */
static int accuse_seen(struct sl_hang *hang, const struct sl_hang_part *parts, bool *is_gone)
{
    int err = 0;

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        if (!is_waited(hang, parts, r))
            continue;
        if (hang->job->ranks[r].is_gone || sl_hang_is_halted(hang, r))
            err = accuse_waited(hang, r);
        *is_gone = *is_gone || hang->job->ranks[r].is_gone;
    }
    return err;
}

/* It has not called what others wait in. */
static bool is_late(const struct sl_hang *hang, const struct sl_hang_part *parts, uint32_t rank)
{
    return is_waited(hang, parts, rank) && !hang->job->ranks[rank].is_gone &&
           !sl_hang_is_halted(hang, rank) && hang->index.head[rank] == SL_HANG_NO_OP &&
           sl_hang_is_told(hang, rank);
}

/* Who is stuck, or late. Where a process is gone and nothing has been pending for long, the others
 * are on their way out. */
static int accuse_late(struct sl_hang *hang, const struct sl_hang_part *parts, bool is_gone)
{
    bool is_ending = is_gone && !hang->is_overdue;
    bool *late = calloc(hang->job->rank_count + 1, sizeof(*late));
    int err = late == NULL ? -ENOMEM : 0;

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++)
        late[r] = !is_ending && is_late(hang, parts, r);
    if (err == 0)
        err = sl_hang_accuse_ahead(hang, late);
    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        if (hang->is_stuck[r])
            err = accuse_stuck(hang, r);
        else if (late[r])
            err = accuse_waited(hang, r);
    }
    free(late);
    return err;
}

static int accuse_ranks(struct sl_hang *hang, const struct sl_hang_part *parts)
{
    bool is_gone = false;
    int err = accuse_mismatches(hang);

    if (err == 0)
        err = accuse_seen(hang, parts, &is_gone);
    return err != 0 || hang->is_early ? err : accuse_late(hang, parts, is_gone);
}

static int accuse_cycles(struct sl_hang *hang, const struct sl_hang_part *parts)
{
    int err = 0;

    for (uint32_t r = 0; r < hang->job->rank_count && err == 0; r++) {
        uint32_t part = hang->graph.component[r];

        if (hang->graph.is_sink[part] && parts[part].ranks > 1 && parts[part].first == r)
            err = accuse_cycle(hang, r);
    }
    return err;
}

/* Who has called nothing that others wait in, and circles of such; where there are none, what ranks
 * are at alone: a host may have called more before its GPU came to it. */
static int accuse(struct sl_hang *hang)
{
    struct sl_hang_part *parts = calloc((size_t)hang->graph.node_count + 1, sizeof(*parts));
    uint32_t before = hang->verdicts->count;
    int err =
        parts == NULL ? sl_fail(-ENOMEM, "no memory to judge a hang") : sl_hang_draw(hang, parts);

    if (err == 0)
        err = accuse_ranks(hang, parts);
    if (err != 0 || hang->is_early) {
        free(parts);
        return err;
    }
    err = accuse_cycles(hang, parts);
    if (err == 0 && hang->verdicts->count == before) {
        hang->is_heads_only = true;
        err = sl_hang_draw(hang, parts);
        if (err == 0)
            err = accuse_cycles(hang, parts);
    }
    if (err == 0 && hang->verdicts->count == before)
        err = sl_hang_accuse_all_silent(hang, parts);
    if (err == 0 && hang->verdicts->count == before)
        err = sl_hang_accuse_comms(hang, parts);
    free(parts);
    return err;
}

/* Nobody is left who waits, or nobody says so: processes have ended, and not well. The first of
 * them, by what it said last, and all others that it may have been. */
static int accuse_gone(struct sl_hang *hang)
{
    const struct sl_job *job = hang->job;
    uint32_t first = SL_JOB_NONE, count = 0;
    struct sl_verdict *verdict;
    char name[SL_HANG_NAME];
    int err;

    for (uint32_t r = 0; r < job->rank_count; r++) {
        if (!job->ranks[r].is_gone)
            continue;
        count++;
        if (first == SL_JOB_NONE || job->ranks[r].last_ns < job->ranks[first].last_ns)
            first = r;
    }
    if (count == 0)
        return 0;
    verdict = sl_verdict_add(hang->verdicts, SL_VERDICT_DEAD, sl_hang_rank_object(first),
                             SL_HANG_SURE / count);
    if (verdict == NULL)
        return -ENOMEM;
    err = sl_verdict_say(verdict, "the process of %s is gone, and has not ended well",
                         sl_hang_rank_name(hang, first, name));
    for (uint32_t r = 0; r < job->rank_count && err == 0; r++)
        if (job->ranks[r].is_gone && r != first)
            err = sl_verdict_other(verdict, sl_hang_rank_object(r));
    return err;
}

/* ---- is it a hang? ---- */

static int say_fine(struct sl_hang *hang, const char *why)
{
    struct sl_object job = {.kind = SL_OBJECT_PROGRAM, .a = SL_JOB_NONE, .b = SL_JOB_NONE};
    struct sl_verdict *verdict =
        sl_verdict_add(hang->verdicts, SL_VERDICT_NOT_HUNG, job, SL_HANG_LIKELY);

    return verdict == NULL ? -ENOMEM : sl_verdict_say(verdict, "%s", why);
}

/* What is pending: is any of it so for a stall, or for who knows how long? */
static void see_pending(struct sl_hang *hang)
{
    int64_t now = hang->options->now_ns, stall = hang->options->stall_ns;

    for (size_t i = 0; i < hang->job->op_count; i++) {
        const struct sl_job_op *op = &hang->job->ops[i];
        bool is_old =
            now == SL_JOB_NEVER || op->issue_ns == SL_JOB_NEVER || now - op->issue_ns >= stall;

        if (op->comm >= hang->job->comm_count || !sl_hang_is_pending(op))
            continue;
        hang->is_pending = true;
        if (op->state == SL_JOB_FAILED)
            hang->is_given_up = hang->is_given_up || is_old;
        else if (is_old)
            hang->is_overdue = true;
        else
            hang->is_early = true;
    }
    hang->is_early = hang->is_early && !hang->is_overdue;
}

/* Said only where no other rule finds anything. */
static const char *nothing_pending(const struct sl_job *job)
{
    if (job->op_count > 0 || job->comm_count > 0)
        return "no operation is pending, and all ranks have come as far";
    return job->sample_count > 0
               ? "these inputs tell of measurements alone, and no rank stands out in them"
               : "these inputs tell of no operation";
}

/* NULL: it may be one. */
static const char *why_fine(const struct sl_hang *hang)
{
    bool is_waiting = false, is_moving = false;

    if (hang->is_overdue || hang->is_given_up)
        return NULL;
    for (size_t i = 0; i < hang->index.slot_count; i++)
        is_waiting = is_waiting ||
                     (hang->index.slots[i].has_first && hang->index.slots[i].op == SL_HANG_NO_OP);
    if (is_waiting || (hang->mismatch_count > 0 && !hang->is_pending))
        return NULL;
    for (uint32_t c = 0; c < hang->job->comm_count; c++)
        is_moving = is_moving || hang->index.is_moving[c];
    if (hang->is_pending)
        return "all operations that are pending are still within their deadline";
    return is_moving ? "collectives went on between the two looks" : nothing_pending(hang->job);
}

static int judge(struct sl_hang *hang)
{
    uint32_t before = hang->verdicts->count;
    const char *fine;
    int err = sl_hang_see(hang);

    if (err != 0)
        return err;
    see_pending(hang);
    fine = why_fine(hang);
    if (fine != NULL) {
        err = accuse_gone(hang);
        return err == 0 && hang->verdicts->count == before ? say_fine(hang, fine) : err;
    }
    err = accuse(hang);
    if (err == 0 && hang->verdicts->count == before)
        err = accuse_gone(hang);
    if (err == 0 && hang->verdicts->count == before)
        err = say_fine(hang, "nobody is waited for who does not go on");
    sl_verdicts_sort(hang->verdicts);
    return err;
}

int sl_hang_open(struct sl_hang *hang)
{
    const struct sl_job *job = hang->job;
    size_t nodes;
    int err = sl_hang_index_make(job, &hang->index);

    if (err != 0)
        return err;
    nodes = job->rank_count + hang->index.slot_count + 3 * (size_t)job->comm_count + 1;
    hang->waiters = calloc(job->rank_count + 1, sizeof(*hang->waiters));
    hang->is_stuck = calloc(job->rank_count + 1, sizeof(*hang->is_stuck));
    hang->is_held = calloc(job->rank_count + 1, sizeof(*hang->is_held));
    hang->stuck_slot = calloc(job->rank_count + 1, sizeof(*hang->stuck_slot));
    hang->stuck_by = calloc(job->rank_count + 1, sizeof(*hang->stuck_by));
    if (hang->waiters == NULL || hang->is_stuck == NULL || hang->is_held == NULL ||
        hang->stuck_slot == NULL || hang->stuck_by == NULL || nodes >= UINT32_MAX)
        return sl_fail(-ENOMEM, "no memory to compare %u ranks", job->rank_count);
    return sl_graph_init(&hang->graph, (uint32_t)nodes);
}

void sl_hang_close(struct sl_hang *hang)
{
    sl_graph_fini(&hang->graph);
    sl_hang_index_free(&hang->index);
    free(hang->waiters);
    free(hang->is_stuck);
    free(hang->is_held);
    free(hang->stuck_slot);
    free(hang->stuck_by);
    free(hang->mismatches);
}

int sl_hang_find(const struct sl_job *job, const struct sl_hang_options *options,
                 struct sl_verdicts *verdicts)
{
    struct sl_hang_options own = *options;
    struct sl_hang hang = {.job = job, .options = &own, .verdicts = verdicts};
    int err;

    if (own.now_ns == SL_JOB_NEVER)
        own.now_ns = job->now_ns;
    err = sl_hang_open(&hang);
    if (err == 0)
        err = judge(&hang);
    sl_hang_close(&hang);
    return err;
}
