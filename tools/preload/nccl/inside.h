/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator of the shim from inside: shared by comm.c, make.c and work.c. */
#ifndef SL_PRELOAD_NCCL_INSIDE_H
#define SL_PRELOAD_NCCL_INSIDE_H

#include "tools/preload/nccl/comm.h"
#include "tools/preload/nccl/flags.h"

#include <pthread.h>
#include <stdatomic.h>

#define SHIM_OPS 64 /* calls in flight */
#define SHIM_CHUNK_BYTES                                                                           \
    ((size_t)4 << 20) /* of pinned memory, for each side of each of the two slots */

enum shim_state {
    SHIM_AWAITING, /* the real one is still being made (nonblocking) */
    SHIM_MAKING,
    SHIM_READY,
    SHIM_PASSING, /* no engine: for good */
    SHIM_BROKEN,  /* the engine failed: error says how */
};

/* Pinned memory and the events of what is copied through it. */
struct shim_slot {
    char *in, *out;
    struct CUevent_st *copied_in, *copied_out;
    bool busy; /* copied_out was recorded */
};

struct shim_comm {
    struct nccl_comm *real;
    struct CUctx_st *context;
    int rank, size;
    pthread_t thread;
    bool has_thread, blocking;
    bool lost; /* the other ranks did not answer */
    _Atomic enum shim_state state;
    atomic_bool aborted, ending, finalizing;
    struct sluice_comm *engine;
    char error[256];

    /* Of its thread. */
    struct CUstream_st *in_stream, *out_stream;
    struct shim_slot slots[2];
    char *pinned; /* what slots lie in */
    struct sluice_buffer *registered;

    /* Between the program's threads and its own. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct shim_op ops[SHIM_OPS]; /* number n lies at n % SHIM_OPS */
    struct CUevent_st *ready[SHIM_OPS];
    uint32_t issued, done; /* numbers of calls; they wrap around */
    struct shim_flag flag; /* the number that streams wait for */
    bool has_flag;
};

/* make.c: sets up everything and agrees with the other ranks: true with an engine. Leaves a
 * state. */
bool shim_make(struct shim_comm *comm);
/* On the same thread, whose CUDA context it needs. engine may be NULL. */
void shim_unmake(struct shim_comm *comm, struct sluice_comm *engine);

/* work.c: carries out one call. 0 or a negative errno with a sentence as the thread's last
 * error. */
int shim_work(struct shim_comm *comm, const struct shim_op *op, struct CUevent_st *ready);

/* comm.c: keeps the first sentence and wakes waiting threads. */
void shim_break(struct shim_comm *comm, const char *sentence);

#endif
