/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output queues, shaping and marks of the software switch.
 *
 * When the wire is free, the next frame is chosen among those that are there by then, and goes as
 * a whole. The preferred class is first. A token bucket bounds what it takes from others that
 * wait, as operators bound such queues; while no others wait, nothing is counted. This process may
 * run late: it chooses as of the time at which the wire was free, so the order is that of a switch
 * which never is.
 */
#include "testing/dpdk/fabric_port.h"

#include "testing/dpdk/fault.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES (4u << 20)
#define CREDIT_BYTES (16u << 10) /* of the preferred class that may go at once */
#define NEVER UINT64_MAX

bool sl_fabric_port_init(struct sl_fabric_port *port)
{
    bool whole = true;

    port->limit = LIMIT_BYTES;
    port->phantom_share = 0.95;
    port->high = SL_FABRIC_ANY;
    port->high_share = 0.25;
    for (unsigned i = 0; i < SL_FABRIC_CLASSES; i++) {
        port->queues[i].frames = calloc(SL_FABRIC_QUEUE, sizeof(struct sl_fabric_frame));
        whole &= port->queues[i].frames != NULL;
    }
    return whole;
}

void sl_fabric_port_fini(struct sl_fabric *fabric, struct sl_fabric_port *port)
{
    for (unsigned i = 0; i < port->leaving_count; i++)
        fabric->ops->drop(fabric->arg, &port->leaving[i]);
    port->leaving_count = 0;
    for (unsigned i = 0; i < SL_FABRIC_CLASSES; i++) {
        struct sl_fabric_queue *queue = &port->queues[i];
        for (; queue->frames && queue->head != queue->tail; queue->head++)
            fabric->ops->drop(fabric->arg, &queue->frames[queue->head % SL_FABRIC_QUEUE]);
        free(queue->frames);
        queue->frames = NULL;
    }
}

/* ---- in ---- */

/* Bytes that a queue served at `share` of the rate would hold: it fills a little before the real
 * one, so that senders slow down while that is still short. Frames that go first find no others
 * before them, but others find them. */
static void mark_by_phantom(struct sl_fabric_port *port, struct sl_fabric_frame *frame,
                            uint64_t now_ns)
{
    if (!port->rate || !port->mark)
        return;
    double bytes_per_ns = (double)port->rate * port->phantom_share / 8e9;
    uint64_t served = (uint64_t)((double)(now_ns - port->phantom_ns) * bytes_per_ns);
    port->phantom_ns = now_ns;
    for (unsigned i = 0; i < SL_FABRIC_CLASSES; i++) {
        uint64_t *phantom = &port->queues[i].phantom;
        *phantom = *phantom > served ? *phantom - served : 0;
        *phantom += i <= frame->class ? frame->len : 0;
        if (*phantom > port->counts.phantom_most)
            port->counts.phantom_most = *phantom;
    }
    if (port->queues[frame->class].phantom > port->mark && sl_fault_mark(frame))
        port->counts.marked++;
}

static uint64_t queued(const struct sl_fabric_port *port)
{
    return port->queues[SL_FABRIC_PLAIN].bytes + port->queues[SL_FABRIC_HIGH].bytes;
}

void sl_fabric_port_put(struct sl_fabric *fabric, struct sl_fabric_frame *frame, uint64_t now_ns)
{
    struct sl_fabric_port *port = &fabric->ports[frame->out];
    bool is_high = port->high != SL_FABRIC_ANY && sl_fault_dscp(frame) == port->high;
    struct sl_fabric_queue *queue = &port->queues[is_high ? SL_FABRIC_HIGH : SL_FABRIC_PLAIN];
    if (queue->bytes + frame->len > port->limit || queue->tail - queue->head == SL_FABRIC_QUEUE) {
        port->counts.full++;
        fabric->ops->drop(fabric->arg, frame);
        return;
    }
    frame->class = is_high ? SL_FABRIC_HIGH : SL_FABRIC_PLAIN;
    frame->came_ns = now_ns;
    port->counts.high += is_high;
    port->counts.queue_sum += queued(port);
    queue->bytes += frame->len;
    if (queued(port) > port->counts.queue_most)
        port->counts.queue_most = queued(port);
    mark_by_phantom(port, frame, now_ns);
    queue->frames[queue->tail++ % SL_FABRIC_QUEUE] = *frame;
}

/* ---- out ---- */

static const struct sl_fabric_frame *first(const struct sl_fabric_queue *queue)
{
    return queue->head == queue->tail ? NULL : &queue->frames[queue->head % SL_FABRIC_QUEUE];
}

/* When the wire is free and a frame is there; UINT64_MAX: none is. */
static uint64_t start(const struct sl_fabric_port *port)
{
    uint64_t came_ns = NEVER;
    for (unsigned i = 0; i < SL_FABRIC_CLASSES; i++) {
        const struct sl_fabric_frame *frame = first(&port->queues[i]);
        if (frame && frame->came_ns < came_ns)
            came_ns = frame->came_ns;
    }
    return came_ns == NEVER || came_ns > port->free_ns ? came_ns : port->free_ns;
}

/* May a frame of the preferred class go before one that waits? */
static bool may_go_first(struct sl_fabric_port *port, uint32_t len, uint64_t at_ns)
{
    if (!port->rate)
        return true;
    port->credit += (double)(at_ns - port->credit_ns) * (double)port->rate / 8e9 * port->high_share;
    port->credit_ns = at_ns;
    if (port->credit > CREDIT_BYTES)
        port->credit = CREDIT_BYTES;
    if (port->credit < len)
        return false;
    port->credit -= len;
    return true;
}

/* Whose turn it is at that time, at which a frame is there. */
static struct sl_fabric_queue *choose(struct sl_fabric_port *port, uint64_t at_ns)
{
    struct sl_fabric_queue *queues = port->queues;
    const struct sl_fabric_frame *plain = first(&queues[SL_FABRIC_PLAIN]),
                                 *high = first(&queues[SL_FABRIC_HIGH]);
    if (!high || high->came_ns > at_ns)
        return &queues[SL_FABRIC_PLAIN];
    if (!plain || plain->came_ns > at_ns || may_go_first(port, high->len, at_ns))
        return &queues[SL_FABRIC_HIGH];
    return &queues[SL_FABRIC_PLAIN];
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

/* Gives the wire to the frames whose turn came by now. */
static void begin(struct sl_fabric_port *port, uint64_t now_ns)
{
    uint64_t at_ns;
    while (port->leaving_count < SL_FABRIC_BURST && (at_ns = start(port)) <= now_ns) {
        struct sl_fabric_queue *queue = choose(port, at_ns);
        struct sl_fabric_frame *frame = &port->leaving[port->leaving_count++];
        *frame = queue->frames[queue->head++ % SL_FABRIC_QUEUE];
        frame->due_ns = at_ns;
        if (port->rate)
            frame->due_ns += (uint64_t)((double)frame->len * 8e9 / (double)port->rate);
        port->free_ns = port->rate ? frame->due_ns : 0;
        count_wait(&port->counts, frame->len, frame->due_ns - frame->came_ns);
    }
}

static void count_left(struct sl_fabric_port *port, uint32_t len, uint8_t in, uint8_t class,
                       uint64_t behind_ns)
{
    port->counts.out_frames++;
    port->counts.out_bytes += len;
    port->from[in] += len;
    port->queues[class].bytes -= len;
    port->counts.behind_sum += behind_ns;
    if (behind_ns > port->counts.behind_most)
        port->counts.behind_most = behind_ns;
}

/* The frames that have left; how many the receiver took of `due`. They are its own then. */
static unsigned send(struct sl_fabric *fabric, unsigned number, unsigned due, uint64_t now_ns)
{
    struct sl_fabric_port *port = &fabric->ports[number];
    struct sl_fabric_frame frames[SL_FABRIC_BURST];
    memcpy(frames, port->leaving, due * sizeof(frames[0]));
    unsigned took = fabric->ops->send(fabric->arg, number, port->leaving, due);
    for (unsigned i = 0; i < took; i++)
        count_left(port, frames[i].len, frames[i].in, frames[i].class, now_ns - frames[i].due_ns);
    port->leaving_count -= took;
    memmove(port->leaving, port->leaving + took, port->leaving_count * sizeof(frames[0]));
    return took;
}

unsigned sl_fabric_port_run(struct sl_fabric *fabric, unsigned number, uint64_t now_ns)
{
    struct sl_fabric_port *port = &fabric->ports[number];
    unsigned sent = 0, due, took;
    do {
        begin(port, now_ns);
        for (due = 0; due < port->leaving_count && port->leaving[due].due_ns <= now_ns;)
            due++;
        took = due ? send(fabric, number, due, now_ns) : 0;
        sent += took;
    } while (took && took == due);
    return sent;
}

uint64_t sl_fabric_port_next(const struct sl_fabric_port *port)
{
    return port->leaving_count ? port->leaving[0].due_ns : start(port);
}
