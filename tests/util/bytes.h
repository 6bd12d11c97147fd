/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of messages, filled and compared in blocks: sanitizers look at each byte of a loop. */
#ifndef SL_TESTS_UTIL_BYTES_H
#define SL_TESTS_UTIL_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BYTES_BLOCK 512 /* words */

/* Words number first and following of the pattern of a key: any shift, swap or loss shows. */
static inline void bytes_words(uint64_t *words, uint64_t key, size_t first)
{
    for (size_t i = 0; i < BYTES_BLOCK; i++) {
        uint64_t z = (key + 1) * UINT64_C(0x9e3779b97f4a7c15) +
                     (first + i + 1) * UINT64_C(0xd1342543de82ef95);

        z = (z ^ z >> 32) * UINT64_C(0xd6e8feb86659fd93);
        words[i] = z ^ z >> 29;
    }
}

/* The pattern of a key. */
static inline void bytes_fill(uint8_t *bytes, size_t len, uint64_t key)
{
    uint64_t words[BYTES_BLOCK];

    for (size_t off = 0; off < len; off += sizeof(words)) {
        bytes_words(words, key, off / sizeof(*words));
        memcpy(bytes + off, words, len - off < sizeof(words) ? len - off : sizeof(words));
    }
}

/* The first byte that bytes_fill() would have made another one, of which it tells the value; or
 * len. */
static inline size_t bytes_check(const uint8_t *bytes, size_t len, uint64_t key, uint8_t *value)
{
    uint64_t words[BYTES_BLOCK];
    const uint8_t *expected = (const uint8_t *)words;

    for (size_t off = 0; off < len; off += sizeof(words)) {
        size_t n = len - off < sizeof(words) ? len - off : sizeof(words), i = 0;

        bytes_words(words, key, off / sizeof(*words));
        if (memcmp(bytes + off, words, n) == 0)
            continue;
        while (bytes[off + i] == expected[i])
            i++;
        *value = expected[i];
        return off + i;
    }
    return len;
}

/* The first byte with another value; or len. */
static inline size_t bytes_other(const uint8_t *bytes, size_t len, uint8_t value)
{
    size_t i = 0;

    if (len == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, len - 1) == 0))
        return len;
    while (bytes[i] == value)
        i++;
    return i;
}

#endif
