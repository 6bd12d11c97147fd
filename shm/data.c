/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of what is posted on an endpoint, and its end: send.c and receive.c move it. */
#include "shm/ring.h"

#include <stdlib.h>

int shm_data_init(struct shm_ep *ep)
{
    ep->tx = ep->segment.tx;
    ep->rx = ep->segment.rx;
    /* A quarter of the ring keeps both sides busy: one piece read, one written, two between. */
    ep->piece_max = (ep->tx.room_len / 4) & ~(uint32_t)(SL_CACHE_LINE - 1);
    ep->room_end = calloc(ep->cells, sizeof(*ep->room_end));
    if (ep->room_end == NULL)
        return sl_fail(-ENOMEM, "no memory for a shm endpoint");
    return 0;
}

int shm_ep_run(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    if (ep->recv_count > 0)
        moved += shm_run_recvs(ep, budget);
    if (ep->lent_count > 0 && *budget > 0)
        moved += shm_run_lent(ep, budget);
    if (ep->send_count > 0 && *budget > 0)
        moved += shm_run_sends(ep, budget);
    shm_look_after_peer(ep);
    if (SL_UNLIKELY(ep->damaged) && ep->state == SHM_UP) {
        shm_ep_lose(ep, -EBADMSG, "its shared memory holds impossible numbers");
        moved++;
    }
    if (ep->recv_count == 0 && ep->send_count == 0 && ep->lent_count == 0 && ep->is_active) {
        ep->is_active = false;
        sl_list_remove(&ep->active);
    }
    return moved;
}

bool shm_ep_ready(struct shm_ep *ep)
{
    if (ep->damaged || (ep->recv_count > 0 && shm_ep_unread(ep)))
        return true;
    return shm_sends_ready(ep);
}

void shm_ep_end_posted(struct shm_ep *ep, int status)
{
    /* All queues are emptied first: done() may look at the endpoint. */
    unsigned sends = ep->send_count, recvs = ep->recv_count;
    unsigned send_first = ep->send_first, recv_first = ep->recv_first;

    unsigned lent = ep->lent_count, lent_first = ep->lent_first;

    if (lent > 0) {
        shm_refresh(ep);
        /* Seen by the peer before anything that its owner writes there from now on. */
        atomic_store_explicit(&ep->tx.offer->withdrawn, 1, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
    }
    ep->send_count = ep->recv_count = ep->lent_count = 0;
    for (unsigned i = 0; i < recvs; i++)
        sl_req_end(ep->recvs[(recv_first + i) % SHM_POSTED_MAX].req, status);
    for (unsigned i = 0; i < sends; i++)
        sl_req_end(ep->sends[(send_first + i) % SHM_POSTED_MAX].req, status);
    for (unsigned i = 0; i < lent; i++) {
        struct shm_lent *l = &ep->lent[(lent_first + i) % SHM_POSTED_MAX];

        l->req->len = l->len;
        sl_req_end(l->req, l->pos < ep->tx_done ? 0 : status);
    }
}
