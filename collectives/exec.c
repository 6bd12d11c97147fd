/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks schedules: starts steps in the order of their channels, when what they depend on is
 * complete and, for messages, when earlier operations have posted theirs to the same peer.
 *
 * A step function returns how its channel goes on: RAN (the step is started or over, take the
 * next), BLOCKED (try again on a later pass).
 */
#include "collectives/exec.h"

#include "collectives/calibrate.h"
#include "collectives/dispute.h"
#include "collectives/health.h"
#include "core/relax.h"

#include <string.h>

enum go { BLOCKED, RAN };

/* How often an AWAIT looks before it lets others progress. A look costs a few ns while the line has
 * not changed, so this is less than a microsecond. */
#define AWAIT_LOOKS 64

/* Of all collectives up to this one. */
static inline uint32_t run_of(const struct sluice_req *op)
{
    return (uint32_t)op->tag;
}

/* The line of the slot so many operations later is asked for ahead, where ranks run ahead of each
 * other. Its readers are through with it; a store that first has to take it from them would hold up
 * all later ones. */
#define POSTS_AHEAD 4

static inline uint8_t *at(const struct sluice_req *op, uint8_t buf, uint64_t off)
{
    return op->base[buf] + off * op->plan->esize;
}

static inline void step_over(struct sluice_req *op, uint32_t index)
{
    if (op->done != NULL)
        op->done[index] = 1;
}

static void step_failed(struct sluice_req *op, const struct sl_post *post, int status)
{
    sl_health_step_failed(op, post->step, &post->req, status);
}

static void post_done(struct sl_req *req)
{
    struct sl_post *post = sl_container_of(req, struct sl_post, req);
    struct sluice_req *op = post->op;

    post->posted = false;
    /* A failed step stays in flight: its operation must not end well while the ranks still find out
     * who is to blame. */
    if (SL_UNLIKELY(req->status != 0)) {
        step_failed(op, post, req->status);
        return;
    }
    op->in_flight--;
    op->bytes += post->step->count * op->plan->esize;
    step_over(op, (uint32_t)(post->step - op->plan->schedule.steps));
}

/* The reduction of a message that arrives: straight from where the transport has it. */
static void reduce_arrived(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    const struct sl_post *post = sl_container_of(sink, const struct sl_post, sink);
    const struct sluice_req *op = post->op;
    const struct sl_plan *plan = op->plan;
    const struct sl_step *step = post->step;
    uint8_t *dst = at(op, step->dst_buf, step->dst_off) + off;
    const uint8_t *own = at(op, step->src_buf, step->src_off) + off;
    bool remote_first = (step->flags & SL_STEP_REMOTE_FIRST) != 0;
    const void *srcs[2] = {remote_first ? bytes : own, remote_first ? own : bytes};
    uint32_t divisor = (step->flags & SL_STEP_FINAL) != 0 ? plan->divisor : 1;

    plan->reduce(dst, NULL, srcs, 2, len / plan->esize, divisor);
}

/* After a post was taken: serves the next operation once this one has posted all to that peer. */
static void post_taken(struct sluice_req *op, uint32_t use, uint64_t *serving)
{
    if (--op->use_left[use] == 0)
        ++*serving;
}

static enum go finish_post(struct sluice_req *op, struct sl_post *post, uint32_t index, int result)
{
    if (result == 1) {
        op->bytes += post->step->count * op->plan->esize;
        step_over(op, index);
    } else {
        post->posted = true;
        op->in_flight++;
    }
    return RAN;
}

static enum go run_send(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    const struct sl_plan *plan = op->plan;
    uint32_t number = plan->post_of[index], use = plan->use_of[number];
    struct sl_post *post = &op->posts[number];
    struct sl_peer *peer = sl_comm_peer(op->comm, step->peer);
    struct sl_buf buf = {at(op, step->src_buf, step->src_off), step->count * plan->esize, NULL};

    if (peer->send_serving != op->tickets[use] || op->comm->health.error != 0)
        return BLOCKED;
    post->req = (struct sl_req){.status = SL_PENDING, .done = post_done};
    int result = peer->ep->iface->ops->send(peer->ep, &buf, op->tag, &post->req);

    if (result == -EAGAIN)
        return BLOCKED;
    if (result < 0) {
        step_failed(op, post, result);
        return BLOCKED;
    }
    post_taken(op, use, &peer->send_serving);
    return finish_post(op, post, index, result);
}

static enum go run_recv(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    const struct sl_plan *plan = op->plan;
    uint32_t number = plan->post_of[index], use = plan->use_of[number];
    struct sl_post *post = &op->posts[number];
    struct sl_peer *peer = sl_comm_peer(op->comm, step->peer);
    bool reduces = step->kind == SL_STEP_RECV_REDUCE;

    if (peer->recv_serving != op->tickets[use] || op->comm->health.error != 0)
        return BLOCKED;
    post->req = (struct sl_req){.status = SL_PENDING, .done = post_done};
    post->sink = (struct sl_sink){
        .dst = reduces ? NULL : at(op, step->dst_buf, step->dst_off),
        .len = step->count * plan->esize,
        .tag = op->tag,
        .granule = plan->esize,
        .consume = reduces ? reduce_arrived : NULL,
    };
    int result = peer->ep->iface->ops->recv(peer->ep, &post->sink, &post->req);

    if (result == -EAGAIN)
        return BLOCKED;
    if (result < 0) {
        step_failed(op, post, result);
        return BLOCKED;
    }
    post_taken(op, use, &peer->recv_serving);
    return finish_post(op, post, index, result);
}

static enum go run_copy(struct sluice_req *op, const struct sl_step *step)
{
    const struct sl_plan *plan = op->plan;
    uint8_t *dst = at(op, step->dst_buf, step->dst_off);
    const uint8_t *src = at(op, step->src_buf, step->src_off);
    size_t len = step->count * plan->esize;

    if (dst != src && len != 0)
        (step->dst_buf == SL_BUF_OUT ? plan->copy_out : plan->copy)(dst, src, len);
    op->bytes += len;
    return RAN;
}

static enum go run_reduce(struct sluice_req *op, const struct sl_step *step)
{
    const struct sl_plan *plan = op->plan;
    uint8_t *dst = at(op, step->dst_buf, step->dst_off);
    const uint8_t *src = at(op, step->src_buf, step->src_off);
    bool src_first = (step->flags & SL_STEP_REMOTE_FIRST) != 0;
    const void *srcs[2] = {src_first ? src : dst, src_first ? dst : src};
    uint32_t divisor = (step->flags & SL_STEP_FINAL) != 0 ? plan->divisor : 1;

    plan->reduce(dst, NULL, srcs, 2, step->count, divisor);
    return RAN;
}

/* ---- windows ---- */

static inline uint64_t past_base(const struct sluice_comm *comm, uint64_t ticket)
{
    return comm->win.past[ticket % SL_WIN_SLOTS].base;
}

/*
 * Whether others must have begun an earlier operation before this one, whose turn it is, may write:
 * those after the ones that its slot and its area held before. Not just these are waited for, but
 * half of the slots or short areas more: so a rank that is ahead looks at the others' windows
 * seldom, and leaves them their lines in between.
 */
static bool must_await(const struct sluice_comm *comm, const struct sluice_req *op,
                       uint64_t *ticket)
{
    uint64_t own = op->win_ticket, free = own >= SL_WIN_SLOTS ? own - SL_WIN_SLOTS + 2 : 0;
    uint64_t ahead = SL_WIN_SLOTS / 2;

    if (op->area != SL_WIN_NO_AREA) {
        free = comm->win.free[op->area] > free ? comm->win.free[op->area] : free;
        ahead = SL_WIN_SHORTS / 2;
    }
    if (free <= comm->win.begun)
        return false;
    *ticket = own > ahead && own - ahead > free - 1 ? own - ahead : free - 1;
    return true;
}

/* Whether the word was published in an earlier operation, and not in one that had its slot
 * afterwards. */
static bool is_of(const struct sluice_comm *comm, uint64_t word, uint64_t ticket)
{
    uint64_t base = past_base(comm, ticket), next = past_base(comm, ticket + 1);

    return sl_win_passed(word, base + SL_WIN_UNIT) && sl_win_passed(next | SL_WIN_TAG_MASK, word);
}

static bool tag_differs(const struct sluice_comm *comm, uint64_t word, uint64_t ticket)
{
    uint64_t mine = sl_win_word(&comm->win.slots[ticket % SL_WIN_SLOTS]);

    return ((word ^ mine) & SL_WIN_TAG_MASK) != 0;
}

static bool has_begun(struct sluice_comm *comm, struct sl_peer *peer, uint64_t ticket)
{
    uint64_t word;

    if (sl_win_passed(peer->seen, past_base(comm, ticket) + SL_WIN_UNIT))
        return true;
    word = sl_win_word(&peer->slots[ticket % SL_WIN_SLOTS]);
    if (!sl_win_passed(word, past_base(comm, ticket) + SL_WIN_UNIT))
        return false;
    peer->seen = word;
    /* Operations since may have needed nothing of this peer: whether they were the same shows
     * here. */
    if (SL_UNLIKELY(is_of(comm, word, ticket) && tag_differs(comm, word, ticket)))
        sl_dispute_open(comm, comm->win.past[ticket % SL_WIN_SLOTS].seq);
    return true;
}

/* The operation's turn at the windows: earlier operations of this rank are through, and its slot
 * and area are free. */
static bool enter_windows(struct sluice_req *op)
{
    struct sluice_comm *comm = op->comm;
    const struct sl_schedule *s = &op->plan->schedule;
    uint64_t ticket;

    if (comm->win.serving != op->win_ticket)
        return false;
    comm->win.past[op->slot].base = op->win_base;
    comm->win.past[op->slot].seq = op->seq;
    if (SL_UNLIKELY(must_await(comm, op, &ticket))) {
        for (uint32_t i = 0; i < s->group_count; i++)
            if (s->group[i] != comm->rank &&
                !has_begun(comm, sl_comm_peer(comm, s->group[i]), ticket))
                return false;
        comm->win.begun = ticket + 1;
    }
    if (op->area != SL_WIN_NO_AREA)
        comm->win.free[op->area] = op->win_ticket + 2;
    op->in_windows = true;
    return true;
}

static enum go run_post(struct sluice_req *op, const struct sl_step *step)
{
    struct sluice_comm *comm = op->comm;
    const struct sl_schedule *s = &op->plan->schedule;

    sl_win_publish(&comm->win.slots[op->slot], op->win_base + step->value * SL_WIN_UNIT,
                   sl_win_tag(run_of(op)));
    if (op->plan->win_ahead)
        sl_prefetch_write(&comm->win.slots[(op->slot + POSTS_AHEAD) % SL_WIN_SLOTS]);
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->group[i] != comm->rank)
            sl_ep_wake(sl_comm_peer(comm, s->group[i])->ep);
    return RAN;
}

static inline bool reached(struct sluice_req *op, uint32_t rank, uint64_t target)
{
    struct sl_peer *peer = sl_comm_peer(op->comm, rank);

    if (sl_win_passed(peer->seen, target))
        return true;
    uint64_t word = sl_win_word(&peer->slots[op->slot]);

    if (!sl_win_passed(word, target))
        return false;
    peer->seen = word;
    if (SL_UNLIKELY((word & SL_WIN_TAG_MASK) != sl_win_tag(run_of(op))))
        sl_dispute_open(op->comm, op->seq);
    return true;
}

static bool group_reached(struct sluice_req *op, uint64_t target)
{
    const struct sl_schedule *s = &op->plan->schedule;

    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->group[i] != op->comm->rank && !reached(op, s->group[i], target))
            return false;
    op->comm->win.begun = op->win_ticket + 1;
    return true;
}

static enum go run_await(struct sluice_req *op, const struct sl_step *step)
{
    uint64_t target = op->win_base + step->value * SL_WIN_UNIT;
    unsigned looks = op->comm->wait.oversubscribed ? 1 : AWAIT_LOOKS;

    do {
        if (step->peer == SL_PEER_GROUP ? group_reached(op, target)
                                        : reached(op, step->peer, target))
            return op->comm->health.mismatch_ns == 0 ? RAN : BLOCKED;
        sl_cpu_relax();
    } while (--looks != 0);
    return BLOCKED;
}

/* What another rank shows in this operation. */
static inline const uint8_t *in_window(const struct sluice_req *op, uint32_t rank, uint64_t off)
{
    return (const uint8_t *)sl_comm_peer(op->comm, rank)->slots + op->win_at + off;
}

static enum go run_reduce_win(struct sluice_req *op, const struct sl_step *step)
{
    struct sluice_comm *comm = op->comm;
    const struct sl_plan *plan = op->plan;
    const struct sl_schedule *s = &plan->schedule;
    uint64_t win = step->win_off * plan->esize;
    uint8_t *own_win = (step->flags & SL_STEP_TO_WIN) != 0 ? op->base[SL_BUF_WIN] + win : NULL;
    uint32_t divisor = (step->flags & SL_STEP_FINAL) != 0 ? plan->divisor : 1;

    for (uint32_t i = 0; i < s->group_count; i++)
        op->srcs[i] = s->group[i] == comm->rank ? at(op, step->src_buf, step->src_off)
                                                : in_window(op, s->group[i], win);
    if (step->dst_buf == SL_BUF_NONE)
        plan->reduce(own_win, NULL, op->srcs, s->group_count, step->count, divisor);
    else
        (step->dst_buf == SL_BUF_OUT ? plan->reduce_out : plan->reduce)(
            at(op, step->dst_buf, step->dst_off), own_win, op->srcs, s->group_count, step->count,
            divisor);
    op->bytes += step->count * plan->esize;
    return RAN;
}

static enum go run_get(struct sluice_req *op, const struct sl_step *step)
{
    const struct sl_plan *plan = op->plan;
    const uint8_t *src = in_window(op, step->peer, step->win_off * plan->esize);
    size_t len = step->count * plan->esize;

    if (len != 0)
        (step->dst_buf == SL_BUF_OUT ? plan->copy_out
                                     : plan->copy)(at(op, step->dst_buf, step->dst_off), src, len);
    op->bytes += len;
    return RAN;
}

static inline bool uses_windows(const struct sl_step *step)
{
    return step->kind >= SL_STEP_POST ||
           (step->kind == SL_STEP_COPY &&
            (step->dst_buf == SL_BUF_WIN || step->src_buf == SL_BUF_WIN)) ||
           step->src_buf == SL_BUF_WIN || step->dst_buf == SL_BUF_WIN;
}

static enum go run_step(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    if (SL_UNLIKELY(!op->in_windows) && uses_windows(step) && !enter_windows(op))
        return BLOCKED;
    switch ((enum sl_step_kind)step->kind) {
    case SL_STEP_SEND: return run_send(op, step, index);
    case SL_STEP_RECV: return run_recv(op, step, index);
    case SL_STEP_RECV_REDUCE: return run_recv(op, step, index);
    case SL_STEP_COPY: return run_copy(op, step);
    case SL_STEP_REDUCE: return run_reduce(op, step);
    case SL_STEP_POST: return run_post(op, step);
    case SL_STEP_AWAIT: return run_await(op, step);
    case SL_STEP_REDUCE_WIN: return run_reduce_win(op, step);
    case SL_STEP_GET: return run_get(op, step);
    case SL_STEP_KIND_COUNT: break;
    }
    sl_assert_failed("a schedule has a step of unknown kind", __FILE__, __LINE__);
}

static inline bool deps_over(const struct sluice_req *op, const struct sl_step *step)
{
    const uint32_t *deps = op->plan->schedule.deps + step->dep_first;

    for (uint32_t i = step->dep_count; i-- != 0;)
        if (!op->done[deps[i]])
            return false;
    return true;
}

static inline bool is_message(const struct sl_step *step)
{
    return step->kind <= SL_STEP_RECV_REDUCE;
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
        uint32_t index = plan->order[next];
        const struct sl_step *step = &steps[index];

        if (step->dep_count != 0 && !deps_over(op, step))
            break;
        if (run_step(op, step, index) == BLOCKED)
            break;
        if (!is_message(step))
            step_over(op, index);
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

unsigned sl_op_run(struct sluice_req *op)
{
    uint32_t channels = op->plan->schedule.channel_count;
    unsigned ran = 0, pass;

    /* Once calls differ, the n-th send of a peer may meet another receive than it was meant for:
     * nothing that came since may go on to others. */
    if (op->status != SL_PENDING || op->comm->health.error != 0 ||
        op->comm->health.mismatch_ns != 0)
        return 0;
    do {
        pass = 0;
        for (uint32_t c = 0; c < channels; c++)
            pass += run_channel(op, c);
        ran += pass;
    } while (pass != 0 && op->open_channels != 0 && channels > 1);
    if (sl_op_is_over(op) && op->comm->health.error == 0)
        sl_op_end(op, 0);
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
        struct sl_peer *peer = sl_comm_peer(comm, use->peer);

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
        return;
    }
    op->seq = ++comm->calls.seq;
    comm->calls.run = sl_run_on(comm->calls.run, plan->fingerprint);
    op->tag = (uint64_t)(op->seq & 0x7fffffff) << 32 | comm->calls.run;
    comm->calls.history[op->seq % SL_HISTORY] = plan->signature;
    comm->calls.history[op->seq % SL_HISTORY].seq = op->seq;
    comm->calls.history[op->seq % SL_HISTORY].run = comm->calls.run;
}

static void bind(struct sluice_req *op, const void *in, void *out)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_schedule *s = &plan->schedule;

    op->status = SL_PENDING;
    op->given_back = op->in_windows = false;
    op->base[SL_BUF_IN] = (uint8_t *)(uintptr_t)in; /* never written: check.c proves it */
    op->base[SL_BUF_OUT] = out;
    op->base[SL_BUF_TMP] = op->tmp;
    op->in_flight = 0;
    op->bytes = 0;
    op->began_ns = 0;
    for (uint32_t c = 0; c < s->channel_count; c++)
        op->next[c] = plan->channel_first[c];
    op->open_channels = plan->open_channels;
    if (op->done != NULL)
        memset(op->done, 0, s->step_count);
}

int sl_op_start(struct sluice_comm *comm, struct sl_plan *plan, const void *in, void *out,
                struct sluice_req **out_op)
{
    struct sluice_req *op;

    if (comm->calls.active_count >= comm->config.inflight_max)
        return sl_fail(-EAGAIN,
                       "%u operations are in flight already; test and free some, or raise "
                       "SLUICE_INFLIGHT_MAX",
                       comm->calls.active_count);
    int err = sl_op_get(comm, plan, &op);

    if (err != 0)
        return err;
    comm->calls.active_count++;
    bind(op, in, out);
    number_call(op);
    take_tickets(op);
    /* Listed only if it is not over at once: earlier operations have had their turn by then. */
    if (SL_LIKELY(sl_list_empty(&comm->calls.active))) {
        if (SL_UNLIKELY((++plan->calls & plan->sample_mask) == 1))
            op->began_ns = sl_now(comm->worker.clock);
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

void sl_op_end(struct sluice_req *op, int status)
{
    struct sluice_comm *comm = op->comm;

    if (op->plan->schedule.win_values != 0 && status == 0)
        comm->win.serving++;
    sl_list_remove(&op->link);
    op->status = status;
    if (SL_UNLIKELY(op->began_ns != 0) && status == 0)
        sl_costs_sample(op);
    if (op->given_back) {
        comm->calls.active_count--;
        sl_op_put(op);
    }
}

/* What an operation that may not enter the windows yet awaits of the others. false: nothing, or not
 * its turn. */
static bool awaits_to_enter(const struct sluice_req *op, uint64_t *ticket)
{
    return op->comm->win.serving == op->win_ticket && must_await(op->comm, op, ticket);
}

static int32_t awaited_rank(const struct sluice_req *op, const struct sl_step *step)
{
    const struct sl_schedule *s = &op->plan->schedule;
    uint64_t target = op->win_base + step->value * SL_WIN_UNIT, ticket;

    if (!op->in_windows) {
        if (!awaits_to_enter(op, &ticket))
            return -1;
        target = past_base(op->comm, ticket) + SL_WIN_UNIT;
    } else if (step->kind != SL_STEP_AWAIT) {
        return -1;
    } else if (step->peer != SL_PEER_GROUP) {
        return (int32_t)step->peer;
    }
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->group[i] != op->comm->rank &&
            !sl_win_passed(op->comm->peers[s->group[i]].seen, target))
            return (int32_t)s->group[i];
    return -1;
}

static bool is_short(const struct sluice_req *op, uint32_t rank, uint64_t ticket, uint64_t target)
{
    struct sl_peer *peer = sl_comm_peer(op->comm, rank);

    return !sl_win_passed(peer->seen, target) &&
           !sl_win_passed(sl_win_word(&peer->slots[ticket % SL_WIN_SLOTS]), target);
}

static bool step_lacks(const struct sluice_req *op, const struct sl_step *step, uint32_t rank)
{
    uint64_t ticket;

    if (!op->in_windows)
        return awaits_to_enter(op, &ticket) &&
               is_short(op, rank, ticket, past_base(op->comm, ticket) + SL_WIN_UNIT);
    return step->kind == SL_STEP_AWAIT && (step->peer == SL_PEER_GROUP || step->peer == rank) &&
           is_short(op, rank, op->win_ticket, op->win_base + step->value * SL_WIN_UNIT);
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
        const struct sl_step *step = &s->steps[plan->order[op->next[c]]];

        if (uses_windows(step) && step_lacks(op, step, rank))
            return true;
    }
    return false;
}

static bool has_failed(const struct sl_post *post)
{
    return post->req.status != 0 && post->req.status != SL_PENDING;
}

void sl_op_waiting(const struct sluice_req *op, struct sl_waiting *out)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_step *steps = plan->schedule.steps;
    const struct sl_step *sending = NULL;

    *out = (struct sl_waiting){.rank = -1};
    /* A receive says most: its peer has not sent. A send that is stuck is second. */
    for (uint32_t i = 0; i < plan->post_count; i++) {
        const struct sl_post *post = &op->posts[i];

        if (!post->posted && !has_failed(post))
            continue;
        if (post->step->kind == SL_STEP_SEND) {
            sending = sending != NULL ? sending : post->step;
            continue;
        }
        *out = (struct sl_waiting){(int32_t)post->step->peer, (uint32_t)(post->step - steps),
                                   post->step};
        return;
    }
    if (sending != NULL) {
        *out = (struct sl_waiting){(int32_t)sending->peer, (uint32_t)(sending - steps), sending};
        return;
    }
    for (uint32_t c = 0; c < plan->schedule.channel_count; c++) {
        if (op->next[c] == plan->channel_first[c + 1])
            continue;
        const struct sl_step *step = &steps[plan->order[op->next[c]]];
        int32_t rank = is_message(step) ? (int32_t)step->peer : -1;

        if (plan->schedule.win_values != 0 && uses_windows(step))
            rank = awaited_rank(op, step);
        *out = (struct sl_waiting){rank, (uint32_t)(step - steps), step};
        return;
    }
}
