/* SPDX-License-Identifier: Apache-2.0 */
/* From flow numbers to lanes. */
#include "core/rng.h"
#include "dpdk/flows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define NUMBERS 3000

static struct sl_dpdk_lane *lane_of(uint32_t number)
{
    return (struct sl_dpdk_lane *)(uintptr_t)(number * 8 + 8);
}

static void numbers_are_found_as_by_a_plain_table(void **state)
{
    struct sl_dpdk_flows flows = {0};
    struct sl_dpdk_lane *plain[NUMBERS] = {0};
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 5);
    assert_null(sl_dpdk_flows_find(&flows, 7)); /* of an empty one */
    for (unsigned i = 0; i < 20000; i++) {
        uint32_t number = (uint32_t)sl_rng_range(&rng, 1, NUMBERS - 1);
        uint32_t other = (uint32_t)sl_rng_range(&rng, 1, NUMBERS - 1);

        if (plain[number] == NULL) {
            assert_int_equal(sl_dpdk_flows_add(&flows, number * 65536, lane_of(number)), 0);
            plain[number] = lane_of(number);
        } else {
            assert_ptr_equal(sl_dpdk_flows_find(&flows, number * 65536), plain[number]);
            sl_dpdk_flows_remove(&flows, number * 65536);
            plain[number] = NULL;
            assert_null(sl_dpdk_flows_find(&flows, number * 65536));
        }
        assert_ptr_equal(sl_dpdk_flows_find(&flows, other * 65536), plain[other]);
    }
    for (uint32_t i = 1; i < NUMBERS; i++)
        assert_ptr_equal(sl_dpdk_flows_find(&flows, i * 65536), plain[i]);
    sl_dpdk_flows_fini(&flows);
}

static void what_a_packet_without_a_flow_names_is_nothing(void **state)
{
    struct sl_dpdk_flows flows = {0};

    (void)state;
    assert_int_equal(sl_dpdk_flows_add(&flows, 1, lane_of(1)), 0);
    assert_null(sl_dpdk_flows_find(&flows, 0));
    assert_null(sl_dpdk_flows_find(&flows, UINT32_MAX));
    sl_dpdk_flows_remove(&flows, 99); /* nobody's */
    assert_ptr_equal(sl_dpdk_flows_find(&flows, 1), lane_of(1));
    sl_dpdk_flows_fini(&flows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_found_as_by_a_plain_table),
        cmocka_unit_test(what_a_packet_without_a_flow_names_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
