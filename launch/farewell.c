/* SPDX-License-Identifier: Apache-2.0 */
/* How an exchange ends when something went wrong: neighbours hear why, and pass it on. */
#include "launch/gather.h"

#include "core/clock.h"
#include "core/err.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#define FAREWELL_MS 1000 /* how long an error may take to reach the neighbours */

/* The rest of the piece that has begun to go to this child: no frame may follow before it. *len is
 * 0 between pieces. */
static const uint8_t *begun(const struct sl_gather *gather, const struct sl_edge *child,
                            size_t *len)
{
    const struct sl_piece *piece = gather->pieces;

    *len = 0;
    if (child->sent == 0 || child->sent == piece[gather->count].at)
        return NULL;
    while (piece[1].at <= child->sent)
        piece++;
    if (child->sent > piece->at)
        *len = piece[1].at - child->sent;
    return gather->wire + child->sent;
}

static void say_failed(struct sl_gather *gather, struct sl_edge *edge, const uint8_t *body,
                       size_t len, uint64_t until_ns)
{
    uint8_t frame[SL_FRAME_BYTES + SL_CONTROL_MAX];
    bool up = !sl_gather_is_child(gather, edge);
    size_t rest = 0;
    const uint8_t *bytes = up ? NULL : begun(gather, edge, &rest);
    /* Shares that are half sent would have to be ended first; the end of the stream says enough. */
    bool partial =
        up && edge->sent > 0 &&
        edge->sent < sl_gather_around(gather) + gather->len * (size_t)sl_gather_subtree(gather);
    int all = partial ? -1
                      : sl_control_make(&edge->keys, up, SL_FRAME_FAILED, SL_NUMBER_FAILED, body,
                                        len, frame);

    if (rest > 0 && sl_io_send(edge->fd, bytes, rest, 0, until_ns) != 0)
        all = -1;
    if (all > 0)
        (void)sl_io_send(edge->fd, frame, (size_t)all, 0, until_ns);
    shutdown(edge->fd, SHUT_WR);
}

int sl_gather_break(struct sl_gather *gather, int code, const struct sl_edge *except)
{
    uint64_t until_ns = sl_io_now() + FAREWELL_MS * SL_NS_PER_MS;
    uint8_t body[4 + SL_SENTENCE_MAX];
    size_t len = sl_sentence_make(code, sluice_last_error(), body);

    if (gather->broken == 0) {
        gather->broken = code;
        snprintf(gather->why, sizeof(gather->why), "%s", sluice_last_error());
        if (gather->up.fd >= 0 && &gather->up != except)
            say_failed(gather, &gather->up, body, len, until_ns);
        for (int i = 0; i < gather->tree.count; i++)
            if (gather->down[i].fd >= 0 && &gather->down[i] != except)
                say_failed(gather, &gather->down[i], body, len, until_ns);
    }
    return sl_fail(gather->broken, "%s", gather->why);
}

/* The root's verdict lies here already: neighbours that are gone went for its reason. */
static bool is_over(struct sl_gather *gather)
{
    struct sl_edge *up = &gather->up;

    return up->fd >= 0 && up->got == 0 && gather->ready < gather->count &&
           sl_control_head(&up->control, up->fd) == 1 && up->control.frame.kind == SL_FRAME_FAILED;
}

int sl_gather_gone(struct sl_gather *gather, struct sl_edge *edge, int why)
{
    bool reset = why == 0 || why == EPIPE || why == ECONNRESET;

    if (sl_gather_is_child(gather, edge) && gather->broken == 0 && is_over(gather))
        return sl_gather_failed(gather, &gather->up);
    sl_fail(-ECONNRESET, "rank %d went away during exchange %llu%s%s; see its output", edge->rank,
            (unsigned long long)gather->seq, reset ? "" : ": ", reset ? "" : strerror(why));
    return sl_gather_break(gather, -ECONNRESET, edge);
}

int sl_gather_failed(struct sl_gather *gather, struct sl_edge *edge)
{
    uint64_t until_ns = sl_io_now() + FAREWELL_MS * SL_NS_PER_MS;
    int err;

    while ((err = sl_control_read(&edge->control, edge->fd)) == 0)
        if ((err = sl_io_await(edge->fd, POLLIN, until_ns)) != 0)
            break;
    if (err < 0)
        return sl_gather_gone(gather, edge, -err);
    err = sl_control_failed(&edge->control, &edge->keys, sl_gather_is_child(gather, edge),
                            edge->rank);
    return sl_gather_break(gather, err, edge);
}

int sl_gather_refused(struct sl_gather *gather, struct sl_edge *edge, int why)
{
    if (edge->control.got < SL_FRAME_BYTES && sl_control_head(&edge->control, edge->fd) == 1 &&
        edge->control.frame.kind == SL_FRAME_FAILED)
        return sl_gather_failed(gather, edge);
    return sl_gather_gone(gather, edge, why);
}

int sl_gather_changed(struct sl_gather *gather, const struct sl_edge *edge)
{
    bool from_parent = !sl_gather_is_child(gather, edge);

    sl_fail(-EBADMSG,
            "what came from rank %d%s%s in exchange %llu was changed on the way: somebody between "
            "the two rewrites it",
            edge->rank, from_parent ? " at " : "", from_parent ? edge->name : "",
            (unsigned long long)gather->seq);
    return sl_gather_break(gather, -EBADMSG, NULL);
}

int sl_gather_wrong_frame(struct sl_gather *gather, const struct sl_edge *edge)
{
    sl_fail(-EBADMSG, "rank %d sent a frame of kind %d of %llu bytes in exchange %llu", edge->rank,
            (int)edge->control.frame.kind, (unsigned long long)edge->control.frame.len,
            (unsigned long long)gather->seq);
    return sl_gather_break(gather, -EBADMSG, NULL);
}

int sl_gather_wrong_seq(struct sl_gather *gather, const struct sl_edge *edge, const uint8_t *seq)
{
    sl_fail(-EPROTO, "rank %d is at exchange %llu, rank %d at exchange %llu", edge->rank,
            (unsigned long long)sl_get64(seq), gather->tree.rank, (unsigned long long)gather->seq);
    return sl_gather_break(gather, -EPROTO, NULL);
}
