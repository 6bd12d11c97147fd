/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default: a window that holds the queueing delay at a target, after G. Kumar et al., "Swift:
 * Delay is simple and effective for congestion control in the datacenter", SIGCOMM 2020, and backs
 * off by the share of marked packets, after M. Alizadeh et al., "Data center TCP (DCTCP)", SIGCOMM
 * 2010. What differs from the papers, and why, is in docs/design/0048-dpdk.md:
 *
 *  - The delay is the least of a round trip, and only what the fabric added: neither a spike nor an
 *    end that was off its core is a queue.
 *  - An RTT without queues is taken for 20 us, whoever comes first or last. A longer one is proved
 *    by being flat: queues of windows that go up and down are not.
 *  - Above the target the window is cut to half of it, so that the queue goes up and down, stays
 *    below most of the time, and flows become equal soon.
 *  - Loss counts by its share. Up to 2 % it is not the queue's: RTT and marks see that one.
 *  - The step up goes by the roots of window and RTT, and grows while nothing speaks against it.
 *  - A round trip is counted in packets: as many as are under way. So it needs no timer, and is
 *    right for ends that stand still for milliseconds.
 */
#include "dpdk/cc/window.h"

#include <stddef.h>

#define ONE SL_DP_CC_ONE
#define WINDOW_FIRST 16u
#define WINDOW_ALONE (2 * ONE) /* no less by delay alone, or loss alone */
#define WINDOW_BOTH (ONE / 4)  /* nor by delay with loss or marks */
#define CUT_MOST (ONE / 2)
#define MARKS_FEW (ONE / 64)
#define TARGET_TIMES 3       /* a small window's target, at most, beyond a large one's */
#define LOSS_FREE (ONE / 50) /* the share of packets that may be lost without consequence */
#define LOSS_PACKETS 1024u   /* over which the share is taken */
#define BASE_NS 20000u       /* an RTT without queues, before another is proved */
#define BASE_ROUNDS 16u      /* by so many round trips that are longer, and flat */
#define STEP_NS 320000u      /* above this RTT the window grows no faster */
#define DOUBT_NS UINT64_C(2000000000)   /* after which it has to be proved again */
#define FORGET_NS UINT64_C(10000000000) /* the least RTT is that of the last 10 to 20 s */

struct __attribute__((may_alias)) swift {
    uint64_t forget_ns;        /* when the older of the two least RTTs is */
    uint64_t doubt_ns;         /* when base_ns has to be proved again */
    uint32_t least_ns[2];      /* of this period and the one before; for people */
    uint32_t base_ns;          /* RTT without queues, as believed */
    uint32_t flat_ns;          /* the least RTT of the round trips that are longer */
    uint32_t rtt_ns;           /* smoothed */
    uint32_t queue_ns;         /* as last measured */
    uint32_t queue_least_ns;   /* in this round trip */
    uint32_t target_ns;        /* for this window */
    uint32_t step;             /* by which the window grows in a round trip, 16.16 */
    uint32_t hold;             /* packets that left before the last cut */
    uint32_t round;            /* packets to hear of until this round trip is over */
    uint32_t acked, marked;    /* in it */
    uint16_t came, lost;       /* of the last LOSS_PACKETS or so */
    uint32_t before;           /* the window before a timeout that may have been for nothing */
    uint16_t marked_share;     /* smoothed, 0.16 */
    uint8_t calm, flat;        /* round trips, one after the other */
    bool is_starting, is_calm; /* below half of the target, without a mark */
    bool is_used, was_used;    /* all of the window, in this round trip and the one before */
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

static void swift_set(struct sl_dp_cc_state *state, uint64_t window)
{
    sl_dp_cc_set(state, window, swift_of(state)->rtt_ns);
}

/* What follows from window and RTT, for the next round trip. */
static void swift_derive(struct sl_dp_cc_state *state)
{
    struct swift *swift = swift_of(state);
    uint32_t root = root_of(state->window); /* 8.8 */
    uint64_t more = state->target_ns * 128 / root;

    /* Many flows make a queue that grows with the root of their number, and a flow with less than
     * the others is to grow until it has as much. From 64 packets on it is the target itself. */
    if (more > state->target_ns * TARGET_TIMES)
        more = state->target_ns * TARGET_TIMES;
    if (more < state->target_ns / 16)
        more = state->target_ns / 16;
    swift->target_ns = sl_dp_cc_ns(state->target_ns - state->target_ns / 16 + more);
    /* A quarter of the window's root at 20 us, and as the root of the RTT: a flow that has a
     * longer way steps less often. */
    swift->step = (root > 256 ? root : 256) * root_of(least(swift->rtt_ns, STEP_NS) * 3) / 4;
    swift->round = sl_dp_cc_packets(state);
    swift->queue_least_ns = UINT32_MAX;
    swift->acked = swift->marked = 0;
}

static void swift_init(struct sl_dp_cc_state *state)
{
    struct swift *swift = swift_of(state);

    swift->is_starting = swift->is_calm = true;
    swift->least_ns[0] = swift->least_ns[1] = swift->flat_ns = UINT32_MAX;
    swift->base_ns = BASE_NS;
    swift_set(state, (uint64_t)WINDOW_FIRST * ONE);
    swift_derive(state);
}

/* A share of the window less, but not less than floor; then no more until the packets that are
 * under way are heard of. */
static void swift_cut(struct sl_dp_cc_state *state, uint32_t share, uint32_t floor,
                      uint32_t under_way)
{
    struct swift *swift = swift_of(state);
    uint64_t window = state->window - ((uint64_t)state->window * least(share, CUT_MOST) >> 16);

    if (window < floor)
        window = least(floor, state->window);
    swift->is_starting = swift->is_calm = false;
    swift->calm = 0;
    swift->hold = under_way;
    swift_set(state, window);
    swift_derive(state);
}

/* RTTs during which an end was away are long, never short: good for the least of all. */
static void swift_least(struct sl_dp_cc_state *state, uint64_t rtt_ns, uint64_t now_ns)
{
    struct swift *swift = swift_of(state);

    if (now_ns >= swift->forget_ns) {
        swift->forget_ns = now_ns + FORGET_NS;
        swift->least_ns[1] = swift->least_ns[0];
        swift->least_ns[0] = UINT32_MAX;
    }
    if (now_ns >= swift->doubt_ns) {
        swift->doubt_ns = now_ns + DOUBT_NS;
        swift->base_ns = BASE_NS;
    }
    swift->least_ns[0] = least(swift->least_ns[0], sl_dp_cc_ns(rtt_ns));
    state->least_ns = least(swift->least_ns[0], swift->least_ns[1]);
    if (rtt_ns < swift->base_ns)
        swift->base_ns = rtt_ns > BASE_NS ? (uint32_t)rtt_ns : BASE_NS;
}

/* The share of what was lost of late. */
static uint32_t swift_lost(struct swift *swift, uint32_t came, uint32_t lost)
{
    uint32_t all = (uint32_t)swift->came + swift->lost + came + lost, over = 1;

    while (all / over >= LOSS_PACKETS)
        over *= 2;
    swift->came = (uint16_t)((swift->came + came) / over);
    swift->lost = (uint16_t)((swift->lost + lost) / over);
    all /= over;
    return swift->lost * ONE / (all > 256 ? all : 256);
}

/* Round trips too long for this window, and all alike: so is the way. */
static void swift_prove(struct sl_dp_cc_state *state)
{
    struct swift *swift = swift_of(state);
    uint32_t rtt_ns = swift->queue_least_ns + swift->base_ns;

    if (swift->queue_least_ns == UINT32_MAX)
        return;
    swift->flat_ns = least(swift->flat_ns, rtt_ns);
    if (swift->queue_least_ns <= state->target_ns || swift->marked_share > MARKS_FEW ||
        swift->flat_ns < swift->rtt_ns - swift->rtt_ns / 8) {
        swift->flat_ns = UINT32_MAX;
        swift->flat = 0;
    } else if (++swift->flat == BASE_ROUNDS) {
        swift->base_ns = swift->flat_ns;
        swift->flat_ns = UINT32_MAX;
        swift->flat = 0;
        swift->queue_least_ns = 0;
    }
}

static void swift_measure(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    struct swift *swift = swift_of(state);
    uint32_t fabric_ns = sl_dp_cc_ns(ack->fabric_ns);

    swift_least(state, ack->rtt_ns, ack->now_ns);
    swift->queue_ns = fabric_ns > swift->base_ns ? fabric_ns - swift->base_ns : 0;
    swift->queue_least_ns = least(swift->queue_least_ns, swift->queue_ns);
    if (swift->rtt_ns == 0)
        swift->rtt_ns = fabric_ns;
    swift->rtt_ns = (uint32_t)(((uint64_t)swift->rtt_ns * 7 + fabric_ns) / 8);
    if (swift->queue_ns > swift->target_ns / 2)
        swift->is_calm = swift->is_starting = false;
}

/* The share of the window that is to go so that a queue falls to half of the target: never so much
 * that it runs empty. */
static uint32_t swift_excess(const struct swift *swift, uint32_t queue_ns)
{
    uint32_t half_ns = swift->target_ns / 2;

    if (queue_ns <= half_ns)
        return 0;
    return (uint32_t)((uint64_t)(queue_ns - half_ns) * ONE / ((uint64_t)swift->base_ns + queue_ns));
}

/* A round trip is over: the window is cut by what its delay or its marks ask for. */
static void swift_judge(struct sl_dp_cc_state *state, uint32_t under_way)
{
    struct swift *swift = swift_of(state);
    uint32_t marked = (uint32_t)((uint64_t)swift->marked * (ONE - 1) / swift->acked);
    uint32_t share = 0, by_marks = 0, floor = WINDOW_ALONE;
    uint32_t queue_ns;

    swift->marked_share = (uint16_t)((swift->marked_share * 15u + marked) / 16);
    swift_prove(state);
    queue_ns = swift->queue_least_ns == UINT32_MAX ? 0 : swift->queue_least_ns;
    if (queue_ns > swift->target_ns)
        share = swift_excess(swift, queue_ns);
    if (swift->marked != 0)
        by_marks = swift->marked_share / 2u;
    if (swift->marked_share > MARKS_FEW)
        floor = WINDOW_BOTH;
    if (by_marks > share) {
        share = by_marks;
        floor = ONE;
    }
    swift->calm = swift->is_calm ? (uint8_t)least(swift->calm + 1 + swift->rtt_ns / 32768, 255) : 0;
    swift->is_calm = true;
    swift->was_used = swift->is_used;
    swift->is_used = false;
    if (share != 0)
        swift_cut(state, share, floor, under_way);
    else
        swift_derive(state);
}

static void swift_grow(struct sl_dp_cc_state *state, uint32_t acked)
{
    struct swift *swift = swift_of(state);
    uint64_t more = (uint64_t)swift->step * (8 + swift->calm) / 8 * acked;

    if (state->window > ONE)
        more = more * ONE / state->window;
    if (swift->is_starting || more > (uint64_t)acked * ONE)
        more = (uint64_t)acked * ONE;
    swift_set(state, state->window + more);
}

static void swift_ack(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    struct swift *swift = swift_of(state);
    uint32_t acked = least(ack->acked, state->most), marked = least(ack->marked, acked);
    uint32_t left = ack->under_way > acked ? ack->under_way - acked : 0;

    if (swift->before != 0 && ack->rtt_ns != 0) {
        /* An end was away, and the timeout for nothing. */
        if (ack->fabric_ns < ack->rtt_ns / 2)
            swift_set(state, swift->before);
        swift->before = 0;
    }
    if (acked == 0)
        return;
    if (ack->rtt_ns != 0)
        swift_measure(state, ack);
    swift_lost(swift, acked, 0);
    if (marked != 0 && swift->is_starting) {
        swift_cut(state, CUT_MOST, ONE, left);
        return;
    }
    swift->is_used |= sl_dp_cc_is_used(state, ack->under_way);
    if (swift->hold > acked) {
        swift->hold -= acked;
        swift->queue_least_ns = UINT32_MAX;
        return;
    }
    swift->hold = 0;
    swift->is_calm &= marked == 0;
    swift->acked += acked;
    swift->marked += marked;
    swift->round -= least(swift->round, acked);
    if ((marked == 0 || state->window < ONE) && swift->queue_ns <= swift->target_ns &&
        (swift->is_used || swift->was_used))
        swift_grow(state, acked);
    if (swift->round == 0)
        swift_judge(state, left);
}

static void swift_loss(struct sl_dp_cc_state *state, uint32_t lost, uint64_t now_ns)
{
    struct swift *swift = swift_of(state);
    uint32_t share = swift_lost(swift, 0, least(lost, state->most));
    uint32_t excess = swift_excess(swift, swift->queue_ns);

    swift->round -= swift->round > 1 ? least(swift->round - 1, lost) : 0;
    swift->hold -= least(swift->hold, lost);
    swift->flat = 0;
    share = share > LOSS_FREE ? 2 * (share - LOSS_FREE) : 0;
    /* With a queue the loss may be of its end: as much less as it does not need. */
    share = share > excess ? share : excess;
    if (share == 0 || swift->hold != 0)
        return;
    swift_cut(state, share, excess != 0 ? WINDOW_BOTH : WINDOW_ALONE, sl_dp_cc_packets(state));
}

static void swift_timeout(struct sl_dp_cc_state *state, uint64_t now_ns)
{
    struct swift *swift = swift_of(state);
    bool is_first = swift->before == 0;

    if (is_first)
        swift->before = state->window;
    swift_cut(state, CUT_MOST, ONE, 0);
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
