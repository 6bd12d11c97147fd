/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs' kernels over vectors of LANES floats, written once. The including file defines the
 * vectors and what differs between instruction sets. Not a header of its own.
 */
#ifdef LANES /* so that it also compiles alone */

SL_INLINE vec vec_set(uint32_t x)
{
    return MM(set1_epi32)((int)x);
}

SL_INLINE vec vec_abs(ps x)
{
    return vec_and(vec_of(x), vec_set(SL_BITS_ABS));
}

/* What a put does, known when it is compiled. */
SL_INLINE void put_ps(enum sl_put put, ps x, float *out)
{
    if (put == SL_PUT_STREAM)
        MM(stream_ps)(out, x);
    else if (put == SL_PUT_ADD)
        MM(storeu_ps)(out, MM(add_ps)(MM(loadu_ps)(out), x));
    else
        MM(storeu_ps)(out, x);
}

/* Asks for what is wanted next, at the same pace: so memory has something to do all the time. Of
 * shorter elements, it asks for the tile after the next, too. */
SL_INLINE void fetch(const void *next, size_t first, size_t floats)
{
    for (size_t i = 0; next != NULL && i < floats; i += 16)
        _mm_prefetch((const char *)next + (first + i) * sizeof(float), _MM_HINT_T1);
}

/* The largest of each of four vectors. */
SL_INLINE void store_largest(vec a, vec b, vec c, vec d, uint32_t out[4])
{
    vec ab = MM(max_epu32)(MM(unpacklo_epi32)(a, b), MM(unpackhi_epi32)(a, b));
    vec cd = MM(max_epu32)(MM(unpacklo_epi32)(c, d), MM(unpackhi_epi32)(c, d));
    vec all = MM(max_epu32)(MM(unpacklo_epi64)(ab, cd), MM(unpackhi_epi64)(ab, cd));

    _mm_storeu_si128((__m128i *)out, largest_quarter(all));
}

SL_INLINE vec largest_of(const float *in, unsigned size)
{
    vec largest = vec_abs(MM(loadu_ps)(in));

    for (unsigned i = LANES; i < size; i += LANES)
        largest = MM(max_epu32)(largest, vec_abs(MM(loadu_ps)(in + i)));
    return largest;
}

static void maxima(const float *in, size_t count, unsigned size, const void *next, uint32_t *max)
{
    for (size_t i = 0; i < count; i += SL_UNIT) {
        fetch(next, i / 2, SL_UNIT / 2);
        if (size == 32)
            store_largest(largest_of(in + i, 32), largest_of(in + i + 32, 32),
                          largest_of(in + i + 64, 32), largest_of(in + i + 96, 32), max + i / 32);
        else
            max[i / SL_UNIT] = vec_largest(largest_of(in + i, SL_UNIT));
    }
}

/* Codes that may be past the largest. */
SL_INLINE vec codes_of(ps x, const uint16_t *random, float inverse)
{
    x = MM(mul_ps)(x, MM(set1_ps)(inverse));
    if (random != NULL) {
        vec number = MM(cvtepu16_epi32)(half_vec_load(random));

        x = MM(add_ps)(x, MM(mul_ps)(MM(cvtepi32_ps)(number), MM(set1_ps)(0x1p-16f)));
        return MM(cvttps_epi32)(ps_floor(x));
    }
    return MM(cvtps_epi32)(x);
}

/* Bytes of four vectors of codes, none past the largest: to a byte they saturate by themselves. */
SL_INLINE vec bytes_of(unsigned bits, const vec code[4])
{
    const char most = (char)((1 << (bits - 1)) - 1);
    vec bytes = pack_bytes(code[0], code[1], code[2], code[3]);

    if (bits < 8)
        bytes = MM(min_epi8)(bytes, MM(set1_epi8)(most));
    return MM(max_epi8)(bytes, MM(set1_epi8)((char)-most));
}

SL_INLINE void codes_all(unsigned bits, const float *in, size_t count, unsigned size,
                         const float *inverse, const uint16_t *random, const void *next,
                         bool stream, uint8_t *out)
{
    for (size_t i = 0; i < count; i += 4 * LANES) {
        vec code[4];

        fetch(next, count / 2 + i / 2, 2 * LANES);
        for (unsigned j = 0; j < 4; j++) {
            size_t at = i + j * LANES;

            code[j] = codes_of(MM(loadu_ps)(in + at), random != NULL ? random + at : NULL,
                               inverse[at / size]);
        }
        put_codes(bits, bytes_of(bits, code), stream, out + i * bits / 8);
    }
}

SL_INLINE void codes_for(unsigned bits, unsigned size, const float *in, size_t count,
                         const float *inverse, const uint16_t *random, const void *next,
                         bool stream, uint8_t *out)
{
    if (random != NULL)
        codes_all(bits, in, count, size, inverse, random, next, stream, out);
    else if (stream && next != NULL)
        codes_all(bits, in, count, size, inverse, NULL, next, true, out);
    else
        codes_all(bits, in, count, size, inverse, NULL, next, stream, out);
}

static int scales(const struct sl_scales *s, const uint32_t *max, size_t blocks, float *value,
                  float *inverse, void *out)
{
    return sl_scales_make(s, max, blocks, value, inverse, out);
}

static void codes(unsigned bits, const float *in, size_t count, unsigned size, const float *inverse,
                  const uint16_t *random, const void *next, bool stream, void *out)
{
    if (bits == 8)
        codes_for(8, 128, in, count, inverse, random, next, stream, out);
    else if (bits == 4)
        codes_for(4, 32, in, count, inverse, random, next, stream, out);
    else
        codes_for(2, 32, in, count, inverse, random, next, false, out);
}

SL_INLINE void decode_all(unsigned bits, const uint8_t *in, size_t count, unsigned size,
                          const float *scale, enum sl_put put, float *out)
{
    for (size_t i = 0; i < count; i += size) {
        ps factor = MM(set1_ps)(scale[i / size]);

        for (unsigned j = 0; j < size; j += LANES)
            put_ps(put, MM(mul_ps)(MM(cvtepi32_ps)(get_codes(bits, in, i + j)), factor),
                   out + i + j);
    }
}

SL_INLINE void decode_for(unsigned bits, unsigned size, const uint8_t *in, size_t count,
                          const float *scale, enum sl_put put, float *out)
{
    if (put == SL_PUT_STREAM)
        decode_all(bits, in, count, size, scale, SL_PUT_STREAM, out);
    else if (put == SL_PUT_ADD)
        decode_all(bits, in, count, size, scale, SL_PUT_ADD, out);
    else
        decode_all(bits, in, count, size, scale, SL_PUT_STORE, out);
}

static void decode(unsigned bits, const void *in, size_t count, unsigned size, const float *scale,
                   enum sl_put put, float *out)
{
    if (bits == 8)
        decode_for(8, 128, in, count, scale, put, out);
    else if (bits == 4)
        decode_for(4, 32, in, count, scale, put, out);
    else
        decode_for(2, 32, in, count, scale, put, out);
}

/* Sums and differences of elements that lie far from each other, within vectors. */
SL_INLINE void rotate_lanes(ps *x, unsigned vecs, unsigned far)
{
    uint32_t signs[LANES];
    vec sign;

    for (unsigned i = 0; i < LANES; i++)
        signs[i] = (i & far) != 0 ? 1u << 31 : 0;
    memcpy(&sign, signs, sizeof(sign));
    for (unsigned i = 0; i < vecs; i++)
        x[i] = MM(add_ps)(partner(x[i], far), ps_of(vec_xor(vec_of(x[i]), sign)));
}

/* The same between vectors. */
SL_INLINE void rotate_vecs(ps *x, unsigned vecs, unsigned far)
{
    for (unsigned i = 0; i < vecs; i++)
        if ((i & far) == 0) {
            ps a = x[i], b = x[i + far];

            x[i] = MM(add_ps)(a, b);
            x[i + far] = MM(sub_ps)(a, b);
        }
}

SL_INLINE void rotate_all(const float *in, size_t count, unsigned size, float factor, float *out)
{
    const unsigned vecs = size / LANES;

    for (size_t b = 0; b < count; b += size) {
        ps x[128 / LANES];

        for (unsigned i = 0; i < vecs; i++)
            x[i] = MM(mul_ps)(MM(loadu_ps)(in + b + i * LANES), MM(set1_ps)(factor));
        rotate_lanes(x, vecs, 1);
        rotate_lanes(x, vecs, 2);
        rotate_lanes(x, vecs, 4);
        if (LANES == 16)
            rotate_lanes(x, vecs, 8);
        rotate_vecs(x, vecs, 1);
        if (vecs > 2)
            rotate_vecs(x, vecs, 2);
        if (vecs > 4)
            rotate_vecs(x, vecs, 4);
        if (vecs > 8)
            rotate_vecs(x, vecs, 8);
        for (unsigned i = 0; i < vecs; i++)
            MM(storeu_ps)(out + b + i * LANES, x[i]);
    }
}

static void rotate(const float *in, size_t count, unsigned size, float factor, float *out)
{
    if (size == 32)
        rotate_all(in, count, 32, factor, out);
    else
        rotate_all(in, count, 128, factor, out);
}

/* Of the vector that begins at element i. */
SL_INLINE void sign_of(ps x, size_t i, magnitudes sums, vec *largest, void *bits)
{
    vec abs = vec_abs(x);

    *largest = MM(max_epu32)(*largest, abs);
    sum_magnitudes(sums + i % 16 / MAGNITUDE_LANES, ps_of(abs));
    put_signs(below_zero(x), i, bits);
}

static uint32_t sign_encode(const float *in, size_t count, double lanes[16], void *bits)
{
    magnitudes sums = {0};
    vec largest = vec_set(0);

    for (size_t i = 0; i < count; i += 16)
        for (size_t j = i; j < i + 16; j += LANES)
            sign_of(MM(loadu_ps)(in + j), j, sums, &largest, bits);
    memcpy(lanes, sums, sizeof(sums));
    return vec_largest(largest);
}

SL_INLINE void sign_decode_all(const uint8_t *bits, size_t count, float mean, enum sl_put put,
                               float *out)
{
    vec x = vec_set(sl_f32_bits(mean));

    for (size_t i = 0; i < count; i += LANES)
        put_ps(put, ps_of(vec_xor(x, get_signs(bits, i))), out + i);
}

static void sign_decode(const void *bits, size_t count, float mean, enum sl_put put, float *out)
{
    if (put == SL_PUT_STREAM)
        sign_decode_all(bits, count, mean, SL_PUT_STREAM, out);
    else if (put == SL_PUT_ADD)
        sign_decode_all(bits, count, mean, SL_PUT_ADD, out);
    else
        sign_decode_all(bits, count, mean, SL_PUT_STORE, out);
}

SL_INLINE half_vec bf16_of(ps x, const uint16_t *random)
{
    vec bits = vec_of(x), bias;
    vec nan = vec_greater(vec_abs(x), vec_set(SL_BITS_INF));

    if (random != NULL)
        bias = MM(cvtepu16_epi32)(half_vec_load(random));
    else
        bias = MM(add_epi32)(vec_and(MM(srli_epi32)(bits, 16), vec_set(1)), vec_set(0x7fff));
    bits = vec_select(nan, vec_set(SL_BITS_NAN), MM(add_epi32)(bits, bias));
    return narrow_lanes(MM(srli_epi32)(bits, 16));
}

SL_INLINE half_vec f16_of(ps x, const uint16_t *random)
{
    vec abs = vec_abs(x), nan = vec_greater(abs, vec_set(SL_BITS_INF)), half;

    if (random != NULL) {
        vec number = MM(cvtepu16_epi32)(half_vec_load(random));
        vec small = vec_greater(vec_set(0x38800000), abs);
        ps units = MM(add_ps)(MM(mul_ps)(ps_of(vec_and(abs, small)), MM(set1_ps)(0x1p24f)),
                              MM(mul_ps)(MM(cvtepi32_ps)(number), MM(set1_ps)(0x1p-16f)));

        half = MM(srli_epi32)(MM(add_epi32)(abs, MM(srli_epi32)(number, 3)), 13);
        half = MM(min_epi32)(MM(sub_epi32)(half, vec_set(112 << 10)), vec_set(0x7c00));
        half = vec_select(small, MM(cvttps_epi32)(units), half);
        half = vec_or(half, vec_and(MM(srli_epi32)(vec_of(x), 16), vec_set(0x8000)));
    } else {
        half = MM(cvtepu16_epi32)(MM(cvtps_ph)(x, _MM_FROUND_TO_NEAREST_INT));
    }
    return narrow_lanes(vec_select(nan, vec_set(0x7e00), half));
}

SL_INLINE half_vec half_of(unsigned dtype, ps x, const uint16_t *random)
{
    return dtype == SLUICE_BF16 ? bf16_of(x, random) : f16_of(x, random);
}

SL_INLINE ps floats_of(unsigned dtype, half_vec half)
{
    return dtype == SLUICE_BF16 ? ps_of(MM(slli_epi32)(MM(cvtepu16_epi32)(half), 16))
                                : MM(cvtph_ps)(half);
}

SL_INLINE void narrow_all(unsigned dtype, const float *in, size_t count, const uint16_t *random,
                          bool stream, uint16_t *out)
{
    for (size_t i = 0; i < count; i += LANES) {
        half_vec half = half_of(dtype, MM(loadu_ps)(in + i), random != NULL ? random + i : NULL);

        half_store((char *)out + i * 2, half, stream);
    }
}

static void narrow(unsigned dtype, const float *in, size_t count, const uint16_t *random,
                   bool stream, void *out)
{
    size_t whole = count / LANES * LANES;

    if (dtype == SLUICE_BF16 && random == NULL)
        narrow_all(SLUICE_BF16, in, whole, NULL, stream, out);
    else if (random == NULL)
        narrow_all(SLUICE_F16, in, whole, NULL, stream, out);
    else if (dtype == SLUICE_BF16)
        narrow_all(SLUICE_BF16, in, whole, random, stream, out);
    else
        narrow_all(SLUICE_F16, in, whole, random, stream, out);
    if (whole < count)
        sl_codec_kernels_c.narrow(dtype, in + whole, count - whole,
                                  random != NULL ? random + whole : NULL, false,
                                  (char *)out + whole * 2);
}

SL_INLINE void widen_all(unsigned dtype, const char *in, size_t count, enum sl_put put, float *out)
{
    for (size_t i = 0; i < count; i += LANES)
        put_ps(put, floats_of(dtype, half_vec_load(in + i * 2)), out + i);
}

SL_INLINE void widen_for(unsigned dtype, const char *in, size_t count, enum sl_put put, float *out)
{
    if (put == SL_PUT_STREAM)
        widen_all(dtype, in, count, SL_PUT_STREAM, out);
    else if (put == SL_PUT_ADD)
        widen_all(dtype, in, count, SL_PUT_ADD, out);
    else
        widen_all(dtype, in, count, SL_PUT_STORE, out);
}

static void widen(unsigned dtype, const void *in, size_t count, enum sl_put put, float *out)
{
    size_t whole = count / LANES * LANES;

    if (dtype == SLUICE_BF16)
        widen_for(SLUICE_BF16, in, whole, put, out);
    else
        widen_for(SLUICE_F16, in, whole, put, out);
    if (whole < count)
        sl_codec_kernels_c.widen(dtype, (const char *)in + whole * 2, count - whole, put,
                                 out + whole);
}

/* Of four vectors of words, those of one counter side by side, as they lie in memory. */
SL_INLINE void transpose_store(vec a, vec b, vec c, vec d, uint16_t *out)
{
    vec ab = MM(unpacklo_epi32)(a, b), AB = MM(unpackhi_epi32)(a, b);
    vec cd = MM(unpacklo_epi32)(c, d), CD = MM(unpackhi_epi32)(c, d);

    vec_store(out, MM(unpacklo_epi64)(ab, cd));
    vec_store(out + LANES * 2, MM(unpackhi_epi64)(ab, cd));
    vec_store(out + LANES * 4, MM(unpacklo_epi64)(AB, CD));
    vec_store(out + LANES * 6, MM(unpackhi_epi64)(AB, CD));
}

/* Rounds of philox.h over the lower halves of lanes of 64 bits, where products have room; what lies
 * in the upper halves, no product sees. */
SL_INLINE void philox_round(vec c[4], uint32_t k0, uint32_t k1)
{
    vec p0 = MM(mul_epu32)(c[0], vec_set(SL_PHILOX_M0));
    vec p1 = MM(mul_epu32)(c[2], vec_set(SL_PHILOX_M1));

    c[0] = vec_xor(vec_xor(MM(srli_epi64)(p1, 32), c[1]), vec_set(k0));
    c[2] = vec_xor(vec_xor(MM(srli_epi64)(p0, 32), c[3]), vec_set(k1));
    c[1] = p1;
    c[3] = p0;
}

SL_INLINE vec both(vec even, vec odd)
{
    return blend_odd(even, MM(slli_epi64)(odd, 32));
}

/* Eight elements a counter, a counter each lane of 32 bits: even and odd ones apart. The low words
 * of a tile's counters do not overflow. */
static void random_bits(uint64_t first, size_t count, uint32_t stream, uint32_t step, uint64_t seed,
                        uint16_t *out)
{
    for (size_t i = 0; i < count; i += 8 * LANES) {
        uint64_t eight = (first + i) / 8;
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        vec c0 = MM(add_epi32)(vec_set((uint32_t)eight), first_eights());
        vec c1 = vec_set((uint32_t)(eight >> 32)), c2 = vec_set(stream), c3 = vec_set(step);
        vec even[4] = {c0, c1, c2, c3}, odd[4] = {MM(srli_epi64)(c0, 32), c1, c2, c3};

        for (unsigned r = 0; r < SL_PHILOX_ROUNDS; r++) {
            philox_round(even, k0, k1);
            philox_round(odd, k0, k1);
            k0 += SL_PHILOX_W0;
            k1 += SL_PHILOX_W1;
        }
        transpose_store(both(even[0], odd[0]), both(even[1], odd[1]), both(even[2], odd[2]),
                        both(even[3], odd[3]), out + i);
    }
}

static void feedback_sum(const float *in, const float *residual, size_t count, float *sum)
{
    size_t whole = count / LANES * LANES;

    for (size_t i = 0; i < whole; i += LANES)
        MM(storeu_ps)(sum + i, MM(add_ps)(MM(loadu_ps)(in + i), MM(loadu_ps)(residual + i)));
    for (size_t i = whole; i < count; i++)
        sum[i] = in[i] + residual[i];
}

/* What is left of a sum, 0 where that is no number. */
SL_INLINE ps rest_of(ps sum, ps sent)
{
    vec rest = vec_of(MM(sub_ps)(sum, sent));
    vec number = vec_greater(vec_set(SL_BITS_INF), vec_and(rest, vec_set(SL_BITS_ABS)));

    return ps_of(vec_and(rest, number));
}

static void feedback_rest(const float *sum, const float *sent, size_t count, float *residual)
{
    size_t whole = count / LANES * LANES;

    for (size_t i = 0; i < whole; i += LANES)
        MM(storeu_ps)(residual + i, rest_of(MM(loadu_ps)(sum + i), MM(loadu_ps)(sent + i)));
    if (whole < count)
        sl_codec_kernels_c.feedback_rest(sum + whole, sent + whole, count - whole,
                                         residual + whole);
}

/* Of the sum, which is stored. */
SL_INLINE vec largest_sum(const float *in, unsigned size, float *residual)
{
    vec largest = vec_set(0);

    for (unsigned i = 0; i < size; i += LANES) {
        ps sum = MM(add_ps)(MM(loadu_ps)(in + i), MM(loadu_ps)(residual + i));

        MM(storeu_ps)(residual + i, sum);
        largest = MM(max_epu32)(largest, vec_abs(sum));
    }
    return largest;
}

static void feedback_maxima(const float *in, size_t count, unsigned size, float *residual,
                            uint32_t *max)
{
    for (size_t i = 0; i < count; i += SL_UNIT) {
        vec part[4];

        for (unsigned j = 0; j < 4; j++)
            part[j] = largest_sum(in + i + j * 32, 32, residual + i + j * 32);
        if (size == 32)
            store_largest(part[0], part[1], part[2], part[3], max + i / 32);
        else
            max[i / SL_UNIT] = vec_largest(
                MM(max_epu32)(MM(max_epu32)(part[0], part[1]), MM(max_epu32)(part[2], part[3])));
    }
}

SL_INLINE void feedback_codes_of(unsigned bits, float *residual, size_t count, unsigned size,
                                 const float *inverse, const float *scale, const uint16_t *random,
                                 const void *next, bool stream, uint8_t *out)
{
    const int most = (1 << (bits - 1)) - 1;

    for (size_t i = 0; i < count; i += 4 * LANES) {
        vec code[4];

        fetch(next, i, 4 * LANES);
        fetch(next != NULL ? residual + count : NULL, i, 4 * LANES);
        for (unsigned j = 0; j < 4; j++) {
            size_t at = i + j * LANES;
            ps sum = MM(loadu_ps)(residual + at), sent;

            code[j] = codes_of(sum, random != NULL ? random + at : NULL, inverse[at / size]);
            code[j] = MM(min_epi32)(code[j], MM(set1_epi32)(most));
            code[j] = MM(max_epi32)(code[j], MM(set1_epi32)(-most));
            sent = MM(mul_ps)(MM(cvtepi32_ps)(code[j]), MM(set1_ps)(scale[at / size]));
            MM(storeu_ps)(residual + at, rest_of(sum, sent));
        }
        put_codes(bits, pack_bytes(code[0], code[1], code[2], code[3]), stream, out + i * bits / 8);
    }
}

SL_INLINE void feedback_codes_for(unsigned bits, float *residual, size_t count, unsigned size,
                                  const float *inverse, const float *scale, const uint16_t *random,
                                  const void *next, bool stream, uint8_t *out)
{
    if (random != NULL)
        feedback_codes_of(bits, residual, count, size, inverse, scale, random, next, stream, out);
    else
        feedback_codes_of(bits, residual, count, size, inverse, scale, NULL, next, stream, out);
}

static void feedback_codes(unsigned bits, float *residual, size_t count, unsigned size,
                           const float *inverse, const float *scale, const uint16_t *random,
                           const void *next, bool stream, void *out)
{
    if (bits == 8)
        feedback_codes_for(8, residual, count, 128, inverse, scale, random, next, stream, out);
    else if (bits == 4)
        feedback_codes_for(4, residual, count, 32, inverse, scale, random, next, stream, out);
    else
        feedback_codes_for(2, residual, count, 32, inverse, scale, random, next, false, out);
}

static void feedback_sign(float *residual, size_t count, float mean, const void *next)
{
    for (size_t i = 0; i < count; i += 16) {
        fetch(next != NULL ? residual + count : NULL, i, 16);
        for (size_t j = i; j < i + 16; j += LANES) {
            ps sum = MM(loadu_ps)(residual + j);
            vec sign = vec_and(vec_below_zero(sum), vec_set(1u << 31));

            MM(storeu_ps)
            (residual + j, rest_of(sum, ps_of(vec_xor(sign, vec_set(sl_f32_bits(mean))))));
        }
    }
}

static uint32_t feedback_sign_sum(const float *in, float *residual, size_t count, const void *next,
                                  double lanes[16], void *bits)
{
    magnitudes sums = {0};
    vec largest = vec_set(0);

    for (size_t i = 0; i < count; i += 16) {
        fetch(next, i, 16);
        for (size_t j = i; j < i + 16; j += LANES) {
            ps sum = MM(add_ps)(MM(loadu_ps)(in + j), MM(loadu_ps)(residual + j));

            MM(storeu_ps)(residual + j, sum);
            sign_of(sum, j, sums, &largest, bits);
        }
    }
    memcpy(lanes, sums, sizeof(sums));
    return vec_largest(largest);
}

SL_INLINE void feedback_narrow_of(unsigned dtype, const float *in, float *residual, size_t count,
                                  const uint16_t *random, bool stream, char *out)
{
    for (size_t i = 0; i < count; i += LANES) {
        ps sum = MM(add_ps)(MM(loadu_ps)(in + i), MM(loadu_ps)(residual + i));
        half_vec half = half_of(dtype, sum, random != NULL ? random + i : NULL);

        half_store(out + i * 2, half, stream);
        MM(storeu_ps)(residual + i, rest_of(sum, floats_of(dtype, half)));
    }
}

static void feedback_narrow(unsigned dtype, const float *in, float *residual, size_t count,
                            const uint16_t *random, bool stream, void *out)
{
    size_t whole = count / LANES * LANES;

    if (dtype == SLUICE_BF16 && random == NULL)
        feedback_narrow_of(SLUICE_BF16, in, residual, whole, NULL, stream, out);
    else if (random == NULL)
        feedback_narrow_of(SLUICE_F16, in, residual, whole, NULL, stream, out);
    else if (dtype == SLUICE_BF16)
        feedback_narrow_of(SLUICE_BF16, in, residual, whole, random, stream, out);
    else
        feedback_narrow_of(SLUICE_F16, in, residual, whole, random, stream, out);
    if (whole < count)
        sl_codec_kernels_c.feedback_narrow(dtype, in + whole, residual + whole, count - whole,
                                           random != NULL ? random + whole : NULL, false,
                                           (char *)out + whole * 2);
}

static void fence(void)
{
    _mm_sfence();
}

const struct sl_codec_kernels KERNELS = {
    .name = KERNELS_NAME,
    .fence = fence,
    .maxima = maxima,
    .scales = scales,
    .codes = codes,
    .decode = decode,
    .rotate = rotate,
    .sign_encode = sign_encode,
    .sign_decode = sign_decode,
    .narrow = narrow,
    .widen = widen,
    .random = random_bits,
    .feedback_sum = feedback_sum,
    .feedback_rest = feedback_rest,
    .feedback_maxima = feedback_maxima,
    .feedback_codes = feedback_codes,
    .feedback_sign = feedback_sign,
    .feedback_sign_sum = feedback_sign_sum,
    .feedback_narrow = feedback_narrow,
};

#endif
