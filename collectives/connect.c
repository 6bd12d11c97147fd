/* SPDX-License-Identifier: Apache-2.0 */
/* Meets the other ranks over an exchange and connects each pair by the first transport that
 * reaches. */
#include "collectives/connect.h"

#include "collectives/family.h"
#include "core/host.h"
#include "core/log.h"
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Raised with every change of what ranks say to each other on the wire or in shared memory. */
#define PROTOCOL_VERSION 8
#define HELLO_MAGIC UINT32_C(0x534c4331)
#define SETTINGS_SHOWN 300 /* bytes of each rank's, in a sentence about two */

enum hello_flag {
    HELLO_NEARBY = 1 << 0, /* surely on rank 0's host; that of two machines may have one number */
    HELLO_OFFERS = 1 << 1, /* it names a family, and tells nothing else of itself yet */
};

/* What each rank says of itself; same layout on all, as versions are compared before anything else.
 * Where somebody offers a family and not all are of it, they say it once more, and nobody offers
 * then. */
struct hello {
    uint32_t magic, version;
    union {
        uint64_t host;
        uint64_t family; /* HELLO_OFFERS */
    };
    union {
        uint64_t sched_group;
        struct {
            uint32_t family_rank, channel; /* HELLO_OFFERS */
        };
    };
    uint64_t settings;   /* hash of what must be the same on all ranks */
    uint64_t cores_low;  /* bit per core that it may run on, of the first 64 */
    uint32_t cores_hash; /* of all of them ... */
    uint32_t cores;      /* ... and how many they are */
    union {
        uint32_t opened; /* bit per place in the list of transports */
        uint32_t area;   /* HELLO_OFFERS */
    };
    uint32_t local; /* those of them that reach only this host */
    uint16_t flags; /* enum hello_flag */
    uint16_t speed; /* what its links deliver, in parts of SL_SPEED_MAX */
    uint32_t id;    /* of rank 0: what all call the communicator */
};

_Static_assert(sizeof(struct hello) == 64, "an offer takes no room of its own");

/* ---- meeting ---- */

static void describe_settings(const struct sl_config *c, const struct sl_worker *worker, char *out,
                              size_t cap)
{
    out[0] = '\0';
    for (unsigned i = 0; i < worker->slot_count; i++)
        sl_text_add(out, cap, "%s%s", i == 0 ? "transport " : ",", worker->slots[i].ops->name);
    sl_text_add(out, cap, " algo '%s' chunk %lld window %lld tune %s", c->algo,
                (long long)c->chunk_bytes, (long long)c->shm_window_bytes, sl_tune_name(c->tune));
}

static void open_iface(struct sluice_comm *comm, struct sl_iface_slot *slot,
                       const struct sl_device *dev)
{
    struct sl_handler handler = {sl_links_ctrl, sl_links_down, NULL};

    int err = slot->ops->open(comm->worker, dev, &handler, &slot->iface);

    if (err != 0) {
        slot->iface = NULL;
        slot->lacked_memory = err == -ENOMEM;
        sl_text_set(&slot->why, "%s", sluice_last_error());
        sl_info("comm", "transport %s is out: %s", slot->ops->name, sl_text_of(slot->why));
    }
}

int sl_connect_list(const struct sl_comm_params *params, const struct sl_transport_ops **out,
                    unsigned *count)
{
    if (params->transports == NULL)
        return sl_transport_list(params->config->transport, out, SL_IFACES_MAX, count);
    if (params->transport_count > SL_IFACES_MAX)
        return sl_fail(-EINVAL, "the call names %zu transports, and a communicator has %u at most",
                       params->transport_count, SL_IFACES_MAX);
    for (size_t i = 0; i < params->transport_count; i++)
        out[i] = params->transports[i].ops;
    *count = (unsigned)params->transport_count;
    return *count != 0 ? 0 : sl_fail(-EINVAL, "the call names no transport");
}

static int list_transports(struct sluice_comm *comm, const struct sl_comm_params *params)
{
    const struct sl_transport_ops *ops[SL_IFACES_MAX];
    unsigned count = 0;
    int err = sl_connect_list(params, ops, &count);

    for (unsigned i = 0; i < count && err == 0; i++)
        comm->worker->slots[comm->worker->slot_count++].ops = ops[i];
    return err;
}

static int open_transports(struct sluice_comm *comm, const struct sl_comm_params *params)
{
    int err = list_transports(comm, params);

    for (unsigned i = 0; i < comm->worker->slot_count && comm->size > 1 && err == 0; i++)
        open_iface(comm, &comm->worker->slots[i],
                   params->transports != NULL ? params->transports[i].dev : NULL);
    return err;
}

static int compare_versions(const struct sl_exchange *exchange, const struct hello *all)
{
    int rank = exchange->rank;

    for (int r = 0; r < exchange->size; r++)
        if (all[r].magic != HELLO_MAGIC || all[r].version != all[rank].version)
            return sl_fail(-EPROTO,
                           "rank %d speaks protocol version %u, rank %d speaks %u: install the "
                           "same Sluice everywhere",
                           r, all[r].version, rank, all[rank].version);
    return 0;
}

/* Tells all ranks, and hears them. */
static int say(struct sl_exchange *exchange, const struct hello *mine, struct hello *all)
{
    int err = exchange->allgather(exchange, mine, sizeof(*mine), all);

    return err ?: compare_versions(exchange, all);
}

static bool somebody_offers(const struct sl_exchange *exchange, const struct hello *all)
{
    for (int r = 0; r < exchange->size; r++)
        if ((all[r].flags & HELLO_OFFERS) != 0)
            return true;
    return false;
}

/* Settings differ somewhere, which all ranks see: only now are the texts worth their bytes. */
static int tell_settings(const struct sluice_comm *comm, struct sl_exchange *exchange,
                         const struct hello *all)
{
    char mine[SETTINGS_SHOWN], its[SETTINGS_SHOWN];
    char(*texts)[SETTINGS_SHOWN] = calloc(comm->size, sizeof(*texts));
    uint32_t other = 0;
    int err;

    if (texts == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    describe_settings(&comm->config, comm->worker, mine, sizeof(mine));
    err = exchange->allgather(exchange, mine, sizeof(mine), texts);
    while (other + 1 < comm->size && all[other].settings == all[comm->rank].settings)
        other++;
    snprintf(its, sizeof(its), "%.*s", SETTINGS_SHOWN - 1, texts[other]);
    sl_tame_text(its);
    free(texts);
    return err != 0 ? err
                    : sl_fail(-EPROTO, "settings differ: rank %u has %s; rank %u has %s", other,
                              its, comm->rank, mine);
}

static int compare_hellos(const struct sluice_comm *comm, struct sl_exchange *exchange,
                          const struct hello *all)
{
    if (somebody_offers(exchange, all))
        return sl_fail(-EPROTO, "a rank is at another step of the start");
    for (uint32_t r = 0; r < comm->size; r++)
        if (all[r].settings != all[0].settings)
            return tell_settings(comm, exchange, all);
    return 0;
}

/* Ranks of this host that SLUICE_HOST_ID calls different hosts dial each other as such, never by
 * loopback. */
static bool all_nearby(const struct sluice_comm *comm, const struct hello *all)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if ((all[r].flags & HELLO_NEARBY) == 0 || all[r].host != all[0].host)
            return false;
    return true;
}

static unsigned place_on_host(const struct sluice_comm *comm, const struct hello *all)
{
    unsigned before = 0;

    for (uint32_t r = 0; r < comm->rank; r++)
        before += all[r].host == all[comm->rank].host;
    return before;
}

static void tell_cores(struct hello *mine)
{
    uint64_t cores[SL_CPU_WORDS];
    uint32_t hash = 0;

    sl_host_cores(cores);
    mine->cores_low = cores[0];
    for (unsigned w = 0; w < SL_CPU_WORDS; w++) {
        mine->cores += (uint32_t)__builtin_popcountll(cores[w]);
        hash = (hash ^ (uint32_t)(cores[w] ^ cores[w] >> 32)) * UINT32_C(0x9e3779b1);
    }
    mine->cores_hash = hash;
}

/* What all know of each other from now on; hosts are numbered by first appearance, which a table of
 * open addresses finds. */
static int keep_seats(struct sluice_comm *comm, const struct hello *all)
{
    struct sl_seat *seats = calloc(comm->size, sizeof(*seats));
    uint32_t *seen, hosts = 0; /* seen: rank + 1 */
    size_t room = 2;

    while (room < 2 * (size_t)comm->size)
        room *= 2;
    seen = calloc(room, sizeof(*seen));
    if (seats == NULL || seen == NULL) {
        free(seats);
        free(seen);
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        size_t at = (all[r].host * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1);

        while (seen[at] != 0 && all[seen[at] - 1].host != all[r].host)
            at = (at + 1) & (room - 1);
        seats[r] = (struct sl_seat){
            .sched_group = all[r].sched_group,
            .cores_low = all[r].cores_low,
            .cores_hash = all[r].cores_hash,
            .cores = all[r].cores,
            .host = seen[at] != 0 ? seats[seen[at] - 1].host : hosts++,
            .all = all[r].opened,
            .local = all[r].local,
            .speed = all[r].speed,
        };
        seen[at] = seen[at] != 0 ? seen[at] : r + 1;
    }
    free(seen);
    comm->family->host_count = hosts;
    return sl_family_keep_seats(comm->family, seats);
}

int sl_connect_offer(const struct sl_config *config, const struct sl_worker *worker,
                     struct sl_exchange *exchange, const struct sl_offer *offer,
                     struct sl_offer *offers)
{
    struct hello mine = {.magic = HELLO_MAGIC,
                         .version = PROTOCOL_VERSION,
                         .family = offer->family,
                         .family_rank = offer->place.family_rank,
                         .channel = offer->place.channel,
                         .area = offer->place.area,
                         .flags = HELLO_OFFERS};
    struct hello *all = calloc((size_t)exchange->size, sizeof(*all));
    char text[SETTINGS_SHOWN];
    int err;

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %d ranks", exchange->size);
    describe_settings(config, worker, text, sizeof(text));
    mine.settings = sl_hash_text(text);
    err = say(exchange, &mine, all);
    for (int r = 0; r < exchange->size && err == 0; r++)
        if ((all[r].flags & HELLO_OFFERS) != 0 && all[r].settings == mine.settings)
            offers[r] =
                (struct sl_offer){all[r].family, {all[r].family_rank, all[r].channel, all[r].area}};
    free(all);
    return err;
}

int sl_connect_meet(struct sluice_comm *comm, struct sl_exchange *exchange,
                    const struct sl_comm_params *params)
{
    struct hello mine = {.magic = HELLO_MAGIC, .version = PROTOCOL_VERSION};
    char text[SETTINGS_SHOWN];
    int err = open_transports(comm, params);

    if (err != 0)
        return err;
    struct hello *all = calloc(comm->size, sizeof(*all));

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    for (unsigned i = 0; i < comm->worker->slot_count; i++) {
        const struct sl_iface *iface = comm->worker->slots[i].iface;

        mine.opened |= iface != NULL ? 1u << i : 0;
        mine.local |= iface != NULL && (iface->caps & SL_CAP_LOCAL) != 0 ? 1u << i : 0;
    }
    struct sl_rng dice = comm->worker->rng;

    mine.id = (uint32_t)sl_rng_u64(&dice);
    mine.flags = exchange->nearby ? HELLO_NEARBY : 0;
    mine.host =
        params->host_id != NULL ? sl_hash_text(params->host_id) : sl_host_hash(&comm->config);
    mine.sched_group = sl_host_sched_group();
    mine.speed = (uint16_t)comm->config.link_weight;
    tell_cores(&mine);
    describe_settings(&comm->config, comm->worker, text, sizeof(text));
    mine.settings = sl_hash_text(text);
    err = say(exchange, &mine, all);
    if (err == 0 && somebody_offers(exchange, all))
        err = say(exchange, &mine, all);
    err = err ?: compare_hellos(comm, exchange, all);
    err = err ?: keep_seats(comm, all);
    err = err ?: sl_seats_take(comm);
    if (err == 0) {
        comm->id = all[0].id;
        comm->worker->one_host = all_nearby(comm, all);
        comm->worker->local_idx = place_on_host(comm, all);
        sl_windows_foresee(comm);
    }
    free(all);
    return err;
}
