/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default: a window that holds the queueing delay at a target, after G. Kumar et al., "Swift:
 * Delay is simple and effective for congestion control in the datacenter", SIGCOMM 2020, and backs
 * off by the share of marked packets, after M. Alizadeh et al., "Data center TCP (DCTCP)", SIGCOMM
 * 2010. What differs from the papers, and why, is in docs/design/0048-dpdk.md:
 *
 *  - The delay that counts is what the fabric added to the least RTT known. An end that was off its
 *    core does not look like a queue.
 *  - Loss counts by its share. Up to 2 % it is not the queue's: RTT and marks see that one.
 *  - The step up is a quarter of the root of the window, and grows while nothing speaks against it.
 *  - A round trip is counted in packets: as many as were under way. So it needs no timer, and is
 *    right for ends that stand still for milliseconds.
 */
#include "dpdk/cc/cc.h"

#include <stddef.h>

#define ONE SL_DP_CC_ONE
#define WINDOW_FIRST 16u
#define WINDOW_LEAST (ONE / 64) /* a packet in 64 round trips */
#define WINDOW_PACED (2 * ONE)  /* below it packets are spaced */
#define CUT_MOST (ONE / 2)
#define CUT_DELAY (ONE * 4 / 5) /* of the part by which the RTT is too long */
#define TARGET_TIMES 4          /* a small window's target, at most, against a large one's */
#define LOSS_FREE (ONE / 50)    /* the share of packets that may be lost without consequence */
#define LOSS_PACKETS 1024u      /* over which the share is taken */
#define LEAST_NS UINT64_C(10000000000) /* the least RTT is of the last 10 to 20 s */
#define BASE_NS 20000u                 /* an RTT without queues is no longer, before it is proved */
#define PROOF_ROUNDS 32u /* by so many with a small window and an RTT too long for it */

struct __attribute__((may_alias)) swift {
    uint64_t forget_ns;     /* when the older of the two least RTTs is */
    uint32_t least_ns[2];   /* of this period and the one before */
    uint32_t base_most_ns;  /* an RTT without queues is believed up to here */
    uint32_t floor_ns;      /* the least RTT since the window is small */
    uint32_t rtt_ns;        /* smoothed */
    uint32_t queue_ns;      /* as last measured */
    uint32_t target_ns;     /* for this window */
    uint32_t root;          /* of the window, 8.8 */
    uint32_t step;          /* by which it grows in a round trip, 16.16 */
    uint32_t hold;          /* packets to hear of until the window may be cut again */
    uint32_t round;         /* and until this round trip is over */
    uint32_t acked, marked; /* in this round trip */
    uint32_t came, lost;    /* of the last LOSS_PACKETS or so */
    uint32_t before;        /* the window before a timeout that may have been for nothing */
    uint16_t marked_share;  /* smoothed, 0.16 */
    uint8_t calm;           /* round trips with half the target at most, one after the other */
    uint8_t floor_rounds;
    bool is_starting, is_calm;
    bool is_used, was_used; /* all of the window, in this round trip and the one before */
};
_Static_assert(sizeof(struct swift) <= sizeof(((struct sl_dp_cc_state *)0)->words), "it has room");

static struct swift *swift_of(struct sl_dp_cc_state *state)
{
    return (struct swift *)(void *)state->words;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t ns_32(uint64_t ns)
{
    return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static uint32_t root_of(uint32_t value)
{
    uint32_t root = 0;

    for (uint32_t bit = 1u << 15; bit != 0; bit >>= 1) {
        uint32_t more = root | bit;
        if ((uint64_t)more * more <= value)
            root = more;
    }
    return root;
}

/* What follows from the window, new for each round trip. */
static void swift_derive(struct sl_dp_cc_state *state)
{
    struct swift *swift = swift_of(state);
    uint64_t more;

    swift->root = root_of(state->window);
    /* Many flows make a queue that grows with the root of their number, and a flow with less than
     * the others is to grow until it has as much. */
    more = state->target_ns * 256 / swift->root;
    if (more > state->target_ns * TARGET_TIMES)
        more = state->target_ns * TARGET_TIMES;
    if (more < state->target_ns / 8) /* 64 packets, and above */
        more = state->target_ns / 8;
    swift->target_ns = ns_32(state->target_ns * 7 / 8 + more);
    /* By the root of the RTT too, so that a flow with a longer one gets as much. */
    swift->step =
        (swift->root > 256 ? swift->root : 256) * root_of(least(swift->rtt_ns, 320000) * 3) / 4;
}

static void swift_set(struct sl_dp_cc_state *state, uint64_t window)
{
    struct swift *swift = swift_of(state);

    if (window > (uint64_t)state->most * ONE)
        window = (uint64_t)state->most * ONE;
    if (window < WINDOW_LEAST)
        window = WINDOW_LEAST;
    state->window = (uint32_t)window;
    state->pace_ns = window < WINDOW_PACED ? (uint64_t)swift->rtt_ns * ONE / window : 0;
}

static void swift_init(struct sl_dp_cc_state *state)
{
    struct swift *swift = swift_of(state);

    swift->is_starting = true;
    swift->is_calm = true;
    swift->least_ns[0] = swift->least_ns[1] = swift->floor_ns = UINT32_MAX;
    swift->base_most_ns = BASE_NS;
    swift_set(state, (uint64_t)WINDOW_FIRST * ONE);
    swift_derive(state);
}

/* A share of the window less, and then no more until what is under way is heard of. */
static void swift_cut(struct sl_dp_cc_state *state, uint32_t share, uint32_t under_way)
{
    struct swift *swift = swift_of(state);

    swift->is_starting = false;
    swift->is_calm = false;
    swift->hold = under_way;
    swift_set(state, state->window - ((uint64_t)state->window * least(share, CUT_MOST) >> 16));
}

/* The least RTT is that of all, those included during which an end was away: never too small. */
static void swift_least(struct sl_dp_cc_state *state, uint64_t rtt_ns, uint64_t now_ns)
{
    struct swift *swift = swift_of(state);

    if (now_ns >= swift->forget_ns) {
        swift->forget_ns = now_ns + LEAST_NS;
        swift->least_ns[1] = swift->least_ns[0];
        swift->least_ns[0] = UINT32_MAX;
        swift->base_most_ns = BASE_NS;
    }
    swift->least_ns[0] = least(swift->least_ns[0], ns_32(rtt_ns));
    state->least_ns = least(swift->least_ns[0], swift->least_ns[1]);
}

/* With hardly a packet under way no queue is this flow's. If even then none comes back in time, for
 * long, the way is longer than was believed. */
static void swift_prove(struct sl_dp_cc_state *state, uint64_t rtt_ns)
{
    struct swift *swift = swift_of(state);

    if (state->window >= WINDOW_PACED || swift->queue_ns <= swift->target_ns) {
        swift->floor_ns = UINT32_MAX;
        swift->floor_rounds = 0;
        return;
    }
    swift->floor_ns = least(swift->floor_ns, ns_32(rtt_ns));
    if (++swift->floor_rounds < PROOF_ROUNDS)
        return;
    swift->least_ns[0] = swift->least_ns[1] = swift->base_most_ns = swift->floor_ns;
    swift->floor_ns = UINT32_MAX;
    swift->floor_rounds = 0;
}

static void swift_measure(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    struct swift *swift = swift_of(state);
    uint32_t fabric_ns = ns_32(ack->fabric_ns), base_ns = swift->base_most_ns;

    swift_least(state, ack->rtt_ns, ack->now_ns);
    if (state->least_ns > base_ns)
        base_ns += (ns_32(state->least_ns) - base_ns) / 2;
    swift->queue_ns = fabric_ns > base_ns ? fabric_ns - base_ns : 0;
    if (swift->rtt_ns == 0)
        swift->rtt_ns = fabric_ns;
    swift->rtt_ns = (uint32_t)(((uint64_t)swift->rtt_ns * 7 + fabric_ns) / 8);
    swift_prove(state, ack->rtt_ns);
    if (swift->queue_ns > swift->target_ns / 2) {
        swift->is_calm = false;
        swift->is_starting = false;
    }
}

/* The part of the window that is to go: by delay or by marks, whichever asks for more. */
static uint32_t swift_excess(const struct sl_dp_cc_state *state, const struct swift *swift,
                             bool is_marked)
{
    uint32_t share = 0;

    if (swift->queue_ns > swift->target_ns) {
        uint64_t excess = swift->queue_ns - swift->target_ns;
        share = (uint32_t)(excess * CUT_DELAY / swift->queue_ns);
    }
    if (is_marked && state->window > ONE) {
        uint32_t marks = swift->is_starting ? CUT_MOST : swift->marked_share / 2u;
        share = marks > share ? marks : share;
    }
    return share;
}

static void swift_round(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack,
                        uint32_t marked)
{
    struct swift *swift = swift_of(state);

    swift->acked += ack->acked;
    swift->marked += marked;
    swift->is_used |= state->window < WINDOW_PACED ||
                      (uint64_t)ack->under_way * 8 >= (uint64_t)sl_dp_cc_packets(state) * 7;
    swift->round -= least(swift->round, ack->acked);
    swift->hold -= least(swift->hold, ack->acked);
    if (swift->round != 0)
        return;
    uint32_t share = (uint32_t)((uint64_t)swift->marked * (ONE - 1) / swift->acked);
    swift->marked_share = (uint16_t)((swift->marked_share * 15u + share + 15) / 16);
    swift->calm = swift->is_calm ? (uint8_t)least(swift->calm + 1u, 255) : 0;
    swift->is_calm = true;
    swift->was_used = swift->is_used;
    swift->is_used = false;
    swift->acked = swift->marked = 0;
    swift->round = sl_dp_cc_packets(state);
    swift_derive(state);
}

static void swift_grow(struct sl_dp_cc_state *state, uint32_t acked)
{
    struct swift *swift = swift_of(state);
    uint64_t doubled = (uint64_t)acked * ONE, more;

    more = (uint64_t)swift->step * (8 + swift->calm) / 8 * acked;
    if (state->window > ONE)
        more = more * ONE / state->window;
    if (swift->is_starting || more > doubled)
        more = doubled;
    swift_set(state, state->window + more);
}

/* Share of what was lost of late. */
static uint32_t swift_lost(struct swift *swift, uint32_t came, uint32_t lost)
{
    swift->came += came;
    swift->lost += lost;
    while (swift->came + swift->lost >= LOSS_PACKETS) {
        swift->came /= 2;
        swift->lost /= 2;
    }
    uint32_t all = swift->came + swift->lost;
    return (uint32_t)((uint64_t)swift->lost * ONE /
                      (all > LOSS_PACKETS / 4 ? all : LOSS_PACKETS / 4));
}

static void swift_ack(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    struct swift *swift = swift_of(state);
    uint32_t left = ack->under_way > ack->acked ? ack->under_way - ack->acked : 0, share;

    if (swift->before != 0 && ack->rtt_ns != 0) {
        /* An end was away, and the timeout for nothing. */
        if (ack->fabric_ns < ack->rtt_ns / 2)
            swift_set(state, swift->before);
        swift->before = 0;
    }
    if (ack->acked == 0)
        return;
    if (ack->rtt_ns != 0)
        swift_measure(state, ack);
    swift_lost(swift, ack->acked, 0);
    uint32_t marked = least(ack->marked, ack->acked);
    if (swift->queue_ns > swift->target_ns)
        marked = ack->acked;
    share = swift_excess(state, swift, marked != 0);
    swift->is_calm &= marked == 0;
    swift_round(state, ack, marked);
    if (share != 0 && swift->hold == 0)
        swift_cut(state, share, left);
    else if (swift->is_used || swift->was_used)
        swift_grow(state, ack->acked);
}

static void swift_loss(struct sl_dp_cc_state *state, uint32_t lost, uint64_t now_ns)
{
    struct swift *swift = swift_of(state);
    uint32_t share = swift_lost(swift, 0, lost);

    swift->round -= least(swift->round, lost);
    swift->hold -= least(swift->hold, lost);
    if (share > LOSS_FREE && swift->hold == 0)
        swift_cut(state, 2 * (share - LOSS_FREE), sl_dp_cc_packets(state));
}

static void swift_timeout(struct sl_dp_cc_state *state, uint64_t now_ns)
{
    struct swift *swift = swift_of(state);
    bool is_first = swift->before == 0;

    if (is_first)
        swift->before = state->window;
    swift_cut(state, CUT_MOST, 0);
    if (is_first)
        return;
    swift->is_starting = true;
    swift_set(state, least(state->window, ONE));
}

const struct sl_dp_cc sl_dp_swift = {
    .name = "swift",
    .init = swift_init,
    .ack = swift_ack,
    .loss = swift_loss,
    .timeout = swift_timeout,
};
