/* SPDX-License-Identifier: Apache-2.0 */
/* Real modules: one that fits, one for another Sluice, a library that is none, and none at all. */
#include "core/config.h"
#include "core/err.h"
#include "core/log.h"
#include "core/module.h"
#include "core/registry.h"
#include "core/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *good, *foreign, *none;

static void said(const char *words)
{
    if (strstr(sluice_last_error(), words) == NULL)
        fail_msg("%s", sluice_last_error());
}

static void what_is_no_module_is_refused(void **state)
{
    (void)state;
    assert_int_equal(sl_module_load("/nowhere/sluice-pigeon.so"), -ENOENT);
    said("/nowhere/sluice-pigeon.so cannot be opened: ");
    assert_int_equal(sl_module_load(none), -ENOTSUP);
    said("is no module of Sluice: it has no symbol sluice_module");
}

static void a_module_of_another_sluice_is_refused(void **state)
{
    (void)state;
    assert_int_equal(sl_module_load(foreign), -ENOTSUP);
    said("was built for version 1000 of Sluice's transports, and this is version ");
    assert_null(sl_transport_find("pigeon", 6));
}

/* A folder with all of them, and with what is not looked at. */
static void a_folder_gives_what_fits_and_says_why_the_rest_does_not(void **state)
{
    const char *const from[] = {foreign, none, none};
    const char *const names[] = {"sluice-foreign.so", "sluice-none.so", "libother.so"};
    const struct sl_transport_ops *ops[1];
    char dir[] = "/tmp/sluice-modules-XXXXXX", path[128];
    const char *why;
    unsigned count;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        assert_int_equal(symlink(from[i], path), 0);
    }
    assert_int_equal(sl_modules_load(dir), 0);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    assert_string_equal(sl_module_refused(0, &why), "foreign");
    assert_non_null(strstr(why, "version 1000"));
    assert_string_equal(sl_module_refused(1, &why), "none");
    assert_null(sl_module_refused(2, &why));
    assert_int_equal(sl_transport_list("Foreign", ops, 1, &count), -ENODEV);
    said("there is no transport 'Foreign': ");
    said("version 1000");
    assert_int_equal(sl_modules_load("/nowhere"), 0);
}

static char line_seen[128];

static void keep_line(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area;
    snprintf(line_seen, sizeof(line_seen), "%s", line);
}

/* Its sentences, log lines and variables are this process's. */
static void a_module_is_a_transport_like_any_other(void **state)
{
    const struct sl_transport_ops *ops;
    struct sl_config config;
    size_t count;

    (void)state;
    assert_int_equal(sl_module_load(good), 0);
    ops = sl_transport_find("pigeon", 6);
    assert_non_null(ops);
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "PIGEON_WINGS", "4"), 0);
    sl_log_set_sink(keep_line, NULL);
    assert_int_equal(ops->probe(&config, NULL, 0, &count), -ENODEV);
    sl_log_set_sink(NULL, NULL);
    said("a pigeon with 4 wings");
    assert_non_null(strstr(line_seen, "pigeon: it has 4 wings"));
    assert_int_equal(ops->fd(NULL), -ENOTSUP);
    assert_int_equal(sl_module_load(good), -EEXIST);
    said("there is a transport pigeon already");
}

/* test_module GOOD FOREIGN NONE */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_module_is_refused),
        cmocka_unit_test(a_module_of_another_sluice_is_refused),
        cmocka_unit_test(a_folder_gives_what_fits_and_says_why_the_rest_does_not),
        cmocka_unit_test(a_module_is_a_transport_like_any_other),
    };

    if (argc != 4)
        return 1;
    good = realpath(argv[1], NULL);
    foreign = realpath(argv[2], NULL); /* the folder has links */
    none = realpath(argv[3], NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
