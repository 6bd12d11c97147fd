// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/codecs.h"
#include "compress/cuda/kernels.h"

typedef sl_cast<sl_f16> sl_codec_fp16;

SL_CODEC_KERNELS(fp16, sl_codec_fp16)
SL_CODEC_RANDOM_KERNELS(fp16, sl_codec_fp16)
