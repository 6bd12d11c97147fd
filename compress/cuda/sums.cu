// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/sums.h"

SL_KERNEL(sl_sums_scale, scale_sums)
SL_KERNEL(sl_sums_narrow_bf16, narrow_sums<sl_bf16>)
SL_KERNEL(sl_sums_narrow_f16, narrow_sums<sl_f16>)
