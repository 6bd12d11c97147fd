/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp/frame.h"

#include "core/err.h"
#include "core/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct sl_tcp_frame sample(void)
{
    return (struct sl_tcp_frame){.type = SL_TCP_DATA,
                                 .len = 1000,
                                 .seq = 0x55667788,
                                 .channel = 0x11223344,
                                 .tag = 42,
                                 .total = 5000,
                                 .off = 4000,
                                 .crc = 0xdeadbeef};
}

static void a_frame_comes_back_as_it_was(void **state)
{
    struct sl_tcp_frame in = sample(), out;
    uint8_t bytes[SL_TCP_FRAME_BYTES];

    (void)state;
    for (int crc = 0; crc < 2; crc++) {
        sl_tcp_frame_encode(&in, crc, bytes);
        assert_int_equal(sl_tcp_frame_decode(bytes, crc, &out), 0);
        assert_int_equal(out.seq, in.seq);
        assert_int_equal(out.channel, in.channel);
        assert_int_equal(out.tag, in.tag);
        assert_int_equal(out.total, in.total);
        assert_int_equal(out.off, in.off);
        assert_int_equal(out.len, in.len);
        assert_int_equal(out.crc, crc ? in.crc : 0);
    }
}

static void numbers_are_little_endian(void **state)
{
    struct sl_tcp_frame in = sample();
    uint8_t bytes[SL_TCP_FRAME_BYTES];

    (void)state;
    sl_tcp_frame_encode(&in, false, bytes);
    assert_memory_equal(bytes, "SF", 2);
    assert_int_equal(bytes[8], 0x88);
    assert_int_equal(bytes[15], 0x11);
}

static void any_damaged_byte_of_a_checked_header_is_noticed(void **state)
{
    struct sl_tcp_frame in = sample(), out;
    uint8_t bytes[SL_TCP_FRAME_BYTES];

    (void)state;
    for (unsigned i = 0; i < SL_TCP_FRAME_BYTES; i++) {
        sl_tcp_frame_encode(&in, true, bytes);
        bytes[i] ^= 0x10;
        assert_int_equal(sl_tcp_frame_decode(bytes, true, &out), -EBADMSG);
    }
}

static void check_refused(struct sl_tcp_frame in)
{
    struct sl_tcp_frame out;
    uint8_t bytes[SL_TCP_FRAME_BYTES];

    sl_tcp_frame_encode(&in, false, bytes);
    assert_int_equal(sl_tcp_frame_decode(bytes, false, &out), -EBADMSG);
}

static void lengths_that_contradict_each_other_are_refused(void **state)
{
    struct sl_tcp_frame in = sample();

    (void)state;
    in.len = 1001;
    check_refused(in);
    in = sample();
    in.off = 5001;
    in.len = 0;
    check_refused(in);
    in = sample();
    in.off = UINT64_MAX - 10;
    check_refused(in);
    in = sample();
    in.total = UINT64_MAX;
    check_refused(in);
    in = sample();
    in.total = SL_TCP_MESSAGE_MAX;
    in.len = SL_TCP_PIECE_MAX + 1;
    check_refused(in);
    in = sample();
    in.len = 0;
    check_refused(in);
    in = sample();
    in.type = SL_TCP_CTRL;
    in.len = SL_CTRL_ROOM + 1;
    check_refused(in);
    in = sample();
    in.type = SL_TCP_BYE;
    check_refused(in);
    in = sample();
    in.type = 9;
    check_refused(in);
}

/* How a channel ends. */
static struct sl_tcp_frame sample_close(void)
{
    return (struct sl_tcp_frame){.type = SL_TCP_CLOSE, .channel = 7, .tag = 3, .total = 100};
}

static void an_end_of_a_channel_that_contradicts_itself_is_refused(void **state)
{
    struct sl_tcp_frame in = sample_close(), out;
    uint8_t bytes[SL_TCP_FRAME_BYTES];

    (void)state;
    sl_tcp_frame_encode(&in, false, bytes);
    assert_int_equal(sl_tcp_frame_decode(bytes, false, &out), 0);
    assert_int_equal(out.channel, 7);
    assert_int_equal(out.tag, 3);
    assert_int_equal(out.total, 100);
    in.len = 1;
    check_refused(in);
    in = sample_close();
    in.channel = 0;
    check_refused(in);
    in = sample_close();
    in.tag = 0;
    check_refused(in);
    in = sample_close();
    in.total = SL_TCP_MESSAGE_MAX + 1;
    check_refused(in);
}

static void a_frame_without_sum_is_refused_where_sums_are_on(void **state)
{
    struct sl_tcp_frame in = sample(), out;
    uint8_t bytes[SL_TCP_FRAME_BYTES];

    (void)state;
    sl_tcp_frame_encode(&in, false, bytes);
    assert_int_equal(sl_tcp_frame_decode(bytes, true, &out), -EBADMSG);
    sl_tcp_frame_encode(&in, true, bytes);
    assert_int_equal(sl_tcp_frame_decode(bytes, false, &out), -EBADMSG);
}

static struct sl_tcp_hello sample_hello(void)
{
    struct sl_tcp_hello hello = {
        .version = SL_TCP_WIRE_VERSION, .conn_idx = 2, .conn_count = 4, .crc = true, .rank = 7};

    memset(hello.to, 0xa1, sizeof(hello.to));
    memset(hello.nonce, 0xb2, sizeof(hello.nonce));
    return hello;
}

static void a_hello_comes_back_as_it_was(void **state)
{
    struct sl_tcp_hello in = sample_hello(), out;
    uint8_t bytes[SL_TCP_HELLO_BYTES];

    (void)state;
    sl_tcp_hello_encode(&in, bytes);
    assert_int_equal(sl_tcp_hello_decode(bytes, &out), 0);
    assert_int_equal(out.conn_idx, 2);
    assert_int_equal(out.conn_count, 4);
    assert_true(out.crc);
    assert_int_equal(out.rank, 7);
    assert_memory_equal(out.to, in.to, sizeof(in.to));
    assert_memory_equal(out.nonce, in.nonce, sizeof(in.nonce));
}

static void a_hello_of_another_version_is_refused_with_both(void **state)
{
    struct sl_tcp_hello in = sample_hello(), out;
    uint8_t bytes[SL_TCP_HELLO_BYTES];

    (void)state;
    in.version = 77;
    sl_tcp_hello_encode(&in, bytes);
    assert_int_equal(sl_tcp_hello_decode(bytes, &out), -EPROTO);
    assert_int_equal(out.version, 77);
    assert_non_null(strstr(sluice_last_error(), "77"));
}

static void a_damaged_hello_is_refused(void **state)
{
    struct sl_tcp_hello in = sample_hello(), out;
    uint8_t bytes[SL_TCP_HELLO_BYTES];

    (void)state;
    for (unsigned i = 0; i < SL_TCP_HELLO_BYTES; i++) {
        sl_tcp_hello_encode(&in, bytes);
        bytes[i] ^= 1;
        assert_true(sl_tcp_hello_decode(bytes, &out) < 0);
    }
    in.conn_idx = 5;
    sl_tcp_hello_encode(&in, bytes);
    assert_int_equal(sl_tcp_hello_decode(bytes, &out), -EBADMSG);
    in.conn_count = 0;
    in.conn_idx = 1;
    sl_tcp_hello_encode(&in, bytes);
    assert_int_equal(sl_tcp_hello_decode(bytes, &out), -EBADMSG);
    in.conn_count = SL_TCP_DATA_CONNS_MAX + 1;
    sl_tcp_hello_encode(&in, bytes);
    assert_int_equal(sl_tcp_hello_decode(bytes, &out), -EBADMSG);
}

static void an_answer_comes_back_or_is_refused(void **state)
{
    struct sl_tcp_answer in = {.version = 1, .verdict = SL_TCP_WRONG_SHAPE, .rank = -1}, out;
    uint8_t bytes[SL_TCP_ANSWER_BYTES];

    (void)state;
    sl_tcp_answer_encode(&in, bytes);
    assert_int_equal(sl_tcp_answer_decode(bytes, &out), 0);
    assert_int_equal(out.verdict, SL_TCP_WRONG_SHAPE);
    assert_int_equal(out.rank, -1);
    for (unsigned i = 0; i < SL_TCP_ANSWER_BYTES; i++) {
        sl_tcp_answer_encode(&in, bytes);
        bytes[i] ^= 1;
        assert_int_equal(sl_tcp_answer_decode(bytes, &out), -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_comes_back_as_it_was),
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(any_damaged_byte_of_a_checked_header_is_noticed),
        cmocka_unit_test(lengths_that_contradict_each_other_are_refused),
        cmocka_unit_test(an_end_of_a_channel_that_contradicts_itself_is_refused),
        cmocka_unit_test(a_frame_without_sum_is_refused_where_sums_are_on),
        cmocka_unit_test(a_hello_comes_back_as_it_was),
        cmocka_unit_test(a_hello_of_another_version_is_refused_with_both),
        cmocka_unit_test(a_damaged_hello_is_refused),
        cmocka_unit_test(an_answer_comes_back_or_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
