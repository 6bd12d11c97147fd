/* SPDX-License-Identifier: Apache-2.0 */
/* Public ways to make, split and destroy a communicator. */
#include "lib/args.h"

#include "collectives/status.h"
#include "core/log.h"
#include "launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int create_over(struct sl_exchange *exchange, const struct sl_config *config,
                       struct poke poke, struct sluice_comm **out)
{
    struct sl_comm_params params = {.config = config,
                                    .clock = &sl_clock_monotonic,
                                    .seed = sl_seed(),
                                    .poke = poke.call,
                                    .poke_arg = poke.arg};
    int err = watch_status_signal(config);

    return err != 0 ? err : sl_comm_create(exchange, &params, out);
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

/* A message on the parent, by a caller that is inside. */
static int message(struct split_exchange *x, enum sl_coll coll, const void *in, void *out,
                   size_t len, int member)
{
    struct sl_call call;
    int err = sl_args_message(x->parent, coll, in, out, len, SLUICE_U8, x->members[member], &call);

    return err != 0 ? err : sl_call_inside(x->parent, &call, in, out);
}

/* Through the child's rank 0, by sends on the parent: other colors exchange other things
 * meanwhile. */
static int split_allgather(struct sl_exchange *base, const void *in, size_t len, void *out)
{
    struct split_exchange *x = (struct split_exchange *)base;
    size_t all = len * (size_t)base->size;
    int err = 0;

    if (base->rank != 0) {
        err = message(x, SL_SEND, in, NULL, len, 0);
        return err != 0 ? err : message(x, SL_RECV, NULL, out, all, 0);
    }
    memcpy(out, in, len);
    for (int i = 1; i < base->size && err == 0; i++)
        err = message(x, SL_RECV, NULL, (uint8_t *)out + (size_t)i * len, len, i);
    for (int i = 1; i < base->size && err == 0; i++)
        err = message(x, SL_SEND, out, NULL, all, i);
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

/* The child lives on its parent's worker: same clock, settings, interfaces. */
static int create_child(struct sluice_comm *parent, const int *members, int count, int rank,
                        struct sluice_comm **out)
{
    struct split_exchange exchange = {
        .base = {.rank = rank,
                 .size = count,
                 .allgather = split_allgather,
                 .nearby = parent->worker->one_host},
        .parent = parent,
        .members = members,
    };
    struct sl_config config = parent->config;
    struct sl_comm_params params = {.config = &config, .parent = parent->worker};

    /* Who cannot connect says with whom, by the parent, before the others give that up. */
    if (config.connect_timeout_ms > config.timeout_ms * 3 / 4)
        config.connect_timeout_ms = config.timeout_ms > 1 ? config.timeout_ms * 3 / 4 : 1;
    return sl_comm_create(&exchange.base, &params, out);
}

/* Inside of the parent. */
static int split(struct sluice_comm *comm, struct split_choice mine, struct split_choice *all,
                 int *members, struct sluice_comm **out)
{
    struct sl_call call;
    int rank = 0, count, err;

    err = sl_args_all_gather(comm, &mine, all, sizeof(mine), SLUICE_U8, &call);
    err = err ?: sl_call_inside(comm, &call, &mine, all);
    if (err != 0 || mine.color < 0)
        return err;
    count = sort_members(all, (int)comm->size, mine.color, members);
    while (members[rank] != (int)comm->rank)
        rank++;
    return create_child(comm, members, count, rank, out);
}

int sluice_comm_split(struct sluice_comm *comm, int color, int key, struct sluice_comm **out)
{
    struct split_choice *all;
    int *members, err;

    if (out != NULL)
        *out = NULL;
    if (comm == NULL || out == NULL)
        return sl_fail(-EINVAL, "the communicator or the place for the new one is missing");
    if (sl_check_process(comm) != 0)
        return -EINVAL;
    all = calloc(comm->size, sizeof(*all));
    members = calloc(comm->size, sizeof(*members));
    if (all == NULL || members == NULL) {
        err = sl_fail(-ENOMEM, "no memory to split %u ranks", comm->size);
    } else {
        sl_enter(comm);
        err = split(comm, (struct split_choice){color, key}, all, members, out);
        sl_leave(comm);
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
    struct sl_worker *worker = comm->worker;

    sl_worker_get(worker);
    sl_worker_enter(worker);
    sl_comm_destroy(comm);
    sl_worker_exit(worker);
    sl_worker_put(worker);
}
