/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that give a peer the bytes of one message, and end with it: what it writes by them
 * elsewhere, or later, is refused. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define ROOM 262144u /* registered */
#define OFF 4096u    /* where messages are received there */
#define LEN 65536u
#define TAG 5

static uint8_t out[ROOM], in[ROOM];
static struct sl_mr *regions[2];
static struct sl_req sent, got;
static struct sl_sink sink;
static struct sl_buf buf;

static void join(void)
{
    for (unsigned i = 0; i < 2; i++)
        sl_verbs_config_edit(&world[i].config)->keys = SL_VERBS_KEYS_WINDOW;
    world_join();
    for (unsigned i = 0; i < 2; i++) {
        const struct sl_mem mem = {
            .addr = i == 0 ? out : in, .len = ROOM, .kind = SL_MEM_HOST, .fd = -1};

        assert_int_equal(sl_verbs_ops.mr_reg(world[i].iface, &mem, &regions[i], NULL), 0);
    }
    memset(out, 0x5a, sizeof(out));
    memset(in, 0, sizeof(in));
}

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    join();
    return 0;
}

static int fresh_with_one(void **state)
{
    (void)state;
    world_rails[0] = world_rails[1] = 1;
    world_prepare(NULL);
    join();
    return 0;
}

static int clean(void **state)
{
    for (unsigned i = 0; i < 2; i++)
        sl_verbs_ops.mr_dereg(world[i].iface, regions[i]);
    return world_clean(state);
}

static void post_receive(bool shorter)
{
    sink = (struct sl_sink){
        .dst = in + OFF, .len = LEN, .tag = TAG, .mr = regions[1], .shorter = shorter};
    assert_true(world_recv(1, &sink, &got) >= 0);
}

static void post_send(size_t len)
{
    buf = (struct sl_buf){.addr = out + OFF, .len = len, .mr = regions[0]};
    assert_true(world_send(0, &buf, TAG, &sent) >= 0);
}

/* The message is over, and with it every key. */
static void until_over(size_t len)
{
    WORLD_UNTIL(got.status != SL_PENDING && fake_ibv_bound(world_fake) == 0);
    WORLD_UNTIL(sent.status != SL_PENDING);
    assert_int_equal(got.status, 0);
    assert_int_equal(sent.status, 0);
    assert_memory_equal(in + OFF, out + OFF, len);
    for (unsigned i = 0; i < OFF; i++)
        assert_int_equal(in[i] | in[OFF + LEN + i], 0);
}

static const struct sl_mp_tx_cts *cts(void)
{
    return sl_container_of(world_ep(0)->all_cts.next, struct sl_mp_tx_cts, all);
}

/* Side 0 has the CTS of a message that it has not sent. */
static struct sl_mp_cts told(void)
{
    WORLD_UNTIL(!sl_list_empty(&world_ep(0)->all_cts));
    return cts()->cts;
}

static struct sl_verbs_path *path(unsigned side, unsigned i)
{
    return sl_verbs_path_of(world_ep(side)->paths[i]);
}

/* What a faulty side 0 writes by its first path, past its own protocol. */
static void stray(uint64_t addr, size_t len, uint32_t rkey)
{
    unsigned failures = (unsigned)world_ep(0)->paths[0]->stats.failures;
    struct sl_verbs_path *by = path(0, 0);
    const struct sl_verbs_mr *mr =
        sl_container_of(world_iface(0)->regions.next, struct sl_verbs_mr, link);
    struct ibv_sge sge = {.addr = (uintptr_t)out,
                          .length = (uint32_t)len,
                          .lkey = mr->claims[by->rail->base.idx].mr->lkey};
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE,
                                   .wr_id = UINT64_C(0x7ffff) << 44,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .wr.rdma = {.remote_addr = addr, .rkey = rkey}};

    assert_int_equal(ibv_post_send(by->qp, &wr, &bad), 0);
    /* Either end may be the first to say so. */
    WORLD_UNTIL(world_ep(0)->paths[0]->stats.failures > failures);
    if (strstr(world_ep(0)->paths[0]->why, "access") == NULL)
        fail_msg("%s", world_ep(0)->paths[0]->why);
}

static uint32_t key_of_rail(const struct sl_mp_cts *cts_told)
{
    return cts_told->rkeys[world_ep(0)->paths[0]->remote_rail];
}

static void a_cts_names_keys_of_its_own_that_end_with_it(void **state)
{
    struct sl_mp_cts first, second;

    (void)state;
    post_receive(false);
    first = told();
    assert_int_equal(first.keys.rails, 3);
    assert_int_equal(fake_ibv_bound(world_fake), 2);
    post_send(LEN);
    until_over(LEN);
    post_receive(false);
    second = told();
    for (unsigned i = 0; i < 2; i++)
        assert_int_not_equal(first.rkeys[i], second.rkeys[i]);
    post_send(LEN);
    until_over(LEN);
}

static void a_receive_after_its_send_has_keys_too(void **state)
{
    (void)state;
    post_send(LEN);
    for (unsigned i = 0; i < 50; i++)
        world_progress();
    post_receive(false);
    until_over(LEN);
}

static void what_lies_beside_the_message_is_not_the_peers(void **state)
{
    struct sl_mp_cts key;

    (void)state;
    post_receive(false);
    key = told();
    stray(key.addr + LEN, 1, key_of_rail(&key));
    /* And that costs the path, no more. */
    post_send(LEN);
    until_over(LEN);
    WORLD_UNTIL(world_ep(0)->paths_up == 2);
    post_receive(false);
    key = told();
    stray(key.addr - 1, 2, key_of_rail(&key));
    post_send(LEN);
    until_over(LEN);
}

static void what_comes_after_the_end_is_refused(void **state)
{
    struct sl_mp_cts key;

    (void)state;
    post_receive(false);
    key = told();
    post_send(LEN);
    until_over(LEN);
    memset(in, 0, sizeof(in));
    stray(key.addr, LEN, key_of_rail(&key));
    for (unsigned i = 0; i < LEN; i++)
        assert_int_equal(in[OFF + i], 0);
    WORLD_UNTIL(world_ep(0)->paths_up == 2);
    world_message(LEN);
}

static void the_key_of_a_region_gives_nothing(void **state)
{
    const struct sl_verbs_mr *mr =
        sl_container_of(world_iface(1)->regions.next, struct sl_verbs_mr, link);
    unsigned rail = world_ep(0)->paths[0]->remote_rail;

    (void)state;
    stray((uintptr_t)in, 1, mr->claims[rail].mr->rkey);
    assert_int_equal(in[0], 0);
}

/* The region's user gets his memory back when no key to it is left, not before. */
static void a_message_that_came_in_a_frame_waits_for_the_end_of_its_keys(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        memset(in, 0, sizeof(in));
        post_receive(true);
        /* At each step of making them. */
        for (unsigned i = 0; i < round / 2; i++)
            fake_ibv_run(world_fake, 1);
        post_send(64);
        WORLD_UNTIL(got.status != SL_PENDING || fake_ibv_bound(world_fake) == 0);
        assert_true(got.status == SL_PENDING || fake_ibv_bound(world_fake) == 0);
        until_over(64);
        assert_int_equal(got.len, 64);
        assert_true(sl_list_empty(&world_ep(0)->all_cts) || cts()->msg == NULL);
    }
}

static void a_shorter_message_ends_its_keys(void **state)
{
    (void)state;
    post_receive(true);
    (void)told();
    post_send(LEN / 2);
    until_over(LEN / 2);
    assert_int_equal(got.len, LEN / 2);
}

static void a_receive_of_another_tag_ends_its_keys(void **state)
{
    (void)state;
    post_receive(false);
    (void)told();
    buf = (struct sl_buf){.addr = out + OFF, .len = LEN, .mr = regions[0]};
    assert_true(world_send(0, &buf, TAG + 1, &sent) >= 0);
    WORLD_UNTIL(got.status != SL_PENDING);
    assert_int_equal(got.status, -EPROTO);
    assert_int_equal(fake_ibv_bound(world_fake), 0);
    WORLD_UNTIL(sent.status != SL_PENDING);
}

/* To go by the other rail alone. */
static void a_bind_that_fails_costs_that_key(void **state)
{
    struct sl_mp_cts key;

    (void)state;
    fake_ibv_bind_fails(world_fake, 1);
    post_receive(false);
    key = told();
    assert_true(key.keys.rails == 1 || key.keys.rails == 2);
    post_send(LEN);
    until_over(LEN);
    post_receive(false);
    assert_int_equal(told().keys.rails, 3);
    post_send(LEN);
    until_over(LEN);
}

static void a_bind_that_is_not_taken_costs_that_key(void **state)
{
    (void)state;
    fake_ibv_fail(world_fake, FAKE_IBV_BIND_MW, 1, ENOMEM);
    post_receive(false);
    assert_int_equal(told().keys.rails, 2);
    post_send(LEN);
    until_over(LEN);
}

/* To nothing: then the window goes, and its key with it. */
static void a_key_ends_even_if_it_is_not_taken_back(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 2; way++) {
        struct sl_mp_cts key;

        post_receive(false);
        key = told();
        if (way == 0)
            fake_ibv_fail(world_fake, FAKE_IBV_BIND_MW, 1, ENOMEM);
        else
            fake_ibv_bind_fails(world_fake, 1);
        post_send(LEN);
        until_over(LEN);
        stray(key.addr, LEN, key_of_rail(&key));
        WORLD_UNTIL(world_ep(0)->paths_up == 2);
    }
    post_receive(false);
    assert_int_equal(told().keys.rails, 3);
    post_send(LEN);
    until_over(LEN);
}

static void without_any_key_a_message_goes_through_staging(void **state)
{
    (void)state;
    for (unsigned early = 0; early < 2; early++) {
        fake_ibv_fail(world_fake, FAKE_IBV_BIND_MW, 1, ENOMEM);
        if (early == 0) {
            post_send(LEN);
            for (unsigned i = 0; i < 50; i++)
                world_progress();
        }
        post_receive(false);
        if (early == 1) {
            for (unsigned i = 0; i < 50; i++)
                world_progress();
            assert_true(sl_list_empty(&world_ep(0)->all_cts));
            post_send(LEN);
        }
        until_over(LEN);
        assert_int_equal(fake_ibv_bound(world_fake), 0);
    }
}

/* Into GPU memory there is no other way. */
static void gpu_memory_without_any_key_ends_the_connection(void **state)
{
    struct sl_mp_region *region =
        &sl_container_of(world_iface(1)->regions.next, struct sl_verbs_mr, link)->base;

    (void)state;
    fake_ibv_fail(world_fake, FAKE_IBV_BIND_MW, 1, ENOMEM);
    post_receive(false);
    region->is_gpu = true; /* as far as the CTS is concerned */
    WORLD_UNTIL(got.status != SL_PENDING);
    region->is_gpu = false;
    assert_int_equal(got.status, -EIO);
    assert_non_null(strstr(world_ep(1)->why, "set SLUICE_VERBS_KEYS=region"));
}

/* Receives whose senders have not asked leave half of them to those whose have. */
static void keys_that_are_all_in_use_are_waited_for(void **state)
{
    struct sl_mp_iface *iface = &world_iface(1)->mp;
    struct sl_mp_region *region =
        &sl_container_of(world_iface(1)->regions.next, struct sl_verbs_mr, link)->base;
    struct sl_mp_grant *held[256];
    unsigned count = 0, early;

    (void)state;
    while ((held[count] = iface->grants->open(iface, region, in, 1, false)) != NULL)
        count++;
    early = count;
    post_receive(false);
    for (unsigned i = 0; i < 50; i++)
        world_progress();
    assert_true(sl_list_empty(&world_ep(0)->all_cts));
    while ((held[count] = iface->grants->open(iface, region, in, 1, true)) != NULL)
        count++;
    assert_int_equal(count, 2 * early);
    post_send(LEN);
    for (unsigned i = 0; i < 50; i++)
        world_progress();
    assert_int_equal(got.status, SL_PENDING);
    for (unsigned i = 0; i < count; i++)
        iface->grants->cut(iface, held[i]);
    until_over(LEN);
}

/* A write behind the last byte, while the keys end. */
static void nothing_is_granted_to_a_message_that_ends(void **state)
{
    struct sl_mp_conn *conn = world_ep(1);
    uint32_t id;

    (void)state;
    post_receive(false);
    id = told().id;
    post_send(LEN);
    while (!conn->rx_cts[id % SL_MP_RX_CTS_MAX].grant->is_ending)
        world_progress();
    assert_int_equal(got.status, SL_PENDING);
    sl_mp_on_write(conn->paths[0], id, 0); /* an empty one: nothing happens */
    assert_int_equal(got.status, SL_PENDING);
    until_over(LEN);
}

static void a_rail_that_returns_makes_keys_again(void **state)
{
    (void)state;
    for (unsigned device = 2; device < 4; device++) {
        post_receive(false);
        (void)told();
        fake_ibv_device_remove(world_fake, device);
        WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
        fake_ibv_device_return(world_fake, device);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && cts()->rails == 3);
        fake_ibv_device_remove(world_fake, 5 - device);
        WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
        post_send(LEN);
        until_over(LEN);
        fake_ibv_device_return(world_fake, 5 - device);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    }
}

/* A port without a link when it was opened. */
static int fresh_without_link(void **state)
{
    (void)state;
    world_prepare(NULL);
    fake_ibv_port_set(world_fake, 2, 1, IBV_PORT_DOWN);
    join();
    return 0;
}

static void a_port_that_comes_up_makes_keys_from_then_on(void **state)
{
    (void)state;
    post_receive(false);
    assert_int_equal(told().keys.rails, 2);
    fake_ibv_port_set(world_fake, 2, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && cts()->rails == 3);
    post_send(LEN);
    until_over(LEN);
}

static void the_end_of_a_connection_ends_its_keys(void **state)
{
    (void)state;
    post_receive(false);
    (void)told();
    assert_int_equal(fake_ibv_bound(world_fake), 2);
    sl_mp_conn_fail(world_ep(1), -EIO, "as this case wants it");
    WORLD_UNTIL(got.status != SL_PENDING);
    assert_int_equal(fake_ibv_bound(world_fake), 0);
}

/* Not even while its device tells nothing. */
static void it_does_so_while_nothing_completes(void **state)
{
    struct ibv_qp *qps[64];
    unsigned count;

    (void)state;
    post_receive(false);
    (void)told();
    count = fake_ibv_qps(world_fake, qps, 64);
    for (unsigned i = 0; i < count; i++)
        fake_ibv_cq_hold(world_fake, qps[i]->send_cq, true);
    sl_mp_conn_fail(world_ep(1), -EIO, "as this case wants it");
    WORLD_UNTIL(got.status != SL_PENDING);
    assert_int_equal(fake_ibv_bound(world_fake), 0);
    for (unsigned i = 0; i < count; i++)
        fake_ibv_cq_hold(world_fake, qps[i]->send_cq, false);
}

static void no_windows(struct fake_ibv_device *params)
{
    params->attr.device_cap_flags = 0;
    params->attr.max_mw = 0;
}

static void a_device_without_windows_is_not_used_with_them(void **state)
{
    struct sl_handler handler = {0};

    (void)state;
    world_prepare(no_windows);
    sl_verbs_config_edit(&world[0].config)->keys = SL_VERBS_KEYS_WINDOW;
    assert_true(sl_verbs_ops.open(&world[0].worker, NULL, &handler, &world[0].iface) < 0);
    assert_non_null(strstr(sluice_last_error(), "a0:1 gives no memory windows, which "
                                                "SLUICE_VERBS_KEYS=window asks for"));
    assert_null(world[0].iface);
    world_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cts_names_keys_of_its_own_that_end_with_it, fresh, clean),
        cmocka_unit_test_setup_teardown(a_receive_after_its_send_has_keys_too, fresh, clean),
        cmocka_unit_test_setup_teardown(what_lies_beside_the_message_is_not_the_peers, fresh,
                                        clean),
        cmocka_unit_test_setup_teardown(what_comes_after_the_end_is_refused, fresh, clean),
        cmocka_unit_test_setup_teardown(the_key_of_a_region_gives_nothing, fresh, clean),
        cmocka_unit_test_setup_teardown(
            a_message_that_came_in_a_frame_waits_for_the_end_of_its_keys, fresh, clean),
        cmocka_unit_test_setup_teardown(a_shorter_message_ends_its_keys, fresh, clean),
        cmocka_unit_test_setup_teardown(a_receive_of_another_tag_ends_its_keys, fresh, clean),
        cmocka_unit_test_setup_teardown(a_bind_that_fails_costs_that_key, fresh, clean),
        cmocka_unit_test_setup_teardown(a_bind_that_is_not_taken_costs_that_key, fresh, clean),
        cmocka_unit_test_setup_teardown(a_key_ends_even_if_it_is_not_taken_back, fresh, clean),
        cmocka_unit_test_setup_teardown(without_any_key_a_message_goes_through_staging,
                                        fresh_with_one, clean),
        cmocka_unit_test_setup_teardown(gpu_memory_without_any_key_ends_the_connection,
                                        fresh_with_one, clean),
        cmocka_unit_test_setup_teardown(keys_that_are_all_in_use_are_waited_for, fresh, clean),
        cmocka_unit_test_setup_teardown(nothing_is_granted_to_a_message_that_ends, fresh, clean),
        cmocka_unit_test_setup_teardown(a_rail_that_returns_makes_keys_again, fresh, clean),
        cmocka_unit_test_setup_teardown(a_port_that_comes_up_makes_keys_from_then_on,
                                        fresh_without_link, clean),
        cmocka_unit_test_setup_teardown(the_end_of_a_connection_ends_its_keys, fresh, clean),
        cmocka_unit_test_setup_teardown(it_does_so_while_nothing_completes, fresh, clean),
        cmocka_unit_test(a_device_without_windows_is_not_used_with_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
