/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees persistent operations for the user; sluice.c starts them. */
#include "lib/args.h"
#include "lib/compress.h"
#include "lib/device.h"

/* Of a call whose check ended with err. */
static int create(int err, struct sluice_comm *comm, const struct sl_call *call, const void *in,
                  void *out, struct sluice_operation **operation)
{
    if (operation == NULL)
        return sl_fail(-EINVAL, "there is no place for the operation");
    *operation = NULL;
    err = err ?: sl_check_process(comm);
    if (err != 0)
        return err;
    struct sl_call placed = *call;

    sl_enter(comm);
    err = sl_device_look(comm, comm->coding, &placed, in, out);
    err = err ?: sl_operation_create(comm, &placed, NULL, in, out, operation);
    sl_leave(comm);
    return err;
}

int sluice_allreduce_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                          enum sluice_dtype dtype, enum sluice_op op,
                          struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_allreduce(comm, in, out, count, dtype, op, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_reduce_scatter_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                               enum sluice_dtype dtype, enum sluice_op op,
                               struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_reduce_scatter(comm, in, out, count, dtype, op, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_all_gather_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                           enum sluice_dtype dtype, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_all_gather(comm, in, out, count, dtype, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_broadcast_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                          enum sluice_dtype dtype, int root, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_broadcast(comm, in, out, count, dtype, root, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_reduce_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                       enum sluice_dtype dtype, enum sluice_op op, int root,
                       struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_reduce(comm, in, out, count, dtype, op, root, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_gather_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                       enum sluice_dtype dtype, int root, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_gather(comm, in, out, count, dtype, root, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_scatter_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                        enum sluice_dtype dtype, int root, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_scatter(comm, in, out, count, dtype, root, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_all_to_all_init(struct sluice_comm *comm, const void *in, void *out, size_t count,
                           enum sluice_dtype dtype, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_all_to_all(comm, in, out, count, dtype, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_all_to_all_v_init(struct sluice_comm *comm, const void *in, const size_t *in_counts,
                             const size_t *in_offsets, void *out, const size_t *out_counts,
                             const size_t *out_offsets, enum sluice_dtype dtype,
                             struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_all_to_all_v(comm, in, in_counts, in_offsets, out, out_counts, out_offsets,
                                   dtype, &call);

    return create(err, comm, &call, in, out, operation);
}

int sluice_barrier_init(struct sluice_comm *comm, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_barrier(comm, &call);

    return create(err, comm, &call, NULL, NULL, operation);
}

int sluice_send_init(struct sluice_comm *comm, const void *in, size_t count,
                     enum sluice_dtype dtype, int peer, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_message(comm, SL_SEND, in, NULL, count, dtype, peer, &call);

    return create(err, comm, &call, in, NULL, operation);
}

int sluice_recv_init(struct sluice_comm *comm, void *out, size_t count, enum sluice_dtype dtype,
                     int peer, struct sluice_operation **operation)
{
    struct sl_call call;
    int err = sl_args_message(comm, SL_RECV, NULL, out, count, dtype, peer, &call);

    return create(err, comm, &call, NULL, out, operation);
}

void sluice_operation_free(struct sluice_operation *operation)
{
    if (operation == NULL || !sl_fork_same(operation->comm->life))
        return;
    struct sluice_comm *comm = operation->comm;

    sl_enter(comm);
    if (operation->plan->account != comm->coding)
        sl_compression_log(operation->plan->account);
    sl_operation_drop(operation);
    sl_leave(comm);
    sl_comm_release(comm);
}
