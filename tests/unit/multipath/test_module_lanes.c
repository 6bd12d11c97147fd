/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes in a module: they share the process's sideband, events, log and errors. */
#include "core/config.h"
#include "core/event.h"
#include "core/module.h"
#include "core/registry.h"
#include "core/transport.h"
#include "lib/backends.h"
#include "multipath/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *module;

/* The library has the words of paths already, from RDMA's lanes. */
static void a_module_with_lanes_is_loaded_beside_the_librarys_own(void **state)
{
    (void)state;
    sl_backends_register();
    assert_int_equal(sl_event_register(&sl_mp_events), 0);
    assert_int_equal(sl_module_load(module), 0);
    assert_string_equal(sl_event_name(SL_EVENT_PATH_UP), "path_up");
}

static void its_interface_opens_the_sideband_of_the_process_and_notes_events(void **state)
{
    const struct sl_transport_ops *ops = sl_transport_find("kites", 5);
    static struct sl_event_ring ring;
    struct sl_config config;
    struct sl_worker worker = {
        .clock = &sl_clock_monotonic, .config = &config, .rank = -1, .events = &ring};
    struct sl_event_reader reader = {.ring = &ring};
    struct sl_event seen[4];
    struct sl_iface *iface;

    (void)state;
    assert_non_null(ops);
    sl_config_defaults(&config);
    sl_rng_init(&worker.rng, 1);
    sl_event_ring_init(&ring);
    assert_int_equal(ops->open(&worker, NULL, NULL, &iface), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ops->progress(iface, 16), 0);
    assert_int_equal(sl_event_read(&reader, seen, 4), 3);
    assert_string_equal(sl_event_name(seen[0].kind), "kite_up");
    assert_int_equal(seen[0].a, 7);
    ops->close(iface);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_with_lanes_is_loaded_beside_the_librarys_own),
        cmocka_unit_test(its_interface_opens_the_sideband_of_the_process_and_notes_events),
    };

    if (argc != 2)
        return 1;
    module = realpath(argv[1], NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
