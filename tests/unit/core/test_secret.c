/* SPDX-License-Identifier: Apache-2.0 */
/* Digests and keys against the vectors of their RFCs; sealed messages that somebody changes. */
#include "core/secret.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void unhex(const char *text, uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned value;

        assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
        out[i] = (uint8_t)value;
    }
}

/* RFC 4231, case 2, whose text is given in parts. */
static void an_hmac_is_that_of_the_rfc_in_whatever_parts(void **state)
{
    static const struct sl_part parts[] = {{"what do ya", 10}, {"", 0}, {" want for nothing?", 18}};
    uint8_t got[SL_DIGEST_BYTES], want[SL_DIGEST_BYTES];

    (void)state;
    unhex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", want, sizeof(want));
    assert_int_equal(sl_hmac("Jefe", 4, parts, 3, got), 0);
    assert_memory_equal(got, want, sizeof(want));
}

/* RFC 5869, case 3 (no salt, no info): its first 32 bytes. */
static void a_key_is_that_of_the_rfc_and_differs_by_label_and_context(void **state)
{
    uint8_t secret[22], got[SL_DIGEST_BYTES], want[SL_DIGEST_BYTES], other[SL_DIGEST_BYTES];

    (void)state;
    memset(secret, 0x0b, sizeof(secret));
    unhex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d", want, sizeof(want));
    assert_int_equal(sl_key_derive(secret, sizeof(secret), NULL, 0, "", got), 0);
    assert_memory_equal(got, want, sizeof(want));
    assert_int_equal(sl_key_derive(secret, sizeof(secret), NULL, 0, "label", other), 0);
    assert_memory_not_equal(other, want, sizeof(want));
    assert_int_equal(sl_key_derive(secret, sizeof(secret), "context", 7, "", other), 0);
    assert_memory_not_equal(other, want, sizeof(want));
    assert_int_equal(sl_key_derive(secret, sizeof(secret) - 1, NULL, 0, "", other), 0);
    assert_memory_not_equal(other, want, sizeof(want));
}

static void digests_are_compared_whole(void **state)
{
    uint8_t a[SL_DIGEST_BYTES] = {1, 2, 3}, b[SL_DIGEST_BYTES] = {1, 2, 3};

    (void)state;
    assert_true(sl_digest_equal(a, b, sizeof(a)));
    for (size_t i = 0; i < sizeof(a); i++) {
        b[i] ^= 0x80;
        assert_false(sl_digest_equal(a, b, sizeof(a)));
        b[i] ^= 0x80;
    }
}

/* What another implementation of ChaCha20-Poly1305 makes of the same. */
static void a_sealed_message_has_the_bytes_that_others_make(void **state)
{
    uint8_t key[SL_DIGEST_BYTES], got[9 + SL_SEAL_BYTES], want[sizeof(got)];

    (void)state;
    for (unsigned i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    unhex("973bcc80c25c846c17778611bd80de49abe9c6c8e99d9fb510", want, sizeof(want));
    assert_int_equal(sl_seal(key, 0x0102030405060708, "head", 4, "gradients", 9, got), 0);
    assert_memory_equal(got, want, sizeof(want));
}

static void a_sealed_message_opens_only_unchanged_and_in_its_place(void **state)
{
    uint8_t key[SL_DIGEST_BYTES] = {9}, other[SL_DIGEST_BYTES] = {8};
    uint8_t bytes[100 + SL_SEAL_BYTES], out[100];

    (void)state;
    for (size_t len = 0; len <= 100; len += 25) {
        memset(bytes, 7, sizeof(bytes));
        assert_int_equal(sl_seal(key, 5, "head", 4, bytes, len, bytes), 0); /* in place */
        for (size_t i = 0; i < len + SL_SEAL_BYTES; i++) {
            bytes[i] ^= 1;
            assert_int_equal(sl_unseal(key, 5, "head", 4, bytes, len, bytes + len, out), -EBADMSG);
            bytes[i] ^= 1;
        }
        assert_int_equal(sl_unseal(key, 6, "head", 4, bytes, len, bytes + len, out), -EBADMSG);
        assert_int_equal(sl_unseal(key, 5, "heat", 4, bytes, len, bytes + len, out), -EBADMSG);
        assert_int_equal(sl_unseal(other, 5, "head", 4, bytes, len, bytes + len, out), -EBADMSG);
        assert_int_equal(sl_unseal(key, 5, "head", 4, bytes, len, bytes + len, bytes), 0);
        for (size_t i = 0; i < len; i++)
            assert_int_equal(bytes[i], 7);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_hmac_is_that_of_the_rfc_in_whatever_parts),
        cmocka_unit_test(a_key_is_that_of_the_rfc_and_differs_by_label_and_context),
        cmocka_unit_test(digests_are_compared_whole),
        cmocka_unit_test(a_sealed_message_has_the_bytes_that_others_make),
        cmocka_unit_test(a_sealed_message_opens_only_unchanged_and_in_its_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
