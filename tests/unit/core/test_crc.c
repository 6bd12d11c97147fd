/* SPDX-License-Identifier: Apache-2.0 */
#include "core/crc.h"

#include "core/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* RFC 3720, appendix B.4. */
static void known_vectors_come_out(void **state)
{
    uint8_t bytes[32];

    (void)state;
    assert_int_equal(sl_crc32c(0, "123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(sl_crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(sl_crc32c(0, bytes, 32), 0x62a8ab43);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(sl_crc32c(0, bytes, 32), 0x46dd794e);
    assert_int_equal(sl_crc32c(0, bytes, 0), 0);
}

static void the_instruction_equals_the_tables_at_all_lengths(void **state)
{
    static uint8_t bytes[40000];
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 7);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)sl_rng_u64(&rng);
    for (int i = 0; i < 3000; i++) {
        size_t off = sl_rng_below(&rng, 64);
        size_t len = i < 1500 ? (size_t)i : sl_rng_below(&rng, sizeof(bytes) - off);
        uint32_t start = (uint32_t)sl_rng_u64(&rng);

        assert_int_equal(sl_crc32c(start, bytes + off, len),
                         sl_crc32c_table(start, bytes + off, len));
    }
}

static void a_sum_can_be_continued_anywhere(void **state)
{
    static uint8_t bytes[30000];
    uint32_t whole;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8));
    whole = sl_crc32c(0, bytes, sizeof(bytes));
    for (size_t cut = 0; cut < sizeof(bytes); cut += 977)
        assert_int_equal(sl_crc32c(sl_crc32c(0, bytes, cut), bytes + cut, sizeof(bytes) - cut),
                         whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors_come_out),
        cmocka_unit_test(the_instruction_equals_the_tables_at_all_lengths),
        cmocka_unit_test(a_sum_can_be_continued_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
