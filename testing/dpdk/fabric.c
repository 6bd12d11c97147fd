/* SPDX-License-Identifier: Apache-2.0 */
/* Forwarding, queues, shaping and marks of the software switch. */
#include "testing/dpdk/fabric.h"

#include "core/err.h"
#include "testing/dpdk/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ETHER_HEAD 14
#define LIMIT_BYTES (4u << 20)
#define BURST 32
/* What may still come in one round of a lossless fabric's inputs, in frames. */
#define ROUND_FRAMES (SL_FABRIC_PORTS * BURST)
#define ROUND_BYTES (512u << 10)

int sl_fabric_init(struct sl_fabric *fabric, unsigned ports, uint64_t seed,
                   const struct sl_fabric_ops *ops, void *arg)
{
    if (ports < 1 || ports > SL_FABRIC_PORTS)
        return sl_fail(-EINVAL, "a switch has 1 to %d ports, not %u", SL_FABRIC_PORTS, ports);
    memset(fabric, 0, sizeof(*fabric));
    fabric->ops = ops;
    fabric->arg = arg;
    fabric->count = ports;
    fabric->mirror = SL_FABRIC_ANY;
    sl_rng_init(&fabric->rng, seed);
    fabric->held = calloc(SL_FABRIC_HELD, sizeof(*fabric->held));
    bool whole = fabric->held != NULL;
    for (unsigned i = 0; i < ports; i++) {
        fabric->ports[i].limit = LIMIT_BYTES;
        fabric->ports[i].phantom_share = 0.95;
        fabric->ports[i].queue = calloc(SL_FABRIC_QUEUE, sizeof(struct sl_fabric_frame));
        whole = whole && fabric->ports[i].queue;
    }
    if (!whole) {
        sl_fabric_fini(fabric);
        return sl_fail(-ENOMEM, "no memory for the queues of %u ports", ports);
    }
    return 0;
}

void sl_fabric_fini(struct sl_fabric *fabric)
{
    for (unsigned i = 0; i < fabric->held_count; i++)
        fabric->ops->drop(fabric->arg, &fabric->held[i]);
    for (unsigned i = 0; i < fabric->count; i++) {
        struct sl_fabric_port *port = &fabric->ports[i];
        for (; port->queue && port->head != port->tail; port->head++)
            fabric->ops->drop(fabric->arg, &port->queue[port->head % SL_FABRIC_QUEUE]);
        free(port->queue);
        port->queue = NULL;
    }
    free(fabric->held);
    fabric->held = NULL;
    fabric->held_count = 0;
}

/* ---- where a frame goes ---- */

static struct sl_fabric_mac *find(struct sl_fabric *fabric, const uint8_t *mac)
{
    uint32_t hash = 2166136261u;
    for (unsigned i = 0; i < 6; i++)
        hash = (hash ^ mac[i]) * 16777619u;
    for (unsigned i = 0; i < 16; i++) {
        struct sl_fabric_mac *place = &fabric->macs[(hash + i) % SL_FABRIC_MACS];
        if (!place->is_known || memcmp(place->mac, mac, 6) == 0)
            return place;
    }
    return &fabric->macs[hash % SL_FABRIC_MACS]; /* forgets another, which is flooded until heard */
}

static void learn(struct sl_fabric *fabric, const uint8_t *mac, unsigned port)
{
    if (mac[0] & 1)
        return;
    struct sl_fabric_mac *place = find(fabric, mac);
    memcpy(place->mac, mac, 6);
    place->port = (uint8_t)port;
    place->is_known = true;
}

static int known_port(struct sl_fabric *fabric, const uint8_t *mac)
{
    if (mac[0] & 1)
        return SL_FABRIC_ANY;
    const struct sl_fabric_mac *place = find(fabric, mac);
    return place->is_known && memcmp(place->mac, mac, 6) == 0 ? place->port : SL_FABRIC_ANY;
}

/* ---- output queues ---- */

/* Bytes that a queue served at `share` of the rate would hold: it fills a little before the real
 * one, so that senders slow down while that is still short. */
static void mark_by_phantom(struct sl_fabric_port *port, struct sl_fabric_frame *frame,
                            uint64_t now_ns)
{
    if (!port->rate || !port->mark)
        return;
    double bytes_per_ns = (double)port->rate * port->phantom_share / 8e9;
    uint64_t served = (uint64_t)((double)(now_ns - port->phantom_ns) * bytes_per_ns);
    port->phantom = port->phantom > served ? port->phantom - served : 0;
    port->phantom_ns = now_ns;
    port->phantom += frame->len;
    if (port->phantom > port->counts.phantom_most)
        port->counts.phantom_most = port->phantom;
    if (port->phantom > port->mark && sl_fault_mark(frame))
        port->counts.marked++;
}

static void count_wait(struct sl_fabric_counts *counts, uint32_t len, uint64_t ns)
{
    if (len > SL_FABRIC_SHORT)
        return;
    counts->short_frames++;
    counts->short_wait_sum += ns;
    if (ns > counts->short_wait_most)
        counts->short_wait_most = ns;
}

static void count_behind(struct sl_fabric_counts *counts, uint64_t ns)
{
    counts->behind_sum += ns;
    if (ns > counts->behind_most)
        counts->behind_most = ns;
}

static void enqueue(struct sl_fabric *fabric, struct sl_fabric_frame *frame, uint64_t now_ns)
{
    struct sl_fabric_port *port = &fabric->ports[frame->out];
    if (port->queued + frame->len > port->limit || port->tail - port->head == SL_FABRIC_QUEUE) {
        port->counts.full++;
        fabric->ops->drop(fabric->arg, frame);
        return;
    }
    port->counts.queue_sum += port->queued;
    port->queued += frame->len;
    if (port->queued > port->counts.queue_most)
        port->counts.queue_most = port->queued;
    mark_by_phantom(port, frame, now_ns);
    frame->due_ns = now_ns;
    if (port->rate) {
        uint64_t start = port->free_ns > now_ns ? port->free_ns : now_ns;
        frame->due_ns = start + (uint64_t)((double)frame->len * 8e9 / (double)port->rate);
        port->free_ns = frame->due_ns;
    }
    count_wait(&port->counts, frame->len, frame->due_ns - now_ns);
    port->queue[port->tail++ % SL_FABRIC_QUEUE] = *frame;
}

static unsigned serve(struct sl_fabric *fabric, unsigned number, uint64_t now_ns)
{
    struct sl_fabric_port *port = &fabric->ports[number];
    unsigned sent = 0;
    while (port->head != port->tail) {
        unsigned at = port->head % SL_FABRIC_QUEUE, count = 0;
        uint32_t lens[BURST];
        uint8_t ins[BURST];
        uint64_t dues[BURST];
        while (count < BURST && port->head + count != port->tail && at + count < SL_FABRIC_QUEUE &&
               port->queue[at + count].due_ns <= now_ns) {
            lens[count] = port->queue[at + count].len;
            ins[count] = port->queue[at + count].in;
            dues[count] = port->queue[at + count].due_ns;
            count++;
        }
        unsigned took = count ? fabric->ops->send(fabric->arg, number, &port->queue[at], count) : 0;
        for (unsigned i = 0; i < took && i < count; i++) {
            port->counts.out_frames++;
            port->counts.out_bytes += lens[i];
            port->from[ins[i]] += lens[i];
            port->queued -= lens[i];
            count_behind(&port->counts, now_ns - dues[i]);
        }
        port->head += took;
        sent += took;
        if (!took || took < count)
            break;
    }
    return sent;
}

/* ---- frames that are late: a heap by time ---- */

static bool is_before(const struct sl_fabric_frame *a, const struct sl_fabric_frame *b)
{
    return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->order < b->order);
}

static void swap(struct sl_fabric_frame *a, struct sl_fabric_frame *b)
{
    struct sl_fabric_frame c = *a;
    *a = *b;
    *b = c;
}

static void hold(struct sl_fabric *fabric, const struct sl_fabric_frame *frame)
{
    struct sl_fabric_frame *heap = fabric->held;
    unsigned at = fabric->held_count++;
    heap[at] = *frame;
    for (; at && is_before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

static struct sl_fabric_frame release(struct sl_fabric *fabric)
{
    struct sl_fabric_frame *heap = fabric->held, first = heap[0];
    unsigned count = --fabric->held_count;
    heap[0] = heap[count];
    for (unsigned at = 0, child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &heap[at]))
            break;
        swap(&heap[child], &heap[at]);
    }
    return first;
}

/* ---- from end to end ---- */

/* Whoever listens there gets it, whatever befalls the frame itself. */
static void copy_to_mirror(struct sl_fabric *fabric, const struct sl_fabric_frame *frame,
                           uint64_t now_ns)
{
    struct sl_fabric_frame twin;
    if (fabric->mirror == SL_FABRIC_ANY || fabric->mirror == frame->in ||
        !fabric->ops->copy(fabric->arg, frame, &twin))
        return;
    twin.in = frame->in;
    twin.out = (uint8_t)fabric->mirror;
    enqueue(fabric, &twin, now_ns);
}

/* One frame to one output. */
static void forward(struct sl_fabric *fabric, struct sl_fabric_frame *frame, uint64_t now_ns)
{
    struct sl_fabric_counts *counts = &fabric->ports[frame->out].counts;
    struct sl_fault fault = sl_fault_draw(fabric, frame);
    if (fault.lost) {
        counts->lost++;
        fabric->ops->drop(fabric->arg, frame);
        return;
    }
    struct sl_fabric_frame twin;
    if (fault.twice && fabric->ops->copy(fabric->arg, frame, &twin)) {
        counts->twice++;
        twin.in = frame->in;
        twin.out = frame->out;
        enqueue(fabric, &twin, now_ns);
    }
    if (fault.damaged) {
        counts->damaged++;
        sl_fault_damage(fabric, frame);
    }
    if (fault.late)
        counts->late++;
    if (fault.delay_ns && fabric->held_count < SL_FABRIC_HELD) {
        frame->due_ns = now_ns + fault.delay_ns;
        frame->order = fabric->held_order++;
        hold(fabric, frame);
        return;
    }
    enqueue(fabric, frame, now_ns);
}

void sl_fabric_receive(struct sl_fabric *fabric, unsigned port, struct sl_fabric_frame *frame,
                       uint64_t now_ns)
{
    struct sl_fabric_counts *counts = &fabric->ports[port].counts;
    counts->in_frames++;
    counts->in_bytes += frame->len;
    frame->in = (uint8_t)port;
    if (frame->len < ETHER_HEAD) {
        fabric->ops->drop(fabric->arg, frame);
        return;
    }
    learn(fabric, frame->bytes + 6, port);
    copy_to_mirror(fabric, frame, now_ns);
    int out = known_port(fabric, frame->bytes);
    if (out != SL_FABRIC_ANY && out != (int)port) {
        frame->out = (uint8_t)out;
        forward(fabric, frame, now_ns);
        return;
    }
    for (unsigned i = 0; out == SL_FABRIC_ANY && i < fabric->count; i++) {
        struct sl_fabric_frame twin;
        if (i == port || (int)i == fabric->mirror || !fabric->ops->copy(fabric->arg, frame, &twin))
            continue;
        twin.in = (uint8_t)port;
        twin.out = (uint8_t)i;
        forward(fabric, &twin, now_ns);
    }
    fabric->ops->drop(fabric->arg, frame);
}

bool sl_fabric_has_room(const struct sl_fabric *fabric)
{
    for (unsigned i = 0; fabric->is_lossless && i < fabric->count; i++) {
        const struct sl_fabric_port *port = &fabric->ports[i];
        if (port->queued + ROUND_BYTES > port->limit ||
            port->tail - port->head > SL_FABRIC_QUEUE - ROUND_FRAMES)
            return false;
    }
    return true;
}

unsigned sl_fabric_run(struct sl_fabric *fabric, uint64_t now_ns)
{
    unsigned sent = 0;
    while (fabric->held_count && fabric->held[0].due_ns <= now_ns) {
        struct sl_fabric_frame frame = release(fabric);
        enqueue(fabric, &frame, now_ns);
    }
    for (unsigned i = 0; i < fabric->count; i++)
        if (fabric->ports[i].head != fabric->ports[i].tail)
            sent += serve(fabric, i, now_ns);
    return sent;
}

uint64_t sl_fabric_next(const struct sl_fabric *fabric)
{
    uint64_t next = fabric->held_count ? fabric->held[0].due_ns : UINT64_MAX;
    for (unsigned i = 0; i < fabric->count; i++) {
        const struct sl_fabric_port *port = &fabric->ports[i];
        uint64_t due = port->queue[port->head % SL_FABRIC_QUEUE].due_ns;
        if (port->head != port->tail && due < next)
            next = due;
    }
    return next;
}
