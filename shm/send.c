/* SPDX-License-Identifier: Apache-2.0 */
/* Sends through the rings. The layout is drawn in segment.h. */
#include "shm/ring.h"

#include <string.h>

/* A message is cut in about this many pieces, so that the two cores overlap early ... */
#define PIECES_WANTED 8
/* ... but a piece below this costs more in cells than it hides. */
#define PIECE_MIN 8192u

static inline uint32_t round_line(uint32_t len)
{
    return (len + SL_CACHE_LINE - 1) & ~(uint32_t)(SL_CACHE_LINE - 1);
}

/* ---- cells ---- */

/* Learns the cells that the peer has given back. The peer writes the memory of the value. */
void shm_refresh(struct shm_ep *ep)
{
    uint64_t done = atomic_load_explicit(ep->tx.taken, memory_order_acquire);

    if (done == ep->tx_done)
        return;
    if (done - ep->tx_done > ep->tx_pos - ep->tx_done) {
        ep->damaged = true;
        return;
    }
    ep->tx_done = done;
    ep->tx_freed = ep->room_end[(done - 1) & ep->tx.cell_mask];
}

static inline bool cell_free(struct shm_ep *ep)
{
    if (SL_LIKELY(ep->tx_pos - ep->tx_done <= ep->tx.cell_mask))
        return true;
    shm_refresh(ep);
    return ep->tx_pos - ep->tx_done <= ep->tx.cell_mask;
}

static inline bool room_for(struct shm_ep *ep, uint32_t len)
{
    if (SL_LIKELY(ep->tx.room_len - (ep->tx_head - ep->tx_freed) >= len))
        return true;
    shm_refresh(ep);
    return ep->tx.room_len - (ep->tx_head - ep->tx_freed) >= len;
}

static inline void publish(struct shm_ep *ep, struct shm_cell *cell, unsigned kind, size_t len,
                           uint32_t channel)
{
    ep->room_end[ep->tx_pos & ep->tx.cell_mask] = ep->tx_head;
    atomic_store_explicit(&cell->head, shm_cell_head(ep->tx_pos, kind, len, channel),
                          memory_order_release);
    ep->tx_pos++;
    ep->woke = true;
}

static inline bool push_inline(struct shm_ep *ep, uint32_t channel, const void *bytes, size_t len,
                               uint64_t tag)
{
    struct shm_cell *cell = &ep->tx.cells[ep->tx_pos & ep->tx.cell_mask];

    if (!cell_free(ep))
        return false;
    cell->tag = tag;
    if (len == 8)
        memcpy(cell->bytes, bytes, 8);
    else if (len > 0)
        memcpy(cell->bytes, bytes, len);
    publish(ep, cell, SHM_CELL_INLINE, len, channel);
    return true;
}

static inline uint32_t piece_len(const struct shm_ep *ep, uint64_t len)
{
    uint64_t want = len / PIECES_WANTED;

    if (want < PIECE_MIN)
        want = PIECE_MIN;
    if (want > ep->piece_max)
        want = ep->piece_max;
    return (uint32_t)want & ~(uint32_t)(SL_CACHE_LINE - 1);
}

/* The size of the piece at off; the room's end cuts it. */
static inline uint32_t next_piece(const struct shm_ep *ep, uint64_t off, uint64_t len)
{
    uint32_t want = piece_len(ep, len), to_end = ep->tx.room_len - ep->tx_at;

    if (want > len - off)
        want = (uint32_t)(len - off);
    return want < to_end ? want : to_end;
}

/* Copies the next piece of [off, len) into the room. Returns its size, 0 when there is no room.
 * Always inline: most messages have one, whose cost a call shows in. */
static inline __attribute__((always_inline)) uint32_t push_piece(struct shm_ep *ep,
                                                                 uint32_t channel,
                                                                 const uint8_t *bytes, uint64_t off,
                                                                 uint64_t len, uint64_t tag)
{
    uint32_t want = next_piece(ep, off, len);
    struct shm_cell *cell = &ep->tx.cells[ep->tx_pos & ep->tx.cell_mask];

    if (!cell_free(ep) || !room_for(ep, round_line(want)))
        return 0;
    memcpy(ep->tx.room + ep->tx_at, bytes + off, want);
    cell->tag = tag;
    cell->len = len;
    cell->off = ep->tx_at;
    cell->piece = want;
    ep->tx_head += round_line(want);
    ep->tx_at += round_line(want);
    if (ep->tx_at == ep->tx.room_len)
        ep->tx_at = 0;
    publish(ep, cell, off == 0 ? SHM_CELL_FIRST : SHM_CELL_MORE, 0, channel);
    return want;
}

static inline bool lends(struct shm_ep *ep, uint64_t len)
{
    return len >= SHM_LARGE_MIN && shm_ep_iface(ep)->stage != NULL &&
           atomic_load_explicit(&ep->tx.offer->reads, memory_order_acquire) != 0;
}

/* Tells the peer where the message lies; req ends when the peer has taken the cell. */
static bool push_lent(struct shm_ep *ep, uint32_t channel, const uint8_t *bytes, uint64_t len,
                      uint64_t tag, struct sl_req *req)
{
    struct shm_cell *cell = &ep->tx.cells[ep->tx_pos & ep->tx.cell_mask];

    if (ep->lent_count == SHM_POSTED_MAX || !cell_free(ep))
        return false;
    ep->lent[(ep->lent_first + ep->lent_count++) % SHM_POSTED_MAX] =
        (struct shm_lent){ep->tx_pos, len, req, channel};
    cell->tag = tag;
    cell->len = len;
    cell->addr = (uint64_t)(uintptr_t)bytes;
    publish(ep, cell, SHM_CELL_LENT, 0, channel);
    return true;
}

static bool push_close(struct shm_ep *ep, struct shm_channel *channel)
{
    struct shm_cell *cell = &ep->tx.cells[ep->tx_pos & ep->tx.cell_mask];

    if (!cell_free(ep))
        return false;
    publish(ep, cell, SHM_CELL_CLOSE, 0, channel->base.id);
    return true;
}

static inline void count_sent(struct shm_ep *ep, struct shm_channel *channel, uint64_t len)
{
    ep->sent += len;
    sl_channel_moved(&ep->base, &channel->base, len);
}

/* ---- the queue ---- */

static struct shm_posted_send *first_send(struct shm_ep *ep)
{
    return sl_container_of(ep->sends.next, struct shm_posted_send, link);
}

void shm_end_place(struct shm_ep *ep, struct shm_posted_send *s)
{
    sl_list_remove(&s->link);
    ep->queued--;
    if (s->req != NULL) {
        s->channel->send_count--;
        ep->send_count--;
    }
    if (s != &s->channel->own)
        sl_list_push_back(&ep->spare_sends, &s->link);
}

/* Its place among those of the endpoint, or the channel's own: so that a channel that never waits
 * for the peer's receives does not keep another one from its turn. */
static int post(struct shm_ep *ep, struct shm_channel *channel, const struct shm_posted_send *send)
{
    struct sl_node *node = sl_list_pop_front(&ep->spare_sends);
    struct shm_posted_send *s;

    if (node != NULL)
        s = sl_container_of(node, struct shm_posted_send, link);
    else if (channel->send_count == 0)
        s = &channel->own;
    else
        return -EAGAIN;
    *s = *send;
    sl_list_push_back(&ep->sends, &s->link);
    ep->queued++;
    channel->send_count++;
    ep->send_count++;
    return 0;
}

int shm_refused(struct shm_ep *ep, uint32_t channel)
{
    if (ep->state == SHM_LOST)
        return sl_fail(ep->status, "%s is lost: %s", sl_ep_peer_name(&ep->base), ep->why);
    if (ep->state == SHM_UP)
        return sl_channel_not_open(&ep->base, channel);
    return sl_fail(-ENOTCONN, "the shm endpoint to %s is not connected yet",
                   sl_ep_peer_name(&ep->base));
}

int shm_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_channel *channel = shm_channel_find(ep, buf->channel);
    const uint8_t *bytes = buf->addr;
    uint64_t len = buf->len, off = 0;
    int err;

    if (SL_UNLIKELY(ep->state != SHM_UP || channel == NULL || !channel->base.open))
        return shm_refused(ep, buf->channel);
    if (ep->queued == 0) {
        if (len <= SHM_INLINE_MAX) {
            if (push_inline(ep, buf->channel, bytes, len, tag))
                goto sent;
        } else if (lends(ep, len)) {
            if (push_lent(ep, buf->channel, bytes, len, tag, req)) {
                shm_look_after_peer(ep);
                goto taken;
            }
        } else {
            uint32_t piece;

            while ((piece = push_piece(ep, buf->channel, bytes, off, len, tag)) > 0) {
                shm_look_after_peer(ep);
                off += piece;
                if (off == len)
                    goto sent;
            }
            count_sent(ep, channel, off);
        }
    }
    err = post(
        ep, channel,
        &(struct shm_posted_send){
            .channel = channel, .bytes = bytes, .len = len, .off = off, .tag = tag, .req = req});
    if (err != 0)
        return err;
taken:
    req->status = SL_PENDING;
    shm_activate(ep);
    return 0;

sent:
    shm_look_after_peer(ep);
    count_sent(ep, channel, len);
    req->status = 0;
    req->len = len;
    return 1;
}

void shm_send_close(struct shm_ep *ep, struct shm_channel *channel, bool first)
{
    struct shm_posted_send *s = &channel->own;

    if (ep->state == SHM_UP && (first || ep->queued == 0) && push_close(ep, channel)) {
        shm_look_after_peer(ep);
        return;
    }
    *s = (struct shm_posted_send){.channel = channel};
    channel->closing = true;
    /* Before the first one, as behind the head; or behind the last. */
    sl_list_push_back(first ? ep->sends.next : &ep->sends, &s->link);
    ep->queued++;
    if (ep->state == SHM_UP)
        shm_activate(ep);
}

/* ---- progress ---- */

/* Ends the lent messages whose cells the peer has taken. */
int shm_run_lent(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    shm_refresh(ep);
    while (ep->lent_count > 0 && *budget > 0 && ep->lent[ep->lent_first].pos < ep->tx_done) {
        struct shm_lent l = ep->lent[ep->lent_first];

        ep->lent_first = (ep->lent_first + 1) % SHM_POSTED_MAX;
        ep->lent_count--;
        count_sent(ep, shm_channel_find(ep, l.channel), l.len);
        l.req->len = l.len;
        (*budget)--;
        moved++;
        sl_req_end(l.req, 0);
    }
    return moved;
}

/* Puts the next cell of the first send into the ring. 1: that ended its request; 0: it did not;
 * -EAGAIN: there is no room. */
static int push_next(struct shm_ep *ep, struct shm_posted_send *s)
{
    struct shm_channel *channel = s->channel;
    struct sl_req *req = s->req;
    uint64_t len = s->len;

    if (req == NULL) {
        if (!push_close(ep, channel))
            return -EAGAIN;
        channel->closing = false;
        shm_end_place(ep, s);
        shm_channel_settle(ep, channel);
        return 0;
    }
    if (len > SHM_INLINE_MAX && s->off == 0 && lends(ep, len)) {
        if (!push_lent(ep, channel->base.id, s->bytes, len, s->tag, req))
            return -EAGAIN;
        shm_end_place(ep, s);
        return 0;
    }
    if (len <= SHM_INLINE_MAX) {
        if (!push_inline(ep, channel->base.id, s->bytes, len, s->tag))
            return -EAGAIN;
        count_sent(ep, channel, len);
    } else {
        uint32_t piece = push_piece(ep, channel->base.id, s->bytes, s->off, len, s->tag);

        if (piece == 0)
            return -EAGAIN;
        count_sent(ep, channel, piece);
        s->off += piece;
        if (s->off < len)
            return 0;
    }
    shm_end_place(ep, s);
    req->len = len;
    shm_look_after_peer(ep);
    sl_req_end(req, 0);
    return 1;
}

int shm_run_sends(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    for (unsigned turn = 0; ep->queued > 0 && *budget > 0 && turn < SHM_PIECES_PER_TURN; turn++) {
        int ended = push_next(ep, first_send(ep));

        if (ended < 0)
            break;
        shm_look_after_peer(ep);
        moved++;
        *budget -= (unsigned)ended;
    }
    return moved;
}

bool shm_sends_ready(struct shm_ep *ep)
{
    if (ep->lent_count > 0) {
        shm_refresh(ep);
        if (ep->damaged || ep->lent[ep->lent_first].pos < ep->tx_done)
            return true;
    }
    if (ep->queued == 0)
        return false;
    const struct shm_posted_send *s = first_send(ep);
    bool room = cell_free(ep);

    if (room && s->off == 0 && lends(ep, s->len))
        room = ep->lent_count < SHM_POSTED_MAX;
    else if (room && s->len > SHM_INLINE_MAX)
        room = room_for(ep, round_line(next_piece(ep, s->off, s->len)));

    return room || ep->damaged;
}

bool shm_ep_sending(struct shm_ep *ep)
{
    if (ep->lent_count > 0)
        shm_refresh(ep);
    return ep->send_count > 0 ||
           (ep->lent_count > 0 &&
            ep->lent[(ep->lent_first + ep->lent_count - 1) % SHM_POSTED_MAX].pos >= ep->tx_done);
}
