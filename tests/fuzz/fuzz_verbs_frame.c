/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a verbs peer: what is accepted lies inside the bytes that came, and its grant makes
 * sense. */
#include "core/err.h"
#include "verbs/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What sl_verbs_on_frame() relies on. */
static void check_grant(const struct sl_verbs_frame *frame, const uint8_t *payload)
{
    struct sl_verbs_grant grant;
    int err = sl_verbs_grant_read(frame, payload, &grant);

    sl_assert(err == 0 || err == -EBADMSG);
    if (err != 0)
        return;
    sl_assert(frame->len == sizeof(grant) && memcmp(payload, &grant, sizeof(grant)) == 0);
    sl_assert(grant.len > 0 && grant.off + grant.len > grant.off);
    sl_assert(grant.rkey_count >= 1 && grant.rkey_count <= SL_VERBS_RAILS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_verbs_frame frame;
    int err = sl_verbs_frame_read(data, size, &frame);

    sl_assert(err == 0 || err == -EBADMSG);
    if (err != 0)
        return 0;
    sl_assert(frame.len == size - SL_VERBS_FRAME_BYTES);
    sl_assert(frame.kind >= SL_VERBS_PING && frame.kind <= SL_VERBS_RECORD);
    sl_assert(frame.len == 0 || frame.kind == SL_VERBS_EAGER || frame.kind == SL_VERBS_GRANT ||
              frame.kind == SL_VERBS_RECORD);
    if (frame.kind == SL_VERBS_GRANT)
        check_grant(&frame, data + SL_VERBS_FRAME_BYTES);
    return 0;
}
