/* SPDX-License-Identifier: Apache-2.0 */
/* What is wanted, stored, performed by a program of the test's own, and told: with programs that
 * succeed, fail, hang and leave others behind, and with an agent that is killed. */
#include "core/err.h"
#include "monitor/actions.h"
#include "monitor/isolation.h"

#include <errno.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/sluice-isolation-XXXXXX", hook[64];
static struct sl_mon_config config;
static struct sl_mon_store *store;
static struct sl_mon *mon;
static struct sl_isolation *isolation;
static struct sl_mon_time now;
static char *told; /* lines */
static size_t told_len;
static FILE *log_file;

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    assert_int_equal(sl_mon_store_put(store, transition), 0);
}

static uint64_t real_ns(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * SL_MON_S + (uint64_t)at.tv_nsec;
}

static int try_open(void)
{
    const struct sl_isolation_options options = {
        .config = &config, .boot_id = "3f2a9c1d-77", .log = log_file};

    sl_isolation_close(isolation);
    isolation = NULL;
    return sl_isolation_open(&options, &isolation);
}

static void reopen(void)
{
    if (try_open() != 0)
        fail_msg("%s", sluice_last_error());
}

static int begin(void **state)
{
    const struct sl_mon_store_options plenty = {.transitions_max = 100000};
    char aside[128];

    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    sl_mon_config_defaults(&config);
    snprintf(config.store_path, sizeof(config.store_path), "%s/state.db", folder);
    snprintf(hook, sizeof(hook), "%s/hook", folder);
    snprintf(config.isolate_command, sizeof(config.isolate_command), "%s first  second", hook);
    config.isolate_plug = 1; /* exec */
    config.isolate_mode = 1; /* act */
    config.isolate_hold_s = 600;
    config.isolate_timeout_ms = 5000;
    strcpy(config.isolate_node, "n1");
    assert_int_equal(sl_mon_store_open(config.store_path, &plenty, &store, aside, sizeof(aside)),
                     0);
    const struct sl_mon_options own = {
        .subjects_max = 64, .next_id = 1, .on_transition = on_transition};

    assert_int_equal(sl_mon_create(&own, &mon), 0);
    now = (struct sl_mon_time){.mono_ns = real_ns(), .wall_ns = UINT64_C(1764103151123000000)};
    sl_mon_set_time(mon, &now);
    sl_mon_set_boot(mon, "3f2a9c1d-77");
    log_file = open_memstream(&told, &told_len);
    reopen();
    return 0;
}

static int end(void **state)
{
    char command[128];

    (void)state;
    sl_isolation_close(isolation);
    isolation = NULL;
    sl_mon_destroy(mon);
    sl_mon_store_close(store);
    fclose(log_file);
    free(told);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    return 0;
}

/* "$1".."$5" are: first, second, out or back, the node, the key. */
static void write_hook(const char *text)
{
    FILE *file = fopen(hook, "we");

    assert_non_null(file);
    fprintf(file, "#!/bin/sh\ncd %s || exit 1\n%s\n", folder, text);
    fclose(file);
    assert_int_equal(chmod(hook, 0755), 0);
}

static void tick(void)
{
    sl_mon_set_time(mon, &now);
    sl_isolation_tick(isolation, store, &now);
    fflush(log_file);
}

static void later(uint64_t s)
{
    now.mono_ns += s * SL_MON_S;
    now.wall_ns += s * SL_MON_S;
}

static uint64_t metric(const char *name)
{
    char *text = NULL, *at, line[256];
    size_t len;
    FILE *out = open_memstream(&text, &len);
    uint64_t value;

    sl_isolation_metrics(isolation, SL_MON_OPENMETRICS, out);
    fclose(out);
    snprintf(line, sizeof(line), "\n%s ", name);
    at = strstr(text, line);
    if (at == NULL)
        fail_msg("there is no %s in %s", name, text);
    value = strtoull(at + strlen(line), NULL, 10);
    free(text);
    return value;
}

#define COUNT(action, result)                                                                      \
    metric("sluice_isolation_actions_total{plug=\"exec\",action=\"" action "\",result=\"" result   \
           "\"}")
#define GAUGE(name) metric("sluice_isolation_" name "{plug=\"exec\"}")

/* Ticks, of which none may take long, until there are so many of it. */
static void until(const char *action, const char *result, uint64_t most)
{
    uint64_t until_ns = real_ns() + 20 * SL_MON_S, from_ns;
    char name[128];

    snprintf(name, sizeof(name),
             "sluice_isolation_actions_total{plug=\"exec\",action=\"%s\",result=\"%s\"}", action,
             result);
    while (metric(name) < most) {
        from_ns = real_ns();
        tick();
        assert_true(real_ns() - from_ns < SL_MON_S);
        assert_true(real_ns() < until_ns);
        usleep(2000);
    }
}

static struct sl_mon_subject *gpu(unsigned i)
{
    char name[32];

    snprintf(name, sizeof(name), "0000:%02x:00.0", i);
    return sl_mon_subject(mon, SL_MON_GPU, name);
}

static void bad(unsigned i)
{
    static const struct sl_mon_evidence evidence = {
        .source = "kmsg", .text = "XID 79; $(touch shell) \"has fallen off the bus\""};

    sl_mon_sample(mon, gpu(i), SL_MON_CHECK_GPU_FATAL, true, &evidence);
}

static void cleared(unsigned i)
{
    assert_true(sl_mon_clear(mon, gpu(i)));
}

static bool exists(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* A zombie is not. */
static bool is_alive(pid_t pid)
{
    char path[64], state = 'Z';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    fclose(file);
    return state != 'Z' && state != 'X';
}

static void contents(const char *name, char *out, size_t cap)
{
    char path[256];
    FILE *file;
    size_t len;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
    assert_non_null(file);
    len = fread(out, 1, cap - 1, file);
    out[len] = '\0';
    fclose(file);
}

static void actions(unsigned count, struct sl_mon_action *out)
{
    struct sl_actions *own;

    assert_int_equal(sl_actions_open(config.store_path, 0, &own), 0);
    assert_int_equal(sl_actions_list(own, 0, out, 8), count);
    sl_actions_close(own);
}

static void a_fatal_verdict_calls_the_program_once_and_its_end_once_more(void **state)
{
    struct sl_mon_action rows[8];
    char text[4096];

    (void)state;
    write_hook("echo \"$@\" >>calls; env | grep ^SLUICED_ | sort >environment");
    tick();
    assert_false(exists("calls"));
    bad(7);
    until("out", "done", 1);
    for (unsigned i = 0; i < 5; i++)
        tick();
    contents("calls", text, sizeof(text));
    assert_string_equal(text, "first second out n1 n1/3f2a9c1d-77/1/out\n");
    contents("environment", text, sizeof(text));
    assert_string_equal(text, "SLUICED_ACTION=out\n"
                              "SLUICED_ACTION_KEY=n1/3f2a9c1d-77/1/out\n"
                              "SLUICED_ATTEMPT=1\n"
                              "SLUICED_CHECK=gpu_fatal\n"
                              "SLUICED_CLASS=GPUUnhealthy\n"
                              "SLUICED_KIND=gpu\n"
                              "SLUICED_NODE=n1\n"
                              "SLUICED_SUBJECT=0000:07:00.0\n"
                              "SLUICED_TEXT=XID 79; $(touch shell) \"has fallen off the bus\"\n"
                              "SLUICED_VERDICT=1\n");
    assert_false(exists("shell"));
    assert_int_equal(GAUGE("out"), 1);
    assert_int_equal(GAUGE("wanted"), 1);
    cleared(7);
    tick();
    later(599);
    tick();
    assert_int_equal(GAUGE("waiting"), 0);
    later(1);
    until("back", "done", 1);
    contents("calls", text, sizeof(text));
    assert_string_equal(text, "first second out n1 n1/3f2a9c1d-77/1/out\n"
                              "first second back n1 n1/3f2a9c1d-77/1/back\n");
    assert_int_equal(GAUGE("out"), 0);
    actions(2, rows);
    assert_string_equal(rows[0].state, "done");
    assert_string_equal(rows[0].condition, "GPUUnhealthy");
    assert_int_equal(rows[0].attempts, 1);
    assert_string_equal(rows[1].kind, "back");
    assert_true(rows[1].ended_ns > rows[0].ended_ns);
}

/* Each line is JSON, and there is one for what is wanted and one for what came of it. */
static void each_action_and_what_came_of_it_is_a_line(void **state)
{
    static const char *const results[] = {"wanted", "failed", "done"};
    char *save = NULL, *line;
    unsigned count = 0;

    (void)state;
    write_hook("test -e tried || { touch tried; echo 'the switch\nis sulking' >&2; exit 3; }");
    bad(7);
    until("out", "failed", 1);
    later(2);
    until("out", "done", 1);
    fflush(log_file);
    for (line = strtok_r(told, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        struct json_object *object = json_tokener_parse(line), *outcome;

        assert_non_null(object);
        assert_true(count < 3);
        assert_string_equal(json_object_get_string(json_object_object_get(object, "type")),
                            "action");
        assert_string_equal(json_object_get_string(json_object_object_get(object, "result")),
                            results[count]);
        assert_string_equal(json_object_get_string(json_object_object_get(object, "key")),
                            "n1/3f2a9c1d-77/1/out");
        outcome = json_object_object_get(object, "outcome");
        if (count == 1)
            assert_non_null(strstr(json_object_get_string(outcome),
                                   "hook ended with status 3: the switch is sulking"));
        json_object_put(object);
        count++;
    }
    assert_int_equal(count, 3);
}

static void in_shadow_mode_nothing_is_called(void **state)
{
    struct sl_mon_action rows[8];

    (void)state;
    write_hook("touch called");
    config.isolate_mode = 0;
    reopen();
    bad(7);
    until("out", "shadow", 1);
    cleared(7);
    tick();
    later(600);
    until("back", "shadow", 1);
    usleep(100000);
    assert_false(exists("called"));
    actions(2, rows);
    assert_true(rows[0].is_shadow && rows[1].is_shadow);
    assert_non_null(strstr(told, "\"mode\":\"shadow\""));
    assert_int_equal(metric("sluice_isolation_mode{mode=\"shadow\"}"), 1);
}

/* What was only thought of is done once it may be. */
static void from_shadow_to_act_what_is_open_is_done(void **state)
{
    (void)state;
    write_hook("touch called");
    config.isolate_mode = 0;
    reopen();
    bad(7);
    until("out", "shadow", 1);
    config.isolate_mode = 1;
    reopen();
    until("out", "done", 1);
    assert_true(exists("called"));
    /* And back in shadow, it still is. */
    config.isolate_mode = 0;
    reopen();
    assert_int_equal(GAUGE("out"), 1);
}

static void a_program_that_hangs_is_killed_with_what_it_started(void **state)
{
    uint64_t from_ns;
    char text[64];

    (void)state;
    config.isolate_timeout_ms = 300;
    reopen();
    write_hook("sleep 1000 & echo $! >started; sleep 1000");
    bad(7);
    tick();
    from_ns = real_ns();
    until("out", "timed_out", 1); /* which also sees that no tick waits */
    assert_true(real_ns() - from_ns < 3 * SL_MON_S);
    assert_int_equal(GAUGE("up"), 0);
    assert_non_null(strstr(told, "hook first did not end in time, and was killed"));
    contents("started", text, sizeof(text));
    for (unsigned i = 0; i < 500 && is_alive((pid_t)atoi(text)); i++)
        usleep(10000);
    assert_false(is_alive((pid_t)atoi(text)));
    /* It is tried again, and succeeds then. */
    write_hook("exit 0");
    later(2);
    until("out", "done", 1);
    assert_int_equal(GAUGE("up"), 1);
}

/* It counts as done when the program itself ends, and nothing of it stays. */
static void what_a_program_leaves_behind_is_ended(void **state)
{
    char text[64];

    (void)state;
    write_hook("sleep 1000 & echo $! >started");
    bad(7);
    until("out", "done", 1);
    contents("started", text, sizeof(text));
    assert_int_equal(kill((pid_t)atoi(text), 0), -1); /* and not even a zombie of it is left */
}

static void a_program_that_is_not_there_is_named(void **state)
{
    (void)state;
    bad(7);
    until("out", "failed", 1);
    assert_non_null(strstr(told, "hook cannot be run: "));
    assert_int_equal(GAUGE("waiting"), 1);
}

static void one_that_dies_is_tried_again(void **state)
{
    (void)state;
    write_hook("kill -SEGV $$");
    bad(7);
    until("out", "failed", 1);
    assert_non_null(strstr(told, "hook was ended by signal 11"));
    assert_int_equal(GAUGE("waiting"), 1);
}

/* The first, then the second, the fourth, ... attempt of the same outcome; the store counts all. */
static void what_fails_for_long_fills_no_journal(void **state)
{
    struct sl_mon_action rows[8];
    unsigned count = 0;

    (void)state;
    write_hook("exit 3");
    bad(7);
    for (unsigned i = 1; i <= 9; i++) {
        until("out", "failed", i);
        later(80);
    }
    for (const char *at = told; (at = strstr(at, "\"result\":\"failed\"")) != NULL; at++)
        count++;
    assert_int_equal(count, 4);
    actions(1, rows);
    assert_int_equal(rows[0].attempts, 9);
}

static const char *word(struct json_object *of, const char *key)
{
    return json_object_get_string(json_object_object_get(of, key));
}

static void who_asks_is_told_what_was_done(void **state)
{
    struct json_object *out = json_object_new_object(), *own, *list;

    (void)state;
    write_hook("exit 0");
    bad(7);
    until("out", "done", 1);
    sl_isolation_json(isolation, out);
    own = json_object_object_get(out, "isolation");
    assert_string_equal(word(own, "plug"), "exec");
    assert_string_equal(word(own, "mode"), "act");
    assert_string_equal(word(own, "node"), "n1");
    assert_true(json_object_get_boolean(json_object_object_get(own, "out")));
    list = json_object_object_get(own, "actions");
    assert_int_equal(json_object_array_length(list), 1);
    assert_string_equal(word(json_object_array_get_idx(list, 0), "state"), "done");
    assert_string_equal(word(json_object_array_get_idx(list, 0), "class"), "GPUUnhealthy");
    json_object_put(out);
    out = json_object_new_object();
    sl_isolation_json(NULL, out);
    assert_string_equal(word(json_object_object_get(out, "isolation"), "plug"), "none");
    json_object_put(out);
}

static void status_77_leaves_the_node_alone(void **state)
{
    (void)state;
    write_hook("echo 'in maintenance' >&2; echo x >>calls; exit 77");
    bad(7);
    until("out", "left_alone", 1);
    later(1000);
    tick();
    tick();
    cleared(7);
    tick();
    later(1000);
    tick();
    tick();
    assert_int_equal(GAUGE("waiting"), 0);
    assert_int_equal(COUNT("back", "done"), 0);
    char text[64];

    contents("calls", text, sizeof(text));
    assert_string_equal(text, "x\n");
}

static void an_ack_comes_before_the_node_is_taken_out(void **state)
{
    (void)state;
    write_hook("touch called");
    bad(7);
    assert_int_equal(sl_mon_store_verdict_ack(store, 1, 1, "operator"), 0);
    tick();
    tick();
    assert_int_equal(GAUGE("wanted"), 0);
    assert_false(exists("called"));
}

static void a_node_that_comes_and_goes_is_left_in(void **state)
{
    (void)state;
    config.isolate_times = 1;
    reopen();
    write_hook("echo $3 >>calls");
    bad(7);
    until("out", "done", 1);
    cleared(7);
    tick();
    later(600);
    until("back", "done", 1);
    bad(7);
    tick();
    tick();
    assert_int_equal(COUNT("out", "refused"), 1);
    assert_int_equal(GAUGE("breaker_open"), 1);
    /* A restart is no way round it. */
    reopen();
    tick();
    tick();
    assert_int_equal(GAUGE("breaker_open"), 1);
    later(86400);
    until("out", "done", 1);
    assert_int_equal(GAUGE("breaker_open"), 0);
}

static bool is_written(const char *name)
{
    struct stat info;
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return stat(path, &info) == 0 && info.st_size > 0;
}

/* As a kill does it: nothing is told to the one that begins anew but what is on the disk. */
static void agent_that_is_killed(bool has_acted)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        tick(); /* it is stored, and its process begins */
        if (has_acted) {
            for (unsigned i = 0; i < 2000 && !is_written("calls"); i++)
                usleep(5000);
        }
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* Told is the moment between the disk and the act: the agent is killed by what it tells. */
static ssize_t killed_by_telling(void *cookie, const char *text, size_t len)
{
    (void)cookie;
    (void)text;
    (void)len;
    kill(getpid(), SIGKILL);
    return -1;
}

static void killed_before_it_acts_it_acts_once(void **state)
{
    const cookie_io_functions_t functions = {.write = killed_by_telling};
    struct sl_mon_action rows[8];
    char text[256];
    int status;
    pid_t pid;

    (void)state;
    write_hook("echo $5 >>calls");
    bad(7);
    pid = fork();
    if (pid == 0) {
        log_file = fopencookie(NULL, "w", functions);
        if (try_open() == 0)
            tick();
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    actions(1, rows); /* stored */
    assert_string_equal(rows[0].state, "wanted");
    assert_int_equal(rows[0].attempts, 0);
    assert_false(exists("calls")); /* and not performed */
    reopen();
    until("out", "done", 1);
    contents("calls", text, sizeof(text));
    assert_string_equal(text, "n1/3f2a9c1d-77/1/out\n");
    actions(1, rows);
}

/* At least once: with the same key, by which the program knows that it has done it. */
static void killed_before_it_knows_it_acts_again_with_the_same_key(void **state)
{
    struct sl_mon_action rows[8];
    char text[256];

    (void)state;
    /* The effect first: the agent is killed, and this with it, once the call is on record. */
    write_hook("mkdir \"$(echo $5 | tr / _)\" 2>/dev/null && echo x >>effects\n"
               "echo $5 >>calls");
    bad(7);
    agent_that_is_killed(true);
    actions(1, rows);
    assert_string_equal(rows[0].state, "wanted");
    assert_int_equal(rows[0].attempts, 1);
    reopen();
    until("out", "done", 1);
    contents("calls", text, sizeof(text));
    assert_string_equal(text, "n1/3f2a9c1d-77/1/out\nn1/3f2a9c1d-77/1/out\n");
    contents("effects", text, sizeof(text));
    assert_string_equal(text, "x\n");
    actions(1, rows);
    assert_int_equal(rows[0].attempts, 2);
}

static void a_child_dies_with_its_agent(void **state)
{
    char text[64];

    (void)state;
    write_hook("sleep 1000 & echo $! >calls; sleep 1000");
    bad(7);
    agent_that_is_killed(true);
    contents("calls", text, sizeof(text));
    for (unsigned i = 0; i < 500 && is_alive((pid_t)atoi(text)); i++)
        usleep(10000);
    assert_false(is_alive((pid_t)atoi(text)));
}

static void what_another_plug_did_not_do_is_withdrawn(void **state)
{
    struct sl_mon_action rows[8];

    (void)state;
    bad(7);
    tick();
    strcpy(config.isolate_node, "n2");
    write_hook("exit 0");
    reopen();
    actions(1, rows);
    assert_string_equal(rows[0].state, "withdrawn");
    until("out", "done", 1);
    actions(2, rows);
    assert_string_equal(rows[1].node, "n2");
}

static void many_actions_are_not_kept_for_ever(void **state)
{
    struct sl_mon_action row = {.verdict = 1, .state = "done"}, first;
    struct sl_actions *own;
    uint64_t id;

    (void)state;
    assert_int_equal(sl_actions_open(config.store_path, 0, &own), 0);
    for (unsigned i = 0; i < SL_ACTIONS_KEPT + 50; i++) {
        snprintf(row.key, sizeof(row.key), "%u", i);
        strcpy(row.state, i == 3 ? "wanted" : "done");
        assert_int_equal(sl_actions_put(own, &row, &id), 0);
    }
    assert_int_equal(id, SL_ACTIONS_KEPT + 50);
    assert_int_equal(sl_actions_list(own, 0, &first, 1), 1);
    assert_int_equal(first.id, 4); /* not done yet */
    assert_int_equal(sl_actions_list(own, 5, &first, 1), 1);
    assert_int_equal(first.id, 51);
    strcpy(row.key, "3"); /* the same key is the same action */
    assert_int_equal(sl_actions_put(own, &row, &id), 0);
    assert_int_equal(id, 4);
    sl_actions_close(own);
}

static void what_is_missing_in_the_configuration_is_said(void **state)
{
    (void)state;
    strcpy(config.isolate_command, "  ");
    assert_int_equal(try_open(), -EINVAL);
    assert_string_equal(sluice_last_error(), "[isolate] plug = exec needs a command");
    config.isolate_plug = 0;
    assert_int_equal(try_open(), 0);
    assert_null(isolation);
    tick(); /* takes NULL */
    assert_int_equal(metric("sluice_isolation_mode{mode=\"act\"}"), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_fatal_verdict_calls_the_program_once_and_its_end_once_more),
        CASE(each_action_and_what_came_of_it_is_a_line),
        CASE(in_shadow_mode_nothing_is_called),
        CASE(from_shadow_to_act_what_is_open_is_done),
        CASE(a_program_that_hangs_is_killed_with_what_it_started),
        CASE(what_a_program_leaves_behind_is_ended),
        CASE(a_program_that_is_not_there_is_named),
        CASE(one_that_dies_is_tried_again),
        CASE(what_fails_for_long_fills_no_journal),
        CASE(who_asks_is_told_what_was_done),
        CASE(status_77_leaves_the_node_alone),
        CASE(an_ack_comes_before_the_node_is_taken_out),
        CASE(a_node_that_comes_and_goes_is_left_in),
        CASE(killed_before_it_acts_it_acts_once),
        CASE(killed_before_it_knows_it_acts_again_with_the_same_key),
        CASE(a_child_dies_with_its_agent),
        CASE(what_another_plug_did_not_do_is_withdrawn),
        CASE(many_actions_are_not_kept_for_ever),
        CASE(what_is_missing_in_the_configuration_is_said)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
