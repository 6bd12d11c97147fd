/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two ends of a connection tell each other beside the data: rails, the life of paths, and
 * the caller's control messages. Each travels twice, over the sideband and over a path that is up:
 * the one may share a dead cable with the path that has just failed. Numbers put them in order,
 * once.
 */
#ifndef SL_MULTIPATH_CONTROL_H
#define SL_MULTIPATH_CONTROL_H

#include "core/transport.h"
#include "multipath/frame.h"

#define SL_MP_VERSION 10
#define SL_MP_WHY 96

enum sl_mp_control_kind {
    SL_MP_CONTROL_CALLER = 1, /* a control message of the caller; epoch is its length */
    SL_MP_CONTROL_HELLO,      /* rails of the sender, at start and when one changes */
    SL_MP_CONTROL_OFFER,      /* a lane for a path, by the end that leads */
    SL_MP_CONTROL_ACCEPT,     /* its other end */
    SL_MP_CONTROL_REFUSE,
    SL_MP_CONTROL_DOWN, /* a path has ended at the sender, which had so many arrivals of it */
    /* all that the other end sent over the sideband has been handled */
    SL_MP_CONTROL_SIDEBAND_DONE,
    SL_MP_CONTROL_ACK, /* only what `handled` says; not numbered itself */
    SL_MP_CONTROL_BYE, /* the sender gives the connection up, as no path is to be had */
    /* The sender has closed a channel: it takes and sends no message there; count: of frames that
     * name the channel, sent by it before. */
    SL_MP_CONTROL_CLOSE,
    /* None of the sender's writes for that channel is under way, and it makes no more; count: of
     * bytes that it wrote there. */
    SL_MP_CONTROL_CLOSED,
    SL_MP_CONTROL_PATHS, /* by the end that does not lead: paths that it is to have, too */
    /* Connections of the sideband before number `before` are over at the sender, which had
     * `arrived` units of them, and counts no more. */
    SL_MP_CONTROL_SIDEBAND_OVER,
    SL_MP_CONTROL_LEAVE, /* the sender has closed its endpoint; where the sideband cannot say so */
};

/* Of a DOWN: nothing is wrong with the path, so it may return at once. */
#define SL_MP_CONTROL_SOUND 1u
/* Of a DOWN: the sender's rail is out, which it says by itself and the path has no part in. */
#define SL_MP_CONTROL_RAIL 2u

#define SL_MP_RAIL_USABLE 1u
#define SL_MP_RAIL_FAR                                                                             \
    2u /* of a HELLO: the sender would rather use others, which are nearer to it */

/* A rail as its owner describes it: the lanes' own but for two bytes. The address has room for
 * those of both IP families beside a MAC. */
struct sl_mp_rail_info {
    uint8_t address[34];
    uint8_t usable; /* the bits above */
    uint8_t more[4];
    /* What is registered on it has new keys since so many times: older ones are another device's,
     * which was there before. */
    uint8_t keys;
    uint8_t still_more[2];
};

#define SL_MP_NO_RANK UINT32_MAX

/* Rails of one HELLO; who has more says several, one behind the other. */
#define SL_MP_HELLO_RAILS 4

struct sl_mp_hello {
    uint32_t version;
    uint32_t eager_bytes; /* the least of both ends counts */
    uint64_t nonce;       /* of this connection, drawn */
    uint32_t rank;        /* of the sender, SL_MP_NO_RANK: not known; sl_mp_leads() */
    uint8_t rail_count;
    uint8_t fallback; /* 1: without paths, data may go over the sideband */
    uint8_t listed;   /* 1: the sender's user lists its paths */
    uint8_t first;    /* the number of rails[0]: of the sender's rail_count */
    struct sl_mp_rail_info rails[SL_MP_HELLO_RAILS];
};

/* Rails that a path is to join; the sender's is local. */
struct sl_mp_pair {
    uint8_t local, remote;
};

#define SL_MP_PATHS_ALL 1u
#define SL_MP_PATHS_SPREAD 2u /* but for those that are far from both ends */

/* The paths that an end's settings ask for. */
struct sl_mp_paths {
    uint8_t count;
    uint8_t now; /* SL_MP_PATHS_ALL or _SPREAD: those that were for later are needed; or 0 */
    struct sl_mp_pair pairs[SL_MP_PATHS_MAX];
};

#define SL_MP_OFFER_LATER 0x80u

/* OFFER and ACCEPT. */
struct sl_mp_offer {
    uint8_t local_rail, remote_rail; /* of the sender, of the receiver */
    uint8_t turn;                    /* of the path, among those between these rails, from 0 */
    uint8_t paths;    /* how many the connection is to have; the first bit: some of them later */
    uint8_t lane[20]; /* the lane's own */
    struct sl_mp_rail_info rail; /* of the sender, as it is now */
    uint8_t spare[2];
};

struct sl_mp_control {
    uint8_t kind;
    uint8_t path;
    uint16_t epoch;
    uint32_t seq;
    uint32_t handled; /* control messages of the other end that the sender has handled */
    uint32_t flags;   /* SL_MP_CONTROL_SOUND, _RAIL */
    union {
        uint8_t caller[SL_CTRL_MAX];
        struct sl_mp_hello hello;
        struct sl_mp_offer offer;
        struct sl_mp_paths paths;
        struct {
            uint32_t arrived;
            char why[SL_MP_WHY];
        } down; /* and REFUSE, BYE */
        struct {
            uint32_t channel;
            uint32_t spare;
            uint64_t count;
        } close; /* and CLOSED */
        struct {
            uint32_t before;
            uint32_t spare;
            uint64_t arrived;
        } sideband;
    };
};

/* The reason of a DOWN, REFUSE or BYE. One that is longer than the room for it ends with where the
 * rest is. */
void sl_mp_control_why(struct sl_mp_control *control, const char *why);

/* Bytes that travel of it; 0: no such kind. */
size_t sl_mp_control_size(const struct sl_mp_control *control);

/* Checks and copies len received bytes. -EBADMSG, -EPROTO (another version); the text says what. */
int sl_mp_control_read(const void *bytes, size_t len, struct sl_mp_control *out);

#endif
