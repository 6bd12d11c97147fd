/* SPDX-License-Identifier: Apache-2.0 */
/* The places of an address of wire-up: IP addresses, as peers send them. No input or output here:
 * fuzzing reaches all. */
#ifndef SL_CORE_WIREUP_ADDR_H
#define SL_CORE_WIREUP_ADDR_H

#include "core/wireup.h"

#include <sys/socket.h>

#define SL_WIREUP_PLACES_MAX 8

/* Place number n of addr, which a peer wrote; false: there is none. */
bool sl_wireup_place_at(const struct sl_wireup_addr *addr, unsigned n,
                        struct sockaddr_storage *out);

/* One more place; its port is addr->port. false: it does not fit. */
bool sl_wireup_place_add(struct sl_wireup_addr *addr, const struct sockaddr_storage *from);

#endif
