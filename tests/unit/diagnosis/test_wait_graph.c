/* SPDX-License-Identifier: Apache-2.0 */
/* The wait-for graph: who points to whom, and that large jobs stay small drawings. */
#include "job_maker.h"
#include "job_play.h"
#include "monitor/diagnosis/wait_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER, .stall_ns = 0};

static void draw(struct sl_job *job, struct sl_verdicts *verdicts, struct sl_wait_graph *graph)
{
    judge_job(job, -1, verdicts);
    assert_int_equal(sl_wait_graph_make(job, &options, verdicts, graph), 0);
}

static void done(struct sl_job *job, struct sl_verdicts *verdicts, struct sl_wait_graph *graph)
{
    sl_wait_graph_free(graph);
    sl_verdicts_free(verdicts);
    sl_job_free(job);
}

typedef void print_graph(const struct sl_wait_graph *graph, FILE *out);

static char *text_of(const struct sl_wait_graph *graph, print_graph *print, size_t *len)
{
    char *text;
    FILE *out = open_memstream(&text, len);

    print(graph, out);
    fclose(out);
    return text;
}

static const struct sl_wait_box *box_of(const struct sl_wait_graph *graph, const char *ranks)
{
    for (uint32_t i = 0; i < graph->box_count; i++)
        if (strcmp(graph->boxes[i].ranks, ranks) == 0)
            return &graph->boxes[i];
    return NULL;
}

static bool points(const struct sl_wait_graph *graph, const char *from, const char *to)
{
    for (uint32_t i = 0; i < graph->arrow_count; i++)
        if (strcmp(graph->boxes[graph->arrows[i].from].ranks, from) == 0 &&
            strcmp(graph->boxes[graph->arrows[i].to].ranks, to) == 0)
            return true;
    return false;
}

/* 2 has not called what 1 waits in; 1 has not called what 0 waits in; 3 is at nothing. */
static void who_waits_points_to_whom_it_waits_for(void **state)
{
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_wait_graph graph;
    uint32_t a = MAKE_COMM(job, "a", 0, 1), b = MAKE_COMM(job, "b", 1, 2),
             c = MAKE_COMM(job, "c", 3, 4);
    char *text;
    size_t len;

    (void)state;
    make_op(job, 0, a, SL_JOB_ALLREDUCE, 7, SL_JOB_STARTED, 100);
    make_op(job, 1, a, SL_JOB_ALLREDUCE, 6, SL_JOB_DONE, 90);
    make_op(job, 1, b, SL_JOB_ALLGATHER, 5, SL_JOB_STARTED, 100);
    make_op(job, 2, b, SL_JOB_ALLGATHER, 4, SL_JOB_DONE, 90);
    make_op(job, 3, c, SL_JOB_BARRIER, 1, SL_JOB_DONE, 90);
    make_op(job, 4, c, SL_JOB_BARRIER, 1, SL_JOB_DONE, 90);
    draw(job, &verdicts, &graph);
    assert_string_equal(verdicts_text(&verdicts), "host_stalled 2");
    assert_int_equal(graph.box_count, 5);
    assert_int_equal(box_of(&graph, "rank 2")->role, SL_WAIT_ACCUSED);
    assert_string_equal(box_of(&graph, "rank 2")->what, "host_stalled, 98 %");
    assert_int_equal(box_of(&graph, "rank 1")->depth, 1);
    assert_string_equal(box_of(&graph, "rank 1")->what, "all_gather 5 of b");
    assert_int_equal(box_of(&graph, "rank 0")->depth, 2);
    assert_int_equal(box_of(&graph, "rank 3")->role, SL_WAIT_FREE);
    assert_int_equal(graph.arrow_count, 2);
    assert_true(points(&graph, "rank 0", "rank 1") && points(&graph, "rank 1", "rank 2"));
    text = text_of(&graph, sl_wait_graph_dot, &len);
    assert_true(strncmp(text, "digraph waits {", 15) == 0);
    assert_non_null(strstr(text, "label=\"rank 2\\nhost_stalled, 98 %\""));
    free(text);
    done(job, &verdicts, &graph);
}

static void a_deadlock_is_a_circle(void **state)
{
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_wait_graph graph;
    uint32_t a = MAKE_COMM(job, "a", 0, 1), b = MAKE_COMM(job, "b", 0, 1);

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        make_op(job, r, a, SL_JOB_ALLREDUCE, 1, SL_JOB_DONE, 80);
        make_op(job, r, b, SL_JOB_ALLREDUCE, 1, SL_JOB_DONE, 90);
        make_op(job, r, r == 0 ? a : b, SL_JOB_ALLREDUCE, 2, SL_JOB_STARTED, 100);
    }
    draw(job, &verdicts, &graph);
    assert_true(strncmp(verdicts_text(&verdicts), "deadlock", 8) == 0);
    assert_true(points(&graph, "rank 0", "rank 1") && points(&graph, "rank 1", "rank 0"));
    done(job, &verdicts, &graph);
}

static void a_mismatch_is_the_programs(void **state)
{
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_wait_graph graph;
    uint32_t a = MAKE_COMM(job, "a", 0, 1, 2);

    (void)state;
    make_op(job, 0, a, SL_JOB_ALLREDUCE, 1, SL_JOB_STARTED, 100);
    make_op(job, 1, a, SL_JOB_ALLREDUCE, 1, SL_JOB_STARTED, 100);
    make_op(job, 2, a, SL_JOB_BROADCAST, 1, SL_JOB_STARTED, 100);
    draw(job, &verdicts, &graph);
    assert_true(strncmp(verdicts_text(&verdicts), "mismatch", 8) == 0);
    assert_string_equal(graph.boxes[0].ranks, "the program");
    for (unsigned r = 0; r < 3; r++) {
        char rank[16];

        snprintf(rank, sizeof(rank), "rank %u", r);
        assert_true(points(&graph, rank, "the program"));
    }
    done(job, &verdicts, &graph);
}

/* All ranks are in exactly one box, whoever waits has a way to an accused one, arrows go a column
 * to the right. */
static void check(const struct play *play, double *seconds, size_t *len)
{
    struct sl_job *job = play_job(play);
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_wait_graph graph;
    struct timespec begin, end;
    uint32_t ranks = 0, accused = 0;
    char *text;

    judge_job(job, 2000, &verdicts);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    assert_int_equal(sl_wait_graph_make(job, &options, &verdicts, &graph), 0);
    text = text_of(&graph, sl_wait_graph_svg, len);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    *seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    for (uint32_t i = 0; i < graph.box_count; i++) {
        bool has_arrow = false;

        ranks += graph.boxes[i].count;
        accused += graph.boxes[i].role == SL_WAIT_ACCUSED ? graph.boxes[i].count : 0;
        for (uint32_t k = 0; k < graph.arrow_count; k++)
            has_arrow = has_arrow || graph.arrows[k].from == i;
        assert_int_equal(has_arrow, graph.boxes[i].role == SL_WAIT_WAITS &&
                                        (graph.boxes[i].depth < SL_WAIT_DEPTH_MAX || has_arrow));
    }
    for (uint32_t k = 0; k < graph.arrow_count; k++)
        assert_true(graph.boxes[graph.arrows[k].from].depth ==
                        graph.boxes[graph.arrows[k].to].depth + 1 ||
                    graph.boxes[graph.arrows[k].from].depth == SL_WAIT_DEPTH_MAX);
    assert_int_equal(ranks, job->rank_count);
    assert_int_equal(accused, 1);
    assert_true(graph.box_count <= SL_WAIT_BOXES_MAX);
    assert_true(strncmp(text, "<svg ", 5) == 0 && strcmp(text + *len - 7, "</svg>\n") == 0);
    free(text);
    done(job, &verdicts, &graph);
}

static void large_jobs_stay_readable(void **state)
{
    static const uint32_t replicas[] = {1, 4, 16, 64, 256};
    struct play play = {.tensor = 8, .stages = 8, .ahead = 4, .fault_at = 5};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        double seconds;
        size_t len;

        play.replicas = replicas[i];
        play.fault_rank = 8 * 8 * replicas[i] / 2 + 3;
        check(&play, &seconds, &len);
        print_message("# %u ranks: %.0f ms, %zu bytes of SVG\n", 64 * replicas[i], seconds * 1e3,
                      len);
        assert_true(len < 60000);
    }
}

/* What is in files is no markup. */
static void names_are_escaped(void **state)
{
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_wait_graph graph;
    uint32_t a = MAKE_COMM(job, "<b>&\"\\\xff\xed\xa0\x80\x01 \xc3\xa4", 0, 1);
    char *text;
    size_t len;

    (void)state;
    make_op(job, 0, a, SL_JOB_ALLREDUCE, 2, SL_JOB_STARTED, 100);
    make_op(job, 1, a, SL_JOB_ALLREDUCE, 1, SL_JOB_DONE, 90);
    draw(job, &verdicts, &graph);
    text = text_of(&graph, sl_wait_graph_svg, &len);
    assert_non_null(strstr(text, "&lt;b&gt;&amp;&quot;\\????? \xc3\xa4"));
    assert_null(strstr(text, "<b>"));
    free(text);
    text = text_of(&graph, sl_wait_graph_dot, &len);
    assert_non_null(strstr(text, "<b>&\\\"\\\\"));
    free(text);
    done(job, &verdicts, &graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_points_to_whom_it_waits_for),
        cmocka_unit_test(a_deadlock_is_a_circle),
        cmocka_unit_test(a_mismatch_is_the_programs),
        cmocka_unit_test(large_jobs_stay_readable),
        cmocka_unit_test(names_are_escaped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
