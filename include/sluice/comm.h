/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Communicators, collectives and requests.
 *
 * Every rank of a communicator makes the same collective calls in the same order. A call starts the
 * operation; the request it returns is tested or waited for. With req == NULL the call itself
 * waits: the shortest path for small messages. Operations progress inside sluice_test(),
 * sluice_wait() and waiting calls, or in a thread of their own when SLUICE_PROGRESS=thread. Without
 * that, a communicator with RDMA paths still has a small thread, which mends paths while no call is
 * inside and moves no operation.
 *
 * What a function gives (a communicator, a request, memory) is NULL when the function fails, so it
 * can be destroyed or freed in any case. Elements of a collective that failed may be written in
 * part.
 *
 * One communicator is used by one thread at a time (any thread with SLUICE_PROGRESS=thread);
 * sluice_comm_abort() alone may be called from any thread at any time.
 */
#ifndef SLUICE_COMM_H
#define SLUICE_COMM_H

#include <sluice/error.h>
#include <sluice/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sluice_comm;
struct sluice_req;

/** A handle that one rank makes and hands to all others by any means (MPI, a file, a store). */
#define SLUICE_UNIQUE_ID_BYTES 256
struct sluice_unique_id {
    unsigned char bytes[SLUICE_UNIQUE_ID_BYTES];
};

/**
 * How to make a communicator. Set everything with sluice_config_init() first, then change fields;
 * what is left alone comes from the SLUICE_* variables (sluice-env(7)) and then from defaults.
 *
 * Later versions add fields at the end, whose unset value is zero. A library takes the structure of
 * any version: fields that the program does not have are unset, and fields that the library does
 * not have must be.
 */
struct sluice_config {
    size_t struct_size; /**< bytes of the program's structure; set by the init call */
    int rank;           /**< this rank, or -1: from the launcher's environment */
    int size;           /**< number of ranks, or -1: from the launcher's environment */
    const char *root;   /**< "host:port" where rank 0 meets the others; NULL: environment */
    const char *job;    /**< name that keeps jobs apart on one port; NULL: environment */
    const char *secret; /**< shared secret that proves membership; NULL: environment */
    const char
        *transport;     /**< "shm,tcp": those allowed, in order of preference; NULL: environment */
    const char *algo;   /**< forces an algorithm, as SLUICE_ALGO does; NULL: environment */
    int64_t timeout_ms; /**< deadline of every wait, -1: environment (default 30000) */
    int version;        /**< SLUICE_VERSION of the program's headers; set by the init call */
    int reserved;       /**< 0 */
};

/**
 * Fill the first size bytes of *config with "take it from the environment". Programs in C and C++
 * call sluice_config_init(); bindings of other languages call this with the size of their structure
 * and the version of the headers that it was made from.
 */
SLUICE_API void sluice_config_init_sized(struct sluice_config *config, size_t size, int version);

/** Fill *config with "take it from the environment" everywhere. It is compiled into the program, so
 * that the size and version are the program's. */
static inline void sluice_config_init(struct sluice_config *config)
{
    sluice_config_init_sized(config, sizeof(*config), SLUICE_VERSION);
}

/**
 * Make a communicator; all ranks call it. Blocks until every rank has arrived or the deadline ends.
 *
 * Memory  *out is owned by the caller: sluice_comm_destroy(). config is borrowed.
 * Errors  -EINVAL, also for a field that a newer version has and this library does not know, with
 *         the version that is needed; -ETIMEDOUT, naming the ranks that did not come; -EPROTO,
 *         another version or another job; -ENOMEM, -EMFILE, with the limit to raise in the text.
 */
SLUICE_API int sluice_comm_create(const struct sluice_config *config, struct sluice_comm **out);

/** sluice_comm_create() with rank, size and meeting place all from the environment: torchrun,
 * Slurm, Open MPI, MPICH, PMIx or SLUICE_RANK, SLUICE_SIZE and SLUICE_ROOT. Alone, it makes a
 * communicator of one rank. */
SLUICE_API int sluice_comm_from_env(struct sluice_comm **out);

/** Open a meeting place in this process and describe it in *id. The process must take part as
 * rank 0. Errors: -EINVAL; -EADDRINUSE and other codes of the socket calls. */
SLUICE_API int sluice_unique_id_create(struct sluice_unique_id *id);

/** sluice_comm_create() at the meeting place of id. config may be NULL. */
SLUICE_API int sluice_comm_create_id(const struct sluice_unique_id *id, int rank, int size,
                                     const struct sluice_config *config, struct sluice_comm **out);

/**
 * Make one communicator per color out of comm; all ranks of comm call it. Ranks are ordered by key,
 * then by their rank in comm. color < 0: this rank takes part but gets *out = NULL.
 */
SLUICE_API int sluice_comm_split(struct sluice_comm *comm, int color, int key,
                                 struct sluice_comm **out);

/** Tear down. Pending requests end with -ECANCELED first; they must still be freed. Takes NULL. */
SLUICE_API void sluice_comm_destroy(struct sluice_comm *comm);

SLUICE_API int sluice_comm_rank(const struct sluice_comm *comm);
SLUICE_API int sluice_comm_size(const struct sluice_comm *comm);

/**
 * End everything that is pending on comm with -ECANCELED, here and, where they can still be
 * reached, on the other ranks. From any thread; never blocks; may be called twice. The communicator
 * can then only be destroyed.
 */
SLUICE_API void sluice_comm_abort(struct sluice_comm *comm);

/** 0, or the negative errno that broke comm for good (its sentence in sluice_last_error()). */
SLUICE_API int sluice_comm_async_error(struct sluice_comm *comm);

/** Start collecting calls of this thread, on any communicators; group_end starts them together.
 * Groups nest. Calls with req == NULL inside a group are waited for by the outermost group_end. */
SLUICE_API int sluice_group_start(void);
SLUICE_API int sluice_group_end(void);

/** 1 when the request has ended well, 0 while it is pending, or its negative errno. Makes
 * progress. */
SLUICE_API int sluice_test(struct sluice_req *req);

/** Progress until the request ends. 0 or its negative errno; the communicator's own deadline bounds
 * the wait. */
SLUICE_API int sluice_wait(struct sluice_req *req);

/** Give a request back. A pending one goes on by itself; its buffers stay lent until it ends. Takes
 * NULL. */
SLUICE_API void sluice_req_free(struct sluice_req *req);

/**
 * Reduce every rank's elements and leave the result on every rank.
 *
 * Shapes  in[count] and out[count]; same count, dtype and op on all ranks; out may equal in.
 * Units   count is in elements.
 * Memory  in and out are lent until *req is done. *req is owned by the caller: sluice_req_free().
 * Order   For one size, count, topology and algorithm, additions happen in one fixed order: results
 *         are identical from run to run and from rank to rank.
 * Errors  -EINVAL; -EAGAIN, too many in flight. Later, in *req: -ECONNRESET or -ETIMEDOUT, a rank
 *         was lost and the communicator must be rebuilt; -EPROTO, ranks disagree; -ECANCELED.
 * Source  P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 *         workstations", J. Parallel Distrib. Comput. 69(2), 2009, for the ring; the other
 *         algorithms name theirs in collectives/.
 */
SLUICE_API int sluice_allreduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                                enum sluice_dtype dtype, enum sluice_op op,
                                struct sluice_req **req);

/**
 * Reduce, then leave block r of the result on rank r.
 *
 * Shapes  in[size * count], out[count]; out may be in + rank * count. The rest as allreduce.
 */
SLUICE_API int sluice_reduce_scatter(struct sluice_comm *comm, const void *in, void *out,
                                     size_t count, enum sluice_dtype dtype, enum sluice_op op,
                                     struct sluice_req **req);

/**
 * Leave every rank's block on every rank, ordered by rank.
 *
 * Shapes  in[count], out[size * count]; in may be out + rank * count. The rest as allreduce.
 */
SLUICE_API int sluice_all_gather(struct sluice_comm *comm, const void *in, void *out, size_t count,
                                 enum sluice_dtype dtype, struct sluice_req **req);

/**
 * Copy root's elements to every rank.
 *
 * Shapes  root: in[count], out[count], out may equal in; others: out[count], in is not read.
 */
SLUICE_API int sluice_broadcast(struct sluice_comm *comm, const void *in, void *out, size_t count,
                                enum sluice_dtype dtype, int root, struct sluice_req **req);

/** Reduce to root. Shapes: in[count]; root: out[count], may equal in; out of others is not
 * touched. */
SLUICE_API int sluice_reduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                             enum sluice_dtype dtype, enum sluice_op op, int root,
                             struct sluice_req **req);

/** Collect every rank's block on root, ordered by rank. Shapes: in[count]; root: out[size * count],
 * in may be out + root * count. */
SLUICE_API int sluice_gather(struct sluice_comm *comm, const void *in, void *out, size_t count,
                             enum sluice_dtype dtype, int root, struct sluice_req **req);

/** Give block r of root's elements to rank r. Shapes: root: in[size * count]; out[count], on root
 * out may be in + root * count. */
SLUICE_API int sluice_scatter(struct sluice_comm *comm, const void *in, void *out, size_t count,
                              enum sluice_dtype dtype, int root, struct sluice_req **req);

/** Block j of rank i becomes block i of rank j. Shapes: in[size * count], out[size * count]; out
 * must not overlap in, except that out may equal in. */
SLUICE_API int sluice_all_to_all(struct sluice_comm *comm, const void *in, void *out, size_t count,
                                 enum sluice_dtype dtype, struct sluice_req **req);

/**
 * all_to_all with a size and place of its own for each block.
 *
 * Shapes  in_counts[size], in_offsets[size], out_counts[size], out_offsets[size], in elements;
 *         in_counts[j] on rank i must equal out_counts[i] on rank j. in and out must not overlap.
 * Memory  the four arrays are borrowed, in a group until sluice_group_end().
 */
SLUICE_API int sluice_all_to_all_v(struct sluice_comm *comm, const void *in,
                                   const size_t *in_counts, const size_t *in_offsets, void *out,
                                   const size_t *out_counts, const size_t *out_offsets,
                                   enum sluice_dtype dtype, struct sluice_req **req);

/** Ends on no rank before every rank has called it. */
SLUICE_API int sluice_barrier(struct sluice_comm *comm, struct sluice_req **req);

/** Send to one rank. Between two ranks, sends meet receives in the order of the calls, and
 * take their place in the order of this communicator's collectives. */
SLUICE_API int sluice_send(struct sluice_comm *comm, const void *in, size_t count,
                           enum sluice_dtype dtype, int peer, struct sluice_req **req);

/** Receive from one rank; count and dtype must be the sender's. */
SLUICE_API int sluice_recv(struct sluice_comm *comm, void *out, size_t count,
                           enum sluice_dtype dtype, int peer, struct sluice_req **req);

#ifdef __cplusplus
}
#endif
#endif
