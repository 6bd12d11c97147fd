/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's groups of one thread. The real group is always opened too, so that calls that pass go
 * straight to it.
 *
 * Calls that the engine takes are put on their streams before NCCL's own of the same group, on
 * every rank: which calls those are follows from facts that are the same on all ranks, call by
 * call, so no rank can wait with one of ours behind one of NCCL's that waits, at another rank,
 * behind one of ours. (To pass a whole group because of one call in it would not be safe: ranks may
 * see different calls in it, as with sends.)
 */
#include "tools/preload/nccl/group.h"

#include "tools/preload/nccl/calls.h"
#include "tools/preload/nccl/next.h"

#include <stdlib.h>

struct queued {
    struct shim_comm *comm; /* or NULL: */
    struct nccl_comm **made;
    struct shim_op op;
};

static _Thread_local struct {
    int depth;
    struct queued *items;
    size_t count, room;
} group;

static enum nccl_result queue(const struct queued *item)
{
    if (group.count == group.room) {
        size_t room = group.room == 0 ? 16 : 2 * group.room;
        struct queued *items = realloc(group.items, room * sizeof(*items));

        if (items == NULL)
            return NCCL_SYSTEM_ERROR;
        group.items = items;
        group.room = room;
    }
    group.items[group.count++] = *item;
    return NCCL_SUCCESS;
}

enum nccl_result shim_group_post(struct shim_comm *comm, const struct shim_op *op)
{
    if (group.depth > 0)
        return queue(&(struct queued){.comm = comm, .op = *op});
    return shim_comm_post(comm, op);
}

/* The program hears of an engine that failed from the communicator's state. */
static void start(struct nccl_comm *real, enum nccl_result result)
{
    if (real != NULL && (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS))
        shim_comm_start(real, result == NCCL_SUCCESS);
}

enum nccl_result shim_group_made(struct nccl_comm **out, enum nccl_result result)
{
    if (out == NULL || (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS))
        return result;
    if (group.depth > 0)
        return queue(&(struct queued){.made = out}) == NCCL_SUCCESS ? result : NCCL_SYSTEM_ERROR;
    start(*out, result);
    return result;
}

enum nccl_result shim_GroupStart(void)
{
    enum nccl_result result = nccl.GroupStart();

    if (result == NCCL_SUCCESS)
        group.depth++;
    return result;
}

enum nccl_result shim_GroupEnd(void)
{
    enum nccl_result result, first = NCCL_SUCCESS;
    size_t count = group.count;

    if (group.depth == 0 || --group.depth > 0)
        return nccl.GroupEnd();
    group.count = 0;
    for (size_t i = 0; i < count; i++) {
        struct queued *item = &group.items[i];

        result = item->comm != NULL ? shim_comm_post(item->comm, &item->op) : NCCL_SUCCESS;
        if (first == NCCL_SUCCESS)
            first = result;
    }
    result = nccl.GroupEnd();
    /* All are started before any is waited for: ranks of one process need each other. */
    for (size_t i = 0; i < count; i++)
        if (group.items[i].comm == NULL)
            start(*group.items[i].made, result == NCCL_SUCCESS ? NCCL_IN_PROGRESS : result);
    for (size_t i = 0; i < count && result == NCCL_SUCCESS; i++)
        if (group.items[i].comm == NULL)
            shim_comm_block(*group.items[i].made);
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? (first != NCCL_SUCCESS ? first : result)
               : result;
}
