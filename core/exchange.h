/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks swap addresses at start. Whoever creates a communicator hands one in: launch/ makes
 * them from a meeting place, split makes one from the parent communicator, the simulator from an
 * array. */
#ifndef SL_CORE_EXCHANGE_H
#define SL_CORE_EXCHANGE_H

#include <stddef.h>

struct sl_exchange {
    int rank, size;

    /* Every rank gives len bytes (the same len on all) and gets all of them, ordered by rank, in
     * out[size * len]. Blocks, at most until its deadline. -ETIMEDOUT and -ECONNRESET name the ranks
     * that are missing. */
    int (*allgather)(struct sl_exchange *exchange, const void *in, size_t len, void *out);

    /* Gives the exchange back; may be called after an error. */
    void (*close)(struct sl_exchange *exchange);
};

#endif
