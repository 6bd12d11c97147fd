/* SPDX-License-Identifier: Apache-2.0 */
/* The socket of monitor/link.h. */
#include "monitor/link.h"

#include "core/err.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER (64u << 10)
#define RECEIVE_BUFFER (4 << 20) /* a host with hundreds of links in a storm */

struct sl_mon_links {
    struct mnl_socket *socket;
    int control; /* for ethtool */
    uint32_t turn;
    uint64_t lost;
    char buffer[BUFFER];
};

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
    if (links->socket != NULL)
        mnl_socket_close(links->socket);
    if (links->control >= 0)
        close(links->control);
    free(links);
}

int sl_mon_links_fd(const struct sl_mon_links *links)
{
    return mnl_socket_get_fd(links->socket);
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
        ssize_t len = mnl_socket_recvfrom(links->socket, links->buffer, sizeof(links->buffer));

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0 && errno == EAGAIN)
            return taken;
        if (len < 0 && errno == ENOBUFS) {
            links->lost++;
            (void)sl_mon_links_ask(links);
            return sl_fail(-ENOBUFS, "rtnetlink lost messages: all links are read again");
        }
        if (len < 0)
            return sl_fail(-errno, "rtnetlink cannot be read: %s", sluice_strerror(-errno));
        int left = (int)len;

        for (struct nlmsghdr *message = (struct nlmsghdr *)(void *)links->buffer;
             mnl_nlmsg_ok(message, left); message = mnl_nlmsg_next(message, &left)) {
            struct sl_mon_link link;

            if (!sl_mon_link_parse(message, (size_t)left, &link))
                continue;
            taken++;
            take(arg, &link);
        }
    }
}

/* The kernel tells first how many words it has for each mask of modes, as a negative number. */
uint64_t sl_mon_links_speed(const struct sl_mon_links *links, const char *name)
{
    struct {
        struct ethtool_link_settings settings;
        uint32_t masks[3 * 127];
    } asked = {.settings.cmd = ETHTOOL_GLINKSETTINGS};
    struct ifreq request = {.ifr_data = (void *)&asked};

    if (links->control < 0 || strlen(name) >= sizeof(request.ifr_name))
        return 0;
    strcpy(request.ifr_name, name);
    if (ioctl(links->control, SIOCETHTOOL, &request) != 0 ||
        asked.settings.link_mode_masks_nwords >= 0)
        return 0;
    asked.settings.link_mode_masks_nwords = (int8_t)-asked.settings.link_mode_masks_nwords;
    asked.settings.cmd = ETHTOOL_GLINKSETTINGS;
    if (ioctl(links->control, SIOCETHTOOL, &request) != 0 ||
        asked.settings.speed == (uint32_t)SPEED_UNKNOWN)
        return 0;
    return (uint64_t)asked.settings.speed * 1000000;
}
