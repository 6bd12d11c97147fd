/* SPDX-License-Identifier: Apache-2.0 */
/* Template: blocks of numbers, their codes and their rotation, for kernels_simd.h. */

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
        codes_for(4, 32, in, count, inverse, random, next, false, out);
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
