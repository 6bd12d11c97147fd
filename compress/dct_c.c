/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the codec "dct" in plain C, the reference. */
#include "compress/dct_kernels.h"

SL_DCT_FORWARD(c)
