/* SPDX-License-Identifier: Apache-2.0 */
/* What is posted to a path, until it is retired or salvaged; which path is the best one. */
#include "multipath/conn.h"
#include "multipath/events.h"
#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/repair.h"
#include "multipath/steer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PATHS_STEP 4
#define SIGNAL_EVERY 8 /* frames between completions that are asked for */
#define FORGET_AFTER_NS SL_NS_PER_S
#define FORGET_NS (50 * SL_NS_PER_MS)
#define MUCH_SLOWER 4 /* than the fastest of the others */
#define ALL_RAILS UINT16_MAX
#define BUSY_MIN 4096 /* bytes: shorter writes say more of ends than of the network */

/* Places for paths up to that one: most connections have few. */
static int path_room(struct sl_mp_conn *conn, unsigned idx)
{
    unsigned room = (idx / PATHS_STEP + 1) * PATHS_STEP;
    struct sl_mp_path **paths;

    if (idx < conn->path_room)
        return 0;
    paths = reallocarray(conn->paths, room, sizeof(*paths));
    if (paths == NULL)
        return sl_fail(-ENOMEM, "no memory for %u paths", room);
    memset(paths + conn->path_room, 0, (room - conn->path_room) * sizeof(*paths));
    conn->paths = paths;
    conn->path_room = room;
    return 0;
}

int sl_mp_path_add(struct sl_mp_conn *conn, unsigned idx, struct sl_mp_path **out)
{
    struct sl_mp_path *path;
    int err = path_room(conn, idx);

    if (err == 0)
        err = conn->iface->lanes->create(conn, &path);
    if (err != 0)
        return err;
    sl_assert(path->depth <= SL_MP_WINDOW);
    path->conn = conn;
    path->idx = (uint8_t)idx;
    sl_mp_steer_path(path);
    conn->paths[idx] = path;
    if (conn->path_count <= idx)
        conn->path_count = idx + 1;
    *out = path;
    return 0;
}

void sl_mp_path_reset(struct sl_mp_path *path)
{
    path->posted = path->retired = path->arrived = path->unsignalled = path->writes = 0;
    path->carried = 0;
    path->in_flight = 0;
    path->failing = path->proven = path->peer_proven = path->excused = false;
    path->code = 0;
    path->up_ns = 0;
    path->reroute = SL_MP_ROUTED; /* a fresh lane goes by the label of this moment */
    path->late = false;
    path->seen_posted = path->seen_retired = 0;
}

/* ---- posting ---- */

/* The next number is that of this work request; the clock is read for those that tell of their end
 * by themselves. Inline whatever its callers hold: the compiler takes a probe for a large function,
 * though it is a nop. */
__attribute__((always_inline)) static inline void posted(struct sl_mp_path *path,
                                                         struct sl_mp_wr *wr,
                                                         enum sl_mp_wr_kind kind, uint32_t len,
                                                         bool signal)
{
    wr->kind = (uint8_t)kind;
    wr->len = len;
    wr->posted_ns = signal ? sl_now(path->conn->iface->base.worker->clock) : 0;
    path->unsignalled = signal ? 0 : path->unsignalled + 1;
    path->in_flight += len;
    path->posted++;
}

static struct sl_mp_wr *next_wr(struct sl_mp_path *path)
{
    return &path->wrs[path->posted % SL_MP_WINDOW];
}

static void count_sent(struct sl_mp_path *path, uint32_t len)
{
    path->stats.sent_messages++;
    path->stats.sent_bytes += len;
}

void sl_mp_path_post_frame(struct sl_mp_path *path, struct sl_mp_tx_frame *frame)
{
    struct sl_mp_wr *wr = next_wr(path);
    bool signal = path->unsignalled + 1 >= SIGNAL_EVERY ||
                  path->posted + 1 - path->retired > SL_MP_WINDOW / 2 ||
                  path->conn->iface->free_frame_count < SL_MP_TX_FRAMES / 4;

    wr->frame = frame;
    SL_PROBE4(frame_post, path->conn->base.peer, path->idx, path->posted, frame->len);
    count_sent(path, frame->len);
    posted(path, wr, SL_MP_WR_FRAME, frame->len, signal);
    path->lanes->post(path, frame, signal);
}

void sl_mp_path_post_control(struct sl_mp_path *path, struct sl_mp_tx_frame *frame)
{
    struct sl_mp_wr *wr = next_wr(path);

    wr->frame = frame;
    posted(path, wr, SL_MP_WR_CONTROL, frame->len, true);
    path->lanes->post(path, frame, true);
}

void sl_mp_path_ping(struct sl_mp_path *path, bool proven)
{
    const struct sl_mp_iface *iface = path->conn->iface;
    struct sl_mp_tx_frame ping = {.bytes = (uint8_t *)(uintptr_t)iface->pings[proven],
                                  .len = path->probe_bytes};

    if (ping.len < SL_MP_FRAME_BYTES)
        ping.len = SL_MP_FRAME_BYTES;
    if (ping.len > iface->slot_bytes)
        ping.len = iface->slot_bytes;
    posted(path, next_wr(path), SL_MP_WR_PING, ping.len, true);
    path->lanes->post(path, &ping, true);
}

/* A rate that was bad long ago says little: a second after its last write half of what it is worse
 * than the port's is forgotten every 50 ms, so that the path is tried again. */
static uint64_t rate_of(const struct sl_mp_path *path)
{
    uint64_t now_ns = path->conn->iface->ticked_ns, halves;

    if (path->ps_per_byte == 0)
        return path->nominal_ps;
    if (path->ps_per_byte <= path->nominal_ps || path->writes > 0 ||
        now_ns < path->last_done_ns + FORGET_AFTER_NS)
        return path->ps_per_byte;
    halves = (now_ns - path->last_done_ns - FORGET_AFTER_NS) / FORGET_NS;
    return path->nominal_ps + (halves < 64 ? (path->ps_per_byte - path->nominal_ps) >> halves : 0);
}

static bool is_much_slower(const struct sl_mp_path *path)
{
    for (unsigned i = 0; i < path->conn->path_count; i++) {
        const struct sl_mp_path *other = path->conn->paths[i];

        if (other != NULL && other != path && sl_mp_path_carries(other) &&
            other->ps_per_byte != 0 && other->ps_per_byte < path->ps_per_byte / MUCH_SLOWER)
            return true;
    }
    return false;
}

/* A path is tried again of which something is forgotten. If it was much slower than another, one
 * write shows first how it is now: all that it would get by the port's rate might wait behind each
 * other for a second, and the messages that they are of with them. What that one takes counts
 * alone. */
static void forget(struct sl_mp_path *path)
{
    uint64_t ps = rate_of(path);

    if (ps == path->ps_per_byte)
        return;
    if (is_much_slower(path)) {
        path->writes_most = 1;
        path->grown_ns = path->conn->iface->ticked_ns;
        ps = 0;
    }
    path->ps_per_byte = ps;
}

void sl_mp_path_post_write(struct sl_mp_path *path, const struct sl_mp_piece *piece)
{
    struct sl_mp_wr *wr = next_wr(path);

    wr->piece = *piece;
    if (path->ps_per_byte > path->nominal_ps)
        forget(path);
    path->writes++;
    SL_PROBE4(write_post, path->conn->base.peer, path->idx, path->posted, piece->len);
    count_sent(path, piece->len);
    posted(path, wr, SL_MP_WR_WRITE, piece->len, true);
    path->lanes->write(path, piece);
}

const uint8_t *sl_mp_piece_bytes(const struct sl_mp_path *path, const struct sl_mp_piece *piece)
{
    return piece->chunk != SL_MP_NO_CHUNK
               ? sl_mp_chunk_bytes(path->conn->iface, piece->chunk)
               : piece->cts->msg->addr + piece->cts->cts.off + piece->off;
}

/* ---- what has arrived here ---- */

/* What no lane should do, and soft-RoCE does when it repeats packets that were not lost: a message
 * comes twice, the second time without its bytes perhaps. The first one counted; another lane is to
 * be trusted more. */
static void out_of_turn(struct sl_mp_path *path, uint32_t number)
{
    sl_mp_failed(path, 0, "%s delivered message %u when %u was due", path->rail->name, number,
                 path->arrived & 0xffff);
}

/* Is it the next one? After its fence a path's arrivals do not count: stop() has seen to that. */
static inline bool is_next(struct sl_mp_path *path, uint32_t imm, uint32_t len)
{
    if (SL_UNLIKELY((path->arrived & 0xffff) != imm >> 16)) {
        out_of_turn(path, imm >> 16);
        return false;
    }
    path->arrived++;
    path->stats.received_messages++;
    path->stats.received_bytes += len;
    return true;
}

void sl_mp_arrived(struct sl_mp_path *path, uint32_t imm, const uint8_t *bytes, uint32_t buffer,
                   uint32_t len)
{
    if (SL_UNLIKELY(!is_next(path, imm, len))) {
        sl_mp_release(path->conn->iface, path->rail, buffer);
        return;
    }
    sl_mp_on_frame(path, bytes, buffer, len);
}

void sl_mp_written(struct sl_mp_path *path, uint32_t imm, uint32_t len)
{
    if (SL_LIKELY(is_next(path, imm, len)))
        sl_mp_on_write(path, imm & 0xffff, len);
}

/* ---- what has arrived at the peer ---- */

/* A write's alone time, in its window. Without a division but at the begin of one. */
static void count_busy(struct sl_mp_path_stats *stats, uint64_t now_ns, uint64_t ns, uint32_t len)
{
    struct sl_mp_busy *it = &stats->busy[0];

    if (SL_UNLIKELY(now_ns >= it->until_ns)) {
        uint64_t window = now_ns / SL_STATE_WINDOW_NS + 1;

        stats->busy[1] = *it;
        *it = (struct sl_mp_busy){.window = window, .until_ns = window * SL_STATE_WINDOW_NS};
    }
    it->ns += ns;
    it->bytes += len;
    it->writes++;
}

static void measure(struct sl_mp_path *path, const struct sl_mp_wr *wr, uint64_t now_ns)
{
    uint64_t took = now_ns - wr->posted_ns;

    SL_PROBE4(complete, path->conn->base.peer, path->idx, wr->len, took);
    path->stats.histogram[sl_histogram_bin(took)]++;
    if (wr->kind != SL_MP_WR_WRITE) {
        path->latency_ns = path->latency_ns == 0 ? took : (7 * path->latency_ns + took) / 8;
    } else if (wr->len != 0) {
        /* Time that was this write's alone: since the one before it ended, or since it was
         * posted. */
        uint64_t since = path->last_done_ns > wr->posted_ns ? path->last_done_ns : wr->posted_ns;
        uint64_t ps = (now_ns - since) * 1000 / wr->len;

        path->ps_per_byte = path->ps_per_byte == 0 ? ps : (7 * path->ps_per_byte + ps) / 8;
        path->last_done_ns = now_ns;
        if (wr->len >= BUSY_MIN)
            count_busy(&path->stats, now_ns, now_ns - since, wr->len);
    }
}

void sl_mp_retired(struct sl_mp_path *path, uint32_t ordinal, uint64_t now_ns)
{
    struct sl_mp_conn *conn = path->conn;

    while ((int32_t)(ordinal - path->retired) >= 0 && path->retired != path->posted) {
        struct sl_mp_wr wr = path->wrs[path->retired++ % SL_MP_WINDOW];

        path->in_flight -= wr.len;
        if (wr.posted_ns != 0)
            measure(path, &wr, now_ns);
        if (wr.kind == SL_MP_WR_PING) {
            sl_mp_path_pinged(path);
            continue;
        }
        path->carried = path->retired;
        if (wr.kind == SL_MP_WR_WRITE) {
            path->writes--;
            sl_mp_piece_over(conn, &wr.piece);
            continue;
        }
        if (wr.kind == SL_MP_WR_CONTROL)
            sl_mp_control_arrived(conn, wr.frame);
        sl_mp_frame_free(conn->iface, wr.frame);
    }
}

void sl_mp_path_salvage(struct sl_mp_path *path, uint32_t arrived)
{
    struct sl_mp_conn *conn = path->conn;
    uint64_t before = path->stats.resent;
    struct sl_node *later =
        conn->repeat.next; /* frames that wait to be repeated come after this path's */

    while (path->retired != path->posted) {
        uint32_t ordinal = path->retired++;
        struct sl_mp_wr wr = path->wrs[ordinal % SL_MP_WINDOW];
        bool had = (int32_t)(arrived - ordinal) > 0;

        path->in_flight -= wr.len;
        if (wr.kind == SL_MP_WR_PING)
            continue;
        if (wr.kind == SL_MP_WR_WRITE) {
            path->writes--;
            path->stats.resent += !had;
            if (had)
                sl_mp_piece_over(conn, &wr.piece);
            else
                sl_mp_piece_redo(conn, &wr.piece);
        } else if (wr.kind == SL_MP_WR_FRAME && !had) {
            path->stats.resent++;
            sl_list_push_back(later, &wr.frame->link);
        } else if (wr.kind == SL_MP_WR_CONTROL && !had) {
            sl_mp_control_lost(conn, wr.frame);
        } else {
            if (wr.kind == SL_MP_WR_CONTROL)
                sl_mp_control_arrived(conn, wr.frame);
            sl_mp_frame_free(conn->iface, wr.frame);
        }
    }
    if (path->stats.resent != before) {
        SL_PROBE3(resend, conn->base.peer, path->idx, path->stats.resent - before);
        sl_mp_event(conn->iface, SL_EVENT_RESEND, conn->base.peer, path->idx,
                    path->stats.resent - before);
    }
}

/* Is it between one of those rails and one of the peer's? */
static bool joins(const struct sl_mp_path *path, uint16_t here, uint16_t there)
{
    unsigned ours = path->rail->idx % SL_MP_RAILS_MAX;

    return (here & 1u << ours) != 0 && (there & 1u << path->remote_rail) != 0;
}

/* The least resort of the paths between these rails that are up. */
static unsigned resort_between(const struct sl_mp_conn *conn, uint16_t here, uint16_t there)
{
    unsigned least = UINT_MAX;

    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (path != NULL && sl_mp_path_carries(path) && sl_mp_path_resort(path) < least &&
            joins(path, here, there))
            least = sl_mp_path_resort(path);
    }
    return least;
}

unsigned sl_mp_resort_in_use(const struct sl_mp_conn *conn)
{
    return conn->uneven ? resort_between(conn, ALL_RAILS, ALL_RAILS) : 0;
}

/* With reserve the first rail that has a path which is up and joins these rails. */
static unsigned rail_between(const struct sl_mp_conn *conn, unsigned resort, uint16_t here,
                             uint16_t there)
{
    unsigned first = SL_MP_RAILS_ALL;

    if (!conn->iface->settings.reserve)
        return first;
    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (path != NULL && path->state == SL_MP_PATH_UP && !path->failing &&
            sl_mp_path_resort(path) <= resort && path->rail->idx < first &&
            joins(path, here, there))
            first = path->rail->idx;
    }
    return first;
}

unsigned sl_mp_rail_in_use(const struct sl_mp_conn *conn)
{
    return rail_between(conn, sl_mp_resort_in_use(conn), ALL_RAILS, ALL_RAILS);
}

/* Which paths a piece may take, where they differ. */
struct choice {
    uint16_t here, there; /* rails that have its memory */
    unsigned rail, resort;
    unsigned weight, count; /* the greatest, and how many have it */
    uint64_t sent;          /* bytes by these */
};

static bool may_carry(const struct sl_mp_path *path, const struct choice *choice)
{
    return sl_mp_path_carries(path) && sl_mp_path_resort(path) <= choice->resort &&
           (choice->rail == SL_MP_RAILS_ALL || path->rail->idx == choice->rail) &&
           joins(path, choice->here, choice->there);
}

static uint64_t sent_by(const struct sl_mp_path *path)
{
    return path->stats.sent_bytes - path->shared_from;
}

static void weigh(const struct sl_mp_conn *conn, struct choice *choice)
{
    choice->resort = resort_between(conn, choice->here, choice->there);
    /* Not the rail in use: one that came back since may not have this memory. */
    choice->rail = rail_between(conn, choice->resort, choice->here, choice->there);
    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (path == NULL || !may_carry(path, choice) || path->weight < choice->weight)
            continue;
        if (path->weight > choice->weight) {
            choice->weight = path->weight;
            choice->count = 0;
            choice->sent = 0;
        }
        choice->count++;
        choice->sent += sent_by(path);
    }
}

/* Paths of the greatest weight share as ever; another one has no more than its weight against
 * theirs, by what they have on average. */
static bool is_chosen(const struct sl_mp_path *path, const struct choice *choice)
{
    return may_carry(path, choice) &&
           (path->weight == choice->weight ||
            sent_by(path) * choice->weight * choice->count < path->weight * choice->sent);
}

__attribute__((always_inline)) static inline struct sl_mp_path *
best_of(struct sl_mp_conn *conn, const struct sl_mp_piece *piece, bool uneven)
{
    const struct sl_mp_tx_cts *cts = piece->cts;
    uint16_t here = cts->msg->mr != NULL ? cts->msg->mr->rails : conn->iface->staging_rails;
    struct sl_mp_path *best = NULL;
    struct choice choice = {.here = here, .there = cts->rails};
    uint64_t best_ps = 0;

    if (uneven)
        weigh(conn, &choice);
    else
        choice.rail = sl_mp_rail_in_use(conn);
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path == NULL || !sl_mp_path_carries(path) || path->writes >= path->writes_most ||
            (choice.rail != SL_MP_RAILS_ALL && path->rail->idx != choice.rail) ||
            (uneven && !is_chosen(path, &choice)))
            continue;
        uint64_t ps = path->latency_ns * 1000 + (path->in_flight + piece->len) * rate_of(path);

        if (best == NULL || ps < best_ps) {
            best = path;
            best_ps = ps;
        }
    }
    /* Rather wait for room on a good one than have a slow one bring it later still. */
    if (best != NULL && (best->writes >= SL_MP_WRITES_MAX || !sl_mp_path_has_room(best) ||
                         (best->lanes->is_full != NULL && best->lanes->is_full(best))))
        return NULL;
    if (best == NULL && conn->paths_up == 0) {
        best = sl_mp_fallback_path(conn);
        if (best != NULL && !sl_mp_path_has_room(best))
            best = NULL;
    }
    return best;
}

__attribute__((noinline)) static struct sl_mp_path *best_uneven(struct sl_mp_conn *conn,
                                                                const struct sl_mp_piece *piece)
{
    return best_of(conn, piece, true);
}

/* The rails of a piece are looked at only where some memory lacks one: twice the code, as each
 * piece comes by. */
struct sl_mp_path *sl_mp_path_best(struct sl_mp_conn *conn, const struct sl_mp_piece *piece)
{
    return SL_UNLIKELY(conn->uneven || conn->iface->uneven) ? best_uneven(conn, piece)
                                                            : best_of(conn, piece, false);
}
