/* SPDX-License-Identifier: Apache-2.0 */
/* Receives through the rings. The layout is drawn in segment.h. */
#include "shm/ring.h"

#include <string.h>

bool shm_ep_unread(const struct shm_ep *ep)
{
    return ep->segment.base != NULL && shm_cell_is(shm_next_head(ep), ep->rx_pos);
}

/* ---- messages of one cell ----
 *
 * Most are: for them nothing is noted that is under way.
 */

/* Finds the whole message of that cell. False: it is not there; shm_take_other() finds out why. */
static inline bool is_whole(const struct shm_ep *ep, uint64_t head, const uint8_t **bytes,
                            uint32_t *len)
{
    struct shm_cell *cell = shm_next_cell(ep);
    uint32_t off;

    if (SL_LIKELY(shm_cell_kind(head) == SHM_CELL_INLINE)) {
        *bytes = cell->bytes;
        *len = shm_cell_len(head);
        return *len <= SHM_INLINE_MAX;
    }
    if (shm_cell_kind(head) != SHM_CELL_FIRST)
        return false;
    off = __atomic_load_n(&cell->off, __ATOMIC_RELAXED);
    *len = __atomic_load_n(&cell->piece, __ATOMIC_RELAXED);
    if (*len == 0 || *len != __atomic_load_n(&cell->len, __ATOMIC_RELAXED) ||
        off % SL_CACHE_LINE != 0 || off > ep->rx.room_len || *len > ep->rx.room_len - off)
        return false;
    *bytes = ep->rx.room + off;
    return true;
}

/* Takes it, for a receive that it fits, but does not end that. */
static inline void take_whole(struct shm_ep *ep, struct shm_channel *channel,
                              const struct sl_sink *sink, struct sl_req *req, const uint8_t *bytes,
                              uint32_t len)
{
    uint64_t tag = sink->tag;

    if (len == 8 && sink->consume == NULL)
        memcpy(sink->dst, bytes, 8);
    else if (SL_UNLIKELY(len == 0))
        ;
    else if (sink->consume != NULL)
        sink->consume(sink, bytes, 0, len); /* one piece, whatever the granule */
    else if (SL_UNLIKELY(len >= shm_ep_iface(ep)->stream_min))
        shm_copy_stream(sink->dst, bytes, len);
    else
        memcpy(sink->dst, bytes, len);
    shm_give_back(ep);
    shm_look_after_peer(ep);
    shm_count_received(ep, channel, len);
    req->len = len;
    req->tag = tag;
}

/* For the receive that waits for it: true, and that has ended. */
static inline bool take_expected(struct shm_ep *ep, uint64_t head)
{
    struct shm_channel *channel = shm_channel_find(ep, shm_cell_channel(head));
    const struct shm_posted_recv *r;
    const uint8_t *bytes;
    struct sl_req *req;
    uint32_t len;

    if (SL_UNLIKELY(channel == NULL || channel->base.posted == 0 || ep->rx_open))
        return false;
    r = &channel->recvs[channel->recv_first];
    if (!is_whole(ep, head, &bytes, &len) ||
        shm_check_message(r->sink, __atomic_load_n(&shm_next_cell(ep)->tag, __ATOMIC_RELAXED),
                          len) != 0)
        return false;
    shm_pop_recv(ep, channel);
    req = r->req;
    take_whole(ep, channel, r->sink, req, bytes, len);
    sl_req_end(req, 0);
    return true;
}

/* ---- posted receives ---- */

static void explain(const struct shm_ep *ep)
{
    const char *peer = sl_ep_peer_name(&ep->base);

    if (ep->rx_status == -EPROTO)
        sl_fail(-EPROTO, "%s sent a message with tag 0x%llx where another was expected", peer,
                (unsigned long long)ep->rx_tag);
    else if (ep->rx_status == -EMSGSIZE)
        sl_fail(-EMSGSIZE, "%s sent a message of %llu bytes where another size was expected", peer,
                (unsigned long long)ep->rx_len);
    else
        sl_fail(ep->rx_status, "%s closed channel %u in the middle of a message", peer,
                ep->rx_channel);
}

/* Ends the receive of the message that is over. False: it had none. */
static inline bool end_recv(struct shm_ep *ep)
{
    struct sl_req *req = ep->rx_req;

    ep->rx_req = NULL;
    if (SL_UNLIKELY(req == NULL))
        return false;
    req->len = ep->rx_len;
    req->tag = ep->rx_tag;
    if (SL_UNLIKELY(ep->rx_status != 0))
        explain(ep);
    sl_req_end(req, ep->rx_status);
    return true;
}

int shm_run_recvs(struct shm_ep *ep, uint64_t head, unsigned *budget)
{
    int moved = 0;

    do {
        if (SL_LIKELY(take_expected(ep, head))) {
            (*budget)--;
        } else {
            int got = shm_take_other(ep, head);

            if (got < 0) {
                ep->damaged |= got != -EAGAIN && ep->state == SHM_UP; /* else it is lost already */
                break;
            }
            shm_look_after_peer(ep);
            if (got == 1 && end_recv(ep))
                (*budget)--;
        }
        if (++moved == SHM_PIECES_PER_TURN || *budget == 0 || !shm_ep_receives(ep))
            break;
        head = shm_next_head(ep);
    } while (shm_cell_is(head, ep->rx_pos));
    return moved;
}

bool shm_recvs_ready(struct shm_ep *ep)
{
    struct shm_channel *channel;
    uint64_t head;

    if (!shm_ep_receives(ep))
        return false;
    head = shm_next_head(ep);
    if (!shm_cell_is(head, ep->rx_pos))
        return false;
    if (ep->rx_open || ep->channels.wanting > 0 || shm_cell_kind(head) == SHM_CELL_CLOSE)
        return true;
    channel = shm_channel_find(ep, shm_cell_channel(head));
    return channel != NULL && channel->base.closed;
}

/* A receive whose message is next in the ring, so that no request may need to wait. 1: it was there
 * whole; 0: nothing is touched; -EAGAIN: the message has begun, and req waits for its end. */
static int recv_next(struct shm_ep *ep, struct shm_channel *channel, uint64_t head,
                     const struct sl_sink *sink, struct sl_req *req)
{
    struct shm_cell *cell = shm_next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED), len;
    const uint8_t *bytes;
    uint32_t n;

    /* A receive that ends badly does so through its request, in progress. */
    if (SL_LIKELY(is_whole(ep, head, &bytes, &n))) {
        if (shm_check_message(sink, tag, n) != 0)
            return 0;
        take_whole(ep, channel, sink, req, bytes, n);
        req->status = 0;
        return 1;
    }
    if (shm_cell_kind(head) != SHM_CELL_FIRST)
        return 0; /* of a lent one a system call or many: progress does them */
    len = __atomic_load_n(&cell->len, __ATOMIC_RELAXED);
    if (shm_check_message(sink, tag, len) != 0)
        return 0;
    if (!shm_take_pieces(ep, sink, len, req))
        return -EAGAIN;
    shm_look_after_peer(ep);
    req->len = len;
    req->tag = tag;
    req->status = 0;
    return 1;
}

static inline int recv_now(struct shm_ep *ep, struct shm_channel *channel,
                           const struct sl_sink *sink, struct sl_req *req)
{
    uint64_t head = shm_next_head(ep);

    if (!shm_cell_is(head, ep->rx_pos) || shm_cell_channel(head) != sink->channel || ep->rx_open)
        return 0;
    return recv_next(ep, channel, head, sink, req);
}

/* What was kept of a lost peer's messages, or is left in the ring, is still good. */
static int recv_left(struct shm_ep *ep, struct shm_channel *channel, const struct sl_sink *sink,
                     struct sl_req *req)
{
    if (channel == NULL || !channel->base.open)
        return shm_refused(ep, sink->channel);
    if (sl_channel_claim(&ep->channels, &channel->base, sink, req)) {
        shm_activate(ep);
        return 0;
    }
    if (ep->state == SHM_LOST && !ep->damaged && !ep->gap) {
        if (recv_now(ep, channel, sink, req) == 1)
            return 1;
        ep->gap |= ep->rx_open;
        ep->rx_open = false;
        ep->rx_req = NULL; /* it was not taken */
    }
    return shm_refused(ep, sink->channel);
}

int shm_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_channel *channel = shm_channel_find(ep, sink->channel);
    int got;

    if (SL_UNLIKELY(sink->granule > SHM_CARRY_MAX))
        return sl_fail(-EINVAL, "elements of %u bytes are too large for shm, %d is the most",
                       sink->granule, SHM_CARRY_MAX);
    if (SL_UNLIKELY(ep->state != SHM_UP || channel == NULL || !channel->base.open))
        return recv_left(ep, channel, sink, req);
    if (channel->base.posted == 0) {
        if (sl_channel_claim(&ep->channels, &channel->base, sink, req))
            goto taken;
        got = recv_now(ep, channel, sink, req);
        if (got == 1)
            return 1;
        if (got == -EAGAIN)
            goto taken;
    } else if (channel->base.posted == SHM_POSTED_MAX) {
        return -EAGAIN;
    }
    channel->recvs[(channel->recv_first + channel->base.posted) % SHM_POSTED_MAX] =
        (struct shm_posted_recv){sink, req};
    sl_channel_wants(&ep->channels, &channel->base, 1);
taken:
    req->status = SL_PENDING;
    shm_activate(ep);
    return 0;
}
