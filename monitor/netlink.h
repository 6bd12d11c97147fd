/* SPDX-License-Identifier: Apache-2.0 */
/* What every parser of a netlink message asks first. */
#ifndef SL_MONITOR_NETLINK_H
#define SL_MONITOR_NETLINK_H

#include <libmnl/libmnl.h>
#include <stdbool.h>
#include <stddef.h>

/* A whole message of that type, with a header of its family of that size, within len bytes.
 * (mnl_nlmsg_ok() takes a length of 2 GiB and more for a negative one, which fits anywhere.) */
static inline bool sl_mon_netlink_is(const struct nlmsghdr *message, size_t len, unsigned type,
                                     size_t header)
{
    return len >= sizeof(*message) && message->nlmsg_len >= sizeof(*message) &&
           message->nlmsg_len <= len && message->nlmsg_type == type &&
           mnl_nlmsg_get_payload_len(message) >= header;
}

#endif
