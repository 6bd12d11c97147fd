/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI calls that reduce, and the barrier. MPI wants type and operator to be the same on all
 * ranks here, so a call is taken when both are predefined and known to the engine; everything else
 * goes to MPI.
 */
#include "core/err.h"
#include "lib/compress.h"
#include "tools/preload/mpi_module.h"

#include <stdlib.h>
#include <string.h>

/* What a reduction works on. */
struct numbers {
    enum sluice_dtype dtype;
    enum sluice_op op;
    size_t per;  /* elements of dtype in one of MPI's */
    size_t size; /* bytes of one of MPI's */
};

static const struct sl_mpi_op *find_op(MPI_Op op)
{
    for (unsigned i = 0; i < SL_MPI_OP_COUNT; i++)
        if (sl_mpi.ops[i].handle == op)
            return &sl_mpi.ops[i];
    return NULL;
}

static bool numbers_of(enum sl_mpi_call call, MPI_Datatype type, MPI_Op op, struct numbers *out)
{
    const struct sl_mpi_type *t = sl_mpi_type_find(type);
    const struct sl_mpi_op *o = find_op(op);

    if (o == NULL) {
        sl_mpi_passed(call, SL_WHY_OP);
        return false;
    }
    if (t == NULL || t->dtype < 0 || (t->per > 1 && o->op != SLUICE_SUM)) {
        sl_mpi_passed(call, SL_WHY_TYPE);
        return false;
    }
    *out = (struct numbers){(enum sluice_dtype)t->dtype, o->op, t->per, t->size};
    return true;
}

/* The memory of a reduction. The engine wants elements at multiples of their size; MPI takes them
 * anywhere. */
struct lent {
    const void *in;
    void *out;
    void *user; /* where the result belongs, when out is not there */
    size_t out_len;
    void *scratch;
};

/* out NULL: this rank gets nothing. Nothing is copied when both are aligned. */
static int lend(struct lent *lent, const struct numbers *n, const void *in, size_t in_len,
                void *out, size_t out_len)
{
    uintptr_t odd = ((uintptr_t)in | (uintptr_t)out) & (n->size / n->per - 1);

    *lent = (struct lent){.in = in, .out = out};
    if (SL_LIKELY(odd == 0))
        return 0;
    size_t room = (in_len + 63) / 64 * 64;

    lent->scratch = aligned_alloc(64, room + (out_len + 63) / 64 * 64 + 64);
    if (lent->scratch == NULL)
        return sl_fail(-ENOMEM, "no memory for %zu bytes whose address is odd", in_len + out_len);
    memcpy(lent->scratch, in, in_len);
    lent->in = lent->scratch;
    if (out != NULL) {
        lent->out = (char *)lent->scratch + room;
        lent->user = out;
        lent->out_len = out_len;
    }
    return 0;
}

/* Returns err. */
static int give_back(struct lent *lent, int err)
{
    if (err == 0 && lent->user != NULL)
        memcpy(lent->user, lent->out, lent->out_len);
    free(lent->scratch);
    return err;
}

int sl_mpi_take_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm)
{
    struct sl_mpi_job job;
    struct numbers n;
    struct lent lent;

    if (count < 0 || !numbers_of(SL_MPI_Allreduce, type, op, &n) ||
        !sl_mpi_begin(&job, SL_MPI_Allreduce, comm, 0))
        return sl_mpi.next.Allreduce(in, out, count, type, op, comm);
    if (count == 0)
        return sl_mpi_end(&job, 0);
    job.bytes = (size_t)count * n.size;
    int err = lend(&lent, &n, in == MPI_IN_PLACE ? out : in, job.bytes, out, job.bytes);

    if (SL_UNLIKELY(err != 0))
        return sl_mpi_end(&job, sl_mpi_give_up(&job, err));
    sl_compression_of(job.place->comm, in == MPI_IN_PLACE ? out : in);
    err = sluice_allreduce(job.place->comm, lent.in, lent.out, (size_t)count * n.per, n.dtype, n.op,
                           NULL);
    return sl_mpi_end(&job, give_back(&lent, err));
}

int sl_mpi_take_Reduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root,
                       MPI_Comm comm)
{
    struct sl_mpi_job job;
    struct numbers n;
    struct lent lent;

    if (count < 0 || !numbers_of(SL_MPI_Reduce, type, op, &n) ||
        !sl_mpi_begin(&job, SL_MPI_Reduce, comm, root))
        return sl_mpi.next.Reduce(in, out, count, type, op, root, comm);
    if (count == 0)
        return sl_mpi_end(&job, 0);
    job.bytes = (size_t)count * n.size;
    int err = lend(&lent, &n, in == MPI_IN_PLACE ? out : in, job.bytes,
                   job.place->rank == root ? out : NULL, job.bytes);

    if (SL_UNLIKELY(err != 0))
        return sl_mpi_end(&job, sl_mpi_give_up(&job, err));
    err = sluice_reduce(job.place->comm, lent.in, lent.out, (size_t)count * n.per, n.dtype, n.op,
                        root, NULL);
    return sl_mpi_end(&job, give_back(&lent, err));
}

/* Blocks of one size. In place, MPI wants block r of the result at the start and leaves all else as
 * it was; the engine would leave the result where block r was. */
static int scatter_blocks(struct sl_mpi_job *job, const struct numbers *n, const void *in,
                          void *out, size_t count)
{
    const size_t len = count * n->size;
    bool in_place = in == MPI_IN_PLACE;
    void *mine = in_place ? aligned_alloc(64, (len + 63) / 64 * 64) : out;
    struct lent lent = {.in = NULL};
    int err = mine == NULL
                  ? sl_fail(-ENOMEM, "no memory for a block of %zu bytes", len)
                  : lend(&lent, n, in_place ? out : in, (size_t)job->place->size * len, mine, len);

    sl_compression_of(job->place->comm, in_place ? out : in);
    if (err == 0)
        err = give_back(&lent, sluice_reduce_scatter(job->place->comm, lent.in, lent.out,
                                                     count * n->per, n->dtype, n->op, NULL));
    else
        err = sl_mpi_give_up(job, err);
    if (err == 0 && in_place && mine != NULL)
        memcpy(out, mine, len);
    if (in_place)
        free(mine);
    return err;
}

int sl_mpi_take_Reduce_scatter_block(const void *in, void *out, int count, MPI_Datatype type,
                                     MPI_Op op, MPI_Comm comm)
{
    struct sl_mpi_job job;
    struct numbers n;

    if (count < 0 || !numbers_of(SL_MPI_Reduce_scatter_block, type, op, &n) ||
        !sl_mpi_begin(&job, SL_MPI_Reduce_scatter_block, comm, 0))
        return sl_mpi.next.Reduce_scatter_block(in, out, count, type, op, comm);
    if (count == 0)
        return sl_mpi_end(&job, 0);
    job.bytes = (uint64_t)job.place->size * (uint64_t)count * n.size;
    return sl_mpi_end(&job, scatter_blocks(&job, &n, in, out, (size_t)count));
}

/* Blocks of several sizes: everything is reduced everywhere, and each rank keeps its own. */
static int scatter_unequal(struct sl_mpi_job *job, const struct numbers *n, const void *in,
                           void *out, const int counts[], size_t total)
{
    size_t before = 0, len = total * n->size;
    char *all = aligned_alloc(64, (len + 63) / 64 * 64);

    if (all == NULL)
        return sl_mpi_give_up(job, sl_fail(-ENOMEM, "no memory for %zu bytes to reduce", len));
    for (int r = 0; r < job->place->rank; r++)
        before += (size_t)counts[r];
    /* Copied rather than lent: it may lie anywhere, and out may be part of it. */
    memcpy(all, in == MPI_IN_PLACE ? out : in, len);
    sl_compression_of(job->place->comm, in == MPI_IN_PLACE ? out : in);
    int err = sluice_allreduce(job->place->comm, all, all, total * n->per, n->dtype, n->op, NULL);

    if (err == 0)
        memcpy(out, all + before * n->size, (size_t)counts[job->place->rank] * n->size);
    free(all);
    return err;
}

int sl_mpi_take_Reduce_scatter(const void *in, void *out, const int counts[], MPI_Datatype type,
                               MPI_Op op, MPI_Comm comm)
{
    struct sl_mpi_job job;
    struct numbers n;
    bool equal = true;
    size_t total = 0;

    if (counts == NULL || !numbers_of(SL_MPI_Reduce_scatter, type, op, &n) ||
        !sl_mpi_begin(&job, SL_MPI_Reduce_scatter, comm, 0))
        return sl_mpi.next.Reduce_scatter(in, out, counts, type, op, comm);
    for (int r = 0; r < job.place->size; r++) {
        equal = equal && counts[r] == counts[0];
        total += (size_t)(counts[r] > 0 ? counts[r] : 0);
    }
    if (total == 0)
        return sl_mpi_end(&job, 0);
    job.bytes = total * n.size;
    return sl_mpi_end(&job, equal ? scatter_blocks(&job, &n, in, out, (size_t)counts[0])
                                  : scatter_unequal(&job, &n, in, out, counts, total));
}

int sl_mpi_take_Barrier(MPI_Comm comm)
{
    struct sl_mpi_job job;

    if (!sl_mpi_begin(&job, SL_MPI_Barrier, comm, 0))
        return sl_mpi.next.Barrier(comm);
    return sl_mpi_end(&job, sluice_barrier(job.place->comm, NULL));
}
