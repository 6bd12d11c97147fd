/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path: one lane after the other, numbered by epochs; what was posted to the present one, and
 * what all of them measured. The lane's owner embeds it.
 *
 * What is posted is numbered from 0 in each epoch, at both ends. Lanes keep the order, so what
 * arrived is always a prefix of what was posted.
 */
#ifndef SL_MULTIPATH_PATH_H
#define SL_MULTIPATH_PATH_H

#include "core/histogram.h"
#include "core/path_table.h"
#include "core/state.h"
#include "multipath/lane.h"

#include <string.h>

struct sl_mp_tx_cts;

#define SL_MP_PATH_WHY 192
#define SL_MP_WINDOW 64               /* places for what is posted to a path and not retired */
#define SL_MP_WRITES_MAX 16           /* of them writes */
#define SL_MP_PIECE_LEAST (64u << 10) /* unless the settings say otherwise */
#define SL_MP_WRITES_ANY UINT8_MAX    /* of path->writes_most: it is on no probation */

enum sl_mp_path_state {
    SL_MP_PATH_IDLE,     /* no lane; the leading end tries at next_try_ns */
    SL_MP_PATH_OFFERED,  /* leading end: waits for ACCEPT */
    SL_MP_PATH_ACCEPTED, /* other end: connected, waits for the first ping */
    SL_MP_PATH_PINGING,  /* connected and has pinged; repair.c says for what it waits */
    SL_MP_PATH_UP,
    SL_MP_PATH_FENCING, /* was up and has ended here; waits for the other end's DOWN */
};

enum sl_mp_wr_kind {
    SL_MP_WR_PING,
    SL_MP_WR_FRAME,
    SL_MP_WR_WRITE,
    SL_MP_WR_CONTROL,
};

/* Where a path's label is not the one that its lane goes by. */
enum sl_mp_reroute {
    SL_MP_ROUTED,
    SL_MP_REROUTE, /* nobody has asked the lane yet whether it can change */
    SL_MP_REMAKE,  /* it cannot: a fresh one is needed */
};

/* The route of what this end sends, for people. */
struct sl_mp_shown_route {
    uint32_t label;       /* flow label; 0: the driver's choice, or unknown */
    uint16_t source_port; /* of UDP; 0: there is none, or it is unknown */
};

/* A part of what a CTS names: what one write carries. */
struct sl_mp_piece {
    struct sl_mp_tx_cts *cts;
    uint64_t off; /* in the CTS */
    uint32_t len;
    uint16_t chunk; /* staging that holds its bytes, or SL_MP_NO_CHUNK */
};
#define SL_MP_NO_CHUNK UINT16_MAX

/* A posted work request until it is retired. */
struct sl_mp_wr {
    uint8_t kind;
    uint32_t len;
    uint64_t posted_ns; /* 0: not timed */
    union {
        struct sl_mp_tx_frame *frame;
        struct sl_mp_piece piece;
    };
};

/* Of writes that were retired in one window of time: the time in which one was under way. The
 * network's speed shows in it, without what a write waits for others of its path. */
struct sl_mp_busy {
    uint64_t window; /* its begin over SL_STATE_WINDOW_NS, plus 1; 0: none */
    uint64_t until_ns;
    uint64_t ns, bytes;
    uint32_t writes;
};

struct sl_mp_path_stats {
    uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
    uint64_t resent, failures, ups;
    uint64_t histogram[SL_HISTOGRAM_BINS]; /* of completion times: core/histogram.h */
    struct sl_mp_busy busy[2];             /* the last window that had any, the one before it */
};

struct sl_mp_path {
    struct sl_mp_conn *conn;
    /* By the lane's owner in create(); the rest is the protocol's, but for what connect() sets. */
    const struct sl_mp_lanes *lanes;
    unsigned depth; /* how many may be posted and not retired, at most SL_MP_WINDOW */

    struct sl_mp_rail *rail; /* of this end; NULL: the sideband is the lane */
    uint8_t idx, remote_rail;
    /* Together, so that sl_mp_path_carries() is one look. */
    uint8_t state;
    bool failing; /* has failed; the next progress acts on it */
    bool late;    /* nothing has come back for long: pieces go elsewhere (watch.c) */
    uint8_t zero;
    uint8_t turn; /* of the paths between these rails, from 0 */
    bool spare;   /* not listed by this end, which sends there if no other is up */
    /* As the path table says: its part, up to SL_PATH_TABLE_WEIGHT_MAX; nothing goes by it while
     * another is up. */
    uint8_t weight;
    bool is_avoided;
    uint8_t reroute;                /* enum sl_mp_reroute */
    int32_t label;                  /* its route; SL_PATH_TABLE_UNSAID: the lane's own choice */
    uint64_t reroute_ns;            /* SL_MP_REMAKE: since when */
    struct sl_mp_shown_route shown; /* by the lane's owner */
    bool tried;                     /* came up or failed once */
    bool leads;                     /* this end offers */
    bool later;                     /* ... when it is needed: lazy.c */
    bool sound;               /* stopped for the close of a channel: nothing is wrong with it */
    bool excused;             /* a rail went: the path has no part in it */
    bool proven, peer_proven; /* it carries, says this end, and the other */
    /* What is remembered against it: tries since it was up last, and ends while it was up. */
    uint8_t tries, losses;
    uint8_t writes_most; /* under way at a time: few at first, after a loss, or to be tried again */
    uint16_t epoch;
    uint16_t code; /* of the lane, for what failed it, or 0 */
    /* Counters of the epoch; index of wrs[] is counter % SL_MP_WINDOW. */
    uint32_t posted, retired, arrived, unsignalled, writes;
    uint32_t carried;   /* retired ones up to the last that is no ping */
    uint64_t in_flight; /* bytes */
    struct sl_mp_wr wrs[SL_MP_WINDOW];
    /* measured */
    uint64_t nominal_ps;   /* per byte, by the rail's speed */
    uint64_t repeat_ns;    /* after which its lane sends again what is lost; 0: nobody knows */
    uint32_t piece_bytes;  /* of a write, at most: by the rail's speed, or as the settings say */
    uint32_t packet_bytes; /* of a write that a packet of its lane takes; 0: nobody counts */
    uint32_t probe_bytes;  /* of a frame that makes the largest packet its lane sends */
    uint64_t last_done_ns; /* end of a write */
    uint64_t shared_from;  /* of stats.sent_bytes: what came before counts for no weight */
    uint64_t latency_ns;   /* of frames, moving average */
    uint64_t ps_per_byte;  /* of writes, moving average; 0: not known, or not any more */
    uint64_t next_try_ns, deadline_ns;
    uint64_t up_ns, grown_ns; /* up since, 0: not in this epoch; more writes since */
    uint16_t misses; /* lanes that failed, or could not be had: the next takes another route */
    /* as watch.c saw it last: counters; when something came back, or nothing was under way; when
     * something came back */
    uint32_t seen_posted, seen_retired;
    uint64_t moved_ns, came_ns;
    char why[SL_MP_PATH_WHY]; /* its last failure */
    struct sl_mp_path_stats stats;
};

/* Is it up, and worth being dealt to? */
static inline bool sl_mp_path_carries(const struct sl_mp_path *path)
{
    uint32_t word;

    _Static_assert(offsetof(struct sl_mp_path, zero) == offsetof(struct sl_mp_path, state) + 3,
                   "one word");
    memcpy(&word, &path->state, sizeof(word));
    return word == SL_MP_PATH_UP;
}

/* A path of conn, idle. */
int sl_mp_path_add(struct sl_mp_conn *conn, unsigned idx, struct sl_mp_path **out);
/* A fresh lane: the counters of its epoch at 0. */
void sl_mp_path_reset(struct sl_mp_path *path);
static inline bool sl_mp_path_has_room(const struct sl_mp_path *path)
{
    return path->posted - path->retired < path->depth;
}
/* Posts a frame that only has to arrive. proven: this end has seen enough of them arrive. */
void sl_mp_path_ping(struct sl_mp_path *path, bool proven);
/* Posts a frame that is not in the order of frames. */
void sl_mp_path_post_control(struct sl_mp_path *path, struct sl_mp_tx_frame *frame);
/* Posts a frame that has its header. The frame belongs to the path until it is retired. */
void sl_mp_path_post_frame(struct sl_mp_path *path, struct sl_mp_tx_frame *frame);
void sl_mp_path_post_write(struct sl_mp_path *path, const struct sl_mp_piece *piece);
/* After both ends have stopped: what the other end had is over, the rest is for other paths. */
void sl_mp_path_salvage(struct sl_mp_path *path, uint32_t arrived);
/* With reserve the rail that data goes by now: the first that has a path which is up. */
#define SL_MP_RAILS_ALL UINT32_MAX
unsigned sl_mp_rail_in_use(const struct sl_mp_conn *conn);
/* Only the least of those that are up carry: 0, unless it is spare, or to be avoided. */
static inline unsigned sl_mp_path_resort(const struct sl_mp_path *path)
{
    return path->spare + 2u * path->is_avoided;
}
/* Does a piece have to look at it more closely than at others? */
static inline bool sl_mp_path_is_uneven(const struct sl_mp_path *path)
{
    return path->spare || path->is_avoided || path->weight != SL_PATH_TABLE_WEIGHT_MAX;
}
/* The least there is. */
unsigned sl_mp_resort_in_use(const struct sl_mp_conn *conn);
/* The path by which the piece would arrive first, of those with room for a write and between rails
 * that have its memory at both ends; or NULL. */
struct sl_mp_path *sl_mp_path_best(struct sl_mp_conn *conn, const struct sl_mp_piece *piece);

/* How large pieces on the path are, by its lane's speed. */
void sl_mp_path_size_pieces(struct sl_mp_path *path);
/* The bytes of a piece at this end, which its lane sends from. */
const uint8_t *sl_mp_piece_bytes(const struct sl_mp_path *path, const struct sl_mp_piece *piece);

#endif
