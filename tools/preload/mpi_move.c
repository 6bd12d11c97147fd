/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI calls that only move data. Their types need not be the same on all ranks, only the bytes
 * that they describe: so every type is taken, as bytes, and those that are not dense are packed on
 * the way. What all ranks decide by is the same on all: the communicator and, where there are
 * counts per rank, those that MPI wants to be alike.
 */
#include "core/err.h"
#include "tools/preload/mpi_module.h"

#include <stdlib.h>
#include <string.h>

/* Memory of the application as contiguous bytes. */
struct view {
    struct sl_mpi_form form;
    int64_t count;
    void *user; /* of a buffer that is written, when it is not dense */
    char *at;   /* the bytes */
    void *scratch;
    size_t len;
};

static int view_scratch(struct view *v)
{
    v->at = v->scratch = malloc(v->len != 0 ? v->len : 1);
    return v->at != NULL ? 0
                         : sl_fail(-ENOMEM, "no memory to pack %zu bytes of an MPI type", v->len);
}

/* What is sent. */
static int view_in(struct view *v, const struct sl_mpi_form *form, const void *user, int64_t count)
{
    *v = (struct view){.form = *form, .count = count, .len = (size_t)count * form->size};
    if (form->dense) {
        v->at = (char *)(uintptr_t)user;
        return 0;
    }
    int err = view_scratch(v);

    return err == 0 ? sl_mpi_pack(form, user, count, v->at) : err;
}

/* What is received: keep says that what lies there now is read, too. */
static int view_out(struct view *v, const struct sl_mpi_form *form, void *user, int64_t count,
                    bool keep)
{
    int err = 0;

    *v = (struct view){.form = *form, .count = count, .len = (size_t)count * form->size};
    if (form->dense) {
        v->at = user;
        return 0;
    }
    v->user = user;
    err = view_scratch(v);
    return err == 0 && keep ? sl_mpi_pack(form, user, count, v->at) : err;
}

/* Gives scratch memory back, received bytes to where they belong. Returns err, or its own. */
static int view_end(struct view *v, int err)
{
    if (err == 0 && v->user != NULL)
        err = sl_mpi_unpack(&v->form, v->at, v->user, v->count);
    free(v->scratch);
    return err;
}

/* The original's own complaint is wanted for what is wrong. */
static bool wrong(MPI_Datatype type, int count, struct sl_mpi_form *form)
{
    return count < 0 || sl_mpi_form_of(type, form) != MPI_SUCCESS;
}

int sl_mpi_take_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    struct sl_mpi_job job;
    struct sl_mpi_form form;
    struct view v;

    if (wrong(type, count, &form) || !sl_mpi_begin(&job, SL_MPI_Bcast, comm, root))
        return sl_mpi.next.Bcast(buf, count, type, root, comm);
    bool mine = job.place->rank == root;

    job.bytes = (size_t)count * form.size;
    if (job.bytes == 0)
        return sl_mpi_end(&job, 0);
    int err = mine ? view_in(&v, &form, buf, count) : view_out(&v, &form, buf, count, false);

    err = err != 0 ? sl_mpi_give_up(&job, err)
                   : sluice_broadcast(job.place->comm, v.at, v.at, v.len, SLUICE_U8, root, NULL);
    return sl_mpi_end(&job, view_end(&v, err));
}

int sl_mpi_take_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out,
                          int out_count, MPI_Datatype out_type, MPI_Comm comm)
{
    const bool in_place = in == MPI_IN_PLACE;
    struct sl_mpi_form in_form, out_form;
    struct view from = {.at = NULL}, to = {.at = NULL};
    struct sl_mpi_job job;

    if (wrong(out_type, out_count, &out_form) ||
        (!in_place && wrong(in_type, in_count, &in_form)) ||
        !sl_mpi_begin(&job, SL_MPI_Allgather, comm, 0))
        return sl_mpi.next.Allgather(in, in_count, in_type, out, out_count, out_type, comm);
    size_t block = (size_t)out_count * out_form.size;

    job.bytes = block * (size_t)job.place->size;
    if (block == 0)
        return sl_mpi_end(&job, 0);
    int err = view_out(&to, &out_form, out, (int64_t)out_count * job.place->size, in_place);

    if (err == 0 && !in_place)
        err = view_in(&from, &in_form, in, in_count);
    const char *mine = in_place ? to.at + (size_t)job.place->rank * block : from.at;

    err = err != 0 ? sl_mpi_give_up(&job, err)
                   : sluice_all_gather(job.place->comm, mine, to.at, block, SLUICE_U8, NULL);
    return sl_mpi_end(&job, view_end(&to, view_end(&from, err)));
}

int sl_mpi_take_Gather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count,
                       MPI_Datatype out_type, int root, MPI_Comm comm)
{
    const bool in_place = in == MPI_IN_PLACE;
    struct sl_mpi_form in_form = {0}, out_form = {0};
    struct view from = {.at = NULL}, to = {.at = NULL};
    struct sl_mpi_job job;

    if ((!in_place && wrong(in_type, in_count, &in_form)) ||
        !sl_mpi_begin(&job, SL_MPI_Gather, comm, root))
        return sl_mpi.next.Gather(in, in_count, in_type, out, out_count, out_type, root, comm);
    bool mine = job.place->rank == root;
    int err = mine && wrong(out_type, out_count, &out_form)
                  ? sl_fail(-EINVAL, "MPI_Gather: type or count of the root's buffer is wrong")
                  : 0;
    size_t block = in_place ? (size_t)out_count * out_form.size : (size_t)in_count * in_form.size;

    job.bytes = block * (size_t)job.place->size;
    if (block == 0 && err == 0)
        return sl_mpi_end(&job, 0);
    if (err == 0 && mine)
        err = view_out(&to, &out_form, out, (int64_t)out_count * job.place->size, in_place);
    if (err == 0 && !in_place)
        err = view_in(&from, &in_form, in, in_count);
    const char *own = in_place ? to.at + (size_t)root * block : from.at;

    err = err != 0 ? sl_mpi_give_up(&job, err)
                   : sluice_gather(job.place->comm, own, to.at, block, SLUICE_U8, root, NULL);
    return sl_mpi_end(&job, view_end(&to, view_end(&from, err)));
}

int sl_mpi_take_Scatter(const void *in, int in_count, MPI_Datatype in_type, void *out,
                        int out_count, MPI_Datatype out_type, int root, MPI_Comm comm)
{
    const bool in_place = out == MPI_IN_PLACE;
    struct sl_mpi_form in_form = {0}, out_form = {0};
    struct view from = {.at = NULL}, to = {.at = NULL};
    struct sl_mpi_job job;

    if ((!in_place && wrong(out_type, out_count, &out_form)) ||
        !sl_mpi_begin(&job, SL_MPI_Scatter, comm, root))
        return sl_mpi.next.Scatter(in, in_count, in_type, out, out_count, out_type, root, comm);
    bool mine = job.place->rank == root;
    int err = mine && wrong(in_type, in_count, &in_form)
                  ? sl_fail(-EINVAL, "MPI_Scatter: type or count of the root's buffer is wrong")
                  : 0;
    size_t block = in_place ? (size_t)in_count * in_form.size : (size_t)out_count * out_form.size;

    job.bytes = block * (size_t)job.place->size;
    if (block == 0 && err == 0)
        return sl_mpi_end(&job, 0);
    if (err == 0 && mine)
        err = view_in(&from, &in_form, in, (int64_t)in_count * job.place->size);
    if (err == 0 && !in_place)
        err = view_out(&to, &out_form, out, out_count, false);
    char *own = in_place ? from.at + (size_t)root * block : to.at;

    err = err != 0 ? sl_mpi_give_up(&job, err)
                   : sluice_scatter(job.place->comm, from.at, own, block, SLUICE_U8, root, NULL);
    return sl_mpi_end(&job, view_end(&to, view_end(&from, err)));
}

int sl_mpi_take_Alltoall(const void *in, int in_count, MPI_Datatype in_type, void *out,
                         int out_count, MPI_Datatype out_type, MPI_Comm comm)
{
    const bool in_place = in == MPI_IN_PLACE;
    struct sl_mpi_form in_form, out_form;
    struct view from = {.at = NULL}, to = {.at = NULL};
    struct sl_mpi_job job;

    if (wrong(out_type, out_count, &out_form) ||
        (!in_place && wrong(in_type, in_count, &in_form)) ||
        !sl_mpi_begin(&job, SL_MPI_Alltoall, comm, 0))
        return sl_mpi.next.Alltoall(in, in_count, in_type, out, out_count, out_type, comm);
    size_t block = (size_t)out_count * out_form.size;

    job.bytes = block * (size_t)job.place->size;
    if (block == 0)
        return sl_mpi_end(&job, 0);
    int err = view_out(&to, &out_form, out, (int64_t)out_count * job.place->size, in_place);

    if (err == 0 && !in_place)
        err = view_in(&from, &in_form, in, (int64_t)in_count * job.place->size);
    const char *mine = in_place ? to.at : from.at;

    err = err != 0 ? sl_mpi_give_up(&job, err)
                   : sluice_all_to_all(job.place->comm, mine, to.at, block, SLUICE_U8, NULL);
    return sl_mpi_end(&job, view_end(&to, view_end(&from, err)));
}
