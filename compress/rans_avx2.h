/* SPDX-License-Identifier: Apache-2.0 */
/* rANS with 256-bit vectors: 32 lanes are four of them. */
#ifndef SL_COMPRESS_RANS_AVX2_H
#define SL_COMPRESS_RANS_AVX2_H

#include "compress/lossless.h"

struct sl_rans_coded sl_rans_encode_avx2(const struct sl_rans_table *table,
                                         const uint8_t *exponents, size_t count, uint16_t *words,
                                         uint32_t states[SL_RANS_LANES], uint8_t *escapes);
bool sl_rans_decode_avx2(const struct sl_rans_table *table, const struct sl_rans_block *blocks,
                         unsigned count);

#endif
