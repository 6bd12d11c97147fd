/* SPDX-License-Identifier: Apache-2.0 */
#include "core/config.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void defaults_are_those_of_the_table(void **state)
{
    struct sl_config config;

    (void)state;
    sl_config_defaults(&config);
    assert_int_equal(config.timeout_ms, 30000);
    assert_int_equal(config.tcp_crc, SL_AUTO);
    assert_string_equal(config.transport, "auto");
}

static void environment_overrides_defaults(void **state)
{
    char *envp[] = {"PATH=/bin", "SLUICE_TIMEOUT_MS=250", "SLUICE_CHUNK_BYTES=64k",
                    "SLUICE_TCP_CRC=off", "SLUICE_ALGO=", NULL};
    struct sl_config config;

    (void)state;
    assert_int_equal(sl_config_from_env(&config, envp), 0);
    assert_int_equal(config.timeout_ms, 250);
    assert_int_equal(config.chunk_bytes, 65536);
    assert_int_equal(config.tcp_crc, SL_OFF);
    assert_string_equal(config.algo, "");
}

static void a_bad_value_names_variable_and_range(void **state)
{
    struct sl_config config;

    (void)state;
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "TIMEOUT_MS", "soon"), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_TIMEOUT_MS is 'soon', but must be a whole number");
    assert_int_equal(sl_config_set(&config, "TIMEOUT_MS", "0"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "must be from 1 to"));
}

static void an_unknown_name_suggests_the_nearest(void **state)
{
    struct sl_config config;

    (void)state;
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "TIMEOT_MS", "5"), -ENOENT);
    assert_non_null(strstr(sluice_last_error(), "the nearest is SLUICE_TIMEOUT_MS"));
}

static void bytes_take_binary_units(void **state)
{
    int64_t bytes;

    (void)state;
    assert_int_equal(sl_parse_bytes("1.5M", &bytes), 0);
    assert_int_equal(bytes, 1572864);
    assert_int_equal(sl_parse_bytes("2GiB", &bytes), 0);
    assert_int_equal(bytes, INT64_C(2) << 30);
    assert_int_equal(sl_parse_bytes("12q", &bytes), -EINVAL);
    assert_int_equal(sl_parse_bytes("", &bytes), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(environment_overrides_defaults),
        cmocka_unit_test(a_bad_value_names_variable_and_range),
        cmocka_unit_test(an_unknown_name_suggests_the_nearest),
        cmocka_unit_test(bytes_take_binary_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
