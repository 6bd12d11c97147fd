// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/codecs.h"
#include "compress/cuda/kernels.h"

SL_CODEC_KERNELS(mxfp8, sl_codec_mxfp8)
