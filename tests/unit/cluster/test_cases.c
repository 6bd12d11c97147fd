/* SPDX-License-Identifier: Apache-2.0 */
/* What led to a verdict is kept, and judged again it is the same, by the same id. */
#include "maker.h"

#include "monitor/cluster/case_lines.h"
#include "monitor/cluster/cases.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define LINK_DOWN                                                                                  \
    "{\"id\":3,\"opened_ms\":1764142590000,\"kind\":\"port\",\"subject\":\"mlx5_0:1\","            \
    "\"check\":\"link_down\",\"class\":\"NICDown\",\"fatal\":true,\"text\":\"the port is down\"}"

static char folder[64];
static struct sl_cases_options options = {.folder = folder, .bytes = 1 << 24, .count = 100};

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sluice-cases.XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static unsigned count_files(bool remove_them)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    unsigned count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        if (remove_them)
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
    }
    closedir(dir);
    return count;
}

static int teardown(void **state)
{
    (void)state;
    count_files(true);
    return rmdir(folder);
}

static unsigned keep(struct sl_cluster_model *model, const struct sl_cluster_judge *judge,
                     const struct sl_cluster_verdicts *verdicts, const char *job)
{
    char ids[8][SL_CLUSTER_ID];
    unsigned count = 0, kept;

    for (unsigned i = 0; i < verdicts->count; i++)
        if (strcmp(verdicts->list[i].job, job) == 0)
            memcpy(ids[count++], verdicts->list[i].id, sizeof(ids[0]));
    assert_int_equal(sl_cases_keep(&options, model, judge, job, ids, count, &kept), 0);
    return kept;
}

/* The bundle of that verdict, judged again: byte for byte, and it is in it. */
static void replay(const struct sl_cluster_verdict *verdict)
{
    char path[128];
    struct sl_case it;
    struct sl_case_result result;
    const struct sl_verdict *found = NULL;

    snprintf(path, sizeof(path), "%s/%s.case", folder, verdict->id);
    assert_int_equal(sl_case_read(path, &it), 0);
    assert_int_equal(sl_case_judge(it.inputs, &it.options, &result), 0);
    assert_int_equal(it.result_len, result.len);
    assert_memory_equal(it.result, result.text, result.len);
    for (uint32_t i = 0; i < result.verdicts.count; i++)
        if (strcmp(result.verdicts.list[i].id, verdict->id) == 0)
            found = &result.verdicts.list[i];
    assert_non_null(found);
    /* It is what the instance said. */
    assert_true(found->probability > verdict->probability - 1e-9 &&
                found->probability < verdict->probability + 1e-9);
    assert_true(found->act == verdict->act);
    assert_int_equal(found->evidence_count, verdict->evidence_count);
    assert_string_equal(found->evidence[0], verdict->evidence[0]);
    assert_int_equal(found->other_count, verdict->other_count);
    sl_case_result_free(&result);
    sl_case_free(&it);
}

static void a_hang_is_judged_again_from_what_was_kept(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;

    (void)state;
    maker_hang(model, 1);
    maker_status(model, "n5", LINK_DOWN);
    /* A rank of another job on a node of this one is no part of it. */
    maker_take(model,
               "{\"version\":1,\"node\":\"n2\",\"epoch\":1,\"seq\":9,\"time_ms\":1764142595009,"
               "\"sources\":{\"ranks\":{\"ranks\":[{\"pid\":102,\"job\":\"train\",\"rank\":2,"
               "\"size\":8,\"communicators\":[{\"id\":\"c1\",\"rank\":2,\"size\":8,"
               "\"collectives\":42,\"ended\":41}],\"waits\":{\"communicator\":\"c1\","
               "\"operation\":\"allreduce\",\"number\":42,\"elements\":64,\"type\":\"f32\","
               "\"for_seconds\":32}},{\"pid\":7,\"job\":\"other\",\"rank\":0,\"size\":1,"
               "\"communicators\":[]}]}}}");
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 2);
    assert_int_equal(keep(model, &maker_judge, &verdicts, "train"), 1);
    assert_int_equal(keep(model, &maker_judge, &verdicts, ""), 1);
    for (unsigned i = 0; i < verdicts.count; i++)
        replay(&verdicts.list[i]);
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

static void nodes_that_are_silent_or_ill_are_judged_again(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;
    struct sl_cluster_node *never = sl_cluster_node(model, "never", true);

    (void)state;
    maker_status(model, "a", LINK_DOWN);
    maker_status(model, "b", "");
    maker_status(model, "c", "");
    sl_cluster_node(model, "b", false)->heard_ns = 5 * SECOND;
    snprintf(never->why, sizeof(never->why), "nobody listens at \"10.0.0.1\"");
    maker_take(model,
               "{\"version\":1,\"node\":\"c\",\"epoch\":1,\"seq\":9,\"time_ms\":1764142595009,"
               "\"alive\":false}");
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 4);
    assert_int_equal(keep(model, &maker_judge, &verdicts, ""), 4);
    assert_int_equal(count_files(false), 4);
    for (unsigned i = 0; i < verdicts.count; i++) {
        replay(&verdicts.list[i]);
        /* A cable that is out is worth it, silence alone is not. */
        assert_true(verdicts.list[i].act == (strcmp(verdicts.list[i].node, "a") == 0));
        assert_true(verdicts.list[i].cause_count > 0);
    }
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

/* A switch that went away: what all nodes have is no node's fault. */
static void what_all_nodes_have_isolates_none(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;
    char name[16];

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        maker_status(model, name, LINK_DOWN);
    }
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(verdicts.count, 100);
    for (unsigned i = 0; i < verdicts.count; i++)
        assert_false(verdicts.list[i].act);
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

/* Who failed before is likelier to fail; it is kept with the case. */
static void the_history_of_nodes_counts(void **state)
{
    static char text[] = "[{\"node_id\":\"n5\",\"event_time\":1.5,\"event_type\":\"fault_start\","
                         "\"fault_type\":{\"Class\":\"GPU\",\"Desc\":\"XID 79\"}},"
                         "{\"node_id\":\"n5\",\"event_time\":2,\"event_type\":\"fault_start\","
                         "\"fault_type\":{\"Class\":\"GPU\",\"Desc\":\"XID 79\"}},"
                         "{\"node_id\":\"n6\",\"event_time\":3,\"event_type\":\"fault_start\","
                         "\"fault_type\":{\"Class\":\"GPU\",\"Desc\":\"XID 79\"}}]\n";
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_past past = {.bytes = NULL};
    struct sl_cluster_judge judge = maker_judge;
    struct sl_cluster_verdicts without, with;
    char path[128];
    FILE *file;
    bool is_said = false;

    (void)state;
    snprintf(path, sizeof(path), "%s/history.json", folder);
    assert_int_equal(sl_cluster_past_read(&past, path), -ENOENT);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(sl_cluster_past_read(&past, path), 1);
    assert_int_equal(sl_cluster_past_read(&past, path), 0);
    maker_hang(model, 1);
    without = maker_verdicts(model, &judge);
    judge.history = &past;
    with = maker_verdicts(model, &judge);
    assert_int_equal(with.count, 1);
    assert_string_equal(with.list[0].id, without.list[0].id);
    assert_true(with.list[0].node_probability > without.list[0].node_probability);
    for (unsigned i = 0; i < with.list[0].evidence_count; i++)
        is_said = is_said || strstr(with.list[0].evidence[i], "n5 had 2 faults before") != NULL;
    assert_true(is_said);
    assert_int_equal(keep(model, &judge, &with, "train"), 1);
    replay(&with.list[0]);
    sl_cluster_verdicts_free(&without);
    sl_cluster_verdicts_free(&with);
    sl_cluster_past_fini(&past);
    sl_cluster_model_free(model);
}

static void the_oldest_files_give_way(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;
    struct sl_cases_options few = options;
    char path[128];
    unsigned kept;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        maker_hang(model, 1 + i);
        for (unsigned r = 0; r < RANKS; r++)
            maker_rank(model, r, 2 + i, 42 + i - (r == 5), r == 5 ? 0 : 40);
        verdicts = maker_verdicts(model, &maker_judge);
        assert_int_equal(verdicts.count, 1);
        assert_int_equal(keep(model, &maker_judge, &verdicts, "train"), 1);
        snprintf(path, sizeof(path), "%s/%s.case", folder, verdicts.list[0].id);
        assert_int_equal(
            utimensat(AT_FDCWD, path,
                      (const struct timespec[]){{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}}, 0),
            0);
        if (i < 3)
            sl_cluster_verdicts_free(&verdicts);
    }
    assert_int_equal(count_files(false), 4);
    few.count = 2;
    sl_cases_bound(&few);
    assert_int_equal(count_files(false), 2);
    replay(&verdicts.list[0]);
    few.bytes = 1;
    sl_cases_bound(&few);
    assert_int_equal(count_files(false), 0);
    few.bytes = 4000; /* of one a quarter: it is larger */
    assert_int_equal(sl_cases_keep(&few, model, &maker_judge, "train",
                                   (const char(*)[SL_CLUSTER_ID]) & verdicts.list[0].id, 1, &kept),
                     -EFBIG);
    sl_cluster_verdicts_free(&verdicts);
    sl_cluster_model_free(model);
}

static void say(const char *sentence)
{
    fail_msg("%s", sentence);
}

/* A child does it, once for each verdict, and tells. */
static void what_is_open_is_kept_once(void **state)
{
    struct sl_cluster_model *model = maker_new();
    struct sl_cluster_verdicts verdicts;
    struct sl_book book = {.count = 0};
    struct sl_cases *cases;
    struct sl_cases_options with_say = options;
    int fd;

    (void)state;
    with_say.say = say;
    assert_int_equal(sl_cases_new(&with_say, &cases), 0);
    maker_hang(model, 1);
    verdicts = maker_verdicts(model, &maker_judge);
    assert_int_equal(sl_book_update(&book, &verdicts, SECOND, 1000, 0, NULL, NULL), 0);
    assert_true(book.count == 1 && sl_book_is_open(&book.list[0]));
    for (unsigned i = 0; i < 1000 && !book.list[0].has_case; i++) {
        sl_cases_tick(cases, model, &maker_judge, &book);
        usleep(10000);
    }
    assert_true(book.list[0].has_case);
    sl_cases_tick(cases, model, &maker_judge, &book);
    assert_int_equal(sl_cases_counts(cases).kept, 1);
    replay(&book.list[0].verdict);
    fd = sl_cases_open(cases, book.list[0].verdict.id);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(sl_cases_open(cases, "0123456789abcdef"), -ENOENT);
    assert_int_equal(sl_cases_open(cases, "../../etc/passwd"), -ENOENT);
    sl_cases_free(cases);
    sl_book_fini(&book);
    sl_cluster_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_hang_is_judged_again_from_what_was_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(nodes_that_are_silent_or_ill_are_judged_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_all_nodes_have_isolates_none, setup, teardown),
        cmocka_unit_test_setup_teardown(the_history_of_nodes_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_files_give_way, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_open_is_kept_once, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
