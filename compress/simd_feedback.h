/* SPDX-License-Identifier: Apache-2.0 */
/* Template: encoding with error feedback, for kernels_simd.h. */

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

/* Sums of eight, which are stored, by their magnitudes. */
SL_INLINE __m256i sum_eight(unsigned dtype, const void *in, size_t i, float *residual)
{
    __m256 sum = _mm256_add_ps(load_eight(dtype, in, i), _mm256_loadu_ps(residual + i));

    _mm256_storeu_ps(residual + i, sum);
    return _mm256_and_si256(_mm256_castps_si256(sum), _mm256_set1_epi32(SL_BITS_ABS));
}

SL_INLINE void feedback_maxima_of(unsigned dtype, const void *in, size_t count, unsigned size,
                                  float *residual, uint32_t *max)
{
    for (size_t i = 0; i < count; i += SL_UNIT) {
        __m256i v[8];

#pragma GCC unroll 8
        for (unsigned j = 0; j < 8; j++)
            v[j] = larger(sum_eight(dtype, in, i + 16 * j, residual),
                          sum_eight(dtype, in, i + 16 * j + 8, residual));
        if (size == 16) {
            store_eight(v, max + i / 16);
            continue;
        }
        for (unsigned j = 0; j < 4; j++)
            v[j] = larger(v[2 * j], v[2 * j + 1]);
        if (size == 32)
            store_four(v, max + i / 32);
        else
            max[i / SL_UNIT] = largest_eight(larger(larger(v[0], v[1]), larger(v[2], v[3])));
    }
}

static void feedback_maxima(const struct sl_input *in, size_t count, unsigned size, float *residual,
                            uint32_t *max)
{
    if (size == 16)
        SL_BY_DTYPE(feedback_maxima_of, in->dtype, in->at, count, 16, residual, max);
    else if (size == 32)
        SL_BY_DTYPE(feedback_maxima_of, in->dtype, in->at, count, 32, residual, max);
    else
        SL_BY_DTYPE(feedback_maxima_of, in->dtype, in->at, count, 128, residual, max);
}

SL_INLINE void feedback_codes_of(unsigned bits, unsigned size, float *residual, size_t count,
                                 const float *inverse, const float *scale, const uint16_t *random,
                                 bool stream, uint8_t *out)
{
    const int most = (1 << (bits - 1)) - 1;

    for (size_t i = 0; i < count; i += 4 * LANES) {
        vec code[4];

        for (unsigned j = 0; j < 4; j++) {
            size_t at = i + j * LANES;
            ps sum = MM(loadu_ps)(residual + at), sent;

            code[j] = codes_of(sum, random != NULL ? random + at : NULL, inverse[at / size]);
            if (random != NULL) { /* to nearest none is past the largest */
                code[j] = MM(min_epi32)(code[j], MM(set1_epi32)(most));
                code[j] = MM(max_epi32)(code[j], MM(set1_epi32)(-most));
            }
            sent = MM(mul_ps)(MM(cvtepi32_ps)(code[j]), MM(set1_ps)(scale[at / size]));
            MM(storeu_ps)(residual + at, MM(sub_ps)(sum, sent));
        }
        put_codes(bits, pack_bytes(code[0], code[1], code[2], code[3]), stream, out + i * bits / 8);
    }
}

SL_INLINE void feedback_codes_for(unsigned bits, unsigned size, float *residual, size_t count,
                                  const float *inverse, const float *scale, const uint16_t *random,
                                  bool stream, uint8_t *out)
{
    if (random != NULL)
        feedback_codes_of(bits, size, residual, count, inverse, scale, random, stream, out);
    else
        feedback_codes_of(bits, size, residual, count, inverse, scale, NULL, stream, out);
}

static void feedback_codes(unsigned bits, float *residual, size_t count, unsigned size,
                           const float *inverse, const float *scale, const uint16_t *random,
                           bool stream, void *out)
{
    if (bits == 8)
        feedback_codes_for(8, 128, residual, count, inverse, scale, random, stream, out);
    else if (bits == 4)
        feedback_codes_for(4, 32, residual, count, inverse, scale, random, false, out);
    else
        feedback_codes_for(2, 32, residual, count, inverse, scale, random, false, out);
}

static void feedback_sign(float *residual, size_t count, float mean, const void *next)
{
    for (size_t i = 0; i < count; i += 16) {
        fetch(next != NULL ? residual + count : NULL, i * 4, 64);
        for (size_t j = i; j < i + 16; j += LANES) {
            ps sum = MM(loadu_ps)(residual + j);
            vec sign = vec_and(vec_below_zero(sum), vec_set(1u << 31));

            MM(storeu_ps)
            (residual + j, rest_of(sum, ps_of(vec_xor(sign, vec_set(sl_f32_bits(mean))))));
        }
    }
}

SL_INLINE uint32_t feedback_sign_of(unsigned dtype, const struct sl_input *in, float *residual,
                                    size_t count, double lanes[16], void *bits)
{
    const size_t bytes = sl_dtype_bytes(dtype);
    const struct sl_input x = *in;
    magnitudes sums = {0};
    vec largest = vec_set(0);

    for (size_t i = 0; i < count; i += 16) {
        fetch(x.next, i * bytes, 16 * bytes);
        for (size_t j = i; j < i + 16; j += LANES) {
            ps sum = MM(add_ps)(load_ps(dtype, x.at, j), MM(loadu_ps)(residual + j));

            MM(storeu_ps)(residual + j, sum);
            sign_of(sum, j, sums, &largest, bits);
        }
    }
    memcpy(lanes, sums, sizeof(sums));
    return vec_largest(largest);
}

static uint32_t feedback_sign_sum(const struct sl_input *in, float *residual, size_t count,
                                  double lanes[16], void *bits)
{
    return SL_BY_DTYPE(feedback_sign_of, in->dtype, in, residual, count, lanes, bits);
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
