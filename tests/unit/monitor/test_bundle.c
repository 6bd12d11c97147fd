/* SPDX-License-Identifier: Apache-2.0 */
/* What is recorded of an agent leads to the same again, and what was changed since is found. */
#include "core/err.h"
#include "monitor/bundle.h"
#include "monitor/replay.h"
#include "tests/unit/monitor/bed.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct sl_replay_result result;
static char differs[4096];
static unsigned events;

static void on_event(void *arg, const char *line)
{
    (void)arg;
    assert_int_equal(line[0], '{');
    assert_int_equal(line[strlen(line) - 1], '}');
    events++;
}

static void on_difference(void *arg, uint64_t line, const char *recorded, const char *replayed)
{
    size_t len = strlen(differs);

    (void)arg;
    snprintf(differs + len, sizeof(differs) - len, "%d %s %s\n", (int)line,
             recorded != NULL ? recorded : "nothing", replayed != NULL ? replayed : "nothing");
}

static int replay_text(char *text, size_t len)
{
    const struct sl_replay_sink sink = {.on_event = on_event, .on_difference = on_difference};
    FILE *file = fmemopen(text, len, "r");
    int err;

    differs[0] = '\0';
    events = 0;
    assert_non_null(file);
    err = sl_replay(file, "bundle", &sink, &result);
    fclose(file);
    return err;
}

static void path(char *out, size_t cap)
{
    snprintf(out, cap, "%s/bundle", bed.folder);
}

/* The file, ended; the caller's. */
static char *read_bundle(size_t *len)
{
    char name[128], *text;
    FILE *file;
    long size;

    path(name, sizeof(name));
    file = fopen(name, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    rewind(file);
    text = malloc((size_t)size + 1);
    assert_non_null(text);
    *len = fread(text, 1, (size_t)size, file);
    text[*len] = '\0';
    fclose(file);
    return text;
}

static int begin(void **state)
{
    bed_begin(state);
    path(bed.config.bundle_path, sizeof(bed.config.bundle_path));
    bed_restart();
    return 0;
}

/* Goes up and down at random, with flaps, errors and what operators say. */
static void live(unsigned seed, unsigned seconds)
{
    static uint64_t errors;
    char text[32];

    srandom(seed);
    for (unsigned i = 0; i < seconds; i++) {
        struct sl_mon_subject *subject =
            sl_mon_find(sl_agent_mon(bed.agent), SL_MON_PORT, "mlx5_0:1");

        if (random() % 20 == 0)
            bed_put("state", random() % 2 == 0 ? "1: DOWN\n" : "4: ACTIVE\n");
        if (random() % 50 == 0)
            bed_pass((uint64_t)(random() % 3600) * SL_MON_S);
        if (random() % 5 == 0) {
            snprintf(text, sizeof(text), "%llu\n",
                     (unsigned long long)(errors += (uint64_t)(random() % 3000)));
            bed_put("counters/symbol_error", text);
        }
        if (random() % 100 == 0 && subject != NULL)
            sl_mon_clear(sl_agent_mon(bed.agent), subject);
        if (random() % 200 == 0)
            bed_restart();
        if (random() % 300 == 0) {
            bed.boot_id = bed.boot_id[5] == '1' ? "boot-2" : "boot-1";
            bed_restart();
        }
        bed_second();
    }
}

static void what_was_recorded_leads_to_the_same_bit_for_bit(void **state)
{
    size_t len;
    char *text;

    (void)state;
    live(7, 3000);
    bed_stop();
    text = read_bundle(&len);
    if (replay_text(text, len) != 0)
        fail_msg("%s", sluice_last_error());
    assert_string_equal(differs, "");
    assert_true(result.is_whole);
    assert_true(result.inputs > 6000);
    assert_true(result.recorded > 50);
    assert_int_equal(result.recorded, result.replayed);
    assert_int_equal(result.replayed, events);
    free(text);
}

/* What was replaced in the recording is said, with its line. */
static void replaced(const char *from, const char *to, uint64_t least)
{
    size_t len;
    char *text = read_bundle(&len), *at = strstr(text, from);

    assert_int_equal(strlen(from), strlen(to));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    if (replay_text(text, len) != 0)
        fail_msg("%s", sluice_last_error());
    if (result.differences < least)
        fail_msg("%s -> %s: %d differ", from, to, (int)result.differences);
    free(text);
}

static void what_differs_is_found(void **state)
{
    (void)state;
    bed_second();
    bed_second();
    bed_put("state", "1: DOWN\n");
    bed_second();
    bed_second();
    bed_stop();
    replaced("\"bad\":true", "\"bad\":null", 1);
    assert_non_null(strstr(differs, "nothing\n")); /* recorded, and not replayed */
    replaced("{\"out\":{\"version\"", "{\"end\":{\"version\"", 1);
    assert_non_null(strstr(differs, "nothing {\"version\"")); /* replayed, and not recorded */
    replaced("\"to\":\"bad\"", "\"to\":\"sad\"", 1);
    replaced("the port is down", "the port IS down", 1);
    replaced("\"history\":1.0,", "\"history\":1.1,", 1);
}

static void what_is_no_bundle_is_refused_with_its_line(void **state)
{
    static const char head[] = "{\"bundle\":1,\"version\":\"1\",\"subjects\":2,\"next_id\":1}\n";
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"hello\n", "bundle:2: that is no object of JSON"},
        {"[1]\n", "bundle:2: that is no object of JSON"},
        {"{\"a\":1}\n", "bundle:2: that is no line of a bundle"},
        {"{\"bundle\":2,\"subjects\":1}\n", "bundle:2: this bundle is of another version"},
        {"{\"bundle\":1,\"subjects\":0}\n", "bundle:2: subjects is to be from 1 to 65536"},
        {"{\"bundle\":1,\"subjects\":-1}\n", "bundle:2: subjects is to be from 1 to 65536"},
        {"{\"in\":\"what\",\"kind\":\"port\",\"subject\":\"a\",\"check\":\"link_down\"}\n",
         "bundle:2: there is no such input"},
        {"{\"in\":\"use\",\"kind\":\"pond\",\"subject\":\"a\"}\n",
         "bundle:2: there is no such kind or name"},
        {"{\"in\":\"use\",\"kind\":\"port\",\"subject\":\"\"}\n",
         "bundle:2: there is no such kind or name"},
        {"{\"in\":\"use\",\"kind\":\"port\",\"subject\":"
         "\"0123456789012345678901234567890123456789012345678901234567890123\"}\n",
         "bundle:2: there is no such kind or name"},
        {"{\"in\":\"calm\",\"check\":\"none\"}\n", "bundle:2: there is no such check"},
        {"{\"in\":\"sample\",\"kind\":\"gpu\",\"subject\":\"a\",\"check\":\"link_down\"}\n",
         "bundle:2: there is no such check of that kind"},
        {"{\"in\":\"restore\",\"kind\":\"port\",\"subject\":\"a\",\"check\":\"link_down\","
         "\"state\":4}"
         "\n",
         "bundle:2: that is no condition"},
        {"{\"in\":\"use\",\"kind\":\"port\",\"subject\":\"a\"}\n{\"in\":\"use\",\"kind\":\"port\","
         "\"subject\":\"b\"}\n{\"in\":\"use\",\"kind\":\"port\",\"subject\":\"c\"}\n",
         "bundle:4: there are more subjects"},
    };

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++) {
        char text[1024];

        snprintf(text, sizeof(text), "%s%s", head, rows[i].text);
        if (replay_text(text, strlen(text)) != -EINVAL ||
            strncmp(sluice_last_error(), rows[i].why, strlen(rows[i].why)) != 0)
            fail_msg("%s: %s", rows[i].text, sluice_last_error());
    }
    char early[] = "{\"in\":\"calm\",\"check\":\"link_down\"}\n";

    assert_int_equal(replay_text(early, strlen(early)), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "a bundle begins with a line"));
}

static void a_recording_that_is_cut_off_is_replayed_as_far_as_it_goes(void **state)
{
    size_t len;
    char *text;

    (void)state;
    live(3, 500);
    bed_stop();
    text = read_bundle(&len);
    for (unsigned i = 1; i < 200; i++)
        if (replay_text(text, len - i) != 0 || result.differences != 0)
            fail_msg("without its last %u bytes: %s %s", i, sluice_last_error(), differs);
    assert_false(result.is_whole);
    free(text);
}

static void a_recording_ends_when_it_has_its_bytes(void **state)
{
    size_t len;
    char *text;

    (void)state;
    assert_true(sl_agent_records(bed.agent));
    bed.config.bundle_bytes = 65536;
    bed_restart();
    live(5, 1500);
    assert_false(sl_agent_records(bed.agent));
    bed_stop();
    text = read_bundle(&len);
    assert_true(len <= 65536 + 20 * 20); /* each agent says that it is full */
    if (replay_text(text, len) != 0)
        fail_msg("%s", sluice_last_error());
    assert_string_equal(differs, "");
    assert_false(result.is_whole);
    free(text);
}

static void a_bundle_that_cannot_be_written_is_no_agent(void **state)
{
    const struct sl_agent_options options = {.config = &bed.config, .version = "1.2"};
    struct sl_agent *none = NULL;

    (void)state;
    bed_stop();
    strcpy(bed.config.bundle_path, "/no/such/folder/bundle");
    assert_int_equal(sl_agent_open(&options, &none), -ENOENT);
    assert_non_null(strstr(sluice_last_error(), "/no/such/folder/bundle cannot be opened"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, bed_end)
    const struct CMUnitTest tests[] = {
        CASE(what_was_recorded_leads_to_the_same_bit_for_bit),
        CASE(what_differs_is_found),
        CASE(what_is_no_bundle_is_refused_with_its_line),
        CASE(a_recording_that_is_cut_off_is_replayed_as_far_as_it_goes),
        CASE(a_recording_ends_when_it_has_its_bytes),
        CASE(a_bundle_that_cannot_be_written_is_no_agent)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
