/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of senders from step to step, saved to bytes and loaded again: residuals of error feedback,
 * thresholds, factors of low rank.
 *
 * State is memory of the caller, described by parts. A part is known by its kind and an id that
 * outlives the process (a parameter's number, not its address). Residuals belong to elements: of an
 * id they may be saved in some pieces and loaded in others, as when buckets are cut anew; and so
 * may the number of their encodings. All else is loaded whole or not at all.
 *
 * What was saved while shards had other owners, as with another number of ranks, is taken, but for
 * the residuals of shards, which no rank has any more: those become zeros. And so do residuals of
 * own elements where one of both has none at all, as another schedule does not encode them, if they
 * are known by how often they were encoded.
 *
 * Bytes may lie anywhere, aligned or not.
 */
#ifndef SL_COMPRESS_STATE_H
#define SL_COMPRESS_STATE_H

#include <stddef.h>
#include <stdint.h>

/* Numbers in files: never change one. */
enum sl_state_part_kind {
    SL_STATE_RESIDUAL = 1,       /* of own elements, f32: (id, first) to (id, first + len / 4) */
    SL_STATE_SHARD_RESIDUAL = 2, /* of the sums of a shard, f32, likewise */
    SL_STATE_THRESHOLD = 3,      /* a struct sl_topk_state */
    SL_STATE_FACTOR = 4,         /* Q of low rank, f32 */
    SL_STATE_RESUM_RESIDUAL = 5, /* of the sums of such sums, f32, as those of a shard */
    SL_STATE_TURN = 6 /* a uint32_t: how often `count` elements from first on were encoded.
                                    Of several pieces, what was encoded most often counts */
};

struct sl_state_part {
    uint64_t id;
    uint64_t first; /* number of the first element within the id; 0 of what is loaded whole */
    uint32_t kind;  /* enum sl_state_part_kind */
    void *data;
    size_t len;     /* bytes, a multiple of 4 */
    uint64_t count; /* SL_STATE_TURN alone: elements */
    uint32_t mark;  /* of the codec (core/code.h), or 0: what has another one is refused */
};

/* Bytes of parts when they are saved. */
size_t sl_state_size(const struct sl_state_part *parts, size_t count);

/* ranks: of the communicator, or any number that is another one once shards have other owners.
 * step: whatever number the caller wants back. out: size() bytes. */
void sl_state_save(const struct sl_state_part *parts, size_t count, uint32_t ranks, uint64_t step,
                   void *out);

/*
 * Fills all parts from bytes that sl_state_save() made. -EBADMSG and a sentence, with nothing
 * changed, for bytes that are damaged, of another version, or lack an element of a part. -EINVAL:
 * they are of another codec, or saved is what no part asks for, and state is not dropped in
 * silence. -ENOMEM: to list what is saved. step may be NULL.
 */
int sl_state_load(const struct sl_state_part *parts, size_t count, uint32_t ranks, const void *in,
                  size_t len, uint64_t *step);

#endif
