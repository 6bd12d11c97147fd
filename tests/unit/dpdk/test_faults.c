/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"
#include "dpdk/port/inject.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct sl_dpdk_faults faults;

static void every_kind_of_fault_is_read(void **state)
{
    (void)state;
    assert_int_equal(sl_dpdk_faults_parse("loss=0.5,dup=0.25,reorder=0.125,corrupt=1,delay=0,"
                                          "delay_us=50,seed=18446744073709551,port=4711",
                                          &faults),
                     0);
    assert_int_equal(faults.loss, 1u << 31);
    assert_int_equal(faults.dup, 1u << 30);
    assert_int_equal(faults.reorder, 1u << 29);
    assert_int_equal(faults.corrupt, UINT32_MAX);
    assert_int_equal(faults.delay, 0);
    assert_int_equal(faults.delay_ns, 50000);
    assert_int_equal(faults.seed, 18446744073709551ull);
    assert_int_equal(faults.source_port, 4711);
}

static void what_is_not_said_is_off(void **state)
{
    (void)state;
    assert_int_equal(sl_dpdk_faults_parse("loss=0.01", &faults), 0);
    assert_int_equal(faults.dup | faults.reorder | faults.corrupt | faults.delay, 0);
    assert_int_equal(faults.source_port, 0);
    assert_int_equal(faults.seed, 1);
    assert_int_equal(faults.delay_ns, 200000);
}

static void anything_else_is_refused_and_named(void **state)
{
    static const char *const wrong[] = {"",
                                        "loss",
                                        "loss=",
                                        "loss=1.5",
                                        "loss=-1",
                                        "loss=x",
                                        "loss=0.1x",
                                        "loss=0.1,",
                                        "lose=0.1",
                                        "port=0",
                                        "port=65536",
                                        "delay_us=2000000",
                                        "seed=-1",
                                        "loss=nan",
                                        "seed=1,,loss=0",
                                        "seed=1111111111111111111111111111111111111111111111111",
                                        "seed=1111111111111111111"};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(wrong); i++) {
        if (sl_dpdk_faults_parse(wrong[i], &faults) != -EINVAL)
            fail_msg("'%s' is taken", wrong[i]);
        assert_non_null(strstr(sluice_last_error(), "SLUICE_DPDK_INJECT"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_fault_is_read),
        cmocka_unit_test(what_is_not_said_is_off),
        cmocka_unit_test(anything_else_is_refused_and_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
