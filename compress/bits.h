/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of bits, the lowest of each byte first, that end in zeros up to a whole byte. */
#ifndef SL_COMPRESS_BITS_H
#define SL_COMPRESS_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_bits_out {
    uint8_t *at;
    uint64_t held;
    unsigned count; /* bits held, below 8 between calls */
};

/* bits: at most 32. */
static inline void sl_bits_put(struct sl_bits_out *out, uint32_t value, unsigned bits)
{
    out->held |= (uint64_t)value << out->count;
    for (out->count += bits; out->count >= 8; out->count -= 8) {
        *out->at++ = (uint8_t)out->held;
        out->held >>= 8;
    }
}

/* value as quotient by 2^bits, in ones that a zero ends, and remainder (Rice, 1979). */
static inline void sl_bits_put_rice(struct sl_bits_out *out, uint32_t value, unsigned bits)
{
    uint32_t ones = value >> bits;

    for (; ones >= 32; ones -= 32)
        sl_bits_put(out, 0xffffffff, 32);
    sl_bits_put(out, (uint32_t)((UINT64_C(1) << ones) - 1), ones + 1);
    sl_bits_put(out, value & ((1u << bits) - 1), bits);
}

/* The byte after the last one. */
static inline uint8_t *sl_bits_end(struct sl_bits_out *out)
{
    if (out->count > 0)
        *out->at++ = (uint8_t)out->held;
    out->count = 0;
    out->held = 0;
    return out->at;
}

struct sl_bits_in {
    const uint8_t *at, *end;
    unsigned used; /* bits of *at */
};

/* False: the bytes end. */
static inline bool sl_bits_get(struct sl_bits_in *in, unsigned bits, uint32_t *value)
{
    uint32_t got = 0;

    for (unsigned have = 0; have < bits;) {
        unsigned take = 8 - in->used < bits - have ? 8 - in->used : bits - have;

        if (in->at == in->end)
            return false;
        got |= (uint32_t)(*in->at >> in->used & ((1u << take) - 1)) << have;
        have += take;
        in->used += take;
        in->at += in->used >> 3;
        in->used &= 7;
    }
    *value = got;
    return true;
}

/* False: the bytes end, or the value is above most. */
static inline bool sl_bits_get_rice(struct sl_bits_in *in, unsigned bits, uint32_t most,
                                    uint32_t *value)
{
    uint32_t ones = 0, one, rest = 0;

    for (;; ones++) {
        if (ones > most >> bits || !sl_bits_get(in, 1, &one))
            return false;
        if (one == 0)
            break;
    }
    if (!sl_bits_get(in, bits, &rest))
        return false;
    *value = ones << bits | rest;
    return *value <= most;
}

/* False: what is left of the last byte is not zero. Then at is the byte after it. */
static inline bool sl_bits_close(struct sl_bits_in *in)
{
    if (in->used == 0)
        return true;
    if (*in->at++ >> in->used != 0)
        return false;
    in->used = 0;
    return true;
}

#endif
