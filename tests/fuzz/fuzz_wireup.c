/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of wire-up, from whatever bytes: a length never exceeds the room that a link has, nor
 * changes when more bytes come; what is decoded survives a round trip; a sealed word opens as it
 * was, and with any byte changed it does not. And the places of an address.
 */
#include "core/err.h"
#include "core/wireup_addr.h"
#include "core/wireup_word.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t key[SL_DIGEST_BYTES] = {1, 2, 3};

static void check_length(const uint8_t *data, size_t size, bool sealed)
{
    int whole = sl_wireup_word_length(data, size, sealed);

    sl_assert(whole <= SL_WIREUP_WORD_MAX + SL_SEAL_BYTES);
    sl_assert(whole >= 0 || whole == -EBADMSG);
    sl_assert(whole < 0 || (whole == 0) == (size < SL_WIREUP_HEAD_BYTES));
    sl_assert(whole <= 0 || whole >= SL_WIREUP_HEAD_BYTES + (sealed ? SL_SEAL_BYTES : 0));
    for (size_t len = 0; len < size && len <= SL_WIREUP_HEAD_BYTES; len++) {
        int part = sl_wireup_word_length(data, len, sealed);

        sl_assert(part == 0 || part == whole);
    }
}

static void check_text(const char *text)
{
    size_t len = strnlen(text, SL_WIREUP_TEXT_MAX);

    sl_assert(len < SL_WIREUP_TEXT_MAX);
    for (size_t i = 0; i < len; i++)
        sl_assert((unsigned char)text[i] >= ' ' && text[i] != 0x7f);
}

static void check_round_trip(const struct sl_wireup_word *word)
{
    uint8_t bytes[SL_WIREUP_WORD_MAX];
    size_t len = sl_wireup_word_encode(word, bytes);
    struct sl_wireup_word again;

    sl_assert(len <= sizeof(bytes) &&
              sl_wireup_word_length(bytes, len, true) == (int)len + SL_SEAL_BYTES);
    sl_assert(sl_wireup_word_decode(bytes, len, &again) == 0);
    sl_assert(again.kind == word->kind && again.transport == word->transport);
    sl_assert(memcmp(&again.hello, &word->hello, sizeof(again.hello)) == 0);
    sl_assert(memcmp(again.nonce, word->nonce, sizeof(again.nonce)) == 0);
    sl_assert(memcmp(again.proof, word->proof, sizeof(again.proof)) == 0);
    sl_assert(again.addr.len == word->addr.len && again.code == word->code);
    sl_assert(memcmp(again.addr.bytes, word->addr.bytes, again.addr.len) == 0);
    sl_assert(strcmp(again.text, word->text) == 0);
}

/* The place of the changed byte and the change come from the input, too. */
static void check_seal(const struct sl_wireup_word *word, size_t place, uint8_t change)
{
    uint8_t bytes[SL_WIREUP_WORD_MAX + SL_SEAL_BYTES], plain[SL_WIREUP_WORD_MAX];
    size_t len = sl_wireup_word_encode(word, plain);
    int sealed;

    memcpy(bytes, plain, len);
    sealed = sl_wireup_word_seal(bytes, len, key, 7);
    sl_assert(sealed == (int)(len + SL_SEAL_BYTES));
    sl_assert(sl_wireup_word_length(bytes, (size_t)sealed, true) == sealed);
    bytes[place % (size_t)sealed] ^= change;
    sl_assert(change == 0 || sl_wireup_word_open(bytes, (size_t)sealed, key, 7) == -EBADMSG);
    memcpy(bytes, plain, len);
    sl_assert(sl_wireup_word_seal(bytes, len, key, 7) == sealed);
    sl_assert(sl_wireup_word_open(bytes, (size_t)sealed, key, 7) == (int)len);
    sl_assert(memcmp(bytes, plain, len) == 0);
    sl_assert(sl_wireup_word_seal(bytes, len, key, 7) == sealed);
    sl_assert(sl_wireup_word_open(bytes, (size_t)sealed, key, 8) == -EBADMSG);
}

static void check_forged(const uint8_t *data, size_t size)
{
    int len = sl_wireup_word_length(data, size, true);
    uint8_t *copy;

    if (len <= 0 || (size_t)len > size)
        return;
    copy = malloc((size_t)len); /* to the byte: the address sanitizer sees more */
    sl_assert(copy != NULL);
    memcpy(copy, data, (size_t)len);
    sl_assert(sl_wireup_word_open(copy, (size_t)len, key, 0) == -EBADMSG);
    free(copy);
}

/* Places are read to their end, and what can be read can be written. */
static void check_places(const uint8_t *data, size_t size)
{
    struct sl_wireup_addr addr = {.port = 0}, again = {.port = 0};
    struct sockaddr_storage place, same;
    unsigned n = 0;

    memcpy(&addr, data, size < sizeof(addr) ? size : sizeof(addr));
    again.port = addr.port;
    while (sl_wireup_place_at(&addr, n, &place)) {
        sl_assert(place.ss_family == AF_INET || place.ss_family == AF_INET6);
        sl_assert(++n <= SL_WIREUP_PLACES_BYTES / 5);
        sl_assert(sl_wireup_place_add(&again, &place));
        sl_assert(sl_wireup_place_at(&again, n - 1, &same));
        sl_assert(memcmp(&same, &place, sizeof(same)) == 0);
    }
    sl_assert(n <= addr.place_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_wireup_word word;
    uint8_t *copy = malloc(size > 0 ? size : 1);

    sl_assert(copy != NULL);
    memcpy(copy, data, size);
    check_length(copy, size, false);
    check_length(copy, size, true);
    check_forged(copy, size);
    check_places(copy, size);
    if (sl_wireup_word_decode(copy, size, &word) == 0) {
        sl_assert(word.addr.len <= SL_ADDR_MAX);
        check_text(word.text);
        check_round_trip(&word);
        check_seal(&word, copy[size - 1], copy[size / 2]);
    }
    free(copy);
    return 0;
}
