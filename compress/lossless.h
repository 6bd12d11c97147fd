/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lossless codecs share: floats taken apart into exponents, which repeat, and the rest,
 * which does not; and the paths (plain C, AVX2, AVX-512) of their inner loops.
 *
 * The bits of an element are rotated left by one, so that the sign is the lowest bit and the
 * exponent the highest 8 (of f16: 5). The exponent goes to one array of bytes, the rest to the
 * *raw plane*, which is what a message begins with: its place and size depend on the count alone,
 * so it can leave before the exponents are coded. Of a tile of n elements it holds
 *
 *     bf16   n bytes
 *     f16    n bytes: the low 8 bits; n/8 bytes each of bit 8, 9 and 10
 *     f32    n words of 16 bits: the low 16; n bytes: bits 16 to 23
 *
 * A last tile's elements are made a multiple of SL_GROUP by repeating the last one.
 */
#ifndef SL_COMPRESS_LOSSLESS_H
#define SL_COMPRESS_LOSSLESS_H

#include "compress/codec.h"
#include "compress/rans.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_GROUP 64          /* elements */
#define SL_PALETTE_BLOCK 512 /* elements with a window of their own */
#define SL_PALETTE_CODES 7   /* and the escape */
#define SL_PALETTE_BLOCKS (SL_TILE / SL_PALETTE_BLOCK)

/* Codes of three bits as bits: plane b has bit b of all codes, element i in bit i % 64 of word
 * i / 64. In a tile of n elements the planes lie one behind the other, n / 64 words each. */
#define SL_PALETTE_WORDS (3 * SL_TILE / 64)

/* A block of an rANS message: where its parts lie. */
struct sl_rans_block {
    const uint8_t *words;   /* word_count of 16 bits, any alignment */
    const uint8_t *states;  /* SL_RANS_LANES of 32 bits */
    const uint8_t *escapes; /* escape_count bytes */
    uint32_t word_count, escape_count;
    uint8_t *exponents; /* count: where they go */
    uint32_t count;     /* a multiple of SL_GROUP */
};

/* The inner loops. n: elements, a multiple of SL_GROUP and at most SL_TILE. stream: the result is
 * not soon read, so stores go past the caches where dst lies well; fence() ends such stores. */
struct sl_lossless_path {
    const char *name;
    const char *(*lacks)(void); /* of this CPU ("AVX2"); NULL: it runs here */

    void (*split)(unsigned dtype, const void *in, size_t n, uint8_t *raw, uint8_t *exponents,
                  bool stream);
    void (*join)(unsigned dtype, const uint8_t *raw, const uint8_t *exponents, size_t n, void *out,
                 bool stream);
    void (*fence)(void);

    /* Codes by distance from the largest exponent of each block, and by place in a palette.
     * Return the number of escapes. */
    size_t (*window)(const uint8_t *exponents, size_t n, uint8_t bases[SL_PALETTE_BLOCKS],
                     uint64_t *planes);
    size_t (*match)(const uint8_t *exponents, size_t n, const uint8_t palette[SL_PALETTE_CODES],
                    uint64_t *planes);
    /* exponents[i] = tables[i / SL_PALETTE_BLOCK][code of i]; escapes get anything. */
    void (*expand)(const uint8_t *planes, size_t n, const uint8_t tables[][8], uint8_t *exponents);
    /* The escapes of a tile out of the exponents, and back in: see palette_escapes.h. */
    size_t (*take)(const uint8_t *exponents, const uint64_t *planes, size_t n, uint8_t *escapes);
    size_t (*put)(uint8_t *exponents, const uint8_t *planes, size_t n, const uint8_t *escapes,
                  size_t have);

    /* exponents: count of them, at most SL_RANS_BLOCK. words: room for one each, and 32 more. */
    struct sl_rans_coded (*rans_encode)(const struct sl_rans_table *table, const uint8_t *exponents,
                                        size_t count, uint16_t *words,
                                        uint32_t states[SL_RANS_LANES], uint8_t *escapes);
    /* False: some block is none that rans_encode() makes. All but the last have the same count. 64
     * bytes before and behind the words of each may be read. */
    bool (*rans_decode)(const struct sl_rans_table *table, const struct sl_rans_block *blocks,
                        unsigned count);
};

extern const struct sl_lossless_path sl_lossless_c;
extern const struct sl_lossless_path sl_lossless_avx2;
extern const struct sl_lossless_path sl_lossless_avx512;

/* All paths of this build, the fastest first; the last runs everywhere. */
extern const struct sl_lossless_path *const sl_lossless_paths[];
extern const size_t sl_lossless_path_count;

/* The fastest that runs here. */
const struct sl_lossless_path *sl_lossless_path(void);

/* sum[i] += element i. */
void sl_lossless_add(unsigned dtype, const void *in, size_t count, float *sum);

/* The tile of in that begins at element first, with at least 1 and at most SL_TILE elements, of
 * which *n is count rounded up: in itself, or a copy in room with the last element repeated. */
const void *sl_lossless_tile(unsigned dtype, const void *in, size_t first, size_t count, void *room,
                             size_t *n);

static inline size_t sl_lossless_width(unsigned dtype)
{
    return dtype == SLUICE_F32 ? 4 : 2;
}

static inline size_t sl_lossless_round(size_t count)
{
    return (count + SL_GROUP - 1) / SL_GROUP * SL_GROUP;
}

/* Bytes of the raw plane of count elements. */
static inline size_t sl_lossless_raw_bytes(unsigned dtype, size_t count)
{
    size_t n = sl_lossless_round(count);

    return dtype == SLUICE_F32 ? 3 * n : dtype == SLUICE_F16 ? n + 3 * (n / 8) : n;
}

static inline size_t sl_lossless_tiles(size_t count)
{
    return (count + SL_TILE - 1) / SL_TILE;
}

/* Outputs this long are not found in the caches again. */
#define SL_LOSSLESS_STREAM_BYTES ((size_t)2 << 20)

#endif
