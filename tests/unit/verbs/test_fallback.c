/* SPDX-License-Identifier: Apache-2.0 */
/* Data over the sideband, while there is no path: its end, and what a peer must not send there. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define UNIT_BYTES 24 /* docs/wire.md */
#define UNIT_TAG UINT64_C(0x756e6974)
#define OTHER_TAG UINT64_C(0x6279746573)
#define ID 9
#define LEN (2u << 20) /* more than the sideband takes at once */
#define SCRIBBLE 0x5c

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    for (unsigned i = 0; i < 2; i++)
        sl_verbs_config_edit(&world[i].config)->mp.fallback = SL_MP_FALLBACK_TCP;
    world_join();
    return 0;
}

/* Side 1 gives the sideband a message that is no unit; the connection ends, and says why. */
static void refused(size_t len, uint64_t tag)
{
    static const uint8_t bytes[2 * UNIT_BYTES];
    struct sl_ep *sideband = world_ep(1)->sideband;
    struct sl_buf buf = {.addr = bytes, .len = len};
    struct sl_req req = {.status = SL_PENDING};

    assert_true(sideband->iface->ops->send(sideband, &buf, tag, &req) >= 0);
    WORLD_UNTIL(world[0].downs == 1);
    assert_int_equal(world_ep(0)->down_status, -EPROTO);
    assert_non_null(strstr(world_ep(0)->why, "what is not due"));
    WORLD_UNTIL(world[1].downs == 1);
    assert_int_not_equal(req.status, SL_PENDING);
}

static void a_message_with_another_tag_ends_the_connection(void **state)
{
    (void)state;
    refused(UNIT_BYTES, OTHER_TAG);
}

static void a_message_that_is_longer_than_a_unit_ends_the_connection(void **state)
{
    (void)state;
    refused(UNIT_BYTES + 1, UNIT_TAG);
}

static void ports_set(enum ibv_port_state port)
{
    for (unsigned i = 0; i < 2; i++)
        fake_ibv_port_set(world_fake, i, 1, port);
}

static void go_over_tcp(void)
{
    ports_set(IBV_PORT_DOWN);
    WORLD_UNTIL(sl_mp_fallback_path(world_ep(0)) != NULL &&
                sl_mp_fallback_path(world_ep(1)) != NULL);
}

static void frames_over_tcp_arrive_though_their_endpoint_goes_at_once(void **state)
{
    const struct sl_mp_path *theirs;

    (void)state;
    world_message(100);
    go_over_tcp();
    world_message(100);
    theirs = sl_mp_fallback_past(world_ep(1));
    loop_takes_at_once(world_loop);
    uint64_t before = theirs->arrived;
    struct sl_mp_tx_frame *frame = sl_mp_frame_new(world_ep(0), SL_MP_CREDIT, 0, 0);

    assert_non_null(frame);
    sl_mp_frame_post(world_ep(0), frame, 0);
    world[0].iface->ops->ep_destroy(world[0].ep);
    world[0].ep = NULL;
    WORLD_UNTIL(world[1].downs == 1);
    assert_true(theirs->arrived > before);
}

/* ---- channels that close meanwhile ---- */

struct half {
    uint8_t *bytes;
    struct sl_mr *mr;
    struct sl_req req;
};

static void half_open(struct half *half, unsigned side, bool registered)
{
    struct sl_mem mem = {.len = LEN, .kind = SL_MEM_HOST, .fd = -1};

    *half = (struct half){.bytes = malloc(LEN)};
    assert_non_null(half->bytes);
    memset(half->bytes, side, LEN);
    mem.addr = half->bytes;
    if (registered)
        assert_int_equal(sl_verbs_ops.mr_reg(world[side].iface, &mem, &half->mr, NULL), 0);
    assert_int_equal(sl_verbs_ops.channel_open(world[side].ep, ID), 0);
}

static void half_close(struct half *half, unsigned side)
{
    if (half->mr != NULL)
        sl_verbs_ops.mr_dereg(world[side].iface, half->mr);
    free(half->bytes);
}

static bool is_known(unsigned side)
{
    return sl_channels_find(&world_ep(side)->channels, ID) != NULL;
}

/* Side 1 sends to side 0; after so many rounds one of them closes the channel, and its memory
 * serves another purpose. The ports may return just before. */
static void closed_over_tcp(unsigned closer, unsigned rounds, bool registered, bool returns)
{
    struct half half[2];

    go_over_tcp();
    for (unsigned i = 0; i < 2; i++)
        half_open(&half[i], i, registered);
    struct sl_sink sink = {
        .dst = half[0].bytes, .len = LEN, .tag = 3, .channel = ID, .mr = half[0].mr};
    struct sl_buf buf = {.addr = half[1].bytes, .len = LEN, .mr = half[1].mr, .channel = ID};

    assert_int_equal(world_recv(0, &sink, &half[0].req), 0);
    assert_int_equal(world_send(1, &buf, 3, &half[1].req), 0);
    for (unsigned i = 0; i < rounds; i++)
        world_progress();
    if (returns)
        ports_set(IBV_PORT_ACTIVE);
    assert_int_equal(half[closer].req.status, SL_PENDING);
    sl_verbs_ops.channel_close(world[closer].ep, ID);
    assert_int_equal(half[closer].req.status, -ECANCELED);
    memset(half[closer].bytes, SCRIBBLE, LEN);
    world_message(70000);
    if (closer == 0) {
        WORLD_UNTIL(half[1].req.status != SL_PENDING);
        assert_int_equal(half[1].req.status, 0); /* dropped */
    }
    sl_verbs_ops.channel_close(world[!closer].ep, ID);
    assert_int_equal(half[0].req.status, -ECANCELED);
    WORLD_UNTIL(!is_known(0) && !is_known(1));
    for (size_t i = 0; i < LEN; i++)
        assert_true(closer == 0 ? half[0].bytes[i] == SCRIBBLE : half[0].bytes[i] != SCRIBBLE);
    ports_set(IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    world_message(70000);
    assert_int_equal(world[0].downs + world[1].downs, 0);
    for (unsigned i = 0; i < 2; i++)
        half_close(&half[i], i);
}

static void a_channel_closes_while_its_data_goes_over_tcp(void **state)
{
    static const unsigned rounds_of[] = {0, 1, 2, 3, 5, 8, 13, 21, 34};

    for (unsigned i = 0; i < SL_ARRAY_LEN(rounds_of); i++)
        for (unsigned kind = 0; kind < 8; kind++) {
            if (i + kind > 0) {
                world_clean(state);
                fresh(state);
            }
            closed_over_tcp(kind % 2, rounds_of[i], kind & 2, kind & 4);
        }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, world_clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_message_with_another_tag_ends_the_connection),
        CASE(a_message_that_is_longer_than_a_unit_ends_the_connection),
        CASE(frames_over_tcp_arrive_though_their_endpoint_goes_at_once),
        CASE(a_channel_closes_while_its_data_goes_over_tcp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
