/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of a sparse message: a cursor over its elements, and writing what cursors give. */
#ifndef SL_COMPRESS_SPARSE_TILE_H
#define SL_COMPRESS_SPARSE_TILE_H

#include "compress/bits.h"
#include "compress/sparse.h"

enum sl_sparse_kind { SL_SPARSE_LIST, SL_SPARSE_BITMAP, SL_SPARSE_RICE, SL_SPARSE_ARRAYS };

#define SL_SPARSE_DONE UINT32_MAX

/* Elements of one tile in ascending order. index is the current one, local to the tile, or
 * SL_SPARSE_DONE. A copy starts again where the original was. */
struct sl_sparse_cursor {
    uint32_t index, left; /* left: after the current one */
    uint8_t kind;         /* enum sl_sparse_kind */
    uint8_t rice;
    bool bf16;
    const uint8_t *places;        /* of a list or a bitmap */
    uint32_t base;                /* arrays: the tile's first element; bitmap: number of the word */
    uint32_t len;                 /* bytes of a bitmap */
    uint64_t word;                /* what is left of it */
    struct sl_bits_in bits;       /* of Rice's */
    const uint32_t *array;        /* of arrays */
    const uint8_t *value, *after; /* of the current one and the next one */
};

static inline size_t sl_sparse_round4(size_t len)
{
    return (len + 3) & ~(size_t)3;
}

/* Bytes of the places of kept out of most elements, without gaps, up to 4. */
static inline uint32_t sl_sparse_bitmap_len(uint32_t most)
{
    return (most + 7) / 8;
}

static inline enum sl_sparse_kind sl_sparse_plain_kind(uint32_t kept, uint32_t most)
{
    return kept * 2 > sl_sparse_bitmap_len(most) ? SL_SPARSE_BITMAP : SL_SPARSE_LIST;
}

static inline uint32_t sl_sparse_plain_len(uint32_t kept, uint32_t most)
{
    uint32_t list = kept * 2, bitmap = sl_sparse_bitmap_len(most);

    return (uint32_t)sl_sparse_round4(list < bitmap ? list : bitmap);
}

/* Over elements of the caller's arrays: kept of them lie in the tile that begins at base. */
void sl_sparse_open_arrays(struct sl_sparse_cursor *c, const uint32_t *index, const float *value,
                           uint32_t kept, uint32_t base);

/* Checks the tile of most elements at *in, and moves *in past it. -EBADMSG and a sentence. */
int sl_sparse_open_tile(struct sl_sparse_cursor *c, const struct sl_sparse_spec *spec,
                        const uint8_t **in, const uint8_t *end, uint32_t most);

void sl_sparse_next(struct sl_sparse_cursor *c);
float sl_sparse_value(const struct sl_sparse_cursor *c);

/* Writes the tile of most elements that has what a and b have, and their sums. b may be NULL.
 * Returns the byte after it. */
uint8_t *sl_sparse_write_tile(const struct sl_sparse_spec *spec, const struct sl_sparse_cursor *a,
                              const struct sl_sparse_cursor *b, uint32_t most, uint8_t *out);

#endif
