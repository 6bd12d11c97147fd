/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Persistent operations: a call whose arguments are given once, and which is started many times.
 *
 * For loops that do the same collective on the same memory again and again, as MPI-4's persistent
 * collectives are. What can be decided once is decided by the call that makes the operation; a
 * start checks nothing, looks up nothing and takes no memory.
 */
#ifndef SLUICE_OPERATION_H
#define SLUICE_OPERATION_H

#include <sluice/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sluice_operation;

/**
 * Make an operation that sluice_start() starts. Nothing is sent and nobody is waited for: ranks may
 * make theirs at any time and in any order, inside a group too, where it takes effect at once.
 *
 * Shapes  as of the function without _init; the same on all ranks.
 * Memory  *operation is owned by the caller: sluice_operation_free(). in and out must live as long
 *         as it does; they are lent from each start until its request is done, and the caller's own
 *         in between. The arrays of sluice_all_to_all_v_init() are borrowed.
 * Order   An operation has a plan of its own, which it shares with no other of its shape. Results
 *         are those of the function without _init, bit for bit.
 * Errors  -EINVAL, -ENOTSUP, -ENOMEM; what breaks the communicator is told by the starts.
 */
SLUICE_API int sluice_allreduce_init(struct sluice_comm *comm, const void *in, void *out,
                                     size_t count, enum sluice_dtype dtype, enum sluice_op op,
                                     struct sluice_operation **operation);
SLUICE_API int sluice_reduce_scatter_init(struct sluice_comm *comm, const void *in, void *out,
                                          size_t count, enum sluice_dtype dtype, enum sluice_op op,
                                          struct sluice_operation **operation);
SLUICE_API int sluice_all_gather_init(struct sluice_comm *comm, const void *in, void *out,
                                      size_t count, enum sluice_dtype dtype,
                                      struct sluice_operation **operation);
SLUICE_API int sluice_broadcast_init(struct sluice_comm *comm, const void *in, void *out,
                                     size_t count, enum sluice_dtype dtype, int root,
                                     struct sluice_operation **operation);
SLUICE_API int sluice_reduce_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                                  enum sluice_dtype dtype, enum sluice_op op, int root,
                                  struct sluice_operation **operation);
SLUICE_API int sluice_gather_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                                  enum sluice_dtype dtype, int root,
                                  struct sluice_operation **operation);
SLUICE_API int sluice_scatter_init(struct sluice_comm *comm, const void *in, void *out,
                                   size_t count, enum sluice_dtype dtype, int root,
                                   struct sluice_operation **operation);
SLUICE_API int sluice_all_to_all_init(struct sluice_comm *comm, const void *in, void *out,
                                      size_t count, enum sluice_dtype dtype,
                                      struct sluice_operation **operation);
SLUICE_API int sluice_all_to_all_v_init(struct sluice_comm *comm, const void *in,
                                        const size_t *in_counts, const size_t *in_offsets,
                                        void *out, const size_t *out_counts,
                                        const size_t *out_offsets, enum sluice_dtype dtype,
                                        struct sluice_operation **operation);
SLUICE_API int sluice_barrier_init(struct sluice_comm *comm, struct sluice_operation **operation);
SLUICE_API int sluice_send_init(struct sluice_comm *comm, const void *in, size_t count,
                                enum sluice_dtype dtype, int peer,
                                struct sluice_operation **operation);
SLUICE_API int sluice_recv_init(struct sluice_comm *comm, void *out, size_t count,
                                enum sluice_dtype dtype, int peer,
                                struct sluice_operation **operation);

/**
 * Start an operation: as if its function were called now. With req == NULL the call waits for the
 * end; inside a group the operation starts with the group.
 *
 * Memory  *req is the operation's own, and is valid until the operation is freed: sluice_test() and
 *         sluice_wait() take it, sluice_req_free() does nothing to it. A start in a group borrows
 *         the operation until sluice_group_end().
 * Order   A start counts as a call: all ranks start their operations and make their other
 *         collective calls on a communicator in the same order. A rank may start an operation where
 *         another makes the call without _init. An operation is started again only after it has
 *         ended on this rank.
 * Errors  -EINVAL: it has not ended since it was started, or its communicator was destroyed;
 *         -EAGAIN: too many in flight. Later, in *req, those of sluice_allreduce(3).
 */
SLUICE_API int sluice_start(struct sluice_operation *operation, struct sluice_req **req);

/** Free an operation. A pending one goes on by itself; its buffers stay lent until it ends, but its
 * request is gone. May come after its communicator was destroyed. Takes NULL. */
SLUICE_API void sluice_operation_free(struct sluice_operation *operation);

#ifdef __cplusplus
}
#endif
#endif
