/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the bytes of an exchange: shares from children to the parent, pieces the other way. */
#include "launch/gather.h"

#include "core/clock.h"
#include "core/err.h"

#include <sys/socket.h>

/* ---- up ---- */

static int check_shares(struct sl_gather *gather, struct sl_edge *child, int count)
{
    const struct sl_frame *frame = &child->control.frame;
    size_t beside = SL_SEQ_BYTES + sl_seal_len(child->keys.sealed);

    if (frame->kind != SL_FRAME_GATHER || frame->len < beside)
        return sl_gather_wrong_frame(gather, child);
    if (frame->len - beside == gather->len * (size_t)count)
        return 0;
    sl_fail(-EPROTO,
            "rank %d gives %llu bytes to exchange %llu, rank %d gives %zu; all ranks must run the "
            "same program",
            child->rank, (unsigned long long)(frame->len - beside) / (unsigned)count,
            (unsigned long long)gather->seq, gather->tree.rank, gather->len);
    return sl_gather_break(gather, -EPROTO, NULL);
}

/* Where the next bytes of a GATHER go, behind its head, and how many. */
static uint8_t *room_for(const struct sl_gather *gather, struct sl_edge *child, size_t shares,
                         size_t *want)
{
    if (child->got < SL_SEQ_BYTES) {
        *want = SL_SEQ_BYTES - child->got;
        return child->seq + child->got;
    }
    if (child->got < SL_SEQ_BYTES + shares) {
        *want = SL_SEQ_BYTES + shares - child->got;
        return sl_gather_share(gather, child->rank) + (child->got - SL_SEQ_BYTES);
    }
    *want = SL_SEQ_BYTES + shares + sl_seal_len(child->keys.sealed) - child->got;
    return child->seal + (child->got - SL_SEQ_BYTES - shares);
}

/* All bytes of its shares are here. */
static int open_shares(struct sl_gather *gather, struct sl_edge *child, size_t shares)
{
    uint8_t head[SL_GATHER_HEAD_BYTES];
    uint8_t *at = sl_gather_share(gather, child->rank);

    memcpy(head, child->control.bytes, SL_FRAME_BYTES);
    memcpy(head + SL_FRAME_BYTES, child->seq, SL_SEQ_BYTES);
    if (child->keys.sealed && sl_unseal(child->keys.up, gather->seq, head, sizeof(head), at, shares,
                                        child->seal, at) != 0)
        return sl_gather_changed(gather, child);
    child->control.got = 0;
    child->in = true;
    return 0;
}

static int read_shares(struct sl_gather *gather, struct sl_edge *child, int end)
{
    size_t shares = (size_t)(end - child->rank) * gather->len, want;
    size_t all = SL_SEQ_BYTES + shares + sl_seal_len(child->keys.sealed);
    int err = child->got == 0 ? check_shares(gather, child, end - child->rank) : 0;

    while (err == 0 && child->got < all) {
        uint8_t *into = room_for(gather, child, shares, &want);
        ssize_t got = recv(child->fd, into, want, MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (got <= 0)
            return sl_gather_gone(gather, child, got < 0 ? errno : 0);
        child->got += (size_t)got;
        if (child->got == SL_SEQ_BYTES && sl_get64(child->seq) != gather->seq)
            return sl_gather_wrong_seq(gather, child, child->seq);
    }
    return err != 0 ? err : open_shares(gather, child, shares);
}

int sl_gather_read_child(struct sl_gather *gather, int i)
{
    struct sl_edge *child = &gather->down[i];
    int end = gather->tree.child[i + 1], err = sl_control_head(&child->control, child->fd);

    if (err == 0)
        return 0;
    if (err == -EBADMSG)
        return sl_gather_break(gather, err, NULL);
    if (err < 0)
        return sl_gather_gone(gather, child, -err);
    if (child->control.frame.kind == SL_FRAME_FAILED)
        return sl_gather_failed(gather, child);
    if (child->control.frame.kind == SL_FRAME_MISSING)
        return sl_gather_missing(gather, child, end);
    return read_shares(gather, child, end);
}

/* The head of a frame of len bytes behind its number. */
static void make_head(const struct sl_gather *gather, enum sl_frame_kind kind, size_t len,
                      uint8_t out[SL_GATHER_HEAD_BYTES])
{
    sl_frame_make(kind, SL_SEQ_BYTES + len, out);
    sl_put(out + SL_FRAME_BYTES, gather->seq, SL_SEQ_BYTES);
}

/* Piece i as it travels, from the shares that are here. */
static int make_piece(struct sl_gather *gather, unsigned i)
{
    const struct sl_piece *piece = &gather->pieces[i];
    size_t len = (size_t)(piece->end - piece->first) * gather->len;
    uint8_t *at = gather->wire + piece->at, *in = sl_gather_share(gather, piece->first);

    make_head(gather, SL_FRAME_RESULT, len + sl_seal_len(gather->sealed), at);
    if (gather->sealed)
        return sl_seal(gather->job.result, sl_piece_number(gather->seq, i), at,
                       SL_GATHER_HEAD_BYTES, in, len, at + SL_GATHER_HEAD_BYTES);
    if (len > 0)
        memcpy(at + SL_GATHER_HEAD_BYTES, in, len);
    return 0;
}

/* The shares of the subtree are here. */
static int make_own(struct sl_gather *gather)
{
    size_t len = (size_t)sl_gather_subtree(gather) * gather->len;
    uint8_t head[SL_GATHER_HEAD_BYTES];
    int err = 0;

    make_head(gather, SL_FRAME_GATHER, len + sl_seal_len(gather->sealed), head);
    if (gather->sealed && gather->tree.parent >= 0)
        err = sl_seal(gather->up.keys.up, gather->seq, head, sizeof(head),
                      sl_gather_share(gather, gather->tree.rank), len, gather->share);
    for (unsigned i = gather->own_first; i < gather->own_after && err == 0; i++)
        err = make_piece(gather, i);
    if (err != 0)
        return sl_gather_break(gather, err, NULL);
    if (gather->ready == gather->own_first)
        gather->ready = gather->own_after;
    gather->gathered = true;
    if (gather->inquiry_ns != 0) /* late, but all are here */
        gather->deadline_ns = sl_io_now() + SL_GATHER_PATIENCE_MS * SL_NS_PER_MS;
    return 0;
}

/* Sends what is left of the head and the shares of the subtree. */
static int send_shares(struct sl_gather *gather)
{
    struct sl_edge *up = &gather->up;
    size_t len = (size_t)sl_gather_subtree(gather) * gather->len + sl_seal_len(gather->sealed);
    const uint8_t *body =
        gather->sealed ? gather->share : sl_gather_share(gather, gather->tree.rank);
    uint8_t head[SL_GATHER_HEAD_BYTES];

    make_head(gather, SL_FRAME_GATHER, len, head);
    while (up->sent < sizeof(head) + len) {
        bool in_head = up->sent < sizeof(head);
        const uint8_t *from = in_head ? head + up->sent : body + (up->sent - sizeof(head));
        size_t want = (in_head ? sizeof(head) : sizeof(head) + len) - up->sent;
        ssize_t n = send(up->fd, from, want,
                         MSG_NOSIGNAL | MSG_DONTWAIT | (in_head && len > 0 ? MSG_MORE : 0));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return sl_gather_refused(gather, up, errno);
        up->sent += (size_t)n;
    }
    return 0;
}

/* ---- down ---- */

/* A whole piece has come from above. */
static int take_piece(struct sl_gather *gather)
{
    struct sl_edge *up = &gather->up;
    const struct sl_piece *piece = &gather->pieces[gather->ready];
    const uint8_t *at = gather->wire + piece->at, *body = at + SL_GATHER_HEAD_BYTES;
    size_t len = (size_t)(piece->end - piece->first) * gather->len;

    if (sl_get64(at + SL_FRAME_BYTES) != gather->seq)
        return sl_gather_wrong_seq(gather, up, at + SL_FRAME_BYTES);
    if (gather->sealed && sl_unseal(gather->job.result, sl_piece_number(gather->seq, gather->ready),
                                    at, SL_GATHER_HEAD_BYTES, body, len, body + len,
                                    sl_gather_share(gather, piece->first)) != 0)
        return sl_gather_changed(gather, up);
    if (!gather->sealed && len > 0)
        memcpy(sl_gather_share(gather, piece->first), body, len);
    up->control.got = up->got = 0;
    gather->ready++;
    if (gather->ready == gather->own_first)
        gather->ready = gather->own_after;
    return 0;
}

/* Reads what is there of the next piece, behind its head. 1: all of it. */
static int read_piece(struct sl_gather *gather)
{
    struct sl_edge *up = &gather->up;
    const struct sl_piece *piece = &gather->pieces[gather->ready];
    size_t all = piece[1].at - piece[0].at;

    if (!gather->gathered || up->control.frame.len != all - SL_FRAME_BYTES) {
        sl_fail(-EPROTO, "rank %d gave a piece of %llu bytes where exchange %llu needs %zu",
                up->rank, (unsigned long long)up->control.frame.len,
                (unsigned long long)gather->seq, all - SL_FRAME_BYTES);
        return sl_gather_break(gather, -EPROTO, NULL);
    }
    if (up->got == 0) {
        memcpy(gather->wire + piece->at, up->control.bytes, SL_FRAME_BYTES);
        up->got = SL_FRAME_BYTES;
    }
    while (up->got < all) {
        ssize_t n = recv(up->fd, gather->wire + piece->at + up->got, all - up->got, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return sl_gather_gone(gather, up, n < 0 ? errno : 0);
        up->got += (size_t)n;
    }
    return take_piece(gather) ?: 1;
}

int sl_gather_read_parent(struct sl_gather *gather)
{
    struct sl_edge *up = &gather->up;
    int more = 1;

    while (more == 1 && gather->ready < gather->count) {
        int err = sl_control_head(&up->control, up->fd);

        if (err == 0)
            return 0;
        if (err == -EBADMSG)
            return sl_gather_break(gather, err, NULL);
        if (err < 0)
            return sl_gather_gone(gather, up, -err);
        switch (up->control.frame.kind) {
        case SL_FRAME_FAILED: return sl_gather_failed(gather, up);
        case SL_FRAME_RESULT: more = read_piece(gather); break;
        case SL_FRAME_INQUIRE:
            up->control.got = 0;
            if (up->control.frame.len != 0)
                return sl_gather_wrong_frame(gather, up);
            if (!gather->gathered && gather->inquiry_ns == 0)
                sl_gather_inquire(gather);
            break;
        default: return sl_gather_wrong_frame(gather, up);
        }
    }
    return more < 0 ? more : 0;
}

/* Its own pieces are behind it. */
static void skip_own(const struct sl_gather *gather, struct sl_edge *child)
{
    if (child->skip < child->after && child->sent == gather->pieces[child->skip].at)
        child->sent = gather->pieces[child->after].at;
}

static int send_pieces(struct sl_gather *gather, struct sl_edge *child)
{
    for (;;) {
        size_t until = sl_gather_ready_at(gather), own = gather->pieces[child->skip].at;

        skip_own(gather, child);
        if (child->skip < child->after && child->sent < own && own < until)
            until = own;
        if (child->sent >= until)
            return 0;
        ssize_t n = send(child->fd, gather->wire + child->sent, until - child->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return sl_gather_refused(gather, child, errno);
        child->sent += (size_t)n;
    }
}

int sl_gather_move_on(struct sl_gather *gather)
{
    bool all = true;
    int err = 0;

    for (int i = 0; i < gather->tree.count; i++)
        all = all && gather->down[i].in;
    if (all && !gather->gathered)
        err = make_own(gather);
    if (err == 0 && gather->gathered && gather->tree.parent >= 0)
        err = send_shares(gather);
    for (int i = 0; i < gather->tree.count && err == 0 && gather->gathered; i++)
        err = send_pieces(gather, &gather->down[i]);
    return err;
}
