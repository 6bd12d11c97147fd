/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: reading what a peer sent. */
#include "multipath/frame.h"

#include "core/err.h"

#include <string.h>

int sl_mp_frame_read(const void *bytes, size_t got, struct sl_mp_frame *out)
{
    size_t payload = got - SL_MP_FRAME_BYTES;

    if (got < SL_MP_FRAME_BYTES)
        return sl_fail(-EBADMSG, "a frame of %zu bytes is shorter than its header", got);
    memcpy(out, bytes, sizeof(*out));
    if (out->kind < SL_MP_PING || out->kind > SL_MP_CONTROL)
        return sl_fail(-EBADMSG, "a frame is of unknown kind %u", out->kind);
    if (out->kind == SL_MP_EAGER || out->kind == SL_MP_CONTROL) {
        if (out->value != payload)
            return sl_fail(-EBADMSG, "a frame says %llu bytes of payload and has %zu",
                           (unsigned long long)out->value, payload);
    } else if (payload != 0 && out->kind != SL_MP_CTS && out->kind != SL_MP_PING) {
        return sl_fail(-EBADMSG, "a frame of kind %u has a payload", out->kind);
    }
    return 0;
}

int sl_mp_cts_read(const void *payload, size_t len, struct sl_mp_cts *out)
{
    const size_t least = sl_mp_cts_size(1);

    if (len < least)
        return sl_fail(-EBADMSG, "a grant of %zu bytes", len);
    memcpy(out, payload, least);
    if (out->keys.count == 0 || out->keys.count > SL_MP_RAILS_MAX || out->len == 0 ||
        out->off + out->len < out->off)
        return sl_fail(-EBADMSG, "a grant of %llu bytes at %llu with %u keys makes no sense",
                       (unsigned long long)out->len, (unsigned long long)out->off, out->keys.count);
    if (len != sl_mp_cts_size(out->keys.count))
        return sl_fail(-EBADMSG, "a grant of %zu bytes with %u keys", len, out->keys.count);
    if (SL_UNLIKELY(len > least))
        memcpy((uint8_t *)out + least, (const uint8_t *)payload + least, len - least);
    return 0;
}
