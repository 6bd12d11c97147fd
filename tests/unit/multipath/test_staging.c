/* SPDX-License-Identifier: Apache-2.0 */
/* Long messages over lanes that reach all memory: what is copied, and who asks whom first. */
#include "core/config.h"
#include "core/err.h"
#include "multipath/conn.h"
#include "tests/fake/loop.h"
#include "tests/sim/mp_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define LEN 100000 /* a piece of staging takes it */
#define EAGER 1024
#define LIMIT_NS (10 * SL_NS_PER_S)

static struct loop *loop;
static struct lanes *lanes;
static struct sl_config config;
static struct sl_worker worker[2];
static struct sl_transport_ops ops;
static struct sl_iface *iface[2];
static struct sl_ep *ep[2];
static uint8_t out[LEN], in[LEN];
static size_t consumed;

static struct sl_mp_conn *conn(unsigned side)
{
    return sl_mp_conn_of(ep[side]);
}

static struct sl_mp_channel *channel(unsigned side)
{
    return sl_mp_channel_of(sl_channels_find(&conn(side)->channels, 0));
}

static void turn(void)
{
    for (unsigned side = 0; side < 2; side++)
        ops.progress(iface[side], 16);
    while (lanes_step(lanes))
        ;
    loop_pass(loop, 1000);
}

static void turns(unsigned count)
{
    while (count-- > 0)
        turn();
}

static void finish(const struct sl_req *req)
{
    uint64_t end = loop_now(loop) + LIMIT_NS;

    while (req->status == SL_PENDING && loop_now(loop) < end)
        turn();
    assert_int_equal(req->status, 0);
}

/* everywhere: of both ends. */
static void open_with(bool everywhere)
{
    const struct lanes_side side = {.settings = {.connect_timeout_ms = 20000, .path_wait_ms = 5000},
                                    .eager_bytes = EAGER,
                                    .rails = 1,
                                    .paths = 1,
                                    .buffers = 64,
                                    .everywhere = everywhere};
    struct sl_handler handler = {0};
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};
    struct sl_addr addr[2];

    sl_config_defaults(&config);
    loop = loop_create(1);
    lanes = lanes_create(4, loop);
    sl_transport_complete(&lanes_ops, &ops);
    for (unsigned i = 0; i < 2; i++) {
        lanes_side(lanes, i, &side);
        worker[i] =
            (struct sl_worker){.clock = loop_clock(loop), .config = &config, .rank = (int)i};
        sl_rng_init(&worker[i].rng, 5 + i);
        assert_int_equal(ops.open(&worker[i], NULL, &handler, &iface[i]), 0);
        assert_int_equal(ops.ep_create(iface[i], &ep[i]), 0);
        ep[i]->peer = !i;
        assert_int_equal(ops.ep_addr(ep[i], &addr[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(ops.ep_connect(ep[i], &addr[!i], &req[i]), 0);
    finish(&req[0]);
    finish(&req[1]);
    for (unsigned i = 0; i < LEN; i++)
        out[i] = (uint8_t)(i * 7 + i / 256);
    memset(in, 0, LEN);
    consumed = 0;
}

static void close_all(void)
{
    for (unsigned side = 0; side < 2; side++)
        ops.ep_destroy(ep[side]);
    for (unsigned side = 0; side < 2; side++)
        ops.close(iface[side]);
    assert_null(lanes_misuse(lanes));
    assert_int_equal(lanes_live(lanes), 0);
    lanes_destroy(lanes);
    loop_destroy(loop);
}

static void consume(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    (void)sink;
    memcpy(in + off, bytes, len);
    consumed += len;
}

static const struct sl_sink reduces = {.len = LEN, .tag = 3, .granule = 4, .consume = consume};
static const struct sl_sink takes = {.len = LEN, .tag = 3, .dst = in};
static const struct sl_buf sends = {.addr = out, .len = LEN};

static void a_receive_without_memory_names_staging_before_it_is_asked(void **state)
{
    struct sl_req send = {0}, recv = {0};

    (void)state;
    open_with(true);
    assert_int_equal(ops.recv(ep[1], &reduces, &recv), 0);
    turns(20);
    assert_int_equal(channel(0)->early_count, 1);
    unsigned credits = conn(0)->credits;

    assert_int_equal(ops.send(ep[0], &sends, 3, &send), 0);
    assert_int_equal(conn(0)->credits, credits); /* no frame asks: the bytes go at once */
    finish(&recv);
    finish(&send);
    assert_int_equal(consumed, LEN);
    assert_memory_equal(in, out, LEN);
    close_all();
}

static void half_of_staging_is_for_those_that_ask(void **state)
{
    struct sl_req send[4] = {{0}}, recv[4] = {{0}};

    (void)state;
    open_with(true);
    unsigned all = lanes_iface(lanes, 1)->rx_chunks.count;

    assert_in_range(all, 2, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(ops.recv(ep[1], &reduces, &recv[i]), 0);
    turns(20);
    assert_int_equal(channel(0)->early_count, all / 2);
    assert_int_equal(lanes_iface(lanes, 1)->rx_chunks.free_count, all - all / 2);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(ops.send(ep[0], &sends, 3, &send[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        finish(&recv[i]);
    assert_int_equal(consumed, 4 * LEN);
    assert_int_equal(lanes_iface(lanes, 1)->rx_chunks.free_count, all);
    close_all();
}

static void where_memory_is_registered_it_waits_for_the_sender(void **state)
{
    struct sl_req send = {0}, recv = {0};

    (void)state;
    open_with(false);
    assert_int_equal(ops.recv(ep[1], &reduces, &recv), 0);
    turns(20);
    assert_int_equal(channel(0)->early_count, 0);
    assert_int_equal(ops.send(ep[0], &sends, 3, &send), 0);
    finish(&recv);
    assert_memory_equal(in, out, LEN);
    close_all();
}

static void nothing_of_memory_that_nobody_registered_is_copied(void **state)
{
    struct sl_req send = {0}, recv = {0};

    (void)state;
    open_with(true);
    unsigned tx = lanes_iface(lanes, 0)->tx_chunks.free_count;
    unsigned rx = lanes_iface(lanes, 1)->rx_chunks.free_count;

    assert_int_equal(ops.recv(ep[1], &takes, &recv), 0);
    turns(20);
    assert_int_equal(channel(0)->early_count, 1);
    assert_int_equal(ops.send(ep[0], &sends, 3, &send), 0);
    while (recv.status == SL_PENDING) {
        turn();
        assert_int_equal(lanes_iface(lanes, 0)->tx_chunks.free_count, tx);
        assert_int_equal(lanes_iface(lanes, 1)->rx_chunks.free_count, rx);
    }
    assert_int_equal(recv.status, 0);
    assert_memory_equal(in, out, LEN);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_without_memory_names_staging_before_it_is_asked),
        cmocka_unit_test(half_of_staging_is_for_those_that_ask),
        cmocka_unit_test(where_memory_is_registered_it_waits_for_the_sender),
        cmocka_unit_test(nothing_of_memory_that_nobody_registered_is_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
