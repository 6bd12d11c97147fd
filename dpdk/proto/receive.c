/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From packets to messages: each goes straight to its place, in whatever order they come. What came
 * before its turn is a bit and a record; the rest follows when what was missing is there. Answers
 * go out once per run for each route by which something came.
 *
 * But an answer would leave just before the reply of a program that takes turns with its peer, and
 * delay it at both ends. So where a frame came alone, and the owner has replied to such frames
 * within SL_DP_TURN_NS, its answer waits for one more run, behind the reply.
 *
 * And an engine that polls faster than packets come would answer each one, which costs its sender
 * more than anything else of this protocol. So the answer to a packet whose sender says that more
 * follows waits for up to SL_DP_HELD_MOST packets or SL_DP_HELD_NS, while its route shows no gap
 * and no mark.
 */
#include "dpdk/proto/inside.h"

#include <string.h>

#define WARY_PACKETS (SL_DP_REORDER_LEAST + 1) /* that tell a sender what it lost */

/* A packet as it came. */
struct packet {
    struct sl_dp_head head;
    const void *payload;
    size_t len;
};

static bool grow(struct sl_dp_flow *flow, uint32_t distance)
{
    struct sl_dp_engine *engine = flow->engine;
    uint32_t old = flow->rx_mask + 1, places = 2 * old;
    struct sl_dp_rx *rx;
    uint64_t *came;

    while (places <= distance)
        places *= 2;
    rx = sl_dp_alloc(engine, places * sizeof(*rx));
    came = sl_dp_alloc(engine, places / 8);
    if (rx == NULL || came == NULL) {
        sl_dp_free(engine, rx, places * sizeof(*rx));
        sl_dp_free(engine, came, places / 8);
        return false;
    }
    for (uint32_t seq = flow->due; seq != flow->due + old; seq++) {
        rx[seq & (places - 1)] = flow->rx[seq & flow->rx_mask];
        if (sl_dp_bit(flow->came, flow->rx_mask, seq))
            sl_dp_bit_set(came, places - 1, seq);
    }
    sl_dp_free(engine, flow->rx, old * sizeof(*rx));
    sl_dp_free(engine, flow->came, old / 8);
    flow->rx = rx;
    flow->came = came;
    flow->rx_mask = places - 1;
    return true;
}

/* ---- order ---- */

/* The packet that is due: its message goes on, and may be whole. False: it does not fit. */
static bool proceed(struct sl_dp_flow *flow, uint8_t flags, uint32_t imm, uint32_t offset,
                    uint32_t end)
{
    bool is_write = (flags & SL_DP_FLAG_WRITE) != 0;
    uint32_t len;

    if (!flow->rx_within) {
        flow->rx_within = true;
        flow->rx_imm = imm;
        flow->rx_at = offset;
        flow->rx_len = 0;
        flow->rx_flags = flags & SL_DP_FLAG_WRITE;
    }
    if (flow->rx_imm != imm || flow->rx_at != offset || end < offset ||
        flow->rx_flags != (flags & SL_DP_FLAG_WRITE)) {
        sl_dp_fail(flow, -EPROTO, "packet %u of message 0x%x does not follow the one before",
                   flow->due, imm);
        return false;
    }
    flow->rx_len += end - offset;
    flow->rx_at = end;
    flow->due++;
    /* Or it is half of all numbers behind one day, where everything comes in order. */
    if (sl_dp_after(flow->due, flow->seen) > 0)
        flow->seen = flow->due;
    if ((flags & SL_DP_FLAG_LAST) == 0)
        return true;
    flow->rx_within = false;
    len = flow->rx_len;
    flow->engine->ops->arrived(flow, is_write, imm, len);
    return !flow->has_failed;
}

/* What came before its turn, and now has it. */
static void catch_up(struct sl_dp_flow *flow)
{
    while (sl_dp_bit(flow->came, flow->rx_mask, flow->due)) {
        struct sl_dp_rx *rx = &flow->rx[flow->due & flow->rx_mask];
        struct sl_dp_rx done = *rx;

        sl_dp_bit_clear(flow->came, flow->rx_mask, flow->due);
        *rx = (struct sl_dp_rx){0};
        if (!proceed(flow, done.flags, done.imm, done.offset, done.end))
            return;
    }
}

/* ---- routes ---- */

/* Is the answer to this packet wanted in this run? */
static bool is_asked(const struct sl_dp_rx_route *route, const struct sl_dp_head *head,
                     bool is_marked, bool has_come)
{
    return (head->flags & SL_DP_FLAG_MORE) == 0 || is_marked || !has_come || route->wary > 0 ||
           route->pending >= SL_DP_HELD_MOST;
}

static void note_route(struct sl_dp_flow *flow, const struct sl_dp_head *head, bool is_marked,
                       bool has_come)
{
    struct sl_dp_rx_route *route = &flow->rx_route[head->route];
    bool is_newer = !route->is_known || (int16_t)(head->stamp - route->stamp) > 0;
    uint16_t bit = (uint16_t)(1u << head->route);

    if (flow->rx_dirty == 0)
        flow->rx_since_ns = flow->engine->now_ns;
    flow->rx_dirty |= bit;
    route->pending++;
    route->is_again |= (head->flags & SL_DP_FLAG_AGAIN) != 0;
    if (!route->is_known || head->stamp != (uint16_t)(route->stamp + 1))
        route->wary = WARY_PACKETS;
    else if (route->wary > 0)
        route->wary--;
    if (is_asked(route, head, is_marked, has_come))
        flow->rx_asked |= bit;
    if (!has_come)
        return;
    /* The network doubled it: that says nothing about what the sender repeats. */
    if (route->is_known && head->stamp == route->stamp)
        return;
    route->came++;
    route->ce += is_marked;
    if (!is_newer)
        return;
    route->is_known = true;
    route->stamp = head->stamp;
    route->echo = head->seq;
    route->came_ns = flow->engine->now_ns;
    route->away_ns =
        flow->engine->away_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)flow->engine->away_ns;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

static uint16_t sack(const struct sl_dp_flow *flow, uint64_t words[SL_DP_SACK_WORDS])
{
    uint32_t behind = flow->seen - flow->due; /* due itself did not come */
    uint32_t bits, count;

    if (behind < 2 || behind > flow->rx_mask + 1)
        return 0;
    bits = behind - 1;
    count = (bits + 63) / 64;
    if (count > SL_DP_SACK_WORDS)
        count = SL_DP_SACK_WORDS, bits = 64 * count;
    for (uint32_t i = 0; i < count; i++, bits -= 64) {
        uint64_t word = sl_dp_bits(flow->came, flow->rx_mask, flow->due + 1 + 64 * i);

        words[i] = bits < 64 ? word & ((UINT64_C(1) << bits) - 1) : word;
    }
    return (uint16_t)count;
}

static int answer_route(struct sl_dp_flow *flow, unsigned idx)
{
    struct sl_dp_rx_route *route = &flow->rx_route[idx];
    struct sl_dp_ack ack;
    struct sl_dp_head head = flow->head;
    /* Ahead of data; but a sender that did not hear the last one hears this in another class. */
    struct sl_dp_packet packet = {
        .head = &head, .head_len = sizeof(head), .payload = &ack, .is_high = !route->is_again};
    int status;

    ack.echo = route->echo;
    ack.came = route->came;
    ack.ce = route->ce;
    ack.away_us = (uint16_t)at_most(route->away_ns / 1000, UINT16_MAX);
    ack.words = sack(flow, ack.sack);
    packet.payload_len = (uint32_t)(SL_DP_ACK_HEAD + sizeof(ack.sack[0]) * ack.words);
    head.kind_version = (uint8_t)(SL_DP_ACK << 4 | flow->ends.version);
    head.flags = SL_DP_FLAG_CRC;
    head.route = (uint8_t)idx;
    head.seq = flow->due;
    head.imm = flow->due + flow->engine->settings.window;
    head.offset = (uint32_t)at_most(flow->engine->now_ns - route->came_ns, UINT32_MAX);
    head.stamp = route->stamp;
    sl_dp_head_seal(&head);
    packet.tail = sl_dp_payload_crc(&head, &ack, packet.payload_len);
    packet.has_tail = true;
    packet.route = (uint16_t)sl_dp_route_back(flow, idx);
    status = flow->engine->ops->packet(flow, &packet);
    if (status < 0)
        return status;
    route->pending = 0;
    route->is_again = false;
    flow->rx_dirty &= (uint16_t) ~(1u << idx);
    flow->rx_asked &= flow->rx_dirty;
    flow->stats.acks_sent++;
    return 0;
}

/* One answer says of all routes what came, so one is enough when its time is over. */
static unsigned most_pending(const struct sl_dp_flow *flow)
{
    unsigned best = (unsigned)__builtin_ctz(flow->rx_dirty);

    for (unsigned left = flow->rx_dirty; left != 0; left &= left - 1) {
        unsigned idx = (unsigned)__builtin_ctz(left);

        if (flow->rx_route[idx].pending > flow->rx_route[best].pending)
            best = idx;
    }
    return best;
}

int sl_dp_answer(struct sl_dp_flow *flow)
{
    uint64_t now_ns = flow->engine->now_ns;

    if (flow->rx_waits && flow->rx_asked != 0 && now_ns - flow->alone_ns > SL_DP_TURN_NS)
        flow->takes_turns = false; /* it computes between the runs */
    flow->rx_waits = false;
    if (flow->rx_asked == 0 && flow->rx_dirty != 0 && now_ns - flow->rx_since_ns >= SL_DP_HELD_NS)
        flow->rx_asked = (uint16_t)(1u << most_pending(flow));
    if (flow->rx_asked != 0)
        flow->rx_since_ns = now_ns;
    for (unsigned left = flow->rx_asked; left != 0; left &= left - 1) {
        int status = answer_route(flow, (unsigned)__builtin_ctz(left));

        if (status != 0) {
            flow->is_stuck = true;
            return status;
        }
    }
    return 0;
}

/* ---- data ---- */

/* Records what came before its turn, or in parts. True: all of the packet is there. */
static bool record(struct sl_dp_flow *flow, const struct packet *packet)
{
    const struct sl_dp_head *head = &packet->head;
    struct sl_dp_rx *rx = &flow->rx[head->seq & flow->rx_mask];
    unsigned last = head->part >> 4, idx = head->part & 15;

    rx->imm = head->imm;
    rx->flags = head->flags;
    if (idx == 0)
        rx->offset = head->offset;
    if (idx == last)
        rx->end = head->offset + (uint32_t)packet->len;
    rx->parts = last == 0 ? 1 : (uint8_t)(rx->parts | 1u << idx);
    if (rx->parts != (1u << (last + 1)) - 1)
        return false;
    sl_dp_bit_set(flow->came, flow->rx_mask, head->seq);
    if (sl_dp_after(head->seq + 1, flow->seen) > 0)
        flow->seen = head->seq + 1;
    return true;
}

/* The only packet since the last answer, the whole of a frame, for the first time, and nothing is
 * missing: nobody is in need of the answer. */
static bool is_alone(const struct sl_dp_flow *flow, const struct sl_dp_head *head)
{
    const uint8_t told =
        SL_DP_FLAG_LAST | SL_DP_FLAG_WRITE | SL_DP_FLAG_NOW | SL_DP_FLAG_AGAIN | SL_DP_FLAG_MORE;

    return (head->flags & told) == SL_DP_FLAG_LAST && flow->rx_dirty == 0 && !flow->rx_within &&
           head->seq == flow->due && head->part == 0 && sl_dp_after(flow->seen, flow->due) <= 0;
}

enum verdict { WANTED, CAME_BEFORE, NO_MEMORY, BAD };

static enum verdict judge(struct sl_dp_flow *flow, const struct packet *packet)
{
    const struct sl_dp_head *head = &packet->head;
    uint32_t distance = head->seq - flow->due;
    unsigned last = head->part >> 4, idx = head->part & 15;

    if (sl_dp_after(head->seq, flow->due) < 0)
        return CAME_BEFORE;
    if (distance >= flow->engine->settings.window || last >= SL_DP_PARTS_MAX || idx > last ||
        (uint64_t)head->offset + packet->len > UINT32_MAX)
        return BAD;
    if (distance > flow->rx_mask && !grow(flow, distance))
        return NO_MEMORY;
    if (sl_dp_bit(flow->came, flow->rx_mask, head->seq) ||
        (last != 0 && (flow->rx[head->seq & flow->rx_mask].parts >> idx & 1) != 0))
        return CAME_BEFORE;
    return WANTED;
}

/* There is no memory for it: that counts as lost, but the peer hears that this end lives. */
static void drop_for_now(struct sl_dp_flow *flow, const struct sl_dp_head *head)
{
    flow->engine->dropped_later++;
    note_route(flow, head, false, false);
    sl_dp_ready(flow);
}

/* Copies it to its place. False: it has none, now or ever. */
static bool place(struct sl_dp_flow *flow, const struct packet *packet)
{
    const struct sl_dp_head *head = &packet->head;
    bool is_write = (head->flags & SL_DP_FLAG_WRITE) != 0;
    void *to =
        flow->engine->ops->place(flow, is_write, head->imm, head->offset, (uint32_t)packet->len);

    if (to == NULL) {
        sl_dp_fail(flow, -EPROTO, "no place for %zu bytes at %u of %s 0x%x", packet->len,
                   head->offset, is_write ? "write" : "frame", head->imm);
        return false;
    }
    if (to == SL_DP_LATER) {
        drop_for_now(flow, head);
        return false;
    }
    memcpy(to, packet->payload, packet->len);
    return true;
}

static void take(struct sl_dp_flow *flow, const struct packet *packet)
{
    const struct sl_dp_head *head = &packet->head;

    if (head->seq == flow->due && head->part == 0) {
        flow->rx[head->seq & flow->rx_mask].parts = 0;
        if (!proceed(flow, head->flags, head->imm, head->offset,
                     head->offset + (uint32_t)packet->len))
            return;
    } else if (!record(flow, packet)) {
        return;
    }
    catch_up(flow);
}

/* False: there is no place for it. */
static bool receive_wanted(struct sl_dp_flow *flow, const struct packet *packet, bool is_marked)
{
    bool alone = is_alone(flow, &packet->head);

    sl_dp_heard(flow);
    if (!place(flow, packet))
        return false;
    note_route(flow, &packet->head, is_marked, true);
    if (alone)
        flow->alone_ns = flow->engine->now_ns;
    if ((alone && flow->takes_turns) || flow->rx_asked == 0)
        sl_dp_wait(flow); /* unless there is more to do */
    else
        sl_dp_ready(flow);
    take(flow, packet);
    return true;
}

static void receive_data(struct sl_dp_flow *flow, const struct packet *packet, bool is_marked)
{
    const struct sl_dp_head *head = &packet->head;
    uint32_t most = flow->engine->settings.ack_packets;

    if (head->route >= SL_DP_ROUTES_MAX ||
        ((head->flags & SL_DP_FLAG_CRC) != 0) != flow->ends.crc) {
        flow->engine->dropped_bad++;
        return;
    }
    if (!sl_dp_payload_good(head, packet->payload, packet->len)) {
        flow->engine->dropped_crc++;
        return;
    }
    flow->stats.received_packets++;
    switch (judge(flow, packet)) {
    case BAD: flow->engine->dropped_bad++; return;
    case NO_MEMORY: drop_for_now(flow, head); return;
    case CAME_BEFORE:
        flow->stats.repeated_packets++;
        note_route(flow, head, is_marked, true);
        sl_dp_ready(flow);
        break;
    case WANTED:
        if (!receive_wanted(flow, packet, is_marked))
            return;
    }
    /* If the port is full the next run answers. */
    if (!flow->has_failed && ((head->flags & SL_DP_FLAG_NOW) != 0 ||
                              (most != 0 && flow->rx_route[head->route].pending >= most)))
        answer_route(flow, head->route);
}

bool sl_dp_flow_receive(struct sl_dp_flow *flow, const void *bytes, size_t len, bool is_marked,
                        uint64_t now_ns)
{
    struct sl_dp_engine *engine = flow->engine;
    struct packet packet;

    sl_dp_engine_look(engine, now_ns);
    if (!sl_dp_head_read(bytes, len, &packet.head) ||
        (packet.head.kind_version & 15) != flow->ends.version ||
        !sl_dp_payload_read(&packet.head, bytes, len, &packet.payload, &packet.len)) {
        engine->dropped_bad++;
        return false;
    }
    if (packet.head.flow != flow->ends.own_number || packet.head.secret != flow->ends.own_secret) {
        engine->dropped_secret++;
        return false;
    }
    if (flow->has_failed)
        return true;
    switch (packet.head.kind_version >> 4) {
    case SL_DP_DATA: receive_data(flow, &packet, is_marked); break;
    case SL_DP_ACK:
        if ((packet.head.flags & SL_DP_FLAG_CRC) == 0)
            engine->dropped_bad++;
        else if (!sl_dp_payload_good(&packet.head, packet.payload, packet.len))
            engine->dropped_crc++;
        else
            sl_dp_acknowledged(flow, &packet.head, packet.payload, packet.len);
        break;
    case SL_DP_PROBE: sl_dp_probe_received(flow, &packet.head, packet.len); break;
    case SL_DP_PROBE_REPLY: sl_dp_probe_answered(flow, &packet.head); break;
    default: engine->dropped_bad++;
    }
    return true;
}
