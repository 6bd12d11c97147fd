/* SPDX-License-Identifier: Apache-2.0 */
/* Takes posted requests out of the queues, when a channel or the endpoint ends. */
#include "shm/ring.h"

static void drop_posted(struct shm_ep *ep, struct shm_channel *channel, struct shm_ended *out)
{
    unsigned count = channel->base.posted;

    for (unsigned i = 0; i < count; i++)
        sl_list_push_back(&out->cut,
                          &channel->recvs[(channel->recv_first + i) % SHM_POSTED_MAX].req->link);
    sl_channel_wants(&ep->channels, &channel->base, -(int)count);
}

void shm_drop_recvs(struct shm_ep *ep, struct shm_channel *channel, struct shm_ended *out)
{
    struct sl_channel *each = NULL;

    if (ep->rx_req != NULL && (channel == NULL || channel->base.id == ep->rx_channel)) {
        sl_list_push_back(&out->cut, &ep->rx_req->link);
        ep->rx_req = NULL;
        ep->rx_status = -ECANCELED;
    }
    if (channel != NULL) {
        drop_posted(ep, channel, out);
        return;
    }
    while ((each = sl_channels_next(&ep->channels, each)) != NULL)
        drop_posted(ep, (struct shm_channel *)each, out);
}

/* The peer may be reading: it reads the cell again afterwards. A reader of a byte that the
 * owner wrote after this sees the new head, through the fence below and the peer's (large.c). */
static void withdraw(struct shm_ep *ep, const struct shm_lent *l, enum shm_withdrawn why)
{
    struct shm_cell *cell = &ep->tx.cells[l->pos & ep->tx.cell_mask];

    atomic_store_explicit(&cell->head, shm_cell_head(l->pos, SHM_CELL_WITHDRAWN, why, l->channel),
                          memory_order_release);
}

static void drop_lent(struct shm_ep *ep, struct shm_channel *channel, struct shm_ended *out)
{
    unsigned count = ep->lent_count, left = 0;

    if (count == 0)
        return;
    shm_refresh(ep);
    for (unsigned i = 0; i < count; i++) {
        struct shm_lent l = ep->lent[(ep->lent_first + i) % SHM_POSTED_MAX];

        if (channel != NULL && l.channel != channel->base.id) {
            ep->lent[(ep->lent_first + left++) % SHM_POSTED_MAX] = l;
            continue;
        }
        if (l.pos >= ep->tx_done)
            withdraw(ep, &l, channel != NULL ? SHM_WITHDRAWN_CHANNEL : SHM_WITHDRAWN_ALL);
        l.req->len = l.len;
        sl_list_push_back(l.pos < ep->tx_done ? &out->whole : &out->cut, &l.req->link);
    }
    ep->lent_count = left;
    atomic_thread_fence(memory_order_seq_cst);
}

bool shm_drop_sends(struct shm_ep *ep, struct shm_channel *channel, struct shm_ended *out)
{
    bool cut = false;

    drop_lent(ep, channel, out);
    sl_list_foreach(&ep->sends, node)
    {
        struct shm_posted_send *s = sl_container_of(node, struct shm_posted_send, link);

        if (channel != NULL && s->channel != channel)
            continue;
        cut |= s->off > 0;
        shm_end_place(ep, s);
        if (s->req != NULL)
            sl_list_push_back(&out->cut, &s->req->link);
    }
    return cut;
}
