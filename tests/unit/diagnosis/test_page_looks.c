/* SPDX-License-Identifier: Apache-2.0 */
/* Two looks at the same page: calls that its ring has forgotten, and the quickest of messages. */
#include "monitor/read/page.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
#define WINDOW ((uint64_t)SL_STATE_WINDOW_NS)

/* Calls first to last, by number, a second after each other; from the middle on, as in a ring. */
static struct sl_page calls_of(unsigned first, unsigned last)
{
    struct sl_page page = {.call_count = last - first + 1};

    page.calls = calloc(page.call_count, sizeof(*page.calls));
    assert_non_null(page.calls);
    for (unsigned i = 0; i < page.call_count; i++) {
        unsigned number = first + (i + page.call_count / 2) % page.call_count;

        page.calls[i] = (struct sl_state_call){
            .turn = 2 * (uint64_t)number, .ended_ns = number * SECOND, .seq = number};
    }
    return page;
}

/* What there is after a look at calls first..last, and before it at 1..until. */
static void expect(unsigned until, unsigned first, unsigned last, uint64_t since_ns, unsigned most,
                   unsigned count, unsigned begin)
{
    struct sl_page before = calls_of(1, until), page = calls_of(first, last);

    assert_int_equal(sl_page_join_calls(&page, &before, since_ns, most), 0);
    assert_int_equal(page.call_count, count);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(page.calls[i].seq, begin + i);
    sl_page_free(&before);
    sl_page_free(&page);
}

static void forgotten_calls_come_back(void **state)
{
    (void)state;
    expect(10, 6, 14, 0, 100, 14, 1);
    expect(10, 11, 20, 0, 100, 20, 1); /* all of the ring is new, and nothing is missing */
}

static void only_so_many_and_so_old(void **state)
{
    (void)state;
    expect(10, 6, 14, 0, 11, 11, 4);
    expect(10, 6, 14, 3 * SECOND, 100, 12, 3);
    expect(10, 6, 14, 0, 9, 9, 6);
}

static void across_a_gap_nothing_does(void **state)
{
    (void)state;
    expect(10, 12, 20, 0, 100, 9, 12);
}

/* ---- the quickest ---- */

/* A look in a window, and what its only path says in it. */
static struct sl_page look_of(struct sl_page_comm *comm, struct sl_state_path *path,
                              uint64_t window)
{
    return (struct sl_page){.self = {.size = 2},
                            .now_ns = (int64_t)((window - 1) * WINDOW + SECOND),
                            .comms = comm,
                            .paths = path,
                            .comm_count = 1,
                            .path_count = 1};
}

/* Of three looks: in windows 98, 99 or 100, and 101. */
static const struct sl_job_edge *edge_of(struct sl_job *job, const struct sl_state_quickest *last,
                                         const struct sl_state_quickest *before,
                                         const struct sl_state_quickest *old,
                                         const struct sl_state_quickest *oldest)
{
    struct sl_page_comm comm = {.number = 1, .id = 7, .rank = 0, .size = 2, .made_ns = 1};
    struct sl_state_path path = {.comm = 1,
                                 .peer = 1,
                                 .arriving_ns = SECOND,
                                 .arriving_bytes = 10000,
                                 .arriving_messages = 100,
                                 .quickest = {*last, *before},
                                 .name = "tcp > 192.0.2.7"};
    struct sl_state_path then = path, first = path;
    struct sl_page pages[] = {look_of(&comm, &first, 98), look_of(&comm, &then, 99),
                              look_of(&comm, &path, 101)};

    first.quickest[0] = *oldest;
    then.quickest[0] = *old;
    first.quickest[1] = then.quickest[1] = (struct sl_state_quickest){0};
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sl_page_join_windows(&pages[i], i > 0 ? &pages[i - 1] : NULL), 0);
    assert_int_equal(sl_page_take(job, &pages[2], &pages[0]), 0);
    for (unsigned i = 0; i < 3; i++)
        free(pages[i].windows);
    return job->edge_count > 0 ? &job->edges[0] : NULL;
}

static void expect_edge(struct sl_state_quickest last, struct sl_state_quickest before,
                        struct sl_state_quickest old, struct sl_state_quickest oldest,
                        unsigned messages, uint64_t bytes, double seconds)
{
    struct sl_job *job = sl_job_new();
    const struct sl_job_edge *edge;

    assert_non_null(job);
    edge = edge_of(job, &last, &before, &old, &oldest);
    assert_int_equal(edge != NULL, messages > 0);
    if (edge != NULL) {
        assert_int_equal(edge->messages, messages);
        uint64_t power = 1;

        while (2 * power <= bytes)
            power *= 2;
        seconds *= (double)power / (double)bytes;
        assert_int_equal(edge->bytes, messages * power);
        assert_true(edge->wait_s[SL_JOB_WAIT_WIRE] > messages * seconds * 0.999 &&
                    edge->wait_s[SL_JOB_WAIT_WIRE] < messages * seconds * 1.001);
    }
    sl_job_free(job);
}

static const struct sl_state_quickest none = {0};

/* Windows are numbered from 1: the page is looked at in number 101. */
static void the_quickest_of_the_windows_counts(void **state)
{
    const struct sl_state_quickest slow = {4 * SECOND, 40000, 6, 101},
                                   fast = {SECOND, 40000, 5, 100},
                                   small = {SECOND / 100, 4096, 9, 100};

    (void)state;
    expect_edge(slow, fast, none, none, 11, 40000, 1);
    expect_edge(slow, small, none, none, 6, 40000, 4);
    expect_edge(small, slow, none, none, 6, 40000, 4);
}

/* Who found more of a message in the socket waited for a shorter rest of it, no quicker. */
static void rests_of_one_message_are_as_long(void **state)
{
    const struct sl_state_quickest whole = {12000000, 120000, 6, 101},
                                   half = {7000000, 70000, 6, 101};

    (void)state;
    expect_edge(whole, none, none, none, 6, 120000, 0.012);
    expect_edge(half, none, none, none, 6, 70000, 0.007);
    expect_edge(half, none, none, none, 6, 120000, 0.012);
}

static void windows_of_earlier_looks_count_once(void **state)
{
    const struct sl_state_quickest now = {4 * SECOND, 40000, 6, 101},
                                   last = {4 * SECOND, 40000, 5, 100},
                                   again = {SECOND, 40000, 3, 100}, old = {SECOND, 40000, 3, 99},
                                   oldest = {SECOND / 2, 40000, 2, 98},
                                   older = {SECOND, 40000, 3, 97};

    (void)state;
    expect_edge(now, last, old, none, 14, 40000, 1);
    expect_edge(now, last, old, oldest, 16, 40000, 0.5);
    expect_edge(now, last, again, oldest, 13, 40000, 0.5);
    expect_edge(now, last, again, none, 11, 40000, 4);
    expect_edge(now, last, older, older, 11, 40000, 4);
    expect_edge(older, none, none, none, 0, 0, 0);
}

static void expect_sent(const struct sl_page *page, const struct sl_page *before, unsigned messages,
                        uint64_t bytes)
{
    struct sl_job *job = sl_job_new();

    assert_non_null(job);
    assert_int_equal(sl_page_take(job, page, before), 0);
    assert_int_equal(job->edge_count, messages > 0);
    if (messages > 0) {
        assert_int_equal(job->edges[0].messages, messages);
        assert_int_equal(job->edges[0].bytes, bytes);
    }
    sl_job_free(job);
}

/* Over RDMA a sender sees its writes arrive: the windows are of what it sent, and its histogram,
 * with all that waited for others, does not count beside them. */
static void what_was_sent_has_its_own_windows(void **state)
{
    struct sl_page_comm comm = {.number = 1, .id = 7, .rank = 0, .size = 3, .made_ns = 1};
    struct sl_state_path paths[2] = {
        {.comm = 1,
         .peer = 1,
         .number = 3,
         .sent_messages = 1000,
         .sent_bytes = 500000,
         .quickest = {{SECOND / 2, 40000, 9, 101}, {SECOND, 40000, 4, 100}},
         .name = "hca0:1 > 192.0.2.7"},
        {.comm = 1, .peer = 2, .number = 4, .sent_messages = 50, .sent_bytes = 5000}};
    struct sl_state_path earlier, *path = &paths[0];
    struct sl_page page = look_of(&comm, paths, 101), before = look_of(&comm, &earlier, 100);
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_non_null(job);
    path->histogram[20] = 1000;
    paths[1].histogram[20] = 50;
    assert_int_equal(sl_page_take(job, &page, NULL), 0);
    assert_int_equal(job->edge_count, 1);
    assert_int_equal(job->edges[0].messages, 13);
    assert_int_equal(job->edges[0].bytes, 13 * 32768);
    assert_true(fabs(job->edges[0].wait_s[SL_JOB_WAIT_WIRE] - 6.5 * 32768 / 40000) < 0.001);
    sl_job_free(job);

    /* A path without such writes says nothing beside it: its frames waited behind them. */
    page.path_count = 2;
    expect_sent(&page, NULL, 13, 13 * 32768);
    page.path_count = 1;
    /* Of a job that is over or hangs, or has short messages alone, all of them. */
    path->quickest[0].window = 90;
    path->quickest[1].window = 89;
    expect_sent(&page, NULL, 1000, 500000);
    path->quickest[0] = path->quickest[1] = none;
    expect_sent(&page, NULL, 1000, 500000);
    earlier = *path;
    earlier.sent_messages = 900;
    earlier.sent_bytes = 450000;
    expect_sent(&page, &before, 100, 50000);
}

static void nonsense_counts_for_nothing(void **state)
{
    const struct sl_state_quickest endless = {UINT64_MAX, 40000, 6, 101},
                                   huge = {SECOND, UINT64_MAX, 6, 101},
                                   empty = {SECOND, 40000, 0, 101};

    (void)state;
    expect_edge(endless, none, none, none, 0, 0, 0);
    expect_edge(huge, none, none, none, 0, 0, 0);
    expect_edge(empty, none, none, none, 0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgotten_calls_come_back),
        cmocka_unit_test(only_so_many_and_so_old),
        cmocka_unit_test(across_a_gap_nothing_does),
        cmocka_unit_test(the_quickest_of_the_windows_counts),
        cmocka_unit_test(rests_of_one_message_are_as_long),
        cmocka_unit_test(windows_of_earlier_looks_count_once),
        cmocka_unit_test(what_was_sent_has_its_own_windows),
        cmocka_unit_test(nonsense_counts_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
