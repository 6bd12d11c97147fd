/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the codec "dct" in AVX-512. */
#include "compress/dct_kernels.h"

SL_DCT_FORWARD(avx512)
