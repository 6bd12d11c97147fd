/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals of an operation: made, found by tile, saved and loaded. */
#include "compress/feedback_state.h"

#include "compress/codec.h"
#include "core/err.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static size_t stage_bytes(const struct sl_code_state *state, unsigned stage)
{
    return state->extents[stage].count * SL_TILE * sizeof(float);
}

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

/* Before the residuals, stage after stage. */
struct head {
    char word[8];
    uint32_t mark, turn;
    struct sl_code_extent extents[SL_CODE_STAGES];
};

static const char word[8] = "SLresid1";

size_t sl_code_state_size(const struct sl_code_state *state)
{
    size_t size = sizeof(struct head);

    for (unsigned i = 0; i < SL_CODE_STAGES; i++)
        size += stage_bytes(state, i);
    return size;
}

void sl_code_state_save(const struct sl_code_state *state, uint32_t mark, uint32_t turn, void *out)
{
    struct head head = {.mark = mark, .turn = turn};
    char *at = (char *)out + sizeof(head);

    memcpy(head.word, word, sizeof(word));
    memcpy(head.extents, state->extents, sizeof(head.extents));
    memcpy(out, &head, sizeof(head));
    for (unsigned i = 0; i < SL_CODE_STAGES; i++) {
        if (state->residuals[i] != NULL)
            memcpy(at, state->residuals[i], stage_bytes(state, i));
        at += stage_bytes(state, i);
    }
}

/* The head, if the bytes are such a state, whole. */
static int read_head(const void *in, size_t len, struct head *out)
{
    size_t room = (len - sizeof(*out)) / (SL_TILE * sizeof(float)), tiles = 0;

    if (len < sizeof(*out))
        return sl_fail(-EBADMSG, "%zu bytes are too few for residuals", len);
    memcpy(out, in, sizeof(*out));
    if (memcmp(out->word, word, sizeof(word)) != 0)
        return sl_fail(-EBADMSG, "these bytes are no residuals that this version knows");
    for (unsigned i = 0; i < SL_CODE_STAGES; i++) {
        if (out->extents[i].count > room - tiles)
            return sl_fail(-EBADMSG, "%zu bytes are too few for the residuals they tell of", len);
        tiles += out->extents[i].count;
    }
    return len == sizeof(*out) + tiles * SL_TILE * sizeof(float)
               ? 0
               : sl_fail(-EBADMSG, "%zu bytes are too many for the residuals they tell of", len);
}

static bool same(const struct sl_code_extent *a, const struct sl_code_extent *b)
{
    return a->first == b->first && a->count == b->count;
}

int sl_code_state_load(struct sl_code_state *state, uint32_t mark, const void *in, size_t len,
                       uint32_t *turn)
{
    struct head head;
    const char *at = (const char *)in + sizeof(head);
    int err = read_head(in, len, &head);

    if (err != 0)
        return err;
    if (head.mark != mark || !same(&head.extents[0], &state->extents[0]))
        return sl_fail(-EINVAL, "these residuals are those of another codec or of other elements");
    for (unsigned i = 0; i < SL_CODE_STAGES; i++) {
        if (state->residuals[i] != NULL && same(&head.extents[i], &state->extents[i]))
            memcpy(state->residuals[i], at, stage_bytes(state, i));
        else if (state->residuals[i] != NULL)
            memset(state->residuals[i], 0, stage_bytes(state, i));
        at += head.extents[i].count * SL_TILE * sizeof(float);
    }
    *turn = head.turn;
    return 0;
}
