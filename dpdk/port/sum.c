/* SPDX-License-Identifier: Apache-2.0 */
/* The Internet's checksum (RFC 1071). */
#include "dpdk/port/sum.h"

#include <string.h>

#define LONG 256 /* from so many bytes on wide registers are faster */

/* With the carry added again, a word of 64 bits is as good as four of 16. */
static inline uint64_t add(uint64_t sum, uint64_t word)
{
    sum += word;
    return sum + (sum < word);
}

static inline uint64_t word_at(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return word;
}

/* Four sums, so that no addition waits for the one before it. */
static uint32_t sum_words(const uint8_t *at, size_t len, uint64_t a)
{
    uint64_t b = 0, c = 0, d = 0, last = 0;

    for (; len >= 32; at += 32, len -= 32) {
        a = add(a, word_at(at));
        b = add(b, word_at(at + 8));
        c = add(c, word_at(at + 16));
        d = add(d, word_at(at + 24));
    }
    for (; len >= 8; at += 8, len -= 8)
        a = add(a, word_at(at));
    if (len > 0) {
        memcpy(&last, at, len);
        b = add(b, last);
    }
    a = add(add(a, b), add(c, d));
    a = (a & UINT32_MAX) + (a >> 32);
    a = (a & 0xffff) + (a >> 16 & 0xffff) + (a >> 32);
    a = (a & 0xffff) + (a >> 16);
    return (uint32_t)((a & 0xffff) + (a >> 16));
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Lower and upper halves of words add up by themselves, so no carry is lost. */
__attribute__((target("avx2"), noinline)) static uint32_t sum_wide(const uint8_t *at, size_t len)
{
    const __m256i lower = _mm256_set1_epi64x(UINT32_MAX);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    uint64_t parts[4], sum = 0;

    for (; len >= 64; at += 64, len -= 64) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)at);
        __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(at + 32));

        a = _mm256_add_epi64(a, _mm256_and_si256(x, lower));
        b = _mm256_add_epi64(b, _mm256_srli_epi64(x, 32));
        c = _mm256_add_epi64(c, _mm256_and_si256(y, lower));
        d = _mm256_add_epi64(d, _mm256_srli_epi64(y, 32));
    }
    a = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
    _mm256_storeu_si256((__m256i *)(void *)parts, a);
    for (unsigned i = 0; i < 4; i++)
        sum = add(sum, parts[i]);
    return sum_words(at, len, sum);
}

uint32_t sl_dpdk_sum(const void *bytes, size_t len)
{
    if (len >= LONG && __builtin_cpu_supports("avx2"))
        return sum_wide(bytes, len);
    return sum_words(bytes, len, 0);
}
#else
uint32_t sl_dpdk_sum(const void *bytes, size_t len)
{
    return sum_words(bytes, len, 0);
}
#endif
