// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/kernels.h"

SL_CODEC_KERNELS(sign, sl_codec_sign)
