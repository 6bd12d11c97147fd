/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of ranks, as the agent answers them: which, in what order, how many, and what a page that
 * lies does to them. */
#include "core/err.h"
#include "monitor/api_answer.h"
#include "monitor/calls.h"

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

#define START 300000
#define MS (SL_MON_S / 1000)

static struct test_page page;
static struct json_object *answer;

static int begin(void **state)
{
    tree_begin();
    bed_begin(state);
    bed.config.ranks = bed.config.sluice = SL_MON_ON;
    snprintf(bed.config.ranks_proc, sizeof(bed.config.ranks_proc), "%s/proc", tree);
    snprintf(bed.config.ranks_shm, sizeof(bed.config.ranks_shm), "%s/shm", tree);
    snprintf(bed.config.ranks_cgroups, sizeof(bed.config.ranks_cgroups), "%s/cgroup", tree);
    bed_restart();
    page_init(&page, 4711, START);
    page.comms[1] =
        (struct sl_state_comm){.turn = 2, .number = 3, .id = 0xabc, .rank = 3, .size = 8};
    return 0;
}

static int end(void **state)
{
    json_object_put(answer);
    answer = NULL;
    bed_end(state);
    tree_end();
    return 0;
}

/* The call of that number, which ended so long before now. */
static void call(unsigned number, uint64_t ago_ns)
{
    page.calls[(number - 1) % PAGE_CALLS] =
        (struct sl_state_call){.turn = 2 * number,
                               .comm = 3,
                               .issued_ns = bed.now.mono_ns - ago_ns - MS,
                               .ended_ns = bed.now.mono_ns - ago_ns,
                               .bytes = 4096,
                               .seq = number,
                               .peer = -1,
                               .coll = "all_reduce"};
}

static void put(int pid)
{
    char path[256];

    tree_process(pid, "train", 'R', START, "/");
    page.process.pid = pid;
    snprintf(path, sizeof(path), "%s/shm/sluice.%u.%d.0", tree, geteuid(), pid);
    page_write(&page, path);
}

static struct json_object *part(struct json_object *object, const char *key)
{
    struct json_object *value;

    if (!json_object_object_get_ex(object, key, &value))
        fail_msg("there is no %s in %s", key, json_object_to_json_string(object));
    return value;
}

static void ask(const char *target)
{
    const struct sl_api_asker asker = {.by = "", .refusal = ""};
    struct sl_api_request request;
    struct sl_http_answer got;

    sl_api_parse("GET", target, &request);
    assert_int_equal(sl_api_answer(bed.agent, &request, &asker, &got), 0);
    assert_int_equal(got.status, 200);
    json_object_put(answer);
    answer = json_tokener_parse(got.body);
    assert_non_null(answer);
    free(got.body);
}

static struct json_object *rank(unsigned i)
{
    return json_object_array_get_idx(part(answer, "ranks"), i);
}

static unsigned call_count(unsigned i)
{
    return (unsigned)json_object_array_length(part(rank(i), "calls"));
}

static int64_t cell(unsigned i, unsigned row, unsigned column)
{
    return json_object_get_int64(
        json_object_array_get_idx(json_object_array_get_idx(part(rank(i), "calls"), row), column));
}

static int64_t number(const char *key)
{
    return json_object_get_int64(part(answer, key));
}

static void calls_are_told_with_their_times(void **state)
{
    struct json_object *comm, *row;

    (void)state;
    call(2, 10 * MS);
    call(1, 20 * MS);
    put(4711);
    bed_second();
    ask("/v1/calls");
    assert_int_equal(json_object_array_length(part(answer, "ranks")), 1);
    assert_int_equal(json_object_get_int(part(rank(0), "pid")), 4711);
    assert_int_equal(json_object_get_int(part(rank(0), "start_ticks")), START);
    assert_int_equal(json_object_get_int(part(rank(0), "rank")), 3);
    comm = json_object_array_get_idx(part(rank(0), "communicators"), 0);
    assert_string_equal(json_object_get_string(part(comm, "id")), "abc");
    assert_int_equal(json_object_get_int(part(comm, "number")), 3);
    assert_int_equal(call_count(0), 2);
    row = json_object_array_get_idx(part(rank(0), "calls"), 0);
    assert_int_equal(json_object_array_length(row),
                     json_object_array_length(part(answer, "columns")));
    assert_int_equal(cell(0, 0, 0), 1);
    assert_int_equal(cell(0, 1, 0), 2);
    assert_int_equal(cell(0, 1, 1), 3);
    assert_int_equal(cell(0, 1, 3), -1);
    assert_int_equal(cell(0, 1, 4), 4096);
    assert_int_equal(cell(0, 1, 6) - cell(0, 1, 5), MS);
    assert_string_equal(json_object_get_string(json_object_array_get_idx(row, 7)), "all_reduce");
    assert_int_equal(number("monotonic_ns"), bed.now.mono_ns);
    assert_int_equal(number("realtime_ns"), bed.now.wall_ns);
    assert_int_equal(number("next"), bed.now.mono_ns - SL_MON_CALLS_AGAIN_NS);
    assert_false(json_object_get_boolean(part(answer, "more")));
}

static void calls_before_are_not_told_again(void **state)
{
    char target[64];

    (void)state;
    call(1, 20 * MS);
    put(4711);
    bed_second();
    ask("/v1/calls");
    snprintf(target, sizeof(target), "/v1/calls?since=%lld", (long long)number("next"));
    ask(target);
    assert_int_equal(call_count(0), 0); /* a second ago: only the last 200 ms come again */
    call(2, 20 * MS);
    put(4711);
    ask(target);
    assert_int_equal(call_count(0), 1);
    assert_int_equal(cell(0, 0, 0), 2);
}

/* Of each page its oldest, and the next answer goes on behind the first that was cut. */
static void what_is_too_much_comes_in_parts(void **state)
{
    char target[64];
    unsigned told[2] = {0}, answers = 0;
    int64_t since = 0;

    (void)state;
    for (unsigned i = 1; i <= 20; i++)
        call(i, (50 - i) * MS);
    put(4711);
    call(20, 30 * MS - 1);
    put(4712);
    bed_second();
    do {
        snprintf(target, sizeof(target), "/v1/calls?limit=8&since=%lld", (long long)since);
        ask(target);
        assert_true(number("next") > since);
        since = number("next");
        for (unsigned i = 0; i < 2; i++)
            for (unsigned k = 0; k < call_count(i); k++)
                told[i] |= 1u << (cell(i, k, 0) - 1);
        assert_true(++answers < 20);
    } while (json_object_get_boolean(part(answer, "more")));
    assert_true(answers >= 5);
    assert_int_equal(told[0], 0xfffff);
    assert_int_equal(told[1], 0xfffff);
}

/* All that ended at one time come together: what is behind a cut is never asked for again. */
static void calls_of_one_moment_are_not_parted(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 10; i++)
        call(i, 50 * MS);
    call(11, 40 * MS);
    put(4711);
    bed_second();
    ask("/v1/calls?limit=3");
    assert_int_equal(call_count(0), 10);
    assert_true(json_object_get_boolean(part(answer, "more")));
}

/* Of the future, of no communicator, that end before they begin, with a name that is none. */
static void a_page_that_lies_hides_nothing(void **state)
{
    (void)state;
    call(1, 20 * MS);
    memcpy(page.calls[0].coll, "a\"]}\033[2J\xff", 9);
    call(2, 20 * MS);
    page.calls[1].ended_ns = UINT64_MAX;
    call(3, 20 * MS);
    page.calls[2].comm = 77;
    call(4, 20 * MS);
    page.calls[3].issued_ns = page.calls[3].ended_ns + 1;
    call(5, 20 * MS);
    page.calls[4].turn |= 1; /* it is being written */
    put(4711);
    bed_second();
    ask("/v1/calls");
    assert_int_equal(call_count(0), 1);
    assert_int_equal(cell(0, 0, 0), 1);
    assert_string_equal(json_object_get_string(json_object_array_get_idx(
                            json_object_array_get_idx(part(rank(0), "calls"), 0), 7)),
                        "a_____2__e");
    assert_true(number("next") < (int64_t)bed.now.mono_ns);
}

static void since_of_another_boot_begins_anew(void **state)
{
    (void)state;
    call(1, 20 * MS);
    put(4711);
    bed_second();
    ask("/v1/calls?since=9223372036854775807");
    assert_int_equal(call_count(0), 0);
    assert_true(number("next") <= (int64_t)bed.now.mono_ns);
}

static void without_ranks_there_are_no_calls(void **state)
{
    (void)state;
    bed.config.ranks = bed.config.sluice = SL_MON_OFF;
    bed_restart();
    bed_second();
    ask("/v1/calls");
    assert_int_equal(json_object_array_length(part(answer, "ranks")), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(calls_are_told_with_their_times),  CASE(calls_before_are_not_told_again),
        CASE(what_is_too_much_comes_in_parts),  CASE(calls_of_one_moment_are_not_parted),
        CASE(a_page_that_lies_hides_nothing),   CASE(since_of_another_boot_begins_anew),
        CASE(without_ranks_there_are_no_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
