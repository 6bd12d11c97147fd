/* SPDX-License-Identifier: Apache-2.0 */
/* The public collectives: checks arguments, starts operations; requests. */
#include "lib/api.h"

#include "collectives/health.h"
#include "collectives/report.h"

#include <sched.h>

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
    return sl_fail_text(comm->health.error, comm->health.error_text);
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

/* With a thread of its own the communicator moves by itself: waiting means looking at intervals. */
static void wait_threaded(struct sluice_comm *comm, const int *status)
{
    while (*(volatile const int *)status == SL_PENDING) {
        sl_comm_idle(comm, sl_comm_progress(comm), false);
        pthread_mutex_unlock(&comm->lock);
        if (comm->worker.poke != NULL)
            comm->worker.poke(comm->worker.poke_arg);
        sched_yield();
        pthread_mutex_lock(&comm->lock);
    }
}

static void wait_for(struct sluice_comm *comm, const int *status)
{
    if (comm->threaded)
        wait_threaded(comm, status);
    else
        sl_comm_wait(comm, status);
}

int sl_call_start(struct sluice_comm *comm, const struct sl_call *call, const void *in, void *out,
                  struct sluice_req **req)
{
    struct sluice_req *op;
    struct sl_plan *plan;
    int err = sl_check_process(comm);

    if (SL_UNLIKELY(err != 0))
        return err;
    sl_enter(comm);
    err = SL_UNLIKELY(comm->health.error != 0) ? broken(comm) : sl_plan_get(comm, call, &plan);
    if (SL_LIKELY(err == 0))
        err = sl_op_start(comm, plan, in, out, &op);
    if (SL_LIKELY(err == 0)) {
        if (req != NULL) {
            *req = op;
        } else {
            if (op->status == SL_PENDING)
                wait_for(comm, &op->status);
            err = finish(op);
        }
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

/* ---- checking ---- */

static int check_comm(const struct sluice_comm *comm)
{
    return SL_LIKELY(comm != NULL) ? 0 : sl_fail(-EINVAL, "the communicator is NULL");
}

static int check_types(const struct sl_call *call)
{
    if (SL_UNLIKELY((unsigned)call->dtype >= SLUICE_DTYPE_COUNT))
        return sl_fail(-EINVAL, "%d is no element type", (int)call->dtype);
    if (SL_UNLIKELY((unsigned)call->op >= SLUICE_OP_COUNT))
        return sl_fail(-EINVAL, "%d is no operator", (int)call->op);
    return 0;
}

static int check_root(const struct sluice_comm *comm, const struct sl_call *call, int root)
{
    if (SL_UNLIKELY(root < 0 || root >= (int)comm->size))
        return sl_fail(-EINVAL, "%s: rank %d is not one of the %u of this communicator",
                       sl_coll_name(call->coll), root, comm->size);
    return 0;
}

/* The user's memory that a call lends on this rank. */
struct lent {
    const void *in; /* NULL: this rank gives nothing */
    void *out;      /* NULL: this rank gets nothing */
    uint64_t in_count, out_count;
    int64_t shift; /* in place: where out begins, counted from in, in elements */
    bool gives, gets;
};

static int check_memory(const struct sluice_comm *comm, const struct sl_call *call,
                        const struct lent *lent)
{
    size_t esize = sl_dtype_sizes[call->dtype];
    uintptr_t in = lent->gives ? (uintptr_t)lent->in : esize;
    uintptr_t out = lent->gets ? (uintptr_t)lent->out : esize;

    if (SL_UNLIKELY(call->count != 0 && (in == 0 || out == 0)))
        return sl_fail(-EINVAL, "%s: the %s buffer is NULL", sl_coll_name(call->coll),
                       in == 0 ? "input" : "output");
    if (SL_UNLIKELY(((in | out) & (esize - 1)) != 0))
        return sl_fail(-EINVAL, "%s: a buffer is not aligned to its elements of %zu bytes",
                       sl_coll_name(call->coll), esize);
    if (SL_UNLIKELY(!sl_count_fits(call->count, esize, comm->size)))
        return sl_fail(-EINVAL, "%s: %llu elements are more than memory can hold",
                       sl_coll_name(call->coll), (unsigned long long)call->count);
    return 0;
}

/* in and out may lie apart, or as in-place calls have them. */
static int check_overlap(struct sl_call *call, const struct lent *lent)
{
    size_t esize = sl_dtype_sizes[call->dtype];
    uintptr_t in = (uintptr_t)lent->in, out = (uintptr_t)lent->out;

    call->in_place = call->count != 0 && out == in + (uintptr_t)(lent->shift * (int64_t)esize);
    if (SL_LIKELY(call->in_place || in + lent->in_count * esize <= out ||
                  out + lent->out_count * esize <= in))
        return 0;
    return sl_fail(-EINVAL, "%s: input and output overlap, but not as in-place calls do",
                   sl_coll_name(call->coll));
}

/* Checks the memory, then starts. The head is known to be right. */
static inline int check_and_submit(struct sluice_comm *comm, struct sl_call *call,
                                   const struct lent *lent, struct sluice_req **req)
{
    int err = check_memory(comm, call, lent);

    if (SL_LIKELY(err == 0) && lent->gives && lent->gets)
        err = check_overlap(call, lent);
    return SL_LIKELY(err == 0) ? submit(comm, call, lent->in, lent->out, req) : refuse(err, req);
}

/* What must hold before anything is computed from comm and the call. */
static inline int check_head(const struct sluice_comm *comm, const struct sl_call *call)
{
    int err = check_comm(comm);

    return SL_LIKELY(err == 0) ? check_types(call) : err;
}

static int check_rooted(const struct sluice_comm *comm, const struct sl_call *call, int root)
{
    int err = check_head(comm, call);

    return SL_LIKELY(err == 0) ? check_root(comm, call, root) : err;
}

/* ---- collectives ---- */

int sluice_allreduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                     enum sluice_dtype dtype, enum sluice_op op, struct sluice_req **req)
{
    struct sl_call call = {.coll = SL_ALLREDUCE, .dtype = dtype, .op = op, .count = count};
    struct lent lent = {in, out, count, count, 0, true, true};
    int err = check_head(comm, &call);

    return SL_LIKELY(err == 0) ? check_and_submit(comm, &call, &lent, req) : refuse(err, req);
}

int sluice_reduce_scatter(struct sluice_comm *comm, const void *in, void *out, size_t count,
                          enum sluice_dtype dtype, enum sluice_op op, struct sluice_req **req)
{
    struct sl_call call = {.coll = SL_REDUCE_SCATTER, .dtype = dtype, .op = op, .count = count};
    int err = check_head(comm, &call);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    struct lent lent = {in,   out, comm->size * count, count, (int64_t)(comm->rank * count),
                        true, true};

    return check_and_submit(comm, &call, &lent, req);
}

int sluice_all_gather(struct sluice_comm *comm, const void *in, void *out, size_t count,
                      enum sluice_dtype dtype, struct sluice_req **req)
{
    struct sl_call call = {.coll = SL_ALL_GATHER, .dtype = dtype, .count = count};
    int err = check_head(comm, &call);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    struct lent lent = {in,   out, count, comm->size * count, -(int64_t)(comm->rank * count),
                        true, true};

    return check_and_submit(comm, &call, &lent, req);
}

int sluice_broadcast(struct sluice_comm *comm, const void *in, void *out, size_t count,
                     enum sluice_dtype dtype, int root, struct sluice_req **req)
{
    struct sl_call call = {
        .coll = SL_BROADCAST, .dtype = dtype, .root = (uint32_t)root, .count = count};
    int err = check_rooted(comm, &call, root);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    struct lent lent = {in, out, count, count, 0, call.root == comm->rank, true};

    return check_and_submit(comm, &call, &lent, req);
}

int sluice_reduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                  enum sluice_dtype dtype, enum sluice_op op, int root, struct sluice_req **req)
{
    struct sl_call call = {
        .coll = SL_REDUCE, .dtype = dtype, .op = op, .root = (uint32_t)root, .count = count};
    int err = check_rooted(comm, &call, root);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    struct lent lent = {in, out, count, count, 0, true, call.root == comm->rank};

    return check_and_submit(comm, &call, &lent, req);
}

int sluice_gather(struct sluice_comm *comm, const void *in, void *out, size_t count,
                  enum sluice_dtype dtype, int root, struct sluice_req **req)
{
    struct sl_call call = {
        .coll = SL_GATHER, .dtype = dtype, .root = (uint32_t)root, .count = count};
    int err = check_rooted(comm, &call, root);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    struct lent lent = {in,
                        out,
                        count,
                        comm->size * count,
                        -(int64_t)(comm->rank * count),
                        true,
                        call.root == comm->rank};

    return check_and_submit(comm, &call, &lent, req);
}

int sluice_scatter(struct sluice_comm *comm, const void *in, void *out, size_t count,
                   enum sluice_dtype dtype, int root, struct sluice_req **req)
{
    struct sl_call call = {
        .coll = SL_SCATTER, .dtype = dtype, .root = (uint32_t)root, .count = count};
    int err = check_rooted(comm, &call, root);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    struct lent lent = {
        in,  out, comm->size * count, count, (int64_t)(comm->rank * count), call.root == comm->rank,
        true};

    return check_and_submit(comm, &call, &lent, req);
}

int sluice_all_to_all(struct sluice_comm *comm, const void *in, void *out, size_t count,
                      enum sluice_dtype dtype, struct sluice_req **req)
{
    struct sl_call call = {.coll = SL_ALL_TO_ALL, .dtype = dtype, .count = count};
    int err = check_head(comm, &call);

    if (SL_UNLIKELY(err != 0))
        return refuse(err, req);
    struct lent lent = {in, out, comm->size * count, comm->size * count, 0, true, true};

    return check_and_submit(comm, &call, &lent, req);
}

/* size_t arrays are what the interface takes, uint64_t what schedules hold. */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "Sluice is for 64-bit machines");

/* How far the blocks of a buffer reach, in elements. -EINVAL: farther than memory does. */
static int reach_of(const struct sluice_comm *comm, const size_t *counts, const size_t *offsets,
                    uint64_t *out)
{
    size_t limit = (size_t)INT64_MAX / 8, end = 0;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (counts[r] > limit || (counts[r] != 0 && offsets[r] > limit - counts[r]))
            return sl_fail(-EINVAL,
                           "all_to_all_v: %zu elements at %zu are more than memory can hold",
                           counts[r], offsets[r]);
        if (counts[r] != 0 && offsets[r] + counts[r] > end)
            end = offsets[r] + counts[r];
    }
    *out = end;
    return 0;
}

/* In-place calls are not among what all_to_all_v does. */
static int check_blocks(const struct sluice_comm *comm, enum sluice_dtype dtype,
                        const struct lent *lent)
{
    struct sl_call call = {.coll = SL_ALL_TO_ALL_V, .dtype = dtype, .count = 1};
    int err = check_memory(comm, &call, lent);

    if (err == 0 && lent->gives && lent->gets)
        err = check_overlap(&call, lent);
    return err == 0 && call.in_place ? sl_fail(-EINVAL, "all_to_all_v: input and output overlap")
                                     : err;
}

int sluice_all_to_all_v(struct sluice_comm *comm, const void *in, const size_t *in_counts,
                        const size_t *in_offsets, void *out, const size_t *out_counts,
                        const size_t *out_offsets, enum sluice_dtype dtype, struct sluice_req **req)
{
    struct sl_call call = {.coll = SL_ALL_TO_ALL_V, .dtype = dtype};
    int err = check_head(comm, &call);

    if (err == 0 &&
        (in_counts == NULL || in_offsets == NULL || out_counts == NULL || out_offsets == NULL))
        err = sl_fail(-EINVAL, "all_to_all_v: an array of counts or offsets is NULL");
    if (err != 0)
        return refuse(err, req);
    call.in_counts = (const uint64_t *)in_counts;
    call.in_offs = (const uint64_t *)in_offsets;
    call.out_counts = (const uint64_t *)out_counts;
    call.out_offs = (const uint64_t *)out_offsets;
    if (in_counts[comm->rank] != out_counts[comm->rank])
        return refuse(sl_fail(-EINVAL,
                              "all_to_all_v: rank %u sends itself %zu elements but receives %zu",
                              comm->rank, in_counts[comm->rank], out_counts[comm->rank]),
                      req);
    struct lent lent = {.in = in, .out = out};

    err = reach_of(comm, in_counts, in_offsets, &lent.in_count);
    if (err == 0)
        err = reach_of(comm, out_counts, out_offsets, &lent.out_count);
    lent.gives = lent.in_count != 0;
    lent.gets = lent.out_count != 0;
    if (err == 0)
        err = check_blocks(comm, dtype, &lent);
    return err == 0 ? submit(comm, &call, in, out, req) : refuse(err, req);
}

int sluice_barrier(struct sluice_comm *comm, struct sluice_req **req)
{
    struct sl_call call = {.coll = SL_BARRIER, .dtype = SLUICE_U8};
    int err = check_comm(comm);

    return err == 0 ? submit(comm, &call, NULL, NULL, req) : refuse(err, req);
}

static int point_to_point(struct sluice_comm *comm, enum sl_coll coll, const void *in, void *out,
                          size_t count, enum sluice_dtype dtype, int peer, struct sluice_req **req)
{
    struct sl_call call = {.coll = coll, .dtype = dtype, .root = (uint32_t)peer, .count = count};
    struct lent lent = {in, out, count, count, 0, coll == SL_SEND, coll == SL_RECV};
    int err = check_rooted(comm, &call, peer);

    if (err == 0 && peer == (int)comm->rank)
        err = sl_fail(-EINVAL, "%s: rank %d is this rank", sl_coll_name(coll), peer);
    return SL_LIKELY(err == 0) ? check_and_submit(comm, &call, &lent, req) : refuse(err, req);
}

int sluice_send(struct sluice_comm *comm, const void *in, size_t count, enum sluice_dtype dtype,
                int peer, struct sluice_req **req)
{
    return point_to_point(comm, SL_SEND, in, NULL, count, dtype, peer, req);
}

int sluice_recv(struct sluice_comm *comm, void *out, size_t count, enum sluice_dtype dtype,
                int peer, struct sluice_req **req)
{
    return point_to_point(comm, SL_RECV, NULL, out, count, dtype, peer, req);
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
        wait_for(comm, &req->status);
    int result = result_of(req);

    sl_leave(comm);
    return result;
}

void sluice_req_free(struct sluice_req *req)
{
    if (req == NULL || !sl_fork_same(req->comm->life))
        return;
    struct sluice_comm *comm = req->comm;

    sl_enter(comm);
    if (req->status == SL_PENDING) {
        req->given_back = true;
        sl_leave(comm);
        return;
    }
    comm->calls.active_count--;
    sl_op_put(req);
    sl_leave(comm);
    sl_comm_release(comm);
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
    int err = check_comm(comm);

    if (err == 0)
        err = sl_check_process(comm);
    if (err != 0)
        return err;
    sl_enter(comm);
    if (comm->health.error == 0)
        sl_comm_idle(comm, sl_comm_progress(comm), false);
    err = comm->health.error != 0 ? broken(comm) : 0;
    sl_leave(comm);
    return err;
}

/* ---- events ---- */

size_t sl_comm_events(struct sluice_comm *comm, struct sl_event *out, size_t cap,
                      struct sl_event_totals *totals)
{
    size_t count = sl_event_read(&comm->events, out, cap);

    if (totals != NULL)
        sl_event_totals(comm->events.ring, totals);
    return count;
}

/* ---- paths ---- */

size_t sl_comm_paths(struct sluice_comm *comm, struct sl_path_stat *out, size_t cap)
{
    if (sl_check_process(comm) != 0)
        return 0;
    sl_enter(comm);
    size_t count = sl_report_paths(comm, out, cap);

    sl_leave(comm);
    return count;
}
