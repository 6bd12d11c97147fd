/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shim knows of one of the program's communicators: the engine's communicator beside it,
 * and a thread that carries calls out in the order in which the program made them.
 *
 * A call on a stream, as NCCL's: the program's thread records an event on the stream, hands the
 * call to the communicator's thread and makes the stream wait for a number in host memory. The
 * thread waits for the event, copies in, runs the collective between hosts, copies out on a stream
 * of its own and writes the number. No thread of the program or of the driver ever waits for the
 * network.
 */
#ifndef SL_PRELOAD_NCCL_COMM_H
#define SL_PRELOAD_NCCL_COMM_H

#include "tools/preload/nccl_calls.h"

#include <sluice/sluice.h>

#include <stdbool.h>
#include <stdint.h>

struct shim_comm;

/* One call, with NCCL's meaning of its arguments. */
struct shim_op {
    enum sl_nccl_call call;
    uint64_t in, out; /* device addresses */
    size_t count;
    enum sluice_dtype type;
    enum sluice_op op;
    int root;
    struct CUstream_st *stream;
};

/*
 * Starts to make the engine's communicator for real, with the CUDA context of this thread; the
 * ranks agree over real itself whether they all have one. Never fails: a communicator without an
 * engine passes its calls on. blocking: returns when that is known; else the program sees it in
 * shim_comm_state(). Owned by the table until shim_comm_take().
 */
void shim_comm_start(struct nccl_comm *real, bool blocking);

/* Of one that was started without: now wait. NULL real: nothing. */
void shim_comm_block(struct nccl_comm *real);

/* Lets go of the table's communicator of that name; NULL when there is none. */
struct shim_comm *shim_comm_take(struct nccl_comm *real);
/* Borrowed: the program must not destroy real meanwhile. */
struct shim_comm *shim_comm_find(struct nccl_comm *real);

/* A real communicator that is still being made: asked again whenever the program asks for its
 * state. Returns what the program should see. */
enum nccl_result shim_comm_state(struct shim_comm *comm, enum nccl_result real);

bool shim_comm_has_engine(const struct shim_comm *comm);
int shim_comm_size(const struct shim_comm *comm);
int shim_comm_rank(const struct shim_comm *comm);

/* Puts one call on its stream. */
enum nccl_result shim_comm_post(struct shim_comm *comm, const struct shim_op *op);

/* The sentence of what broke the engine, or NULL. Lasts as long as comm. */
const char *shim_comm_error(struct shim_comm *comm);

/* Every call that was put on a stream ends before this returns or, where the real one does not
 * block, while shim_comm_state() says that it is in progress. */
void shim_comm_finalize(struct shim_comm *comm);
/* From any thread: ends what is pending, lets streams go on. Calls are passed on from now on. */
void shim_comm_abort(struct shim_comm *comm);
/* Ends its thread; drains before, unless it was aborted or failed. Takes NULL. */
void shim_comm_destroy(struct shim_comm *comm);

#endif
