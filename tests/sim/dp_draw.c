/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed stands for. */
#include "tests/sim/dp_swarm.h"

#include "dpdk/cc/cc.h"
#include "dpdk/proto/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define BYTES_MOST (UINT32_C(3) << 20) /* of all messages of a stream */

static uint64_t below(struct ds_run *run, uint64_t bound)
{
    return sl_rng_below(&run->rng, bound);
}

static bool once_in(struct ds_run *run, uint64_t in)
{
    return sl_rng_chance(&run->rng, in);
}

/* Often small, sometimes large. */
static uint64_t skewed(struct ds_run *run, uint64_t low, uint64_t high)
{
    uint64_t span = high - low + 1;

    for (uint64_t left = below(run, 4); left > 0 && span > 1; left--)
        span = 1 + below(run, span);
    return low + below(run, span);
}

static void draw_settings(struct ds_run *run, struct sl_dp_settings *settings)
{
    static const struct sl_dp_cc *const cc[] = {&sl_dp_swift, &sl_dp_swift, &sl_dp_fixed};
    static const uint32_t acks[] = {0, 0, 0, 1, 8, 32};

    *settings = (struct sl_dp_settings){.window = 64u << below(run, 5),
                                        .ack_packets = acks[below(run, SL_ARRAY_LEN(acks))],
                                        .rto_least_ns = MS << below(run, 5),
                                        .dead_ns = 4000 * MS,
                                        .target_ns = 25 * US << below(run, 3),
                                        .cc = cc[below(run, SL_ARRAY_LEN(cc))]};
}

static void draw_ends(struct ds_run *run)
{
    uint32_t least = (uint32_t)sl_rng_range(&run->rng, 200, 1400), most;

    most = once_in(run, 3) ? least : least + (uint32_t)below(run, 7 * least);
    if (most > SL_DP_PAYLOAD_MOST)
        most = SL_DP_PAYLOAD_MOST;
    run->ends = (struct sl_dp_ends){.version = SL_DP_VERSION,
                                    .routes = (uint8_t)skewed(run, 1, SL_DP_ROUTES_MAX),
                                    .crc = once_in(run, 2),
                                    .payload_least = least,
                                    .payload_most = most};
}

/* Each kind of fault is on in some seeds; all at once in few. */
static void draw_faults(struct ds_run *run)
{
    struct dp_path *worst = &run->worst;

    *worst = (struct dp_path){.delay_ns = US << below(run, 9)};
    if (once_in(run, 2))
        worst->loss_ppm = (uint32_t)skewed(run, 100, 200000);
    if (once_in(run, 3))
        worst->reorder_ppm = (uint32_t)skewed(run, 100, 500000);
    if (once_in(run, 3))
        worst->double_ppm = (uint32_t)skewed(run, 100, 200000);
    if (once_in(run, 4))
        worst->damage_ppm = (uint32_t)skewed(run, 100, 100000);
    if (run->ends.crc && once_in(run, 2))
        worst->payload_damage_ppm = (uint32_t)skewed(run, 100, 100000);
    if (once_in(run, 4)) {
        worst->spike_ppm = (uint32_t)skewed(run, 10, 20000);
        worst->spike_ns = MS << below(run, 6);
    }
    if (once_in(run, 2))
        worst->jitter_ns = below(run, 2 * worst->delay_ns);
    run->sleeps = once_in(run, 3);
    run->routes_die = once_in(run, 3);
    run->mtu_shrinks = once_in(run, 4);
    run->forges = once_in(run, 3);
    run->is_hostile = once_in(run, 12);
    run->has_queue = once_in(run, 4);
    run->faults_ns = skewed(run, 5 * MS, 1500 * MS);
    if (once_in(run, 10))
        run->death_ns = MS + below(run, 100 * MS);
    if (once_in(run, 10))
        run->close_ns = MS + below(run, 50 * MS);
}

static void draw_node(struct ds_run *run, struct dp_node *node)
{
    static const uint64_t gbits[] = {1, 10, 10, 25, 100};

    node->rate = gbits[below(run, SL_ARRAY_LEN(gbits))] * 125000000;
    node->ring_ns = US << below(run, 8);
    node->poll_ns = 500 << below(run, 6);
    node->budget = once_in(run, 4) ? 1 + (unsigned)below(run, 16) : 256;
    if (once_in(run, 3))
        node->keep_ppm = (uint32_t)below(run, DP_PPM + 1);
}

static void draw_stream(struct ds_run *run, struct dp_end *from)
{
    unsigned count = (unsigned)skewed(run, 0, 150);
    uint32_t most = (uint32_t)skewed(run, 8, 1 << 20), left = BYTES_MOST;
    struct dp_stream *stream =
        dp_stream_add(&run->traffic, from, count, (unsigned)sl_rng_range(&run->rng, 1, 64));
    unsigned writes = (unsigned)below(run, 3);

    for (unsigned i = 0; i < count; i++) {
        uint32_t len = (uint32_t)skewed(run, 0, most < left ? most : left);

        dp_message_size(stream, i, len, writes == 2 || (writes == 1 && once_in(run, 2)));
        left -= len;
    }
    if (once_in(run, 4))
        stream->frames_most = (unsigned)sl_rng_range(&run->rng, 1, 8);
    stream->is_hostile = run->is_hostile;
}

/* From a chance of its own: all else is as it was before there were classes. */
static void draw_classes(struct ds_run *run, uint64_t seed)
{
    static const enum dp_class classes[] = {DP_CLASS_UNKNOWN, DP_CLASS_FIRST, DP_CLASS_FIRST,
                                            DP_CLASS_LAST, DP_CLASS_DROPPED};
    struct sl_rng rng;

    sl_rng_init(&rng, seed ^ 0xc1a55);
    run->worst.class = classes[sl_rng_below(&rng, SL_ARRAY_LEN(classes))];
    run->queue.has_high = run->worst.class == DP_CLASS_FIRST;
}

/* As after so many packets that numbers and stamps are about to wrap. */
static void age(struct ds_run *run, struct sl_dp_flow *from, struct sl_dp_flow *to)
{
    uint32_t seq = (uint32_t)-1 - (uint32_t)below(run, 200);
    uint32_t stamp = once_in(run, 2) ? UINT16_MAX - (uint32_t)below(run, 200) : seq;

    from->una = from->next = to->due = to->seen = seq;
    from->limit = seq + SL_DP_PLACES_LEAST;
    for (unsigned r = 0; r < from->route_count; r++) {
        struct sl_dp_route *route = &from->route[r];

        route->sent = route->high = route->echoed = route->came = stamp;
        to->rx_route[r].came = stamp;
    }
}

void ds_draw(struct ds_run *run, uint64_t seed)
{
    bool is_old;

    memset(run, 0, offsetof(struct ds_run, old));
    run->olds = run->forged = 0;
    run->replayed_ns = 0;
    sl_rng_init(&run->rng, seed);
    dp_wire_init(&run->wire, seed ^ 0x5eed);
    dp_traffic_init(&run->traffic, &run->wire);
    draw_ends(run);
    draw_faults(run);
    for (unsigned i = 0; i < 2; i++) {
        draw_settings(run, &run->settings[i]);
        draw_node(run, dp_node_add(&run->wire, &run->settings[i]));
    }
    run->queue = (struct dp_queue){.rate = run->wire.node[0].rate / 2,
                                   .limit_bytes = sl_rng_range(&run->rng, 20000, 500000),
                                   .mark_bytes = sl_rng_range(&run->rng, 10000, 100000),
                                   .is_phantom = once_in(run, 2)};
    draw_classes(run, seed);
    run->flows = (unsigned)skewed(run, 1, DS_FLOWS_MAX);
    is_old = once_in(run, 4);
    for (unsigned i = 0; i < run->flows; i++) {
        struct dp_end *ends[2];

        dp_flow_add(&run->wire, &run->wire.node[0], &run->wire.node[1], &run->ends,
                    &dp_traffic_user, ends);
        draw_stream(run, ends[0]);
        draw_stream(run, ends[1]);
        if (is_old) {
            age(run, ends[0]->flow, ends[1]->flow);
            age(run, ends[1]->flow, ends[0]->flow);
        }
    }
    run->wire.watch = ds_watch;
    run->wire.watch_arg = run;
    for (unsigned i = 0; i < run->wire.ends; i++)
        for (unsigned r = 0; r < run->ends.routes; r++) {
            struct dp_path *path = &run->wire.end[i].path[r];

            *path = run->worst;
            path->delay_ns += below(run, path->delay_ns);
            path->queue = run->has_queue && i % 2 == 0 ? &run->queue : NULL;
        }
}

void ds_print(const struct ds_run *run)
{
    const struct dp_path *worst = &run->worst;

    printf("# %u flows of %u routes, %u to %u bytes, crc %d; windows %u, %u; cc %s, %s; acks %u, "
           "%u; RTO from %.0f, %.0f ms\n",
           run->flows, run->ends.routes, run->ends.payload_least, run->ends.payload_most,
           run->ends.crc, run->settings[0].window, run->settings[1].window,
           run->settings[0].cc->name, run->settings[1].cc->name, run->settings[0].ack_packets,
           run->settings[1].ack_packets, (double)run->settings[0].rto_least_ns / 1e6,
           (double)run->settings[1].rto_least_ns / 1e6);
    for (unsigned i = 0; i < 2; i++)
        printf("# node %u: %.0f Gbit/s for %.0f us, polls every %.1f us, budget %u, keeps %u ppm\n",
               i, (double)run->wire.node[i].rate / 125e6, (double)run->wire.node[i].ring_ns / 1e3,
               (double)run->wire.node[i].poll_ns / 1e3, run->wire.node[i].budget,
               run->wire.node[i].keep_ppm);
    printf("# delay %.0f us + %.1f; ppm of loss %u, double %u, damage %u + %u, reorder %u, spike "
           "%u of %.0f ms\n",
           (double)worst->delay_ns / 1e3, (double)worst->jitter_ns / 1e3, worst->loss_ppm,
           worst->double_ppm, worst->damage_ppm, worst->payload_damage_ppm, worst->reorder_ppm,
           worst->spike_ppm, (double)worst->spike_ns / 1e6);
    printf("# for %.1f ms:%s%s%s%s%s%s; class %d; death %.1f, close %.1f ms\n",
           (double)run->faults_ns / 1e6, run->sleeps ? " sleeps" : "",
           run->routes_die ? " routes" : "", run->mtu_shrinks ? " mtu" : "",
           run->forges ? " forged" : "", run->is_hostile ? " hostile" : "",
           run->has_queue ? " queue" : "", (int)worst->class, (double)run->death_ns / 1e6,
           (double)run->close_ns / 1e6);
    for (unsigned i = 0; i < run->wire.ends; i++)
        printf("# stream %u: %u messages, depth %u, frames %u\n", i, run->traffic.stream[i].count,
               run->traffic.stream[i].depth, run->traffic.stream[i].frames_most);
}
