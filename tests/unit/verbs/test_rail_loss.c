/* SPDX-License-Identifier: Apache-2.0 */
/* A device, or a queue of it, is lost: that rail ends, and nothing else does. */
#include "tests/unit/verbs/world.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LONG 300000

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    return 0;
}

static struct sl_verbs_rail *rail_of(unsigned side)
{
    return &world_iface(side)->rails[0];
}

static void until_out(unsigned side)
{
    WORLD_UNTIL(!rail_of(side)->base.usable && world_ep(0)->paths_up == 1 &&
                world_ep(1)->paths_up == 1);
}

/* From registered memory of one end into registered memory of the other. */
static void registered_message(unsigned from)
{
    uint8_t *bytes[2] = {malloc(LONG), malloc(LONG)};
    struct sl_mr *mr[2];
    struct sl_req send_req, recv_req;

    for (unsigned i = 0; i < 2; i++) {
        const struct sl_mem mem = {.addr = bytes[i], .len = LONG, .kind = SL_MEM_HOST, .fd = -1};

        memset(bytes[i], i == from ? 0x5a : 0, LONG);
        if (world[i].iface->ops->mr_reg(world[i].iface, &mem, &mr[i], NULL) != 0)
            fail_msg("not registered: %s", sluice_last_error());
    }
    const struct sl_buf buf = {.addr = bytes[from], .len = LONG, .mr = mr[from]};
    const struct sl_sink sink = {.dst = bytes[!from], .len = LONG, .tag = 9, .mr = mr[!from]};

    assert_true(world_recv(!from, &sink, &recv_req) >= 0);
    assert_true(world_send(from, &buf, 9, &send_req) >= 0);
    WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(send_req.status, 0);
    assert_int_equal(recv_req.status, 0);
    assert_memory_equal(bytes[0], bytes[1], LONG);
    for (unsigned i = 0; i < 2; i++) {
        world[i].iface->ops->mr_dereg(world[i].iface, mr[i]);
        free(bytes[i]);
    }
}

static void memory_is_registered_on_the_rails_that_are_left(void **state)
{
    (void)state;
    fake_ibv_device_remove(world_fake, 0);
    until_out(0);
    registered_message(0);
    registered_message(1);
    world_message(LONG);
}

/* What the device says by failing counts before its event is read. */
static void also_before_anybody_has_read_of_the_loss(void **state)
{
    (void)state;
    fake_ibv_device_remove(world_fake, 0);
    registered_message(0);
    assert_false(rail_of(0)->base.usable);
    until_out(0);
    registered_message(1);
}

static void connections_are_made_on_the_rails_that_are_left(void **state)
{
    struct sl_ep *eps[200];

    (void)state;
    fake_ibv_device_remove(world_fake, 0);
    for (unsigned i = 0; i < SL_ARRAY_LEN(eps); i++)
        if (world[0].iface->ops->ep_create(world[0].iface, &eps[i]) != 0)
            fail_msg("%u: %s", i, sluice_last_error());
    for (unsigned i = 0; i < SL_ARRAY_LEN(eps); i++)
        world[0].iface->ops->ep_destroy(eps[i]);
    until_out(0);
    world_message(LONG);
}

static void a_rank_sleeps_after_a_device_was_removed(void **state)
{
    struct pollfd bell = {.fd = world[0].iface->ops->fd(world[0].iface), .events = POLLIN};
    unsigned armed = 0;

    (void)state;
    fake_ibv_device_remove(world_fake, 0);
    until_out(0);
    world_message(100);
    for (unsigned i = 0; i < 200; i++) {
        world_progress();
        if (world[0].iface->ops->arm(world[0].iface) != 0)
            continue;
        armed++;
        world[0].iface->ops->disarm(world[0].iface);
    }
    assert_true(armed > 100);
    assert_int_equal(poll(&bell, 1, 0), 0);
}

/* Its port may do what it likes. */
static void a_rail_without_its_queue_stays_out(void **state)
{
    (void)state;
    fake_ibv_cq_error(world_fake, rail_of(0)->cq);
    until_out(0);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    for (unsigned i = 0; i < 200; i++)
        world_progress();
    assert_false(rail_of(0)->base.usable);
    assert_true(strstr(rail_of(0)->base.why, "CQ") != NULL ||
                strstr(rail_of(0)->base.why, "queue") != NULL);
    assert_int_equal(world_ep(0)->paths_up, 1);
    registered_message(0);
}

/* No event tells of it. */
static void a_queue_that_cannot_be_read_costs_its_rail_alone(void **state)
{
    (void)state;
    world_message(LONG);
    fake_ibv_cq_unreadable(world_fake, rail_of(1)->cq);
    until_out(1);
    assert_string_equal(rail_of(1)->base.why, "its completion queue is lost");
    registered_message(0);
    registered_message(1);
}

static void a_queue_that_cannot_ring_costs_its_rail_alone(void **state)
{
    (void)state;
    world_message(100);
    WORLD_UNTIL(sl_mp_may_sleep(&world_iface(0)->mp));
    fake_ibv_fail(world_fake, FAKE_IBV_REQ_NOTIFY, 1, EIO);
    (void)world[0].iface->ops->arm(world[0].iface);
    until_out(0);
    registered_message(0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(memory_is_registered_on_the_rails_that_are_left),
        CASE(also_before_anybody_has_read_of_the_loss),
        CASE(connections_are_made_on_the_rails_that_are_left),
        CASE(a_rank_sleeps_after_a_device_was_removed),
        CASE(a_rail_without_its_queue_stays_out),
        CASE(a_queue_that_cannot_be_read_costs_its_rail_alone),
        CASE(a_queue_that_cannot_ring_costs_its_rail_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
