/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs' kernels for AVX-512 (F, BW, DQ, VL). Built with flags of its own: nothing here may
 * run before kernels_x86.c has looked at the CPU. */
#include "compress/elements.h"
#include "compress/kernels.h"
#include "compress/philox.h"
#include "compress/scales.h"

#define KERNELS sl_codec_kernels_avx512
#define KERNELS_NAME "avx512"

#include "compress/simd_avx512.h"

#include "compress/kernels_simd.h"
