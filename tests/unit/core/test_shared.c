/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are kept once. */
#include "core/err.h"
#include "core/shared.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A block of that many bytes, in memory of its own. */
static uint8_t *block(size_t len, uint8_t seed)
{
    uint8_t *bytes = malloc(len + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(seed + i * 7);
    return bytes;
}

static struct sl_shared *keep(uint8_t *bytes, size_t len)
{
    struct sl_shared *shared = NULL;

    assert_int_equal(sl_shared_keep(bytes, len, &shared), 0);
    return shared;
}

static void what_is_equal_is_kept_once(void **state)
{
    (void)state;
    for (size_t len = 0; len < 100; len++) {
        struct sl_shared *a = keep(block(len, 1), len), *b = keep(block(len, 1), len);
        uint8_t *want = block(len, 1);

        assert_ptr_equal(a, b);
        sl_shared_drop(a);
        assert_memory_equal(sl_shared_bytes(b), want, len);
        sl_shared_drop(b);
        free(want);
    }
}

static void what_differs_anywhere_is_kept_apart(void **state)
{
    enum { LEN = 77 };
    struct sl_shared *whole, *other;

    (void)state;
    whole = keep(block(LEN, 1), LEN);
    for (size_t at = 0; at < LEN; at++) {
        uint8_t *bytes = block(LEN, 1);

        bytes[at] ^= 0x10;
        other = keep(bytes, LEN);
        assert_ptr_not_equal(other, whole);
        sl_shared_drop(other);
    }
    other = keep(block(LEN - 1, 1), LEN - 1);
    assert_ptr_not_equal(other, whole);
    sl_shared_drop(other);
    sl_shared_drop(whole);
}

/* The last one frees: a leak checker sees what is left, an address checker what was freed early. */
static void a_block_lives_as_long_as_somebody_holds_it(void **state)
{
    struct sl_shared *held[10];
    uint8_t *want = block(1000, 3);

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SL_ARRAY_LEN(held); i++)
            held[i] = keep(block(1000, 3), 1000);
        for (unsigned i = 0; i < SL_ARRAY_LEN(held); i++) {
            assert_memory_equal(sl_shared_bytes(held[i]), want, 1000);
            sl_shared_drop(held[i]);
        }
    }
    sl_shared_drop(NULL);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_equal_is_kept_once),
        cmocka_unit_test(what_differs_anywhere_is_kept_apart),
        cmocka_unit_test(a_block_lives_as_long_as_somebody_holds_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
