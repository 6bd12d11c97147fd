/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links: a connection to each rank that some communicator of the family needs, and which
 * communicators have to do with that rank.
 */
#include "collectives/family.h"

#include "collectives/health.h"
#include "core/wireup.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 8

/* ---- the table ---- */

static struct sl_link **bucket_of(const struct sl_family *family, uint32_t rank)
{
    return &family->buckets[rank * UINT32_C(0x9e3779b1) >> 16 & (family->bucket_count - 1)];
}

struct sl_link *sl_link_find(const struct sl_family *family, uint32_t rank)
{
    struct sl_link *link = family->bucket_count != 0 ? *bucket_of(family, rank) : NULL;

    while (link != NULL && link->rank != rank)
        link = link->next;
    return link;
}

static void list(struct sl_family *family, struct sl_link *link)
{
    struct sl_link **bucket = bucket_of(family, link->rank);

    link->next = *bucket;
    *bucket = link;
}

static bool grow(struct sl_family *family)
{
    uint32_t count = family->bucket_count != 0 ? 2 * family->bucket_count : BUCKETS_MIN;
    struct sl_link **buckets = calloc(count, sizeof(*buckets));

    if (buckets == NULL)
        return family->bucket_count != 0; /* the chains grow longer */
    free(family->buckets);
    family->buckets = buckets;
    family->bucket_count = count;
    sl_list_foreach(&family->links, node)
        list(family, sl_container_of(node, struct sl_link, of_family));
    return true;
}

struct sl_link *sl_link_make(struct sl_family *family, uint32_t rank)
{
    struct sl_link *link = sl_link_find(family, rank);

    if (link != NULL)
        return link;
    if (family->link_count >= family->bucket_count && !grow(family))
        return NULL;
    link = calloc(1, sizeof(*link));
    if (link == NULL)
        return NULL;
    link->family = family;
    link->rank = rank;
    sl_list_init(&link->users);
    sl_list_push_back(&family->links, &link->of_family);
    list(family, link);
    family->link_count++;
    return link;
}

void sl_links_unmap(struct sl_family *family)
{
    sl_list_foreach(&family->links, node)
    {
        struct sl_link *link = sl_container_of(node, struct sl_link, of_family);

        if (link->map != NULL)
            link->ep->iface->ops->unmap(link->ep, link->map);
        link->map = NULL;
    }
}

void sl_links_close(struct sl_family *family)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&family->links)) != NULL) {
        struct sl_link *link = sl_container_of(node, struct sl_link, of_family);

        sl_assert(sl_list_empty(&link->users));
        if (link->ep != NULL)
            link->ep->iface->ops->ep_destroy(link->ep);
        free(link->why);
        free(link);
    }
    if (family->buckets != NULL)
        memset(family->buckets, 0, family->bucket_count * sizeof(struct sl_link *));
    family->link_count = 0;
    family->answer_count = 0;
}

/* ---- users ---- */

struct sl_peer *sl_link_attach(struct sluice_comm *comm, uint32_t rank)
{
    struct sl_peer *peer = sl_peers_make(&comm->peers, rank);
    struct sl_link *link;

    if (peer == NULL || peer->link != NULL)
        return peer;
    link = sl_link_make(comm->family, sl_family_rank(comm, rank));
    if (link == NULL)
        return NULL;
    peer->link = link;
    peer->comm = comm;
    peer->rank = rank;
    peer->ep = link->ep;
    sl_list_push_back(&link->users, &peer->of_link);
    if (link->status != 0)
        sl_health_down(comm, rank, link->status, link->why != NULL ? link->why : "it was lost");
    return peer;
}

void sl_link_open(struct sluice_comm *comm, struct sl_peer *peer)
{
    int err = peer->ep->iface->ops->channel_open(peer->ep, comm->channel);

    if (err == 0)
        peer->open = true;
    else
        sl_comm_fail(comm, err, -1, "%s", sluice_last_error());
}

static void detach(struct sl_peer *peer)
{
    if (peer->open)
        peer->ep->iface->ops->channel_close(peer->ep, peer->comm->channel);
    sl_list_remove(&peer->of_link);
    peer->link = NULL;
    peer->ep = NULL;
    peer->open = false;
}

void sl_links_detach(struct sluice_comm *comm)
{
    sl_peers_foreach(&comm->peers, r)
    {
        struct sl_peer *peer = sl_comm_peer(comm, r);

        if (peer->link != NULL)
            detach(peer);
    }
}

/* The peer of that communicator at the other end; NULL: that rank is no member. */
static struct sl_peer *peer_of(const struct sl_link *link, struct sluice_comm *comm)
{
    uint32_t rank;

    sl_list_foreach(&link->users, node)
    {
        struct sl_peer *peer = sl_container_of(node, struct sl_peer, of_link);

        if (peer->comm == comm)
            return peer;
    }
    rank = sl_family_member(comm, link->rank);
    return rank < comm->size ? sl_link_attach(comm, rank) : NULL;
}

/* ---- what happens to it ---- */

void sl_link_up(struct sl_link *link, struct sl_ep *ep)
{
    struct sluice_comm *first = sl_family_find(link->family, SL_CHANNEL_FIRST);

    link->ep = ep;
    /* Who was dialed has to do with its peer from now on, as its peer has. */
    if (first != NULL && first->health.error.code == 0)
        sl_link_attach(first, link->rank);
    sl_list_foreach(&link->users, node)
    {
        struct sl_peer *peer = sl_container_of(node, struct sl_peer, of_link);

        peer->ep = ep;
        peer->down = false;
        if (peer->wanted)
            sl_link_open(peer->comm, peer);
    }
}

void sl_links_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct sl_link *link = ep->owner;

    (void)arg;
    if (link->ep != ep) { /* still being connected */
        sl_wireup_lost(link->family->wireup, link->rank, why);
        return;
    }
    link->status = status;
    link->why = strdup(why);
    sl_segment_lost(&link->family->segment, link->rank);
    sl_list_foreach(&link->users, node)
    {
        struct sl_peer *peer = sl_container_of(node, struct sl_peer, of_link);

        sl_health_down(peer->comm, peer->rank, status, why);
    }
}

/* Without memory it is left to its next question. */
static void owe(struct sl_link *link, uint32_t channel)
{
    struct sl_family *family = link->family;

    for (uint32_t i = 0; i < family->answer_count; i++)
        if (family->answers[i].link == link && family->answers[i].channel == channel)
            return;
    if (family->answer_count == family->answer_room) {
        uint32_t room = 2 * family->answer_room + 4;
        struct sl_answer *answers = realloc(family->answers, room * sizeof(*answers));

        if (answers == NULL)
            return;
        family->answers = answers;
        family->answer_room = room;
    }
    family->answers[family->answer_count++] = (struct sl_answer){link, channel};
}

void sl_links_answer(struct sl_family *family)
{
    for (uint32_t i = 0; i < family->answer_count; i++) {
        const struct sl_answer *answer = &family->answers[i];

        if (answer->link->ep != NULL && answer->link->status == 0)
            sl_health_answer(sl_family_find(family, answer->channel), answer->link->ep,
                             answer->channel);
    }
    family->answer_count = 0;
}

void sl_links_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    struct sl_link *link = ep->owner;
    struct sl_ctrl_head head;
    struct sluice_comm *comm;
    struct sl_peer *peer;

    (void)arg;
    if (len < sizeof(head)) {
        sl_health_odd_ctrl(ep, len);
        return;
    }
    memcpy(&head, msg, sizeof(head));
    comm = sl_family_find(link->family, head.channel);
    if (comm == NULL || comm->health.torn_down) {
        if (head.type == SL_CTRL_STATUS)
            owe(link, head.channel);
        else if (comm == NULL)
            sl_segment_heard(&link->family->segment, head.channel, link->rank);
        else
            sl_health_parts(comm, sl_family_member(comm, link->rank));
        return;
    }
    peer = peer_of(link, comm);
    if (peer != NULL)
        sl_health_ctrl(comm, peer->rank, msg, len);
}
