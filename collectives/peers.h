/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other ranks, as far as a rank has to do with them.
 *
 * A rank of thousands uses few others, so the table has pages of a few ranks, made when one of them
 * is first used. All others share one page that says nothing and that nobody may write: reading
 * needs no question whether there is one.
 */
#ifndef SL_COLLECTIVES_PEERS_H
#define SL_COLLECTIVES_PEERS_H

#include "core/req.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PEERS_PAGE 8 /* ranks of a page; a power of two */

struct sl_ep;
struct sl_link;
struct sl_win_slot;
struct sluice_comm;

/* What a rank called, as it is compared with what others called. Travels in control messages. */
struct sl_signature {
    uint32_t seq;         /* number of the collective on this communicator, from 1 */
    uint32_t fingerprint; /* 0: what it was is not known */
    uint32_t run;         /* of the fingerprints up to this one; 0: not known */
    uint32_t root;
    uint64_t count;
    uint8_t coll, dtype, op;
    uint8_t gone;  /* it was called, but so long ago that only that is known */
    uint32_t code; /* struct sl_code.mark; 0: not encoded */
};

/* What a peer last told about itself while it waited. */
struct sl_peer_status {
    uint64_t heard_ns; /* 0: never */
    struct sl_signature call;
    int32_t waits_for; /* rank, -1: nobody */
    uint32_t step;
    uint32_t number;      /* of its statuses: those that came by several ways count once */
    int32_t culprit;      /* where its chain of waits ends, as it sees it; -1: it does not say */
    uint32_t culprit_seq; /* what that rank had called last, as far as known */
    uint32_t culprit_age; /* ms since somebody heard of that rank; UINT32_MAX: never */
};

struct sl_peer {
    struct sl_ep *ep;          /* of the link; NULL: not connected */
    struct sl_win_slot *slots; /* its window, mapped; NULL: that rank shares none with this one */
    uint64_t seen;             /* the last word seen in its window */
    /* Order of posting: operations take a ticket per direction when they start, and post while
     * their ticket is served, so that the n-th send meets the n-th recv with many in flight. */
    uint64_t send_ticket, send_serving, recv_ticket, recv_serving;
    uint32_t p2p_sent, p2p_received; /* sluice_send and sluice_recv calls so far */
    bool left;    /* it said goodbye: losing its endpoint is no failure by itself */
    bool mute;    /* and had never opened its channel to this rank: no message of it comes */
    bool gave_up; /* it has told of an error: it lived then */
    bool down;
    bool wanted; /* its channel opens as soon as it is connected */
    bool open;   /* the channel is open: messages may be posted */
    uint16_t
        shown_paths; /* place of its first path on the state page, from 1; 0: none (status.c) */
    struct sl_link *link; /* NULL: this communicator has nothing to do with that rank yet */
    struct sl_node of_link;
    struct sluice_comm *comm; /* with a link: whose table this is of ... */
    uint32_t rank;            /* ... and that rank there */
    uint32_t relay;           /* place of its status among those to be passed on, if it has one */
    struct sl_peer_status status;
};

struct sl_peers {
    uint32_t size;
    struct sl_peer **pages; /* [size / SL_PEERS_PAGE, rounded up] */
    uint32_t *used;         /* numbers of the pages that were made, ascending */
    uint32_t used_count, used_room;
};

/* For all pages that nobody has made: in memory that cannot be written. */
extern const struct sl_peer sl_peers_blank[SL_PEERS_PAGE];

int sl_peers_init(struct sl_peers *peers, uint32_t size); /* -ENOMEM */
void sl_peers_fini(struct sl_peers *peers);

/* That rank's, which stays where it is; NULL: there is no memory for it. */
struct sl_peer *sl_peers_make(struct sl_peers *peers, uint32_t rank);

/* That rank's; written only if sl_peers_make() was called for it. */
static inline struct sl_peer *sl_peers_at(const struct sl_peers *peers, uint32_t rank)
{
    return &peers->pages[rank / SL_PEERS_PAGE][rank % SL_PEERS_PAGE];
}

/* The first rank from there on whose page was made, or peers->size: ranks in between have nothing
 * to say. */
uint32_t sl_peers_next(const struct sl_peers *peers, uint32_t rank);

#define sl_peers_foreach(peers, rank)                                                              \
    for (uint32_t rank = sl_peers_next(peers, 0); (rank) < (peers)->size;                          \
         (rank) = sl_peers_next(peers, (rank) + 1))

#endif
