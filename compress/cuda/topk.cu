// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/topk.h"

#define SL_TOPK_KERNELS(dtype)                                                                     \
    SL_KERNEL(sl_topk_above_##dtype, above<sl_##dtype, false>)                                     \
    SL_KERNEL(sl_topk_above_feedback_##dtype, above<sl_##dtype, true>)                             \
    SL_KERNEL(sl_topk_sample_##dtype, sample<sl_##dtype>)                                          \
    SL_KERNEL(sl_topk_histogram_##dtype, histogram<sl_##dtype, false>)                             \
    SL_KERNEL(sl_topk_select_##dtype, select<sl_##dtype, false>)

SL_TOPK_KERNELS(f32)
SL_TOPK_KERNELS(bf16)
SL_TOPK_KERNELS(f16)
SL_KERNEL(sl_topk_histogram_list, histogram<sl_f32, true>)
SL_KERNEL(sl_topk_select_list, select<sl_f32, true>)
