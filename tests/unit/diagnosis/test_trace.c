/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of whole jobs and of one rank: what is read, and what is refused. */
#include "core/err.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int begin(void **state)
{
    *state = sl_job_new();
    return *state == NULL;
}

static int end(void **state)
{
    sl_job_free(*state);
    return 0;
}

static int read_text(struct sl_job *job, const char *text)
{
    return sl_read_bytes(job, "file", text, strlen(text));
}

/* Refused, with a sentence that names the file and has `part` in it. */
static void is_refused(const char *text, const char *part)
{
    struct sl_job *job = sl_job_new();

    assert_int_equal(read_text(job, text), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "file"));
    if (strstr(sluice_last_error(), part) == NULL)
        fail_msg("\"%s\" has no \"%s\"", sluice_last_error(), part);
    sl_job_free(job);
}

#define EVENT(name, pid, tid, ts, step)                                                            \
    "{\"ph\":\"X\",\"name\":\"" name "\",\"pid\":" pid ",\"tid\":" tid ",\"ts\":" ts               \
    ",\"dur\":1.5,\"args\":{\"step\":" step "}}"
#define NAME(what, pid, tid, name)                                                                 \
    "{\"ph\":\"M\",\"name\":\"" what "\",\"pid\":" pid ",\"tid\":" tid                             \
    ",\"args\":{\"name\":\"" name "\"}}"

/* clang-format off */
static const char timeline[] =
    " [" EVENT("forward-compute", "1", "9", "10.25", "3") ",\n"
    EVENT("forward-send", "1", "8", "12", "3") ","
    EVENT("forward-recv", "1", "7", "12", "3") ","
    EVENT("grads-reduce-scatter", "1", "7", "20", "4") ","
    NAME("thread_name", "1", "9", "PP rank 0, TP rank 0, compute") ","
    NAME("thread_name", "1", "8", "PP rank 0, TP rank 0, pp-comm") ","
    NAME("thread_name", "1", "7", "PP rank 1, TP rank 0, dp-comm") ","
    NAME("process_name", "1", "0", "DP rank [1]") "]\n";
static const char too_many[] =
    "[" EVENT("compute", "0", "9", "10", "3") ","
    NAME("thread_name", "0", "9", "PP rank 60000, TP rank 60000, x") ","
    NAME("process_name", "0", "0", "DP rank [9]") "]";
/* clang-format on */

static void a_timeline_names_its_ranks_after_its_events(void **state)
{
    struct sl_job *job = *state;

    assert_int_equal(read_text(job, timeline), 0);
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(job->op_count, 4);
    assert_int_equal(job->rank_count, 4); /* two replicas of two stages */
    assert_int_equal(job->ranks[1].replica, 1);
    assert_int_equal(job->ranks[3].stage, 1);
    assert_int_equal(job->ops[0].rank, 1);
    assert_int_equal(job->ops[0].kind, SL_JOB_COMPUTE);
    assert_int_equal(job->ops[0].step, 3);
    assert_true(job->ops[0].start_ns == 10250 && job->ops[0].end_ns == 11750);
    assert_int_equal(job->ops[1].kind, SL_JOB_SEND);
    assert_int_equal(job->ops[1].peer, 3);
    assert_int_equal(job->ops[2].kind, SL_JOB_RECV);
    assert_int_equal(job->ops[2].peer, 1);
    assert_int_equal(job->ops[1].seq, job->ops[2].seq);
    assert_int_equal(job->comms[job->ops[3].comm].member_count, 2);
    assert_true(job->ops[3].issue_ns == SL_JOB_NEVER);
}

static void bad_traces_are_refused(void **state)
{
    (void)state;
    is_refused("[" EVENT("compute", "1", "9", "10", "3") "]", "no event says which rank");
    is_refused("[" EVENT("compute", "1", "9", "1e30", "3") "]", "of no time in this age");
    is_refused("[{\"ph\":\"X\",\"name\":\"a\",\"pid\":0,\"tid\":0,\"ts\":1,\"dur\":-1}]",
               "ends before it begins");
    is_refused("[{\"ph\":\"X\",\"name\":\"a\",\"pid\":0,\"tid\":0,\"ts\":1}]", "no number");
    is_refused("[7, {\"ph\":\"X\"}]", "no event of a trace");
    is_refused(too_many, "of which few are in it");
    for (size_t len = 40; len < sizeof(timeline) - 3; len++) {
        struct sl_job *job = sl_job_new();

        assert_int_equal(sl_read_bytes(job, "file", timeline, len), -EBADMSG);
        sl_job_free(job);
    }
}

static const char kineto[] =
    "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 2, "
    "\"pg_config\": []},\n"
    "\"baseTimeNanoseconds\": 5000, \"traceEvents\": [\n"
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#7\",\"pid\":9,\"tid\":1,"
    "\"ts\":0,\"dur\":900},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,\"ts\":100,\"dur\":50},"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"relu\",\"pid\":0,\"tid\":7,\"ts\":160,\"dur\":40},"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":9,\"tid\":1,\"ts\":1,"
    "\"dur\":4},"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)\","
    "\"pid\":0,\"tid\":20,\"ts\":210,\"dur\":90,\"args\":{\"Collective name\":\"allreduce\","
    "\"In msg nelems\":1024,\"dtype\":\"BFloat16\",\"Group size\":4,\"Process Group Name\":\"0\","
    "\"Process Group Ranks\":\"[0, 1, 2, 3]\",\"Seq\":12}},"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_SendRecv(x)\",\"pid\":0,\"tid\":20,"
    "\"ts\":400,\"dur\":9,\"args\":{\"Collective name\":\"send\",\"Dst Rank\":3,"
    "\"Process Group Ranks\":\"[0, ..., 31]\",\"Group size\":32}}],\n"
    "\"traceName\": \"x.json\"}";

static void a_trace_of_kineto_is_of_one_rank(void **state)
{
    struct sl_job *job = *state;

    assert_int_equal(read_text(job, kineto), 0);
    assert_int_equal(job->op_count, 3);
    assert_int_equal(job->ops[0].rank, 2);
    assert_int_equal(job->ops[0].kind, SL_JOB_COMPUTE); /* both kernels */
    assert_int_equal(job->ops[0].step, 7);
    assert_true(job->ops[0].start_ns == 105000 && job->ops[0].end_ns == 205000);
    assert_int_equal(job->ops[1].kind, SL_JOB_ALLREDUCE);
    assert_int_equal(job->ops[1].bytes, 2048);
    assert_int_equal(job->ops[1].seq, 12);
    assert_int_equal(job->comms[job->ops[1].comm].member_count, 4);
    assert_int_equal(job->ops[2].kind, SL_JOB_SEND);
    assert_int_equal(job->ops[2].peer, 3);
    assert_int_equal(job->comms[job->ops[2].comm].member_count, 0);
    for (size_t len = 130; len < sizeof(kineto) - 1; len++) {
        struct sl_job *cut = sl_job_new();

        assert_int_equal(sl_read_bytes(cut, "file", kineto, len), -EBADMSG);
        sl_job_free(cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_timeline_names_its_ranks_after_its_events, begin, end),
        cmocka_unit_test(bad_traces_are_refused),
        cmocka_unit_test_setup_teardown(a_trace_of_kineto_is_of_one_rank, begin, end),
    };

    return cmocka_run_group_tests_name("diagnosis_trace", tests, NULL, NULL);
}
