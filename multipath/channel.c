/* SPDX-License-Identifier: Apache-2.0 */
/* The channels of a connection: their tables, and how one ends. */
#include "multipath/channel.h"

#include "multipath/conn.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"
#include "multipath/repair.h"

#include <stdlib.h>
#include <string.h>

/* How long a close waits for the peer's word before it stops the paths. */
#define SETTLE_NS (10 * SL_NS_PER_MS)
#define SETTLE_POLLS 20000
#define SETTLE_EVERY 16 /* of them between polls of the sideband */

/* ---- the table ---- */

static void init(struct sl_mp_conn *conn, struct sl_mp_channel *channel)
{
    channel->conn = conn;
    channel->tx = channel->tx_first;
    channel->rx = channel->rx_first;
    channel->tx_mask = channel->rx_mask = SL_MP_TABLE_MIN - 1;
    sl_list_init(&channel->early);
    sl_list_push_back(&conn->all_channels, &channel->all);
}

int sl_mp_channels_init(struct sl_mp_conn *conn)
{
    int err = sl_channels_init(&conn->channels, sizeof(struct sl_mp_channel));

    sl_list_init(&conn->all_channels);
    sl_list_init(&conn->telling);
    if (err == 0)
        init(conn, sl_mp_channel_of(conn->channels.last));
    return err;
}

/* The tables of one that has no messages any more. */
static void shrink(struct sl_mp_channel *channel)
{
    if (channel->tx != channel->tx_first)
        free(channel->tx);
    if (channel->rx != channel->rx_first)
        free(channel->rx);
    channel->tx = channel->tx_first;
    channel->rx = channel->rx_first;
    channel->tx_mask = channel->rx_mask = SL_MP_TABLE_MIN - 1;
    memset(channel->tx_first, 0, sizeof(channel->tx_first));
}

void sl_mp_channels_fini(struct sl_mp_conn *conn)
{
    sl_list_foreach(&conn->all_channels, node)
    {
        shrink(sl_container_of(node, struct sl_mp_channel, all));
    }
    sl_channels_fini(&conn->channels);
}

struct sl_mp_channel *sl_mp_channel_named(struct sl_mp_conn *conn, uint32_t id, int *err)
{
    struct sl_channel *channel = sl_channels_find(&conn->channels, id);

    if (channel == NULL) {
        *err = conn->channels.unopened == SL_CHANNELS_UNOPENED_MAX ? -EBADMSG : -ENOMEM;
        channel = sl_channels_get(&conn->channels, id);
        if (channel != NULL)
            init(conn, sl_mp_channel_of(channel));
    }
    return sl_mp_channel_of(channel);
}

bool sl_mp_tx_grow(struct sl_mp_channel *channel)
{
    uint32_t mask = 2 * channel->tx_mask + 1;
    struct sl_mp_tx_msg **tx = calloc((size_t)mask + 1, sizeof(struct sl_mp_tx_msg *));

    if (tx == NULL)
        return false;
    for (uint32_t i = 0; i <= channel->tx_mask; i++)
        if (channel->tx[i] != NULL)
            tx[channel->tx[i]->number & mask] = channel->tx[i];
    if (channel->tx != channel->tx_first)
        free(channel->tx);
    channel->tx = tx;
    channel->tx_mask = mask;
    return true;
}

bool sl_mp_rx_grow(struct sl_mp_channel *channel)
{
    uint32_t mask = 2 * channel->rx_mask + 1;
    struct sl_mp_rx_msg **rx = calloc((size_t)mask + 1, sizeof(struct sl_mp_rx_msg *));

    if (rx == NULL)
        return false;
    for (uint32_t number = channel->rx_oldest; number != channel->rx_known; number++)
        rx[number & mask] = sl_mp_rx_at(channel, number);
    if (channel->rx != channel->rx_first)
        free(channel->rx);
    channel->rx = rx;
    channel->rx_mask = mask;
    return true;
}

int sl_mp_channel_open(struct sl_ep *base, uint32_t id)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_channel *channel;
    int err = sl_channels_open(&conn->channels, id, &channel);

    if (err == 0 && sl_mp_channel_of(channel)->conn == NULL)
        init(conn, sl_mp_channel_of(channel));
    return err;
}

uint64_t sl_mp_channel_traffic(const struct sl_ep *base, uint32_t id)
{
    return sl_channels_traffic(&((const struct sl_mp_conn *)base)->channels, id);
}

bool sl_mp_channel_starves(const struct sl_ep *base, uint32_t id)
{
    struct sl_mp_conn *conn = (struct sl_mp_conn *)(uintptr_t)base;
    struct sl_channel *known = sl_channels_search(&conn->channels, id);
    const struct sl_mp_channel *channel = known != NULL ? sl_mp_channel_of(known) : NULL;

    if (channel == NULL || !known->peer_closed || known->came < known->peer_sent ||
        !channel->peer_stopped || channel->arrived != channel->peer_written ||
        channel->rx_next == channel->rx_oldest)
        return false;
    const struct sl_mp_rx_msg *last = sl_mp_rx_at(channel, channel->rx_next - 1);

    return !last->over && !last->has_frame && !last->has_rts && !last->came;
}

/* ---- what the two ends say ---- */

void sl_mp_channel_tell(struct sl_mp_channel *channel)
{
    if (!channel->is_telling) {
        channel->is_telling = true;
        sl_list_push_back(&channel->conn->telling, &channel->telling);
    }
    sl_mp_conn_activate(channel->conn);
}

static void say(struct sl_mp_channel *channel, uint8_t kind, uint64_t count)
{
    struct sl_mp_control control = {.kind = kind};

    control.close.channel = channel->base.id;
    control.close.count = count;
    sl_mp_control_send(channel->conn, &control);
}

static void say_close(struct sl_mp_channel *channel)
{
    if (channel->close_told)
        return;
    channel->close_told = true;
    say(channel, SL_MP_CONTROL_CLOSE, channel->base.sent);
}

/* Nothing will speak of it any more. */
static bool is_over(const struct sl_mp_channel *channel)
{
    return sl_channel_over(&channel->base) && channel->close_told && channel->closed_told &&
           channel->peer_stopped && channel->arrived == channel->peer_written;
}

static void remove_channel(struct sl_mp_channel *channel)
{
    sl_list_remove(&channel->all);
    shrink(channel);
    sl_channels_remove(&channel->conn->channels, &channel->base);
}

int sl_mp_channels_push(struct sl_mp_conn *conn)
{
    int count = 0;

    sl_list_foreach(&conn->telling, node)
    {
        struct sl_mp_channel *channel = sl_container_of(node, struct sl_mp_channel, telling);

        if (!sl_mp_control_room(conn))
            return count;
        count++;
        if (channel->base.closed && !channel->close_told)
            say_close(channel);
        else if (channel->ends && channel->tx_cts == 0 && !channel->closed_told) {
            channel->closed_told = true;
            say(channel, SL_MP_CONTROL_CLOSED, channel->written);
        } else {
            sl_list_remove(node);
            channel->is_telling = false;
            if (is_over(channel))
                remove_channel(channel);
        }
        node_next = conn->telling.next; /* the same once more, or the next */
    }
    return count;
}

static int protocol(struct sl_mp_conn *conn, uint32_t id)
{
    return sl_mp_conn_fail(conn, -EPROTO, "%s closes channel %u as it cannot be closed",
                           sl_ep_peer_name(&conn->base), id);
}

/* It takes nothing and sends nothing any more. */
static void peer_closes(struct sl_mp_conn *conn, struct sl_mp_channel *channel, uint64_t frames)
{
    if (channel->base.peer_closed || frames < channel->base.came) {
        protocol(conn, channel->base.id);
        return;
    }
    sl_channel_peer_closed(&channel->base, frames);
    channel->ends = true;
    sl_mp_cts_withdraw(channel);
    if (!channel->base.closed)
        sl_mp_tx_stop(channel);
    sl_mp_tx_dropped(channel);
}

void sl_mp_channel_arrived(struct sl_mp_channel *channel)
{
    if (channel->arrived > channel->peer_written) {
        sl_mp_conn_fail(channel->conn, -EPROTO, "%s writes to channel %u, which it has left",
                        sl_ep_peer_name(&channel->conn->base), channel->base.id);
        return;
    }
    if (channel->arrived < channel->peer_written)
        return;
    sl_mp_cts_free(channel);
    sl_mp_channel_tell(channel);
}

void sl_mp_on_close(struct sl_mp_conn *conn, const struct sl_mp_control *control)
{
    int err = -EPROTO;
    struct sl_mp_channel *channel = sl_mp_channel_named(conn, control->close.channel, &err);

    if (channel == NULL) {
        sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
    } else if (channel->base.id == 0) {
        protocol(conn, 0);
    } else if (control->kind == SL_MP_CONTROL_CLOSE) {
        peer_closes(conn, channel, control->close.count);
        sl_mp_channel_tell(channel);
    } else if (!channel->ends || channel->peer_stopped) {
        protocol(conn, channel->base.id);
    } else {
        channel->peer_stopped = true;
        channel->peer_written = control->close.count;
        sl_mp_channel_arrived(channel);
    }
}

/* ---- closing ---- */

/* May its lane carry a write, either way? */
static bool is_live(const struct sl_mp_path *path)
{
    return path != NULL && path->state != SL_MP_PATH_IDLE && path->state != SL_MP_PATH_FENCING;
}

/* Does a write of the channel read the caller's memory? What goes over the sideband is a copy. */
static bool is_read(const struct sl_mp_path *path, const struct sl_mp_channel *channel)
{
    for (uint32_t i = path->retired; i != path->posted; i++) {
        const struct sl_mp_wr *wr = &path->wrs[i % SL_MP_WINDOW];

        if (wr->kind == SL_MP_WR_WRITE && wr->piece.chunk == SL_MP_NO_CHUNK &&
            wr->piece.cts->channel == channel)
            return true;
    }
    return false;
}

/* May a lane touch memory that was lent to the channel? */
static bool is_touched(const struct sl_mp_channel *channel)
{
    const struct sl_mp_conn *conn = channel->conn;
    bool live = false;

    for (unsigned i = 0; i < conn->path_count; i++) {
        if (!is_live(conn->paths[i]))
            continue;
        live = true;
        if (is_read(conn->paths[i], channel))
            return true;
    }
    return live && sl_mp_cts_lent(channel);
}

/* Waits a little until the peer has what was posted, and has said that it writes nothing more. Not
 * from inside progress. */
static bool settle(struct sl_mp_channel *channel)
{
    struct sl_mp_conn *conn = channel->conn;
    struct sl_iface *sideband = conn->iface->sideband;
    const struct sl_clock *clock = conn->iface->base.worker->clock;
    uint64_t deadline_ns = sl_now(clock) + SETTLE_NS;

    for (unsigned i = 0; i < SETTLE_POLLS && !conn->failing && conn->state == SL_MP_CONN_UP; i++) {
        int moved = 0;

        for (unsigned p = 0; p < conn->path_count; p++)
            if (is_live(conn->paths[p]))
                moved += (int)conn->paths[p]->lanes->poll(conn->paths[p]);
        if (i % SETTLE_EVERY == 0)
            moved += sideband->ops->progress(sideband, 64);
        moved += sl_mp_inbox_run(conn);
        if (moved != 0 && !is_touched(channel))
            return true;
        if (sl_now(clock) >= deadline_ns)
            break;
    }
    return !is_touched(channel);
}

/* The lanes end here, and nothing that was posted to them touches memory any more. The peer has the
 * CLOSE before it hears of that, and repeats nothing of the channel. */
static void stop_paths(struct sl_mp_channel *channel)
{
    struct sl_mp_conn *conn = channel->conn;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (!is_live(path))
            continue;
        path->sound = !path->failing;
        sl_mp_failed(path, 0, "channel %u was closed while memory was lent to it",
                     channel->base.id);
        sl_mp_path_end(path);
    }
}

void sl_mp_channel_strip(struct sl_mp_channel *channel, struct sl_node *reqs)
{
    sl_mp_gpu_forget(channel);
    sl_mp_rx_strip(channel, reqs);
    sl_mp_tx_strip(channel, reqs);
}

void sl_mp_channel_close(struct sl_ep *base, uint32_t id)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_channel *known = sl_channels_find(&conn->channels, id);
    struct sl_mp_channel *channel = sl_mp_channel_of(known);
    struct sl_node reqs;

    if (known == NULL || !known->open || id == 0)
        return;
    sl_list_init(&reqs);
    sl_channel_close(&conn->channels, known, -ECANCELED);
    channel->ends = true;
    sl_mp_tx_stop(channel);
    sl_mp_cts_withdraw(channel);
    sl_mp_channel_strip(channel, &reqs);
    sl_mp_drops_forget(channel);
    shrink(channel);
    sl_mp_channel_tell(channel);
    if (conn->state == SL_MP_CONN_UP && is_touched(channel)) {
        say_close(channel);
        if (conn->iface->in_progress || !settle(channel))
            stop_paths(channel);
    }
    sl_reqs_end(&reqs, -ECANCELED);
}
