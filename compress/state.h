/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of senders from step to step, saved to bytes and loaded again: residuals of error feedback,
 * thresholds, factors of low rank.
 *
 * State is memory of the caller, described by parts. A part is known by its kind and an id that
 * outlives the process (a parameter's number, not its address). Residuals belong to elements: of an
 * id they may be saved in some pieces and loaded in others, as when buckets are cut anew. All else
 * is loaded whole or not at all.
 *
 * What another number of ranks has saved is taken, but for the residuals of shards, which no rank
 * has any more: those become zeros.
 */
#ifndef SL_COMPRESS_STATE_H
#define SL_COMPRESS_STATE_H

#include <stddef.h>
#include <stdint.h>

/* Numbers in files: never change one. */
enum sl_state_kind {
    SL_STATE_RESIDUAL = 1,       /* of own elements, f32: (id, first) to (id, first + len / 4) */
    SL_STATE_SHARD_RESIDUAL = 2, /* of the sums of a shard, f32, likewise */
    SL_STATE_THRESHOLD = 3,      /* a struct sl_topk_state */
    SL_STATE_FACTOR = 4          /* Q of low rank, f32 */
};

struct sl_state_part {
    uint64_t id;
    uint64_t first; /* residuals: number of the first element within the id; otherwise 0 */
    uint32_t kind;  /* enum sl_state_kind */
    void *data;
    size_t len; /* bytes, a multiple of 4 */
};

/* Bytes of parts when they are saved. */
size_t sl_state_size(const struct sl_state_part *parts, size_t count);

/* ranks: of the communicator. step: whatever number the caller wants back. out: size() bytes,
 * aligned to 8. */
void sl_state_save(const struct sl_state_part *parts, size_t count, uint32_t ranks, uint64_t step,
                   void *out);

/*
 * Fills all parts from bytes, aligned to 8, that sl_state_save() made. -EBADMSG and a sentence,
 * with nothing changed, for bytes that are damaged, of another version, or lack an element of a
 * part. -EINVAL: saved is what no part asks for, and state is not dropped in silence. step may be
 * NULL.
 */
int sl_state_load(const struct sl_state_part *parts, size_t count, uint32_t ranks, const void *in,
                  size_t len, uint64_t *step);

#endif
