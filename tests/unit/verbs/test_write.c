/* SPDX-License-Identifier: Apache-2.0 */
/* Grants that cannot be, and bytes that nobody granted: a peer reads and writes what it may, and
 * nothing else. */
#include "tests/unit/verbs/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define LEN 100000
#define TAG 5

static uint8_t memory[2 * LEN], got[2 * LEN];
static struct sl_req request, sent;
static struct sl_mr *region;

static int fresh(void **state)
{
    (void)state;
    memset(memory, 7, LEN);
    memset(memory + LEN, 's', LEN); /* what lies behind the message is nobody's business */
    memset(got, 0, sizeof(got));
    request = sent = (struct sl_req){.status = SL_PENDING};
    world_prepare(NULL);
    world_join();
    return 0;
}

static int clean(void **state)
{
    (void)state;
    if (region != NULL)
        sl_verbs_ops.mr_dereg(world[1].iface, region);
    region = NULL;
    world_end();
    return 0;
}

/* Side 1 says to side 0 what its own receives would never say: into its staging, which takes all of
 * it. */
static void grant(uint32_t number, uint64_t total, uint64_t off, uint64_t len, uint8_t flags)
{
    struct sl_mp_conn *ep = world_ep(1);
    const struct sl_verbs_iface *iface = world_iface(1);
    struct sl_mp_tx_frame *frame = sl_mp_frame_new(ep, SL_MP_CTS, 0, number);
    struct sl_mp_cts told = {
        .off = off,
        .len = len,
        .addr = (uintptr_t)iface->staging.bytes,
        .id = 1,
        .keys = {.count = (uint8_t)iface->mp.rail_count, .rails = iface->mp.staging_rails}};
    struct sl_mp_frame *header;

    assert_non_null(frame);
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        told.rkeys[i] = iface->staging.mr[i]->rkey;
    header = (struct sl_mp_frame *)(void *)frame->bytes;
    header->tag = TAG;
    header->value = total;
    header->flags = flags;
    sl_mp_cts_write(&told, told.rkeys, frame->bytes + SL_MP_FRAME_BYTES);
    sl_mp_frame_post(ep, frame, (uint32_t)sl_mp_cts_size(told.keys.count));
}

static int send_it(size_t len)
{
    static struct sl_buf buf;

    buf = (struct sl_buf){.addr = memory, .len = len};
    return sl_verbs_ops.send(world[0].ep, &buf, TAG, &request);
}

/* The connection ends at side 0, with this code and sentence, and the send with it. */
static void ends_with(int code, const char *sentence)
{
    WORLD_UNTIL(request.status != SL_PENDING);
    assert_int_equal(request.status, code);
    assert_int_equal(world[0].downs, 1);
    assert_non_null(strstr(world_ep(0)->why, sentence));
    assert_int_equal(world_channel(0)->early_count, 0);
    /* Nothing from behind the message has left. */
    assert_null(memchr(world_iface(1)->staging.bytes, 's', world_iface(1)->staging.len));
}

static void early_grants_that_fit_are_written(void **state)
{
    (void)state;
    /* In any order, all in all the message. */
    grant(0, LEN, 30000, LEN - 30000, 0);
    grant(0, LEN, 0, 30000, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    assert_int_equal(sl_mp_tx_at(world_channel(0), 0)->covered, LEN);
    WORLD_UNTIL(request.status != SL_PENDING || world_ep(1)->failing);
}

static void a_second_early_grant_for_another_length_is_refused(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN, 0);
    grant(0, UINT64_C(1) << 30, UINT64_C(1) << 29, 65536, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    ends_with(-EPROTO, "and as another one");
}

static void a_byte_past_the_end_is_not_read(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN - 29, 0);
    grant(0, LEN + 30, LEN + 1, 29, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    ends_with(-EPROTO, "and as another one");
}

static void the_same_bytes_are_not_granted_twice(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN, 0);
    grant(0, LEN, 0, LEN, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    ends_with(-EPROTO, "of which 100000 are granted");
}

static void nor_when_the_second_grant_comes_after_the_send(void **state)
{
    (void)state;
    assert_int_equal(send_it(LEN), 0);
    grant(0, LEN, 0, 60000, 0);
    grant(0, LEN, 50000, 50000, 0);
    ends_with(
        -EPROTO,
        "grants 50000 bytes at 50000 of message 0, which has 100000, of which 60000 are granted");
}

static void a_shorter_message_is_granted_once_too(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN, SL_MP_FLAG_SHORTER);
    grant(0, LEN, 0, LEN, SL_MP_FLAG_SHORTER);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN / 2), 0);
    ends_with(-EPROTO, "of which 50000 are granted");
}

static void a_grant_past_its_own_length_is_refused_at_once(void **state)
{
    (void)state;
    assert_int_equal(send_it(LEN), 0);
    grant(0, LEN, LEN - 10, 11, 0);
    ends_with(-EBADMSG, "grants bytes past the end of message 0");
}

/* What was granted is being written when the peer says that it does not want it: libFuzzer. */
static void a_message_with_a_grant_is_not_dropped(void **state)
{
    struct sl_mp_tx_frame *frame;

    (void)state;
    assert_int_equal(send_it(LEN), 0);
    grant(0, LEN, 0, LEN, 0);
    frame = sl_mp_frame_new(world_ep(1), SL_MP_DROP, 0, 0);
    assert_non_null(frame);
    sl_mp_frame_post(world_ep(1), frame, 0);
    ends_with(-EPROTO, "drops message 0, for which it granted memory");
}

/* ---- the granting side ---- */

/* Side 1 grants memory of its own for a message of LEN bytes. */
static struct sl_mp_rx_cts *granted(bool shorter)
{
    static struct sl_sink sink;
    struct sl_mem mem = {.addr = got, .len = sizeof(got)};
    struct sl_key key;

    assert_int_equal(sl_verbs_ops.mr_reg(world[1].iface, &mem, &region, &key), 0);
    sink = (struct sl_sink){.dst = got, .len = LEN, .tag = TAG, .mr = region, .shorter = shorter};
    assert_int_equal(sl_verbs_ops.recv(world[1].ep, &sink, &request), 0);
    assert_true(world_ep(1)->rx_cts[0].used);
    return &world_ep(1)->rx_cts[0];
}

static uint32_t id_of(const struct sl_mp_rx_cts *grant)
{
    for (uint32_t id = 0; id < 1 << 16; id++)
        if (sl_mp_rx_cts_at(world_ep(1), id) == grant)
            return id;
    fail_msg("the grant has no id");
    return 0;
}

static void refused_at_1(const char *sentence)
{
    WORLD_UNTIL(request.status != SL_PENDING);
    assert_int_equal(request.status, -EPROTO);
    assert_non_null(strstr(world_ep(1)->why, sentence));
}

static void bytes_beyond_a_grant_end_the_connection(void **state)
{
    struct sl_mp_rx_cts *grant = granted(false);
    uint32_t id = id_of(grant);

    (void)state;
    sl_mp_on_write(world_ep(1)->paths[0], id, 60000);
    assert_int_equal(grant->got, 60000);
    assert_false(world_ep(1)->failing);
    sl_mp_on_write(world_ep(1)->paths[0], id, 40001);
    refused_at_1("wrote 40001 bytes where nothing was granted");
}

static void bytes_for_a_grant_that_is_over_end_the_connection(void **state)
{
    struct sl_mp_rx_cts *grant = granted(false);
    uint32_t id = id_of(grant);

    (void)state;
    sl_mp_on_write(world_ep(1)->paths[0], id + SL_MP_RX_CTS_MAX, 100);
    refused_at_1("wrote 100 bytes where nothing was granted");
}

static void more_bytes_than_the_message_has_end_the_connection(void **state)
{
    struct sl_buf buf = {.addr = memory, .len = LEN / 2};
    struct sl_mp_rx_cts *grant = granted(true);

    (void)state;
    sl_mp_on_write(world_ep(1)->paths[0], id_of(grant), LEN / 2 + 1);
    WORLD_UNTIL(world_channel(0)->early_count == 1);
    assert_int_equal(sl_verbs_ops.send(world[0].ep, &buf, TAG, &sent), 0);
    WORLD_UNTIL(request.status != SL_PENDING);
    assert_int_equal(request.status, -EPROTO);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {CASE(early_grants_that_fit_are_written),
                                       CASE(a_second_early_grant_for_another_length_is_refused),
                                       CASE(a_byte_past_the_end_is_not_read),
                                       CASE(the_same_bytes_are_not_granted_twice),
                                       CASE(nor_when_the_second_grant_comes_after_the_send),
                                       CASE(a_shorter_message_is_granted_once_too),
                                       CASE(a_grant_past_its_own_length_is_refused_at_once),
                                       CASE(a_message_with_a_grant_is_not_dropped),
                                       CASE(bytes_beyond_a_grant_end_the_connection),
                                       CASE(bytes_for_a_grant_that_is_over_end_the_connection),
                                       CASE(more_bytes_than_the_message_has_end_the_connection)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
