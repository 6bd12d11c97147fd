/* SPDX-License-Identifier: Apache-2.0 */
/* Meets the other ranks over an exchange and connects each pair by the first transport that
 * reaches. */
#include "collectives/connect.h"

#include "collectives/health.h"
#include "core/host.h"
#include "core/log.h"
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Raised with every change of what ranks say to each other on the wire or in shared memory. */
#define PROTOCOL_VERSION 3
#define HELLO_MAGIC UINT32_C(0x534c4331)
#define SETTINGS_SHOWN 300 /* bytes of each rank's, in a sentence about two */

/* First words of every rank; same layout on all, as versions are compared before anything else. */
struct hello {
    uint32_t magic, version;
    uint64_t host;
    uint64_t sched_group;
    uint64_t settings; /* of what must be the same on all ranks */
    uint32_t opened;   /* bit per place in the list of transports */
    uint32_t local;    /* those of them that reach only this host */
    /* 1: surely on rank 0's host; that of two machines may have one number (host) */
    uint32_t nearby;
    uint32_t id; /* of rank 0: what all call the communicator */
    uint64_t cores[SL_CPU_WORDS];
    char settings_text[512];
};

/* ---- meeting ---- */

static void describe_settings(const struct sluice_comm *comm, char *out, size_t cap)
{
    const struct sl_config *c = &comm->config;
    size_t len = 0;

    for (unsigned i = 0; i < comm->iface_count && len < cap; i++)
        len += (size_t)snprintf(out + len, cap - len, "%s%s", i == 0 ? "transport " : ",",
                                comm->ifaces[i].ops->name);
    if (len < cap)
        snprintf(out + len, cap - len, " algo '%s' chunk %lld window %lld tune %s", c->algo,
                 (long long)c->chunk_bytes, (long long)c->shm_window_bytes, sl_tune_name(c->tune));
}

static void open_iface(struct sluice_comm *comm, struct sl_iface_slot *slot,
                       const struct sl_device *dev)
{
    struct sl_handler handler = {sl_health_ctrl, sl_health_down, comm};

    int err = slot->ops->open(&comm->worker, dev, &handler, &slot->iface);

    if (err != 0) {
        slot->iface = NULL;
        slot->lacked_memory = err == -ENOMEM;
        snprintf(slot->why, sizeof(slot->why), "%s", sluice_last_error());
        sl_info("comm", "transport %s is out: %s", slot->ops->name, slot->why);
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
            comm->ifaces[comm->iface_count++].ops = params->transports[i].ops;
        return comm->iface_count != 0 ? 0 : sl_fail(-EINVAL, "the call names no transport");
    }
    err = sl_transport_list(comm->config.transport, ops, SL_IFACES_MAX, &count);
    for (unsigned i = 0; i < count && err == 0; i++)
        comm->ifaces[comm->iface_count++].ops = ops[i];
    return err;
}

static int compare_hellos(const struct sluice_comm *comm, const struct hello *all)
{
    const struct hello *mine = &all[comm->rank];

    for (uint32_t r = 0; r < comm->size; r++)
        if (all[r].magic != HELLO_MAGIC || all[r].version != mine->version)
            return sl_fail(-EPROTO,
                           "rank %u speaks protocol version %u, rank %u speaks %u: install the "
                           "same Sluice everywhere",
                           r, all[r].version, comm->rank, mine->version);
    for (uint32_t r = 0; r < comm->size; r++) {
        char its[SETTINGS_SHOWN];

        if (all[r].settings == mine->settings)
            continue;
        snprintf(its, sizeof(its), "%.*s", SETTINGS_SHOWN - 1, all[r].settings_text);
        sl_tame_text(its);
        return sl_fail(-EPROTO, "settings differ: rank %u has %s; rank %u has %.*s", r, its,
                       comm->rank, SETTINGS_SHOWN - 1, mine->settings_text);
    }
    return 0;
}

static void number_hosts(struct sluice_comm *comm, const struct hello *all)
{
    for (uint32_t r = 0; r < comm->size; r++) {
        uint32_t first = 0;

        while (all[first].host != all[r].host)
            first++;
        comm->host[r] = first == r ? comm->host_count++ : comm->host[first];
        comm->peers[r].host = comm->host[r];
    }
    for (uint32_t r = 0; r < comm->size; r++)
        comm->local_size += comm->host[r] == comm->host[comm->rank];
}

/* Cores that the ranks of one host may use together. */
static uint32_t count_cores(const struct sluice_comm *comm, const struct hello *all, uint32_t host)
{
    uint32_t cores = 0;

    for (unsigned w = 0; w < SL_CPU_WORDS; w++) {
        uint64_t word = 0;

        for (uint32_t r = 0; r < comm->size; r++)
            if (comm->host[r] == host)
                word |= all[r].cores[w];
        cores += (uint32_t)__builtin_popcountll(word);
    }
    return cores != 0 ? cores : 1;
}

/* How crowded the most crowded host is: the same answer on all ranks, as the choice of algorithms
 * depends on it. */
static uint32_t count_ranks_per_core(const struct sluice_comm *comm, const struct hello *all)
{
    uint32_t most = 1;

    for (uint32_t host = 0; host < comm->host_count; host++) {
        uint32_t cores = count_cores(comm, all, host), ranks = 0;

        for (uint32_t r = 0; r < comm->size; r++)
            ranks += comm->host[r] == host;
        if ((ranks + cores - 1) / cores > most)
            most = (ranks + cores - 1) / cores;
    }
    return most;
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

/* Which transports each rank has open, for sl_connect_peers(). */
static void keep_opened(struct sluice_comm *comm, const struct hello *all)
{
    for (uint32_t r = 0; r < comm->size; r++) {
        comm->peers[r].opened = all[r].opened;
        comm->peers[r].local = all[r].local;
    }
}

int sl_connect_meet(struct sluice_comm *comm, struct sl_exchange *exchange,
                    const struct sl_comm_params *params)
{
    struct hello mine = {.magic = HELLO_MAGIC, .version = PROTOCOL_VERSION};
    int err = list_transports(comm, params);

    if (err != 0)
        return err;
    struct hello *all = calloc(comm->size, sizeof(*all));

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    for (unsigned i = 0; i < comm->iface_count && comm->size > 1; i++) {
        open_iface(comm, &comm->ifaces[i],
                   params->transports != NULL ? params->transports[i].dev : NULL);
        if (comm->ifaces[i].iface == NULL)
            continue;
        mine.opened |= 1u << i;
        if ((comm->ifaces[i].iface->caps & SL_CAP_LOCAL) != 0)
            mine.local |= 1u << i;
    }
    struct sl_rng dice = comm->worker.rng;

    mine.id = (uint32_t)sl_rng_u64(&dice);
    mine.nearby = exchange->nearby;
    mine.host =
        params->host_id != NULL ? sl_hash_text(params->host_id) : sl_host_hash(&comm->config);
    mine.sched_group = sl_host_sched_group();
    sl_host_cores(mine.cores);
    describe_settings(comm, mine.settings_text, sizeof(mine.settings_text));
    mine.settings = sl_hash_text(mine.settings_text);
    err = exchange->allgather(exchange, &mine, sizeof(mine), all);
    if (err == 0)
        err = compare_hellos(comm, all);
    if (err == 0) {
        comm->id = all[0].id;
        number_hosts(comm, all);
        keep_opened(comm, all);
        comm->worker.one_host = all_nearby(comm, all);
        comm->wait.oversubscribed =
            comm->local_size > count_cores(comm, all, comm->host[comm->rank]);
        comm->wait.apart = are_apart(comm, all);
        comm->costs.ranks_per_core = count_ranks_per_core(comm, all);
    }
    free(all);
    return err;
}

/* ---- connecting ---- */

/* One endpoint being connected. */
struct attempt {
    struct sl_req req;
    bool tried;    /* an endpoint exists */
    char why[320]; /* of a failure */
};

static size_t pair(const struct sluice_comm *comm, uint32_t a, uint32_t b)
{
    return sl_pair_place(comm->size, a, b);
}

static bool wanted(const struct sluice_comm *comm, const uint8_t *linked, unsigned t, uint32_t a,
                   uint32_t b)
{
    const struct sl_peer *pa = &comm->peers[a], *pb = &comm->peers[b];

    return a != b && !linked[pair(comm, a, b)] && (pa->opened & pb->opened & 1u << t) != 0 &&
           ((pa->local & 1u << t) == 0 || comm->host[a] == comm->host[b]);
}

static void note_why(struct sluice_comm *comm, unsigned t, int err, const char *text)
{
    comm->ifaces[t].lacked_memory |= err == -ENOMEM;
    snprintf(comm->ifaces[t].why, sizeof(comm->ifaces[t].why), "%s", text);
}

static void create_endpoints(struct sluice_comm *comm, const uint8_t *linked, unsigned t,
                             struct sl_addr *addrs, struct attempt *attempts)
{
    struct sl_iface_slot *slot = &comm->ifaces[t];

    for (uint32_t r = 0; r < comm->size; r++) {
        struct sl_peer *peer = &comm->peers[r];

        attempts[r].tried = false;
        addrs[r].len = 0;
        if (slot->iface == NULL || !wanted(comm, linked, t, comm->rank, r))
            continue;
        int err = slot->ops->ep_create(slot->iface, &peer->ep);

        if (err != 0) {
            peer->ep = NULL;
            note_why(comm, t, err, sluice_last_error());
            continue;
        }
        peer->ep->peer = (int)r;
        peer->ep->owner = comm;
        attempts[r].tried = true;
        err = slot->ops->ep_addr(peer->ep, &addrs[r]);
        if (err != 0) {
            addrs[r].len = 0;
            note_why(comm, t, err, sluice_last_error());
        }
    }
}

/* The transport has just said why, as every detector of an error does. */
static void attempt_over(struct sl_req *req)
{
    struct attempt *attempt = sl_container_of(req, struct attempt, req);

    if (req->status != 0)
        snprintf(attempt->why, sizeof(attempt->why), "%s", sluice_last_error());
}

static void connect_endpoints(struct sluice_comm *comm, unsigned t, const struct sl_addr *all,
                              struct attempt *attempts)
{
    struct sl_iface_slot *slot = &comm->ifaces[t];

    for (uint32_t r = 0; r < comm->size; r++) {
        const struct sl_addr *addr = &all[pair(comm, r, comm->rank)];
        struct sl_req *req = &attempts[r].req;

        if (!attempts[r].tried)
            continue;
        *req = (struct sl_req){.status = SL_PENDING, .done = attempt_over};
        attempts[r].why[0] = '\0';
        int err = addr->len == 0
                      ? sl_fail(-EHOSTUNREACH, "rank %u gave no %s address", r, slot->ops->name)
                      : slot->ops->ep_connect(comm->peers[r].ep, addr, req);

        if (err < 0) {
            req->status = err;
            note_why(comm, t, err, sluice_last_error());
        }
    }
}

static bool all_settled(const struct sluice_comm *comm, const struct attempt *attempts)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (attempts[r].tried && attempts[r].req.status == SL_PENDING)
            return false;
    return true;
}

/* A transport ends what takes too long itself, and says where it was; this is for one that does
 * not. */
static void await_endpoints(struct sluice_comm *comm, const struct attempt *attempts)
{
    uint64_t timeout_ns = (uint64_t)comm->config.connect_timeout_ms * SL_NS_PER_MS;
    uint64_t deadline = sl_now(comm->worker.clock) + timeout_ns + timeout_ns / 8;

    while (!all_settled(comm, attempts) && sl_now(comm->worker.clock) < deadline)
        sl_comm_idle(comm, sl_comm_progress(comm), true);
}

/* Closes the endpoints of pairs that did not come about, and writes which did. */
static void settle(struct sluice_comm *comm, unsigned t, const struct attempt *attempts,
                   uint8_t *row)
{
    memset(row, 0, comm->size);
    for (uint32_t r = 0; r < comm->size; r++) {
        int status = attempts[r].req.status;

        if (!attempts[r].tried)
            continue;
        row[r] = status == 0;
        comm->ifaces[t].lacked_memory |= status == -ENOMEM;
        if (status == SL_PENDING)
            note_why(comm, t, status, "connecting took too long");
        else if (status != 0 && comm->ifaces[t].why[0] == '\0')
            note_why(comm, t, status,
                     attempts[r].why[0] != '\0'  ? attempts[r].why
                     : comm->health.lost_ns != 0 ? comm->health.lost_why
                                                 : sluice_strerror(status));
    }
    comm->health.lost_ns = 0; /* a lost attempt is no lost rank: another transport comes next */
}

/* Marks the pairs that both sides connected; drops the others. */
static void link_pairs(struct sluice_comm *comm, const uint8_t *rows, uint8_t *linked,
                       const struct attempt *attempts)
{
    uint32_t n = comm->size;

    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++)
            linked[pair(comm, a, b)] |= rows[pair(comm, a, b)] & rows[pair(comm, b, a)];
    for (uint32_t r = 0; r < n; r++) {
        struct sl_peer *peer = &comm->peers[r];

        if (!attempts[r].tried || linked[pair(comm, comm->rank, r)])
            continue;
        peer->ep->iface->ops->ep_destroy(peer->ep);
        peer->ep = NULL;
        peer->down = false;
    }
}

static void drop_attempts(struct sluice_comm *comm, const struct attempt *attempts)
{
    for (uint32_t r = 0; r < comm->size; r++) {
        struct sl_peer *peer = &comm->peers[r];

        if (!attempts[r].tried || peer->ep == NULL)
            continue;
        peer->ep->iface->ops->ep_destroy(peer->ep);
        peer->ep = NULL;
    }
}

/* One round for one transport. All ranks take part, wanting something of it or not. */
static int connect_round(struct sluice_comm *comm, struct sl_exchange *exchange, unsigned t,
                         uint8_t *linked)
{
    uint32_t n = comm->size;
    struct sl_addr *mine = calloc(n, sizeof(*mine)), *all = calloc((size_t)n * n, sizeof(*all));
    struct attempt *attempts = calloc(n, sizeof(*attempts));
    uint8_t *row = calloc(n, 1), *rows = calloc((size_t)n * n, 1);
    int err = -ENOMEM;

    if (mine == NULL || all == NULL || attempts == NULL || row == NULL || rows == NULL) {
        sl_fail(err, "no memory to connect %u ranks", n);
        goto out;
    }
    create_endpoints(comm, linked, t, mine, attempts);
    err = exchange->allgather(exchange, mine, n * sizeof(*mine), all);
    if (err != 0)
        goto out;
    connect_endpoints(comm, t, all, attempts);
    await_endpoints(comm, attempts);
    settle(comm, t, attempts, row);
    /* A rank whose progress failed as a whole still takes part in the exchange, or all would
     * wait. */
    err = exchange->allgather(exchange, row, n, rows);
    if (err != 0)
        goto out;
    link_pairs(comm, rows, linked, attempts);
    if (comm->health.error != 0)
        err = sl_fail_text(comm->health.error, comm->health.error_text);
out:
    /* Their requests lie in attempts[], and may still be pending. */
    if (err != 0 && attempts != NULL)
        drop_attempts(comm, attempts);
    free(mine);
    free(all);
    free(attempts);
    free(row);
    free(rows);
    return err;
}

static bool round_wanted(const struct sluice_comm *comm, const uint8_t *linked, unsigned t)
{
    for (uint32_t a = 0; a < comm->size; a++)
        for (uint32_t b = 0; b < a; b++)
            if (wanted(comm, linked, t, a, b))
                return true;
    return false;
}

/* Whose lack of memory may be why a pair is not connected: this rank's own, for it knows of no
 * other's. */
static bool lacked_memory(const struct sluice_comm *comm, uint32_t a, uint32_t b)
{
    for (unsigned t = 0; t < comm->iface_count && (a == comm->rank || b == comm->rank); t++) {
        const struct sl_iface_slot *slot = &comm->ifaces[t];

        if (slot->lacked_memory || (slot->iface != NULL && slot->iface->lacked_memory))
            return true;
    }
    return false;
}

static int refuse_unlinked(const struct sluice_comm *comm, const uint8_t *linked)
{
    for (uint32_t a = 0; a < comm->size; a++)
        for (uint32_t b = a + 1; b < comm->size; b++) {
            char whys[400] = "";
            size_t len = 0;

            if (linked[pair(comm, a, b)])
                continue;
            for (unsigned t = 0; t < comm->iface_count && len < sizeof(whys); t++)
                if (comm->ifaces[t].why[0] != '\0')
                    len += (size_t)snprintf(whys + len, sizeof(whys) - len, "; %s: %s",
                                            comm->ifaces[t].ops->name, comm->ifaces[t].why);
            if (lacked_memory(comm, a, b))
                return sl_fail(-ENOMEM, "rank %u lacked memory to connect ranks %u and %u%s",
                               comm->rank, a, b, whys);
            return sl_fail(-EHOSTUNREACH, "no transport connects ranks %u and %u%s", a, b, whys);
        }
    return 0;
}

/* Transports that connect this rank to nobody are closed, so that they cost nothing. */
static void close_unused(struct sluice_comm *comm)
{
    for (unsigned t = 0; t < comm->iface_count; t++) {
        struct sl_iface_slot *slot = &comm->ifaces[t];
        bool used = false;

        for (uint32_t r = 0; r < comm->size; r++)
            used |= comm->peers[r].ep != NULL && comm->peers[r].ep->iface == slot->iface;
        if (slot->iface == NULL || used)
            continue;
        slot->ops->close(slot->iface);
        slot->iface = NULL;
    }
}

/* A lost endpoint does not come back, so nobody has business there any more. */
static void stop_listening(struct sluice_comm *comm)
{
    for (unsigned t = 0; t < comm->iface_count; t++)
        if (comm->ifaces[t].iface != NULL)
            comm->ifaces[t].iface->ops->stop_listening(comm->ifaces[t].iface);
}

int sl_connect_peers(struct sluice_comm *comm, struct sl_exchange *exchange)
{
    uint8_t *linked = calloc((size_t)comm->size * comm->size, 1);
    int err = 0;

    if (linked == NULL)
        return sl_fail(-ENOMEM, "no memory to connect %u ranks", comm->size);
    for (unsigned t = 0; t < comm->iface_count && err == 0; t++)
        if (round_wanted(comm, linked, t))
            err = connect_round(comm, exchange, t, linked);
    if (err == 0)
        err = refuse_unlinked(comm, linked);
    if (err == 0) {
        close_unused(comm);
        stop_listening(comm);
    }
    free(linked);
    return err;
}
