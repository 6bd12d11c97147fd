/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of Sluice as sources: pages that say what four ranks called become a job, and the rules
 * accuse who has to be. */
#include "core/err.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/read/page.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 4
#define SECOND UINT64_C(1000000000)
#define NOW (1000 * SECOND)

struct crew {
    struct sl_page pages[RANKS];
    struct sl_page_comm comms[RANKS][2];
    struct sl_state_op ops[RANKS][2];
    struct sl_state_path paths[RANKS];
};

static struct sl_state_shape shape_of(const char *coll)
{
    struct sl_state_shape shape = {.count = 100, .root = -1};

    snprintf(shape.coll, sizeof(shape.coll), "%s", coll);
    snprintf(shape.dtype, sizeof(shape.dtype), "f32");
    return shape;
}

/* All have ended 10 collectives of the job, and nothing is pending. */
static struct crew *make(void)
{
    struct crew *crew = calloc(1, sizeof(*crew));

    assert_non_null(crew);
    for (int r = 0; r < RANKS; r++) {
        struct sl_page *page = &crew->pages[r];

        page->self.rank = r;
        page->self.size = RANKS;
        page->self.pid = 100 + r;
        snprintf(page->self.host, sizeof(page->self.host), "h%d", r / 2);
        page->life = SL_PAGE_LIVES;
        page->now_ns = (int64_t)NOW;
        page->comms = crew->comms[r];
        page->ops = crew->ops[r];
        page->paths = &crew->paths[r];
        page->comm_count = 1;
        crew->comms[r][0] = (struct sl_page_comm){.number = 1,
                                                  .id = 0xabc,
                                                  .rank = (uint32_t)r,
                                                  .size = RANKS,
                                                  .made_ns = SECOND,
                                                  .updated_ns = NOW,
                                                  .begun = {10},
                                                  .ended = {10},
                                                  .last = shape_of("allreduce")};
    }
    return crew;
}

/* Waits in the 11th for 20 s. */
static void wait_in(struct crew *crew, int r, const char *coll)
{
    struct sl_state_op *op = &crew->ops[r][crew->pages[r].op_count++];

    crew->comms[r][0].begun[0] = 11;
    crew->comms[r][0].last = shape_of(coll);
    *op = (struct sl_state_op){.comm = 1,
                               .seq = 11,
                               .count = 100,
                               .root = -1,
                               .since_ns = NOW - 20 * SECOND,
                               .updated_ns = NOW};
    snprintf(op->coll, sizeof(op->coll), "%s", coll);
    snprintf(op->dtype, sizeof(op->dtype), "f32");
}

static struct sl_verdict judge(struct crew *crew, const int *order, int count, struct sl_job **job,
                               struct sl_verdicts *verdicts)
{
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER,
                                            .stall_ns = 10 * (int64_t)SECOND};

    *job = sl_job_new();
    assert_non_null(*job);
    for (int i = 0; i < count; i++)
        assert_int_equal(sl_page_take(*job, &crew->pages[order[i]], NULL), 0);
    assert_int_equal(sl_job_seal(*job), 0);
    assert_int_equal(sl_hang_find(*job, &options, verdicts), 0);
    assert_int_equal(verdicts->count, 1);
    return verdicts->list[0];
}

static void expect_of(struct crew *crew, const int *order, int count, enum sl_verdict_class cls,
                      uint32_t rank)
{
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job;
    struct sl_verdict verdict = judge(crew, order, count, &job, &verdicts);

    assert_int_equal(verdict.cls, cls);
    if (rank != SL_JOB_NONE)
        assert_int_equal(verdict.accused.a, rank);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

/* In whatever order the pages come. */
static void expect(struct crew *crew, enum sl_verdict_class cls, uint32_t rank)
{
    static const int forward[] = {0, 1, 2, 3}, other[] = {3, 1, 0, 2};

    expect_of(crew, forward, RANKS, cls, rank);
    expect_of(crew, other, RANKS, cls, rank);
    free(crew);
}

static void who_is_idle_together_does_not_hang(void **state)
{
    (void)state;
    expect(make(), SL_VERDICT_NOT_HUNG, SL_JOB_NONE);
}

static void who_has_not_called_is_named(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++)
        if (r != 2)
            wait_in(crew, r, "allreduce");
    expect(crew, SL_VERDICT_HOST_STALLED, 2);
}

static void who_is_stopped_inside_a_call_is_named(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++)
        wait_in(crew, r, "allreduce");
    crew->ops[1][0].updated_ns = crew->comms[1][0].updated_ns = NOW - 8 * SECOND;
    expect(crew, SL_VERDICT_HOST_STALLED, 1);
}

/* Its page says that it began the call, and lists nothing that it waits for. */
static void who_began_and_does_not_wait_is_named(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++)
        if (r != 3)
            wait_in(crew, r, "allreduce");
    crew->comms[3][0].begun[0] = 11;
    crew->comms[3][0].updated_ns = NOW - 30 * SECOND;
    expect(crew, SL_VERDICT_HOST_STALLED, 3);
}

static void a_progress_thread_looks_after_it(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++)
        wait_in(crew, r, "allreduce");
    crew->comms[1][0].updated_ns = crew->ops[1][0].updated_ns = NOW - 8 * SECOND;
    crew->comms[1][0].flags = SL_STATE_THREAD;
    expect(crew, SL_VERDICT_COMM_STUCK, SL_JOB_NONE);
}

static void who_died_is_named_by_those_that_failed(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++) {
        if (r == 2)
            continue;
        crew->comms[r][0].begun[0] = crew->comms[r][0].ended[0] = 11;
        crew->comms[r][0].flags = SL_STATE_BROKEN;
    }
    crew->pages[2].life = SL_PAGE_DEAD;
    expect(crew, SL_VERDICT_DEAD, 2);
}

static void who_died_is_named_when_nobody_is_left(void **state)
{
    static const int order[] = {2};
    struct crew *crew = make();

    (void)state;
    crew->pages[2].life = SL_PAGE_DEAD;
    expect_of(crew, order, 1, SL_VERDICT_DEAD, 2);
    crew->pages[2].self.flags = SL_STATE_ENDED;
    expect_of(crew, order, 1, SL_VERDICT_NOT_HUNG, SL_JOB_NONE);
    free(crew);
}

static void other_calls_are_a_mismatch(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++) {
        crew->comms[r][0].begun[0] = crew->comms[r][0].ended[0] = 11;
        crew->comms[r][0].flags = SL_STATE_BROKEN;
        crew->comms[r][0].disputed = 11;
    }
    crew->comms[1][0].last = shape_of("broadcast");
    expect(crew, SL_VERDICT_MISMATCH, 1);
}

static void whose_page_is_missing_is_asked_for(void **state)
{
    static const int order[] = {3, 0, 1};
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++)
        wait_in(crew, r, "allreduce");
    expect_of(crew, order, 3, SL_VERDICT_DEAD, 2);
    free(crew);
}

/* ---- members, messages, paths ---- */

static void places_become_ranks(void **state)
{
    static const int order[] = {2, 3};
    struct crew *crew = make();
    struct sl_job *job = sl_job_new();

    (void)state;
    for (int r = 2; r < RANKS; r++) { /* in reverse order */
        crew->comms[r][1] = crew->comms[r][0];
        crew->comms[r][1].number = 2;
        crew->comms[r][1].id = 0xdef;
        crew->comms[r][1].rank = (uint32_t)(3 - r);
        crew->comms[r][1].size = 2;
        crew->pages[r].comm_count = 2;
    }
    crew->pages[2].op_count = 1;
    crew->ops[2][0] =
        (struct sl_state_op){.comm = 2, .root = 0, .since_ns = SECOND, .coll = "send"};
    crew->pages[2].path_count = 1;
    crew->paths[2] = (struct sl_state_path){.comm = 2,
                                            .peer = 0,
                                            .sent_bytes = 5000,
                                            .sent_messages = 7,
                                            .resent = 2,
                                            .name = "mlx5_3:1 > 192.0.2.7"};
    crew->paths[2].histogram[11] = 4;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sl_page_take(job, &crew->pages[order[i]], NULL), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->comm_count, 2);
    assert_int_equal(job->comms[1].member_count, 2);
    assert_int_equal(job->comms[1].members[0], 3);
    assert_int_equal(job->comms[1].members[1], 2);
    assert_int_equal(job->edge_count, 1);
    assert_int_equal(job->edges[0].src, 2);
    assert_int_equal(job->edges[0].dst, 3);
    assert_int_equal(job->edges[0].lost, 2);
    assert_string_equal(sl_job_string(job, job->edges[0].path), "mlx5_3:1");
    assert_true(job->edges[0].wait_s[SL_JOB_WAIT_WIRE] > 4e-6 &&
                job->edges[0].wait_s[SL_JOB_WAIT_WIRE] < 8.2e-6);
    for (size_t i = 0; i < job->op_count; i++)
        if (job->ops[i].kind == SL_JOB_SEND)
            assert_int_equal(job->ops[i].peer, 3);
    sl_job_free(job);
    free(crew);
}

static void of_two_looks_the_difference_counts(void **state)
{
    struct crew *crew = make(), *before = make();
    struct sl_job *job = sl_job_new();

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct crew *it = i == 0 ? before : crew;

        it->pages[0].path_count = 1;
        it->paths[0] = (struct sl_state_path){.comm = 1,
                                              .peer = 1,
                                              .sent_bytes = i == 0 ? 400 : 1000,
                                              .sent_messages = i == 0 ? 4 : 5,
                                              .name = "lo"};
    }
    assert_int_equal(sl_page_take(job, &crew->pages[0], &before->pages[0]), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->edge_count, 1);
    assert_int_equal(job->edges[0].bytes, 600);
    assert_int_equal(job->edges[0].messages, 1);
    sl_job_free(job);
    free(crew);
    free(before);
}

static void a_rank_is_one_process(void **state)
{
    struct crew *crew = make();
    struct sl_job *job = sl_job_new();

    (void)state;
    crew->pages[1].self.rank = 0;
    assert_int_equal(sl_page_take(job, &crew->pages[0], NULL), 0);
    assert_int_equal(sl_page_take(job, &crew->pages[1], NULL), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "two processes say that they are rank 0"));
    crew->pages[2].self.rank = -1;
    assert_int_equal(sl_page_take(job, &crew->pages[2], NULL), -EBADMSG);
    sl_job_free(job);
    free(crew);
}

static void a_place_is_one_rank(void **state)
{
    struct crew *crew = make();
    struct sl_job *job = sl_job_new();

    (void)state;
    crew->comms[1][0].rank = 0;
    assert_int_equal(sl_page_take(job, &crew->pages[0], NULL), 0);
    assert_int_equal(sl_page_take(job, &crew->pages[1], NULL), 0);
    assert_int_equal(sl_job_seal(job), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "do not agree on the members"));
    sl_job_free(job);
    free(crew);
}

/* ---- JSON ---- */

static void an_agents_answer_is_read(void **state)
{
    static const char answer[] =
        "{\"version\":1,\"host\":\"n1\",\"time\":\"2026-11-26T10:00:30.500Z\",\"processes\":[],"
        "\"ranks\":[{\"pid\":7,\"rank\":0,\"size\":2,\"job\":\"j\",\"state\":\"S\","
        "\"communicators\":[{\"id\":\"abc\",\"rank\":0,\"size\":2,\"collectives\":11,"
        "\"collectives_ended\":10,\"updated_seconds\":0.010}],"
        "\"waits\":{\"communicator\":\"abc\",\"operation\":\"allreduce\",\"number\":11,"
        "\"elements\":5,\"type\":\"f32\",\"for_seconds\":20.0,\"updated_seconds\":0.010}},"
        "{\"pid\":8,\"rank\":1,\"size\":2,\"job\":\"j\",\"state\":\"T\",\"communicators\":"
        "[{\"id\":\"abc\",\"rank\":1,\"size\":2,\"collectives\":10,\"collectives_ended\":10}]}]}";
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER,
                                            .stall_ns = 10 * (int64_t)SECOND};
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(sl_read_bytes(job, "n1.json", answer, strlen(answer)), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->now_ns, 1795687230500000000);
    assert_int_equal(sl_hang_find(job, &options, &verdicts), 0);
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.list[0].cls, SL_VERDICT_HOST_STALLED);
    assert_int_equal(verdicts.list[0].accused.a, 1);
    assert_int_equal(verdicts.list[0].since_ns, 1795687210500000000);
    assert_non_null(strstr(verdicts.list[0].evidence[0], "is stopped"));
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_idle_together_does_not_hang),
        cmocka_unit_test(who_has_not_called_is_named),
        cmocka_unit_test(who_is_stopped_inside_a_call_is_named),
        cmocka_unit_test(who_began_and_does_not_wait_is_named),
        cmocka_unit_test(a_progress_thread_looks_after_it),
        cmocka_unit_test(who_died_is_named_by_those_that_failed),
        cmocka_unit_test(who_died_is_named_when_nobody_is_left),
        cmocka_unit_test(other_calls_are_a_mismatch),
        cmocka_unit_test(whose_page_is_missing_is_asked_for),
        cmocka_unit_test(places_become_ranks),
        cmocka_unit_test(of_two_looks_the_difference_counts),
        cmocka_unit_test(a_rank_is_one_process),
        cmocka_unit_test(a_place_is_one_rank),
        cmocka_unit_test(an_agents_answer_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
