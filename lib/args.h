/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of the public calls, checked: one function a collective, from the values of the
 * user to a struct sl_call. Calls (sluice.c) and persistent operations (operation.c) share them.
 * Inline: small messages pay for each call.
 */
#ifndef SL_LIB_ARGS_H
#define SL_LIB_ARGS_H

#include "lib/api.h"

static inline int sl_check_comm(const struct sluice_comm *comm)
{
    return SL_LIKELY(comm != NULL) ? 0 : sl_fail(-EINVAL, "the communicator is NULL");
}

static inline int sl_check_types(const struct sl_call *call)
{
    if (SL_UNLIKELY((unsigned)call->dtype >= SLUICE_DTYPE_COUNT))
        return sl_fail(-EINVAL, "%d is no element type", (int)call->dtype);
    if (SL_UNLIKELY((unsigned)call->op >= SLUICE_OP_COUNT))
        return sl_fail(-EINVAL, "%d is no operator", (int)call->op);
    return 0;
}

static inline int sl_check_root(const struct sluice_comm *comm, const struct sl_call *call,
                                int root)
{
    if (SL_UNLIKELY(root < 0 || root >= (int)comm->size))
        return sl_fail(-EINVAL, "%s: rank %d is not one of the %u of this communicator",
                       sl_coll_name(call->coll), root, comm->size);
    return 0;
}

/* The user's memory that a call lends on this rank. */
struct sl_lent {
    const void *in; /* NULL: this rank gives nothing */
    void *out;      /* NULL: this rank gets nothing */
    uint64_t in_count, out_count;
    int64_t shift; /* in place: where out begins, counted from in, in elements */
    bool gives, gets;
};

static inline int sl_check_memory(const struct sluice_comm *comm, const struct sl_call *call,
                                  const struct sl_lent *lent)
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
static inline int sl_check_overlap(struct sl_call *call, const struct sl_lent *lent)
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

/* Checks the user's memory. The head is known to be right. */
static inline int sl_check_lent(const struct sluice_comm *comm, struct sl_call *call,
                                const struct sl_lent *lent)
{
    int err = sl_check_memory(comm, call, lent);

    if (SL_LIKELY(err == 0) && lent->gives && lent->gets)
        err = sl_check_overlap(call, lent);
    return err;
}

/* Checks before anything is computed from comm and the call. */
static inline int sl_check_head(const struct sluice_comm *comm, const struct sl_call *call)
{
    int err = sl_check_comm(comm);

    return SL_LIKELY(err == 0) ? sl_check_types(call) : err;
}

static inline int sl_check_rooted(const struct sluice_comm *comm, const struct sl_call *call,
                                  int root)
{
    int err = sl_check_head(comm, call);

    return SL_LIKELY(err == 0) ? sl_check_root(comm, call, root) : err;
}

/* The interface takes size_t arrays, schedules hold uint64_t. */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "Sluice is for 64-bit machines");

/* How far the blocks of a buffer reach, in elements. -EINVAL: farther than memory does. */
static inline int sl_reach_of(const struct sluice_comm *comm, const size_t *counts,
                              const size_t *offsets, uint64_t *out)
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

/* all_to_all_v does not work in place. */
static inline int sl_check_blocks(const struct sluice_comm *comm, enum sluice_dtype dtype,
                                  const struct sl_lent *lent)
{
    struct sl_call call = {.coll = SL_ALL_TO_ALL_V, .dtype = dtype, .count = 1};
    int err = sl_check_lent(comm, &call, lent);

    return err == 0 && call.in_place ? sl_fail(-EINVAL, "all_to_all_v: input and output overlap")
                                     : err;
}

static inline int sl_args_allreduce(const struct sluice_comm *comm, const void *in, void *out,
                                    size_t count, enum sluice_dtype dtype, enum sluice_op op,
                                    struct sl_call *call)
{
    *call = (struct sl_call){.coll = SL_ALLREDUCE, .dtype = dtype, .op = op, .count = count};
    int err = sl_check_head(comm, call);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in, out, count, count, 0, true, true};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_reduce_scatter(const struct sluice_comm *comm, const void *in, void *out,
                                         size_t count, enum sluice_dtype dtype, enum sluice_op op,
                                         struct sl_call *call)
{
    *call = (struct sl_call){.coll = SL_REDUCE_SCATTER, .dtype = dtype, .op = op, .count = count};
    int err = sl_check_head(comm, call);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in,   out, comm->size * count, count, (int64_t)(comm->rank * count),
                           true, true};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_all_gather(const struct sluice_comm *comm, const void *in, void *out,
                                     size_t count, enum sluice_dtype dtype, struct sl_call *call)
{
    *call = (struct sl_call){.coll = SL_ALL_GATHER, .dtype = dtype, .count = count};
    int err = sl_check_head(comm, call);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in,   out, count, comm->size * count, -(int64_t)(comm->rank * count),
                           true, true};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_broadcast(const struct sluice_comm *comm, const void *in, void *out,
                                    size_t count, enum sluice_dtype dtype, int root,
                                    struct sl_call *call)
{
    *call = (struct sl_call){
        .coll = SL_BROADCAST, .dtype = dtype, .root = (uint32_t)root, .count = count};
    int err = sl_check_rooted(comm, call, root);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in, out, count, count, 0, call->root == comm->rank, true};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_reduce(const struct sluice_comm *comm, const void *in, void *out,
                                 size_t count, enum sluice_dtype dtype, enum sluice_op op, int root,
                                 struct sl_call *call)
{
    *call = (struct sl_call){
        .coll = SL_REDUCE, .dtype = dtype, .op = op, .root = (uint32_t)root, .count = count};
    int err = sl_check_rooted(comm, call, root);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in, out, count, count, 0, true, call->root == comm->rank};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_gather(const struct sluice_comm *comm, const void *in, void *out,
                                 size_t count, enum sluice_dtype dtype, int root,
                                 struct sl_call *call)
{
    *call =
        (struct sl_call){.coll = SL_GATHER, .dtype = dtype, .root = (uint32_t)root, .count = count};
    int err = sl_check_rooted(comm, call, root);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in,
                           out,
                           count,
                           comm->size * count,
                           -(int64_t)(comm->rank * count),
                           true,
                           call->root == comm->rank};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_scatter(const struct sluice_comm *comm, const void *in, void *out,
                                  size_t count, enum sluice_dtype dtype, int root,
                                  struct sl_call *call)
{
    *call = (struct sl_call){
        .coll = SL_SCATTER, .dtype = dtype, .root = (uint32_t)root, .count = count};
    int err = sl_check_rooted(comm, call, root);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in,
                           out,
                           comm->size * count,
                           count,
                           (int64_t)(comm->rank * count),
                           call->root == comm->rank,
                           true};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_all_to_all(const struct sluice_comm *comm, const void *in, void *out,
                                     size_t count, enum sluice_dtype dtype, struct sl_call *call)
{
    *call = (struct sl_call){.coll = SL_ALL_TO_ALL, .dtype = dtype, .count = count};
    int err = sl_check_head(comm, call);

    if (SL_UNLIKELY(err != 0))
        return err;
    struct sl_lent lent = {in, out, comm->size * count, comm->size * count, 0, true, true};

    return sl_check_lent(comm, call, &lent);
}

static inline int sl_args_all_to_all_v(const struct sluice_comm *comm, const void *in,
                                       const size_t *in_counts, const size_t *in_offsets, void *out,
                                       const size_t *out_counts, const size_t *out_offsets,
                                       enum sluice_dtype dtype, struct sl_call *call)
{
    *call = (struct sl_call){.coll = SL_ALL_TO_ALL_V, .dtype = dtype};
    int err = sl_check_head(comm, call);

    if (err != 0)
        return err;
    if (in_counts == NULL || in_offsets == NULL || out_counts == NULL || out_offsets == NULL)
        return sl_fail(-EINVAL, "all_to_all_v: an array of counts or offsets is NULL");
    call->in_counts = (const uint64_t *)in_counts;
    call->in_offs = (const uint64_t *)in_offsets;
    call->out_counts = (const uint64_t *)out_counts;
    call->out_offs = (const uint64_t *)out_offsets;
    if (in_counts[comm->rank] != out_counts[comm->rank])
        return sl_fail(-EINVAL, "all_to_all_v: rank %u sends itself %zu elements but receives %zu",
                       comm->rank, in_counts[comm->rank], out_counts[comm->rank]);
    struct sl_lent lent = {.in = in, .out = out};

    err = sl_reach_of(comm, in_counts, in_offsets, &lent.in_count);
    if (err == 0)
        err = sl_reach_of(comm, out_counts, out_offsets, &lent.out_count);
    lent.gives = lent.in_count != 0;
    lent.gets = lent.out_count != 0;
    return err == 0 ? sl_check_blocks(comm, dtype, &lent) : err;
}

static inline int sl_args_barrier(const struct sluice_comm *comm, struct sl_call *call)
{
    *call = (struct sl_call){.coll = SL_BARRIER, .dtype = SLUICE_U8};
    return sl_check_comm(comm);
}

/* Of a send (out NULL) or a receive (in NULL). */
static inline int sl_args_message(const struct sluice_comm *comm, enum sl_coll coll, const void *in,
                                  void *out, size_t count, enum sluice_dtype dtype, int peer,
                                  struct sl_call *call)
{
    struct sl_lent lent = {in, out, count, count, 0, coll == SL_SEND, coll == SL_RECV};

    *call = (struct sl_call){.coll = coll, .dtype = dtype, .root = (uint32_t)peer, .count = count};
    int err = sl_check_rooted(comm, call, peer);

    if (err == 0 && peer == (int)comm->rank)
        err = sl_fail(-EINVAL, "%s: rank %d is this rank", sl_coll_name(coll), peer);
    return SL_LIKELY(err == 0) ? sl_check_lent(comm, call, &lent) : err;
}

#endif
