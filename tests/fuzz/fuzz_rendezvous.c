/* SPDX-License-Identifier: Apache-2.0 */
/* What strangers send to a meeting place, what a false rank 0 answers, and unique ids. The first
 * byte chooses which. */
#include "core/err.h"
#include "tests/fuzz/text.h"
#include "launch/address.h"
#include "launch/seat.h"
#include "launch/wire.h"

#include <stdlib.h>

#define UNIQUE_ID_FIXED 48 /* bytes of a unique id before its addresses */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In whatever pieces a hello arrives, the verdict must be that of the whole. */
static void hello(const uint8_t *data, size_t size)
{
    struct sl_terms terms = {.rank = 0, .size = 4, .secret = "s", .secret_len = 1};
    int rank = -1, verdict = 0;

    sl_assert(sl_job_hash("", terms.job) == 0);
    for (size_t len = 0; len <= size && len <= SL_HELLO_BYTES && verdict == 0; len++)
        verdict = sl_hello_check(&terms, data, len, &rank);
    if (size >= SL_HELLO_BYTES) {
        int whole = -1;

        sl_assert(sl_hello_check(&terms, data, SL_HELLO_BYTES, &whole) == verdict);
        sl_assert(verdict != 0);
    }
    sl_assert(verdict != 1 || (rank >= 1 && rank < terms.size));
}

static void frames(const uint8_t *data, size_t size)
{
    char text[SL_SENTENCE_MAX + 1];
    struct sl_frame frame;
    int code = 0;

    if (size < SL_FRAME_BYTES || sl_frame_parse(data, &frame) != 0)
        return;
    if (sl_sentence_parse(0, data + SL_FRAME_BYTES, size - SL_FRAME_BYTES, &code, text) != 0)
        return;
    sl_assert(code < 0 && strlen(text) <= SL_SENTENCE_MAX);
    for (const char *c = text; *c != '\0'; c++)
        sl_assert(*c >= 0x20 && *c < 0x7f);
}

/* The check in the last 8 bytes put right, so that what lies behind it is reached too. */
static void put_check(struct sluice_unique_id *id)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (unsigned i = 0; i < SLUICE_UNIQUE_ID_BYTES - 8; i++)
        hash = (hash ^ id->bytes[i]) * UINT64_C(0x100000001b3);
    sl_put(id->bytes + SLUICE_UNIQUE_ID_BYTES - 8, hash, 8);
}

/* Room that no address uses is not read, so an id is the same only once it was packed here. */
static void check_id(const struct sluice_unique_id *id)
{
    struct sluice_unique_id packed, again;
    struct sl_card card;

    if (sl_card_unpack(id, &card) != 0)
        return;
    sl_assert(card.count >= 1 && card.count <= SL_CARD_PLACES_MAX && card.port != 0);
    sl_assert(strlen(card.secret) == 2 * SL_SECRET_BYTES);
    sl_card_pack(&card, &packed);
    sl_assert(memcmp(packed.bytes, id->bytes, UNIQUE_ID_FIXED) == 0);
    sl_assert(sl_card_unpack(&packed, &card) == 0);
    sl_card_pack(&card, &again);
    sl_assert(memcmp(again.bytes, packed.bytes, sizeof(again.bytes)) == 0);
}

static void unique_id(const uint8_t *data, size_t size)
{
    struct sluice_unique_id id = {{0}};

    memcpy(id.bytes, data, size < sizeof(id.bytes) ? size : sizeof(id.bytes));
    check_id(&id);
    put_check(&id);
    check_id(&id);
}

static void root(const uint8_t *data, size_t size)
{
    struct sl_root parsed;
    char *text = fuzz_text(data, size);

    if (text != NULL && sl_root_parse(text, &parsed) == 0)
        sl_assert(parsed.port != 0 && parsed.port + parsed.more <= 65535 && *parsed.host != '\0');
    free(text);
}

/* Where a parent is, as rank 0 tells it. */
static void seat(const uint8_t *data, size_t size)
{
    uint8_t bytes[SL_SEAT_BYTES], again[SL_SEAT_BYTES];
    struct sl_seat first, second;

    if (sl_seat_unpack(data, size, &first) != 0)
        return;
    sl_assert(size == (first.network ? SL_SEAT_BYTES : 8));
    sl_assert(sl_seat_pack(&first, bytes) == size);
    sl_assert(sl_seat_unpack(bytes, size, &second) == 0 && second.id == first.id);
    sl_assert(sl_seat_pack(&second, again) == size && memcmp(bytes, again, size) == 0);
}

/* Who is missing, as rank 3 says for itself and the ranks up to 20. */
static void missing(const uint8_t *data, size_t size)
{
    bool marked[64] = {false}, back[64] = {false};
    uint8_t body[SL_MISSING_MAX];
    int count = 0;

    if (sl_missing_parse(data, size, 3, 21, marked) != 0)
        return;
    for (int i = 0; i < 64; i++) {
        sl_assert(!marked[i] || (i >= 3 && i < 21));
        count += marked[i];
    }
    sl_assert(count > 0);
    sl_assert(sl_missing_parse(body, sl_missing_make(marked, 64, body), 3, 21, back) == 0);
    sl_assert(memcmp(marked, back, sizeof(back)) == 0);
}

/* A control message from somebody else, and one that is ours. */
static void control(const uint8_t *data, size_t size)
{
    struct sl_meeting_keys keys = {.sealed = size % 2 == 0, .up = {1}, .down = {2}};
    uint8_t frame[SL_FRAME_BYTES + SL_CONTROL_MAX];
    size_t len = size < 64 ? size : 64, back;
    struct sl_frame parsed;

    if (size >= SL_FRAME_BYTES && size <= sizeof(frame) && sl_frame_parse(data, &parsed) == 0 &&
        parsed.len == size - SL_FRAME_BYTES) {
        memcpy(frame, data, size);
        sl_assert(!keys.sealed || sl_control_open(&keys, true, 7, frame, &back) != 0);
    }
    int all = sl_control_make(&keys, true, SL_FRAME_SEAT, 7, data, len, frame);

    sl_assert(all == (int)(SL_FRAME_BYTES + len + sl_seal_len(keys.sealed)));
    sl_assert(sl_control_open(&keys, true, 7, frame, &back) == 0 && back == len);
    sl_assert(memcmp(frame + SL_FRAME_BYTES, data, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const part[])(const uint8_t *, size_t) = {hello, frames,  unique_id, root,
                                                            seat,  missing, control};

    if (size > 0)
        part[*data % SL_ARRAY_LEN(part)](data + 1, size - 1);
    return 0;
}
