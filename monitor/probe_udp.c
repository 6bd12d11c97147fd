/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_udp.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROOM (4 << 20) /* bytes, as the kernel counts: some 5,000 packets of 256 bytes */

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

void sl_probe_udp_room(int fd)
{
    static const int bytes = ROOM;

    /* Beyond net.core.rmem_max that takes CAP_NET_ADMIN. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

int sl_probe_udp_open(const struct sl_probe_order *order)
{
    static const int on = 1;
    int fd = socket(order->to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return sl_fail(-errno, "no socket for a probe: %s", sluice_strerror(-errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
    sl_probe_udp_room(fd);
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

static void send_packet(struct sl_probe_asker *asker, const uint8_t *bytes, uint32_t len)
{
    (void)!send(asker->fd, bytes, len, 0);
}

static void take_packets(struct sl_probe_asker *asker)
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

        if (len < 0 && errno == ECONNREFUSED)
            continue; /* by ICMP: nobody listens there, yet */
        if (len < 0)
            return;
        sl_probe_take(asker, asker->bytes, (size_t)len, sl_probe_came(&message));
    }
}

void sl_probe_udp_use(struct sl_probe_asker *asker, int fd)
{
    asker->fd = fd;
    asker->send = send_packet;
    asker->take = take_packets;
}

void sl_probe_udp(const struct sl_probe_order *order, struct sl_probe_report *out)
{
    static struct sl_probe_asker asker;
    int fd;

    *out = (struct sl_probe_report){.wall_ns = sl_probe_wall()};
    if (sl_probe_asker_init(&asker, order, out) != 0)
        return;
    fd = sl_probe_udp_open(order);
    if (fd < 0) {
        snprintf(out->why, sizeof(out->why), "%s", sluice_last_error());
    } else {
        sl_probe_udp_use(&asker, fd);
        if (sl_probe_is_there(&asker))
            sl_probe_run(&asker);
        else
            snprintf(out->why, sizeof(out->why), "%s", SL_PROBE_NOBODY);
        close(fd);
    }
    sl_probe_asker_fini(&asker);
}
