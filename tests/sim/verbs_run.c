/* SPDX-License-Identifier: Apache-2.0 */
/* Runs what was drawn: connects, lets both sides and the wire move in any order, judges, takes all
 * down. */
#include "tests/sim/verbs_swarm.h"
#include "verbs/config.h"

#include "core/err.h"
#include "tests/fake/fake_ibv_inside.h"
#include "tests/sim/mp_judge.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define STILL_ROUNDS 40 /* in which nothing moves, before time jumps */
#define SLEEP_NS (10 * SL_NS_PER_MS)
#define LIMIT_NS (60 * SL_NS_PER_S) /* of virtual time, after the faults */
#define SETTLE_NS (4 * SL_NS_PER_S)
#define ROUNDS_MAX 600000

static void look(void *arg)
{
    struct vs_run *run = arg;

    fake_ibv_step(run->fake);
    run->steps++;
}

static void world_open(struct vs_run *run)
{
    run->fake = fake_ibv_create(run->seed);
    run->loop = loop_create(run->seed);
    run->traffic.clock = loop_clock(run->loop);
    loop_weather(run->loop, run->latency_ns, run->jitter_ns, run->eagain_in);
    loop_on_look(run->loop, look, run);
    fake_ibv_delay(run->fake, run->delay);
    fake_ibv_event_delay(run->fake, run->event_delay);
    fake_ibv_disorder(run->fake, run->seed % 5 < 2 ? 3 : 0);
    fake_ibv_timeout_most(run->fake, run->seed % 7 < 3 ? 4 : 1);
    fake_ibv_retry_steps(run->fake, run->timeout_steps, run->rnr_steps);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned rail = 0; rail < run->rails[side]; rail++) {
            struct fake_ibv_device params;
            char name[8];

            snprintf(name, sizeof(name), "%c%u", 'a' + side, rail);
            fake_ibv_device_init(&params, name);
            params.attr.max_cqe = 8191; /* what a connection or two can need, and no more memory */
            params.attr.max_srq_wr = 1023;
            params.keeps_wcs = run->keeps_wcs;
            params.ahead_steps = run->ahead_steps;
            params.thread_domains = run->seed % 2 == 0;
            params.resize_cq = run->seed % 3 == 0;
            if (run->mixes != 0)
                params.attr.vendor_id = SL_VERBS_SOFT_ROCE;
            fake_ibv_device_add(run->fake, &params);
        }
    sl_ibv_replace(fake_ibv_table(run->fake), fake_ibv_mlx5(run->fake));
    sl_transport_complete(&sl_verbs_ops, &run->traffic.ops);
}

static bool sides_open(struct vs_run *run)
{
    struct sl_handler handler = {
        .ctrl = traffic_on_ctrl, .down = traffic_on_down, .arg = &run->traffic};

    for (unsigned side = 0; side < 2; side++) {
        /* Of each seed its own way, drawn apart from the rest: the other draws stay what they
         * were. */
        if (((run->seed * UINT64_C(0x9e3779b97f4a7c15)) >> (60 + 2 * side) & 3) == 0)
            sl_verbs_config_edit(&run->config[side])->srq = SL_OFF;
        run->worker[side] = (struct sl_worker){
            .clock = loop_clock(run->loop), .config = &run->config[side], .rank = (int)side};
        sl_rng_init(&run->worker[side].rng, run->seed * 2 + side);
        if (run->traffic.ops.open(&run->worker[side], NULL, &handler, &run->traffic.iface[side]) !=
            0) {
            traffic_wrong(&run->traffic, "open: %s", sluice_last_error());
            return false;
        }
    }
    return true;
}

/* ---- rounds ---- */

static bool awake(struct vs_run *run, unsigned side)
{
    struct pollfd fd = {.fd = run->traffic.ops.fd(run->traffic.iface[side]), .events = POLLIN};

    if (!run->asleep[side])
        return true;
    if (loop_now(run->loop) < run->asleep_until[side] && poll(&fd, 1, 0) == 0)
        return false;
    run->traffic.ops.disarm(run->traffic.iface[side]);
    run->asleep[side] = false;
    return true;
}

static unsigned side_round(struct vs_run *run, unsigned side, bool posts)
{
    unsigned moved = 0;
    int n;

    if (loop_now(run->loop) < run->paused_until[side] || !awake(run, side))
        return 0;
    if (posts)
        moved += traffic_side(&run->traffic, side, run->post_in);
    n = run->traffic.ops.progress(run->traffic.iface[side],
                                  1 + (unsigned)sl_rng_below(&run->traffic.rng, 64));
    if (n < 0)
        traffic_wrong(&run->traffic, "progress of side %u: %s", side, sluice_last_error());
    return moved + (unsigned)n;
}

/* A quiet moment: who may sleeps, and time goes on. */
static void rest(struct vs_run *run)
{
    for (unsigned side = 0; side < 2 && run->sleeps; side++)
        if (!run->asleep[side] && loop_now(run->loop) >= run->paused_until[side] &&
            run->traffic.ops.arm(run->traffic.iface[side]) == 0) {
            run->asleep[side] = true;
            run->asleep_until[side] = loop_now(run->loop) + SLEEP_NS;
        }
    loop_pass(run->loop, run->still < 4 * STILL_ROUNDS ? SL_NS_PER_MS / 4 : 5 * SL_NS_PER_MS);
}

static void play_round(struct vs_run *run, bool posts)
{
    unsigned first = (unsigned)sl_rng_below(&run->traffic.rng, 2), moved = 0;
    unsigned steps = (unsigned)sl_rng_below(&run->traffic.rng, run->steps_max + 1);

    run->round += posts;
    run->rounds++;
    if (posts || run->early_faults)
        vs_faults_round(run);
    moved += side_round(run, first, posts);
    while (steps-- > 0) {
        moved += fake_ibv_step(run->fake);
        run->steps++;
    }
    moved += side_round(run, !first, posts);
    run->still = moved > 0 ? 0 : run->still + 1;
    if (run->still > STILL_ROUNDS)
        rest(run);
    else
        loop_pass(run->loop, sl_rng_below(&run->traffic.rng, 3000));
    if (fake_ibv_misuse(run->fake) != NULL)
        traffic_wrong(&run->traffic, "misuse: %s", fake_ibv_misuse(run->fake));
}

static bool connect_all(struct vs_run *run)
{
    uint64_t limit = loop_now(run->loop) + LIMIT_NS;
    int status;

    while (!traffic_connected(&run->traffic, &status)) {
        play_round(run, false);
        if (run->traffic.wrong[0] != '\0')
            return false;
        if (loop_now(run->loop) > limit) {
            traffic_wrong(&run->traffic, "connecting does not end");
            return false;
        }
    }
    if (status != 0 && !run->early_faults)
        traffic_wrong(&run->traffic, "connecting ended with %s: %s", sluice_strerror(status),
                      sluice_last_error());
    return status == 0;
}

/* All that is to come has come. */
static bool is_over(const struct vs_run *run)
{
    if (!run->calm || !traffic_over(&run->traffic))
        return false;
    for (unsigned c = 0; c < run->traffic.conn_count; c++) {
        const struct traffic_conn *conn = &run->traffic.conns[c];
        unsigned ends = conn->downs[0] + conn->downs[1] + conn->left[0] + conn->left[1];

        /* The other end hears of it too. Without a sideband even ends that have nothing to send
         * notice. */
        if (ends == 1 || (run->mode == VS_AWAY && (run->goes_down || conn->lost) && ends == 0))
            return false;
    }
    return true;
}

static void play(struct vs_run *run)
{
    while (!is_over(run) && run->traffic.wrong[0] == '\0') {
        play_round(run, true);
        if ((run->calm && loop_now(run->loop) > run->calm_ns + LIMIT_NS) ||
            run->rounds > ROUNDS_MAX) {
            traffic_judge(&run->traffic);
            traffic_wrong(&run->traffic, "it does not end");
        }
    }
    /* What is under way beside the traffic comes to rest: paths return, credits go home. */
    uint64_t until = loop_now(run->loop) + SETTLE_NS;

    for (unsigned i = 0; i < 10000 && run->traffic.wrong[0] == '\0'; i++) {
        play_round(run, true);
        if (run->still > 3 * STILL_ROUNDS && loop_now(run->loop) > until)
            return;
    }
}

/* ---- what must hold ---- */

static void judge_rest(struct vs_run *run)
{
    bool all_up = true;

    for (unsigned c = 0; c < run->traffic.conn_count; c++) {
        struct traffic_conn *conn = &run->traffic.conns[c];

        if (conn->downs[0] + conn->downs[1] > 0 || conn->ep[0] == NULL || conn->ep[1] == NULL) {
            all_up = false;
            continue;
        }
        for (unsigned side = 0; side < 2; side++)
            mp_judge(&run->traffic, sl_mp_conn_of(conn->ep[side]), sl_mp_conn_of(conn->ep[!side]),
                     run->mode == VS_TCP, run->mode == VS_CALM);
    }
    for (unsigned side = 0; side < 2 && all_up; side++) {
        const struct sl_verbs_iface *iface = sl_verbs_iface_of(run->traffic.iface[side]);
        unsigned half = (unsigned)(iface->staging.len / SL_MP_CHUNK_BYTES / 2);

        if (iface->mp.tx_chunks.free_count != half || iface->mp.rx_chunks.free_count != half)
            traffic_wrong(&run->traffic, "side %u has %u and %u of %u pieces of staging left", side,
                          iface->mp.tx_chunks.free_count, iface->mp.rx_chunks.free_count, half);
    }
}

/* Once every endpoint is gone. */
static void judge_pools(struct vs_run *run)
{
    for (unsigned side = 0; side < 2; side++) {
        struct sl_verbs_iface *iface = sl_verbs_iface_of(run->traffic.iface[side]);
        unsigned half = (unsigned)(iface->staging.len / SL_MP_CHUNK_BYTES / 2);

        if (iface->mp.free_frame_count != SL_MP_TX_FRAMES ||
            iface->mp.tx_chunks.free_count != half || iface->mp.rx_chunks.free_count != half)
            traffic_wrong(&run->traffic,
                          "side %u: %u of %u frames, %u and %u of %u pieces of staging came back",
                          side, iface->mp.free_frame_count, SL_MP_TX_FRAMES,
                          iface->mp.tx_chunks.free_count, iface->mp.rx_chunks.free_count, half);
        for (unsigned i = 0; i < iface->mp.rail_count; i++) {
            struct sl_verbs_rail *rail = &iface->rails[i];

            if (rail->is_asleep)
                continue;
            const struct fake_obj *context = &FAKE_OF(fake_context, rail->device->context)->obj;

            /* Completions that were held went with their queue pairs, and shared buffers with
             * them. */
            if (context->dev->fatal || fake_obj_gone(context) || run->held)
                continue;
            while (sl_verbs_rail_poll(rail, 64) > 0 || rail->leaving != NULL) {
                fake_ibv_run(run->fake, 10);
                loop_pass(run->loop, SL_NS_PER_MS); /* those that leave give back what they had */
                sl_verbs_rail_events(rail);
            }
            unsigned there =
                rail->free_count + (rail->srq == NULL ? 0 : FAKE_OF(fake_srq, rail->srq)->rq.count);

            if (there != rail->block_count * SL_VERBS_BLOCK_SLOTS || rail->own_count != 0 ||
                rail->qpn_count != 0)
                traffic_wrong(
                    &run->traffic,
                    "side %u, rail %u: %u of %u receive buffers, %u places, %u queue pairs", side,
                    i, there, rail->block_count * SL_VERBS_BLOCK_SLOTS, rail->own_count,
                    rail->qpn_count);
        }
    }
}

/* ---- the end ---- */

static void turn(void *run)
{
    play_round(run, false);
}

static void world_close(struct vs_run *run)
{
    vs_faults_end(run);
    traffic_leave(&run->traffic, turn, run);
    traffic_judge(&run->traffic);
    if (run->traffic.iface[0] != NULL && run->traffic.iface[1] != NULL) {
        fake_ibv_run(run->fake, run->delay + 200);
        judge_pools(run);
    }
    traffic_close(&run->traffic);
    for (unsigned side = 0; side < 2; side++)
        run->traffic.ops.close(run->traffic.iface[side]);
    traffic_free(&run->traffic);
    if (fake_ibv_misuse(run->fake) != NULL)
        traffic_wrong(&run->traffic, "misuse: %s", fake_ibv_misuse(run->fake));
    if (loop_misuse(run->loop) != NULL)
        traffic_wrong(&run->traffic, "misuse: %s", loop_misuse(run->loop));
    if (fake_ibv_live(run->fake) > 0 || loop_live(run->loop) > 0)
        traffic_wrong(&run->traffic, "%u objects of libibverbs and %u of the sideband are left",
                      fake_ibv_live(run->fake), loop_live(run->loop));
    fake_ibv_destroy(run->fake);
    loop_destroy(run->loop);
    run->loop = NULL;
}

bool vs_run_it(struct vs_run *run)
{
    world_open(run);
    if (sides_open(run)) {
        if (run->early_faults)
            fake_ibv_chaos(run->fake, &run->chaos);
        traffic_open(&run->traffic);
        traffic_connect(&run->traffic);
        if (run->traffic.wrong[0] == '\0' && connect_all(run)) {
            fake_ibv_chaos(run->fake, &run->chaos);
            play(run);
            if (run->traffic.wrong[0] == '\0') {
                mp_judge_ends(&run->traffic, &(struct mp_outcome){.away = run->mode == VS_AWAY,
                                                                  .goes_down = run->goes_down,
                                                                  .any = run->mode == VS_BROKEN});
                judge_rest(run);
                if (vs_paths_stay_away(run))
                    mp_judge_ups(&run->traffic);
            }
        }
    }
    world_close(run);
    return run->traffic.wrong[0] == '\0';
}
