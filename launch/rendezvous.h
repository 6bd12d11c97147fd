/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting of all ranks at rank 0, as an exchange that goes through a tree. */
#ifndef SL_LAUNCH_RENDEZVOUS_H
#define SL_LAUNCH_RENDEZVOUS_H

#include "core/exchange.h"
#include "launch/address.h"

/* Who meets; texts are copied. */
struct sl_party {
    int rank, size;
    const char *job;     /* "": no name */
    const char *secret;  /* "": none */
    uint64_t timeout_ms; /* of the meeting, then of each exchange */
    /* Interfaces and ports for the seat of a rank with children (launch/seat.h), read while they
     * meet; NULL: the defaults. */
    const struct sl_config *config;
};

/* Where a rank may be: root, looked up again at each try, or the addresses of card; and before
 * them, the unix socket of that name. */
struct sl_places {
    const struct sl_root *root; /* NULL: card */
    const struct sl_card *card;
    const char *nearby; /* NULL: the names that go with the ports of places on loopback */
};

/* Rank 0: waits at listeners (owned from here on, also after an error) until all others have
 * proved themselves and each has found its place in the tree. -ETIMEDOUT names those that did not,
 * here and on those that did. */
int sl_rendezvous_host(const struct sl_party *party, const struct sl_listeners *listeners,
                       struct sl_exchange **out);

/* Any other rank: dials until rank 0 has let it in, waits until all others have come, and takes its
 * place in the tree. */
int sl_rendezvous_join(const struct sl_party *party, const struct sl_places *places,
                       struct sl_exchange **out);

/* One rank that needs nobody. */
int sl_rendezvous_alone(struct sl_exchange **out);

#endif
