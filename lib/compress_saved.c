/* SPDX-License-Identifier: Apache-2.0 */
/* What a persistent operation keeps for its encodings, as bytes for a checkpoint. */
#include "compress/runner.h"
#include "lib/args.h"
#include "lib/compress.h"

#include <sluice/compress.h>

/* -EINVAL where that is nothing, or changes just now. */
static int check_kept(const struct sluice_operation *operation)
{
    if (operation->plan->coding == NULL || operation->state == NULL)
        return sl_fail(-EINVAL, "this operation keeps nothing: it has no feedback=on");
    if (operation->plan->busy != 0)
        return sl_fail(-EINVAL, "this %s was started and has not ended",
                       sl_coll_name(operation->plan->call.coll));
    return 0;
}

static int save(const struct sluice_operation *operation, void *out, size_t *size)
{
    const struct sl_code_state *state = operation->state;
    size_t needed = sl_code_state_size(state), room = *size;

    *size = needed;
    if (out == NULL)
        return 0;
    if (room < needed)
        return sl_fail(-EINVAL, "what the operation keeps has %zu bytes, and there is room for %zu",
                       needed, room);
    sl_code_state_save(state, operation->plan->shape.code->mark, operation->turn, out);
    return 0;
}

int sluice_operation_save(struct sluice_operation *operation, void *out, size_t *size)
{
    int err = sl_check_operation(operation);

    if (err == 0 && size == NULL)
        err = sl_fail(-EINVAL, "there is no place for the size");
    if (err != 0)
        return err;
    sl_enter(operation->comm);
    err = check_kept(operation);
    err = err ?: save(operation, out, size);
    sl_leave(operation->comm);
    return err;
}

int sluice_operation_load(struct sluice_operation *operation, const void *in, size_t size)
{
    int err = sl_check_operation(operation);

    if (err == 0 && in == NULL)
        err = sl_fail(-EINVAL, "the bytes are NULL");
    if (err != 0)
        return err;
    sl_enter(operation->comm);
    err = check_kept(operation);
    err = err
              ?: sl_code_state_load(operation->state, operation->plan->shape.code->mark, in, size,
                                    &operation->turn);
    sl_leave(operation->comm);
    return err;
}
