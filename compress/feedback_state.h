/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operation keeps for error feedback: of each stage of its encodings, what the codec has
 * lost of each element so far, to be added to the next ones.
 */
#ifndef SL_COMPRESS_FEEDBACK_STATE_H
#define SL_COMPRESS_FEEDBACK_STATE_H

#include <stddef.h>
#include <stdint.h>

#define SL_CODE_STAGES 3

/* Tiles that a stage encodes; count 0: none. */
struct sl_code_extent {
    uint64_t first, count;
};

/* Where residuals lie, if not in ordinary memory: in such as a GPU reaches, too. */
struct sl_code_memory {
    /* All 0. -ENOMEM, -EIO, with a sentence. */
    int (*take)(void *arg, size_t len, void **out);
    void (*give)(void *arg, void *memory);
    void *arg;
};

struct sl_code_state {
    struct sl_code_extent extents[SL_CODE_STAGES];
    float *residuals[SL_CODE_STAGES]; /* of the extent's elements; NULL: none */
    struct sl_code_memory memory;
};

/* All residuals 0. memory NULL: ordinary; what it refers to outlives the state. -ENOMEM, or what
 * memory->take() returned. */
int sl_code_state_create(const struct sl_code_extent extents[SL_CODE_STAGES],
                         const struct sl_code_memory *memory, struct sl_code_state **out);
/* Takes NULL. Of this type, so that it may stand for the destructor of any state. */
void sl_code_state_destroy(void *state);

/* Of count elements from that tile on; NULL: the stage keeps none. */
float *sl_code_state_at(const struct sl_code_state *state, unsigned stage, uint64_t tile,
                        uint64_t count);

#endif
