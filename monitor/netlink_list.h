/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that the kernel gives by netlink: a request, and all parts of its answer. */
#ifndef SL_MONITOR_NETLINK_LIST_H
#define SL_MONITOR_NETLINK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mnl_socket;
struct nlmsghdr;

struct sl_mon_netlink {
    struct mnl_socket *socket; /* NULL: closed */
    uint32_t turn;             /* of the last request */
    char buffer[64 << 10];
};

/* bus: NETLINK_ROUTE, ... A negative errno without a sentence: only the caller knows the cause. */
int sl_mon_netlink_open(struct sl_mon_netlink *netlink, int bus);
/* Of one that is closed, too. */
void sl_mon_netlink_close(struct sl_mon_netlink *netlink);

/* A part of an answer; the message and those behind it have len bytes. False: no more is wanted. */
typedef bool (*sl_mon_netlink_fn)(void *arg, const struct nlmsghdr *message, size_t len);

/* message: its type and what follows its header; the rest is filled in. An errno as above, or as
 * the kernel says. */
int sl_mon_netlink_list(struct sl_mon_netlink *netlink, struct nlmsghdr *message,
                        sl_mon_netlink_fn take, void *arg);

#endif
