/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals of an operation: made, and found by tile. */
#include "compress/feedback_state.h"

#include "compress/codec.h"
#include "core/err.h"

#include <stdlib.h>

int sl_code_state_create(const struct sl_code_extent extents[SL_CODE_STAGES],
                         struct sl_code_state **out)
{
    struct sl_code_state *state = calloc(1, sizeof(*state));

    for (unsigned i = 0; state != NULL && i < SL_CODE_STAGES; i++) {
        state->extents[i] = extents[i];
        if (extents[i].count == 0)
            continue;
        state->residuals[i] = calloc(extents[i].count * SL_TILE, sizeof(float));
        if (state->residuals[i] == NULL) {
            sl_code_state_destroy(state);
            state = NULL;
        }
    }
    if (state == NULL)
        return sl_fail(-ENOMEM, "no memory for the residuals of an operation");
    *out = state;
    return 0;
}

void sl_code_state_destroy(void *arg)
{
    struct sl_code_state *state = arg;

    for (unsigned i = 0; state != NULL && i < SL_CODE_STAGES; i++)
        free(state->residuals[i]);
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
