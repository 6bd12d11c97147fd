/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a cluster: the same observations give the same verdicts and ids, and the book
 * opens and closes each once. */
#include "maker.h"

#include "core/err.h"
#include "monitor/cluster/book.h"
#include "monitor/cluster/jobs.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void who_has_not_called_is_named(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;

    (void)state;
    maker_hang(model, 1);
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 1);
    assert_string_equal(verdicts.list[0].cls, "host_stalled");
    assert_string_equal(verdicts.list[0].object, "rank 5 (host n5)");
    assert_string_equal(verdicts.list[0].node, "n5");
    assert_string_equal(verdicts.list[0].job, "train");
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

static void below_the_stall_nobody_is(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;

    (void)state;
    for (unsigned i = 0; i < RANKS; i++)
        maker_rank(model, i, 1, i == 5 ? 41 : 42, i == 5 ? 0 : 29);
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 0);
    sl_cluster_model_free(model);
}

/* A node whose clock is an hour behind, or of which nothing new came for a while, waits for no
 * longer than it says. */
static void clocks_of_nodes_may_differ(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;

    (void)state;
    for (unsigned i = 0; i < RANKS; i++)
        maker_rank(model, i, i == 3 ? 3600001 : 1, i == 5 ? 41 : 42, i == 5 ? 0 : 29);
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 0);
    sl_cluster_model_free(model);
}

/* The id stays while the hang lasts, whatever times and order; another hang has another. */
static void an_id_is_of_the_incident(void **state)
{
    struct sl_cluster_model *first = maker_new(), *second = maker_new();
    struct sl_cluster_verdicts one, two;

    (void)state;
    maker_hang(first, 1);
    for (unsigned i = RANKS; i > 0; i--)
        maker_rank(second, i - 1, 7, i - 1 == 5 ? 41 : 42, i - 1 == 5 ? 0 : 38);
    one = maker_verdicts(first, &maker_judge);
    two = maker_verdicts(second, &maker_judge);
    assert_int_equal(one.count, 1);
    assert_int_equal(two.count, 1);
    assert_string_equal(one.list[0].id, two.list[0].id);
    sl_cluster_verdicts_free(&two);
    for (unsigned i = 0; i < RANKS; i++)
        maker_rank(second, i, 9, i == 5 ? 99 : 100, i == 5 ? 0 : 40);
    two = maker_verdicts(second, &maker_judge);
    assert_int_equal(two.count, 1);
    assert_string_not_equal(one.list[0].id, two.list[0].id);
    sl_cluster_verdicts_free(&one);
    sl_cluster_verdicts_free(&two);
    sl_cluster_model_free(first);
    sl_cluster_model_free(second);
}

/* Rank 0 is still at 41, which others have ended: its part did not come through rank 5. */
static void who_waits_for_the_culprit_is_not_accused(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;

    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        maker_hang(model, 1 + 2 * round);
        maker_peer =
            round == 0 ? 5 : 0; /* in the second round it says nothing of whom it waits for */
        maker_rank(model, 0, 2 + 2 * round, 41, 31);
        maker_peer = 0;
        verdicts = maker_verdicts(model, &maker_judge);
        assert_int_equal(verdicts.count, 1 + round);
        sl_cluster_verdicts_free(&verdicts);
    }
    sl_cluster_model_free(model);
}

/* All have called it and none has ended it: the job's records accuse everybody. */
static void an_agent_narrows_a_set_to_the_rank_that_is_stopped(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;
    bool found = false;

    (void)state;
    for (unsigned i = 0; i < RANKS; i++)
        maker_rank(model, i, 1, 42, 40);
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 1);
    assert_string_equal(verdicts.list[0].cls, "comm_stuck");
    assert_true(verdicts.list[0].other_count == RANKS - 1);
    sl_cluster_verdicts_free(&verdicts);
    maker_status(
        model, "n3",
        "{\"id\":9,\"opened_ms\":5,\"kind\":\"process\",\"subject\":\"pid 103\","
        "\"check\":\"stopped\",\"class\":\"RankSlow\",\"fatal\":false,\"text\":\"by a signal\"}");
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 2);
    for (unsigned i = 0; i < verdicts.count; i++)
        if (strcmp(verdicts.list[i].object, "rank 3 (host n3)") == 0) {
            found = true;
            assert_string_equal(verdicts.list[i].cls, "host_stalled");
            assert_non_null(strstr(verdicts.list[i].evidence[0], "is stopped"));
        }
    assert_true(found);
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

/* What an agent says of another process of the host is no word on this rank. */
static void another_process_of_the_host_is_no_evidence(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;
    double before;

    (void)state;
    maker_hang(model, 1);
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 1);
    before = verdicts.list[0].probability;
    sl_cluster_verdicts_free(&verdicts);
    maker_status(
        model, "n5",
        "{\"id\":9,\"opened_ms\":5,\"kind\":\"process\",\"subject\":\"pid 10\","
        "\"check\":\"stopped\",\"class\":\"RankSlow\",\"fatal\":false,\"text\":\"by a signal\"}");
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 2);
    for (unsigned i = 0; i < verdicts.count; i++)
        if (verdicts.list[i].job[0] != '\0')
            assert_true(verdicts.list[i].probability < before + 0.001);
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

static void nodes_that_are_silent_and_what_agents_found_are_told(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;

    (void)state;
    maker_status(
        model, "a",
        "{\"id\":3,\"opened_ms\":5,\"kind\":\"port\",\"subject\":\"mlx5_0:1\",\"check\":"
        "\"link_down\",\"class\":\"NICDown\",\"fatal\":true,\"text\":\"the port is down\"}");
    maker_status(model, "b", "");
    sl_cluster_node(model, "b", false)->heard_ns = 5 * SECOND;
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 2);
    for (unsigned i = 0; i < 2; i++) {
        bool is_silence = strcmp(verdicts.list[i].cls, "node_silent") == 0;

        assert_string_equal(verdicts.list[i].node, is_silence ? "b" : "a");
        assert_string_equal(verdicts.list[i].object, is_silence ? "node b" : "port mlx5_0:1");
        assert_true(verdicts.list[i].is_fatal);
    }
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

/* What a node claims of a job takes no memory, and a rank that lies is left alone. */
static void claims_take_no_memory(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_facts_jobs jobs;
    struct sl_job *job;

    (void)state;
    maker_take(model,
               "{\"version\":1,\"node\":\"a\",\"epoch\":1,\"seq\":1,\"time_ms\":1,\"sources\":{"
               "\"ranks\":{\"ranks\":[{\"job\":\"j\",\"rank\":1000000,\"size\":1048576,"
               "\"communicators\":[{\"id\":\"1\",\"rank\":1000000,\"size\":1048576,"
               "\"collectives\":3}]}]}}}");
    assert_int_equal(sl_cluster_jobs_find(model, 0, &jobs), 0);
    assert_int_equal(jobs.count, 1);
    assert_int_equal(sl_facts_job_build(&jobs.list[0], &job), 0);
    assert_true(job->rank_count < 2000);
    sl_job_free(job);
    sl_facts_jobs_free(&jobs);
    sl_cluster_model_free(model);
}

/* ---- the book ---- */

static unsigned opened, closed;

static void on_change(void *arg, const struct sl_book_entry *entry)
{
    (void)arg;
    if (sl_book_is_open(entry))
        opened++;
    else
        closed++;
}

static void update(struct sl_book *book, unsigned second, const uint64_t *ids, unsigned count)
{
    struct sl_cluster_verdicts verdicts = {.count = 0};

    for (unsigned i = 0; i < count; i++) {
        char id[SL_CLUSTER_ID];

        snprintf(id, sizeof(id), "%016" PRIx64, ids[i]);
        assert_non_null(sl_cluster_verdict_add(&verdicts, id));
    }
    assert_int_equal(sl_book_update(book, &verdicts, second * SECOND, 1000 + second, 2 * SECOND,
                                    on_change, NULL),
                     0);
}

static void what_lasts_is_opened_once_and_closed_once(void **state)
{
    static const uint64_t ids[] = {3, 7};
    struct sl_book book = {.count = 0};

    (void)state;
    opened = closed = 0;
    update(&book, 1, ids, 2);
    update(&book, 2, ids + 1, 1); /* 3 was a moment's */
    assert_true(opened == 0 && book.count == 1);
    update(&book, 3, ids + 1, 1);
    update(&book, 4, ids + 1, 1);
    assert_true(opened == 1 && sl_book_is_open(&book.list[0]));
    update(&book, 5, NULL, 0);
    update(&book, 6, NULL, 0);
    assert_true(closed == 1 && !sl_book_is_open(&book.list[0]));
    update(&book, 7, ids + 1, 1); /* it is back */
    update(&book, 9, ids + 1, 1);
    assert_true(opened == 2 && book.count == 1 && book.changes == 3);
    sl_book_fini(&book);
}

static void of_what_is_closed_the_latest_are_kept(void **state)
{
    struct sl_book book = {.count = 0};

    (void)state;
    for (unsigned i = 0; i < SL_BOOK_CLOSED_MAX + 100; i++) {
        const uint64_t id = i + 1;

        update(&book, 10 * i, &id, 1);
        update(&book, 10 * i + 3, &id, 1);
        update(&book, 10 * i + 6, NULL, 0);
    }
    assert_int_equal(book.count, SL_BOOK_CLOSED_MAX);
    assert_string_equal(book.list[0].verdict.id, "0000000000000065");
    sl_book_fini(&book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_not_called_is_named),
        cmocka_unit_test(below_the_stall_nobody_is),
        cmocka_unit_test(clocks_of_nodes_may_differ),
        cmocka_unit_test(an_id_is_of_the_incident),
        cmocka_unit_test(who_waits_for_the_culprit_is_not_accused),
        cmocka_unit_test(an_agent_narrows_a_set_to_the_rank_that_is_stopped),
        cmocka_unit_test(another_process_of_the_host_is_no_evidence),
        cmocka_unit_test(nodes_that_are_silent_and_what_agents_found_are_told),
        cmocka_unit_test(claims_take_no_memory),
        cmocka_unit_test(what_lasts_is_opened_once_and_closed_once),
        cmocka_unit_test(of_what_is_closed_the_latest_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
