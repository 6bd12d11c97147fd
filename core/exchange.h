/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of addresses at start. A communicator is created with one: launch/ makes it from a
 * meeting place, split from the parent communicator, the simulator from an array. */
#ifndef SL_CORE_EXCHANGE_H
#define SL_CORE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_exchange {
    int rank, size;

    /* Every rank gives len bytes (the same len on all) and gets all of them, ordered by rank, in
     * out[size * len]. Blocks, at most until its deadline. -ETIMEDOUT and -ECONNRESET name the
     * ranks that are missing. */
    int (*allgather)(struct sl_exchange *exchange, const void *in, size_t len, void *out);

    /* Gives the exchange back; may be called after an error. */
    void (*close)(struct sl_exchange *exchange);

    /* This rank surely runs on the host of rank 0, in the same network namespace: they met by a
     * unix socket. */
    bool nearby;

    /* A key of SL_DIGEST_BYTES that only the ranks of this exchange have (core/secret.h); NULL:
     * they have no secret. The exchange's, as long as it lives. */
    const uint8_t *session;
};

#endif
