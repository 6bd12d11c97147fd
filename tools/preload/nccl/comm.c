/* SPDX-License-Identifier: Apache-2.0 */
/* The communicators of the program that are known to the shim, and the thread of each. */
#include "tools/preload/engine.h"
#include "tools/preload/nccl/gpu.h"
#include "tools/preload/nccl/inside.h"
#include "tools/preload/nccl/next.h"

#include "core/err.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static struct sl_preload_map table;

struct shim_comm *shim_comm_find(struct nccl_comm *real)
{
    return real == NULL ? NULL : sl_preload_map_get(&table, (uintptr_t)real);
}

struct shim_comm *shim_comm_take(struct nccl_comm *real)
{
    return real == NULL ? NULL : sl_preload_map_remove(&table, (uintptr_t)real);
}

/* ---- its thread ---- */

void shim_break(struct shim_comm *comm, const char *sentence)
{
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->state) != SHIM_BROKEN) {
        snprintf(comm->error, sizeof(comm->error), "%s", sentence);
        atomic_store(&comm->state, SHIM_BROKEN);
    }
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

static void tell(struct shim_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

/* false: it is to end. */
static bool next_op(struct shim_comm *comm, struct shim_op *op, struct CUevent_st **ready)
{
    bool found;

    pthread_mutex_lock(&comm->lock);
    while (comm->done == comm->issued && !atomic_load(&comm->ending) &&
           !atomic_load(&comm->aborted))
        pthread_cond_wait(&comm->changed, &comm->lock);
    found = comm->done != comm->issued && !atomic_load(&comm->aborted);
    if (found) {
        *op = comm->ops[(comm->done + 1) % SHIM_OPS];
        *ready = comm->ready[(comm->done + 1) % SHIM_OPS];
    }
    pthread_mutex_unlock(&comm->lock);
    return found;
}

static void finish_op(struct shim_comm *comm, const struct shim_op *op, uint64_t ns)
{
    sl_preload_taken(nccl_host, op->call, op->count * sluice_dtype_size(op->type), ns);
    pthread_mutex_lock(&comm->lock);
    comm->done++;
    /* After the copies: the stream goes on and reads them. */
    atomic_store_explicit(comm->flag.number, comm->done, memory_order_release);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

static void carry_out(struct shim_comm *comm)
{
    struct CUevent_st *ready;
    struct shim_op op;

    while (next_op(comm, &op, &ready)) {
        uint64_t start = sl_preload_now();

        if (shim_work(comm, &op, ready) != 0) {
            shim_break(comm, sluice_last_error());
            return;
        }
        finish_op(comm, &op, sl_preload_now() - start);
    }
}

static void *live(void *arg)
{
    struct shim_comm *comm = arg;
    struct sluice_comm *engine;

    if (shim_make(comm)) {
        tell(comm);
        carry_out(comm);
        /* Broken: streams wait for what will not come, until the program aborts. */
        pthread_mutex_lock(&comm->lock);
        while (!atomic_load(&comm->ending) && !atomic_load(&comm->aborted))
            pthread_cond_wait(&comm->changed, &comm->lock);
        pthread_mutex_unlock(&comm->lock);
    }
    tell(comm);
    pthread_mutex_lock(&comm->lock);
    engine = comm->engine;
    comm->engine = NULL; /* nobody aborts it any more */
    pthread_mutex_unlock(&comm->lock);
    shim_unmake(comm, engine);
    return NULL;
}

static void start_thread(struct shim_comm *comm)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&comm->state, SHIM_MAKING);
    error = pthread_create(&comm->thread, NULL, live, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    comm->has_thread = error == 0;
    if (error != 0)
        shim_break(comm,
                   "no thread could be made for a communicator: raise the limit of processes");
}

/* ---- its life ---- */

/* Until it is known whether there is an engine. */
static void wait_made(struct shim_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    while (atomic_load(&comm->state) == SHIM_MAKING)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

void shim_comm_start(struct nccl_comm *real, bool blocking)
{
    enum nccl_result state = NCCL_SUCCESS;
    struct shim_comm *comm = calloc(1, sizeof(*comm));

    sl_assert(comm != NULL); /* the others will count on this rank: it cannot pass alone */
    comm->real = real;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    gpu.context(&comm->context);
    atomic_store(&comm->state, SHIM_AWAITING);
    sl_assert(sl_preload_map_add(&table, (uintptr_t)real, comm) == 0);
    comm->blocking = blocking;
    if (nccl.CommGetAsyncError(real, &state) == NCCL_SUCCESS)
        shim_comm_state(comm, state);
    if (blocking)
        wait_made(comm);
}

void shim_comm_block(struct nccl_comm *real)
{
    struct shim_comm *comm = shim_comm_find(real);

    if (comm == NULL)
        return;
    comm->blocking = true;
    wait_made(comm);
}

/* Ranks and their number are known once the real one is made. */
static void real_is_made(struct shim_comm *comm)
{
    if (nccl.CommCount(comm->real, &comm->size) != NCCL_SUCCESS ||
        nccl.CommUserRank(comm->real, &comm->rank) != NCCL_SUCCESS) {
        shim_break(comm, "NCCL does not tell the ranks of its communicator");
        return;
    }
    nccl_host->rank(comm->rank);
    if (comm->size == 1)
        atomic_store(&comm->state, SHIM_PASSING);
    else
        start_thread(comm);
}

static bool is_drained(struct shim_comm *comm)
{
    bool drained;

    pthread_mutex_lock(&comm->lock);
    drained = comm->done == comm->issued;
    pthread_mutex_unlock(&comm->lock);
    return drained;
}

enum nccl_result shim_comm_state(struct shim_comm *comm, enum nccl_result real)
{
    enum shim_state state;

    pthread_mutex_lock(&comm->lock);
    state = atomic_load(&comm->state);
    if (state == SHIM_AWAITING && real == NCCL_SUCCESS)
        atomic_store(&comm->state, SHIM_MAKING); /* this thread's to do */
    pthread_mutex_unlock(&comm->lock);
    if (state == SHIM_AWAITING && real == NCCL_SUCCESS) {
        real_is_made(comm);
        state = atomic_load(&comm->state);
    }
    if (real != NCCL_SUCCESS)
        return real;
    if (state == SHIM_BROKEN)
        return NCCL_REMOTE_ERROR;
    if (state == SHIM_READY && atomic_load(&comm->finalizing) && !is_drained(comm))
        return NCCL_IN_PROGRESS;
    return state == SHIM_MAKING || state == SHIM_AWAITING ? NCCL_IN_PROGRESS : NCCL_SUCCESS;
}

bool shim_comm_has_engine(const struct shim_comm *comm)
{
    enum shim_state state = atomic_load(&comm->state);

    return (state == SHIM_READY || state == SHIM_BROKEN) && !atomic_load(&comm->aborted);
}

int shim_comm_size(const struct shim_comm *comm)
{
    return comm->size;
}

int shim_comm_rank(const struct shim_comm *comm)
{
    return comm->rank;
}

const char *shim_comm_error(struct shim_comm *comm)
{
    return atomic_load(&comm->state) == SHIM_BROKEN ? comm->error : NULL;
}

/* ---- calls ---- */

enum nccl_result shim_comm_post(struct shim_comm *comm, const struct shim_op *op)
{
    uint32_t number;
    int result;

    pthread_mutex_lock(&comm->lock);
    while (comm->issued - comm->done == SHIM_OPS - 1 && atomic_load(&comm->state) == SHIM_READY &&
           !atomic_load(&comm->aborted))
        pthread_cond_wait(&comm->changed, &comm->lock);
    if (atomic_load(&comm->state) != SHIM_READY || atomic_load(&comm->aborted)) {
        pthread_mutex_unlock(&comm->lock);
        return NCCL_REMOTE_ERROR;
    }
    number = comm->issued + 1;
    result = gpu.event_record(comm->ready[number % SHIM_OPS], op->stream);
    if (result == 0) {
        comm->ops[number % SHIM_OPS] = *op;
        comm->issued = number;
        pthread_cond_broadcast(&comm->changed);
        result = gpu.stream_wait_value(op->stream, comm->flag.address, number, 0);
    }
    pthread_mutex_unlock(&comm->lock);
    return result == 0 ? NCCL_SUCCESS : NCCL_UNHANDLED_CUDA_ERROR;
}

/* Until every call that was put on a stream has ended; at once after an error. */
static void drain(struct shim_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->done != comm->issued && atomic_load(&comm->state) == SHIM_READY &&
           !atomic_load(&comm->aborted))
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

void shim_comm_finalize(struct shim_comm *comm)
{
    atomic_store(&comm->finalizing, true);
    if (comm->blocking)
        drain(comm);
}

void shim_comm_abort(struct shim_comm *comm)
{
    atomic_store(&comm->aborted, true);
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->state) == SHIM_READY || atomic_load(&comm->state) == SHIM_BROKEN) {
        if (comm->engine != NULL)
            sluice_comm_abort(comm->engine);
        /* Streams go on, as those of NCCL's own kernels do after an abort. */
        if (comm->has_flag)
            atomic_store_explicit(comm->flag.number, comm->issued, memory_order_release);
    }
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

void shim_comm_destroy(struct shim_comm *comm)
{
    if (comm == NULL)
        return;
    wait_made(comm);
    drain(comm);
    if (atomic_load(&comm->state) == SHIM_BROKEN)
        shim_comm_abort(comm);
    atomic_store(&comm->ending, true);
    tell(comm);
    if (comm->has_thread)
        pthread_join(comm->thread, NULL);
    if (comm->has_flag)
        shim_flag_put(&comm->flag);
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}
