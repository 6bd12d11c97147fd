/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks schedules: starts steps in the order of their channels, when what they depend on is
 * complete and, for messages, when earlier operations have posted theirs to the same peer.
 */
#include "collectives/exec.h"

#include "collectives/calibrate.h"
#include "collectives/recall.h"
#include "collectives/speeds.h"
#include "collectives/status.h"
#include "collectives/steps.h"

#include <string.h>

static inline bool deps_over(const struct sluice_req *op, const struct sl_step *step)
{
    const uint32_t *deps = op->plan->schedule.deps + step->dep_first;

    for (uint32_t i = step->dep_count; i-- != 0;)
        if (!op->done[deps[i]])
            return false;
    return true;
}

/* Runs the channel from where it is; returns how many steps ran. */
static inline unsigned run_channel(struct sluice_req *op, uint32_t channel)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_step *steps = plan->schedule.steps;
    uint32_t end = plan->channel_first[channel + 1], next = op->next[channel], first = next;

    if (next == end)
        return 0;
    for (; next != end; next++) {
        const struct sl_turn *turn = &plan->turns[next];
        const struct sl_step *step = &steps[turn->step];

        if (step->dep_count != 0 && !deps_over(op, step) &&
            !(SL_UNLIKELY(step->runner != 0) && sl_job_may_follow(op, step)))
            break;
        if (SL_UNLIKELY(!op->in_windows) && turn->windows && !sl_op_enter_windows(op))
            break;
        enum sl_go go = turn->run(op, step, turn->step);

        if (go == SL_GO_BLOCKED)
            break;
        if (go == SL_GO_OVER)
            sl_op_step_over(op, turn->step);
    }
    op->next[channel] = next;
    if (next == end)
        op->open_channels--;
    return next - first;
}

bool sl_op_is_over(const struct sluice_req *op)
{
    return op->open_channels == 0 && op->in_flight == 0;
}

/* Here, where a short operation ends, without a call. */
static inline __attribute__((always_inline)) void end_op(struct sluice_req *op, int status)
{
    struct sluice_comm *comm = op->comm;

    if (SL_UNLIKELY(op->at_work != 0))
        sl_jobs_cancel(op);
    if (op->plan->schedule.win_values != 0 && status == 0)
        comm->win.serving++;
    sl_list_remove(&op->link);
    sl_status_op_ends(op);
    if (op->called_ns != 0 && status == 0)
        sl_status_call_over(op);
    op->status = status;
    if (SL_UNLIKELY(op->began_ns != 0) && status == 0)
        sl_costs_sample(op);
    if (SL_UNLIKELY(op->plan->account != NULL))
        sl_coding_ends(op, status);
    if (op->given_back) {
        comm->calls.active_count--;
        sl_op_put(op);
    }
}

unsigned sl_op_run(struct sluice_req *op)
{
    uint32_t channels = op->plan->schedule.channel_count;
    unsigned ran = 0, pass;

    /* Once calls differ, the n-th send of a peer may meet another receive than it was meant for:
     * nothing that came since may go on to others. */
    if (op->status != SL_PENDING || op->comm->health.error.code != 0 ||
        op->comm->health.mismatch_ns != 0)
        return 0;
    if (SL_UNLIKELY(op->plan->runner_count != 0))
        ran = sl_jobs_progress(op->plan);
    do {
        pass = 0;
        for (uint32_t c = 0; c < channels; c++)
            pass += run_channel(op, c);
        ran += pass;
    } while (pass != 0 && op->open_channels != 0 && channels > 1);
    if (sl_op_is_over(op) && op->comm->health.error.code == 0)
        end_op(op, 0);
    return ran;
}

/* Operations of a kind take its areas in turns. */
static int8_t next_area(struct sluice_comm *comm, enum sl_win_size size)
{
    switch (size) {
    case SL_WIN_SHORT: return (int8_t)(comm->win.shorts++ % SL_WIN_SHORTS);
    case SL_WIN_LONG: return (int8_t)(SL_WIN_SHORTS + (comm->win.longs++ & 1));
    default: return SL_WIN_NO_AREA;
    }
}

static void take_tickets(struct sluice_req *op)
{
    const struct sl_plan *plan = op->plan;
    struct sluice_comm *comm = op->comm;

    for (uint32_t i = 0; i < plan->use_count; i++) {
        const struct sl_use *use = &plan->uses[i];
        struct sl_peer *peer = use->peer;

        op->tickets[i] = use->recv ? peer->recv_ticket++ : peer->send_ticket++;
        op->use_left[i] = use->posts;
    }
    if (plan->schedule.win_values == 0)
        return;
    op->win_ticket = comm->win.ticket++;
    op->slot = op->win_ticket % SL_WIN_SLOTS;
    op->area = next_area(comm, plan->win_size);
    op->win_at = sl_win_place(comm, op->slot, op->area);
    op->win_base = comm->win.base;
    op->base[SL_BUF_WIN] = (uint8_t *)comm->win.slots + op->win_at;
    comm->win.base += plan->schedule.win_values * SL_WIN_UNIT;
}

/* Collectives are numbered alike on all ranks; a send or receive is numbered within its pair of
 * ranks and direction, since the others do not see it. */
static void number_call(struct sluice_req *op)
{
    struct sluice_comm *comm = op->comm;
    const struct sl_plan *plan = op->plan;
    const struct sl_call *call = &plan->call;

    if (SL_UNLIKELY(plan->p2p)) {
        struct sl_peer *peer = sl_comm_peer(comm, call->root);
        uint32_t number = call->coll == SL_SEND ? peer->p2p_sent++ : peer->p2p_received++;

        op->seq = 0;
        op->tag = UINT64_C(1) << 63 | (uint64_t)(number & 0x7fffffff) << 32 | call->dtype;
        sl_status_p2p_begins(comm, plan);
        return;
    }
    op->seq = ++comm->calls.seq;
    comm->calls.run = sl_run_on(comm->calls.run, plan->fingerprint);
    op->tag = (uint64_t)(op->seq & 0x7fffffff) << 32 | comm->calls.run;
    comm->calls.history[op->seq % SL_HISTORY] = plan->signature;
    comm->calls.history[op->seq % SL_HISTORY].seq = op->seq;
    comm->calls.history[op->seq % SL_HISTORY].run = comm->calls.run;
    sl_status_coll_begins(comm, plan);
}

static void bind(struct sluice_req *op, const void *in, void *out)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_schedule *s = &plan->schedule;

    op->status = SL_PENDING;
    op->given_back = plan->owner != NULL; /* its request ends with no more ado */
    /* Without windows there is no turn to wait for. */
    op->in_windows = s->win_values == 0;
    op->base[SL_BUF_IN] = (uint8_t *)(uintptr_t)in; /* never written: check.c proves it */
    op->base[SL_BUF_OUT] = out;
    op->base[SL_BUF_TMP] = op->tmp;
    op->base[SL_BUF_WIRE] = op->wire;
    op->in_flight = 0;
    op->bytes = 0;
    op->began_ns = 0;
    op->called_ns = 0;
    for (uint32_t c = 0; c < s->channel_count; c++)
        op->next[c] = plan->channel_first[c];
    op->open_channels = plan->open_channels;
    if (op->done != NULL)
        memset(op->done, 0, s->step_count);
}

/* The communicator's own operation is not one of the user's. */
static int refuse_more(const struct sluice_comm *comm)
{
    uint32_t count = comm->calls.active_count - (sl_speeds_in_flight(comm) ? 1 : 0);

    if (count < comm->config.inflight_max)
        return 0;
    return sl_fail(-EAGAIN,
                   "%u operations are in flight already; test and free some, or raise "
                   "SLUICE_INFLIGHT_MAX",
                   count);
}

static inline int begin_op(struct sluice_comm *comm, struct sl_plan *plan, const void *in,
                           void *out, struct sluice_req **out_op)
{
    struct sluice_req *op;
    int err = sl_op_get(comm, plan, &op);

    if (err != 0)
        return err;
    comm->calls.active_count++;
    bind(op, in, out);
    if (SL_UNLIKELY(plan->recalls))
        op->recalled = sl_recall_begin(comm, plan, in);
    number_call(op);
    sl_status_call_begins(op);
    take_tickets(op);
    if (SL_UNLIKELY(plan->coding != NULL))
        sl_coding_begins(op);
    /* Listed only if it is not over at once: earlier operations have had their turn by then. */
    if (SL_LIKELY(sl_list_empty(&comm->calls.active))) {
        if (SL_UNLIKELY((++plan->calls & plan->sample_mask) == 1))
            op->began_ns = sl_now(comm->worker->clock);
        sl_op_run(op);
    }
    if (op->status == SL_PENDING) {
        if (SL_LIKELY(sl_list_empty(&comm->calls.active)))
            sl_comm_begin_waiting(comm);
        sl_list_push_back(&comm->calls.active, &op->link);
    }
    *out_op = op;
    return 0;
}

int sl_op_begin(struct sluice_comm *comm, struct sl_plan *plan, const void *in, void *out,
                struct sluice_req **out_op)
{
    return begin_op(comm, plan, in, out, out_op);
}

int sl_op_start(struct sluice_comm *comm, struct sl_plan *plan, const void *in, void *out,
                struct sluice_req **out_op)
{
    if (SL_UNLIKELY(comm->calls.active_count >= comm->config.inflight_max)) {
        int err = refuse_more(comm);

        if (err != 0)
            return err;
    }
    return begin_op(comm, plan, in, out, out_op);
}

void sl_op_end(struct sluice_req *op, int status)
{
    end_op(op, status);
}

bool sl_op_lacks(const struct sluice_req *op, uint32_t rank)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_schedule *s = &plan->schedule;
    bool is_member = false;

    for (uint32_t i = 0; i < s->group_count; i++)
        is_member |= s->group[i] == rank;
    for (uint32_t c = 0; is_member && s->win_values != 0 && c < s->channel_count; c++) {
        if (op->next[c] == plan->channel_first[c + 1])
            continue;
        const struct sl_turn *turn = &plan->turns[op->next[c]];

        if (turn->windows && sl_step_lacks(op, &s->steps[turn->step], rank))
            return true;
    }
    return false;
}

bool sl_op_receives(const struct sluice_req *op, uint32_t rank)
{
    for (uint32_t i = 0; i < op->plan->post_count; i++)
        if (op->posts[i].posted && op->posts[i].step->peer == rank &&
            sl_step_row(op->posts[i].step)->message == SL_RECEIVES)
            return true;
    return false;
}

static bool has_failed(const struct sl_post *post)
{
    return post->req.status != 0 && post->req.status != SL_PENDING;
}

/* A step of its own that a runner has: until that ends this rank keeps others waiting. */
static bool waits_for_runner(const struct sluice_req *op, struct sl_waiting *out)
{
    const struct sl_plan *plan = op->plan;

    for (uint32_t i = 0; op->at_work != 0 && i < plan->job_count; i++) {
        const struct sl_step *step = op->jobs[i].step;

        if (!op->jobs[i].busy)
            continue;
        *out = (struct sl_waiting){(int32_t)op->comm->rank, (uint32_t)(step - plan->schedule.steps),
                                   step, plan->runners[step->runner - 1]->ops->name};
        return true;
    }
    return false;
}

void sl_op_waiting(const struct sluice_req *op, struct sl_waiting *out)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_step *steps = plan->schedule.steps;
    const struct sl_step *sending = NULL;

    *out = (struct sl_waiting){.rank = -1};
    if (waits_for_runner(op, out))
        return;
    /* A receive says most: its peer has not sent. A send that is stuck is second. */
    for (uint32_t i = 0; i < plan->post_count; i++) {
        const struct sl_post *post = &op->posts[i];

        if (!post->posted && !has_failed(post))
            continue;
        if (sl_step_row(post->step)->message == SL_SENDS) {
            sending = sending != NULL ? sending : post->step;
            continue;
        }
        *out = (struct sl_waiting){(int32_t)post->step->peer, (uint32_t)(post->step - steps),
                                   post->step, NULL};
        return;
    }
    if (sending != NULL) {
        *out = (struct sl_waiting){(int32_t)sending->peer, (uint32_t)(sending - steps), sending};
        return;
    }
    for (uint32_t c = 0; c < plan->schedule.channel_count; c++) {
        if (op->next[c] == plan->channel_first[c + 1])
            continue;
        const struct sl_turn *turn = &plan->turns[op->next[c]];
        const struct sl_step *step = &steps[turn->step];
        int32_t rank = sl_step_row(step)->message != SL_NO_MESSAGE ? (int32_t)step->peer : -1;

        if (plan->schedule.win_values != 0 && turn->windows)
            rank = sl_step_awaited_rank(op, step);
        if (out->what == NULL || rank >= 0) /* a local step waits for another channel's message */
            *out = (struct sl_waiting){rank, (uint32_t)(step - steps), step};
        if (rank >= 0)
            return;
    }
}
