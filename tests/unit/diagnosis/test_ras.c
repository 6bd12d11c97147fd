/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL RAS in JSON: which rank a process is, and what the counts say. */
#include "core/err.h"
#include "job_maker.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char bytes[16 << 10];

static void add(struct sl_job *job, const char *name)
{
    char path[1024];
    FILE *file;
    size_t len;

    snprintf(path, sizeof(path), "%s/diagnosis_ras/%s", getenv("SLUICE_TEST_CORPUS"), name);
    file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s is not there", path);
    len = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    if (sl_read_bytes(job, name, bytes, len) != 0)
        fail_msg("%s", sluice_last_error());
}

/* One or two files, and what is said of them. */
static void expect(const char *first, const char *second, const char *text, const char *words)
{
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts;

    add(job, first);
    if (second != NULL)
        add(job, second);
    judge_job(job, -1, &verdicts);
    if (strcmp(verdicts_text(&verdicts), text) != 0 || !verdicts_say(&verdicts, words))
        fail_msg("%s, because %s", verdicts_text(&verdicts), verdicts.list[0].evidence[0]);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

static void a_process_has_its_rank_in_the_largest_communicator(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    for (unsigned again = 0; again < 2; again++) {
        add(job, again == 0 ? "behind" : "moving");
        assert_int_equal(sl_job_seal(job), 0);
        assert_int_equal(job->rank_count, 4);
        assert_int_equal(job->comm_count, 2);
        assert_int_equal(job->comms[0].member_count, 4);
        assert_int_equal(job->comms[1].members[0], 3);
        assert_int_equal(job->comms[1].members[1], 1);
        assert_string_equal(sl_job_string(job, job->ranks[2].host), "10.0.0.2");
        assert_string_equal(sl_job_string(job, job->ranks[2].process),
                            "pid 100 on 10.0.0.2, GPU 0");
    }
    sl_job_free(job);
}

static void a_rank_that_is_behind_is_accused(void **state)
{
    (void)state;
    expect(
        "behind", NULL, "host_stalled 2",
        "rank 2 (pid 100 on 10.0.0.2, GPU 0) has not called collective 6650 of communicator 0xa; "
        "ranks 0-1, 3 wait in it");
    expect("behind", NULL, "host_stalled 2", "counted once");
}

static void a_job_that_went_on_is_not_hung(void **state)
{
    (void)state;
    expect("behind", "moving", "not_hung", "went on");
    expect("moving", "behind", "not_hung", "went on");
    expect("even", NULL, "not_hung", "have come as far");
}

static void a_rank_that_is_dead_or_silent_is_accused(void **state)
{
    (void)state;
    expect("dead", NULL, "dead 3", "the process of rank 3 (pid 101 on 10.0.0.2, GPU 1) is gone");
    expect("silent", NULL, "dead 3", "nothing is known of 1 of the members");
}

/* As NCCL 2.28.9 said it of four ranks on an H100, of which one was stopped. */
static void a_comma_that_nccl_forgets_is_forgiven(void **state)
{
    (void)state;
    expect("no_comma", NULL, "dead 2", "nothing is known of 1 of the members");
}

/* Rank 3 has called an all_gather more than the other three: they are not accused. */
static void a_few_that_are_ahead_of_all_others_are_named(void **state)
{
    (void)state;
    expect("ahead", NULL, "mismatch 3", "calls what they do not, or none of them comes");
}

/* The three others wait for rank 4 in another communicator: nobody is taken for the odd one. */
static void who_waits_elsewhere_is_not_behind(void **state)
{
    (void)state;
    expect("elsewhere", NULL, "host_stalled 4", "of communicator 0xc; ranks 0-2 wait in it");
}

static void other_kinds_are_a_mismatch(void **state)
{
    (void)state;
    expect("kinds", NULL, "mismatch 1", "of other kinds (1 and 3 ranks)");
}

static int read_text(const char *text)
{
    struct sl_job *job = sl_job_new();
    int err = sl_read_bytes(job, "ras.json", text, strlen(text));

    if (err == 0)
        err = sl_job_seal(job);
    sl_job_free(job);
    return err;
}

static void a_process_outside_the_largest_communicator_comes_after_its_ranks(void **state)
{
    static const char text[] =
        "{\"nccl_version\":\"2.29.1\",\"communicators\":["
        "{\"hash\":\"0xb\",\"size\":1,\"ranks\":[{\"rank\":0,\"host\":\"h3\",\"pid\":3}]},"
        "{\"hash\":\"0xa\",\"size\":2,\"ranks\":[{\"rank\":1,\"host\":\"h2\",\"pid\":2},"
        "{\"rank\":0,\"host\":\"h1\",\"pid\":1}]}]}";
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(sl_read_bytes(job, "ras.json", text, strlen(text)), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->rank_count, 3);
    assert_string_equal(sl_job_string(job, job->ranks[0].host), "h1");
    assert_string_equal(sl_job_string(job, job->ranks[1].host), "h2");
    assert_string_equal(sl_job_string(job, job->ranks[2].host), "h3");
    sl_job_free(job);
}

static void answers_that_make_no_sense_are_refused(void **state)
{
#define HEAD "{\"nccl_version\":\"2.29.1\",\"communicators\":"
    static const char *const bad[] = {
        HEAD "{}}",
        HEAD "[7]}",
        HEAD "[{\"ranks\":[]}]}",
        HEAD "[{\"hash\":\"0x1\",\"ranks\":{}}]}",
        HEAD "[{\"hash\":\"0x1\",\"ranks\":[{}]}]}",
        HEAD "[{\"hash\":\"0x1\",\"ranks\":[{\"rank\":-1}]}]}",
        HEAD "[{\"hash\":\"0x1\",\"ranks\":[{\"rank\":9999999}]}]}",
        HEAD "[{\"hash\":\"0x1\",\"ranks\":[{\"rank\":0},{\"rank\":0}]}]}",
        HEAD "[]",
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (read_text(bad[i]) != -EBADMSG)
            fail_msg("%s is taken", bad[i]);
    assert_int_equal(read_text(HEAD "[]}"), 0);
    assert_int_equal(read_text("{\"timestamp\":\"9999-01-01 00:00:00\",\"nccl_version\":\"\","
                               "\"communicators\":[]}"),
                     0);
}

/* A job goes on without what was refused when it was sealed. */
static void a_job_is_sealed_without_what_makes_no_sense(void **state)
{
    static const char text[] = HEAD "[{\"hash\":\"0x1\",\"ranks\":[{\"rank\":0},{\"rank\":0}]}]}";
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(sl_read_bytes(job, "ras.json", text, strlen(text)), 0);
    assert_int_equal(sl_job_seal(job), -EBADMSG);
    assert_int_equal(sl_job_seal(job), 0);
    sl_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_has_its_rank_in_the_largest_communicator),
        cmocka_unit_test(a_process_outside_the_largest_communicator_comes_after_its_ranks),
        cmocka_unit_test(a_rank_that_is_behind_is_accused),
        cmocka_unit_test(a_job_that_went_on_is_not_hung),
        cmocka_unit_test(a_rank_that_is_dead_or_silent_is_accused),
        cmocka_unit_test(a_comma_that_nccl_forgets_is_forgiven),
        cmocka_unit_test(a_few_that_are_ahead_of_all_others_are_named),
        cmocka_unit_test(who_waits_elsewhere_is_not_behind),
        cmocka_unit_test(other_kinds_are_a_mismatch),
        cmocka_unit_test(answers_that_make_no_sense_are_refused),
        cmocka_unit_test(a_job_is_sealed_without_what_makes_no_sense),
    };

    return cmocka_run_group_tests_name("diagnosis_ras", tests, NULL, NULL);
}
