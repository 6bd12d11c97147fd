/* SPDX-License-Identifier: Apache-2.0 */
/* Receive buffers: in a shared queue, in queues of queue pairs' own, and what becomes of them when
 * a path ends. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void no_srq(struct fake_ibv_device *params)
{
    params->attr.max_srq = 0;
}

static void small_cq(struct fake_ibv_device *params)
{
    params->attr.max_srq = 0;
    params->attr.max_cqe =
        2 * (SL_VERBS_OWN_SLOTS + (1 + SL_VERBS_FIRST_PATHS) * SL_VERBS_OWN_SLOTS_MIN);
}

static void short_queues(struct fake_ibv_device *params)
{
    params->attr.max_srq = 0;
    params->attr.max_qp_wr = 70;
}

/* Buffers of a rail, wherever they are. */
static unsigned all_slots(const struct sl_verbs_rail *rail)
{
    return rail->block_count * SL_VERBS_BLOCK_SLOTS;
}

static void use(unsigned side, int64_t srq)
{
    sl_verbs_config_edit(&world[side].config)->srq = srq;
}

static void a_device_without_shared_queues_gives_each_path_its_own(void **state)
{
    (void)state;
    world_prepare(no_srq);
    world_join();
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++) {
            struct sl_mp_path *path = world_ep(side)->paths[i];

            assert_null(sl_verbs_path_of(path)->rail->srq);
            assert_int_equal(sl_verbs_path_of(path)->own_slots, SL_VERBS_OWN_SLOTS);
            assert_int_equal(sl_verbs_path_of(path)->receives, SL_VERBS_OWN_SLOTS);
            assert_int_equal(sl_verbs_path_of(path)->rail->own_count, SL_VERBS_OWN_SLOTS);
        }
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_SRQ), 0);
    for (unsigned i = 0; i < 300; i++)
        world_message(i * 97 % 9000);
    world_message(1 << 20);
    assert_int_equal(world_ep(0)->paths[0]->stats.failures, 0);
}

static void the_setting_decides_where_the_device_leaves_the_choice(void **state)
{
    (void)state;
    world_prepare(NULL);
    use(0, SL_OFF);
    use(1, SL_ON);
    world_join();
    assert_null(world_iface(0)->rails[0].srq);
    assert_int_equal(sl_verbs_path_of(world_ep(0)->paths[0])->own_slots, SL_VERBS_OWN_SLOTS);
    assert_non_null(world_iface(1)->rails[0].srq);
    assert_int_equal(sl_verbs_path_of(world_ep(1)->paths[0])->own_slots, 0);
    assert_int_equal(world_iface(1)->rails[0].free_count, 0);
    world_message(100);
    world_message(100000);
}

static void a_shared_queue_that_is_asked_for_and_not_there_is_refused(void **state)
{
    struct sl_iface *iface = NULL;

    (void)state;
    world_prepare(no_srq);
    use(0, SL_ON);
    assert_int_equal(sl_verbs_ops.open(&world[0].worker, NULL, NULL, &iface), -ENODEV);
    assert_null(iface);
    assert_non_null(strstr(sluice_last_error(),
                           "a0:1 has no shared receive queues, which SLUICE_VERBS_SRQ=on asks"));
}

static void a_path_that_returns_has_its_buffers_again(void **state)
{
    unsigned before;

    (void)state;
    world_prepare(no_srq);
    world_join();
    world_message(5000);
    before = all_slots(&world_iface(0)->rails[0]);
    for (unsigned i = 1; i <= 20; i++) {
        struct sl_mp_path *path = world_ep(0)->paths[0];

        fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(path)->qp);
        for (unsigned k = 0; k < 5; k++)
            world_message(k * 3000);
        for (unsigned side = 0; side < 2; side++)
            world_ep(side)->paths[0]->losses = 0; /* else it would rest a minute */
        WORLD_UNTIL(path->stats.ups > i && world_ep(1)->paths[0]->stats.ups > i);
    }
    for (unsigned side = 0; side < 2; side++) {
        const struct sl_verbs_rail *rail = &world_iface(side)->rails[0];

        assert_int_equal(rail->own_count, SL_VERBS_OWN_SLOTS);
        assert_int_equal(all_slots(rail), before);
        assert_int_equal(rail->free_count + sl_verbs_path_of(world_ep(side)->paths[0])->receives,
                         before);
    }
}

static void a_frame_that_waits_outlives_its_path(void **state)
{
    struct sl_sink sinks[6];
    struct sl_req send_req, recv_req;
    char sent[6][32], got[32];

    (void)state;
    world_prepare(no_srq);
    world_join();
    struct sl_mp_path *path = world_ep(1)->paths[world_ep(0)->frame_path->idx];
    const struct sl_verbs_rail *rail = sl_verbs_path_of(path)->rail;

    for (unsigned i = 0; i < 6; i++) {
        struct sl_buf buf = {.addr = sent[i], .len = sizeof(sent[i])};

        snprintf(sent[i], sizeof(sent[i]), "message %u", i);
        assert_int_equal(world_send(0, &buf, i, &send_req), 1);
    }
    WORLD_UNTIL(world_ep(1)->held == 6);
    fake_ibv_port_set(world_fake, 2 + rail->base.idx, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(path->stats.failures == 1 && sl_verbs_path_of(path)->qp == NULL);
    for (unsigned i = 0; i < 6; i++) {
        if (i == 3) { /* half of them while there is no queue pair, half when there is another */
            fake_ibv_port_set(world_fake, 2 + rail->base.idx, 1, IBV_PORT_ACTIVE);
            WORLD_UNTIL(path->stats.ups == 2);
        }
        sinks[i] = (struct sl_sink){.dst = got, .len = sizeof(got), .tag = i};
        assert_int_equal(world_recv(1, &sinks[i], &recv_req), 1);
        assert_memory_equal(got, sent[i], sizeof(got));
    }
    /* Those of the first life are free, not in the second one's queue. */
    assert_int_equal(rail->free_count + sl_verbs_path_of(path)->receives, all_slots(rail));
    assert_int_equal(sl_verbs_path_of(path)->receives, SL_VERBS_OWN_SLOTS);
}

static void a_completion_of_an_earlier_stay_is_nobodys(void **state)
{
    uint32_t slot = 7;
    uint64_t old;

    (void)state;
    world_prepare(no_srq);
    world_join();
    struct sl_mp_path *path = world_ep(0)->paths[0];
    struct sl_verbs_rail *rail = sl_verbs_path_of(path)->rail;
    struct sl_verbs_slot *s = &rail->blocks[0].slots[slot];

    assert_int_equal(s->owner, sl_verbs_path_of(path)->slot);
    assert_true(s->at_nic);
    old = SL_VERBS_SLOT_BIT | SL_VERBS_OWN_BIT | (uint64_t)s->stay << 32 | slot;
    fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(path)->qp);
    WORLD_UNTIL(path->stats.ups == 2);
    unsigned receives = sl_verbs_path_of(path)->receives;

    assert_false(sl_verbs_slot_take(rail, old));
    assert_int_equal(sl_verbs_path_of(path)->receives, receives);
}

static void where_the_completion_queue_is_small_a_path_has_few_or_none(void **state)
{
    (void)state;
    world_prepare(small_cq);
    for (unsigned side = 0; side < 2; side++)
        snprintf(sl_verbs_config_edit(&world[side].config)->mp.paths, SL_TEXT_MAX, "0>0,0>0,0>0");
    world_join();
    assert_int_equal(sl_verbs_path_of(world_ep(0)->paths[0])->own_slots, SL_VERBS_OWN_SLOTS);
    assert_int_equal(sl_verbs_path_of(world_ep(0)->paths[1])->own_slots, SL_VERBS_OWN_SLOTS_MIN);
    assert_int_equal(sl_verbs_path_of(world_ep(0)->paths[2])->own_slots, 0);
    assert_non_null(strstr(world_ep(0)->paths[2]->why, "has no room for one more queue pair's"));
    assert_int_equal(world_ep(0)->paths_up, 2);
    for (unsigned i = 0; i < 50; i++)
        world_message(i * 200);
    world_message(300000);
}

static void no_queue_is_longer_than_its_device_can_have_it(void **state)
{
    (void)state;
    world_prepare(short_queues);
    world_join();
    assert_int_equal(sl_verbs_path_of(world_ep(0)->paths[0])->own_slots, 70);
    world_message(100000);
}

static void a_buffer_that_is_not_taken_leaves_the_path_for_later(void **state)
{
    (void)state;
    world_prepare(no_srq);
    world_open();
    fake_ibv_fail(world_fake, FAKE_IBV_POST_RECV, 50, ENOMEM);
    struct sl_addr addr[2];
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_addr(world[i].ep, &addr[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_connect(world[i].ep, &addr[!i], &req[i]), 0);
    WORLD_UNTIL(req[0].status != SL_PENDING && req[1].status != SL_PENDING);
    assert_int_equal(req[0].status, 0);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(world_iface(side)->rails[i].own_count, SL_VERBS_OWN_SLOTS);
    world_message(5000);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(a_device_without_shared_queues_gives_each_path_its_own),
        CASE(the_setting_decides_where_the_device_leaves_the_choice),
        CASE(a_shared_queue_that_is_asked_for_and_not_there_is_refused),
        CASE(a_path_that_returns_has_its_buffers_again),
        CASE(a_frame_that_waits_outlives_its_path),
        CASE(a_completion_of_an_earlier_stay_is_nobodys),
        CASE(where_the_completion_queue_is_small_a_path_has_few_or_none),
        CASE(no_queue_is_longer_than_its_device_can_have_it),
        CASE(a_buffer_that_is_not_taken_leaves_the_path_for_later)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
