/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/link.h"

#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

#ifndef IFF_LOWER_UP
#define IFF_LOWER_UP 0x10000
#endif

/* ---- a message ---- */

static int on_attribute(const struct nlattr *attribute, void *arg)
{
    struct sl_mon_link *link = arg;
    size_t len = mnl_attr_get_payload_len(attribute);
    const void *payload = mnl_attr_get_payload(attribute);
    struct rtnl_link_stats64 stats;

    switch (mnl_attr_get_type(attribute)) {
    case IFLA_IFNAME:
        if (mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) < 0 || len > sizeof(link->name))
            return MNL_CB_ERROR;
        memcpy(link->name, payload, len);
        break;
    case IFLA_CARRIER_UP_COUNT:
    case IFLA_CARRIER_DOWN_COUNT:
        if (len < sizeof(uint32_t))
            return MNL_CB_ERROR;
        memcpy(mnl_attr_get_type(attribute) == IFLA_CARRIER_UP_COUNT ? &link->ups : &link->downs,
               payload, sizeof(uint32_t));
        link->has_counts = true;
        break;
    case IFLA_STATS64:
        if (len < offsetof(struct rtnl_link_stats64, rx_errors))
            return MNL_CB_ERROR;
        memcpy(&stats, payload, offsetof(struct rtnl_link_stats64, rx_errors));
        link->sent = stats.tx_bytes;
        link->received = stats.rx_bytes;
        link->has_bytes = true;
        break;
    default: break;
    }
    return MNL_CB_OK;
}

bool sl_mon_link_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_link *out)
{
    const struct ifinfomsg *info;

    *out = (struct sl_mon_link){.ifindex = 0};
    /* (Of a length of 2 GiB and more mnl_nlmsg_ok() says that it fits.) */
    if (len > INT32_MAX || !mnl_nlmsg_ok(message, (int)len) || message->nlmsg_len > len ||
        (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) ||
        mnl_nlmsg_get_payload_len(message) < sizeof(*info))
        return false;
    info = mnl_nlmsg_get_payload(message);
    if (mnl_attr_parse(message, sizeof(*info), on_attribute, out) < 0 || out->name[0] == '\0' ||
        info->ifi_index <= 0)
        return false;
    out->ifindex = info->ifi_index;
    out->is_gone = message->nlmsg_type == RTM_DELLINK;
    out->is_answer = message->nlmsg_seq != 0;
    out->is_wanted = (info->ifi_flags & IFF_UP) != 0;
    out->has_carrier = (info->ifi_flags & IFF_LOWER_UP) != 0;
    out->is_loopback = (info->ifi_flags & IFF_LOOPBACK) != 0;
    return true;
}

/* ---- one after another ---- */

void sl_mon_link_track(struct sl_mon_link_track *track, const struct sl_mon_link *link,
                       uint64_t now_ns, struct sl_mon_link_change *out)
{
    uint32_t downs = link->has_counts ? link->downs - track->downs : 0;
    uint32_t ups = link->has_counts ? link->ups - track->ups : 0;
    bool was_up = track->had_carrier, is_up = link->has_carrier;
    bool by_design = !link->is_wanted || !track->was_wanted;

    *out = (struct sl_mon_link_change){.flaps = 0};
    if (track->is_known && !by_design) {
        if (was_up && !is_up) {
            out->went_down = true;
            out->flaps = downs > 1 ? downs - 1 : 0; /* and then it stayed */
        } else if (!was_up && is_up) {
            out->flaps = ups > 1 ? ups : 1;
            out->lasted_ns = ups > 1 ? 0 : now_ns - track->down_ns;
        } else {
            out->flaps = was_up ? downs : ups; /* between two messages */
        }
    }
    if (!is_up && (was_up || !track->is_known || ups > 0))
        track->down_ns = now_ns;
    track->is_known = true;
    track->had_carrier = is_up;
    track->was_wanted = link->is_wanted;
    if (link->has_counts) {
        track->ups = link->ups;
        track->downs = link->downs;
    }
}

void sl_mon_link_reading(const struct sl_mon_link *link, struct sl_mon_reading *out)
{
    *out = (struct sl_mon_reading){.has_state = link->is_wanted,
                                   .is_up = link->has_carrier,
                                   .sent = link->sent,
                                   .received = link->received,
                                   .has_bytes = link->has_bytes};
}
