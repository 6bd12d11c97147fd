/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: what is refused, with which line. */
#include "core/err.h"
#include "monitor/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct sl_mon_config config;

static int read_text(const char *text)
{
    FILE *file = text[0] == '\0' ? fopen("/dev/null", "re")
                                 : fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    int err = sl_mon_config_read(file, "sluiced.conf", &config);

    fclose(file);
    return err;
}

static void refused(const char *text, const char *why)
{
    struct sl_mon_config before;

    sl_mon_config_defaults(&config);
    config.period_ms = 777;
    before = config;
    assert_int_equal(read_text(text), -EINVAL);
    assert_string_equal(sluice_last_error(), why);
    assert_memory_equal(&config, &before, sizeof(config)); /* the old one stays in force */
}

static void without_a_word_the_defaults_count(void **state)
{
    (void)state;
    assert_int_equal(read_text(""), 0);
    assert_string_equal(config.store_path, "/var/lib/sluiced/state.db");
    assert_int_equal(config.period_ms, 1000);
    assert_true(config.link && config.rdma && config.kmsg);
    assert_string_equal(config.textfile_path, "");
}

static void what_is_said_counts(void **state)
{
    (void)state;
    assert_int_equal(read_text("; a comment\n[sources]\nperiod_ms = 250\nkmsg = off\n\n"
                               "[store]\npath=/tmp/x.db\n[output]\nevents =\n"),
                     0);
    assert_int_equal(config.period_ms, 250);
    assert_false(config.kmsg);
    assert_true(config.rdma);
    assert_string_equal(config.store_path, "/tmp/x.db");
    assert_string_equal(config.events_path, "");
}

static const struct sl_mon_config_row *row_of(const char *section, const char *key)
{
    for (unsigned i = 0; i < sl_mon_config_row_count; i++)
        if (strcmp(sl_mon_config_rows[i].section, section) == 0 &&
            strcmp(sl_mon_config_rows[i].key, key) == 0)
            return &sl_mon_config_rows[i];
    fail_msg("there is no %s in %s", key, section);
    return NULL;
}

static void a_choice_is_one_of_its_words(void **state)
{
    static const char *const words[] = {"none", "exec", "slurm", "kubernetes"};
    char text[64], word[SL_MON_WORD];

    (void)state;
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "[isolate]\nplug = %s\n", words[i]);
        assert_int_equal(read_text(text), 0);
        assert_int_equal(config.isolate_plug, i);
        sl_mon_config_word(row_of("isolate", "plug"), &config, word);
        assert_string_equal(word, words[i]);
    }
    assert_int_equal(read_text(""), 0);
    assert_int_equal(config.isolate_plug, 0);
    assert_int_equal(config.isolate_mode, 0);
    refused("[isolate]\nplug = slur\n", "sluiced.conf:2: plug is to be one of: none exec slurm "
                                        "kubernetes; and is 'slur'");
    refused("[isolate]\nplug = none exec\n", "sluiced.conf:2: plug is to be one of: none exec "
                                             "slurm kubernetes; and is 'none exec'");
}

static void the_sockets_of_the_api_are_addresses(void **state)
{
    struct sockaddr_storage address;
    socklen_t len;

    (void)state;
    assert_int_equal(read_text("[api]\nhttp = [::1]:9494\nmode = 600\ngroup = ops\nsocket =\n"), 0);
    assert_string_equal(config.api_http, "[::1]:9494");
    assert_int_equal(config.api_mode, 0600);
    assert_string_equal(config.api_group, "ops");
    assert_string_equal(config.api_socket, "");
    assert_true(sl_mon_address("[::1]:9494", &address, &len));
    assert_int_equal(address.ss_family, AF_INET6);
    assert_true(sl_mon_address("0.0.0.0:65535", &address, &len));
    assert_int_equal(address.ss_family, AF_INET);
    assert_int_equal(read_text("[api]\nhttp =\n"), 0);
    assert_string_equal(config.api_http, "");
    assert_int_equal(config.api_mode, 0660);
}

/* NVSentinel 1529: a bad file silently disables counters. */
static void what_makes_no_sense_is_refused_with_its_line(void **state)
{
    (void)state;
    refused("[sources]\nperiod_ms = 250\nperoid_ms = 3\n",
            "sluiced.conf:3: there is no key 'peroid_ms' in [sources]");
    refused("[source]\nperiod_ms = 250\n", "sluiced.conf:2: there is no section [source]");
    refused("period_ms = 250\n", "sluiced.conf:1: there is no section []");
    refused("[sources]\nperiod_ms = 1s\n",
            "sluiced.conf:2: period_ms is to be a number, and is '1s'");
    refused("[sources]\nperiod_ms = 99\n",
            "sluiced.conf:2: period_ms is to be from 100 to 60000 ms, and is 99");
    refused("[sources]\nperiod_ms = 99999999999999999999\n",
            "sluiced.conf:2: period_ms is to be a number, and is '99999999999999999999'");
    refused("[sources]\nkmsg = yes\n",
            "sluiced.conf:2: kmsg is to be on, auto or off, and is 'yes'");
    for (unsigned i = 0; i < 5; i++) {
        static const char *const wrong[] = {"660x", "0999", "1777", "07770", "rw"};
        char text[64], why[128];

        snprintf(text, sizeof(text), "[api]\nmode = %s\n", wrong[i]);
        snprintf(why, sizeof(why),
                 "sluiced.conf:2: mode is to be permissions, as 0660, and is '%s'", wrong[i]);
        refused(text, why);
    }
    for (unsigned i = 0; i < 6; i++) {
        static const char *const wrong[] = {
            "9494", "localhost:9494", "127.0.0.1:", "127.0.0.1:70000", "::1:9494", "[::1:9494"};
        char text[64], why[128];

        snprintf(text, sizeof(text), "[api]\nhttp = %s\n", wrong[i]);
        snprintf(why, sizeof(why),
                 "sluiced.conf:2: http is to be an address and a port, as 127.0.0.1:9494, and is "
                 "'%s'",
                 wrong[i]);
        refused(text, why);
    }
    refused("[sources]\nkmsg = on\n# more\nkmsg = on\n", "sluiced.conf:4: kmsg is said twice");
    refused("[sources]\nkmsg = on\nwhat\n[store]\nbytes = 1\n",
            "sluiced.conf:3: this is no line of a section, and no key = value");
    refused("[sources\n", "sluiced.conf:1: this is no line of a section, and no key = value");
}

static void a_text_that_is_too_long_is_refused(void **state)
{
    char text[1024];

    (void)state;
    snprintf(text, sizeof(text), "[output]\ntextfile = %0170d\n", 1);
    assert_int_equal(read_text(text), 0);
    snprintf(text, sizeof(text), "[output]\ntextfile = %0300d\n", 1);
    assert_int_equal(read_text(text), -EINVAL); /* no line may be so long */
    assert_non_null(strstr(sluice_last_error(), "sluiced.conf:"));
}

static void a_file_that_is_not_there_is_named(void **state)
{
    (void)state;
    assert_int_equal(sl_mon_config_load("/no/such/file", &config), -ENOENT);
    assert_non_null(strstr(sluice_last_error(), "/no/such/file"));
}

/* What --print-config says is a file that changes nothing, and names every key. */
static void interfaces_are_ignored_by_how_their_names_begin(void **state)
{
    (void)state;
    sl_mon_config_defaults(&config);
    strcpy(config.link_ignore, "veth,,br-");
    assert_true(sl_mon_config_ignores(&config, "veth"));
    assert_true(sl_mon_config_ignores(&config, "br-17"));
    assert_false(sl_mon_config_ignores(&config, "br"));
    assert_false(sl_mon_config_ignores(&config, "eth0"));
    config.link_ignore[0] = '\0';
    assert_false(sl_mon_config_ignores(&config, "veth0"));
}

static void what_is_printed_reads_as_the_defaults(void **state)
{
    struct sl_mon_config defaults;
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    sl_mon_config_defaults(&defaults);
    sl_mon_config_print(out);
    fclose(out);
    assert_int_equal(read_text(text), 0);
    assert_memory_equal(&config, &defaults, sizeof(config));
    for (char *at = text; (at = strstr(at, "\n#")) != NULL; at++) /* and with all of them said */
        if (at[2] != ' ')
            memmove(at + 1, at + 2, strlen(at + 2) + 1);
    assert_non_null(strstr(text, "\nperiod_ms = 1000\n"));
    assert_int_equal(read_text(text), 0);
    assert_memory_equal(&config, &defaults, sizeof(config));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_word_the_defaults_count),
        cmocka_unit_test(what_is_said_counts),
        cmocka_unit_test(a_choice_is_one_of_its_words),
        cmocka_unit_test(the_sockets_of_the_api_are_addresses),
        cmocka_unit_test(what_makes_no_sense_is_refused_with_its_line),
        cmocka_unit_test(a_text_that_is_too_long_is_refused),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(interfaces_are_ignored_by_how_their_names_begin),
        cmocka_unit_test(what_is_printed_reads_as_the_defaults)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
