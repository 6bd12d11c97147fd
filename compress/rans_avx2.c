/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rANS with 256-bit vectors. What belongs to symbols and slots is gathered from tables in the
 * first-level cache, and words go to their lanes by permutations from a table of the 256 masks. For
 * the division see rans_avx512.c.
 */
#include "compress/rans_avx2.h"

#include "compress/rans_c.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define QUARTERS 4 /* registers of 8 lanes */

static inline __m256i lanes_of(const uint8_t places[8])
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)places));
}

/* Bits of 8 lanes of which all bits are set or clear. */
static inline unsigned mask_of(__m256i lanes)
{
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

/* ---- encoding ---- */

struct encoder {
    uint32_t pair[SL_RANS_SYMBOLS]; /* first slot << 16 | frequency */
    float inverse[SL_RANS_SYMBOLS];
    uint8_t rank[256];
    uint8_t rows[16]; /* of 16 symbols, those that hold one of the table */
    unsigned row_count, escape;
    uint8_t packed[256][8]; /* the lanes of each mask, from the first on */
};

static void encoder_init(struct encoder *e, const struct sl_rans_table *table)
{
    uint32_t sum = 0;

    *e = (struct encoder){.escape = table->escape};
    memset(e->rank, table->escape, sizeof(e->rank));
    for (unsigned r = 0; r < table->count; r++) {
        unsigned row = table->symbol[r] / 16;

        e->pair[r] = sum << 16 | table->freq[r];
        e->inverse[r] = 1.0f / (float)table->freq[r] * (1 - 0x1p-21f);
        sum += table->freq[r];
        if (r == table->escape)
            continue;
        e->rank[table->symbol[r]] = (uint8_t)r;
        if (e->row_count == 0 || e->rows[e->row_count - 1] != row)
            e->rows[e->row_count++] = (uint8_t)row;
    }
    for (unsigned mask = 0; mask < 256; mask++)
        for (unsigned lane = 0, n = 0; lane < 8; lane++)
            if (mask >> lane & 1)
                e->packed[mask][n++] = (uint8_t)lane;
}

/* 32 symbols to their places in the table. */
INLINE __m256i ranks_of(const struct encoder *e, __m256i symbols)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i low = _mm256_and_si256(symbols, nibble);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(symbols, 4), nibble);
    __m256i ranks = _mm256_set1_epi8((char)e->escape);

    for (unsigned i = 0; i < e->row_count; i++) {
        __m256i row =
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(e->rank + 16 * e->rows[i])));

        ranks = _mm256_blendv_epi8(ranks, _mm256_shuffle_epi8(row, low),
                                   _mm256_cmpeq_epi8(high, _mm256_set1_epi8((char)e->rows[i])));
    }
    return ranks;
}

/* 8 lanes take a symbol each. Returns the words that they give up, written to words. */
INLINE unsigned encode_lanes(const struct encoder *e, __m256i rank, __m256i *state, uint16_t *words)
{
    const __m256i word = _mm256_set1_epi32(0xffff), one = _mm256_set1_epi32(1);
    __m256i x = *state, pair = _mm256_i32gather_epi32((const int *)e->pair, rank, 4);
    __m256 inverse = _mm256_i32gather_ps(e->inverse, rank, 4);
    __m256i freq = _mm256_and_si256(pair, word);
    /* One less, since 2^31 is no signed number. */
    __m256i most = _mm256_sub_epi32(_mm256_slli_epi32(freq, 31 - SL_RANS_BITS), one);
    __m256i full = _mm256_cmpgt_epi32(x, most);
    unsigned mask = mask_of(full);
    __m256i low = _mm256_and_si256(_mm256_permutevar8x32_epi32(x, lanes_of(e->packed[mask])), word);

    low = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    _mm_storeu_si128((void *)words, _mm256_castsi256_si128(low));
    x = _mm256_blendv_epi8(x, _mm256_srli_epi32(x, 16), full);
    __m256i quotient = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(x), inverse));
    __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(quotient, freq));
    __m256i more = _mm256_cmpgt_epi32(freq, rest); /* the quotient is not one too low */

    rest = _mm256_sub_epi32(rest, _mm256_andnot_si256(more, freq));
    quotient = _mm256_add_epi32(quotient, _mm256_andnot_si256(more, one));
    x = _mm256_add_epi32(_mm256_slli_epi32(quotient, SL_RANS_BITS), rest);
    *state = _mm256_add_epi32(x, _mm256_srli_epi32(pair, 16));
    return (unsigned)__builtin_popcount(mask);
}

struct sl_rans_coded sl_rans_encode_avx2(const struct sl_rans_table *table,
                                         const uint8_t *exponents, size_t count, uint16_t *words,
                                         uint32_t states[SL_RANS_LANES], uint8_t *escapes)
{
    const __m256i byte = _mm256_set1_epi32(0xff);
    struct sl_rans_coded coded = {0};
    __m256i x[QUARTERS];
    struct encoder e;

    encoder_init(&e, table);
    for (unsigned q = 0; q < QUARTERS; q++)
        x[q] = _mm256_set1_epi32(SL_RANS_LOW);
    for (size_t i = 0; i < count; i += SL_RANS_LANES) {
        __m256i ranks = ranks_of(&e, _mm256_loadu_si256((const void *)(exponents + i)));
        __m256i escaped = _mm256_cmpeq_epi8(ranks, _mm256_set1_epi8((char)e.escape));
        __m256i first = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(ranks));
        __m256i second = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(ranks, 1));
        uint32_t mask = (uint32_t)_mm256_movemask_epi8(escaped);

        for (; mask != 0; mask &= mask - 1)
            escapes[coded.escapes++] = exponents[i + (unsigned)__builtin_ctz(mask)];
        coded.words += encode_lanes(&e, _mm256_and_si256(first, byte), &x[0], words + coded.words);
        coded.words += encode_lanes(&e, _mm256_and_si256(second, byte), &x[1], words + coded.words);
        coded.words += encode_lanes(&e, _mm256_srli_epi32(first, 8), &x[2], words + coded.words);
        coded.words += encode_lanes(&e, _mm256_srli_epi32(second, 8), &x[3], words + coded.words);
    }
    for (unsigned q = 0; q < QUARTERS; q++)
        _mm256_storeu_si256((void *)(states + 8 * q), x[q]);
    return coded;
}

/* ---- decoding ---- */

struct decoder {
    uint32_t slots[SL_RANS_TOTAL]; /* rank << 23 | place in the symbol's slots << 12 | frequency */
    uint8_t spread[256][8];        /* which word each lane of a mask takes */
    __m256i symbol[2];             /* ranks 0 to 15 and 16 to 31, in both halves */
    unsigned escape;
};

static void decoder_init(struct decoder *d, const struct sl_rans_table *table)
{
    for (uint32_t r = 0, at = 0; r < table->count; r++)
        for (uint32_t above = 0; above < table->freq[r]; above++)
            d->slots[at++] = r << 23 | above << 12 | table->freq[r];
    for (unsigned mask = 0; mask < 256; mask++)
        for (unsigned lane = 0, n = 0; lane < 8; lane++) {
            d->spread[mask][lane] = (uint8_t)(n & 7);
            n += mask >> lane & 1;
        }
    for (unsigned k = 0; k < 2; k++)
        d->symbol[k] =
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(table->symbol + 16 * k)));
    d->escape = table->escape;
}

/* What is decoded of one block. */
struct progress {
    __m256i x[QUARTERS];
    const uint8_t *words;
    uint32_t escapes; /* left */
};

static bool begin_block(const struct sl_rans_block *block, struct progress *p)
{
    __m256i bad = _mm256_setzero_si256();

    for (unsigned q = 0; q < QUARTERS; q++) {
        p->x[q] = _mm256_loadu_si256((const void *)(block->states + 32 * q));
        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(_mm256_set1_epi32(SL_RANS_LOW), p->x[q]));
    }
    p->words = block->words + 2 * (size_t)block->word_count;
    p->escapes = block->escape_count;
    return mask_of(bad) == 0;
}

static bool end_block(const struct sl_rans_block *block, const struct progress *p)
{
    __m256i good = _mm256_set1_epi32(-1);

    for (unsigned q = 0; q < QUARTERS; q++)
        good = _mm256_and_si256(good, _mm256_cmpeq_epi32(_mm256_set1_epi32(SL_RANS_LOW), p->x[q]));
    return p->words == block->words && p->escapes == 0 && mask_of(good) == 0xff;
}

/* 16 ranks of as many lanes, as numbers of 16 bits. */
INLINE __m256i narrow(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

/* 32 symbols of a block, the last ones first. The words of a forged one may end 64 bytes before
 * they begin, which is within the message, and no further. */
INLINE bool step_block(const struct decoder *d, const struct sl_rans_block *block, size_t first,
                       struct progress *p)
{
    __m256i rank[QUARTERS], low[QUARTERS];
    unsigned mask[QUARTERS], wanting = 0;

#pragma GCC unroll 4
    for (unsigned q = 0; q < QUARTERS; q++) {
        __m256i slot = _mm256_and_si256(p->x[q], _mm256_set1_epi32(SL_RANS_TOTAL - 1));
        __m256i entry = _mm256_i32gather_epi32((const int *)d->slots, slot, 4);
        __m256i freq = _mm256_and_si256(entry, _mm256_set1_epi32(0xfff));
        __m256i above = _mm256_and_si256(_mm256_srli_epi32(entry, 12), _mm256_set1_epi32(0x7ff));

        rank[q] = _mm256_srli_epi32(entry, 23);
        p->x[q] = _mm256_add_epi32(
            _mm256_mullo_epi32(_mm256_srli_epi32(p->x[q], SL_RANS_BITS), freq), above);
        low[q] = _mm256_cmpgt_epi32(_mm256_set1_epi32(SL_RANS_LOW), p->x[q]);
        mask[q] = mask_of(low[q]);
        wanting += (unsigned)__builtin_popcount(mask[q]);
    }
    p->words -= 2 * (size_t)wanting;
    const uint8_t *words = p->words;

#pragma GCC unroll 4
    for (unsigned q = 0; q < QUARTERS; q++) {
        __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)words));

        w = _mm256_permutevar8x32_epi32(w, lanes_of(d->spread[mask[q]]));
        w = _mm256_or_si256(_mm256_slli_epi32(p->x[q], 16), w);
        p->x[q] = _mm256_blendv_epi8(p->x[q], w, low[q]);
        words += 2 * (size_t)__builtin_popcount(mask[q]);
    }
    __m256i ranks =
        _mm256_or_si256(narrow(rank[0], rank[1]), _mm256_slli_epi16(narrow(rank[2], rank[3]), 8));
    /* The fifth bit of a rank says which half. */
    __m256i symbols =
        _mm256_blendv_epi8(_mm256_shuffle_epi8(d->symbol[0], ranks),
                           _mm256_shuffle_epi8(d->symbol[1], ranks), _mm256_slli_epi16(ranks, 3));
    uint32_t escaped =
        (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(ranks, _mm256_set1_epi8((char)d->escape)));

    _mm256_storeu_si256((void *)(block->exponents + first), symbols);
    if (__builtin_expect(escaped != 0, 0) &&
        !sl_rans_put_escapes(block, first, escaped, &p->escapes))
        return false;
    return p->words >= block->words;
}

/* Two blocks of one length, or one: see rans_avx512.c. */
INLINE bool decode_some(const struct decoder *d, const struct sl_rans_block *blocks, unsigned count)
{
    struct progress a, b = {0};
    bool good = begin_block(&blocks[0], &a);

    if (count > 1)
        good = begin_block(&blocks[1], &b) && good;
    for (size_t first = blocks[0].count; good && first > 0;) {
        first -= SL_RANS_LANES;
        good = step_block(d, &blocks[0], first, &a);
        if (count > 1)
            good &= step_block(d, &blocks[1], first, &b);
    }
    good = good && end_block(&blocks[0], &a);
    return count > 1 ? good && end_block(&blocks[1], &b) : good;
}

bool sl_rans_decode_avx2(const struct sl_rans_table *table, const struct sl_rans_block *blocks,
                         unsigned count)
{
    struct decoder d;
    bool good = true;

    decoder_init(&d, table);
    for (; good && count >= 2 && blocks[1].count == blocks[0].count; blocks += 2, count -= 2)
        good = decode_some(&d, blocks, 2);
    for (; good && count > 0; blocks++, count--)
        good = decode_some(&d, blocks, 1);
    return good;
}
