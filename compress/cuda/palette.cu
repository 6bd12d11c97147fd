// SPDX-License-Identifier: Apache-2.0
#include "compress/cuda/palette.h"

SL_KERNEL(sl_palette_encode_f32, palette_encode<sl_f32>)
SL_KERNEL(sl_palette_encode_bf16, palette_encode<sl_bf16>)
SL_KERNEL(sl_palette_encode_f16, palette_encode<sl_f16>)
SL_KERNEL(sl_palette_add_f32, palette_add<sl_f32>)
SL_KERNEL(sl_palette_add_bf16, palette_add<sl_bf16>)
SL_KERNEL(sl_palette_add_f16, palette_add<sl_f16>)
SL_KERNEL(sl_palette_decode_f32, palette_decode<sl_f32>)
SL_KERNEL(sl_palette_decode_bf16, palette_decode<sl_bf16>)
SL_KERNEL(sl_palette_decode_f16, palette_decode<sl_f16>)
