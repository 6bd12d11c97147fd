/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rANS with 512-bit vectors.
 *
 * Nothing is gathered from memory. An alphabet of 32 symbols lies in registers: encoding looks
 * frequencies up with vpermt2d, decoding finds the symbol of a slot by five steps of a binary
 * search with vpermw over the symbols' first slots.
 *
 * The division by a frequency is a product with a reciprocal that is a little too small: a quotient
 * is below 2^20, so its error is below 1, and the remainder says whether it is one too low. The
 * result is the exact one.
 */
#include "compress/rans_avx512.h"

#include "compress/rans_c.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- encoding ---- */

/* Two registers each: what belongs to the 32 symbols. */
struct encoder {
    __m512i pair[2]; /* first slot << 16 | frequency */
    __m512 inverse[2];
    __m128i rank[16]; /* of symbol 16 * row + place */
    uint8_t rows[16]; /* those that hold a symbol */
    unsigned row_count, escape;
};

static void encoder_init(struct encoder *e, const struct sl_rans_table *table)
{
    uint32_t pairs[SL_RANS_SYMBOLS] = {0}, sum = 0;
    float inverses[SL_RANS_SYMBOLS] = {0};
    uint8_t ranks[256];

    e->escape = table->escape;
    e->row_count = 0;
    memset(ranks, table->escape, sizeof(ranks));
    for (unsigned r = 0; r < table->count; r++) {
        unsigned row = table->symbol[r] / 16;

        pairs[r] = sum << 16 | table->freq[r];
        inverses[r] = 1.0f / (float)table->freq[r] * (1 - 0x1p-21f);
        sum += table->freq[r];
        if (r == table->escape)
            continue;
        ranks[table->symbol[r]] = (uint8_t)r;
        if (e->row_count == 0 || e->rows[e->row_count - 1] != row)
            e->rows[e->row_count++] = (uint8_t)row;
    }
    for (unsigned k = 0; k < 2; k++) {
        e->pair[k] = _mm512_loadu_si512(pairs + 16 * k);
        e->inverse[k] = _mm512_loadu_ps(inverses + 16 * k);
    }
    for (unsigned row = 0; row < 16; row++)
        e->rank[row] = _mm_loadu_si128((const void *)(ranks + 16 * row));
}

/* 64 symbols to their places in the table. */
INLINE __m512i ranks_of(const struct encoder *e, __m512i symbols)
{
    const __m512i low = _mm512_and_si512(symbols, _mm512_set1_epi8(15));
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(symbols, 4), _mm512_set1_epi8(15));
    __m512i ranks = _mm512_set1_epi8((char)e->escape);

    for (unsigned i = 0; i < e->row_count; i++) {
        __mmask64 here = _mm512_cmpeq_epi8_mask(high, _mm512_set1_epi8((char)e->rows[i]));

        ranks =
            _mm512_mask_shuffle_epi8(ranks, here, _mm512_broadcast_i32x4(e->rank[e->rows[i]]), low);
    }
    return ranks;
}

/* 16 lanes take a symbol each: that of the low 5 bits of r. Returns the words that they give up,
 * written to words. */
INLINE unsigned encode_lanes(const struct encoder *e, __m512i r, __m512i *state, uint16_t *words)
{
    __m512i x = *state, pair = _mm512_permutex2var_epi32(e->pair[0], r, e->pair[1]);
    __m512 inverse = _mm512_permutex2var_ps(e->inverse[0], r, e->inverse[1]);
    __m512i freq = _mm512_and_si512(pair, _mm512_set1_epi32(0xffff));
    __mmask16 full = _mm512_cmpge_epu32_mask(x, _mm512_slli_epi32(freq, 31 - SL_RANS_BITS));
    __m512i low = _mm512_maskz_compress_epi32(full, x);

    _mm256_storeu_si256((void *)words, _mm512_cvtepi32_epi16(low));
    x = _mm512_mask_srli_epi32(x, full, x, 16);
    __m512i quotient = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(x), inverse));
    __m512i rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(quotient, freq));
    __mmask16 more = _mm512_cmpge_epu32_mask(rest, freq);

    rest = _mm512_mask_sub_epi32(rest, more, rest, freq);
    quotient = _mm512_mask_add_epi32(quotient, more, quotient, _mm512_set1_epi32(1));
    x = _mm512_add_epi32(_mm512_slli_epi32(quotient, SL_RANS_BITS), rest);
    *state = _mm512_add_epi32(x, _mm512_srli_epi32(pair, 16));
    return (unsigned)__builtin_popcount(full);
}

struct sl_rans_coded sl_rans_encode_avx512(const struct sl_rans_table *table,
                                           const uint8_t *exponents, size_t count, uint16_t *words,
                                           uint32_t states[SL_RANS_LANES], uint8_t *escapes)
{
    __m512i even = _mm512_set1_epi32(SL_RANS_LOW), odd = even;
    struct sl_rans_coded coded = {0};
    struct encoder e;

    encoder_init(&e, table);
    for (size_t i = 0; i < count; i += 64) {
        __m512i ranks = ranks_of(&e, _mm512_loadu_si512(exponents + i));
        uint64_t escaped = _mm512_cmpeq_epi8_mask(ranks, _mm512_set1_epi8((char)e.escape));
        __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(ranks));
        __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(ranks, 1));

        for (; escaped != 0; escaped &= escaped - 1)
            escapes[coded.escapes++] = exponents[i + (unsigned)__builtin_ctzll(escaped)];
        coded.words += encode_lanes(&e, first, &even, words + coded.words);
        coded.words += encode_lanes(&e, _mm512_srli_epi32(first, 8), &odd, words + coded.words);
        coded.words += encode_lanes(&e, second, &even, words + coded.words);
        coded.words += encode_lanes(&e, _mm512_srli_epi32(second, 8), &odd, words + coded.words);
    }
    _mm512_storeu_si512(states, even);
    _mm512_storeu_si512(states + 16, odd);
    return coded;
}

/* ---- decoding ---- */

/* 32 numbers of 16 bits each: what belongs to the symbols. */
struct decoder {
    __m512i start[5]; /* the first slot of symbol r, r + 1, r + 2, r + 4, r + 8 */
    __m512i half;     /* that of symbol 16, everywhere */
    __m512i freq, symbol;
    unsigned escape;
};

static void decoder_init(struct decoder *d, const struct sl_rans_table *table)
{
    uint16_t start[2 * SL_RANS_SYMBOLS], symbol[SL_RANS_SYMBOLS], sum = 0;

    for (unsigned r = 0; r < SL_RANS_SYMBOLS; r++) {
        start[r] = sum; /* SL_RANS_TOTAL, which no slot reaches, behind the last symbol */
        sum = (uint16_t)(sum + table->freq[r]);
        symbol[r] = table->symbol[r];
        start[SL_RANS_SYMBOLS + r] = SL_RANS_TOTAL;
    }
    d->start[0] = _mm512_loadu_si512(start);
    for (unsigned k = 1; k < 5; k++)
        d->start[k] = _mm512_loadu_si512(start + (1 << (k - 1)));
    d->half = _mm512_set1_epi16((short)start[16]);
    d->freq = _mm512_loadu_si512(table->freq);
    d->symbol = _mm512_loadu_si512(symbol);
    d->escape = table->escape;
}

/* What is decoded of one block. */
struct progress {
    __m512i even, odd; /* states of lanes 0 to 15, 16 to 31 */
    const uint8_t *words;
    uint32_t escapes; /* left */
};

/* Lanes that fell below the least state take a word each. */
INLINE __m512i refill(__m512i x, __mmask16 low, const uint8_t *words)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)words));

    return _mm512_mask_or_epi32(x, low, _mm512_slli_epi32(x, 16),
                                _mm512_maskz_expand_epi32(low, w));
}

/* Which symbols hold these slots. */
INLINE __m512i ranks_of_slots(const struct decoder *d, __m512i slot)
{
    __m512i rank =
        _mm512_maskz_set1_epi16(_mm512_cmple_epu16_mask(d->half, slot), SL_RANS_SYMBOLS / 2);

#pragma GCC unroll 4
    for (unsigned k = 4; k > 0; k--) {
        __m512i start = _mm512_permutexvar_epi16(rank, d->start[k]);

        rank = _mm512_mask_add_epi16(rank, _mm512_cmple_epu16_mask(start, slot), rank,
                                     _mm512_set1_epi16((short)(1 << (k - 1))));
    }
    return rank;
}

/* 32 symbols of one block, the last ones first. Returns which are escapes. In numbers of 16 bits,
 * lane l lies beside lane 16 + l, as their elements do. */
INLINE __mmask32 decode_lanes(const struct decoder *d, struct progress *p, uint8_t *exponents)
{
    const __m512i half = _mm512_set1_epi32(0xffff);
    __m512i slot = _mm512_mask_blend_epi16(0xaaaaaaaa, p->even, _mm512_slli_epi32(p->odd, 16));

    slot = _mm512_and_si512(slot, _mm512_set1_epi16(SL_RANS_TOTAL - 1));
    __m512i rank = ranks_of_slots(d, slot);
    __m512i freq = _mm512_permutexvar_epi16(rank, d->freq);
    __m512i above = _mm512_sub_epi16(slot, _mm512_permutexvar_epi16(rank, d->start[0]));

    _mm256_storeu_si256((void *)exponents,
                        _mm512_cvtepi16_epi8(_mm512_permutexvar_epi16(rank, d->symbol)));
    __m512i a =
        _mm512_mullo_epi32(_mm512_srli_epi32(p->even, SL_RANS_BITS), _mm512_and_si512(freq, half));
    __m512i b =
        _mm512_mullo_epi32(_mm512_srli_epi32(p->odd, SL_RANS_BITS), _mm512_srli_epi32(freq, 16));

    a = _mm512_add_epi32(a, _mm512_and_si512(above, half));
    b = _mm512_add_epi32(b, _mm512_srli_epi32(above, 16));
    __mmask16 la = _mm512_cmplt_epu32_mask(a, _mm512_set1_epi32(SL_RANS_LOW));
    __mmask16 lb = _mm512_cmplt_epu32_mask(b, _mm512_set1_epi32(SL_RANS_LOW));
    unsigned first = (unsigned)__builtin_popcount(la), second = (unsigned)__builtin_popcount(lb);

    p->words -= 2 * (first + second);
    p->even = refill(a, la, p->words);
    p->odd = refill(b, lb, p->words + 2 * first);
    return _mm512_cmpeq_epi16_mask(rank, _mm512_set1_epi16((short)d->escape));
}

/* The states that an encoder can end with. */
static bool begin_block(const struct sl_rans_block *block, struct progress *p)
{
    p->even = _mm512_loadu_si512(block->states);
    p->odd = _mm512_loadu_si512(block->states + 64);
    p->words = block->words + 2 * (size_t)block->word_count;
    p->escapes = block->escape_count;
    __m512i least = _mm512_min_epi32(p->even, p->odd); /* signed: 2^31 and more is below 0 */

    return _mm512_cmplt_epi32_mask(least, _mm512_set1_epi32(SL_RANS_LOW)) == 0;
}

static bool end_block(const struct sl_rans_block *block, const struct progress *p)
{
    const __m512i start = _mm512_set1_epi32(SL_RANS_LOW);

    return p->words == block->words && p->escapes == 0 &&
           _mm512_cmpneq_epi32_mask(p->even, start) == 0 &&
           _mm512_cmpneq_epi32_mask(p->odd, start) == 0;
}

/* 32 symbols of a block. The words of a forged one may end 64 bytes before they begin, which is
 * within the message, and no further. */
INLINE bool step_block(const struct decoder *d, const struct sl_rans_block *block, size_t first,
                       struct progress *p)
{
    uint32_t escaped = decode_lanes(d, p, block->exponents + first);

    if (__builtin_expect(escaped != 0, 0)) {
        uint32_t left = p->escapes;

        if (!sl_rans_put_escapes(block, first, escaped, &left))
            return false;
        p->escapes = left;
    }
    return p->words >= block->words;
}

/* Blocks of one length side by side, since 32 symbols wait for the 32 before. count: 1, 2 or 4, and
 * known to the compiler; no loop over them, so that their states stay in registers. */
INLINE bool decode_some(const struct decoder *d, const struct sl_rans_block *blocks, unsigned count)
{
    struct progress a, b = {0}, e = {0}, f = {0};
    bool good = begin_block(&blocks[0], &a);

    if (count > 1)
        good = begin_block(&blocks[1], &b) && good;
    if (count > 2)
        good = begin_block(&blocks[2], &e) && begin_block(&blocks[3], &f) && good;
    for (size_t first = blocks[0].count; good && first > 0;) {
        first -= SL_RANS_LANES;
        good = step_block(d, &blocks[0], first, &a);
        if (count > 1)
            good &= step_block(d, &blocks[1], first, &b);
        if (count > 2)
            good &= step_block(d, &blocks[2], first, &e);
        if (count > 2)
            good &= step_block(d, &blocks[3], first, &f);
    }
    good = good && end_block(&blocks[0], &a);
    if (count > 1)
        good = good && end_block(&blocks[1], &b);
    if (count > 2)
        good = good && end_block(&blocks[2], &e) && end_block(&blocks[3], &f);
    return good;
}

bool sl_rans_decode_avx512(const struct sl_rans_table *table, const struct sl_rans_block *blocks,
                           unsigned count)
{
    struct decoder d;
    bool good = true;

    decoder_init(&d, table);
    for (; good && count >= 4 && blocks[3].count == blocks[0].count; blocks += 4, count -= 4)
        good = decode_some(&d, blocks, 4);
    for (; good && count >= 2 && blocks[1].count == blocks[0].count; blocks += 2, count -= 2)
        good = decode_some(&d, blocks, 2);
    for (; good && count > 0; blocks++, count--)
        good = decode_some(&d, blocks, 1);
    return good;
}
