/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports an interface opens, in which order, and that those that are down join when they come
 * up. */
#include "tests/fake/fake_ibv.h"
#include "verbs/config.h"
#include "verbs/memlock.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"
#include "verbs/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct fake_ibv *fake;
static struct sl_config config;
static struct sl_worker worker;

/* The machine's own limit is not what is tested. */
bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);

bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    (void)more, (void)why, (void)cap;
    return true;
}

static int fresh(void **state)
{
    fake = fake_ibv_create(1);
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
    sl_config_defaults(&config);
    sl_verbs_config_edit(&config)->mp.staging_bytes = 1 << 20;
    worker = (struct sl_worker){.clock = &sl_clock_monotonic, .config = &config};
    sl_rng_init(&worker.rng, 1);
    return 0;
}

/* Nothing is left behind, whatever became of the interface. */
static int clean(void **state)
{
    assert_null(fake_ibv_misuse(fake));
    assert_int_equal(fake_ibv_live(fake), 0);
    fake_ibv_destroy(fake);
    sl_ibv_replace(NULL, NULL);
    return 0;
}

static unsigned add(const char *name, enum ibv_node_type type)
{
    struct fake_ibv_device params;

    fake_ibv_device_init(&params, name);
    params.node_type = type;
    return fake_ibv_device_add(fake, &params);
}

static struct sl_verbs_iface *opened(const struct sl_device *device)
{
    struct sl_iface *iface = NULL;
    int err = sl_verbs_ops.open(&worker, device, NULL, &iface);

    if (err != 0)
        fail_msg("%d: %s", err, sluice_last_error());
    return sl_verbs_iface_of(iface);
}

static void refused(const struct sl_device *device, int code)
{
    struct sl_iface *iface = NULL;

    assert_int_equal(sl_verbs_ops.open(&worker, device, NULL, &iface), code);
    assert_null(iface);
}

static void close_it(struct sl_verbs_iface *iface)
{
    sl_verbs_ops.close(&iface->mp.base);
}

/* "a0:1 b0:1(out) c0:1" */
static const char *rails(const struct sl_verbs_iface *iface)
{
    static char text[512];

    text[0] = '\0';
    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        strcat(text, i > 0 ? " " : "");
        strcat(text, iface->rails[i].port.name);
        strcat(text, iface->rails[i].base.usable ? "" : "(out)");
        assert_int_equal(iface->rails[i].base.idx, i);
    }
    return text;
}

static void becomes(struct sl_verbs_iface *iface, const char *expected)
{
    uint64_t deadline_ns = sl_now(worker.clock) + 20 * SL_NS_PER_S;

    while (strcmp(rails(iface), expected) != 0 && sl_now(worker.clock) < deadline_ns)
        assert_true(iface->mp.base.ops->progress(&iface->mp.base, 64) >= 0);
    assert_string_equal(rails(iface), expected);
}

static void a_port_that_is_down_keeps_its_number_and_joins_when_it_comes_up(void **state)
{
    struct sl_verbs_iface *iface;

    add("a0", IBV_NODE_CA);
    add("b0", IBV_NODE_CA);
    add("c0", IBV_NODE_CA);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_DOWN);
    iface = opened(NULL);
    assert_string_equal(rails(iface), "a0:1(out) b0:1(out) c0:1");
    assert_non_null(strstr(iface->rails[1].base.why, "port is DOWN"));
    assert_int_equal(iface->mp.base.ops->delivers(&iface->mp.base), 333);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_ACTIVE);
    becomes(iface, "a0:1(out) b0:1 c0:1");
    assert_int_equal(iface->mp.base.ops->delivers(&iface->mp.base), 666);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_ACTIVE);
    becomes(iface, "a0:1 b0:1 c0:1");
    assert_int_equal(iface->mp.base.ops->delivers(&iface->mp.base), 1000);
    close_it(iface);
}

static void a_port_without_a_gid_joins_when_it_has_one(void **state)
{
    struct fake_ibv_gid gid = {fake_ibv_gid_v4(192, 0, 2, 1), IBV_GID_TYPE_ROCE_V2, 0};
    struct sl_verbs_iface *iface;

    add("a0", IBV_NODE_CA);
    add("b0", IBV_NODE_CA);
    for (unsigned i = 0; i < FAKE_IBV_GIDS; i++)
        fake_ibv_gid_set(fake, 0, 1, i, NULL);
    iface = opened(NULL);
    assert_string_equal(rails(iface), "a0:1(out) b0:1");
    fake_ibv_gid_set(fake, 0, 1, 2, &gid);
    becomes(iface, "a0:1 b0:1");
    assert_int_equal(iface->rails[0].gid.index, 2);
    close_it(iface);
}

static void the_list_of_devices_orders_ports_that_are_down_too(void **state)
{
    struct sl_verbs_iface *iface;

    add("a0", IBV_NODE_CA);
    add("b0", IBV_NODE_CA);
    add("c0", IBV_NODE_CA);
    fake_ibv_port_set(fake, 2, 1, IBV_PORT_DOWN);
    assert_int_equal(sl_config_set(&config, "VERBS_DEVICES", "c0,a0"), 0);
    iface = opened(NULL);
    assert_string_equal(rails(iface), "c0:1(out) a0:1");
    close_it(iface);
}

static void what_can_never_carry_is_no_rail(void **state)
{
    struct sl_verbs_iface *iface;

    add("a0", IBV_NODE_RNIC);
    add("b0", IBV_NODE_CA);
    add("c0", IBV_NODE_CA);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_DOWN);
    assert_int_equal(sl_config_set(&config, "VERBS_DEVICES", "^b0"), 0);
    iface = opened(NULL);
    assert_string_equal(rails(iface), "c0:1");
    close_it(iface);
}

static void a_device_that_fails_to_open_leaves_the_others(void **state)
{
    struct sl_verbs_iface *iface;

    add("a0", IBV_NODE_CA);
    add("b0", IBV_NODE_CA);
    fake_ibv_fail(fake, FAKE_IBV_CREATE_SRQ, 1, ENOMEM);
    iface = opened(NULL);
    assert_string_equal(rails(iface), "b0:1");
    close_it(iface);
}

static void without_any_usable_port_all_reasons_are_told(void **state)
{
    add("a0", IBV_NODE_CA);
    add("b0", IBV_NODE_RNIC);
    add("c0", IBV_NODE_CA);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN);
    for (unsigned i = 0; i < FAKE_IBV_GIDS; i++)
        fake_ibv_gid_set(fake, 2, 1, i, NULL);
    refused(NULL, -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "no RDMA port is usable: a0:1: port is DOWN"));
    assert_non_null(strstr(sluice_last_error(), "; b0:1: an iWARP device"));
    assert_non_null(strstr(sluice_last_error(), "; c0:1: port has no GID"));
}

static void refused_by(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[16];

        snprintf(name, sizeof(name), "dev_%02u", i);
        add(name, IBV_NODE_RNIC);
    }
    refused(NULL, -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "dev_00:1: an iWARP device"));
}

static void reasons_of_sixteen_ports_are_told(void **state)
{
    refused_by(16);
    assert_non_null(strstr(sluice_last_error(), "; dev_15:1: an iWARP device"));
    assert_null(strstr(sluice_last_error(), "; ..."));
}

static void reasons_that_do_not_fit_are_cut_with_dots(void **state)
{
    refused_by(SL_VERBS_PORTS_MAX);
    assert_string_equal(sluice_last_error() + strlen(sluice_last_error()) - 5, "; ...");
    assert_null(strstr(strstr(sluice_last_error(), "; ...") + 1, "; ..."));
}

static void a_port_that_is_asked_for_by_name_is_the_only_rail(void **state)
{
    struct sl_device device = {.name = "b0:1"};
    struct sl_verbs_iface *iface;

    add("a0", IBV_NODE_CA);
    add("b0", IBV_NODE_CA);
    iface = opened(&device);
    assert_string_equal(rails(iface), "b0:1");
    close_it(iface);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_DOWN);
    refused(&device, -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "b0:1: port is DOWN"));
    assert_null(strstr(sluice_last_error(), "a0"));
}

static void usable_ports_are_not_crowded_out_by_those_that_are_down(void **state)
{
    struct sl_verbs_port ports[6] = {
        {.name = "up1", .place = 1},
        {.name = "up3", .place = 3},
        {.name = "up5", .place = 5},
        {.name = "down0", .place = 0, .why = "down", .may_return = true},
        {.name = "down4", .place = 4, .why = "down", .may_return = true},
        {.name = "never", .place = 6, .why = "iWARP"}};

    assert_int_equal(sl_verbs_ports_pick(ports, 6, 4), 4);
    assert_string_equal(ports[0].name, "down0");
    assert_string_equal(ports[1].name, "up1");
    assert_string_equal(ports[2].name, "up3");
    assert_string_equal(ports[3].name, "up5");
    assert_int_equal(sl_verbs_ports_pick(&ports[4], 2, 4), 0);
    assert_int_equal(sl_verbs_ports_pick(ports, 0, 4), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_port_that_is_down_keeps_its_number_and_joins_when_it_comes_up),
        CASE(a_port_without_a_gid_joins_when_it_has_one),
        CASE(the_list_of_devices_orders_ports_that_are_down_too),
        CASE(what_can_never_carry_is_no_rail),
        CASE(a_device_that_fails_to_open_leaves_the_others),
        CASE(without_any_usable_port_all_reasons_are_told),
        CASE(reasons_of_sixteen_ports_are_told),
        CASE(reasons_that_do_not_fit_are_cut_with_dots),
        CASE(a_port_that_is_asked_for_by_name_is_the_only_rail),
        CASE(usable_ports_are_not_crowded_out_by_those_that_are_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
