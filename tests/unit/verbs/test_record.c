/* SPDX-License-Identifier: Apache-2.0 */
/* Records: their sizes and fields, as docs/wire.md gives them, and those that are refused. */
#include "multipath/control.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define HEAD 16 /* bytes before what the kinds differ in */

static struct sl_mp_control hello(void)
{
    struct sl_mp_control record = {
        .kind = SL_MP_CONTROL_HELLO,
        .hello = {.version = SL_MP_VERSION, .eager_bytes = 4096, .nonce = 7, .rail_count = 2}};

    for (unsigned i = 0; i < 2; i++)
        record.hello.rails[i] = (struct sl_verbs_rail_info){.usable = 1, .mtu = IBV_MTU_1024};
    return record;
}

static struct sl_mp_control offer(void)
{
    return (struct sl_mp_control){
        .kind = SL_MP_CONTROL_OFFER,
        .offer = {
            .local_rail = 7, .remote_rail = 7, .qpn = 0xffffff, .rail = {.mtu = IBV_MTU_4096}}};
}

/* In memory of exactly that length. */
static int read_it(const struct sl_mp_control *record, size_t len, struct sl_mp_control *out)
{
    uint8_t *bytes = test_malloc(len > 0 ? len : 1);
    int err;

    for (size_t i = 0; i < len; i++)
        bytes[i] = i < sizeof(*record) ? ((const uint8_t *)record)[i] : 0;
    err = sl_mp_control_read(bytes, len, out);
    test_free(bytes);
    return err;
}

static void accepted(const struct sl_mp_control *record)
{
    struct sl_mp_control out;
    int err = read_it(record, sl_mp_control_size(record), &out);

    if (err != 0)
        fail_msg("%s", sluice_last_error());
    assert_memory_equal(&out, record, sl_mp_control_size(record));
}

static void refused(const struct sl_mp_control *record, int code, const char *part)
{
    struct sl_mp_control out;

    assert_int_equal(read_it(record, sl_mp_control_size(record), &out), code);
    if (strstr(sluice_last_error(), part) == NULL)
        fail_msg("'%s' lacks '%s'", sluice_last_error(), part);
}

static void sizes_and_places_are_those_of_the_wire(void **state)
{
    static const struct {
        uint8_t kind;
        size_t size;
    } cases[] = {{SL_MP_CONTROL_CALLER, HEAD},        {SL_MP_CONTROL_HELLO, HEAD + 216},
                 {SL_MP_CONTROL_OFFER, HEAD + 40},    {SL_MP_CONTROL_ACCEPT, HEAD + 40},
                 {SL_MP_CONTROL_REFUSE, HEAD + 100},  {SL_MP_CONTROL_DOWN, HEAD + 100},
                 {SL_MP_CONTROL_SIDEBAND_DONE, HEAD}, {SL_MP_CONTROL_ACK, HEAD},
                 {SL_MP_CONTROL_BYE, HEAD + 100}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sl_mp_control record = {.kind = cases[i].kind};

        assert_int_equal(record.kind, i + 1);
        assert_int_equal(sl_mp_control_size(&record), cases[i].size);
    }
    assert_int_equal(offsetof(struct sl_mp_control, epoch), 2);
    assert_int_equal(offsetof(struct sl_mp_control, seq), 4);
    assert_int_equal(offsetof(struct sl_mp_control, handled), 8);
}

static void what_is_well_formed_is_read_as_it_was(void **state)
{
    struct sl_mp_control record = hello();

    accepted(&record);
    record = offer();
    accepted(&record);
    record.kind = SL_MP_CONTROL_ACCEPT;
    accepted(&record);
    for (unsigned len = 0; len <= SL_CTRL_MAX; len++) {
        record = (struct sl_mp_control){.kind = SL_MP_CONTROL_CALLER, .epoch = (uint16_t)len};
        memset(record.caller, 0x5a, len);
        accepted(&record);
    }
    record = (struct sl_mp_control){.kind = SL_MP_CONTROL_ACK, .handled = 9};
    accepted(&record);
    record = (struct sl_mp_control){.kind = SL_MP_CONTROL_DOWN,
                                    .path = 3,
                                    .epoch = 2,
                                    .down = {.arrived = 5, .why = "a reason"}};
    accepted(&record);
}

static void every_other_length_is_refused(void **state)
{
    struct sl_mp_control out, cases[] = {hello(),
                                         offer(),
                                         {.kind = SL_MP_CONTROL_DOWN},
                                         {.kind = SL_MP_CONTROL_ACK},
                                         {.kind = SL_MP_CONTROL_CALLER, .epoch = 50}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (size_t len = 0; len < 400; len++)
            if (len != sl_mp_control_size(&cases[i]))
                assert_int_equal(read_it(&cases[i], len, &out), -EBADMSG);
}

static void unknown_kinds_are_refused(void **state)
{
    for (unsigned kind = 0; kind < 256; kind++) {
        struct sl_mp_control out, record = {.kind = (uint8_t)kind};

        if (kind >= SL_MP_CONTROL_CALLER && kind <= SL_MP_CONTROL_BYE)
            continue;
        assert_int_equal(sl_mp_control_size(&record), 0);
        for (size_t len = 0; len < 300; len += 4)
            assert_int_equal(read_it(&record, len, &out), -EBADMSG);
    }
}

static void a_callers_message_that_is_too_long_is_refused(void **state)
{
    struct sl_mp_control out, record = {.kind = SL_MP_CONTROL_CALLER, .epoch = SL_CTRL_MAX + 1};

    assert_int_equal(read_it(&record, HEAD + SL_CTRL_MAX + 1, &out), -EBADMSG);
}

static void another_version_is_named_whatever_its_length(void **state)
{
    struct sl_mp_control out, record = hello();

    record.hello.version = SL_MP_VERSION + 1;
    refused(&record, -EPROTO, "the peer speaks version 4 of the verbs transport, this side 3");
    assert_int_equal(read_it(&record, HEAD + 4, &out), -EPROTO);
    assert_int_equal(read_it(&record, HEAD + 100, &out), -EPROTO);
    assert_int_equal(read_it(&record, HEAD + 3, &out), -EBADMSG);
}

static void a_hello_with_impossible_rails_is_refused(void **state)
{
    struct sl_mp_control record = hello();

    record.hello.rail_count = 0;
    refused(&record, -EBADMSG, "has 0 rails");
    record.hello.rail_count = SL_MP_RAILS_MAX + 1;
    refused(&record, -EBADMSG, "has 9 rails");
    record = hello();
    record.hello.rails[1].mtu = 0;
    refused(&record, -EBADMSG, "MTU code 0");
    record.hello.rails[1].mtu = 6;
    refused(&record, -EBADMSG, "MTU code 6");
    record.hello.rails[1].usable = 0; /* nothing is known of it then */
    accepted(&record);
}

static void an_offer_of_impossible_rails_or_numbers_is_refused(void **state)
{
    struct sl_mp_control record = offer();

    record.offer.local_rail = SL_MP_RAILS_MAX;
    refused(&record, -EBADMSG, "names rail 8");
    record = offer();
    record.offer.remote_rail = 200;
    refused(&record, -EBADMSG, "rail 200");
    record = offer();
    record.offer.qpn = 0x1000000;
    refused(&record, -EBADMSG, "queue pair 0x1000000");
    record = offer();
    record.offer.rail.mtu = 0;
    refused(&record, -EBADMSG, "MTU code 0");
}

static void a_reason_without_an_end_gets_one(void **state)
{
    struct sl_mp_control out, record = {.kind = SL_MP_CONTROL_REFUSE};

    memset(record.down.why, 'x', sizeof(record.down.why));
    assert_int_equal(read_it(&record, sl_mp_control_size(&record), &out), 0);
    assert_int_equal(strlen(out.down.why), SL_MP_WHY - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_places_are_those_of_the_wire),
        cmocka_unit_test(what_is_well_formed_is_read_as_it_was),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(unknown_kinds_are_refused),
        cmocka_unit_test(a_callers_message_that_is_too_long_is_refused),
        cmocka_unit_test(another_version_is_named_whatever_its_length),
        cmocka_unit_test(a_hello_with_impossible_rails_is_refused),
        cmocka_unit_test(an_offer_of_impossible_rails_or_numbers_is_refused),
        cmocka_unit_test(a_reason_without_an_end_gets_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
