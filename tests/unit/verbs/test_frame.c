/* SPDX-License-Identifier: Apache-2.0 */
/* Frames byte for byte, as docs/wire.md draws them, and those that are refused. */
#include "multipath/frame.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <cmocka.h>

static const uint8_t eager[] = {
    2,    0,    0x34, 0x12,                         /* EAGER, 0x1234 credits */
    0x04, 0x03, 0x02, 0x01,                         /* fseq */
    0x14, 0x13, 0x12, 0x11, 0x18, 0x17, 0x16, 0x15, /* channel, number */
    0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, /* tag */
    3,    0,    0,    0,    0,    0,    0,    0,    /* value */
    'a',  'b',  'c'};

static const uint8_t grant[] =
    {
        4,   0,   0,   0,   1, 0, 0,    0,    9,    0, 0, 0, 64, 0, 0, 0, 7,
        0,   0,   0,   0,   0, 0, 0,    0,    0x20, 0, 0, 0, 0,  0, 0, 0, 0x10,
        0,   0,   0,   0,   0, 0, 0xff, 0x0f, 0,    0, 0, 0, 0,  0, /* offset 4096, 4095 bytes */
        8,   7,   6,   5,   4, 3, 2,    1,    5,    0, 2, 0, 2,  0, 0, 0, /* address, id, keys */
        0xd, 0xc, 0xb, 0xa, 4, 3, 2,    1,    0,    0, 0, 0, 0,  0, 0, 0, 0,
        0,   0,   0,   0,   0, 0, 0,    0,    0,    0, 0, 0, 0,  0, 0};

static void a_header_is_read_field_by_field(void **state)
{
    struct sl_mp_frame frame;

    assert_int_equal(sl_mp_frame_read(eager, sizeof(eager), &frame), 0);
    assert_int_equal(frame.kind, SL_MP_EAGER);
    assert_int_equal(frame.credits, 0x1234);
    assert_int_equal(frame.fseq, 0x01020304);
    assert_int_equal(frame.channel, 0x11121314);
    assert_int_equal(frame.number, 0x15161718);
    assert_true(frame.tag == UINT64_C(0x2122232425262728));
    assert_true(frame.value == 3);
}

static void kinds_keep_their_numbers(void **state)
{
    assert_int_equal(SL_MP_PING, 1);
    assert_int_equal(SL_MP_EAGER, 2);
    assert_int_equal(SL_MP_RTS, 3);
    assert_int_equal(SL_MP_CTS, 4);
    assert_int_equal(SL_MP_DROP, 5);
    assert_int_equal(SL_MP_CREDIT, 6);
    assert_int_equal(SL_MP_CONTROL, 7);
}

static void a_grant_is_read_field_by_field(void **state)
{
    struct sl_mp_frame frame;
    struct sl_mp_cts told;

    assert_int_equal(grant[SL_MP_FRAME_BYTES + 28], 2); /* keys */
    assert_int_equal(sl_mp_frame_read(grant, sizeof(grant), &frame), 0);
    assert_int_equal(sl_mp_cts_read(grant + SL_MP_FRAME_BYTES, sl_mp_cts_size(2), &told), 0);
    assert_int_equal(told.off, 4096);
    assert_int_equal(told.len, 4095);
    assert_true(told.addr == UINT64_C(0x0102030405060708));
    assert_int_equal(told.id, 0x20005);
    assert_int_equal(told.keys.count, 2);
    assert_int_equal(told.rkeys[0], 0x0a0b0c0d);
    assert_int_equal(told.rkeys[1], 0x01020304);
}

static void refused(const uint8_t *bytes, size_t len, const char *part)
{
    struct sl_mp_frame frame;

    assert_int_equal(sl_mp_frame_read(bytes, len, &frame), -EBADMSG);
    if (strstr(sluice_last_error(), part) == NULL)
        fail_msg("'%s' lacks '%s'", sluice_last_error(), part);
}

static void frames_shorter_than_a_header_are_refused(void **state)
{
    for (size_t len = 0; len < SL_MP_FRAME_BYTES; len++)
        refused(eager, len, "shorter than its header");
}

static void a_payload_of_another_length_is_refused(void **state)
{
    uint8_t bytes[sizeof(eager)];

    refused(eager, sizeof(eager) - 1, "says 3 bytes of payload and has 2");
    refused(eager, SL_MP_FRAME_BYTES, "says 3 bytes of payload and has 0");
    memcpy(bytes, eager, sizeof(bytes));
    bytes[31] = 0x80; /* 8 EiB more */
    refused(bytes, sizeof(bytes), "and has 3");
}

static void unknown_kinds_are_refused(void **state)
{
    uint8_t bytes[SL_MP_FRAME_BYTES] = {0};

    for (unsigned kind = 0; kind < 256; kind++) {
        struct sl_mp_frame frame;

        bytes[0] = (uint8_t)kind;
        if (kind >= SL_MP_PING && kind <= SL_MP_CONTROL)
            assert_int_equal(sl_mp_frame_read(bytes, sizeof(bytes), &frame), 0);
        else
            refused(bytes, sizeof(bytes), "unknown kind");
    }
}

static void a_payload_where_none_belongs_is_refused(void **state)
{
    static const uint8_t kinds[] = {SL_MP_RTS, SL_MP_DROP, SL_MP_CREDIT};
    uint8_t bytes[sizeof(eager)];

    memcpy(bytes, eager, sizeof(bytes));
    for (size_t i = 0; i < sizeof(kinds); i++) {
        bytes[0] = kinds[i];
        refused(bytes, sizeof(bytes), "has a payload");
    }
}

/* It fills the largest packet. */
static void a_ping_may_have_one(void **state)
{
    uint8_t bytes[sizeof(eager)];
    struct sl_mp_frame frame;

    (void)state;
    memcpy(bytes, eager, sizeof(bytes));
    bytes[0] = SL_MP_PING;
    bytes[1] = SL_MP_FLAG_PROVEN;
    assert_int_equal(sl_mp_frame_read(bytes, sizeof(bytes), &frame), 0);
    assert_int_equal(frame.flags, SL_MP_FLAG_PROVEN);
}

static void grants_that_make_no_sense_are_refused(void **state)
{
    static const struct {
        struct sl_mp_cts grant;
        bool good;
    } cases[] = {{{.len = 1, .keys.count = 1}, true},
                 {{.off = UINT64_MAX - 1, .len = 1, .keys.count = SL_MP_RAILS_MAX}, true},
                 {{.off = UINT64_MAX, .len = 1, .keys.count = 1}, false},
                 {{.off = 2, .len = UINT64_MAX - 1, .keys.count = 1}, false},
                 {{.len = 0, .keys.count = 1}, false},
                 {{.len = 1, .keys.count = 0}, false},
                 {{.len = 1, .keys.count = SL_MP_RAILS_MAX + 1}, false},
                 {{.len = 1, .keys.count = UINT8_MAX}, false}};
    struct sl_mp_cts out;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(
            sl_mp_cts_read(&cases[i].grant, sl_mp_cts_size(cases[i].grant.keys.count), &out),
            cases[i].good ? 0 : -EBADMSG);
    for (size_t len = 0; len < sizeof(out); len++)
        assert_int_equal(sl_mp_cts_read(&cases[0].grant, len, &out), len == 48 ? 0 : -EBADMSG);
}

/* Keys travel in groups of four, so few rails have a short grant. */
static void a_grant_has_the_keys_of_its_rails_and_no_more(void **state)
{
    (void)state;
    for (unsigned keys = 1; keys <= SL_MP_RAILS_MAX; keys++) {
        struct sl_mp_cts out = {0}, in = {.len = 7, .id = 9, .keys.count = (uint8_t)keys};
        uint8_t bytes[sizeof(in)];

        memset(bytes, 0xee, sizeof(bytes));
        for (unsigned i = 0; i < SL_MP_RAILS_MAX; i++)
            in.rkeys[i] = i < keys ? 0x1000 + i : 0;
        assert_int_equal(sl_mp_cts_size(keys), 32 + (keys + 3) / 4 * 16);
        sl_mp_cts_write(&in, in.rkeys, bytes);
        for (size_t i = sl_mp_cts_size(keys); i < sizeof(bytes); i++)
            assert_int_equal(bytes[i], 0xee);
        assert_int_equal(sl_mp_cts_read(bytes, sl_mp_cts_size(keys), &out), 0);
        assert_memory_equal(&in, &out, sizeof(in));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_is_read_field_by_field),
        cmocka_unit_test(kinds_keep_their_numbers),
        cmocka_unit_test(a_grant_is_read_field_by_field),
        cmocka_unit_test(frames_shorter_than_a_header_are_refused),
        cmocka_unit_test(a_payload_of_another_length_is_refused),
        cmocka_unit_test(unknown_kinds_are_refused),
        cmocka_unit_test(a_payload_where_none_belongs_is_refused),
        cmocka_unit_test(a_ping_may_have_one),
        cmocka_unit_test(a_grant_has_the_keys_of_its_rails_and_no_more),
        cmocka_unit_test(grants_that_make_no_sense_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
