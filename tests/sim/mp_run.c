/* SPDX-License-Identifier: Apache-2.0 */
/* Runs what was drawn: connects, lets both sides and the wire move in any order, judges, takes all
 * down. */
#include "tests/sim/mp_swarm.h"

#include "core/err.h"
#include "multipath/fallback.h"
#include "tests/sim/mp_judge.h"

#include <errno.h>
#include <string.h>

#define STILL_ROUNDS 40             /* in which nothing moves, before time jumps */
#define LIMIT_NS (60 * SL_NS_PER_S) /* of virtual time, after the faults */
#define SETTLE_NS (4 * SL_NS_PER_S)
#define ROUNDS_MAX 600000

static bool is_wrong(const struct ms_run *run)
{
    return run->traffic.wrong[0] != '\0';
}

/* How many frames of a channel wait for their receives, up to the first message that is none. */
static unsigned frames_here(const struct sl_mp_channel *channel)
{
    uint32_t number = channel->rx_next;

    while (number != channel->rx_known && sl_mp_rx_at(channel, number)->has_frame)
        number++;
    return channel->base.closed ? 0 : number - channel->rx_next;
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct traffic_conn *conn = ep->owner;
    struct ms_run *run = sl_container_of(conn->traffic, struct ms_run, traffic);
    struct sl_mp_conn *end = sl_mp_conn_of(ep);
    unsigned c = (unsigned)(conn - run->traffic.conns), side = ep == conn->ep[1];

    for (unsigned k = 0; k < conn->channel_count && end->left; k++) {
        struct sl_channel *channel = sl_channels_find(&end->channels, conn->channels[k].id);

        run->here[c][side][k] = channel != NULL ? frames_here(sl_mp_channel_of(channel)) : 0;
    }
    traffic_on_down(arg, ep, status, why);
}

static bool world_open(struct ms_run *run)
{
    struct sl_handler handler = {.ctrl = traffic_on_ctrl, .down = on_down, .arg = &run->traffic};

    sl_config_defaults(&run->config);
    run->loop = loop_create(run->seed);
    run->traffic.clock = loop_clock(run->loop);
    loop_weather(run->loop, run->latency_ns, run->jitter_ns, run->eagain_in);
    run->lanes = lanes_create(run->seed * 3 + 1, run->loop);
    lanes_retry_ns(run->lanes, run->retry_ns);
    sl_transport_complete(&lanes_ops, &run->traffic.ops);
    for (unsigned side = 0; side < 2; side++) {
        lanes_side(run->lanes, side, &run->side[side]);
        run->worker[side] = (struct sl_worker){
            .clock = loop_clock(run->loop), .config = &run->config, .rank = (int)side};
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

/* Does data of this side go over the sideband, on any connection? */
static bool over_sideband(const struct ms_run *run, unsigned side)
{
    for (unsigned c = 0; c < run->traffic.conn_count; c++) {
        const struct traffic_conn *conn = &run->traffic.conns[c];

        if (conn->ep[side] != NULL && sl_mp_fallback_path(sl_mp_conn_of(conn->ep[side])) != NULL)
            return true;
    }
    return false;
}

static unsigned side_round(struct ms_run *run, unsigned side, bool posts)
{
    unsigned moved = 0;

    if (loop_now(run->loop) < run->paused_until[side])
        return 0;
    if (run->mode == MS_TCP) /* that is seldom and short, or all close before it comes */
        run->traffic.close_in = over_sideband(run, side) ? 5 : run->calm ? 200 : 2000;
    if (posts)
        moved += traffic_side(&run->traffic, side, run->post_in);
    return moved + (unsigned)run->traffic.ops.progress(
                       run->traffic.iface[side], 1 + (unsigned)sl_rng_below(&run->traffic.rng, 64));
}

static void play_round(struct ms_run *run, bool posts)
{
    unsigned first = (unsigned)sl_rng_below(&run->traffic.rng, 2), moved = 0;
    unsigned steps = (unsigned)sl_rng_below(&run->traffic.rng, run->steps_max + 1);

    run->round += posts;
    run->rounds++;
    if (posts)
        ms_faults_round(run);
    moved += side_round(run, first, posts);
    while (steps-- > 0) {
        moved += lanes_step(run->lanes);
        run->steps++;
    }
    moved += side_round(run, !first, posts);
    run->still = moved > 0 ? 0 : run->still + 1;
    if (run->still > STILL_ROUNDS)
        loop_pass(run->loop, run->still < 4 * STILL_ROUNDS ? SL_NS_PER_MS / 4 : 5 * SL_NS_PER_MS);
    else
        loop_pass(run->loop, sl_rng_below(&run->traffic.rng, 3000));
    if (lanes_misuse(run->lanes) != NULL)
        traffic_wrong(&run->traffic, "misuse: %s", lanes_misuse(run->lanes));
}

static bool connect_all(struct ms_run *run)
{
    uint64_t limit = loop_now(run->loop) + LIMIT_NS;
    int status;

    traffic_connect(&run->traffic);
    while (!traffic_connected(&run->traffic, &status)) {
        play_round(run, false);
        if (loop_now(run->loop) > limit)
            traffic_wrong(&run->traffic, "connecting does not end");
        if (is_wrong(run))
            return false;
    }
    if (status != 0)
        traffic_wrong(&run->traffic, "connecting ended with %s: %s", sluice_strerror(status),
                      sluice_last_error());
    return status == 0;
}

/* All that is to come has come. */
static bool is_over(const struct ms_run *run)
{
    if (!run->calm || !traffic_over(&run->traffic))
        return false;
    for (unsigned c = 0; c < run->traffic.conn_count; c++) {
        const struct traffic_conn *conn = &run->traffic.conns[c];
        unsigned ends = conn->downs[0] + conn->downs[1] + conn->left[0] + conn->left[1];

        /* The other end hears of it too. Without a sideband even ends that have nothing to send
         * notice. */
        if (ends == 1 || (run->mode == MS_AWAY && (run->goes_down || conn->lost) && ends == 0))
            return false;
    }
    return true;
}

static void play(struct ms_run *run)
{
    while (!is_over(run) && !is_wrong(run)) {
        play_round(run, true);
        if ((run->calm && loop_now(run->loop) > run->calm_ns + LIMIT_NS) ||
            run->rounds > ROUNDS_MAX) {
            traffic_judge(&run->traffic);
            traffic_wrong(&run->traffic, "it does not end");
        }
    }
    /* What is under way beside the traffic comes to rest: paths return, credits go home. */
    uint64_t until = loop_now(run->loop) + SETTLE_NS;

    for (unsigned i = 0; i < 10000 && !is_wrong(run); i++) {
        play_round(run, true);
        if (run->still > 3 * STILL_ROUNDS && loop_now(run->loop) > until)
            return;
    }
}

/* ---- what must hold ---- */

/* A channel that both ends have closed is forgotten. */
static void judge_channels(struct ms_run *run, const struct traffic_conn *conn, unsigned side)
{
    struct sl_mp_conn *end = sl_mp_conn_of(conn->ep[side]);

    for (unsigned k = 1; k < conn->channel_count; k++)
        if (conn->channels[k].closed[0] && conn->channels[k].closed[1] && run->mode != MS_TCP &&
            sl_channels_find(&end->channels, conn->channels[k].id) != NULL)
            traffic_wrong(&run->traffic, "side %u still knows channel %u, which both have closed",
                          side, conn->channels[k].id);
}

static void judge_rest(struct ms_run *run)
{
    for (unsigned c = 0; c < run->traffic.conn_count; c++) {
        struct traffic_conn *conn = &run->traffic.conns[c];

        for (unsigned side = 0; side < 2; side++)
            if (conn->downs[0] + conn->downs[1] == 0 && conn->ep[0] != NULL &&
                conn->ep[1] != NULL) {
                judge_channels(run, conn, side);
                mp_judge(&run->traffic, sl_mp_conn_of(conn->ep[side]),
                         sl_mp_conn_of(conn->ep[!side]), run->mode == MS_TCP, run->mode == MS_CALM);
            }
    }
}

/* What had come on a channel when the peer left is received, whatever waits on another one. */
static void judge_left(struct ms_run *run, unsigned c, unsigned side, unsigned k)
{
    struct traffic_conn *conn = &run->traffic.conns[c];
    struct traffic_queue *queue = &conn->queue[2 * k + !side];

    if (run->here[c][side][k] > 0 && !conn->channels[k].open[side])
        run->traffic.ops.channel_open(conn->ep[side], conn->channels[k].id);
    for (unsigned i = 0; i < run->here[c][side][k]; i++) {
        const struct traffic_message *m = &queue->messages[queue->next[1]];
        bool fits = m->tag == m->wanted_tag && sl_sink_takes(&m->sink, m->len);

        if (traffic_take(queue) != fits)
            traffic_wrong(&run->traffic,
                          "side %u of connection %u %s message %u of channel %u, which had come "
                          "before the peer left",
                          side, c, fits ? "lost" : "took", queue->next[1], conn->channels[k].id);
        if (!fits)
            return;
    }
}

static void judge_all_left(struct ms_run *run)
{
    for (unsigned c = 0; c < run->traffic.conn_count; c++)
        for (unsigned side = 0; side < 2; side++)
            for (unsigned k = 0; k < run->traffic.conns[c].channel_count; k++)
                if (run->traffic.conns[c].ep[side] != NULL)
                    judge_left(run, c, side, k);
}

/* Once every endpoint is gone: whatever was taken from a pool is back there. */
static void judge_pools(struct ms_run *run)
{
    for (unsigned side = 0; side < 2; side++) {
        const struct sl_mp_iface *iface = lanes_iface(run->lanes, side);

        if (iface->free_frame_count != SL_MP_TX_FRAMES || iface->tx_chunks.free_count != 2 ||
            iface->rx_chunks.free_count != 2)
            traffic_wrong(&run->traffic,
                          "side %u: %u of %u frames, %u and %u of 2 pieces of staging came back",
                          side, iface->free_frame_count, SL_MP_TX_FRAMES,
                          iface->tx_chunks.free_count, iface->rx_chunks.free_count);
    }
    if (lanes_live(run->lanes) > 0)
        traffic_wrong(&run->traffic, "%u lanes and receive buffers are left",
                      lanes_live(run->lanes));
}

/* ---- the end ---- */

static void turn(void *run)
{
    play_round(run, false);
}

static void world_close(struct ms_run *run)
{
    ms_faults_end(run);
    traffic_leave(&run->traffic, turn, run);
    traffic_judge(&run->traffic);
    judge_pools(run);
    traffic_close(&run->traffic);
    for (unsigned side = 0; side < 2; side++)
        run->traffic.ops.close(run->traffic.iface[side]);
    traffic_free(&run->traffic);
    if (lanes_misuse(run->lanes) != NULL)
        traffic_wrong(&run->traffic, "misuse: %s", lanes_misuse(run->lanes));
    if (loop_misuse(run->loop) != NULL)
        traffic_wrong(&run->traffic, "misuse: %s", loop_misuse(run->loop));
    if (loop_live(run->loop) > 0)
        traffic_wrong(&run->traffic, "%u of the sideband are left", loop_live(run->loop));
    lanes_destroy(run->lanes);
    loop_destroy(run->loop);
    run->loop = NULL;
}

bool ms_run_it(struct ms_run *run)
{
    if (world_open(run)) {
        traffic_open(&run->traffic);
        if (connect_all(run))
            play(run);
        if (!is_wrong(run)) {
            mp_judge_ends(&run->traffic, &(struct mp_outcome){.away = run->mode == MS_AWAY,
                                                              .goes_down = run->goes_down,
                                                              .any = run->mode == MS_BROKEN});
            judge_rest(run);
            if (run->mode == MS_AWAY || run->stays)
                mp_judge_ups(&run->traffic);
            judge_all_left(run);
        }
    }
    world_close(run);
    return !is_wrong(run);
}
