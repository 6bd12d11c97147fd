/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy past the caches: non-temporal stores, which do not read the destination first.
 *
 * SSE2 is part of every x86-64. Wider stores fill the same write-combining line no faster.
 */
#include "shm/shm.h"

#include <emmintrin.h>
#include <string.h>

#define LINE 64

void shm_copy_stream(void *dst, const void *src, size_t len)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
    size_t head = (LINE - (uintptr_t)to % LINE) % LINE;

    if (len < 4 * LINE) {
        memcpy(dst, src, len);
        return;
    }
    memcpy(to, from, head);
    to += head;
    from += head;
    len -= head;
    for (; len >= LINE; len -= LINE, to += LINE, from += LINE) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));

        _mm_stream_si128((__m128i *)(void *)to, a);
        _mm_stream_si128((__m128i *)(void *)(to + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + 48), d);
    }
    memcpy(to, from, len);
    _mm_sfence(); /* such stores are ordered by nothing else */
}
