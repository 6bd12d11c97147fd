/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows that share one queue, in virtual time: what congestion control alone makes of it.
 *
 *   sender 0 --\                                      /-- receiver 0
 *   sender 1 ---+-- rtt/2 -- queue (rate, limit) -- rtt/2 -- receiver 1
 *   sender n --/        CE by a phantom queue         \-- receiver n
 *
 * Answers are neither lost nor queued. Senders always have more to send. A packet is taken for lost
 * once three that left later were answered. Ends are off their core now and then, when asked for.
 */
#ifndef SL_TESTS_UNIT_DPDK_BOTTLENECK_H
#define SL_TESTS_UNIT_DPDK_BOTTLENECK_H

#include "core/rng.h"
#include "dpdk/cc/cc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BN_FLOWS_MAX 128
#define BN_PACKETS_MAX 4096 /* of a flow under way */

/* An end runs for on_ns, and is away for off_ns, over and over. off_ns 0: always there. */
struct bn_end {
    uint64_t on_ns, off_ns, phase_ns;
};

struct bn_flow {
    /* Set before bn_run(). */
    const struct sl_dp_cc *cc;
    uint64_t rtt_ns; /* without queues */
    uint64_t start_ns, stop_ns;
    uint32_t answer_packets; /* an answer for so many; fewer where no more come */
    struct bn_end sender, receiver;
    bool is_late; /* opened at start_ns, when the queue is long already */

    /* Its own. */
    struct sl_dp_cc_state state;
    uint32_t next, oldest, under_way; /* numbers of packets, as they leave */
    uint32_t to_answer, marks_to_answer, latest;
    uint64_t answer_at_ns, sent_ns, pace_at_ns, heard_ns, rto_ns, smooth_ns;
    bool is_paced, is_answering;
    struct {
        uint64_t sent_ns;
        bool came, gone;
    } packets[BN_PACKETS_MAX];

    /* What came of it, in the time that is measured. */
    uint64_t sent, received, lost, timeouts;
};

struct bn {
    uint64_t rate; /* bytes per second */
    uint64_t limit_bytes;
    uint64_t mark_bytes; /* of the phantom queue; 0: no marks */
    uint32_t packet_bytes;
    uint32_t loss_ppm;
    uint64_t target_ns;
    uint32_t most;
    uint64_t measure_ns; /* from when on it is measured */
    size_t count;
    struct bn_flow *flows;
    struct sl_rng rng;

    uint64_t now_ns, busy_ns, phantom_ns;
    struct bn_event *heap;
    size_t heap_len, heap_cap;

    uint64_t delay_ns[64];   /* how many packets found so much queue: bn_delay() */
    uint64_t delayed, above; /* packets, and those that found more than the target */
    uint64_t dropped;
};

/* The flows are calloc'ed, with defaults set. */
void bn_init(struct bn *bn, size_t count, const struct sl_dp_cc *cc, uint64_t seed);
void bn_run(struct bn *bn, uint64_t until_ns);
/* Forgets what was measured; measures from now on. */
void bn_measure(struct bn *bn);
void bn_fini(struct bn *bn);

/* Share of the rate that was delivered, of all flows. */
double bn_used(const struct bn *bn);
/* Jain's index, and the least and the most of a flow against its fair share. */
double bn_jain(const struct bn *bn);
double bn_least(const struct bn *bn);
double bn_most(const struct bn *bn);
/* The delay that `share` of the packets did not exceed, within a quarter. */
uint64_t bn_delay(const struct bn *bn, double share);

#endif
