/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A family: the communicator that a program made, all that were split from it, and those that it
 * made later for the same ranks, or some of them (adopt.h). They have in common what ranks know of
 * each other (seats, addresses), the connections to other ranks (links) and the memory of windows;
 * docs/design/0026-shared-connections.md.
 *
 * Ranks of the first communicator name its members; a split has its own ranks, and a table from
 * them to those of the family. Each communicator has a channel of each link: a number that its
 * members agreed on.
 */
#ifndef SL_COLLECTIVES_FAMILY_H
#define SL_COLLECTIVES_FAMILY_H

#include "collectives/comm.h"
#include "collectives/segment.h"
#include "core/err.h"

#define SL_CHANNEL_FIRST 1 /* of the first communicator */

/* What a rank told of its place. */
struct sl_seat {
    uint64_t sched_group;
    uint64_t cores_low;  /* bit per core that it may run on, of the first 64 */
    uint32_t cores_hash; /* of all of them ... */
    uint32_t cores;      /* ... and how many they are */
    uint32_t host;       /* numbered from 0 by first appearance */
    uint32_t all, local; /* transports that it has open; those of them that reach only its host */
    uint16_t speed;      /* what its links deliver, as it says */
};

/* The connection to another rank. */
struct sl_link {
    struct sl_link *next; /* in its bucket */
    struct sl_node of_family;
    struct sl_family *family;
    uint32_t rank;        /* of the family */
    struct sl_ep *ep;     /* NULL: on its way, or nobody needs it yet */
    int status;           /* not 0: it is lost; why tells */
    char *why;            /* owned; or NULL: there was no memory for it */
    uint8_t *map;         /* its segment, mapped; NULL: that rank shares none with this one ... */
    uint32_t areas;       /* ... and how many it has */
    struct sl_node users; /* struct sl_peer.of_link: communicators that have to do with that rank */
};

/* What a rank is owed to hear, of a communicator that this one has left or that broke. */
struct sl_answer {
    struct sl_link *link;
    uint32_t channel;
};

struct sl_family {
    uint64_t id;   /* random, the same on all members; 0: its first communicator is not made yet */
    uint64_t life; /* of the process: core/fork.h */
    struct sl_node listed;    /* adopt.c; next NULL: it takes in no communicator */
    _Atomic unsigned holders; /* of its memory: its communicators are one */
    struct sl_worker *worker;
    uint32_t rank, size, host_count;
    const struct sl_seat *seats;        /* [size] */
    const struct sl_wireup_addr *addrs; /* [size]: where each rank is reached */
    struct sl_shared *held_seats, *held_addrs;
    struct sl_wireup *wireup; /* NULL: alone, or all of its communicators are broken */
    struct sl_node comms;     /* sluice_comm.of_family */
    uint32_t next_channel;    /* numbers from here on are free, as far as this rank knows */
    struct sl_node links;
    struct sl_link **buckets; /* [bucket_count], a power of two; or NULL */
    uint32_t bucket_count, link_count;
    struct sl_segment segment;
    bool crowded; /* a host has so many ranks that there is no segment */
    struct sl_answer *answers;
    uint32_t answer_count, answer_room;
};

/* The rank in the family. */
static inline uint32_t sl_family_rank(const struct sluice_comm *comm, uint32_t rank)
{
    return comm->family_of != NULL ? comm->family_of[rank] : rank;
}

static inline const struct sl_seat *sl_seat_of(const struct sluice_comm *comm, uint32_t rank)
{
    return &comm->family->seats[sl_family_rank(comm, rank)];
}

/* ---- family.c ---- */

/* For a first communicator, whose worker, rank and size are set: a family of its own, which it is
 * in. -ENOMEM. */
int sl_family_make(struct sluice_comm *comm);

/* Another one, with these ranks of the family (held is borrowed until this returns 0) and this
 * channel. */
void sl_family_join(struct sl_family *family, struct sluice_comm *comm);

/* Takes leave of its links; the last one closes them all. Does nothing for one that is in no
 * family. */
void sl_family_leave(struct sluice_comm *comm);

/* One more holder of its memory, or one less. Without communicators it is empty. */
void sl_family_get(struct sl_family *family);
void sl_family_put(struct sl_family *family);

/* Its communicator broke: once all have, nothing is connected any more. */
void sl_family_broke(struct sl_family *family);

/* seats: from malloc(), taken over also on failure. */
int sl_family_keep_seats(struct sl_family *family, struct sl_seat *seats);
int sl_family_keep_addrs(struct sl_family *family, struct sl_wireup_addr *addrs);

/* The communicator with that channel; NULL: there is none (any more). */
struct sluice_comm *sl_family_find(const struct sl_family *family, uint32_t channel);

/* The communicator's rank of that member; its size: it is none. */
uint32_t sl_family_member(const struct sluice_comm *comm, uint32_t family_rank);

/* seats.c: from the seats of its members: which ranks share a host, and how crowded hosts are. */
int sl_seats_take(struct sluice_comm *comm);

/* ---- link.c ---- */

/* What interfaces tell (struct sl_handler); the endpoint's owner is the link. */
void sl_links_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len);
void sl_links_down(void *arg, struct sl_ep *ep, int status, const char *why);

struct sl_link *sl_link_find(const struct sl_family *family, uint32_t rank);
struct sl_link *sl_link_make(struct sl_family *family, uint32_t rank); /* NULL: no memory */

/* The communicator has to do with that rank: its control messages go there, and it hears when the
 * link comes up or is lost. Opens and connects nothing. NULL: no memory. */
struct sl_peer *sl_link_attach(struct sluice_comm *comm, uint32_t rank);

/* Its channels close, and the links forget it. */
void sl_links_detach(struct sluice_comm *comm);

/* The endpoint is connected. */
void sl_link_up(struct sl_link *link, struct sl_ep *ep);

/* Opens the communicator's channel of a link that is up. A failure breaks the communicator. */
void sl_link_open(struct sluice_comm *comm, struct sl_peer *peer);

/* The segments of others are not read any more. */
void sl_links_unmap(struct sl_family *family);

/* Closes all endpoints. */
void sl_links_close(struct sl_family *family);

/* Tells what is owed. Not from inside progress. */
void sl_links_answer(struct sl_family *family);

#endif
