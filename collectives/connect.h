/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator comes to be: who is there, by which transport each is reached, and the
 * windows. */
#ifndef SL_COLLECTIVES_CONNECT_H
#define SL_COLLECTIVES_CONNECT_H

#include "collectives/comm.h"

/* Place of a pair in a table of all pairs: the square of 65536 ranks is more than 32 bits hold. */
static inline size_t sl_pair_place(uint32_t size, uint32_t a, uint32_t b)
{
    return (size_t)a * size + b;
}

/* Opens the transports, tells the others who this rank is, numbers the hosts. -EPROTO: another
 * version or other settings, with both and the ranks named. -ENODEV: no transport can be opened. */
int sl_connect_meet(struct sluice_comm *comm, struct sl_exchange *exchange,
                    const struct sl_comm_params *params);

/* Connects every pair by the first transport that reaches. -EHOSTUNREACH names the pair and why;
 * -ENOMEM: this rank lacked memory for it. */
int sl_connect_peers(struct sluice_comm *comm, struct sl_exchange *exchange);

/* window.c: makes this rank's window and maps those of its host. Leaves the communicator without
 * windows, and says why at info, when that is not possible everywhere. Fails only when the exchange
 * does. */
int sl_windows_open(struct sluice_comm *comm, struct sl_exchange *exchange);
void sl_windows_close(struct sluice_comm *comm);

#endif
