/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues: never more than they have room for, each with its own interrupt, and without
 * locks where the device can. */
#include "tests/fake/fake_ibv_inside.h"
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define SMALL 512 /* entries */
#define PATHS 40

static void small(struct fake_ibv_device *params)
{
    params->attr.max_cqe = SMALL;
}

static void small_without_shared(struct fake_ibv_device *params)
{
    params->attr.max_srq = 0;
    params->attr.max_cqe = SMALL;
}

static void tiny(struct fake_ibv_device *params)
{
    params->attr.max_cqe = SL_VERBS_BLOCK_SLOTS + 3 * SL_VERBS_SQ_WRS_MIN;
}

static void none(struct fake_ibv_device *params)
{
    params->attr.max_cqe = SL_VERBS_BLOCK_SLOTS - 1;
}

static void fixed(struct fake_ibv_device *params)
{
    params->resize_cq = false;
}

static void domains(struct fake_ibv_device *params)
{
    params->thread_domains = true;
}

static void vectors(struct fake_ibv_device *params)
{
    params->comp_vectors = 8;
}

static struct sl_verbs_rail *rail_of(unsigned side, unsigned rail)
{
    return &world_iface(side)->rails[rail];
}

static struct fake_cq *cq_of(unsigned side, unsigned rail)
{
    return FAKE_OF(fake_cq, rail_of(side, rail)->cq);
}

static void paths_between_first_rails(unsigned count)
{
    for (unsigned side = 0; side < 2; side++) {
        char *list = sl_verbs_config_edit(&world[side].config)->mp.paths;

        snprintf(list, SL_TEXT_MAX, "0>0");
        for (unsigned i = 1; i < count; i++)
            strcat(list, ",0>0");
    }
}

/* ---- places ---- */

static void each_path_has_places_for_all_that_it_posts(void **state)
{
    unsigned slots;

    (void)state;
    world_prepare(NULL);
    world_join();
    slots = rail_of(0, 0)->shared_blocks * SL_VERBS_BLOCK_SLOTS;
    assert_int_equal(rail_of(0, 0)->cq_taken, slots + SL_VERBS_SQ_WRS);
    assert_int_equal(world_ep(0)->paths[0]->depth, SL_VERBS_SQ_WRS - SL_VERBS_SQ_DRAIN);
    for (unsigned i = 1; i < 6; i++) {
        fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(world_ep(0)->paths[0])->qp);
        world_message(3000);
        world_ep(0)->paths[0]->losses = world_ep(1)->paths[0]->losses = 0;
        WORLD_UNTIL(world_ep(0)->paths[0]->stats.ups == i + 1);
    }
    WORLD_UNTIL(rail_of(0, 0)->leaving == NULL && rail_of(1, 0)->leaving == NULL);
    assert_int_equal(rail_of(0, 0)->cq_taken, slots + SL_VERBS_SQ_WRS);
    assert_int_equal(rail_of(1, 0)->cq_taken, slots + SL_VERBS_SQ_WRS);
}

/* All that a full queue can have at once: every send of every path, and every receive buffer. */
static void a_full_queue_refuses_paths_and_overflows_never(void **state)
{
    unsigned up = 0, taken;

    (void)state;
    world_prepare(small);
    paths_between_first_rails(PATHS);
    world_join();
    taken = rail_of(0, 0)->shared_blocks * SL_VERBS_BLOCK_SLOTS;
    for (; taken + SL_VERBS_SQ_WRS <= SMALL / 2; taken += SL_VERBS_SQ_WRS)
        up++;
    up += (SMALL - taken - SL_VERBS_FIRST_PATHS * SL_VERBS_SQ_WRS_MIN) / SL_VERBS_SQ_WRS_MIN;
    WORLD_UNTIL(world_ep(0)->paths_up == up && world_ep(1)->paths_up == up);
    assert_true(up < PATHS);
    assert_int_equal(world_ep(0)->paths[0]->depth, SL_VERBS_SQ_WRS - SL_VERBS_SQ_DRAIN);
    assert_int_equal(world_ep(0)->paths[up - 1]->depth, SL_VERBS_SQ_WRS_MIN - SL_VERBS_SQ_DRAIN);
    WORLD_UNTIL(world_ep(0)->paths[PATHS - 1]->tried);
    assert_non_null(strstr(world_ep(0)->paths[PATHS - 1]->why,
                           "the completion queue of a0:1 has no room for one more path: its 512 "
                           "entries"));
    world_message(3 << 20);
    for (unsigned side = 0; side < 2; side++) /* nobody polls, and all fail */
        for (unsigned i = 0; i < world_ep(side)->path_count; i++) {
            struct sl_verbs_path *path = sl_verbs_path_of(world_ep(side)->paths[i]);

            if (path == NULL || path->qp == NULL)
                continue;
            for (unsigned n = 0; n < 2 * SL_VERBS_SQ_WRS; n++) {
                struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .wr_id = ~UINT64_C(0) >> 2}, *bad;

                (void)ibv_post_send(path->qp, &wr, &bad);
            }
            fake_ibv_qp_fatal(world_fake, path->qp);
        }
    fake_ibv_run(world_fake, 5000);
    assert_null(fake_ibv_misuse(world_fake)); /* "a completion queue ... overran" */
    assert_true(cq_of(0, 0)->count > SMALL / 2);
    WORLD_UNTIL(world_ep(0)->paths_up != 0 && world_ep(1)->paths_up != 0);
    world_message(10000);
}

/* ---- places for those that come later ---- */

#define LATER SL_VERBS_FIRST_PATHS

static struct sl_ep *later[LATER][2];
static struct sl_req later_req[LATER][2];

static void later_open(unsigned i)
{
    struct sl_addr addr[2];

    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(world[side].iface->ops->ep_create(world[side].iface, &later[i][side]), 0);
        later[i][side]->peer = (int)!side;
        assert_int_equal(world[side].iface->ops->ep_addr(later[i][side], &addr[side]), 0);
        later_req[i][side] = (struct sl_req){.status = SL_PENDING};
    }
    for (unsigned side = 0; side < 2; side++)
        assert_int_equal(
            world[side].iface->ops->ep_connect(later[i][side], &addr[!side], &later_req[i][side]),
            0);
}

static int later_clean(void **state)
{
    for (unsigned i = 0; i < LATER; i++)
        for (unsigned side = 0; side < 2; side++) {
            world[side].iface->ops->ep_destroy(later[i][side]);
            later[i][side] = NULL;
        }
    return world_clean(state);
}

/* The first connection has taken all that it gets. */
static void full_by_one(void)
{
    paths_between_first_rails(PATHS);
    world_join();
    WORLD_UNTIL(world_ep(0)->paths[PATHS - 1]->tried);
    assert_true(world_ep(0)->paths_up > 1 && world_ep(0)->paths_up < PATHS);
}

/* Its own paths carry all the while. */
static void later_ones_have_a_path_each(void)
{
    for (unsigned i = 0; i < LATER; i++) {
        later_open(i);
        WORLD_UNTIL(later_req[i][0].status != SL_PENDING && later_req[i][1].status != SL_PENDING);
        for (unsigned side = 0; side < 2; side++) {
            const struct sl_mp_conn *conn = sl_mp_conn_of(later[i][side]);

            assert_int_equal(later_req[i][side].status, 0);
            assert_int_equal(conn->paths_up, 1);
        }
        world_message(3000);
    }
    assert_null(fake_ibv_misuse(world_fake));
}

static void connections_that_come_later_have_a_first_path(void **state)
{
    (void)state;
    world_prepare(small);
    full_by_one();
    later_ones_have_a_path_each();
}

static void with_receives_of_their_own_too(void **state)
{
    (void)state;
    world_prepare(small_without_shared);
    full_by_one();
    later_ones_have_a_path_each();
}

/* One that has lost all it had comes back, and takes what is kept for that. */
static void a_connection_without_a_path_is_as_one_that_comes_later(void **state)
{
    (void)state;
    world_prepare(small_without_shared);
    full_by_one();
    for (unsigned i = 0; i < LATER; i++)
        later_open(i);
    for (unsigned i = 0; i < LATER; i++)
        WORLD_UNTIL(sl_mp_conn_of(later[i][0])->paths_up == 1 &&
                    sl_mp_conn_of(later[i][1])->paths_up == 1);
    for (unsigned i = 0; i < LATER; i++) {
        struct sl_mp_conn *conn = sl_mp_conn_of(later[i][0]);

        for (unsigned k = 0; k < conn->path_count; k++)
            if (conn->paths[k]->state == SL_MP_PATH_UP)
                fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(conn->paths[k])->qp);
        WORLD_UNTIL(conn->paths_up == 0);
        WORLD_UNTIL(conn->paths_up == 1);
    }
}

/* ---- few places ---- */

static void receive_buffers_take_no_more_than_there_is(void **state)
{
    (void)state;
    world_prepare(tiny);
    world_join();
    assert_int_equal(rail_of(0, 0)->shared_blocks, 1);
    for (unsigned i = 0; i < 50; i++)
        world_message(i * 311);
    world_message(1 << 20);
}

static void a_queue_that_is_too_short_for_any_says_so(void **state)
{
    (void)state;
    world_prepare(none);
    assert_int_equal(sl_verbs_ops.open(&world[0].worker, NULL, NULL, &world[0].iface), 0);
    assert_int_equal(world[0].iface->ops->ep_create(world[0].iface, &world[0].ep), -ENOMEM);
    assert_non_null(strstr(sluice_last_error(), "has 63 entries: too few"));
}

static void where_it_can_be_it_is_made_longer_and_loses_nothing(void **state)
{
    char sent[64] = "a message", got[64] = "";
    struct sl_buf buf = {.addr = sent, .len = sizeof(sent)};
    struct sl_sink sink = {.dst = got, .len = sizeof(got), .tag = 7};
    struct sl_req send_req, recv_req;
    unsigned before;

    (void)state;
    world_prepare(NULL);
    world_join();
    world_recv(1, &sink, &recv_req);
    world_send(0, &buf, 7, &send_req);
    fake_ibv_run(world_fake, 50); /* its completion waits in the queue */
    for (unsigned i = 0; i < 2; i++) {
        struct sl_verbs_rail *rail = rail_of(1, i);

        before = (unsigned)rail->cq->cqe;
        assert_true(sl_verbs_cq_take(rail, before));
        assert_int_equal(rail->cq->cqe, 2 * before);
        assert_false(sl_verbs_cq_take(rail, 1u << 20)); /* the device's most */
        assert_int_equal(rail->cq->cqe, 2 * before);
        sl_verbs_cq_give(rail, before);
    }
    WORLD_UNTIL(recv_req.status != SL_PENDING);
    assert_string_equal(got, "a message");
    world_message(1 << 20);
}

static void where_it_cannot_be_nobody_asks_twice(void **state)
{
    struct sl_verbs_rail *rail;

    (void)state;
    world_prepare(fixed);
    world_join();
    rail = rail_of(0, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_false(sl_verbs_cq_take(rail, (unsigned)rail->cq->cqe));
    assert_int_equal(fake_ibv_calls(world_fake, FAKE_IBV_RESIZE_CQ), 1);
    assert_int_equal(sl_verbs_cq_take_sends(rail, 0, false), SL_VERBS_SQ_WRS);
    sl_verbs_cq_give(rail, SL_VERBS_SQ_WRS);
    fake_ibv_table(world_fake)->ibv_resize_cq = NULL; /* an old library */
    rail->cq_most = 1 << 20;
    assert_false(sl_verbs_cq_take(rail, (unsigned)rail->cq->cqe));
}

/* ---- interrupts ---- */

static void queues_are_spread_over_the_vectors(void **state)
{
    int last = -1;

    (void)state;
    world_prepare(vectors);
    world[0].config.local_rank = 0;
    world[1].config.local_rank = 5;
    world_join();
    for (unsigned side = 0; side < 2; side++)
        for (unsigned rail = 0; rail < 2; rail++) {
            int vector = cq_of(side, rail)->vector, step = side == 1 && rail == 0 ? 5 + 1 : 1;

            if (last >= 0)
                assert_int_equal(vector, (last + step) % 8);
            last = vector;
        }
}

static void a_vector_that_is_asked_for_is_taken(void **state)
{
    (void)state;
    world_prepare(vectors);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->comp_vector = 7;
    world_join();
    for (unsigned side = 0; side < 2; side++)
        for (unsigned rail = 0; rail < 2; rail++)
            assert_int_equal(cq_of(side, rail)->vector, 7);
}

static void a_vector_that_there_is_not_is_refused(void **state)
{
    struct sl_iface *iface = NULL;

    (void)state;
    world_prepare(vectors);
    sl_verbs_config_edit(&world[0].config)->comp_vector = 8;
    assert_int_equal(sl_verbs_ops.open(&world[0].worker, NULL, NULL, &iface), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "a0:1 has 8 completion vectors, from 0 on: "
                                                "SLUICE_VERBS_COMP_VECTOR=8 is none of them"));
}

/* ---- threads ---- */

static void queues_of_one_thread_have_no_locks(void **state)
{
    (void)state;
    world_prepare(domains);
    world_join();
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++) {
            struct sl_verbs_rail *rail = rail_of(side, i);

            assert_non_null(rail->td);
            assert_true(cq_of(side, i)->single);
            assert_ptr_equal(FAKE_OF(fake_pd, rail->srq->pd)->td, rail->td);
            assert_ptr_equal(
                FAKE_OF(fake_pd, sl_verbs_path_of(world_ep(side)->paths[i])->qp->pd)->td, rail->td);
            /* Other threads register memory. */
            assert_ptr_equal(rail->blocks[0].mr->pd, rail->device->pd);
        }
    for (unsigned i = 0; i < 30; i++)
        world_message(i * 1000);
    fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(world_ep(0)->paths[0])->qp);
    WORLD_UNTIL(world_ep(0)->paths[0]->stats.ups == 2);
    world_message(1 << 20);
}

static void without_thread_domains_it_is_as_ever(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    assert_null(rail_of(0, 0)->td);
    assert_ptr_equal(rail_of(0, 0)->domain, rail_of(0, 0)->device->pd);
    assert_false(cq_of(0, 0)->single);
    world_message(100000);
}

static void what_of_it_fails_is_done_without(void **state)
{
    static const enum fake_ibv_call calls[] = {FAKE_IBV_ALLOC_TD, FAKE_IBV_ALLOC_PARENT,
                                               FAKE_IBV_CREATE_CQ};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        world_prepare(domains);
        fake_ibv_fail(world_fake, calls[i], 1, EOPNOTSUPP);
        world_join();
        if (i < 2)
            assert_null(rail_of(0, 0)->td);
        assert_false(cq_of(0, 0)->single);
        assert_true(cq_of(0, 1)->single);
        world_message(100000);
        if (i < 2)
            world_end();
    }
}

static void the_setting_decides(void **state)
{
    struct sl_iface *iface = NULL;

    (void)state;
    world_prepare(domains);
    sl_verbs_config_edit(&world[0].config)->thread_domain = SL_OFF;
    sl_verbs_config_edit(&world[1].config)->thread_domain = SL_ON;
    world_join();
    assert_null(rail_of(0, 0)->td);
    assert_non_null(rail_of(1, 0)->td);
    world_end();
    world_prepare(NULL);
    sl_verbs_config_edit(&world[0].config)->thread_domain = SL_ON;
    assert_int_equal(sl_verbs_ops.open(&world[0].worker, NULL, NULL, &iface), -ENODEV);
    assert_non_null(strstr(sluice_last_error(),
                           "a0:1 has no thread domains, which SLUICE_VERBS_THREAD_DOMAIN=on asks"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
#define LATER_CASE(name) cmocka_unit_test_teardown(name, later_clean)
    const struct CMUnitTest tests[] = {
        CASE(each_path_has_places_for_all_that_it_posts),
        CASE(a_full_queue_refuses_paths_and_overflows_never),
        LATER_CASE(connections_that_come_later_have_a_first_path),
        LATER_CASE(with_receives_of_their_own_too),
        LATER_CASE(a_connection_without_a_path_is_as_one_that_comes_later),
        CASE(receive_buffers_take_no_more_than_there_is),
        CASE(a_queue_that_is_too_short_for_any_says_so),
        CASE(where_it_can_be_it_is_made_longer_and_loses_nothing),
        CASE(where_it_cannot_be_nobody_asks_twice),
        CASE(queues_are_spread_over_the_vectors),
        CASE(a_vector_that_is_asked_for_is_taken),
        CASE(a_vector_that_there_is_not_is_refused),
        CASE(queues_of_one_thread_have_no_locks),
        CASE(without_thread_domains_it_is_as_ever),
        CASE(what_of_it_fails_is_done_without),
        CASE(the_setting_decides)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
