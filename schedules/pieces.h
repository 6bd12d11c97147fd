/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of encodings under way, and the places of the wire that they use in turns. */
#ifndef SL_SCHEDULES_PIECES_H
#define SL_SCHEDULES_PIECES_H

#include "schedules/build.h"

#define SL_PIECE_MOST 65536  /* elements: 256 KiB of f32, which stay in a second-level cache */
#define SL_PIECE_LONG 262144 /* of what has pieces enough to overlap, if all ranks send to all */
#define SL_PIECES_ENOUGH 16
#define SL_PIECE_LEAST 16384 /* so much is worth a message of its own */
#define SL_PIECES_MOST 1024  /* of what is cut: limits the steps */

/* Elements of a piece of so many: whole tiles, a `parts`-th of them or so, so that they overlap. */
static inline uint64_t sl_code_piece_within(const struct sl_shape *shape, uint64_t count,
                                            uint64_t parts, uint64_t most)
{
    uint64_t piece = sl_ceil_div(count, parts), tile = shape->code->tile;

    piece = sl_min(sl_max(piece, SL_PIECE_LEAST), most);
    if (shape->chunk != 0)
        piece = shape->chunk;
    piece = sl_max(piece, sl_ceil_div(count, SL_PIECES_MOST));
    return sl_min(sl_ceil_div(piece, tile), sl_ceil_div(count, tile)) * tile;
}

/* Where a piece goes through several ranks, which wait for it in turn. */
static inline uint64_t sl_code_piece(const struct sl_shape *shape, uint64_t count, uint64_t parts)
{
    return sl_code_piece_within(shape, count, parts, SL_PIECE_MOST);
}

/* Rounds of pieces under way, with so many places of the wire each: as many as keep the link busy
 * while a rank waits for its processor, as on a busy host, or for an answer through full queues. At
 * 1 Gbit/s these bytes take 17 ms. */
#define SL_AHEAD_LEAST 4
#define SL_AHEAD_MOST 16
#define SL_AHEAD_BYTES ((uint64_t)2 << 20)

/* Where all ranks send to all: pieces of much grow, as each costs messages, and on a GPU a start
 * of a kernel, which takes 3 to 7 us. Not so far that the least number of rounds is more than a
 * port's queue takes: four hosts that send to each at 100 Mbit/s lost packets, and a quarter of the
 * time. */
static inline uint64_t sl_code_piece_for_all(const struct sl_shape *shape, uint64_t count,
                                             uint64_t parts)
{
    uint64_t most = sl_min(sl_max(count / SL_PIECES_ENOUGH, SL_PIECE_MOST), SL_PIECE_LONG);

    while (most > SL_PIECE_MOST &&
           SL_AHEAD_LEAST * (shape->size - 1) * shape->code->bytes(shape->code, most) >
               SL_AHEAD_BYTES)
        most = sl_max(most / 2, SL_PIECE_MOST);
    return sl_code_piece_within(shape, count, parts, most);
}

/* Elements of a shard of a vector: whole tiles, as each rank's. */
static inline uint64_t sl_code_shard(const struct sl_shape *shape)
{
    uint64_t tile = shape->code->tile;

    return sl_ceil_div(sl_ceil_div(shape->count, shape->size), tile) * tile;
}

static inline uint64_t sl_code_ahead(const struct sl_shape *shape, uint64_t piece, uint64_t places)
{
    uint64_t ahead = SL_AHEAD_BYTES / (places * shape->code->bytes(shape->code, piece));

    return sl_min(sl_max(ahead, SL_AHEAD_LEAST), SL_AHEAD_MOST);
}

/* A place of the wire. */
struct sl_slot {
    struct sl_wire wire;
    uint32_t there;  /* step that put bytes there */
    uint32_t reader; /* step that read them last; SL_NO_DEP: none yet */
};

/* Takes a place for so many bytes for each of the slots. */
static inline void sl_slots_take(struct sl_schedule *s, struct sl_slot *slots, uint64_t count,
                                 uint64_t len)
{
    for (uint64_t i = 0; i < count; i++)
        slots[i].wire = sl_wire_take(s, len);
}

/* Makes the slot one for so many elements. */
static inline struct sl_wire *sl_slot_renew(struct sl_slot *slot, const struct sl_code *code,
                                            uint64_t count)
{
    slot->wire.len = code->bytes(code, count);
    slot->wire.from = SL_NO_DEP;
    return &slot->wire;
}

#endif
