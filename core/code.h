/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What those who plan need to know of a codec with its parameters: how many bytes it makes of how
 * many elements. The codec itself is behind a runner (core/step.h).
 */
#ifndef SL_CORE_CODE_H
#define SL_CORE_CODE_H

#include <stdbool.h>
#include <stdint.h>

/* What an element costs the processor, in encodings of an element of f32 by the codec that
 * sl_costs.code is of. For predictions alone. */
struct sl_code_work {
    float encode, decode, add;
};

#define SL_CODE_TERMS_MAX 2

/* Numbers that a codec makes of elements so that those of all ranks are reduced as any others. */
struct sl_code_term {
    uint8_t dtype, op; /* enum sluice_dtype, enum sluice_op */
};

/* Whoever makes one embeds it. It does not change while a plan goes by it. */
struct sl_code {
    /* Of an encoding of count elements (at least 1): exactly, or with up_to the most. */
    uint64_t (*bytes)(const struct sl_code *code, uint64_t count);
    uint32_t tile; /* elements: what is encoded apart is whole tiles, but for the last ones */
    bool up_to;    /* how many bytes there are is known once they are encoded */
    bool exact;    /* nothing is lost: decoded they are what they were */
    bool sparse;   /* an encoding has few of the elements: sums of several have more */
    /* The same on ranks with the same codec and parameters, and on no others, as far as 24 bits of
     * a hash can tell; above them a number for the codec's name. Never 0, which stands for none. */
    uint32_t mark;
    struct sl_code_work work;
    /* Bytes that an element usually takes, where bytes() says but the most; 0: what it says. */
    float usual;
    /* Encodings that add have terms in place of bytes: each is reduced over all ranks before the
     * next is made, which goes by what has come out, and the elements' sum is decoded from what has
     * come out of all. 0: they do not add. */
    uint32_t term_count;
    struct sl_code_term terms[SL_CODE_TERMS_MAX];
    /* Numbers of a term of count elements from the beginning of a tile on; each whole tile has as
     * many. 0: sums of so many ranks do not fit. */
    uint64_t (*term_len)(const struct sl_code *code, unsigned term, uint32_t ranks, uint64_t count);
};

static inline uint32_t sl_code_mark(uint32_t name, uint32_t hash)
{
    return name << 24 | (hash & 0xffffff) | 1;
}

static inline uint32_t sl_code_mark_name(uint32_t mark)
{
    return mark >> 24;
}

#endif
