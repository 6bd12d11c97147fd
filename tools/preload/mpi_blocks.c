/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI calls with a size and a place for each rank's block. They become the engine's
 * all_to_all_v, where most blocks may be empty, or its all_gather when all blocks are of one size.
 */
#include "core/err.h"
#include "tools/preload/mpi_module.h"

#include <stdlib.h>
#include <string.h>

/* The blocks of one buffer, as MPI gives them. */
struct blocks {
    struct sl_mpi_form form;
    const void *user; /* where displacements count from */
    const int *counts, *displs;
    int size;
};

/* The same as bytes. */
struct bytes {
    char *base;
    size_t *counts, *offs; /* [size], of the place */
    size_t reach;          /* bytes from base that blocks lie in */
    size_t total;          /* bytes of all blocks */
    void *scratch;         /* base, when it is not the application's memory */
};

static char *block_at(const struct blocks *b, int r)
{
    return (char *)(uintptr_t)b->user + (MPI_Aint)b->displs[r] * b->form.extent;
}

/* Dense blocks where they are. Displacements may be negative: the first block's begins the base. */
static void point_at(const struct blocks *b, struct bytes *out)
{
    char *first = NULL;

    for (int r = 0; r < b->size; r++)
        if (b->counts[r] > 0 && (first == NULL || block_at(b, r) < first))
            first = block_at(b, r);
    out->base = first;
    for (int r = 0; r < b->size; r++) {
        size_t len = b->counts[r] > 0 ? (size_t)b->counts[r] * b->form.size : 0;

        out->counts[r] = len;
        out->offs[r] = len != 0 ? (size_t)(block_at(b, r) - first) : 0;
        out->total += len;
        if (out->offs[r] + len > out->reach)
            out->reach = out->offs[r] + len;
    }
}

/* Room for the blocks, one after the other. */
static int make_room(const struct blocks *b, struct bytes *out)
{
    out->total = 0;
    for (int r = 0; r < b->size; r++) {
        out->counts[r] = b->counts[r] > 0 ? (size_t)b->counts[r] * b->form.size : 0;
        out->offs[r] = out->total;
        out->total += out->counts[r];
    }
    out->reach = out->total;
    out->base = out->scratch = malloc(out->total != 0 ? out->total : 1);
    return out->base != NULL
               ? 0
               : sl_fail(-ENOMEM, "no memory to pack %zu bytes of MPI blocks", out->total);
}

static int gather_blocks(const struct blocks *b, struct bytes *out)
{
    int err = make_room(b, out);

    for (int r = 0; r < b->size && err == 0; r++) {
        if (out->counts[r] == 0)
            continue;
        if (b->form.dense)
            memcpy(out->base + out->offs[r], block_at(b, r), out->counts[r]);
        else
            err = sl_mpi_pack(&b->form, block_at(b, r), b->counts[r], out->base + out->offs[r]);
    }
    return err;
}

static int scatter_blocks(const struct blocks *b, const struct bytes *from)
{
    int err = 0;

    for (int r = 0; r < b->size && err == 0; r++) {
        if (from->counts[r] == 0)
            continue;
        if (b->form.dense)
            memcpy(block_at(b, r), from->base + from->offs[r], from->counts[r]);
        else
            err = sl_mpi_unpack(&b->form, from->base + from->offs[r], block_at(b, r), b->counts[r]);
    }
    return err;
}

/* One buffer of a call: which of the place's arrays are its own. */
static struct bytes side(const struct sl_mpi_place *place, int number)
{
    size_t n = (size_t)place->size;

    memset(place->sizes + 2 * n * (size_t)number, 0, 2 * n * sizeof(*place->sizes));
    return (struct bytes){.counts = place->sizes + 2 * n * (size_t)number,
                          .offs = place->sizes + 2 * n * (size_t)number + n};
}

static bool overlap(const struct bytes *a, const struct bytes *b)
{
    return a->reach != 0 && b->reach != 0 && a->base < b->base + b->reach &&
           b->base < a->base + a->reach;
}

/* The exchange itself. in NULL: nothing is sent; copy: what is sent lies among what is received. */
static int exchange_blocks(struct sl_mpi_job *job, const struct blocks *in,
                           const struct blocks *out, bool copy)
{
    struct bytes from = side(job->place, 0), to = side(job->place, 1);
    int err = 0;

    if (out != NULL && out->form.dense)
        point_at(out, &to);
    else if (out != NULL)
        err = make_room(out, &to);
    if (in != NULL && in->form.dense && !copy)
        point_at(in, &from);
    else if (in != NULL && err == 0)
        err = gather_blocks(in, &from);
    /* Blocks of both may take turns in one piece of memory. */
    if (err == 0 && from.scratch == NULL && to.scratch == NULL && overlap(&from, &to))
        err = gather_blocks(in, &from);
    job->bytes = from.total > to.total ? from.total : to.total;
    err = err != 0 ? sl_mpi_give_up(job, err)
                   : sluice_all_to_all_v(job->place->comm, from.base, from.counts, from.offs,
                                         to.base, to.counts, to.offs, SLUICE_U8, NULL);
    if (err == 0 && to.scratch != NULL)
        err = scatter_blocks(out, &to);
    free(from.scratch);
    free(to.scratch);
    return err;
}

/* One block for or from a single rank. */
struct single {
    int *counts, *displs;
};

static int make_single(struct single *s, int size)
{
    s->counts = calloc((size_t)size, 2 * sizeof(*s->counts));
    s->displs = s->counts != NULL ? s->counts + size : NULL;
    return s->counts != NULL ? 0 : sl_fail(-ENOMEM, "no memory for the counts of %d ranks", size);
}

static bool known_type(MPI_Datatype type, struct sl_mpi_form *form)
{
    return sl_mpi_form_of(type, form) == MPI_SUCCESS;
}

int sl_mpi_take_Alltoallv(const void *in, const int in_counts[], const int in_displs[],
                          MPI_Datatype in_type, void *out, const int out_counts[],
                          const int out_displs[], MPI_Datatype out_type, MPI_Comm comm)
{
    const bool in_place = in == MPI_IN_PLACE;
    struct blocks from = {.user = in, .counts = in_counts, .displs = in_displs};
    struct blocks to = {.user = out, .counts = out_counts, .displs = out_displs};
    struct sl_mpi_job job;

    if (out_counts == NULL || out_displs == NULL || !known_type(out_type, &to.form) ||
        (!in_place &&
         (in_counts == NULL || in_displs == NULL || !known_type(in_type, &from.form))) ||
        !sl_mpi_begin(&job, SL_MPI_Alltoallv, comm, 0))
        return sl_mpi.next.Alltoallv(in, in_counts, in_displs, in_type, out, out_counts, out_displs,
                                     out_type, comm);
    from.size = to.size = job.place->size;
    return sl_mpi_end(&job, exchange_blocks(&job, in_place ? &to : &from, &to, in_place));
}

/* All blocks of one size, at places of this rank's own choice. */
static int gather_equal(struct sl_mpi_job *job, const struct blocks *in, const struct blocks *out)
{
    struct bytes from = side(job->place, 0), to = side(job->place, 1);
    const int me = job->place->rank;
    const size_t len = (size_t)out->counts[0] * out->form.size;
    bool in_order = out->form.dense;
    int err = 0;

    for (int r = 1; r < out->size; r++)
        in_order = in_order && out->displs[r] - out->displs[0] == (int64_t)r * out->counts[0];
    if (in_order)
        point_at(out, &to);
    else
        err = in == NULL ? gather_blocks(out, &to) : make_room(out, &to);
    if (err == 0 && in != NULL && in->form.dense)
        from.base = (char *)(uintptr_t)in->user;
    else if (err == 0 && in != NULL)
        err = gather_blocks(in, &from);
    job->bytes = len * (size_t)out->size;
    err = err != 0 ? sl_mpi_give_up(job, err)
                   : sluice_all_gather(job->place->comm,
                                       in != NULL ? from.base : to.base + (size_t)me * len, to.base,
                                       len, SLUICE_U8, NULL);
    if (err == 0 && to.scratch != NULL)
        err = scatter_blocks(out, &to);
    free(from.scratch);
    free(to.scratch);
    return err;
}

/* Everybody sends its block to everybody. In place, it is taken out first. */
static int gather_unequal(struct sl_mpi_job *job, const struct blocks *own,
                          const struct blocks *out)
{
    struct single all;
    int err = make_single(&all, out->size);

    if (err != 0)
        return sl_mpi_give_up(job, err);
    for (int r = 0; r < out->size; r++) {
        all.counts[r] = own->counts[0];
        all.displs[r] = own->displs[0];
    }
    struct blocks in = *own;

    in.counts = all.counts;
    in.displs = all.displs;
    in.size = out->size;
    err = exchange_blocks(job, &in, out, false);
    free(all.counts);
    return err;
}

int sl_mpi_take_Allgatherv(const void *in, int in_count, MPI_Datatype in_type, void *out,
                           const int out_counts[], const int out_displs[], MPI_Datatype out_type,
                           MPI_Comm comm)
{
    const bool in_place = in == MPI_IN_PLACE;
    const int zero = 0;
    struct blocks own = {.user = in, .counts = &in_count, .displs = &zero, .size = 1};
    struct blocks to = {.user = out, .counts = out_counts, .displs = out_displs};
    struct sl_mpi_job job;
    bool equal = true;

    if (out_counts == NULL || out_displs == NULL || !known_type(out_type, &to.form) ||
        (!in_place && (in_count < 0 || !known_type(in_type, &own.form))) ||
        !sl_mpi_begin(&job, SL_MPI_Allgatherv, comm, 0))
        return sl_mpi.next.Allgatherv(in, in_count, in_type, out, out_counts, out_displs, out_type,
                                      comm);
    to.size = job.place->size;
    for (int r = 1; r < to.size; r++)
        equal = equal && out_counts[r] == out_counts[0];
    if (equal && (out_counts[0] <= 0 || to.form.size == 0))
        return sl_mpi_end(&job, 0);
    if (equal)
        return sl_mpi_end(&job, gather_equal(&job, in_place ? NULL : &own, &to));
    if (in_place)
        own = (struct blocks){.form = to.form,
                              .user = out,
                              .counts = out_counts + job.place->rank,
                              .displs = out_displs + job.place->rank,
                              .size = 1};
    return sl_mpi_end(&job, gather_unequal(&job, &own, &to));
}

/* Between one rank's blocks and everybody's own: how MPI_Gatherv and MPI_Scatterv look to each
 * rank. rooted NULL: this rank is not the root; own NULL: the root's block is in its place
 * already. */
static int with_root(struct sl_mpi_job *job, int root, const struct blocks *rooted,
                     const struct blocks *own, bool gather)
{
    const int size = job->place->size;
    struct single all = {NULL, NULL}, but_root = {NULL, NULL};
    struct blocks mine, theirs;
    int err = make_single(&all, size);

    if (err == 0)
        err = make_single(&but_root, size);
    if (err != 0) {
        free(all.counts);
        return sl_mpi_give_up(job, err);
    }
    if (own != NULL) {
        mine = *own;
        mine.counts = all.counts;
        mine.displs = all.displs;
        mine.size = size;
        all.counts[root] = own->counts[0];
    }
    if (rooted != NULL) {
        theirs = *rooted;
        for (int r = 0; r < size; r++) {
            but_root.counts[r] = r == root && own == NULL ? 0 : rooted->counts[r];
            but_root.displs[r] = rooted->displs[r];
        }
        theirs.counts = but_root.counts;
        theirs.displs = but_root.displs;
        theirs.size = size;
    }
    const struct blocks *a = own != NULL ? &mine : NULL, *b = rooted != NULL ? &theirs : NULL;

    err = gather ? exchange_blocks(job, a, b, false) : exchange_blocks(job, b, a, false);
    free(all.counts);
    free(but_root.counts);
    return err;
}

int sl_mpi_take_Gatherv(const void *in, int in_count, MPI_Datatype in_type, void *out,
                        const int out_counts[], const int out_displs[], MPI_Datatype out_type,
                        int root, MPI_Comm comm)
{
    const bool in_place = in == MPI_IN_PLACE;
    const int zero = 0;
    struct blocks own = {.user = in, .counts = &in_count, .displs = &zero, .size = 1};
    struct blocks to = {.user = out, .counts = out_counts, .displs = out_displs};
    struct sl_mpi_job job;

    if ((!in_place && (in_count < 0 || !known_type(in_type, &own.form))) ||
        !sl_mpi_begin(&job, SL_MPI_Gatherv, comm, root))
        return sl_mpi.next.Gatherv(in, in_count, in_type, out, out_counts, out_displs, out_type,
                                   root, comm);
    bool mine = job.place->rank == root;

    to.size = job.place->size;
    if (mine && (out_counts == NULL || out_displs == NULL || !known_type(out_type, &to.form)))
        return sl_mpi_end(&job,
                          sl_mpi_give_up(&job, sl_fail(-EINVAL, "MPI_Gatherv: the root's type, "
                                                                "counts or places are wrong")));
    return sl_mpi_end(&job, with_root(&job, root, mine ? &to : NULL, in_place ? NULL : &own, true));
}

int sl_mpi_take_Scatterv(const void *in, const int in_counts[], const int in_displs[],
                         MPI_Datatype in_type, void *out, int out_count, MPI_Datatype out_type,
                         int root, MPI_Comm comm)
{
    const bool in_place = out == MPI_IN_PLACE;
    const int zero = 0;
    struct blocks own = {.user = out, .counts = &out_count, .displs = &zero, .size = 1};
    struct blocks from = {.user = in, .counts = in_counts, .displs = in_displs};
    struct sl_mpi_job job;

    if ((!in_place && (out_count < 0 || !known_type(out_type, &own.form))) ||
        !sl_mpi_begin(&job, SL_MPI_Scatterv, comm, root))
        return sl_mpi.next.Scatterv(in, in_counts, in_displs, in_type, out, out_count, out_type,
                                    root, comm);
    bool mine = job.place->rank == root;

    from.size = job.place->size;
    if (mine && (in_counts == NULL || in_displs == NULL || !known_type(in_type, &from.form)))
        return sl_mpi_end(&job,
                          sl_mpi_give_up(&job, sl_fail(-EINVAL, "MPI_Scatterv: the root's type, "
                                                                "counts or places are wrong")));
    return sl_mpi_end(&job,
                      with_root(&job, root, mine ? &from : NULL, in_place ? NULL : &own, false));
}
