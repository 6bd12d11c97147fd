/* SPDX-License-Identifier: Apache-2.0 */
/* The table of collectives that sluice-bench can run. */
#include "colls.h"

#include <ctype.h>
#include <string.h>

static double ring_factor(int size)
{
    return 2.0 * (size - 1) / size;
}

static double share_factor(int size)
{
    return (double)(size - 1) / size;
}

/* One call, one request: the way of nearly all. The rest are the call's own arguments. */
#define START(name, ...)                                                                           \
    static int start_##name(const struct sb_call *c, struct sluice_req **reqs, int *req_count)     \
    {                                                                                              \
        if (req_count != NULL)                                                                     \
            *req_count = 1;                                                                        \
        return sluice_##name(c->comm, ##__VA_ARGS__, reqs);                                        \
    }                                                                                              \
    static int init_##name(const struct sb_call *c, struct sluice_operation **operations)          \
    {                                                                                              \
        int err = sluice_##name##_init(c->comm, ##__VA_ARGS__, operations);                        \
                                                                                                   \
        return err != 0 ? err : 1;                                                                 \
    }

START(allreduce, c->in, c->out, c->count, c->dtype, c->op)
START(all_gather, c->in, c->out, c->count, c->dtype)
START(reduce_scatter, c->in, c->out, c->count, c->dtype, c->op)
START(broadcast, c->in, c->out, c->count, c->dtype, c->root)
START(reduce, c->in, c->out, c->count, c->dtype, c->op, c->root)
START(gather, c->in, c->out, c->count, c->dtype, c->root)
START(scatter, c->in, c->out, c->count, c->dtype, c->root)
START(all_to_all, c->in, c->out, c->count, c->dtype)
START(all_to_all_v, c->in, c->in_counts, c->in_offsets, c->out, c->out_counts, c->out_offsets,
      c->dtype)
START(barrier)

/* Everybody sends to the next rank and receives from the one before. */
static int start_sendrecv(const struct sb_call *c, struct sluice_req **reqs, int *req_count)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    int err = sluice_group_start(), end;

    if (err != 0)
        return err;
    if (reqs != NULL)
        reqs[0] = reqs[1] = NULL;
    err = sluice_send(c->comm, c->in, c->count, c->dtype, next, reqs);
    if (err == 0)
        err = sluice_recv(c->comm, c->out, c->count, c->dtype, before,
                          reqs != NULL ? &reqs[1] : NULL);
    if (req_count != NULL)
        *req_count = 2;
    end = sluice_group_end();
    return err != 0 ? err : end;
}

static int init_sendrecv(const struct sb_call *c, struct sluice_operation **operations)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    int err = sluice_send_init(c->comm, c->in, c->count, c->dtype, next, &operations[0]);

    if (err == 0)
        err = sluice_recv_init(c->comm, c->out, c->count, c->dtype, before, &operations[1]);
    if (err == 0)
        return 2;
    sluice_operation_free(operations[0]);
    return err;
}

const struct sb_coll sb_colls[SB_COLL_COUNT] = {
    [SB_ALLREDUCE] = {.coll = SL_ALLREDUCE,
                      .name = "allreduce",
                      .aliases = "all_reduce",
                      .reduces = true,
                      .sized = true,
                      .in_place = true,
                      .bus_factor = ring_factor,
                      .start = start_allreduce,
                      .init = init_allreduce},
    [SB_ALL_GATHER] = {.coll = SL_ALL_GATHER,
                       .name = "all_gather",
                       .aliases = "allgather",
                       .sized = true,
                       .in_place = true,
                       .out_blocks = true,
                       .bus_factor = share_factor,
                       .start = start_all_gather,
                       .init = init_all_gather},
    [SB_REDUCE_SCATTER] = {.coll = SL_REDUCE_SCATTER,
                           .name = "reduce_scatter",
                           .aliases = "reducescatter",
                           .reduces = true,
                           .sized = true,
                           .in_place = true,
                           .in_blocks = true,
                           .bus_factor = share_factor,
                           .start = start_reduce_scatter,
                           .init = init_reduce_scatter},
    [SB_BROADCAST] = {.coll = SL_BROADCAST,
                      .name = "broadcast",
                      .aliases = "bcast",
                      .rooted = true,
                      .sized = true,
                      .in_place = true,
                      .root_in = true,
                      .start = start_broadcast,
                      .init = init_broadcast},
    [SB_REDUCE] = {.coll = SL_REDUCE,
                   .name = "reduce",
                   .aliases = "",
                   .reduces = true,
                   .rooted = true,
                   .sized = true,
                   .in_place = true,
                   .root_out = true,
                   .start = start_reduce,
                   .init = init_reduce},
    [SB_GATHER] = {.coll = SL_GATHER,
                   .name = "gather",
                   .aliases = "",
                   .rooted = true,
                   .sized = true,
                   .in_place = true,
                   .out_blocks = true,
                   .root_out = true,
                   .bus_factor = share_factor,
                   .start = start_gather,
                   .init = init_gather},
    [SB_SCATTER] = {.coll = SL_SCATTER,
                    .name = "scatter",
                    .aliases = "",
                    .rooted = true,
                    .sized = true,
                    .in_place = true,
                    .in_blocks = true,
                    .root_in = true,
                    .bus_factor = share_factor,
                    .start = start_scatter,
                    .init = init_scatter},
    [SB_ALL_TO_ALL] = {.coll = SL_ALL_TO_ALL,
                       .name = "alltoall",
                       .aliases = "all_to_all",
                       .sized = true,
                       .in_place = true,
                       .in_blocks = true,
                       .out_blocks = true,
                       .bus_factor = share_factor,
                       .start = start_all_to_all,
                       .init = init_all_to_all},
    [SB_ALL_TO_ALL_V] = {.coll = SL_ALL_TO_ALL_V,
                         .name = "alltoallv",
                         .aliases = "all_to_all_v",
                         .sized = true,
                         .in_blocks = true,
                         .out_blocks = true,
                         .bus_factor = share_factor,
                         .start = start_all_to_all_v,
                         .init = init_all_to_all_v},
    [SB_BARRIER] = {.coll = SL_BARRIER,
                    .name = "barrier",
                    .aliases = "",
                    .start = start_barrier,
                    .init = init_barrier},
    [SB_SENDRECV] = {.coll = SL_SEND,
                     .name = "sendrecv",
                     .aliases = "send_recv",
                     .sized = true,
                     .start = start_sendrecv,
                     .init = init_sendrecv},
};

static bool same_name(const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len != b_len)
        return false;
    for (size_t i = 0; i < a_len; i++) {
        char c = a[i] == '-' ? '_' : (char)tolower((unsigned char)a[i]);

        if (c != b[i])
            return false;
    }
    return true;
}

int sb_coll_find(const char *name, size_t len)
{
    for (int i = 0; i < SB_COLL_COUNT; i++) {
        const char *alias = sb_colls[i].aliases;

        if (same_name(name, len, sb_colls[i].name, strlen(sb_colls[i].name)))
            return i;
        while (*alias != '\0') {
            size_t alias_len = strcspn(alias, " ");

            if (same_name(name, len, alias, alias_len))
                return i;
            alias += alias_len;
            alias += *alias == ' ';
        }
    }
    return -1;
}

size_t sb_coll_count(const struct sb_coll *coll, uint64_t bytes, size_t esize, int size)
{
    uint64_t count = bytes / esize;

    if (!coll->sized)
        return 0;
    if (coll->in_blocks || coll->out_blocks)
        count /= (uint64_t)size;
    return count > 0 ? (size_t)count : 1;
}

uint64_t sb_coll_bytes(const struct sb_coll *coll, size_t count, size_t esize, int size)
{
    uint64_t blocks = coll->in_blocks || coll->out_blocks ? (uint64_t)size : 1;

    return (uint64_t)count * esize * blocks;
}

size_t sb_alltoallv_count(size_t count, int from, int to)
{
    /* Three sizes in turn, so that no two neighbours are equal and the total stays near count. */
    switch ((from + 2 * to) % 3) {
    case 0: return count - count / 4;
    case 1: return count;
    default: return count + count / 4;
    }
}
