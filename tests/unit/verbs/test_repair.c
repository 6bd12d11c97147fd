/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that end and return: what the other end says of them. */
#include "tests/unit/verbs/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    return 0;
}

static int clean(void **state)
{
    (void)state;
    world_end();
    return 0;
}

/* Both paths are up; the first is in its second epoch. */
static struct sl_verbs_path *returned(unsigned side)
{
    struct sl_verbs_path *path = world_ep(side)->paths[0];

    fake_ibv_qp_fatal(world_fake, path->qp);
    world_message(5000);
    WORLD_UNTIL(path->stats.ups == 2 && world_ep(!side)->paths[0]->stats.ups == 2);
    WORLD_UNTIL(world_ep(side)->paths_up == 2 && world_ep(!side)->paths_up == 2);
    return path;
}

static void the_end_of_an_earlier_epoch_ends_nothing(void **state)
{
    struct sl_verbs_record record = {.kind = SL_VERBS_REC_DOWN, .path = 0};

    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        struct sl_verbs_path *path = returned(side);
        uint64_t failures = path->stats.failures;

        record.epoch = (uint16_t)(path->epoch - 1);
        record.down.arrived = 7;
        sl_verbs_on_record(world_ep(side), &record);
        assert_int_equal(path->state, SL_VERBS_PATH_UP);
        assert_int_equal(path->stats.failures, failures);
        world_message(100000);
        assert_int_equal(world_ep(side)->paths_up, 2);
    }
}

static void nor_is_a_fence_over_by_it(void **state)
{
    struct sl_verbs_record record = {.kind = SL_VERBS_REC_DOWN, .path = 0};
    struct sl_verbs_path *path;

    (void)state;
    path = returned(0);
    sl_verbs_path_fail(path, "a test");
    for (int i = 0; i < 100 && path->state != SL_VERBS_PATH_FENCING; i++)
        world[0].iface->ops->progress(world[0].iface, 64);
    assert_int_equal(path->state, SL_VERBS_PATH_FENCING);
    record.epoch = (uint16_t)(path->epoch - 1);
    sl_verbs_on_record(world_ep(0), &record);
    assert_int_equal(path->state, SL_VERBS_PATH_FENCING);
    record.epoch = path->epoch;
    record.down.arrived = path->carried;
    WORLD_UNTIL(path->stats.ups == 3);
    world_message(100000);
}

/* This end's device was told that its last message had arrived, and the other end never saw it. */
static void what_was_acknowledged_and_is_gone_ends_the_connection(void **state)
{
    struct sl_verbs_record record = {.kind = SL_VERBS_REC_DOWN};
    struct sl_verbs_path *path;

    (void)state;
    world_message(100000);
    path = world_ep(0)->paths[world_ep(0)->paths[0]->carried == 0];
    WORLD_UNTIL(path->carried > 0);
    sl_verbs_path_fail(path, "a test");
    for (int i = 0; i < 100 && path->state != SL_VERBS_PATH_FENCING; i++)
        world[0].iface->ops->progress(world[0].iface, 64);
    assert_int_equal(path->state, SL_VERBS_PATH_FENCING);
    record.path = path->idx;
    record.epoch = path->epoch;
    record.down.arrived = path->carried - 1;
    sl_verbs_on_record(world_ep(0), &record);
    WORLD_UNTIL(world[0].downs == 1 || path->state == SL_VERBS_PATH_UP);
    assert_int_equal(world[0].downs, 1);
    assert_int_equal(world_ep(0)->down_status, -EHOSTUNREACH);
    assert_string_equal(world_ep(0)->why,
                        "a device of rank 1 failed with 1 messages in it that it had acknowledged");
}

/* ---- the first words ---- */

static int apart(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_open();
    return 0;
}

/* One end is connected a moment before the other, which has its hello while it has not said its own. */
static void hear_early(unsigned late)
{
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};
    struct sl_verbs_record hello;
    struct sl_addr addr[2];

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_addr(world[i].ep, &addr[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_connect(world[i].ep, &addr[!i], &req[i]), 0);
    for (int i = 0; i < 100 && world_ep(!late)->record_out == 0; i++)
        world[!late].iface->ops->progress(world[!late].iface, 64);
    hello = world_ep(!late)->records[0];
    assert_int_equal(hello.kind, SL_VERBS_REC_HELLO);
    assert_int_equal(world_ep(late)->record_out, 0);
    sl_verbs_record_take(world_ep(late), &hello, sl_verbs_record_size(&hello));
    WORLD_UNTIL(req[0].status != SL_PENDING && req[1].status != SL_PENDING);
    if (req[0].status != 0 || req[1].status != 0)
        fail_msg("not connected: %d, %d: %s", req[0].status, req[1].status, sluice_last_error());
    world_message(100000);
}

/* Of the two ends one leads, and answers a hello by offers. */
static void offers_do_not_overtake_a_hello_of_rank_0(void **state)
{
    (void)state;
    hear_early(0);
}

static void nor_one_of_rank_1(void **state)
{
    (void)state;
    hear_early(1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {
        CASE(the_end_of_an_earlier_epoch_ends_nothing),
        CASE(nor_is_a_fence_over_by_it),
        CASE(what_was_acknowledged_and_is_gone_ends_the_connection),
        cmocka_unit_test_setup_teardown(offers_do_not_overtake_a_hello_of_rank_0, apart, clean),
        cmocka_unit_test_setup_teardown(nor_one_of_rank_1, apart, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
