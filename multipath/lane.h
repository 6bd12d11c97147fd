/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the multi-path protocol stands on: lanes. A lane carries frames and writes from one rail (a
 * port of this host) to a rail of the peer, in their order, and says what arrived and what is over.
 * Queue pairs are lanes; so are the sideband (fallback.c) and the simulator's.
 *
 *   send.c  receive.c  cts.c  write.c  control_queue.c  setup.c  repair.c  fence.c     the protocol
 *        |  post  write                       |  open  connect  stop
 *        v                                    v
 *     struct sl_mp_lanes, a table of the lane's owner                       down
 *     sl_mp_arrived()  sl_mp_written()  sl_mp_retired()  sl_mp_failed()     up
 *        ^                                    ^
 *     completions                          errors, events
 *
 * Three words for lifetimes, as in core/transport.h: borrowed (during the call), lent (until it is
 * over), owned. No call waits, and none but those of a lane's life may take the kernel long. The
 * calls up come from the interface's progress, and from stop() and poll(); they may post.
 */
#ifndef SL_MULTIPATH_LANE_H
#define SL_MULTIPATH_LANE_H

#include "core/err.h"
#include "multipath/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_mp_conn;
struct sl_mp_iface;
struct sl_mp_path;
struct sl_mp_piece;
struct sl_mp_tx_frame;
struct sl_state_path;

/* A port of this host; its owner embeds it. */
struct sl_mp_rail {
    const char *name; /* "mlx5_0:1", for sentences; owned by the rail's owner */
    unsigned idx;
    uint64_t speed; /* bytes per second, by its owner; 0: not known */
    uint8_t keys;   /* as iface->keys, when its registrations began */
    bool usable;
    bool is_far;   /* another one is nearer to this rank, and carries while it can */
    char why[160]; /* not usable, and why */
};

struct sl_mp_lanes {
    /* ---- connections ---- */

    /* -EBADMSG, with a sentence: the lanes' part of a HELLO, OFFER or ACCEPT makes no sense. */
    int (*check)(const struct sl_mp_control *control);
    /* One more connection: `conns` of them are to have receive buffers. -ENOMEM. */
    int (*provide)(struct sl_mp_iface *iface, unsigned conns);
    /* The paths that this end's settings ask for, between its rails and those of conn->peer.
     * -EINVAL: they ask for what there cannot be. */
    int (*plan)(struct sl_mp_conn *conn, struct sl_mp_paths *out);
    /* How the rail looks to the peer. */
    void (*describe)(const struct sl_mp_rail *rail, struct sl_mp_rail_info *out);

    /* ---- a lane's life: by OFFER and ACCEPT, once in each epoch of its path ---- */

    /* A path of conn without a lane yet, zeroed, with its depth; owned by conn until destroy(). */
    int (*create)(struct sl_mp_conn *conn, struct sl_mp_path **out);
    void (*destroy)(struct sl_mp_path *path);
    /* This end of a fresh lane on path->rail towards a rail of the peer. theirs is its OFFER, or
     * NULL where this end leads. Sets path->spare and path->shown. From here on calls up may
     * come. */
    int (*open)(struct sl_mp_path *path, const struct sl_mp_rail_info *remote,
                const struct sl_mp_offer *theirs);
    /* The lane's part of an OFFER or ACCEPT. */
    void (*offer)(const struct sl_mp_path *path, struct sl_mp_offer *out);
    /* To the end that the peer offered; what is posted from here on may arrive. Sets
     * path->nominal_ps, repeat_ns and probe_bytes. */
    int (*connect)(struct sl_mp_path *path, const struct sl_mp_offer *theirs);
    /* When it returns, nothing that the peer posted changes memory or arrives any more, and what
     * arrived before has been told (poll). A lane that is not open is stopped. */
    void (*stop)(struct sl_mp_path *path);
    /* path->label is another: what this end sends takes that route at once. -ENOTSUP: only a fresh
     * lane can, by open(), which goes by path->label in any case. */
    int (*route)(struct sl_mp_path *path);
    /* Gives up what open() took, and calls up no more. Takes one that is not open. */
    void (*close)(struct sl_mp_path *path);

    /* ---- data: each posts number path->posted - 1, the first half of its immediate ---- */

    /* A frame; it arrives at the peer with its number. Its bytes are lent until it is retired.
     * signal: is to be retired soon, not only with a later one. */
    void (*post)(struct sl_mp_path *path, const struct sl_mp_tx_frame *frame, bool signal);
    /* Writes a piece to where its CTS says; the peer gets sl_mp_written(). Lent as above. */
    void (*write)(struct sl_mp_path *path, const struct sl_mp_piece *piece);
    /* Has it so much left to send that another piece would only make frames wait that are posted
     * after it? Pieces wait then, until the owner calls sl_mp_conn_activate(). NULL: never. */
    bool (*is_full)(struct sl_mp_path *path);
    /* Gives a receive buffer of sl_mp_arrived() back. Its lane may be closed since. */
    void (*release)(struct sl_mp_rail *rail, uint32_t buffer);
    /* Are receive buffers so few that a frame which has to wait should be copied out of its own? */
    bool (*is_short)(const struct sl_mp_path *path);
    /* Handles what has completed on the path's rail by now; how many. */
    unsigned (*poll)(struct sl_mp_path *path);

    /* ---- routes: what one lane's packets are sprayed over; NULL where there are none ---- */

    /* How many the lane has that differ, 0 while it is not connected. */
    unsigned (*routes)(const struct sl_mp_path *path);
    /* What a route has done, for the state page. Peer and number are set, all else is zero. */
    void (*tell_route)(const struct sl_mp_path *path, unsigned route, struct sl_state_path *out);
    /* As the path table says of it: 1 to 100 against the lane's others, and whether nothing goes by
     * it while another is up. Was it another? */
    bool (*weigh_route)(struct sl_mp_path *path, unsigned route, unsigned weight, bool is_avoided);

    /* For people: "mlx5_0:1 > 198.51.100.2". Cuts at cap. */
    void (*name)(const struct sl_mp_path *path, char *out, size_t cap);
};

/* ---- up: what a lane tells ---- */

/* A frame of len bytes has arrived with that immediate. bytes are lent with their buffer, which
 * goes back by release(), in this call or later. */
void sl_mp_arrived(struct sl_mp_path *path, uint32_t imm, const uint8_t *bytes, uint32_t buffer,
                   uint32_t len);
/* A write of len bytes has arrived. */
void sl_mp_written(struct sl_mp_path *path, uint32_t imm, uint32_t len);
/* Everything up to number `ordinal` of this epoch has arrived at the peer, and what was lent for it
 * is the protocol's again. */
void sl_mp_retired(struct sl_mp_path *path, uint32_t ordinal, uint64_t now_ns);
/* The lane has failed at this end; code is its own number for that (events show it), or 0. Only
 * noted: the next progress stops it. The first failure of an epoch counts. */
void sl_mp_failed(struct sl_mp_path *path, unsigned code, const char *fmt, ...) SL_PRINTF(3, 4);

#endif
