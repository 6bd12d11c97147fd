/* SPDX-License-Identifier: Apache-2.0 */
/* No congestion control: all that the flow may have under way. For comparison, and for a wire that
 * nobody else uses. */
#include "dpdk/cc/cc.h"

static void fixed_init(struct sl_dp_cc_state *state)
{
    state->window = state->most * SL_DP_CC_ONE;
}

static void fixed_ack(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    if (ack->rtt_ns != 0 && (state->least_ns == 0 || ack->rtt_ns < state->least_ns))
        state->least_ns = ack->rtt_ns;
}

static void fixed_loss(struct sl_dp_cc_state *state, uint32_t lost, uint64_t now_ns)
{
}

static void fixed_timeout(struct sl_dp_cc_state *state, uint64_t now_ns)
{
}

const struct sl_dp_cc sl_dp_fixed = {
    .name = "fixed",
    .init = fixed_init,
    .ack = fixed_ack,
    .loss = fixed_loss,
    .timeout = fixed_timeout,
};
