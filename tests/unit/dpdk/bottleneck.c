/* SPDX-License-Identifier: Apache-2.0 */
#include "bottleneck.h"

#include <stdlib.h>
#include <string.h>

#define THRESHOLD 3    /* packets that left later and were answered */
#define ANSWER_NS 2000 /* longest that an answer waits for more */
#define RTO_LEAST_NS UINT64_C(20000000)

enum kind { ARRIVE, DELIVER, ANSWER, HEAR, PACE, WATCH, START };

struct bn_event {
    uint64_t at_ns, order;
    uint32_t flow, packet, count, marks;
    uint64_t away_ns;
    enum kind kind;
};

static bool before(const struct bn_event *a, const struct bn_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(struct bn *bn, struct bn_event event)
{
    static uint64_t order;

    if (bn->heap_len == bn->heap_cap) {
        bn->heap_cap = bn->heap_cap == 0 ? 1024 : 2 * bn->heap_cap;
        bn->heap = realloc(bn->heap, bn->heap_cap * sizeof(*bn->heap));
        if (bn->heap == NULL)
            abort();
    }
    event.order = order++;
    size_t i = bn->heap_len++;
    while (i > 0 && before(&event, &bn->heap[(i - 1) / 2])) {
        bn->heap[i] = bn->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    bn->heap[i] = event;
}

static struct bn_event pop(struct bn *bn)
{
    struct bn_event first = bn->heap[0], last = bn->heap[--bn->heap_len];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= bn->heap_len)
            break;
        if (child + 1 < bn->heap_len && before(&bn->heap[child + 1], &bn->heap[child]))
            child++;
        if (!before(&bn->heap[child], &last))
            break;
        bn->heap[i] = bn->heap[child];
        i = child;
    }
    bn->heap[i] = last;
    return first;
}

/* When the end looks at what came at at_ns, and for how long it had not looked before. */
static uint64_t looks(const struct bn_end *end, uint64_t at_ns, uint64_t *away_ns)
{
    uint64_t period = end->on_ns + end->off_ns;
    *away_ns = 0;
    if (end->off_ns == 0)
        return at_ns;
    uint64_t in = (at_ns + end->phase_ns) % period;
    if (in < end->on_ns)
        return at_ns;
    *away_ns = end->off_ns;
    return at_ns + period - in;
}

static void send_one(struct bn *bn, struct bn_flow *flow)
{
    uint32_t place = flow->next % BN_PACKETS_MAX;

    flow->packets[place].sent_ns = bn->now_ns;
    flow->packets[place].came = flow->packets[place].gone = false;
    push(bn, (struct bn_event){.kind = ARRIVE,
                               .at_ns = bn->now_ns + flow->rtt_ns / 4,
                               .flow = (uint32_t)(flow - bn->flows),
                               .packet = flow->next});
    flow->next++;
    flow->under_way++;
    flow->sent++;
}

static void send_more(struct bn *bn, struct bn_flow *flow)
{
    uint64_t away;

    if (bn->now_ns >= flow->stop_ns)
        return;
    while (flow->under_way < sl_dp_cc_packets(&flow->state) &&
           flow->next - flow->oldest < BN_PACKETS_MAX) {
        uint64_t due_ns = flow->sent_ns + flow->state.pace_ns;
        if (flow->state.pace_ns != 0 && bn->now_ns < due_ns) {
            if (!flow->is_paced || flow->pace_at_ns > due_ns) {
                flow->is_paced = true;
                flow->pace_at_ns = due_ns;
                push(bn, (struct bn_event){.kind = PACE,
                                           .at_ns = looks(&flow->sender, due_ns, &away),
                                           .flow = (uint32_t)(flow - bn->flows)});
            }
            return;
        }
        flow->sent_ns = bn->now_ns;
        send_one(bn, flow);
    }
}

static void arrive(struct bn *bn, const struct bn_event *event)
{
    struct bn_flow *flow = &bn->flows[event->flow];
    uint64_t size_ns = bn->packet_bytes * UINT64_C(1000000000) / bn->rate;
    uint64_t wait_ns = bn->busy_ns > bn->now_ns ? bn->busy_ns - bn->now_ns : 0;
    bool marked = false;

    if (bn->loss_ppm != 0 && sl_rng_below(&bn->rng, 1000000) < bn->loss_ppm)
        return;
    if (wait_ns * bn->rate / 1000000000 + bn->packet_bytes > bn->limit_bytes) {
        bn->dropped++;
        return;
    }
    unsigned bucket = 0;
    while (bucket < 63 && (UINT64_C(100) * (4 + bucket % 4) / 4 << bucket / 4) < wait_ns)
        bucket++;
    bn->delay_ns[bucket]++;
    bn->delayed++;
    bn->above += wait_ns > bn->target_ns;
    if (bn->mark_bytes != 0) { /* a queue that is drained a twentieth more slowly */
        if (bn->phantom_ns < bn->now_ns)
            bn->phantom_ns = bn->now_ns;
        bn->phantom_ns += size_ns * 20 / 19;
        marked = (bn->phantom_ns - bn->now_ns) * bn->rate / 1000000000 > bn->mark_bytes;
        if (bn->phantom_ns - bn->now_ns > 4 * bn->mark_bytes * UINT64_C(1000000000) / bn->rate)
            bn->phantom_ns = bn->now_ns + 4 * bn->mark_bytes * UINT64_C(1000000000) / bn->rate;
    }
    bn->busy_ns = bn->now_ns + wait_ns + size_ns;
    push(bn, (struct bn_event){.kind = DELIVER,
                               .at_ns = bn->busy_ns + flow->rtt_ns / 4,
                               .flow = event->flow,
                               .packet = event->packet,
                               .marks = marked});
}

/* Opened while nothing was sent yet: an answer without a queue has been seen. */
static void open_idle(struct bn_flow *flow)
{
    struct sl_dp_cc_ack ack = {.now_ns = 1, .rtt_ns = flow->rtt_ns, .acked = 1, .under_way = 1};

    ack.fabric_ns = ack.rtt_ns;
    flow->cc->ack(&flow->state, &ack);
}

static void answer(struct bn *bn, struct bn_flow *flow, uint64_t away_ns)
{
    /* Never quite alike, or flows keep step for ever; never before the one that left earlier. */
    uint64_t at_ns = bn->now_ns + flow->rtt_ns / 2 + sl_rng_below(&bn->rng, flow->rtt_ns / 8 + 1);

    if (at_ns < flow->answer_at_ns)
        at_ns = flow->answer_at_ns;
    flow->answer_at_ns = at_ns;
    push(bn, (struct bn_event){.kind = HEAR,
                               .at_ns = at_ns,
                               .flow = (uint32_t)(flow - bn->flows),
                               .packet = flow->latest,
                               .count = flow->to_answer,
                               .marks = flow->marks_to_answer,
                               .away_ns = away_ns});
    flow->to_answer = flow->marks_to_answer = 0;
}

static void deliver(struct bn *bn, const struct bn_event *event)
{
    struct bn_flow *flow = &bn->flows[event->flow];
    uint64_t away, at;

    flow->received++;
    flow->packets[event->packet % BN_PACKETS_MAX].came = true;
    flow->latest = event->packet;
    flow->to_answer++;
    flow->marks_to_answer += event->marks;
    at = looks(&flow->receiver, bn->now_ns, &away);
    if (away == 0 && flow->to_answer >= flow->answer_packets) {
        answer(bn, flow, 0);
        return;
    }
    if (flow->is_answering)
        return;
    flow->is_answering = true;
    push(bn, (struct bn_event){.kind = ANSWER,
                               .at_ns = away != 0 ? at : at + ANSWER_NS,
                               .flow = event->flow,
                               .away_ns = away});
}

/* Packets that left long before the latest that came are lost. */
static void find_lost(struct bn *bn, struct bn_flow *flow, uint32_t latest)
{
    uint32_t lost = 0;

    while ((int32_t)(latest - flow->oldest) >= 0) {
        uint32_t place = flow->oldest % BN_PACKETS_MAX;
        if (!flow->packets[place].gone) {
            if (latest - flow->oldest < THRESHOLD)
                break;
            flow->packets[place].gone = true;
            flow->under_way--;
            lost++;
        }
        flow->oldest++;
    }
    flow->lost += lost;
    if (lost != 0)
        flow->cc->loss(&flow->state, lost, bn->now_ns);
}

static void hear(struct bn *bn, const struct bn_event *event)
{
    struct bn_flow *flow = &bn->flows[event->flow];
    struct sl_dp_cc_ack ack = {.marked = event->marks, .under_way = flow->under_way};
    uint64_t away, at = looks(&flow->sender, bn->now_ns, &away);

    if (at > bn->now_ns) {
        struct bn_event later = *event;
        later.at_ns = at;
        later.away_ns += away;
        push(bn, later);
        return;
    }
    for (uint32_t i = flow->oldest; (int32_t)(event->packet - i) >= 0; i++) {
        if (flow->packets[i % BN_PACKETS_MAX].came && !flow->packets[i % BN_PACKETS_MAX].gone) {
            flow->packets[i % BN_PACKETS_MAX].gone = true;
            ack.acked++;
        }
    }
    flow->under_way -= ack.acked;
    flow->heard_ns = ack.now_ns = bn->now_ns;
    ack.rtt_ns = bn->now_ns - flow->packets[event->packet % BN_PACKETS_MAX].sent_ns;
    ack.fabric_ns = ack.rtt_ns > event->away_ns ? ack.rtt_ns - event->away_ns : 1;
    flow->smooth_ns = flow->smooth_ns == 0 ? ack.rtt_ns : (7 * flow->smooth_ns + ack.rtt_ns) / 8;
    flow->rto_ns = RTO_LEAST_NS + 4 * flow->smooth_ns;
    if (ack.acked != 0)
        flow->cc->ack(&flow->state, &ack);
    find_lost(bn, flow, event->packet);
    send_more(bn, flow);
}

/* Every half millisecond: a probe where nothing came for a while, and the timeout. */
static void watch(struct bn *bn, const struct bn_event *event)
{
    struct bn_flow *flow = &bn->flows[event->flow];
    uint64_t silent_ns = bn->now_ns - flow->heard_ns, away;

    looks(&flow->sender, bn->now_ns, &away);
    if (flow->under_way != 0 && away == 0 && silent_ns > flow->rto_ns) {
        flow->lost += flow->under_way;
        flow->timeouts++;
        flow->cc->timeout(&flow->state, bn->now_ns);
        for (; flow->oldest != flow->next; flow->oldest++)
            flow->packets[flow->oldest % BN_PACKETS_MAX].gone = true;
        flow->under_way = 0;
        flow->heard_ns = bn->now_ns;
        flow->rto_ns *= 2;
        send_more(bn, flow);
    } else if (flow->under_way != 0 && away == 0 && silent_ns > 2 * flow->smooth_ns + 500000 &&
               flow->next - flow->oldest < BN_PACKETS_MAX) {
        send_one(bn, flow);
    }
    struct bn_event next = *event;
    next.at_ns = bn->now_ns + 500000;
    push(bn, next);
}

static void happen(struct bn *bn, const struct bn_event *event)
{
    struct bn_flow *flow = &bn->flows[event->flow];

    switch (event->kind) {
    case ARRIVE: arrive(bn, event); break;
    case DELIVER: deliver(bn, event); break;
    case ANSWER:
        flow->is_answering = false;
        if (flow->to_answer != 0)
            answer(bn, flow, event->away_ns);
        break;
    case HEAR: hear(bn, event); break;
    case PACE:
        flow->is_paced = false;
        send_more(bn, flow);
        break;
    case WATCH: watch(bn, event); break;
    case START:
        flow->heard_ns = bn->now_ns;
        if (!flow->is_late)
            open_idle(flow);
        send_more(bn, flow);
        break;
    }
}

void bn_init(struct bn *bn, size_t count, const struct sl_dp_cc *cc, uint64_t seed)
{
    *bn = (struct bn){.rate = UINT64_C(12500000000),
                      .limit_bytes = 8 << 20,
                      .packet_bytes = 9000,
                      .target_ns = 50000,
                      .most = 1024,
                      .count = count};
    sl_rng_init(&bn->rng, seed);
    bn->flows = calloc(count, sizeof(*bn->flows));
    if (bn->flows == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        bn->flows[i].cc = cc;
        bn->flows[i].rtt_ns = 10000;
        bn->flows[i].stop_ns = UINT64_MAX;
        bn->flows[i].answer_packets = 1;
        bn->flows[i].rto_ns = RTO_LEAST_NS;
    }
}

void bn_run(struct bn *bn, uint64_t until_ns)
{
    for (size_t i = 0; i < bn->count && bn->now_ns == 0; i++) {
        struct bn_flow *flow = &bn->flows[i];
        flow->state.most = bn->most;
        flow->state.target_ns = bn->target_ns;
        flow->cc->init(&flow->state);
        push(bn, (struct bn_event){.kind = START, .flow = (uint32_t)i, .at_ns = flow->start_ns});
        push(bn, (struct bn_event){.kind = WATCH, .flow = (uint32_t)i, .at_ns = flow->start_ns});
    }
    while (bn->heap_len != 0 && bn->heap[0].at_ns <= until_ns) {
        struct bn_event event = pop(bn);
        bn->now_ns = event.at_ns;
        happen(bn, &event);
    }
    bn->now_ns = until_ns;
}

void bn_measure(struct bn *bn)
{
    bn->measure_ns = bn->now_ns;
    memset(bn->delay_ns, 0, sizeof(bn->delay_ns));
    bn->delayed = bn->above = bn->dropped = 0;
    for (size_t i = 0; i < bn->count; i++) {
        struct bn_flow *flow = &bn->flows[i];
        flow->sent = flow->received = flow->lost = flow->timeouts = 0;
    }
}

void bn_fini(struct bn *bn)
{
    free(bn->flows);
    free(bn->heap);
}

static double received(const struct bn *bn)
{
    double sum = 0;

    for (size_t i = 0; i < bn->count; i++)
        sum += (double)bn->flows[i].received;
    return sum;
}

double bn_used(const struct bn *bn)
{
    return received(bn) * bn->packet_bytes * 1e9 / (double)bn->rate /
           (double)(bn->now_ns - bn->measure_ns);
}

double bn_jain(const struct bn *bn)
{
    double sum = received(bn), squares = 0;

    for (size_t i = 0; i < bn->count; i++)
        squares += (double)bn->flows[i].received * (double)bn->flows[i].received;
    return squares == 0 ? 0 : sum * sum / squares / (double)bn->count;
}

double bn_least(const struct bn *bn)
{
    double value = 1e30;

    for (size_t i = 0; i < bn->count; i++)
        value = (double)bn->flows[i].received < value ? (double)bn->flows[i].received : value;
    return value / received(bn) * (double)bn->count;
}

double bn_most(const struct bn *bn)
{
    double value = 0;

    for (size_t i = 0; i < bn->count; i++)
        value = (double)bn->flows[i].received > value ? (double)bn->flows[i].received : value;
    return value / received(bn) * (double)bn->count;
}

uint64_t bn_delay(const struct bn *bn, double share)
{
    uint64_t sum = 0;

    for (unsigned bucket = 0; bucket < 64; bucket++) {
        sum += bn->delay_ns[bucket];
        if ((double)sum >= share * (double)bn->delayed)
            return UINT64_C(100) * (4 + bucket % 4) / 4 << bucket / 4;
    }
    return UINT64_MAX;
}
