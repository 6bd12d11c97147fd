/* SPDX-License-Identifier: Apache-2.0 */
/* Template: the scales of blocks from their maxima, for kernels_simd.h: as scales.h has them. */

/* LANES scales without the bits dropped, 0 of what is tiny or not finite. */
SL_INLINE vec scale_words(const struct sl_scales *s, vec max)
{
    const __m128i drop = _mm_cvtsi32_si128(s->drop);
    const uint32_t even = s->up ? 0 : 1;
    const vec bias = vec_set((1u << (s->drop - even)) - 1);
    vec x = vec_of(MM(div_ps)(ps_of(max), MM(set1_ps)(s->quantile)));
    vec usable = vec_and(vec_greater(max, vec_set(SL_SCALE_LEAST - 1)),
                         vec_greater(vec_set(SL_BITS_INF), max));

    x = MM(add_epi32)(MM(add_epi32)(x, bias), vec_and(MM(srl_epi32)(x, drop), vec_set(even)));
    x = MM(srl_epi32)(x, drop);
    x = MM(max_epu32)(x, vec_set(SL_SCALE_LEAST >> s->drop));
    return vec_and(MM(min_epu32)(x, vec_set(s->most)), usable);
}

/* The rest of a row of blocks, or LANES of it: zeros behind its end, and nothing stored there. */
SL_INLINE vec load_blocks(const void *from, size_t rest)
{
    return rest >= LANES ? vec_load(from) : vec_load_some(from, rest);
}

SL_INLINE void store_blocks(void *to, size_t rest, vec x)
{
    if (rest >= LANES)
        vec_store(to, x);
    else
        vec_store_some(to, rest, x);
}

/* Returns the largest. */
SL_INLINE uint32_t scales_find(const struct sl_scales *s, const uint32_t *max, size_t blocks,
                               uint32_t *word, float *value, float *inverse)
{
    const __m128i drop = _mm_cvtsi32_si128(s->drop);
    vec top = vec_set(0);

    for (size_t b = 0; b < blocks; b += LANES) {
        vec most = load_blocks(max + b, blocks - b), words = scale_words(s, most);
        vec bits = MM(sll_epi32)(words, drop), wild = vec_greater(most, vec_set(SL_BITS_INF - 1));
        vec one = vec_of(MM(div_ps)(MM(set1_ps)(1), ps_of(bits)));

        top = MM(max_epu32)(top, words);
        store_blocks(word + b, blocks - b, words);
        store_blocks(inverse + b, blocks - b, vec_and(one, vec_greater(bits, vec_set(0))));
        store_blocks(value + b, blocks - b, vec_select(wild, vec_set(SL_BITS_NAN), bits));
    }
    return vec_largest(top);
}

/* Bytes over the base of the largest. Those too small for it become 0, and so do their scales. */
SL_INLINE int scales_bytes(const uint32_t *max, size_t blocks, uint32_t top, const uint32_t *word,
                           float *value, float *inverse, uint8_t *bytes)
{
    int base = top > 0 ? (int)(top >> 3) - 127 : SL_SCALE_NO_BASE;
    const vec lowest = vec_set((uint32_t)(8 * (base + 127 - SL_SCALE_TOP)));
    vec lost = vec_set(0);

    for (size_t b = 0; b < blocks; b += LANES) {
        vec words = load_blocks(word + b, blocks - b), some = vec_greater(words, vec_set(0));
        vec codes = MM(sub_epi32)(words, lowest), fit = vec_greater(codes, vec_set(0));
        vec wild = vec_greater(load_blocks(max + b, blocks - b), vec_set(SL_BITS_INF - 1));
        uint8_t made[LANES];

        lost = vec_or(lost, vec_xor(some, vec_and(some, fit)));
        codes = vec_and(codes, vec_and(some, fit));
        put_low_bytes(vec_select(wild, vec_set(SL_SCALE_NAN), codes), made);
        memcpy(bytes + b, made, blocks - b < LANES ? blocks - b : LANES);
    }
    if (vec_largest(lost) != 0)
        for (size_t b = 0; b < blocks; b++)
            if (bytes[b] == 0)
                value[b] = inverse[b] = 0;
    return base;
}

SL_INLINE void scales_halves(const uint32_t *max, size_t blocks, const uint32_t *word,
                             uint16_t *halves)
{
    for (size_t b = 0; b < blocks; b += LANES) {
        vec wild = vec_greater(load_blocks(max + b, blocks - b), vec_set(SL_BITS_INF - 1));
        vec words = vec_select(wild, vec_set(SL_BITS_NAN >> 16), load_blocks(word + b, blocks - b));
        uint16_t made[LANES];

        half_store(made, narrow_lanes(words), false);
        memcpy(halves + b, made, (blocks - b < LANES ? blocks - b : LANES) * sizeof(*made));
    }
}

static int scales(const struct sl_scales *s, const uint32_t *max, size_t blocks, float *value,
                  float *inverse, void *codes)
{
    uint32_t word[SL_BLOCKS_MAX], top = scales_find(s, max, blocks, word, value, inverse);

    if (s->bytes)
        return scales_bytes(max, blocks, top, word, value, inverse, (uint8_t *)codes);
    scales_halves(max, blocks, word, (uint16_t *)codes);
    return 0;
}
