/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange that goes through a tree of ranks: shares up, the result down in pieces. */
#ifndef SL_LAUNCH_GATHER_H
#define SL_LAUNCH_GATHER_H

#include "core/exchange.h"
#include "launch/io.h"
#include "launch/rendezvous.h"
#include "launch/tree.h"

/* A connection to the parent or to a child. */
struct sl_edge {
    int fd; /* -1: none yet */
    int rank;
    struct sl_meeting_keys keys;
    char name[SL_ADDRESS_TEXT_MAX]; /* of a parent: where it was met */

    /* What of the exchange under way has passed; launch/gather.c's own. */
    struct sl_control
        control; /* the frame that is coming in; of GATHER and RESULT its head alone */
    uint8_t seq[SL_SEQ_BYTES], seal[SL_SEAL_BYTES]; /* of GATHER */
    size_t got, sent;
    bool in;              /* all its shares are here */
    bool answered;        /* it has told who is missing */
    unsigned skip, after; /* the pieces skip .. after - 1 are its own subtree's */
};

struct sl_gather {
    struct sl_exchange base;
    struct sl_tree tree;
    struct sl_edge up, down[SL_TREE_DEGREE]; /* down[i] is tree.child[i] */
    struct sl_job_keys job;
    bool sealed;
    uint64_t timeout_ns, seq;
    int broken; /* the code that ended this exchange */
    char why[SL_SENTENCE_MAX + 1];

    /* The exchange under way. */
    size_t len;   /* of a share */
    uint8_t *out; /* the caller's */
    struct sl_piece *pieces;
    unsigned count, ready;         /* pieces; those that are here, from the first */
    unsigned own_first, own_after; /* pieces of this rank's subtree: they do not come from above */
    uint8_t *wire;                 /* all pieces as they travel */
    uint8_t *share;                /* shares of the subtree as they go up, where they are sealed */
    size_t wire_cap, share_cap;
    bool gathered; /* the shares of all children are here, and own pieces made */
    uint64_t deadline_ns;
    uint64_t inquiry_ns; /* until when children may tell who is missing; 0: they were not asked */
    bool told;           /* the parent knows who is missing */
    bool *missing;       /* [size], room for sentences that name ranks */
};

/* Without edges yet. */
int sl_gather_create(const struct sl_party *party, struct sl_gather **out);

/* An edge is there. name may be NULL. */
void sl_gather_join(struct sl_edge *edge, int fd, const struct sl_meeting_keys *keys,
                    const char *name);

/* Who among the children is not there; NULL: nobody. */
struct sl_edge *sl_gather_absent(struct sl_gather *gather);
/* The edge to this child; NULL: it is none. */
struct sl_edge *sl_gather_child(struct sl_gather *gather, int rank);

/* Tells all neighbours but except (may be NULL) that it is over, by the last error, and returns
 * code. The exchange stays broken. */
int sl_gather_break(struct sl_gather *gather, int code, const struct sl_edge *except);

/* ---- between the files of an exchange: farewell.c, missing.c, shares.c ---- */

#define SL_GATHER_HEAD_BYTES (SL_FRAME_BYTES + SL_SEQ_BYTES)
#define SL_GATHER_INQUIRY_MS 250   /* for each level of the tree to say who is missing */
#define SL_GATHER_PATIENCE_MS 2000 /* longer than the root waits: its verdict names ranks */

/* By what a message of shares is longer than they are. */
static inline size_t sl_gather_around(const struct sl_gather *gather)
{
    return SL_GATHER_HEAD_BYTES + sl_seal_len(gather->sealed);
}

static inline int sl_gather_subtree(const struct sl_gather *gather)
{
    return gather->tree.end - gather->tree.rank;
}

static inline bool sl_gather_is_child(const struct sl_gather *gather, const struct sl_edge *edge)
{
    return edge != &gather->up;
}

static inline uint8_t *sl_gather_share(const struct sl_gather *gather, int rank)
{
    return gather->out + (size_t)rank * gather->len;
}

/* How far a child may be sent the stream now. */
static inline size_t sl_gather_ready_at(const struct sl_gather *gather)
{
    return gather->pieces[gather->ready].at;
}

/* These end the exchange, each for its reason, and return its code. The connection has ended: */
int sl_gather_gone(struct sl_gather *gather, struct sl_edge *edge, int why);
/* A FAILED has begun to come: the other end has said why, and says no more. */
int sl_gather_failed(struct sl_gather *gather, struct sl_edge *edge);
/* It takes no more bytes; it may have said why before. */
int sl_gather_refused(struct sl_gather *gather, struct sl_edge *edge, int why);
int sl_gather_changed(struct sl_gather *gather, const struct sl_edge *edge);
int sl_gather_wrong_frame(struct sl_gather *gather, const struct sl_edge *edge);
int sl_gather_wrong_seq(struct sl_gather *gather, const struct sl_edge *edge, const uint8_t *seq);

/* It has given its shares and has all of the result. */
bool sl_gather_is_through(const struct sl_gather *gather, const struct sl_edge *child);
/* Asks the children that keep this exchange who keeps them. */
void sl_gather_inquire(struct sl_gather *gather);
/* All have answered, or the time is over: the root ends the exchange, another rank answers its
 * parent and waits for the root's verdict. 0: it goes on. */
int sl_gather_conclude(struct sl_gather *gather);
/* A MISSING has begun to come; end is where the child's subtree ends. */
int sl_gather_missing(struct sl_gather *gather, struct sl_edge *child, int end);
/* The time of the exchange is over. The root asks before it names ranks. */
int sl_gather_late(struct sl_gather *gather);

/* Read what is there, and take it. */
int sl_gather_read_child(struct sl_gather *gather, int i);
int sl_gather_read_parent(struct sl_gather *gather);
/* Sends as much as goes without waiting. */
int sl_gather_move_on(struct sl_gather *gather);

#endif
