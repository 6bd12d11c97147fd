/* SPDX-License-Identifier: Apache-2.0 */
/* What the NCCL plugin reads from other hosts: handles, words of the handshake, announcements. The
 * first byte chooses which. What is accepted is within bounds and is written again as the same
 * meaning. */
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
    sl_assert(read.place_count <= SL_NCCL_PLACES_MAX);
    sl_nccl_handle_encode(&read, bytes);
    sl_assert(sl_nccl_handle_decode(bytes, &again) == 0);
    sl_assert(again.host == read.host && again.port == read.port &&
              again.place_count <= read.place_count &&
              memcmp(again.secret, read.secret, sizeof(read.secret)) == 0);
}

/* A stream of words: each is complete at its length and not one byte before. */
static void words(const uint8_t *data, size_t size)
{
    struct sl_nccl_word word;
    uint8_t bytes[SL_NCCL_WORD_MAX];

    while (size > 0) {
        int took = sl_nccl_word_decode(data, size, &word);

        sl_assert(took >= -EPROTO || took == -EBADMSG);
        if (took <= 0)
            return;
        sl_assert((size_t)took <= size && took <= SL_NCCL_WORD_MAX);
        sl_assert(word.addr.len <= SL_ADDR_MAX ||
                  (word.kind != SL_NCCL_OFFER && word.kind != SL_NCCL_ANSWER));
        sl_assert(memchr(word.text, '\0', sizeof(word.text)) != NULL ||
                  (word.kind != SL_NCCL_FAILED && word.kind != SL_NCCL_REFUSE));
        for (int short_by = 1; short_by <= took; short_by++) {
            struct sl_nccl_word part;

            sl_assert(sl_nccl_word_decode(data, (size_t)(took - short_by), &part) <= 0);
        }
        sl_assert(sl_nccl_word_encode(&word, bytes) <= SL_NCCL_WORD_MAX);
        data += took;
        size -= (size_t)took;
    }
}

/* What came after the proofs, of whoever has not got the key: never opened, never read past its
 * end. */
static void sealed(const uint8_t *data, size_t size)
{
    static const uint8_t key[SL_DIGEST_BYTES] = {1};
    uint8_t bytes[SL_NCCL_WORD_MAX + SL_SEAL_BYTES];

    if (size > sizeof(bytes))
        size = sizeof(bytes);
    memcpy(bytes, data, size);
    sl_assert(sl_nccl_word_unseal(bytes, size, key, 0) <= 0);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const part[])(const uint8_t *, size_t) = {handle, words, call, sealed};

    if (size > 0)
        part[*data % SL_ARRAY_LEN(part)](data + 1, size - 1);
    return 0;
}
