/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a verbs peer: what is accepted lies inside the bytes that came, and its grant makes
 * sense. */
#include "core/err.h"
#include "multipath/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What sl_mp_on_frame() relies on. */
static void check_grant(const uint8_t *payload, size_t len)
{
    struct sl_mp_cts grant;
    int err = sl_mp_cts_read(payload, len, &grant);

    sl_assert(err == 0 || err == -EBADMSG);
    if (err != 0)
        return;
    sl_assert(len == sl_mp_cts_size(grant.keys.count) && memcmp(payload, &grant, len) == 0);
    sl_assert(grant.len > 0 && grant.off + grant.len > grant.off);
    sl_assert(grant.keys.count >= 1 && grant.keys.count <= SL_MP_RAILS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_mp_frame frame;
    int err = sl_mp_frame_read(data, size, &frame);

    sl_assert(err == 0 || err == -EBADMSG);
    if (err != 0)
        return 0;
    sl_assert(frame.kind >= SL_MP_PING && frame.kind <= SL_MP_CONTROL);
    if (frame.kind == SL_MP_EAGER || frame.kind == SL_MP_CONTROL)
        sl_assert(frame.value == size - SL_MP_FRAME_BYTES);
    else
        sl_assert(frame.kind == SL_MP_CTS || frame.kind == SL_MP_PING || size == SL_MP_FRAME_BYTES);
    if (frame.kind == SL_MP_CTS)
        check_grant(data + SL_MP_FRAME_BYTES, size - SL_MP_FRAME_BYTES);
    return 0;
}
