/* SPDX-License-Identifier: Apache-2.0 */
/* Public ways to make, split and destroy a communicator. */
#include "lib/args.h"
#include "lib/compress.h"

#include "collectives/status.h"
#include "compress/work.h"
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

/* Another library's progress, for comm.h. */
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
                                    .poke_arg = poke.arg,
                                    .codec_name = sl_compression_name,
                                    .encode = sl_codec_work_unit};
    struct sl_coding *coding;
    int err = sl_compression_create(config->compress, &coding);

    if (err != 0)
        return sl_fail(err, "SLUICE_COMPRESS: %s", sluice_last_error());
    err = watch_status_signal(config);
    err = err ?: sl_comm_create(exchange, &params, out);
    if (err != 0) {
        sl_coding_put(coding);
        return err;
    }
    sl_enter(*out);
    sl_comm_set_coding(*out, coding);
    sl_coding_put(coding);
    sl_leave(*out);
    return 0;
}

/* Transports open before ranks have met, and some ask for a rank's place on its host. */
static void know_place(struct sl_config *config, const struct sl_identity *self)
{
    if (config->local_rank < 0)
        config->local_rank = self->local_rank;
    if (config->local_size < 0)
        config->local_size = self->local_size;
}

int sluice_comm_create(const struct sluice_config *given, struct sluice_comm **out)
{
    struct sl_config config;
    struct sl_identity self;
    struct sl_exchange *exchange;
    int err;

    if (out == NULL)
        return sl_fail(-EINVAL, "there is no place for the communicator");
    *out = NULL;
    err = sl_config_merge(given, &config);
    err = err ?: sl_launch(&config, &self, &exchange);
    if (err != 0)
        return err;
    know_place(&config, &self);
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
    err = err ?: sl_launch_id(id, rank, size, &config, &exchange);
    if (err != 0)
        return err;
    sl_log_set_rank(rank);
    err = create_over(exchange, &config, (struct poke){NULL, NULL}, out);
    exchange->close(exchange);
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
    sl_compression_log(comm->coding);
    sl_comm_destroy(comm);
    sl_worker_exit(worker);
    sl_worker_put(worker);
}
