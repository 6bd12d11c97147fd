/* SPDX-License-Identifier: Apache-2.0 */
/* A device, or a queue of it, is lost: that rail ends, and nothing else does. */
#include "tests/unit/verbs/world.h"

#include <errno.h>
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
static void a_rail_without_its_queue_is_out_until_it_has_another(void **state)
{
    struct ibv_cq *lost = rail_of(0)->cq;

    (void)state;
    fake_ibv_cq_error(world_fake, lost);
    until_out(0);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    while (rail_of(0)->cq == lost) {
        world_progress();
        assert_false(rail_of(0)->base.usable && rail_of(0)->cq == lost);
    }
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
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

/* ---- what returns ---- */

#define RETURN_NS (2 * SL_NS_PER_S) /* for a device that is back, until its paths carry */

static uint8_t memory[2][LONG];
static struct sl_mr *regions[2];

static int remembering(void **state)
{
    fresh(state);
    for (unsigned i = 0; i < 2; i++) {
        const struct sl_mem mem = {.addr = memory[i], .len = LONG, .kind = SL_MEM_HOST, .fd = -1};

        memset(memory[i], i == 0 ? 0x5a : 0, LONG);
        assert_int_equal(world[i].iface->ops->mr_reg(world[i].iface, &mem, &regions[i], NULL), 0);
    }
    return 0;
}

static int forgetting(void **state)
{
    for (unsigned i = 0; i < 2; i++)
        world[i].iface->ops->mr_dereg(world[i].iface, regions[i]);
    return world_clean(state);
}

/* Devices 0 and 1 are side 0's. */
static void goes_and_returns(unsigned device)
{
    uint64_t back_ns;

    fake_ibv_device_remove(world_fake, device);
    WORLD_UNTIL(!world_iface(device / 2)->rails[device % 2].base.usable &&
                world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    fake_ibv_device_return(world_fake, device);
    back_ns = loop_now(world_loop);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    assert_true(loop_now(world_loop) - back_ns < RETURN_NS);
}

static struct sl_req sent, got;

static void post_receive(void)
{
    static struct sl_sink sink;

    sink = (struct sl_sink){.dst = memory[1], .len = LONG, .tag = 9, .mr = regions[1]};
    assert_true(world_recv(1, &sink, &got) >= 0);
}

static void sends_and_arrives(void)
{
    static struct sl_buf buf;

    buf = (struct sl_buf){.addr = memory[0], .len = LONG, .mr = regions[0]};
    assert_true(world_send(0, &buf, 9, &sent) >= 0);
    WORLD_UNTIL(sent.status != SL_PENDING && got.status != SL_PENDING);
    assert_int_equal(sent.status, 0);
    assert_int_equal(got.status, 0);
    assert_memory_equal(memory[0], memory[1], LONG);
}

/* With the memory that was registered before, by its paths alone. */
static void a_device_that_returns_is_used_again(void **state)
{
    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        unsigned away = 2 * side + 1;
        uint64_t before;

        goes_and_returns(2 * side);
        before = world_ep(0)->paths[0]->stats.sent_bytes;
        fake_ibv_device_remove(world_fake, away);
        WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
        memset(memory[1], 0, LONG);
        post_receive();
        sends_and_arrives();
        assert_true(world_ep(0)->paths[0]->stats.sent_bytes - before >= LONG);
        world_message(LONG);
        fake_ibv_device_return(world_fake, away);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    }
}

static bool is_uneven(unsigned side)
{
    return world_iface(side)->mp.uneven || world_ep(side)->uneven;
}

/* Looking at the rails of each piece costs time. */
static void once_all_memory_has_all_rails_nobody_looks_at_them(void **state)
{
    (void)state;
    for (unsigned device = 0; device < 4; device++) {
        fake_ibv_device_remove(world_fake, device);
        WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
        assert_true(is_uneven(device / 2));
        registered_message(0); /* registered without that rail */
        post_receive();
        WORLD_UNTIL(!sl_list_empty(&world_ep(0)->all_cts));
        fake_ibv_device_return(world_fake, device);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
        WORLD_UNTIL(!is_uneven(0) && !is_uneven(1));
        sends_and_arrives();
    }
    fake_ibv_device_remove(world_fake, 0);
    until_out(0);
    fake_ibv_device_remove(world_fake, 1);
    fake_ibv_device_return(world_fake, 0);
    WORLD_UNTIL(world_iface(0)->rails[0].base.usable);
    assert_true(is_uneven(0));
    fake_ibv_device_return(world_fake, 1);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && !is_uneven(0));
}

/* Its keys were the dead device's; by the only rail that has still the same nothing comes. */
static void what_was_cleared_to_send_before_gets_new_keys(void **state)
{
    (void)state;
    post_receive();
    WORLD_UNTIL(!sl_list_empty(&world_ep(0)->all_cts));
    goes_and_returns(2);
    fake_ibv_device_remove(world_fake, 3);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    sends_and_arrives();
}

/* The first rail of side 1 returns so often, as its peer hears it. */
static void renew(unsigned times)
{
    const struct sl_mp_rail_info *told = &world_ep(0)->peer.rails[0];
    struct sl_mp_iface *iface = &world_iface(1)->mp;

    for (unsigned i = 0; i < times; i++) {
        sl_mp_rail_renewed(iface, iface->rails[0]);
        sl_mp_rails_changed(iface, false);
        WORLD_UNTIL(told->keys == iface->rails[0]->keys);
    }
    WORLD_UNTIL(world_ep(1)->unannounced == 0);
}

/* Generations are told modulo 256. */
static void a_rail_that_stays_is_used_however_often_another_one_returns(void **state)
{
    static const unsigned times[] = {130, 300, 255};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(times); i++) {
        renew(times[i]);
        fake_ibv_device_remove(world_fake, 2);
        WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
        memset(memory[1], 0, LONG);
        post_receive();
        sends_and_arrives();
        fake_ibv_device_return(world_fake, 2);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    }
}

static void a_receive_posted_long_before_is_written_by_the_rail_that_stays(void **state)
{
    (void)state;
    post_receive();
    WORLD_UNTIL(!sl_list_empty(&world_ep(0)->all_cts));
    renew(130);
    fake_ibv_device_remove(world_fake, 2);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    sends_and_arrives();
}

/* Its receiver cannot tell it anew, and the generations go once round. */
static void a_key_that_is_too_old_stays_so(void **state)
{
    struct sl_mp_conn *conn = world_ep(0);

    (void)state;
    post_receive();
    WORLD_UNTIL(!sl_list_empty(&conn->all_cts));
    struct sl_mp_tx_cts *cts = sl_container_of(conn->all_cts.next, struct sl_mp_tx_cts, all);

    for (unsigned i = 1; i <= 300; i++) {
        conn->peer.rails[0].keys = (uint8_t)i;
        sl_mp_tx_keys_check(conn);
        assert_int_equal(cts->rails & 1, 0);
    }
    conn->peer.rails[0].keys = 0;
    sl_mp_tx_keys_check(conn);
    sl_mp_cts_renew(world_ep(1));
    WORLD_UNTIL((cts->rails & 1) != 0);
    sends_and_arrives();
}

/* Both, one after the other: in between the connection never was without a path. */
static void all_devices_are_replaced_under_traffic(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned device = 0; device < 4; device++) {
            post_receive();
            goes_and_returns(device);
            sends_and_arrives();
            memset(memory[1], 0, LONG);
        }
    assert_int_equal(world[0].downs + world[1].downs, 0);
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_CONTEXT), 4);
}

/* A frame waits in a receive buffer of the device that goes. */
static void a_frame_that_waits_moves_out_of_a_dead_devices_buffer(void **state)
{
    static const uint8_t bytes[100] = {1, 2, 3};
    const struct sl_buf buf = {.addr = bytes, .len = sizeof(bytes)};
    uint8_t out[100] = {0};
    const struct sl_sink sink = {.dst = out, .len = sizeof(out), .tag = 3};
    unsigned device;

    (void)state;
    assert_true(world_send(0, &buf, 3, &sent) >= 0);
    WORLD_UNTIL(world_ep(1)->held == 1);
    device = 2 + (unsigned)(!sl_verbs_slots_in_hands(&world_iface(1)->rails[0]));
    assert_true(sl_verbs_slots_in_hands(&world_iface(1)->rails[device - 2]));
    goes_and_returns(device);
    assert_true(world_recv(1, &sink, &got) >= 0);
    WORLD_UNTIL(got.status != SL_PENDING);
    assert_int_equal(got.status, 0);
    assert_memory_equal(bytes, out, sizeof(out));
}

/* It says so again, and is tried again. */
static void a_device_that_dies_on_its_way_back_returns_later(void **state)
{
    unsigned queues = fake_ibv_live_of(world_fake, FAKE_IBV_CQ);

    (void)state;
    fake_ibv_device_remove(world_fake, 0);
    until_out(0);
    fake_ibv_device_return(world_fake, 0);
    fake_ibv_fail(world_fake, FAKE_IBV_REG_MR, 3, ENOMEM);
    WORLD_UNTIL(fake_ibv_live_of(world_fake, FAKE_IBV_CQ) == queues);
    fake_ibv_device_remove(world_fake, 0);
    for (unsigned i = 0; i < 200; i++)
        world_progress();
    assert_int_equal(world_ep(0)->paths_up, 1);
    fake_ibv_device_return(world_fake, 0);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    post_receive();
    sends_and_arrives();
}

static unsigned refusals;

static struct ibv_cq *refuse_queue(struct ibv_context *context, int cqe, void *cq_context,
                                   struct ibv_comp_channel *channel, int vector)
{
    (void)context, (void)cqe, (void)cq_context, (void)channel, (void)vector;
    refusals++;
    errno = ENOMEM;
    return NULL;
}

/* Each attempt takes the device and its driver a while. */
static void a_device_that_cannot_be_used_is_tried_ever_less(void **state)
{
    struct sl_ibv *table = fake_ibv_table(world_fake);
    struct ibv_cq *(*create)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int) =
        table->ibv_create_cq;
    uint64_t start_ns;

    (void)state;
    refusals = 0;
    table->ibv_create_cq = refuse_queue;
    fake_ibv_device_remove(world_fake, 0);
    until_out(0);
    fake_ibv_device_return(world_fake, 0);
    start_ns = loop_now(world_loop);
    WORLD_UNTIL(loop_now(world_loop) > start_ns + 40 * SL_NS_PER_S);
    assert_in_range(refusals, 5, 8);
    assert_non_null(strstr(rail_of(0)->base.why, "a0:1 gives no completion queue"));
    table->ibv_create_cq = create;
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    assert_string_equal(rail_of(0)->base.why, "");
    goes_and_returns(0); /* as soon as the first time */
}

/* Nobody knows when it returns. */
static void a_device_that_is_not_there_is_looked_for_as_often_as_ever(void **state)
{
    uint64_t start_ns = loop_now(world_loop);

    (void)state;
    fake_ibv_device_remove(world_fake, 0);
    until_out(0);
    WORLD_UNTIL(loop_now(world_loop) > start_ns + 20 * SL_NS_PER_S);
    start_ns = loop_now(world_loop);
    fake_ibv_device_return(world_fake, 0);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    assert_true(loop_now(world_loop) - start_ns < RETURN_NS);
}

/* Soft-RoCE's, when its interface is gone: it goes when nobody has it open, and says so by its port
 * alone. */
static void a_device_whose_port_is_gone_is_closed_and_opened_anew(void **state)
{
    uint64_t opened = fake_ibv_calls(world_fake, FAKE_IBV_OPEN_DEVICE);
    unsigned alive = fake_ibv_live_of(world_fake, FAKE_IBV_CONTEXT);

    (void)state;
    fake_ibv_fail(world_fake, FAKE_IBV_QUERY_PORT, 1, ENODEV);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    until_out(0);
    assert_true(rail_of(0)->is_lost);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    assert_int_equal(fake_ibv_calls(world_fake, FAKE_IBV_OPEN_DEVICE), opened + 1);
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_CONTEXT), alive);
    registered_message(0);
}

/* Its drain work requests will never be seen. */
static void a_queue_that_cannot_be_read_holds_nobody_up(void **state)
{
    uint64_t most_ns = 0;

    (void)state;
    fake_ibv_cq_unreadable(world_fake, rail_of(1)->cq);
    while (world_ep(1)->paths_up == 2) {
        uint64_t start_ns = loop_now(world_loop);

        assert_true(world[1].iface->ops->progress(world[1].iface, 64) >= 0);
        if (loop_now(world_loop) - start_ns > most_ns)
            most_ns = loop_now(world_loop) - start_ns;
        loop_pass(world_loop, 100000);
    }
    assert_true(most_ns < SL_NS_PER_MS);
}

/* Its peer has not said yet what it had; each look passes over all connections. */
static void what_is_in_use_is_not_looked_at_all_the_time(void **state)
{
    uint64_t start_ns = loop_now(world_loop);
    unsigned looks = 0;

    (void)state;
    fake_ibv_device_fatal(world_fake, 0);
    for (uint64_t last = 0; loop_now(world_loop) < start_ns + SL_NS_PER_S;) {
        fake_ibv_run(world_fake, 3);
        assert_true(world[0].iface->ops->progress(world[0].iface, 64) >= 0);
        loop_pass(world_loop, 100000);
        looks += last != rail_of(0)->reread_at_ns;
        last = rail_of(0)->reread_at_ns;
    }
    assert_true(rail_of(0)->is_lost && rail_of(0)->cq != NULL);
    assert_true(rail_of(0)->reread_at_ns >= loop_now(world_loop));
    assert_in_range(looks, 5, 50);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, world_clean)
#define RETURNS(name) cmocka_unit_test_setup_teardown(name, remembering, forgetting)
    const struct CMUnitTest tests[] = {
        CASE(memory_is_registered_on_the_rails_that_are_left),
        CASE(also_before_anybody_has_read_of_the_loss),
        CASE(connections_are_made_on_the_rails_that_are_left),
        CASE(a_rank_sleeps_after_a_device_was_removed),
        CASE(a_rail_without_its_queue_is_out_until_it_has_another),
        CASE(a_queue_that_cannot_be_read_costs_its_rail_alone),
        CASE(a_queue_that_cannot_ring_costs_its_rail_alone),
        RETURNS(a_device_that_returns_is_used_again),
        RETURNS(once_all_memory_has_all_rails_nobody_looks_at_them),
        RETURNS(what_was_cleared_to_send_before_gets_new_keys),
        RETURNS(a_rail_that_stays_is_used_however_often_another_one_returns),
        RETURNS(a_receive_posted_long_before_is_written_by_the_rail_that_stays),
        RETURNS(a_key_that_is_too_old_stays_so),
        RETURNS(all_devices_are_replaced_under_traffic),
        RETURNS(a_frame_that_waits_moves_out_of_a_dead_devices_buffer),
        CASE(a_device_that_cannot_be_used_is_tried_ever_less),
        CASE(a_device_that_is_not_there_is_looked_for_as_often_as_ever),
        CASE(a_device_whose_port_is_gone_is_closed_and_opened_anew),
        CASE(a_queue_that_cannot_be_read_holds_nobody_up),
        CASE(what_is_in_use_is_not_looked_at_all_the_time),
        RETURNS(a_device_that_dies_on_its_way_back_returns_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
