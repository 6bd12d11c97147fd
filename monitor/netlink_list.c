/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/netlink_list.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#define MESSAGES_MAX 200000 /* of a list, as it comes while its entries come and go */

int sl_mon_netlink_open(struct sl_mon_netlink *netlink, int bus)
{
    int err = 0;

    netlink->socket = mnl_socket_open2(bus, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (netlink->socket == NULL || mnl_socket_bind(netlink->socket, 0, MNL_SOCKET_AUTOPID) < 0)
        err = -errno;
    if (err != 0)
        sl_mon_netlink_close(netlink);
    return err;
}

void sl_mon_netlink_close(struct sl_mon_netlink *netlink)
{
    if (netlink->socket != NULL)
        mnl_socket_close(netlink->socket);
    netlink->socket = NULL;
}

/* 1: the list is over. */
static int take_message(const struct sl_mon_netlink *netlink, const struct nlmsghdr *message,
                        size_t len, sl_mon_netlink_fn take, void *arg)
{
    const struct nlmsgerr *error = mnl_nlmsg_get_payload(message);

    if (message->nlmsg_seq != netlink->turn)
        return 0;
    if (message->nlmsg_type == NLMSG_DONE)
        return 1;
    if (message->nlmsg_type == NLMSG_ERROR)
        return mnl_nlmsg_get_payload_len(message) >= sizeof(*error) && error->error < 0
                   ? error->error
                   : -EPROTO;
    return take(arg, message, len) ? 0 : 1;
}

/* The kernel gives the parts of an answer at once, when they are asked for. */
static int receive(struct sl_mon_netlink *netlink, sl_mon_netlink_fn take, void *arg)
{
    for (unsigned count = 0; count < MESSAGES_MAX;) {
        ssize_t len =
            mnl_socket_recvfrom(netlink->socket, netlink->buffer, sizeof(netlink->buffer));
        int left = (int)len;

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return errno == EAGAIN ? 0 : -errno;
        for (struct nlmsghdr *message = (struct nlmsghdr *)(void *)netlink->buffer;
             mnl_nlmsg_ok(message, left); message = mnl_nlmsg_next(message, &left), count++) {
            int end = take_message(netlink, message, (size_t)left, take, arg);

            if (end != 0)
                return end < 0 ? end : 0;
        }
    }
    return 0;
}

int sl_mon_netlink_list(struct sl_mon_netlink *netlink, struct nlmsghdr *message,
                        sl_mon_netlink_fn take, void *arg)
{
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    message->nlmsg_seq = ++netlink->turn;
    if (mnl_socket_sendto(netlink->socket, message, message->nlmsg_len) < 0)
        return -errno;
    return receive(netlink, take, arg);
}
