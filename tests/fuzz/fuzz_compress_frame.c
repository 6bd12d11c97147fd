/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of any codec, with the checksum that they have and with the right one: what is taken is
 * decoded without an access outside of it, twice to the same bytes, and taken if written again. */
#include "compress/frame.h"

#include "core/crc.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_MAX ((uint64_t)1 << 17) /* elements of a message that is decoded */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Blocks of exactly their size, aligned as frames have to be. */
static void *block(size_t len)
{
    void *p = malloc(len + (len == 0));

    if (p == NULL)
        abort();
    return p;
}

static void write_again(const struct sl_frame *frame, const void *elements)
{
    uint8_t *again = block(sl_frame_bound(&frame->spec, frame->count));
    size_t len = sl_frame_write(&frame->spec, &frame->at, elements, frame->count, again);
    struct sl_frame back;

    sl_assert(len <= sl_frame_bound(&frame->spec, frame->count));
    sl_assert(sl_frame_read(again, len, &back) == 0);
    sl_assert(memcmp(&back.spec, &frame->spec, sizeof(back.spec)) == 0);
    sl_assert(back.count == frame->count && sl_frame_size(&back) == len);
    free(again);
}

static void try_frame(const uint8_t *bytes, size_t len)
{
    struct sl_frame frame;
    size_t out_len;
    uint8_t *first, *second;

    if (sl_frame_read(bytes, len, &frame) != 0)
        return;
    sl_assert(sl_frame_size(&frame) <= len && sl_codec_check(&frame.spec) == 0);
    if (frame.count > COUNT_MAX)
        return;
    out_len = (size_t)frame.count * sluice_dtype_size((enum sluice_dtype)frame.spec.dtype);
    first = block(out_len);
    second = block(out_len);
    memset(first, 0x5a, out_len);
    memset(second, 0xa5, out_len);
    if (sl_frame_decode(&frame, bytes, first) == 0) {
        sl_assert(sl_frame_decode(&frame, bytes, second) == 0);
        sl_assert(out_len == 0 || memcmp(first, second, out_len) == 0);
        write_again(&frame, first);
    }
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = block(size);
    uint64_t payload;
    uint32_t crc;

    memcpy(bytes, data, size);
    try_frame(bytes, size);
    if (size >= SL_FRAME_HEAD) {
        payload = size - SL_FRAME_HEAD;
        memcpy(bytes + 16, &payload, sizeof(payload));
        crc = sl_crc32c(sl_crc32c(0, bytes, 60), bytes + SL_FRAME_HEAD, payload);
        memcpy(bytes + 60, &crc, sizeof(crc));
        try_frame(bytes, size);
    }
    free(bytes);
    return 0;
}
