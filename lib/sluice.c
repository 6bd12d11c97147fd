/* SPDX-License-Identifier: Apache-2.0 */
/* The public collectives: starts operations; requests. */
#include "lib/args.h"
#include "lib/device.h"

#include "collectives/device.h"
#include "collectives/health.h"

/* ---- starting ---- */

/* A call that fails leaves no request, which every function for requests takes or names. */
static int refuse(int err, struct sluice_req **req)
{
    if (req != NULL)
        *req = NULL;
    return err;
}

static int broken(const struct sluice_comm *comm)
{
    return sl_fail_error(&comm->health.error);
}

/* Gives an ended operation back, with its result. */
static int finish(struct sluice_req *op)
{
    struct sluice_comm *comm = op->comm;
    int status = op->status;

    comm->calls.active_count--;
    sl_op_put(op);
    return SL_LIKELY(status == 0) ? 0 : broken(comm);
}

/* A persistent operation needs no giving back. */
static int start_operation(struct sluice_operation *operation, struct sluice_req **req)
{
    struct sluice_comm *comm = operation->comm;
    struct sluice_req *op = NULL;

    if (SL_UNLIKELY(comm->closed))
        return sl_fail(-EINVAL, "the communicator of this %s was destroyed",
                       sl_coll_name(operation->plan->call.coll));
    int err = SL_UNLIKELY(comm->health.error.code != 0)
                  ? broken(comm)
                  : sl_device_follow(comm, operation->plan->coding, &operation->plan->call);

    err = SL_LIKELY(err == 0) ? sl_operation_start(operation, &op) : err;

    if (SL_UNLIKELY(err != 0))
        return err;
    sl_device_flush(operation->plan->coding, &operation->plan->call);
    if (req != NULL) {
        *req = op;
        return 0;
    }
    if (op->status == SL_PENDING)
        sl_comm_wait(comm, &op->status);
    return SL_LIKELY(op->status == 0) ? 0 : broken(comm);
}

int sl_operation_start_now(struct sluice_operation *operation, struct sluice_req **req)
{
    struct sluice_comm *comm = operation->comm;
    int err = sl_check_process(comm);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    sl_enter(comm);
    err = start_operation(operation, req);
    sl_leave(comm);
    return SL_LIKELY(err == 0) ? 0 : refuse(err, req);
}

int sluice_start(struct sluice_operation *operation, struct sluice_req **req)
{
    if (SL_UNLIKELY(operation == NULL))
        return refuse(sl_fail(-EINVAL, "the operation is NULL"), req);
    if (SL_UNLIKELY(sl_group_depth != 0))
        return sl_group_collect_operation(operation, req);
    return sl_operation_start_now(operation, req);
}

/* The processor would be killed for touching a GPU's memory: told in time where the first call of a
 * plan is on such. Later ones are not looked at, as each look is time. */
static __attribute__((noinline)) int refuse_gpu(const struct sluice_comm *comm,
                                                struct sl_plan *plan, const void *in, void *out)
{
    struct sl_call placed = plan->call;
    int err = sl_device_look(comm, NULL, &placed, in, out);

    return err == 0 && placed.on_device ? sl_device_adopt(plan) : err;
}

static inline int start_inside(struct sluice_comm *comm, const struct sl_call *call, const void *in,
                               void *out, struct sluice_req **op)
{
    struct sl_plan *plan = NULL;
    int err =
        SL_UNLIKELY(comm->health.error.code != 0) ? broken(comm) : sl_plan_get(comm, call, &plan);

    if (SL_UNLIKELY(err == 0 && plan->calls == 0 && comm->coding == NULL))
        err = refuse_gpu(comm, plan, in, out);
    return SL_LIKELY(err == 0) ? sl_op_start(comm, plan, in, out, op) : err;
}

/* The same where calls may be compressed: on memory of a GPU, too. */
static int start_placed(struct sluice_comm *comm, const struct sl_call *call, const void *in,
                        void *out, struct sluice_req **op)
{
    struct sl_call placed = *call;
    int err = sl_device_look(comm, comm->coding, &placed, in, out);

    err = err ?: sl_device_follow(comm, comm->coding, &placed);
    err = SL_LIKELY(err == 0) ? start_inside(comm, &placed, in, out, op) : err;
    if (err == 0)
        sl_device_flush(comm->coding, &placed);
    return err;
}

static inline int start_call(struct sluice_comm *comm, const struct sl_call *call, const void *in,
                             void *out, struct sluice_req **op)
{
    return SL_LIKELY(comm->coding == NULL) ? start_inside(comm, call, in, out, op)
                                           : start_placed(comm, call, in, out, op);
}

static inline int wait_inside(struct sluice_comm *comm, struct sluice_req *op)
{
    if (op->status == SL_PENDING)
        sl_comm_wait(comm, &op->status);
    return finish(op);
}

int sl_call_inside(struct sluice_comm *comm, const struct sl_call *call, const void *in, void *out)
{
    struct sluice_req *op;
    int err = start_call(comm, call, in, out, &op);

    return err == 0 ? wait_inside(comm, op) : err;
}

int sl_call_start(struct sluice_comm *comm, const struct sl_call *call, const void *in, void *out,
                  struct sluice_req **req)
{
    struct sluice_req *op;
    int err = sl_check_process(comm);

    if (SL_UNLIKELY(err != 0))
        return err;
    sl_enter(comm);
    err = start_call(comm, call, in, out, &op);
    if (SL_LIKELY(err == 0)) {
        if (req != NULL)
            *req = op;
        else
            err = wait_inside(comm, op);
    }
    sl_leave(comm);
    return SL_LIKELY(err == 0) ? 0 : refuse(err, req);
}

static int submit(struct sluice_comm *comm, const struct sl_call *call, const void *in, void *out,
                  struct sluice_req **req)
{
    if (SL_UNLIKELY(sl_group_depth != 0))
        return sl_group_collect(comm, call, in, out, req);
    return sl_call_start(comm, call, in, out, req);
}

/* ---- collectives ---- */

int sluice_allreduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                     enum sluice_dtype dtype, enum sluice_op op, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_allreduce(comm, in, out, count, dtype, op, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_reduce_scatter(struct sluice_comm *comm, const void *in, void *out, size_t count,
                          enum sluice_dtype dtype, enum sluice_op op, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_reduce_scatter(comm, in, out, count, dtype, op, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_all_gather(struct sluice_comm *comm, const void *in, void *out, size_t count,
                      enum sluice_dtype dtype, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_all_gather(comm, in, out, count, dtype, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_broadcast(struct sluice_comm *comm, const void *in, void *out, size_t count,
                     enum sluice_dtype dtype, int root, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_broadcast(comm, in, out, count, dtype, root, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_reduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                  enum sluice_dtype dtype, enum sluice_op op, int root, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_reduce(comm, in, out, count, dtype, op, root, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_gather(struct sluice_comm *comm, const void *in, void *out, size_t count,
                  enum sluice_dtype dtype, int root, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_gather(comm, in, out, count, dtype, root, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_scatter(struct sluice_comm *comm, const void *in, void *out, size_t count,
                   enum sluice_dtype dtype, int root, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_scatter(comm, in, out, count, dtype, root, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_all_to_all(struct sluice_comm *comm, const void *in, void *out, size_t count,
                      enum sluice_dtype dtype, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_all_to_all(comm, in, out, count, dtype, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_all_to_all_v(struct sluice_comm *comm, const void *in, const size_t *in_counts,
                        const size_t *in_offsets, void *out, const size_t *out_counts,
                        const size_t *out_offsets, enum sluice_dtype dtype, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_all_to_all_v(comm, in, in_counts, in_offsets, out, out_counts, out_offsets,
                                   dtype, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_barrier(struct sluice_comm *comm, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_barrier(comm, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, NULL, NULL, req) : refuse(err, req);
}

int sluice_send(struct sluice_comm *comm, const void *in, size_t count, enum sluice_dtype dtype,
                int peer, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_message(comm, SL_SEND, in, NULL, count, dtype, peer, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, in, NULL, req) : refuse(err, req);
}

int sluice_recv(struct sluice_comm *comm, void *out, size_t count, enum sluice_dtype dtype,
                int peer, struct sluice_req **req)
{
    struct sl_call call;
    int err = sl_args_message(comm, SL_RECV, NULL, out, count, dtype, peer, &call);

    return SL_LIKELY(err == 0) ? submit(comm, &call, NULL, out, req) : refuse(err, req);
}

/* ---- requests ---- */

static int result_of(const struct sluice_req *req)
{
    return req->status == 0 ? 0 : broken(req->comm);
}

int sluice_test(struct sluice_req *req)
{
    if (req == NULL)
        return sl_fail(-EINVAL, "the request is NULL");
    struct sluice_comm *comm = req->comm;
    int err = sl_check_process(comm);

    if (SL_UNLIKELY(err != 0))
        return err;
    sl_enter(comm);
    if (req->status == SL_PENDING)
        sl_comm_idle(comm, sl_comm_progress(comm), false);
    int result = req->status == SL_PENDING ? 0 : req->status == 0 ? 1 : broken(comm);

    sl_leave(comm);
    return result;
}

int sluice_wait(struct sluice_req *req)
{
    if (req == NULL)
        return sl_fail(-EINVAL, "the request is NULL");
    struct sluice_comm *comm = req->comm;
    int err = sl_check_process(comm);

    if (SL_UNLIKELY(err != 0))
        return err;
    sl_enter(comm);
    if (req->status == SL_PENDING)
        sl_comm_wait(comm, &req->status);
    int result = result_of(req);

    sl_leave(comm);
    return result;
}

void sluice_req_free(struct sluice_req *req)
{
    if (req == NULL || !sl_fork_same(req->comm->life))
        return;
    struct sluice_comm *comm = req->comm;
    struct sl_worker *worker = comm->worker;

    if (req->plan->owner != NULL)
        return;
    sl_worker_get(worker); /* the communicator may go with its last request */
    sl_worker_enter(worker);
    if (req->status == SL_PENDING) {
        req->given_back = true;
    } else {
        comm->calls.active_count--;
        sl_op_put(req);
        sl_comm_release(comm);
    }
    sl_worker_exit(worker);
    sl_worker_put(worker);
}

/* ---- the communicator ---- */

int sluice_comm_rank(const struct sluice_comm *comm)
{
    return comm != NULL ? (int)comm->rank : sl_fail(-EINVAL, "the communicator is NULL");
}

int sluice_comm_size(const struct sluice_comm *comm)
{
    return comm != NULL ? (int)comm->size : sl_fail(-EINVAL, "the communicator is NULL");
}

void sluice_comm_abort(struct sluice_comm *comm)
{
    if (comm != NULL && sl_fork_same(comm->life))
        atomic_store(&comm->health.abort_asked, 1);
}

int sluice_comm_async_error(struct sluice_comm *comm)
{
    int err = sl_check_comm(comm);

    err = err ?: sl_check_process(comm);
    if (err != 0)
        return err;
    sl_enter(comm);
    if (comm->health.error.code == 0)
        sl_comm_idle(comm, sl_comm_progress(comm), false);
    err = comm->health.error.code != 0 ? broken(comm) : 0;
    sl_leave(comm);
    return err;
}
