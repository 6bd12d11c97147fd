/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of small floats over vectors of LANES floats, written once. The including file
 * defines the vectors and what differs between instruction sets. Not a header of its own.
 */
#ifdef LANES /* so that it also compiles alone */

#define VECTORS (64 / LANES) /* codes are packed and unpacked 64 at a time */

SL_INLINE vec vec_set(uint32_t x)
{
    return MM(set1_epi32)((int)x);
}

SL_INLINE __m256i largest_of(__m256i a, __m256i b)
{
    return _mm256_max_epu32(a, b);
}

/* Blocks are halved into one another: what is left has the maximum of a block in each word. */
SL_INLINE __m256i four_blocks(const __m256i v[4])
{
    __m256i ab = largest_of(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i cd = largest_of(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));

    return largest_of(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

static void maxima16(const float *in, size_t count, uint32_t *maxima)
{
    const __m256i abs = _mm256_set1_epi32(SL_BITS_ABS);

    for (size_t i = 0; i < count; i += 128, maxima += 8) {
        __m256i v[8], low, high;

#pragma GCC unroll 8
        for (unsigned j = 0; j < 8; j++) {
            const __m256i *from = (const __m256i *)(const void *)(in + i + 16 * j);

            v[j] = largest_of(_mm256_and_si256(_mm256_loadu_si256(from), abs),
                              _mm256_and_si256(_mm256_loadu_si256(from + 1), abs));
        }
        low = four_blocks(v);
        high = four_blocks(v + 4);
        _mm256_storeu_si256((__m256i *)(void *)maxima,
                            largest_of(_mm256_permute2x128_si256(low, high, 0x20),
                                       _mm256_permute2x128_si256(low, high, 0x31)));
    }
}

/* sl_minifloat_encode(), step by step. */
SL_INLINE vec code_of(enum sl_minifloat kind, vec bits)
{
    const struct sl_minifloat_format f = sl_minifloat_format(kind);
    const vec least = vec_set((uint32_t)(f.least + 127) << 23);
    vec mag = vec_and(bits, vec_set(SL_BITS_ABS));
    vec exp = MM(max_epu32)(vec_and(bits, vec_set(SL_BITS_INF)), least);
    vec step = MM(add_epi32)(exp, vec_set((uint32_t)(23 - f.mantissa) << 23));
    vec code = MM(sub_epi32)(vec_of(MM(add_ps)(ps_of(mag), ps_of(step))), step);

    code = MM(add_epi32)(code, MM(srli_epi32)(MM(sub_epi32)(exp, least), 23 - f.mantissa));
    code = MM(min_epu32)(code, vec_set(f.most));
    return vec_or(code, vec_and(MM(srli_epi32)(bits, 32 - f.bits), vec_set(1u << (f.bits - 1))));
}

/* Asks for as much as 64 floats of what is wanted next: of shorter elements, ahead of that. */
SL_INLINE void fetch(const void *next, size_t first)
{
    for (size_t i = 0; next != NULL && i < 64; i += 16)
        _mm_prefetch((const char *)next + (first + i) * sizeof(float), _MM_HINT_T0);
}

SL_INLINE void encode(enum sl_minifloat kind, const float *in, size_t count, unsigned block,
                      const float *inverses, const void *next, bool stream, uint8_t *codes)
{
    for (size_t i = 0; i < count; i += 64) {
        vec code[VECTORS];

        fetch(next, i);
#pragma GCC unroll 8
        for (unsigned j = 0; j < VECTORS; j++) {
            ps inverse = MM(set1_ps)(inverses[(i + j * LANES) / block]);
            ps x = MM(mul_ps)(MM(loadu_ps)(in + i + j * LANES), inverse);

            code[j] = code_of(kind, vec_of(ps_where_not_zero(inverse, x)));
        }
        if (sl_minifloat_format(kind).bits == 4)
            put_nibbles(code, stream, codes + i / 2);
        else
            put_bytes(code, stream, codes + i);
    }
}

static const float e2m1_values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                      -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
static const float e3m0_values[16] = {0,    0.25f,  0.5f,  1,  2,  4,  8,  16,
                                      -0.f, -0.25f, -0.5f, -1, -2, -4, -8, -16};

/* sl_minifloat_decode(), all cases at once. */
SL_INLINE ps value_of(enum sl_minifloat kind, vec code)
{
    const struct sl_minifloat_format f = sl_minifloat_format(kind);
    vec mag = vec_and(code, vec_set(0x7f));
    vec sign = MM(slli_epi32)(vec_and(code, vec_set(0x80)), 24);
    vec normal = MM(add_epi32)(MM(slli_epi32)(mag, 23 - f.mantissa),
                               vec_set((uint32_t)(f.least + 126) << 23));
    ps unit = ps_of(vec_set((uint32_t)(f.least - f.mantissa + 127) << 23));
    ps value;

    if (kind == SL_MINI_E2M1)
        return pick(code, e2m1_values);
    if (kind == SL_MINI_E3M0)
        return pick(code, e3m0_values);
    value = ps_below(mag, 1u << f.mantissa, MM(mul_ps)(MM(cvtepi32_ps)(mag), unit), ps_of(normal));
    if (kind == SL_MINI_E5M2)
        value = ps_below(mag, 0x7c, value, ps_of(vec_set(SL_BITS_INF)));
    value = ps_of(vec_or(vec_of(value), sign));
    return ps_below(mag, f.nan, value, ps_of(vec_set(SL_BITS_NAN)));
}

/* What becomes of a decoded number: put says it, and the residual loses it. */
enum { TAKE_OFF = SL_PUT_ADD + 1 };

SL_INLINE void put_value(int how, ps x, float *to)
{
    if (how == SL_PUT_STREAM) {
        MM(stream_ps)(to, x);
    } else if (how == TAKE_OFF) {
        ps left = MM(sub_ps)(MM(loadu_ps)(to), x);
        vec exp = vec_and(vec_of(left), vec_set(SL_BITS_INF));

        MM(storeu_ps)(to, ps_below(exp, SL_BITS_INF, left, MM(setzero_ps)()));
    } else {
        MM(storeu_ps)(to, how == SL_PUT_ADD ? MM(add_ps)(MM(loadu_ps)(to), x) : x);
    }
}

SL_INLINE void decode(enum sl_minifloat kind, const uint8_t *codes, size_t count, unsigned block,
                      const float *scales, int how, float *out)
{
    for (size_t i = 0; i < count; i += 64) {
        vec code[VECTORS];

        if (sl_minifloat_format(kind).bits == 4)
            get_nibbles(codes + i / 2, code);
        else
            get_bytes(codes + i, code);
#pragma GCC unroll 8
        for (unsigned j = 0; j < VECTORS; j++) {
            ps scale = MM(set1_ps)(scales[(i + j * LANES) / block]);

            put_value(how, MM(mul_ps)(value_of(kind, code[j]), scale), out + i + j * LANES);
        }
    }
}

SL_INLINE void encode_any(enum sl_minifloat kind, const float *in, size_t count, unsigned block,
                          const float *inverses, const void *next, bool stream, uint8_t *codes)
{
    if (stream)
        encode(kind, in, count, block, inverses, next, true, codes);
    else
        encode(kind, in, count, block, inverses, next, false, codes);
}

SL_INLINE void decode_any(enum sl_minifloat kind, const uint8_t *codes, size_t count,
                          unsigned block, const float *scales, enum sl_put put, float *out)
{
    if (put == SL_PUT_STREAM)
        decode(kind, codes, count, block, scales, SL_PUT_STREAM, out);
    else if (put == SL_PUT_ADD)
        decode(kind, codes, count, block, scales, SL_PUT_ADD, out);
    else
        decode(kind, codes, count, block, scales, SL_PUT_STORE, out);
}

/* Of each format the two sizes of blocks that codecs have: constants, as the format is one. */
#define FORMAT(name, kind, large, small)                                                           \
    static void encode_##name(const float *in, size_t count, unsigned block,                       \
                              const float *inverses, const void *next, bool stream,                \
                              uint8_t *codes)                                                      \
    {                                                                                              \
        if (block == (large))                                                                      \
            encode_any(kind, in, count, large, inverses, next, stream, codes);                     \
        else                                                                                       \
            encode_any(kind, in, count, small, inverses, next, stream, codes);                     \
    }                                                                                              \
    static void decode_##name(const uint8_t *codes, size_t count, unsigned block,                  \
                              const float *scales, enum sl_put put, float *out)                    \
    {                                                                                              \
        if (block == (large))                                                                      \
            decode_any(kind, codes, count, large, scales, put, out);                               \
        else                                                                                       \
            decode_any(kind, codes, count, small, scales, put, out);                               \
    }                                                                                              \
    static void rest_##name(const uint8_t *codes, size_t count, unsigned block,                    \
                            const float *scales, float *residual)                                  \
    {                                                                                              \
        if (block == (large))                                                                      \
            decode(kind, codes, count, large, scales, TAKE_OFF, residual);                         \
        else                                                                                       \
            decode(kind, codes, count, small, scales, TAKE_OFF, residual);                         \
    }

FORMAT(e4m3, SL_MINI_E4M3, 128, 32)
FORMAT(e5m2, SL_MINI_E5M2, 128, 128)
FORMAT(e2m1, SL_MINI_E2M1, 32, 16)
FORMAT(e3m0, SL_MINI_E3M0, 128, 128)

const struct sl_scaled_kernels KERNELS = {
    .maxima16 = maxima16,
    .encode = {encode_e4m3, encode_e5m2, encode_e2m1, encode_e3m0},
    .decode = {decode_e4m3, decode_e5m2, decode_e2m1, decode_e3m0},
    .rest = {rest_e4m3, rest_e5m2, rest_e2m1, rest_e3m0},
};

#endif
