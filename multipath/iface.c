/* SPDX-License-Identifier: Apache-2.0 */
/* An interface's frames, staging and lists; whose turn it is in a round of progress. */
#include "multipath/iface.h"

#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/gpu_copy.h"
#include "multipath/repair.h"
#include "multipath/setup.h"
#include "multipath/sideband.h"
#include "multipath/steer.h"
#include "multipath/watch.h"

#include <stdlib.h>
#include <string.h>

void sl_mp_iface_init(struct sl_mp_iface *iface)
{
    size_t payload = iface->eager_bytes > sizeof(struct sl_mp_control)
                         ? iface->eager_bytes
                         : sizeof(struct sl_mp_control);

    iface->slot_bytes = (uint32_t)(SL_MP_FRAME_BYTES + payload + 63) & ~63u;
    if (iface->slot_bytes < iface->probe_bytes)
        iface->slot_bytes = (iface->probe_bytes + 63) & ~63u;
    iface->base.eager_max = iface->eager_bytes;
    sl_list_init(&iface->conns);
    sl_list_init(&iface->active);
    sl_list_init(&iface->timed);
    sl_list_init(&iface->free_frames);
}

static int chunks_init(struct sl_mp_chunks *chunks, unsigned first, unsigned count)
{
    chunks->free = calloc(count, sizeof(*chunks->free));
    if (chunks->free == NULL)
        return sl_fail(-ENOMEM, "no memory for a list of staging buffers");
    chunks->count = count;
    for (unsigned i = 0; i < count; i++)
        chunks->free[chunks->free_count++] = (uint16_t)(first + i);
    return 0;
}

static void pings_init(struct sl_mp_iface *iface)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct sl_mp_frame header = {.kind = SL_MP_PING,
                                           .flags = i == 0 ? 0 : SL_MP_FLAG_PROVEN};
        uint8_t *bytes = iface->frame_bytes + (SL_MP_TX_FRAMES + (size_t)i) * iface->slot_bytes;

        memset(bytes, 0, iface->slot_bytes);
        memcpy(bytes, &header, sizeof(header));
        iface->pings[i] = bytes;
    }
}

int sl_mp_iface_open(struct sl_mp_iface *iface, unsigned chunks)
{
    int err = chunks_init(&iface->tx_chunks, 0, chunks / 2);

    iface->piece_bytes =
        iface->settings.piece_bytes > 0 ? (uint32_t)iface->settings.piece_bytes : SL_MP_PIECE_LEAST;
    if (err == 0)
        err = sl_mp_pool_init(&iface->tx_msgs, sizeof(struct sl_mp_tx_msg));
    if (err == 0)
        err = sl_mp_pool_init(&iface->rx_msgs, sizeof(struct sl_mp_rx_msg));
    if (err == 0)
        err = sl_mp_pool_init(&iface->tx_cts, sizeof(struct sl_mp_tx_cts));
    if (err == 0)
        err = sl_mp_pool_init(&iface->controls, sizeof(struct sl_mp_control));
    if (err == 0)
        err = chunks_init(&iface->rx_chunks, chunks / 2, chunks / 2);
    if (err != 0)
        return err;
    for (unsigned i = 0; i < SL_MP_TX_FRAMES; i++) {
        iface->tx_frames[i].bytes = iface->frame_bytes + (size_t)i * iface->slot_bytes;
        sl_mp_frame_free(iface, &iface->tx_frames[i]);
    }
    pings_init(iface);
    return 0;
}

void sl_mp_iface_fini(struct sl_mp_iface *iface)
{
    sl_assert(sl_list_empty(&iface->conns));
    sl_mp_gpu_close(iface);
    sl_path_watch_fini(&iface->table);
    sl_mp_pool_fini(&iface->tx_msgs);
    sl_mp_pool_fini(&iface->rx_msgs);
    sl_mp_pool_fini(&iface->tx_cts);
    sl_mp_pool_fini(&iface->controls);
    free(iface->tx_chunks.free);
    free(iface->rx_chunks.free);
}

void sl_mp_rails_changed(struct sl_mp_iface *iface, bool retry)
{
    sl_list_foreach(&iface->conns, node)
    {
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, link);

        sl_mp_hello_send(conn);
        if (retry)
            sl_mp_repair_soon(conn);
    }
}

/* Generations are compared modulo 256: that of a rail which was never lost follows at a distance.
 * Nothing is cleared with keys so old that the difference counts: each renewal tells them anew. */
static void generations_follow(struct sl_mp_iface *iface)
{
    for (unsigned i = 0; i < iface->rail_count; i++)
        if ((uint8_t)(iface->keys - iface->rails[i]->keys) > SL_MP_KEYS_BEHIND)
            iface->rails[i]->keys = (uint8_t)(iface->keys - SL_MP_KEYS_BEHIND);
}

void sl_mp_rail_joined(struct sl_mp_iface *iface)
{
    sl_list_foreach(&iface->conns, node)
        sl_mp_cts_renew(sl_container_of(node, struct sl_mp_conn, link));
}

void sl_mp_rail_renewed(struct sl_mp_iface *iface, struct sl_mp_rail *rail)
{
    rail->keys = ++iface->keys;
    generations_follow(iface);
    sl_mp_rail_joined(iface);
}

void sl_mp_rail_vacate(struct sl_mp_iface *iface, const struct sl_mp_rail *rail)
{
    sl_list_foreach(&iface->conns, node)
        sl_mp_keep_all(sl_container_of(node, struct sl_mp_conn, link), rail);
}

uint32_t sl_mp_delivers(const struct sl_iface *base)
{
    const struct sl_mp_iface *iface = (const struct sl_mp_iface *)base;
    uint64_t up = 0, all = 0;
    bool known = true, near = false;

    for (unsigned i = 0; i < iface->rail_count; i++) {
        known &= iface->rails[i]->speed != 0;
        near |= iface->rails[i]->usable && !iface->rails[i]->is_far;
    }
    for (unsigned i = 0; i < iface->rail_count; i++) {
        uint64_t speed = known ? iface->rails[i]->speed / 1000000 + 1 : 1;

        if (near && iface->rails[i]->is_far)
            continue; /* carries nothing now */
        all += speed;
        up += iface->rails[i]->usable ? speed : 0;
    }
    return up == 0 ? 1 : (uint32_t)(1000 * up / all);
}

/* ---- progress ---- */

/* True while the connection needs another turn without anything new having happened. What waits for
 * a path gets its turn when one comes up: until then its owner may sleep. */
static bool has_work(const struct sl_mp_conn *conn)
{
    bool can_send = conn->paths_up > 0 || sl_mp_fallback_path(conn) != NULL;
    bool stuck = !sl_list_empty(&conn->repeat) || conn->unannounced > 0 || conn->drops.count > 0 ||
                 !sl_list_empty(&conn->starved) || !sl_list_empty(&conn->deal) ||
                 conn->redo_count > 0 || conn->credits_owed >= SL_MP_CREDITS / 2;

    if (conn->state == SL_MP_CONN_DOWN)
        return false;
    return conn->failing || conn->left || conn->inbox[conn->control_in % SL_MP_CONTROLS] != NULL ||
           conn->control_count > 0 || !sl_list_empty(&conn->late) ||
           !sl_list_empty(&conn->gpu_waits) ||
           (!sl_list_empty(&conn->telling) && sl_mp_control_room(conn)) ||
           (SL_UNLIKELY(conn->fallback != NULL) && sl_mp_fallback_has_work(conn)) ||
           (can_send && stuck);
}

static int conn_work(struct sl_mp_conn *conn)
{
    int moved = sl_mp_inbox_run(conn);

    if (SL_UNLIKELY(sl_mp_sideband_lost(conn)))
        sl_mp_sideband_try(conn);
    if (SL_UNLIKELY(conn->left && conn->state == SL_MP_CONN_UP))
        sl_mp_conn_leave(conn);
    if (SL_UNLIKELY(conn->failing)) {
        sl_mp_conn_lost(conn);
        return 1;
    }
    if (SL_UNLIKELY(conn->has_failed))
        moved += sl_mp_paths_end(conn);
    if (conn->control_count > 0)
        sl_mp_control_flush(conn);
    if (SL_UNLIKELY(conn->failing)) {
        sl_mp_conn_lost(conn);
        return 1;
    }
    if (conn->state == SL_MP_CONN_UP)
        moved += sl_mp_conn_push(conn);
    if (SL_UNLIKELY(conn->fallback != NULL) && conn->state == SL_MP_CONN_UP)
        moved += sl_mp_fallback_push(conn);
    return moved;
}

int sl_mp_run(struct sl_mp_iface *iface)
{
    struct sl_node turn, *node;
    int moved = 0;

    if (sl_list_empty(&iface->active))
        return 0;
    turn = iface->active;
    turn.next->prev = turn.prev->next = &turn;
    sl_list_init(&iface->active);
    while ((node = sl_list_pop_front(&turn)) != NULL) {
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, active);

        conn->is_active = false;
        moved += conn_work(conn);
        if (has_work(conn))
            sl_mp_conn_activate(conn);
    }
    return moved;
}

void sl_mp_run_timers(struct sl_mp_iface *iface, uint64_t now_ns)
{
    iface->ticked_before_ns = iface->ticked_ns;
    iface->ticked_ns = now_ns;
    sl_list_foreach(&iface->timed, node)
    {
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, timed);

        if (now_ns < conn->due_ns)
            continue;
        conn->due_ns = sl_mp_repair_timers(conn, now_ns);
        if (conn->due_ns == SL_NEVER)
            sl_mp_conn_untime(conn);
    }
    sl_mp_watch(iface, now_ns);
    sl_mp_steer(iface, now_ns);
}

bool sl_mp_may_sleep(const struct sl_mp_iface *iface)
{
    return sl_list_empty(&iface->active) && iface->connecting == 0 && !sl_mp_gpu_busy(iface);
}
