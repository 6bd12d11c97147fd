/* SPDX-License-Identifier: Apache-2.0 */
/* rANS in plain C, and what other paths take of it. */
#ifndef SL_COMPRESS_RANS_C_H
#define SL_COMPRESS_RANS_C_H

#include "compress/lossless.h"

struct sl_rans_coded sl_rans_encode_c(const struct sl_rans_table *table, const uint8_t *exponents,
                                      size_t count, uint16_t *words, uint32_t states[SL_RANS_LANES],
                                      uint8_t *escapes);
bool sl_rans_decode_c(const struct sl_rans_table *table, const struct sl_rans_block *blocks,
                      unsigned count);

/* Escapes among the 32 symbols from place `first`, by mask, the last one first. *left: of the
 * block. False: there are not as many. */
bool sl_rans_put_escapes(const struct sl_rans_block *block, size_t first, uint32_t mask,
                         uint32_t *left);

#endif
