/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rANS of exponents: 32 lanes of one block, interleaved, so that a GPU's warp or two AVX-512
 * registers decode it; words of 16 bits; probabilities of 11 bits.
 *
 * Of 32 symbols, lane l below 16 has the one at 2 l, lane 16 + l the one at 2 l + 1. The encoder
 * begins with all states at SL_RANS_LOW and goes up, the decoder begins with the states that the
 * encoder ended with and goes down; words of the same 32 symbols lie in the order of lanes. A
 * decoder that does not end at SL_RANS_LOW with no word left was given something else.
 *
 * The alphabet has at most 32 symbols, in two registers' reach: the rarest share one, the escape,
 * and follow as bytes. So a table may come from a sample, or from an earlier message.
 *
 * Source: J. Duda, "Asymmetric numeral systems", arXiv 1311.2540; F. Giesen, "Interleaved entropy
 * coders", arXiv 1402.3392, for the lanes.
 */
#ifndef SL_COMPRESS_RANS_H
#define SL_COMPRESS_RANS_H

#include "compress/codec.h"

#include <stddef.h>
#include <stdint.h>

#define SL_RANS_LANES 32
#define SL_RANS_BITS 11
#define SL_RANS_TOTAL (1u << SL_RANS_BITS)
#define SL_RANS_LOW (1u << 15) /* states: at least this, below 2^31 */
#define SL_RANS_SYMBOLS 32
#define SL_RANS_BLOCK 8192                   /* elements: two tiles */
#define SL_RANS_SEGMENT (64 * SL_RANS_BLOCK) /* elements with one table */
#define SL_RANS_NO_ESCAPE 0xff

/* Frequencies of symbols of a segment or, as state of an operation, of many messages. On the wire
 * as it lies in memory. */
struct sl_rans_table {
    uint8_t count;  /* 1 to SL_RANS_SYMBOLS */
    uint8_t escape; /* which one is the escape: the last, or SL_RANS_NO_ESCAPE */
    uint8_t zero[2];
    uint8_t symbol[SL_RANS_SYMBOLS]; /* ascending; what is not used is 0 */
    uint16_t freq[SL_RANS_SYMBOLS];  /* at least 1 each of count; their sum is SL_RANS_TOTAL */
};
_Static_assert(sizeof(struct sl_rans_table) == 100, "it is on the wire");

struct sl_rans_coded {
    uint32_t words, escapes;
};

/* *out: from count elements, at least 1, or from a sample where there are many. */
void sl_rans_table_build(const struct sl_codec_spec *spec, const void *in, size_t count,
                         struct sl_rans_table *out);

/* -EBADMSG and a sentence where it is none. */
int sl_rans_table_check(const struct sl_rans_table *table);

/* Like the codec's row, by a table that the receiver has, too: it is not in the message. The table
 * needs an escape. */
size_t sl_rans_encode_shared(const struct sl_codec_spec *spec, const struct sl_rans_table *table,
                             const void *in, size_t count, void *out);
int sl_rans_decode_shared(const struct sl_codec_spec *spec, const struct sl_rans_table *table,
                          const void *in, size_t len, size_t count, void *out);

#endif
