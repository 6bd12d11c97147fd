/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coefficients of messages of the codec "dct", before they are elements again: to be averaged over
 * those messages that have them.
 */
#ifndef SL_COMPRESS_DCT_H
#define SL_COMPRESS_DCT_H

#include "compress/codec.h"

#define SL_DCT_CHUNK 64

/* Coefficients of count elements: chunks are whole. */
static inline size_t sl_dct_count(size_t count)
{
    return (count + SL_DCT_CHUNK - 1) / SL_DCT_CHUNK * SL_DCT_CHUNK;
}

/* sum[i] += coefficient i and times[i]++ for each that a message of count elements has. -EBADMSG:
 * it is none. */
int sl_dct_add_coefficients(const struct sl_codec_spec *spec, const void *in, size_t len,
                            size_t count, float *sum, uint32_t *times);

/* What all coefficients are of count elements. */
void sl_dct_back(const float *coefficients, size_t count, float *out);

#endif
