/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of probes' packets: big-endian numbers, and texts that anybody may have sent. */
#ifndef SL_MONITOR_PROBE_BYTES_H
#define SL_MONITOR_PROBE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void sl_probe_put(uint8_t *out, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static inline uint64_t sl_probe_take(const uint8_t *in, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | in[i];
    return value;
}

/* Ended, `least` bytes or more, none of them below `first`: nothing in it moves a terminal. */
static inline bool sl_probe_is_text(const uint8_t *bytes, size_t cap, size_t least, char first)
{
    size_t len = strnlen((const char *)bytes, cap);

    for (size_t i = 0; i < len; i++)
        if (bytes[i] < (uint8_t)first || bytes[i] > '~')
            return false;
    return len >= least && len < cap;
}

#endif
