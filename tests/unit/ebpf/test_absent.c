/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for the probes where they could not be built says so. */
#include "ebpf/probe.h"

#include <sluice/error.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void nothing_loads_and_what_to_install_is_said(void **state)
{
    static const char *const programs[] = {"on_damaged", NULL};
    static const char *const *const ways[] = {programs};
    struct sl_bpf *bpf = NULL;

    (void)state;
    assert_int_equal(sl_bpf_load("checksum", programs, &bpf), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "built without eBPF: install clang"));
    assert_int_equal(sl_bpf_open_first("checksum", ways, 1, NULL, &bpf), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "libbpf-dev"));
    assert_null(bpf);
    assert_int_equal(sl_bpf_enum("skb_drop_reason", NULL, NULL), -ENOTSUP);
    sl_bpf_close(bpf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_loads_and_what_to_install_is_said)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
