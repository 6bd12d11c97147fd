/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Palette-3: an exponent in three bits, without a loss.
 *
 * A message of count elements, with T tiles:
 *
 *     raw plane        sl_lossless_raw_bytes(), see lossless.h
 *     T heads of 16    0  8 bytes: the largest exponent of each 512 elements, or 7 of a palette
 *                      8  u16: escapes of the tile
 *                     10  u8: enum sl_palette_mode
 *                     11  5 bytes of zero
 *     T bodies         three bit planes of n/8 bytes each, then an escape byte each;
 *                      SL_PALETTE_STORED: n exponents
 *
 * n is the tile's count, rounded up to SL_GROUP. Code c below 7 is the exponent base - c, or
 * palette[c]; 7 takes the next escape. The heads say where a body lies: a GPU adds them up first.
 */
#ifndef SL_COMPRESS_PALETTE_H
#define SL_COMPRESS_PALETTE_H

#include "compress/lossless.h"

#define SL_PALETTE_HEAD 16

enum sl_palette_mode { SL_PALETTE_WINDOW = 0, SL_PALETTE_TABLE = 1, SL_PALETTE_STORED = 2 };

/* The codec's functions, by a path of the caller's choice. */
size_t sl_palette_encode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                            const void *in, size_t count, void *out);
int sl_palette_decode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                         const void *in, size_t len, size_t count, void *out);

#endif
