/* SPDX-License-Identifier: Apache-2.0 */
/* The port, the owner and the peer of one flow. */
#include "tests/unit/dpdk/hand.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct hand_cc_log hand_cc_log;
static uint8_t bytes[UINT32_C(1) << 20];

const struct sl_dp_ends hand_ends = {.own_number = 11,
                                     .peer_number = 22,
                                     .own_secret = UINT64_C(0x1111111111111111),
                                     .peer_secret = UINT64_C(0x2222222222222222),
                                     .version = SL_DP_VERSION,
                                     .routes = 1,
                                     .payload_least = 1000,
                                     .payload_most = 1000};

/* ---- congestion control ---- */

static void cc_init(struct sl_dp_cc_state *state)
{
    hand_cc_log.inits++;
    state->window = hand_cc_log.window * SL_DP_CC_ONE;
    state->pace_ns = hand_cc_log.pace_ns;
}

static void cc_ack(struct sl_dp_cc_state *state, const struct sl_dp_cc_ack *ack)
{
    hand_cc_log.acks++;
    hand_cc_log.last = *ack;
    state->window = hand_cc_log.window * SL_DP_CC_ONE;
}

static void cc_loss(struct sl_dp_cc_state *state, uint32_t lost, uint64_t now_ns)
{
    hand_cc_log.losses++;
    hand_cc_log.lost += lost;
}

static void cc_timeout(struct sl_dp_cc_state *state, uint64_t now_ns)
{
    hand_cc_log.timeouts++;
}

const struct sl_dp_cc hand_cc = {"hand", cc_init, cc_ack, cc_loss, cc_timeout};

/* ---- port and owner ---- */

static int on_packet(struct sl_dp_flow *flow, const struct sl_dp_packet *packet)
{
    struct hand *hand = sl_dp_flow_owner(flow);
    struct hand_packet *kept = &hand->sent[hand->count % HAND_SENT];

    if (hand->room == 0)
        return -EAGAIN;
    hand->room -= hand->room != UINT_MAX;
    hand->count++;
    *kept = (struct hand_packet){.payload_len = packet->payload_len,
                                 .route = packet->route,
                                 .message = packet->message,
                                 .is_high = packet->is_high};
    memcpy(&kept->head, packet->head, sizeof(kept->head));
    if (packet->payload_len > 0)
        kept->first = *(const uint8_t *)packet->payload;
    if (kept->head.kind_version >> 4 == SL_DP_ACK)
        memcpy(&kept->ack, packet->payload, packet->payload_len);
    return hand->keeps && packet->is_lent;
}

static void *on_place(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t off,
                      uint32_t len)
{
    struct hand *hand = sl_dp_flow_owner(flow);

    hand->places++;
    hand->placed_off = off;
    if (hand->refuses)
        return hand->refuse;
    return (uint64_t)off + len <= sizeof(hand->memory) ? hand->memory + off : NULL;
}

static void on_arrived(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t len)
{
    struct hand *hand = sl_dp_flow_owner(flow);

    hand->arrivals++;
    hand->arrived_imm = imm;
    hand->arrived_len = len;
}

static void on_retired(struct sl_dp_flow *flow, uint32_t ordinal)
{
    struct hand *hand = sl_dp_flow_owner(flow);

    hand->retired = ordinal + 1;
}

static void on_failed(struct sl_dp_flow *flow, int status, const char *why)
{
    struct hand *hand = sl_dp_flow_owner(flow);

    hand->failures++;
    hand->status = status;
}

static void on_route(struct sl_dp_flow *flow, unsigned route, bool up)
{
    struct hand *hand = sl_dp_flow_owner(flow);

    hand->ups += up;
    hand->downs += !up;
}

static void *hand_alloc(void *arg, size_t len)
{
    struct hand *hand = arg;

    if (hand->allocations_left == 0)
        return NULL;
    hand->allocations_left -= hand->allocations_left != UINT_MAX;
    hand->held += len;
    return calloc(1, len);
}

static void hand_free(void *arg, void *memory, size_t len)
{
    struct hand *hand = arg;

    hand->held -= len;
    free(memory);
}

/* ---- life ---- */

void hand_start(struct hand *hand, const struct sl_dp_ends *ends)
{
    static const struct sl_dp_ops ops = {on_packet,  on_place,  on_arrived,
                                         on_retired, on_failed, on_route};

    memset(hand, 0, sizeof(*hand));
    if (hand_cc_log.window == 0)
        hand_cc_log.window = 1024;
    hand->now_ns = 1000 * HAND_MS;
    hand->room = hand->allocations_left = UINT_MAX;
    hand->engine = (struct sl_dp_engine){.ops = &ops,
                                         .settings = {.window = 1024,
                                                      .rto_least_ns = 20 * HAND_MS,
                                                      .dead_ns = 1000 * HAND_MS,
                                                      .target_ns = 50000,
                                                      .cc = &hand_cc},
                                         .alloc = hand_alloc,
                                         .free = hand_free,
                                         .arg = hand};
    sl_assert(sl_dp_engine_init(&hand->engine, hand->now_ns) == 0);
    sl_assert(sl_dp_flow_open(&hand->engine, ends, hand, &hand->flow) == 0);
}

void hand_stop(struct hand *hand)
{
    sl_dp_flow_close(hand->flow);
    sl_dp_engine_fini(&hand->engine);
    sl_assert(hand->held == 0);
    memset(&hand_cc_log, 0, sizeof(hand_cc_log));
}

void hand_run(struct hand *hand, uint64_t ns)
{
    hand->now_ns += ns;
    sl_dp_engine_run(&hand->engine, hand->now_ns, 4096);
}

void hand_idle(struct hand *hand, uint64_t ns, uint64_t step_ns)
{
    for (uint64_t end_ns = hand->now_ns + ns; hand->now_ns < end_ns;)
        hand_run(hand, end_ns - hand->now_ns < step_ns ? end_ns - hand->now_ns : step_ns);
}

void hand_post(struct hand *hand, uint32_t imm, uint32_t len)
{
    sl_assert(len <= sizeof(bytes));
    sl_dp_engine_tick(&hand->engine, hand->now_ns);
    sl_dp_flow_post(hand->flow, true, imm, 0, bytes, len);
}

/* ---- the peer ---- */

static void deliver(struct hand *hand, struct sl_dp_head *head, const void *payload, size_t len)
{
    static uint8_t packet[65536];
    size_t all = sizeof(*head) + len;

    head->kind_version = (uint8_t)(head->kind_version | SL_DP_VERSION);
    head->flow = hand->flow->ends.own_number;
    head->secret = hand->flow->ends.own_secret;
    sl_dp_head_seal(head);
    memcpy(packet, head, sizeof(*head));
    if (len > 0)
        memcpy(packet + sizeof(*head), payload, len);
    if ((head->flags & SL_DP_FLAG_CRC) != 0) {
        uint32_t sum = sl_dp_payload_crc(head, payload, len);

        memcpy(packet + all, &sum, sizeof(sum));
        all += sizeof(sum);
    }
    sl_dp_flow_receive(hand->flow, packet, all, false, hand->now_ns);
}

void hand_data(struct hand *hand, struct sl_dp_head head, uint8_t byte, uint32_t len)
{
    static uint8_t payload[65536];

    memset(payload, byte, len);
    head.kind_version = SL_DP_DATA << 4;
    deliver(hand, &head, payload, len);
}

void hand_ack(struct hand *hand, unsigned route, uint32_t seq, uint32_t stamp, uint32_t echo,
              uint32_t came, uint64_t sack)
{
    struct sl_dp_head head = {.kind_version = SL_DP_ACK << 4,
                              .flags = SL_DP_FLAG_CRC,
                              .route = (uint8_t)route,
                              .seq = seq,
                              .imm = seq + 1024,
                              .stamp = (uint16_t)stamp};
    struct sl_dp_ack ack = {.echo = echo, .came = came, .words = sack != 0, .sack = {sack}};

    deliver(hand, &head, &ack, SL_DP_ACK_HEAD + 8 * (sack != 0));
}

void hand_probe_reply(struct hand *hand, unsigned route, uint16_t stamp, uint32_t len)
{
    struct sl_dp_head head = {.kind_version = SL_DP_PROBE_REPLY << 4,
                              .route = (uint8_t)route,
                              .offset = len,
                              .stamp = stamp};

    deliver(hand, &head, NULL, 0);
}

const struct hand_packet *hand_last(const struct hand *hand, unsigned kind, unsigned from)
{
    for (unsigned i = hand->count; i > from; i--)
        if (hand->sent[(i - 1) % HAND_SENT].head.kind_version >> 4 == kind)
            return &hand->sent[(i - 1) % HAND_SENT];
    return NULL;
}

unsigned hand_count(const struct hand *hand, unsigned kind, unsigned from)
{
    unsigned count = 0;

    for (unsigned i = from; i < hand->count; i++)
        count += hand->sent[i % HAND_SENT].head.kind_version >> 4 == kind;
    return count;
}
