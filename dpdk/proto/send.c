/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From messages to packets: what is lost goes first, then what is new is cut, as far as the peer's
 * room, the routes' windows and their pace allow.
 *
 * A short message whose flow has little under way is asked to overtake other traffic in the
 * network's queues. It never overtakes packets of its own flow: then loss detection, which goes by
 * the order of transmission, would take those for lost. So as long as a packet of the other class
 * is under way, all that follow are of that class.
 */
#include "dpdk/proto/inside.h"

#include <string.h>

/* Twice as many places. What is in the old ones, past una too, keeps its number. */
static bool grow(struct sl_dp_flow *flow)
{
    struct sl_dp_engine *engine = flow->engine;
    uint32_t places = flow->tx_mask + 1, mask = 2 * places - 1;
    struct sl_dp_tx *tx;
    uint64_t *acked;

    if (places >= engine->settings.window)
        return false;
    tx = sl_dp_alloc(engine, 2 * places * sizeof(*tx));
    acked = sl_dp_alloc(engine, 2 * places / 8);
    if (tx == NULL || acked == NULL) {
        sl_dp_free(engine, tx, 2 * places * sizeof(*tx));
        sl_dp_free(engine, acked, 2 * places / 8);
        return false;
    }
    for (uint32_t seq = flow->next - places; seq != flow->next; seq++) {
        tx[seq & mask] = *sl_dp_tx_at(flow, seq);
        if (sl_dp_bit(flow->acked, flow->tx_mask, seq))
            sl_dp_bit_set(acked, mask, seq);
    }
    sl_dp_free(engine, flow->tx, places * sizeof(*tx));
    sl_dp_free(engine, flow->acked, places / 8);
    flow->tx = tx;
    flow->acked = acked;
    flow->tx_mask = mask;
    return true;
}

/* Is there something new to send, and room for it at both ends? */
static bool can_cut(struct sl_dp_flow *flow)
{
    return flow->cut != flow->posted && sl_dp_after(flow->limit, flow->next) > 0 &&
           (flow->next - flow->una <= flow->tx_mask || grow(flow));
}

/* What the next new packet is. Nothing moves before it is sent. */
static void cut(struct sl_dp_flow *flow)
{
    struct sl_dp_message *message = sl_dp_message_at(flow, flow->cut);
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, flow->next);
    uint32_t rest = message->len - flow->cut_offset;
    bool is_last = rest <= flow->mtu.payload;

    *tx = (struct sl_dp_tx){.offset = flow->cut_offset,
                            .len = is_last ? (uint16_t)rest : flow->mtu.payload,
                            .message = (uint8_t)(flow->cut % SL_DP_MESSAGES_MAX),
                            .flags = (is_last ? SL_DP_FLAG_LAST : 0) |
                                     (message->is_write ? SL_DP_FLAG_WRITE : 0)};
}

/* The packet that cut() made was sent. */
static void advance(struct sl_dp_flow *flow)
{
    const struct sl_dp_tx *tx = sl_dp_tx_at(flow, flow->next);

    flow->next++;
    flow->cut_offset += tx->len;
    flow->unsent -= tx->len;
    if ((tx->flags & SL_DP_FLAG_LAST) == 0)
        return;
    sl_dp_message_at(flow, flow->cut)->end_seq = flow->next;
    flow->cut++;
    flow->cut_offset = 0;
}

/* Of the class that goes first. What is repeated is not: a network that drops the class delays, but
 * stops nothing. Nor is it for a flow that would fill the class. */
static bool is_high(const struct sl_dp_flow *flow, const struct sl_dp_tx *tx, uint32_t seq)
{
    return (tx->flags & SL_DP_FLAG_LAST) != 0 && tx->offset == 0 && tx->len <= SL_DP_HIGH_BYTES &&
           tx->sent_ns == 0 && seq - flow->una < SL_DP_HIGH_PACKETS &&
           sl_dp_after(flow->una, flow->plain_end) >= 0;
}

/* Bytes from..from + len of a packet. part: as the header has it. */
static int put(struct sl_dp_flow *flow, struct sl_dp_route *route, uint32_t seq, uint8_t flags,
               uint8_t part, uint32_t from, uint32_t len)
{
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);
    struct sl_dp_message *message = &flow->message[tx->message];
    struct sl_dp_head head = flow->head;
    struct sl_dp_packet packet = {.head = &head,
                                  .head_len = sizeof(head),
                                  .payload = message->bytes + tx->offset + from,
                                  .payload_len = len,
                                  .is_lent = true,
                                  .is_high = is_high(flow, tx, seq),
                                  .route = (uint16_t)(route - flow->route),
                                  .message = tx->message};
    int taken;

    head.flags = flags;
    head.route = (uint8_t)packet.route;
    head.part = part;
    head.seq = seq;
    head.imm = message->imm;
    head.offset = message->base + tx->offset + from;
    head.stamp = (uint16_t)route->sent;
    if (flow->ends.crc)
        head.flags |= SL_DP_FLAG_CRC;
    sl_dp_head_seal(&head);
    if (flow->ends.crc) {
        packet.tail = sl_dp_payload_crc(&head, packet.payload, len);
        packet.has_tail = true;
    }
    taken = flow->engine->ops->packet(flow, &packet);
    if (taken < 0)
        return taken;
    message->held += (uint32_t)taken;
    if (!packet.is_high && sl_dp_after(seq + 1, flow->plain_end) > 0)
        flow->plain_end = seq + 1;
    route->sent++;
    route->sent_packets++;
    route->sent_bytes += len;
    flow->stats.sent_packets++;
    flow->stats.sent_bytes += len;
    return 0;
}

/* A packet that was cut when more passed goes in parts. When the port is full in between, the next
 * call goes on where this one stopped. Each time another part goes first: a short queue may drop
 * all but the first ones of a burst, over and over. */
static int put_parts(struct sl_dp_flow *flow, struct sl_dp_route *route, uint32_t seq,
                     uint8_t flags)
{
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);
    uint32_t each = flow->ends.payload_least, parts = (tx->len + each - 1) / each;

    for (; tx->parts < parts; tx->parts++) {
        uint32_t part = (tx->parts + tx->repeats) % parts, from = part * each;
        uint32_t size = tx->len - from < each ? tx->len - from : each;
        int status = put(flow, route, seq, flags, (uint8_t)((parts - 1) << 4 | part), from, size);

        if (status != 0)
            return status;
    }
    tx->parts = 0;
    return 0;
}

int sl_dp_transmit(struct sl_dp_flow *flow, unsigned idx, uint32_t seq, uint8_t flags)
{
    struct sl_dp_route *route = &flow->route[idx];
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);
    bool is_again = tx->sent_ns != 0;
    int status;

    flags |= tx->flags | (is_again ? SL_DP_FLAG_AGAIN : 0);
    status = tx->len > flow->mtu.payload && is_again ? put_parts(flow, route, seq, flags)
                                                     : put(flow, route, seq, flags, 0, 0, tx->len);
    if (status != 0)
        return status;
    if (tx->state == SL_DP_TX_FLYING)
        sl_dp_seqs_remove(flow, &flow->route[tx->route].flying, seq);
    else if (tx->state == SL_DP_TX_LOST)
        sl_dp_seqs_remove(flow, &flow->lost, seq);
    tx->parts = 0;
    tx->stamp = route->sent - 1;
    tx->sent_ns = flow->engine->now_ns | 1; /* never 0 */
    tx->route = (uint8_t)idx;
    tx->state = SL_DP_TX_FLYING;
    sl_dp_seqs_push(flow, &route->flying, seq);
    route->last_ns = tx->sent_ns;
    if (is_again) {
        flow->stats.resent_packets++;
        if (tx->repeats < UINT8_MAX)
            tx->repeats++;
    }
    if (route->flying.count == 1)
        sl_dp_wake(flow, tx->sent_ns + sl_dp_probe_timeout(flow, route));
    return 0;
}

/* May the answer to this new packet wait for those behind it? Not where it is the last one that can
 * go, nor for more than a quarter of the window, so that the next ones find room in time. */
static bool may_wait(const struct sl_dp_flow *flow, const struct sl_dp_route *route, uint32_t len)
{
    bool more = flow->unsent > len || flow->follows;
    uint32_t unasked = route->unasked + 1;

    return more && route->cc.pace_ns == 0 && flow->limit - flow->next > 1 &&
           sl_dp_route_room(flow, route) > 1 && unasked < SL_DP_HELD_MOST &&
           unasked < route->cc.window / (4 * SL_DP_CC_ONE);
}

unsigned sl_dp_send(struct sl_dp_flow *flow, unsigned budget)
{
    uint64_t now_ns = flow->engine->now_ns;
    unsigned sent = 0;

    while (flow->lost.count > 0 || can_cut(flow)) {
        bool is_new = flow->lost.count == 0;
        uint32_t seq = is_new ? flow->next : flow->lost.head;
        struct sl_dp_route *route;
        bool waits = false;

        if (sent == budget) {
            sl_dp_ready(flow);
            break;
        }
        route = sl_dp_route_choose(flow, now_ns);
        if (route == NULL)
            break;
        if (is_new) {
            cut(flow);
            waits = may_wait(flow, route, sl_dp_tx_at(flow, seq)->len);
        }
        if (sl_dp_transmit(flow, (unsigned)(route - flow->route), seq,
                           waits ? SL_DP_FLAG_MORE : 0) != 0) {
            flow->is_stuck = true;
            sl_dp_ready(flow);
            break;
        }
        route->unasked = waits ? route->unasked + 1 : 0;
        if (is_new)
            advance(flow);
        sent++;
    }
    return sent;
}

/* As of engine->now_ns. */
static void post(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t base,
                 const void *bytes, uint32_t len)
{
    struct sl_dp_message *message = sl_dp_message_at(flow, flow->posted);

    sl_dassert(flow->posted - flow->retired < SL_DP_MESSAGES_MAX);
    sl_dassert((uint64_t)base + len <= UINT32_MAX);
    *message = (struct sl_dp_message){
        .bytes = bytes, .len = len, .imm = imm, .base = base, .is_write = is_write};
    if (flow->has_failed)
        return;
    if (!sl_dp_busy(flow)) {
        flow->silent_ns = flow->engine->now_ns;
        sl_dp_wake(flow, flow->silent_ns + flow->engine->settings.dead_ns);
    }
    flow->posted++;
    flow->unsent += len;
    if (len > flow->mtu.payload && flow->mtu.at_ns <= flow->engine->now_ns)
        sl_dp_wake(flow, flow->engine->now_ns);
    if (!flow->is_stuck)
        sl_dp_send(flow, SL_DP_WINDOW_MOST);
}

void sl_dp_flow_expect(struct sl_dp_flow *flow, bool more)
{
    flow->follows = more;
}

uint64_t sl_dp_flow_unsent(const struct sl_dp_flow *flow)
{
    return flow->unsent;
}

/* If it is the reply to a frame, the next answers wait for replies. */
static void note_turn(struct sl_dp_flow *flow)
{
    if (!flow->takes_turns && flow->alone_ns != 0)
        flow->takes_turns = flow->engine->now_ns - flow->alone_ns < SL_DP_TURN_NS;
}

void sl_dp_flow_post(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t base,
                     const void *bytes, uint32_t len)
{
    note_turn(flow);
    post(flow, is_write, imm, base, bytes, len);
}

bool sl_dp_flow_post_early(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t base,
                           const void *bytes, uint32_t len)
{
    if (flow->lost.count > 0 || flow->cut != flow->posted || flow->is_stuck ||
        len > flow->mtu.payload || flow->route_count > 1 || flow->route[0].cc.pace_ns != 0)
        return false;
    post(flow, is_write, imm, base, bytes, len);
    return true;
}

void sl_dp_flow_left(struct sl_dp_flow *flow, uint64_t now_ns)
{
    sl_dp_engine_tick(flow->engine, now_ns);
    if (flow->has_failed)
        return;
    note_turn(flow);
    if (flow->posted - flow->arrived == 1) /* nothing was owed before */
        flow->silent_ns = flow->engine->now_ns;
    if (flow->cut == flow->posted) /* else there was no room for it */
        sl_dp_tx_at(flow, flow->next - 1)->sent_ns = flow->engine->now_ns | 1;
}

void sl_dp_flow_sent(struct sl_dp_flow *flow, uint8_t place)
{
    struct sl_dp_message *message = &flow->message[place % SL_DP_MESSAGES_MAX];

    sl_dassert(message->held > 0);
    if (--message->held == 0)
        sl_dp_ready(flow);
}

void sl_dp_retire(struct sl_dp_flow *flow)
{
    uint32_t retired = flow->retired;

    while (retired != flow->arrived && sl_dp_message_at(flow, retired)->held == 0)
        retired++;
    if (retired == flow->retired)
        return;
    flow->retired = retired;
    flow->engine->ops->retired(flow, retired - 1);
}
