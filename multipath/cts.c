/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long messages: the receiver names memory in a CTS (clear to send), the sender writes pieces of it
 * over all paths.
 *
 * A receive into registered memory sends one CTS for all of it at once, before the sender asked.
 * Any other names pieces of staging memory when the sender is ready, and hands over what arrived in
 * its order. Where lanes reach all memory, staging serves receives without any alone, and those
 * that one piece of it can take name it before the sender asks, too.
 *
 * A receive that takes shorter messages may have named more than there is. The sender then writes
 * what it has, and says how much in an RTS, at once: the receive is over when both are here, in any
 * order.
 */
#include "multipath/conn.h"
#include "multipath/gpu_copy.h"
#include "multipath/grant.h"
#include "multipath/iface.h"

#include <string.h>

#define ID_PLACE_BITS 6
_Static_assert(SL_MP_RX_CTS_MAX == 1 << ID_PLACE_BITS,
               "an id has so many bits for the place, and 10 for its generation");
#define EARLY_GRANTS (SL_MP_RX_CTS_MAX / 2)
#define STAGED_MAX 8 /* pieces of staging that one message holds at a time */

/* Bytes of the message as far as they are known: those of its sender, or those that the receive
 * expects. */
static uint64_t total_of(const struct sl_mp_rx_msg *msg)
{
    return msg->has_rts ? msg->len : msg->sink->len;
}

/* ---- granting ---- */

/* A CTS that the sender asked for is used at once; one that left before may wait until all
 * messages before it are over, some of which have yet to ask. So early ones have their part of the
 * places, and never the others'. */
static struct sl_mp_rx_cts *cts_place(struct sl_mp_conn *conn, bool early)
{
    unsigned first = early ? 0 : EARLY_GRANTS, end = early ? EARLY_GRANTS : SL_MP_RX_CTS_MAX;

    for (unsigned i = first; i < end; i++)
        if (!conn->rx_cts[i].used)
            return &conn->rx_cts[i];
    return NULL;
}

struct sl_mp_rx_cts *sl_mp_rx_cts_at(struct sl_mp_conn *conn, uint32_t id)
{
    struct sl_mp_rx_cts *cts = &conn->rx_cts[id % SL_MP_RX_CTS_MAX];

    return cts->used && cts->generation == id >> ID_PLACE_BITS ? cts : NULL;
}

/* What the peer writes by, for each rail. */
static inline const uint32_t *keys_of(const struct sl_mp_iface *iface,
                                      const struct sl_mp_rx_cts *cts, uint16_t *rails)
{
    if (cts->chunk != SL_MP_NO_CHUNK) {
        *rails = iface->staging_rails;
        return iface->staging_rkeys;
    }
    if (SL_UNLIKELY(cts->grant != NULL)) {
        *rails = cts->grant->rails;
        return cts->grant->rkeys;
    }
    *rails = cts->msg->mr->rails;
    return cts->msg->mr->rkeys;
}

static bool announce(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    const struct sl_mp_iface *iface = conn->iface;
    const struct sl_mp_rx_msg *msg = cts->msg;
    struct sl_mp_tx_frame *frame =
        sl_mp_frame_new(conn, SL_MP_CTS, cts->channel->base.id, msg->number);
    struct sl_mp_frame *header;
    struct sl_mp_cts told = {
        .off = cts->off,
        .len = cts->len,
        .addr = (uintptr_t)cts->addr,
        .id = (uint32_t)cts->generation << ID_PLACE_BITS | (uint32_t)(cts - conn->rx_cts),
        .keys = {.count = (uint8_t)iface->rail_count, .age = iface->keys},
    };
    const uint32_t *rkeys = keys_of(iface, cts, &told.keys.rails);

    if (frame == NULL)
        return false;
    header = (struct sl_mp_frame *)(void *)frame->bytes;
    header->tag = msg->sink->tag;
    header->value = total_of(msg);
    header->flags = msg->sink->shorter && !msg->has_rts ? SL_MP_FLAG_SHORTER : 0;
    if (msg->mr != NULL && msg->mr->is_gpu)
        header->flags |= SL_MP_FLAG_GPU;
    if (cts->announced)
        header->flags |= SL_MP_FLAG_AGAIN;
    sl_mp_cts_write(&told, rkeys, frame->bytes + SL_MP_FRAME_BYTES);
    cts->announced = true;
    cts->renewed = false;
    cts->channel->base.sent++;
    sl_mp_frame_post(conn, frame, (uint32_t)sl_mp_cts_size(told.keys.count));
    return true;
}

static void cts_new(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts, struct sl_mp_rx_msg *msg,
                    uint16_t chunk, uint64_t len, struct sl_mp_grant *grant)
{
    *cts = (struct sl_mp_rx_cts){
        .used = true,
        .chunk = chunk,
        .generation = (uint16_t)((cts->generation + 1) % (1 << (16 - ID_PLACE_BITS))),
        .channel = msg->channel,
        .msg = msg,
        .off = msg->covered,
        .len = len,
        .addr = chunk == SL_MP_NO_CHUNK ? (uint8_t *)msg->sink->dst + msg->covered
                                        : sl_mp_chunk_bytes(conn->iface, chunk),
        .grant = grant,
    };
    msg->covered += len;
    msg->cts_count++;
    if (conn->unannounced == 0 && SL_LIKELY(grant == NULL) && announce(conn, cts))
        return;
    conn->unannounced++;
    sl_mp_conn_activate(conn);
}

static void cts_over(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts);

/* No rail made a key: the message goes through staging, when its sender asks. */
static void stage_instead(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    struct sl_mp_rx_msg *msg = cts->msg;

    msg->covered -= cts->len;
    cts_over(conn, cts);
    msg->mr = NULL;
    if (msg->has_rts)
        sl_mp_cts_more(conn, msg);
}

/* May the CTS leave, as far as its own keys go? */
static bool has_keys(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    const struct sl_mp_grant *grant = cts->grant;

    if (grant->pending != 0)
        return false;
    if (grant->rails != 0 || cts->announced)
        return true;
    if (!cts->msg->mr->is_gpu)
        stage_instead(conn, cts);
    else if (grant->is_refused)
        sl_mp_conn_fail(conn, -EIO,
                        "no rail gives a key for a part of GPU memory, and there is no other way "
                        "into it: set SLUICE_VERBS_KEYS=region");
    else
        return true; /* the rails are gone: it has keys when one returns */
    return false;
}

void sl_mp_cts_announce(struct sl_mp_conn *conn)
{
    if (SL_UNLIKELY(conn->iface->grants != NULL))
        conn->iface->grants->poll(conn->iface);
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX && conn->unannounced > 0; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (!cts->used || (cts->announced && !cts->renewed))
            continue;
        if (SL_UNLIKELY(cts->grant != NULL) && !has_keys(conn, cts))
            continue;
        if (!announce(conn, cts))
            return;
        conn->unannounced--;
    }
}

void sl_mp_cts_renew(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (cts->used && cts->grant != NULL && !cts->complete)
            cts->grant->by->renew(conn->iface, cts->grant);
        if (!cts->used || !cts->announced || cts->renewed || cts->complete || cts->msg == NULL)
            continue;
        cts->renewed = true;
        conn->unannounced++;
    }
    if (conn->unannounced > 0)
        sl_mp_conn_activate(conn);
}

bool sl_mp_cts_stages_early(const struct sl_mp_conn *conn, const struct sl_sink *sink)
{
    return sink->dst == NULL && sink->len > conn->eager_bytes && sink->len <= SL_MP_CHUNK_BYTES;
}

/* Its turn comes again when there may be room. */
static void starve(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    if (msg->link.next == NULL || sl_list_empty(&msg->link))
        sl_list_push_back(&conn->starved, &msg->link);
    sl_mp_conn_activate(conn);
}

/* False: there is none now. */
__attribute__((noinline)) static bool cts_with_keys(struct sl_mp_conn *conn,
                                                    struct sl_mp_rx_cts *cts,
                                                    struct sl_mp_rx_msg *msg, uint64_t len)
{
    struct sl_mp_grant *grant = conn->iface->grants->open(
        conn->iface, msg->mr, (uint8_t *)msg->sink->dst + msg->covered, len, msg->has_rts);

    if (grant != NULL)
        cts_new(conn, cts, msg, SL_MP_NO_CHUNK, len, grant);
    else if (msg->has_rts)
        starve(conn, msg); /* else the sender will ask */
    return grant != NULL;
}

void sl_mp_cts_more(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    struct sl_mp_chunks *chunks = &conn->iface->rx_chunks;

    if (SL_UNLIKELY(msg->channel->base.peer_closed))
        return; /* nobody would write */
    while (msg->req != NULL && msg->status == 0 && msg->covered < total_of(msg)) {
        struct sl_mp_rx_cts *cts = cts_place(conn, !msg->has_rts);
        uint64_t left = total_of(msg) - msg->covered;

        if (msg->mr == NULL && msg->cts_count >= STAGED_MAX)
            return; /* the next that is complete comes back here */
        if (!msg->has_rts &&
            (cts == NULL || (msg->mr == NULL && chunks->free_count <= chunks->count / 2)))
            return; /* the sender will ask; half of staging is for those that did */
        if (cts == NULL || (msg->mr == NULL && chunks->free_count == 0)) {
            starve(conn, msg);
            return;
        }
        if (msg->mr == NULL)
            cts_new(conn, cts, msg, chunks->free[--chunks->free_count],
                    left < SL_MP_CHUNK_BYTES ? left : SL_MP_CHUNK_BYTES, NULL);
        else if (SL_LIKELY(conn->iface->grants == NULL))
            cts_new(conn, cts, msg, SL_MP_NO_CHUNK, left, NULL);
        else if (!cts_with_keys(conn, cts, msg, left))
            return;
    }
}

/* ---- arrivals ---- */

static inline void place_free(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    struct sl_mp_chunks *chunks = &conn->iface->rx_chunks;

    if (cts->chunk != SL_MP_NO_CHUNK)
        chunks->free[chunks->free_count++] = cts->chunk;
    if (SL_UNLIKELY(!cts->announced || cts->renewed))
        conn->unannounced--;
    cts->used = false;
    if (SL_LIKELY(cts->msg != NULL))
        cts->msg->cts_count--;
}

static void cts_over(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    if (SL_UNLIKELY(cts->grant != NULL))
        cts->grant->by->cut(conn->iface, cts->grant);
    place_free(conn, cts);
}

static struct sl_mp_rx_cts *complete_at(struct sl_mp_conn *conn, const struct sl_mp_rx_msg *msg,
                                        uint64_t off)
{
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (cts->used && cts->complete && cts->msg == msg && cts->off == off)
            return cts;
    }
    return NULL;
}

/* Hands over what is complete and next in order, from this one on. */
static void hand_over(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    struct sl_mp_rx_msg *msg = cts->msg;
    const struct sl_sink *sink = msg->sink;

    if (cts->off != msg->consumed)
        return;
    while (cts != NULL) {
        uint64_t off = cts->off, len = cts->len;

        if (sink->consume != NULL)
            sink->consume(sink, cts->addr, off, len);
        else if (cts->chunk != SL_MP_NO_CHUNK)
            memcpy((uint8_t *)sink->dst + off, cts->addr, len);
        msg->consumed += len;
        place_free(conn, cts); /* its keys have ended */
        cts = msg->cts_count > 0 ? complete_at(conn, msg, msg->consumed) : NULL;
    }
}

/* Nothing is to be written by the keys of a CTS any more. False: some live still; its message is
 * over when they do not, which conn->late waits for. */
static bool keys_end(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts, struct sl_mp_rx_msg *msg)
{
    const struct sl_mp_grants *grants = cts->grant->by;

    if (!cts->announced || cts->renewed)
        conn->unannounced--;
    cts->announced = cts->complete = true;
    cts->renewed = false;
    cts->got = cts->len;
    if (!cts->grant->is_ending)
        grants->end(conn->iface, cts->grant);
    if (cts->grant->pending == 0) {
        grants->put(conn->iface, cts->grant);
        cts->grant = NULL;
        return true;
    }
    if (msg->link.next != NULL)
        sl_list_remove(&msg->link);
    sl_list_push_back(&conn->late, &msg->link);
    sl_mp_conn_activate(conn);
    return false;
}

/* A CTS has all its bytes. */
static void cts_complete(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    struct sl_mp_rx_msg *msg = cts->msg;

    if (SL_UNLIKELY(cts->grant != NULL) && (cts->is_back || !keys_end(conn, cts, msg)))
        return;
    cts->complete = true;
    hand_over(conn, cts);
    if (msg->consumed == total_of(msg)) {
        msg->len = msg->consumed;
        msg->tag = msg->sink->tag;
        sl_mp_rx_end(conn, msg,
                     msg->mr != NULL && msg->mr->is_gpu ? sl_mp_gpu_arrived(msg->mr) : 0);
    } else {
        sl_mp_cts_more(conn, msg);
    }
}

void sl_mp_cts_trim(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    /* Only memory of the receive's own gets an early CTS, and all of it in one. */
    msg->covered = msg->len;
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (!cts->used || cts->msg != msg)
            continue;
        if (cts->got > msg->len) {
            sl_mp_conn_fail(conn, -EPROTO, "%s wrote %llu bytes of message %u, which has %llu",
                            sl_ep_peer_name(&conn->base), (unsigned long long)cts->got, msg->number,
                            (unsigned long long)msg->len);
            return;
        }
        cts->len = msg->len;
        if (cts->got == cts->len)
            cts_complete(conn, cts);
        return;
    }
}

void sl_mp_on_write(struct sl_mp_path *path, uint32_t id, uint32_t len)
{
    struct sl_mp_conn *conn = path->conn;
    struct sl_mp_rx_cts *cts = sl_mp_rx_cts_at(conn, id);

    if (cts == NULL || len > cts->len - cts->got) {
        sl_mp_conn_fail(conn, -EPROTO, "%s wrote %u bytes where nothing was granted",
                        sl_ep_peer_name(&conn->base), len);
        return;
    }
    if (conn->state == SL_MP_CONN_DOWN)
        return;
    struct sl_mp_channel *channel = cts->channel;

    sl_channel_moved(&conn->base, &channel->base, len);
    channel->arrived += len;
    cts->got += len;
    if (cts->got == cts->len) {
        if (SL_LIKELY(cts->msg != NULL))
            cts_complete(conn, cts);
        else
            cts_over(conn, cts);
    }
    if (SL_UNLIKELY(channel->peer_stopped))
        sl_mp_channel_arrived(channel);
}

/* ---- the end of CTS ---- */

bool sl_mp_cts_take_back(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg, int status)
{
    bool all = true;

    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (!cts->used || cts->msg != msg)
            continue;
        cts->is_back = true;
        if (SL_UNLIKELY(cts->grant != NULL) && !keys_end(conn, cts, msg)) {
            msg->status = status;
            all = false;
            continue;
        }
        cts_over(conn, cts);
    }
    return all;
}

/* Of memory with keys of its own a message has one CTS. */
void sl_mp_cts_late(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    if (conn->iface->grants != NULL)
        conn->iface->grants->poll(conn->iface);
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX && msg->cts_count != 0; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (cts->used && cts->msg == msg && cts->grant != NULL && !cts->is_back) {
            cts_complete(conn, cts);
            return;
        }
    }
    sl_mp_rx_end(conn, msg, msg->status);
}

/* Its channel is closed: the peer may finish what it has begun there, and begins nothing. */
static void disown(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    conn->unannounced -= cts->renewed;
    cts->renewed = false;
    cts->msg = NULL;
}

void sl_mp_cts_withdraw(struct sl_mp_channel *channel)
{
    struct sl_mp_conn *conn = channel->conn;

    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (!cts->used || cts->channel != channel)
            continue;
        if (!cts->announced || (channel->base.closed && cts->complete))
            cts_over(conn, cts);
        else if (channel->base.closed)
            disown(conn, cts);
    }
}

/* Has it all its bytes, and waits for the end of its keys alone? Then its message ends well. */
static bool is_ending(const struct sl_mp_rx_cts *cts)
{
    return SL_UNLIKELY(cts->grant != NULL) && cts->msg != NULL && cts->grant->is_ending;
}

void sl_mp_cts_free(struct sl_mp_channel *channel)
{
    struct sl_mp_conn *conn = channel->conn;

    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (cts->used && cts->channel == channel && !is_ending(cts))
            cts_over(conn, cts);
    }
}

bool sl_mp_cts_lent(const struct sl_mp_channel *channel)
{
    const struct sl_mp_conn *conn = channel->conn;

    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++)
        if (conn->rx_cts[i].used && conn->rx_cts[i].channel == channel &&
            conn->rx_cts[i].chunk == SL_MP_NO_CHUNK)
            return true;
    return false;
}

void sl_mp_cts_cancel(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++)
        if (conn->rx_cts[i].used)
            cts_over(conn, &conn->rx_cts[i]);
}
