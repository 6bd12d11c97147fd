/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that wait for their receive, or for the way into its GPU's memory. */
#include "multipath/conn.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"

#include <stdlib.h>
#include <string.h>

/* Its buffer, or the place of its copy, is free, and the peer has its credit back. */
static void place_free(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    if (msg->rail == NULL)
        conn->copies_used &=
            ~(1u << ((size_t)(msg->bytes - conn->copies) / conn->iface->slot_bytes));
    sl_mp_release(conn->iface, msg->rail, msg->buffer);
    msg->rail = NULL;
    conn->held--;
    sl_mp_owe_credit(conn);
}

void sl_mp_rx_release(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    if (msg->is_kept) {
        conn->kept--;
        free((void *)(uintptr_t)msg->bytes);
    } else {
        place_free(conn, msg);
    }
    msg->bytes = NULL;
    msg->has_frame = msg->is_kept = false;
}

bool sl_mp_rx_waits(const struct sl_mp_conn *conn, const struct sl_mp_channel *but)
{
    for (const struct sl_node *node = conn->all_channels.next; node != &conn->all_channels;
         node = node->next) {
        const struct sl_mp_channel *channel =
            sl_container_of(node, const struct sl_mp_channel, all);

        if (channel != but && channel->rx_oldest != channel->rx_next)
            return true;
    }
    return false;
}

/* The bytes of one that is not kept yet move to the heap, where they hold nobody up. Without memory
 * they stay in place. */
static void keep(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    uint8_t *bytes = malloc(msg->len + 1);

    if (bytes == NULL)
        return;
    memcpy(bytes, msg->bytes, msg->len);
    place_free(conn, msg);
    msg->bytes = bytes;
    msg->is_kept = true;
    conn->kept++;
}

void sl_mp_keep_held(struct sl_mp_conn *conn)
{
    sl_list_foreach(&conn->all_channels, node)
    {
        struct sl_mp_channel *channel = sl_container_of(node, struct sl_mp_channel, all);

        for (uint32_t number = channel->rx_next; number != channel->rx_known; number++) {
            struct sl_mp_rx_msg *msg = sl_mp_rx_at(channel, number);

            if (conn->held <= SL_MP_HELD_MAX)
                return;
            if (msg->has_frame && !msg->is_kept)
                keep(conn, msg);
        }
    }
}

void sl_mp_keep_left(struct sl_mp_channel *channel)
{
    for (uint32_t number = channel->rx_next; number != channel->rx_known; number++) {
        struct sl_mp_rx_msg *msg = sl_mp_rx_at(channel, number);

        if (msg->has_frame && !msg->is_kept)
            keep(channel->conn, msg);
    }
}

void sl_mp_keep_all(struct sl_mp_conn *conn, const struct sl_mp_rail *rail)
{
    sl_list_foreach(&conn->all_channels, node)
    {
        struct sl_mp_channel *channel = sl_container_of(node, struct sl_mp_channel, all);

        for (uint32_t number = channel->rx_oldest; number != channel->rx_known; number++) {
            struct sl_mp_rx_msg *msg = sl_mp_rx_at(channel, number);

            if (msg != NULL && msg->has_frame && !msg->is_kept && msg->rail == rail)
                keep(conn, msg);
        }
    }
}

/* A place for the bytes of a frame. NULL: all credits of the peer are used up, and it sent one
 * more. */
static uint8_t *copy_take(struct sl_mp_conn *conn)
{
    unsigned i = (unsigned)__builtin_ctz(~conn->copies_used | 1u << 31);

    if (i >= SL_MP_CREDITS)
        return NULL;
    conn->copies_used |= 1u << i;
    return conn->copies + (size_t)i * conn->iface->slot_bytes;
}

void sl_mp_hold(struct sl_mp_path *path, struct sl_mp_rx_msg *msg, const uint8_t *payload,
                uint32_t buffer)
{
    struct sl_mp_conn *conn = path->conn;

    msg->rail = path->rail;
    msg->buffer = buffer;
    msg->bytes = payload;
    if (path->lanes->is_short(path)) {
        uint8_t *copy = copy_take(conn);

        msg->rail = NULL;
        if (copy == NULL) {
            sl_mp_conn_fail(conn, -EPROTO,
                            "%s sends more than the %d frames that there is room for",
                            sl_ep_peer_name(&conn->base), SL_MP_CREDITS);
            sl_mp_release(conn->iface, path->rail, buffer);
            return;
        }
        memcpy(copy, payload, msg->len);
        msg->bytes = copy;
        sl_mp_release(conn->iface, path->rail, buffer);
    }
    msg->has_frame = true;
    conn->held++;
    if (SL_UNLIKELY(conn->held > SL_MP_HELD_MAX) && msg->req == NULL &&
        sl_mp_rx_waits(conn, msg->channel))
        keep(conn, msg);
}

bool sl_mp_rx_copy(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    int err = sl_mp_gpu_copy(msg, msg->bytes, msg->len);

    if (err == -EAGAIN) {
        sl_list_push_back(&conn->gpu_waits, &msg->link);
        sl_mp_conn_activate(conn);
        return false;
    }
    sl_channel_moved(&conn->base, &msg->channel->base, msg->len);
    sl_mp_rx_release(conn, msg);
    if (err != 0)
        sl_mp_rx_end_later(conn, msg, err);
    return true;
}
