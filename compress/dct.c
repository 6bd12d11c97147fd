/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec "dct": cosine transforms (DCT-II, orthonormal) of chunks of 64 elements, of each of which
 * the k largest coefficients are kept. A tile: places, then coefficients in bf16 (with bits=32 in
 * f32), each with zeros up to 16 bytes, chunk by chunk. Places of k <= 10 are k numbers of 6 bits
 * that ascend, the lowest bits first; of more, a word of 64 bits with k set. The last chunk is
 * filled up with zeros.
 *
 * All sums are in f32, in the order of their terms. A chunk that has NaN or infinities, or whose
 * sums have, decodes to NaN.
 *
 * Source: B. Peng et al., "DeMo: decoupled momentum optimization", 2024.
 */
#include "compress/bits.h"
#include "compress/dct.h"
#include "compress/dct_kernels.h"
#include "compress/elements.h"
#include "compress/kernels.h"
#include "compress/tilewise.h"
#include "core/err.h"

#define CHUNK SL_DCT_CHUNK
#define HALF (CHUNK / 2)
#define LIST_MOST 10 /* places of 6 bits take fewer bytes than a word */

/* sqrt(1 / 32) cos(pi i / 128), nearest. */
static const float cosines[CHUNK + 1] = {
    0x1.6a09e6p-3f, 0x1.69edfcp-3f, 0x1.699a42p-3f, 0x1.690ec6p-3f, 0x1.684b9cp-3f,
    0x1.6750e4p-3f, 0x1.661ec2p-3f, 0x1.64b568p-3f, 0x1.63150cp-3f, 0x1.613deep-3f,
    0x1.5f3056p-3f, 0x1.5cec98p-3f, 0x1.5a730cp-3f, 0x1.57c414p-3f, 0x1.54e018p-3f,
    0x1.51c78cp-3f, 0x1.4e7aeap-3f, 0x1.4afab2p-3f, 0x1.474772p-3f, 0x1.4361bap-3f,
    0x1.3f4a24p-3f, 0x1.3b015p-3f,  0x1.3687eap-3f, 0x1.31dea2p-3f, 0x1.2d062ep-3f,
    0x1.27ff5p-3f,  0x1.22caccp-3f, 0x1.1d6972p-3f, 0x1.17dc14p-3f, 0x1.12238ep-3f,
    0x1.0c40c2p-3f, 0x1.063498p-3f, 0x1p-3f,        0x1.f347dcp-4f, 0x1.e642b8p-4f,
    0x1.d8f29ap-4f, 0x1.cb598cp-4f, 0x1.bd79aap-4f, 0x1.af5516p-4f, 0x1.a0edfep-4f,
    0x1.92469cp-4f, 0x1.836132p-4f, 0x1.74400ap-4f, 0x1.64e57cp-4f, 0x1.5553e4p-4f,
    0x1.458daap-4f, 0x1.35953cp-4f, 0x1.256d12p-4f, 0x1.1517a8p-4f, 0x1.049782p-4f,
    0x1.e7de5ep-5f, 0x1.c6427ap-5f, 0x1.a4608ap-5f, 0x1.823dc8p-5f, 0x1.5fdf76p-5f,
    0x1.3d4aep-5f,  0x1.1a855ep-5f, 0x1.ef2894p-6f, 0x1.a8fa12p-6f, 0x1.628a08p-6f,
    0x1.1be352p-6f, 0x1.aa21a8p-7f, 0x1.1c3af6p-7f, 0x1.1c50e2p-8f, 0,
};

/* Coefficient k of element j. */
static float weight(unsigned k, unsigned j)
{
    unsigned angle = (2 * j + 1) * k % 256;

    if (k == 0)
        return 0.125f;
    if (angle > 128)
        angle = 256 - angle;
    return angle > 64 ? -cosines[128 - angle] : cosines[angle];
}

static void weights_make(struct sl_dct_weights *w)
{
    for (unsigned j = 0; j < HALF; j++)
        for (unsigned k = 0; k < CHUNK; k++)
            w->of[k % 2][j][k / 2] = weight(k, j);
}

/* The best that goes with the codecs' kernels, forced or not. */
static sl_dct_forward *forward_of_cpu(void)
{
#ifdef __x86_64__
    const char *name = sl_codec_kernels()->name;

    if (strcmp(name, "avx512") == 0)
        return sl_dct_forward_avx512;
    if (strcmp(name, "avx2") == 0)
        return sl_dct_forward_avx2;
#endif
    return sl_dct_forward_c;
}

/* What the coefficients at these places are of elements: sums in the order of places, even and odd
 * ones apart. */
static void transform_back(const float rows[CHUNK][HALF], const uint8_t *place, const float *value,
                           unsigned kept, float out[CHUNK])
{
    float part[2][HALF] = {{0}};

    for (unsigned i = 0; i < kept; i++) {
        const float *row = rows[place[i]];
        float *sum = part[place[i] % 2];

        for (unsigned j = 0; j < HALF; j++)
            sum[j] += value[i] * row[j];
    }
    for (unsigned j = 0; j < HALF; j++) {
        out[j] = part[0][j] + part[1][j];
        out[CHUNK - 1 - j] = part[0][j] - part[1][j];
    }
}

static size_t chunks_of(size_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

static size_t width_of(const struct sl_codec_spec *spec)
{
    return spec->bits == 32 ? 4 : 2;
}

static size_t places_len(const struct sl_codec_spec *spec, size_t count)
{
    size_t bits = spec->k <= LIST_MOST ? spec->k * 6 : 64;

    return sl_codec_round16((chunks_of(count) * bits + 7) / 8);
}

static size_t tile_len(const struct sl_codec_spec *spec, size_t count)
{
    return places_len(spec, count) + sl_codec_round16(chunks_of(count) * spec->k * width_of(spec));
}

static int check(const struct sl_codec_spec *spec)
{
    if (spec->k == 0 || spec->k > CHUNK)
        return sl_fail(-EINVAL, "codec dct keeps k=1 to %u of each %u coefficients, not %u", CHUNK,
                       CHUNK, spec->k);
    if (spec->bits != 0 && spec->bits != 32)
        return sl_fail(-EINVAL, "codec dct has values of bf16, or of f32 with bits=32, not bits=%u",
                       spec->bits);
    return sl_codec_check_used(spec, SL_USES_K | SL_USES_BITS);
}

static void put_places(uint64_t places, unsigned k, struct sl_bits_out *bits)
{
    if (k > LIST_MOST) {
        sl_bits_put(bits, (uint32_t)places, 32);
        sl_bits_put(bits, (uint32_t)(places >> 32), 32);
        return;
    }
    for (; places != 0; places &= places - 1)
        sl_bits_put(bits, (uint32_t)__builtin_ctzll(places), 6);
}

static void encode_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const float *in, size_t count, uint32_t *hint, void *out)
{
    uint8_t *values = (uint8_t *)out + places_len(spec, count);
    sl_dct_forward *forward = forward_of_cpu();
    struct sl_bits_out bits = {.at = out};
    float chunk[CHUNK], value[CHUNK];
    struct sl_dct_weights w;

    weights_make(&w);
    memset(out, 0, tile_len(spec, count));
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t n = count - first < CHUNK ? count - first : CHUNK;

        memset(chunk, 0, sizeof(chunk));
        memcpy(chunk, in + first, n * sizeof(*in));
        uint64_t places = forward(&w, chunk, spec->k);
        unsigned kept = 0;

        put_places(places, spec->k, &bits);
        for (; places != 0; places &= places - 1)
            value[kept++] = chunk[__builtin_ctzll(places)];
        sl_elements_narrow(spec->bits == 32 ? SLUICE_F32 : SLUICE_BF16, value, spec->k,
                           values + first / CHUNK * spec->k * width_of(spec));
    }
    sl_bits_end(&bits);
}

/* False: they are not k that ascend. */
static bool get_places(struct sl_bits_in *bits, unsigned k, uint8_t place[CHUNK])
{
    uint32_t low = 0, high = 0, next = 0, at;

    if (k > LIST_MOST) {
        unsigned kept = 0;

        (void)sl_bits_get(bits, 32, &low);
        (void)sl_bits_get(bits, 32, &high);
        for (uint64_t word = (uint64_t)high << 32 | low; word != 0; word &= word - 1)
            place[kept++] = (uint8_t)__builtin_ctzll(word);
        return kept == k;
    }
    for (unsigned i = 0; i < k; i++) {
        if (!sl_bits_get(bits, 6, &at) || at < next)
            return false;
        place[i] = (uint8_t)at;
        next = at + 1;
    }
    return true;
}

/* The places of one chunk and their values, which lie at values. */
static int get_chunk(const struct sl_codec_spec *spec, struct sl_bits_in *bits,
                     const uint8_t *values, uint8_t place[CHUNK], float value[CHUNK])
{
    if (!get_places(bits, spec->k, place))
        return sl_fail(-EBADMSG,
                       "a dct chunk has places of coefficients that are not %u "
                       "ascending ones",
                       spec->k);
    sl_elements_widen(spec->bits == 32 ? SLUICE_F32 : SLUICE_BF16, values, spec->k, value);
    return 0;
}

static void rows_make(float rows[CHUNK][HALF])
{
    for (unsigned k = 0; k < CHUNK; k++)
        for (unsigned j = 0; j < HALF; j++)
            rows[k][j] = weight(k, j);
}

static int add_tile(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                    size_t count, float *sum)
{
    const uint8_t *values = (const uint8_t *)in + places_len(spec, count);
    struct sl_bits_in bits = {.at = in, .end = values};
    float chunk[CHUNK], value[CHUNK], rows[CHUNK][HALF];
    uint8_t place[CHUNK];

    rows_make(rows);
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t n = count - first < CHUNK ? count - first : CHUNK;
        int err =
            get_chunk(spec, &bits, values + first / CHUNK * spec->k * width_of(spec), place, value);

        if (err != 0)
            return err;
        transform_back((const float(*)[HALF])rows, place, value, spec->k, chunk);
        for (size_t i = 0; i < n; i++)
            sum[first + i] += chunk[i];
    }
    return 0;
}

/* Of one tile, its coefficients. */
static int add_coefficients(const struct sl_codec_spec *spec, const uint8_t *in, size_t count,
                            float *sum, uint32_t *times)
{
    const uint8_t *values = in + places_len(spec, count);
    struct sl_bits_in bits = {.at = in, .end = values};
    uint8_t place[CHUNK];
    float value[CHUNK];

    for (size_t first = 0; first < count; first += CHUNK) {
        int err =
            get_chunk(spec, &bits, values + first / CHUNK * spec->k * width_of(spec), place, value);

        if (err != 0)
            return err;
        for (unsigned i = 0; i < spec->k; i++) {
            sum[first + place[i]] += value[i];
            times[first + place[i]]++;
        }
    }
    return 0;
}

int sl_dct_add_coefficients(const struct sl_codec_spec *spec, const void *in, size_t len,
                            size_t count, float *sum, uint32_t *times)
{
    const uint8_t *tile = in;
    int err = sl_codec_check_len(spec, len, count);

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE;

        err = add_coefficients(spec, tile, n, sum + first, times + first);
        tile += tile_len(spec, n);
    }
    return err;
}

void sl_dct_back(const float *coefficients, size_t count, float *out)
{
    float chunk[CHUNK], rows[CHUNK][HALF];
    uint8_t place[CHUNK];

    rows_make(rows);
    for (unsigned i = 0; i < CHUNK; i++)
        place[i] = (uint8_t)i;
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t n = count - first < CHUNK ? count - first : CHUNK;

        transform_back((const float(*)[HALF])rows, place, coefficients + first, CHUNK, chunk);
        memcpy(out + first, chunk, n * sizeof(*out));
    }
}

static const struct sl_tilewise tiles = {tile_len, encode_tile, add_tile};

SL_TILEWISE_FUNCTIONS

const struct sl_codec sl_codec_dct = {
    .name = "dct",
    .help = "the k largest cosine coefficients of each 64 elements",
    .id = SL_CODEC_DCT,
    .flags = SL_CODEC_FIXED,
    .check = check,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
