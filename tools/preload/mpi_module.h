/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI modules' own header. Their sources are compiled once with the header of each MPI ABI:
 * Open MPI's handles are pointers, MPICH's are ints. Only mpi_ompi.c and mpi_mpich.c know which it
 * is. Nothing is linked: the functions and objects of the library that is loaded are looked up,
 * wherever it lies.
 */
#ifndef SL_PRELOAD_MPI_MODULE_H
#define SL_PRELOAD_MPI_MODULE_H

#include "tools/preload/engine.h"
#include "tools/preload/mpi_calls.h"
#include "tools/preload/preload.h"

#include <mpi.h>

/* The functions of MPI that the modules call. */
#define SL_MPI_NEXT(X)                                                                             \
    X(Allreduce)                                                                                   \
    X(Reduce)                                                                                      \
    X(Bcast)                                                                                       \
    X(Allgather)                                                                                   \
    X(Allgatherv)                                                                                  \
    X(Gather)                                                                                      \
    X(Gatherv)                                                                                     \
    X(Scatter)                                                                                     \
    X(Scatterv)                                                                                    \
    X(Alltoall)                                                                                    \
    X(Alltoallv)                                                                                   \
    X(Reduce_scatter)                                                                              \
    X(Reduce_scatter_block)                                                                        \
    X(Barrier)                                                                                     \
    X(Comm_group)                                                                                  \
    X(Comm_create_group)                                                                           \
    X(Comm_free)                                                                                   \
    X(Group_free)                                                                                  \
    X(Initialized)                                                                                 \
    X(Finalized)                                                                                   \
    X(Comm_rank)                                                                                   \
    X(Comm_size)                                                                                   \
    X(Comm_test_inter)                                                                             \
    X(Comm_create_keyval)                                                                          \
    X(Comm_set_attr)                                                                               \
    X(Comm_get_attr)                                                                               \
    X(Comm_call_errhandler)                                                                        \
    X(Add_error_code)                                                                              \
    X(Add_error_string)                                                                            \
    X(Error_string)                                                                                \
    X(Type_size_x)                                                                                 \
    X(Type_get_extent)                                                                             \
    X(Pack)                                                                                        \
    X(Unpack)                                                                                      \
    X(Iprobe)

struct sl_mpi_next {
#define X(name) __typeof__(PMPI_##name) *name;
    SL_MPI_NEXT(X)
#undef X
};

/* A predefined type. */
struct sl_mpi_type {
    uintptr_t handle; /* 0: a free place of the table */
    uint32_t size;    /* bytes */
    int8_t dtype;     /* what reductions count it as, enum sluice_dtype; -1: nothing */
    uint8_t per;      /* elements of dtype in one of it; more than 1: it can only be summed */
};

struct sl_mpi_op {
    MPI_Op handle;
    enum sluice_op op;
};

#define SL_MPI_TYPE_SLOTS 256 /* a power of two */
#define SL_MPI_OP_COUNT 4

extern struct sl_mpi_module {
    const struct sl_preload_host *host;
    struct sl_mpi_next next;
    MPI_Comm world, self, none;
    MPI_Datatype no_type, byte;
    int64_t early_calls; /* of a communicator, but for the world's, that MPI does itself */
    struct sl_mpi_op ops[SL_MPI_OP_COUNT];
    struct sl_mpi_type types[SL_MPI_TYPE_SLOTS];
} sl_mpi;

/* mpi_ompi.c, mpi_mpich.c: fills in handles of the library: sl_mpi.world to .ops, and every
 * predefined type by sl_mpi_type_add(). Returns 0, or a negative errno with a sentence in
 * sluice_last_error(). */
int sl_mpi_constants(const struct sl_preload_host *host);

/* ---- mpi_type.c ---- */

void sl_mpi_type_add(MPI_Datatype type, char kind);

/* NULL: not predefined. */
const struct sl_mpi_type *sl_mpi_type_find(MPI_Datatype type);

/* What one element of a type looks like to the calls that only move. */
struct sl_mpi_form {
    MPI_Datatype type;
    size_t size;     /* bytes of data */
    MPI_Aint extent; /* from one element to the next */
    bool dense;      /* data as it lies in memory; others are packed */
};

/* An MPI code of error when type is none. */
int sl_mpi_form_of(MPI_Datatype type, struct sl_mpi_form *out);

/* count elements at user, packed into or out of bytes[count * size]. 0 or -EIO. */
int sl_mpi_pack(const struct sl_mpi_form *form, const void *user, int64_t count, void *bytes);
int sl_mpi_unpack(const struct sl_mpi_form *form, const void *bytes, void *user, int64_t count);

/* ---- mpi_place.c: what belongs to a communicator ---- */

struct sl_mpi_place {
    MPI_Comm handle;
    struct sluice_comm *comm; /* NULL: none yet, or never */
    int rank, size;
    int64_t seen;            /* calls that could have been taken, before there was an engine */
    bool met;                /* the ranks have compared their rules */
    enum sl_preload_why why; /* never: the reason */
    bool never;
    bool told;     /* a failure was written down */
    size_t *sizes; /* [4 * size]: counts and offsets of calls with a size for each rank */
};

/* mpi_meet.c: all[size] gets the word of every rank. Ranks that lack the shim do not come, and
 * mistake nothing of it for a message of theirs; a sentence says so when it takes long. 0, or a
 * negative errno. */
int sl_mpi_meet(const struct sl_mpi_place *place, uint64_t mine, uint64_t *all);

/* A call that is being taken. */
struct sl_mpi_job {
    unsigned call;
    struct sl_mpi_place *place;
    uint64_t bytes, start_ns;
};

/* True: the call is taken; sl_mpi_end() ends it. False: it goes to the original, and was counted.
 * The answer is the same on all ranks, as comm and root are. root: 0 for calls without one. */
bool sl_mpi_begin(struct sl_mpi_job *job, enum sl_mpi_call call, MPI_Comm comm, int root);

/* Counts the call, or hands its failure (a negative errno) to the communicator's error handler.
 * Returns what the call returns. */
int sl_mpi_end(struct sl_mpi_job *job, int err);

/* Failed before the engine was asked: the other ranks' calls must end too. Returns err. */
int sl_mpi_give_up(struct sl_mpi_job *job, int err);

static inline void sl_mpi_passed(enum sl_mpi_call call, enum sl_preload_why why)
{
    sl_preload_passed(sl_mpi.host, call, why);
}

/* ---- the calls: X(name) is int sl_mpi_take_name(...), with MPI's own parameters ---- */

#define SL_MPI_TAKE(call, params, args) extern __typeof__(PMPI_##call) sl_mpi_take_##call;
SL_MPI_CALLS(SL_MPI_TAKE)
#undef SL_MPI_TAKE

#endif
