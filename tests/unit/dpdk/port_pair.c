/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/dpdk/port_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct sl_dpdk_port_settings port_pair_settings(const char *inject)
{
    return (struct sl_dpdk_port_settings){
        .list = "ring:a/0 ring:a/1", .inject = inject, .rank = -1, .local_rank = -1};
}

void port_pair_open(struct port_end *a, struct port_end *b, const char *inject)
{
    struct sl_dpdk_port_settings settings = port_pair_settings(inject);

    assert_int_equal(port_end_open(a, &settings, 0), 0);
    assert_int_equal(port_end_open(b, &settings, 1), 0);
    assert_int_equal(port_end_connect(a, &b->own, 50000), 0);
    assert_int_equal(port_end_connect(b, &a->own, 50001), 0);
}

void port_pair_close(struct port_end *a, struct port_end *b)
{
    port_end_close(a);
    port_end_close(b);
}
