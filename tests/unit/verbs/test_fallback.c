/* SPDX-License-Identifier: Apache-2.0 */
/* Data over the sideband, while there is no path: its end, and what a peer must not send there. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define UNIT_BYTES 24 /* docs/wire.md */
#define UNIT_TAG UINT64_C(0x756e6974)
#define OTHER_TAG UINT64_C(0x6279746573)

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    for (unsigned i = 0; i < 2; i++)
        sl_verbs_config_edit(&world[i].config)->fallback = SL_VERBS_FALLBACK_TCP;
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

static void frames_over_tcp_arrive_though_their_endpoint_goes_at_once(void **state)
{
    const struct sl_mp_path *theirs;

    (void)state;
    world_message(100);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(sl_mp_fallback_path(world_ep(0)) != NULL &&
                sl_mp_fallback_path(world_ep(1)) != NULL);
    world_message(100);
    theirs = sl_mp_fallback_past(world_ep(1));
    uint64_t before = theirs->arrived;
    struct sl_mp_tx_frame *frame = sl_mp_frame_new(world_ep(0), SL_MP_CREDIT, 0, 0);

    assert_non_null(frame);
    sl_mp_frame_post(world_ep(0), frame, 0);
    world[0].iface->ops->ep_destroy(world[0].ep);
    world[0].ep = NULL;
    WORLD_UNTIL(world[1].downs == 1);
    assert_true(theirs->arrived > before);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, world_clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_message_with_another_tag_ends_the_connection),
        CASE(a_message_that_is_longer_than_a_unit_ends_the_connection),
        CASE(frames_over_tcp_arrive_though_their_endpoint_goes_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
