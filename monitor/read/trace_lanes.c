/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a timeline, and which rank each is of, by names that come before or after events. */
#include "monitor/read/trace_timeline.h"
#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYOUT_MAX 65536     /* ranks in one dimension */
#define OF_PROCESS INT64_MIN /* a thread of which no event is: it stands for the process */

static size_t place_of(const struct sl_timeline *timeline, int64_t process, int64_t thread)
{
    uint64_t hash =
        (uint64_t)process * 0x9e3779b97f4a7c15u ^ (uint64_t)thread * 0xc2b2ae3d27d4eb4fu;
    size_t at = (size_t)(hash ^ hash >> 29) & (timeline->table_len - 1);

    while (timeline->table[at] != 0) {
        const struct sl_timeline_lane *lane = &timeline->lanes[timeline->table[at] - 1];

        if (lane->process == process && lane->thread == thread)
            break;
        at = (at + 1) & (timeline->table_len - 1);
    }
    return at;
}

static int grow_lanes(struct sl_timeline *timeline)
{
    size_t cap = timeline->lane_cap * 2 + 64;
    struct sl_timeline_lane *lanes = reallocarray(timeline->lanes, cap, sizeof(*lanes));

    if (lanes != NULL)
        timeline->lanes = lanes;
    free(timeline->table);
    for (timeline->table_len = 64; timeline->table_len < cap * 2;)
        timeline->table_len *= 2;
    timeline->table = calloc(timeline->table_len, sizeof(*timeline->table));
    if (lanes == NULL || timeline->table == NULL)
        return sl_fail(-ENOMEM, "no memory for %zu threads of a trace", cap);
    timeline->lane_cap = cap;
    for (size_t i = 0; i < timeline->lane_count; i++)
        timeline->table[place_of(timeline, lanes[i].process, lanes[i].thread)] = (uint32_t)i + 1;
    return 0;
}

int sl_timeline_find_lane(struct sl_timeline *timeline, int64_t process, int64_t thread)
{
    const struct sl_timeline_lane *last = &timeline->lanes[timeline->last];
    size_t at;

    if (timeline->lane_count > 0 && last->process == process && last->thread == thread)
        return 0;
    if (timeline->lane_count == timeline->lane_cap && grow_lanes(timeline) != 0)
        return -ENOMEM;
    at = place_of(timeline, process, thread);
    if (timeline->table[at] == 0) {
        timeline->lanes[timeline->lane_count] = (struct sl_timeline_lane){.process = process,
                                                                          .thread = thread,
                                                                          .replica = SL_JOB_NONE,
                                                                          .stage = SL_JOB_NONE,
                                                                          .tensor = SL_JOB_NONE,
                                                                          .rank = SL_JOB_NONE};
        timeline->table[at] = (uint32_t)++timeline->lane_count;
    }
    timeline->last = timeline->table[at] - 1;
    return 0;
}

int sl_timeline_add_name(struct sl_timeline *timeline, const struct sl_trace_event *event)
{
    const char *name = sl_trace_text(event, "name");
    bool is_process = strcmp(event->name, "process_name") == 0;
    uint32_t text;
    int err;

    if (name == NULL || (!is_process && strcmp(event->name, "thread_name") != 0))
        return 0;
    text = sl_job_text(timeline->job, name, strlen(name));
    if (text == SL_JOB_NONE)
        return sl_fail(-EBADMSG, "a thread's name is longer than a name can be");
    err = sl_timeline_find_lane(timeline, event->process, is_process ? OF_PROCESS : event->thread);
    if (err == 0)
        timeline->lanes[timeline->last].name = text;
    return err;
}

static void at_least(uint32_t *count, uint32_t index)
{
    if (*count <= index)
        *count = index + 1;
}

/* The name of the process that a thread is of, "" where it has none. */
static const char *process_of(const struct sl_timeline *timeline,
                              const struct sl_timeline_lane *lane)
{
    uint32_t found = timeline->table[place_of(timeline, lane->process, OF_PROCESS)];

    return found != 0 ? sl_job_string(timeline->job, timeline->lanes[found - 1].name) : "";
}

/* "DP rank [2]"; where it lists several numbers, the process's own number. */
static bool read_replica(const struct sl_timeline_lane *lane, const char *process,
                         uint32_t *replica)
{
    char end;
    int count = sscanf(process, "DP rank [%u%c", replica, &end);

    if (count == 2 && end != ']') {
        if (lane->process < 0 || lane->process >= LAYOUT_MAX)
            return false;
        *replica = (uint32_t)lane->process;
    }
    return count == 2 || sscanf(process, "DP rank %u", replica) == 1;
}

static void read_names(struct sl_timeline *timeline, struct sl_timeline_lane *lane)
{
    const char *thread = sl_job_string(timeline->job, lane->name),
               *process = process_of(timeline, lane);
    uint32_t stage, tensor, replica, rank;

    lane->is_comm = strstr(thread, "comm") != NULL;
    if (sscanf(thread, "PP rank %u, TP rank %u", &stage, &tensor) == 2 &&
        read_replica(lane, process, &replica) && stage < LAYOUT_MAX && tensor < LAYOUT_MAX &&
        replica < LAYOUT_MAX) {
        lane->stage = stage;
        lane->tensor = tensor;
        lane->replica = replica;
        at_least(&timeline->stages, stage);
        at_least(&timeline->tensors, tensor);
        at_least(&timeline->replicas, replica);
    } else if ((sscanf(process, "rank %u", &rank) == 1 || sscanf(process, "Rank %u", &rank) == 1) &&
               rank < SL_JOB_RANKS_MAX) {
        lane->rank = rank;
    }
}

uint32_t sl_timeline_rank_of(const struct sl_timeline *timeline, uint32_t replica, uint32_t stage,
                             uint32_t tensor)
{
    return (stage * timeline->replicas + replica) * timeline->tensors + tensor;
}

int sl_timeline_name_ranks(struct sl_timeline *timeline, const char *name)
{
    struct sl_job *job = timeline->job;
    uint64_t count;

    for (size_t i = 0; i < timeline->lane_count; i++)
        if (timeline->lanes[i].is_used)
            read_names(timeline, &timeline->lanes[i]);
    count = (uint64_t)timeline->stages * timeline->replicas * timeline->tensors;
    if (count > timeline->lane_count * 64)
        return sl_fail(-EBADMSG, "%s: its threads are named for %llu ranks, of which few are in it",
                       name, (unsigned long long)count);
    for (size_t i = 0; i < timeline->lane_count; i++) {
        struct sl_timeline_lane *lane = &timeline->lanes[i];
        int err;

        if (lane->stage != SL_JOB_NONE)
            lane->rank = sl_timeline_rank_of(timeline, lane->replica, lane->stage, lane->tensor);
        if (lane->rank == SL_JOB_NONE)
            continue;
        err = sl_job_add_rank(job, lane->rank);
        if (err != 0)
            return err;
        if (lane->stage != SL_JOB_NONE) {
            job->ranks[lane->rank].replica = lane->replica;
            job->ranks[lane->rank].stage = lane->stage;
            job->ranks[lane->rank].tensor = lane->tensor;
        }
    }
    return 0;
}
