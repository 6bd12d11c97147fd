/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which route a packet goes by, and which routes there are. Each has a window of its own, so under
 * load each carries what it delivers; otherwise the one with the shortest way through is taken.
 *
 * A route is given up while another one works: after two timeouts in a row, or when it loses more
 * than 5 % and four times as much as the others. It is probed then, at intervals that double from
 * 10 ms to 1 s, and is back when three probes in a row were answered; one that is given up again
 * soon goes on with the interval where it was. The last route is never given up.
 */
#include "dpdk/proto/inside.h"

#define SAME_ROUTE 4u                        /* packets before the choice is made again */
#define PATIENCE_LEAST_NS UINT64_C(10000000) /* between probes of a route that was given up */
#define PATIENCE_MOST_NS UINT64_C(1000000000)
#define ANSWERED_NS UINT64_C(1000000) /* to the next probe, after an answer */
#define ANSWERS 3u
#define SOON 64u /* times its interval: it was given up again */
#define JUDGED_LEAST 128u
#define LOSS_PPM 50000u
#define LOSS_TIMES 4u
#define LOSS_MORE_PPM 20000u

/* ---- choice ---- */

static void count_usable(struct sl_dp_flow *flow)
{
    uint16_t up = 0, liked = 0;

    flow->weight_most = 1;
    for (unsigned i = 0; i < flow->route_count; i++) {
        const struct sl_dp_route *route = &flow->route[i];

        if (!route->is_up)
            continue;
        up |= (uint16_t)(1u << i);
        if (!route->is_avoided)
            liked |= (uint16_t)(1u << i);
        if (route->weight > flow->weight_most)
            flow->weight_most = route->weight;
    }
    flow->usable = liked != 0 ? liked : up;
    flow->same_route = 0;
}

void sl_dp_route_init(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    const struct sl_dp_settings *settings = &flow->engine->settings;

    route->cc = (struct sl_dp_cc_state){.most = settings->window, .target_ns = settings->target_ns};
    settings->cc->init(&route->cc);
    route->reorder = SL_DP_REORDER_LEAST;
    route->weight = 100;
    route->is_up = true;
    route->up_ns = flow->engine->now_ns;
    count_usable(flow);
}

static uint32_t window(const struct sl_dp_flow *flow, const struct sl_dp_route *route)
{
    if (route->weight == flow->weight_most)
        return route->cc.window;
    return (uint32_t)((uint64_t)route->cc.window * route->weight / flow->weight_most) + 1;
}

uint32_t sl_dp_route_room(const struct sl_dp_flow *flow, const struct sl_dp_route *route)
{
    /* A part of a packet counts as one: cc/ spaces them. */
    uint32_t packets = (window(flow, route) + SL_DP_CC_ONE - 1) / SL_DP_CC_ONE;

    return packets > route->flying.count ? packets - route->flying.count : 0;
}

static bool has_room(struct sl_dp_flow *flow, struct sl_dp_route *route, uint64_t now_ns)
{
    if (sl_dp_route_room(flow, route) == 0)
        return false;
    if (route->cc.pace_ns == 0 || now_ns >= route->last_ns + route->cc.pace_ns)
        return true;
    sl_dp_wake(flow, route->last_ns + route->cc.pace_ns);
    return false;
}

/* Until a packet that goes by it now has been answered, as far as is known. */
static uint64_t cost(const struct sl_dp_flow *flow, const struct sl_dp_route *route)
{
    uint64_t packets = route->flying.count + 1;
    uint32_t room = window(flow, route);

    return (packets * (route->srtt_ns + 1000) << 16) / (room > 0 ? room : 1);
}

static struct sl_dp_route *choose_anew(struct sl_dp_flow *flow, uint64_t now_ns)
{
    struct sl_dp_route *best = NULL;
    uint64_t best_cost = SL_DP_NEVER;

    for (unsigned left = flow->usable; left != 0; left &= left - 1) {
        struct sl_dp_route *route = &flow->route[__builtin_ctz(left)];
        uint64_t price;

        if (!has_room(flow, route, now_ns))
            continue;
        price = cost(flow, route);
        if (price >= best_cost)
            continue;
        best = route;
        best_cost = price;
    }
    return best;
}

struct sl_dp_route *sl_dp_route_choose(struct sl_dp_flow *flow, uint64_t now_ns)
{
    struct sl_dp_route *route = &flow->route[flow->last_route];

    if (flow->route_count == 1)
        return has_room(flow, route, now_ns) ? route : NULL;
    if (flow->same_route > 0 && has_room(flow, route, now_ns)) {
        flow->same_route--;
        return route;
    }
    route = choose_anew(flow, now_ns);
    if (route != NULL) {
        flow->last_route = (uint8_t)(route - flow->route);
        flow->same_route = SAME_ROUTE - 1;
    }
    return route;
}

unsigned sl_dp_route_back(const struct sl_dp_flow *flow, unsigned peer_route)
{
    unsigned idx = peer_route % flow->route_count;

    if ((flow->usable >> idx & 1) != 0)
        return idx;
    return (unsigned)__builtin_ctz(flow->usable);
}

void sl_dp_route_weight(struct sl_dp_flow *flow, unsigned idx, unsigned weight, bool is_avoided)
{
    struct sl_dp_route *route = &flow->route[idx];

    sl_dassert(idx < flow->route_count);
    route->weight = (uint8_t)(weight < 1 ? 1 : weight > 100 ? 100 : weight);
    route->is_avoided = is_avoided;
    count_usable(flow);
}

/* ---- up and down ---- */

static void changed(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    count_usable(flow);
    if (flow->engine->ops->route_changed != NULL)
        flow->engine->ops->route_changed(flow, (unsigned)(route - flow->route), route->is_up);
}

static bool another_works(const struct sl_dp_flow *flow, const struct sl_dp_route *route)
{
    for (unsigned i = 0; i < flow->route_count; i++)
        if (&flow->route[i] != route && flow->route[i].is_up && flow->route[i].timeouts == 0)
            return true;
    return false;
}

bool sl_dp_route_evict(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    uint64_t now_ns = flow->engine->now_ns;

    if (!route->is_up || !another_works(flow, route))
        return false;
    if (route->backed_off_ns != 0 && now_ns - route->up_ns < SOON * route->backed_off_ns)
        route->patience_ns = 2 * route->backed_off_ns;
    else
        route->patience_ns = PATIENCE_LEAST_NS;
    if (route->patience_ns > PATIENCE_MOST_NS)
        route->patience_ns = PATIENCE_MOST_NS;
    route->backed_off_ns = route->patience_ns;
    route->is_up = false;
    route->failures++;
    route->answers = 0;
    route->probe.is_out = false;
    route->retry_ns = now_ns + route->patience_ns;
    sl_dp_lose_all(flow, route);
    sl_dp_wake(flow, route->retry_ns);
    sl_dp_ready(flow);
    changed(flow, route);
    return true;
}

void sl_dp_route_judge(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    uint64_t sum_ppm = 0;
    unsigned others = 0;

    if (route->judged < JUDGED_LEAST || route->loss_ppm < LOSS_PPM)
        return;
    for (unsigned i = 0; i < flow->route_count; i++) {
        if (&flow->route[i] == route || !flow->route[i].is_up)
            continue;
        sum_ppm += flow->route[i].loss_ppm;
        others++;
    }
    if (others > 0 && route->loss_ppm > LOSS_MORE_PPM + LOSS_TIMES * sum_ppm / others)
        sl_dp_route_evict(flow, route);
}

static void come_back(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    uint8_t weight = route->weight;

    sl_dp_route_init(flow, route);
    route->weight = weight;
    route->timeouts = 0;
    route->is_probed = false;
    route->loss_ppm = route->judged = route->large_lost = 0;
    sl_dp_ready(flow);
    changed(flow, route);
}

void sl_dp_route_answered(struct sl_dp_flow *flow, struct sl_dp_route *route)
{
    if (++route->answers >= ANSWERS) {
        come_back(flow, route);
        return;
    }
    route->retry_ns = flow->engine->now_ns + ANSWERED_NS;
    sl_dp_wake(flow, route->retry_ns);
}

void sl_dp_routes_retry(struct sl_dp_flow *flow)
{
    uint64_t now_ns = flow->engine->now_ns;

    for (unsigned i = 0; i < flow->route_count; i++)
        if (flow->route[i].is_up && flow->route[i].timeouts == 0)
            return;
    for (unsigned i = 0; i < flow->route_count; i++) {
        struct sl_dp_route *route = &flow->route[i];

        if (route->is_up)
            continue;
        route->retry_ns = now_ns;
        route->patience_ns = PATIENCE_LEAST_NS;
        sl_dp_wake(flow, now_ns);
    }
}

uint64_t sl_dp_route_probes(struct sl_dp_flow *flow, uint64_t now_ns)
{
    uint64_t next_ns = SL_DP_NEVER;

    for (unsigned i = 0; i < flow->route_count; i++) {
        struct sl_dp_route *route = &flow->route[i];

        if (route->is_up)
            continue;
        if (now_ns >= route->retry_ns) {
            if (route->probe.is_out) {
                route->answers = 0;
                route->patience_ns *= 2;
                if (route->patience_ns > PATIENCE_MOST_NS)
                    route->patience_ns = PATIENCE_MOST_NS;
            }
            sl_dp_probe(flow, route, flow->mtu.payload);
            route->retry_ns = now_ns + route->patience_ns;
        }
        if (route->retry_ns < next_ns)
            next_ns = route->retry_ns;
    }
    return next_ns;
}
