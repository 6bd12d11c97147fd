/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timelines of whole jobs (ByteDance-Seed/StragglerAnalysis): processes are data-parallel ranks,
 * threads are stages of the pipeline, and names of both say which, before or after their events.
 *
 *     process_name  "DP rank [0]"
 *     thread_name   "PP rank 1, TP rank 0, compute" | "... pp-comm" | "... dp-comm" | "... misc"
 *
 * Or a process is called "rank 7". Ranks are numbered as Megatron does: tensor first, then data,
 * then stages. A transfer's start is that of the transfer itself, not the time at which the rank
 * came to it: operations have no time of issue.
 */
#include "monitor/read/trace_timeline.h"
#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum way { ALONE, PIPELINE_NEXT, PIPELINE_BEFORE, DATA, EMBEDDING };

/* Of the rank whose events are gone through. */
struct counts {
    uint32_t rank;
    uint64_t sent[2], received[2]; /* to and from the next stage, the one before */
};

struct sl_timeline *sl_timeline_new(struct sl_job *job)
{
    struct sl_timeline *timeline = calloc(1, sizeof(*timeline));

    if (timeline != NULL)
        timeline->job = job;
    return timeline;
}

void sl_timeline_free(struct sl_timeline *timeline)
{
    if (timeline == NULL)
        return;
    free(timeline->lanes);
    free(timeline->table);
    free(timeline->events);
    free(timeline->turns);
    free(timeline);
}

int sl_timeline_add(struct sl_timeline *timeline, const struct sl_trace_event *event)
{
    struct sl_timeline_event *it;
    int64_t step;
    int err;

    if (event->phase == 'M')
        return sl_timeline_add_name(timeline, event);
    err = sl_timeline_find_lane(timeline, event->process, event->thread);
    if (err != 0)
        return err;
    if (timeline->event_count == timeline->event_cap) {
        size_t cap = timeline->event_cap + timeline->event_cap / 2 + 1024;

        it = reallocarray(timeline->events, cap, sizeof(*it));
        if (it == NULL)
            return sl_fail(-ENOMEM, "no memory for %zu events of a trace", cap);
        timeline->events = it;
        timeline->event_cap = cap;
    }
    it = &timeline->events[timeline->event_count++];
    *it = (struct sl_timeline_event){
        .lane = timeline->last,
        .name = sl_job_text(timeline->job, event->name, strlen(event->name)),
        .step = SL_JOB_NONE,
        .start_ns = event->start_ns,
        .end_ns = event->end_ns};
    if (it->name == SL_JOB_NONE)
        return sl_fail(-EBADMSG, "an event's name is longer than a name can be");
    if (sl_trace_arg(event, "step", &step) && step >= 0 && step < SL_JOB_NONE)
        it->step = (uint32_t)step;
    timeline->lanes[timeline->last].is_used = true;
    return 0;
}

static const char *string_of(const struct sl_timeline *timeline, uint32_t text)
{
    return sl_job_string(timeline->job, text);
}

/* ---- operations ---- */

static bool holds(const char *name, const char *part)
{
    return strcasestr(name, part) != NULL;
}

/* What an event is, and between whom. */
static enum sl_job_kind kind_of(const char *name, bool is_comm, enum way *way)
{
    static const struct {
        const char *part;
        uint8_t kind;
    } collectives[] = {{"all-reduce", SL_JOB_ALLREDUCE},
                       {"allreduce", SL_JOB_ALLREDUCE},
                       {"all_reduce", SL_JOB_ALLREDUCE},
                       {"all-gather", SL_JOB_ALLGATHER},
                       {"allgather", SL_JOB_ALLGATHER},
                       {"all_gather", SL_JOB_ALLGATHER},
                       {"reduce-scatter", SL_JOB_REDUCE_SCATTER},
                       {"reduce_scatter", SL_JOB_REDUCE_SCATTER},
                       {"broadcast", SL_JOB_BROADCAST},
                       {"all-to-all", SL_JOB_ALLTOALL},
                       {"alltoall", SL_JOB_ALLTOALL},
                       {"barrier", SL_JOB_BARRIER}};
    bool is_back = holds(name, "backward");

    *way = ALONE;
    if (holds(name, "send") || holds(name, "recv")) {
        bool is_send = holds(name, "send");

        *way = is_send != is_back ? PIPELINE_NEXT : PIPELINE_BEFORE;
        return is_send ? SL_JOB_SEND : SL_JOB_RECV;
    }
    for (unsigned i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++)
        if (holds(name, collectives[i].part)) {
            *way = holds(name, "embedding") ? EMBEDDING : DATA;
            return collectives[i].kind;
        }
    return is_comm ? SL_JOB_OTHER : SL_JOB_COMPUTE;
}

/* The communicator of an operation, with its members where the layout tells them. Collectives of
 * each name have one of their own: a trace that lacks one of them shifts no others. */
static int find_comm(struct sl_timeline *timeline, const struct sl_timeline_lane *lane,
                     enum way way, const char *of, uint32_t *comm)
{
    uint32_t *members, count = way == DATA ? timeline->replicas : timeline->stages, name;
    char text[160];
    int err;

    if (way == PIPELINE_NEXT || way == PIPELINE_BEFORE)
        snprintf(text, sizeof(text), "pipeline, replica %u, tensor %u", lane->replica,
                 lane->tensor);
    else if (lane->stage == SL_JOB_NONE)
        snprintf(text, sizeof(text), "%.90s", of);
    else if (way == DATA)
        snprintf(text, sizeof(text), "%.90s, stage %u, tensor %u", of, lane->stage, lane->tensor);
    else
        snprintf(text, sizeof(text), "%.90s, replica %u, tensor %u", of, lane->replica,
                 lane->tensor);
    name = sl_job_text(timeline->job, text, strlen(text));
    if (name == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for communicators of a trace");
    err = sl_job_add_comm(timeline->job, name, comm);
    if (err != 0 || lane->stage == SL_JOB_NONE || timeline->job->comms[*comm].member_count > 0)
        return err;
    if (way == EMBEDDING && count > 2) /* tied embeddings: the first stage and the last */
        count = 2;
    members = calloc(count, sizeof(*members));
    if (members == NULL)
        return sl_fail(-ENOMEM, "no memory for communicators of a trace");
    for (uint32_t i = 0; i < count; i++)
        members[i] =
            way == DATA ? sl_timeline_rank_of(timeline, i, lane->stage, lane->tensor)
                        : sl_timeline_rank_of(timeline, lane->replica,
                                              way == EMBEDDING && i == 1 ? timeline->stages - 1 : i,
                                              lane->tensor);
    err = sl_job_set_members(timeline->job, *comm, members, count);
    free(members);
    return err;
}

/* The neighbour in the pipeline; SL_JOB_NONE: the layout does not tell. */
static uint32_t peer_of(const struct sl_timeline *timeline, const struct sl_timeline_lane *lane,
                        enum way way)
{
    uint32_t stage = lane->stage, stages = timeline->stages;

    if (stage == SL_JOB_NONE || stages < 2)
        return SL_JOB_NONE;
    stage = (stage + (way == PIPELINE_NEXT ? 1 : stages - 1)) % stages;
    return sl_timeline_rank_of(timeline, lane->replica, stage, lane->tensor);
}

/* The rank's next message to that neighbour, or from it. */
static uint64_t next_message(const struct sl_timeline *timeline, struct counts *counts,
                             uint8_t kind, enum way way)
{
    /* With two stages the next one is the one before: messages of both are of one pair. */
    unsigned to = way == PIPELINE_BEFORE && timeline->stages > 2;

    return kind == SL_JOB_SEND ? counts->sent[to]++ : counts->received[to]++;
}

/* The rank's next collective in the communicator. */
static int next_collective(struct sl_timeline *timeline, uint32_t rank, uint32_t comm,
                           uint64_t *seq)
{
    struct sl_timeline_turn *turns = timeline->turns;

    if (comm >= timeline->turn_count) {
        uint32_t count = comm * 2 + 16;

        turns = reallocarray(turns, count, sizeof(*turns));
        if (turns == NULL)
            return sl_fail(-ENOMEM, "no memory for communicators of a trace");
        for (uint32_t i = timeline->turn_count; i < count; i++)
            turns[i] = (struct sl_timeline_turn){.rank = SL_JOB_NONE};
        timeline->turns = turns;
        timeline->turn_count = count;
    }
    if (turns[comm].rank != rank)
        turns[comm] = (struct sl_timeline_turn){.rank = rank};
    *seq = turns[comm].next++;
    return 0;
}

static int add_op(struct sl_timeline *timeline, const struct sl_timeline_event *event,
                  struct counts *counts)
{
    const struct sl_timeline_lane *lane = &timeline->lanes[event->lane];
    struct sl_job_op op = {.rank = event->rank,
                           .comm = SL_JOB_NONE,
                           .peer = SL_JOB_NONE,
                           .name = event->name,
                           .step = event->step,
                           .issue_ns = SL_JOB_NEVER,
                           .start_ns = event->start_ns,
                           .end_ns = event->end_ns,
                           .state = SL_JOB_DONE};
    enum way way;
    int err;

    op.kind = (uint8_t)kind_of(string_of(timeline, event->name), lane->is_comm, &way);
    if (way == PIPELINE_NEXT || way == PIPELINE_BEFORE) {
        op.peer = peer_of(timeline, lane, way);
        if (op.peer == SL_JOB_NONE) {
            op.kind = SL_JOB_OTHER;
            way = ALONE;
        }
    }
    if (way != ALONE) {
        err = find_comm(timeline, lane, way, string_of(timeline, event->name), &op.comm);
        if (err == 0 && op.peer == SL_JOB_NONE)
            err = next_collective(timeline, op.rank, op.comm, &op.seq);
        else if (err == 0)
            op.seq = next_message(timeline, counts, op.kind, way);
        if (err != 0)
            return err;
    }
    return sl_job_add_op(timeline->job, &op);
}

static int by_rank_and_start(const void *a, const void *b)
{
    const struct sl_timeline_event *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

int sl_timeline_finish(struct sl_timeline *timeline, const char *name)
{
    struct counts counts = {.rank = SL_JOB_NONE};
    size_t count = 0;
    int err = sl_timeline_name_ranks(timeline, name);

    if (err != 0)
        return err;
    for (size_t i = 0; i < timeline->event_count; i++) {
        struct sl_timeline_event *event = &timeline->events[i];

        event->rank = timeline->lanes[event->lane].rank;
        if (event->rank != SL_JOB_NONE)
            timeline->events[count++] = *event;
    }
    if (count == 0)
        return sl_fail(-EBADMSG,
                       "%s: no event says which rank it is of: it needs distributedInfo before its "
                       "events, processes named \"rank N\", or processes \"DP rank [N]\" with "
                       "threads \"PP rank N, TP rank N, ...\"",
                       name);
    qsort(timeline->events, count, sizeof(*timeline->events), by_rank_and_start);
    for (size_t i = 0; err == 0 && i < count; i++) {
        if (timeline->events[i].rank != counts.rank)
            counts = (struct counts){.rank = timeline->events[i].rank};
        err = add_op(timeline, &timeline->events[i], &counts);
    }
    return err;
}
