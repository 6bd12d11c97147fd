/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What persistent operations keep for their encodings, as bytes for a checkpoint: the parts of
 * compress/state.h. Elements are numbered as in what a rank gives, from the operation's first on.
 */
#include "compress/runner.h"
#include "compress/state.h"
#include "lib/args.h"
#include "lib/compress.h"

#include <sluice/compress.h>

#include <stdlib.h>

/* Of each stage of encodings. */
static const enum sl_state_part_kind kinds[SL_CODE_STAGES] = {
    SL_STATE_RESIDUAL, SL_STATE_SHARD_RESIDUAL, SL_STATE_RESUM_RESIDUAL};

struct list {
    struct sl_state_part *parts; /* owned */
    size_t count, room;
};

static int add(struct list *list, const struct sl_state_part *part)
{
    if (list->count == list->room) {
        size_t room = 2 * list->room + 8;
        struct sl_state_part *parts = realloc(list->parts, room * sizeof(*parts));

        if (parts == NULL)
            return sl_fail(-ENOMEM, "no memory to list what operations keep");
        list->parts = parts;
        list->room = room;
    }
    list->parts[list->count++] = *part;
    return 0;
}

static uint64_t less_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t elements_of(const struct sluice_operation *operation)
{
    const struct sl_call *call = &operation->plan->call;
    bool blocks = call->coll == SL_REDUCE_SCATTER || call->coll == SL_ALL_TO_ALL;

    return call->count * (blocks ? operation->comm->size : 1);
}

/* Elements side by side in the memory of residuals: a block of a reduce_scatter begins at a tile.
 */
static uint64_t run_of(const struct sluice_operation *operation)
{
    const struct sl_call *call = &operation->plan->call;

    return call->coll == SL_REDUCE_SCATTER && call->count % SL_TILE != 0 ? call->count
                                                                         : elements_of(operation);
}

static int add_residuals(struct list *list, const struct sluice_operation *operation,
                         unsigned stage)
{
    const struct sl_code_state *state = operation->state;
    uint64_t run = run_of(operation), tiles = (run + SL_TILE - 1) / SL_TILE;
    uint64_t tile = state->extents[stage].first, end = tile + state->extents[stage].count;
    int err = 0;

    for (uint64_t next; tile < end && err == 0; tile = next) {
        uint64_t at = tile % tiles * SL_TILE, count;

        next = less_of(tile - tile % tiles + tiles, end);
        count = less_of((next - tile) * SL_TILE, run - at);
        err = add(list, &(struct sl_state_part){
                            .id = operation->state_id,
                            .first = operation->state_first + tile / tiles * run + at,
                            .kind = kinds[stage],
                            .data = sl_code_state_at(state, stage, tile, count),
                            .len = count * sizeof(float),
                            .mark = operation->plan->shape.code->mark,
                        });
    }
    return err;
}

static int add_operation(struct list *list, struct sluice_operation *operation)
{
    int err;

    if (operation->plan->busy != 0)
        return sl_fail(-EINVAL, "this %s was started and has not ended",
                       sl_coll_name(operation->plan->call.coll));
    if (operation->plan->coding == NULL)
        return 0;
    err = add(list, &(struct sl_state_part){
                        .id = operation->state_id,
                        .first = operation->state_first,
                        .kind = SL_STATE_TURN,
                        .data = &operation->turn,
                        .len = sizeof(operation->turn),
                        .count = elements_of(operation),
                        .mark = operation->plan->shape.code->mark,
                    });
    for (unsigned stage = 0; stage < SL_CODE_STAGES && operation->state != NULL && err == 0;
         stage++)
        err = add_residuals(list, operation, stage);
    return err;
}

static int check_apart(const struct sluice_operation *a, const struct sluice_operation *b)
{
    const struct sluice_operation *later = a->state_first > b->state_first ? a : b;
    const struct sluice_operation *first = later == a ? b : a;

    if (a->state_id != b->state_id || elements_of(later) == 0 ||
        later->state_first - first->state_first >= elements_of(first))
        return 0;
    return sl_fail(
        -EINVAL,
        "two operations have elements from number %llu on of what has id %llu: give each "
        "its own by sluice_operation_set_state_id()",
        (unsigned long long)later->state_first, (unsigned long long)a->state_id);
}

static int check_operations(struct sluice_operation *const *operations, size_t count)
{
    int err = count > 0 && operations != NULL ? 0 : sl_fail(-EINVAL, "there is no operation");

    for (size_t i = 0; i < count && err == 0; i++) {
        err = sl_check_operation(operations[i]);
        if (err == 0 && operations[i]->comm != operations[0]->comm)
            err = sl_fail(-EINVAL, "operations of several communicators are saved apart");
        for (size_t j = 0; j < i && err == 0; j++)
            err = check_apart(operations[i], operations[j]);
    }
    return err;
}

static int list_all(struct sluice_operation *const *operations, size_t count, struct list *list)
{
    int err = 0;

    for (size_t i = 0; i < count && err == 0; i++)
        err = add_operation(list, operations[i]);
    if (err == 0 && list->count == 0)
        err = sl_fail(-EINVAL, "this operation keeps nothing: it is not compressed");
    return err;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const struct sluice_operation *operation)
{
    uint64_t hash = mix(mix(operation->state_id, operation->state_first), elements_of(operation));

    for (const char *c = operation->plan->schedule.algo; *c != '\0'; c++)
        hash = mix(hash, (unsigned char)*c);
    return hash;
}

/* Another number where the owners of sums are others: with other ranks, hosts, buckets or
 * schedules. The order of operations does not count. */
static uint32_t owners_of(struct sluice_operation *const *operations, size_t count)
{
    const struct sluice_comm *comm = operations[0]->comm;
    uint64_t hash = mix(comm->size, comm->host_count), cuts = 0;

    for (uint32_t i = 0; i < comm->size && comm->host_count > 1; i++)
        hash = mix(hash, comm->host[i]);
    for (size_t i = 0; i < count; i++)
        if (operations[i]->plan->coding != NULL)
            cuts += hash_of(operations[i]);
    return (uint32_t)(mix(hash, cuts) >> 32);
}

static int save(struct sluice_operation *const *operations, size_t count, void *out, size_t *size)
{
    struct list list = {0};
    int err = list_all(operations, count, &list);
    size_t needed = sl_state_size(list.parts, list.count), room = *size;

    if (err == 0)
        *size = needed;
    if (err == 0 && out != NULL && room < needed)
        err =
            sl_fail(-EINVAL, "what is kept has %zu bytes, and there is room for %zu", needed, room);
    if (err == 0 && out != NULL)
        sl_state_save(list.parts, list.count, owners_of(operations, count), 0, out);
    free(list.parts);
    return err;
}

int sluice_operations_save(struct sluice_operation *const *operations, size_t count, void *out,
                           size_t *size)
{
    int err = check_operations(operations, count);

    if (err == 0 && size == NULL)
        err = sl_fail(-EINVAL, "there is no place for the size");
    if (err != 0)
        return err;
    sl_enter(operations[0]->comm);
    err = save(operations, count, out, size);
    sl_leave(operations[0]->comm);
    return err;
}

int sluice_operations_load(struct sluice_operation *const *operations, size_t count, const void *in,
                           size_t size)
{
    struct list list = {0};
    int err = check_operations(operations, count);

    if (err == 0 && in == NULL)
        err = sl_fail(-EINVAL, "the bytes are NULL");
    if (err != 0)
        return err;
    sl_enter(operations[0]->comm);
    err = list_all(operations, count, &list);
    err =
        err ?: sl_state_load(list.parts, list.count, owners_of(operations, count), in, size, NULL);
    sl_leave(operations[0]->comm);
    free(list.parts);
    return err;
}

int sluice_operation_save(struct sluice_operation *operation, void *out, size_t *size)
{
    return sluice_operations_save(&operation, 1, out, size);
}

int sluice_operation_load(struct sluice_operation *operation, const void *in, size_t size)
{
    return sluice_operations_load(&operation, 1, in, size);
}

int sluice_operation_set_state_id(struct sluice_operation *operation, uint64_t id, uint64_t first)
{
    int err = sl_check_operation(operation);

    if (err == 0 && first > UINT64_MAX - elements_of(operation))
        err = sl_fail(-EINVAL, "elements from number %llu on have no numbers",
                      (unsigned long long)first);
    if (err != 0)
        return err;
    operation->state_id = id;
    operation->state_first = first;
    return 0;
}
