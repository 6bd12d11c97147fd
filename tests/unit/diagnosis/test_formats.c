/* SPDX-License-Identifier: Apache-2.0 */
/* Files of ranks' times: what is read of each format, and what is refused. */
#include "core/err.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <math.h>
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

/* Every beginning of a text that does not end a line is refused, and ends. */
static void beginnings_are_refused(const char *text, size_t from)
{
    for (size_t len = from; len < strlen(text) - 1; len++) {
        struct sl_job *job = sl_job_new();
        char *cut = malloc(len);

        memcpy(cut, text, len);
        if (text[len - 1] != '\n')
            assert_int_equal(sl_read_bytes(job, "file", cut, len), -EBADMSG);
        free(cut);
        sl_job_free(job);
    }
}

/* ---- mini-batches ---- */

static const char batches[] = ",worker,gpu,time,batch_time_norm\n0,0,25,1,476\n1,3,25,1,509.5\r\n";

static void times_of_mini_batches_become_samples(void **state)
{
    struct sl_job *job = *state;

    assert_int_equal(read_text(job, batches), 0);
    assert_int_equal(job->sample_count, 2);
    assert_int_equal(job->rank_count, 4);
    assert_int_equal(job->samples[1].rank, 3);
    assert_int_equal(job->samples[1].at, 1);
    assert_true(job->samples[1].value == 509.5);
    assert_string_equal(sl_job_string(job, job->samples[0].name), "batch_time");
}

static void bad_mini_batches_are_refused(void **state)
{
    (void)state;
    is_refused(",worker,time,batch_time\n0,x,1,2\n", "\"x\" is no worker's number");
    is_refused(",worker,time,batch_time\n0,1,1,nan\n", "no time of a mini-batch");
    is_refused(",worker,time,batch_time\n0,1,1\n", "has 3 fields where the header has 4");
    is_refused(",worker,time,batch_time\n0,1,1,5", "ends in the middle");
    is_refused(",worker,time,batch_time\n", "nothing follows the header");
    is_refused("worker,time,batch_time,worker\n1,1,1,1\n", "there twice");
    is_refused("worker,time,batch_time\n1048576,1,1\n", "no worker's number");
    beginnings_are_refused(batches, 35);
}

/* ---- Prometheus ---- */

static const char scrape[] =
    "# TYPE XPU_TIMER_COMMON_HANG gauge\n"
    "exposer_scrapes_total 6174\n"
    "XPU_TIMER_COMMON_HANG{ip=\"10.0.0.1\",pod_name=\"a \\\"b\\\" \\\\\",rank=\"4\"} 1\n"
    "XPU_TIMER_MM_KERNEL_AVG_LATENCY{level=\"7\", rank=\"4\", } 19.5 1700000000000\n";

static void gauges_of_xpu_timer_become_samples(void **state)
{
    struct sl_job *job = *state;

    assert_int_equal(read_text(job, scrape), 0);
    assert_int_equal(job->sample_count, 2);
    assert_string_equal(sl_job_string(job, job->samples[0].name), "XPU_TIMER_COMMON_HANG");
    assert_string_equal(sl_job_string(job, job->samples[1].name),
                        "XPU_TIMER_MM_KERNEL_AVG_LATENCY{level=7}");
    assert_true(job->samples[1].value == 19.5);
    assert_true(job->samples[1].at == 1700000000000000000);
    assert_string_equal(sl_job_string(job, job->ranks[4].host), "10.0.0.1");
    assert_string_equal(sl_job_string(job, job->ranks[4].process), "a \"b\" \\");
}

static void bad_scrapes_are_refused(void **state)
{
    (void)state;
    is_refused("XPU_TIMER_X{rank=\"4\" 1\n", "its labels do not end");
    is_refused("XPU_TIMER_X{rank=\"4} 1\n", "is no quoted text");
    is_refused("XPU_TIMER_X{rank=\"4\\x\"} 1\n", "is no quoted text");
    is_refused("XPU_TIMER_X{rank=\"4\",rank=\"5\"} 1\n", "there twice");
    is_refused("XPU_TIMER_X{rank=\"4\"} one\n", "is no value");
    is_refused("XPU_TIMER_X{rank=\"4\"} 1 soon\n", "is no timestamp");
    is_refused("XPU_TIMER_X{rank=\"-4\"} 1\n", "no label rank");
    is_refused("XPU_TIMER_X{rank=\"4\"} +Inf\n", "no finite value");
    is_refused("XPU_TIMER_X{rank=\"4\"} 1", "ends in the middle");
    is_refused("# TYPE XPU_TIMER_X gauge\n", "no gauge");
    is_refused("XPU_TIMER_X{rank=\"4\"} 1\n=\n", "no sample of Prometheus's");
}

static void metrics_of_nccl_inspector_become_samples_of_their_gpu(void **state)
{
    struct sl_job *job = *state;
    const char text[] =
        "nccl_bus_bandwidth_gbs{version=\"v5.1\",node=\"n1\",gpu=\"GPU0\",comm_name=\"dp\","
        "nranks=\"4\",collective=\"AllReduce\",message_size=\"4-5GB\"} 678.3\n"
        "nccl_collective_exec_time_microseconds{node=\"n1\",gpu=\"GPU1\",comm_name=\"dp\"} 9498\n"
        "nccl_collectives_total{node=\"n1\",gpu=\"GPU0\"} 7\n";

    assert_int_equal(read_text(job, text), 0);
    assert_int_equal(job->rank_count, 2);
    assert_int_equal(job->samples[2].rank, 0);
    assert_string_equal(sl_job_string(job, job->samples[0].name),
                        "nccl_bus_bandwidth_gbs{dp, AllReduce, 4-5GB}");
    is_refused("nccl_bus_bandwidth_gbs{node=\"n1\"} 1\n", "no labels node and gpu");
}

/* ---- NCCL Inspector ---- */

#define CONTEXT(id, rank, count, version)                                                          \
    "\"header\":{\"id\":\"" id "\",\"rank\":" rank ",\"n_ranks\":" count                           \
    ",\"nnodes\":1},\"metadata\":{\"inspector_output_format_version\":\"" version                  \
    "\",\"dump_timestamp_us\":1748030377748202,\"hostname\":\"n1\",\"pid\":77}"
#define COLL                                                                                       \
    "\"coll_perf\":{\"coll\":\"AllReduce\",\"coll_sn\":14,\"coll_msg_size_bytes\":4096,"           \
    "\"coll_exec_time_us\":61}"
#define TIMED                                                                                      \
    "\"coll_perf\":{\"coll\":\"ReduceScatter\",\"coll_sn\":15,\"coll_msg_size_bytes\":8,"          \
    "\"event_trace_ts\":{\"coll_start_ts\":1000,\"coll_stop_ts\":1001,\"kernel_events\":["         \
    "{\"channel_id\":0,\"kernel_start_ts\":1010,\"kernel_stop_ts\":1050},"                         \
    "{\"channel_id\":1,\"kernel_start_ts\":1009,\"kernel_stop_ts\":1051}]}}"
#define STATS(coll, p2p)                                                                           \
    "\"dump_stats\":{\"coll_records\":" coll ",\"p2p_records\":" p2p ",\"coll_dropped_total\":0}"
#define P2P "\"p2p_perf\":{\"p2p\":\"Send\",\"p2p_sn\":1,\"p2p_peer\":2,\"p2p_msg_size_bytes\":16}"

static void lines_of_nccl_inspector_become_operations(void **state)
{
    struct sl_job *job = *state;
    const char text[] = "{" CONTEXT(
        "0x1", "1", "2",
        "v4.0") "," COLL "}\n"
                "{" CONTEXT("0x2", "5", "8",
                            "v4.0") "," TIMED "}\n"
                                    "{" CONTEXT("0x2", "5", "8",
                                                "v4.1") "," P2P "}\n"
                                                        "{" CONTEXT("0x1", "1", "2", "v4.1") "," P2P
                                                                                             "}\n";
    const struct sl_job_op *op;

    /* A peer that the small communicator cannot have. */
    assert_int_equal(read_text(job, text), -EBADMSG);
    assert_int_equal(
        read_text(
            job,
            "{" CONTEXT("0x1", "1", "3",
                        "v4.0") "," COLL "}\n"
                                "{" CONTEXT("0x2", "5", "8",
                                            "v4.0") "," TIMED "}\n"
                                                    "{" CONTEXT("0x2", "5", "8",
                                                                "v4.1") "," P2P "}\n"
                                                                        "{" CONTEXT("0x1", "1", "3",
                                                                                    "v4.1") "," P2P
                                                                                            "}\n"),
        0);
    assert_int_equal(job->op_count, 4);
    op = &job->ops[1];
    assert_int_equal(op->rank, 5); /* in the largest communicator */
    assert_int_equal(op->kind, SL_JOB_REDUCE_SCATTER);
    assert_int_equal(op->seq, 15);
    assert_true(op->issue_ns == 1000000 && op->start_ns == 1009000 && op->end_ns == 1051000);
    assert_true(job->ops[0].start_ns == SL_JOB_NEVER && job->ops[0].bytes == 4096);
    assert_int_equal(job->ops[2].kind, SL_JOB_SEND);
    assert_int_equal(job->ops[2].peer, 2);
    assert_int_equal(job->ops[3].kind, SL_JOB_OTHER);
    assert_string_equal(sl_job_string(job, job->ranks[5].host), "n1");
}

static void objects_without_a_header_are_of_the_one_before(void **state)
{
    struct sl_job *job = *state;
    const char text[] = "{" CONTEXT("0x1", "1", "4", "v4.3") "," STATS(
        "1", "1") "}\n"
                  "{" COLL "}\n{" P2P "}\n"
                  "{" CONTEXT("0x2", "0", "2", "v4.3") "," STATS("1", "0") "}\n"
                                                                           "{" TIMED "}\n";

    assert_int_equal(read_text(job, text), 0);
    assert_int_equal(job->op_count, 3);
    assert_int_equal(job->comm_count, 2);
    assert_int_equal(job->ops[2].rank, 1);
    is_refused("{" CONTEXT("0x1", "1", "4", "v4.3") "," STATS("2", "0") "}\n{" COLL "}\n",
               "ends 1 objects too early");
    is_refused("{" CONTEXT("0x1", "1", "4", "v4.3") "," STATS("0", "0") "}\n{" COLL "}\n",
               "more objects follow than were counted");
    is_refused("{" CONTEXT("0x1", "1", "4", "v4.2") "," STATS("1", "0") "}\n{" COLL "}\n",
               "of no communicator");
}

static void bad_lines_of_nccl_inspector_are_refused(void **state)
{
    (void)state;
    is_refused("{" CONTEXT("0x1", "4", "4", "v4.0") "," COLL "}\n", "no rank 4 in");
    is_refused("{" CONTEXT("0x1", "1", "4", "v4.0") "," COLL "}\n"
                                                    "{" CONTEXT("0x1", "2", "4", "v4.0") "," COLL
                                                                                         "}\n",
               "another rank in its communicator");
    is_refused("{" CONTEXT("0x1", "1", "4", "v4.0") "," COLL "}\n{\"a\":1\n", "no object of JSON");
    is_refused("{" CONTEXT("0x1", "1", "4", "v4.0") ",\"coll_perf\":{\"coll\":\"AllReduce\"}}\n",
               "\"coll_sn\" is missing");
    is_refused("{" CONTEXT("0x1", "1", "4", "v4.0") ",\"x\":{}}\n", "nothing that NCCL Inspector");
}

static void two_processes_are_no_one_rank(void **state)
{
    struct sl_job *job = *state;

    assert_int_equal(read_text(job, "{" CONTEXT("0x1", "1", "4", "v4.0") "," COLL "}\n"), 0);
    job->ranks[1].process = sl_job_text(job, "78", 2);
    assert_int_equal(read_text(job, "{" CONTEXT("0x1", "1", "4", "v4.0") "," COLL "}\n"), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "is rank 1 in its largest communicator"));
}

/* ---- probes of agents ---- */

#define PROBE(from, to, rest)                                                                      \
    "{\"version\":1,\"type\":\"probe\",\"from\":\"" from "\",\"to\":\"" to                         \
    "\",\"rail\":\"mlx5_0:1\",\"bytes\":100,\"sent\":10," rest "}\n"
#define COUNTS "\"answered\":7,\"lost_there\":2,\"lost_back\":1,\"rtt_ns\":{\"mean\":4000}"

static const char probes[] = PROBE("a", "b", COUNTS) PROBE("b", "a", COUNTS)
    PROBE("a", "", "\"answered\":0,\"lost_there\":0,\"lost_back\":0,\"rtt_ns\":{\"mean\":0}");

/* Both ways of each are edges, between hosts. */
static void probes_become_edges(void **state)
{
    struct sl_job *job = *state;
    const struct sl_job_edge *edge;

    assert_int_equal(read_text(job, probes), 0);
    assert_int_equal(job->rank_count, 2);
    assert_string_equal(sl_job_string(job, job->ranks[1].host), "b");
    assert_int_equal(job->edge_count, 4);
    edge = &job->edges[0];
    assert_true(edge->src == 0 && edge->dst == 1 && edge->comm == SL_JOB_NONE);
    assert_string_equal(sl_job_string(job, edge->path), "mlx5_0:1");
    assert_true(edge->messages == 7 && edge->bytes == 700 && edge->lost == 2);
    assert_true(edge->wait_s[SL_JOB_WAIT_WIRE] > 13.9e-6 &&
                edge->wait_s[SL_JOB_WAIT_WIRE] < 14.1e-6);
    edge = &job->edges[1];
    assert_true(edge->src == 1 && edge->dst == 0 && edge->lost == 1);
    assert_int_equal(job->edges[2].src, 1);
}

static void bad_probes_are_refused(void **state)
{
    (void)state;
    is_refused(PROBE("a", "b", "\"answered\":11,\"lost_there\":0,\"lost_back\":0,\"rtt_ns\":{}"),
               "\"answered\" is missing, or no number from 0 to 10");
    is_refused(PROBE("a", "b", "\"answered\":9,\"lost_there\":2,\"lost_back\":0,\"rtt_ns\":{}"),
               "\"lost_there\"");
    is_refused(PROBE("", "b", COUNTS), "a host has no name");
    is_refused(PROBE("a", "b", "\"transport\":\"smoke\"," COUNTS), "\"transport\"");
    is_refused(PROBE("a", "b", "\"transport\":\"rdma\"," COUNTS) PROBE("a", "b", COUNTS),
               "put them apart");
    is_refused(PROBE("a", "b", COUNTS) "7\n", "line 2: it is no object of JSON");
    beginnings_are_refused(probes, strlen(PROBE("a", "b", COUNTS)) + 1);
}

/* ---- traces of NCCL's example profiler; sluice-bench; ports of an agent ---- */

/* A seed of the fuzzer's, by its name. */
static int read_seed(struct sl_job *job, const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", getenv("SLUICE_TEST_CORPUS"), name);
    return sl_read_file(job, path);
}

static void is_seconds(double is, double us)
{
    assert_true(fabs(is * 1e6 - us) < 0.01);
}

/* Both forms: 2.23 to 2.26, and later ones, with lines that are no JSON. */
static void waits_of_an_nccl_trace_become_edges(void **state)
{
    static const char *const names[] = {"read_nccl/trace_old", "read_nccl/trace"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_job *job = sl_job_new();
        const struct sl_job_edge *edge;

        if (read_seed(job, names[i]) != 0)
            fail_msg("%s", sluice_last_error());
        assert_int_equal(job->edge_count, 2);
        edge = &job->edges[0];
        assert_int_equal(edge->src, 1);
        assert_int_equal(edge->dst, 2);
        assert_int_equal(edge->messages, 2);
        assert_int_equal(edge->bytes, 8192);
        is_seconds(edge->wait_s[SL_JOB_WAIT_WIRE], 80);
        is_seconds(edge->wait_s[SL_JOB_WAIT_GPU], i == 0 ? 22 : 20);
        is_seconds(edge->wait_s[SL_JOB_WAIT_PEER], i == 0 ? 0 : 10);
        edge = &job->edges[1];
        assert_int_equal(edge->src, 0);
        assert_int_equal(edge->dst, 1);
        assert_int_equal(edge->messages, 0); /* the sender counts them */
        is_seconds(edge->wait_s[SL_JOB_WAIT_DATA], 30);
        is_seconds(edge->wait_s[SL_JOB_WAIT_FLUSH], 2);
        is_seconds(edge->wait_s[SL_JOB_WAIT_CONSUMER], 8);
        assert_true(job->ranks[1].is_told);
        sl_job_free(job);
    }
}

#define TRACE                                                                                      \
    "[\n{\"name\": \"AllReduce\", \"cat\": \"COLL\", \"ph\": \"b\", \"ts\": 1.0, \"args\": {"
#define PROXY "{\"name\": \"Send\", \"cat\": \"PROXY\", \"ph\": \"b\", \"ts\": 1.0, \"args\": "

static void bad_nccl_traces_are_refused(void **state)
{
    struct sl_job *job = *state;

    is_refused(TRACE "\"Rank\": 1}},\n{}]\n", "which communicator and rank");
    is_refused(TRACE "\"CommHash\": 5, \"Rank\": 1048576}},\n", "which communicator and rank");
    is_refused(TRACE "\"CommHash\": 5, \"Rank\": 1}},\n" PROXY "{\"Peer\": 1048576}},\n",
               "no rank");
    is_refused(TRACE "\"CommHash\": 5, \"Rank\": 1}},\n" PROXY "{\"Peer\": ,\n", "no event");
    is_refused("[\n" PROXY "{\"Peer\": 1}},\n{}]\n", "nobody's");
    is_refused(TRACE "\"CommHash\": 5, \"Rank\": 1}},\n{", "ends in the middle");
    assert_int_equal(read_seed(job, "read_nccl/trace"), 0);
    assert_int_equal(read_text(job, TRACE "\"CommHash\": 5, \"Rank\": 1}},\n{}]\n"), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "of another communicator than a trace before"));
}

static void paths_of_sluice_bench_become_edges(void **state)
{
    struct sl_job *job = *state;

    assert_int_equal(read_seed(job, "read_page/bench"), 0);
    assert_int_equal(job->edge_count, 2); /* without routes */
    assert_int_equal(job->edges[0].src, 0);
    assert_int_equal(job->edges[0].dst, 1);
    assert_int_equal(job->edges[0].messages, 4);
    assert_int_equal(job->edges[0].bytes, 4096);
    assert_int_equal(job->edges[0].lost, 1);
    assert_string_equal(sl_job_string(job, job->edges[0].path), "lo");
    is_seconds(job->edges[0].wait_s[SL_JOB_WAIT_WIRE], 4 * 3.072); /* in the bin from 2 us on */
    assert_int_equal(job->edges[1].src, 0); /* as rank 1 saw them arrive, which sent none */
    assert_int_equal(job->edges[1].dst, 1);
    assert_int_equal(job->edges[1].messages, 2);
    assert_int_equal(job->edges[1].bytes, 2048);
    is_seconds(job->edges[1].wait_s[SL_JOB_WAIT_WIRE], 5);
    is_refused("{\"tool\":\"sluice-bench\",\"ranks\":2,\"algorithm\":\"\",\"rows\":[],"
               "\"path_statistics\":[{\"rank\":0,\"peer\":2}]}",
               "no rank of the run");
}

static void conditions_of_an_agents_ports_become_events(void **state)
{
    struct sl_job *job = *state;

    assert_int_equal(read_seed(job, "read_agent/ports"), 0);
    assert_int_equal(job->event_count, 1);
    assert_string_equal(sl_job_string(job, job->events[0].host), "h1");
    assert_string_equal(sl_job_string(job, job->events[0].subject), "mlx5_0:1");
    assert_string_equal(sl_job_string(job, job->events[0].check), "link_flap");
    assert_int_equal((job->events[0].end_ns - job->events[0].at_ns) / 1000000, 71123);
    is_refused("{\"version\":1,\"time\":\"2026-11-25T20:39:11.123Z\",\"ports\":[],\"host\":7}",
               "host");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(times_of_mini_batches_become_samples, begin, end),
        cmocka_unit_test(bad_mini_batches_are_refused),
        cmocka_unit_test(waits_of_an_nccl_trace_become_edges),
        cmocka_unit_test_setup_teardown(bad_nccl_traces_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(paths_of_sluice_bench_become_edges, begin, end),
        cmocka_unit_test_setup_teardown(conditions_of_an_agents_ports_become_events, begin, end),
        cmocka_unit_test_setup_teardown(probes_become_edges, begin, end),
        cmocka_unit_test(bad_probes_are_refused),
        cmocka_unit_test_setup_teardown(gauges_of_xpu_timer_become_samples, begin, end),
        cmocka_unit_test(bad_scrapes_are_refused),
        cmocka_unit_test_setup_teardown(metrics_of_nccl_inspector_become_samples_of_their_gpu,
                                        begin, end),
        cmocka_unit_test_setup_teardown(lines_of_nccl_inspector_become_operations, begin, end),
        cmocka_unit_test_setup_teardown(objects_without_a_header_are_of_the_one_before, begin, end),
        cmocka_unit_test(bad_lines_of_nccl_inspector_are_refused),
        cmocka_unit_test_setup_teardown(two_processes_are_no_one_rank, begin, end),
    };

    return cmocka_run_group_tests_name("diagnosis_formats", tests, NULL, NULL);
}
