/* SPDX-License-Identifier: Apache-2.0 */
/* The faults of a run, when their round comes, and their end. */
#include "tests/sim/verbs_swarm.h"

#include "tests/fake/fake_ibv_inside.h"
#include "tests/sim/mp_judge.h"

#include <errno.h>

#define QPS_MAX 512

#define LOSE_NS (20 * SL_NS_PER_MS) /* between the losses of either end of a sideband, at most */

static struct ibv_qp *any_qp(struct vs_run *run, uint32_t pick)
{
    struct ibv_qp *qps[QPS_MAX], *chosen = NULL;
    unsigned count = fake_ibv_qps(run->fake, qps, QPS_MAX), seen = 0;

    for (unsigned i = 0; i < count && i < QPS_MAX; i++) {
        struct fake_ibv_qp_info info;

        fake_ibv_qp_info(run->fake, qps[i], &info);
        if (info.state == IBV_QPS_RTS && pick % ++seen == 0)
            chosen = qps[i];
    }
    return chosen;
}

static unsigned device_of(const struct vs_run *run, uint32_t pick)
{
    return pick % (run->rails[0] + run->rails[1]);
}

/* Of the two ways between a port of either side, one loses all (way 1, 2) or answers (3, 4); 0:
 * both lose all. */
static void lose(struct vs_run *run, unsigned rail_a, unsigned rail_b, unsigned way, bool lost)
{
    unsigned what = !lost ? 0 : way < 3 ? FAKE_IBV_LOSE_ALL : FAKE_IBV_LOSE_ANSWERS;

    if (way == 0 || way % 2 == 1)
        fake_ibv_lose(run->fake, rail_a, 1, run->rails[0] + rail_b, 1, what);
    if (way % 2 == 0)
        fake_ibv_lose(run->fake, run->rails[0] + rail_b, 1, rail_a, 1, what);
}

static void lose_all(struct vs_run *run, unsigned way, bool lost)
{
    for (unsigned a = 0; a < run->rails[0]; a++)
        for (unsigned b = 0; b < run->rails[1]; b++)
            lose(run, a, b, way, lost);
}

static struct ibv_cq *cq_of(struct vs_run *run, uint32_t pick)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(run->traffic.iface[pick % 2]);

    return iface->rails[pick / 2 % iface->mp.rail_count].cq;
}

/* Of a rail whose device is away there is none. */
static void hold(struct vs_run *run, uint32_t pick, bool held)
{
    struct ibv_cq *cq = cq_of(run, pick);

    if (cq != NULL)
        fake_ibv_cq_hold(run->fake, cq, held);
}

static void lose_some(struct vs_run *run, const struct vs_fault *fault, bool lost)
{
    unsigned way = fault->kind == VS_BLOCK ? 0 : 1 + (fault->pick >> 16) % 4;

    if (fault->pick2 % 4 == 0 || run->mode == VS_TCP)
        lose_all(run, way, lost);
    else
        lose(run, fault->pick % run->rails[0], fault->pick2 % run->rails[1], way, lost);
}

static void cut(struct vs_run *run, const struct vs_fault *fault)
{
    struct ibv_qp *qp = any_qp(run, fault->pick);

    if (qp == NULL)
        return;
    switch (fault->kind) {
    case VS_KILL: fake_ibv_kill(run->fake, qp, FAKE_IBV_ANY, FAKE_IBV_ANY, FAKE_IBV_ANY); break;
    case VS_CUT: fake_ibv_cut(run->fake, qp, true); break;
    case VS_CUT_ONE_WAY: fake_ibv_cut_outgoing(run->fake, qp, true); break;
    default: fake_ibv_qp_fatal(run->fake, qp); break;
    }
}

static void gid_move(struct vs_run *run, const struct vs_fault *fault)
{
    unsigned device = device_of(run, fault->pick), from = fault->pick2 % 4,
             to = 4 + fault->pick2 % 8;
    const struct fake_device *at = run->fake->devices[device];

    /* From the places that a port starts with to those after them. */
    if (fake_gid_at(at, 1, from) != NULL && fake_gid_at(at, 1, to) == NULL)
        fake_ibv_gid_move(run->fake, device, 1, from, to);
}

static void leave(struct vs_run *run, unsigned side)
{
    for (unsigned c = 0; c < run->traffic.conn_count; c++) {
        struct sl_ep *ep = run->traffic.conns[c].ep[side];

        run->traffic.conns[c].left[side] = true;
        run->traffic.conns[c].ep[side] = NULL;
        run->traffic.ops.ep_destroy(ep);
    }
}

static void begin(struct vs_run *run, struct vs_fault *fault)
{
    static const enum fake_ibv_call calls[] = {FAKE_IBV_CREATE_QP, FAKE_IBV_MODIFY_QP,
                                               FAKE_IBV_POST_SEND, FAKE_IBV_QUERY_PORT,
                                               FAKE_IBV_QUERY_GID, FAKE_IBV_REQ_NOTIFY};
    static const int losses[] = {-ETIMEDOUT, -ECONNRESET, -EPIPE};
    unsigned end = fault->pick % (2 * run->traffic.conn_count);

    fault->on = true;
    fault->until_ns = loop_now(run->loop) + fault->for_ns;
    switch (fault->kind) {
    case VS_KILL:
    case VS_CUT:
    case VS_CUT_ONE_WAY:
    case VS_QP_FATAL: cut(run, fault); break;
    case VS_BLOCK:
    case VS_ONE_WAY: lose_some(run, fault, true); break;
    case VS_FLAP:
        fake_ibv_port_set(run->fake, device_of(run, fault->pick), 1, IBV_PORT_DOWN);
        break;
    case VS_GID_MOVE: gid_move(run, fault); break;
    case VS_HOLD:
        run->held = true;
        hold(run, fault->pick, true);
        break;
    case VS_CALL:
        fake_ibv_fail(run->fake, calls[fault->pick % SL_ARRAY_LEN(calls)], 1 + fault->pick2 % 5,
                      fault->error);
        break;
    case VS_STALL: loop_stall(run->loop, end, fault->for_ns); break;
    case VS_PAUSE: run->paused_until[fault->pick % 2] = fault->until_ns; break;
    case VS_LOSE:
        /* Where paths stay away it does, too: only pings tell that they have died. */
        run->traffic.conns[end / 2].lost = run->mode == VS_AWAY;
        loop_redials(run->loop, run->mode == VS_AWAY ? 1 : 3);
        loop_lose(run->loop, end, losses[fault->pick2 % 3], fault->for_ns % LOSE_NS);
        break;
    case VS_DEVICE_FATAL: fake_ibv_device_fatal(run->fake, device_of(run, fault->pick)); break;
    case VS_DEVICE_REMOVE: fake_ibv_device_remove(run->fake, device_of(run, fault->pick)); break;
    case VS_LEAVES: leave(run, fault->pick % 2); break;
    case VS_FAULT_KINDS: break;
    }
}

static void end(struct vs_run *run, struct vs_fault *fault)
{
    fault->over = true;
    switch (fault->kind) {
    case VS_BLOCK:
    case VS_ONE_WAY: lose_some(run, fault, false); break;
    case VS_FLAP:
        fake_ibv_port_set(run->fake, device_of(run, fault->pick), 1, IBV_PORT_ACTIVE);
        break;
    case VS_HOLD: hold(run, fault->pick, false); break;
    case VS_DEVICE_FATAL:
    case VS_DEVICE_REMOVE: fake_ibv_device_return(run->fake, device_of(run, fault->pick)); break;
    default: break; /* of an instant, or until the calm */
    }
}

static void cuts_end(struct vs_run *run)
{
    struct ibv_qp *qps[QPS_MAX];
    unsigned count = fake_ibv_qps(run->fake, qps, QPS_MAX);

    for (unsigned i = 0; i < count && i < QPS_MAX; i++)
        fake_ibv_cut(run->fake, qps[i], false);
}

bool vs_paths_stay_away(const struct vs_run *run)
{
    return run->mode == VS_AWAY || (run->mode == VS_TCP && run->seed % 2 == 0);
}

static void calm(struct vs_run *run)
{
    static const struct fake_ibv_chaos none;

    run->calm = true;
    run->calm_ns = loop_now(run->loop);
    fake_ibv_chaos(run->fake, &none);
    fake_ibv_repeats(run->fake, 0);
    fake_ibv_mixes(run->fake, 0);
    for (unsigned i = 0; i < run->fault_count; i++)
        if (run->faults[i].on && !run->faults[i].over)
            end(run, &run->faults[i]);
    for (unsigned call = 0; call <= FAKE_IBV_CALL_COUNT; call++)
        fake_ibv_fail(run->fake, call, 0, 0);
    cuts_end(run);
    for (unsigned device = 0; device < run->rails[0] + run->rails[1]; device++)
        fake_ibv_port_set(run->fake, device, 1, IBV_PORT_ACTIVE);
    lose_all(run, 0, false);
    if (vs_paths_stay_away(run)) {
        lose_all(run, run->away, true);
        mp_ups_note(&run->traffic);
    }
    /* Who has nothing to send does not notice a cut; a port that is down it does. */
    for (unsigned rail = 0; rail < run->rails[0] && run->mode == VS_AWAY && run->goes_down; rail++)
        fake_ibv_port_set(run->fake, rail, 1, IBV_PORT_DOWN);
    run->paused_until[0] = run->paused_until[1] = 0;
}

void vs_faults_round(struct vs_run *run)
{
    uint64_t now_ns = loop_now(run->loop);

    if (run->calm)
        return;
    fake_ibv_repeats(run->fake, run->repeats);
    fake_ibv_mixes(run->fake, run->mixes);
    for (unsigned i = 0; i < run->fault_count; i++) {
        struct vs_fault *fault = &run->faults[i];

        if (!fault->on && fault->at_round <= run->round)
            begin(run, fault);
        else if (fault->on && !fault->over && now_ns >= fault->until_ns)
            end(run, fault);
    }
    if (run->round >= run->calm_round)
        calm(run);
}

void vs_faults_end(struct vs_run *run)
{
    if (!run->calm)
        calm(run);
}
