/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of paths and queue pairs of the fake libibverbs, asked for or drawn from the seed. */
#include "tests/fake/fake_ibv_inside.h"

void fake_ibv_cut_outgoing(struct fake_ibv *fake, struct ibv_qp *qp, bool cut)
{
    FAKE_ALONE;
    FAKE_OF(fake_qp, qp)->cut = cut;
}

void fake_ibv_cut(struct fake_ibv *fake, struct ibv_qp *ibv, bool cut)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv), *partner = fake_qp_partner(qp);

    qp->cut = cut;
    if (partner != NULL && fake_qp_partner(partner) == qp)
        partner->cut = cut;
}

static uint64_t drawn(struct fake_ibv *fake, uint32_t wanted, uint64_t max)
{
    if (wanted == FAKE_IBV_ANY)
        return sl_rng_below(&fake->rng, max + 1);
    return wanted < max ? wanted : max;
}

/* Packets of the first `count` requests that nobody executed go on their own way. */
static void leave_late(struct fake_qp *qp, uint64_t count)
{
    struct fake_late **at = &qp->obj.dev->fake->late;
    struct fake_qp *peer = fake_qp_partner(qp);
    uint32_t psn = qp->sq_psn;

    while (*at != NULL)
        at = &(*at)->next;
    for (uint64_t i = 0; i < count && peer != NULL; i++) {
        *at = fake_wire_snapshot(qp, peer, qp->exec + i, psn);
        if (*at == NULL)
            return;
        at = &(*at)->next;
        psn = (psn + fake_packets(qp, fake_wqe_at(qp, qp->exec + i)->len)) & 0xffffff;
    }
}

void fake_ibv_kill(struct fake_ibv *fake, struct ibv_qp *ibv, uint32_t executed_wanted,
                   uint32_t acked_wanted, uint32_t late)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    uint64_t until;

    if (qp->state != IBV_QPS_RTS) {
        fake_ibv_cut(fake, ibv, true);
        return;
    }
    until = qp->exec + drawn(fake, executed_wanted, qp->tail - qp->exec);
    qp->rnr_until = 0;
    while (qp->exec < until && fake_wire_execute(qp))
        if (qp->rnr_until > fake->now)
            break;
    until = qp->ack + drawn(fake, acked_wanted, qp->exec - qp->ack);
    while (qp->ack < until && fake_wire_ack(qp))
        ;
    if (qp->state == IBV_QPS_RTS && !qp->stopped)
        leave_late(qp, drawn(fake, late, qp->tail - qp->exec));
    fake_ibv_cut(fake, ibv, true);
    if (qp->state == IBV_QPS_RTS)
        fake_wire_fail(qp, IBV_WC_RETRY_EXC_ERR);
}

unsigned fake_ibv_late_count(const struct fake_ibv *fake)
{
    FAKE_ALONE;
    unsigned count = 0;

    for (const struct fake_late *late = fake->late; late != NULL; late = late->next)
        count++;
    return count;
}

void fake_ibv_qp_fatal(struct fake_ibv *fake, struct ibv_qp *ibv)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);

    fake_event_raise(FAKE_OF(fake_context, ibv->context), IBV_EVENT_QP_FATAL, &qp->obj, 0);
    fake_qp_error(qp);
}

void fake_ibv_chaos(struct fake_ibv *fake, const struct fake_ibv_chaos *chaos)
{
    FAKE_ALONE;
    fake->chaos = *chaos;
}

/* One of the queue pairs that are connected; NULL: there is none. */
static struct fake_qp *any_qp(struct fake_ibv *fake)
{
    struct fake_qp *chosen = NULL;
    uint64_t seen = 0;

    for (unsigned d = 0; d < fake->device_count; d++)
        for (unsigned i = 0; i < fake->devices[d]->qp_count; i++) {
            struct fake_qp *qp = fake->devices[d]->qps[i];

            if (qp->obj.alive && !fake_obj_gone(&qp->obj) && qp->state == IBV_QPS_RTS &&
                sl_rng_below(&fake->rng, ++seen) == 0)
                chosen = qp;
        }
    return chosen;
}

static bool wait_add(struct fake_ibv *fake, struct fake_wait wait, unsigned steps)
{
    for (unsigned i = 0; i < FAKE_CHAOS_WAITS; i++)
        if (fake->waits[i].at == 0) {
            wait.at = fake->now + 1 + sl_rng_below(&fake->rng, steps == 0 ? 1 : steps);
            fake->waits[i] = wait;
            return true;
        }
    return false;
}

static void gid_wander(struct fake_ibv *fake, unsigned device, unsigned port)
{
    const struct fake_ibv_gid *gids = fake->devices[device]->params.ports[port - 1].gids;
    unsigned from = (unsigned)sl_rng_below(&fake->rng, FAKE_IBV_GIDS);
    unsigned to = (unsigned)sl_rng_below(&fake->rng, FAKE_IBV_GIDS);

    for (unsigned i = 0; i < FAKE_IBV_GIDS; i++, from = (from + 1) % FAKE_IBV_GIDS)
        if (fake_gid_at(fake->devices[device], port, from) != NULL)
            break;
    if (gids[from].gid.global.interface_id != 0 &&
        fake_gid_at(fake->devices[device], port, to) == NULL)
        fake_ibv_gid_move(fake, device, port, from, to);
}

void fake_chaos_step(struct fake_ibv *fake)
{
    const struct fake_ibv_chaos *chaos = &fake->chaos;
    struct fake_qp *qp;
    unsigned device, port;

    if (fake->device_count == 0)
        return;
    if (sl_rng_chance(&fake->rng, chaos->kill_in) && (qp = any_qp(fake)) != NULL)
        fake_ibv_kill(fake, &qp->ibv, FAKE_IBV_ANY, FAKE_IBV_ANY, FAKE_IBV_ANY);
    if (sl_rng_chance(&fake->rng, chaos->cut_in) && (qp = any_qp(fake)) != NULL && !qp->cut &&
        wait_add(fake, (struct fake_wait){.qp = qp}, chaos->cut_steps))
        fake_ibv_cut(fake, &qp->ibv, true);
    device = (unsigned)sl_rng_below(&fake->rng, fake->device_count);
    port = 1 + (unsigned)sl_rng_below(&fake->rng, fake->devices[device]->params.attr.phys_port_cnt);
    if (fake->devices[device]->fatal)
        return;
    if (sl_rng_chance(&fake->rng, chaos->flap_in) &&
        fake->devices[device]->params.ports[port - 1].attr.state == IBV_PORT_ACTIVE &&
        wait_add(fake, (struct fake_wait){.device = device, .port = port}, chaos->flap_steps))
        fake_ibv_port_set(fake, device, port, IBV_PORT_DOWN);
    if (sl_rng_chance(&fake->rng, chaos->gid_in))
        gid_wander(fake, device, port);
}
