/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the codecs' kernels over vectors of LANES floats, written once. The including file
 * defines the vectors and what differs between instruction sets.
 */

#include "compress/simd_memory.h"
#include "compress/simd_scales.h"

#include "compress/simd_blocks.h"
#include "compress/simd_elements.h"
#include "compress/simd_feedback.h"

static void fence(void)
{
    _mm_sfence();
}

#include "compress/kernels_row.h"
