/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: memory of each rank that the ranks of its host map. */
#include "collectives/window.h"

#include "collectives/connect.h"

#include "core/fork.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096
/* Of a host: beyond it, what a rank maps and looks at grows faster than what it gains. */
#define WINDOW_RANKS_MAX 64
#define HEADER offsetof(struct sl_win_slot, payload)
#define SHORTS_AT (SL_WIN_SLOTS * sizeof(struct sl_win_slot))
#define SHORT_LEN                                                                                  \
    (HEADER + SL_WIN_SHORT_BYTES) /* the payload of every area begins as a slot's does */
#define HALVES_AT ((SHORTS_AT + SL_WIN_SHORTS * SHORT_LEN + PAGE - 1) / PAGE * PAGE)

_Static_assert(sizeof(struct sl_win_slot) == 128 && SHORT_LEN % 64 == 0,
               "slots and areas begin a line");

/* What a rank says about its window. */
struct offer {
    uint32_t ready; /* this rank has one, and reaches all ranks of its host by mapping */
    uint32_t reserved;
    uint64_t bytes; /* payload of a half */
    struct sl_key key;
};

static size_t half_len(const struct sluice_comm *comm)
{
    size_t wish = (size_t)comm->config.shm_window_bytes / 2;

    if (wish == 0)
        wish = comm->local_size <= 16 ? (size_t)1 << 20 : (size_t)256 << 10;
    return (wish + PAGE - 1) / PAGE * PAGE +
           PAGE; /* a page more: the payload begins as a slot's does */
}

static bool of_this_host(const struct sluice_comm *comm, uint32_t rank)
{
    return rank != comm->rank && comm->host[rank] == comm->host[comm->rank];
}

static size_t window_len(uint64_t bytes)
{
    return HALVES_AT + 2 * (HEADER + bytes);
}

size_t sl_win_place(const struct sluice_comm *comm, unsigned slot, int area)
{
    if (area == SL_WIN_NO_AREA)
        return slot * sizeof(struct sl_win_slot) + HEADER;
    if (area < SL_WIN_SHORTS)
        return SHORTS_AT + (unsigned)area * SHORT_LEN + HEADER;
    return HALVES_AT + (unsigned)(area - SL_WIN_SHORTS) * (HEADER + comm->win.bytes) + HEADER;
}

/* The others of this host, and what they say. */
struct nearby {
    uint32_t count, ranks[WINDOW_RANKS_MAX];
    struct offer offers[WINDOW_RANKS_MAX];
};

/* The interface that connects this rank to all others of its host by mapping, or NULL. */
static struct sl_iface *common_iface(const struct sluice_comm *comm)
{
    struct sl_iface *iface = NULL;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (!of_this_host(comm, r))
            continue;
        const struct sl_ep *ep = sl_comm_peer(comm, r)->ep;
        struct sl_iface *its = ep != NULL ? ep->iface : NULL;

        if (its == NULL || (its->caps & SL_CAP_MAP) == 0 || (iface != NULL && iface != its))
            return NULL;
        iface = its;
    }
    return iface;
}

static int alloc_plain(struct sluice_comm *comm, size_t len)
{
    void *mem;

    if (posix_memalign(&mem, PAGE, len) != 0)
        return sl_fail(-ENOMEM, "no memory for a window of %zu bytes", len);
    memset(mem, 0, len);
    comm->win.mem = (struct sl_mem){.addr = mem, .len = len, .fd = -1};
    return 0;
}

static int alloc_shared(struct sluice_comm *comm, size_t len, struct sl_key *key)
{
    const struct sl_transport_ops *ops = comm->win.iface->ops;
    int err = ops->mem_alloc(comm->win.iface, len, &comm->win.mem);

    if (err != 0)
        return err;
    sl_fork_hides(comm->win.mem.addr, comm->win.mem.len);
    err = ops->mr_reg(comm->win.iface, &comm->win.mem, &comm->win.mr, key);
    if (err != 0) {
        ops->mem_free(comm->win.iface, &comm->win.mem);
        comm->win.mem.addr = NULL;
    }
    return err;
}

static void make_offer(struct sluice_comm *comm, struct offer *offer)
{
    size_t bytes = half_len(comm) - HEADER;
    int err;

    *offer = (struct offer){.bytes = bytes};
    if (comm->local_size > 1) {
        comm->win.iface = common_iface(comm);
        err = comm->win.iface == NULL
                  ? sl_fail(-ENOTSUP, "the ranks of this host do not share memory")
                  : alloc_shared(comm, window_len(bytes), &offer->key);
    } else {
        err = alloc_plain(comm, window_len(bytes));
    }
    if (err != 0) {
        sl_info("comm", "no windows: %s", sluice_last_error());
        return;
    }
    offer->ready = 1;
}

static int map_peer(struct sluice_comm *comm, struct sl_peer *peer, const struct offer *offer,
                    uint64_t deadline)
{
    const struct sl_transport_ops *ops = peer->ep->iface->ops;
    int err;

    /* All ranks say the same size; only what is mapped tells whether it is there. */
    while ((err = ops->map(peer->ep, &offer->key, window_len(offer->bytes), &peer->map)) ==
           -EAGAIN) {
        if (sl_now(comm->worker->clock) > deadline || comm->health.error.code != 0)
            return sl_fail(-ETIMEDOUT, "the window of rank %d did not arrive", peer->ep->peer);
        sl_comm_idle(comm, sl_comm_progress(comm), true);
    }
    if (err == 0)
        peer->slots = peer->map;
    return err;
}

static uint32_t map_all(struct sluice_comm *comm, const struct nearby *nearby)
{
    uint64_t deadline =
        sl_now(comm->worker->clock) + (uint64_t)comm->config.connect_timeout_ms * SL_NS_PER_MS;

    for (uint32_t i = 0; i < nearby->count; i++) {
        struct sl_peer *peer = sl_comm_peer(comm, nearby->ranks[i]);

        if (map_peer(comm, peer, &nearby->offers[i], deadline) != 0) {
            sl_info("comm", "no windows: %s", sluice_last_error());
            return 0;
        }
    }
    return 1;
}

static bool all_ready(const struct sluice_comm *comm, const struct offer *offers)
{
    bool ready = true;

    for (uint32_t r = 0; r < comm->size; r++)
        ready &= offers[r].ready != 0 && offers[r].bytes == offers[comm->rank].bytes;
    return ready;
}

/* What concerns this rank is kept; the others' is gone before it waits for anybody. */
static int swap_offers(struct sluice_comm *comm, struct sl_exchange *exchange,
                       const struct offer *mine, struct nearby *nearby, bool *ready)
{
    struct offer *offers = calloc(comm->size, sizeof(*offers));
    int err;

    if (offers == NULL)
        return sl_fail(-ENOMEM, "no memory to open windows");
    err = exchange->allgather(exchange, mine, sizeof(*mine), offers);
    *ready = err == 0 && all_ready(comm, offers);
    for (uint32_t r = 0; r < comm->size && *ready; r++)
        if (of_this_host(comm, r)) {
            nearby->ranks[nearby->count] = r;
            nearby->offers[nearby->count++] = offers[r];
        }
    free(offers);
    return err;
}

/* All ranks or none: maps, then asks whether everybody could. */
static int agree(struct sluice_comm *comm, struct sl_exchange *exchange, uint64_t bytes,
                 uint32_t mapped)
{
    uint32_t *all = calloc(comm->size, sizeof(*all));
    bool everywhere = true;

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to agree on windows");
    int err = exchange->allgather(exchange, &mapped, sizeof(mapped), all);

    for (uint32_t r = 0; r < comm->size; r++)
        everywhere &= all[r] != 0;
    free(all);
    if (err != 0)
        return err;
    if (!everywhere) {
        sl_windows_close(comm);
        return 0;
    }
    comm->win.bytes = bytes;
    comm->win.slots = comm->win.mem.addr;
    return 0;
}

/* Every rank of a host reads the windows of all others, where the transport that comes first for
 * them can map. */
static int reach_local(struct sluice_comm *comm)
{
    uint32_t ranks[WINDOW_RANKS_MAX], count = 0;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (!of_this_host(comm, r))
            continue;
        const struct sl_iface *iface = sl_reach_first(comm, r);

        if (iface == NULL || (iface->caps & SL_CAP_MAP) == 0)
            return 0;
        ranks[count++] = r;
    }
    return sl_reach_all(comm, ranks, count);
}

int sl_windows_open(struct sluice_comm *comm, struct sl_exchange *exchange)
{
    struct nearby *nearby;
    struct offer mine;
    bool ready = false;
    int err;

    if (comm->host_count == comm->size)
        return 0; /* nobody to share with */
    if (comm->most_local > WINDOW_RANKS_MAX) {
        sl_info("comm", "no windows: %u ranks of a host are more than %d", comm->most_local,
                WINDOW_RANKS_MAX);
        return 0;
    }
    err = reach_local(comm);
    if (err != 0)
        return err;
    nearby = calloc(1, sizeof(*nearby));
    if (nearby == NULL)
        return sl_fail(-ENOMEM, "no memory to open windows");
    make_offer(comm, &mine);
    err = swap_offers(comm, exchange, &mine, nearby, &ready);
    if (err == 0)
        err = agree(comm, exchange, mine.bytes, ready ? map_all(comm, nearby) : 0);
    free(nearby);
    return err;
}

void sl_windows_unmap(struct sluice_comm *comm)
{
    sl_peers_foreach(&comm->peers, r)
    {
        struct sl_peer *peer = sl_comm_peer(comm, r);

        if (peer->map != NULL && peer->ep != NULL)
            peer->ep->iface->ops->unmap(peer->ep, peer->map);
        peer->map = NULL;
        peer->slots = NULL;
    }
}

void sl_windows_close(struct sluice_comm *comm)
{
    sl_windows_unmap(comm);
    comm->win.slots = NULL;
    if (comm->win.mem.addr == NULL)
        return;
    if (comm->win.iface == NULL) {
        free(comm->win.mem.addr);
    } else {
        comm->win.iface->ops->mr_dereg(comm->win.iface, comm->win.mr);
        comm->win.iface->ops->mem_free(comm->win.iface, &comm->win.mem);
    }
    comm->win.mem.addr = NULL;
}
