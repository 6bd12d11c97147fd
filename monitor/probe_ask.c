/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_ask.h"

#include "core/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HELLOS 8
#define HELLO_NS UINT64_C(100000000) /* for the answer to each */
#define LATE_NS UINT64_C(500000000)  /* for the next of the last answers */
#define LAST_NS UINT64_C(2000000000) /* for all of them */
#define BEHIND_NS UINT64_C(2000000000)
#define CATCH_UP 8 /* packets that may leave at once after this was late */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec at;

    clock_gettime(clock, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

uint64_t sl_probe_wall(void)
{
    return clock_ns(CLOCK_REALTIME);
}

uint64_t sl_probe_mono(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int sl_probe_asker_init(struct sl_probe_asker *asker, const struct sl_probe_order *order,
                        struct sl_probe_report *out)
{
    *asker = (struct sl_probe_asker){.order = order, .out = out, .fd = -1};
    asker->times = calloc(order->count, sizeof(*asker->times));
    if (asker->times != NULL)
        return 0;
    snprintf(out->why, sizeof(out->why), "no memory for a probe");
    return sl_fail(-ENOMEM, "%s", out->why);
}

void sl_probe_asker_fini(struct sl_probe_asker *asker)
{
    free(asker->times);
    asker->times = NULL;
}

static void ask(struct sl_probe_asker *asker, uint64_t session, uint32_t number, uint32_t bytes)
{
    struct sl_probe_packet packet = {
        .kind = SL_PROBE_ASK, .len = bytes, .session = session, .number = number};

    packet.sent_ns = sl_probe_wall();
    if (sl_probe_write(&packet, asker->order->key, asker->bytes) == 0)
        asker->send(asker, asker->bytes, bytes);
}

static void answered(struct sl_probe_asker *asker, const struct sl_probe_packet *packet,
                     uint64_t came_ns)
{
    struct sl_probe_time *time = &asker->times[packet->number];

    if (time->is_answered)
        return;
    asker->answered++;
    *time = (struct sl_probe_time){.there_ns = (int64_t)(packet->came_ns - packet->sent_ns),
                                   .back_ns = (int64_t)(came_ns - packet->answered_ns),
                                   .seen = packet->seen,
                                   .is_answered = true};
    time->rtt_ns = time->there_ns + time->back_ns;
}

void sl_probe_take(struct sl_probe_asker *asker, const uint8_t *bytes, size_t len, uint64_t came_ns)
{
    struct sl_probe_packet packet;

    if (sl_probe_read(bytes, len, asker->order->key, &packet) != 0 ||
        packet.kind != SL_PROBE_ANSWER)
        return;
    asker->is_heard |= (packet.session ^ 1) == asker->order->session;
    memcpy(asker->out->host, packet.host, sizeof(packet.host));
    if (packet.session == asker->order->session && packet.number < asker->sent)
        answered(asker, &packet, came_ns);
}

static void wait_until(struct sl_probe_asker *asker, uint64_t until_ns, uint64_t now_ns)
{
    struct pollfd fd = {.fd = asker->fd, .events = POLLIN};
    const struct timespec left = {.tv_sec = (time_t)((until_ns - now_ns) / 1000000000),
                                  .tv_nsec = (long)((until_ns - now_ns) % 1000000000)};

    (void)ppoll(&fd, 1, &left, NULL);
}

/* Until that time, or nothing more is to come: somebody is heard (any), or all are answered. */
static void listen_until(struct sl_probe_asker *asker, uint64_t until_ns, bool any)
{
    uint64_t now = sl_probe_mono(), spin_until_ns = now + asker->spin_ns;

    for (; now < until_ns && !asker->is_over && !(any && asker->is_heard) &&
           asker->answered < asker->order->count;
         now = sl_probe_mono()) {
        if (now >= spin_until_ns)
            wait_until(asker, until_ns, now);
        asker->take(asker);
    }
}

bool sl_probe_is_there(struct sl_probe_asker *asker)
{
    asker->is_heard = false;
    for (unsigned i = 0; i < HELLOS && !asker->is_heard && !asker->is_over; i++) {
        ask(asker, asker->order->session ^ 1, i, SL_PROBE_LEAST);
        listen_until(asker, sl_probe_mono() + HELLO_NS, true);
    }
    return asker->is_heard;
}

/* As long as they come. */
static void listen_to_the_last(struct sl_probe_asker *asker)
{
    uint64_t end_ns = sl_probe_mono() + LAST_NS;
    uint32_t before;

    do {
        uint64_t until_ns = sl_probe_mono() + LATE_NS;

        before = asker->answered;
        listen_until(asker, until_ns < end_ns ? until_ns : end_ns, false);
    } while (asker->answered > before && asker->answered < asker->order->count && !asker->is_over &&
             sl_probe_mono() < end_ns);
}

void sl_probe_run(struct sl_probe_asker *asker)
{
    const struct sl_probe_order *order = asker->order;
    uint64_t due_ns = sl_probe_mono();
    uint64_t end_ns = due_ns + order->count * order->gap_ns + BEHIND_NS, now_ns;

    for (uint32_t i = 0; i < order->count && !asker->is_over; i++) {
        listen_until(asker, due_ns, false);
        asker->take(asker); /* also where this is late, or its queues would fill */
        now_ns = sl_probe_mono();
        if (now_ns > end_ns)
            break;           /* it was not let run: fewer are sent */
        asker->sent = i + 1; /* before it leaves: the answer may be there at once */
        ask(asker, order->session, i, order->bytes);
        due_ns += order->gap_ns;
        /* All at once they would find no room at the other end, and seem lost on the way. */
        if (now_ns > due_ns + CATCH_UP * order->gap_ns)
            due_ns = now_ns + order->gap_ns;
    }
    listen_to_the_last(asker);
    if (sl_probe_judge(asker->times, asker->sent, &asker->out->result) != 0)
        snprintf(asker->out->why, sizeof(asker->out->why), "%s", sluice_last_error());
}
