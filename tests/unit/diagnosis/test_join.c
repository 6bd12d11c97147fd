/* SPDX-License-Identifier: Apache-2.0 */
/* One process in several sources, a state page, a file of NCCL's events, NCCL's RAS, is one rank,
 * in whatever order they come; where that cannot be known, it is said. */
#include "core/err.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/read/nccl.h"
#include "monitor/read/page.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HASH 0xabcdef

static struct sl_state_process self_of(int pid, uint64_t space, const char *host)
{
    struct sl_state_process self = {.pid = pid, .start_ticks = 77, .pid_space = space};

    snprintf(self.host, sizeof(self.host), "%s", host);
    return self;
}

/* A page of one communicator of Sluice's own. */
static int add_page(struct sl_job *job, int pid, uint64_t space, const char *host, int rank)
{
    struct sl_page_comm comm = {
        .number = 1, .id = 5, .rank = (uint32_t)rank, .size = 4, .begun = {3}, .ended = {3}};
    struct sl_page page = {.self = self_of(pid, space, host),
                           .life = SL_PAGE_LIVES,
                           .now_ns = 1000,
                           .comms = &comm,
                           .comm_count = 1};

    page.self.rank = rank;
    return sl_page_take(job, &page, NULL);
}

/* A file of NCCL's events, of one communicator. */
static int add_events(struct sl_job *job, int pid, uint64_t space, const char *host, uint32_t place,
                      uint32_t size)
{
    struct sl_nccl_tale tale = {.name = "events", .now_ns = 1000};
    struct sl_nccl_comm *comm = sl_nccl_add_comm(&tale);
    int err;

    assert_non_null(comm);
    *comm = (struct sl_nccl_comm){.id = HASH, .rank = place, .ranks = size};
    tale.self = self_of(pid, space, host);
    snprintf(tale.host, sizeof(tale.host), "%s", host);
    snprintf(tale.process, sizeof(tale.process), "pid %d on %s", pid, host);
    err = sl_nccl_take(job, &tale);
    sl_nccl_free(&tale);
    return err;
}

/* Four members, two on each host, with pids from first on; the last one is dead. */
static int add_ras(struct sl_job *job, int first, const char *one, const char *two)
{
    char text[2048] = "{\"nccl_version\":\"2.29.1\",\"timestamp\":\"2026-11-27 05:00:00\","
                      "\"communicators\":[{\"hash\":\"0xabcdef\",\"size\":4,\"ranks\":[";

    for (int i = 0; i < 4; i++)
        sl_text_add(text, sizeof(text),
                    "%s{\"rank\":%d,\"host\":\"%s\",\"pid\":%d,\"nvml_dev\":%d,"
                    "\"status\":{\"considered_dead\":%s},"
                    "\"collective_counts\":{\"AllReduce\":%d}}",
                    i > 0 ? "," : "", i, i < 2 ? one : two, first + i, i % 2,
                    i == 3 ? "true" : "false", 100 + i);
    sl_text_add(text, sizeof(text), "]}]}");
    return sl_read_bytes(job, "ras.json", text, strlen(text));
}

static uint32_t told(const struct sl_job *job)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < job->rank_count; r++)
        count += job->ranks[r].is_told;
    return count;
}

static void expect_note(const struct sl_job *job, size_t i, const char *words)
{
    const char *note = sl_job_note_at(job, i);

    if (words == NULL ? note != NULL : note == NULL || strstr(note, words) == NULL)
        fail_msg("note %zu is '%s', where '%s' is expected", i, note != NULL ? note : "",
                 words != NULL ? words : "none");
}

/* Each counts ranks in its own way. */
static void a_page_and_a_file_of_events_are_one_rank(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct sl_job *job = sl_job_new();

        if (order == 1)
            assert_int_equal(add_events(job, 7, 1, "n1", 0, 2), 0);
        assert_int_equal(add_page(job, 7, 1, "n1", 3), 0);
        if (order == 0)
            assert_int_equal(add_events(job, 7, 1, "n1", 0, 2), 0);
        assert_int_equal(sl_job_seal(job), 0);
        assert_int_equal(told(job), 1);
        assert_int_equal(job->comm_count, 2);
        assert_true(job->ranks[order == 0 ? 3 : 0].is_told);
        expect_note(job, 0, NULL);
        sl_job_free(job);
    }
}

/* The same number in the next container. */
static void another_process_of_that_number_is_another_rank(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(add_page(job, 7, 1, "n1", 3), 0);
    assert_int_equal(add_events(job, 7, 2, "n1", 0, 2), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(told(job), 2);
    sl_job_free(job);
}

/* RAS has addresses where files have names; the communicator's hash and place join them. */
static void ras_and_files_of_events_are_joined_by_the_communicator(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct sl_job *job = sl_job_new();

        if (order == 1)
            assert_int_equal(add_ras(job, 50, "10.0.0.1", "10.0.0.2"), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(add_events(job, 50 + i, 1, i < 2 ? "n1" : "n2", (uint32_t)i, 4), 0);
        if (order == 0)
            assert_int_equal(add_ras(job, 50, "10.0.0.1", "10.0.0.2"), 0);
        assert_int_equal(sl_job_seal(job), 0);
        assert_int_equal(job->rank_count, 4);
        assert_int_equal(job->comm_count, 1);
        assert_int_equal(job->comms[0].member_count, 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(job->comms[0].members[i], i);
        assert_string_equal(sl_job_string(job, job->ranks[2].host), "n2");
        assert_string_equal(sl_job_string(job, job->ranks[2].process), "pid 52 on n2");
        assert_string_equal(sl_job_string(job, job->ranks[3].host), "10.0.0.2");
        assert_true(job->ranks[3].is_gone && !job->ranks[2].is_gone);
        /* What RAS counted at another time is not compared with what files list. */
        assert_int_equal(job->count_count, 0);
        expect_note(job, 0, "1 of 4 processes of NCCL RAS are none that other files tell of");
        expect_note(job, 0, "pid 53 on 10.0.0.2, GPU 1");
        expect_note(job, 1, "is left out");
        expect_note(job, 2, NULL);
        sl_job_free(job);
    }
}

/* Another number at that place: the job was begun anew in between. */
static void another_process_at_a_place_is_not_joined(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(add_ras(job, 60, "10.0.0.1", "10.0.0.2"), 0);
    assert_int_equal(add_events(job, 50, 1, "n1", 0, 4), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_string_equal(sl_job_string(job, job->ranks[0].process), "pid 50 on n1");
    assert_int_equal(job->comms[0].members[0], 0);
    expect_note(job, 0, "4 of 4 processes");
    expect_note(job, 1, "other processes than files of NCCL's events at 1 places");
    sl_job_free(job);
}

/* By number and host; the launcher's ranks are in another order than the communicator's. */
static void ras_and_pages_are_joined_by_number_and_host(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(add_ras(job, 50, "n1", "n2"), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(add_page(job, 50 + i, 1, i < 2 ? "n1" : "n2", 3 - i), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->rank_count, 4);
    assert_int_equal(job->comm_count, 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(job->comms[1].members[i], 3 - i);
    assert_int_equal(job->count_count, 4); /* RAS alone tells of that communicator */
    assert_true(job->ranks[0].is_gone);
    expect_note(job, 0, NULL);
    sl_job_free(job);
}

static void where_hosts_have_other_names_it_is_said(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(add_ras(job, 50, "10.0.0.1", "10.0.0.2"), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(add_page(job, 50 + i, 1, i < 2 ? "n1" : "n2", i), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(told(job), 8);
    expect_note(job, 0, "4 of 4 processes of NCCL RAS are none that other files tell of");
    sl_job_free(job);
}

/* Two containers of a host: which of them RAS means is not known. */
static void who_could_be_two_is_not_joined(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(add_ras(job, 50, "n1", "n2"), 0);
    assert_int_equal(add_page(job, 50, 1, "n1", 0), 0);
    assert_int_equal(add_page(job, 50, 2, "n1", 1), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(told(job), 6);
    expect_note(job, 0, "4 of 4 processes");
    sl_job_free(job);
}

/* RAS tells local time: of another clock than all else. */
static void times_of_ras_do_not_make_others_old(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(add_ras(job, 50, "n1", "n2"), 0);
    assert_int_equal(add_page(job, 50, 1, "n1", 0), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->now_ns, 1000);
    sl_job_free(job);
}

static void a_job_that_is_not_sealed_lets_go_of_what_waits(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(add_ras(job, 50, "n1", "n2"), 0);
    assert_int_equal(job->rank_count, 0);
    sl_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_and_a_file_of_events_are_one_rank),
        cmocka_unit_test(another_process_of_that_number_is_another_rank),
        cmocka_unit_test(ras_and_files_of_events_are_joined_by_the_communicator),
        cmocka_unit_test(another_process_at_a_place_is_not_joined),
        cmocka_unit_test(ras_and_pages_are_joined_by_number_and_host),
        cmocka_unit_test(where_hosts_have_other_names_it_is_said),
        cmocka_unit_test(who_could_be_two_is_not_joined),
        cmocka_unit_test(times_of_ras_do_not_make_others_old),
        cmocka_unit_test(a_job_that_is_not_sealed_lets_go_of_what_waits),
    };

    return cmocka_run_group_tests_name("diagnosis_join", tests, NULL, NULL);
}
