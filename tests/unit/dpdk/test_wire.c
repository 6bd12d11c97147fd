/* SPDX-License-Identifier: Apache-2.0 */
/* Packets as bytes: what is refused, and what never is. */
#include "core/crc.h"
#include "dpdk/proto/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sl_dp_head sealed(void)
{
    struct sl_dp_head head = {.kind_version = SL_DP_DATA << 4 | SL_DP_VERSION,
                              .flags = SL_DP_FLAG_LAST | SL_DP_FLAG_CRC,
                              .route = 3,
                              .part = 0x21,
                              .flow = 0x01020304,
                              .secret = UINT64_C(0x1122334455667788),
                              .seq = 0xfffffff0,
                              .imm = 0xa1a2a3a4,
                              .offset = 0xb1b2b3b4,
                              .stamp = 0xc1c2};

    sl_dp_head_seal(&head);
    return head;
}

static void a_header_lies_on_the_wire_as_docs_wire_md_draws_it(void **state)
{
    static const uint8_t drawn[30] = {0x11, 0x09, 0x03, 0x21, 0x04, 0x03, 0x02, 0x01, 0x88, 0x77,
                                      0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xf0, 0xff, 0xff, 0xff,
                                      0xa4, 0xa3, 0xa2, 0xa1, 0xb4, 0xb3, 0xb2, 0xb1, 0xc2, 0xc1};
    struct sl_dp_head head = sealed(), read;
    uint8_t whole[32] = {0};
    uint32_t sum, flow;

    memcpy(whole, drawn, sizeof(drawn));
    sum = sl_crc32c_table(0, whole, sizeof(whole));
    whole[30] = (uint8_t)sum;
    whole[31] = (uint8_t)(sum >> 8);
    assert_memory_equal(&head, whole, sizeof(whole));
    assert_true(sl_dp_head_read(whole, sizeof(whole), &read));
    assert_memory_equal(&read, &head, sizeof(head));
    assert_true(sl_dp_peek(whole, sizeof(whole), &flow));
    assert_int_equal(flow, 0x01020304);
    assert_false(sl_dp_peek(whole, 31, &flow));
    assert_false(sl_dp_head_read(whole, 31, &read));
}

static void any_one_or_two_wrong_bits_of_a_header_are_found(void **state)
{
    struct sl_dp_head head = sealed(), read;
    uint8_t bytes[32];

    memcpy(bytes, &head, sizeof(bytes));
    for (unsigned i = 0; i < 256; i++)
        for (unsigned j = i; j < 256; j++) {
            bytes[i / 8] ^= (uint8_t)(1u << i % 8);
            if (j != i)
                bytes[j / 8] ^= (uint8_t)(1u << j % 8);
            assert_false(sl_dp_head_read(bytes, sizeof(bytes), &read));
            bytes[i / 8] ^= (uint8_t)(1u << i % 8);
            if (j != i)
                bytes[j / 8] ^= (uint8_t)(1u << j % 8);
        }
    assert_true(sl_dp_head_read(bytes, sizeof(bytes), &read));
}

static void a_payload_that_is_cut_or_damaged_is_refused(void **state)
{
    struct sl_dp_head head = sealed();
    uint8_t bytes[32 + 100 + 4];
    const void *payload;
    uint32_t sum;
    size_t len;

    memcpy(bytes, &head, sizeof(head));
    memset(bytes + 32, 0x5a, 100);
    sum = sl_dp_payload_crc(&head, bytes + 32, 100);
    memcpy(bytes + 132, &sum, sizeof(sum));
    assert_true(sl_dp_payload_read(&head, bytes, sizeof(bytes), &payload, &len));
    assert_ptr_equal(payload, bytes + 32);
    assert_int_equal(len, 100);
    assert_true(sl_dp_payload_good(&head, payload, len));
    for (size_t i = 32; i < sizeof(bytes); i++) {
        bytes[i] ^= 1;
        assert_false(sl_dp_payload_good(&head, payload, len));
        bytes[i] ^= 1;
    }
    assert_false(sl_dp_payload_read(&head, bytes, 35, &payload, &len));
    assert_true(sl_dp_payload_read(&head, bytes, 36, &payload, &len));
    assert_int_equal(len, 0);
    assert_false(sl_dp_payload_good(&head, payload, len));
    head.flags = 0;
    assert_true(sl_dp_payload_read(&head, bytes, 32, &payload, &len));
    assert_int_equal(len, 0);
    assert_true(sl_dp_payload_good(&head, payload, len));
}

static void an_answer_is_as_long_as_its_words_ask_for(void **state)
{
    struct sl_dp_ack ack = {.echo = 1, .came = 2, .ce = 3, .away_us = 4}, read;

    for (unsigned words = 0; words <= SL_DP_SACK_WORDS + 1; words++) {
        ack.words = (uint16_t)words;
        for (size_t len = 0; len <= sizeof(ack); len++)
            assert_int_equal(sl_dp_ack_read(&ack, len, &read),
                             words <= SL_DP_SACK_WORDS && len == 16 + 8 * words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_lies_on_the_wire_as_docs_wire_md_draws_it),
        cmocka_unit_test(any_one_or_two_wrong_bits_of_a_header_are_found),
        cmocka_unit_test(a_payload_that_is_cut_or_damaged_is_refused),
        cmocka_unit_test(an_answer_is_as_long_as_its_words_ask_for),
    };

    return cmocka_run_group_tests_name("dpdk_wire", tests, NULL, NULL);
}
