/* SPDX-License-Identifier: Apache-2.0 */
#include "core/config.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
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
    char *envp[] = {"PATH=/bin",          "SLUICE_TIMEOUT_MS=250", "SLUICE_CHUNK_BYTES=64k",
                    "SLUICE_TCP_CRC=off", "SLUICE_ALGO=",          NULL};
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

/* A word that a variable cannot be is named with those that it can be, whoever reads it later. */
static void a_word_that_is_no_choice_is_refused_with_the_list(void **state)
{
    unsigned checked = 0;

    for (size_t i = 0; i < sl_config_row_count; i++) {
        const struct sl_config_row *row = &sl_config_rows[i];
        struct sl_config config;
        char first[32];

        if (row->choices == NULL)
            continue;
        checked++;
        sl_config_defaults(&config);
        assert_int_equal(sl_config_set(&config, row->name, "777x"), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), row->name));
        assert_non_null(strstr(sluice_last_error(), "is '777x', but must be one of "));
        snprintf(first, sizeof(first), "%.*s", (int)strcspn(row->choices, " "), row->choices);
        assert_non_null(strstr(sluice_last_error(), first));
        assert_int_equal(sl_config_set(&config, row->name, first), 0);
        first[strlen(first) - 1] = '\0'; /* a part of a word is no word */
        assert_int_equal(sl_config_set(&config, row->name, first[0] != '\0' ? first : "77"),
                         -EINVAL);
    }
    assert_true(checked >= 8);
    assert_int_equal(sl_config_set(&(struct sl_config){0}, "VERBS_FALLBACK", "udp"), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_VERBS_FALLBACK is 'udp', but must be one of off, tcp");
}

static void words_are_kept_as_the_table_writes_them(void **state)
{
    struct sl_config config;

    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "VERBS_FALLBACK", "TCP"), 0);
    assert_string_equal(config.verbs_fallback, "tcp");
    assert_int_equal(sl_config_set(&config, "VERBS_FALLBACK", "0"), 0);
    assert_string_equal(config.verbs_fallback, "off");
    assert_int_equal(sl_config_set(&config, "PRELOAD", "Yes"), 0);
    assert_string_equal(config.preload, "on");
    assert_int_equal(sl_config_set(&config, "PRELOAD_EXACT", "0"), 0);
    assert_int_equal(config.preload_exact, SL_OFF);
    assert_int_equal(sl_config_set(&config, "PRELOAD_EXACT", "TRUE"), 0);
    assert_int_equal(config.preload_exact, SL_ON);
    assert_int_equal(sl_config_set(&config, "PRELOAD_EXACT", "Auto"), 0);
    assert_int_equal(config.preload_exact, SL_AUTO);
}

static void numbers_may_be_choices_or_have_a_least(void **state)
{
    struct sl_config config;

    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "VERBS_MTU", "1024"), 0);
    assert_int_equal(config.verbs_mtu, 1024);
    assert_int_equal(sl_config_set(&config, "VERBS_MTU", "777"), -EINVAL);
    assert_string_equal(
        sluice_last_error(),
        "SLUICE_VERBS_MTU is '777', but must be one of 0, 256, 512, 1024, 2048, 4096");
    assert_int_equal(sl_config_set(&config, "SHM_WINDOW_BYTES", "10"), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_SHM_WINDOW_BYTES is 10, but must be 0 or from 8192 to 1073741824");
    assert_int_equal(sl_config_set(&config, "SHM_WINDOW_BYTES", "8k"), 0);
    assert_int_equal(sl_config_set(&config, "SHM_WINDOW_BYTES", "0"), 0);
}

/* Also in a job that uses neither TCP nor RDMA, and in a build without RDMA: the text is wrong
 * there, too. */
static void a_list_or_range_that_cannot_be_read_is_refused_at_once(void **state)
{
    static const struct {
        const char *name, *value, *words;
    } cases[] = {{"PORT_RANGE", "9-3", "SLUICE_PORT_RANGE is '9-3', but must be low-high"},
                 {"PORT_RANGE", "20000", "SLUICE_PORT_RANGE is '20000'"},
                 {"VERBS_PATHS", "0>0,x>1",
                  "SLUICE_VERBS_PATHS: 'x>1' does not start with the number of a local rail"},
                 {"VERBS_PATHS", "0>8", "SLUICE_VERBS_PATHS: '0>8'"},
                 {"VERBS_PATHS", "0>0/100000", "SLUICE_VERBS_PATHS: '0>0/100000'"},
                 {"VERBS_PATHS", "0>0@5", "SLUICE_VERBS_PATHS: '0>0@5'"},
                 {"VERBS_PATHS", "0>0,", "SLUICE_VERBS_PATHS: ''"},
                 {"VERBS_PATHS", "automatic", "SLUICE_VERBS_PATHS: 'automatic'"}};
    char entry[64];
    char *envp[] = {entry, NULL};
    struct sl_config config;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        snprintf(entry, sizeof(entry), "SLUICE_%s=%s", cases[i].name, cases[i].value);
        assert_int_equal(sl_config_from_env(&config, envp), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), cases[i].words));
    }
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "PORT_RANGE", "20000-20999"), 0);
    assert_int_equal(sl_config_set(&config, "PORT_RANGE", "1-"), -EINVAL);
    assert_string_equal(config.port_range, "20000-20999");
    assert_int_equal(sl_config_set(&config, "PORT_RANGE", ""), 0);
    assert_int_equal(sl_config_set(&config, "VERBS_PATHS", "7>0/0xC0DE@4,0>7"), 0);
    assert_string_equal(config.verbs_paths, "7>0/0xC0DE@4,0>7");
    assert_int_equal(sl_config_set(&config, "VERBS_PATHS", "auto"), 0);
    assert_int_equal(sl_config_set(&config, "VERBS_PATHS", ""), 0);
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

/* "-1K" was -1024: libFuzzer. */
static void no_size_is_negative(void **state)
{
    static const char *const texts[] = {"-1", "-1K", "-0.5", "-0.5M", "-inf", "nan"};
    struct sl_config config;
    int64_t bytes;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++)
        assert_int_equal(sl_parse_bytes(texts[i], &bytes), -EINVAL);
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "SHM_STREAM_MIN_BYTES", "4K"), 0);
    assert_int_equal(config.shm_stream_min_bytes, 4096);
    assert_int_equal(sl_config_set(&config, "SHM_STREAM_MIN_BYTES", "-1"), 0);
    assert_int_equal(config.shm_stream_min_bytes, -1);
    assert_int_equal(sl_config_set(&config, "SHM_STREAM_MIN_BYTES", "-1K"), -EINVAL);
    assert_int_equal(sl_config_set(&config, "CHUNK_BYTES", "-1"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(environment_overrides_defaults),
        cmocka_unit_test(a_bad_value_names_variable_and_range),
        cmocka_unit_test(a_word_that_is_no_choice_is_refused_with_the_list),
        cmocka_unit_test(words_are_kept_as_the_table_writes_them),
        cmocka_unit_test(numbers_may_be_choices_or_have_a_least),
        cmocka_unit_test(a_list_or_range_that_cannot_be_read_is_refused_at_once),
        cmocka_unit_test(an_unknown_name_suggests_the_nearest),
        cmocka_unit_test(bytes_take_binary_units),
        cmocka_unit_test(no_size_is_negative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
