/* SPDX-License-Identifier: Apache-2.0 */
/* The faults of a run, when their round comes, and their end. */
#include "tests/sim/mp_swarm.h"

#include "tests/sim/mp_judge.h"

#include <errno.h>

#define LOSE_NS (20 * SL_NS_PER_MS) /* between the losses of either end of a sideband, at most */

static void block(struct ms_run *run, const struct ms_fault *fault, enum lanes_lost what)
{
    unsigned a = fault->pick % run->side[0].rails, b = fault->pick2 % run->side[1].rails;
    unsigned way = fault->pick / 64 % 3;

    lanes_block(run->lanes, a, b, way != 1 ? what : LANES_NOTHING, way != 2 ? what : LANES_NOTHING);
}

static void block_all(struct ms_run *run, enum lanes_lost there, enum lanes_lost back)
{
    for (unsigned a = 0; a < LANES_RAILS; a++)
        for (unsigned b = 0; b < LANES_RAILS; b++)
            lanes_block(run->lanes, a, b, there, back);
}

static void leave(struct ms_run *run, unsigned side)
{
    for (unsigned c = 0; c < run->traffic.conn_count; c++) {
        struct traffic_conn *conn = &run->traffic.conns[c];
        struct sl_ep *ep = conn->ep[side];

        conn->left[side] = true;
        conn->ep[side] = NULL;
        run->traffic.ops.ep_destroy(ep);
    }
}

static void lose_sideband(struct ms_run *run, const struct ms_fault *fault)
{
    unsigned idx = fault->pick % loop_ep_count(run->loop);
    int status = fault->pick2 % 2 == 0 ? -ECONNRESET : -ETIMEDOUT;

    loop_redials(run->loop, run->lost_for_good ? 1 : 3);
    loop_lose(run->loop, idx, status, LOSE_NS);
    /* Endpoints are made side by side, connection by connection. */
    if (idx / 2 < run->traffic.conn_count)
        run->traffic.conns[idx / 2].lost = run->lost_for_good;
}

/* Weights, labels and paths to avoid, some of them for paths that there are not. */
static void set_table(struct ms_run *run, const struct ms_fault *fault)
{
    struct sl_path_rule rules[8];
    unsigned count = 1 + fault->pick2 % 8;
    struct sl_rng rng;

    sl_rng_init(&rng, fault->pick2);
    for (unsigned i = 0; i < count; i++) {
        rules[i] = sl_path_rule_empty();
        if (!sl_rng_chance(&rng, 6))
            rules[i].path = (int32_t)sl_rng_below(&rng, run->large ? SL_MP_PATHS_MAX : 8);
        if (sl_rng_chance(&rng, 2))
            rules[i].avoid = (int16_t)!sl_rng_chance(&rng, 4);
        else
            rules[i].weight = (int16_t)(1 + sl_rng_below(&rng, SL_PATH_TABLE_WEIGHT_MAX));
        if (sl_rng_chance(&rng, 2)) /* a third of which a lane takes at once */
            rules[i].label = (int32_t)sl_rng_below(&rng, 6);
    }
    lanes_path_table(run->lanes, fault->pick % 2, rules, count);
}

static void begin(struct ms_run *run, struct ms_fault *fault)
{
    static const enum lanes_lost lost[] = {
        [MS_CUT] = LANES_BOTH, [MS_LOSE_DATA] = LANES_DATA, [MS_LOSE_ACKS] = LANES_ACKS};
    uint64_t now_ns = loop_now(run->loop);

    fault->on = true;
    fault->until_ns = now_ns + fault->for_ns;
    switch (fault->kind) {
    case MS_KILL: lanes_kill(run->lanes, fault->pick); break;
    case MS_CUT:
    case MS_LOSE_DATA:
    case MS_LOSE_ACKS: lanes_cut(run->lanes, fault->pick, lost[fault->kind]); break;
    case MS_BLOCK: block(run, fault, LANES_BOTH); break;
    case MS_BLOCK_ACKS: block(run, fault, LANES_ACKS); break;
    case MS_RAIL: lanes_rail(run->lanes, fault->pick % 2, fault->pick2, false); break;
    case MS_HOLD: lanes_hold(run->lanes, fault->pick % 2, fault->pick2, true); break;
    case MS_REFUSE: lanes_refuse(run->lanes, fault->pick % 2, 1 + fault->pick2 % 6); break;
    case MS_STALL:
        loop_stall(run->loop, fault->pick % loop_ep_count(run->loop), fault->for_ns);
        break;
    case MS_ALL: block_all(run, LANES_BOTH, LANES_BOTH); break;
    case MS_PAUSE: run->paused_until[fault->pick % 2] = fault->until_ns; break;
    case MS_TABLE: set_table(run, fault); break;
    case MS_LOSE: lose_sideband(run, fault); break;
    case MS_DEVICE: lanes_device_dies(run->lanes, fault->pick % 2, fault->pick2); break;
    case MS_LEAVES: leave(run, fault->pick % 2); break;
    }
}

/* Now and then as another device. */
static void rail_returns(struct ms_run *run, const struct ms_fault *fault)
{
    if ((fault->pick & 256) != 0)
        lanes_rail_anew(run->lanes, fault->pick % 2, fault->pick2);
    lanes_rail(run->lanes, fault->pick % 2, fault->pick2, true);
}

static void end(struct ms_run *run, struct ms_fault *fault)
{
    fault->over = true;
    if (fault->kind == MS_BLOCK || fault->kind == MS_BLOCK_ACKS)
        block(run, fault, LANES_NOTHING);
    else if (fault->kind == MS_ALL)
        block_all(run, LANES_NOTHING, LANES_NOTHING);
    else if (fault->kind == MS_RAIL)
        rail_returns(run, fault);
    else if (fault->kind == MS_TABLE && (fault->pick & 2) != 0) /* others stay to the end */
        lanes_path_table(run->lanes, fault->pick % 2, NULL, 0);
    else if (fault->kind == MS_HOLD)
        lanes_hold(run->lanes, fault->pick % 2, fault->pick2, false);
}

static void calm(struct ms_run *run)
{
    run->calm = true;
    run->calm_ns = loop_now(run->loop);
    lanes_heal(run->lanes);
    run->paused_until[0] = run->paused_until[1] = 0;
    if (run->mode == MS_AWAY || run->stays)
        block_all(run, run->one_way ? LANES_NOTHING : LANES_BOTH,
                  run->one_way ? LANES_ACKS : LANES_BOTH);
    /* An end with nothing to send does not notice a cut; a rail that is down it does. */
    for (unsigned a = 0; a < run->side[0].rails && run->mode == MS_AWAY && run->goes_down; a++)
        lanes_rail(run->lanes, 0, a, false);
    mp_ups_note(&run->traffic);
}

void ms_faults_round(struct ms_run *run)
{
    uint64_t now_ns = loop_now(run->loop);

    if (run->calm)
        return;
    for (unsigned i = 0; i < run->fault_count; i++) {
        struct ms_fault *fault = &run->faults[i];

        if (!fault->on && fault->at_round <= run->round)
            begin(run, fault);
        else if (fault->on && !fault->over && now_ns >= fault->until_ns)
            end(run, fault);
    }
    if (run->round >= run->calm_round)
        calm(run);
}

void ms_faults_end(struct ms_run *run)
{
    if (!run->calm)
        calm(run);
}
