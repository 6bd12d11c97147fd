/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes over signs: the mean magnitude of a tile, then counters of the ranks that are below zero,
 * 16 to 1 in a word. Loops know how many at compile time: with vectors they are ten times as fast.
 */
#include "compress/terms_codecs.h"

#include <string.h>

enum { MEANS, COUNTERS };

#define HEAD 16 /* bytes of the codec's message before its signs; the first are the mean */
#define INLINE static inline __attribute__((always_inline))

static void types(const struct sl_codec_spec *spec, struct sl_code_term *terms)
{
    terms[MEANS] = (struct sl_code_term){SLUICE_F32, SLUICE_SUM};
    terms[COUNTERS] = (struct sl_code_term){SLUICE_U32, SLUICE_SUM};
}

/* Bits of a counter up to that number, so that a word has whole counters. */
static unsigned counter_bits(uint32_t ranks)
{
    unsigned bits = 2;

    while (bits < 32 && ranks >> bits != 0)
        bits *= 2;
    return bits;
}

static size_t words_of(unsigned bits, size_t count)
{
    return (count * bits + 31) / 32;
}

static size_t len(const struct sl_codec_spec *spec, unsigned term, uint32_t ranks, size_t count)
{
    return term == MEANS ? 1 : words_of(counter_bits(ranks), count);
}

/* signs: those of a whole tile; past the last element they are 0. */
INLINE void count(const unsigned char *signs, size_t words, unsigned bits, uint32_t *out)
{
    unsigned each = 32 / bits;

    for (size_t w = 0; w < words; w++) {
        uint32_t word = 0;

        for (unsigned j = 0; j < each; j++) {
            size_t i = w * each + j;

            word |= (uint32_t)(signs[i / 8] >> i % 8 & 1) << j * bits;
        }
        out[w] = word;
    }
}

/* below: the most ranks below zero for a sum above it; above: the least for one below. */
INLINE void decide(const uint32_t *words, size_t elements, unsigned bits, uint32_t below,
                   uint32_t above, float mean, float *out)
{
    unsigned each = 32 / bits;
    uint32_t mask = ~0u >> (32 - bits);

    for (size_t i = 0; i < elements; i++) {
        uint32_t votes = words[i / each] >> i % each * bits & mask;

        out[i] = mean * (float)((votes < below) - (votes > above));
    }
}

static void encode(const struct sl_terms_at *at, const float *in, size_t elements, void *out)
{
    _Alignas(16) unsigned char message[HEAD + SL_TILE / 8] = {0};
    struct sl_codec_spec spec = sl_terms_spec(at);
    unsigned bits = counter_bits(at->ranks);
    size_t words = words_of(bits, elements);

    sl_codec_by_id(spec.id)->encode(&spec, &at->at, in, elements, message);
    if (at->term == MEANS) {
        memcpy(out, message, sizeof(float));
        return;
    }
    switch (bits) {
    case 2: count(message + HEAD, words, 2, out); break;
    case 4: count(message + HEAD, words, 4, out); break;
    case 8: count(message + HEAD, words, 8, out); break;
    case 16: count(message + HEAD, words, 16, out); break;
    default: count(message + HEAD, words, 32, out);
    }
}

static void decode(const struct sl_terms_at *at, const void *in, uint32_t parts, size_t elements,
                   float *out)
{
    uint32_t below = parts / 2 + parts % 2, above = parts / 2;
    float mean;

    memcpy(&mean, at->before, sizeof(mean));
    mean *= (float)parts / (float)at->ranks;
    switch (counter_bits(at->ranks)) {
    case 2: decide(in, elements, 2, below, above, mean, out); break;
    case 4: decide(in, elements, 4, below, above, mean, out); break;
    case 8: decide(in, elements, 8, below, above, mean, out); break;
    case 16: decide(in, elements, 16, below, above, mean, out); break;
    default: decide(in, elements, 32, below, above, mean, out);
    }
}

const struct sl_terms sl_terms_vote = {
    .count = 2, .types = types, .len = len, .encode = encode, .decode = decode};
