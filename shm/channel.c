/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels of an endpoint, and the end of posted requests.
 *
 * All channels share the cells of a ring, in the order in which they were sent. A receive is posted
 * in its channel; a cell without one is kept (core/channel.h) when another channel waits for what
 * is behind it. Sends that found no room wait in one queue: SHM_POSTED_MAX of them, and one more of
 * each channel that has none there.
 *
 * The last cell of a channel is its close. Before it stand messages that are whole, and those that
 * were lent and are withdrawn; messages that waited for room are gone, and one of which a part is
 * in the ring ends there. The receives of withdrawn and cut messages end with -ECANCELED. Until the
 * peer's close has come, too, its cells are taken and dropped.
 */
#include "shm/ring.h"

int shm_channels_init(struct shm_ep *ep)
{
    sl_list_init(&ep->sends);
    sl_list_init(&ep->spare_sends);
    for (unsigned i = 0; i < SHM_POSTED_MAX; i++)
        sl_list_push_back(&ep->spare_sends, &ep->send_places[i].link);
    return sl_channels_init(&ep->channels, sizeof(struct shm_channel));
}

int shm_channel_open(struct sl_ep *base, uint32_t id)
{
    struct sl_channel *channel;

    return sl_channels_open(&shm_ep_of(base)->channels, id, &channel);
}

uint64_t shm_channel_traffic(const struct sl_ep *base, uint32_t id)
{
    return sl_channels_traffic(&((const struct shm_ep *)base)->channels, id);
}

bool shm_channel_starves(const struct sl_ep *base, uint32_t id)
{
    return sl_channels_starve(&((const struct shm_ep *)base)->channels, id);
}

void shm_channel_settle(struct shm_ep *ep, struct shm_channel *channel)
{
    if (sl_channel_over(&channel->base) && !channel->closing)
        sl_channels_remove(&ep->channels, &channel->base);
}

static void end(struct shm_ended *ended, int status)
{
    sl_reqs_end(&ended->cut, status);
    sl_reqs_end(&ended->whole, 0);
}

void shm_channel_close(struct sl_ep *base, uint32_t id)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_channel *channel = shm_channel_find(ep, id);
    struct shm_ended ended;
    bool cut;

    if (id == 0 || channel == NULL || !channel->base.open)
        return;
    sl_list_init(&ended.whole);
    sl_list_init(&ended.cut);
    shm_drop_recvs(ep, channel, &ended);
    cut = shm_drop_sends(ep, channel, &ended);
    if (ep->state != SHM_LOST) {
        shm_send_close(ep, channel, cut);
        if (!channel->base.peer_closed && ep->half_closed++ == 0 && ep->state == SHM_UP)
            shm_activate(ep);
    }
    sl_channel_close(&ep->channels, &channel->base, -ECANCELED);
    shm_channel_settle(ep, channel);
    end(&ended, -ECANCELED);
}

bool shm_channels_keep(const struct shm_ep *ep)
{
    const struct sl_channel *channel = NULL;

    while ((channel = sl_channels_next(&ep->channels, channel)) != NULL)
        sl_list_foreach(&channel->kept, node)
        {
            if (sl_container_of(node, struct sl_kept, link)->claimer == NULL)
                return true;
        }
    return false;
}

static void drop_posted(struct shm_ep *ep, struct shm_ended *ended)
{
    sl_list_init(&ended->whole);
    sl_list_init(&ended->cut);
    ep->gap |= ep->rx_open;
    ep->rx_open = false;
    ep->half_closed = 0;
    shm_drop_recvs(ep, NULL, ended);
    shm_drop_sends(ep, NULL, ended);
}

void shm_ep_lose_posted(struct shm_ep *ep, int status)
{
    struct shm_ended ended;

    drop_posted(ep, &ended);
    sl_channels_lost(&ep->channels, status);
    end(&ended, status);
    if (sl_channels_due(&ep->channels))
        shm_activate(ep);
}

void shm_ep_end_posted(struct shm_ep *ep, int status)
{
    struct shm_ended ended;

    drop_posted(ep, &ended);
    end(&ended, status);
    sl_channels_cancel(&ep->channels, status);
}
