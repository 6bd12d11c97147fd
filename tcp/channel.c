/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several orders of messages on one endpoint, from their opening to their end.
 *
 * A channel ends when both ends have closed it and all that was sent there has come: each end tells
 * the other how many messages it began, and how much it sent of the last one if it did not end it.
 * Until then a closed channel drops what comes.
 */
#include "tcp/tcp.h"

#include <stdlib.h>

static struct sl_tcp_channel *with_slots(struct sl_channel *base)
{
    struct sl_tcp_channel *channel = (struct sl_tcp_channel *)base;

    if (channel->rx != NULL)
        return channel;
    channel->rx = channel->few;
    channel->rx_mask = SL_TCP_FEW - 1;
    channel->carry = channel->small_carry;
    channel->carry_room = sizeof(channel->small_carry);
    sl_list_init(&channel->closing);
    return channel;
}

static void free_slots(struct sl_tcp_channel *channel)
{
    if (channel->rx != channel->few)
        free(channel->rx);
    if (channel->carry != channel->small_carry)
        free(channel->carry);
}

int sl_tcp_channels_init(struct sl_tcp_ep *ep)
{
    int err = sl_channels_init(&ep->channels, sizeof(struct sl_tcp_channel));

    _Static_assert(sizeof(struct sl_tcp_channel) <= 768, "endpoints times communicators have one");
    sl_list_init(&ep->closing);
    if (err == 0)
        with_slots(ep->channels.last);
    return err;
}

static struct sl_tcp_channel *next_of(const struct sl_tcp_ep *ep,
                                      const struct sl_tcp_channel *after)
{
    return (struct sl_tcp_channel *)sl_channels_next(&ep->channels,
                                                     after != NULL ? &after->base : NULL);
}

void sl_tcp_channels_fini(struct sl_tcp_ep *ep)
{
    for (struct sl_tcp_channel *channel = NULL; (channel = next_of(ep, channel)) != NULL;)
        free_slots(channel);
    sl_channels_fini(&ep->channels);
}

struct sl_tcp_channel *sl_tcp_channel_get(struct sl_tcp_ep *ep, uint32_t id)
{
    bool full = ep->channels.unopened == SL_CHANNELS_UNOPENED_MAX;
    struct sl_channel *channel = sl_channels_get(&ep->channels, id);

    if (channel != NULL)
        return with_slots(channel);
    sl_tcp_ep_fail(ep, full ? -EBADMSG : -ENOMEM, "%s", sluice_last_error());
    return NULL;
}

bool sl_tcp_channels_keep(const struct sl_tcp_ep *ep)
{
    for (struct sl_tcp_channel *channel = NULL; (channel = next_of(ep, channel)) != NULL;)
        if (!channel->base.closed && channel->rx_next != channel->rx_tail)
            return true;
    return false;
}

int sl_tcp_channel_open(struct sl_ep *base, uint32_t id)
{
    struct sl_channel *channel;
    int err = sl_channels_open(&sl_tcp_ep_of(base)->channels, id, &channel);

    if (err == 0)
        with_slots(channel);
    return err;
}

uint64_t sl_tcp_channel_traffic(const struct sl_ep *base, uint32_t id)
{
    return sl_channels_traffic(&((const struct sl_tcp_ep *)base)->channels, id);
}

bool sl_tcp_channel_starves(const struct sl_ep *base, uint32_t id)
{
    return sl_channels_starve(&((const struct sl_tcp_ep *)base)->channels, id);
}

/* ---- the end ---- */

void sl_tcp_channel_check_over(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel)
{
    if (!channel->close_said || !sl_channel_over(&channel->base))
        return;
    free_slots(channel);
    sl_channels_remove(&ep->channels, &channel->base);
}

bool sl_tcp_channel_next_close(struct sl_tcp_ep *ep, struct sl_tcp_frame *frame)
{
    struct sl_node *node = sl_list_pop_front(&ep->closing);
    struct sl_tcp_channel *channel;

    if (node == NULL)
        return false;
    channel = sl_container_of(node, struct sl_tcp_channel, closing);
    channel->close_said = true;
    *frame = (struct sl_tcp_frame){.type = SL_TCP_CLOSE,
                                   .channel = channel->base.id,
                                   .tag = channel->base.sent,
                                   .total = channel->tx_cut};
    sl_tcp_channel_check_over(ep, channel);
    return true;
}

void sl_tcp_channel_close(struct sl_ep *base, uint32_t id)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);
    struct sl_tcp_channel *channel = sl_tcp_channel_find(ep, id);
    struct sl_node ended;

    if (id == 0 || channel == NULL || !channel->base.open)
        return;
    sl_list_init(&ended);
    sl_tcp_drop_sends(ep, channel, &ended);
    sl_tcp_drop_receives(ep, channel, &ended);
    sl_tcp_ep_deactivate(ep);
    sl_channel_close(&ep->channels, &channel->base, -ECANCELED);
    sl_reqs_end(&ended, -ECANCELED);
    if (ep->state == SL_TCP_EP_DOWN || ep->is_failing)
        return;
    sl_tcp_unstall(ep);
    sl_list_push_back(&ep->closing, &channel->closing);
    sl_tcp_rx_cut(ep, channel); /* it stays: the peer is not told yet */
    if (ep->state == SL_TCP_EP_UP)
        sl_tcp_ctrl_tx(&ep->conns[0]);
}

/* The peer cannot have sent less than came. */
static bool contradicts(const struct sl_tcp_channel *channel, const struct sl_tcp_frame *frame)
{
    uint64_t seen = sl_tcp_rx_seen(channel);
    const struct sl_tcp_rx_slot *last;

    if (channel->base.peer_closed || frame->tag < seen)
        return true;
    if (frame->total == 0 || frame->tag > seen)
        return false;
    last = sl_tcp_rx_slot(channel, seen - 1);
    return seen == channel->rx_head || last->state == SL_TCP_RX_DONE || frame->total < last->got ||
           frame->total >= last->total;
}

int sl_tcp_channel_peer_closed(struct sl_tcp_ep *ep, const struct sl_tcp_frame *frame)
{
    struct sl_tcp_channel *channel = sl_tcp_channel_find(ep, frame->channel);

    if (channel == NULL)
        channel = sl_tcp_channel_get(ep, frame->channel);
    if (channel == NULL)
        return ep->down_status;
    if (contradicts(channel, frame))
        return sl_tcp_ep_fail(ep, -EBADMSG, "the end of channel %u contradicts what came there",
                              frame->channel);
    sl_channel_peer_closed(&channel->base, frame->tag);
    channel->rx_cut = frame->total;
    if (!sl_tcp_rx_cut(ep, channel))
        sl_tcp_channel_check_over(ep, channel);
    return 0;
}

/* All of it before the first request ends: done() may look at the endpoint. */
static void drop_all(struct sl_tcp_ep *ep, struct sl_node *ended)
{
    sl_list_init(ended);
    sl_tcp_forget_sends(ep, ended);
    for (struct sl_tcp_channel *channel = NULL; (channel = next_of(ep, channel)) != NULL;) {
        sl_tcp_drop_receives(ep, channel, ended);
        channel->rx_head = channel->rx_tail;
        channel->tx_pending = 0;
    }
    ep->rx_open = 0;
    sl_tcp_ep_deactivate(ep);
}

void sl_tcp_lose(struct sl_tcp_ep *ep, int status)
{
    struct sl_node ended;

    drop_all(ep, &ended);
    sl_channels_lost(&ep->channels, status);
    sl_reqs_end(&ended, status);
    if (sl_channels_due(&ep->channels))
        sl_tcp_ep_news(ep);
}

void sl_tcp_cancel(struct sl_tcp_ep *ep, int status)
{
    struct sl_node ended;

    drop_all(ep, &ended);
    sl_reqs_end(&ended, status);
    sl_channels_cancel(&ep->channels, status);
}
