/* SPDX-License-Identifier: Apache-2.0 */
/* One row's operands: layout, filling, judging. */
#include "place.h"

#include "verify.h"

#include <string.h>

#define PATTERN 0xa5

static size_t alltoallv_max(size_t count)
{
    return count + count / 4;
}

size_t sb_place_need(const struct sb_row *row, int size)
{
    size_t esize = sluice_dtype_size(row->dtype);

    if (row->coll == SB_ALL_TO_ALL_V)
        return alltoallv_max((size_t)row->count) * (size_t)size * esize + SB_FENCE;
    return (size_t)row->bytes + SB_FENCE;
}

static void lay_tables(struct sb_place *place, size_t *tables)
{
    struct sb_call *call = &place->call;
    size_t size = (size_t)call->size, in_total = 0, out_total = 0;
    size_t *in_counts = tables, *in_offsets = tables + size;
    size_t *out_counts = tables + 2 * size, *out_offsets = tables + 3 * size;

    for (int peer = 0; peer < call->size; peer++) {
        in_counts[peer] = sb_alltoallv_count(call->count, call->rank, peer);
        in_offsets[peer] = in_total;
        in_total += in_counts[peer];
        out_counts[peer] = sb_alltoallv_count(call->count, peer, call->rank);
        out_offsets[peer] = out_total;
        out_total += out_counts[peer];
    }
    call->in_counts = in_counts;
    call->in_offsets = in_offsets;
    call->out_counts = out_counts;
    call->out_offsets = out_offsets;
    place->in_bytes = in_total * sluice_dtype_size(call->dtype);
    place->out_bytes = out_total * sluice_dtype_size(call->dtype);
}

void sb_place_init(struct sb_place *place, const struct sb_row *row, bool in_place,
                   struct sluice_comm *comm, int rank, int size, char *first, char *second,
                   size_t *tables)
{
    const struct sb_coll *coll = &sb_colls[row->coll];
    size_t block = (size_t)row->count * sluice_dtype_size(row->dtype);

    *place = (struct sb_place){.call = {.comm = comm,
                                        .rank = rank,
                                        .size = size,
                                        .root = row->root >= 0 ? row->root : 0,
                                        .count = (size_t)row->count,
                                        .dtype = row->dtype,
                                        .op = row->op >= 0 ? (enum sluice_op)row->op : SLUICE_SUM},
                               .coll = coll,
                               .id = row->coll,
                               .in_place = in_place,
                               /* A codec is for numbers. */
                               .op = row->codec != NULL && row->op < 0 ? SLUICE_SUM : row->op,
                               .in = in_place ? second : first,
                               .out = second,
                               .in_bytes = block * (coll->in_blocks ? (size_t)size : 1),
                               .out_bytes = block * (coll->out_blocks ? (size_t)size : 1)};
    if (row->coll == SB_ALL_TO_ALL_V)
        lay_tables(place, tables);
    if (in_place && coll->in_blocks && !coll->out_blocks)
        place->out += (size_t)rank * block;
    if (in_place && coll->out_blocks && !coll->in_blocks)
        place->in += (size_t)rank * block;
    if (coll->root_in && rank != place->call.root)
        place->in_bytes = 0;
    if (coll->root_out && rank != place->call.root)
        place->out_bytes = 0;
    place->call.in = place->in;
    place->call.out = place->out;
}

/* Where everything that the call may touch ends. */
static char *end_of(const struct sb_place *place)
{
    char *in_end = place->in + place->in_bytes, *out_end = place->out + place->out_bytes;

    return place->in_place && in_end > out_end ? in_end : out_end;
}

void sb_place_fill(struct sb_place *place, uint64_t seed)
{
    const struct sb_call *call = &place->call;
    char *start = place->in_place && place->in < place->out ? place->in : place->out;
    size_t esize = sluice_dtype_size(call->dtype);

    /* On ranks whose out is not written, a piece of it all the same: it must stay as it is. */
    memset(start, PATTERN, (size_t)(end_of(place) - start) + SB_FENCE);
    sb_fill(place->in, call->dtype, place->op, seed, call->rank, call->size, 0,
            place->in_bytes / esize);
}

/* A block that rank sent, or its errors. */
static uint64_t check_block(const struct sb_place *place, uint64_t seed, int rank, uint64_t first,
                            size_t out_at, size_t count, struct sb_error *lossy)
{
    const struct sb_call *c = &place->call;
    const char *out = place->out + out_at * sluice_dtype_size(c->dtype);

    if (lossy == NULL)
        return sb_check_copy(out, c->dtype, place->op, seed, rank, c->size, first, count);
    sb_error_copy(out, c->dtype, place->op, seed, rank, c->size, first, count, lossy);
    return 0;
}

/* Blocks that each rank sent to this one. */
static uint64_t check_blocks(const struct sb_place *place, uint64_t seed, struct sb_error *lossy)
{
    const struct sb_call *c = &place->call;
    uint64_t wrong = 0;

    for (int peer = 0; peer < c->size; peer++) {
        size_t count = c->count, out_at = (size_t)peer * c->count, first = 0;

        if (place->id == SB_ALL_TO_ALL)
            first = (size_t)c->rank * c->count;
        if (place->id == SB_ALL_TO_ALL_V) {
            count = c->out_counts[peer];
            out_at = c->out_offsets[peer];
            for (int before = 0; before < c->rank; before++)
                first += sb_alltoallv_count(c->count, peer, before);
        }
        wrong += check_block(place, seed, peer, first, out_at, count, lossy);
    }
    return wrong;
}

static uint64_t check_result(const struct sb_place *place, uint64_t seed, struct sb_error *lossy)
{
    const struct sb_call *c = &place->call;
    int before = (c->rank + c->size - 1) % c->size;
    uint64_t first = place->coll->in_blocks ? (uint64_t)c->rank * c->count : 0;

    if (place->out_bytes == 0)
        return 0;
    switch (place->id) {
    case SB_ALLREDUCE:
    case SB_REDUCE_SCATTER:
    case SB_REDUCE:
        if (lossy == NULL)
            return sb_check_reduce(place->out, c->dtype, c->op, seed, c->size, first, c->count);
        sb_error_reduce(place->out, c->dtype, c->op, seed, c->size, first, c->count, lossy);
        return 0;
    case SB_BROADCAST:
    case SB_SCATTER: return check_block(place, seed, c->root, first, 0, c->count, lossy);
    case SB_SENDRECV: return check_block(place, seed, before, 0, 0, c->count, lossy);
    default: return check_blocks(place, seed, lossy);
    }
}

uint64_t sb_place_check(const struct sb_place *place, uint64_t seed, struct sb_error *lossy)
{
    const struct sb_call *c = &place->call;
    size_t esize = sluice_dtype_size(c->dtype);
    const unsigned char *fence = (const unsigned char *)end_of(place);
    uint64_t wrong = check_result(place, seed, lossy);
    bool torn = false;

    for (int i = 0; i < SB_FENCE; i++)
        torn |= fence[i] != PATTERN;
    wrong += torn;
    if (!place->in_place)
        wrong += sb_check_copy(place->in, c->dtype, place->op, seed, c->rank, c->size, 0,
                               place->in_bytes / esize);
    return wrong;
}

int sb_place_keep(struct sb_place *place)
{
    int count = place->coll->init(&place->call, place->operations);

    place->operation_count = count > 0 ? count : 0;
    return count > 0 ? 0 : count;
}

void sb_place_forget(struct sb_place *place)
{
    for (int i = 0; i < place->operation_count; i++)
        sluice_operation_free(place->operations[i]);
    place->operation_count = 0;
}

static int start_together(const struct sb_place *place, struct sluice_req **reqs)
{
    int err = sluice_group_start();

    for (int i = 0; i < place->operation_count && err == 0; i++)
        err = sluice_start(place->operations[i], reqs != NULL ? &reqs[i] : NULL);
    int end = sluice_group_end();

    return err != 0 ? err : end;
}

int sb_place_start(const struct sb_place *place, struct sluice_req **reqs, int *req_count)
{
    if (place->operation_count == 0)
        return place->coll->start(&place->call, reqs, req_count);
    if (req_count != NULL)
        *req_count = place->operation_count;
    return place->operation_count == 1 ? sluice_start(place->operations[0], reqs)
                                       : start_together(place, reqs);
}
