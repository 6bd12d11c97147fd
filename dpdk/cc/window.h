/* SPDX-License-Identifier: Apache-2.0 */
/* Setting the window, for the algorithms of this folder. */
#ifndef SL_DPDK_CC_WINDOW_H
#define SL_DPDK_CC_WINDOW_H

#include "dpdk/cc/cc.h"

#include <stddef.h>
#include <stdint.h>

#define SL_DP_CC_LEAST (SL_DP_CC_ONE / 64) /* a packet in 64 round trips */
#define SL_DP_CC_PACED (8 * SL_DP_CC_ONE)  /* below it packets are spaced */

static inline uint32_t sl_dp_cc_ns(uint64_t ns)
{
    return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

/* Within its limits. A small one is spaced, as it lets a whole packet go for each part of one: a
 * little sooner than its part of the RTT, so that what holds back a flow of several packets is its
 * window, as it is for those that have more. */
static inline void sl_dp_cc_set(struct sl_dp_cc_state *state, uint64_t window, uint32_t rtt_ns)
{
    if (window > (uint64_t)state->most * SL_DP_CC_ONE)
        window = (uint64_t)state->most * SL_DP_CC_ONE;
    if (window < SL_DP_CC_LEAST)
        window = SL_DP_CC_LEAST;
    state->window = (uint32_t)window;
    state->pace_ns = 0;
    if (window < SL_DP_CC_PACED)
        state->pace_ns = (uint64_t)rtt_ns * 7 / 8 * SL_DP_CC_ONE / window;
}

/* Is the window what holds the flow back, as this answer has it? An answer may be for many packets,
 * and what is spaced is seldom all under way. */
static inline bool sl_dp_cc_is_used(const struct sl_dp_cc_state *state, uint32_t under_way)
{
    return state->window < SL_DP_CC_PACED ||
           (uint64_t)under_way * 8 >= (uint64_t)sl_dp_cc_packets(state) * 7;
}

#endif
