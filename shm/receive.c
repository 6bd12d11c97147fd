/* SPDX-License-Identifier: Apache-2.0 */
/* Receives through the rings. The layout is drawn in segment.h. */
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

static inline void give_back(struct shm_ep *ep)
{
    ep->rx_pos++;
    atomic_store_explicit(ep->rx.taken, ep->rx_pos, memory_order_release);
    ep->woke = true;
}

static inline struct shm_cell *next_cell(const struct shm_ep *ep)
{
    return &ep->rx.cells[ep->rx_pos & ep->rx.cell_mask];
}

bool shm_ep_unread(const struct shm_ep *ep)
{
    return ep->segment.base != NULL && shm_cell_is(shm_next_head(ep), ep->rx_pos);
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

static inline const struct shm_posted_recv *pop_recv(struct shm_ep *ep, struct shm_channel *channel)
{
    const struct shm_posted_recv *r = &channel->recvs[channel->recv_first];

    channel->recv_first = (channel->recv_first + 1) % SHM_POSTED_MAX;
    sl_channel_wants(&ep->channels, &channel->base, -1);
    return r;
}

/* Where a message of that channel goes: rx_sink and rx_req, NULL when it is dropped. 1: there;
 * -EAGAIN: it waits in the ring; -EBADMSG: it cannot be. */
static inline int find_receive(struct shm_ep *ep, uint32_t id, uint64_t tag, uint64_t len)
{
    struct shm_channel *channel = shm_channel_find(ep, id);
    const struct shm_posted_recv *r;

    if (SL_UNLIKELY(channel == NULL || channel->base.posted == 0))
        return find_none(ep, channel, id, tag, len);
    r = pop_recv(ep, channel);
    ep->rx_sink = r->sink;
    ep->rx_req = r->req;
    return 1;
}

/* May the message go there? 0, or why it is dropped. */
static inline int check(const struct sl_sink *sink, uint64_t tag, uint64_t len)
{
    if (SL_LIKELY(sink != NULL && tag == sink->tag && sl_sink_takes(sink, len)))
        return 0;
    return sink == NULL ? -ECANCELED : tag != sink->tag ? -EPROTO : -EMSGSIZE;
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
 * Each of these takes the next cell, whose head was seen. 1: a message is over; 0: it is not;
 * -EAGAIN: the cell stays there; -EBADMSG: its numbers cannot be; other codes: the endpoint is
 * lost. What the peer could change between a check and its use is read once.
 */

/* One that is kept, dropped, or another than its receive wants. */
static int take_inline(struct shm_ep *ep, uint64_t head)
{
    struct shm_cell *cell = next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED);
    unsigned n = shm_cell_len(head);
    int found;

    if (n > SHM_INLINE_MAX)
        return -EBADMSG;
    found = find_receive(ep, shm_cell_channel(head), tag, n);
    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, n, check(ep->rx_sink, tag, n));
    if (ep->rx_status == 0)
        deliver(ep, ep->rx_sink, cell->bytes, 0, n);
    give_back(ep);
    return 1;
}

/* A piece of the message under way. */
static int take_piece(struct shm_ep *ep)
{
    struct shm_cell *cell = next_cell(ep);
    uint32_t off = __atomic_load_n(&cell->off, __ATOMIC_RELAXED);
    uint32_t n = __atomic_load_n(&cell->piece, __ATOMIC_RELAXED);

    if (off > ep->rx.room_len || n > ep->rx.room_len - off || n == 0 || off % SL_CACHE_LINE != 0)
        return -EBADMSG;
    if (n > ep->rx_len - ep->rx_off || (n % SL_CACHE_LINE != 0 && n != ep->rx_len - ep->rx_off))
        return -EBADMSG;
    if (ep->rx_status == 0)
        deliver(ep, ep->rx_sink, ep->rx.room + off, ep->rx_off, n);
    ep->rx_off += n;
    ep->rx_open = ep->rx_off != ep->rx_len;
    give_back(ep);
    return !ep->rx_open;
}

static int take_first(struct shm_ep *ep, uint64_t head)
{
    struct shm_cell *cell = next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED);
    uint64_t len = __atomic_load_n(&cell->len, __ATOMIC_RELAXED);
    int found = find_receive(ep, shm_cell_channel(head), tag, len);

    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, len, check(ep->rx_sink, tag, len));
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
    give_back(ep); /* now the sender may have its bytes again */
    return 1;
}

static int take_first_lent(struct shm_ep *ep, uint64_t head)
{
    struct shm_cell *cell = next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED);
    uint64_t len = __atomic_load_n(&cell->len, __ATOMIC_RELAXED);
    uint64_t addr = __atomic_load_n(&cell->addr, __ATOMIC_RELAXED);
    int found;

    if (!shm_large_possible(ep, addr, len))
        return -EBADMSG;
    found = find_receive(ep, shm_cell_channel(head), tag, len);
    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, len, check(ep->rx_sink, tag, len));
    ep->rx_addr = addr;
    ep->rx_head = head;
    ep->rx_open = ep->rx_lent = true;
    return take_lent(ep);
}

/* Its receive ends with it, so that messages behind it, which are whole, meet theirs. */
static int take_withdrawn(struct shm_ep *ep, uint64_t head)
{
    uint64_t tag = __atomic_load_n(&next_cell(ep)->tag, __ATOMIC_RELAXED);
    int found;

    if (shm_cell_len(head) != SHM_WITHDRAWN_CHANNEL)
        return shm_large_lose_gone(ep);
    found = find_receive(ep, shm_cell_channel(head), tag, 0);
    if (found < 0)
        return found;
    begin(ep, shm_cell_channel(head), tag, 0, -ECANCELED);
    give_back(ep);
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
    give_back(ep);
    return cut;
}

static int take_other(struct shm_ep *ep, uint64_t head)
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

/* ---- messages of one cell ----
 *
 * Most are: for them nothing is noted that is under way.
 */

/* Where the message of that cell lies, whole. False: it does not; take_other() finds out why. */
static inline bool is_whole(const struct shm_ep *ep, uint64_t head, const uint8_t **bytes,
                            uint32_t *len)
{
    struct shm_cell *cell = next_cell(ep);
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
    *bytes = ep->rx.room + off;
    return *len > 0 && *len == __atomic_load_n(&cell->len, __ATOMIC_RELAXED) &&
           off % SL_CACHE_LINE == 0 && off <= ep->rx.room_len && *len <= ep->rx.room_len - off;
}

/* Takes it, for a receive that it fits, but does not end that. */
static inline void take_whole(struct shm_ep *ep, const struct sl_sink *sink, struct sl_req *req,
                              const uint8_t *bytes, uint32_t len)
{
    uint64_t tag = sink->tag;

    if (sink->consume != NULL) {
        if (len > 0)
            sink->consume(sink, bytes, 0, len); /* one piece, whatever the granule */
    } else if (len == 8) {
        memcpy(sink->dst, bytes, 8);
    } else if (SL_UNLIKELY(len >= shm_ep_iface(ep)->stream_min)) {
        shm_copy_stream(sink->dst, bytes, len);
    } else if (len > 0) {
        memcpy(sink->dst, bytes, len);
    }
    give_back(ep);
    shm_look_after_peer(ep);
    ep->received += len;
    ep->base.iface->traffic += len;
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
        check(r->sink, __atomic_load_n(&next_cell(ep)->tag, __ATOMIC_RELAXED), len) != 0)
        return false;
    pop_recv(ep, channel);
    req = r->req;
    take_whole(ep, r->sink, req, bytes, len);
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

    ep->received += ep->rx_len;
    ep->base.iface->traffic += ep->rx_len;
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
            int got = take_other(ep, head);

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

/* The message of recv_now(), as far as its pieces are there. False: it is under way, or the peer is
 * damaged; req waits for its end. */
static bool take_pieces(struct shm_ep *ep, struct sl_req *req)
{
    int got;

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

/* A receive whose message is next in the ring, so that no request may need to wait. 1: it was there
 * whole; 0: nothing is touched; -EAGAIN: the message has begun, and req waits for its end. */
static int recv_next(struct shm_ep *ep, uint64_t head, const struct sl_sink *sink,
                     struct sl_req *req)
{
    struct shm_cell *cell = next_cell(ep);
    uint64_t tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED), len;
    const uint8_t *bytes;
    uint32_t n;

    /* A receive that ends badly does so through its request, in progress. */
    if (SL_LIKELY(is_whole(ep, head, &bytes, &n))) {
        if (check(sink, tag, n) != 0)
            return 0;
        take_whole(ep, sink, req, bytes, n);
        req->status = 0;
        return 1;
    }
    if (shm_cell_kind(head) != SHM_CELL_FIRST)
        return 0; /* of a lent one a system call or many: progress does them */
    len = __atomic_load_n(&cell->len, __ATOMIC_RELAXED);
    if (check(sink, tag, len) != 0)
        return 0;
    ep->rx_sink = sink;
    begin(ep, sink->channel, tag, len, 0);
    if (!take_pieces(ep, req))
        return -EAGAIN;
    shm_look_after_peer(ep);
    ep->received += len;
    ep->base.iface->traffic += len;
    req->len = len;
    req->tag = tag;
    req->status = 0;
    return 1;
}

static inline int recv_now(struct shm_ep *ep, const struct sl_sink *sink, struct sl_req *req)
{
    uint64_t head = shm_next_head(ep);

    if (!shm_cell_is(head, ep->rx_pos) || shm_cell_channel(head) != sink->channel || ep->rx_open)
        return 0;
    return recv_next(ep, head, sink, req);
}

/* What a lost peer left in the ring is still good. */
static int recv_left(struct shm_ep *ep, struct shm_channel *channel, const struct sl_sink *sink,
                     struct sl_req *req)
{
    if (ep->state == SHM_LOST && !ep->damaged && !ep->gap && channel != NULL &&
        channel->base.open) {
        if (recv_now(ep, sink, req) == 1)
            return 1;
        ep->gap |= ep->rx_open;
        ep->rx_open = 0;
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
        got = recv_now(ep, sink, req);
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

/* ---- the end ---- */

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
