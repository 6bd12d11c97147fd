/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_udp.h"

#include "core/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HELLOS 8
#define HELLO_NS UINT64_C(100000000) /* for the answer to each */
#define LATE_NS UINT64_C(500000000)  /* for the last answers */

struct asker {
    const struct sl_probe_order *order;
    int fd;
    struct sl_probe_time *times;
    uint8_t bytes[SL_PROBE_MOST];
    struct sl_probe_report *out;
    uint32_t answered;
    bool is_heard;
};

uint64_t sl_probe_wall(void)
{
    struct timespec at;

    clock_gettime(CLOCK_REALTIME, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static uint64_t mono(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

uint64_t sl_probe_came(struct msghdr *message)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        struct timespec time;

        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&time, CMSG_DATA(at), sizeof(time));
        return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    }
    return sl_probe_wall();
}

static int open_socket(const struct sl_probe_order *order)
{
    static const int on = 1;
    int fd = socket(order->to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return sl_fail(-errno, "no socket for a probe: %s", sluice_strerror(-errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
    if (order->device[0] != '\0' && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, order->device,
                                               (socklen_t)strlen(order->device) + 1) != 0)
        sl_fail(-errno, "a probe cannot be sent over %s: %s", order->device,
                sluice_strerror(-errno));
    else if (order->from_len > 0 &&
             bind(fd, (const struct sockaddr *)&order->from, order->from_len) != 0)
        sl_fail(-errno, "a probe cannot be sent from that address: %s", sluice_strerror(-errno));
    else if (connect(fd, (const struct sockaddr *)&order->to, order->to_len) != 0)
        sl_fail(-errno, "there is no way to that address: %s", sluice_strerror(-errno));
    else
        return fd;
    close(fd);
    return -EIO;
}

static void ask(struct asker *asker, uint64_t session, uint32_t number, uint32_t bytes)
{
    struct sl_probe_packet packet = {
        .kind = SL_PROBE_ASK, .len = bytes, .session = session, .number = number};

    packet.sent_ns = sl_probe_wall();
    if (sl_probe_write(&packet, asker->order->key, asker->bytes) == 0)
        (void)!send(asker->fd, asker->bytes, bytes, 0); /* what does not leave is lost */
}

static void answered(struct asker *asker, const struct sl_probe_packet *packet, uint64_t came_ns)
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

/* Takes all that has come. */
static void listen_to(struct asker *asker, uint32_t sent)
{
    for (;;) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(struct timespec))];
        } control;
        struct iovec part = {.iov_base = asker->bytes, .iov_len = sizeof(asker->bytes)};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control.bytes)};
        ssize_t len = recvmsg(asker->fd, &message, 0);
        struct sl_probe_packet packet;

        if (len < 0 && errno == ECONNREFUSED)
            continue; /* by ICMP: nobody listens there, yet */
        if (len < 0)
            return;
        if (sl_probe_read(asker->bytes, (size_t)len, asker->order->key, &packet) != 0 ||
            packet.kind != SL_PROBE_ANSWER)
            continue;
        asker->is_heard |= (packet.session ^ 1) == asker->order->session;
        memcpy(asker->out->host, packet.host, sizeof(packet.host));
        if (packet.session == asker->order->session && packet.number < sent)
            answered(asker, &packet, sl_probe_came(&message));
    }
}

/* Until that time, or nothing more is to come: somebody is heard (any), all are answered (sent is
 * count). */
static void listen_until(struct asker *asker, uint64_t until_ns, uint32_t sent, bool any)
{
    for (uint64_t now = mono();
         now < until_ns && !(any && asker->is_heard) && asker->answered < asker->order->count;
         now = mono()) {
        struct pollfd fd = {.fd = asker->fd, .events = POLLIN};
        const struct timespec left = {.tv_sec = (time_t)((until_ns - now) / 1000000000),
                                      .tv_nsec = (long)((until_ns - now) % 1000000000)};

        (void)ppoll(&fd, 1, &left, NULL);
        listen_to(asker, sent);
    }
}

static bool is_there(struct asker *asker)
{
    for (unsigned i = 0; i < HELLOS && !asker->is_heard; i++) {
        ask(asker, asker->order->session ^ 1, i, SL_PROBE_LEAST);
        listen_until(asker, mono() + HELLO_NS, 0, true);
    }
    return asker->is_heard;
}

static void run(struct asker *asker)
{
    const struct sl_probe_order *order = asker->order;
    uint64_t due_ns = mono();

    for (uint32_t i = 0; i < order->count; i++) {
        listen_until(asker, due_ns, i, false);
        ask(asker, order->session, i, order->bytes);
        due_ns += order->gap_ns;
    }
    listen_until(asker, mono() + LATE_NS, order->count, false);
}

void sl_probe_udp(const struct sl_probe_order *order, struct sl_probe_report *out)
{
    static struct asker asker;

    asker = (struct asker){.order = order, .out = out};
    *out = (struct sl_probe_report){.wall_ns = sl_probe_wall()};
    asker.times = calloc(order->count, sizeof(*asker.times));
    asker.fd = asker.times != NULL ? open_socket(order) : sl_fail(-ENOMEM, "no memory for a probe");
    if (asker.fd >= 0 && !is_there(&asker)) {
        snprintf(out->why, sizeof(out->why),
                 "nobody answers: is [probe] echo on there, with the same secret, and does the way "
                 "let UDP pass?");
    } else if (asker.fd >= 0) {
        run(&asker);
        if (sl_probe_judge(asker.times, order->count, &out->result) != 0)
            snprintf(out->why, sizeof(out->why), "%s", sluice_last_error());
    } else {
        snprintf(out->why, sizeof(out->why), "%s", sluice_last_error());
    }
    if (asker.fd >= 0)
        close(asker.fd);
    free(asker.times);
}
