/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank with children in the tree awaits them: a unix socket for those of its host and user,
 * and TCP where not all are. */
#ifndef SL_LAUNCH_SEAT_H
#define SL_LAUNCH_SEAT_H

#include "launch/address.h"
#include "launch/nearby.h"

#define SL_SEAT_BYTES (8 + SLUICE_UNIQUE_ID_BYTES) /* at most */

struct sl_seat {
    uint64_t id; /* the unix socket's, sl_nearby_seat_name(); 0: there is none */
    bool network;
    struct sl_card card; /* where it listens by TCP, if it does */
};

/* Opens the unix socket, where there are any. */
int sl_seat_open(struct sl_seat *seat, struct sl_listeners *out);

/* Opens TCP, too, at the interfaces and ports of config. */
int sl_seat_open_network(const struct sl_config *config, struct sl_seat *seat,
                         struct sl_listeners *out);

/* Returns how many bytes. */
size_t sl_seat_pack(const struct sl_seat *seat, uint8_t out[SL_SEAT_BYTES]);
/* -EINVAL: not a seat. */
int sl_seat_unpack(const uint8_t *bytes, size_t len, struct sl_seat *out);

#endif
