/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: memory of each rank that the ranks of its host map. */
#include "collectives/window.h"

#include "collectives/connect.h"
#include "collectives/family.h"
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

/* What a rank says about its segment. */
struct offer {
    uint32_t areas; /* 0: this rank has none, or does not reach all ranks of its host by mapping */
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

static size_t area_len(uint64_t bytes)
{
    return HALVES_AT + (2 * (HEADER + bytes) + PAGE - 1) / PAGE * PAGE;
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

static void make_offer(struct sluice_comm *comm, struct offer *offer)
{
    struct sl_segment *segment = &comm->family->segment;
    struct sl_iface *iface = comm->local_size > 1 ? common_iface(comm) : NULL;
    size_t bytes = half_len(comm) - HEADER;
    int err;

    *offer = (struct offer){.bytes = bytes};
    err = comm->local_size > 1 && iface == NULL
              ? sl_fail(-ENOTSUP, "the ranks of this host do not share memory")
              : sl_segment_open(segment, iface, area_len(bytes), &offer->key);
    if (err != 0) {
        sl_info("comm", "no windows: %s", sluice_last_error());
        return;
    }
    segment->half = bytes;
    offer->areas = segment->areas;
}

static int map_peer(struct sluice_comm *comm, struct sl_link *link, const struct offer *offer,
                    uint64_t deadline)
{
    const struct sl_transport_ops *ops = link->ep->iface->ops;
    void *map;
    int err;

    /* All ranks say the same size; only what is mapped tells whether it is there. */
    while ((err = ops->map(link->ep, &offer->key, offer->areas * area_len(offer->bytes), &map)) ==
           -EAGAIN) {
        if (sl_now(comm->worker->clock) > deadline || comm->health.error.code != 0)
            return sl_fail(-ETIMEDOUT, "the window of rank %d did not arrive", link->ep->peer);
        sl_comm_idle(comm, sl_comm_progress(comm), true);
        if (link->ep == NULL)
            return sl_fail_error(&comm->health.error);
    }
    if (err == 0) {
        link->map = map;
        link->areas = offer->areas;
    }
    return err;
}

static uint32_t map_all(struct sluice_comm *comm, const struct nearby *nearby)
{
    uint64_t deadline =
        sl_now(comm->worker->clock) + (uint64_t)comm->config.connect_timeout_ms * SL_NS_PER_MS;

    for (uint32_t i = 0; i < nearby->count; i++) {
        struct sl_link *link = sl_comm_peer(comm, nearby->ranks[i])->link;

        if (link == NULL || map_peer(comm, link, &nearby->offers[i], deadline) != 0) {
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
        ready &= offers[r].areas - 1 < SL_AREAS_MAX && offers[r].bytes == offers[comm->rank].bytes;
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
    err = sl_comm_gather(comm, exchange, mine, sizeof(*mine), offers);
    *ready = err == 0 && all_ready(comm, offers);
    for (uint32_t r = 0; r < comm->size && *ready; r++)
        if (of_this_host(comm, r)) {
            nearby->ranks[nearby->count] = r;
            nearby->offers[nearby->count++] = offers[r];
        }
    free(offers);
    return err;
}

/* Theirs are read, and this rank's is written, in that area of each segment. */
static void use_areas(struct sluice_comm *comm, const uint32_t *areas)
{
    struct sl_segment *segment = &comm->family->segment;

    for (uint32_t r = 0; r < comm->size; r++)
        if (of_this_host(comm, r)) {
            struct sl_peer *peer = sl_comm_peer(comm, r);

            peer->slots = (void *)(peer->link->map + areas[r] * segment->area_len);
        }
    comm->win.bytes = segment->half;
    comm->win.slots = (void *)sl_segment_at(segment, areas[comm->rank]);
}

/* All ranks or none: maps, then asks whether everybody could. */
static int agree(struct sluice_comm *comm, struct sl_exchange *exchange, uint32_t mapped)
{
    uint32_t *all = calloc(comm->size, sizeof(*all));
    bool everywhere = true;

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to agree on windows");
    int err = sl_comm_gather(comm, exchange, &mapped, sizeof(mapped), all);

    for (uint32_t r = 0; r < comm->size; r++)
        everywhere &= all[r] != 0;
    if (err == 0 && everywhere) {
        memset(all, 0, comm->size * sizeof(*all));
        comm->win.area = sl_segment_take(&comm->family->segment);
        comm->win.whole = true;
        use_areas(comm, all);
    } else {
        sl_links_unmap(comm->family);
        sl_segment_close(&comm->family->segment);
    }
    free(all);
    return err;
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

void sl_windows_foresee(struct sluice_comm *comm)
{
    comm->family->crowded = comm->most_local > WINDOW_RANKS_MAX;
    comm->worker->near = comm->family->crowded ? 0 : comm->local_size - 1;
}

int sl_windows_open(struct sluice_comm *comm, struct sl_exchange *exchange)
{
    struct nearby *nearby;
    struct offer mine;
    bool ready = false;
    int err;

    if (comm->host_count == comm->size)
        return 0; /* nobody to share with */
    if (comm->family->crowded) {
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
    err = err ?: agree(comm, exchange, ready ? map_all(comm, nearby) : 0);
    free(nearby);
    return err;
}

uint32_t sl_windows_offer(struct sl_family *family)
{
    uint32_t area = sl_segment_take(&family->segment);

    if (area == SL_NO_AREA || sl_segment_back(&family->segment, area, 0, HALVES_AT) == 0)
        return area;
    sl_segment_give(&family->segment, area);
    return SL_NO_AREA;
}

/* Every rank has an area, and those of this host the one that they name. */
static int check_areas(struct sluice_comm *comm, const uint32_t *areas, bool *all)
{
    *all = comm->host_count < comm->size && comm->family->segment.mem.addr != NULL;
    for (uint32_t r = 0; r < comm->size && *all; r++)
        *all = areas[r] != SL_NO_AREA;
    for (uint32_t r = 0; r < comm->size && *all; r++) {
        struct sl_peer *peer = of_this_host(comm, r) ? sl_link_attach(comm, r) : NULL;

        if (!of_this_host(comm, r))
            continue;
        if (peer == NULL)
            return sl_fail(-ENOMEM, "no memory for windows of %u ranks", comm->size);
        if (peer->link->map == NULL || areas[r] >= peer->link->areas)
            return sl_fail(-EPROTO, "rank %u names an area of windows that it has not", r);
    }
    return 0;
}

int sl_windows_share(struct sluice_comm *comm, const uint32_t *areas)
{
    bool all;
    int err = check_areas(comm, areas, &all);

    if (err != 0 || !all)
        return err;
    comm->win.area = areas[comm->rank];
    use_areas(comm, areas);
    return 0;
}

bool sl_windows_lacking(const struct sluice_comm *comm)
{
    const struct sl_family *family = comm->family;

    return comm->win.slots == NULL && comm->host_count < comm->size &&
           comm->most_local <= WINDOW_RANKS_MAX &&
           (family->crowded || family->segment.mem.addr != NULL);
}

int sl_windows_back(struct sluice_comm *comm)
{
    struct sl_segment *segment = &comm->family->segment;

    if (comm->win.whole)
        return 0;
    int err = sl_segment_back(segment, comm->win.area, HALVES_AT, segment->area_len - HALVES_AT);

    comm->win.whole = err == 0;
    return err;
}

/* Ranks of this host that have not said that they are through with the communicator. */
static uint32_t find_readers(const struct sluice_comm *comm, uint32_t *ranks)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < comm->size; r++) {
        const struct sl_peer *peer = sl_comm_peer(comm, r);

        if (of_this_host(comm, r) && !peer->left && !peer->gave_up && !peer->down)
            ranks[count++] = sl_family_rank(comm, r);
    }
    return count;
}

void sl_windows_close(struct sluice_comm *comm)
{
    uint32_t ranks[WINDOW_RANKS_MAX];

    if (comm->win.slots == NULL)
        return;
    comm->win.slots = NULL;
    sl_segment_part(&comm->family->segment, comm->win.area, comm->channel, ranks,
                    find_readers(comm, ranks));
}
