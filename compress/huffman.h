/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canonical Huffman codes of 16 symbols: only lengths are sent. Codes ascend by (length, symbol);
 * their first bit goes first.
 */
#ifndef SL_COMPRESS_HUFFMAN_H
#define SL_COMPRESS_HUFFMAN_H

#include "compress/bits.h"

#define SL_HUFFMAN_SYMBOLS 16
#define SL_HUFFMAN_BITS_MOST 15 /* of a code: as many as 16 symbols can take */

struct sl_huffman {
    uint8_t length[SL_HUFFMAN_SYMBOLS];      /* 0: the symbol is not used */
    uint16_t code[SL_HUFFMAN_SYMBOLS];       /* reversed, as it is put */
    uint8_t sorted[SL_HUFFMAN_SYMBOLS];      /* symbols by (length, symbol) */
    uint8_t count[SL_HUFFMAN_BITS_MOST + 1]; /* codes of each length */
};

/* The best code for symbols that occur as often; at least one does. A lone symbol takes a bit. */
void sl_huffman_make(struct sl_huffman *h, const uint32_t counts[SL_HUFFMAN_SYMBOLS]);

/* From lengths of foreign origin. False: they are no complete code. */
bool sl_huffman_read(struct sl_huffman *h, const uint8_t lengths[SL_HUFFMAN_SYMBOLS]);

static inline void sl_huffman_put(const struct sl_huffman *h, struct sl_bits_out *out,
                                  unsigned symbol)
{
    sl_bits_put(out, h->code[symbol], h->length[symbol]);
}

/* False: the bytes end, or there is no such code. */
bool sl_huffman_get(const struct sl_huffman *h, struct sl_bits_in *in, unsigned *symbol);

#endif
