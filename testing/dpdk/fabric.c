/* SPDX-License-Identifier: Apache-2.0 */
/* Forwarding of the software switch, and the frames that it holds back. */
#include "testing/dpdk/fabric.h"

#include "core/err.h"
#include "testing/dpdk/fabric_port.h"
#include "testing/dpdk/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ETHER_HEAD 14
/* What may still come in one round of a lossless fabric's inputs, in frames. */
#define ROUND_FRAMES (SL_FABRIC_PORTS * SL_FABRIC_BURST)
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
    for (unsigned i = 0; i < ports; i++)
        whole &= sl_fabric_port_init(&fabric->ports[i]);
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
    for (unsigned i = 0; i < fabric->count; i++)
        sl_fabric_port_fini(fabric, &fabric->ports[i]);
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
    sl_fabric_port_put(fabric, &twin, now_ns);
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
        sl_fabric_port_put(fabric, &twin, now_ns);
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
    sl_fabric_port_put(fabric, frame, now_ns);
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
    for (unsigned i = 0; fabric->is_lossless && i < fabric->count; i++)
        for (unsigned j = 0; j < SL_FABRIC_CLASSES; j++) {
            const struct sl_fabric_queue *queue = &fabric->ports[i].queues[j];
            if (queue->bytes + ROUND_BYTES > fabric->ports[i].limit ||
                queue->tail - queue->head > SL_FABRIC_QUEUE - ROUND_FRAMES)
                return false;
        }
    return true;
}

unsigned sl_fabric_run(struct sl_fabric *fabric, uint64_t now_ns)
{
    unsigned sent = 0;
    while (fabric->held_count && fabric->held[0].due_ns <= now_ns) {
        struct sl_fabric_frame frame = release(fabric);
        sl_fabric_port_put(fabric, &frame, now_ns);
    }
    for (unsigned i = 0; i < fabric->count; i++)
        sent += sl_fabric_port_run(fabric, i, now_ns);
    return sent;
}

uint64_t sl_fabric_next(const struct sl_fabric *fabric)
{
    uint64_t next = fabric->held_count ? fabric->held[0].due_ns : UINT64_MAX;
    for (unsigned i = 0; i < fabric->count; i++) {
        uint64_t due = sl_fabric_port_next(&fabric->ports[i]);
        if (due < next)
            next = due;
    }
    return next;
}
