/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to /v1/calls: what is kept of them, what is refused, and that who is slow is found with
 * them whatever the clocks of the hosts say. */
#include "core/err.h"
#include "monitor/diagnosis/slow.h"
#include "monitor/read/calls.h"

#include <errno.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MS UINT64_C(1000000)
#define NOW (100000 * MS) /* CLOCK_MONOTONIC at the answer */
#define WALL (UINT64_C(1795687230) * 1000 * MS)

#define COLUMNS                                                                                    \
    "\"columns\":[\"number\",\"communicator\",\"seq\",\"peer\",\"bytes\",\"issued_ns\","           \
    "\"ended_ns\",\"operation\"]"
#define HEAD "{\"version\":1,\"host\":\"n1\",\"monotonic_ns\":1000,\"realtime_ns\":5000," COLUMNS
#define COMM "{\"number\":4,\"id\":\"abc\",\"rank\":0,\"size\":2}"
#define PROCESS                                                                                    \
    "\"pid\":7,\"page\":0,\"start_ticks\":9,\"job\":\"j\",\"rank\":0,\"size\":2,"                  \
    "\"communicators\":[" COMM "]"
#define CALL "[3,4,5,-1,16,100,200,\"all_reduce\"]"
#define GOOD HEAD ",\"ranks\":[{" PROCESS ",\"calls\":[" CALL "]}],\"next\":900,\"more\":false}"

static int take(struct sl_calls *calls, const char *text)
{
    struct json_object *answer = json_tokener_parse(text);
    int err = sl_calls_take(calls, answer);

    json_object_put(answer);
    return err;
}

static void an_answer_is_kept(void **state)
{
    struct sl_calls calls = {.list = NULL};

    (void)state;
    assert_int_equal(take(&calls, GOOD), 0);
    assert_int_equal(calls.count, 1);
    assert_int_equal(calls.next, 900);
    assert_int_equal(calls.wall_ns, 4000);
    assert_int_equal(calls.list[0].self.pid, 7);
    assert_string_equal(calls.list[0].self.host, "n1");
    assert_int_equal(calls.list[0].comms[0].id, 0xabc);
    assert_int_equal(calls.list[0].call_count, 1);
    assert_int_equal(calls.list[0].calls[0].turn, 6);
    assert_int_equal(calls.list[0].calls[0].issued_ns, 100);
    assert_int_equal(calls.list[0].calls[0].peer, -1);
    assert_string_equal(calls.list[0].calls[0].coll, "all_reduce");
    sl_calls_free(&calls);
}

/* What the good answer is, and a part of it as it must not be. */
static void whatever_is_not_right_is_refused(void **state)
{
    static const struct {
        const char *part, *instead;
    } rows[] = {
        {"\"version\":1", "\"version\":2"},
        {"\"host\":\"n1\"", "\"host\":3"},
        {"\"monotonic_ns\":1000", "\"monotonic_ns\":-1000"},
        {"\"realtime_ns\":5000", "\"realtime_ns\":5000.5"},
        {"\"seq\",\"peer\"", "\"peer\",\"seq\""},
        {"\"ended_ns\",\"operation\"", "\"ended_ns\""},
        {"\"next\":900", "\"next\":1001"},
        {"\"ranks\":[", "\"ranks\":[7,"},
        {"\"pid\":7", "\"pid\":0"},
        {"\"pid\":7", "\"pid\":4294967303"},
        {"\"start_ticks\":9,", ""},
        {"\"page\":0", "\"page\":\"0\""},
        {"\"job\":\"j\"", "\"job\":\"j\\u0000k\""},
        {"\"rank\":0,\"size\":2,\"com", "\"rank\":-2,\"size\":2,\"com"},
        {"\"number\":4", "\"number\":0"},
        {"\"id\":\"abc\"", "\"id\":\"0xabc\""},
        {"\"id\":\"abc\"", "\"id\":\"00000000000000abc\""},
        {"\"rank\":0,\"size\":2}", "\"rank\":2,\"size\":2}"},
        {COMM, COMM "," COMM},
        {"[3,", "[0,"},
        {"[3,4,", "[3,5,"},
        {"5,-1,", "4294967296,-1,"},
        {"5,-1,", "5,-2,"},
        {"5,-1,", "5,1048576,"},
        {"100,200", "201,200"},
        {"100,200", "100,1001"},
        {"\"all_reduce\"", "\"all reduce\""},
        {"\"all_reduce\"", "\"\""},
        {"\"all_reduce\"", "\"a_name_of_sixteen\""},
        {",\"all_reduce\"", ""},
        {CALL, "{}"},
        {"\"calls\":[" CALL "]", "\"calls\":{}"},
        {"]}],\"next\"", "]},{" PROCESS ",\"calls\":[]}],\"next\""},
    };
    struct sl_calls calls = {.list = NULL};
    char text[2048];

    (void)state;
    assert_int_equal(take(&calls, GOOD), 0);
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++) {
        const char *at = strstr(GOOD, rows[i].part);

        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOOD), GOOD, rows[i].instead,
                 at + strlen(rows[i].part));
        if (take(&calls, text) != -EBADMSG)
            fail_msg("%s is taken", text);
        assert_int_equal(calls.list[0].call_count, 1); /* all is as it was */
    }
    assert_int_equal(sl_calls_take(&calls, NULL), -EBADMSG);
    sl_calls_free(&calls);
}

/* More columns, more members: those that are known stay where they are. */
static void what_is_added_later_is_passed_over(void **state)
{
    struct sl_calls calls = {.list = NULL};

    (void)state;
    assert_int_equal(
        take(&calls,
             "{\"version\":1,\"host\":\"n1\",\"monotonic_ns\":1000,\"realtime_ns\":5000,\"x\":[],"
             "\"columns\":[\"number\",\"communicator\",\"seq\",\"peer\",\"bytes\",\"issued_ns\","
             "\"ended_ns\",\"operation\",\"color\"],\"ranks\":[{" PROCESS
             ",\"y\":1,\"calls\":[[3,4,5,1,16,100,200,\"send\",\"red\"]]}],\"next\":1}"),
        0);
    assert_int_equal(calls.list[0].calls[0].peer, 1);
    sl_calls_free(&calls);
}

/* Calls first to last of one process, each 1 ms after the one before. */
static int add(struct sl_calls *calls, int pid, unsigned first, unsigned last)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    int err;

    assert_non_null(out);
    fprintf(out,
            "{\"version\":1,\"host\":\"n1\",\"monotonic_ns\":%llu,\"realtime_ns\":%llu," COLUMNS
            ",\"ranks\":[{\"pid\":%d,\"page\":0,\"start_ticks\":9,\"job\":\"\",\"rank\":0,"
            "\"size\":2,\"communicators\":[" COMM "],\"calls\":[",
            (unsigned long long)NOW, (unsigned long long)WALL, pid);
    for (unsigned i = first; i <= last; i++)
        fprintf(out, "%s[%u,4,%u,-1,4,%llu,%llu,\"barrier\"]", i == first ? "" : ",", i, i,
                (unsigned long long)(i * MS), (unsigned long long)((i + 1) * MS));
    fputs("]}],\"next\":5}", out);
    fclose(out);
    err = take(calls, text);
    free(text);
    return err;
}

static void answers_are_put_together(void **state)
{
    struct sl_calls calls = {.list = NULL};

    (void)state;
    assert_int_equal(add(&calls, 7, 1, 400), 0);
    assert_int_equal(add(&calls, 7, 390, 700), 0); /* some come twice */
    assert_int_equal(calls.list[0].call_count, SL_CALLS_EACH);
    for (unsigned i = 0; i < SL_CALLS_EACH; i++)
        assert_int_equal(calls.list[0].calls[i].turn, 2 * (700 - SL_CALLS_EACH + 1 + i));
    assert_int_equal(add(&calls, 7, 701, 700), 0); /* none is new */
    assert_int_equal(calls.list[0].call_count, SL_CALLS_EACH);
    assert_int_equal(add(&calls, 8, 1, 3), 0); /* another process: the one before has ended */
    assert_int_equal(calls.count, 1);
    assert_int_equal(calls.list[0].call_count, 3);
    sl_calls_free(&calls);
}

/* ---- who is slow, on two hosts whose clocks have nothing in common ---- */

#define RANKS 4
#define STEPS 250

/* Of rank r on host r / 2. Steps of 10 ms: it computes own_us of them, and all end an allreduce of
 * all together, and one of each half. */
static void play(struct sl_calls *calls, int host, const uint64_t *own_us, uint64_t mono_ns,
                 uint64_t wall_ns)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    fprintf(out,
            "{\"version\":1,\"host\":\"n%d\",\"monotonic_ns\":%llu,\"realtime_ns\":%llu," COLUMNS
            ",\"ranks\":[",
            host, (unsigned long long)mono_ns, (unsigned long long)wall_ns);
    for (int r = 2 * host; r < 2 * host + 2; r++) {
        fprintf(out,
                "%s{\"pid\":%d,\"page\":0,\"start_ticks\":9,\"job\":\"\",\"rank\":%d,\"size\":4,"
                "\"communicators\":[{\"number\":2,\"id\":\"abc\",\"rank\":%d,\"size\":4},"
                "{\"number\":5,\"id\":\"f%d\",\"rank\":%d,\"size\":2}],\"calls\":[",
                r > 2 * host ? "," : "", 100 + r, r, r, host, r % 2);
        for (unsigned i = 0; i < STEPS; i++) {
            uint64_t begin = mono_ns - (STEPS - i) * 10 * MS;
            uint64_t noise = (i * 7919 + (unsigned)r * 104729) % 97;

            fprintf(out, "%s[%u,2,%u,-1,4,%llu,%llu,\"allreduce\"]", i > 0 ? "," : "", 2 * i + 1,
                    i + 1, (unsigned long long)(begin + (own_us[r] + noise) * 1000),
                    (unsigned long long)(begin + 9 * MS));
            fprintf(out, ",[%u,5,%u,-1,8,%llu,%llu,\"allreduce\"]", 2 * i + 2, i + 1,
                    (unsigned long long)(begin + 9 * MS + 1000),
                    (unsigned long long)(begin + 10 * MS));
        }
        fputs("]}", out);
    }
    fputs("],\"next\":5}", out);
    fclose(out);
    assert_int_equal(take(calls, text), 0);
    free(text);
}

static void take_rank(struct sl_job *job, const struct sl_calls *calls, int r, uint64_t wall_ns)
{
    char text[1024];
    struct json_object *rank;
    struct sl_page page;

    snprintf(text, sizeof(text),
             "{\"pid\":%d,\"start_ticks\":9,\"rank\":%d,\"size\":4,\"job\":\"\",\"communicators\":"
             "[{\"id\":\"abc\",\"rank\":%d,\"size\":4,\"collectives\":%d,\"collectives_ended\":%d,"
             "\"made_seconds\":60.0},{\"id\":\"f%d\",\"rank\":%d,\"size\":2,\"collectives\":%d,"
             "\"collectives_ended\":%d,\"made_seconds\":59.0}],\"waits\":{\"communicator\":\"abc\","
             "\"operation\":\"allreduce\",\"number\":%d,\"elements\":1,\"type\":\"f32\","
             "\"for_seconds\":0.0005}}",
             100 + r, r, r, STEPS + 2, STEPS + 1, r / 2, r % 2, STEPS + 1, STEPS + 1, STEPS + 2);
    rank = json_tokener_parse(text);
    snprintf(text, sizeof(text), "n%d", r / 2);
    assert_int_equal(sl_page_of_agent(rank, text, (int64_t)wall_ns, &page), 0);
    json_object_put(rank);
    assert_int_equal(sl_calls_give(calls, &page), 0);
    assert_int_equal(page.call_count, 2 * STEPS);
    assert_int_equal(sl_page_take(job, &page, NULL), 0);
    sl_page_free(&page);
}

static void expect(const uint64_t *own_us, uint32_t slow)
{
    struct sl_slow_options options = SL_SLOW_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job = sl_job_new();

    for (int host = 0; host < 2; host++) {
        struct sl_calls calls = {.list = NULL};
        uint64_t wall_ns = WALL + (uint64_t)host * 7000 * MS; /* seven seconds apart */

        play(&calls, host, own_us, NOW + (uint64_t)host * 12345678901, wall_ns);
        for (int r = 2 * host; r < 2 * host + 2; r++)
            take_rank(job, &calls, r, wall_ns);
        sl_calls_free(&calls);
    }
    options.step_least_s = 0.25;
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(sl_slow_find(job, &options, &verdicts), 0);
    assert_int_equal(verdicts.count, slow == SL_JOB_NONE ? 0 : 1);
    if (slow != SL_JOB_NONE)
        assert_int_equal(verdicts.list[0].accused.a, slow);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

static void who_is_slow_is_found_whatever_the_clocks_say(void **state)
{
    static const uint64_t alike[RANKS] = {4000, 4000, 4000, 4000}, one[] = {4000, 4000, 8000, 4000};

    (void)state;
    expect(alike, SL_JOB_NONE);
    expect(one, 2);
}

/* Another process with that number, or of another begin: its calls are no other's. */
static void calls_are_of_their_own_process_alone(void **state)
{
    static const char *const others[] = {
        "{\"pid\":7,\"start_ticks\":10,\"rank\":0,\"communicators\":[" COMM "]}",
        "{\"pid\":8,\"start_ticks\":9,\"rank\":0,\"communicators\":[" COMM "]}",
        "{\"pid\":7,\"start_ticks\":9,\"rank\":0,\"communicators\":[{\"id\":\"abd\",\"rank\":0,"
        "\"size\":2}]}",
        "{\"pid\":7,\"start_ticks\":9,\"rank\":0,\"communicators\":[" COMM "]}"};
    struct sl_calls calls = {.list = NULL};

    (void)state;
    assert_int_equal(take(&calls, GOOD), 0);
    for (unsigned i = 0; i < SL_ARRAY_LEN(others); i++) {
        struct json_object *rank = json_tokener_parse(others[i]);
        struct sl_page page;

        assert_int_equal(sl_page_of_agent(rank, "n1", 90000, &page), 0);
        assert_int_equal(sl_calls_give(&calls, &page), 0);
        assert_int_equal(page.call_count, i == 3);
        if (i == 3) {
            assert_int_equal(page.calls[0].comm, page.comms[0].number);
            assert_int_equal(page.calls[0].ended_ns, 4200); /* since 1970 */
        }
        sl_page_free(&page);
        json_object_put(rank);
    }
    sl_calls_free(&calls);
}

/* One that is gone does not give its number to the next: what earlier looks told stays right. */
static void communicators_keep_their_numbers(void **state)
{
    static const struct {
        const char *comms;
        uint64_t first, second;
    } rows[] = {
        {"{\"number\":3,\"id\":\"abd\"},{\"number\":4,\"id\":\"abc\"}", 3, 4},
        {"{\"id\":\"abd\"},{\"id\":\"abc\"}", 1, 2},                           /* an older agent */
        {"{\"number\":3,\"id\":\"abd\"},{\"number\":3,\"id\":\"abc\"}", 1, 2}, /* two pages */
    };

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++) {
        char text[256];
        struct json_object *rank;
        struct sl_page page;

        snprintf(text, sizeof(text), "{\"pid\":7,\"rank\":0,\"communicators\":[%s]}",
                 rows[i].comms);
        rank = json_tokener_parse(text);
        assert_int_equal(sl_page_of_agent(rank, "n1", 90000, &page), 0);
        assert_int_equal(page.comms[0].number, rows[i].first);
        assert_int_equal(page.comms[1].number, rows[i].second);
        sl_page_free(&page);
        json_object_put(rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_kept),
        cmocka_unit_test(whatever_is_not_right_is_refused),
        cmocka_unit_test(what_is_added_later_is_passed_over),
        cmocka_unit_test(answers_are_put_together),
        cmocka_unit_test(who_is_slow_is_found_whatever_the_clocks_say),
        cmocka_unit_test(calls_are_of_their_own_process_alone),
        cmocka_unit_test(communicators_keep_their_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
