/* SPDX-License-Identifier: Apache-2.0 */
/* What sending and receiving through the rings share. */
#ifndef SL_SHM_RING_H
#define SL_SHM_RING_H

#include "shm/shm.h"

/* Pieces moved for one endpoint before its other direction, and other endpoints, get their turn. */
#define SHM_PIECES_PER_TURN 4

static inline void shm_activate(struct shm_ep *ep)
{
    if (ep->is_active)
        return;
    ep->is_active = true;
    sl_list_push_back(&shm_ep_iface(ep)->active, &ep->active);
}

/* A sleeping peer is looked at after the store that it waits for: park.c says why that is
 * enough. */
static inline void shm_look_after_peer(struct shm_ep *ep)
{
    if (ep->woke) {
        ep->woke = false;
        atomic_signal_fence(memory_order_seq_cst); /* nor does the compiler swap the two */
        if (SL_UNLIKELY(atomic_load_explicit(ep->base.peer_asleep, memory_order_relaxed) != 0))
            shm_wake(&ep->base);
    }
}

/* send.c */
int shm_run_sends(struct shm_ep *ep, unsigned *budget);
/* Ends the lent messages whose cells the peer has taken. */
int shm_run_lent(struct shm_ep *ep, unsigned *budget);
/* Could either move something? */
bool shm_sends_ready(struct shm_ep *ep);
/* Learns what the peer has given back. */
void shm_refresh(struct shm_ep *ep);
/* For a send or receive on an endpoint that is not up: why. */
int shm_refused(struct shm_ep *ep);

/* receive.c */
int shm_run_recvs(struct shm_ep *ep, unsigned *budget);

#endif
