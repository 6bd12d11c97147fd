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

int shm_run_recvs(struct shm_ep *ep, unsigned *budget)
{
    int moved = 0;

    for (unsigned turn = 0; ep->recv_count > 0 && turn < SHM_PIECES_PER_TURN; turn++) {
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
        shm_look_after_peer(ep);
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
    shm_look_after_peer(ep);
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
        return shm_refused(ep);
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
    shm_activate(ep);
    return 0;
}
