/* SPDX-License-Identifier: Apache-2.0 */
/* Template: signs, casts and random numbers, for kernels_simd.h. */

/* Of the vector that begins at element i. */
SL_INLINE void sign_of(ps x, size_t i, magnitudes sums, vec *largest, void *bits)
{
    vec abs = vec_abs(x);

    *largest = MM(max_epu32)(*largest, abs);
    sum_magnitudes(sums + i % 16 / MAGNITUDE_LANES, ps_of(abs));
    put_signs(below_zero(x), i, bits);
}

SL_INLINE uint32_t sign_encode_of(unsigned dtype, const void *in, size_t count, double lanes[16],
                                  void *bits)
{
    magnitudes sums = {0};
    vec largest = vec_set(0);

    for (size_t i = 0; i < count; i += 16)
        for (size_t j = i; j < i + 16; j += LANES)
            sign_of(load_ps(dtype, in, j), j, sums, &largest, bits);
    memcpy(lanes, sums, sizeof(sums));
    return vec_largest(largest);
}

static uint32_t sign_encode(const struct sl_input *in, size_t count, double lanes[16], void *bits)
{
    return SL_BY_DTYPE(sign_encode_of, in->dtype, in->at, count, lanes, bits);
}

SL_INLINE void sign_decode_all(unsigned dtype, enum sl_put put, const uint8_t *bits, size_t count,
                               float mean, void *out)
{
    vec x = vec_set(sl_f32_bits(mean));

    for (size_t i = 0; i < count; i += LANES)
        put_ps(dtype, put, ps_of(vec_xor(x, get_signs(bits, i))), out, i);
}

SL_INLINE void sign_decode_to(unsigned dtype, enum sl_put put, const uint8_t *bits, size_t count,
                              float mean, void *out)
{
    if (put == SL_PUT_STREAM)
        sign_decode_all(dtype, SL_PUT_STREAM, bits, count, mean, out);
    else if (put == SL_PUT_ADD)
        sign_decode_all(SLUICE_F32, SL_PUT_ADD, bits, count, mean, out);
    else
        sign_decode_all(dtype, SL_PUT_STORE, bits, count, mean, out);
}

static void sign_decode(const void *bits, size_t count, float mean, const struct sl_output *out)
{
    SL_BY_DTYPE(sign_decode_to, out->dtype, out->put, bits, count, mean, out->at);
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
        put_ps(SLUICE_F32, put, floats_of(dtype, half_vec_load(in + i * 2)), out, i);
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
 * of a unit's counters do not overflow. */
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
