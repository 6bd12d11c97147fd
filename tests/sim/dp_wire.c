/* SPDX-License-Identifier: Apache-2.0 */
/* The wire: a heap of events, by time and then by age. */
#include "tests/sim/dp_wire.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

enum kind { RUN, LEAVE, ARRIVE };

struct dp_packet {
    struct dp_packet *next;
    struct dp_end *to, *from;
    struct dp_path *path;
    const void *lent; /* the payload is read when it leaves */
    size_t head_len, lent_len, len;
    uint8_t message;
    bool is_marked, is_kept, is_high;
    uint8_t bytes[];
};

struct dp_event {
    uint64_t at_ns, age;
    enum kind kind;
    void *arg;
};

/* ---- events ---- */

static bool before(const struct dp_event *a, const struct dp_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->age < b->age;
}

static void put(struct dp_wire *wire, uint64_t at_ns, enum kind kind, void *arg)
{
    struct dp_event event = {at_ns, wire->events++, kind, arg};
    uint64_t at = wire->count++;

    if (wire->count > wire->cap) {
        wire->cap = wire->cap != 0 ? 2 * wire->cap : 256;
        wire->heap = realloc(wire->heap, wire->cap * sizeof(event));
        sl_assert(wire->heap != NULL);
    }
    for (; at > 0 && before(&event, &wire->heap[(at - 1) / 2]); at = (at - 1) / 2)
        wire->heap[at] = wire->heap[(at - 1) / 2];
    wire->heap[at] = event;
}

static struct dp_event take(struct dp_wire *wire)
{
    struct dp_event first = wire->heap[0], last = wire->heap[--wire->count];
    uint64_t at = 0;

    for (;;) {
        uint64_t child = 2 * at + 1;

        if (child >= wire->count)
            break;
        if (child + 1 < wire->count && before(&wire->heap[child + 1], &wire->heap[child]))
            child++;
        if (!before(&wire->heap[child], &last))
            break;
        wire->heap[at] = wire->heap[child];
        at = child;
    }
    wire->heap[at] = last;
    return first;
}

/* ---- memory of engines ---- */

static void *node_alloc(void *arg, size_t len)
{
    struct dp_node *node = arg;

    node->memory += len;
    return calloc(1, len);
}

static void node_free(void *arg, void *memory, size_t len)
{
    struct dp_node *node = arg;

    sl_assert(node->memory >= len);
    node->memory -= len;
    free(memory);
}

/* ---- packets ---- */

static bool chance(struct dp_wire *wire, uint32_t ppm)
{
    return ppm != 0 && sl_rng_below(&wire->rng, DP_PPM) < ppm;
}

static struct dp_packet *packet_new(struct dp_end *from, struct dp_end *to, size_t len)
{
    struct dp_packet *packet = malloc(sizeof(*packet) + len);

    sl_assert(packet != NULL);
    *packet = (struct dp_packet){.from = from, .to = to, .len = len};
    return packet;
}

/* One or two bits of the header, or a byte of the payload; the header's check finds the former. */
static void damage(struct dp_wire *wire, struct dp_packet *packet, bool is_payload)
{
    if (is_payload && packet->len > SL_DP_HEAD_BYTES) {
        size_t at = SL_DP_HEAD_BYTES + sl_rng_below(&wire->rng, packet->len - SL_DP_HEAD_BYTES);

        packet->bytes[at] ^= (uint8_t)sl_rng_range(&wire->rng, 1, 255);
        return;
    }
    for (uint64_t left = sl_rng_range(&wire->rng, 1, 2); left > 0; left--) {
        uint64_t bit = sl_rng_below(&wire->rng, 8 * SL_DP_HEAD_BYTES);

        packet->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Of the class that goes first: behind others of it, and the packet that is on the wire. Those that
 * are in the queue have their times already; those that come later are as much later. */
static void pass_first(struct dp_queue *queue, uint64_t cost_ns, uint64_t *at_ns)
{
    uint64_t now_ns = *at_ns, wait_ns = 0;

    if (queue->high_ns > now_ns)
        wait_ns = queue->high_ns - now_ns;
    else if (queue->free_ns > now_ns && queue->last_cost_ns != 0)
        wait_ns = (queue->free_ns - now_ns) % queue->last_cost_ns;
    queue->packets++;
    queue->high_ns = now_ns + wait_ns + cost_ns;
    queue->free_ns = (queue->free_ns > now_ns ? queue->free_ns : now_ns) + cost_ns;
    *at_ns = queue->high_ns;
}

/* False: there was no room in the queue. */
static bool pass_queue(struct dp_queue *queue, struct dp_packet *packet, uint64_t *at_ns)
{
    uint64_t now_ns = *at_ns, cost_ns = packet->len * UINT64_C(1000000000) / queue->rate;
    uint64_t wait_ns = queue->free_ns > now_ns ? queue->free_ns - now_ns : 0;
    uint64_t depth = wait_ns * queue->rate / 1000000000, phantom;

    if (queue->has_high && packet->is_high) {
        pass_first(queue, cost_ns, at_ns);
        return true;
    }
    queue->packets++;
    queue->depth_sum += (double)depth;
    if (depth > queue->depth_most)
        queue->depth_most = depth;
    if (depth + packet->len > queue->limit_bytes) {
        queue->drops++;
        return false;
    }
    phantom =
        queue->phantom_ns > now_ns ? (queue->phantom_ns - now_ns) * queue->rate / 1000000000 : 0;
    if (queue->mark_bytes != 0 && (queue->is_phantom ? phantom : depth) > queue->mark_bytes) {
        packet->is_marked = true;
        queue->marks++;
    }
    queue->free_ns = now_ns + wait_ns + cost_ns;
    queue->last_cost_ns = cost_ns;
    queue->phantom_ns =
        (queue->phantom_ns > now_ns ? queue->phantom_ns : now_ns) + cost_ns * 100 / 95;
    queue->bytes += packet->len;
    *at_ns = queue->free_ns;
    return true;
}

/* On its path: what becomes of it. */
static void travel(struct dp_wire *wire, struct dp_packet *packet)
{
    struct dp_path *path = packet->path;
    uint64_t at_ns = wire->now_ns;
    uint64_t *last_ns = &path->last_ns[packet->is_high && path->class != DP_CLASS_UNKNOWN];

    path->packets++;
    if (wire->watch != NULL)
        wire->watch(wire, packet->from, packet->bytes, packet->len);
    if (path->is_dead || packet->to->node->is_dead || chance(wire, path->loss_ppm) ||
        (packet->is_high && path->class == DP_CLASS_DROPPED) ||
        (path->frame_most != 0 && packet->len > path->frame_most) ||
        (path->queue != NULL && !pass_queue(path->queue, packet, &at_ns))) {
        path->lost++;
        packet->to->node->waiting--;
        free(packet);
        return;
    }
    if (chance(wire, path->double_ppm)) {
        struct dp_packet *twin = packet_new(packet->from, packet->to, packet->len);

        packet->to->node->waiting++;
        memcpy(twin->bytes, packet->bytes, packet->len);
        put(wire, at_ns + path->delay_ns + sl_rng_below(&wire->rng, path->delay_ns + 1), ARRIVE,
            twin);
    }
    if (chance(wire, path->damage_ppm))
        damage(wire, packet, false);
    if (chance(wire, path->payload_damage_ppm))
        damage(wire, packet, true);
    at_ns += path->delay_ns;
    if (path->class != DP_CLASS_UNKNOWN && packet->is_high != (path->class == DP_CLASS_FIRST))
        at_ns += sl_rng_below(&wire->rng, 4 * path->delay_ns + 1); /* what it waits for the other */
    if (path->jitter_ns != 0)
        at_ns += sl_rng_below(&wire->rng, path->jitter_ns);
    if (chance(wire, path->spike_ppm))
        at_ns += sl_rng_below(&wire->rng, path->spike_ns + 1);
    else if (chance(wire, path->reorder_ppm))
        at_ns += sl_rng_below(&wire->rng, path->delay_ns + path->jitter_ns + 1);
    else if (at_ns <= *last_ns)
        at_ns = *last_ns;
    else
        *last_ns = at_ns;
    put(wire, at_ns, ARRIVE, packet);
}

static void leave(struct dp_wire *wire, struct dp_packet *packet)
{
    if (packet->is_kept) {
        packet->from->kept--;
        if (packet->from->is_closed) { /* its memory is gone, and the port has thrown it away */
            packet->to->node->waiting--;
            free(packet);
            return;
        }
        memcpy(packet->bytes + packet->head_len, packet->lent, packet->lent_len);
        sl_dp_flow_sent(packet->from->flow, packet->message);
        dp_node_wake(packet->from->node);
    }
    travel(wire, packet);
}

static int on_packet(struct sl_dp_flow *flow, const struct sl_dp_packet *p)
{
    struct dp_end *end = sl_dp_flow_owner(flow);
    struct dp_node *node = end->node;
    struct dp_wire *wire = node->wire;
    size_t len = p->head_len + p->payload_len + (p->has_tail ? sizeof(p->tail) : 0);
    uint64_t start_ns = node->line_ns > wire->now_ns ? node->line_ns : wire->now_ns;
    struct dp_packet *packet;

    sl_assert(!end->is_closed && p->route < end->ends.routes);
    if ((node->rate != 0 && start_ns > wire->now_ns + node->ring_ns) ||
        (end->peer->node->inbox_most != 0 &&
         end->peer->node->waiting >= end->peer->node->inbox_most)) {
        node->full++;
        return -EAGAIN;
    }
    if (node->rate != 0)
        node->line_ns = start_ns + len * UINT64_C(1000000000) / node->rate;
    packet = packet_new(end, end->peer, len);
    end->peer->node->waiting++;
    packet->path = &end->path[p->route];
    packet->head_len = p->head_len;
    packet->is_high = p->is_high;
    packet->is_kept = p->is_lent && chance(wire, node->keep_ppm);
    packet->lent = p->payload;
    packet->lent_len = p->payload_len;
    packet->message = p->message;
    memcpy(packet->bytes, p->head, p->head_len);
    if (!packet->is_kept)
        memcpy(packet->bytes + p->head_len, p->payload, p->payload_len);
    if (p->has_tail)
        memcpy(packet->bytes + p->head_len + p->payload_len, &p->tail, sizeof(p->tail));
    end->kept += packet->is_kept;
    put(wire, node->rate != 0 ? node->line_ns : wire->now_ns, LEAVE, packet);
    return packet->is_kept;
}

static void *on_place(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t off,
                      uint32_t len)
{
    struct dp_end *end = sl_dp_flow_owner(flow);

    sl_assert(!end->is_closed);
    return end->user->place(end, is_write, imm, off, len);
}

static void on_arrived(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t len)
{
    struct dp_end *end = sl_dp_flow_owner(flow);

    sl_assert(!end->is_closed);
    end->user->arrived(end, is_write, imm, len);
}

static void on_retired(struct sl_dp_flow *flow, uint32_t ordinal)
{
    struct dp_end *end = sl_dp_flow_owner(flow);

    sl_assert(!end->is_closed);
    end->user->retired(end, ordinal);
}

static void on_failed(struct sl_dp_flow *flow, int status, const char *why)
{
    struct dp_end *end = sl_dp_flow_owner(flow);

    sl_assert(!end->is_closed);
    end->user->failed(end, status, why);
}

static void on_route(struct sl_dp_flow *flow, unsigned route, bool up)
{
    struct dp_end *end = sl_dp_flow_owner(flow);

    (void)route;
    end->ups += up;
    end->downs += !up;
}

/* ---- nodes ---- */

static void plan(struct dp_node *node, uint64_t at_ns)
{
    uint64_t least_ns = node->run_ns + node->poll_ns;

    if (at_ns < least_ns)
        at_ns = least_ns;
    if (at_ns < node->asleep_ns)
        at_ns = node->asleep_ns;
    if (node->slice_ns != 0 && (at_ns / node->slice_ns % 2 != 0) != node->is_odd)
        at_ns += node->slice_ns - at_ns % node->slice_ns;
    if (at_ns >= node->next_ns)
        return;
    node->next_ns = at_ns;
    put(node->wire, at_ns, RUN, node);
}

void dp_node_wake(struct dp_node *node)
{
    plan(node, node->wire->now_ns);
}

static void run(struct dp_wire *wire, struct dp_node *node)
{
    uint64_t next_ns;

    if (wire->now_ns != node->next_ns)
        return; /* planned anew since */
    node->next_ns = UINT64_MAX;
    if (node->is_dead)
        return;
    if (wire->now_ns < node->asleep_ns) {
        plan(node, node->asleep_ns);
        return;
    }
    node->run_ns = wire->now_ns;
    while (node->inbox != NULL) {
        struct dp_packet *packet = node->inbox;

        node->inbox = packet->next;
        node->waiting--;
        if (!packet->to->is_closed)
            sl_dp_flow_receive(packet->to->flow, packet->bytes, packet->len, packet->is_marked,
                               wire->now_ns);
        free(packet);
    }
    node->inbox_end = &node->inbox;
    sl_dp_engine_run(&node->engine, wire->now_ns, node->budget);
    next_ns = sl_dp_engine_next(&node->engine);
    if (next_ns != UINT64_MAX)
        plan(node, next_ns > wire->now_ns ? next_ns : wire->now_ns);
}

static void arrive(struct dp_packet *packet)
{
    struct dp_node *node = packet->to->node;

    packet->next = NULL;
    *node->inbox_end = packet;
    node->inbox_end = &packet->next;
    dp_node_wake(node);
}

bool dp_wire_run(struct dp_wire *wire, uint64_t until_ns)
{
    while (wire->count > 0 && wire->heap[0].at_ns <= until_ns) {
        struct dp_event event = take(wire);

        wire->now_ns = event.at_ns;
        switch (event.kind) {
        case RUN: run(wire, event.arg); break;
        case LEAVE: leave(wire, event.arg); break;
        case ARRIVE: arrive(event.arg); break;
        }
    }
    if (wire->count == 0)
        return false;
    wire->now_ns = until_ns;
    return true;
}

void dp_wire_inject(struct dp_wire *wire, struct dp_end *to, const void *bytes, size_t len)
{
    struct dp_packet *packet = packet_new(NULL, to, len);

    memcpy(packet->bytes, bytes, len);
    to->node->waiting++;
    put(wire, wire->now_ns, ARRIVE, packet);
}

/* ---- life ---- */

void dp_wire_init(struct dp_wire *wire, uint64_t seed)
{
    memset(wire, 0, sizeof(*wire));
    sl_rng_init(&wire->rng, seed);
    wire->now_ns = 1000000;
    wire->number = (uint32_t)sl_rng_u64(&wire->rng);
}

struct dp_node *dp_node_add(struct dp_wire *wire, const struct sl_dp_settings *settings)
{
    static const struct sl_dp_ops ops = {on_packet,  on_place,  on_arrived,
                                         on_retired, on_failed, on_route};
    struct dp_node *node = &wire->node[wire->nodes++];

    sl_assert(wire->nodes <= DP_NODES_MAX);
    *node = (struct dp_node){.wire = wire,
                             .engine = {.ops = &ops,
                                        .settings = *settings,
                                        .alloc = node_alloc,
                                        .free = node_free,
                                        .arg = node},
                             .poll_ns = 1000,
                             .ring_ns = 100000,
                             .budget = 256,
                             .next_ns = UINT64_MAX};
    node->inbox_end = &node->inbox;
    sl_assert(sl_dp_engine_init(&node->engine, wire->now_ns) == 0);
    return node;
}

void dp_flow_add(struct dp_wire *wire, struct dp_node *a, struct dp_node *b,
                 const struct sl_dp_ends *ends, const struct dp_user *user, struct dp_end *out[2])
{
    struct dp_node *nodes[2] = {a, b};
    uint32_t numbers[2] = {++wire->number, ++wire->number};
    uint64_t secrets[2] = {sl_rng_u64(&wire->rng), sl_rng_u64(&wire->rng)};

    for (unsigned i = 0; i < 2; i++) {
        out[i] = &wire->end[wire->ends++];
        sl_assert(wire->ends <= DP_ENDS_MAX);
        *out[i] = (struct dp_end){.node = nodes[i], .user = user, .ends = *ends};
        out[i]->ends.own_number = numbers[i];
        out[i]->ends.peer_number = numbers[!i];
        out[i]->ends.own_secret = secrets[i];
        out[i]->ends.peer_secret = secrets[!i];
        for (unsigned r = 0; r < SL_DP_ROUTES_MAX; r++)
            out[i]->path[r].delay_ns = 2000;
    }
    out[0]->peer = out[1];
    out[1]->peer = out[0];
    for (unsigned i = 0; i < 2; i++)
        sl_assert(sl_dp_flow_open(&nodes[i]->engine, &out[i]->ends, out[i], &out[i]->flow) == 0);
}

void dp_end_close(struct dp_end *end)
{
    if (end->is_closed)
        return;
    sl_dp_flow_close(end->flow);
    end->is_closed = true;
}

void dp_wire_fini(struct dp_wire *wire)
{
    for (unsigned i = 0; i < wire->ends; i++)
        dp_end_close(&wire->end[i]);
    while (wire->count > 0) {
        struct dp_event event = take(wire);

        if (event.kind != RUN)
            free(event.arg);
    }
    for (unsigned i = 0; i < wire->nodes; i++) {
        struct dp_node *node = &wire->node[i];

        while (node->inbox != NULL) {
            struct dp_packet *packet = node->inbox;

            node->inbox = packet->next;
            free(packet);
        }
        sl_dp_engine_fini(&node->engine);
    }
    free(wire->heap);
}
