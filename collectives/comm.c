/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and destroys communicators. */
#include "collectives/comm.h"

#include "collectives/adopt.h"
#include "collectives/calibrate.h"
#include "collectives/connect.h"
#include "collectives/exec.h"
#include "collectives/family.h"
#include "collectives/health.h"
#include "collectives/recall.h"
#include "collectives/select.h"
#include "collectives/speeds.h"
#include "collectives/status.h"
#include "core/cache.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_NS_OWN_CORE (2 * SL_NS_PER_MS)
#define SPIN_NS_SHARED_CORE (20 * SL_NS_PER_MS) /* of yielding: others run meanwhile */
#define SPIN_NS_APART                                                                              \
    0 /* a yield comes back at once, and the rank keeps the core for its slice of ms: it sleeps */

static int alloc_tables(struct sluice_comm *comm)
{
    comm->health.rank_sets = calloc(comm->size, 2 * sizeof(*comm->health.rank_sets));
    if (comm->health.rank_sets == NULL)
        return sl_fail(-ENOMEM, "no memory for a communicator of %u ranks", comm->size);
    return sl_peers_init(&comm->peers, comm->size);
}

static int make_worker(struct sluice_comm *comm, const struct sl_comm_params *params)
{
    struct sl_worker *worker = sl_worker_new(&comm->config);

    if (worker == NULL)
        return sl_fail(-ENOMEM, "no memory for the worker of a communicator");
    worker->clock = params->clock;
    worker->rank = (int)comm->rank;
    worker->idle = params->idle;
    worker->idle_arg = params->idle_arg;
    worker->wire = params->wire;
    sl_rng_init(&worker->rng, params->seed);
    comm->worker = worker;
    return 0;
}

int sl_comm_alloc(const struct sl_config *config, uint32_t rank, uint32_t size,
                  struct sluice_comm **out)
{
    struct sluice_comm *comm;

    if (posix_memalign((void **)&comm, SL_CACHE_LINE, sizeof(*comm)) != 0)
        return sl_fail(-ENOMEM, "no memory for a communicator");
    memset(comm, 0, sizeof(*comm));
    comm->life = sl_fork_life();
    comm->config = *config;
    comm->rank = rank;
    comm->size = size;
    comm->health.error.culprit = -1;
    sl_list_init(&comm->calls.active);
    sl_list_init(&comm->calls.plan_lru);
    sl_list_init(&comm->buffers);
    int err = sl_kernels_select(comm->config.kernel, &comm->kernels);

    err = err ?: sl_forced_check(comm->config.algo);
    err = err ?: alloc_tables(comm);
    if (err == 0)
        *out = comm;
    else
        sl_comm_free(comm);
    return err;
}

void sl_comm_set_spin(struct sluice_comm *comm)
{
    comm->wait.spin_ns = comm->config.spin_us >= 0   ? (uint64_t)comm->config.spin_us * 1000
                         : comm->wait.apart          ? SPIN_NS_APART
                         : comm->wait.oversubscribed ? SPIN_NS_SHARED_CORE
                                                     : SPIN_NS_OWN_CORE;
}

/* The exchange's own key; a caller's exchange that has none leaves what all ranks were told as
 * their secret. */
static int set_session(struct sluice_comm *comm, const struct sl_exchange *exchange)
{
    struct sl_worker *worker = comm->worker;

    worker->has_session = true;
    if (exchange->session != NULL) {
        memcpy(worker->session, exchange->session, sizeof(worker->session));
        return 0;
    }
    if (comm->config.secret[0] != '\0')
        return sl_session_derive(comm->config.secret, worker->session);
    worker->has_session = false;
    return 0;
}

void sl_comm_free(struct sluice_comm *comm)
{
    sl_family_leave(comm);
    sl_plans_fini(comm);
    sl_recall_drop(comm);
    sl_coding_put(comm->coding);
    sl_status_close(comm);
    sl_peers_fini(&comm->peers);
    sl_shared_drop(comm->held_host);
    sl_shared_drop(comm->held_family_of);
    free(comm->speed);
    free(comm->speeds.said);
    free(comm->speeds.table);
    free(comm->health.rank_sets);
    free(comm->health.relays);
    sl_worker_put(comm->worker);
    free(comm);
}

int sl_comm_gather(struct sluice_comm *comm, struct sl_exchange *exchange, const void *in,
                   size_t len, void *out)
{
    int err;

    sl_worker_lend(comm->worker);
    err = exchange->allgather(exchange, in, len, out);
    sl_worker_take_back(comm->worker);
    return err;
}

/* What all ranks do together. */
static int join_ranks(struct sluice_comm *comm, struct sl_exchange *exchange,
                      const struct sl_comm_params *params)
{
    int err = sl_connect_meet(comm, exchange, params);

    if (err == 0) {
        sl_comm_set_spin(comm);
        err = sl_reach_open(comm, exchange);
    }
    err = err ?: sl_windows_open(comm, exchange);
    return err != 0 ? err : sl_costs_find(comm, exchange);
}

/* With a worker and a family of its own. */
static int create_anew(struct sl_exchange *exchange, const struct sl_comm_params *params,
                       struct sluice_comm **out)
{
    struct sluice_comm *comm;
    int err =
        sl_comm_alloc(params->config, (uint32_t)exchange->rank, (uint32_t)exchange->size, &comm);

    if (err != 0)
        return err;
    comm->stream_min = comm->config.shm_stream_min_bytes >= 0
                           ? (size_t)comm->config.shm_stream_min_bytes
                           : sl_cache_last_level() / 4;
    comm->codec_name = params->codec_name;
    comm->encode = params->encode;
    comm->wait.poke = params->poke;
    comm->wait.poke_arg = params->poke_arg;
    err = make_worker(comm, params);
    if (err == 0 && sl_status_begin(comm) != 0)
        err = sl_fail(-ENOMEM, "no memory for the events of a communicator");
    err = err ?: sl_family_make(comm);
    err = err ?: set_session(comm, exchange);
    if (err != 0) { /* there is nothing yet that sl_comm_destroy() takes down */
        sl_comm_free(comm);
        return err;
    }
    err = join_ranks(comm, exchange, params);
    if (err != 0) {
        struct sl_error first;

        /* Tearing down may fail in ways of its own: the first reason stays. */
        sl_error_take(err, &first);
        sl_comm_destroy(comm);
        return sl_fail_error(&first);
    }
    comm->created = true;
    sl_speeds_begin(comm);
    err = sl_comm_join(comm);
    if (err != 0) {
        sl_comm_destroy(comm);
        return err;
    }
    sl_status_refresh(comm);
    sl_debug("comm", "rank %u of %u is connected, %u on this host, %s windows", comm->rank,
             comm->size, comm->local_size, comm->win.slots != NULL ? "with" : "without");
    *out = comm;
    atomic_store(&comm->worker->home, sl_worker_home(comm->worker));
    sl_adopt_list(comm->family, params);
    sl_worker_exit(comm->worker);
    return 0;
}

int sl_comm_create(struct sl_exchange *exchange, const struct sl_comm_params *params,
                   struct sluice_comm **out)
{
    struct sluice_comm *comm;
    int err = sl_adopt(exchange, params, &comm);

    if (err != 0)
        return err;
    if (comm == NULL)
        return create_anew(exchange, params, out);
    *out = comm;
    return 0;
}

void sl_comm_destroy(struct sluice_comm *comm)
{
    if (comm == NULL)
        return;
    if (atomic_load(&comm->health.abort_asked) != 0) { /* nobody may have looked since */
        sl_comm_fail(comm, -ECANCELED, -1, "rank %u aborted the communicator", comm->rank);
        sl_health_tear_down(comm);
    }
    sl_speeds_settle(comm);
    if (!sl_list_empty(&comm->calls.active)) {
        sl_comm_fail(comm, -ECANCELED, -1, "rank %u destroyed the communicator", comm->rank);
        sl_health_tear_down(comm);
    }
    sl_costs_learn(comm);
    sl_health_goodbye(comm);
    sl_windows_close(comm);
    sl_family_leave(comm);
    if (comm->member.link.next != NULL)
        sl_worker_leave(comm->worker, &comm->member);
    else if (comm->worker->member_count == 0)
        sl_worker_close(comm->worker);
    comm->closed = true;
    sl_speeds_end(comm);
    sl_comm_release(comm);
}

void sl_comm_release(struct sluice_comm *comm)
{
    if (comm->closed && comm->calls.active_count == 0 && comm->calls.kept == 0)
        sl_comm_free(comm);
}
