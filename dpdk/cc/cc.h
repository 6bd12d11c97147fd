/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Congestion control of one route of a flow, behind four calls. Pure: time and measurements are
 * handed in. A window is in packets, as 16.16 fixed point, so that it may be less than one; then,
 * and where a window is large, packets are spaced (pace_ns).
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
    uint32_t most;      /* packets that the flow may have under way at all */
    uint64_t pace_ns;   /* between packets; 0: none */
    uint64_t target_ns; /* of queueing delay */
    uint64_t least_ns;  /* RTT without queues, as known */
    uint64_t words[6];  /* the algorithm's own */
};

struct sl_dp_cc {
    const char *name; /* as in SLUICE_DPDK_CC: "swift", "timely", "fixed" */
    void (*init)(struct sl_dp_cc_state *state);
    void (*ack)(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack);
    /* Packets are lost, at most once per round trip. */
    void (*loss)(struct sl_dp_cc_state *state, uint64_t now_ns);
    /* Nothing came back for a whole timeout. */
    void (*timeout)(struct sl_dp_cc_state *state, uint64_t now_ns);
};

extern const struct sl_dp_cc sl_dp_swift, sl_dp_timely, sl_dp_fixed;

#endif
