/* SPDX-License-Identifier: Apache-2.0 */
/* The agent and its ranks: processes and pages of a tree of the test. */
#include "core/err.h"

#include "bed.h"
#include "pages.h"

#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define START 300000 /* ticks: 3,000 s after the boot */

static struct test_page page;

static int begin(void **state)
{
    tree_begin();
    bed_begin(state);
    bed.config.ranks = bed.config.sluice = SL_MON_ON;
    snprintf(bed.config.ranks_proc, sizeof(bed.config.ranks_proc), "%s/proc", tree);
    snprintf(bed.config.ranks_shm, sizeof(bed.config.ranks_shm), "%s/shm", tree);
    snprintf(bed.config.ranks_cgroups, sizeof(bed.config.ranks_cgroups), "%s/cgroup", tree);
    bed_restart();
    tree_process(4711, "train", 'R', START, "/");
    page_init(&page, 4711, START);
    return 0;
}

static int end(void **state)
{
    bed_end(state);
    tree_end();
    return 0;
}

static void put(void)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/shm/sluice.%u.4711.0", tree, geteuid());
    page_write(&page, path);
}

static void seconds(unsigned count)
{
    while (count-- > 0)
        bed_second();
}

static void wait_in_allreduce(void)
{
    page.process.comms_made = 1;
    page.comms[0] = (struct sl_state_comm){
        .turn = 2, .number = 1, .id = 0xabc, .rank = 3, .size = 8, .culprit = -1};
    atomic_store(&page.comms[0].calls.begun[0], 12);
    atomic_store(&page.comms[0].calls.ended[0], 11);
    page.ops[0] = (struct sl_state_op){.turn = 2,
                                       .comm = 1,
                                       .since_ns = bed.now.mono_ns,
                                       .seq = 12,
                                       .root = -1,
                                       .step = 7,
                                       .steps = 42,
                                       .peer = 5,
                                       .coll = "allreduce",
                                       .doing = "waits for a message of"};
}

static void a_rank_that_is_stopped_is_told_within_a_period(void **state)
{
    char last[2048];

    (void)state;
    put();
    seconds(3);
    assert_int_equal(bed_lines(last, sizeof(last)), 0);
    tree_process(4711, "train", 'T', START, "/");
    seconds(1);
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    assert_non_null(strstr(last, "\"subject\":\"pid 4711\",\"check\":\"stopped\""));
    assert_non_null(
        strstr(last, "\"rank 3 of 8, job 17 (train): the process is stopped by a signal\""));
    assert_int_equal(bed_state(SL_MON_CHECK_PROCESS_STOPPED, "pid 4711"), SL_MON_BAD);
    bed_expect_metric("sluice_ranks{how=\"state page\"} 1\n", true);
}

static void a_rank_that_dies_is_told_with_what_it_did_last(void **state)
{
    char last[2048];

    (void)state;
    wait_in_allreduce();
    put();
    seconds(3);
    tree_remove("proc/4711");
    seconds(1);
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    assert_non_null(strstr(last, "\"subject\":\"pid 4711\",\"check\":\"died\""));
    assert_non_null(strstr(last, "rank 3 of 8, job 17 (train) ended without a goodbye; it was in "
                                 "allreduce number 12"));
    assert_non_null(strstr(last, "waits for a message of rank 5"));
    bed_expect_metric("sluice_rank_deaths_total 1\n", true);
    bed_expect_metric("sluice_collective_started_total{kind=\"collective\"} 12\n", true);
    seconds(5);
    assert_int_equal(bed_lines(last, sizeof(last)), 1); /* once */
    seconds(120);
    assert_int_equal(bed_lines(last, sizeof(last)), 3); /* and it is over */
    assert_null(sl_mon_find(sl_agent_mon(bed.agent), SL_MON_PROCESS, "pid 4711"));
}

static void a_death_is_told_once_over_a_restart_of_the_agent(void **state)
{
    char last[2048];

    (void)state;
    put();
    seconds(3);
    tree_remove("proc/4711");
    seconds(2);
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    bed_restart();
    seconds(3);
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    assert_int_equal(bed_state(SL_MON_CHECK_PROCESS_DIED, "pid 4711"), SL_MON_BAD);
    seconds(120);
    assert_int_equal(bed_lines(last, sizeof(last)), 3);
    assert_null(sl_mon_find(sl_agent_mon(bed.agent), SL_MON_PROCESS, "pid 4711"));
}

static void a_stop_ends_with_a_process_that_ended_while_no_agent_was_there(void **state)
{
    char last[2048];

    (void)state;
    put();
    tree_process(4711, "train", 'T', START, "/");
    seconds(3);
    bed_stop();
    tree_remove("proc/4711");
    bed_restart();
    seconds(1);
    assert_int_equal(bed_lines(last, sizeof(last)), 2);
    assert_non_null(strstr(last, "\"to\":\"ok\",\"verdict\":\"closed\",\"cause\":\"it is over\""));
}

static void a_good_end_is_no_death(void **state)
{
    (void)state;
    put();
    seconds(3);
    page.process.flags = SL_STATE_ENDED;
    put();
    tree_remove("proc/4711");
    bed_run("rm %s/shm/sluice.%u.4711.0", tree, geteuid());
    seconds(10);
    assert_int_equal(bed_lines(NULL, 0), 0);
    bed_expect_metric("sluice_rank_deaths_total 0\n", true);
}

static void a_communicator_that_breaks_is_told_with_its_culprit(void **state)
{
    char last[2048];

    (void)state;
    wait_in_allreduce();
    put();
    seconds(3);
    page.comms[0].flags = SL_STATE_BROKEN;
    page.comms[0].culprit = 6;
    strcpy(page.comms[0].error_text, "rank 6 is gone");
    put();
    seconds(1);
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    assert_non_null(strstr(last, "\"check\":\"communicator\""));
    assert_non_null(
        strstr(last, "its communicator of 8 ranks is broken, by rank 6: rank 6 is gone"));
    bed_expect_metric("sluice_communicators_broken 1\n", true);
}

static void path(unsigned i, const char *name, const char *at)
{
    struct sl_state_path *path = &page.paths[i];

    path->turn += 2;
    path->comm = 1;
    path->peer = 5;
    path->ups = 1;
    strcpy(path->name, name);
    strcpy(path->state, at);
    if (strcmp(at, "up") == 0)
        path->sent_bytes += 4096;
    else
        path->failures = 1;
}

static void paths_that_fail_accuse_their_port(void **state)
{
    char last[2048];

    (void)state;
    wait_in_allreduce();
    for (unsigned i = 0; i < 10; i++) {
        path(0, "mlx5_0:1 > 198.51.100.2", i < 4 ? "up" : "down");
        path(1, "mlx5_9:1 > 198.51.100.2", "up"); /* which nobody else knows */
        put();
        seconds(1);
    }
    assert_int_equal(bed_lines(NULL, 0), 0); /* no other port carries that is known */
    bed_expect_metric("sluice_path_failures_total{port=\"mlx5_0:1\"} 1\n", true);
    sl_mon_subject(sl_agent_mon(bed.agent), SL_MON_PORT, "mlx5_9:1");
    for (unsigned i = 0; i < 6; i++) {
        path(0, "mlx5_0:1 > 198.51.100.2", "down");
        path(1, "mlx5_9:1 > 198.51.100.2", "up");
        put();
        seconds(1);
    }
    assert_int_equal(bed_lines(last, sizeof(last)), 2);
    assert_non_null(strstr(last, "\"subject\":\"mlx5_0:1\",\"check\":\"rank_paths\""));
    bed_expect_metric("sluice_paths{port=\"mlx5_0:1\",state=\"down\"} 1\n", true);
}

static const char *text_of(struct json_object *from, const char *key)
{
    struct json_object *at;

    if (!json_object_object_get_ex(from, key, &at))
        fail_msg("there is no %s in %s", key, json_object_to_json_string(from));
    return json_object_get_string(at);
}

static void both_sources_tell_of_one_object(void **state)
{
    struct json_object *out = json_object_new_object(), *ranks, *at, *waits;

    (void)state;
    wait_in_allreduce();
    put();
    seconds(3);
    assert_true(sl_agent_json(bed.agent, NULL, out));
    assert_true(json_object_object_get_ex(out, "ranks", &ranks));
    assert_int_equal(json_object_array_length(ranks), 1);
    at = json_object_array_get_idx(ranks, 0);
    assert_string_equal(text_of(at, "pid"), "4711");
    assert_string_equal(text_of(at, "rank"), "3");
    assert_string_equal(text_of(at, "job"), "17");
    assert_string_equal(text_of(at, "state"), "R");
    text_of(at, "wait_share");
    assert_true(json_object_object_get_ex(at, "waits", &waits));
    assert_string_equal(text_of(waits, "operation"), "allreduce");
    assert_string_equal(text_of(waits, "peer"), "5");
    assert_string_equal(text_of(waits, "for_seconds"), "3.000");
    json_object_put(out);
}

static void texts_of_a_user_do_not_break_the_answer(void **state)
{
    struct json_object *out = json_object_new_object(), *ranks;

    (void)state;
    memset(page.process.job, 0xff, sizeof(page.process.job));
    memcpy(page.process.program, "a\"\\\n\033[2J", 8);
    put();
    seconds(3);
    assert_true(sl_agent_json(bed.agent, "ranks", out));
    assert_true(json_object_object_get_ex(out, "ranks", &ranks));
    for (const char *c = json_object_to_json_string_ext(out, JSON_C_TO_STRING_PLAIN); *c != '\0';
         c++)
        assert_true(*c >= ' ' && *c < 127);
    json_object_put(out);
}

static void sources_may_be_off_each_alone(void **state)
{
    (void)state;
    bed.config.ranks = SL_MON_OFF;
    bed_restart();
    put();
    seconds(3);
    tree_remove("proc/4711");
    seconds(1);
    assert_int_equal(bed_state(SL_MON_CHECK_PROCESS_DIED, "pid 4711"), SL_MON_BAD);
    bed.config.ranks = SL_MON_ON;
    bed.config.sluice = SL_MON_OFF;
    bed_restart();
    seconds(3);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_rank_that_is_stopped_is_told_within_a_period),
        CASE(a_rank_that_dies_is_told_with_what_it_did_last),
        CASE(a_death_is_told_once_over_a_restart_of_the_agent),
        CASE(a_stop_ends_with_a_process_that_ended_while_no_agent_was_there),
        CASE(a_good_end_is_no_death),
        CASE(a_communicator_that_breaks_is_told_with_its_culprit),
        CASE(paths_that_fail_accuse_their_port),
        CASE(both_sources_tell_of_one_object),
        CASE(texts_of_a_user_do_not_break_the_answer),
        CASE(sources_may_be_off_each_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
