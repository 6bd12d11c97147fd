/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What arrived and what is lost. A route carries its transmissions in order, numbered by stamps, so
 * each route is judged by itself and spraying is no reordering (after RACK, RFC 8985): a packet is
 * lost when one that was sent later by the same route has arrived, and
 *
 *   - `reorder` or more such packets went after it, or
 *   - it was sent more than a round trip and some more ago.
 *
 * When nothing comes back at all, a tail-loss probe goes after two round trips; after the timeout
 * everything under way on that route is lost. reorder grows when packets turn out to have been sent
 * again in vain: the peer counts what came by each route, and that is more than it should be then.
 */
#include "dpdk/proto/inside.h"

#include <string.h>

#define PROBE_LEAST_NS UINT64_C(200000)      /* floor of the tail-loss probe's time */
#define FIRST_PROBE_NS UINT64_C(5000000)     /* while no RTT is known */
#define LATE_LEAST_NS UINT64_C(10000)        /* beyond the round trip */
#define TIMEOUT_MOST_NS UINT64_C(1000000000) /* however often it doubled */
#define RTT_MOST_NS UINT64_C(1000000000)     /* longer: an end was stopped, and no way is so long */
#define TIMEOUTS_EVICT 2u
#define AWAY_NS UINT64_C(1000000)      /* it did not run for so long: answers may lie in queues */
#define STOPPED_NS UINT64_C(100000000) /* a timer is later than that: the process was stopped */
#define GRACE_NS UINT64_C(200000)
#define CALM_PACKETS 4096u /* without repetitions in vain: reorder shrinks by a step */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- time ---- */

uint64_t sl_dp_probe_timeout(const struct sl_dp_flow *flow, const struct sl_dp_route *route)
{
    (void)flow;
    if (route->srtt_ns == 0)
        return FIRST_PROBE_NS;
    return larger(PROBE_LEAST_NS, 2 * route->srtt_ns);
}

/* Since when the route owes an answer; something is under way. */
static uint64_t owed_since(const struct sl_dp_flow *flow, const struct sl_dp_route *route)
{
    return larger(route->progress_ns, sl_dp_tx_at(flow, route->flying.head)->sent_ns);
}

/* Another route has answered since then: it is the route, and not the peer that does not run. */
static bool others_answer(const struct sl_dp_flow *flow, const struct sl_dp_route *route,
                          uint64_t since_ns)
{
    for (unsigned i = 0; i < flow->route_count; i++)
        if (&flow->route[i] != route && flow->route[i].is_up &&
            flow->route[i].progress_ns > since_ns + sl_dp_probe_timeout(flow, &flow->route[i]))
            return true;
    return false;
}

static uint64_t timeout_of(const struct sl_dp_flow *flow, const struct sl_dp_route *route,
                           uint64_t since_ns)
{
    uint64_t least_ns = flow->engine->settings.rto_least_ns;
    uint64_t ns = larger(2 * sl_dp_probe_timeout(flow, route), route->srtt_ns + 4 * route->var_ns);

    if (others_answer(flow, route, since_ns))
        least_ns /= 8;
    ns = larger(ns, least_ns);
    if (flow->heard_ns > route->progress_ns) /* the peer lives, and may just have no memory */
        return ns;
    return smaller(ns << (route->timeouts < 6 ? route->timeouts : 6), larger(ns, TIMEOUT_MOST_NS));
}

/* How long after it was sent a packet that others have passed is still waited for. */
static uint64_t patience(const struct sl_dp_route *route)
{
    uint64_t rtt_ns = larger(route->srtt_ns, route->latest_ns);

    return rtt_ns + LATE_LEAST_NS + route->srtt_ns * route->reorder / (4 * SL_DP_REORDER_LEAST);
}

static void measure(struct sl_dp_route *route, uint64_t rtt_ns)
{
    uint64_t off;

    rtt_ns = smaller(rtt_ns, RTT_MOST_NS);
    route->latest_ns = rtt_ns;
    if (route->srtt_ns == 0) {
        route->srtt_ns = rtt_ns;
        route->var_ns = rtt_ns / 2;
        return;
    }
    off = rtt_ns > route->srtt_ns ? rtt_ns - route->srtt_ns : route->srtt_ns - rtt_ns;
    route->var_ns = (3 * route->var_ns + off) / 4;
    route->srtt_ns = (7 * route->srtt_ns + rtt_ns) / 8;
}

/* ---- loss ---- */

static void lose(struct sl_dp_flow *flow, struct sl_dp_route *route, uint32_t seq)
{
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);

    sl_dp_seqs_remove(flow, &route->flying, seq);
    sl_dp_seqs_push(flow, &flow->lost, seq);
    tx->state = SL_DP_TX_LOST;
    route->blamed++;
    route->judged++;
    route->lost_packets++;
    route->loss_ppm += (1000000 - route->loss_ppm) >> 9;
    /* A queue that is full may lose many at a time, but not the same ones again. */
    if (tx->len > flow->ends.payload_least && tx->repeats > 0)
        route->large_lost++;
}

void sl_dp_lose_all(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    while (route->flying.count > 0)
        lose(flow, route, route->flying.head);
}

/* Packets that others passed. When the next one is to be looked at. */
static uint64_t lose_late(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    uint64_t now_ns = flow->engine->now_ns, next_ns = SL_DP_NEVER;
    uint32_t lost = 0;

    while (route->flying.count > 0) {
        uint32_t seq = route->flying.head;
        const struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);
        int32_t passed = sl_dp_after(route->high, tx->stamp) - 1;

        if (passed < 0)
            break;
        if ((uint32_t)passed < route->reorder && now_ns < tx->sent_ns + patience(route)) {
            next_ns = tx->sent_ns + patience(route);
            break;
        }
        lost++;
        lose(flow, route, seq);
    }
    if (lost > 0) {
        flow->engine->settings.cc->loss(&route->cc, lost, now_ns);
        sl_dp_ready(flow);
        sl_dp_route_judge(flow, route);
    }
    return next_ns;
}

/* ---- acknowledgements ---- */

static void progress(struct sl_dp_flow *flow, struct sl_dp_route *route, uint32_t stamp)
{
    if (sl_dp_after(stamp + 1, route->high) > 0)
        route->high = stamp + 1;
    route->progress_ns = flow->engine->now_ns;
    route->timeouts = 0;
    route->is_probed = false;
}

/* It arrived. Returns its route's bit. */
static unsigned over(struct sl_dp_flow *flow, uint32_t seq)
{
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);
    struct sl_dp_route *route = &flow->route[tx->route];

    sl_dp_seqs_remove(flow, tx->state == SL_DP_TX_LOST ? &flow->lost : &route->flying, seq);
    tx->state = SL_DP_TX_OVER;
    route->newly++;
    if (tx->repeats == 0) /* else any of its transmissions may be the one */
        progress(flow, route, tx->stamp);
    if (tx->len > flow->ends.payload_least)
        route->large_lost = 0;
    else if (tx->repeats == 0 && route->large_lost != 0)
        sl_dp_mtu_check(flow, route);
    return 1u << tx->route;
}

static unsigned cumulative(struct sl_dp_flow *flow, uint32_t seq)
{
    unsigned touched = 0;

    for (; sl_dp_after(seq, flow->una) > 0; flow->una++) {
        if (sl_dp_bit(flow->acked, flow->tx_mask, flow->una))
            sl_dp_bit_clear(flow->acked, flow->tx_mask, flow->una);
        else
            touched |= over(flow, flow->una);
    }
    while (flow->arrived != flow->cut &&
           sl_dp_after(sl_dp_message_at(flow, flow->arrived)->end_seq, flow->una) <= 0)
        flow->arrived++;
    return touched;
}

static unsigned selective(struct sl_dp_flow *flow, uint32_t seq, const struct sl_dp_ack *ack)
{
    unsigned touched = 0;

    for (unsigned i = 0; i < ack->words; i++, seq += 64) {
        int32_t known = sl_dp_after(flow->next, seq); /* packets that there are */
        uint64_t news;

        if (known <= 0)
            break;
        news = ack->sack[i] & ~sl_dp_bits(flow->acked, flow->tx_mask, seq);
        if (known < 64)
            news &= (UINT64_C(1) << known) - 1;
        for (; news != 0; news &= news - 1) {
            uint32_t one = seq + (uint32_t)__builtin_ctzll(news);

            sl_dp_bit_set(flow->acked, flow->tx_mask, one);
            touched |= over(flow, one);
        }
    }
    return touched;
}

/* What the peer counted, against what should have come: repeated in vain, if it is more. */
static void count(struct sl_dp_flow *flow, struct sl_dp_route *route, uint32_t stamp, uint32_t came)
{
    int32_t missing = sl_dp_after(stamp + 1, came);
    int32_t excess = sl_dp_after(route->blamed, (uint32_t)missing);
    uint32_t vain;

    if (excess <= (int32_t)route->excess) {
        if (route->calm >= CALM_PACKETS && route->reorder > SL_DP_REORDER_LEAST) {
            route->reorder -= (route->reorder - SL_DP_REORDER_LEAST + 3) / 4;
            route->calm = 0;
        }
        return;
    }
    vain = (uint32_t)excess - route->excess;
    route->excess = (uint32_t)excess;
    route->reorder = (uint32_t)smaller(2 * route->reorder, SL_DP_REORDER_MOST);
    route->calm = 0;
    flow->stats.spurious_packets += vain;
    route->loss_ppm -= (uint32_t)smaller(route->loss_ppm, vain * (1000000u >> 9));
}

/* The RTT of the packet that is echoed, less what the peer kept it; 0: it is none. */
static uint64_t echo(struct sl_dp_flow *flow, struct sl_dp_route *route,
                     const struct sl_dp_head *head, const struct sl_dp_ack *ack)
{
    uint32_t stamp = route->sent - (uint16_t)(route->sent - head->stamp);
    const struct sl_dp_tx *tx = sl_dp_tx_at(flow, ack->echo);
    uint64_t rtt_ns;

    if (stamp == route->sent || ack->came == 0)
        return 0;
    count(flow, route, stamp, ack->came);
    if (sl_dp_after(stamp, route->echoed) < 0)
        return 0;
    route->echoed = stamp + 1;
    progress(flow, route, stamp);
    /* Its record stays after it is acknowledged, until its place is needed. */
    if (flow->next - ack->echo - 1 > flow->tx_mask || tx->sent_ns == 0 ||
        &flow->route[tx->route] != route || tx->stamp != stamp)
        return 0;
    rtt_ns = larger(flow->engine->now_ns, tx->sent_ns + 1) - tx->sent_ns;
    measure(route, rtt_ns);
    rtt_ns -= smaller(head->offset, rtt_ns - 1);
    if (route->least_ns == 0 || rtt_ns < route->least_ns)
        route->least_ns = rtt_ns;
    return rtt_ns;
}

/* Tells the congestion control what this answer says of its route. */
static void control(struct sl_dp_flow *flow, struct sl_dp_route *route, const struct sl_dp_ack *ack,
                    uint64_t rtt_ns)
{
    uint32_t marks = ack->ce - route->ce;
    uint64_t away_ns = ack->away_us == UINT16_MAX
                           ? rtt_ns /* or longer */
                           : flow->engine->away_ns + UINT64_C(1000) * ack->away_us;
    struct sl_dp_cc_ack news = {.now_ns = flow->engine->now_ns,
                                .rtt_ns = rtt_ns,
                                .fabric_ns = rtt_ns > away_ns ? rtt_ns - away_ns : rtt_ns != 0,
                                .acked = route->newly,
                                .under_way = route->flying.count + route->newly};

    if (sl_dp_after(ack->came, route->came) <= 0) {
        marks = 0;
    } else {
        sl_dp_heard(flow); /* and not an old answer that somebody repeats */
        route->came = ack->came;
        route->ce = ack->ce;
        route->marked_packets += marks;
    }
    if (news.acked == 0 && rtt_ns == 0)
        return;
    news.marked = (uint32_t)smaller(marks, news.acked);
    route->newly = 0;
    route->judged += news.acked;
    route->calm += news.acked;
    route->loss_ppm -= (uint32_t)(((uint64_t)route->loss_ppm * smaller(news.acked, 512)) >> 9);
    flow->engine->settings.cc->ack(&route->cc, &news);
}

void sl_dp_acknowledged(struct sl_dp_flow *flow, const struct sl_dp_head *head, const void *payload,
                        size_t len)
{
    struct sl_dp_ack ack;
    struct sl_dp_route *route;
    unsigned touched;
    uint64_t rtt_ns;

    if (!sl_dp_ack_read(payload, len, &ack) || head->route >= flow->route_count ||
        sl_dp_after(head->seq, flow->next) > 0) {
        flow->engine->dropped_bad++;
        return;
    }
    flow->stats.acks_received++;
    route = &flow->route[head->route];
    rtt_ns = echo(flow, route, head, &ack);
    touched = cumulative(flow, head->seq);
    if (head->seq == flow->una) /* else a later one came before it */
        touched |= selective(flow, head->seq + 1, &ack);
    if (sl_dp_after(head->imm, flow->limit) > 0)
        flow->limit = head->imm;
    control(flow, route, &ack, rtt_ns);
    for (touched |= 1u << head->route; touched != 0; touched &= touched - 1) {
        uint64_t at_ns = lose_late(flow, &flow->route[__builtin_ctz(touched)]);

        if (at_ns != SL_DP_NEVER)
            sl_dp_wake(flow, at_ns);
    }
    if (flow->lost.count > 0 || flow->cut != flow->posted)
        sl_dp_ready(flow);
    sl_dp_retire(flow);
}

/* ---- timers ---- */

static void time_out(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    flow->stats.timeouts++;
    if (route->timeouts < UINT8_MAX)
        route->timeouts++;
    route->is_probed = false;
    route->progress_ns = flow->engine->now_ns;
    sl_dp_lose_all(flow, route);
    flow->engine->settings.cc->timeout(&route->cc, flow->engine->now_ns);
    sl_dp_ready(flow);
    if (route->timeouts >= TIMEOUTS_EVICT && sl_dp_route_evict(flow, route))
        return;
    sl_dp_routes_retry(flow);
    sl_dp_probe(flow, route, 0); /* does anything pass? */
}

/* What the route's time has come for. When it is to be looked at again. */
static uint64_t expire_route(struct sl_dp_flow *flow, struct sl_dp_route *route, uint64_t now_ns)
{
    uint64_t late_ns = lose_late(flow, route), since_ns, probe_ns, timeout_ns;

    if (route->flying.count == 0)
        return SL_DP_NEVER;
    since_ns = owed_since(flow, route);
    timeout_ns = since_ns + timeout_of(flow, route, since_ns);
    if (now_ns >= timeout_ns) {
        time_out(flow, route);
        return SL_DP_NEVER;
    }
    probe_ns = since_ns + sl_dp_probe_timeout(flow, route);
    if (!route->is_probed && now_ns >= probe_ns) {
        uint32_t seq = route->flying.head;

        if (sl_dp_transmit(flow, (unsigned)(route - flow->route), seq, SL_DP_FLAG_NOW) == 0) {
            route->is_probed = true;
            flow->stats.probes++;
            if (sl_dp_tx_at(flow, seq)->len > flow->ends.payload_least)
                route->large_lost++;
        } else {
            return now_ns + GRACE_NS; /* the port is full */
        }
    }
    return smaller(late_ns, route->is_probed ? timeout_ns : probe_ns);
}

/* It failed, as the peer has not been heard for too long. */
static bool is_dead(struct sl_dp_flow *flow, uint64_t now_ns, uint64_t *at_ns)
{
    if (!sl_dp_busy(flow))
        return false;
    *at_ns = flow->silent_ns + flow->engine->settings.dead_ns;
    if (now_ns < *at_ns)
        return false;
    sl_dp_fail(flow, -ETIMEDOUT, "the peer has not answered for %llu ms",
               (unsigned long long)((now_ns - flow->silent_ns) / 1000000));
    return true;
}

void sl_dp_expire(struct sl_dp_timer *timer, uint64_t now_ns)
{
    struct sl_dp_flow *flow = sl_container_of(timer, struct sl_dp_flow, timer);
    uint64_t next_ns = SL_DP_NEVER, late_ns;

    now_ns = flow->engine->now_ns;
    late_ns = now_ns > timer->at_ns ? now_ns - timer->at_ns : 0;
    if (late_ns > STOPPED_NS)
        flow->silent_ns = smaller(flow->silent_ns + (late_ns - STOPPED_NS), now_ns);
    if (flow->engine->away_ns > AWAY_NS && !flow->is_excused) {
        flow->is_excused = true;
        sl_dp_wake(flow, now_ns + GRACE_NS);
        return;
    }
    flow->is_excused = false;
    if (is_dead(flow, now_ns, &next_ns))
        return;
    for (unsigned i = 0; i < flow->route_count; i++)
        next_ns = smaller(next_ns, expire_route(flow, &flow->route[i], now_ns));
    next_ns = smaller(next_ns, sl_dp_mtu_probes(flow, now_ns));
    next_ns = smaller(next_ns, sl_dp_route_probes(flow, now_ns));
    if (flow->lost.count > 0 || flow->cut != flow->posted)
        sl_dp_ready(flow); /* what was paced */
    if (next_ns != SL_DP_NEVER)
        sl_dp_wake(flow, next_ns);
}
