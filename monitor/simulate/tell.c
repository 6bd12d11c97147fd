/* SPDX-License-Identifier: Apache-2.0 */
/* A played job as sources tell it. */
#include "monitor/simulate/tell.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const comm_names[SL_PLAY_COMM_KINDS] = {
    [SL_PLAY_TENSOR] = "tensor",     [SL_PLAY_EXPERT] = "expert", [SL_PLAY_REPLICA] = "replica",
    [SL_PLAY_PIPELINE] = "pipeline", [SL_PLAY_WORLD] = "world",
};

static uint32_t text_of(struct sl_job *job, const char *format, unsigned a, unsigned b)
{
    char text[64];
    int len = snprintf(text, sizeof(text), format, a, b);

    return sl_job_text(job, text, (size_t)len);
}

static int64_t at_ns(const struct sl_play *play, uint32_t rank, double seconds)
{
    return (int64_t)((seconds + play->ranks[rank].clock_s) * 1e9);
}

static int tell_comm(struct sl_play *play, uint32_t comm, uint32_t *members)
{
    uint32_t first, step, count = sl_play_members(play->plan, comm, &first, &step), idx;
    const char *kind = comm_names[sl_play_comm_kind(play->plan, comm)];
    char name[48];
    int len = snprintf(name, sizeof(name), "%s %u", kind, comm), err;

    for (uint32_t i = 0; i < count; i++)
        members[i] = first + i * step;
    err = sl_job_add_comm(play->job, sl_job_text(play->job, name, (size_t)len), &idx);
    if (err == 0)
        err = sl_job_set_members(play->job, idx, members, count);
    sl_assert(err != 0 || idx == comm);
    return err;
}

/* Where each NIC of each host leads. */
static int tell_ports(struct sl_play *play)
{
    const struct sl_play_plan *plan = play->plan;
    struct sl_job *job = play->job;
    int err = 0;

    for (uint32_t rank = 0; rank < play->rank_count; rank += plan->ranks_per_host)
        for (uint32_t rail = 0; rail < plan->ranks_per_host && err == 0; rail++) {
            struct sl_job_port port = {
                .host = text_of(job, "host%u", sl_play_host(plan, rank), 0),
                .device = text_of(job, "rail%u", rail, 0),
                .leaf = text_of(job, "leaf%u", sl_play_leaf(plan, rank, rail), 0),
                .plane = text_of(job, "plane%u", rail / 2, 0)};

            port.rail = port.device;
            err = sl_job_add_port(job, &port);
        }
    return err;
}

int sl_play_tell_job(struct sl_play *play)
{
    const struct sl_play_plan *plan = play->plan;
    struct sl_job *job = play->job;
    uint32_t *members = calloc(play->rank_count, sizeof(*members));
    int err = members == NULL ? -ENOMEM : sl_job_add_rank(job, play->rank_count - 1);

    for (uint32_t rank = 0; rank < play->rank_count && err == 0; rank++) {
        struct sl_job_rank *it = &job->ranks[rank];

        it->host = text_of(job, "host%u", sl_play_host(plan, rank), 0);
        it->is_told = true;
        if (plan->has_layout) {
            it->stage = sl_play_stage(plan, rank);
            it->replica = sl_play_replica(plan, rank);
            it->tensor = sl_play_tensor(plan, rank);
        }
    }
    for (uint32_t comm = 0; comm < sl_play_comms(plan) && err == 0; comm++)
        err = tell_comm(play, comm, members);
    free(members);
    if (err == 0 && plan->has_fabric)
        err = tell_ports(play);
    return err;
}

/* Its number, as its communicator counts; a call is told once. */
static uint64_t number(struct sl_play *play, uint32_t rank, const struct sl_play_call *call)
{
    struct sl_play_rank *it = &play->ranks[rank];

    switch (call->kind) {
    case SL_JOB_COMPUTE: return 0;
    case SL_JOB_SEND: return ++it->sent[call->is_back];
    case SL_JOB_RECV: return ++it->received[call->is_back];
    default: return ++it->seq[sl_play_comm_kind(play->plan, call->comm)];
    }
}

static int tell(struct sl_play *play, uint32_t rank, const struct sl_play_call *call,
                struct sl_job_op *op)
{
    op->rank = rank;
    op->comm = call->comm;
    op->peer = call->peer;
    op->kind = call->kind;
    op->bytes = call->bytes;
    op->seq = number(play, rank, call);
    if (call->kind == SL_JOB_COMPUTE && !play->plan->has_compute)
        return 0;
    op->name = text_of(play->job, sl_job_kind_name((enum sl_job_kind)call->kind), 0, 0);
    if (call->bytes != 0)
        op->shape = text_of(play->job, "%u x f32", (unsigned)(call->bytes / 4), 0);
    return sl_job_add_op(play->job, op);
}

int sl_play_tell_done(struct sl_play *play, uint32_t rank, const struct sl_play_call *call,
                      double issue_s, double start_s, double end_s)
{
    struct sl_job_op op = {.step = play->ranks[rank].step,
                           .issue_ns = at_ns(play, rank, issue_s),
                           .start_ns = at_ns(play, rank, start_s),
                           .end_ns = at_ns(play, rank, end_s),
                           .state = SL_JOB_DONE};

    return tell(play, rank, call, &op);
}

/* ---- what is pending ---- */

static bool is_never_called(const struct sl_play *play, uint32_t rank, uint32_t step, uint32_t call)
{
    const struct sl_play_fault *fault = &play->plan->fault;

    return (fault->cls == SL_VERDICT_HOST_STALLED || fault->cls == SL_VERDICT_DEAD) &&
           rank == fault->rank && step == fault->step && call == fault->call;
}

/* The GPU is at the rank's oldest pending call, where it has not stopped before it. */
static bool is_started(const struct sl_play *play, uint32_t rank)
{
    const struct sl_play_fault *fault = &play->plan->fault;
    const struct sl_play_rank *it = &play->ranks[rank];

    return play->plan->has_starts &&
           !(fault->cls == SL_VERDICT_GPU_STUCK && !fault->is_in_kernel && rank == fault->rank &&
             it->step == fault->step && it->call == fault->call);
}

/* What its host has called and its GPU has not ended. */
static int tell_pending(struct sl_play *play, uint32_t rank)
{
    const struct sl_play_rank *it = &play->ranks[rank];
    uint32_t step = it->step, call = it->call;
    double issue_s = fmax(it->called_s, it->now_s - 1e-3);

    for (uint32_t ahead = 0; ahead < play->plan->ahead && step < play->plan->steps; ahead++) {
        struct sl_job_op op = {.step = step,
                               .issue_ns = at_ns(play, rank, issue_s + ahead * 1e-5),
                               .start_ns = SL_JOB_NEVER,
                               .end_ns = SL_JOB_NEVER,
                               .state = SL_JOB_ISSUED};
        int err;

        if (is_never_called(play, rank, step, call))
            return 0;
        if (ahead == 0 && is_started(play, rank)) {
            op.state = SL_JOB_STARTED;
            op.start_ns = op.issue_ns;
        }
        err = tell(play, rank, &play->calls[(size_t)rank * play->stride + call], &op);
        if (err != 0)
            return err;
        if (++call == play->lengths[rank]) {
            call = 0;
            step++;
        }
    }
    return 0;
}

/* By which spine it goes, where it leaves its leaf. */
static int tell_route(struct sl_play *play, const struct sl_job_edge *edge)
{
    const struct sl_play_plan *plan = play->plan;
    uint32_t rail = sl_play_rail(plan, edge->src, edge->dst);
    uint32_t from = sl_play_leaf(plan, edge->src, rail), to = sl_play_leaf(plan, edge->dst, rail);
    struct sl_job_route route = {.src = edge->src, .dst = edge->dst, .path = edge->path};

    if (from == to)
        return 0;
    route.via = text_of(play->job, "spine%u", sl_play_spine(plan, from, to, rail), 0);
    return sl_job_add_route(play->job, &route);
}

static int tell_edges(struct sl_play *play)
{
    uint32_t count = play->wire.first[sl_play_comms(play->plan)];
    int err = 0;

    for (uint32_t i = 0; i < count && err == 0; i++) {
        const struct sl_play_edge *it = &play->wire.edges[i];
        struct sl_job_edge edge = {.src = it->src,
                                   .dst = it->dst,
                                   .comm = it->comm,
                                   .messages = it->count,
                                   .bytes = it->bytes};

        if (sl_play_wire_is_inside(play->plan, it->src, it->dst))
            continue; /* through no NIC */
        edge.path = text_of(play->job, "rail%u", sl_play_rail(play->plan, it->src, it->dst), 0);
        edge.wait_s[SL_JOB_WAIT_WIRE] = it->wire_s;
        edge.wait_s[SL_JOB_WAIT_DATA] = it->data_s;
        if (it->count > 0 || it->wire_s > 0)
            err = sl_job_add_edge(play->job, &edge);
        if (err == 0 && play->plan->has_fabric && (it->count > 0 || it->wire_s > 0))
            err = tell_route(play, &edge);
    }
    return err;
}

int sl_play_tell_rest(struct sl_play *play)
{
    const struct sl_play_fault *fault = &play->plan->fault;
    double last_s = 0;
    int err = 0;

    for (uint32_t rank = 0; rank < play->rank_count && err == 0; rank++) {
        last_s = fmax(last_s, play->ranks[rank].now_s);
        if (fault->cls == SL_VERDICT_DEAD && rank == fault->rank)
            play->job->ranks[rank].is_gone = true;
        else
            err = tell_pending(play, rank);
    }
    if (err == 0 && play->plan->has_edges)
        err = tell_edges(play);
    if (fault->cls != SL_VERDICT_NOT_HUNG && fault->cls < SL_VERDICT_SLOW_RANK)
        play->job->now_ns = (int64_t)((last_s + SL_PLAY_LATER_S) * 1e9);
    return err;
}
