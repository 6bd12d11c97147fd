/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channels of a simulated endpoint: open, close, forget.
 *
 * A closing end tells the other how many messages it has sent there. What it says takes a way of
 * its own and may overtake them.
 */
#include "testing/sim/inside.h"

int sl_sim_channels_init(struct sl_sim_ep *ep)
{
    return sl_channels_init(&ep->channels, sizeof(struct sl_sim_channel));
}

struct sl_sim_channel *sl_sim_channel_used(struct sl_sim_ep *ep, uint32_t channel)
{
    struct sl_channel *c = sl_channels_find(&ep->channels, channel);

    sl_assert(c != NULL && c->open);
    return (struct sl_sim_channel *)c;
}

int sl_sim_channel_open(struct sl_ep *base, uint32_t channel)
{
    struct sl_channel *c;

    return sl_channels_open(&sl_sim_ep_of(base)->channels, channel, &c);
}

uint64_t sl_sim_channel_traffic(const struct sl_ep *base, uint32_t channel)
{
    return sl_channels_traffic(&((const struct sl_sim_ep *)base)->channels, channel);
}

bool sl_sim_channel_starves(const struct sl_ep *base, uint32_t channel)
{
    return sl_channels_starve(&((const struct sl_sim_ep *)base)->channels, channel);
}

static void forget_if_over(struct sl_sim_ep *ep, struct sl_channel *channel)
{
    if (sl_channel_over(channel))
        sl_channels_remove(&ep->channels, channel);
}

void sl_sim_channel_came(struct sl_sim_ep *ep, struct sl_sim_channel *channel)
{
    channel->base.came++;
    forget_if_over(ep, &channel->base);
}

static void peer_closes(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_ep *ep = sl_sim_ep_find(sim, (uint32_t)event->a);
    struct sl_channel *channel;

    if (ep == NULL || ep->lost)
        return;
    channel = sl_channels_get(&ep->channels, (uint32_t)(event->a >> 32));
    sl_assert(channel != NULL);
    sl_channel_peer_closed(channel, event->b);
    forget_if_over(ep, channel);
}

void sl_sim_channel_close(struct sl_ep *base, uint32_t number)
{
    struct sl_sim_ep *ep = sl_sim_ep_of(base);
    struct sl_sim_channel *channel = sl_sim_channel_used(ep, number);
    struct sl_sim *sim = sl_sim_iface_of_ep(ep)->sim;
    struct sl_sim_ep *peer = ep->connected ? sl_sim_ep_find(sim, ep->peer) : NULL;
    struct sl_sim_event *event;
    uint64_t at;

    sl_sim_end_channel(ep, channel, -ECANCELED);
    if (peer != NULL) {
        at = sl_sim_transit(sim, sl_sim_rank_of(ep), sl_sim_rank_of(peer), 0);
        if (at != SL_NEVER) {
            event = sl_sim_at(sim, at, peer_closes);
            event->a = peer->idx | (uint64_t)number << 32;
            event->b = channel->base.sent;
        }
    }
    forget_if_over(ep, &channel->base);
}
