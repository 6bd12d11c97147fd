/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the codec "dct" in AVX2. */
#include "compress/dct_kernels.h"

SL_DCT_FORWARD(avx2)
