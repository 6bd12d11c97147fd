/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator comes to be: who is there, by which transport each is reached, and the
 * windows. */
#ifndef SL_COLLECTIVES_CONNECT_H
#define SL_COLLECTIVES_CONNECT_H

#include "collectives/child.h"

/* A family that a rank is a member of, and its place there. */
struct sl_offer {
    uint64_t family; /* 0: it offers none */
    struct sl_place place;
};

/* Says first that this rank is a member of a family which uses that worker; offers[] tells who else
 * is of one, with the same settings. If not all ranks are of the same one, sl_connect_meet()
 * follows, on all ranks. -EPROTO: another version. */
int sl_connect_offer(const struct sl_config *config, const struct sl_worker *worker,
                     struct sl_exchange *exchange, const struct sl_offer *offer,
                     struct sl_offer *offers);

/* The transports that a communicator is to have, SL_IFACES_MAX at most. -EINVAL, -ENODEV. */
int sl_connect_list(const struct sl_comm_params *params, const struct sl_transport_ops **out,
                    unsigned *count);

/* Opens the transports, tells the others who this rank is, numbers the hosts. -EPROTO: another
 * version or other settings, with both and the ranks named. -ENODEV: no transport can be opened. */
int sl_connect_meet(struct sluice_comm *comm, struct sl_exchange *exchange,
                    const struct sl_comm_params *params);

/* reach.c: says where this rank is reached, and connects the ranks that it passes aborts and
 * questions on to: a tree of degree SL_REACH_DEGREE. Endpoints to others come about when a plan
 * needs them. -EHOSTUNREACH names a pair that no transport connects, and why; -ENOMEM: this rank
 * lacked memory for it. */
int sl_reach_open(struct sluice_comm *comm, struct sl_exchange *exchange);

/* An endpoint to that rank is needed: does not wait for it. A failure breaks the communicator. */
void sl_reach(struct sluice_comm *comm, uint32_t rank);

/* The interface that is tried first for that rank, or NULL. */
struct sl_iface *sl_reach_first(const struct sluice_comm *comm, uint32_t rank);

/* Waits for endpoints to ranks[0..count). */
int sl_reach_all(struct sluice_comm *comm, const uint32_t *ranks, uint32_t count);

/* Control messages go along the tree: to those neighbours that a link connects; with `connect`, the
 * others are connected to, without waiting. A neighbour that there is no memory for is tried
 * again at the next wait: until then news of it goes unheard. */
void sl_reach_tree(struct sluice_comm *comm, bool connect);

/* window.c: tells the worker how many peers of this host its windows are going to need. */
void sl_windows_foresee(struct sluice_comm *comm);

/* window.c: makes the family's segment and maps those of this host. Leaves the communicator without
 * windows, and says why at info, when that is not possible everywhere. Fails only when the exchange
 * does. */
int sl_windows_open(struct sluice_comm *comm, struct sl_exchange *exchange);
/* An area of the family's segment for the window of a split, backed as far as short operations need
 * it; SL_NO_AREA: none is free, or there is no segment. */
uint32_t sl_windows_offer(struct sl_family *family);
/* The windows of a split are in these areas, by rank; without windows when a rank has none.
 * -ENOMEM, -EPROTO: a rank names an area that it has not. */
int sl_windows_share(struct sluice_comm *comm, const uint32_t *areas);
/* It has no windows for want of room in its family. Made anew, it may have some. */
bool sl_windows_lacking(const struct sluice_comm *comm);
/* The first operation with much to show backs the rest of this rank's area. -ENOMEM. */
int sl_windows_back(struct sluice_comm *comm);

/* The area is free when all ranks of this host are through with the communicator. */
void sl_windows_close(struct sluice_comm *comm);

#endif
