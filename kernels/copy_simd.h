/* SPDX-License-Identifier: Apache-2.0 */
/* Template: copies with the vectors of the file that includes it (see reduce_simd.h). */

/* For short ones: no setup. */
SL_INLINE void copy_rest(char *dst, const char *src, size_t at, size_t len)
{
    for (; len - at >= VEC_BYTES; at += VEC_BYTES)
        vec_store(dst + at, vec_load(src + at));
    if (at < len)
        vec_store_part(dst + at, vec_load_part(src + at, len - at, 1), len - at, 1);
}

/* Aligns dst: loads may straddle cache lines, stores must not. */
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
    copy_rest(dst, src, at, len);
}

static void copy_stream(void *dst, const void *src, size_t len)
{
    if (len < SL_STREAM_BYTES_MIN) {
        memcpy(dst, src, len);
    } else {
        copy_vectors(dst, src, len, true);
        vec_stream_end();
    }
}
