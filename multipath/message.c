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
        const struct sl_mp_drop *drop = &conn->drops.at[conn->drops.count - 1];
        struct sl_mp_tx_frame *frame =
            sl_mp_frame_new(conn, SL_MP_DROP, drop->channel->base.id, drop->number);

        if (frame == NULL)
            break;
        drop->channel->base.sent++;
        conn->drops.count--;
        sl_mp_frame_post(conn, frame, 0);
        count++;
    }
    return count;
}

/* The whole list, so that what comes back into it waits for the next turn. */
static void take_list(struct sl_node *from, struct sl_node *to)
{
    struct sl_node *node;

    sl_list_init(to);
    while ((node = sl_list_pop_front(from)) != NULL)
        sl_list_push_back(to, node);
}

static struct sl_mp_rx_msg *msg_of(struct sl_node *node)
{
    return sl_container_of(node, struct sl_mp_rx_msg, link);
}

/* Frames that found the way into their GPU's memory busy. */
static int push_gpu(struct sl_mp_conn *conn)
{
    struct sl_node turn, *node;
    int count = 0;

    take_list(&conn->gpu_waits, &turn);
    while ((node = sl_list_pop_front(&turn)) != NULL)
        count += sl_mp_rx_copy(conn, msg_of(node));
    return count;
}

static void push_starved(struct sl_mp_conn *conn)
{
    struct sl_node turn, *node;

    take_list(&conn->starved, &turn);
    while ((node = sl_list_pop_front(&turn)) != NULL)
        sl_mp_cts_more(conn, msg_of(node));
}

__attribute__((noinline)) static int push_late(struct sl_mp_conn *conn)
{
    struct sl_node turn, *node;
    int count = 0;

    take_list(&conn->late, &turn);
    while ((node = sl_list_pop_front(&turn)) != NULL) {
        sl_mp_cts_late(conn, msg_of(node));
        count++;
    }
    return count;
}

int sl_mp_conn_push(struct sl_mp_conn *conn)
{
    int count = push_repeated(conn);

    if (SL_UNLIKELY(!sl_list_empty(&conn->late)))
        count += push_late(conn);
    if (SL_UNLIKELY(!sl_list_empty(&conn->gpu_waits)))
        count += push_gpu(conn);
    if (conn->unannounced > 0)
        sl_mp_cts_announce(conn);
    count += push_drops(conn);
    if (!sl_list_empty(&conn->starved))
        push_starved(conn);
    if (conn->credits_owed >= SL_MP_CREDITS_DUE) {
        struct sl_mp_tx_frame *frame = sl_mp_frame_new(conn, SL_MP_CREDIT, 0, 0);

        if (frame != NULL)
            sl_mp_frame_post(conn, frame, 0);
    }
    if (SL_UNLIKELY(!sl_list_empty(&conn->telling)))
        count += sl_mp_channels_push(conn);
    return count + sl_mp_deal(conn);
}

void sl_mp_cancel(struct sl_mp_conn *conn, int status)
{
    struct sl_node *node, reqs;

    while ((node = sl_list_pop_front(&conn->repeat)) != NULL)
        sl_mp_frame_free(conn->iface, sl_container_of(node, struct sl_mp_tx_frame, link));
    conn->drops.count = 0;
    sl_mp_write_cancel(conn);
    sl_mp_cts_cancel(conn);
    sl_list_init(&reqs);
    /* Memory that is the user's again is written to by nobody. */
    sl_list_foreach(&conn->all_channels, channel)
    {
        sl_mp_channel_strip(sl_container_of(channel, struct sl_mp_channel, all), &reqs);
    }
    sl_reqs_end(&reqs, status);
}

void sl_mp_drops_forget(struct sl_mp_channel *channel)
{
    struct sl_mp_drops *drops = &channel->conn->drops;
    unsigned left = 0;

    for (unsigned i = 0; i < drops->count; i++)
        if (drops->at[i].channel != channel)
            drops->at[left++] = drops->at[i];
    drops->count = left;
}

void sl_mp_forget(struct sl_mp_conn *conn)
{
    free(conn->drops.at);
    free(conn->redo);
}
