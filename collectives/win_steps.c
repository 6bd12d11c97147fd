/* SPDX-License-Identifier: Apache-2.0 */
/* The windows in an operation: its turn at them, the steps that touch them, whom these wait for. */
#include "collectives/steps.h"

#include "collectives/dispute.h"
#include "core/relax.h"

/* How often an AWAIT looks before it lets others progress. A look costs a few ns while the line has
 * not changed, so this is less than a microsecond. */
#define AWAIT_LOOKS 64

/* Of all collectives up to this one. */
static inline uint32_t sl_op_run_tag(const struct sluice_req *op)
{
    return (uint32_t)op->tag;
}

/* The line of the slot so many operations later is asked for ahead, where ranks run ahead of each
 * other. Its readers are through with it; a store that first has to take it from them would hold up
 * all later ones. */
#define POSTS_AHEAD 4

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

bool sl_op_enter_windows(struct sluice_req *op)
{
    struct sluice_comm *comm = op->comm;
    const struct sl_plan *plan = op->plan;
    uint64_t ticket;

    if (comm->win.serving != op->win_ticket)
        return false;
    comm->win.past[op->slot].base = op->win_base;
    comm->win.past[op->slot].seq = op->seq;
    if (SL_UNLIKELY(must_await(comm, op, &ticket))) {
        for (uint32_t i = 0; i < plan->schedule.group_count; i++)
            if (plan->group[i] != NULL && !has_begun(comm, plan->group[i], ticket))
                return false;
        comm->win.begun = ticket + 1;
    }
    if (op->area != SL_WIN_NO_AREA)
        comm->win.free[op->area] = op->win_ticket + 2;
    op->in_windows = true;
    return true;
}

enum sl_go sl_step_run_post(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    struct sluice_comm *comm = op->comm;
    const struct sl_plan *plan = op->plan;

    sl_win_publish(&comm->win.slots[op->slot], op->win_base + step->value * SL_WIN_UNIT,
                   sl_win_tag(sl_op_run_tag(op)));
    if (plan->win_ahead)
        sl_prefetch_write(&comm->win.slots[(op->slot + POSTS_AHEAD) % SL_WIN_SLOTS]);
    for (uint32_t i = 0; i < plan->schedule.group_count; i++)
        if (plan->group[i] != NULL)
            sl_ep_wake(plan->group[i]->ep);
    return SL_GO_OVER;
}

static inline bool reached(struct sluice_req *op, struct sl_peer *peer, uint64_t target)
{
    if (sl_win_passed(peer->seen, target))
        return true;
    uint64_t word = sl_win_word(&peer->slots[op->slot]);

    if (!sl_win_passed(word, target))
        return false;
    peer->seen = word;
    if (SL_UNLIKELY((word & SL_WIN_TAG_MASK) != sl_win_tag(sl_op_run_tag(op))))
        sl_dispute_open(op->comm, op->seq);
    return true;
}

static bool group_reached(struct sluice_req *op, uint64_t target)
{
    const struct sl_plan *plan = op->plan;

    for (uint32_t i = 0; i < plan->schedule.group_count; i++)
        if (plan->group[i] != NULL && !reached(op, plan->group[i], target))
            return false;
    op->comm->win.begun = op->win_ticket + 1;
    return true;
}

enum sl_go sl_step_run_await(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    uint64_t target = op->win_base + step->value * SL_WIN_UNIT;
    unsigned looks = op->comm->wait.oversubscribed ? 1 : AWAIT_LOOKS;

    do {
        if (step->peer == SL_PEER_GROUP ? group_reached(op, target)
                                        : reached(op, op->plan->peer_of[index], target))
            return op->comm->health.mismatch_ns == 0 ? SL_GO_OVER : SL_GO_BLOCKED;
        sl_cpu_relax();
    } while (--looks != 0);
    return SL_GO_BLOCKED;
}

/* What another rank shows in this operation. */
static inline const uint8_t *in_window(const struct sluice_req *op, const struct sl_peer *peer,
                                       uint64_t off)
{
    return (const uint8_t *)peer->slots + op->win_at + off;
}

static inline void reduce_windows(struct sluice_req *op, const struct sl_step *step, size_t count,
                                  sl_reduce_fn *reduce, uint32_t divisor)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_schedule *s = &plan->schedule;
    uint64_t win = step->win_off * plan->esize;
    uint8_t *own_win = (step->flags & SL_STEP_TO_WIN) != 0 ? op->base[SL_BUF_WIN] + win : NULL;
    uint8_t *dst = own_win, *also = NULL;

    for (uint32_t i = 0; i < s->group_count; i++)
        op->srcs[i] = plan->group[i] == NULL ? sl_op_at(op, step->src_buf, step->src_off)
                                             : in_window(op, plan->group[i], win);
    if (step->dst_buf != SL_BUF_NONE) {
        dst = sl_op_at(op, step->dst_buf, step->dst_off);
        also = own_win;
    }
    reduce(dst, also, op->srcs, s->group_count, count,
           (step->flags & SL_STEP_FINAL) != 0 ? divisor : 1);
    op->bytes += step->count * plan->esize;
}

enum sl_go sl_step_run_reduce_win(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    const struct sl_plan *plan = op->plan;

    reduce_windows(op, step, step->count,
                   step->dst_buf == SL_BUF_OUT ? plan->reduce_out : plan->reduce, plan->divisor);
    return SL_GO_OVER;
}

enum sl_go sl_step_run_reduce_win_term(struct sluice_req *op, const struct sl_step *step,
                                       uint32_t index)
{
    const struct sl_term_plan *term = sl_op_term(op, step);

    reduce_windows(op, step, step->count / term->esize, term->reduce, 1);
    return SL_GO_OVER;
}

enum sl_go sl_step_run_get(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    const struct sl_plan *plan = op->plan;
    const uint8_t *src = in_window(op, plan->peer_of[index], step->win_off * plan->esize);
    size_t len = step->count * plan->esize;

    if (len != 0)
        (step->dst_buf == SL_BUF_OUT ? plan->copy_out : plan->copy)(
            sl_op_at(op, step->dst_buf, step->dst_off), src, len);
    op->bytes += len;
    return SL_GO_OVER;
}

/* What an operation that may not enter the windows yet awaits of the others. false: nothing, or not
 * its turn. */
static bool awaits_to_enter(const struct sluice_req *op, uint64_t *ticket)
{
    return op->comm->win.serving == op->win_ticket && must_await(op->comm, op, ticket);
}

int32_t sl_step_awaited_rank(const struct sluice_req *op, const struct sl_step *step)
{
    const struct sl_schedule *s = &op->plan->schedule;
    uint64_t target = op->win_base + step->value * SL_WIN_UNIT, ticket;

    if (!op->in_windows) {
        if (!awaits_to_enter(op, &ticket))
            return -1;
        target = past_base(op->comm, ticket) + SL_WIN_UNIT;
    } else if (!sl_step_row(step)->waits) {
        return -1;
    } else if (step->peer != SL_PEER_GROUP) {
        return (int32_t)step->peer;
    }
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->group[i] != op->comm->rank &&
            !sl_win_passed(sl_comm_peer(op->comm, s->group[i])->seen, target))
            return (int32_t)s->group[i];
    return -1;
}

static bool is_short(const struct sluice_req *op, uint32_t rank, uint64_t ticket, uint64_t target)
{
    struct sl_peer *peer = sl_comm_peer(op->comm, rank);

    return !sl_win_passed(peer->seen, target) &&
           !sl_win_passed(sl_win_word(&peer->slots[ticket % SL_WIN_SLOTS]), target);
}

bool sl_step_lacks(const struct sluice_req *op, const struct sl_step *step, uint32_t rank)
{
    uint64_t ticket;

    if (!op->in_windows)
        return awaits_to_enter(op, &ticket) &&
               is_short(op, rank, ticket, past_base(op->comm, ticket) + SL_WIN_UNIT);
    return sl_step_row(step)->waits && (step->peer == SL_PEER_GROUP || step->peer == rank) &&
           is_short(op, rank, op->win_ticket, op->win_base + step->value * SL_WIN_UNIT);
}
