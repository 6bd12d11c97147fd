/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: their sizes and fields, as docs/wire.md gives them, and those that are refused,
 * by the protocol or by the lanes whose part of it they are. */
#include "multipath/control.h"

#include "core/err.h"
#include "verbs/device.h"
#include "verbs/offer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define HEAD 16 /* bytes before what the kinds differ in */

static void rail(struct sl_mp_rail_info *out, uint8_t usable, uint8_t mtu)
{
    struct sl_verbs_rail_info info = {
        .usable = usable, .mtu = mtu, .gid_type = SL_VERBS_GID_ROCE_V2, .pkey = 0xffff};

    memcpy(out, &info, sizeof(info));
}

static struct sl_mp_control hello(void)
{
    struct sl_mp_control control = {
        .kind = SL_MP_CONTROL_HELLO,
        .hello = {.version = SL_MP_VERSION, .eager_bytes = 4096, .nonce = 7, .rail_count = 2}};

    for (unsigned i = 0; i < 2; i++)
        rail(&control.hello.rails[i], 1, IBV_MTU_1024);
    return control;
}

static struct sl_mp_control offer_of(uint32_t qpn, uint8_t mtu)
{
    struct sl_verbs_offer offer = {
        .local_rail = 7,
        .remote_rail = 7,
        .qpn = qpn,
        .rail = {.mtu = mtu, .gid_type = SL_VERBS_GID_ROCE_V1, .pkey = 0x8001}};
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_OFFER};

    memcpy(&control.offer, &offer, sizeof(offer));
    return control;
}

static struct sl_mp_control offer(void)
{
    return offer_of(0xffffff, IBV_MTU_4096);
}

/* In memory of exactly that length. */
static int read_it(const struct sl_mp_control *control, size_t len, struct sl_mp_control *out)
{
    uint8_t *bytes = test_malloc(len > 0 ? len : 1);
    int err;

    for (size_t i = 0; i < len; i++)
        bytes[i] = i < sizeof(*control) ? ((const uint8_t *)control)[i] : 0;
    err = sl_mp_control_read(bytes, len, out);
    if (err == 0)
        err = sl_verbs_control_check(out);
    test_free(bytes);
    return err;
}

static void accepted(const struct sl_mp_control *control)
{
    struct sl_mp_control out;
    int err = read_it(control, sl_mp_control_size(control), &out);

    if (err != 0)
        fail_msg("%s", sluice_last_error());
    assert_memory_equal(&out, control, sl_mp_control_size(control));
}

static void refused(const struct sl_mp_control *control, int code, const char *part)
{
    struct sl_mp_control out;

    assert_int_equal(read_it(control, sl_mp_control_size(control), &out), code);
    if (strstr(sluice_last_error(), part) == NULL)
        fail_msg("'%s' lacks '%s'", sluice_last_error(), part);
}

static void sizes_and_places_are_those_of_the_wire(void **state)
{
    static const struct {
        uint8_t kind;
        size_t size;
    } cases[] = {{SL_MP_CONTROL_CALLER, HEAD},
                 {SL_MP_CONTROL_HELLO, HEAD + 192},
                 {SL_MP_CONTROL_OFFER, HEAD + 68},
                 {SL_MP_CONTROL_ACCEPT, HEAD + 68},
                 {SL_MP_CONTROL_REFUSE, HEAD + 100},
                 {SL_MP_CONTROL_DOWN, HEAD + 100},
                 {SL_MP_CONTROL_SIDEBAND_DONE, HEAD},
                 {SL_MP_CONTROL_ACK, HEAD},
                 {SL_MP_CONTROL_BYE, HEAD + 100},
                 {SL_MP_CONTROL_CLOSE, HEAD + 16},
                 {SL_MP_CONTROL_CLOSED, HEAD + 16},
                 {SL_MP_CONTROL_PATHS, HEAD + 130},
                 {SL_MP_CONTROL_SIDEBAND_OVER, HEAD + 16},
                 {SL_MP_CONTROL_LEAVE, HEAD}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sl_mp_control control = {.kind = cases[i].kind};

        assert_int_equal(control.kind, i + 1);
        assert_int_equal(sl_mp_control_size(&control), cases[i].size);
    }
    assert_int_equal(offsetof(struct sl_mp_control, epoch), 2);
    assert_int_equal(offsetof(struct sl_mp_control, seq), 4);
    assert_int_equal(offsetof(struct sl_mp_control, handled), 8);
}

static void what_is_well_formed_is_read_as_it_was(void **state)
{
    struct sl_mp_control control = hello();

    accepted(&control);
    control = offer();
    accepted(&control);
    control.kind = SL_MP_CONTROL_ACCEPT;
    accepted(&control);
    for (unsigned len = 0; len <= SL_CTRL_MAX; len++) {
        control = (struct sl_mp_control){.kind = SL_MP_CONTROL_CALLER, .epoch = (uint16_t)len};
        memset(control.caller, 0x5a, len);
        accepted(&control);
    }
    control = (struct sl_mp_control){.kind = SL_MP_CONTROL_ACK, .handled = 9};
    accepted(&control);
    control = (struct sl_mp_control){.kind = SL_MP_CONTROL_CLOSE,
                                     .close = {.channel = UINT32_MAX, .count = UINT64_MAX}};
    accepted(&control);
    control = (struct sl_mp_control){
        .kind = SL_MP_CONTROL_PATHS,
        .paths = {.count = 2, .pairs = {{0, SL_MP_RAILS_MAX - 1}, {SL_MP_RAILS_MAX - 1, 0}}}};
    accepted(&control);
    control = (struct sl_mp_control){.kind = SL_MP_CONTROL_DOWN,
                                     .path = 3,
                                     .epoch = 2,
                                     .down = {.arrived = 5, .why = "a reason"}};
    accepted(&control);
}

static void every_other_length_is_refused(void **state)
{
    struct sl_mp_control out, cases[] = {hello(),
                                         offer(),
                                         {.kind = SL_MP_CONTROL_DOWN},
                                         {.kind = SL_MP_CONTROL_ACK},
                                         {.kind = SL_MP_CONTROL_CLOSED},
                                         {.kind = SL_MP_CONTROL_PATHS},
                                         {.kind = SL_MP_CONTROL_CALLER, .epoch = 50}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (size_t len = 0; len < 400; len++)
            if (len != sl_mp_control_size(&cases[i]))
                assert_int_equal(read_it(&cases[i], len, &out), -EBADMSG);
}

static void unknown_kinds_are_refused(void **state)
{
    for (unsigned kind = 0; kind < 256; kind++) {
        struct sl_mp_control out, control = {.kind = (uint8_t)kind};

        if (kind >= SL_MP_CONTROL_CALLER && kind <= SL_MP_CONTROL_LEAVE)
            continue;
        assert_int_equal(sl_mp_control_size(&control), 0);
        for (size_t len = 0; len < 300; len += 4)
            assert_int_equal(read_it(&control, len, &out), -EBADMSG);
    }
}

static void a_callers_message_that_is_too_long_is_refused(void **state)
{
    struct sl_mp_control out, control = {.kind = SL_MP_CONTROL_CALLER, .epoch = SL_CTRL_MAX + 1};

    assert_int_equal(read_it(&control, HEAD + SL_CTRL_MAX + 1, &out), -EBADMSG);
}

static void another_version_is_named_whatever_its_length(void **state)
{
    struct sl_mp_control out, control = hello();

    control.hello.version = SL_MP_VERSION + 1;
    refused(&control, -EPROTO,
            "the peer speaks version 11 of the multi-path protocol, this side 10");
    assert_int_equal(read_it(&control, HEAD + 4, &out), -EPROTO);
    assert_int_equal(read_it(&control, HEAD + 100, &out), -EPROTO);
    assert_int_equal(read_it(&control, HEAD + 3, &out), -EBADMSG);
}

static void a_hello_with_impossible_rails_is_refused(void **state)
{
    struct sl_mp_control control = hello();

    control.hello.rail_count = 0;
    refused(&control, -EBADMSG, "has 0 rails");
    control.hello.rail_count = SL_MP_RAILS_MAX + 1;
    refused(&control, -EBADMSG, "has 17 rails");
    control.hello.rail_count = 9; /* the last of three */
    control.hello.first = 8;
    accepted(&control);
    control.hello.first = 6;
    refused(&control, -EBADMSG, "from rail 6 on");
    control.hello.first = 16;
    refused(&control, -EBADMSG, "from rail 16 on");
    control = hello();
    rail(&control.hello.rails[1], 1, 0);
    refused(&control, -EBADMSG, "MTU code 0");
    rail(&control.hello.rails[1], 1, 6);
    refused(&control, -EBADMSG, "MTU code 6");
    control.hello.rails[1].usable = 0; /* nothing is known of it then */
    accepted(&control);
}

static void an_offer_of_impossible_rails_or_numbers_is_refused(void **state)
{
    struct sl_mp_control control = offer();

    control.offer.local_rail = SL_MP_RAILS_MAX;
    refused(&control, -EBADMSG, "names rail 16");
    control = offer();
    control.offer.remote_rail = 200;
    refused(&control, -EBADMSG, "rail 200");
    control = offer_of(0x1000000, IBV_MTU_4096);
    refused(&control, -EBADMSG, "queue pair 0x1000000");
    control = offer_of(1, 0);
    refused(&control, -EBADMSG, "MTU code 0");
    control = offer();
    struct sl_verbs_offer theirs = sl_verbs_offer_of(&control.offer);

    theirs.rail.pkey = 0x8000;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    refused(&control, -EBADMSG, "the P_Key 0x8000, which is none");
    theirs.rail.pkey = 0x8001;
    theirs.rail.gid_type = SL_VERBS_GID_IB;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    refused(&control, -EBADMSG, "the LID 0, which is none");
    theirs.rail.lid = 0xc000;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    refused(&control, -EBADMSG, "the LID 49152, which is none");
    theirs.rail.lid = 0xbfff;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    accepted(&control);
    theirs.ece_options = 1;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    refused(&control, -EBADMSG, "the ECE options 0x1 of vendor 0x0");
    theirs.ece_vendor = 0x2c9;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    accepted(&control);
    theirs.rail.rate = 1;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    refused(&control, -EBADMSG, "the unknown rate code 1");
    theirs.rail.rate = IBV_RATE_400_GBPS;
    theirs.rail.gid_type = SL_VERBS_GID_ROCE_V2 + 1;
    memcpy(&control.offer, &theirs, sizeof(theirs));
    refused(&control, -EBADMSG, "a GID of the unknown type 3");
}

static void paths_that_there_cannot_be_are_refused(void **state)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_PATHS,
                                    .paths = {.count = SL_MP_PATHS_MAX + 1}};

    refused(&control, -EBADMSG, "asks for 65 paths");
    control.paths.count = 2;
    control.paths.pairs[1].local = SL_MP_RAILS_MAX;
    refused(&control, -EBADMSG, "from rail 16 to rail 0");
    control.paths.pairs[1] = (struct sl_mp_pair){0, SL_MP_RAILS_MAX};
    refused(&control, -EBADMSG, "from rail 0 to rail 16");
    control.paths.count = 1; /* the second is not one of them */
    accepted(&control);
}

static void a_reason_without_an_end_gets_one(void **state)
{
    struct sl_mp_control out, control = {.kind = SL_MP_CONTROL_REFUSE};

    memset(control.down.why, 'x', sizeof(control.down.why));
    assert_int_equal(read_it(&control, sl_mp_control_size(&control), &out), 0);
    assert_int_equal(strlen(out.down.why), SL_MP_WHY - 1);
}

static void a_reason_that_is_too_long_says_where_the_rest_is(void **state)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_BYE};
    char why[200];

    memset(why, 'x', sizeof(why));
    why[SL_MP_WHY - 1] = '\0';
    sl_mp_control_why(&control, why);
    assert_string_equal(control.down.why, why); /* just fits */
    why[SL_MP_WHY - 1] = 'x';
    why[sizeof(why) - 1] = '\0';
    sl_mp_control_why(&control, why);
    assert_int_equal(strlen(control.down.why), SL_MP_WHY - 1);
    assert_non_null(strstr(control.down.why, "xxx ... (the rest: at its sender)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reason_that_is_too_long_says_where_the_rest_is),
        cmocka_unit_test(sizes_and_places_are_those_of_the_wire),
        cmocka_unit_test(what_is_well_formed_is_read_as_it_was),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(unknown_kinds_are_refused),
        cmocka_unit_test(a_callers_message_that_is_too_long_is_refused),
        cmocka_unit_test(another_version_is_named_whatever_its_length),
        cmocka_unit_test(a_hello_with_impossible_rails_is_refused),
        cmocka_unit_test(an_offer_of_impossible_rails_or_numbers_is_refused),
        cmocka_unit_test(paths_that_there_cannot_be_are_refused),
        cmocka_unit_test(a_reason_without_an_end_gets_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
