/* SPDX-License-Identifier: Apache-2.0 */
/* What messages had to wait for, and the end of all of them. */
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"

#include <stdlib.h>

/* ---- what had to wait ---- */

static int push_repeated(struct sl_mp_conn *conn)
{
    int count = 0;

    while (!sl_list_empty(&conn->repeat) && conn->frame_path != NULL &&
           !conn->frame_path->failing && sl_mp_path_has_room(conn->frame_path)) {
        struct sl_node *node = sl_list_pop_front(&conn->repeat);

        sl_mp_path_post_frame(conn->frame_path, sl_container_of(node, struct sl_mp_tx_frame, link));
        count++;
    }
    return count;
}

static int push_drops(struct sl_mp_conn *conn)
{
    int count = 0;

    while (conn->drops.count > 0) {
        struct sl_mp_tx_frame *frame =
            sl_mp_frame_new(conn, SL_MP_DROP, conn->drops.at[conn->drops.count - 1]);

        if (frame == NULL)
            break;
        conn->drops.count--;
        sl_mp_frame_post(conn, frame);
        count++;
    }
    return count;
}

/* Frames that found the way into their GPU's memory busy. */
static int push_gpu(struct sl_mp_conn *conn)
{
    unsigned waits = conn->gpu_waits;
    int count = 0;

    conn->gpu_waits = 0;
    for (uint32_t number = conn->rx_oldest; number != conn->rx_next && waits > 0; number++) {
        const struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);

        if (msg->req == NULL || !msg->has_frame)
            continue;
        waits--;
        count += sl_mp_rx_copy(conn, number);
    }
    return count;
}

static int push_late(struct sl_mp_conn *conn)
{
    int count = 0;

    while (conn->late.count > 0) {
        uint32_t number = conn->late.at[--conn->late.count];

        sl_mp_rx_end(conn, number, sl_mp_rx_at(conn, number)->status);
        count++;
    }
    return count;
}

int sl_mp_conn_push(struct sl_mp_conn *conn)
{
    int count = push_repeated(conn) + push_late(conn);

    if (SL_UNLIKELY(conn->gpu_waits != 0))
        count += push_gpu(conn);
    sl_mp_cts_announce(conn);
    count += push_drops(conn);
    if (conn->wants_staging) {
        conn->wants_staging = false;
        for (uint32_t number = conn->rx_oldest; number != conn->rx_next; number++)
            if (sl_mp_rx_at(conn, number)->has_rts || sl_mp_rx_at(conn, number)->mr != NULL)
                sl_mp_cts_more(conn, number);
    }
    if (conn->credits_owed >= SL_MP_CREDITS_DUE) {
        struct sl_mp_tx_frame *frame = sl_mp_frame_new(conn, SL_MP_CREDIT, 0);

        if (frame != NULL)
            sl_mp_frame_post(conn, frame);
    }
    return count + sl_mp_deal(conn);
}

void sl_mp_cancel(struct sl_mp_conn *conn, int status)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&conn->repeat)) != NULL)
        sl_mp_frame_free(conn->iface, sl_container_of(node, struct sl_mp_tx_frame, link));
    conn->late.count = conn->drops.count = 0;
    sl_mp_gpu_forget(conn); /* memory that is the user's again is written to by nobody */
    sl_mp_write_cancel(conn);
    sl_mp_cts_cancel(conn);
    while (conn->tx_oldest != conn->tx_next) {
        struct sl_mp_tx_msg *msg = sl_mp_tx_at(conn, conn->tx_oldest);

        if (msg == NULL)
            conn->tx_oldest++;
        else
            sl_req_end(sl_mp_tx_end(conn, msg), status);
    }
    /* Frames that came for receives that never will be: their buffers go back. */
    for (uint32_t i = 0; i < SL_MP_RX_QUEUE; i++)
        if (conn->rx[i] != NULL && conn->rx[i]->has_frame)
            sl_mp_rx_release(conn, conn->rx[i]);
    for (; conn->rx_oldest != conn->rx_next; conn->rx_oldest++) {
        struct sl_req *req = sl_mp_rx_at(conn, conn->rx_oldest)->req;

        sl_mp_rx_at(conn, conn->rx_oldest)->req = NULL;
        if (req != NULL)
            sl_req_end(req, status);
    }
    for (uint32_t i = 0; i < SL_MP_RX_QUEUE; i++) {
        if (conn->rx[i] != NULL)
            sl_mp_pool_put(&conn->iface->rx_msgs, conn->rx[i]);
        conn->rx[i] = NULL;
    }
}

void sl_mp_forget(struct sl_mp_conn *conn)
{
    free(conn->drops.at);
    free(conn->late.at);
    free(conn->redo);
}
