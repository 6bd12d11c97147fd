// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/codecs.h"
#include "compress/cuda/kernels.h"

SL_CODEC_KERNELS(e3m0, sl_codec_e3m0)
