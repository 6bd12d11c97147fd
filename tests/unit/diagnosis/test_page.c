/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of Sluice as sources: pages that say what four ranks called become a job, and the rules
 * accuse who has to be. */
#include "core/err.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/diagnosis/slow.h"
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

/* Ranks 0 and 3 have given the 11th up, and rank 1 is not there yet: of their own ways out. */
static void who_comes_to_nothing_more_after_a_death_is_not_accused(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r += 3) {
        crew->comms[r][0].begun[0] = crew->comms[r][0].ended[0] = 11;
        crew->comms[r][0].flags = SL_STATE_BROKEN;
    }
    crew->pages[2].life = SL_PAGE_DEAD;
    expect(crew, SL_VERDICT_DEAD, 2);
}

/* Ranks 1 and 2 have not called it 20 s after: the death alone is no reason any more. */
static void who_has_not_called_for_long_is_named_beside_a_death(void **state)
{
    static const int order[] = {0, 1, 2, 3};
    struct sl_verdicts verdicts = {.list = NULL};
    struct crew *crew = make();
    struct sl_job *job = sl_job_new();
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER,
                                            .stall_ns = 10 * (int64_t)SECOND};

    (void)state;
    for (int r = 0; r < RANKS; r += 3)
        wait_in(crew, r, "allreduce");
    crew->pages[2].life = SL_PAGE_DEAD;
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(sl_page_take(job, &crew->pages[order[i]], NULL), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(sl_hang_find(job, &options, &verdicts), 0);
    assert_int_equal(verdicts.count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(verdicts.list[i].accused.a,
                         verdicts.list[i].cls == SL_VERDICT_DEAD ? 2 : 1);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    free(crew);
}

/* Rank 0 has given up what the others are in for 5 s: who of them does not go on is not known. */
static void what_is_pending_for_less_than_a_stall_accuses_nobody(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++) {
        wait_in(crew, r, "allreduce");
        crew->ops[r][0].since_ns = NOW - 5 * SECOND;
    }
    crew->pages[0].op_count = 0;
    crew->comms[0][0].ended[0] = 11;
    crew->comms[0][0].flags = SL_STATE_BROKEN;
    expect(crew, SL_VERDICT_NOT_HUNG, SL_JOB_NONE);
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

/* Rank 1 is stopped in the 11th with bytes that ranks 2 and 3 lack; rank 0 has ended it. */
static void who_waits_for_a_stopped_rank_is_not_stuck(void **state)
{
    struct crew *crew = make();

    (void)state;
    for (int r = 0; r < RANKS; r++)
        wait_in(crew, r, "allreduce");
    crew->pages[0].op_count = 0;
    crew->comms[0][0].ended[0] = 11;
    snprintf(crew->pages[1].halt, sizeof(crew->pages[1].halt), "is stopped by a signal");
    expect(crew, SL_VERDICT_HOST_STALLED, 1);
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

/* What a receiver saw is of the way from the peer to it. */
static void what_came_is_the_peers_edge(void **state)
{
    struct crew *crew = make();
    struct sl_job *job = sl_job_new();

    (void)state;
    crew->pages[0].path_count = 1;
    crew->paths[0] = (struct sl_state_path){.comm = 1,
                                            .peer = 3,
                                            .arriving_ns = 2 * SECOND,
                                            .arriving_bytes = 9000,
                                            .arriving_messages = 3,
                                            .name = "tcp > 192.0.2.7"};
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(sl_page_take(job, &crew->pages[r], NULL), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->edge_count, 1);
    assert_int_equal(job->edges[0].src, 3);
    assert_int_equal(job->edges[0].dst, 0);
    assert_int_equal(job->edges[0].bytes, 9000);
    assert_int_equal(job->edges[0].messages, 3);
    assert_true(job->edges[0].wait_s[SL_JOB_WAIT_WIRE] == 2.0);
    sl_job_free(job);
    free(crew);
}

/* ---- calls that are over ---- */

#define CALLS 400

/* Steps of 10 ms: rank r computes own[r] of them, and all end the call together. */
static void add_calls(struct crew *crew, const uint64_t *own_us, struct sl_state_call *calls)
{
    for (int r = 0; r < RANKS; r++) {
        struct sl_page *page = &crew->pages[r];

        crew->comms[r][0].begun[0] = crew->comms[r][0].ended[0] = CALLS + 1;
        page->calls = &calls[r * CALLS];
        page->call_count = CALLS;
        for (int i = 0; i < CALLS; i++) {
            uint64_t begin = NOW - (uint64_t)(CALLS - i) * 10000000;
            uint64_t noise = (uint64_t)((i * 7919 + r * 104729) % 97);

            page->calls[i] = (struct sl_state_call){.comm = 1,
                                                    .issued_ns = begin + (own_us[r] + noise) * 1000,
                                                    .ended_ns = begin + 10000000,
                                                    .bytes = 400,
                                                    .seq = (uint32_t)i + 1,
                                                    .peer = -1,
                                                    .coll = "all_reduce"};
        }
    }
}

static struct sl_verdicts find_slow(struct crew *crew, struct sl_job *job)
{
    struct sl_slow_options options = SL_SLOW_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};

    options.step_least_s = 0.25;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(sl_page_take(job, &crew->pages[r], NULL), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(sl_slow_find(job, &options, &verdicts), 0);
    return verdicts;
}

static void who_comes_late_to_calls_is_slow(void **state)
{
    static const uint64_t slow_us[RANKS] = {4000, 4000, 8000, 4000},
                          alike_us[RANKS] = {4000, 4000, 4000, 4000};
    struct sl_state_call *calls = calloc((size_t)RANKS * CALLS, sizeof(*calls));

    (void)state;
    assert_non_null(calls);
    for (int i = 0; i < 2; i++) {
        struct crew *crew = make();
        struct sl_job *job = sl_job_new();
        struct sl_verdicts verdicts;

        add_calls(crew, i == 0 ? slow_us : alike_us, calls);
        verdicts = find_slow(crew, job);
        assert_int_equal(verdicts.count, i == 0 ? 1 : 0);
        if (i == 0) {
            assert_int_equal(verdicts.list[0].cls, SL_VERDICT_SLOW_RANK);
            assert_int_equal(verdicts.list[0].accused.a, 2);
        }
        sl_verdicts_free(&verdicts);
        sl_job_free(job);
        free(crew);
    }
    free(calls);
}

/* A call that makes no sense is none. */
static void calls_that_cannot_be_are_left_out(void **state)
{
    struct sl_state_call calls[] = {
        {.comm = 1, .issued_ns = 9, .ended_ns = 8, .seq = 1, .peer = -1, .coll = "barrier"},
        {.comm = 1, .issued_ns = 8, .ended_ns = 9, .seq = 0, .peer = -1, .coll = "barrier"},
        {.comm = 1, .issued_ns = 8, .ended_ns = 9, .seq = 2, .peer = 3, .coll = "barrier"},
        {.comm = 1, .issued_ns = 8, .ended_ns = 9, .seq = 2, .peer = -1, .coll = "send"},
        {.comm = 1, .issued_ns = 8, .ended_ns = 9, .seq = 10, .peer = -1, .coll = "barrier"},
        {.comm = 7, .issued_ns = 8, .ended_ns = 9, .seq = 2, .peer = -1, .coll = "barrier"},
        {.comm = 1, .issued_ns = 8, .ended_ns = 9, .seq = 2, .peer = -1, .coll = "barrier"},
    };
    struct crew *crew = make();
    struct sl_job *job = sl_job_new();
    unsigned barriers = 0;

    (void)state;
    crew->pages[0].calls = calls;
    crew->pages[0].call_count = SL_ARRAY_LEN(calls);
    assert_int_equal(sl_page_take(job, &crew->pages[0], NULL), 0);
    assert_int_equal(sl_job_seal(job), 0);
    for (size_t i = 0; i < job->op_count; i++)
        barriers += job->ops[i].kind == SL_JOB_BARRIER;
    assert_int_equal(barriers, 1);
    sl_job_free(job);
    free(crew);
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

/* Both ways: how long messages were under way, and how long the rests of those that came took. */
static void paths_of_an_agents_answer_have_times(void **state)
{
    static const char answer[] =
        "{\"version\":1,\"host\":\"n1\",\"time\":\"2026-11-26T10:00:30.500Z\",\"processes\":[],"
        "\"ranks\":[{\"pid\":2000007,\"start_ticks\":9,\"rank\":0,\"size\":2,\"job\":\"j\","
        "\"communicators\":[{\"id\":\"abc\",\"rank\":0,\"size\":2}],\"paths\":["
        "{\"name\":\"mlx5_0:1 > 192.0.2.7\",\"communicator\":\"abc\",\"peer\":1,\"path\":0,"
        "\"sent_messages\":4,\"sent_bytes\":4096,\"histogram\":[0,0,0,4]},"
        "{\"name\":\"eth0 > 192.0.2.7\",\"communicator\":\"abc\",\"peer\":1,\"path\":-1,"
        "\"sent_messages\":3,\"sent_bytes\":300,\"arriving_messages\":2,\"arriving_bytes\":500,"
        "\"arriving_ns\":7000}]}]}";
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(sl_read_bytes(job, "n1.json", answer, strlen(answer)), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_string_equal(sl_job_string(job, job->ranks[0].process), "pid 2000007 on n1");
    assert_int_equal(job->edge_count, 3);
    assert_true(job->edges[0].wait_s[SL_JOB_WAIT_WIRE] > 23.9e-9 &&
                job->edges[0].wait_s[SL_JOB_WAIT_WIRE] < 24.1e-9);
    assert_true(job->edges[1].src == 0 && job->edges[1].bytes == 300);
    assert_true(job->edges[2].src == 1 && job->edges[2].dst == 0 && job->edges[2].bytes == 500);
    assert_true(job->edges[2].wait_s[SL_JOB_WAIT_WIRE] > 6.9e-6);
    sl_job_free(job);
}

/* The host's windows are at 5,000,002, whatever the time is here. */
static void windows_of_an_agents_answer_are_its_own(void **state)
{
    static const char answer[] =
        "{\"version\":1,\"host\":\"n1\",\"time\":\"2026-11-26T10:00:30.500Z\",\"processes\":[],"
        "\"ranks\":[{\"pid\":2000007,\"start_ticks\":9,\"rank\":0,\"size\":2,\"job\":\"j\","
        "\"window\":5000002,"
        "\"communicators\":[{\"id\":\"abc\",\"rank\":0,\"size\":2}],\"paths\":["
        "{\"name\":\"eth0 > 192.0.2.7\",\"communicator\":\"abc\",\"peer\":1,\"path\":-1,"
        "\"sent_messages\":3,\"sent_bytes\":300,\"arriving_messages\":200,"
        "\"arriving_bytes\":500000,\"arriving_ns\":7000000,\"quickest\":["
        "{\"window\":5000002,\"messages\":3,\"bytes\":40000,\"ns\":9000},"
        "{\"window\":4999990,\"messages\":5,\"bytes\":40000,\"ns\":1000}]}]}]}";
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(sl_read_bytes(job, "n1.json", answer, strlen(answer)), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->edge_count, 2);
    assert_int_equal(job->edges[1].messages, 3);
    assert_int_equal(job->edges[1].bytes, 3 * 32768);
    assert_true(job->edges[1].wait_s[SL_JOB_WAIT_WIRE] > 22.0e-6 &&
                job->edges[1].wait_s[SL_JOB_WAIT_WIRE] < 22.2e-6);
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
        cmocka_unit_test(who_comes_to_nothing_more_after_a_death_is_not_accused),
        cmocka_unit_test(who_has_not_called_for_long_is_named_beside_a_death),
        cmocka_unit_test(what_is_pending_for_less_than_a_stall_accuses_nobody),
        cmocka_unit_test(who_died_is_named_when_nobody_is_left),
        cmocka_unit_test(who_waits_for_a_stopped_rank_is_not_stuck),
        cmocka_unit_test(other_calls_are_a_mismatch),
        cmocka_unit_test(whose_page_is_missing_is_asked_for),
        cmocka_unit_test(places_become_ranks),
        cmocka_unit_test(of_two_looks_the_difference_counts),
        cmocka_unit_test(what_came_is_the_peers_edge),
        cmocka_unit_test(who_comes_late_to_calls_is_slow),
        cmocka_unit_test(calls_that_cannot_be_are_left_out),
        cmocka_unit_test(a_rank_is_one_process),
        cmocka_unit_test(a_place_is_one_rank),
        cmocka_unit_test(an_agents_answer_is_read),
        cmocka_unit_test(paths_of_an_agents_answer_have_times),
        cmocka_unit_test(windows_of_an_agents_answer_are_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
