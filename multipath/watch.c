/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where several paths are up, each is looked at some 200 times a second: does what was posted come
 * back? One that is late gets no more pieces until something does. One that stands still, while
 * another that was asked meanwhile has answered, ends: what it had goes by others after the fence,
 * instead of waiting until its lane has repeated it often enough to give up. And where another
 * answers much sooner than the one that carries the frames, they go there.
 */
#include "multipath/watch.h"

#include "multipath/conn.h"
#include "multipath/lazy.h"
#include "multipath/repair.h"
#include "multipath/sideband.h"

#define WATCH_NS (5 * SL_NS_PER_MS)
#define CONNS 32 /* of an interface, at a time: of many each has its turn later */
#define PROBATION_NS (10 * SL_NS_PER_MS) /* after one loss; twice as long after each further */
#define PROBATION_LOSSES 6
#define LATE_NS (10 * SL_NS_PER_MS)
#define STALL_NS_MIN (20 * SL_NS_PER_MS)
#define STALL_NS_MAX (200 * SL_NS_PER_MS)
#define STALL_NS_UNKNOWN (100 * SL_NS_PER_MS) /* of lanes that do not tell when they repeat */
#define SLOWER 4                              /* times as long as measured is nothing unusual */
#define SLACK_NS 200000
#define SLOW_LOOKS 20              /* before frames go elsewhere */
#define ASK_NS (25 * SL_NS_PER_MS) /* between pings of paths that carry no frames */
#define HOLD_NS_MIN SL_NS_PER_S    /* that frames stay where they went, twice as long each time */
#define HOLD_NS_MAX (60 * SL_NS_PER_S)

static bool is_up(const struct sl_mp_path *path)
{
    return path != NULL && path->state == SL_MP_PATH_UP && !path->failing;
}

/* ---- probation ---- */

/* A path that has failed before gets twice the share from time to time, the more seldom the oftener
 * it did, and so does one that was slow; not while all that it has stands still. */
static void grow(struct sl_mp_path *path, uint64_t now_ns)
{
    unsigned losses = path->losses < PROBATION_LOSSES ? path->losses : PROBATION_LOSSES;

    if (path->writes_most == SL_MP_WRITES_ANY || now_ns - path->grown_ns < PROBATION_NS << losses ||
        (path->writes > 0 && path->last_done_ns < path->grown_ns))
        return;
    path->writes_most = path->writes_most < SL_MP_WRITES_MAX / 2 ? (uint8_t)(2 * path->writes_most)
                                                                 : SL_MP_WRITES_ANY;
    path->grown_ns = now_ns;
}

/* ---- does anything come back? ---- */

/* The first thing under way that tells of its end, or NULL. */
static const struct sl_mp_wr *awaited(const struct sl_mp_path *path)
{
    for (uint32_t n = path->retired; n != path->posted; n++)
        if (path->wrs[n % SL_MP_WINDOW].posted_ns != 0)
            return &path->wrs[n % SL_MP_WINDOW];
    return NULL;
}

/* Frames that do not tell of their end, and nothing behind them: a ping does. */
static void ask(struct sl_mp_path *path)
{
    if (path->posted == path->seen_posted && path->posted != path->retired &&
        awaited(path) == NULL && sl_mp_path_has_room(path))
        sl_mp_path_ping(path, false);
}

static void see(struct sl_mp_path *path, uint64_t now_ns)
{
    bool came = path->retired != path->seen_retired;

    ask(path);
    if (came)
        path->came_ns = now_ns;
    if (came || path->posted == path->retired)
        path->moved_ns = now_ns;
    path->seen_posted = path->posted;
    path->seen_retired = path->retired;
}

/* How long nothing has come back that should have. What came while this end did not look counts as
 * come: it was looked for since the timers ran last. */
static uint64_t waits_ns(const struct sl_mp_path *path, const struct sl_mp_wr *wr)
{
    uint64_t since_ns = wr->posted_ns > path->moved_ns ? wr->posted_ns : path->moved_ns;
    uint64_t before_ns = path->conn->iface->ticked_before_ns;

    return before_ns > since_ns ? before_ns - since_ns : 0;
}

/* What that may take by all that was measured. */
static uint64_t usual_ns(const struct sl_mp_path *path, const struct sl_mp_wr *wr)
{
    uint64_t ps = path->ps_per_byte > path->nominal_ps ? path->ps_per_byte : path->nominal_ps;

    return SLOWER * (path->latency_ns + wr->len * ps / 1000);
}

static uint64_t stall_ns(const struct sl_mp_path *path)
{
    uint64_t ns = path->repeat_ns == 0 ? STALL_NS_UNKNOWN : path->repeat_ns * 3 / 2;

    return ns < STALL_NS_MIN ? STALL_NS_MIN : ns > STALL_NS_MAX ? STALL_NS_MAX : ns;
}

/* Has another path answered lately, in the second half of the time that this one waits? */
static bool another_answers(const struct sl_mp_conn *conn, const struct sl_mp_path *but,
                            uint64_t waits_ns)
{
    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (path != but && is_up(path) && !path->late &&
            path->came_ns + waits_ns / 2 > conn->iface->ticked_before_ns)
            return true;
    }
    return false;
}

/* So that there is something to compare with. */
static void ask_others(struct sl_mp_conn *conn, const struct sl_mp_path *but)
{
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path != but && is_up(path) && path->posted == path->retired)
            sl_mp_path_ping(path, false);
    }
}

bool sl_mp_watch_waits(struct sl_mp_path *path, uint64_t now_ns)
{
    const struct sl_mp_wr *wr;

    see(path, now_ns);
    wr = awaited(path);
    return wr != NULL && waits_ns(path, wr) > LATE_NS + usual_ns(path, wr);
}

static void judge(struct sl_mp_conn *conn, struct sl_mp_path *path)
{
    const struct sl_mp_wr *wr = awaited(path);
    uint64_t waited_ns = wr == NULL ? 0 : waits_ns(path, wr);
    uint64_t usual = wr == NULL ? 0 : usual_ns(path, wr);

    path->late = waited_ns > LATE_NS + usual;
    if (!path->late)
        return;
    ask_others(conn, path);
    path->late = another_answers(conn, path, waited_ns);
    if (path->late && waited_ns > stall_ns(path) + usual)
        sl_mp_failed(path, 0, "nothing came back for %u ms, while others carried",
                     (unsigned)(waited_ns / SL_NS_PER_MS));
}

/* ---- where frames go ---- */

/* Which answers soonest, of those that frames may go by; NULL: there is no other. */
static struct sl_mp_path *soonest(const struct sl_mp_conn *conn)
{
    unsigned rail = sl_mp_rail_in_use(conn);
    unsigned resort = sl_mp_resort_in_use(conn);
    struct sl_mp_path *best = NULL;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path != NULL && path != conn->frame_path && sl_mp_path_carries(path) &&
            path->latency_ns != 0 && (rail == SL_MP_RAILS_ALL || path->rail->idx == rail) &&
            sl_mp_path_resort(path) <= resort &&
            (best == NULL || path->latency_ns < best->latency_ns))
            best = path;
    }
    return best;
}

/* Frames are handled in their order, so they leave a path by its fence, and it returns at once. */
static void frames_leave(struct sl_mp_conn *conn, const struct sl_mp_path *to, bool returns,
                         uint64_t now_ns)
{
    struct sl_mp_path *path = conn->frame_path;
    uint64_t hold_ns = 2 * conn->frames_hold_ns;

    hold_ns = hold_ns < HOLD_NS_MIN ? HOLD_NS_MIN : hold_ns > HOLD_NS_MAX ? HOLD_NS_MAX : hold_ns;
    conn->frames_hold_ns = hold_ns;
    conn->frames_stay_ns = now_ns + hold_ns;
    conn->slow_looks = 0;
    path->sound = true;
    if (returns)
        sl_mp_failed(path, 0, "frames go by %s again, which is not in reserve", to->rail->name);
    else
        sl_mp_failed(path, 0, "frames go by %s, which answers in %u us instead of %u",
                     to->rail->name, (unsigned)(to->latency_ns / 1000),
                     (unsigned)(path->latency_ns / 1000));
}

/* With reserve a rail that is not the first does as a spare path does. */
static bool is_in_reserve(const struct sl_mp_conn *conn, const struct sl_mp_path *path)
{
    unsigned rail = sl_mp_rail_in_use(conn);

    return path->spare || (rail != SL_MP_RAILS_ALL && path->rail->idx != rail);
}

/* Frames are on a path in reserve, as there was no other: one is up again, and stays so. */
static void return_frames(struct sl_mp_conn *conn, uint64_t now_ns)
{
    const struct sl_mp_path *at = conn->frame_path, *to = soonest(conn);

    if (to == NULL || (is_in_reserve(conn, to) && sl_mp_path_resort(to) >= sl_mp_path_resort(at)))
        return;
    if (conn->fseq_out == 0) /* nothing keeps them there */
        sl_mp_frames_begin(conn);
    else if (now_ns - to->up_ns >= HOLD_NS_MIN && now_ns >= conn->frames_stay_ns)
        frames_leave(conn, to, true, now_ns);
}

/* Frames went since the last look: is another path much better for them? */
static void look_at_frames(struct sl_mp_conn *conn, uint64_t now_ns)
{
    const struct sl_mp_path *at = conn->frame_path, *to;

    /* Nobody is asked for a word or two: the peer may be done, and gone. */
    if (now_ns - conn->asked_ns >= ASK_NS) {
        if (now_ns - conn->asked_ns < 4 * ASK_NS)
            ask_others(conn, at);
        conn->asked_ns = now_ns;
    }
    to = soonest(conn);
    if (to == NULL || at->latency_ns <= SLOWER * to->latency_ns + SLACK_NS) {
        conn->slow_looks = 0;
        return;
    }
    if (++conn->slow_looks >= SLOW_LOOKS && now_ns >= conn->frames_stay_ns)
        frames_leave(conn, to, is_in_reserve(conn, at), now_ns);
}

/* ---- turns ---- */

/* The only one that is up carries all there is. */
static void trust(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (is_up(conn->paths[i])) {
            conn->paths[i]->late = false;
            conn->paths[i]->writes_most = SL_MP_WRITES_ANY;
        }
}

static void alone(struct sl_mp_conn *conn, uint64_t now_ns)
{
    trust(conn);
    if (conn->later && conn->state == SL_MP_CONN_UP)
        sl_mp_lazy_watch(conn, now_ns);
}

static void look(struct sl_mp_conn *conn, uint64_t now_ns)
{
    const struct sl_mp_path *at = conn->frame_path;
    bool went = is_up(at) && at->rail != NULL && at->posted != at->seen_posted;

    for (unsigned i = 0; i < conn->path_count; i++)
        if (is_up(conn->paths[i])) {
            grow(conn->paths[i], now_ns);
            see(conn->paths[i], now_ns);
        }
    for (unsigned i = 0; i < conn->path_count; i++)
        if (is_up(conn->paths[i]))
            judge(conn, conn->paths[i]);
    if (went && is_up(at))
        look_at_frames(conn, now_ns);
    if (is_up(at) && at->rail != NULL && is_in_reserve(conn, at))
        return_frames(conn, now_ns);
}

void sl_mp_watch(struct sl_mp_iface *iface, uint64_t now_ns)
{
    if (now_ns < iface->watch_ns)
        return;
    iface->watch_ns = now_ns + WATCH_NS;
    for (unsigned i = 0; i < iface->conn_count && i < CONNS; i++) {
        struct sl_mp_conn *conn =
            sl_container_of(sl_list_pop_front(&iface->conns), struct sl_mp_conn, link);

        sl_list_push_back(&iface->conns, &conn->link);
        if (sl_mp_peer_leaves(conn))
            continue;
        if (conn->paths_up > 1)
            look(conn, now_ns);
        else if (conn->paths_up == 1 && sl_mp_paths_all(conn) > 1)
            alone(conn, now_ns);
    }
}
