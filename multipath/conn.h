/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: their state, and the sideband beside their paths. */
#ifndef SL_MULTIPATH_CONN_H
#define SL_MULTIPATH_CONN_H

#include "core/transport.h"
#include "multipath/channel.h"
#include "multipath/message.h"
#include "multipath/path.h"
#include "multipath/control.h"
#include "multipath/control_queue.h"

struct sl_mp_iface;
struct sl_mp_fallback;

/* Why each path of a connection is not up: 16 rails with some 190 bytes each. */
#define SL_MP_REASONS_BYTES 3072
/* Why a connection ends: a sentence around them. It is a part of the user's last error, with the
 * operation that it ended behind it. */
#define SL_MP_CONN_WHY_BYTES (SL_MP_REASONS_BYTES + 256)

enum sl_mp_conn_state { SL_MP_CONN_NEW, SL_MP_CONN_CONNECTING, SL_MP_CONN_UP, SL_MP_CONN_DOWN };

/* Which end leads: that with the lower rank; where these do not tell, with the lower address of its
 * first rail; where it is the same port, with the lower nonce. As it said in its first HELLO. */
struct sl_mp_name {
    uint32_t rank;
    uint8_t address[sizeof(((struct sl_mp_rail_info *)0)->address)];
};

/* What the other end says of itself. */
struct sl_mp_peer {
    uint64_t nonce;
    uint32_t rank;
    bool listed;
    uint16_t far; /* rails that it would rather not use, a bit each */
    unsigned rail_count;
    struct sl_mp_rail_info *rails; /* rail_count; NULL: it has said nothing */
};

/* Messages to DROP, seldom any. */
struct sl_mp_drops {
    struct sl_mp_drop {
        struct sl_mp_channel *channel;
        uint32_t number;
    } * at;
    unsigned count, room;
};

struct sl_mp_conn {
    struct sl_ep base;
    struct sl_mp_iface *iface;
    struct sl_node link;   /* in iface->conns */
    struct sl_node active; /* in iface->active while progress has work for it */
    struct sl_node timed;  /* in iface->timed while it waits for a time */
    uint64_t due_ns;       /* then: which */
    bool is_timed;
    bool is_active, failing, leads, has_hello, is_named, sideband_up;
    bool has_spread;  /* made, or asked for, those that much data needs: lazy.c */
    bool later;       /* of its paths some are not made, as nothing needs them yet: lazy.c */
    bool has_standby; /* ... but a second one is, or there is none */
    bool left;        /* the peer is gone: what it sent may still be received */
    bool heard_bye;   /* the peer has given up, and said why */
    bool lingers;     /* the endpoint is being destroyed: its caller hears nothing more */
    bool has_failed;  /* one of its paths has: the next turn ends it */
    uint8_t state;
    uint32_t eager_bytes;
    uint64_t nonce;
    struct sl_mp_name name; /* of this end */
    struct sl_ep *sideband;
    struct sl_req sideband_req;
    bool dialling;           /* the sideband: sideband_req is under way */
    uint32_t sideband_over;  /* the peer knows that connections before this one are over here */
    uint64_t bye_until_ns;   /* down: when the sideband is closed, whether it hears why or not */
    uint64_t sideband_up_ns; /* since when it is up, or was */
    uint64_t redial_at_ns;   /* lost and not dialling: when to */
    uint64_t redial_wait_ns; /* and how long to wait before the next time */
    struct sl_req *connect_req;
    uint64_t connect_deadline_ns, settle_ns;
    int down_status;
    const char *why; /* it ends, with the reasons of its paths; owned: why_bytes */
    char *why_bytes; /* SL_MP_CONN_WHY_BYTES; NULL until then */

    struct sl_mp_peer peer;
    struct sl_mp_cts_keys peer_keys; /* of a CTS that all paths can carry, by the latest keys */
    bool uneven; /* one is here that was another, or a path is spare, or has a weight */
    struct sl_mp_path **paths; /* NULL: the peer has not offered it yet */
    unsigned path_room;
    unsigned path_count, paths_expected, paths_up;
    uint32_t steered;          /* iface->steered, when the path table was applied here */
    bool rerouting;            /* some path's lane does not go by the path's label yet */
    struct sl_mp_path *remade; /* the last one that was stopped for that, and when */
    uint64_t remade_ns;
    struct sl_mp_path *frame_path; /* carries the frames; NULL: none is up, or see below */
    /* carried them and has failed; the peer has not said what it had */
    struct sl_mp_path *fencing;
    /* How often in a row another path answered much sooner; not to be left before, and then for so
     * long; when paths without frames were asked last: watch.c. */
    unsigned slow_looks;
    uint64_t frames_stay_ns, frames_hold_ns, asked_ns;
    uint64_t no_path_since_ns; /* 0: there is one */
    uint64_t ping_at_ns;       /* next one by each path; only without a sideband */

    /* frames */
    uint32_t fseq_out, fseq_in;
    unsigned credits;      /* frames that the peer has room for */
    unsigned credits_owed; /* handled here and not told yet */
    struct sl_node repeat; /* frames of a path that ended, in their order */
    /* messages */
    struct sl_channels channels;
    struct sl_node all_channels; /* struct sl_mp_channel */
    struct sl_node telling;      /* those whose end is not said or not complete */
    struct sl_mp_rx_cts rx_cts[SL_MP_RX_CTS_MAX];
    /* CTS that came: all; and with bytes to deal, in their order */
    struct sl_node all_cts, deal;
    unsigned cts_count, unannounced;
    struct sl_mp_piece *redo; /* of lanes that failed */
    unsigned redo_count, redo_room;
    struct sl_mp_drops drops;
    struct sl_node late;      /* receives to end in progress */
    struct sl_node starved;   /* receives that found no room for their CTS */
    struct sl_node gpu_waits; /* receives whose frame waits for the way into its GPU's memory */
    unsigned gpu_copies;      /* under way */
    unsigned held; /* frames that wait for their receive or for that way, with their credit */
    unsigned kept; /* frames that wait on the heap */

    struct sl_mp_fallback *fallback; /* NULL: data never goes over the sideband */

    /* Control messages that the sideband has not taken, and, by number, those that the peer has
     * not told of, and those that came and wait for their turn. */
    struct sl_mp_queued control_queue[SL_MP_CONTROLS];
    struct sl_mp_control *unhandled[SL_MP_CONTROLS], *inbox[SL_MP_CONTROLS];
    unsigned control_head, control_count;
    uint32_t control_out, control_in; /* numbers of the next ones */
    uint32_t control_handled;         /* of ours, by the peer */
    uint32_t control_told;            /* of the peer's, as it knows */
    uint32_t hello_seq;               /* of our last HELLO */
    bool hello_due;                   /* rails have changed since */

    /* Where frames are kept that cannot stay in their buffers: one for each credit, of slot_bytes.
     * The bits say which are in use. Pages that were never used cost nothing. */
    uint32_t copies_used;
    uint8_t copies[];
};

_Static_assert(SL_MP_CONN_WHY_BYTES + 512 <= SL_ERROR_TEXT_MAX, "and the operation that it ended");

/* There is one for each peer: rare parts come from pools, and tables of messages grow with the
 * messages under way: in a channel that is full, to some 6 KiB. */
_Static_assert(sizeof(struct sl_mp_conn) + sizeof(struct sl_mp_channel) <= 9 << 10,
               "a connection stays small");
_Static_assert(SL_MP_CREDITS < 32, "a bit for each in copies_used");

static inline struct sl_mp_conn *sl_mp_conn_of(struct sl_ep *ep)
{
    return (struct sl_mp_conn *)ep;
}

/* Says in conn->why why it ends. */
void sl_mp_conn_say_why(struct sl_mp_conn *conn, const char *fmt, ...) SL_PRINTF(2, 3);
/* Notes that the connection is lost; the next progress tells its owner. Returns status. */
int sl_mp_conn_fail(struct sl_mp_conn *conn, int status, const char *fmt, ...) SL_PRINTF(3, 4);
/* Ends what was noted so. */
void sl_mp_conn_lost(struct sl_mp_conn *conn);
/* Its peer said farewell: notes the loss once all that came before is handled. */
void sl_mp_conn_leave(struct sl_mp_conn *conn);
/* No lane of it touches memory any more. */
void sl_mp_conn_stop(struct sl_mp_conn *conn);
/* Before its end, if it is up: waits a little until the peer has what was posted. */
void sl_mp_conn_linger(struct sl_mp_conn *conn);
void sl_mp_conn_activate(struct sl_mp_conn *conn);
void sl_mp_conn_deactivate(struct sl_mp_conn *conn);
/* A frame is handled here; the peer is told when there are some. */
static inline void sl_mp_owe_credit(struct sl_mp_conn *conn)
{
    if (++conn->credits_owed >= SL_MP_CREDITS_DUE)
        sl_mp_conn_activate(conn);
}
/* It waits for a time: the next reading of the clock asks for which. */
void sl_mp_conn_time(struct sl_mp_conn *conn);
void sl_mp_conn_untime(struct sl_mp_conn *conn);
/* The code and sentence for a call on a connection that is not up. */
int sl_mp_not_up(const struct sl_mp_conn *conn);

#endif
