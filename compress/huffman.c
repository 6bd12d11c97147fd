/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and reads canonical Huffman codes of 16 symbols. */
#include "compress/huffman.h"

#include <string.h>

#define SYMBOLS SL_HUFFMAN_SYMBOLS
#define BITS_MOST SL_HUFFMAN_BITS_MOST

/* Trees that are not joined yet: how often, and which symbols they hold. */
struct tree {
    uint64_t weight;
    uint16_t symbols;
};

/* The lightest tree, of equals the one that came first. */
static struct tree take_lightest(struct tree *trees, unsigned *n)
{
    unsigned best = 0;
    struct tree taken;

    for (unsigned i = 1; i < *n; i++)
        if (trees[i].weight < trees[best].weight)
            best = i;
    taken = trees[best];
    memmove(trees + best, trees + best + 1, (--*n - best) * sizeof(*trees));
    return taken;
}

/* Codes of the lengths. */
static void assign(struct sl_huffman *h)
{
    unsigned code = 0, at = 0;

    memset(h->code, 0, sizeof(h->code));
    memset(h->sorted, 0, sizeof(h->sorted));
    memset(h->count, 0, sizeof(h->count));
    for (unsigned bits = 1; bits <= BITS_MOST; bits++, code <<= 1)
        for (unsigned s = 0; s < SYMBOLS; s++) {
            if (h->length[s] != bits)
                continue;
            for (unsigned i = 0; i < bits; i++)
                h->code[s] |= (uint16_t)((code >> i & 1) << (bits - 1 - i));
            h->sorted[at++] = (uint8_t)s;
            h->count[bits]++;
            code++;
        }
}

void sl_huffman_make(struct sl_huffman *h, const uint32_t counts[SYMBOLS])
{
    struct tree trees[SYMBOLS];
    unsigned n = 0;

    memset(h->length, 0, sizeof(h->length));
    for (unsigned s = 0; s < SYMBOLS; s++)
        if (counts[s] != 0)
            trees[n++] = (struct tree){counts[s], (uint16_t)(1u << s)};
    for (unsigned s = 0; n == 1 && s < SYMBOLS; s++)
        h->length[s] = trees[0].symbols >> s & 1;
    while (n > 1) {
        struct tree a = take_lightest(trees, &n), b = take_lightest(trees, &n);

        trees[n++] = (struct tree){a.weight + b.weight, a.symbols | b.symbols};
        for (unsigned s = 0; s < SYMBOLS; s++)
            h->length[s] += trees[n - 1].symbols >> s & 1;
    }
    assign(h);
}

bool sl_huffman_read(struct sl_huffman *h, const uint8_t lengths[SYMBOLS])
{
    uint32_t full = 0;
    unsigned used = 0;

    for (unsigned s = 0; s < SYMBOLS; s++) {
        if (lengths[s] > BITS_MOST)
            return false;
        used += lengths[s] != 0;
        full += lengths[s] != 0 ? 1u << (BITS_MOST - lengths[s]) : 0;
    }
    /* One symbol leaves half of its code unused. */
    if (full != (used == 1 ? 1u << (BITS_MOST - 1) : 1u << BITS_MOST))
        return false;
    memcpy(h->length, lengths, SYMBOLS);
    assign(h);
    return true;
}

bool sl_huffman_get(const struct sl_huffman *h, struct sl_bits_in *in, unsigned *symbol)
{
    uint32_t code = 0, first = 0, at = 0, bit;

    for (unsigned bits = 1; bits <= BITS_MOST; bits++) {
        if (!sl_bits_get(in, 1, &bit))
            return false;
        code = code << 1 | bit;
        first <<= 1;
        if (code - first < h->count[bits]) {
            *symbol = h->sorted[at + code - first];
            return true;
        }
        first += h->count[bits];
        at += h->count[bits];
    }
    return false;
}
