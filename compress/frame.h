/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: encoded messages that say what they are, for files and for what has no plan.
 *
 *   offset  type   field
 *        0  u32    SL_FRAME_MAGIC
 *        4  u8     version, 1
 *        5  u8     codec (enum sl_codec_id)
 *        6  u8     type of the elements (enum sluice_dtype)
 *        7  u8     flags: bit 0 the payload is the elements as they are, bits 1 and 2 the spec's
 *        8  u64    elements
 *       16  u64    bytes of payload
 *       24  u8     bits of a code
 *       25  u8     log2 of a tile's elements, 12
 *       26  u16    elements of a row (row=); the other flags are reserved, zero
 *       28  u32    k
 *       32  u64    seed
 *       40  u32    stream, step
 *       48  u32    the first tile's index
 *       52  u32    rows, ranks
 *       60  u32    CRC-32C of bytes 0 to 59 and of the payload
 *       64         payload
 *
 * Numbers are little-endian. A message that its codec would not make smaller goes as it is, so a
 * frame is never more than its header larger than its elements, but for the room to write it in.
 */
#ifndef SL_COMPRESS_FRAME_H
#define SL_COMPRESS_FRAME_H

#include "compress/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_FRAME_MAGIC 0x7a634c53u /* "SLcz" */
#define SL_FRAME_VERSION 1
#define SL_FRAME_HEAD 64

struct sl_frame {
    struct sl_codec_spec spec;
    struct sl_codec_at at;
    uint64_t count;   /* elements */
    uint64_t payload; /* bytes */
    bool raw;         /* the payload is the elements as they are, whatever the codec */
};

/* Bytes that sl_frame_write() may write: exact for SL_CODEC_FIXED. */
size_t sl_frame_bound(const struct sl_codec_spec *spec, size_t count);

/* Bytes of the whole frame. */
static inline size_t sl_frame_size(const struct sl_frame *frame)
{
    return SL_FRAME_HEAD + (size_t)frame->payload;
}

/* in: count elements, any alignment, count up to SL_CODEC_COUNT_MOST. at->first: below 2^44. out:
 * sl_frame_bound() bytes, aligned to 16. spec has passed sl_codec_check(). Returns the frame's
 * bytes. */
size_t sl_frame_write(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t count, void *out);

/* The frame that bytes begin with; more may follow. -EBADMSG and a sentence where it is none, is
 * cut off, was damaged, or is of another version; a spec in *out has passed sl_codec_check(). */
int sl_frame_read(const void *bytes, size_t len, struct sl_frame *out);

/* bytes: of the frame that sl_frame_read() took, aligned to 16. out: frame->count elements. */
int sl_frame_decode(const struct sl_frame *frame, const void *bytes, void *out);

#endif
