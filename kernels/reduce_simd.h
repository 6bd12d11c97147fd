/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the eight reductions of one element type over one kind of vector. Included once per
 * type, so it has no include guard.
 *
 * The file that includes it has defined its vectors, VEC_BYTES long each:
 *   vec                                 elements as they lie in memory
 *   vec_load(p), vec_store(p, v)        any alignment
 *   vec_stream(p, v), vec_stream_end()  past the caches; p aligned to VEC_BYTES · the fence
 *   vec_load_part(p, len, elem), vec_store_part(p, v, len, elem)
 *                                       the first len bytes only, whole elements of elem bytes;
 *                                       touches nothing beyond; the rest reads as zeros
 * and, for the type at hand,
 *   TYPE, ELEM_BYTES                    its name and size
 *   TYPE_acc                            a vec's worth of elements, wide enough to compute in
 *   TYPE_unpack(v), TYPE_pack(acc)      vec to acc and back; pack rounds, and makes NaN canonical
 *   TYPE_combine(acc, acc, op)          op is one of SLUICE_SUM … SLUICE_MIN, a constant
 *   TYPE_divide(acc, divisor)
 *
 * op, stream and vecs are constants wherever these functions are expanded, so no test of them is
 * left in the loops.
 */
#define NAME(suffix) SL_PASTE(TYPE, suffix)

/* Vectors that a pass holds in registers: enough to hide latencies and the loop over sources. */
#define STEP_VECS 4

/* Reduces vecs whole vectors at byte offset at. All loads come before the first store, since dst
 * and copy may be sources too. */
SL_INLINE void NAME(_step)(char *dst, char *copy, const void *const *src, unsigned nsrc, size_t at,
                           unsigned divisor, enum sluice_op op, bool stream, unsigned vecs)
{
    NAME(_acc) acc[STEP_VECS];
    vec v[STEP_VECS];
    const char *from = (const char *)src[0] + at;

#pragma GCC unroll 4
    for (unsigned i = 0; i < vecs; i++)
        acc[i] = NAME(_unpack)(vec_load(from + i * VEC_BYTES));
    for (unsigned k = 1; k < nsrc; k++) {
        from = (const char *)src[k] + at;
#pragma GCC unroll 4
        for (unsigned i = 0; i < vecs; i++)
            acc[i] = NAME(_combine)(acc[i], NAME(_unpack)(vec_load(from + i * VEC_BYTES)), op);
    }
    if (divisor > 1) {
#pragma GCC unroll 4
        for (unsigned i = 0; i < vecs; i++)
            acc[i] = NAME(_divide)(acc[i], divisor);
    }
#pragma GCC unroll 4
    for (unsigned i = 0; i < vecs; i++) {
        v[i] = NAME(_pack)(acc[i]);
        if (stream)
            vec_stream(dst + at + i * VEC_BYTES, v[i]);
        else
            vec_store(dst + at + i * VEC_BYTES, v[i]);
    }
    if (copy != NULL) {
#pragma GCC unroll 4
        for (unsigned i = 0; i < vecs; i++)
            vec_store(copy + at + i * VEC_BYTES, v[i]);
    }
}

/* Reduces len < VEC_BYTES bytes at byte offset at. */
SL_INLINE void NAME(_part)(char *dst, char *copy, const void *const *src, unsigned nsrc, size_t at,
                           size_t len, unsigned divisor, enum sluice_op op)
{
    NAME(_acc) acc = NAME(_unpack)(vec_load_part((const char *)src[0] + at, len, ELEM_BYTES));
    vec v;

    for (unsigned k = 1; k < nsrc; k++) {
        v = vec_load_part((const char *)src[k] + at, len, ELEM_BYTES);
        acc = NAME(_combine)(acc, NAME(_unpack)(v), op);
    }
    v = NAME(_pack)(divisor > 1 ? NAME(_divide)(acc, divisor) : acc);
    vec_store_part(dst + at, v, len, ELEM_BYTES);
    if (copy != NULL)
        vec_store_part(copy + at, v, len, ELEM_BYTES);
}

/* Reduces the bytes from at to end, a few vectors at most. */
SL_INLINE void NAME(_rest)(char *dst, char *copy, const void *const *src, unsigned nsrc, size_t at,
                           size_t end, unsigned divisor, enum sluice_op op)
{
    for (; end - at >= VEC_BYTES; at += VEC_BYTES)
        NAME(_step)(dst, copy, src, nsrc, at, divisor, op, false, 1);
    if (at < end)
        NAME(_part)(dst, copy, src, nsrc, at, end - at, divisor, op);
}

SL_INLINE void NAME(_large)(char *dst, char *copy, const void *const *src, unsigned nsrc,
                            size_t len, unsigned divisor, enum sluice_op op, bool stream)
{
    const void *two[2] = {src[0], src[nsrc > 1]};
    size_t at = -(uintptr_t)dst % VEC_BYTES;

    /* Stores that straddle cache lines cost double, and vec_stream() cannot: align dst. */
    if (at % ELEM_BYTES != 0) { /* out of reach: dst is not even aligned to its elements */
        NAME(_rest)(dst, copy, src, nsrc, 0, len, divisor, op);
        return;
    }
    if (at != 0)
        NAME(_part)(dst, copy, src, nsrc, 0, at, divisor, op);

    if (nsrc == 2) {
        for (; len - at >= STEP_VECS * VEC_BYTES; at += STEP_VECS * VEC_BYTES)
            NAME(_step)(dst, copy, two, 2, at, divisor, op, stream, STEP_VECS);
    } else {
        for (; len - at >= STEP_VECS * VEC_BYTES; at += STEP_VECS * VEC_BYTES)
            NAME(_step)(dst, copy, src, nsrc, at, divisor, op, stream, STEP_VECS);
    }
    NAME(_rest)(dst, copy, src, nsrc, at, len, divisor, op);
    if (stream)
        vec_stream_end();
}

/* The first function of an operator is all that a small message runs: it saves no registers and
 * sets nothing up. Results too short to gain from it do not pass the caches by. */
#define DEFINE_REDUCE(suffix, op)                                                                  \
    static SL_NOINLINE void NAME(suffix##_large)(void *dst, void *copy, const void *const *src,    \
                                                 unsigned nsrc, size_t count, unsigned divisor)    \
    {                                                                                              \
        NAME(_large)(dst, copy, src, nsrc, count * ELEM_BYTES, divisor, op, false);                \
    }                                                                                              \
    static void NAME(suffix)(void *dst, void *copy, const void *const *src, unsigned nsrc,         \
                             size_t count, unsigned divisor)                                       \
    {                                                                                              \
        if (count * ELEM_BYTES <= STEP_VECS * VEC_BYTES)                                           \
            NAME(_rest)(dst, copy, src, nsrc, 0, count * ELEM_BYTES, divisor, op);                 \
        else                                                                                       \
            NAME(suffix##_large)(dst, copy, src, nsrc, count, divisor);                            \
    }                                                                                              \
    static void NAME(suffix##_stream)(void *dst, void *copy, const void *const *src,               \
                                      unsigned nsrc, size_t count, unsigned divisor)               \
    {                                                                                              \
        if (count * ELEM_BYTES < SL_STREAM_BYTES_MIN)                                              \
            NAME(suffix)(dst, copy, src, nsrc, count, divisor);                                    \
        else                                                                                       \
            NAME(_large)(dst, copy, src, nsrc, count * ELEM_BYTES, divisor, op, true);             \
    }

DEFINE_REDUCE(_sum, SLUICE_SUM)
DEFINE_REDUCE(_prod, SLUICE_PROD)
DEFINE_REDUCE(_max, SLUICE_MAX)
DEFINE_REDUCE(_min, SLUICE_MIN)

#undef DEFINE_REDUCE
#undef STEP_VECS
#undef NAME
#undef TYPE
#undef ELEM_BYTES
