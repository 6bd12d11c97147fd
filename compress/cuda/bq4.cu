// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/bq.h"
#include "compress/cuda/kernels.h"

SL_CODEC_KERNELS(bq4, sl_codec_bq4)
SL_CODEC_RANDOM_KERNELS(bq4, sl_codec_bq4)
