/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals of an operation: made, and found by tile. */
#include "compress/feedback_state.h"

#include "compress/codec.h"
#include "core/err.h"

#include <stdlib.h>

/* Ordinary memory. */
static int take(void *arg, size_t len, void **out)
{
    (void)arg;
    *out = calloc(1, len);
    return *out != NULL ? 0 : sl_fail(-ENOMEM, "no memory for the residuals of an operation");
}

static void give(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

int sl_code_state_create(const struct sl_code_extent extents[SL_CODE_STAGES],
                         const struct sl_code_memory *memory, struct sl_code_state **out)
{
    static const struct sl_code_memory ordinary = {.take = take, .give = give};
    struct sl_code_state *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return sl_fail(-ENOMEM, "no memory for the residuals of an operation");
    state->memory = memory != NULL ? *memory : ordinary;
    for (unsigned i = 0; i < SL_CODE_STAGES; i++) {
        size_t len = extents[i].count * SL_TILE * sizeof(float);
        void *made = NULL;
        int err = len != 0 ? state->memory.take(state->memory.arg, len, &made) : 0;

        if (err != 0) {
            sl_code_state_destroy(state);
            return err;
        }
        state->extents[i] = extents[i];
        state->residuals[i] = made;
    }
    *out = state;
    return 0;
}

void sl_code_state_destroy(void *arg)
{
    struct sl_code_state *state = arg;

    for (unsigned i = 0; state != NULL && i < SL_CODE_STAGES; i++)
        if (state->residuals[i] != NULL)
            state->memory.give(state->memory.arg, state->residuals[i]);
    free(state);
}

float *sl_code_state_at(const struct sl_code_state *state, unsigned stage, uint64_t tile,
                        uint64_t count)
{
    if (state == NULL || stage >= SL_CODE_STAGES || state->residuals[stage] == NULL)
        return NULL;
    const struct sl_code_extent *extent = &state->extents[stage];

    sl_assert(tile >= extent->first && tile - extent->first < extent->count &&
              count <= (extent->count - (tile - extent->first)) * SL_TILE);
    return state->residuals[stage] + (tile - extent->first) * SL_TILE;
}
