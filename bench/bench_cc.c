/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each congestion control of dpdk/cc makes of a queue that flows share, in virtual time
 * (tests/unit/dpdk/bottleneck.h): the table of docs/design/0048-dpdk.md. usage: bench_cc
 *
 * Columns: used, the share of the rate that was delivered; least and most, of a flow against its
 * fair share; queue, the delay in it that half and 99 % of the packets did not exceed, in us;
 * dropped and lost at random, in packets; and the mean window at the end.
 */
#include "tests/unit/dpdk/bottleneck.h"

#include <stdio.h>

#define MS UINT64_C(1000000)
#define GBIT UINT64_C(125000000)
#define MARKS 200000

static const struct sl_dp_cc *const all[] = {&sl_dp_swift, &sl_dp_timely, &sl_dp_fixed};

static void tell(const struct bn *bn, const char *what)
{
    double window = 0;
    uint64_t lost = 0;

    for (size_t i = 0; i < bn->count; i++) {
        window += bn->flows[i].state.window / (double)SL_DP_CC_ONE / (double)bn->count;
        lost += bn->flows[i].lost;
    }
    printf("| %s | %s | %.3f | %.2f | %.2f | %.0f | %.0f | %llu | %.2f |\n", bn->flows[0].cc->name,
           what, bn_used(bn), bn_least(bn), bn_most(bn), (double)bn_delay(bn, 0.5) / 1000,
           (double)bn_delay(bn, 0.99) / 1000, (unsigned long long)lost, window);
}

/* One row: a figure for each of the fields that differ from bn_init()'s. */
struct row {
    const char *what;
    size_t count;
    unsigned gbit;
    uint32_t packet_bytes, mark_bytes, loss_ppm;
    uint64_t limit_bytes, rtt_ns;
    unsigned late_ms;           /* one of them comes so much later */
    uint64_t then_rtt_ns;       /* the RTT from 10 ms on */
    uint64_t away_ns[2];        /* how long sender and receiver are on, and off, their core */
    unsigned warm_ms, until_ms; /* measured between these */
};

static const struct row rows[] = {
    {"1 flow, 10 Gbit/s", 1, 10, .until_ms = 60},
    {"1 flow, 100 Gbit/s", 1, 100, .until_ms = 60},
    {"1 flow, 100 Gbit/s, marks", 1, 100, .mark_bytes = MARKS, .until_ms = 60},
    {"1 flow, packets of 1,500", 1, 100, 1500, .until_ms = 60},
    {"2 flows", 2, 100, .until_ms = 120},
    {"8 flows", 8, 100, .until_ms = 120},
    {"8 flows, marks", 8, 100, .mark_bytes = MARKS, .until_ms = 320},
    {"8 flows, packets of 1,500", 8, 100, 1500, .until_ms = 120},
    {"64 flows", 64, 100, .until_ms = 120},
    {"64 flows, marks", 64, 100, .mark_bytes = MARKS, .until_ms = 120},
    {"64 flows, marks, 1 MiB of buffer", 64, 100, .mark_bytes = MARKS, .limit_bytes = 1 << 20,
     .until_ms = 120},
    {"64 flows, 1 MiB of buffer", 64, 100, .limit_bytes = 1 << 20, .until_ms = 120},
    {"64 flows, 10 Gbit/s", 64, 10, .warm_ms = 200, .until_ms = 1200},
    {"2 flows, 100 kB of buffer", 2, 100, .limit_bytes = 100000, .until_ms = 120},
    {"1 flow, 0.1 % loss", 1, 100, .loss_ppm = 1000, .until_ms = 120},
    {"1 flow, 1 % loss", 1, 100, .loss_ppm = 10000, .until_ms = 120},
    {"1 flow, 5 % loss", 1, 100, .loss_ppm = 50000, .until_ms = 120},
    {"1 flow, 20 % loss", 1, 100, .loss_ppm = 200000, .until_ms = 120},
    {"4 flows, 1 % loss, marks", 4, 100, .loss_ppm = 10000, .mark_bytes = MARKS, .until_ms = 120},
    {"8 flows, the last 30 ms late", 8, 100, .late_ms = 30, .warm_ms = 40, .until_ms = 140},
    {"1 flow, RTT 50 us", 1, 100, .rtt_ns = 50000, .until_ms = 120},
    {"1 flow, RTT 100 us", 1, 100, .rtt_ns = 100000, .until_ms = 120},
    {"1 flow, RTT 200 us", 1, 100, .rtt_ns = 200000, .until_ms = 120},
    {"RTT from 10 to 100 us, next 20 ms", 1, 100, .then_rtt_ns = 100000, .warm_ms = 10,
     .until_ms = 30},
    {"RTT from 10 to 100 us, after", 1, 100, .then_rtt_ns = 100000, .warm_ms = 30, .until_ms = 60},
    {"local wire, RTT 2 us", 1, 70, .limit_bytes = UINT64_C(1) << 40, .rtt_ns = 2000,
     .warm_ms = 100, .until_ms = 400},
    {"the same, receiver 4 of 8 ms away", 1, 70, .limit_bytes = UINT64_C(1) << 40, .rtt_ns = 2000,
     .away_ns = {0, 4 * MS}, .warm_ms = 100, .until_ms = 400},
    {"the same, in turn 4 ms each", 1, 70, .limit_bytes = UINT64_C(1) << 40, .rtt_ns = 2000,
     .away_ns = {4 * MS, 4 * MS}, .warm_ms = 100, .until_ms = 400},
    {"the same, in turn 50 us each", 1, 70, .limit_bytes = UINT64_C(1) << 40, .rtt_ns = 2000,
     .away_ns = {MS / 20, MS / 20}, .warm_ms = 100, .until_ms = 400},
};

static void prepare(struct bn *bn, const struct row *row, const struct sl_dp_cc *cc)
{
    bn_init(bn, row->count, cc, 1);
    bn->rate = row->gbit * GBIT;
    bn->mark_bytes = row->mark_bytes;
    bn->loss_ppm = row->loss_ppm;
    bn->packet_bytes = row->packet_bytes != 0 ? row->packet_bytes : bn->packet_bytes;
    bn->limit_bytes = row->limit_bytes != 0 ? row->limit_bytes : bn->limit_bytes;
    for (size_t i = 0; i < row->count; i++) {
        struct bn_flow *flow = &bn->flows[i];
        flow->rtt_ns = row->rtt_ns != 0 ? row->rtt_ns : flow->rtt_ns;
        flow->answer_packets = row->gbit == 70 ? 32 : 1;
        flow->sender = (struct bn_end){row->away_ns[0], row->away_ns[0], 0};
        flow->receiver = (struct bn_end){row->away_ns[1], row->away_ns[1], row->away_ns[1]};
    }
    bn->flows[row->count - 1].start_ns = row->late_ms * MS;
    bn->flows[row->count - 1].is_late = row->late_ms != 0;
}

int main(void)
{
    printf("| cc | what | used | least | most | queue 50 %% | 99 %% | lost | window |\n");
    printf("|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t j = 0; j < sizeof(all) / sizeof(all[0]); j++) {
            struct bn bn;
            prepare(&bn, &rows[i], all[j]);
            if (rows[i].then_rtt_ns != 0) {
                bn_run(&bn, 10 * MS);
                bn.flows[0].rtt_ns = rows[i].then_rtt_ns;
            }
            bn_run(&bn, (rows[i].warm_ms != 0 ? rows[i].warm_ms : 20) * MS);
            bn_measure(&bn);
            bn_run(&bn, rows[i].until_ms * MS);
            tell(&bn, rows[i].what);
            bn_fini(&bn);
        }
    }
    return 0;
}
