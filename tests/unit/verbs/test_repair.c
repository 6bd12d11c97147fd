/* SPDX-License-Identifier: Apache-2.0 */
/* What the other end says of a path counts for the epoch that it was said in. */
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

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {CASE(the_end_of_an_earlier_epoch_ends_nothing),
                                       CASE(nor_is_a_fence_over_by_it)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
