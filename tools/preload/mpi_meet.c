/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first words between the ranks of an MPI communicator, before its first call is taken.
 *
 * They go by a communicator made for them, of the same ranks (MPI_Comm_create_group: messages with
 * a tag, no collective of the program's own): a rank without the shim, whose first call might be
 * just such an MPI_Allgather, must not take them for its data. It never comes, and the others wait
 * for it, as they must for one that is merely late. After a while a thread says for what.
 */
#include "core/err.h"
#include "core/log.h"
#include "tools/preload/mpi_module.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define TAG 20942
#define PATIENCE_MS 30000 /* or SLUICE_TIMEOUT_MS */

struct watch {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool runs, over;
    long patience_ms;
    int rank, size;
};

static void *complain_later(void *arg)
{
    struct watch *watch = arg;
    struct timespec at;
    int err = 0;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += watch->patience_ms / 1000;
    at.tv_nsec += watch->patience_ms % 1000 * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    pthread_mutex_lock(&watch->lock);
    while (!watch->over && err == 0)
        err = pthread_cond_timedwait(&watch->wake, &watch->lock, &at);
    if (!watch->over)
        sl_error("preload",
                 "rank %d has waited %ld ms for all ranks of an MPI communicator of %d to make "
                 "their first collective call, and waits on: one is late, or it is a rank without "
                 "the shim (LD_PRELOAD, SLUICE_PRELOAD, a module that it cannot open), which never "
                 "comes",
                 watch->rank, watch->patience_ms, watch->size);
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

static void watch_begin(struct watch *watch, const struct sl_mpi_place *place)
{
    const char *given = getenv("SLUICE_TIMEOUT_MS");
    pthread_condattr_t attr;
    sigset_t all, before;

    *watch = (struct watch){
        .patience_ms = given != NULL ? atol(given) : 0, .rank = place->rank, .size = place->size};
    if (watch->patience_ms <= 0)
        watch->patience_ms = PATIENCE_MS;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watch->runs = pthread_create(&watch->thread, NULL, complain_later, watch) ==
                  0; /* else nobody complains */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void watch_end(struct watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->over = true;
    pthread_cond_signal(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
    if (watch->runs)
        pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->wake);
    pthread_mutex_destroy(&watch->lock);
}

static int meet(const struct sl_mpi_place *place, uint64_t mine, uint64_t *all)
{
    MPI_Comm beside;
    MPI_Group group;

    if (sl_mpi.next.Comm_group(place->handle, &group) != MPI_SUCCESS)
        return sl_fail(-EIO, "MPI_Comm_group failed");
    int code = sl_mpi.next.Comm_create_group(place->handle, group, TAG, &beside);

    sl_mpi.next.Group_free(&group);
    if (code != MPI_SUCCESS)
        return sl_fail(-EIO, "MPI_Comm_create_group failed");
    code = sl_mpi.next.Allgather(&mine, sizeof(mine), sl_mpi.byte, all, sizeof(mine), sl_mpi.byte,
                                 beside);
    sl_mpi.next.Comm_free(&beside);
    return code == MPI_SUCCESS ? 0 : sl_fail(-EIO, "MPI_Allgather failed");
}

int sl_mpi_meet(const struct sl_mpi_place *place, uint64_t mine, uint64_t *all)
{
    struct watch watch;

    watch_begin(&watch, place);
    int err = meet(place, mine, all);

    watch_end(&watch);
    return err;
}
