/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, words of the handshake and announcements: there and back, and what damage does to
 * them. */
#include "core/err.h"
#include "core/rng.h"
#include "tools/nccl/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct sl_nccl_place place(const char *text, bool loopback)
{
    struct sl_nccl_place out = {.loopback = loopback};

    if (strchr(text, ':') != NULL) {
        out.addr.ss_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&out.addr)->sin6_addr),
                         1);
    } else {
        out.addr.ss_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, text, &((struct sockaddr_in *)&out.addr)->sin_addr), 1);
    }
    return out;
}

static struct sl_nccl_handle a_handle(void)
{
    struct sl_nccl_handle handle = {.host = UINT64_C(0x0123456789abcdef), .port = 4711};

    memset(handle.secret, 0x5a, sizeof(handle.secret));
    handle.places[handle.place_count++] = place("192.0.2.7", false);
    handle.places[handle.place_count++] = place("2001:db8::5", false);
    handle.places[handle.place_count++] = place("127.0.0.1", true);
    return handle;
}

static void a_handle_comes_back_as_it_was(void **state)
{
    struct sl_nccl_handle before = a_handle(), after;
    uint8_t bytes[SL_NCCL_HANDLE_OWN];

    (void)state;
    sl_nccl_handle_encode(&before, bytes);
    assert_int_equal(sl_nccl_handle_decode(bytes, &after), 0);
    assert_int_equal(after.host, before.host);
    assert_int_equal(after.port, 4711);
    assert_memory_equal(after.secret, before.secret, sizeof(after.secret));
    assert_int_equal(after.place_count, 3);
    assert_true(after.places[2].loopback);
    assert_false(after.places[0].loopback);
    assert_int_equal(ntohs(((struct sockaddr_in *)&after.places[0].addr)->sin_port), 4711);
    assert_memory_equal(&((struct sockaddr_in6 *)&after.places[1].addr)->sin6_addr,
                        &((struct sockaddr_in6 *)&before.places[1].addr)->sin6_addr, 16);
}

static void a_handle_keeps_as_many_addresses_as_there_is_room_for(void **state)
{
    struct sl_nccl_handle before = a_handle(), after;
    uint8_t bytes[SL_NCCL_HANDLE_OWN];

    (void)state;
    before.place_count = 0;
    while (before.place_count < SL_NCCL_PLACES_MAX)
        before.places[before.place_count++] = place("2001:db8::5", false);
    sl_nccl_handle_encode(&before, bytes);
    assert_int_equal(sl_nccl_handle_decode(bytes, &after), 0);
    assert_int_equal(after.place_count, SL_NCCL_PLACE_BYTES / 17);
}

static void a_foreign_handle_is_told_from_one_of_another_version(void **state)
{
    struct sl_nccl_handle handle = a_handle();
    uint8_t bytes[SL_NCCL_HANDLE_OWN];

    (void)state;
    sl_nccl_handle_encode(&handle, bytes);
    bytes[4]++;
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "version 5"));
    bytes[0] ^= 1;
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "same network plugin"));
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
}

/* Of addresses in part: what could be read might be the wrong ones. */
static void a_handle_with_more_than_its_addresses_is_refused(void **state)
{
    struct sl_nccl_handle handle = a_handle();
    uint8_t bytes[SL_NCCL_HANDLE_OWN];

    (void)state;
    sl_nccl_handle_encode(&handle, bytes);
    bytes[32]++; /* the length of all */
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "no addresses that can be read"));
}

static void every_word_comes_back_as_it_was(void **state)
{
    (void)state;
    for (int kind = SL_NCCL_HELLO; kind <= SL_NCCL_PROOF; kind++) {
        struct sl_nccl_word before = {.kind = (enum sl_nccl_word_kind)kind,
                                      .way = 2,
                                      .ways = UINT64_C(0x8000000b00000001),
                                      .version = SL_NCCL_WIRE_VERSION,
                                      .host = 77,
                                      .addr = {.len = 5, .bytes = "abcd"},
                                      .text = "it is raining"};
        struct sl_nccl_word after;
        uint8_t bytes[SL_NCCL_WORD_MAX];
        size_t len = sl_nccl_word_encode(&before, bytes);

        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(sl_nccl_word_decode(bytes, cut, &after), 0);
        assert_int_equal(sl_nccl_word_decode(bytes, len, &after), (int)len);
        assert_int_equal(after.kind, kind);
        if (kind == SL_NCCL_HELLO) {
            assert_int_equal(after.host, 77);
            assert_true(after.ways == UINT64_C(0x8000000b00000001));
        } else if (kind == SL_NCCL_OFFER || kind == SL_NCCL_ANSWER) {
            assert_int_equal(after.addr.len, 5);
            assert_memory_equal(after.addr.bytes, "abcd", 5);
        } else if (kind == SL_NCCL_FAILED || kind == SL_NCCL_REFUSE) {
            assert_string_equal(after.text, "it is raining");
        }
    }
}

static void a_sealed_word_opens_only_unchanged_and_in_its_turn(void **state)
{
    struct sl_nccl_word offer = {.kind = SL_NCCL_OFFER,
                                 .way = 2,
                                 .addr = {.len = 5, .bytes = "abcd"}},
                        after;
    uint8_t key[SL_DIGEST_BYTES] = {3}, bytes[SL_NCCL_WORD_MAX + SL_SEAL_BYTES],
            copy[sizeof(bytes)];
    int len = sl_nccl_word_seal(bytes, sl_nccl_word_encode(&offer, bytes), key, 4);

    (void)state;
    assert_int_equal(len, SL_NCCL_WORD_HEADER + 5 + SL_SEAL_BYTES);
    assert_null(memmem(bytes, (size_t)len, "abcd", 4));
    for (int cut = 0; cut < len; cut++) {
        memcpy(copy, bytes, sizeof(copy));
        assert_int_equal(sl_nccl_word_unseal(copy, (size_t)cut, key, 4), 0);
    }
    for (int i = 0; i < len; i++) {
        memcpy(copy, bytes, sizeof(copy));
        copy[i] ^= 1;
        int got = sl_nccl_word_unseal(copy, (size_t)len, key, 4);

        assert_true(got == -EBADMSG ||
                    (got == 0 && (i == 6 || i == 7))); /* a longer word is awaited */
    }
    memcpy(copy, bytes, sizeof(copy));
    assert_int_equal(sl_nccl_word_unseal(copy, (size_t)len, key, 5), -EBADMSG);
    assert_int_equal(sl_nccl_word_unseal(bytes, (size_t)len, key, 4), len);
    assert_int_equal(sl_nccl_word_decode(bytes, (size_t)len - SL_SEAL_BYTES, &after),
                     len - SL_SEAL_BYTES);
    assert_memory_equal(after.addr.bytes, "abcd", 5);
}

static void strangers_are_known_by_their_first_bytes(void **state)
{
    struct sl_nccl_word word;

    (void)state;
    assert_int_equal(sl_nccl_word_decode((const uint8_t *)"G", 1, &word), -EBADMSG);
    assert_int_equal(sl_nccl_word_decode((const uint8_t *)"GET / HTTP/1.1\r\n", 16, &word),
                     -EBADMSG);
    assert_int_equal(sl_nccl_word_decode((const uint8_t *)"SLNX", 4, &word), -EBADMSG);
    assert_int_equal(sl_nccl_word_decode((const uint8_t *)"SLN", 3, &word), 0);
}

static void a_hello_of_another_version_is_understood_that_far(void **state)
{
    struct sl_nccl_word hello = {.kind = SL_NCCL_HELLO, .version = 9}, word;
    uint8_t bytes[SL_NCCL_WORD_MAX];
    size_t len = sl_nccl_word_encode(&hello, bytes);

    (void)state;
    assert_int_equal(sl_nccl_word_decode(bytes, len, &word), -EPROTO);
    assert_int_equal(word.version, 9);
}

static void a_refusal_is_fit_to_be_logged(void **state)
{
    struct sl_nccl_word refusal = {.kind = SL_NCCL_REFUSE, .text = "evil\033[2J\n"}, word;
    uint8_t bytes[SL_NCCL_WORD_MAX];
    size_t len = sl_nccl_word_encode(&refusal, bytes);

    (void)state;
    assert_int_equal(sl_nccl_word_decode(bytes, len, &word), (int)len);
    assert_string_equal(word.text, "evil?[2J?");
}

static void an_announcement_comes_back_as_it_was(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= SL_NCCL_GROUP_MAX; count++) {
        struct sl_nccl_call before = {.number = 0xfffffffe, .count = count}, after;
        uint8_t bytes[SL_NCCL_CALL_BYTES];
        size_t len;

        for (unsigned i = 0; i < count; i++) {
            before.tags[i] = 0x80000000u + i;
            before.sizes[i] = UINT64_C(1) << (5 * i);
        }
        len = sl_nccl_call_encode(&before, bytes);
        assert_int_equal(sl_nccl_call_decode(bytes, len, &after), 0);
        assert_int_equal(after.number, before.number);
        assert_int_equal(after.count, count);
        assert_memory_equal(after.tags, before.tags, count * sizeof(before.tags[0]));
        assert_memory_equal(after.sizes, before.sizes, count * sizeof(before.sizes[0]));
        assert_int_equal(sl_nccl_call_decode(bytes, len - 1, &after), -EBADMSG);
    }
}

/* Whatever the bytes are: no crash, no length beyond what was given, and texts that end. */
static void any_bytes_are_safe_to_decode(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 4711);
    for (unsigned round = 0; round < 200000; round++) {
        uint8_t bytes[SL_NCCL_WORD_MAX];
        size_t len = sl_rng_range(&rng, 0, sizeof(bytes));
        struct sl_nccl_handle handle;
        struct sl_nccl_word word = {.text = ""};
        struct sl_nccl_call call;

        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)sl_rng_u64(&rng);
        if (round % 2 == 0) { /* deeper */
            memcpy(bytes, round % 4 == 0 ? "SLNW" : "SLNH", 4);
            bytes[4] = (uint8_t)(bytes[4] % 9);
            bytes[7] = 0;
        }
        if (round % 8 == 2) {
            memcpy(bytes + 4, (uint8_t[]){SL_NCCL_WIRE_VERSION, 0}, 2);
            bytes[33] = bytes[34] = bytes[35] = 0;
        }
        assert_true(sl_nccl_word_decode(bytes, len, &word) <= (int)len);
        assert_non_null(memchr(word.text, '\0', sizeof(word.text)));
        assert_true(word.addr.len <= SL_ADDR_MAX);
        if (sl_nccl_handle_decode(bytes, &handle) == 0)
            assert_in_range(handle.place_count, 1, SL_NCCL_PLACES_MAX);
        if (sl_nccl_call_decode(bytes, len, &call) == 0)
            assert_in_range(call.count, 1, SL_NCCL_GROUP_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_comes_back_as_it_was),
        cmocka_unit_test(a_handle_keeps_as_many_addresses_as_there_is_room_for),
        cmocka_unit_test(a_foreign_handle_is_told_from_one_of_another_version),
        cmocka_unit_test(a_handle_with_more_than_its_addresses_is_refused),
        cmocka_unit_test(every_word_comes_back_as_it_was),
        cmocka_unit_test(a_sealed_word_opens_only_unchanged_and_in_its_turn),
        cmocka_unit_test(strangers_are_known_by_their_first_bytes),
        cmocka_unit_test(a_hello_of_another_version_is_understood_that_far),
        cmocka_unit_test(a_refusal_is_fit_to_be_logged),
        cmocka_unit_test(an_announcement_comes_back_as_it_was),
        cmocka_unit_test(any_bytes_are_safe_to_decode),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
