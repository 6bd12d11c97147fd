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

#define SPARE (SL_MP_CONTROLS / 2) /* that callers' messages leave for paths */
#define TELL_EVERY 8               /* handled control messages between words of it */

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

/* Sends the one in that place of the queue by a path, unless there is none with room. */
static void send_by_path(struct sl_mp_conn *conn, unsigned place)
{
    const struct sl_mp_control *control = &conn->control_queue[place];
    struct sl_mp_iface *iface = conn->iface;
    struct sl_mp_path *path = any_path(conn);
    uint32_t len = (uint32_t)sl_mp_control_size(control);
    struct sl_mp_frame header = {.kind = SL_MP_CONTROL, .number = control->seq, .len = len};
    struct sl_mp_tx_frame *frame;

    if (path == NULL || iface->free_frame_count == 0)
        return;
    frame = sl_container_of(sl_list_pop_front(&iface->free_frames), struct sl_mp_tx_frame, link);
    iface->free_frame_count--;
    memcpy(frame->bytes, &header, sizeof(header));
    memcpy(frame->bytes + sizeof(header), control, len);
    frame->len = SL_MP_FRAME_BYTES + len;
    conn->by_path[place] = true;
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
    for (unsigned i = 0; i < conn->control_count; i++)
        if (!conn->arrived[place_of(conn, i)] && !conn->by_path[place_of(conn, i)])
            send_by_path(conn, place_of(conn, i));
}

void sl_mp_control_flush(struct sl_mp_conn *conn)
{
    if (SL_UNLIKELY(!conn->sideband_up && conn->state == SL_MP_CONN_UP))
        flush_by_path(conn);
    while (conn->control_count > 0) {
        const struct sl_mp_control *control = &conn->control_queue[conn->control_head];
        bool needed = control->kind != SL_MP_CONTROL_ACK; /* the next control message says more */

        if (!conn->arrived[conn->control_head] && (needed || conn->sideband_up)) {
            if (!conn->sideband_up)
                return;
            int err = conn->sideband->iface->ops->ctrl(conn->sideband, control,
                                                       sl_mp_control_size(control));

            if (err == -EAGAIN)
                return;
            if (err < 0) {
                conn->sideband_up = false; /* its end will be told by itself */
                return;
            }
        }
        conn->control_head = place_of(conn, 1);
        conn->control_count--;
    }
}

static void push(struct sl_mp_conn *conn, struct sl_mp_control *control)
{
    unsigned place = place_of(conn, conn->control_count);

    control->handled = conn->control_told = conn->control_in;
    conn->control_queue[place] = *control;
    conn->arrived[place] = conn->by_path[place] = false;
    conn->control_count++;
    send_by_path(conn, place);
    sl_mp_control_flush(conn);
    if (conn->control_count > 0)
        sl_mp_conn_activate(conn);
}

void sl_mp_control_send(struct sl_mp_conn *conn, struct sl_mp_control *control)
{
    if (conn->control_out - conn->control_handled >= SL_MP_CONTROLS ||
        conn->control_count >= SL_MP_CONTROLS - 1) {
        sl_mp_conn_fail(conn, -EHOSTUNREACH,
                        "neither a path nor the TCP connection beside them reaches %s",
                        sl_ep_peer_name(&conn->base));
        return;
    }
    control->seq = conn->control_out++;
    conn->unhandled[control->seq % SL_MP_CONTROLS] = *control;
    push(conn, control);
}

/* The place of a frame's control message in the queue, or -1: the sideband has taken it. */
static int place_by_frame(const struct sl_mp_conn *conn, const struct sl_mp_tx_frame *frame)
{
    struct sl_mp_frame header;

    memcpy(&header, frame->bytes, sizeof(header));
    for (unsigned i = 0; i < conn->control_count; i++)
        if (conn->control_queue[place_of(conn, i)].seq == header.number &&
            conn->control_queue[place_of(conn, i)].kind != SL_MP_CONTROL_ACK)
            return (int)place_of(conn, i);
    return -1;
}

void sl_mp_control_arrived(struct sl_mp_conn *conn, const struct sl_mp_tx_frame *frame)
{
    int place = place_by_frame(conn, frame);

    if (place >= 0)
        conn->arrived[place] = true;
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
        conn->by_path[place] = false;
    sl_mp_frame_free(conn->iface,
                     frame); /* the sideband has it too, or flush_by_path() will see to it */
}

void sl_mp_controls_requeue(struct sl_mp_conn *conn)
{
    conn->control_head = conn->control_count = 0;
    for (uint32_t seq = conn->control_handled; seq != conn->control_out; seq++) {
        conn->control_queue[conn->control_count] = conn->unhandled[seq % SL_MP_CONTROLS];
        conn->arrived[conn->control_count] = conn->by_path[conn->control_count] = false;
        conn->control_count++;
    }
    sl_mp_conn_activate(conn);
}

void sl_mp_controls_stranded(struct sl_mp_path *path)
{
    for (uint32_t i = path->retired; i != path->posted; i++) {
        const struct sl_mp_wr *wr = &path->wrs[i % SL_MP_WINDOW];
        int place = wr->kind == SL_MP_WR_CONTROL ? place_by_frame(path->conn, wr->frame) : -1;

        if (place >= 0)
            path->conn->by_path[place] = false;
    }
}

int sl_mp_ctrl(struct sl_ep *base, const void *msg, size_t len)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_CALLER, .epoch = (uint16_t)len};

    if (len > SL_CTRL_MAX)
        return sl_fail(-EINVAL, "a control message of %zu bytes; %d is the most", len, SL_CTRL_MAX);
    if (conn->state != SL_MP_CONN_UP || conn->left)
        return sl_mp_not_up(conn);
    if (conn->control_out - conn->control_handled >= SL_MP_CONTROLS - SPARE ||
        conn->control_count >= SL_MP_CONTROLS - SPARE)
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
        conn->control_handled = control.handled;
        if (conn->hello_due)
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
    conn->inbox[control.seq % SL_MP_CONTROLS] = control;
    conn->in_inbox[control.seq % SL_MP_CONTROLS] = true;
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
    while (conn->in_inbox[conn->control_in % SL_MP_CONTROLS] && conn->state != SL_MP_CONN_DOWN) {
        unsigned place = conn->control_in++ % SL_MP_CONTROLS;
        struct sl_mp_control control = conn->inbox[place];

        if (control.kind == SL_MP_CONTROL_OFFER && conn->iface->opens == 0) {
            conn->control_in--; /* in the next round */
            break;
        }
        conn->in_inbox[place] = false;
        tell |= control.kind == SL_MP_CONTROL_HELLO; /* the peer's next one waits for the word */
        if (control.kind != SL_MP_CONTROL_CALLER)
            sl_mp_on_control(conn, &control);
        else if (handler->ctrl != NULL)
            handler->ctrl(handler->arg, &conn->base, control.caller, control.epoch);
        count++;
    }
    tell &= conn->control_in != conn->control_told;
    if ((tell || conn->control_in - conn->control_told >= TELL_EVERY) &&
        conn->state != SL_MP_CONN_DOWN) {
        struct sl_mp_control control = {.kind = SL_MP_CONTROL_ACK};

        if (conn->control_count < SL_MP_CONTROLS - 1)
            push(conn, &control);
    }
    return count;
}
