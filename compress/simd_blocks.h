/* SPDX-License-Identifier: Apache-2.0 */
/* Template: blocks of numbers, their codes and their rotation, for kernels_simd.h. */

/* Of a block. Halves are compared as they lie: without their signs, larger ones have larger
 * bits. */
SL_INLINE vec largest_of(unsigned dtype, const void *in, size_t first, unsigned size)
{
    vec largest;

    if (dtype != SLUICE_F32) {
        largest = vec_set(0);
        for (unsigned i = 0; i < size; i += 2 * LANES)
            largest = MM(max_epu16)(largest, vec_and(vec_load((const char *)in + (first + i) * 2),
                                                     vec_set(0x7fff7fff)));
        return vec_of(floats_of(dtype, larger_half(largest)));
    }
    largest = vec_abs(load_ps(dtype, in, first));
    for (unsigned i = LANES; i < size; i += LANES)
        largest = MM(max_epu32)(largest, vec_abs(load_ps(dtype, in, first + i)));
    return largest;
}

SL_INLINE void maxima_of_128(unsigned dtype, const void *in, size_t count, uint32_t *max)
{
    for (size_t i = 0; i < count; i += 128)
        max[i / 128] = vec_largest(largest_of(dtype, in, i, 128));
}

SL_INLINE void maxima_of_32(unsigned dtype, const void *in, size_t count, uint32_t *max)
{
    for (size_t i = 0; i < count; i += 128) {
        __m256i v[4];

#pragma GCC unroll 4
        for (unsigned j = 0; j < 4; j++)
            v[j] = largest_of_32(dtype, in, i + 32 * j);
        store_four(v, max + i / 32);
    }
}

static void maxima(const struct sl_input *in, size_t count, unsigned size, uint32_t *max)
{
    if (size == 32)
        SL_BY_DTYPE(maxima_of_32, in->dtype, in->at, count, max);
    else
        SL_BY_DTYPE(maxima_of_128, in->dtype, in->at, count, max);
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

SL_INLINE void codes_all(unsigned dtype, unsigned bits, unsigned size, const struct sl_input *in,
                         size_t count, const float *inverse, const uint16_t *random, bool stream,
                         uint8_t *out)
{
    const struct sl_input x = *in;

    for (size_t i = 0; i < count; i += 4 * LANES) {
        vec code[4];

        for (unsigned j = 0; j < 4; j++) {
            size_t at = i + j * LANES;

            code[j] = codes_of(load_ps(dtype, x.at, at), random != NULL ? random + at : NULL,
                               inverse[at / size]);
        }
        put_codes(bits, bytes_of(bits, code), stream, out + i * bits / 8);
    }
}

SL_INLINE void codes_for(unsigned dtype, unsigned bits, unsigned size, const struct sl_input *in,
                         size_t count, const float *inverse, const uint16_t *random, bool stream,
                         uint8_t *out)
{
    if (random != NULL)
        codes_all(dtype, bits, size, in, count, inverse, random, stream, out);
    else if (stream)
        codes_all(dtype, bits, size, in, count, inverse, NULL, true, out);
    else
        codes_all(dtype, bits, size, in, count, inverse, NULL, false, out);
}

static void codes(unsigned bits, const struct sl_input *in, size_t count, unsigned size,
                  const float *inverse, const uint16_t *random, bool stream, void *out)
{
    if (bits == 8)
        SL_BY_DTYPE(codes_for, in->dtype, 8, 128, in, count, inverse, random, stream, out);
    else if (bits == 4)
        SL_BY_DTYPE(codes_for, in->dtype, 4, 32, in, count, inverse, random, false, out);
    else
        SL_BY_DTYPE(codes_for, in->dtype, 2, 32, in, count, inverse, random, false, out);
}

SL_INLINE void decode_all(unsigned dtype, enum sl_put put, unsigned bits, unsigned size,
                          const uint8_t *in, size_t count, const float *scale, void *out)
{
    for (size_t i = 0; i < count; i += size) {
        ps factor = MM(set1_ps)(scale[i / size]);

        for (unsigned j = 0; j < size; j += LANES)
            put_ps(dtype, put, MM(mul_ps)(MM(cvtepi32_ps)(get_codes(bits, in, i + j)), factor), out,
                   i + j);
    }
}

SL_INLINE void decode_to(unsigned dtype, unsigned bits, unsigned size, const uint8_t *in,
                         size_t count, const float *scale, enum sl_put put, void *out)
{
    if (put == SL_PUT_STREAM)
        decode_all(dtype, SL_PUT_STREAM, bits, size, in, count, scale, out);
    else if (put == SL_PUT_ADD)
        decode_all(SLUICE_F32, SL_PUT_ADD, bits, size, in, count, scale, out);
    else
        decode_all(dtype, SL_PUT_STORE, bits, size, in, count, scale, out);
}

static void decode(unsigned bits, const void *in, size_t count, unsigned size, const float *scale,
                   const struct sl_output *out)
{
    if (bits == 8)
        SL_BY_DTYPE(decode_to, out->dtype, 8, 128, in, count, scale, out->put, out->at);
    else if (bits == 4)
        SL_BY_DTYPE(decode_to, out->dtype, 4, 32, in, count, scale, out->put, out->at);
    else
        SL_BY_DTYPE(decode_to, out->dtype, 2, 32, in, count, scale, out->put, out->at);
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
