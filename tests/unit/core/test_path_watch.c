/* SPDX-License-Identifier: Apache-2.0 */
#include <sluice/paths.h>

#include "core/clock.h"
#include "core/err.h"
#include "core/path_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define HEAD "sluice-paths 1\n"
#define STEP_NS (20 * SL_NS_PER_MS)

struct place {
    char folder[64], file[128], agent[128];
    uint64_t now_ns;
    struct sl_path_watch watch;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    snprintf(p->folder, sizeof(p->folder), "/tmp/sluice-paths-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->file, sizeof(p->file), "%s/table", p->folder);
    snprintf(p->agent, sizeof(p->agent), "%s/agent", p->folder);
    sl_path_watch_init(&p->watch, p->file, p->agent, "train");
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    DIR *dir = opendir(p->folder);

    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(p->folder);
    sl_path_watch_fini(&p->watch);
    free(p);
    return 0;
}

/* As anybody writes it who knows nothing of this code: in place. */
static void put_into(const char *file, const char *text, mode_t mode)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void put(const struct place *p, const char *text, mode_t mode)
{
    put_into(p->file, text, mode);
}

static bool poll_later(struct place *p)
{
    p->now_ns += STEP_NS;
    return sl_path_watch_poll(&p->watch, 1, p->now_ns);
}

static void rules_of_this_rank_come_go_and_change(void **state)
{
    struct place *p = *state;

    assert_false(poll_later(p)); /* there is none */
    put(p, HEAD "job=other avoid\njob=train rank=1 avoid\nrank=2 avoid\nend 3\n", 0600);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 1);
    assert_int_equal(p->watch.rules[0].rank, 1);
    assert_false(poll_later(p));
    put(p, HEAD "weight=5\nend 1\n", 0600);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.rules[0].weight, 5);
    assert_int_equal(unlink(p->file), 0);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 0);
    assert_false(poll_later(p));
}

static struct sl_path_setting setting(const struct place *p, const char *port)
{
    return sl_path_rules_apply(p->watch.rules, p->watch.count, 2, 0, port);
}

static void the_agent_speaks_first_and_people_have_the_last_word(void **state)
{
    struct place *p = *state;

    put_into(p->agent, HEAD "port=rxe0:1 avoid\nport=rxe2:1 weight=10\nend 2\n", 0600);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 2);
    assert_true(setting(p, "rxe0:1").avoid);
    assert_false(setting(p, "rxe0:11").avoid);
    assert_false(setting(p, NULL).avoid);
    assert_int_equal(setting(p, "rxe2:1").weight, 10);
    put(p, HEAD "path=0 use\nend 1\n", 0600);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 3);
    assert_false(setting(p, "rxe0:1").avoid);
    assert_int_equal(setting(p, "rxe2:1").weight, 10);
    /* One is damaged, or goes: the other one stands. */
    put_into(p->agent, HEAD "port=rxe0:1\nend 1\n", 0600);
    assert_false(poll_later(p));
    assert_int_equal(p->watch.count, 3);
    assert_int_equal(unlink(p->file), 0);
    assert_true(poll_later(p));
    assert_true(setting(p, "rxe0:1").avoid);
    assert_int_equal(unlink(p->agent), 0);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 0);
}

static void the_same_rules_once_more_are_no_change(void **state)
{
    struct place *p = *state;

    put(p, HEAD "until 99999999998\nport=a:1 avoid\nend 1\n", 0600);
    assert_true(poll_later(p));
    put(p, HEAD "until 99999999999\nport=a:1 avoid\nend 1\n", 0600);
    assert_false(poll_later(p));
    assert_int_equal(p->watch.sources[SL_PATH_OF_PEOPLE].until_s, 99999999999);
    assert_true(setting(p, "a:1").avoid);
    put(p, HEAD "until 99999999999\nport=b:1 avoid\nend 1\n", 0600);
    assert_true(poll_later(p));
    assert_true(setting(p, "b:1").avoid);
}

static void the_file_is_looked_at_every_20_ms_at_most(void **state)
{
    struct place *p = *state;

    assert_false(poll_later(p));
    put(p, HEAD "avoid\nend 1\n", 0600);
    assert_false(sl_path_watch_poll(&p->watch, 1, p->now_ns + STEP_NS - 1));
    assert_true(sl_path_watch_poll(&p->watch, 1, p->now_ns + STEP_NS));
}

static void rules_of_others_alone_are_no_change(void **state)
{
    struct place *p = *state;

    put(p, HEAD "job=other avoid\nend 1\n", 0600);
    assert_false(poll_later(p));
    assert_int_equal(p->watch.count, 0);
}

static void a_torn_table_changes_nothing(void **state)
{
    struct place *p = *state;
    static const char whole[] = HEAD "path=1 avoid\npath=2 avoid\nend 2\n";

    put(p, HEAD "path=0 avoid\nend 1\n", 0600);
    assert_true(poll_later(p));
    for (size_t cut = 0; cut < sizeof(whole) - 1; cut++) {
        char part[sizeof(whole)];

        snprintf(part, sizeof(part), "%.*s", (int)cut, whole);
        put(p, part, 0600);
        assert_false(poll_later(p));
        assert_int_equal(p->watch.count, 1);
        assert_int_equal(p->watch.rules[0].path, 0);
    }
    put(p, whole, 0600);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 2);
}

static void a_file_that_others_may_have_written_changes_nothing(void **state)
{
    struct place *p = *state;
    char aside[160];

    put(p, HEAD "avoid\nend 1\n", 0620);
    assert_false(poll_later(p));
    assert_non_null(strstr(sluice_last_error(), "by others than its owner"));
    put(p, HEAD "avoid\nend 1\n", 0602);
    assert_false(poll_later(p));
    put(p, HEAD "avoid\nend 1\n", 0644);
    assert_true(poll_later(p));
    /* A link leads to what may be another user's choice. */
    snprintf(aside, sizeof(aside), "%s/aside", p->folder);
    assert_int_equal(rename(p->file, aside), 0);
    assert_int_equal(symlink(aside, p->file), 0);
    put(p, HEAD "weight=1\nend 1\n", 0644);
    assert_false(poll_later(p));
    assert_int_equal(p->watch.rules[0].avoid, 1);
    /* A pipe would be waited for. */
    assert_int_equal(unlink(p->file), 0);
    assert_int_equal(mkfifo(p->file, 0600), 0);
    assert_false(poll_later(p));
    assert_int_equal(p->watch.count, 1);
}

static void a_file_of_another_user_changes_nothing(void **state)
{
    struct place *p = *state;

    put(p, HEAD "avoid\nend 1\n", 0600);
    if (chown(p->file, 65534, 65534) != 0)
        skip(); /* only root can give a file away */
    assert_false(poll_later(p));
    assert_int_equal(p->watch.count, 0);
    assert_non_null(strstr(sluice_last_error(), "belongs to user 65534"));
}

static void a_large_file_changes_nothing(void **state)
{
    struct place *p = *state;

    put(p, HEAD "end 0\n", 0600);
    assert_int_equal(truncate(p->file, SL_PATH_TABLE_BYTES_MAX + 1), 0);
    assert_false(poll_later(p));
    assert_non_null(strstr(sluice_last_error(), "more than the"));
}

static void rules_end_with_their_time(void **state)
{
    struct place *p = *state;
    char text[128];

    put(p, HEAD "until 1000\navoid\nend 1\n", 0600);
    assert_false(poll_later(p)); /* over since 1970 */
    assert_int_equal(p->watch.count, 0);
    snprintf(text, sizeof(text), HEAD "until %llu\navoid\nend 1\n",
             (unsigned long long)sl_wall_s() + 1000);
    put(p, text, 0600);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 1);
    p->watch.sources[SL_PATH_OF_PEOPLE].until_s = sl_wall_s(); /* time goes by */
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 0);
    assert_false(poll_later(p));
}

static void off_reads_nothing(void **state)
{
    struct place *p = *state;
    struct sl_path_watch watch;
    char name[64];

    sl_path_watch_init(&watch, "off", "off", "train");
    assert_false(sl_path_watch_poll(&watch, 1, p->now_ns));
    assert_string_equal(watch.sources[SL_PATH_OF_PEOPLE].file, "");
    assert_string_equal(watch.sources[SL_PATH_OF_AGENT].file, "");
    sl_path_watch_fini(&watch);
    sl_path_watch_init(&watch, "auto", "auto", "train");
    snprintf(name, sizeof(name), "/dev/shm/sluice-paths.%u", (unsigned)geteuid());
    assert_string_equal(watch.sources[SL_PATH_OF_PEOPLE].file, name);
    assert_string_equal(watch.sources[SL_PATH_OF_AGENT].file, "/run/sluiced/paths");
    sl_path_watch_fini(&watch);
}

/* ---- the public call ---- */

static unsigned files_in(const char *folder)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void a_planner_writes_what_processes_read(void **state)
{
    struct place *p = *state;
    struct sluice_path_rule rules[2];

    sluice_path_rule_init(&rules[0]);
    rules[0].weight = 30;
    rules[0].label = 0xfffff;
    sluice_path_rule_init(&rules[1]);
    rules[1].job = "train";
    rules[1].rank = 1;
    rules[1].peer = 7;
    rules[1].path = 3;
    rules[1].avoid = 1;
    assert_int_equal(sluice_paths_write(p->file, rules, 2, 0), 0);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 2);
    assert_int_equal(p->watch.rules[0].weight, 30);
    assert_int_equal(p->watch.rules[0].label, 0xfffff);
    assert_int_equal(p->watch.rules[1].peer, 7);
    assert_int_equal(sluice_paths_write(p->file, NULL, 0, 0), 0);
    assert_true(poll_later(p));
    assert_int_equal(p->watch.count, 0);
    assert_int_equal(files_in(p->folder), 1); /* nothing is left beside it */
}

static void a_rule_that_cannot_be_leaves_the_table_as_it_was(void **state)
{
    struct place *p = *state;
    struct sluice_path_rule good, bad;

    sluice_path_rule_init(&good);
    good.avoid = 1;
    assert_int_equal(sluice_paths_write(p->file, &good, 1, 0), 0);
    assert_true(poll_later(p));
    sluice_path_rule_init(&bad); /* says nothing */
    assert_int_equal(sluice_paths_write(p->file, &bad, 1, 0), -EINVAL);
    bad.weight = 0x10005; /* 5 in 16 bits */
    assert_int_equal(sluice_paths_write(p->file, &bad, 1, 0), -EINVAL);
    bad.weight = 5;
    bad.job = "two words";
    assert_int_equal(sluice_paths_write(p->file, &bad, 1, 0), -EINVAL);
    bad.job = NULL;
    bad.reserved[3] = 1;
    assert_int_equal(sluice_paths_write(p->file, &bad, 1, 0), -EINVAL);
    assert_int_equal(sluice_paths_write(p->file, NULL, 1, 0), -EINVAL);
    assert_int_equal(sluice_paths_write(p->file, &good, 1, -1), -EINVAL);
    assert_int_equal(sluice_paths_write("/nowhere/table", &good, 1, 0), -ENOENT);
    assert_false(poll_later(p));
    assert_int_equal(p->watch.count, 1);
    assert_int_equal(files_in(p->folder), 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(rules_of_this_rank_come_go_and_change),
        CASE(the_agent_speaks_first_and_people_have_the_last_word),
        CASE(the_same_rules_once_more_are_no_change),
        CASE(the_file_is_looked_at_every_20_ms_at_most),
        CASE(rules_of_others_alone_are_no_change),
        CASE(a_torn_table_changes_nothing),
        CASE(a_file_that_others_may_have_written_changes_nothing),
        CASE(a_file_of_another_user_changes_nothing),
        CASE(a_large_file_changes_nothing),
        CASE(rules_end_with_their_time),
        CASE(off_reads_nothing),
        CASE(a_planner_writes_what_processes_read),
        CASE(a_rule_that_cannot_be_leaves_the_table_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
