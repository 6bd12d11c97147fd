/* SPDX-License-Identifier: Apache-2.0 */
/* Template: elements of f32, bf16 and f16, between memory and registers. */

SL_INLINE vec vec_set(uint32_t x)
{
    return MM(set1_epi32)((int)x);
}

SL_INLINE vec vec_abs(ps x)
{
    return vec_and(vec_of(x), vec_set(SL_BITS_ABS));
}

/* Asks for bytes of what is wanted next, at the same pace: so memory has something to do all the
 * time. */
SL_INLINE void fetch(const void *next, size_t first, size_t bytes)
{
    for (size_t i = 0; next != NULL && i < bytes; i += 64)
        _mm_prefetch((const char *)next + first + i, _MM_HINT_T1);
}

SL_INLINE half_vec bf16_of(ps x, const uint16_t *random)
{
    vec bits = vec_of(x), bias;

    if (random != NULL)
        bias = MM(cvtepu16_epi32)(half_vec_load(random));
    else
        bias = MM(add_epi32)(vec_and(MM(srli_epi32)(bits, 16), vec_set(1)), vec_set(0x7fff));
    bits = vec_unless_nan(x, MM(add_epi32)(bits, bias), SL_BITS_NAN);
    return narrow_lanes(MM(srli_epi32)(bits, 16));
}

SL_INLINE half_vec f16_of(ps x, const uint16_t *random)
{
    vec abs = vec_abs(x), half;

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
    return narrow_lanes(vec_unless_nan(x, half, 0x7e00));
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

/* LANES elements from element i on, as floats. */
SL_INLINE ps load_ps(unsigned dtype, const void *in, size_t i)
{
    return dtype == SLUICE_F32 ? MM(loadu_ps)((const float *)in + i)
                               : floats_of(dtype, half_vec_load((const char *)in + i * 2));
}

/* What a put does, and to elements of which type, known when it is compiled. */
SL_INLINE void put_ps(unsigned dtype, enum sl_put put, ps x, void *out, size_t i)
{
    float *to = (float *)out + i;

    if (dtype != SLUICE_F32)
        half_store((char *)out + i * 2, half_of(dtype, x, NULL), false);
    else if (put == SL_PUT_STREAM)
        MM(stream_ps)(to, x);
    else if (put == SL_PUT_ADD)
        MM(storeu_ps)(to, MM(add_ps)(MM(loadu_ps)(to), x));
    else
        MM(storeu_ps)(to, x);
}
