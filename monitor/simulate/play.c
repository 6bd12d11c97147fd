/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The player: each rank goes on until a message or a collective keeps it, whoever ends that wakes
 * it. Time is a number at each rank; nothing needs a common order of events.
 */
#include "monitor/simulate/play.h"
#include "core/err.h"
#include "monitor/simulate/calls.h"
#include "monitor/simulate/tell.h"
#include "monitor/simulate/wire.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CALL_S 10e-6    /* of a host, to call */
#define PAUSE_MOST 30.0 /* forward passes */
#define KIND_AT UINT64_C(0x6b696e64)

/* ---- chance ---- */

static double deviate(struct sl_rng *rng)
{
    uint64_t bits = sl_rng_u64(rng);
    double sum = 0;

    for (unsigned i = 0; i < 4; i++)
        sum += (double)(bits >> (16 * i) & 0xffff);
    return (sum / 65536.0 - 2) * 1.7320508;
}

static double chance(struct sl_rng *rng)
{
    return (double)(sl_rng_u64(rng) >> 11) * 0x1p-53;
}

/* A number of its own for two numbers, the same whenever it is asked for. */
static double fixed(const struct sl_play_plan *plan, uint64_t what, uint64_t which)
{
    struct sl_rng rng;

    sl_rng_init(&rng, plan->seed ^ what * UINT64_C(0x9e3779b97f4a7c15) ^ which << 20);
    return deviate(&rng);
}

static bool is_second_kind(const struct sl_play_plan *plan, uint32_t rank)
{
    return plan->second_kind > 0 && sl_play_host(plan, rank) % 2 == 1;
}

/* ---- a rank's calls ---- */

static bool is_hang(const struct sl_play_plan *plan)
{
    return plan->fault.cls != SL_VERDICT_NOT_HUNG && plan->fault.cls < SL_VERDICT_SLOW_RANK;
}

static bool is_at_fault(const struct sl_play *play, uint32_t rank, uint32_t step, uint32_t call)
{
    const struct sl_play_fault *fault = &play->plan->fault;

    return is_hang(play->plan) && rank == fault->rank && step == fault->step && call == fault->call;
}

/* A program error: the rank takes another branch in one step. */
static void go_wrong(const struct sl_play *play, uint32_t rank, struct sl_play_call *calls,
                     uint32_t count)
{
    const struct sl_play_fault *fault = &play->plan->fault;
    struct sl_play_call last;

    if (play->ranks[rank].step != fault->step || rank != fault->rank || count < 3)
        return;
    if (fault->cls == SL_VERDICT_MISMATCH) {
        calls[count - 3].bytes /= 2;                /* of the replicas */
    } else if (fault->cls == SL_VERDICT_DEADLOCK) { /* the norm before the gradients */
        last = calls[count - 1];
        memmove(&calls[count - 2], &calls[count - 3], 2 * sizeof(*calls));
        calls[count - 3] = last;
    }
}

static const struct sl_play_call *call_at(struct sl_play *play, uint32_t rank, uint32_t step,
                                          uint32_t call)
{
    struct sl_play_call *calls = &play->calls[(size_t)rank * play->stride];

    (void)step;
    return &calls[call];
}

/* ---- time ---- */

/* Of a stage's pass at a rank in this step. */
static double compute_s(struct sl_play *play, uint32_t rank, double healthy)
{
    const struct sl_play_plan *plan = play->plan;
    struct sl_play_rank *it = &play->ranks[rank];
    double seconds = healthy * exp(plan->noise * deviate(&it->rng));

    if (plan->sequences > 0)
        seconds *= exp(plan->sequences * fixed(plan, it->step + 1, sl_play_replica(plan, rank)));
    if (is_second_kind(plan, rank))
        seconds *= 1 + plan->second_kind;
    if (plan->fault.cls == SL_VERDICT_SLOW_RANK && rank == plan->fault.rank &&
        it->step >= plan->fault.step)
        seconds *= plan->fault.strength;
    if (plan->pauses > 0 && it->call == it->pause_call) {
        seconds += plan->compute_s * exp(chance(&it->rng) * log(PAUSE_MOST));
        it->pause_call = UINT32_MAX;
    }
    return seconds;
}

/* The first call that computes, in a step with a pause. */
static void begin_step(struct sl_play *play, uint32_t rank)
{
    struct sl_play_rank *it = &play->ranks[rank];
    const struct sl_play_call *calls = call_at(play, rank, it->step, 0);

    it->pause_call = UINT32_MAX;
    if (play->plan->pauses <= 0 || chance(&it->rng) >= play->plan->pauses)
        return;
    for (uint32_t i = 0; i < play->lengths[rank]; i++)
        if (calls[i].kind == SL_JOB_COMPUTE) {
            it->pause_call = i;
            return;
        }
}

/* When the host called it: after its call before, and at most `ahead` before the GPU. */
static double called_s(const struct sl_play *play, uint32_t rank)
{
    const struct sl_play_rank *it = &play->ranks[rank];
    double room = it->ended[it->done % SL_PLAY_AHEAD]; /* the call `ahead` before this one */

    return fmax(it->called_s, room) + CALL_S;
}

/* ---- going on ---- */

static void wake(struct sl_play *play, uint32_t rank)
{
    if (play->ranks[rank].is_queued)
        return;
    play->ranks[rank].is_queued = true;
    play->queue[play->tail++ % play->rank_count] = rank;
}

/* The rank's call has ended. */
static void end_call(struct sl_play *play, uint32_t rank, double start_s, double end_s)
{
    struct sl_play_rank *it = &play->ranks[rank];
    const struct sl_play_call *call = call_at(play, rank, it->step, it->call);

    if (play->err == 0)
        play->err = sl_play_tell_done(play, rank, call, it->issue_s, start_s, end_s);
    it->called_s = it->issue_s;
    it->ended[(it->done + play->plan->ahead) % SL_PLAY_AHEAD] = end_s;
    it->done++;
    it->now_s = end_s;
    it->is_at = false;
    if (++it->call == play->lengths[rank]) {
        it->call = 0;
        it->step++;
        if (it->step < play->plan->steps) {
            if (play->plan->fault.cls == SL_VERDICT_MISMATCH ||
                play->plan->fault.cls == SL_VERDICT_DEADLOCK)
                go_wrong(play, rank, &play->calls[(size_t)rank * play->stride],
                         play->lengths[rank]);
            begin_step(play, rank);
        }
    }
}

static bool is_stuck(const struct sl_play *play, uint32_t rank)
{
    const struct sl_play_rank *it = &play->ranks[rank];

    return play->plan->fault.cls == SL_VERDICT_GPU_STUCK &&
           is_at_fault(play, rank, it->step, it->call);
}

static void end_collective(struct sl_play *play, uint32_t comm, const struct sl_play_call *call)
{
    struct sl_play_comm *it = &play->comms[comm];
    uint32_t first, step, count = sl_play_members(play->plan, comm, &first, &step);
    double end_s = it->latest_s;

    if (it->is_wrong)
        return; /* its members called different things */
    if (play->plan->fault.cls == SL_VERDICT_COMM_STUCK && it->has_fault) {
        sl_play_wire_stick(&play->wire, comm, play->plan->fault.rank, SL_PLAY_LATER_S);
        return;
    }
    end_s += sl_play_wire_collective(&play->wire, comm, call->bytes);
    it->arrived = 0;
    it->latest_s = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = first + i * step;

        if (is_stuck(play, rank)) {
            play->ranks[rank].start_s = play->ranks[rank].now_s;
            continue;
        }
        end_call(play, rank, play->ranks[rank].start_s, end_s);
        wake(play, rank);
    }
}

/* The GPU comes to a collective. */
static void arrive(struct sl_play *play, uint32_t rank, const struct sl_play_call *call)
{
    struct sl_play_rank *it = &play->ranks[rank];
    struct sl_play_comm *comm = &play->comms[call->comm];
    uint32_t first, step, count = sl_play_members(play->plan, call->comm, &first, &step);

    it->is_at = true;
    it->start_s = fmax(it->now_s, it->issue_s);
    comm->latest_s = fmax(comm->latest_s, it->start_s);
    comm->has_fault = comm->has_fault || is_at_fault(play, rank, it->step, it->call);
    if (comm->arrived == 0) {
        comm->bytes = call->bytes;
        comm->kind = call->kind;
    }
    comm->is_wrong = comm->is_wrong || comm->bytes != call->bytes || comm->kind != call->kind;
    if (++comm->arrived == count)
        end_collective(play, call->comm, call);
}

static double *mailbox(struct sl_play *play, uint32_t sender, const struct sl_play_call *call)
{
    return &play->mail[(sender * 2 + call->is_back) * (size_t)SL_PLAY_BATCHES + call->batch];
}

static void send(struct sl_play *play, uint32_t rank, const struct sl_play_call *call)
{
    struct sl_play_rank *it = &play->ranks[rank];
    double start_s = fmax(it->now_s, it->issue_s);
    double end_s =
        start_s + sl_play_wire_message(&play->wire, call->comm, rank, call->peer, call->bytes);

    *mailbox(play, rank, call) = end_s;
    end_call(play, rank, start_s, end_s);
    wake(play, call->peer);
}

/* False: it has not come. */
static bool receive(struct sl_play *play, uint32_t rank, const struct sl_play_call *call)
{
    struct sl_play_rank *it = &play->ranks[rank];
    double *mail = mailbox(play, call->peer, call);
    double start_s = fmax(it->now_s, it->issue_s), came_s = *mail;

    it->start_s = start_s;
    if (came_s <= 0)
        return false;
    *mail = 0;
    end_call(play, rank, start_s, fmax(start_s, came_s) + 1e-6);
    return true;
}

static void go_on(struct sl_play *play, uint32_t rank)
{
    struct sl_play_rank *it = &play->ranks[rank];

    while (it->step < play->plan->steps && !it->is_at && play->err == 0) {
        const struct sl_play_call *call = call_at(play, rank, it->step, it->call);
        uint8_t cls = play->plan->fault.cls;
        bool is_here = is_at_fault(play, rank, it->step, it->call);

        if (is_here && (cls == SL_VERDICT_HOST_STALLED || cls == SL_VERDICT_DEAD))
            return; /* it never calls it */
        it->issue_s = called_s(play, rank);
        if (is_here && cls == SL_VERDICT_GPU_STUCK && !play->plan->fault.is_in_kernel)
            return; /* it never comes to it */
        switch (call->kind) {
        case SL_JOB_COMPUTE: {
            double start_s = fmax(it->now_s, it->issue_s);

            end_call(play, rank, start_s, start_s + compute_s(play, rank, call->compute_s));
            break;
        }
        case SL_JOB_SEND: send(play, rank, call); break;
        case SL_JOB_RECV:
            if (!receive(play, rank, call))
                return;
            break;
        default: arrive(play, rank, call); return;
        }
    }
}

/* ---- a job ---- */

static int prepare(struct sl_play *play)
{
    const struct sl_play_plan *plan = play->plan;
    uint32_t comms = sl_play_comms(plan), most = 0;
    struct sl_play_call calls[SL_PLAY_CALLS_MAX];

    play->rank_count = sl_play_ranks(plan);
    for (uint32_t stage = 0; stage < plan->stages; stage++) {
        uint32_t count = sl_play_calls(plan, stage * plan->tensor * plan->replicas, 1, calls);

        most = count > most ? count : most;
    }
    play->stride = most;
    play->ranks = calloc(play->rank_count, sizeof(*play->ranks));
    play->lengths = calloc(play->rank_count, sizeof(*play->lengths));
    play->queue = calloc(play->rank_count, sizeof(*play->queue));
    play->calls = calloc((size_t)play->rank_count * most, sizeof(*play->calls));
    play->comms = calloc(comms, sizeof(*play->comms));
    play->mail = calloc((size_t)play->rank_count * 2 * SL_PLAY_BATCHES, sizeof(*play->mail));
    play->job = sl_job_new();
    if (play->ranks == NULL || play->lengths == NULL || play->queue == NULL ||
        play->calls == NULL || play->comms == NULL || play->mail == NULL || play->job == NULL)
        return sl_fail(-ENOMEM, "no memory for a job of %u ranks", play->rank_count);
    for (uint32_t rank = 0; rank < play->rank_count; rank++) {
        double heavier = 1 + plan->stages_differ *
                                 fabs(fixed(plan, UINT64_C(0x73746167), /* of a stage */
                                            sl_play_stage(plan, rank))) /
                                 4;

        sl_rng_init(&play->ranks[rank].rng, plan->seed * UINT64_C(0x100000001b3) + rank);
        play->ranks[rank].clock_s = 0.01 + 0.0025 * fixed(plan, KIND_AT, rank);
        play->lengths[rank] =
            sl_play_calls(plan, rank, heavier, &play->calls[(size_t)rank * play->stride]);
        begin_step(play, rank);
    }
    return sl_play_wire_init(&play->wire, plan);
}

static void run(struct sl_play *play)
{
    for (uint32_t rank = 0; rank < play->rank_count; rank++)
        wake(play, rank);
    while (play->head != play->tail && play->err == 0) {
        uint32_t rank = play->queue[play->head++ % play->rank_count];

        play->ranks[rank].is_queued = false;
        go_on(play, rank);
    }
}

int sl_play_job(const struct sl_play_plan *plan, struct sl_job **out)
{
    struct sl_play play = {.plan = plan};
    int err = sl_play_check(plan);

    if (err != 0)
        return err;
    err = prepare(&play);
    if (err == 0)
        err = sl_play_tell_job(&play);
    if (err == 0) {
        run(&play);
        err = play.err;
    }
    if (err == 0)
        err = sl_play_tell_rest(&play);
    sl_play_wire_fini(&play.wire);
    free(play.ranks);
    free(play.lengths);
    free(play.queue);
    free(play.calls);
    free(play.comms);
    free(play.mail);
    if (err == 0)
        *out = play.job;
    else
        sl_job_free(play.job);
    return err;
}

double sl_play_step_s(const struct sl_play_plan *plan)
{
    return plan->compute_s * 3 * (plan->batches + plan->stages - 1) * 1.2;
}
