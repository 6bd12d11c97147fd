// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/codecs.h"
#include "compress/cuda/kernels.h"

typedef sl_cast<sl_bf16> sl_codec_bf16;

SL_CODEC_KERNELS(bf16, sl_codec_bf16)
SL_CODEC_RANDOM_KERNELS(bf16, sl_codec_bf16)
