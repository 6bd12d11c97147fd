/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the codecs' kernels over vectors of LANES floats, written once. The including file
 * defines the vectors and what differs between instruction sets.
 */

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

#include "compress/simd_blocks.h"
#include "compress/simd_elements.h"
#include "compress/simd_feedback.h"

static void fence(void)
{
    _mm_sfence();
}

#include "compress/kernels_row.h"
