/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes are watched, as which ranks, and for how long: over a tree of the test. */
#include "core/err.h"
#include "monitor/ranks.h"

#include "pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define START 300000 /* ticks */

static struct sl_mon *mon;
static struct sl_mon_time now;
static struct sl_mon_config config;
static struct sl_mon_ranks *ranks;
static struct test_page page;
static char told[8][SL_MON_NAME];
static unsigned told_count;

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    if (told_count < 8)
        snprintf(told[told_count++], SL_MON_NAME, "%.20s %.10s %.20s", transition->subject->name,
                 sl_mon_state_name((enum sl_mon_state)transition->step.to),
                 sl_mon_input_name((enum sl_mon_input)transition->step.input));
}

static void seconds(unsigned count)
{
    while (count-- > 0) {
        now.mono_ns += SL_MON_S;
        now.boot_ns += SL_MON_S;
        sl_mon_set_time(mon, &now);
        assert_int_equal(sl_mon_ranks_update(ranks), 0);
    }
}

static int begin(void **state)
{
    const struct sl_mon_options options = {.subjects_max = 1024, .on_transition = on_transition};

    (void)state;
    tree_begin();
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    now = (struct sl_mon_time){.mono_ns = SL_MON_HOUR, .boot_ns = SL_MON_HOUR};
    sl_mon_set_time(mon, &now);
    sl_mon_config_defaults(&config);
    snprintf(config.ranks_proc, sizeof(config.ranks_proc), "%s/proc", tree);
    snprintf(config.ranks_shm, sizeof(config.ranks_shm), "%s/shm", tree);
    told_count = 0;
    assert_int_equal(sl_mon_ranks_create(mon, &config, &ranks), 0);
    assert_int_equal(sl_mon_ranks_open(ranks), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_ranks_close(ranks);
    sl_mon_ranks_destroy(ranks);
    sl_mon_destroy(mon);
    tree_end();
    return 0;
}

static void put_page(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/shm/%s", tree, name);
    page_write(&page, path);
}

static const char *page_name(int pid)
{
    static char name[64];

    snprintf(name, sizeof(name), "sluice.%u.%d.0", geteuid(), pid);
    return name;
}

static void rank(int pid)
{
    tree_process(pid, "train", 'R', START, "/");
    page_init(&page, pid, START);
    put_page(page_name(pid));
}

static unsigned watched(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < sl_mon_ranks_count(ranks); i++)
        count += sl_mon_ranks_at(ranks, i) != NULL;
    return count;
}

static const struct sl_mon_rank *find(int pid)
{
    for (unsigned i = 0; i < sl_mon_ranks_count(ranks); i++) {
        const struct sl_mon_rank *at = sl_mon_ranks_at(ranks, i);

        if (at != NULL && at->pid == pid)
            return at;
    }
    return NULL;
}

static void a_rank_is_found_by_its_page(void **state)
{
    (void)state;
    tree_process(10, "sh", 'S', START, "/");
    seconds(1);
    assert_int_equal(watched(), 0);
    rank(4711);
    seconds(1);
    assert_int_equal(watched(), 1);
    assert_non_null(find(4711));
    assert_true(find(4711)->is_rank);
    assert_string_equal(find(4711)->label, "rank 3 of 8, job 17 (train)");
    assert_string_equal(find(4711)->subject->name, "pid 4711");
    assert_string_equal(find(4711)->subject->label, "rank 3 of 8, job 17 (train)");
    seconds(5);
    assert_int_equal(find(4711)->page_count, 1); /* the same once */
    assert_int_equal(sl_mon_ranks_counts(ranks).ranks, 1);
}

static void a_page_that_is_another_ones_is_not_believed(void **state)
{
    char path[256];

    (void)state;
    tree_process(1, "init", 'S', 1, "/");
    tree_process(2, "other", 'S', START, "/");
    page_init(&page, 1, START); /* the number was another's when it began */
    put_page(page_name(1));
    page_init(&page, 77, START); /* by its name of process 2 */
    put_page(page_name(2));
    seconds(4);
    assert_int_equal(watched(), 0);
    /* Of a user as whom the process does not act. */
    page_init(&page, 2, START);
    put_page("sluice.12345.2.0");
    if (geteuid() == 0) {
        snprintf(path, sizeof(path), "%s/shm/sluice.12345.2.0", tree);
        assert_int_equal(chown(path, 12345, 12345), 0);
    }
    seconds(4);
    assert_true(geteuid() != 0 || watched() == 0);
}

static void what_is_no_page_is_passed_over(void **state)
{
    char path[256], target[256];

    (void)state;
    tree_process(4711, "train", 'R', START, "/");
    tree_put("rubbish", "shm/%s", page_name(4711));
    snprintf(path, sizeof(path), "%s/shm/sluice.%u.4711.1", tree, geteuid());
    assert_int_equal(mkfifo(path, 0600), 0); /* would be waited for */
    page_init(&page, 4711, START);
    snprintf(target, sizeof(target), "%s/elsewhere", tree);
    page_write(&page, target);
    snprintf(path, sizeof(path), "%s/shm/sluice.%u.4711.2", tree, geteuid());
    assert_int_equal(symlink(target, path), 0); /* would be followed */
    seconds(5);
    assert_int_equal(watched(), 0);
}

static void names_are_read_strictly(void **state)
{
    static const char *const bad[] = {
        "sluice.1.2",           "sluice.1.2.3.4", "sluice.1.2.x",
        "sluice..2.3",          "sluice.-1.2.3",  "sluice.1.0.0",
        "sluice.1.2.3 ",        "sluice",         "sluice.99999999999.1.0",
        "sluice.1.4294967296.0"};
    uint32_t user;
    int32_t pid;

    (void)state;
    assert_true(sl_mon_page_name("sluice.1000.4711.2", &user, &pid));
    assert_true(user == 1000 && pid == 4711);
    for (unsigned i = 0; i < SL_ARRAY_LEN(bad); i++)
        if (sl_mon_page_name(bad[i], &user, &pid))
            fail_msg("taken: %s", bad[i]);
    assert_true(sl_mon_nccl_name("sluice-nccl-4711-3", &pid) && pid == 4711);
    assert_false(sl_mon_nccl_name("sluice-nccl-4711", &pid));
    assert_false(sl_mon_nccl_name("sluice-nccl-4711-3x", &pid));
}

static void a_page_in_the_making_is_looked_at_again(void **state)
{
    (void)state;
    tree_process(4711, "train", 'R', START, "/");
    tree_put("", "shm/%s", page_name(4711));
    seconds(1);
    assert_int_equal(watched(), 0);
    page_init(&page, 4711, START);
    put_page(page_name(4711));
    seconds(1);
    assert_int_equal(watched(), 1);
}

static void a_page_of_a_container_is_found_by_its_descriptor(void **state)
{
    char path[256], target[256];

    (void)state;
    if (access("/dev/shm", W_OK) != 0) {
        print_message("no /dev/shm: skipped\n");
        skip();
    }
    tree_process(4711, "train", 'R', START, "/");
    tree_put("Name:\ttrain\nUid:\t0\t0\t0\t0\nNSpid:\t4711\t12\n", "proc/4711/status");
    page_init(&page, 12, START);
    snprintf(target, sizeof(target), "/dev/shm/sluice-test-%d", (int)getpid());
    page_write(&page, target);
    tree_put("", "proc/4711/fd/x");
    snprintf(path, sizeof(path), "%s/proc/4711/fd/7", tree);
    assert_int_equal(symlink(target, path), 0);
    seconds(3);
    unlink(target);
    if (geteuid() != 0)
        skip(); /* the made status says that it is root's */
    assert_non_null(find(4711));
    assert_true(find(4711)->is_rank);
}

static void a_child_with_its_parents_page_is_no_rank(void **state)
{
    char path[256], target[256];

    (void)state;
    rank(4711);
    tree_process(4712, "worker", 'S', START + 5, "/");
    tree_put("", "proc/4712/fd/x");
    snprintf(path, sizeof(path), "%s/proc/4712/fd/7", tree);
    snprintf(target, sizeof(target), "/dev/shm/sluice-test-%d", (int)getpid());
    page_write(&page, target);
    assert_int_equal(symlink(target, path), 0);
    seconds(6);
    unlink(target);
    assert_int_equal(watched(), 1);
}

static void processes_are_named_by_command_or_cgroup(void **state)
{
    (void)state;
    snprintf(config.ranks_command, sizeof(config.ranks_command), "serve.py,infer");
    snprintf(config.ranks_cgroup, sizeof(config.ranks_cgroup), "/slurm/,/kubepods");
    tree_process(11, "infer-7", 'S', START, "/");
    tree_process(12, "x", 'S', START, "/slurm/job_3");
    tree_process(13, "y", 'S', START, "/other/slurm/");
    seconds(1);
    assert_int_equal(watched(), 2);
    assert_non_null(find(11));
    assert_non_null(find(12));
    assert_false(find(11)->is_rank);
    assert_string_equal(find(11)->label, "a process (infer-7)");
    tree_process(14, "infer-8", 'S', START, "/"); /* later */
    seconds(3);
    assert_non_null(find(14));
    assert_int_equal(sl_mon_ranks_counts(ranks).named, 3);
}

static void one_that_ends_is_gone_for_one_period(void **state)
{
    (void)state;
    rank(4711);
    seconds(1);
    page.process.flags = SL_STATE_ENDED;
    put_page(page_name(4711));
    tree_remove("proc/4711");
    seconds(1);
    assert_non_null(find(4711));
    assert_true(find(4711)->is_gone && find(4711)->left_well);
    assert_null(find(4711)->subject);
    assert_null(sl_mon_find(mon, SL_MON_PROCESS, "pid 4711"));
    seconds(1);
    assert_null(find(4711));
    assert_int_equal(watched(), 0);
}

static void one_that_is_killed_did_not_leave_well_and_is_told_of_once(void **state)
{
    (void)state;
    rank(4711);
    seconds(1);
    tree_process(4711, "train", 'Z', START, "/"); /* nobody has waited for it yet */
    seconds(1);
    assert_true(find(4711)->is_gone && !find(4711)->left_well);
    seconds(10); /* its page stays */
    assert_int_equal(watched(), 0);
}

static void one_that_lived_between_two_periods_is_found_dead(void **state)
{
    (void)state;
    page_init(&page, 50, START);
    page.process.made_ns = now.mono_ns - SL_MON_MIN; /* before the agent looked */
    put_page(page_name(50));
    seconds(1);
    assert_int_equal(watched(), 0);
    page_init(&page, 52, START); /* the same, that comes to this folder later */
    page.process.made_ns = SL_MON_MIN;
    put_page(page_name(52));
    seconds(1);
    assert_int_equal(watched(), 0);
    page_init(&page, 51, START);
    page.process.made_ns = now.mono_ns;
    put_page(page_name(51));
    seconds(1);
    assert_non_null(find(51));
    assert_true(find(51)->is_found_dead && find(51)->is_gone && !find(51)->left_well);
    seconds(5);
    assert_int_equal(watched(), 0);
}

static void a_number_that_is_used_again_is_another_process(void **state)
{
    (void)state;
    rank(4711);
    seconds(1);
    uint64_t number = find(4711)->number;
    struct sl_mon_evidence evidence = {.source = "test", .text = "it hung"};

    sl_mon_sample(mon, find(4711)->subject, SL_MON_CHECK_PROCESS_STOPPED, true, &evidence);
    tree_remove("proc/4711");
    tree_process(4711, "train", 'R', START + 1000, "/");
    page_init(&page, 4711, START + 1000);
    char path[256];

    snprintf(path, sizeof(path), "%s/shm/%s", tree, page_name(4711));
    assert_int_equal(unlink(path), 0);
    put_page(page_name(4711));
    seconds(3);
    assert_non_null(find(4711));
    assert_int_not_equal(find(4711)->number, number);
    assert_int_equal(sl_mon_subject_state(find(4711)->subject), SL_MON_OK);
    assert_string_equal(told[told_count - 1], "pid 4711 ok it is over");
}

/* ---- what the store had ---- */

static struct sl_mon_subject *restored(const char *name, enum sl_mon_check check, uint64_t since_ns)
{
    struct sl_mon_condition condition = {
        .state = SL_MON_BAD, .bads = 1, .since_ns = since_ns, .bad_ns = since_ns};
    struct sl_mon_subject *subject = sl_mon_subject(mon, SL_MON_PROCESS, name);

    sl_mon_restore(mon, subject, check, &condition);
    return subject;
}

static void reopen(void)
{
    sl_mon_ranks_close(ranks);
    assert_int_equal(sl_mon_ranks_open(ranks), 0);
}

static void restored_subjects_without_a_process_end(void **state)
{
    (void)state;
    restored("pid 99", SL_MON_CHECK_PROCESS_STOPPED, now.mono_ns - SL_MON_MIN);
    restored("rubbish", SL_MON_CHECK_PROCESS_STARVED, now.mono_ns - SL_MON_MIN);
    reopen();
    seconds(1);
    assert_null(sl_mon_find(mon, SL_MON_PROCESS, "pid 99"));
    assert_null(sl_mon_find(mon, SL_MON_PROCESS, "rubbish"));
    assert_int_equal(told_count, 2);
    assert_string_equal(told[0], "pid 99 ok it is over");
}

static void restored_subjects_of_a_process_that_lives_stay(void **state)
{
    (void)state;
    rank(4711);
    restored("pid 4711", SL_MON_CHECK_PROCESS_STOPPED, now.mono_ns - SL_MON_S);
    reopen();
    seconds(3);
    assert_int_equal(told_count, 0);
    assert_int_equal(sl_mon_subject_state(find(4711)->subject), SL_MON_BAD);
}

static void restored_subjects_of_an_earlier_process_end(void **state)
{
    (void)state;
    rank(4711); /* it began at 3,000 s */
    restored("pid 4711", SL_MON_CHECK_PROCESS_STOPPED, 2000 * SL_MON_S);
    reopen();
    seconds(1);
    assert_int_equal(told_count, 1);
    assert_int_equal(sl_mon_subject_state(find(4711)->subject), SL_MON_OK);
}

static void a_death_outlives_its_process_until_it_is_calm(void **state)
{
    struct sl_mon_evidence evidence = {.source = "test", .text = "it died"};

    (void)state;
    rank(4711);
    seconds(1);
    tree_remove("proc/4711");
    seconds(1);
    sl_mon_sample(mon, sl_mon_ranks_mourn(ranks, find(4711)), SL_MON_CHECK_PROCESS_DIED, true,
                  &evidence);
    for (unsigned i = 0; i < 50; i++) {
        seconds(1);
        sl_mon_calm(mon, SL_MON_CHECK_PROCESS_DIED);
    }
    assert_non_null(sl_mon_find(mon, SL_MON_PROCESS, "pid 4711"));
    for (unsigned i = 0; i < 20; i++) {
        seconds(1);
        sl_mon_calm(mon, SL_MON_CHECK_PROCESS_DIED);
    }
    assert_null(sl_mon_find(mon, SL_MON_PROCESS, "pid 4711"));
}

static void limit_descriptors(rlim_t count)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    sl_mon_ranks_close(ranks);
    assert_int_equal(sl_mon_ranks_open(ranks), 0);
}

static void few_descriptors_are_left_to_others(void **state)
{
    struct rlimit before;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit_descriptors(1024);
    snprintf(config.ranks_command, sizeof(config.ranks_command), "many");
    for (int i = 0; i < 100; i++)
        tree_process(100 + i, "many", 'S', START, "/");
    seconds(1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(watched(), 64);
    assert_int_equal(sl_mon_ranks_counts(ranks).left_out, 36);
}

static void more_than_there_is_room_for_are_counted(void **state)
{
    struct rlimit limit;

    (void)state;
    limit_descriptors(8192);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 8192) {
        print_message("no 8,192 descriptors here: skipped\n");
        skip();
    }
    snprintf(config.ranks_command, sizeof(config.ranks_command), "many");
    for (int i = 0; i < SL_MON_RANKS_MAX + 10; i++)
        tree_process(100 + i, "many", 'S', START, "/");
    seconds(1);
    assert_int_equal(watched(), SL_MON_RANKS_MAX);
    assert_int_equal(sl_mon_ranks_counts(ranks).left_out, 10);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_rank_is_found_by_its_page),
        CASE(a_page_that_is_another_ones_is_not_believed),
        CASE(what_is_no_page_is_passed_over),
        CASE(names_are_read_strictly),
        CASE(a_page_in_the_making_is_looked_at_again),
        CASE(a_page_of_a_container_is_found_by_its_descriptor),
        CASE(a_child_with_its_parents_page_is_no_rank),
        CASE(processes_are_named_by_command_or_cgroup),
        CASE(one_that_ends_is_gone_for_one_period),
        CASE(one_that_is_killed_did_not_leave_well_and_is_told_of_once),
        CASE(one_that_lived_between_two_periods_is_found_dead),
        CASE(a_number_that_is_used_again_is_another_process),
        CASE(restored_subjects_without_a_process_end),
        CASE(restored_subjects_of_a_process_that_lives_stay),
        CASE(restored_subjects_of_an_earlier_process_end),
        CASE(a_death_outlives_its_process_until_it_is_calm),
        CASE(few_descriptors_are_left_to_others),
        CASE(more_than_there_is_room_for_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
