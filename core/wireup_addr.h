/* SPDX-License-Identifier: Apache-2.0 */
/* Where an address of wire-up leads: IP addresses, as peers send them, and a unix socket. No input
 * or output here: fuzzing reaches all. */
#ifndef SL_CORE_WIREUP_ADDR_H
#define SL_CORE_WIREUP_ADDR_H

#include "core/wireup.h"

#include <sys/socket.h>
#include <sys/un.h>

#define SL_WIREUP_PLACES_MAX 8

/* Place number n of addr, which a peer wrote; false: there is none. */
bool sl_wireup_place_at(const struct sl_wireup_addr *addr, unsigned n,
                        struct sockaddr_storage *out);

/* One more place; its port is addr->port. false: it does not fit. */
bool sl_wireup_place_add(struct sl_wireup_addr *addr, const struct sockaddr_storage *from);

/* The abstract name of the unix socket of that id. Everybody on the host can read such names, and
 * the id is a secret: none can be made of the name. -ENOMEM. */
int sl_wireup_local_name(const uint8_t id[SL_WIREUP_ID_BYTES], struct sockaddr_un *out,
                         socklen_t *len);

#endif
