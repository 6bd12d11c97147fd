/* SPDX-License-Identifier: Apache-2.0 */
/* Runs what was drawn: connects, lets both sides and the wire move in any order, judges, takes all
 * down. */
#include "tests/sim/verbs_swarm.h"
#include "verbs/config.h"

#include "core/err.h"
#include "tests/fake/fake_ibv_inside.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define STILL_ROUNDS 40 /* in which nothing moves, before time jumps */
#define SLEEP_NS (10 * SL_NS_PER_MS)
#define LIMIT_NS (60 * SL_NS_PER_S) /* of virtual time, after the faults */
#define SETTLE_NS (4 * SL_NS_PER_S)
#define ROUNDS_MAX 600000

void vs_wrong(struct vs_run *run, const char *fmt, ...)
{
    va_list args;

    if (run->wrong[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(run->wrong, sizeof(run->wrong), fmt, args);
    va_end(args);
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct vs_conn *conn = ep->owner;
    unsigned side = ep == conn->ep[1];

    (void)arg;
    if (conn->left[side] || conn->downs[side]++ > 0) {
        vs_wrong(conn->run, "the loss of side %u is told twice, or after its end", side);
        return;
    }
    if (status == -EPROTO || status == -EBADMSG)
        vs_wrong(conn->run, "side %u ended as if its peer were of another kind: %s", side, why);
    conn->down_status[side] = status;
    conn->down_ns[side] = loop_now(conn->run->loop);
    snprintf(conn->why[side], sizeof(conn->why[side]), "%s", why);
}

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
    loop_weather(run->loop, run->latency_ns, run->jitter_ns, run->eagain_in);
    loop_on_look(run->loop, look, run);
    fake_ibv_delay(run->fake, run->delay);
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
            fake_ibv_device_add(run->fake, &params);
        }
    sl_ibv_replace(fake_ibv_table(run->fake), fake_ibv_mlx5(run->fake));
    sl_transport_complete(&sl_verbs_ops, &run->ops);
}

static bool sides_open(struct vs_run *run)
{
    struct sl_handler handler = {.ctrl = vs_on_ctrl, .down = on_down, .arg = run};

    for (unsigned side = 0; side < 2; side++) {
        /* Of each seed its own way, drawn apart from the rest: the other draws stay what they
         * were. */
        if (((run->seed * UINT64_C(0x9e3779b97f4a7c15)) >> (60 + 2 * side) & 3) == 0)
            sl_verbs_config_edit(&run->config[side])->srq = SL_OFF;
        run->worker[side] = (struct sl_worker){
            .clock = loop_clock(run->loop), .config = &run->config[side], .rank = (int)side};
        sl_rng_init(&run->worker[side].rng, run->seed * 2 + side);
        if (run->ops.open(&run->worker[side], NULL, &handler, &run->iface[side]) != 0) {
            vs_wrong(run, "open: %s", sluice_last_error());
            return false;
        }
    }
    return true;
}

static void conns_open(struct vs_run *run)
{
    for (unsigned c = 0; c < run->conn_count; c++) {
        struct vs_conn *conn = &run->conns[c];
        struct sl_addr addr[2];

        conn->run = run;
        for (unsigned side = 0; side < 2; side++) {
            if (run->ops.ep_create(run->iface[side], &conn->ep[side]) != 0 ||
                run->ops.ep_addr(conn->ep[side], &addr[side]) != 0) {
                vs_wrong(run, "ep_create: %s", sluice_last_error());
                return;
            }
            conn->ep[side]->owner = conn;
            conn->ep[side]->peer = !side;
            conn->connect[side].status = SL_PENDING;
        }
        for (unsigned side = 0; side < 2; side++)
            if (run->ops.ep_connect(conn->ep[side], &addr[!side], &conn->connect[side]) != 0)
                vs_wrong(run, "ep_connect: %s", sluice_last_error());
    }
}

/* ---- rounds ---- */

static bool awake(struct vs_run *run, unsigned side)
{
    struct pollfd fd = {.fd = run->ops.fd(run->iface[side]), .events = POLLIN};

    if (!run->asleep[side])
        return true;
    if (loop_now(run->loop) < run->asleep_until[side] && poll(&fd, 1, 0) == 0)
        return false;
    run->ops.disarm(run->iface[side]);
    run->asleep[side] = false;
    return true;
}

static unsigned side_round(struct vs_run *run, unsigned side, bool posts)
{
    unsigned moved = 0;
    int n;

    if (loop_now(run->loop) < run->paused_until[side] || !awake(run, side))
        return 0;
    for (unsigned c = 0; posts && c < run->conn_count; c++)
        for (unsigned dir = 0; dir < 2; dir++) {
            struct vs_queue *queue = &run->conns[c].queue[dir];

            while (sl_rng_chance(&run->rng, run->post_in) && vs_post(queue, dir != side))
                moved++;
            if (dir == side && sl_rng_chance(&run->rng, 8))
                vs_ctrl(queue);
        }
    n = run->ops.progress(run->iface[side], 1 + (unsigned)sl_rng_below(&run->rng, 64));
    if (n < 0)
        vs_wrong(run, "progress of side %u: %s", side, sluice_last_error());
    return moved + (unsigned)n;
}

/* A quiet moment: who may sleeps, and time goes on. */
static void rest(struct vs_run *run)
{
    for (unsigned side = 0; side < 2 && run->sleeps; side++)
        if (!run->asleep[side] && loop_now(run->loop) >= run->paused_until[side] &&
            run->ops.arm(run->iface[side]) == 0) {
            run->asleep[side] = true;
            run->asleep_until[side] = loop_now(run->loop) + SLEEP_NS;
        }
    loop_pass(run->loop, run->still < 4 * STILL_ROUNDS ? SL_NS_PER_MS / 4 : 5 * SL_NS_PER_MS);
}

static void play_round(struct vs_run *run, bool posts)
{
    unsigned first = (unsigned)sl_rng_below(&run->rng, 2), moved = 0;
    unsigned steps = (unsigned)sl_rng_below(&run->rng, run->steps_max + 1);

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
        loop_pass(run->loop, sl_rng_below(&run->rng, 3000));
    if (fake_ibv_misuse(run->fake) != NULL)
        vs_wrong(run, "misuse: %s", fake_ibv_misuse(run->fake));
}

static bool all_connected(const struct vs_run *run, int *status)
{
    *status = 0;
    for (unsigned c = 0; c < run->conn_count; c++)
        for (unsigned side = 0; side < 2; side++) {
            if (run->conns[c].connect[side].status == SL_PENDING)
                return false;
            if (run->conns[c].connect[side].status != 0)
                *status = run->conns[c].connect[side].status;
        }
    return true;
}

static bool connect_all(struct vs_run *run)
{
    uint64_t limit = loop_now(run->loop) + LIMIT_NS;
    int status;

    while (!all_connected(run, &status)) {
        play_round(run, false);
        if (run->wrong[0] != '\0')
            return false;
        if (loop_now(run->loop) > limit) {
            vs_wrong(run, "connecting does not end");
            return false;
        }
    }
    if (status != 0 && !run->early_faults)
        vs_wrong(run, "connecting ended with %s: %s", sluice_strerror(status), sluice_last_error());
    return status == 0;
}

/* All that is to come has come. */
static bool is_over(const struct vs_run *run)
{
    if (!run->calm || !vs_traffic_over(run))
        return false;
    for (unsigned c = 0; c < run->conn_count; c++) {
        const struct vs_conn *conn = &run->conns[c];
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
    while (!is_over(run) && run->wrong[0] == '\0') {
        play_round(run, true);
        if ((run->calm && loop_now(run->loop) > run->calm_ns + LIMIT_NS) ||
            run->rounds > ROUNDS_MAX) {
            vs_traffic_judge(run);
            vs_wrong(run, "it does not end");
        }
    }
    /* What is under way beside the traffic comes to rest: paths return, credits go home. */
    uint64_t until = loop_now(run->loop) + SETTLE_NS;

    for (unsigned i = 0; i < 10000 && run->wrong[0] == '\0'; i++) {
        play_round(run, true);
        if (run->still > 3 * STILL_ROUNDS && loop_now(run->loop) > until)
            return;
    }
}

/* ---- what must hold ---- */

static void judge_ends(struct vs_run *run)
{
    for (unsigned c = 0; c < run->conn_count; c++)
        for (unsigned side = 0; side < 2; side++) {
            const struct vs_conn *conn = &run->conns[c];
            int status = conn->downs[side] > 0 ? conn->down_status[side] : 0, wanted = 0;

            if (conn->refused[side][0] != '\0' && conn->downs[side] == 0 && !conn->left[side])
                vs_wrong(run, "side %u of connection %u is up, but %s", side, c,
                         conn->refused[side]);
            if (run->mode == VS_BROKEN || conn->left[side])
                continue;
            if (run->mode == VS_AWAY &&
                (run->goes_down || conn->lost || conn->downs[0] + conn->downs[1] > 0))
                wanted = -EHOSTUNREACH;
            else if (conn->left[!side])
                wanted = -ECONNRESET;
            /* What the other end had to say found no room in a sideband that is full. */
            if (wanted == -EHOSTUNREACH && status == -ECONNRESET && run->crowded &&
                conn->down_status[!side] == wanted)
                wanted = status;
            /* It was lost when no path was up. */
            if (wanted == -EHOSTUNREACH && conn->lost && status == -ETIMEDOUT)
                wanted = status;
            if (status != wanted)
                vs_wrong(run, "side %u of connection %u ended with %s, not %s: %s (the other: %s)",
                         side, c, sluice_strerror(status), sluice_strerror(wanted),
                         status != 0 ? conn->why[side] : "it is up", conn->why[!side]);
        }
}

static void judge_ep(struct vs_run *run, struct vs_conn *conn, unsigned side)
{
    struct sl_mp_conn *ep = sl_mp_conn_of(conn->ep[side]), *peer = sl_mp_conn_of(conn->ep[!side]);
    unsigned used = 0;

    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++)
        used += ep->rx_cts[i].used;
    for (unsigned i = 0; i < SL_MP_TX_CTS_MAX; i++)
        used += ep->tx_cts[i].used;
    if (ep->credits + peer->credits_owed != SL_MP_CREDITS)
        vs_wrong(run, "side %u has %u credits and is owed %u", side, ep->credits,
                 peer->credits_owed);
    if (used > 0)
        vs_wrong(run, "side %u has %u grants left", side, used);
    if (ep->tx_oldest != ep->tx_next || ep->rx_oldest != ep->rx_next || ep->held > 0 ||
        ep->redo_count > 0 || ep->deal_count > 0 || ep->early_count > 0 || ep->unannounced > 0 ||
        ep->drop_count > 0 || (ep->control_count > 0 && run->mode != VS_TCP) ||
        !sl_list_empty(&ep->repeat))
        vs_wrong(run,
                 "side %u has something left to do: %u of %u sends, %u of %u receives, %u held, %u "
                 "redo, "
                 "%u deal, %u early, %u unannounced, %u drops, %u records",
                 side, ep->tx_oldest, ep->tx_next, ep->rx_oldest, ep->rx_next, ep->held,
                 ep->redo_count, ep->deal_count, ep->early_count, ep->unannounced, ep->drop_count,
                 ep->control_count);
    for (unsigned i = 0; i < ep->path_count && run->mode == VS_CALM; i++)
        if (ep->paths[i]->stats.failures > 0)
            vs_wrong(run, "path %u failed though nothing was done to it: %s", i, ep->paths[i]->why);
}

/* A path that does not carry both ways comes up at neither end; once it may, which was on its way
 * up before. */
static void judge_ups(struct vs_run *run)
{
    for (unsigned c = 0; c < run->conn_count && vs_paths_stay_away(run); c++)
        for (unsigned side = 0; side < 2; side++) {
            const struct vs_conn *conn = &run->conns[c];
            const struct sl_mp_conn *ep =
                conn->ep[side] != NULL ? sl_mp_conn_of(conn->ep[side]) : NULL;

            if (ep != NULL && vs_ups(ep) > conn->ups_at_calm[side] + ep->path_count)
                vs_wrong(
                    run,
                    "paths of side %u, connection %u, came up %u times though nothing was carried",
                    side, c, (unsigned)(vs_ups(ep) - conn->ups_at_calm[side]));
        }
}

static void judge_rest(struct vs_run *run)
{
    bool all_up = true;

    for (unsigned c = 0; c < run->conn_count; c++) {
        struct vs_conn *conn = &run->conns[c];

        if (conn->downs[0] + conn->downs[1] > 0 || conn->ep[0] == NULL || conn->ep[1] == NULL) {
            all_up = false;
            continue;
        }
        judge_ep(run, conn, 0);
        judge_ep(run, conn, 1);
    }
    for (unsigned side = 0; side < 2 && all_up; side++) {
        const struct sl_verbs_iface *iface = sl_verbs_iface_of(run->iface[side]);
        unsigned half = (unsigned)(iface->staging.len / SL_MP_CHUNK_BYTES / 2);

        if (iface->mp.tx_chunks.free_count != half || iface->mp.rx_chunks.free_count != half)
            vs_wrong(run, "side %u has %u and %u of %u pieces of staging left", side,
                     iface->mp.tx_chunks.free_count, iface->mp.rx_chunks.free_count, half);
    }
}

/* Once every endpoint is gone. */
static void judge_pools(struct vs_run *run)
{
    for (unsigned side = 0; side < 2; side++) {
        struct sl_verbs_iface *iface = sl_verbs_iface_of(run->iface[side]);
        unsigned half = (unsigned)(iface->staging.len / SL_MP_CHUNK_BYTES / 2);

        if (iface->mp.free_frame_count != SL_MP_TX_FRAMES ||
            iface->mp.tx_chunks.free_count != half || iface->mp.rx_chunks.free_count != half)
            vs_wrong(run, "side %u: %u of %u frames, %u and %u of %u pieces of staging came back",
                     side, iface->mp.free_frame_count, SL_MP_TX_FRAMES,
                     iface->mp.tx_chunks.free_count, iface->mp.rx_chunks.free_count, half);
        for (unsigned i = 0; i < iface->mp.rail_count; i++) {
            struct sl_verbs_rail *rail = &iface->rails[i];
            const struct fake_obj *context = &FAKE_OF(fake_context, rail->context)->obj;

            /* Completions that were held went with their queue pairs, and shared buffers with
             * them. */
            if (context->dev->fatal || fake_obj_gone(context) || run->held)
                continue;
            while (sl_verbs_rail_poll(rail, 64) > 0)
                ;
            unsigned there =
                rail->free_count + (rail->srq == NULL ? 0 : FAKE_OF(fake_srq, rail->srq)->rq.count);

            if (there != rail->block_count * SL_VERBS_BLOCK_SLOTS || rail->own_count != 0 ||
                rail->qpn_count != 0)
                vs_wrong(run,
                         "side %u, rail %u: %u of %u receive buffers, %u places, %u queue pairs",
                         side, i, there, rail->block_count * SL_VERBS_BLOCK_SLOTS, rail->own_count,
                         rail->qpn_count);
        }
    }
}

/* ---- the end ---- */

static void conns_close(struct vs_run *run)
{
    for (unsigned c = 0; c < run->conn_count; c++) {
        unsigned first = (unsigned)sl_rng_below(&run->rng, 2);
        unsigned between = (unsigned)sl_rng_below(&run->rng, 60);

        for (unsigned i = 0; i < 2; i++) {
            unsigned side = first ^ i;
            struct sl_ep *ep = run->conns[c].ep[side];

            run->conns[c].left[side] = true;
            run->conns[c].ep[side] = NULL;
            run->ops.ep_destroy(ep);
            for (unsigned k = 0; k < between && i == 0; k++)
                play_round(run, false);
        }
    }
}

static void world_close(struct vs_run *run)
{
    vs_faults_end(run);
    conns_close(run);
    vs_traffic_judge(run);
    if (run->iface[0] != NULL && run->iface[1] != NULL) {
        fake_ibv_run(run->fake, run->delay + 200);
        judge_pools(run);
    }
    vs_traffic_close(run);
    for (unsigned side = 0; side < 2; side++)
        run->ops.close(run->iface[side]);
    vs_traffic_free(run);
    if (fake_ibv_misuse(run->fake) != NULL)
        vs_wrong(run, "misuse: %s", fake_ibv_misuse(run->fake));
    if (loop_misuse(run->loop) != NULL)
        vs_wrong(run, "misuse: %s", loop_misuse(run->loop));
    if (fake_ibv_live(run->fake) > 0 || loop_live(run->loop) > 0)
        vs_wrong(run, "%u objects of libibverbs and %u of the sideband are left",
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
        vs_traffic_open(run);
        conns_open(run);
        if (run->wrong[0] == '\0' && connect_all(run)) {
            fake_ibv_chaos(run->fake, &run->chaos);
            play(run);
            if (run->wrong[0] == '\0') {
                judge_ends(run);
                judge_rest(run);
                judge_ups(run);
            }
        }
    }
    world_close(run);
    return run->wrong[0] == '\0';
}
