/* SPDX-License-Identifier: Apache-2.0 */
/* rANS of a block, lane by lane: the reference. */
#include "compress/rans_c.h"

#include <string.h>

/* Where in 32 elements those of a lane are. */
static size_t place_of(unsigned lane)
{
    return lane < 16 ? 2 * lane : 2 * (lane - 16) + 1;
}

struct sl_rans_coded sl_rans_encode_c(const struct sl_rans_table *table, const uint8_t *exponents,
                                      size_t count, uint16_t *words, uint32_t states[SL_RANS_LANES],
                                      uint8_t *escapes)
{
    struct sl_rans_coded coded = {0};
    uint32_t start[SL_RANS_SYMBOLS], sum = 0;
    uint8_t rank[256];

    memset(rank, table->escape, sizeof(rank));
    for (unsigned r = 0; r < table->count; r++) {
        start[r] = sum;
        sum += table->freq[r];
        if (r != table->escape)
            rank[table->symbol[r]] = (uint8_t)r;
    }
    for (unsigned l = 0; l < SL_RANS_LANES; l++)
        states[l] = SL_RANS_LOW;
    for (size_t i = 0; i < count; i++)
        if (rank[exponents[i]] == table->escape)
            escapes[coded.escapes++] = exponents[i];
    for (size_t i = 0; i < count; i += SL_RANS_LANES)
        for (unsigned l = 0; l < SL_RANS_LANES; l++) {
            unsigned r = rank[exponents[i + place_of(l)]];
            uint32_t *x = &states[l], freq = table->freq[r];

            /* What a further step would lift out of 31 bits gives up its low half first. */
            if (*x >= freq << (31 - SL_RANS_BITS)) {
                words[coded.words++] = (uint16_t)*x;
                *x >>= 16;
            }
            *x = (*x / freq << SL_RANS_BITS) + *x % freq + start[r];
        }
    return coded;
}

/* What each of the 2^11 low parts of a state stands for. */
struct slot {
    uint16_t freq, above; /* above the first slot of its symbol */
    uint8_t rank;
};

/* A step of all lanes. ranks: of 32 elements. Returns how many words it takes, or UINT32_MAX where
 * there are not as many. */
static uint32_t step(const struct slot *slots, uint32_t states[SL_RANS_LANES], const uint8_t *words,
                     uint32_t left, uint8_t ranks[SL_RANS_LANES])
{
    uint32_t wanting = 0, w;

    for (unsigned l = 0; l < SL_RANS_LANES; l++) {
        const struct slot *slot = &slots[states[l] & (SL_RANS_TOTAL - 1)];

        states[l] = slot->freq * (states[l] >> SL_RANS_BITS) + slot->above;
        wanting += states[l] < SL_RANS_LOW;
        ranks[place_of(l)] = slot->rank;
    }
    if (wanting > left)
        return UINT32_MAX;
    w = left - wanting;
    for (unsigned l = 0; l < SL_RANS_LANES; l++)
        if (states[l] < SL_RANS_LOW) {
            uint16_t word;

            memcpy(&word, words + 2 * (size_t)w++, 2);
            states[l] = states[l] << 16 | word;
        }
    return wanting;
}

/* Exponents of 32 elements; escapes are taken from the last to the first. */
static bool put_exponents(const struct sl_rans_table *table, const struct sl_rans_block *block,
                          const uint8_t ranks[SL_RANS_LANES], size_t first, uint32_t *escapes)
{
    for (unsigned i = SL_RANS_LANES; i-- > 0;) {
        block->exponents[first + i] = table->symbol[ranks[i]];
        if (ranks[i] != table->escape)
            continue;
        if (*escapes == 0)
            return false;
        block->exponents[first + i] = block->escapes[--*escapes];
    }
    return true;
}

static bool decode_block(const struct sl_rans_table *table, const struct slot *slots,
                         const struct sl_rans_block *block)
{
    uint32_t states[SL_RANS_LANES], words = block->word_count, escapes = block->escape_count;
    uint8_t ranks[SL_RANS_LANES];
    bool good = true;

    memcpy(states, block->states, sizeof(states));
    for (unsigned l = 0; l < SL_RANS_LANES; l++)
        good = good && states[l] >= SL_RANS_LOW && states[l] < 1u << 31;
    for (size_t first = block->count; good && first > 0;) {
        uint32_t taken = step(slots, states, block->words, words, ranks);

        first -= SL_RANS_LANES;
        good = taken != UINT32_MAX && put_exponents(table, block, ranks, first, &escapes);
        words -= taken;
    }
    for (unsigned l = 0; l < SL_RANS_LANES; l++)
        good = good && states[l] == SL_RANS_LOW;
    return good && words == 0 && escapes == 0;
}

bool sl_rans_decode_c(const struct sl_rans_table *table, const struct sl_rans_block *blocks,
                      unsigned count)
{
    struct slot slots[SL_RANS_TOTAL];
    bool good = true;

    for (unsigned r = 0, at = 0; r < table->count; r++)
        for (unsigned above = 0; above < table->freq[r]; above++)
            slots[at++] = (struct slot){table->freq[r], (uint16_t)above, (uint8_t)r};
    for (unsigned b = 0; b < count && good; b++)
        good = decode_block(table, slots, &blocks[b]);
    return good;
}

bool sl_rans_put_escapes(const struct sl_rans_block *block, size_t first, uint32_t mask,
                         uint32_t *left)
{
    while (mask != 0) {
        unsigned lane = 31 - (unsigned)__builtin_clz(mask);

        if (*left == 0)
            return false;
        block->exponents[first + lane] = block->escapes[--*left];
        mask &= ~(1u << lane);
    }
    return true;
}
