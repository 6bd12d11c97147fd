/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec "kmeans": of each tile the k largest elements, each as one of 3, 7 or 15 centroids (bits=2,
 * 3 or 4) that the message has. Its length varies.
 *
 * Message: 16 bytes with the lengths of the codes of symbols 0 to 15 (0: unused), 15 centroids of
 * f32 in ascending order and 20 zeros, then a stream of bits: for each element that is kept the gap
 * to the one before in Rice's code, and its symbol in a canonical Huffman code, whose first bit
 * comes first; zeros up to 16 bytes. The symbol after the centroids stands for what is no number,
 * or infinite: it decodes to NaN.
 *
 * Means are taken over bins of 1/64 of an octave, 16 octaves of each sign below the largest element
 * and what is smaller together, so that k-means costs the same for any length and needs no memory
 * beside the stack: at first all centroids have as many elements, then Lloyd's steps until nothing
 * moves.
 *
 * Source: A. Malekijoo et al., "FedZip: a compression framework for communication-efficient
 * federated learning", 2021.
 */
#include "compress/bits.h"
#include "compress/codecs.h"
#include "compress/elements.h"
#include "compress/huffman.h"
#include "compress/topk_kernels.h"
#include "core/err.h"

#define BINS 2048 /* in the order of values */
#define WILD BINS /* and one more, of what is no number or infinite */
#define BINS_OF_SIGN (BINS / 2)
#define CENTROIDS_MOST 15
#define STEPS_MOST 32
#define HEAD 96

struct bins {
    uint32_t largest; /* magnitude of a number */
    uint32_t count[BINS + 1];
    double sum[BINS + 1];
    uint8_t symbol[BINS + 1];
};

static unsigned centroids_of(const struct sl_codec_spec *spec)
{
    return (1u << spec->bits) - 1;
}

static size_t kept_of(const struct sl_codec_spec *spec, size_t count)
{
    size_t rest = count % SL_TILE;

    return count / SL_TILE * spec->k + (rest < spec->k ? rest : spec->k);
}

/* Most bits of all gaps with a Rice parameter. */
static size_t gap_bits(size_t count, size_t kept, unsigned rice)
{
    return (count >> rice) + kept * (1 + (size_t)rice);
}

/* The Rice parameter of a message, which needs not be sent. */
static unsigned rice_of(size_t count, size_t kept)
{
    unsigned rice = 0;

    while (rice < 12 && gap_bits(count, kept, rice + 1) < gap_bits(count, kept, rice))
        rice++;
    return rice;
}

static int check(const struct sl_codec_spec *spec)
{
    if (spec->k == 0 || spec->k > SL_TILE)
        return sl_fail(-EINVAL, "codec kmeans keeps k=1 to %u of each %u elements, not %u", SL_TILE,
                       SL_TILE, spec->k);
    if (spec->bits < 2 || spec->bits > 4)
        return sl_fail(-EINVAL,
                       "codec kmeans has 3, 7 or 15 centroids with bits=2, 3 or 4, not bits=%u",
                       spec->bits);
    return sl_codec_check_used(spec, SL_USES_K | SL_USES_BITS);
}

static size_t size(const struct sl_codec_spec *spec, size_t count)
{
    size_t kept = kept_of(spec, count), bits = gap_bits(count, kept, rice_of(count, kept));

    if (count == 0)
        return 0;
    return HEAD + sl_codec_round16((bits + kept * SL_HUFFMAN_BITS_MOST) / 8 + 1);
}

static unsigned bin_of(const struct bins *bins, float x)
{
    uint32_t magnitude = sl_f32_bits(x) & SL_BITS_ABS, below;

    if (magnitude >= SL_BITS_INF)
        return WILD;
    below = (bins->largest >> 17) - (magnitude >> 17);
    below = below < BINS_OF_SIGN ? below : BINS_OF_SIGN - 1;
    return sl_f32_bits(x) >> 31 != 0 ? below : BINS - 1 - below;
}

/* The largest number of all elements. */
static uint32_t largest_of(const struct sl_codec_spec *spec, const void *in, size_t count)
{
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2;
    uint32_t largest = 0;
    float floats[256];

    for (size_t first = 0; first < count; first += SL_ARRAY_LEN(floats)) {
        size_t n = count - first < SL_ARRAY_LEN(floats) ? count - first : SL_ARRAY_LEN(floats);

        sl_elements_widen(spec->dtype, (const char *)in + first * elem, n, floats);
        for (size_t i = 0; i < n; i++) {
            uint32_t magnitude = sl_f32_bits(floats[i]) & SL_BITS_ABS;

            magnitude = magnitude < SL_BITS_INF ? magnitude : 0;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    return largest;
}

/* Survivors of the tile that begins at first. */
static size_t survivors(const struct sl_codec_spec *spec, const void *in, size_t first,
                        size_t count, uint32_t *hint, uint32_t index[SL_TILE], float value[SL_TILE])
{
    size_t n = count - first < SL_TILE ? count - first : SL_TILE;
    size_t kept = n < spec->k ? n : spec->k;
    const char *at = (const char *)in + first * (spec->dtype == SLUICE_F32 ? 4 : 2);
    float floats[SL_TILE];

    sl_topk_tile(sl_elements_floats(spec->dtype, at, n, floats), n, kept, hint, index, value);
    return kept;
}

static void fill_bins(const struct sl_codec_spec *spec, const void *in, size_t count,
                      struct bins *bins)
{
    uint32_t index[SL_TILE], hint = 0;
    float value[SL_TILE];

    memset(bins, 0, sizeof(*bins));
    bins->largest = largest_of(spec, in, count);
    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t kept = survivors(spec, in, first, count, &hint, index, value);

        for (size_t i = 0; i < kept; i++) {
            unsigned bin = bin_of(bins, value[i]);

            bins->count[bin]++;
            bins->sum[bin] += (double)value[i];
        }
    }
}

/* Symbols by rank: as many elements for each centroid. */
static void split_evenly(struct bins *bins, unsigned centroids)
{
    uint64_t all = 0, below = 0;

    for (unsigned bin = 0; bin < BINS; bin++)
        all += bins->count[bin];
    for (unsigned bin = 0; bin < BINS; bin++) {
        if (bins->count[bin] != 0)
            bins->symbol[bin] = (uint8_t)((below + bins->count[bin] / 2) * centroids / all);
        below += bins->count[bin];
    }
    bins->symbol[WILD] = (uint8_t)centroids;
}

/* Means of the bins of each symbol. One that has none takes the place of its neighbour below, so
 * that they ascend. */
static void take_means(const struct bins *bins, unsigned centroids, double *mean)
{
    uint64_t count[CENTROIDS_MOST] = {0};
    double sum[CENTROIDS_MOST] = {0};

    for (unsigned bin = 0; bin < BINS; bin++) {
        count[bins->symbol[bin]] += bins->count[bin];
        sum[bins->symbol[bin]] += bins->sum[bin];
    }
    for (unsigned c = 0; c < centroids; c++)
        mean[c] = count[c] != 0 ? sum[c] / (double)count[c] : c > 0 ? mean[c - 1] : -0x1p200;
}

/* Gives each bin to the nearest mean, of two as near to the lower one. True: some have moved. */
static bool assign(struct bins *bins, unsigned centroids, const double *mean)
{
    unsigned c = 0;
    bool moved = false;

    for (unsigned bin = 0; bin < BINS; bin++) {
        if (bins->count[bin] == 0)
            continue;
        double x = bins->sum[bin] / bins->count[bin];

        while (c + 1 < centroids && x > (mean[c] + mean[c + 1]) / 2)
            c++;
        moved |= bins->symbol[bin] != c;
        bins->symbol[bin] = (uint8_t)c;
    }
    return moved;
}

static void find_centroids(struct bins *bins, unsigned centroids, float *out)
{
    double mean[CENTROIDS_MOST];

    split_evenly(bins, centroids);
    for (unsigned step = 0; step < STEPS_MOST; step++) {
        take_means(bins, centroids, mean);
        if (!assign(bins, centroids, mean))
            break;
    }
    take_means(bins, centroids, mean);
    for (unsigned c = 0; c < centroids; c++)
        out[c] = mean[c] < -0x1p199 ? 0 : (float)mean[c];
}

static size_t encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t count, void *out)
{
    unsigned centroids = centroids_of(spec), rice = rice_of(count, kept_of(spec, count));
    uint32_t index[SL_TILE], hint = 0, counts[SL_HUFFMAN_SYMBOLS] = {0};
    uint8_t *head = out;
    struct sl_bits_out bits = {.at = head + HEAD};
    struct sl_huffman huffman;
    float value[SL_TILE], means[CENTROIDS_MOST] = {0};
    struct bins bins;
    size_t next = 0, len;

    if (count == 0)
        return 0;
    fill_bins(spec, in, count, &bins);
    find_centroids(&bins, centroids, means);
    for (unsigned bin = 0; bin <= BINS; bin++)
        counts[bins.symbol[bin]] += bins.count[bin];
    sl_huffman_make(&huffman, counts);
    memset(out, 0, HEAD);
    memcpy(head, huffman.length, SL_HUFFMAN_SYMBOLS);
    memcpy(head + SL_HUFFMAN_SYMBOLS, means, sizeof(means));
    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t kept = survivors(spec, in, first, count, &hint, index, value);

        for (size_t i = 0; i < kept; i++) {
            sl_bits_put_rice(&bits, (uint32_t)(first + index[i] - next), rice);
            sl_huffman_put(&huffman, &bits, bins.symbol[bin_of(&bins, value[i])]);
            next = first + index[i] + 1;
        }
    }
    len = (size_t)(sl_bits_end(&bits) - head);
    memset(head + len, 0, sl_codec_round16(len) - len);
    return sl_codec_round16(len);
}

/* Where elements go: added to a sum, or into an array that is all zeros; nowhere, for a look
 * before anything is written. */
struct target {
    float *sum;
    char *out;
    unsigned dtype;
};

static void give(const struct target *to, size_t i, float x)
{
    if (to->sum != NULL)
        to->sum[i] += x;
    if (to->out != NULL)
        sl_elements_narrow(to->dtype, &x, 1, to->out + i * (to->dtype == SLUICE_F32 ? 4 : 2));
}

static int walk(const struct sl_codec_spec *spec, const void *in, size_t len, size_t count,
                const struct target *to)
{
    size_t kept = kept_of(spec, count), next = 0;
    unsigned rice = rice_of(count, kept), centroids = centroids_of(spec), symbol;
    const uint8_t *head = in;
    struct sl_bits_in bits = {.at = head + HEAD, .end = head + len};
    float means[CENTROIDS_MOST];
    struct sl_huffman huffman;
    uint32_t gap;

    if (len < HEAD || !sl_huffman_read(&huffman, head))
        return sl_fail(-EBADMSG, "a kmeans message begins with codes that cannot be");
    memcpy(means, head + SL_HUFFMAN_SYMBOLS, sizeof(means));
    for (size_t i = 0; i < kept; i++) {
        size_t most = count - next > UINT32_MAX ? UINT32_MAX : count - next - 1;

        if (next >= count || !sl_bits_get_rice(&bits, rice, (uint32_t)most, &gap) ||
            !sl_huffman_get(&huffman, &bits, &symbol) || symbol > centroids)
            return sl_fail(-EBADMSG, "a kmeans message of %zu elements ends early or leads outside",
                           count);
        give(to, next + gap, symbol < centroids ? means[symbol] : sl_f32_of(SL_BITS_NAN));
        next += gap + (size_t)1;
    }
    if (!sl_bits_close(&bits) || sl_codec_round16((size_t)(bits.at - head)) != len)
        return sl_fail(-EBADMSG, "a kmeans message has bytes after its last element");
    return 0;
}

static int read_message(const struct sl_codec_spec *spec, const void *in, size_t len, size_t count,
                        const struct target *to)
{
    static const struct target nowhere = {NULL};
    int err;

    if (count == 0 && len == 0)
        return 0;
    if (count == 0 || len > size(spec, count))
        return sl_fail(-EBADMSG, "a kmeans message of %zu elements has %zu bytes", count, len);
    err = walk(spec, in, len, count, &nowhere);
    if (err != 0)
        return err;
    if (to->out != NULL)
        memset(to->out, 0, count * (to->dtype == SLUICE_F32 ? 4 : 2));
    return walk(spec, in, len, count, to);
}

static int decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                  size_t len, size_t count, void *out)
{
    return read_message(spec, in, len, count, &(struct target){.out = out, .dtype = spec->dtype});
}

static int decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t len, size_t count, float *sum)
{
    return read_message(spec, in, len, count, &(struct target){.sum = sum});
}

const struct sl_codec sl_codec_kmeans = {
    .name = "kmeans",
    .help = "the k largest of each 4096, as one of 3, 7 or 15 values of the message",
    .id = SL_CODEC_KMEANS,
    .flags = 0,
    .check = check,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
