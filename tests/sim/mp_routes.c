/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes over routes that have a rate, a latency and losses: reliable as a NIC makes them. A lane
 * sends one message after the other in packets. When one is lost, all behind it wait: until a later
 * packet shows the peer the gap, or, where there is none, until the sender has waited for its
 * acknowledge long enough.
 */
#include "multipath/conn.h"
#include "tests/sim/mp_lanes_inside.h"

#define NO_BUFFER_NS 20000 /* until the peer is tried again that had no buffer */

void lanes_route(struct lanes *lanes, unsigned rail_a, unsigned rail_b, unsigned turn,
                 const struct lanes_route *route)
{
    lanes->routes[rail_a][rail_b][turn] = *route;
}

void lanes_repeat(struct lanes *lanes, uint64_t ns, unsigned times)
{
    lanes->repeat_ns = ns;
    lanes->repeat_times = times;
}

static const struct lanes_route *route_of(const struct lane *lane)
{
    unsigned ours = lane->base.rail->idx, theirs = lane->base.remote_rail;
    unsigned turn = lane->base.turn % LANES_TURNS;

    return lane->side == 0 ? &lane->lanes->routes[ours][theirs][turn]
                           : &lane->lanes->routes[theirs][ours][turn];
}

static bool is_dropped(struct lane *lane)
{
    return sl_rng_below(&lane->lanes->rng, 1000000) < route_of(lane)->loss_ppm;
}

/* How many of its packets arrive before the first that is lost. */
static unsigned pass(struct lane *lane, const struct lane_packet *message, unsigned count)
{
    const struct lanes_route *route = route_of(lane);
    uint32_t longest = message->len < LANES_PACKET ? message->len : LANES_PACKET;
    unsigned n = 0;

    if (route->largest != 0 && longest > route->largest)
        return 0;
    while (n < count && !is_dropped(lane))
        n++;
    return n;
}

/* Does a packet behind the lost one tell the peer? Not if it is lost, too. */
static bool is_told(struct lane *lane, const struct lane_packet *message, bool is_last)
{
    const struct lanes_route *route = route_of(lane);

    if (route->largest != 0 && message->len > route->largest)
        return false;
    return (!is_last || message->link.next != &lane->out) && !is_dropped(lane);
}

/* The first of what is posted leaves, or leaves again. */
static void begin(struct lane *lane, uint64_t now_ns)
{
    const struct lane_packet *message =
        sl_container_of(lane->out.next, const struct lane_packet, link);
    const struct lanes_route *route = route_of(lane);
    unsigned count = (message->len + LANES_PACKET - 1) / LANES_PACKET;
    unsigned passed = pass(lane, message, count);
    uint64_t start_ns = lane->free_ns > now_ns ? lane->free_ns : now_ns;

    lane->is_lost = passed < count;
    lane->due_ns = start_ns + message->len * route->ps_per_byte / 1000;
    if (!lane->is_lost)
        return;
    if (is_told(lane, message, passed + 1 == count)) {
        lane->due_ns += 2 * route->latency_ns;
    } else {
        lane->due_ns += lane->lanes->repeat_ns;
        lane->tries++;
    }
}

/* What was begun has arrived, or not. */
static void end(struct lane *lane, struct lane *to)
{
    const struct lanes_route *route = route_of(lane);
    uint64_t at_ns = lane->due_ns;
    uint32_t number = lane->delivered;

    lane->due_ns = SL_NEVER;
    if (lane->tries > lane->lanes->repeat_times) {
        lanes_fail(lane);
        return;
    }
    lane->free_ns = at_ns;
    if (lane->is_lost)
        return;
    if (!lanes_deliver(lane, to)) {
        lane->free_ns = at_ns + NO_BUFFER_NS;
        return;
    }
    lane->tries = 0;
    lane->ack_ns[number % 64] = is_dropped(lane) ? SL_NEVER : at_ns + 2 * route->latency_ns;
}

/* A lost acknowledge is made up for by a later one, or by sending the last one again. */
static uint64_t acknowledge(struct lane *lane, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER;
    uint32_t last = lane->delivered - 1;

    for (uint32_t n = lane->acked; n != lane->delivered; n++) {
        if (lane->ack_ns[n % 64] <= now_ns)
            lane->acked = n + 1;
        else if (lane->ack_ns[n % 64] < next_ns)
            next_ns = lane->ack_ns[n % 64];
    }
    if (lane->acked == lane->delivered || next_ns != SL_NEVER || !sl_list_empty(&lane->out))
        return next_ns;
    if (lane->tries++ >= lane->lanes->repeat_times) {
        lanes_fail(lane);
        return SL_NEVER;
    }
    uint64_t again_ns = now_ns + lane->lanes->repeat_ns;

    while (is_dropped(lane) && lane->tries++ < lane->lanes->repeat_times)
        again_ns += lane->lanes->repeat_ns;
    return lane->ack_ns[last % 64] = again_ns;
}

/* When something is to move next. */
static uint64_t move(struct lane *lane, uint64_t now_ns)
{
    struct lane *to = lanes_peer(lane);
    uint64_t next_ns = acknowledge(lane, now_ns);

    while (!lane->failed && !sl_list_empty(&lane->out)) {
        if (!lanes_takes(to)) {
            /* Nobody answers: it notices in the end. */
            lane->due_ns = lane->due_ns == SL_NEVER
                               ? now_ns + lane->lanes->repeat_ns * lane->lanes->repeat_times
                               : lane->due_ns;
            if (lane->due_ns <= now_ns)
                lanes_fail(lane);
            break;
        }
        if (lane->due_ns == SL_NEVER)
            begin(lane, now_ns);
        if (lane->due_ns > now_ns)
            break;
        end(lane, to);
    }
    return lane->due_ns < next_ns ? lane->due_ns : next_ns;
}

uint64_t lanes_move(struct lanes *lanes)
{
    uint64_t now_ns = loop_now(lanes->loop), next_ns = SL_NEVER;

    while (lanes_wire_step(lanes))
        ;
    for (unsigned i = 0; i < lanes->lanes_end; i++) {
        struct lane *lane = lanes->lane[i];

        if (!lanes_takes(lane))
            continue;
        uint64_t at_ns = move(lane, now_ns);

        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    return next_ns;
}
