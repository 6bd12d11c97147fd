/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Endpoints to other ranks: those of a tree at start, all others when a plan first needs them.
 *
 * The tree is what control messages can rely on: whatever a rank must tell all others (an abort, a
 * disagreement) goes along its edges, so that no rank has to be connected to all. Rank r's parent
 * is (r - 1) / SL_REACH_DEGREE.
 */
#include "collectives/connect.h"
#include "collectives/family.h"

#include "core/host.h"
#include "core/log.h"
#include "core/wireup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SL_REACH_DEGREE 4
#define KINDS_MAX 64
#define SL_ANY_HOST UINT32_MAX

/* What a rank says after it has connected its part of the tree. */
struct outcome {
    int32_t code;
    uint32_t peer;
};

/* ---- what wire-up asks ---- */

static const struct sl_wireup_addr *addr_of(void *arg, uint32_t rank)
{
    const struct sl_family *family = arg;

    return &family->addrs[rank];
}

/* Of two ranks of the family. */
static uint32_t common(const struct sl_family *family, uint32_t a, uint32_t b)
{
    const struct sl_seat *its = &family->seats[a], *others = &family->seats[b];

    return its->all & others->all & ~(its->host == others->host ? 0 : its->local);
}

static uint32_t candidates_open(void *arg, uint32_t rank)
{
    const struct sl_family *family = arg;
    uint32_t open = 0;

    for (unsigned t = 0; t < family->worker->slot_count; t++)
        open |= family->worker->slots[t].iface != NULL ? 1u << t : 0;
    return common(family, family->rank, rank) & open;
}

static bool is_connected(void *arg, uint32_t rank)
{
    const struct sl_link *link = sl_link_find(arg, rank);

    return link != NULL && link->ep != NULL;
}

static const char *transport_name(void *arg, unsigned t)
{
    const struct sl_family *family = arg;

    return t < family->worker->slot_count ? family->worker->slots[t].ops->name : "?";
}

static int ep_create(void *arg, unsigned t, uint32_t rank, struct sl_ep **out)
{
    struct sl_family *family = arg;
    struct sl_iface *iface = family->worker->slots[t].iface;
    struct sl_link *link = sl_link_make(family, rank);

    if (link == NULL)
        return sl_fail(-ENOMEM, "no memory for an endpoint to rank %u", rank);
    int err = iface->ops->ep_create(iface, out);

    if (err != 0)
        return err;
    (*out)->peer = (int)rank;
    (*out)->owner = link;
    return 0;
}

static void on_up(void *arg, uint32_t rank, struct sl_ep *ep)
{
    sl_link_up(sl_link_find(arg, rank), ep); /* made with its endpoint */
}

/* For a communicator that waits for that rank. */
static void give_up(struct sluice_comm *comm, uint32_t rank, int err, const char *why)
{
    uint32_t a = rank < comm->rank ? rank : comm->rank, b = rank < comm->rank ? comm->rank : rank;

    switch (err) {
    case -ENOMEM:
        sl_comm_fail(comm, err, -1, "rank %u lacked memory to connect ranks %u and %u%s",
                     comm->rank, a, b, why);
        break;
    case -ECONNREFUSED:
        sl_comm_fail(comm, -ECONNRESET, (int32_t)rank,
                     "rank %u is lost: nothing listens where it was reached, so its process has "
                     "ended or has destroyed its communicator",
                     rank);
        break;
    default:
        sl_comm_fail(comm, err == -EPROTO ? err : -EHOSTUNREACH, (int32_t)rank,
                     "no transport connects ranks %u and %u%s", a, b, why);
    }
}

static void on_failed(void *arg, uint32_t rank, int err, const char *why)
{
    struct sl_link *link = sl_link_find(arg, rank);

    if (link == NULL)
        return;
    sl_list_foreach(&link->users, node)
    {
        struct sl_peer *peer = sl_container_of(node, struct sl_peer, of_link);

        if (peer->wanted)
            give_up(peer->comm, peer->rank, err, why);
    }
}

/* ---- reaching ---- */

struct sl_iface *sl_reach_first(const struct sluice_comm *comm, uint32_t rank)
{
    const struct sl_family *family = comm->family;
    uint32_t its = common(family, family->rank, sl_family_rank(comm, rank));

    return its != 0 ? comm->worker->slots[__builtin_ctz(its)].iface : NULL;
}

static void open_or_connect(struct sluice_comm *comm, struct sl_peer *peer)
{
    if (peer->ep != NULL) /* of a lost one what was kept is still received */
        sl_link_open(comm, peer);
    else if (sl_wireup_connect(comm->family->wireup, peer->link->rank, comm->created) != 0)
        sl_comm_fail(comm, -ENOMEM, -1, "%s", sluice_last_error());
}

void sl_reach(struct sluice_comm *comm, uint32_t rank)
{
    struct sl_peer *peer = sl_comm_peer(comm, rank);

    if (rank == comm->rank || peer->wanted || comm->health.error.code != 0)
        return;
    peer = sl_link_attach(comm, rank);
    if (peer == NULL) {
        sl_fail(-ENOMEM, "no memory to connect to rank %u", rank);
        sl_comm_fail(comm, -ENOMEM, -1, "%s", sluice_last_error());
        return;
    }
    peer->wanted = true;
    open_or_connect(comm, peer);
}

int sl_reach_all(struct sluice_comm *comm, const uint32_t *ranks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sl_reach(comm, ranks[i]);
    for (uint32_t i = 0; i < count; i++)
        while (!sl_comm_peer(comm, ranks[i])->open && ranks[i] != comm->rank &&
               comm->health.error.code == 0)
            sl_comm_idle(comm, sl_comm_progress(comm), true);
    if (comm->health.error.code != 0)
        sl_comm_progress(comm); /* which tells those that are connected */
    return comm->health.error.code == 0 ? 0 : sl_fail_error(&comm->health.error);
}

/* Ranks that have the same transports open. */
struct kind {
    uint32_t all, local;
    uint32_t first;
};

/* The first rank from there on that has these transports and is on another host, or (SL_ANY_HOST)
 * on any; comm->size: there is none. */
static uint32_t next_of(const struct sluice_comm *comm, const struct kind *kind, uint32_t from,
                        uint32_t but_host)
{
    for (uint32_t r = from; r < comm->size; r++)
        if (sl_seat_of(comm, r)->all == kind->all && sl_seat_of(comm, r)->local == kind->local &&
            comm->host[r] != but_host)
            return r;
    return comm->size;
}

/* Two ranks of these kinds that have no transport in common. */
static bool kinds_apart(const struct sluice_comm *comm, const struct kind *x, const struct kind *y,
                        uint32_t *a, uint32_t *b)
{
    bool nothing = (x->all & y->all) == 0;

    if (((x->all & ~x->local) & (y->all & ~y->local)) != 0)
        return false;
    *a = x->first;
    *b = next_of(comm, y, x == y ? *a + 1 : 0, nothing ? SL_ANY_HOST : comm->host[*a]);
    if (*b < comm->size || nothing)
        return *b < comm->size;
    *b = y->first;
    *a = next_of(comm, x, 0, comm->host[*b]);
    return *a < comm->size;
}

static int refuse_pair(const struct sluice_comm *comm, uint32_t a, uint32_t b)
{
    char whys[SL_ERROR_TEXT_MAX] = "";
    bool lacked = false, mine = a == comm->rank || b == comm->rank;

    for (unsigned t = 0; t < comm->worker->slot_count; t++) {
        lacked |= mine && comm->worker->slots[t].lacked_memory;
        if (comm->worker->slots[t].why != NULL)
            sl_text_add(whys, sizeof(whys), "; %s: %s", comm->worker->slots[t].ops->name,
                        comm->worker->slots[t].why);
    }
    if (lacked)
        return sl_fail(-ENOMEM, "rank %u lacked memory to connect ranks %u and %u%s", comm->rank,
                       a < b ? a : b, a < b ? b : a, whys);
    return sl_fail(-EHOSTUNREACH, "no transport connects ranks %u and %u%s", a < b ? a : b,
                   a < b ? b : a, whys);
}

/* All ranks know of all what they have open, so all see that two of them have nothing in common. */
static int refuse_strangers(const struct sluice_comm *comm)
{
    struct kind kinds[KINDS_MAX];
    unsigned count = 0;
    uint32_t a, b;

    for (uint32_t r = 0; r < comm->size; r++) {
        const struct sl_seat *its = sl_seat_of(comm, r);
        unsigned k = 0;

        while (k < count && (kinds[k].all != its->all || kinds[k].local != its->local))
            k++;
        if (k == count && count < KINDS_MAX)
            kinds[count++] = (struct kind){its->all, its->local, r};
    }
    for (unsigned x = 0; x < count; x++)
        for (unsigned y = x; y < count; y++)
            if (kinds_apart(comm, &kinds[x], &kinds[y], &a, &b))
                return refuse_pair(comm, a, b);
    return 0;
}

/* Transports that are first for nobody are closed, so that they cost nothing; but for the last one
 * of the list, on which others fall back. */
static void close_unused(struct sluice_comm *comm)
{
    uint32_t first = comm->worker->slot_count > 0 ? 1u << (comm->worker->slot_count - 1) : 0,
             any = 0;

    for (uint32_t r = 0; r < comm->size; r++) {
        uint32_t its = r != comm->rank ? common(comm->family, r, comm->rank) : 0;

        first |= its & -its;
        any |= its;
    }
    for (unsigned t = 0; t < comm->worker->slot_count; t++) {
        struct sl_iface_slot *slot = &comm->worker->slots[t];

        if (slot->iface == NULL || (first & any & 1u << t) != 0)
            continue;
        slot->ops->close(slot->iface);
        slot->iface = NULL;
    }
}

static uint32_t list_near(const struct sluice_comm *comm, uint32_t near[SL_REACH_DEGREE + 1])
{
    uint32_t count = 0;

    if (comm->rank != 0)
        near[count++] = (comm->rank - 1) / SL_REACH_DEGREE;
    for (uint64_t i = 1; i <= SL_REACH_DEGREE; i++)
        if (SL_REACH_DEGREE * (uint64_t)comm->rank + i < comm->size)
            near[count++] = (uint32_t)(SL_REACH_DEGREE * (uint64_t)comm->rank + i);
    return count;
}

static int connect_tree(struct sluice_comm *comm)
{
    uint32_t near[SL_REACH_DEGREE + 1];

    comm->has_tree = true;
    return sl_reach_all(comm, near, list_near(comm, near));
}

void sl_reach_tree(struct sluice_comm *comm, bool connect)
{
    uint32_t near[SL_REACH_DEGREE + 1], count = list_near(comm, near);

    comm->has_tree = connect;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_link *link = sl_link_find(comm->family, sl_family_rank(comm, near[i]));

        if (link != NULL && link->ep != NULL)
            comm->has_tree &= sl_link_attach(comm, near[i]) != NULL;
        else if (connect)
            sl_reach(comm, near[i]);
    }
}

/* Whose failure is the cause of all: others may only have seen it give up. comm->size: nobody's. */
static uint32_t find_cause(const struct sluice_comm *comm, const struct outcome *all)
{
    uint32_t any = comm->size;

    for (uint32_t r = comm->size; r-- > 0;)
        any = all[r].code != 0 ? r : any;
    for (uint32_t r = 0; r < comm->size; r++)
        if (all[r].code != 0 && all[r].code != -ECONNRESET)
            return r;
    return any;
}

/* All ranks or none. */
static int agree(struct sluice_comm *comm, struct sl_exchange *exchange, int err)
{
    const struct outcome mine = {
        err, comm->health.error.culprit >= 0 ? (uint32_t)comm->health.error.culprit : comm->rank};
    struct outcome *all = calloc(comm->size, sizeof(*all));
    struct sl_error own;

    sl_error_take(err, &own);
    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to connect %u ranks", comm->size);
    int lost = sl_comm_gather(comm, exchange, &mine, sizeof(mine), all);
    uint32_t cause = lost == 0 ? find_cause(comm, all) : comm->rank;
    struct outcome its = cause < comm->size ? all[cause] : mine;

    free(all);
    if (lost != 0 && err == 0)
        return lost;
    if (cause == comm->size)
        return 0;
    if (err != 0 && (err == its.code || cause == comm->rank))
        return sl_fail_error(&own);
    return sl_fail(its.code, "rank %u and rank %u could not be connected: %s; see their output",
                   cause, its.peer, sluice_strerror(its.code));
}

static int listen_for_peers(struct sluice_comm *comm, struct sl_wireup_addr *addr)
{
    const struct sl_wireup_owner owner = {
        .arg = comm->family,
        .rank = comm->rank,
        .size = comm->size,
        .addr = addr_of,
        .candidates = candidates_open,
        .connected = is_connected,
        .name = transport_name,
        .ep_create = ep_create,
        .up = on_up,
        .failed = on_failed,
    };

    return sl_wireup_open(comm->worker,
                          comm->worker->wire != NULL ? comm->worker->wire : &sl_wire_sockets,
                          comm->worker->one_host, &owner, addr, &comm->family->wireup);
}

/* Tells where this rank is reached, and learns it of all others. */
static int swap_addresses(struct sluice_comm *comm, struct sl_exchange *exchange,
                          const struct sl_wireup_addr *mine)
{
    static const uint8_t none[SL_WIREUP_ID_BYTES];
    struct sl_wireup_addr *addrs = calloc(comm->size, sizeof(*addrs));
    int err;

    if (addrs == NULL)
        return sl_fail(-ENOMEM, "no memory to connect %u ranks", comm->size);
    err = sl_comm_gather(comm, exchange, mine, sizeof(*mine), addrs);
    for (uint32_t r = 0; r < comm->size && err == 0; r++)
        if (memcmp(addrs[r].id, none, sizeof(none)) == 0)
            err = sl_fail(-ECONNRESET, "rank %u cannot be connected to; see its output", r);
    if (err != 0) {
        free(addrs);
        return err;
    }
    comm->family->id = sl_hash(SL_HASH_START, addrs[0].id, sizeof(addrs[0].id)) | 1;
    return sl_family_keep_addrs(comm->family, addrs);
}

int sl_reach_open(struct sluice_comm *comm, struct sl_exchange *exchange)
{
    struct sl_wireup_addr mine = {.port = 0};
    char why[SL_ERROR_TEXT_MAX] = "";
    int err, late;

    if (comm->size == 1)
        return 0;
    err = listen_for_peers(comm, &mine);
    if (err != 0) { /* the others hear it by the address that this rank has not got */
        memset(&mine, 0, sizeof(mine));
        snprintf(why, sizeof(why), "%s", sluice_last_error());
    }
    late = swap_addresses(comm, exchange, &mine);
    if (err != 0)
        return sl_fail_text(err, why);
    if (late != 0)
        return late;
    err = refuse_strangers(comm);
    err = err ?: connect_tree(comm);
    err = agree(comm, exchange, err);
    if (err == 0 && comm->worker->member_count == 0)
        close_unused(comm);
    return err;
}
