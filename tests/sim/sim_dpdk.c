/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of the DPDK transport over a wire that loses, doubles, delays and damages, one run
 * per seed: ends, settings, messages and faults are drawn. Each byte must be right, each message
 * arrive once and in order and be retired after that, nothing be touched after a close, all end
 * once the faults do, a death be told in time, and all memory come back. Arguments: seeds.h.
 */
#include "tests/sim/dp_swarm.h"
#include "tests/sim/seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define STEP_NS UINT64_C(50000)
#define REST_NS (UINT64_C(30000) * MS) /* for all to end, once there are no faults */
#define DEATH_MARGIN_NS (1100 * MS)    /* a timeout that has doubled to its most, and some */

static struct ds_run run; /* too large for a stack */

static uint64_t now_ns(void)
{
    return run.wire.now_ns;
}

static bool step(void)
{
    for (unsigned i = 0; i < run.wire.ends; i++)
        dp_stream_pump(&run.traffic.stream[i]);
    dp_wire_run(&run.wire, run.wire.now_ns + STEP_NS);
    if (run.wire.count == 0)
        run.wire.now_ns += STEP_NS;
    return run.traffic.wrong[0] == '\0';
}

static bool all_done(void)
{
    for (unsigned i = 0; i < run.wire.ends; i++)
        if (!dp_stream_done(&run.traffic.stream[i]))
            return false;
    return true;
}

/* The flow has no two ends any more that could finish. */
static bool is_cut(const struct dp_stream *stream)
{
    return stream->from->is_closed || stream->to->is_closed || stream->from->node->is_dead ||
           stream->to->node->is_dead;
}

/* All that can end has ended. */
static bool all_over(void)
{
    for (unsigned i = 0; i < run.wire.ends; i++) {
        const struct dp_stream *stream = &run.traffic.stream[i];

        if (dp_stream_done(stream) || stream->status != 0)
            continue;
        if (!is_cut(stream))
            return false;
        if (!stream->from->is_closed && !stream->from->node->is_dead &&
            stream->posted != stream->retired)
            return false; /* it has to be told */
    }
    return true;
}

/* The last news of the peer are before cut_ns, or what the wire lost and somebody sent again. */
static void judge_stream(unsigned i, uint64_t cut_ns)
{
    const struct dp_stream *stream = &run.traffic.stream[i];
    uint64_t news_ns = cut_ns > run.replayed_ns ? cut_ns : run.replayed_ns;
    uint64_t dead_ns = run.settings[0].dead_ns;

    if (stream->is_hostile || dp_stream_done(stream))
        return;
    if (!is_cut(stream))
        dp_wrong(&run.traffic, "stream %u ended with %d: %u of %u arrived, %u retired", i,
                 stream->status, stream->arrived, stream->count, stream->retired);
    else if (stream->status != 0 && stream->status != -ETIMEDOUT)
        dp_wrong(&run.traffic, "stream %u ended with %d", i, stream->status);
    else if (stream->status != 0 && stream->failed_ns > news_ns + dead_ns + DEATH_MARGIN_NS)
        dp_wrong(&run.traffic, "a death was told after %.1f ms",
                 (double)(stream->failed_ns - cut_ns) / 1e6);
    else if (stream->status == 0 && stream->posted != stream->retired && !stream->from->is_closed &&
             !stream->from->node->is_dead)
        dp_wrong(&run.traffic, "a death was not told to stream %u", i);
}

/* Old packets come after the end that they went to was closed. */
static void close_one(void)
{
    dp_traffic_close(&run.traffic, &run.wire.end[0]);
    for (unsigned i = 0; i < run.olds && i < DS_OLD; i++)
        dp_wire_inject(&run.wire, &run.wire.end[run.old[i].end], run.old[i].bytes, run.old[i].len);
}

static bool run_it(void)
{
    uint64_t start_ns = run.wire.now_ns, cut_ns = 0, rest_ns;

    while (run.wire.now_ns < start_ns + run.faults_ns && !all_done()) {
        if (run.death_ns != 0 && run.wire.now_ns >= start_ns + run.death_ns) {
            run.wire.node[1].is_dead = true;
            cut_ns = run.wire.now_ns;
            run.death_ns = 0;
        }
        if (run.close_ns != 0 && run.wire.now_ns >= start_ns + run.close_ns) {
            close_one();
            cut_ns = run.wire.now_ns;
            run.close_ns = 0;
        }
        ds_faults(&run);
        if (!step())
            return false;
    }
    ds_faults_end(&run);
    rest_ns = run.wire.now_ns + REST_NS;
    while (run.wire.now_ns < rest_ns && !all_over() && !run.is_hostile)
        if (!step())
            return false;
    for (unsigned i = 0; i < run.wire.ends; i++)
        judge_stream(i, cut_ns);
    return run.traffic.wrong[0] == '\0';
}

static void print_end(unsigned i)
{
    struct sl_dp_flow_stats s;

    if (run.wire.end[i].is_closed)
        return;
    sl_dp_flow_stats(run.wire.end[i].flow, &s);
    printf("# end %u: sent %" PRIu64 ", again %" PRIu64 " (%" PRIu64 " in vain), got %" PRIu64
           ", twice %" PRIu64 ", acks %" PRIu64 "/%" PRIu64 ", timeouts %" PRIu64
           ", probes %" PRIu64 ", payload %u; routes down %u, up %u; %u of %u arrived\n",
           i, s.sent_packets, s.resent_packets, s.spurious_packets, s.received_packets,
           s.repeated_packets, s.acks_sent, s.acks_received, s.timeouts, s.probes, s.payload_bytes,
           run.wire.end[i].downs, run.wire.end[i].ups, run.traffic.stream[i].arrived,
           run.traffic.stream[i].count);
}

static bool run_seed(uint64_t seed, bool tell, bool trace, char *why, size_t cap)
{
    bool good;

    (void)trace;
    ds_draw(&run, seed);
    if (tell)
        ds_print(&run);
    good = run_it();
    if (tell) {
        printf("# %.3f ms, %u forged\n", (double)run.wire.now_ns / 1e6, run.forged);
        for (unsigned i = 0; i < run.wire.ends; i++)
            print_end(i);
    }
    dp_wire_fini(&run.wire);
    for (unsigned i = 0; i < 2; i++)
        if (run.wire.node[i].memory != 0)
            dp_wrong(&run.traffic, "%zu bytes were not given back", run.wire.node[i].memory);
    good = run.traffic.wrong[0] == '\0';
    snprintf(why, cap, "%s", run.traffic.wrong);
    dp_traffic_fini(&run.traffic);
    return good;
}

int main(int argc, char **argv)
{
    static const struct seeds seeds = {"sim_dpdk", run_seed, now_ns};

    return seeds_main(&seeds, argc, argv);
}
