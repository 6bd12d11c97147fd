/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells that are not one message for a receive that waits: pieces, lent messages, closes, and
 * messages that are kept, dropped, or do not fit their receive.
 */
#include "shm/ring.h"

#include <string.h>

/* Hands n bytes at off to consume where its granule does not divide the pieces: what is left
 * of an element at the end of a piece waits in carry for the rest. */
static void consume_carried(struct shm_ep *ep, const struct sl_sink *sink, const uint8_t *bytes,
                            uint64_t off, uint64_t n)
{
    uint32_t granule = sink->granule;
    uint64_t whole;

    if (ep->carry_len > 0) {
        uint32_t fill = granule - ep->carry_len;

        if (fill > n)
            fill = (uint32_t)n;
        memcpy(ep->carry + ep->carry_len, bytes, fill);
        ep->carry_len += fill;
        bytes += fill;
        off += fill;
        n -= fill;
        if (ep->carry_len < granule && off < ep->rx_len)
            return;
        sink->consume(sink, ep->carry, off - ep->carry_len, ep->carry_len);
        ep->carry_len = 0;
    }
    whole = off + n == ep->rx_len ? n : n - n % granule;
    if (whole > 0)
        sink->consume(sink, bytes, off, whole);
    if (whole < n) {
        ep->carry_len = (uint32_t)(n - whole);
        memcpy(ep->carry, bytes + whole, n - whole);
    }
}

static inline void deliver(struct shm_ep *ep, const struct sl_sink *sink, const void *bytes,
                           uint64_t off, uint64_t n)
{
    if (n == 0)
        return;
    if (sink->consume == NULL) {
        if (ep->rx_len >= shm_ep_iface(ep)->stream_min)
            shm_copy_stream((uint8_t *)sink->dst + off, bytes, n);
        else
            memcpy((uint8_t *)sink->dst + off, bytes, n);
    } else if (sink->granule <= 1 || SL_CACHE_LINE % sink->granule == 0) {
        sink->consume(sink, bytes, off, n);
    } else {
        consume_carried(ep, sink, bytes, off, n);
    }
}

/* ---- whose a message is ---- */

/* A message without a posted receive. As find_receive(). */
static int find_none(struct shm_ep *ep, struct shm_channel *channel, uint32_t id, uint64_t tag,
                     uint64_t len)
{
    struct sl_channel *base = channel != NULL ? &channel->base : NULL;
    struct sl_kept *kept;

    if (base != NULL && base->closed) {
        ep->rx_sink = NULL;
        ep->rx_req = NULL;
        return 1;
    }
    if (ep->channels.wanting == 0)
        return -EAGAIN;
    /* Another channel waits for what comes behind it. */
    if (base == NULL)
        base = sl_channels_get(&ep->channels, id);
    if (base == NULL)
        return ep->channels.unopened == SL_CHANNELS_UNOPENED_MAX ? -EBADMSG : -EAGAIN;
    if (base->peer_closed)
        return -EBADMSG;
    kept = sl_channel_keep(&ep->channels, base, tag, len);
    if (kept == NULL)
        return -EAGAIN;
    ep->keeps = true;
    ep->rx_sink = &kept->sink;
    ep->rx_req = &kept->req;
    return 1;
}

/* Where a message of that channel goes: rx_sink and rx_req, NULL when it is dropped. 1: there;
 * -EAGAIN: it waits in the ring; -EBADMSG: it cannot be. */
static inline int find_receive(struct shm_ep *ep, uint32_t id, uint64_t tag, uint64_t len)
{
    struct shm_channel *channel = shm_channel_find(ep, id);
    const struct shm_posted_recv *r;

    if (SL_UNLIKELY(channel == NULL || channel->base.posted == 0))
        return find_none(ep, channel, id, tag, len);
    r = shm_pop_recv(ep, channel);
    ep->rx_sink = r->sink;
    ep->rx_req = r->req;
    return 1;
}

static inline void begin(struct shm_ep *ep, uint32_t channel, uint64_t tag, uint64_t len,
                         int status)
{
    ep->rx_channel = channel;
    ep->rx_tag = tag;
    ep->rx_len = len;
    ep->rx_off = 0;
    ep->rx_status = status;
    ep->carry_len = 0;
}

/* ---- cells ----
 *
 * Each of these takes the next cell, as shm_take_other() does. Values that the peer could change
 * between a check and its use are read once.
 */

/* One that is kept, dropped, or another than its receive wants. */
static int take_inline(struct shm_ep *ep, uint64_t head)
{
    struct shm_cell *cell = shm_next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED);
    unsigned n = shm_cell_len(head);
    int found;

    if (n > SHM_INLINE_MAX)
        return -EBADMSG;
    found = find_receive(ep, shm_cell_channel(head), tag, n);
    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, n, shm_check_message(ep->rx_sink, tag, n));
    if (ep->rx_status == 0)
        deliver(ep, ep->rx_sink, cell->bytes, 0, n);
    shm_count_begun(ep, n);
    shm_give_back(ep);
    return 1;
}

/* A piece of the message under way. */
static int take_piece(struct shm_ep *ep)
{
    struct shm_cell *cell = shm_next_cell(ep);
    uint32_t off = __atomic_load_n(&cell->off, __ATOMIC_RELAXED);
    uint32_t n = __atomic_load_n(&cell->piece, __ATOMIC_RELAXED);

    if (off > ep->rx.room_len || n > ep->rx.room_len - off || n == 0 || off % SL_CACHE_LINE != 0)
        return -EBADMSG;
    if (n > ep->rx_len - ep->rx_off || (n % SL_CACHE_LINE != 0 && n != ep->rx_len - ep->rx_off))
        return -EBADMSG;
    if (ep->rx_status == 0)
        deliver(ep, ep->rx_sink, ep->rx.room + off, ep->rx_off, n);
    shm_count_begun(ep, n);
    ep->rx_off += n;
    ep->rx_open = ep->rx_off != ep->rx_len;
    shm_give_back(ep);
    return !ep->rx_open;
}

static int take_first(struct shm_ep *ep, uint64_t head)
{
    struct shm_cell *cell = shm_next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED);
    uint64_t len = __atomic_load_n(&cell->len, __ATOMIC_RELAXED);
    int found = find_receive(ep, shm_cell_channel(head), tag, len);

    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, len, shm_check_message(ep->rx_sink, tag, len));
    ep->rx_open = true;
    return take_piece(ep);
}

static int take_lent(struct shm_ep *ep)
{
    int got = shm_large_take(ep);

    if (got == -ECANCELED)
        ep->rx_status = -ECANCELED;
    if (got != 1 && got != -ECANCELED)
        return got;
    ep->rx_open = ep->rx_lent = false;
    shm_give_back(ep); /* now the sender may have its bytes again */
    return 1;
}

static int take_first_lent(struct shm_ep *ep, uint64_t head)
{
    struct shm_cell *cell = shm_next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED);
    uint64_t len = __atomic_load_n(&cell->len, __ATOMIC_RELAXED);
    uint64_t addr = __atomic_load_n(&cell->addr, __ATOMIC_RELAXED);
    int found;

    if (!shm_large_possible(ep, addr, len))
        return -EBADMSG;
    found = find_receive(ep, shm_cell_channel(head), tag, len);
    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, len, shm_check_message(ep->rx_sink, tag, len));
    ep->rx_addr = addr;
    ep->rx_head = head;
    ep->rx_open = ep->rx_lent = true;
    return take_lent(ep);
}

/* Its receive ends with it, so that messages behind it, which are whole, meet theirs. */
static int take_withdrawn(struct shm_ep *ep, uint64_t head)
{
    uint64_t tag = __atomic_load_n(&shm_next_cell(ep)->tag, __ATOMIC_RELAXED);
    int found;

    if (shm_cell_len(head) != SHM_WITHDRAWN_CHANNEL)
        return shm_large_lose_gone(ep);
    found = find_receive(ep, shm_cell_channel(head), tag, 0);
    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, 0, -ECANCELED);
    shm_give_back(ep);
    return 1;
}

static int take_close(struct shm_ep *ep, uint64_t head)
{
    uint32_t id = shm_cell_channel(head);
    bool cut = ep->rx_open;
    struct sl_channel *channel;

    if (id == 0 || (cut && id != ep->rx_channel))
        return -EBADMSG;
    channel = sl_channels_get(&ep->channels, id);
    if (channel == NULL)
        return ep->channels.unopened == SL_CHANNELS_UNOPENED_MAX ? -EBADMSG : -EAGAIN;
    if (channel->peer_closed)
        return -EBADMSG;
    sl_channel_peer_closed(channel, 0);
    ep->half_closed -= channel->closed;
    shm_channel_settle(ep, (struct shm_channel *)channel);
    if (cut) {
        ep->rx_open = false;
        ep->rx_status = -ECANCELED;
    }
    shm_give_back(ep);
    return cut;
}

int shm_take_other(struct shm_ep *ep, uint64_t head)
{
    unsigned kind = shm_cell_kind(head);

    if (ep->rx_lent)
        return take_lent(ep);
    if (kind == SHM_CELL_CLOSE)
        return take_close(ep, head);
    if (ep->rx_open)
        return kind == SHM_CELL_MORE && shm_cell_channel(head) == ep->rx_channel ? take_piece(ep)
                                                                                 : -EBADMSG;
    switch (kind) {
    case SHM_CELL_INLINE: return take_inline(ep, head);
    case SHM_CELL_FIRST: return take_first(ep, head);
    case SHM_CELL_LENT: return take_first_lent(ep, head);
    case SHM_CELL_WITHDRAWN: return take_withdrawn(ep, head);
    default: return -EBADMSG;
    }
}

bool shm_take_pieces(struct shm_ep *ep, const struct sl_sink *sink, uint64_t len,
                     struct sl_req *req)
{
    int got;

    ep->rx_sink = sink;
    begin(ep, sink->channel, sink->tag, len, 0);
    ep->rx_open = true;
    while ((got = take_piece(ep)) == 0) {
        uint64_t head = shm_next_head(ep);

        if (!shm_cell_is(head, ep->rx_pos) || shm_cell_kind(head) != SHM_CELL_MORE ||
            shm_cell_channel(head) != ep->rx_channel)
            break;
    }
    ep->damaged |= got < 0;
    if (got != 1)
        ep->rx_req = req;
    return got == 1;
}

void shm_take_closes(struct shm_ep *ep)
{
    while (!ep->rx_open && shm_ep_unread(ep)) {
        uint64_t head = shm_next_head(ep);

        if (shm_cell_kind(head) != SHM_CELL_CLOSE || take_close(ep, head) < 0)
            return;
    }
}
