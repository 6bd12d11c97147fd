/* SPDX-License-Identifier: Apache-2.0 */
/* Meets the other ranks over an exchange and connects each pair by the first transport that
 * reaches. */
#include "collectives/connect.h"

#include "collectives/health.h"
#include "core/host.h"
#include "core/log.h"
#include "core/registry.h"
#include "core/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Raised with every change of what ranks say to each other on the wire or in shared memory. */
#define PROTOCOL_VERSION 4
#define HELLO_MAGIC UINT32_C(0x534c4331)
#define SETTINGS_SHOWN 300 /* bytes of each rank's, in a sentence about two */

/* What each rank says of itself once; same layout on all, as versions are compared before anything
 * else. */
struct hello {
    uint32_t magic, version;
    uint64_t host;
    uint64_t sched_group;
    uint64_t settings;   /* hash of what must be the same on all ranks */
    uint64_t cores_low;  /* bit per core that it may run on, of the first 64 */
    uint32_t cores_hash; /* of all of them ... */
    uint32_t cores;      /* ... and how many they are */
    uint32_t opened;     /* bit per place in the list of transports */
    uint32_t local;      /* those of them that reach only this host */
    /* 1: surely on rank 0's host; that of two machines may have one number (host) */
    uint32_t nearby;
    uint32_t id; /* of rank 0: what all call the communicator */
};

/* ---- meeting ---- */

static void describe_settings(const struct sluice_comm *comm, char *out, size_t cap)
{
    const struct sl_config *c = &comm->config;
    size_t len = 0;

    for (unsigned i = 0; i < comm->worker->slot_count && len < cap; i++)
        len += (size_t)snprintf(out + len, cap - len, "%s%s", i == 0 ? "transport " : ",",
                                comm->worker->slots[i].ops->name);
    if (len < cap)
        snprintf(out + len, cap - len, " algo '%s' chunk %lld window %lld tune %s", c->algo,
                 (long long)c->chunk_bytes, (long long)c->shm_window_bytes, sl_tune_name(c->tune));
}

static void open_iface(struct sluice_comm *comm, struct sl_iface_slot *slot,
                       const struct sl_device *dev)
{
    struct sl_handler handler = {sl_health_ctrl, sl_health_down, NULL};

    int err = slot->ops->open(comm->worker, dev, &handler, &slot->iface);

    if (err != 0) {
        slot->iface = NULL;
        slot->lacked_memory = err == -ENOMEM;
        sl_text_set(&slot->why, "%s", sluice_last_error());
        sl_info("comm", "transport %s is out: %s", slot->ops->name, sl_text_of(slot->why));
    }
}

static int list_transports(struct sluice_comm *comm, const struct sl_comm_params *params)
{
    const struct sl_transport_ops *ops[SL_IFACES_MAX];
    unsigned count;
    int err;

    if (params->transports != NULL) {
        if (params->transport_count > SL_IFACES_MAX)
            return sl_fail(-EINVAL,
                           "the call names %zu transports, and a communicator has %u at most",
                           params->transport_count, SL_IFACES_MAX);
        for (size_t i = 0; i < params->transport_count; i++)
            comm->worker->slots[comm->worker->slot_count++].ops = params->transports[i].ops;
        return comm->worker->slot_count != 0 ? 0 : sl_fail(-EINVAL, "the call names no transport");
    }
    err = sl_transport_list(comm->config.transport, ops, SL_IFACES_MAX, &count);
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

static int compare_versions(const struct sluice_comm *comm, const struct hello *all)
{
    const struct hello *mine = &all[comm->rank];

    for (uint32_t r = 0; r < comm->size; r++)
        if (all[r].magic != HELLO_MAGIC || all[r].version != mine->version)
            return sl_fail(-EPROTO,
                           "rank %u speaks protocol version %u, rank %u speaks %u: install the "
                           "same Sluice everywhere",
                           r, all[r].version, comm->rank, mine->version);
    return 0;
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
    describe_settings(comm, mine, sizeof(mine));
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
    int err = compare_versions(comm, all);

    for (uint32_t r = 0; r < comm->size && err == 0; r++)
        if (all[r].settings != all[0].settings)
            return tell_settings(comm, exchange, all);
    return err;
}

/* Hosts are numbered by first appearance; a table of open addresses finds those that were seen. */
static int number_hosts(struct sluice_comm *comm, const struct hello *all)
{
    uint32_t *host = calloc(comm->size, sizeof(*host)), *seen; /* seen: rank + 1 */
    size_t room = 2;

    while (room < 2 * (size_t)comm->size)
        room *= 2;
    seen = calloc(room, sizeof(*seen));
    if (host == NULL || seen == NULL) {
        free(host);
        free(seen);
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        size_t at = (all[r].host * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1);

        while (seen[at] != 0 && all[seen[at] - 1].host != all[r].host)
            at = (at + 1) & (room - 1);
        host[r] = seen[at] != 0 ? host[seen[at] - 1] : comm->host_count++;
        seen[at] = seen[at] != 0 ? seen[at] : r + 1;
    }
    free(seen);
    if (sl_shared_keep(host, comm->size * sizeof(*host), &comm->held_host) != 0)
        return -ENOMEM;
    comm->host = sl_shared_bytes(comm->held_host);
    return 0;
}

/* Ranks by host, to walk each host's once. first[host] is where those of a host begin; one more
 * than there are hosts. */
static void sort_by_host(const struct sluice_comm *comm, uint32_t *ranks, uint32_t *first)
{
    for (uint32_t r = 0; r < comm->size; r++)
        first[comm->host[r] + 1]++;
    for (uint32_t h = 0; h < comm->host_count; h++)
        first[h + 1] += first[h];
    /* Now first[h + 1] is the end of host h: filled from there down, it becomes its begin. */
    for (uint32_t r = comm->size; r-- > 0;)
        ranks[--first[comm->host[r] + 1]] = r;
    for (uint32_t h = 0; h < comm->host_count; h++)
        first[h] = first[h + 1];
    first[comm->host_count] = comm->size;
}

/* Cores that these ranks, all of one host, may use together: exactly where there are no more than
 * 64 of them; else masks that differ are taken to have nothing in common. */
static uint32_t count_cores(const struct hello *all, const uint32_t *ranks, uint32_t count)
{
    uint64_t low = 0;
    uint32_t cores = 0;
    bool many = false;

    for (uint32_t i = 0; i < count; i++) {
        const struct hello *its = &all[ranks[i]];
        bool seen = false;

        low |= its->cores_low;
        many |= its->cores > (uint32_t)__builtin_popcountll(its->cores_low);
        for (uint32_t k = i > 64 ? i - 64 : 0; k < i && !seen; k++)
            seen = all[ranks[k]].cores_hash == its->cores_hash;
        cores += seen ? 0 : its->cores;
    }
    cores = many ? cores : (uint32_t)__builtin_popcountll(low);
    return cores != 0 ? cores : 1;
}

/* How crowded this host is, and the most crowded one: the same answer on all ranks, as the choice
 * of algorithms depends on it. */
static int count_crowds(struct sluice_comm *comm, const struct hello *all)
{
    uint32_t *ranks = calloc(comm->size + (size_t)comm->host_count + 1, sizeof(*ranks));
    uint32_t *first = ranks + comm->size, most = 1;

    if (ranks == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    sort_by_host(comm, ranks, first);
    for (uint32_t h = 0; h < comm->host_count; h++) {
        uint32_t count = first[h + 1] - first[h], cores = count_cores(all, ranks + first[h], count);

        if ((count + cores - 1) / cores > most)
            most = (count + cores - 1) / cores;
        if (count > comm->most_local)
            comm->most_local = count;
        if (h != comm->host[comm->rank])
            continue;
        comm->local_size = count;
        comm->wait.oversubscribed = count > cores;
    }
    comm->costs.ranks_per_core = most;
    free(ranks);
    return 0;
}

/* Cores are shared by ranks that the scheduler keeps in groups apart: each rank in a session, a
 * container or a control group of its own. */
static bool are_apart(const struct sluice_comm *comm, const struct hello *all)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (comm->host[r] == comm->host[comm->rank] &&
            all[r].sched_group != all[comm->rank].sched_group)
            return comm->wait.oversubscribed;
    return false;
}

/* Ranks of this host that SLUICE_HOST_ID calls different hosts dial each other as such, never by
 * loopback. */
static bool all_nearby(const struct sluice_comm *comm, const struct hello *all)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (all[r].nearby != 1 || all[r].host != all[0].host)
            return false;
    return true;
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

/* Which transports each rank has open, for reach.c. */
static int keep_opened(struct sluice_comm *comm, const struct hello *all)
{
    struct sl_opened *opened = calloc(comm->size, sizeof(*opened));

    if (opened == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    for (uint32_t r = 0; r < comm->size; r++)
        opened[r] = (struct sl_opened){all[r].opened, all[r].local};
    if (sl_shared_keep(opened, comm->size * sizeof(*opened), &comm->held_opened) != 0)
        return -ENOMEM;
    comm->opened = sl_shared_bytes(comm->held_opened);
    return 0;
}

int sl_connect_meet(struct sluice_comm *comm, struct sl_exchange *exchange,
                    const struct sl_comm_params *params)
{
    struct hello mine = {.magic = HELLO_MAGIC, .version = PROTOCOL_VERSION};
    char text[SETTINGS_SHOWN];
    int err = params->parent == NULL ? open_transports(comm, params) : 0;

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
    mine.nearby = exchange->nearby;
    mine.host =
        params->host_id != NULL ? sl_hash_text(params->host_id) : sl_host_hash(&comm->config);
    mine.sched_group = sl_host_sched_group();
    tell_cores(&mine);
    describe_settings(comm, text, sizeof(text));
    mine.settings = sl_hash_text(text);
    err = exchange->allgather(exchange, &mine, sizeof(mine), all);
    err = err ?: compare_hellos(comm, exchange, all);
    err = err ?: number_hosts(comm, all);
    err = err ?: count_crowds(comm, all);
    err = err ?: keep_opened(comm, all);
    if (err == 0) {
        comm->id = all[0].id;
        if (params->parent == NULL)
            comm->worker->one_host = all_nearby(comm, all);
        comm->wait.apart = are_apart(comm, all);
    }
    free(all);
    return err;
}
