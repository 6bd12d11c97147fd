/* SPDX-License-Identifier: Apache-2.0 */
/* What the NCCL plugin reads from other hosts beside words of wire-up: handles, announcements,
 * words about channels. The first byte chooses which. What is accepted is within bounds and is
 * written again as the same meaning. */
#include "core/err.h"
#include "tools/nccl/wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void handle(const uint8_t *data, size_t size)
{
    struct sl_nccl_handle read, again;
    uint8_t bytes[SL_NCCL_HANDLE_OWN] = {0};

    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    if (sl_nccl_handle_decode(bytes, &read) != 0)
        return;
    sl_nccl_handle_encode(&read, bytes);
    sl_assert(sl_nccl_handle_decode(bytes, &again) == 0);
    sl_assert(again.token == read.token && memcmp(&again.addr, &read.addr, sizeof(read.addr)) == 0);
}

static void call(const uint8_t *data, size_t size)
{
    struct sl_nccl_call read, again;
    uint8_t bytes[SL_NCCL_CALL_BYTES];
    size_t len;

    if (sl_nccl_call_decode(data, size, &read) != 0)
        return;
    sl_assert(read.count >= 1 && read.count <= SL_NCCL_GROUP_MAX);
    len = sl_nccl_call_encode(&read, bytes);
    sl_assert(len == size && sl_nccl_call_decode(bytes, len, &again) == 0);
    sl_assert(again.number == read.number && again.count == read.count);
    for (unsigned i = 0; i < read.count; i++)
        sl_assert(again.tags[i] == read.tags[i] && again.sizes[i] == read.sizes[i]);
}

static void word(const uint8_t *data, size_t size)
{
    struct sl_nccl_word read;
    uint8_t bytes[SL_NCCL_WORD_BYTES];

    if (sl_nccl_word_decode(data, size, &read) != 0)
        return;
    sl_assert(size == sizeof(bytes));
    sl_nccl_word_encode(&read, bytes);
    sl_assert(memcmp(bytes, data, sizeof(bytes)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const part[])(const uint8_t *, size_t) = {handle, call, word};

    if (size > 0)
        part[*data % SL_ARRAY_LEN(part)](data + 1, size - 1);
    return 0;
}
