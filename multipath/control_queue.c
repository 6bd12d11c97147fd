/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages between the two ends of a connection: sent over the sideband and, as a frame,
 * over a path that is up; handled once, in the order of their numbers, by whichever way each came
 * first.
 */
#include "multipath/conn.h"
#include "multipath/iface.h"
#include "multipath/repair.h"
#include "multipath/setup.h"

#include <string.h>

#define SPARE 96 /* that callers' messages and offers leave for what cannot wait */
_Static_assert(SPARE >= SL_MP_PATHS_MAX + 16, "a DOWN of each path, a HELLO of each eight rails");
#define TELL_EVERY 8 /* handled control messages between words of it */

/* ---- out ---- */

static struct sl_mp_path *any_path(const struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path != NULL && path->state == SL_MP_PATH_UP && !path->failing &&
            sl_mp_path_has_room(path))
            return path;
    }
    return NULL;
}

/* What lies in that place of the queue. False: the peer has handled it since. */
static bool queued(struct sl_mp_conn *conn, unsigned place, struct sl_mp_control *out)
{
    const struct sl_mp_queued *q = &conn->control_queue[place];

    if (!q->is_ack && (int32_t)(q->seq - conn->control_handled) < 0)
        return false;
    if (q->is_ack)
        *out = (struct sl_mp_control){.kind = SL_MP_CONTROL_ACK};
    else
        *out = *conn->unhandled[q->seq % SL_MP_CONTROLS];
    out->handled = conn->control_told = conn->control_in;
    return true;
}

/* Sends the one in that place of the queue by a path, unless there is none with room. */
static void send_by_path(struct sl_mp_conn *conn, unsigned place)
{
    struct sl_mp_iface *iface = conn->iface;
    struct sl_mp_path *path = any_path(conn);
    struct sl_mp_frame header = {.kind = SL_MP_CONTROL};
    struct sl_mp_tx_frame *frame;
    struct sl_mp_control control;
    size_t len;

    if (path == NULL || iface->free_frame_count == 0 || !queued(conn, place, &control))
        return;
    header.number = control.seq;
    header.value = len = sl_mp_control_size(&control);
    frame = sl_container_of(sl_list_pop_front(&iface->free_frames), struct sl_mp_tx_frame, link);
    iface->free_frame_count--;
    memcpy(frame->bytes, &header, sizeof(header));
    memcpy(frame->bytes + sizeof(header), &control, len);
    frame->len = SL_MP_FRAME_BYTES + (uint32_t)len;
    conn->control_queue[place].by_path = true;
    sl_mp_path_post_control(path, frame);
}

static unsigned place_of(const struct sl_mp_conn *conn, unsigned i)
{
    return (conn->control_head + i) % SL_MP_CONTROLS;
}

/* Only a path can carry what is left: those that none had room for, or that were on one that is
 * gone. */
static void flush_by_path(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->control_count; i++) {
        const struct sl_mp_queued *q = &conn->control_queue[place_of(conn, i)];

        if (!q->arrived && !q->by_path)
            send_by_path(conn, place_of(conn, i));
    }
}

/* Gives the first one to the sideband, unless it has no need to. False: it stays where it is. */
static bool flush_first(struct sl_mp_conn *conn)
{
    const struct sl_mp_queued *q = &conn->control_queue[conn->control_head];
    struct sl_mp_control control;

    if (q->arrived || !queued(conn, conn->control_head, &control))
        return true;
    if (!conn->sideband_up)
        return q->is_ack; /* the next control message says more */
    /* Its end, if that is why not, will be told by itself. */
    return conn->sideband->iface->ops->ctrl(conn->sideband, &control,
                                            sl_mp_control_size(&control)) >= 0;
}

void sl_mp_control_flush(struct sl_mp_conn *conn)
{
    if (SL_UNLIKELY(!conn->sideband_up && conn->state == SL_MP_CONN_UP))
        flush_by_path(conn);
    while (conn->control_count > 0 && flush_first(conn)) {
        conn->control_head = place_of(conn, 1);
        conn->control_count--;
    }
}

static void push(struct sl_mp_conn *conn, struct sl_mp_queued what)
{
    unsigned place = place_of(conn, conn->control_count);

    conn->control_queue[place] = what;
    conn->control_count++;
    conn->control_told = conn->control_in; /* each says it */
    send_by_path(conn, place);
    sl_mp_control_flush(conn);
    if (conn->control_count > 0)
        sl_mp_conn_activate(conn);
}

void sl_mp_control_send(struct sl_mp_conn *conn, struct sl_mp_control *control)
{
    /* The last place is for the BYE, which may have to say that there was no other. */
    unsigned most = SL_MP_CONTROLS - (control->kind != SL_MP_CONTROL_BYE);
    struct sl_mp_control *kept;

    if (conn->control_out - conn->control_handled >= most || conn->control_count >= most - 1) {
        sl_mp_conn_fail(conn, -EHOSTUNREACH,
                        "neither a path nor the TCP connection beside them reaches %s",
                        sl_ep_peer_name(&conn->base));
        return;
    }
    kept = sl_mp_pool_take(&conn->iface->controls);
    if (kept == NULL) {
        sl_mp_conn_fail(conn, -ENOMEM, "no memory for a control message");
        return;
    }
    control->seq = conn->control_out++;
    *kept = *control;
    conn->unhandled[control->seq % SL_MP_CONTROLS] = kept;
    push(conn, (struct sl_mp_queued){.seq = control->seq});
}

/* The peer has handled those before that number. */
static void handled(struct sl_mp_conn *conn, uint32_t before)
{
    for (; conn->control_handled != before; conn->control_handled++) {
        struct sl_mp_control **place = &conn->unhandled[conn->control_handled % SL_MP_CONTROLS];

        sl_mp_pool_put(&conn->iface->controls, *place);
        *place = NULL;
    }
}

void sl_mp_controls_forget(struct sl_mp_conn *conn)
{
    handled(conn, conn->control_out);
    for (unsigned i = 0; i < SL_MP_CONTROLS; i++) {
        if (conn->inbox[i] != NULL)
            sl_mp_pool_put(&conn->iface->controls, conn->inbox[i]);
        conn->inbox[i] = NULL;
    }
    conn->control_count = 0;
}

/* The place of a frame's control message in the queue, or -1: the sideband has taken it. */
static int place_by_frame(const struct sl_mp_conn *conn, const struct sl_mp_tx_frame *frame)
{
    struct sl_mp_frame header;

    memcpy(&header, frame->bytes, sizeof(header));
    for (unsigned i = 0; i < conn->control_count; i++) {
        const struct sl_mp_queued *q = &conn->control_queue[place_of(conn, i)];

        if (q->seq == header.number && !q->is_ack)
            return (int)place_of(conn, i);
    }
    return -1;
}

void sl_mp_control_arrived(struct sl_mp_conn *conn, const struct sl_mp_tx_frame *frame)
{
    int place = place_by_frame(conn, frame);

    if (place >= 0)
        conn->control_queue[place].arrived = true;
}

void sl_mp_control_lost(struct sl_mp_conn *conn, struct sl_mp_tx_frame *frame)
{
    struct sl_mp_path *path = any_path(conn);
    int place = place_by_frame(conn, frame);

    if (path != NULL) {
        sl_mp_path_post_control(path, frame);
        return;
    }
    if (place >= 0)
        conn->control_queue[place].by_path = false;
    sl_mp_frame_free(conn->iface,
                     frame); /* the sideband has it too, or flush_by_path() will see to it */
}

void sl_mp_controls_requeue(struct sl_mp_conn *conn)
{
    conn->control_head = conn->control_count = 0;
    for (uint32_t seq = conn->control_handled; seq != conn->control_out; seq++)
        conn->control_queue[conn->control_count++] = (struct sl_mp_queued){.seq = seq};
    sl_mp_conn_activate(conn);
}

void sl_mp_controls_stranded(struct sl_mp_path *path)
{
    for (uint32_t i = path->retired; i != path->posted; i++) {
        const struct sl_mp_wr *wr = &path->wrs[i % SL_MP_WINDOW];
        int place = wr->kind == SL_MP_WR_CONTROL ? place_by_frame(path->conn, wr->frame) : -1;

        if (place >= 0)
            path->conn->control_queue[place].by_path = false;
    }
}

bool sl_mp_control_room(const struct sl_mp_conn *conn)
{
    return conn->control_out - conn->control_handled < SL_MP_CONTROLS - SPARE &&
           conn->control_count < SL_MP_CONTROLS - SPARE;
}

int sl_mp_ctrl(struct sl_ep *base, const void *msg, size_t len)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_CALLER, .epoch = (uint16_t)len};

    if (len > SL_CTRL_MAX)
        return sl_fail(-EINVAL, "a control message of %zu bytes; %d is the most", len, SL_CTRL_MAX);
    if (conn->state != SL_MP_CONN_UP || conn->left)
        return sl_mp_not_up(conn);
    if (!sl_mp_control_room(conn))
        return -EAGAIN;
    memcpy(control.caller, msg, len);
    sl_mp_control_send(conn, &control);
    return 0;
}

/* ---- in ---- */

void sl_mp_control_take(struct sl_mp_conn *conn, const void *bytes, size_t len)
{
    struct sl_mp_control control;
    int err = sl_mp_control_read(bytes, len, &control);

    if (err == 0)
        err = conn->iface->lanes->check(&control);
    if (err == 0 && (int32_t)(control.handled - conn->control_handled) > 0) {
        if (control.handled - conn->control_handled > conn->control_out - conn->control_handled)
            err = sl_fail(-EPROTO, "%s has handled control message %u, of %u",
                          sl_ep_peer_name(&conn->base), control.handled, conn->control_out);
        else
            handled(conn, control.handled);
        if (!sl_list_empty(&conn->telling))
            sl_mp_conn_activate(conn); /* there is room */
        if (err == 0 && conn->hello_due)
            sl_mp_hello_send(conn);
    }
    if (err == 0 &&
        (control.kind == SL_MP_CONTROL_ACK || (int32_t)(control.seq - conn->control_in) < 0))
        return; /* or it came by the other way before */
    if (err == 0 && control.seq - conn->control_in >= SL_MP_CONTROLS)
        err = sl_fail(-EPROTO, "control message %u of %s came when %u was due", control.seq,
                      sl_ep_peer_name(&conn->base), conn->control_in);
    if (err != 0) {
        sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
        return;
    }
    struct sl_mp_control **place = &conn->inbox[control.seq % SL_MP_CONTROLS];

    if (*place == NULL)
        *place = sl_mp_pool_take(&conn->iface->controls);
    if (*place == NULL) {
        sl_mp_conn_fail(conn, -ENOMEM, "no memory for a control message");
        return;
    }
    **place = control;
    sl_mp_conn_activate(conn);
}

int sl_mp_inbox_run(struct sl_mp_conn *conn)
{
    const struct sl_handler *handler = &conn->iface->base.handler;
    bool tell = false;
    int count = 0;

    /* The peer may be connected a moment before this end. Its words wait until our hello, always
     * the first of ours, is said: offers that they call for would overtake it. */
    if (conn->control_out == 0)
        return 0;
    while (conn->inbox[conn->control_in % SL_MP_CONTROLS] != NULL &&
           conn->state != SL_MP_CONN_DOWN) {
        unsigned place = conn->control_in++ % SL_MP_CONTROLS;
        struct sl_mp_control control = *conn->inbox[place];

        if (control.kind == SL_MP_CONTROL_OFFER && conn->iface->opens == 0) {
            conn->control_in--; /* in the next round */
            break;
        }
        sl_mp_pool_put(&conn->iface->controls, conn->inbox[place]);
        conn->inbox[place] = NULL;
        tell |= control.kind == SL_MP_CONTROL_HELLO; /* the peer's next one waits for the word */
        if (control.kind != SL_MP_CONTROL_CALLER)
            sl_mp_on_control(conn, &control);
        else if (handler->ctrl != NULL && !conn->lingers)
            handler->ctrl(handler->arg, &conn->base, control.caller, control.epoch);
        count++;
    }
    tell &= conn->control_in != conn->control_told;
    if ((tell || conn->control_in - conn->control_told >= TELL_EVERY) &&
        conn->state != SL_MP_CONN_DOWN) {
        if (conn->control_count < SL_MP_CONTROLS - 2)
            push(conn, (struct sl_mp_queued){.is_ack = true});
    }
    return count;
}
