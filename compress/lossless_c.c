/* SPDX-License-Identifier: Apache-2.0 */
/* Lossless codecs: the inner loops in plain C, which are the reference of all others. */
#include "compress/lossless.h"

#include "compress/palette_escapes.h"
#include "compress/rans_c.h"

#include <string.h>

static const char *lacks(void)
{
    return NULL;
}

static void split_16(unsigned shift, const char *in, size_t n, uint8_t *raw, uint8_t *exponents)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t x;

        memcpy(&x, in + 2 * i, 2);
        x = (uint16_t)(x << 1 | x >> 15);
        raw[i] = (uint8_t)x;
        exponents[i] = (uint8_t)(x >> shift);
    }
}

/* Bits 8 to 10 of f16, which are neither a byte nor of the exponent. */
static void split_f16_bits(const char *in, size_t n, uint8_t *planes)
{
    memset(planes, 0, 3 * (n / 8));
    for (size_t i = 0; i < n; i++) {
        uint16_t x;

        memcpy(&x, in + 2 * i, 2);
        for (unsigned b = 0; b < 3; b++)
            planes[b * (n / 8) + i / 8] |= (uint8_t)((x >> (7 + b) & 1) << i % 8);
    }
}

static void split_32(const char *in, size_t n, uint8_t *raw, uint8_t *exponents)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x;
        uint16_t low;

        memcpy(&x, in + 4 * i, 4);
        x = x << 1 | x >> 31;
        low = (uint16_t)x;
        memcpy(raw + 2 * i, &low, 2);
        raw[2 * n + i] = (uint8_t)(x >> 16);
        exponents[i] = (uint8_t)(x >> 24);
    }
}

static void split(unsigned dtype, const void *in, size_t n, uint8_t *raw, uint8_t *exponents,
                  bool stream)
{
    (void)stream;
    if (dtype == SLUICE_F32) {
        split_32(in, n, raw, exponents);
    } else if (dtype == SLUICE_BF16) {
        split_16(8, in, n, raw, exponents);
    } else {
        split_16(11, in, n, raw, exponents);
        split_f16_bits(in, n, raw + n);
    }
}

static void join_f16(const uint8_t *raw, const uint8_t *exponents, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned x = raw[i] | exponents[i] << 11;

        for (unsigned b = 0; b < 3; b++)
            x |= (unsigned)(raw[n + b * (n / 8) + i / 8] >> i % 8 & 1) << (8 + b);
        uint16_t half = (uint16_t)((x & 0xffff) >> 1 | x << 15);

        memcpy(out + 2 * i, &half, 2);
    }
}

static void join(unsigned dtype, const uint8_t *raw, const uint8_t *exponents, size_t n, void *out,
                 bool stream)
{
    char *p = out;

    (void)stream;
    if (dtype == SLUICE_F16)
        join_f16(raw, exponents, n, p);
    for (size_t i = 0; dtype == SLUICE_BF16 && i < n; i++) {
        unsigned x = raw[i] | exponents[i] << 8;
        uint16_t half = (uint16_t)(x >> 1 | x << 15);

        memcpy(p + 2 * i, &half, 2);
    }
    for (size_t i = 0; dtype == SLUICE_F32 && i < n; i++) {
        uint16_t low;

        memcpy(&low, raw + 2 * i, 2);
        uint32_t x = low | (uint32_t)raw[2 * n + i] << 16 | (uint32_t)exponents[i] << 24;

        x = x >> 1 | x << 31;
        memcpy(p + 4 * i, &x, 4);
    }
}

static void fence(void)
{
}

static void put_code(uint64_t *planes, size_t n, size_t i, unsigned code)
{
    for (unsigned b = 0; b < 3; b++)
        planes[b * (n / 64) + i / 64] |= (uint64_t)(code >> b & 1) << i % 64;
}

static size_t window(const uint8_t *exponents, size_t n, uint8_t bases[SL_PALETTE_BLOCKS],
                     uint64_t *planes)
{
    size_t escapes = 0;

    memset(planes, 0, 3 * (n / 8));
    memset(bases, 0, SL_PALETTE_BLOCKS);
    for (size_t i = 0; i < n; i++)
        if (exponents[i] > bases[i / SL_PALETTE_BLOCK])
            bases[i / SL_PALETTE_BLOCK] = exponents[i];
    for (size_t i = 0; i < n; i++) {
        unsigned below = (unsigned)bases[i / SL_PALETTE_BLOCK] - exponents[i];

        put_code(planes, n, i, below < SL_PALETTE_CODES ? below : SL_PALETTE_CODES);
        escapes += below >= SL_PALETTE_CODES;
    }
    return escapes;
}

static size_t match(const uint8_t *exponents, size_t n, const uint8_t palette[SL_PALETTE_CODES],
                    uint64_t *planes)
{
    size_t escapes = 0;

    memset(planes, 0, 3 * (n / 8));
    for (size_t i = 0; i < n; i++) {
        unsigned code = 0;

        while (code < SL_PALETTE_CODES && palette[code] != exponents[i])
            code++;
        put_code(planes, n, i, code);
        escapes += code == SL_PALETTE_CODES;
    }
    return escapes;
}

static void expand(const uint8_t *planes, size_t n, const uint8_t tables[][8], uint8_t *exponents)
{
    for (size_t i = 0; i < n; i++) {
        unsigned code = 0;

        for (unsigned b = 0; b < 3; b++)
            code |= (unsigned)(planes[b * (n / 8) + i / 8] >> i % 8 & 1) << b;
        exponents[i] = tables[i / SL_PALETTE_BLOCK][code];
    }
}

const struct sl_lossless_path sl_lossless_c = {
    .name = "c",
    .lacks = lacks,
    .split = split,
    .join = join,
    .fence = fence,
    .window = window,
    .match = match,
    .expand = expand,
    .take = sl_palette_take,
    .put = sl_palette_put,
    .rans_encode = sl_rans_encode_c,
    .rans_decode = sl_rans_decode_c,
};
