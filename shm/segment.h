/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a pair of processes shares: its layout, how it is made and how it is adopted.
 *
 * A segment holds two rings, one each way. A ring is a row of cells, one cache line each, and room
 * for bytes:
 *
 *     cells   | head tag 48 bytes | head tag len off piece | ...        written by the sender
 *     room    | ....piece....|....piece....|                            written by the sender
 *     taken   | number of cells that the receiver is through with |     written by the receiver
 *     offer   | may large messages be lent instead? |                   written by the receiver
 *
 * A message of up to SHM_INLINE_MAX bytes lies in its cell: flag, tag and bytes cross in one
 * transfer of one line. A longer one goes in pieces through the room, a cell each, so that the
 * receiver consumes piece k while the sender copies piece k + 1. The room is given back with the
 * cells, in order: the sender remembers where each cell's piece ended.
 *
 * The head, from its low end: the low half of the cell's number + 1 (16 bits), the kind (8), the
 * length of an inline message (8), the channel (32). Cells of all channels follow each other in one
 * order, and those of one message stand together.
 *
 * Trust: each side keeps its own positions in private memory. The receiver checks off and
 * piece of every cell against bounds; the sender checks that `taken` is between its last value and
 * what was sent. So a peer that scribbles over the segment can damage messages, nothing else.
 */
#ifndef SL_SHM_SEGMENT_H
#define SL_SHM_SEGMENT_H

#include "core/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_INLINE_MAX 48

enum shm_cell_kind {
    SHM_CELL_INLINE = 1, /* a whole message, in the cell */
    SHM_CELL_FIRST,      /* the first piece of one */
    SHM_CELL_MORE,       /* the next piece */
    SHM_CELL_LENT,       /* a whole message, in the sender's memory: large.c */
    SHM_CELL_WITHDRAWN,  /* one that was lent: its sender has its memory back */
    SHM_CELL_CLOSE,      /* the channel is closed, and a message of it under way ends here */
};

/* Why, in the place of the inline length. */
enum shm_withdrawn {
    SHM_WITHDRAWN_CHANNEL, /* its channel was closed */
    SHM_WITHDRAWN_ALL,     /* its endpoint is at its end */
};

struct shm_cell {
    /* Written last (release), so that a reader of the number sees the rest. */
    _Atomic uint64_t head;
    uint64_t tag;
    union {
        uint8_t bytes[SHM_INLINE_MAX];
        struct {
            uint64_t len; /* of the message */
            union {
                struct {
                    uint32_t off;   /* of the piece, in the room */
                    uint32_t piece; /* bytes */
                };
                uint64_t addr; /* of the lent memory, in the sender */
            };
        };
    };
};

/* Said once, by the receiver. */
struct shm_offer {
    _Atomic uint32_t reads; /* it may read the sender's memory, and wants to */
};

/* One end of one way, in private memory, the positions apart from those of the other end. */
struct shm_lane {
    struct shm_cell *cells;
    uint8_t *room;
    _Atomic uint64_t *taken;
    struct shm_offer *offer;
    uint32_t cell_mask;
    uint32_t room_len;
};

struct shm_segment {
    void *base;
    size_t len;
    struct shm_lane tx, rx;
};

/* 16 bits of the number are enough: the message before in a cell is a lap of at most SHM_CELLS_MAX
 * older. */
static inline uint64_t shm_cell_head(uint64_t pos, unsigned kind, size_t len, uint32_t channel)
{
    return (uint64_t)channel << 32 | (uint32_t)len << 24 | kind << 16 | (uint16_t)(pos + 1);
}

/* Does the cell's head announce number pos? */
static inline bool shm_cell_is(uint64_t head, uint64_t pos)
{
    return (uint16_t)head == (uint16_t)(pos + 1);
}

static inline unsigned shm_cell_kind(uint64_t head)
{
    return (uint8_t)(head >> 16);
}

static inline unsigned shm_cell_len(uint64_t head)
{
    return (uint8_t)(head >> 24);
}

static inline uint32_t shm_cell_channel(uint64_t head)
{
    return (uint32_t)(head >> 32);
}

/* A file in memory, len bytes long, the first `backed` of them reserved: their use cannot meet
 * SIGBUS. It is
 * sealed against shrinking, so that nobody who gets it can take the memory away. what names it and
 * advice ends the sentence when there is no room. -ENOMEM, -EMFILE, -ENOTSUP. */
int shm_file_create(const char *what, const char *advice, size_t len, size_t backed, int *out);
/* Reserves more of it: [off, off+len). -ENOMEM. */
int shm_file_reserve(int fd, const char *what, const char *advice, uint64_t off, size_t len);

/* Maps len bytes of a file that came from a peer, after checking that it holds them for good.
 * writable 0: for reading alone. -EBADMSG: not such a file. */
int shm_file_map(int fd, uint64_t off, size_t len, int writable, void **out);

size_t shm_segment_len(uint32_t ring_bytes, uint32_t cells);

/* Maps both rings. side is 0 for the process that made the file, 1 for the other. */
int shm_segment_map(int fd, uint32_t ring_bytes, uint32_t cells, int side, struct shm_segment *out);
void shm_segment_unmap(struct shm_segment *segment);

#endif
