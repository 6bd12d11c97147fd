/* SPDX-License-Identifier: Apache-2.0 */
#include "core/config.h"

#include "core/err.h"
#include "core/log.h"
#include "tcp/config.h"
#include "tools/preload/config.h"

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
    assert_int_equal(sl_tcp_config(&config)->crc, SL_AUTO);
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
    assert_int_equal(sl_tcp_config(&config)->crc, SL_OFF);
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

static const struct sl_config_row *row_at(unsigned idx)
{
    const struct sl_config_section *section;

    for (unsigned i = 0; (section = sl_config_section(i)) != NULL; i++) {
        if (idx < section->row_count)
            return &section->rows[idx];
        idx -= (unsigned)section->row_count;
    }
    return NULL;
}

/* A word that a variable cannot be is named with those that it can be, whoever reads it later. */
static void a_word_that_is_no_choice_is_refused_with_the_list(void **state)
{
    unsigned checked = 0, all = 0;

    for (const struct sl_config_row *row; (row = row_at(all++)) != NULL;) {
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
    assert_int_equal(sl_config_set(&(struct sl_config){0}, "PROGRESS", "fibre"), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_PROGRESS is 'fibre', but must be one of caller, thread");
}

static void words_are_taken_however_they_are_written(void **state)
{
    struct sl_config config;

    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "TCP_TLS_CIPHER", "ChaCha20"), 0);
    assert_int_equal(sl_tcp_config(&config)->tls_cipher, SL_TLS_CIPHER_CHACHA20);
    assert_int_equal(sl_config_set(&config, "TUNE", "0"), 0);
    assert_int_equal(config.tune, SL_TUNE_OFF);
    assert_int_equal(sl_config_set(&config, "KERNEL", "AVX2"), 0);
    assert_int_equal(config.kernel, SL_KERNEL_AVX2);
    assert_int_equal(sl_config_set(&config, "LAUNCHER", "PMIx"), 0);
    assert_int_equal(config.launcher, SL_LAUNCHER_PMIX);
    assert_string_equal(sl_launcher_name(config.launcher), "pmix");
    assert_int_equal(sl_config_set(&config, "LAUNCHER", "slurm"), 0);
    assert_string_equal(sl_launcher_name(config.launcher), "slurm");
    assert_int_equal(sl_config_set(&config, "LAUNCHER", "mpirun"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_LAUNCHER is 'mpirun', but must be one of "
                                                "auto, none, sluice, torchrun, pmi, pmix"));
    assert_int_equal(sl_config_set(&config, "TCP_ENGINE", "io_uring"), -EINVAL);
    assert_int_equal(sl_config_set(&config, "TCP_ENGINE", "EPOLL"), 0);
    assert_int_equal(sl_tcp_config(&config)->engine, SL_TCP_ENGINE_EPOLL);
    assert_int_equal(sl_config_set(&config, "PRELOAD", "Yes"), 0);
    assert_int_equal(sl_preload_config(&config)->mode, SL_PRELOAD_MODE_ON);
    assert_int_equal(sl_config_set(&config, "PRELOAD_EXACT", "0"), 0);
    assert_int_equal(sl_preload_config(&config)->exact, SL_OFF);
    assert_int_equal(sl_config_set(&config, "PRELOAD_EXACT", "TRUE"), 0);
    assert_int_equal(sl_preload_config(&config)->exact, SL_ON);
    assert_int_equal(sl_config_set(&config, "PRELOAD_EXACT", "Auto"), 0);
    assert_int_equal(sl_preload_config(&config)->exact, SL_AUTO);
}

/* The shim's way, which has no struct sl_config. */
static void rows_are_read_without_an_engine(void **state)
{
    char *envp[] = {"SLUICE_PRELOAD=", "SLUICE_PRELOAD_NCCL=all", "SLUICE_PRELOAD_EXACT=no",
                    "SLUICE_PRELOAD_MPI_EARLY_CALLS=7", NULL};
    char *wrong[] = {"SLUICE_PRELOAD=perhaps", NULL};
    struct sl_preload_config own;

    assert_int_equal(sl_preload_config_read(&own, envp), 0);
    assert_int_equal(own.mode, SL_PRELOAD_MODE_ON);
    assert_string_equal(own.nccl, "all");
    assert_int_equal(own.exact, SL_OFF);
    assert_int_equal(own.mpi_early_calls, 7);
    assert_int_equal(sl_preload_config_read(&own, wrong), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_PRELOAD is 'perhaps', but must be one of on, off, report");
}

/* ---- sections ---- */

struct own {
    int64_t count;
    char text[SL_TEXT_MAX];
};

#define AT(field) offsetof(struct own, field)
static const struct sl_config_row own_rows[] = {
    SL_ROW_INT("OWN_COUNT", count, "3", "", 0, 9, "A number."),
    SL_ROW_TEXT("OWN_TEXT", text, "none", "A text."),
};
static struct sl_config_section own_section = {
    .area = "OWN", .rows = own_rows, .row_count = 2, .size = sizeof(struct own)};

static void a_section_counts_once_it_is_registered(void **state)
{
    char *envp[] = {"SLUICE_OWN_COUNT=5", NULL};
    struct sl_config config, copy;
    const struct own *own;

    assert_int_equal(sl_config_from_env(&config, envp), 0);
    assert_null(sl_config_find("OWN_COUNT", NULL));
    assert_int_equal(sl_config_register(&own_section), 0);
    assert_int_equal(sl_config_register(&own_section), 0);
    assert_int_equal(sl_config_from_env(&config, envp), 0);
    copy = config;
    own = sl_config_part(&copy, &own_section);
    assert_int_equal(own->count, 5);
    assert_string_equal(own->text, "none");
    assert_int_equal(sl_config_set(&config, "OWN_COUNT", "10"), -EINVAL);
    assert_int_equal(sl_config_set(&config, "OWN_TEXTS", "x"), -ENOENT);
    assert_non_null(strstr(sluice_last_error(), "the nearest is SLUICE_OWN_TEXT"));
}

static void a_section_that_there_is_no_room_for_is_refused(void **state)
{
    static const struct sl_config_row again[] = {
        SL_ROW_INT("TIMEOUT_MS", count, "3", "", 0, 9, "A number.")};
    static struct sl_config_section taken = {
        .area = "TIMEOUT", .rows = again, .row_count = 1, .size = sizeof(struct own)};
    static struct sl_config_section large = {.area = "LARGE", .size = SL_CONFIG_PARTS_BYTES};

    assert_int_equal(sl_config_register(&taken), -EEXIST);
    assert_string_equal(sluice_last_error(), "there is a variable SLUICE_TIMEOUT_MS already");
    assert_int_equal(sl_config_register(&large), -ENOSPC);
    assert_string_equal(sluice_last_error(), "there is no room for the variables SLUICE_LARGE_*");
    assert_false(taken.registered || large.registered);
}
#undef AT

static unsigned warnings;

static void count_warning(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)line;
    warnings += level == SL_LOG_WARN && strcmp(area, "config") == 0;
}

static void variables_of_others_get_no_warning_until_they_are_here(void **state)
{
    static const char *const others[] = {"PIGEON", "PRELOAD", NULL};
    char *theirs[] = {"SLUICE_PIGEON=1", "SLUICE_PIGEON_WINGS=2", NULL};
    char *like_theirs[] = {"SLUICE_PIGEONS=1", "SLUICE_PRELOAD_NO_SUCH=1", NULL};
    struct sl_config config;

    sl_log_set_sink(count_warning, NULL);
    sl_config_others(others);
    warnings = 0;
    assert_int_equal(sl_config_from_env(&config, theirs), 0);
    assert_int_equal(warnings, 0);
    assert_int_equal(sl_config_from_env(&config, like_theirs), 0);
    assert_int_equal(warnings, 2); /* the second area is here, with its rows */
    sl_config_others(NULL);
    sl_log_set_sink(NULL, NULL);
}

/* ---- numbers, lists, names ---- */

static void numbers_may_be_choices_or_have_a_least(void **state)
{
    struct sl_config config;

    sl_config_defaults(&config);
    if (sl_config_find("VERBS_MTU", NULL) != NULL) {
        assert_int_equal(sl_config_set(&config, "VERBS_MTU", "1024"), 0);
        assert_int_equal(sl_config_set(&config, "VERBS_MTU", "777"), -EINVAL);
        assert_string_equal(
            sluice_last_error(),
            "SLUICE_VERBS_MTU is '777', but must be one of 0, 256, 512, 1024, 2048, 4096");
    }
    assert_int_equal(sl_config_set(&config, "SHM_WINDOW_BYTES", "10"), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "SLUICE_SHM_WINDOW_BYTES is 10, but must be 0 or from 8192 to 1073741824");
    assert_int_equal(sl_config_set(&config, "SHM_WINDOW_BYTES", "8k"), 0);
    assert_int_equal(sl_config_set(&config, "SHM_WINDOW_BYTES", "0"), 0);
}

/* Also in a job that uses neither TCP nor RDMA: the text is wrong there, too. */
static void a_list_or_range_that_cannot_be_read_is_refused_at_once(void **state)
{
    static const struct {
        const char *name, *value, *words;
    } cases[] = {{"PORT_RANGE", "9-3", "SLUICE_PORT_RANGE is '9-3', but must be low-high"},
                 {"PORT_RANGE", "20000", "SLUICE_PORT_RANGE is '20000'"},
                 {"VERBS_PATHS", "0>0,x>1",
                  "SLUICE_VERBS_PATHS: 'x>1' does not start with the number of a local rail"},
                 {"VERBS_PATHS", "0>16", "SLUICE_VERBS_PATHS: '0>16'"},
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
        if (sl_config_find(cases[i].name, NULL) == NULL)
            continue; /* this build has no RDMA */
        assert_int_equal(sl_config_from_env(&config, envp), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), cases[i].words));
    }
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "PORT_RANGE", "20000-20999"), 0);
    assert_int_equal(sl_config_set(&config, "PORT_RANGE", "1-"), -EINVAL);
    assert_string_equal(config.port_range, "20000-20999");
    assert_int_equal(sl_config_set(&config, "PORT_RANGE", ""), 0);
    if (sl_config_find("VERBS_PATHS", NULL) == NULL)
        return;
    assert_int_equal(sl_config_set(&config, "VERBS_PATHS", "7>0/0xC0DE@4,0>7"), 0);
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
        cmocka_unit_test(words_are_taken_however_they_are_written),
        cmocka_unit_test(rows_are_read_without_an_engine),
        cmocka_unit_test(a_section_counts_once_it_is_registered),
        cmocka_unit_test(a_section_that_there_is_no_room_for_is_refused),
        cmocka_unit_test(variables_of_others_get_no_warning_until_they_are_here),
        cmocka_unit_test(numbers_may_be_choices_or_have_a_least),
        cmocka_unit_test(a_list_or_range_that_cannot_be_read_is_refused_at_once),
        cmocka_unit_test(an_unknown_name_suggests_the_nearest),
        cmocka_unit_test(bytes_take_binary_units),
        cmocka_unit_test(no_size_is_negative),
    };

    if (sl_config_register(&sl_preload_section) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
