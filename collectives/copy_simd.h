/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: copies with the vectors of the file that includes it (see reduce_simd.h). The integers'
 * divisor, the operators and the element type do not matter here: bytes are bytes.
 */

/* dst is filled front to back, and its cache lines whole: loads may straddle lines, stores must not. */
SL_INLINE void copy_vectors(char *dst, const char *src, size_t len, bool stream)
{
    size_t at = -(uintptr_t)dst % VEC_BYTES;

    if (at != 0)
        vec_store_part(dst, vec_load_part(src, at, 1), at, 1);
    for (; len - at >= 4 * VEC_BYTES; at += 4 * VEC_BYTES) {
        vec v[4];

#pragma GCC unroll 4
        for (unsigned i = 0; i < 4; i++)
            v[i] = vec_load(src + at + i * VEC_BYTES);
#pragma GCC unroll 4
        for (unsigned i = 0; i < 4; i++) {
            if (stream)
                vec_stream(dst + at + i * VEC_BYTES, v[i]);
            else
                vec_store(dst + at + i * VEC_BYTES, v[i]);
        }
    }
    for (; len - at >= VEC_BYTES; at += VEC_BYTES)
        vec_store(dst + at, vec_load(src + at));
    if (at < len)
        vec_store_part(dst + at, vec_load_part(src + at, len - at, 1), len - at, 1);
}

static void copy_small(char *dst, const char *src, size_t len)
{
    size_t at = 0;

    for (; len - at >= VEC_BYTES; at += VEC_BYTES)
        vec_store(dst + at, vec_load(src + at));
    if (at < len)
        vec_store_part(dst + at, vec_load_part(src + at, len - at, 1), len - at, 1);
}

static void copy_cached(void *dst, const void *src, size_t len)
{
    if (len <= 4 * VEC_BYTES)
        copy_small(dst, src, len);
    else
        copy_vectors(dst, src, len, false);
}

static void copy_stream(void *dst, const void *src, size_t len)
{
    if (len <= 4 * VEC_BYTES) {
        copy_small(dst, src, len);
    } else {
        copy_vectors(dst, src, len, true);
        vec_stream_end();
    }
}
