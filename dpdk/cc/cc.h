/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Congestion control of one route of a flow, behind four calls. Pure: time and measurements are
 * handed in. A window is in packets, as 16.16 fixed point, so that it may be less than one; where
 * it is small, packets are spaced (pace_ns). docs/design/0048-dpdk.md has reasons and figures.
 */
#ifndef SL_DPDK_CC_CC_H
#define SL_DPDK_CC_CC_H

#include <stdbool.h>
#include <stdint.h>

#define SL_DP_CC_ONE (1u << 16)

/* What one answer says of the route. */
struct sl_dp_cc_ack {
    uint64_t now_ns;
    uint64_t rtt_ns;    /* 0: not measured by this one */
    uint64_t fabric_ns; /* the part of it for which neither end was away from the network */
    uint32_t acked;     /* packets that it newly acknowledges */
    uint32_t marked;    /* of them with a congestion mark, as far as it is known */
    uint32_t under_way; /* packets, before it */
};

struct sl_dp_cc_state {
    uint32_t window;    /* packets, 16.16 */
    uint32_t most;      /* packets that the flow may have under way at all; before init */
    uint64_t pace_ns;   /* from one packet to the next, at least; 0: no matter */
    uint64_t target_ns; /* of queueing delay; before init */
    uint64_t least_ns;  /* RTT without queues, as known */
    uint64_t words[12]; /* the algorithm's own */
};

struct sl_dp_cc {
    const char *name; /* as in SLUICE_DPDK_CC: "swift", "timely", "fixed" */
    /* most and target_ns are set, all else is zero. */
    void (*init)(struct sl_dp_cc_state *state);
    void (*ack)(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack);
    /* So many packets were found lost, each told once. How often is no matter: the algorithm sees
     * to it that a round trip's losses are one sign. */
    void (*loss)(struct sl_dp_cc_state *state, uint32_t lost, uint64_t now_ns);
    /* Nothing came back for a whole timeout. */
    void (*timeout)(struct sl_dp_cc_state *state, uint64_t now_ns);
};

/* Packets that may be under way: a part of one counts as one, and pace_ns makes up for it. */
static inline uint32_t sl_dp_cc_packets(const struct sl_dp_cc_state *state)
{
    return (state->window + SL_DP_CC_ONE - 1) / SL_DP_CC_ONE;
}

extern const struct sl_dp_cc sl_dp_swift, sl_dp_timely, sl_dp_fixed;

#endif
