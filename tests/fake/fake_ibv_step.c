/* SPDX-License-Identifier: Apache-2.0 */
/* Time of the fake libibverbs: what happens in a step, timers, and faults of paths. */
#include "tests/fake/fake_ibv_inside.h"

#include <stdlib.h>

static bool works(const struct fake_qp *qp)
{
    return qp->obj.alive && !fake_obj_gone(&qp->obj) && !qp->obj.dev->fatal;
}

static bool has_work(const struct fake_qp *qp)
{
    switch (qp->state) {
    case IBV_QPS_RTS: return qp->ack != qp->tail;
    case IBV_QPS_SQD: return qp->ack != qp->exec || qp->drain_due;
    case IBV_QPS_ERR:
        return qp->ack != qp->tail || qp->rq.count != 0 || qp->has_ahead || qp->last_wqe_due;
    default: return false;
    }
}

static bool flush_one(struct fake_qp *qp)
{
    bool ahead = qp->has_ahead && qp->ahead_at <= qp->obj.dev->fake->now;
    bool sends = qp->ack != qp->tail, receives = qp->rq.count != 0 || ahead;

    if (sends && (!receives || sl_rng_chance(&qp->obj.dev->fake->rng, 2))) {
        fake_wire_flush(qp);
    } else if (ahead) {
        fake_respond_flush_taken(qp);
    } else if (receives) {
        fake_respond_flush(qp);
    } else if (qp->last_wqe_due && !qp->has_ahead && fake_cq_shows(qp->ibv.recv_cq, qp)) {
        qp->last_wqe_due = false;
        fake_event_raise(FAKE_OF(fake_context, qp->ibv.context), IBV_EVENT_QP_LAST_WQE_REACHED,
                         &qp->obj, 0);
    } else {
        return false;
    }
    return true;
}

/* One thing, whichever the seed prefers of those that can happen. */
static bool act(struct fake_qp *qp)
{
    bool moved;

    if (!has_work(qp))
        return false;
    if (qp->state == IBV_QPS_ERR)
        return flush_one(qp);
    if (qp->state == IBV_QPS_SQD && qp->ack == qp->exec) {
        qp->drain_due = false;
        fake_event_raise(FAKE_OF(fake_context, qp->ibv.context), IBV_EVENT_SQ_DRAINED, &qp->obj, 0);
        return true;
    }
    if (sl_rng_chance(&qp->obj.dev->fake->rng, 2))
        moved = fake_wire_ack(qp) || fake_wire_execute(qp);
    else
        moved = fake_wire_execute(qp) || fake_wire_ack(qp);
    if (moved) {
        qp->tries = 0;
        qp->retry_at = 0;
    }
    return moved;
}

/* Is somebody there who answers, if only "not ready"? */
static bool answered(struct fake_qp *qp)
{
    return qp->waits_for_receive && qp->ack == qp->exec && fake_wire_answers(qp);
}

static uint64_t next_try(const struct fake_ibv *fake, struct sl_rng *rng)
{
    uint64_t steps = fake->timeout_steps;

    if (fake->timeout_most > 1)
        steps += sl_rng_below(rng, (fake->timeout_most - 1) * steps + 1);
    return fake->now + steps;
}

/* A requester that hears nothing sends again, and gives up in the end. */
static bool timer(struct fake_qp *qp)
{
    struct fake_ibv *fake = qp->obj.dev->fake;

    if (qp->state != IBV_QPS_RTS || qp->ack == qp->tail || qp->attr.timeout == 0)
        return false;
    if (answered(qp)) {
        qp->retry_at = 0;
        qp->tries = 0;
        return false;
    }
    if (qp->retry_at == 0)
        qp->retry_at = next_try(fake, &fake->rng);
    if (fake->now < qp->retry_at)
        return false;
    qp->retry_at = next_try(fake, &fake->rng);
    if (++qp->tries <= qp->attr.retry_cnt)
        return false;
    fake_wire_fail(qp, IBV_WC_RETRY_EXC_ERR);
    return true;
}

static unsigned ready_list(struct fake_ibv *fake, struct fake_qp ***out)
{
    unsigned count = 0;
    struct fake_qp **list = malloc((fake->live[FAKE_IBV_QP] + 1) * sizeof(struct fake_qp *));

    if (list == NULL)
        abort();
    for (unsigned d = 0; d < fake->device_count; d++)
        for (unsigned i = 0; i < fake->devices[d]->qp_count; i++) {
            struct fake_qp *qp = fake->devices[d]->qps[i];

            if (works(qp) && has_work(qp))
                list[count++] = qp;
        }
    *out = list;
    return count;
}

static void waits_end(struct fake_ibv *fake)
{
    for (unsigned i = 0; i < FAKE_CHAOS_WAITS; i++) {
        struct fake_wait wait = fake->waits[i];

        if (wait.at == 0 || wait.at > fake->now)
            continue;
        fake->waits[i] = (struct fake_wait){0};
        if (wait.qp != NULL)
            fake_ibv_cut(fake, &wait.qp->ibv, false);
        else
            fake_ibv_port_set(fake, wait.device, wait.port, IBV_PORT_ACTIVE);
    }
}

unsigned fake_ibv_step(struct fake_ibv *fake)
{
    FAKE_ALONE;
    struct fake_qp **list;
    unsigned happened = 0, count, turns;

    fake->now++;
    waits_end(fake);
    fake_chaos_step(fake);
    for (struct fake_obj *obj = fake->all; obj != NULL; obj = obj->next)
        if (obj->kind == FAKE_IBV_CQ && obj->alive)
            fake_cq_reveal(obj->base);
        else if (obj->kind == FAKE_IBV_CONTEXT && obj->alive)
            fake_event_reveal(obj->base);
    if (fake->late != NULL && sl_rng_chance(&fake->rng, 3))
        happened += fake_late_arrive(fake);
    count = ready_list(fake, &list);
    turns = count == 0 ? 0 : 1 + (unsigned)sl_rng_below(&fake->rng, count);
    while (turns-- != 0)
        happened += act(list[sl_rng_below(&fake->rng, count)]);
    for (unsigned i = 0; i < count; i++)
        happened += timer(list[i]);
    free(list);
    return happened;
}

void fake_ibv_run(struct fake_ibv *fake, unsigned steps)
{
    FAKE_ALONE;
    while (steps-- != 0)
        fake_ibv_step(fake);
}

static bool busy(struct fake_ibv *fake)
{
    struct fake_qp **list;
    unsigned count = ready_list(fake, &list);
    bool any = fake->late != NULL;

    for (unsigned i = 0; i < count && !any; i++) {
        struct fake_qp *qp = list[i];
        bool silent = qp->state == IBV_QPS_RTS && qp->attr.timeout == 0;
        struct fake_qp *peer;

        if (qp->attr.rnr_retry == 7 && answered(qp) && !fake_has_receive(fake_qp_partner(qp)))
            continue; /* waits for its peer to post a receive */
        any = !silent || qp->ack != qp->exec || fake_wire_open(qp, &peer);
    }
    free(list);
    for (struct fake_obj *obj = fake->all; obj != NULL && !any; obj = obj->next)
        any = (obj->kind == FAKE_IBV_CQ && fake_cq_waits(obj->base)) ||
              (obj->kind == FAKE_IBV_CONTEXT && fake_event_waits(obj->base));
    for (unsigned i = 0; i < FAKE_CHAOS_WAITS && !any; i++)
        any = fake->waits[i].at != 0;
    return any;
}

bool fake_ibv_settle(struct fake_ibv *fake, unsigned steps)
{
    FAKE_ALONE;
    while (steps-- != 0) {
        if (!busy(fake))
            return true;
        fake_ibv_step(fake);
    }
    return !busy(fake);
}

void fake_ibv_timeout_most(struct fake_ibv *fake, unsigned most)
{
    FAKE_ALONE;
    fake->timeout_most = most;
}

void fake_ibv_retry_steps(struct fake_ibv *fake, unsigned timeout, unsigned rnr)
{
    FAKE_ALONE;
    fake->timeout_steps = timeout;
    fake->rnr_steps = rnr;
}
