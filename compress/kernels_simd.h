/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the codecs' kernels over vectors of LANES floats, written once. The including file
 * defines the vectors and what differs between instruction sets.
 */

#include "compress/simd_memory.h"
#include "compress/simd_maxima.h"

#include "compress/simd_scales.h"

#include "compress/simd_blocks.h"
#include "compress/simd_elements.h"
#include "compress/simd_feedback.h"

static void times(float *x, size_t count, float factor)
{
    size_t whole = count / LANES * LANES;

    for (size_t i = 0; i < whole; i += LANES)
        MM(storeu_ps)(x + i, MM(mul_ps)(MM(loadu_ps)(x + i), MM(set1_ps)(factor)));
    for (size_t i = whole; i < count; i++)
        x[i] *= factor;
}

static void fence(void)
{
    _mm_sfence();
}

#include "compress/kernels_row.h"
