/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: the four reductions of one element type in plain C. Included once per type, so it has
 * no include guard. The file that includes it has defined
 *   TYPE              its name
 *   TYPE_elem         as it lies in memory, at any address
 *   TYPE_acc          the type to compute in
 *   TYPE_widen(elem), TYPE_narrow(acc)    narrow rounds, and makes NaN canonical
 *   TYPE_combine(acc, acc, op), TYPE_divide(acc, divisor)
 */
#define NAME(suffix) SL_PASTE(TYPE, suffix)

/* Block by block through a buffer that stays in the innermost cache: loops over it are simple
 * enough for compilers to make vectors of, and dst may be one of the sources. */
SL_INLINE void NAME(_reduce)(NAME(_elem) * dst, NAME(_elem) * copy, const void *const *src,
                             unsigned nsrc, size_t count, unsigned divisor, enum sluice_op op)
{
    NAME(_acc) acc[BLOCK];

    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        const NAME(_elem) *from = (const NAME(_elem) *)src[0] + at;

        for (size_t i = 0; i < n; i++)
            acc[i] = NAME(_widen)(from[i]);
        for (unsigned k = 1; k < nsrc; k++) {
            from = (const NAME(_elem) *)src[k] + at;
            for (size_t i = 0; i < n; i++)
                acc[i] = NAME(_combine)(acc[i], NAME(_widen)(from[i]), op);
        }
        for (size_t i = 0; divisor > 1 && i < n; i++)
            acc[i] = NAME(_divide)(acc[i], divisor);
        for (size_t i = 0; i < n; i++)
            dst[at + i] = NAME(_narrow)(acc[i]);
        if (copy != NULL)
            memcpy(copy + at, dst + at, n * sizeof(*dst));
    }
}

#define DEFINE_REDUCE(suffix, op)                                                                  \
    static void NAME(suffix)(void *dst, void *copy, const void *const *src, unsigned nsrc,         \
                             size_t count, unsigned divisor)                                       \
    {                                                                                              \
        NAME(_reduce)(dst, copy, src, nsrc, count, divisor, op);                                   \
    }

DEFINE_REDUCE(_sum, SLUICE_SUM)
DEFINE_REDUCE(_prod, SLUICE_PROD)
DEFINE_REDUCE(_max, SLUICE_MAX)
DEFINE_REDUCE(_min, SLUICE_MIN)

#undef DEFINE_REDUCE
#undef NAME
#undef TYPE
