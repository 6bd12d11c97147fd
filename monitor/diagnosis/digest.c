/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as FIPS 180-4 has it. */
#include "monitor/diagnosis/digest.h"

#include <stdio.h>
#include <string.h>

static const uint32_t keys[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void sl_digest_begin(struct sl_digest *digest)
{
    *digest = (struct sl_digest){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static uint32_t turn(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

static void put_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8];

    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (unsigned i = 16; i < 64; i++)
        w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof(s));
    for (unsigned i = 0; i < 64; i++) {
        uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                       ((s[4] & s[5]) ^ (~s[4] & s[6])) + keys[i] + w[i];
        uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                       ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += one;
        s[0] = one + two;
    }
    for (unsigned i = 0; i < 8; i++)
        state[i] += s[i];
}

void sl_digest_add(struct sl_digest *digest, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;

    while (len > 0) {
        size_t used = digest->len % 64, part = 64 - used < len ? 64 - used : len;

        memcpy(digest->block + used, at, part);
        digest->len += part;
        at += part;
        len -= part;
        if (digest->len % 64 == 0)
            put_block(digest->state, digest->block);
    }
}

void sl_digest_add_text(struct sl_digest *digest, const char *text)
{
    size_t len = strlen(text);
    char head[24];

    sl_digest_add(digest, head, (size_t)snprintf(head, sizeof(head), "%zu:", len));
    sl_digest_add(digest, text, len);
}

void sl_digest_end(struct sl_digest *digest, char out[SL_DIGEST_TEXT])
{
    static const unsigned char pad[64] = {0x80};
    uint64_t bits = digest->len * 8;
    size_t used = digest->len % 64;
    unsigned char tail[8];

    for (unsigned i = 0; i < 8; i++)
        tail[i] = (unsigned char)(bits >> (56 - 8 * i));
    sl_digest_add(digest, pad, used < 56 ? 56 - used : 120 - used);
    sl_digest_add(digest, tail, sizeof(tail));
    for (unsigned i = 0; i < 8; i++)
        snprintf(out + 8 * i, 9, "%08x", digest->state[i]);
}
