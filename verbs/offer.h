/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How this transport's rails and queue pairs look to the peer: its part of the control messages,
 * and the table of lanes.
 */
#ifndef SL_VERBS_OFFER_H
#define SL_VERBS_OFFER_H

#include "multipath/lane.h"

/* A rail as its owner describes it. */
struct sl_verbs_rail_info {
    uint8_t gid[16];
    uint16_t lid; /* of an OFFER or ACCEPT that of the queue pair */
    uint8_t spare[16];
    uint8_t usable;
    uint8_t mtu;      /* enum ibv_mtu */
    uint8_t rate;     /* enum ibv_rate: not below the port's speed; 0: unknown */
    uint8_t gid_type; /* enum sl_verbs_gid_type; it tells the link layer, too */
    uint8_t prefix_len;
    uint8_t keys; /* struct sl_mp_rail_info's */
    uint16_t pkey;
};

/* OFFER and ACCEPT. */
struct sl_verbs_offer {
    uint8_t local_rail, remote_rail; /* of the sender, of the receiver */
    uint8_t turn, paths;
    uint32_t qpn, psn;
    uint32_t flow_label; /* of what the sender will send */
    /* struct ibv_ece: offered, or of an ACCEPT taken; 0: none */
    uint32_t ece_vendor, ece_options;
    struct sl_verbs_rail_info rail; /* of the sender, as it is now */
    uint16_t spare;
};

extern const struct sl_mp_lanes sl_verbs_lanes;

/* Copies, as the control messages' own are of bytes alone. */
struct sl_verbs_rail_info sl_verbs_rail_info_of(const struct sl_mp_rail_info *info);
struct sl_verbs_offer sl_verbs_offer_of(const struct sl_mp_offer *offer);
/* -EBADMSG: what a HELLO, OFFER or ACCEPT says of rails or queue pairs makes no sense. */
int sl_verbs_control_check(const struct sl_mp_control *control);

#endif
