/* SPDX-License-Identifier: Apache-2.0 */
/* Public ways to make, split and destroy a communicator. */
#include "lib/api.h"

#include "collectives/status.h"
#include "core/log.h"
#include "launch/launch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *progress_thread(void *arg)
{
    struct sluice_comm *comm = arg;

    sl_log_set_rank((int)comm->rank);
    while (atomic_load(&comm->stop) == 0) {
        pthread_mutex_lock(&comm->lock);
        unsigned moved = sl_comm_progress(comm);

        sl_comm_idle(comm, moved, false);
        uint64_t idle_ns = comm->wait.idle_ns;

        pthread_mutex_unlock(&comm->lock);
        if (moved == 0 && idle_ns > comm->wait.spin_ns)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        else
            sched_yield();
    }
    return NULL;
}

static void look_after(void *arg)
{
    struct sluice_comm *comm = arg;

    sl_log_set_rank((int)comm->rank);
    sl_kin_look_after(comm);
}

/* Not in the simulator, where nothing happens between calls. */
static bool wants_keeper(const struct sluice_comm *comm)
{
    bool wants = false;

    for (unsigned i = 0; i < comm->iface_count && comm->worker.idle == NULL; i++)
        wants |=
            comm->ifaces[i].iface != NULL && (comm->ifaces[i].iface->caps & SL_CAP_REPAIRS) != 0;
    return wants;
}

int sl_thread_start(struct sluice_comm *comm)
{
    if (comm->config.progress == SL_PROGRESS_CALLER) {
        comm->kept = wants_keeper(comm); /* calls claim it from now on */
        return comm->kept ? sl_keeper_start(&comm->keeper, look_after, comm) : 0;
    }
    pthread_mutex_init(&comm->lock, NULL);
    comm->threaded = true;
    int err = pthread_create(&comm->thread, NULL, progress_thread, comm);

    if (err != 0) {
        comm->threaded = false;
        return sl_fail(-err, "the progress thread could not be started: %s", strerror(err));
    }
    return 0;
}

void sl_thread_stop(struct sluice_comm *comm)
{
    sl_keeper_stop(&comm->keeper);
    if (!comm->threaded)
        return;
    atomic_store(&comm->stop, 1);
    pthread_join(comm->thread, NULL);
    comm->threaded = false;
    pthread_mutex_destroy(&comm->lock);
}

/* Once for the process: a second handler would call itself as the one that was there before. */
static int watch_status_signal(const struct sl_config *config)
{
    static _Atomic int watched;
    int none = 0, err = 0;

    if (config->status_signal == SL_ON && atomic_compare_exchange_strong(&watched, &none, 1)) {
        err = sl_status_install_signal();
        if (err != 0)
            atomic_store(&watched, 0);
    }
    return err;
}

/* Another library's progress, for worker.h. */
struct poke {
    void (*call)(void *arg);
    void *arg;
};

/* With its progress thread, where it has one. */
static int create_running(struct sl_exchange *exchange, const struct sl_comm_params *params,
                          struct sluice_comm **out)
{
    struct sluice_comm *comm;
    int err = sl_comm_create(exchange, params, &comm);

    if (err != 0)
        return err;
    err = sl_thread_start(comm);
    if (err != 0)
        sl_comm_destroy(comm);
    else
        *out = comm;
    return err;
}

static int create_over(struct sl_exchange *exchange, const struct sl_config *config,
                       struct poke poke, struct sluice_comm **out)
{
    struct sl_comm_params params = {.config = config,
                                    .clock = &sl_clock_monotonic,
                                    .seed = sl_seed(),
                                    .poke = poke.call,
                                    .poke_arg = poke.arg};
    int err = watch_status_signal(config);

    return err != 0 ? err : create_running(exchange, &params, out);
}

int sluice_comm_create(const struct sluice_config *given, struct sluice_comm **out)
{
    struct sl_config config;
    struct sl_exchange *exchange;
    int err;

    if (out == NULL)
        return sl_fail(-EINVAL, "there is no place for the communicator");
    *out = NULL;
    err = sl_config_merge(given, &config);
    if (err == 0)
        err = sl_launch(&config, NULL, &exchange);
    if (err != 0)
        return err;
    sl_log_set_rank(exchange->rank);
    err = create_over(exchange, &config, (struct poke){NULL, NULL}, out);
    exchange->close(exchange);
    return err;
}

int sl_comm_create_over(struct sl_exchange *exchange, const struct sluice_config *given,
                        void (*poke)(void *arg), void *poke_arg, struct sluice_comm **out)
{
    struct sl_config config;
    int err = sl_config_merge(given, &config);

    if (err != 0)
        return err;
    sl_log_set_rank(exchange->rank);
    return create_over(exchange, &config, (struct poke){poke, poke_arg}, out);
}

int sluice_comm_from_env(struct sluice_comm **out)
{
    return sluice_comm_create(NULL, out);
}

int sluice_unique_id_create(struct sluice_unique_id *id)
{
    struct sl_config config;
    int err = id == NULL ? sl_fail(-EINVAL, "there is no place for the id")
                         : sl_config_merge(NULL, &config);

    return err != 0 ? err : sl_unique_id_create(&config, id);
}

int sluice_comm_create_id(const struct sluice_unique_id *id, int rank, int size,
                          const struct sluice_config *given, struct sluice_comm **out)
{
    struct sl_config config;
    struct sl_exchange *exchange;
    int err;

    if (out != NULL)
        *out = NULL;
    if (id == NULL || out == NULL)
        return sl_fail(-EINVAL, "the id or the place for the communicator is missing");
    err = sl_config_merge(given, &config);
    if (err == 0)
        err = sl_launch_id(id, rank, size, &config, &exchange);
    if (err != 0)
        return err;
    sl_log_set_rank(rank);
    err = create_over(exchange, &config, (struct poke){NULL, NULL}, out);
    exchange->close(exchange);
    return err;
}

/* ---- split: the parent communicator is the exchange of the child ---- */

struct split_exchange {
    struct sl_exchange base;
    struct sluice_comm *parent;
    const int *members; /* ranks in the parent, by rank in the child */
};

/* Through the child's rank 0, by sends on the parent: other colors exchange other things
 * meanwhile. */
static int split_allgather(struct sl_exchange *base, const void *in, size_t len, void *out)
{
    struct split_exchange *x = (struct split_exchange *)base;
    size_t all = len * (size_t)base->size;
    int err = 0;

    if (base->rank != 0) {
        err = sluice_send(x->parent, in, len, SLUICE_U8, x->members[0], NULL);
        return err != 0 ? err : sluice_recv(x->parent, out, all, SLUICE_U8, x->members[0], NULL);
    }
    memcpy(out, in, len);
    for (int i = 1; i < base->size && err == 0; i++)
        err = sluice_recv(x->parent, (uint8_t *)out + (size_t)i * len, len, SLUICE_U8,
                          x->members[i], NULL);
    for (int i = 1; i < base->size && err == 0; i++)
        err = sluice_send(x->parent, out, all, SLUICE_U8, x->members[i], NULL);
    return err;
}

struct split_choice {
    int32_t color, key;
};

/* Members of my color, ordered by key, then rank. Returns how many. */
static int sort_members(const struct split_choice *all, int size, int color, int *members)
{
    int count = 0;

    for (int r = 0; r < size; r++) {
        int at = count;

        if (all[r].color != color)
            continue;
        for (; at > 0 && all[members[at - 1]].key > all[r].key; at--)
            members[at] = members[at - 1];
        members[at] = r;
        count++;
    }
    return count;
}

/* The parent's keeper draws from it, too. */
static uint64_t draw_seed(struct sluice_comm *parent)
{
    sl_enter(parent);
    uint64_t drawn = sl_rng_u64(&parent->worker.rng);

    sl_leave(parent);
    return drawn;
}

/* The child lives like its parent: same clock, settings and transports. */
static int create_child(struct sluice_comm *parent, const int *members, int count, int rank,
                        struct sluice_comm **out)
{
    struct split_exchange exchange = {
        .base = {.rank = rank,
                 .size = count,
                 .allgather = split_allgather,
                 .nearby = parent->worker.one_host,
                 .session = parent->worker.has_session ? parent->worker.session : NULL},
        .parent = parent,
        .members = members,
    };
    struct sl_config config = parent->config;
    struct sl_comm_params params = {
        .config = &config,
        .clock = parent->worker.clock,
        .seed = draw_seed(parent),
        .idle = parent->worker.idle,
        .idle_arg = parent->worker.idle_arg,
        .wire = parent->worker.wire,
        .poke = parent->worker.poke,
        .poke_arg = parent->worker.poke_arg,
        .transports = parent->transport_count != 0 ? parent->transports : NULL,
        .transport_count = parent->transport_count,
    };

    /* Who cannot connect says with whom, by the parent, before the others give that up. */
    if (config.connect_timeout_ms > config.timeout_ms * 3 / 4)
        config.connect_timeout_ms = config.timeout_ms > 1 ? config.timeout_ms * 3 / 4 : 1;
    return create_running(&exchange.base, &params, out);
}

int sluice_comm_split(struct sluice_comm *comm, int color, int key, struct sluice_comm **out)
{
    struct split_choice mine = {color, key}, *all;
    int *members, err, rank = 0, count;

    if (out != NULL)
        *out = NULL;
    if (comm == NULL || out == NULL)
        return sl_fail(-EINVAL, "the communicator or the place for the new one is missing");
    *out = NULL;
    if (sl_check_process(comm) != 0)
        return -EINVAL;
    all = calloc(comm->size, sizeof(*all));
    members = calloc(comm->size, sizeof(*members));
    err = all == NULL || members == NULL
              ? sl_fail(-ENOMEM, "no memory to split %u ranks", comm->size)
              : sluice_all_gather(comm, &mine, all, sizeof(mine), SLUICE_U8, NULL);
    if (err == 0 && color >= 0) {
        count = sort_members(all, (int)comm->size, color, members);
        while (members[rank] != (int)comm->rank)
            rank++;
        err = create_child(comm, members, count, rank, out);
    }
    free(all);
    free(members);
    return err;
}

void sluice_comm_destroy(struct sluice_comm *comm)
{
    /* A child has nothing to take leave of: its parent goes on with the peers. */
    if (comm == NULL || !sl_fork_same(comm->life))
        return;
    sl_thread_stop(comm);
    sl_comm_destroy(comm);
}
