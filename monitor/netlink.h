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

static inline bool sl_mon_attr_ok(const struct nlattr *attribute, const void *end)
{
    return mnl_attr_ok(attribute, (int)((const char *)end - (const char *)attribute));
}

static inline const void *sl_mon_attr_end(const struct nlattr *nest)
{
    return (const char *)mnl_attr_get_payload(nest) + mnl_attr_get_payload_len(nest);
}

/* As libmnl's own, which cast const away. */
#define sl_mon_attr_for_each(attribute, message, header)                                           \
    for ((attribute) = mnl_nlmsg_get_payload_offset(message, header);                              \
         sl_mon_attr_ok(attribute, mnl_nlmsg_get_payload_tail(message));                           \
         (attribute) = mnl_attr_next(attribute))
#define sl_mon_attr_for_each_nested(attribute, nest)                                               \
    for ((attribute) = mnl_attr_get_payload(nest);                                                 \
         sl_mon_attr_ok(attribute, sl_mon_attr_end(nest)); (attribute) = mnl_attr_next(attribute))

#endif
