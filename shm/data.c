/* SPDX-License-Identifier: Apache-2.0 */
/* Messages through the rings: the data path of shm. The layout is drawn in segment.h. */
#include "shm/shm.h"

#include <stdlib.h>
#include <string.h>

/* Pieces moved for one endpoint before its other direction, and other endpoints, get their turn. */
#define PIECES_PER_TURN 4

/* A message is cut in about this many pieces, so that the two cores overlap early ... */
#define PIECES_WANTED 8
/* ... but a piece below this costs more in cells than it hides. */
#define PIECE_MIN 8192u

static inline uint32_t round_line(uint32_t len)
{
    return (len + SL_CACHE_LINE - 1) & ~(uint32_t)(SL_CACHE_LINE - 1);
}

static void activate(struct shm_ep *ep)
{
    if (ep->is_active)
        return;
    ep->is_active = true;
    sl_list_push_back(&shm_ep_iface(ep)->active, &ep->active);
}

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

/* ---- sending ---- */

/* Learns what the peer has given back. The value comes from memory that the peer writes. */
static void refresh(struct shm_ep *ep)
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
    refresh(ep);
    return ep->tx_pos - ep->tx_done <= ep->tx.cell_mask;
}

static inline bool room_for(struct shm_ep *ep, uint32_t len)
{
    if (SL_LIKELY(ep->tx.room_len - (ep->tx_head - ep->tx_freed) >= len))
        return true;
    refresh(ep);
    return ep->tx.room_len - (ep->tx_head - ep->tx_freed) >= len;
}

static inline void publish(struct shm_ep *ep, struct shm_cell *cell, unsigned kind, size_t len)
{
    ep->room_end[ep->tx_pos & ep->tx.cell_mask] = ep->tx_head;
    atomic_store_explicit(&cell->head, shm_cell_head(ep->tx_pos, kind, len), memory_order_release);
    ep->tx_pos++;
    ep->woke = true;
}

static inline bool push_inline(struct shm_ep *ep, const void *bytes, size_t len, uint64_t tag)
{
    struct shm_cell *cell = &ep->tx.cells[ep->tx_pos & ep->tx.cell_mask];

    if (!cell_free(ep))
        return false;
    cell->tag = tag;
    if (len == 8)
        memcpy(cell->bytes, bytes, 8);
    else if (len > 0)
        memcpy(cell->bytes, bytes, len);
    publish(ep, cell, SHM_CELL_INLINE, len);
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

/* Copies the next piece of [off, len) into the room. Returns its size, 0 when there is no room. */
static uint32_t push_piece(struct shm_ep *ep, const uint8_t *bytes, uint64_t off, uint64_t len,
                           uint64_t tag)
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
    publish(ep, cell, off == 0 ? SHM_CELL_FIRST : SHM_CELL_MORE, 0);
    return want;
}

static inline bool lends(struct shm_ep *ep, uint64_t len)
{
    return len >= SHM_LARGE_MIN && shm_ep_iface(ep)->stage != NULL &&
           atomic_load_explicit(&ep->tx.offer->reads, memory_order_acquire) != 0;
}

/* Tells the peer where the message lies; req ends when the peer has taken the cell. */
static bool push_lent(struct shm_ep *ep, const uint8_t *bytes, uint64_t len, uint64_t tag,
                      struct sl_req *req)
{
    struct shm_cell *cell = &ep->tx.cells[ep->tx_pos & ep->tx.cell_mask];

    if (ep->lent_count == SHM_POSTED_MAX || !cell_free(ep))
        return false;
    ep->lent[(ep->lent_first + ep->lent_count++) % SHM_POSTED_MAX] =
        (struct shm_lent){ep->tx_pos, len, req};
    cell->tag = tag;
    cell->len = len;
    cell->addr = (uint64_t)(uintptr_t)bytes;
    publish(ep, cell, SHM_CELL_LENT, 0);
    return true;
}

/* Ends the lent messages whose cells the peer has taken. */
static int run_lent(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    refresh(ep);
    while (ep->lent_count > 0 && *budget > 0 && ep->lent[ep->lent_first].pos < ep->tx_done) {
        struct shm_lent l = ep->lent[ep->lent_first];

        ep->lent_first = (ep->lent_first + 1) % SHM_POSTED_MAX;
        ep->lent_count--;
        ep->sent += l.len;
        ep->base.iface->traffic += l.len;
        l.req->len = l.len;
        (*budget)--;
        moved++;
        sl_req_end(l.req, 0);
    }
    return moved;
}

/* A sleeping peer is looked at after the store that it waits for: park.c says why that is
 * enough. */
static inline void look_after_peer(struct shm_ep *ep)
{
    if (ep->woke) {
        ep->woke = false;
        atomic_signal_fence(memory_order_seq_cst); /* nor does the compiler swap the two */
        if (SL_UNLIKELY(atomic_load_explicit(ep->base.peer_asleep, memory_order_relaxed) != 0))
            shm_wake(&ep->base);
    }
}

static int refused(struct shm_ep *ep)
{
    if (ep->state == SHM_LOST)
        return sl_fail(ep->status, "%s is lost: %s", sl_ep_peer_name(&ep->base), ep->why);
    return sl_fail(-ENOTCONN, "the shm endpoint to %s is not connected yet",
                   sl_ep_peer_name(&ep->base));
}

int shm_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct shm_ep *ep = shm_ep_of(base);
    const uint8_t *bytes = buf->addr;
    uint64_t len = buf->len, off = 0;

    if (SL_UNLIKELY(ep->state != SHM_UP))
        return refused(ep);
    if (ep->send_count == 0) {
        if (len <= SHM_INLINE_MAX) {
            if (push_inline(ep, bytes, len, tag))
                goto sent;
        } else if (lends(ep, len)) {
            if (push_lent(ep, bytes, len, tag, req)) {
                look_after_peer(ep);
                goto taken;
            }
        } else {
            uint32_t piece;

            while ((piece = push_piece(ep, bytes, off, len, tag)) > 0) {
                look_after_peer(ep);
                off += piece;
                if (off == len)
                    goto sent;
            }
        }
    } else if (ep->send_count == SHM_POSTED_MAX) {
        return -EAGAIN;
    }
    ep->sends[(ep->send_first + ep->send_count++) % SHM_POSTED_MAX] =
        (struct shm_posted_send){bytes, len, off, tag, req};
taken:
    req->status = SL_PENDING;
    activate(ep);
    return 0;

sent:
    look_after_peer(ep);
    ep->sent += len;
    ep->base.iface->traffic += len;
    req->status = 0;
    req->len = len;
    return 1;
}

static int run_sends(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    for (unsigned turn = 0; ep->send_count > 0 && turn < PIECES_PER_TURN; turn++) {
        struct shm_posted_send *s = &ep->sends[ep->send_first];

        if (s->len <= SHM_INLINE_MAX) {
            if (!push_inline(ep, s->bytes, s->len, s->tag))
                break;
            s->off = s->len;
        } else if (s->off == 0 && lends(ep, s->len)) {
            if (!push_lent(ep, s->bytes, s->len, s->tag, s->req))
                break;
            ep->send_first = (ep->send_first + 1) % SHM_POSTED_MAX;
            ep->send_count--;
            moved++;
            look_after_peer(ep);
            continue;
        } else {
            uint32_t piece = push_piece(ep, s->bytes, s->off, s->len, s->tag);

            if (piece == 0)
                break;
            s->off += piece;
        }
        moved++;
        look_after_peer(ep);
        if (s->off < s->len)
            continue;
        struct sl_req *req = s->req;

        ep->sent += s->len;
        ep->base.iface->traffic += s->len;
        req->len = s->len;
        ep->send_first = (ep->send_first + 1) % SHM_POSTED_MAX;
        ep->send_count--;
        (*budget)--;
        sl_req_end(req, 0);
        if (*budget == 0)
            break;
    }
    return moved;
}

/* ---- receiving ---- */

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

/* Takes the next cell, whose head was seen, for sink. Returns 1 when it ended the message, 0 when
 * more is to come, -EBADMSG when its numbers cannot be. */
static int take_cell(struct shm_ep *ep, uint64_t head, const struct sl_sink *sink)
{
    struct shm_cell *cell = &ep->rx.cells[ep->rx_pos & ep->rx.cell_mask];
    unsigned kind = (uint8_t)(head >> 8);
    uint32_t off = 0, n;

    if (kind == SHM_CELL_INLINE) {
        n = (uint8_t)head;
        if (n > SHM_INLINE_MAX)
            return -EBADMSG;
    } else {
        /* Read once: the peer could change them between the check and the use. */
        off = __atomic_load_n(&cell->off, __ATOMIC_RELAXED);
        n = __atomic_load_n(&cell->piece, __ATOMIC_RELAXED);
        if (off > ep->rx.room_len || n > ep->rx.room_len - off || n == 0 ||
            off % SL_CACHE_LINE != 0)
            return -EBADMSG;
    }
    if (!ep->rx_open) {
        if (kind != SHM_CELL_INLINE && kind != SHM_CELL_FIRST)
            return -EBADMSG;
        ep->rx_tag = __atomic_load_n(&cell->tag, __ATOMIC_RELAXED);
        ep->rx_len = kind == SHM_CELL_INLINE ? n : __atomic_load_n(&cell->len, __ATOMIC_RELAXED);
        ep->rx_off = 0;
        ep->rx_status = ep->rx_tag != sink->tag            ? -EPROTO
                        : !sl_sink_takes(sink, ep->rx_len) ? -EMSGSIZE
                                                           : 0;
        ep->carry_len = 0;
    } else if (kind != SHM_CELL_MORE) {
        return -EBADMSG;
    }
    if (n > ep->rx_len - ep->rx_off || (n % SL_CACHE_LINE != 0 && n != ep->rx_len - ep->rx_off))
        return -EBADMSG;
    if (ep->rx_status == 0)
        deliver(ep, sink, kind == SHM_CELL_INLINE ? cell->bytes : ep->rx.room + off, ep->rx_off, n);
    ep->rx_off += n;
    ep->rx_open = ep->rx_off != ep->rx_len;
    give_back(ep);
    return !ep->rx_open;
}

static inline uint64_t next_head(const struct shm_ep *ep)
{
    return atomic_load_explicit(&ep->rx.cells[ep->rx_pos & ep->rx.cell_mask].head,
                                memory_order_acquire);
}

bool shm_ep_unread(const struct shm_ep *ep)
{
    return ep->segment.base != NULL && shm_cell_is(next_head(ep), ep->rx_pos);
}

/* Ends the first posted receive with the message that was just taken. */
static void end_recv(struct shm_ep *ep)
{
    struct sl_req *req = ep->recvs[ep->recv_first].req;

    ep->recv_first = (ep->recv_first + 1) % SHM_POSTED_MAX;
    ep->recv_count--;
    ep->received += ep->rx_len;
    ep->base.iface->traffic += ep->rx_len;
    req->len = ep->rx_len;
    req->tag = ep->rx_tag;
    if (ep->rx_status == -EPROTO)
        sl_fail(-EPROTO, "%s sent a message with tag 0x%llx where another was expected",
                sl_ep_peer_name(&ep->base), (unsigned long long)ep->rx_tag);
    else if (ep->rx_status == -EMSGSIZE)
        sl_fail(-EMSGSIZE, "%s sent a message of %llu bytes where another size was expected",
                sl_ep_peer_name(&ep->base), (unsigned long long)ep->rx_len);
    sl_req_end(req, ep->rx_status);
}

static int run_recvs(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    for (unsigned turn = 0; ep->recv_count > 0 && turn < PIECES_PER_TURN; turn++) {
        uint64_t head = next_head(ep);
        int got;

        if (!shm_cell_is(head, ep->rx_pos))
            break;
        if (ep->rx_lent || (!ep->rx_open && (uint8_t)(head >> 8) == SHM_CELL_LENT)) {
            got = shm_large_take(ep, &ep->rx.cells[ep->rx_pos & ep->rx.cell_mask],
                                 ep->recvs[ep->recv_first].sink);
            if (got > 0)
                give_back(ep); /* now the sender may have its bytes again */
        } else {
            got = take_cell(ep, head, ep->recvs[ep->recv_first].sink);
        }
        if (got < 0) {
            ep->damaged = ep->state == SHM_UP; /* else it is lost already */
            break;
        }
        moved++;
        look_after_peer(ep);
        if (got == 0)
            continue;
        (*budget)--;
        end_recv(ep);
        if (*budget == 0)
            break;
    }
    return moved;
}

/* A receive whose whole message may be there already, so that no request needs to wait. Returns 1
 * when it was; 0: sink is untouched or partly filled, and must be posted. */
static int recv_now(struct shm_ep *ep, const struct sl_sink *sink, struct sl_req *req)
{
    for (;;) {
        uint64_t head = next_head(ep);
        struct shm_cell *cell = &ep->rx.cells[ep->rx_pos & ep->rx.cell_mask];
        int got;

        if (!shm_cell_is(head, ep->rx_pos))
            return 0;
        if ((uint8_t)(head >> 8) == SHM_CELL_LENT && !ep->rx_open)
            return 0; /* a system call or many: progress does them */
        /* A receive that ends badly does so through its request, in progress. */
        if (!ep->rx_open &&
            (cell->tag != sink->tag ||
             !sl_sink_takes(sink,
                            (uint8_t)(head >> 8) == SHM_CELL_INLINE ? (uint8_t)head : cell->len)))
            return 0;
        got = take_cell(ep, head, sink);
        if (got < 0 || ep->rx_status != 0) { /* the peer changed the header under our hands */
            ep->damaged = true;
            return 0;
        }
        if (got == 1)
            break;
    }
    look_after_peer(ep);
    ep->received += ep->rx_len;
    ep->base.iface->traffic += ep->rx_len;
    req->len = ep->rx_len;
    req->tag = ep->rx_tag;
    req->status = 0;
    return 1;
}

int shm_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct shm_ep *ep = shm_ep_of(base);

    if (SL_UNLIKELY(sink->granule > SHM_CARRY_MAX))
        return sl_fail(-EINVAL, "elements of %u bytes are too large for shm, %d is the most",
                       sink->granule, SHM_CARRY_MAX);
    if (SL_UNLIKELY(ep->state != SHM_UP)) {
        /* What a lost peer left in the ring is still good. */
        if (ep->state == SHM_LOST && !ep->damaged && !ep->rx_open && recv_now(ep, sink, req) == 1)
            return 1;
        return refused(ep);
    }
    if (ep->recv_count == 0) {
        if (recv_now(ep, sink, req) == 1)
            return 1;
    } else if (ep->recv_count == SHM_POSTED_MAX) {
        return -EAGAIN;
    }
    ep->recvs[(ep->recv_first + ep->recv_count++) % SHM_POSTED_MAX] =
        (struct shm_posted_recv){sink, req};
    req->status = SL_PENDING;
    activate(ep);
    return 0;
}

/* ---- progress ---- */

int shm_ep_run(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    if (ep->recv_count > 0)
        moved += run_recvs(ep, budget);
    if (ep->lent_count > 0 && *budget > 0)
        moved += run_lent(ep, budget);
    if (ep->send_count > 0 && *budget > 0)
        moved += run_sends(ep, budget);
    look_after_peer(ep);
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
    if (ep->lent_count > 0) {
        refresh(ep);
        if (ep->damaged || ep->lent[ep->lent_first].pos < ep->tx_done)
            return true;
    }
    if (ep->send_count == 0)
        return false;
    const struct shm_posted_send *s = &ep->sends[ep->send_first];
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
        refresh(ep);
    return ep->send_count > 0 ||
           (ep->lent_count > 0 &&
            ep->lent[(ep->lent_first + ep->lent_count - 1) % SHM_POSTED_MAX].pos >= ep->tx_done);
}

void shm_ep_end_posted(struct shm_ep *ep, int status)
{
    /* All queues are emptied first: done() may look at the endpoint. */
    unsigned sends = ep->send_count, recvs = ep->recv_count;
    unsigned send_first = ep->send_first, recv_first = ep->recv_first;

    unsigned lent = ep->lent_count, lent_first = ep->lent_first;

    if (lent > 0) {
        refresh(ep);
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
