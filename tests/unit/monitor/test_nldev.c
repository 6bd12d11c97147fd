/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA resources: messages of nldev, and queue pairs that stay in the error state. */
#include "core/clock.h"
#include "core/err.h"
#include "core/rng.h"
#include "monitor/nldev.h"
#include "tests/unit/monitor/engine_bed.h"

#include <libmnl/libmnl.h>
#include <rdma/rdma_netlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* ---- messages ---- */

static char bytes[128 << 10] __attribute__((aligned(8)));

static struct nlmsghdr *begin_message(unsigned command)
{
    struct nlmsghdr *header = mnl_nlmsg_put_header(bytes);

    header->nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
    mnl_attr_put_u32(header, RDMA_NLDEV_ATTR_DEV_INDEX, 2);
    mnl_attr_put_strz(header, RDMA_NLDEV_ATTR_DEV_NAME, "mlx5_0");
    return header;
}

static void put_count(struct nlmsghdr *header, const char *name, uint64_t count)
{
    struct nlattr *nest = mnl_attr_nest_start(header, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);

    mnl_attr_put_strz(header, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
    mnl_attr_put_u64(header, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
    mnl_attr_nest_end(header, nest);
}

static void put_qp(struct nlmsghdr *header, uint32_t number, uint8_t state)
{
    struct nlattr *nest = mnl_attr_nest_start(header, RDMA_NLDEV_ATTR_RES_QP_ENTRY);

    mnl_attr_put_u32(header, RDMA_NLDEV_ATTR_RES_LQPN, number);
    mnl_attr_put_u32(header, RDMA_NLDEV_ATTR_RES_RQPN, 0x99);
    mnl_attr_put_u32(header, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
    mnl_attr_put_u8(header, RDMA_NLDEV_ATTR_RES_STATE, state);
    mnl_attr_put_u32(header, RDMA_NLDEV_ATTR_RES_PID, 4711);
    mnl_attr_nest_end(header, nest);
}

static struct nlmsghdr *summary(void)
{
    struct nlmsghdr *header = begin_message(RDMA_NLDEV_CMD_RES_GET);
    struct nlattr *nest = mnl_attr_nest_start(header, RDMA_NLDEV_ATTR_RES_SUMMARY);

    put_count(header, "qp", 1000);
    put_count(header, "mr", 64);
    put_count(header, "new", 7);
    mnl_attr_nest_end(header, nest);
    return header;
}

static struct nlmsghdr *qps(unsigned count, uint8_t state)
{
    struct nlmsghdr *header = begin_message(RDMA_NLDEV_CMD_RES_QP_GET);
    struct nlattr *nest = mnl_attr_nest_start(header, RDMA_NLDEV_ATTR_RES_QP);

    for (unsigned i = 0; i < count; i++)
        put_qp(header, 0x10 + i, state);
    mnl_attr_nest_end(header, nest);
    return header;
}

static void what_there_is_of_a_device_is_read(void **state)
{
    struct nlmsghdr *header = summary();
    uint64_t counts[SL_MON_NLDEV_KIND_COUNT];
    char name[SL_MON_NAME];
    uint32_t index;

    (void)state;
    assert_true(sl_mon_nldev_parse(header, header->nlmsg_len, &index, name, counts));
    assert_string_equal(name, "mlx5_0");
    assert_int_equal(index, 2);
    assert_int_equal(counts[SL_MON_NLDEV_QP], 1000);
    assert_int_equal(counts[SL_MON_NLDEV_MR], 64);
    assert_int_equal(counts[SL_MON_NLDEV_CQ], 0);
    header = qps(1, 3);
    assert_false(sl_mon_nldev_parse(header, header->nlmsg_len, &index, name, counts));
}

static struct sl_mon_qp taken[4];
static unsigned taken_count;

static void take(void *arg, const struct sl_mon_qp *qp)
{
    (void)arg;
    taken[taken_count++ % 4] = *qp;
}

static void queue_pairs_are_read(void **state)
{
    struct nlmsghdr *header = qps(3, SL_MON_QP_RTS);

    (void)state;
    taken_count = 0;
    sl_mon_nldev_qps(header, header->nlmsg_len, take, NULL);
    assert_int_equal(taken_count, 3);
    assert_true(taken[2].number == 0x12 && taken[2].peer == 0x99 && taken[2].pid == 4711);
    assert_true(taken[2].state == SL_MON_QP_RTS && taken[2].port == 1 && !taken[2].is_kernel);
    header = qps(1, 200); /* no state that there is */
    sl_mon_nldev_qps(header, header->nlmsg_len, take, NULL);
    assert_int_equal(taken_count, 3);
}

static void damaged_messages_do_no_harm(void **state)
{
    uint64_t counts[SL_MON_NLDEV_KIND_COUNT];
    char name[SL_MON_NAME];
    struct sl_rng rng;
    uint32_t index;

    (void)state;
    sl_rng_init(&rng, 6);
    for (unsigned i = 0; i < 20000; i++) {
        struct nlmsghdr *header = i % 2 == 0 ? summary() : qps(2, SL_MON_QP_ERR);
        size_t len = header->nlmsg_len;

        for (unsigned n = 0; n < 3; n++)
            bytes[sl_rng_below(&rng, len)] = (char)sl_rng_u64(&rng);
        len = sl_rng_below(&rng, len + 1);
        (void)sl_mon_nldev_parse(header, len, &index, name, counts);
        sl_mon_nldev_qps(header, len, take, NULL);
    }
}

/* ---- lists ---- */

static struct sl_mon_nldev device;

static int begin(void **state)
{
    (void)state;
    engine_begin(8);
    memset(&device, 0, sizeof(device));
    strcpy(device.name, "mlx5_0");
    return 0;
}

static void list(unsigned good, unsigned broken)
{
    struct sl_mon_qp qp = {.port = 1, .pid = 4711, .peer = 0x99};

    now.mono_ns += 10 * SL_MON_S;
    sl_mon_set_time(mon, &now);
    sl_mon_nldev_begin(&device);
    for (unsigned i = 0; i < good + broken; i++) {
        qp.number = 0x10 + i;
        qp.state = i < broken ? SL_MON_QP_ERR : SL_MON_QP_RTS;
        sl_mon_nldev_qp(mon, &device, &qp);
    }
    sl_mon_nldev_end(mon, &device);
}

static enum sl_mon_state state_now(void)
{
    const struct sl_mon_subject *port = sl_mon_find(mon, SL_MON_PORT, "mlx5_0:1");

    return port == NULL ? SL_MON_OK
                        : (enum sl_mon_state)sl_mon_condition(port, SL_MON_CHECK_PORT_QP)->state;
}

static void queue_pairs_that_stay_in_error_are_told_once(void **state)
{
    (void)state;
    list(5, 0);
    assert_true(sl_mon_in_use(mon, sl_mon_find(mon, SL_MON_PORT, "mlx5_0:1")));
    list(3, 2);
    assert_int_equal(told, 0);
    list(3, 2);
    assert_int_equal(state_now(), SL_MON_BAD);
    assert_string_equal(last_text,
                        "2 queue pairs went to the error state and stay there; the first "
                        "is 0x10 to 0x99 of pid 4711");
    for (unsigned i = 0; i < 60; i++) { /* its program never takes them down */
        list(3, 2);
        sl_mon_calm(mon, SL_MON_CHECK_PORT_QP);
    }
    assert_int_equal(state_now(), SL_MON_OK);
    list(2, 3);
    list(2, 3);
    assert_int_equal(state_now(), SL_MON_BAD);
}

/* A program that ends sets its queue pairs so, and takes them down. */
static void a_moment_in_error_is_quiet(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        list(3, i % 2);
        list(3, 0);
    }
    assert_int_equal(told, 0);
    assert_int_equal(device.states[SL_MON_QP_RTS], 3);
}

static void so_many_in_error_and_no_more(void **state)
{
    (void)state;
    list(0, SL_MON_NLDEV_BROKEN_MAX + 5);
    assert_int_equal(device.left_out, 5);
    assert_int_equal(device.states[SL_MON_QP_ERR], SL_MON_NLDEV_BROKEN_MAX + 5);
}

/* A thousand of them are to be cheap: what one list costs here. */
static void a_thousand_queue_pairs_are_counted(void **state)
{
    struct nlmsghdr *header = qps(1000, SL_MON_QP_RTS);
    uint64_t began_ns = sl_now(&sl_clock_monotonic);

    (void)state;
    taken_count = 0;
    for (unsigned i = 0; i < 100; i++)
        sl_mon_nldev_qps(header, header->nlmsg_len, take, NULL);
    assert_int_equal(taken_count, 100000);
    print_message("1,000 queue pairs: %.1f us\n",
                  (double)(sl_now(&sl_clock_monotonic) - began_ns) / 1e5);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, engine_end)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_there_is_of_a_device_is_read),
                                       cmocka_unit_test(queue_pairs_are_read),
                                       cmocka_unit_test(damaged_messages_do_no_harm),
                                       CASE(queue_pairs_that_stay_in_error_are_told_once),
                                       CASE(a_moment_in_error_is_quiet),
                                       CASE(so_many_in_error_and_no_more),
                                       cmocka_unit_test(a_thousand_queue_pairs_are_counted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
