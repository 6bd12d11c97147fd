/* SPDX-License-Identifier: Apache-2.0 */
/* rANS with 512-bit vectors: 32 lanes are two of them. */
#ifndef SL_COMPRESS_RANS_AVX512_H
#define SL_COMPRESS_RANS_AVX512_H

#include "compress/lossless.h"

struct sl_rans_coded sl_rans_encode_avx512(const struct sl_rans_table *table,
                                           const uint8_t *exponents, size_t count, uint16_t *words,
                                           uint32_t states[SL_RANS_LANES], uint8_t *escapes);
bool sl_rans_decode_avx512(const struct sl_rans_table *table, const struct sl_rans_block *blocks,
                           unsigned count);

#endif
