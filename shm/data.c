/* SPDX-License-Identifier: Apache-2.0 */
/* Progress and end of the requests of an endpoint: send.c and receive.c move them. */
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

/* Progress will find something to do here, sooner or later. */
static inline bool is_busy(const struct shm_ep *ep)
{
    return shm_ep_receives(ep) || (ep->queued | ep->lent_count) != 0 ||
           (ep->keeps && sl_channels_due(&ep->channels));
}

void shm_ep_begin(struct shm_ep *ep)
{
    if (is_busy(ep))
        shm_activate(ep);
}

/* Work that most endpoints do not have most of the time. */
static int run_more(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    if (*budget > 0) {
        unsigned ended = sl_channels_settle(&ep->channels, *budget);

        *budget -= ended;
        moved += (int)ended;
    }
    if (ep->lent_count > 0 && *budget > 0)
        moved += shm_run_lent(ep, budget);
    if (ep->queued > 0 && *budget > 0)
        moved += shm_run_sends(ep, budget);
    return moved;
}

int shm_ep_run(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    if (shm_ep_receives(ep)) {
        uint64_t head = shm_next_head(ep);

        if (shm_cell_is(head, ep->rx_pos))
            moved += shm_run_recvs(ep, head, budget);
    }
    if (SL_UNLIKELY((ep->queued | ep->lent_count) != 0 || ep->keeps))
        moved += run_more(ep, budget);
    if (SL_UNLIKELY(ep->damaged) && ep->state == SHM_UP) {
        shm_ep_lose(ep, -EBADMSG, "its shared memory holds impossible numbers");
        moved++;
    }
    if (!is_busy(ep) && ep->is_active) {
        ep->is_active = false;
        sl_list_remove(&ep->active);
    }
    return moved;
}

bool shm_ep_ready(struct shm_ep *ep)
{
    return ep->damaged || sl_channels_due(&ep->channels) || shm_recvs_ready(ep) ||
           shm_sends_ready(ep);
}
