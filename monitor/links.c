/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket of monitor/link.h.
 *
 * How long a link was down is the time between two messages, which the kernel does not stamp. So a
 * thread takes them as they come and says when that was: the agent itself may be waiting for its
 * disk meanwhile, for longer than a flap lasts.
 *
 *     rtnetlink --> thread: struct stamp, bytes --> pair[1] ... pair[0] --> sl_mon_links_read()
 *
 * It takes no memory and no lock, so that the process may fork.
 */
#include "monitor/link.h"

#include "core/err.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (64u << 10)
#define RECEIVE_BUFFER (4 << 20) /* a host with hundreds of links in a storm */

struct stamp {
    uint64_t at_ns;
    int err; /* 0, or why there are no bytes */
};

struct sl_mon_links {
    struct mnl_socket *socket;
    int pair[2]; /* -1: there is none */
    bool has_thread;
    pthread_t thread;
    int control; /* for ethtool */
    uint32_t turn;
    uint64_t lost;
    char buffer[BUFFER], incoming[BUFFER]; /* ours; the thread's */
};

/* ---- the thread ---- */

static uint64_t now_ns(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

/* False: nobody reads any more. */
static bool forward(struct sl_mon_links *links, size_t len, int err)
{
    struct stamp stamp = {.at_ns = now_ns(), .err = err};
    struct iovec parts[2] = {{.iov_base = &stamp, .iov_len = sizeof(stamp)},
                             {.iov_base = links->incoming, .iov_len = len}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;

    do
        sent = sendmsg(links->pair[1], &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

static void *receive(void *arg)
{
    struct sl_mon_links *links = arg;
    struct pollfd fds[2] = {{.fd = mnl_socket_get_fd(links->socket), .events = POLLIN},
                            {.fd = links->pair[1]}}; /* POLLHUP: the other end is closed */
    bool goes_on = true;

    while (goes_on) {
        ssize_t len;

        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents != 0)
            break;
        len = mnl_socket_recvfrom(links->socket, links->incoming, sizeof(links->incoming));
        if (len < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        goes_on = forward(links, len < 0 ? 0 : (size_t)len, len < 0 ? errno : 0) &&
                  (len >= 0 || errno == ENOBUFS);
    }
    return NULL;
}

/* Signals are the owner's. */
static int start(struct sl_mon_links *links)
{
    const int size = RECEIVE_BUFFER;
    sigset_t all, before;
    int err;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, links->pair) != 0)
        return sl_fail(-errno, "no pair of sockets for links: %s", sluice_strerror(-errno));
    (void)setsockopt(links->pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    err = pthread_create(&links->thread, NULL, receive, links);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0)
        return sl_fail(-err, "no thread for links' messages: %s", sluice_strerror(-err));
    links->has_thread = true;
    return 0;
}

/* ---- its owner ---- */

int sl_mon_links_ask(struct sl_mon_links *links)
{
    char bytes[128] __attribute__((aligned(8)));
    struct nlmsghdr *message = mnl_nlmsg_put_header(bytes);
    struct ifinfomsg *info;

    message->nlmsg_type = RTM_GETLINK;
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    message->nlmsg_seq = ++links->turn;
    info = mnl_nlmsg_put_extra_header(message, sizeof(*info));
    info->ifi_family = AF_UNSPEC;
    if (mnl_socket_sendto(links->socket, message, message->nlmsg_len) < 0)
        return errno == EBUSY || errno == EAGAIN
                   ? 0 /* the last answer is still on its way */
                   : sl_fail(-errno, "rtnetlink does not list links: %s", sluice_strerror(-errno));
    return 0;
}

int sl_mon_links_open(struct sl_mon_links **out)
{
    struct sl_mon_links *links = calloc(1, sizeof(*links));
    int size = RECEIVE_BUFFER, err;

    if (links == NULL)
        return sl_fail(-ENOMEM, "no memory for the links' messages");
    links->pair[0] = links->pair[1] = -1;
    links->control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    links->socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (links->socket == NULL ||
        mnl_socket_bind(links->socket, RTMGRP_LINK, MNL_SOCKET_AUTOPID) < 0) {
        err = -errno;
        sl_mon_links_close(links);
        return sl_fail(err, "rtnetlink cannot be had: %s", sluice_strerror(err));
    }
    (void)setsockopt(mnl_socket_get_fd(links->socket), SOL_SOCKET, SO_RCVBUFFORCE, &size,
                     sizeof(size));
    err = start(links);
    if (err == 0)
        err = sl_mon_links_ask(links);
    if (err != 0) {
        sl_mon_links_close(links);
        return err;
    }
    *out = links;
    return 0;
}

void sl_mon_links_close(struct sl_mon_links *links)
{
    if (links == NULL)
        return;
    if (links->pair[0] >= 0)
        (void)shutdown(links->pair[0], SHUT_RDWR); /* ends the thread, whoever has a copy of it */
    if (links->has_thread)
        pthread_join(links->thread, NULL);
    for (unsigned i = 0; i < 2; i++)
        if (links->pair[i] >= 0)
            close(links->pair[i]);
    if (links->socket != NULL)
        mnl_socket_close(links->socket);
    if (links->control >= 0)
        close(links->control);
    free(links);
}

int sl_mon_links_fd(const struct sl_mon_links *links)
{
    return links->pair[0];
}

uint64_t sl_mon_links_lost(const struct sl_mon_links *links)
{
    return links->lost;
}

int sl_mon_links_read(struct sl_mon_links *links,
                      void (*take)(void *arg, const struct sl_mon_link *link), void *arg)
{
    int taken = 0;

    for (;;) {
        struct stamp stamp;
        struct iovec parts[2] = {{.iov_base = &stamp, .iov_len = sizeof(stamp)},
                                 {.iov_base = links->buffer, .iov_len = sizeof(links->buffer)}};
        struct msghdr whole = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t len = recvmsg(links->pair[0], &whole, MSG_DONTWAIT);

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0 && errno == EAGAIN)
            return taken;
        if (len < (ssize_t)sizeof(stamp))
            return sl_fail(-EIO, "the thread that reads rtnetlink has ended");
        if (stamp.err == ENOBUFS) {
            links->lost++;
            (void)sl_mon_links_ask(links);
            return sl_fail(-ENOBUFS, "rtnetlink lost messages: all links are read again");
        }
        if (stamp.err != 0)
            return sl_fail(-stamp.err, "rtnetlink cannot be read: %s", sluice_strerror(-stamp.err));
        len -= (ssize_t)sizeof(stamp);
        int left = (int)len;

        for (struct nlmsghdr *message = (struct nlmsghdr *)(void *)links->buffer;
             mnl_nlmsg_ok(message, left); message = mnl_nlmsg_next(message, &left)) {
            struct sl_mon_link link;

            if (!sl_mon_link_parse(message, (size_t)left, &link))
                continue;
            link.at_ns = stamp.at_ns;
            taken++;
            take(arg, &link);
        }
    }
}

/* The kernel tells first how many words it has for each mask of modes, as a negative number. */
uint64_t sl_mon_links_speed(const struct sl_mon_links *links, const char *name)
{
    uint32_t words[sizeof(struct ethtool_link_settings) / 4 + 3 * 127] = {0};
    struct ethtool_link_settings *asked = (struct ethtool_link_settings *)(void *)words;
    struct ifreq request = {.ifr_data = (void *)words};

    if (links->control < 0 || strlen(name) >= sizeof(request.ifr_name))
        return 0;
    strcpy(request.ifr_name, name);
    asked->cmd = ETHTOOL_GLINKSETTINGS;
    if (ioctl(links->control, SIOCETHTOOL, &request) != 0 || asked->link_mode_masks_nwords >= 0)
        return 0;
    asked->link_mode_masks_nwords = (int8_t)-asked->link_mode_masks_nwords;
    asked->cmd = ETHTOOL_GLINKSETTINGS;
    if (ioctl(links->control, SIOCETHTOOL, &request) != 0 ||
        asked->speed == (uint32_t)SPEED_UNKNOWN)
        return 0;
    return (uint64_t)asked->speed * 1000000;
}
