// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/bq.h"
#include "compress/cuda/kernels.h"

SL_CODEC_KERNELS(bq8, sl_codec_bq8)
SL_CODEC_RANDOM_KERNELS(bq8, sl_codec_bq8)
