/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events of RDMA devices: records, and what they say of a port. */
#include "monitor/async.h"
#include "tests/unit/monitor/engine_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct sl_mon_async_port port;
static struct sl_mon_gids gids;

static int begin(void **state)
{
    (void)state;
    engine_begin(8);
    memset(&port, 0, sizeof(port));
    port.num = 1;
    strcpy(port.device, "mlx5_0");
    strcpy(port.pci, "0000:0c:00.0");
    gids = (struct sl_mon_gids){.count = 2, .gids = {"fe80::1", "::ffff:10.0.0.1"}};
    port.gids = gids;
    sl_mon_use(mon, sl_mon_subject(mon, SL_MON_PORT, "mlx5_0:1"));
    return 0;
}

static void event(uint32_t type, unsigned after_ms)
{
    now.mono_ns += after_ms * UINT64_C(1000000);
    sl_mon_set_time(mon, &now);
    sl_mon_async_judge(mon, &port, type, &gids);
}

static void a_record_is_taken_and_others_are_not(void **state)
{
    struct sl_mon_async_record record = {
        .magic = SL_MON_ASYNC_MAGIC, .type = SL_MON_ASYNC_EVENT, .port = 1, .device = "mlx5_0"};
    struct sl_mon_async_record read;

    (void)state;
    assert_true(sl_mon_async_parse(&record, sizeof(record), &read));
    assert_string_equal(read.device, "mlx5_0");
    assert_false(sl_mon_async_parse(&record, sizeof(record) - 1, &read));
    strcpy(record.device, "../../etc");
    assert_false(sl_mon_async_parse(&record, sizeof(record), &read));
    strcpy(record.device, "..");
    assert_false(sl_mon_async_parse(&record, sizeof(record), &read));
    record.device[0] = '\0';
    assert_false(sl_mon_async_parse(&record, sizeof(record), &read));
    record.type = SL_MON_ASYNC_ALIVE;
    assert_true(sl_mon_async_parse(&record, sizeof(record), &read));
    record.port = 256;
    assert_false(sl_mon_async_parse(&record, sizeof(record), &read));
    record.port = 0;
    record.magic++;
    assert_false(sl_mon_async_parse(&record, sizeof(record), &read));
}

static void a_port_that_lost_its_link_is_told_and_when_it_is_back(void **state)
{
    (void)state;
    event(SL_MON_ASYNC_PORT_ACTIVE, 0); /* it was down when the agent began */
    assert_int_equal(told, 0);
    event(SL_MON_ASYNC_PORT_ERR, 10);
    assert_int_equal(engine_state(SL_MON_PORT, "mlx5_0:1", SL_MON_CHECK_PORT_EVENT), SL_MON_BAD);
    event(SL_MON_ASYNC_PORT_ACTIVE, 12);
    assert_string_equal(last_text, "the port says that its link is back, after 12 ms");
    assert_int_equal(told, 2);
}

static void a_gid_that_is_gone_is_told_and_a_new_one_is_not(void **state)
{
    (void)state;
    gids.count = 3;
    strcpy(gids.gids[2], "::ffff:10.0.1.1");
    event(SL_MON_ASYNC_GID_CHANGE, 1);
    assert_int_equal(told, 0);
    gids.count = 2;
    event(SL_MON_ASYNC_GID_CHANGE, 1);
    assert_int_equal(engine_state(SL_MON_PORT, "mlx5_0:1", SL_MON_CHECK_PORT_GID), SL_MON_BAD);
    assert_string_equal(last_text, "1 of the port's 3 GIDs are gone, the first is ::ffff:10.0.1.1: "
                                   "an address was taken away");
}

static void a_port_that_nobody_uses_is_quiet(void **state)
{
    (void)state;
    event(SL_MON_ASYNC_PORT_ERR, 61000);
    gids.count = 0;
    event(SL_MON_ASYNC_GID_CHANGE, 1);
    assert_int_equal(told, 0);
}

static void a_device_that_failed_is_named_by_its_place(void **state)
{
    (void)state;
    event(SL_MON_ASYNC_DEVICE_FATAL, 1);
    assert_int_equal(engine_state(SL_MON_NIC, "0000:0c:00.0", SL_MON_CHECK_NIC_DRIVER), SL_MON_BAD);
    event(11, 1); /* another LID: nothing that is watched */
    assert_int_equal(told, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, engine_end)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(a_record_is_taken_and_others_are_not),
                                       CASE(a_port_that_lost_its_link_is_told_and_when_it_is_back),
                                       CASE(a_gid_that_is_gone_is_told_and_a_new_one_is_not),
                                       CASE(a_port_that_nobody_uses_is_quiet),
                                       CASE(a_device_that_failed_is_named_by_its_place)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
