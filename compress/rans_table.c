/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of rANS: frequencies that add up to 2^11, from what is to be encoded. */
#include "compress/lossless.h"
#include "compress/rans.h"

#include "core/err.h"

#include <string.h>

/* Of more tiles than this every 8th is counted, which costs a little of the ratio and an eighth of
 * a pass; what the sample has not seen is an escape. */
#define WHOLE_TILES 64
#define SAMPLE_STRIDE 8

static void count_tile(const uint8_t *exponents, size_t n, uint32_t counts[256])
{
    uint32_t some[4][256] = {0}; /* equal symbols do not wait for one counter */

    for (size_t i = 0; i < n; i += 4)
        for (unsigned k = 0; k < 4; k++)
            some[k][exponents[i + k]]++;
    for (unsigned s = 0; s < 256; s++)
        counts[s] += some[0][s] + some[1][s] + some[2][s] + some[3][s];
}

/* What symbols there are, and how often. Returns whether all elements were counted. */
static bool count_symbols(const struct sl_codec_spec *spec, const void *in, size_t count,
                          uint32_t counts[256])
{
    size_t stride = sl_lossless_tiles(count) > WHOLE_TILES ? SAMPLE_STRIDE : 1;
    uint8_t raw[3 * SL_TILE], exponents[SL_TILE];
    char room[SL_TILE * 4];

    memset(counts, 0, 256 * sizeof(counts[0]));
    for (size_t first = 0; first < count; first += stride * SL_TILE) {
        size_t wanted = count - first < SL_TILE ? count - first : SL_TILE, n;
        const void *tile = sl_lossless_tile(spec->dtype, in, first, wanted, room, &n);

        sl_lossless_path()->split(spec->dtype, tile, n, raw, exponents, false);
        count_tile(exponents, n, counts);
    }
    return stride == 1;
}

/* The most frequent first; of equals the smaller. Returns how many there are. */
static unsigned sort_symbols(const uint32_t counts[256], uint8_t order[256])
{
    unsigned n = 0;

    for (unsigned s = 0; s < 256; s++) {
        unsigned at = n;

        if (counts[s] == 0)
            continue;
        for (; at > 0 && counts[order[at - 1]] < counts[s]; at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)s;
        n++;
    }
    return n;
}

/* Frequencies of n counts, at least 1 each: rounded, and what they then lack or have too much is
 * the largest one's. */
static void scale(const uint32_t *counts, unsigned n, uint16_t *freq)
{
    uint64_t total = 0;
    uint32_t sum = 0;

    for (unsigned r = 0; r < n; r++)
        total += counts[r];
    for (unsigned r = 0; r < n; r++) {
        uint64_t f = total > 0 ? (counts[r] * (uint64_t)SL_RANS_TOTAL + total / 2) / total : 0;

        freq[r] = (uint16_t)(f > 0 ? f : 1);
        sum += freq[r];
    }
    while (sum != SL_RANS_TOTAL) {
        unsigned largest = 0;

        for (unsigned r = 1; r < n; r++)
            if (freq[r] > freq[largest])
                largest = r;
        if (sum < SL_RANS_TOTAL) {
            freq[largest] = (uint16_t)(freq[largest] + (SL_RANS_TOTAL - sum));
            sum = SL_RANS_TOTAL;
        } else {
            freq[largest]--;
            sum--;
        }
    }
}

void sl_rans_table_build(const struct sl_codec_spec *spec, const void *in, size_t count,
                         struct sl_rans_table *out)
{
    uint32_t counts[256], kept[SL_RANS_SYMBOLS] = {0};
    bool whole = count_symbols(spec, in, count, counts);
    bool is_kept[256] = {false};
    uint8_t order[256];
    unsigned n = sort_symbols(counts, order);
    bool escape = !whole || n > SL_RANS_SYMBOLS;
    unsigned most = SL_RANS_SYMBOLS - escape, r = 0;

    *out = (struct sl_rans_table){.escape = SL_RANS_NO_ESCAPE};
    for (unsigned i = 0; i < n && i < most; i++)
        is_kept[order[i]] = true;
    for (unsigned s = 0; s < 256; s++)
        if (is_kept[s]) {
            kept[r] = counts[s];
            out->symbol[r++] = (uint8_t)s;
        }
    if (escape) {
        for (unsigned i = most; i < n; i++)
            kept[r] += counts[order[i]];
        out->escape = (uint8_t)r++;
    }
    out->count = (uint8_t)r;
    scale(kept, r, out->freq);
}

int sl_rans_table_check(const struct sl_rans_table *table)
{
    bool escape = table->escape != SL_RANS_NO_ESCAPE;
    uint32_t sum = 0;

    if (table->zero[0] != 0 || table->zero[1] != 0)
        return sl_fail(-EBADMSG, "a table of rANS has bytes that are not 0 where they should be");
    if (table->count == 0 || table->count > SL_RANS_SYMBOLS)
        return sl_fail(-EBADMSG, "a table of rANS has %u symbols, not 1 to %u", table->count,
                       SL_RANS_SYMBOLS);
    if (escape && table->escape != table->count - 1)
        return sl_fail(-EBADMSG, "the escape of a table of rANS is symbol %u of %u, not the last",
                       table->escape, table->count);
    for (unsigned r = 0; r < SL_RANS_SYMBOLS; r++) {
        bool named = r < table->count && r != table->escape;

        if ((table->freq[r] != 0) != (r < table->count))
            return sl_fail(-EBADMSG, "a table of rANS of %u symbols has frequency %u for symbol %u",
                           table->count, table->freq[r], r);
        if (named ? r > 0 && table->symbol[r] <= table->symbol[r - 1] : table->symbol[r] != 0)
            return sl_fail(-EBADMSG, "the symbols of a table of rANS do not ascend");
        sum += table->freq[r];
    }
    if (sum != SL_RANS_TOTAL)
        return sl_fail(-EBADMSG, "the frequencies of a table of rANS add up to %u, not %u", sum,
                       SL_RANS_TOTAL);
    return 0;
}
