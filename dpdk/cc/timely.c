/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For comparison: a window that goes by how the RTT changes, after R. Mittal et al., "TIMELY:
 * RTT-based congestion control for the datacenter", SIGCOMM 2015. As the paper has it but for three
 * things: what it does to a rate is done to a window, once per round trip; its thresholds, 50 and
 * 500 us there, go by the target; and a lost packet, of which the paper's fabric has none, takes
 * half of one off the window. It knows no marks.
 */
#include "dpdk/cc/window.h"

#include <stddef.h>

#define ONE SL_DP_CC_ONE
#define STEP ONE /* per round trip */
#define WINDOW_FIRST 16u
#define CUT (ONE * 4 / 5)
#define HIGH_TIMES 10u /* the upper threshold, of the lower one, which is the target */
#define CALM_ROUNDS 5u /* after which the window grows by five steps */
#define FORGET_NS UINT64_C(10000000000)

struct __attribute__((may_alias)) timely {
    uint64_t forget_ns;
    uint32_t least_ns[2];
    uint32_t rtt_ns; /* of the round trip before */
    int32_t change;  /* of the RTT, in ns, smoothed */
    uint32_t round;  /* packets to hear of until this round trip is over */
    uint8_t calm;    /* round trips without an RTT that grows */
    bool is_used;
};
_Static_assert(sizeof(struct timely) <= sizeof(((struct sl_dp_cc_state *)0)->words), "it has room");

static struct timely *timely_of(struct sl_dp_cc_state *state)
{
    return (struct timely *)(void *)state->words;
}

static void timely_init(struct sl_dp_cc_state *state)
{
    struct timely *timely = timely_of(state);

    timely->least_ns[0] = timely->least_ns[1] = UINT32_MAX;
    timely->round = WINDOW_FIRST;
    sl_dp_cc_set(state, (uint64_t)WINDOW_FIRST * ONE, 0);
}

static void timely_least(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    struct timely *timely = timely_of(state);
    uint32_t rtt_ns = sl_dp_cc_ns(ack->rtt_ns), now = timely->least_ns[0];

    if (ack->now_ns >= timely->forget_ns) {
        timely->forget_ns = ack->now_ns + FORGET_NS;
        timely->least_ns[1] = now;
        now = UINT32_MAX;
    }
    timely->least_ns[0] = now = rtt_ns < now ? rtt_ns : now;
    state->least_ns = now < timely->least_ns[1] ? now : timely->least_ns[1];
}

static void timely_round(struct sl_dp_cc_state *state, uint32_t rtt_ns)
{
    struct timely *timely = timely_of(state);
    int64_t change = timely->rtt_ns == 0 ? 0 : (int64_t)rtt_ns - timely->rtt_ns;
    uint64_t window = state->window, cut = 0, high_ns = state->target_ns * HIGH_TIMES;
    bool is_used = timely->is_used;

    change = (timely->change + 7 * change) / 8;
    timely->change = change > INT32_MAX ? INT32_MAX : (int32_t)change;
    timely->rtt_ns = rtt_ns;
    timely->is_used = false;
    if (rtt_ns > high_ns)
        cut = CUT - CUT * high_ns / rtt_ns;
    else if (rtt_ns > state->target_ns && change > 0)
        cut = CUT * (uint64_t)change / state->least_ns;
    if (cut != 0)
        timely->calm = 0;
    else if (timely->calm < CALM_ROUNDS)
        timely->calm++;
    if (cut != 0)
        window -= window * (cut < ONE / 2 ? cut : ONE / 2) / ONE;
    else if (is_used)
        window += timely->calm == CALM_ROUNDS ? 5 * STEP : STEP;
    sl_dp_cc_set(state, window, rtt_ns);
    timely->round = sl_dp_cc_packets(state);
}

static void timely_ack(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    struct timely *timely = timely_of(state);

    timely->is_used |= sl_dp_cc_is_used(state, ack->under_way);
    timely->round -= timely->round < ack->acked ? timely->round : ack->acked;
    if (ack->rtt_ns == 0)
        return;
    timely_least(state, ack);
    if (timely->round == 0)
        timely_round(state, sl_dp_cc_ns(ack->fabric_ns));
}

static void timely_loss(struct sl_dp_cc_state *state, uint32_t lost, uint64_t now_ns)
{
    uint64_t less = (uint64_t)lost * ONE / 2;

    if (less > state->window / 2)
        less = state->window / 2;
    sl_dp_cc_set(state, state->window - less, timely_of(state)->rtt_ns);
}

static void timely_timeout(struct sl_dp_cc_state *state, uint64_t now_ns)
{
    sl_dp_cc_set(state, state->window < ONE ? state->window : ONE, timely_of(state)->rtt_ns);
    timely_of(state)->round = 1;
}

const struct sl_dp_cc sl_dp_timely = {
    .name = "timely",
    .init = timely_init,
    .ack = timely_ack,
    .loss = timely_loss,
    .timeout = timely_timeout,
};
