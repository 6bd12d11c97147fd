/* SPDX-License-Identifier: Apache-2.0 */
/* What the store keeps: over restarts, over kills at any moment, and when its file is damaged. */
#include "core/err.h"
#include "core/rng.h"
#include "monitor/store.h"
#include "tests/util/quick_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[48], path[64], aside[128];
static const struct sl_mon_store_options plenty = {.transitions_max = 100000};
static struct sl_mon_store *store;
static struct sl_mon *mon;
static struct sl_mon_time now = {.mono_ns = 1000, .wall_ns = 2000, .boot_ns = 3000};
static int stored;

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    stored = sl_mon_store_put(store, transition);
}

static void reopen(const struct sl_mon_store_options *options)
{
    sl_mon_store_close(store);
    sl_mon_destroy(mon);
    store = NULL;
    if (sl_mon_store_open(path, options, &store, aside, sizeof(aside)) != 0)
        fail_msg("%s", sluice_last_error());
    const struct sl_mon_options own = {
        .subjects_max = 64, .next_id = sl_mon_store_next(store), .on_transition = on_transition};

    assert_int_equal(sl_mon_create(&own, &mon), 0);
    sl_mon_set_time(mon, &now);
}

static int begin(void **state)
{
    (void)state;
    assert_true(quick_dir(folder, sizeof(folder), "sluice-store"));
    snprintf(path, sizeof(path), "%s/state.db", folder);
    reopen(&plenty);
    return 0;
}

static int end(void **state)
{
    char command[128];

    (void)state;
    sl_mon_store_close(store);
    sl_mon_destroy(mon);
    store = NULL;
    mon = NULL;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    return 0;
}

static const struct sl_mon_evidence evidence = {
    .source = "kmsg", .before = 1, .after = 2, .text = "it's \"quoted\"; DROP TABLE transitions"};

static struct sl_mon_subject *gpu(unsigned i)
{
    char name[32];

    snprintf(name, sizeof(name), "0000:%02x:00.0", i);
    return sl_mon_subject(mon, SL_MON_GPU, name);
}

static void bad(unsigned i)
{
    stored = 1;
    sl_mon_sample(mon, gpu(i), SL_MON_CHECK_GPU_FATAL, true, &evidence);
    assert_int_equal(stored, 0);
}

static void what_was_stored_is_there_after_a_restart(void **state)
{
    struct sl_mon_record records[4];

    (void)state;
    sl_mon_set_boot(mon, "boot-1");
    assert_int_equal(sl_mon_store_boot(store, "boot-1"), 0);
    bad(7);
    reopen(&plenty);
    assert_int_equal(sl_mon_store_next(store), 2);
    assert_int_equal(sl_mon_store_list(store, 0, records, 4), 1);
    assert_int_equal(records[0].id, 1);
    assert_int_equal(records[0].wall_ns, 2000);
    assert_int_equal(records[0].mono_ns, 1000);
    assert_string_equal(records[0].boot_id, "boot-1");
    assert_string_equal(records[0].kind, "gpu");
    assert_string_equal(records[0].subject, "0000:07:00.0");
    assert_string_equal(records[0].check, "gpu_fatal");
    assert_string_equal(records[0].condition, "GPUUnhealthy");
    assert_string_equal(records[0].from, "ok");
    assert_string_equal(records[0].to, "bad");
    assert_string_equal(records[0].cause, "confirmed");
    assert_string_equal(records[0].source, "kmsg");
    assert_int_equal(records[0].before, 1);
    assert_int_equal(records[0].after, 2);
    assert_string_equal(records[0].text, evidence.text);
}

/* gpud 381: after a restart a real fault shows healthy for a while. */
static void a_fault_is_a_fault_after_a_restart_and_not_after_a_boot(void **state)
{
    (void)state;
    sl_mon_set_boot(mon, "boot-1");
    sl_mon_store_boot(store, "boot-1");
    bad(7);
    reopen(&plenty);
    assert_int_equal(sl_mon_store_restore(store, mon, 7), 0);
    assert_int_equal(sl_mon_subject_state(gpu(7)), SL_MON_BAD);
    sl_mon_set_boot(mon, "boot-1");
    assert_int_equal(sl_mon_subject_state(gpu(7)), SL_MON_BAD);
    sl_mon_set_boot(mon, "boot-2");
    assert_int_equal(sl_mon_subject_state(gpu(7)), SL_MON_OK);
    assert_int_equal(sl_mon_condition(gpu(7), SL_MON_CHECK_GPU_FATAL)->entered[SL_MON_BAD], 1);
    reopen(&plenty);
    assert_int_equal(sl_mon_store_restore(store, mon, 7), 0);
    assert_int_equal(sl_mon_subject_state(gpu(7)), SL_MON_OK);
    assert_int_equal(sl_mon_store_next(store), 3);
}

static struct sl_mon_verdict verdict_at(uint64_t from, bool only_open, int count)
{
    struct sl_mon_verdict verdicts[4] = {{.id = 0}};

    assert_int_equal(sl_mon_store_verdicts(store, from, only_open, verdicts, 4), count);
    return verdicts[0];
}

static void pass(uint64_t ns)
{
    now.mono_ns += ns;
    now.wall_ns += ns;
    now.boot_ns += ns;
    sl_mon_set_time(mon, &now);
}

/* From BAD until OK it is one verdict, however often it seems to get better in between. */
static void a_verdict_lasts_until_all_is_well(void **state)
{
    struct sl_mon_subject *one = gpu(3);
    struct sl_mon_verdict verdict;

    (void)state;
    sl_mon_sample(mon, one, SL_MON_CHECK_GPU_ERROR, true, &evidence);
    sl_mon_sample(mon, one, SL_MON_CHECK_GPU_ERROR, true, &evidence); /* an event */
    verdict = verdict_at(0, true, 1);
    assert_int_equal(verdict.id, 1);
    assert_int_equal(verdict.opened_ns, now.wall_ns);
    assert_int_equal(verdict.closed_ns, 0);
    assert_string_equal(verdict.kind, "gpu");
    assert_string_equal(verdict.subject, "0000:03:00.0");
    assert_string_equal(verdict.check, "gpu_error");
    assert_string_equal(verdict.condition, "GPUSuspect");
    assert_false(verdict.is_fatal);
    assert_string_equal(verdict.text, evidence.text);
    pass(10 * SL_MON_MIN);
    sl_mon_calm(mon, SL_MON_CHECK_GPU_ERROR);
    assert_int_equal(sl_mon_subject_state(one), SL_MON_RECOVERING);
    sl_mon_sample(mon, one, SL_MON_CHECK_GPU_ERROR, true, &evidence);
    assert_int_equal(sl_mon_subject_state(one), SL_MON_BAD);
    assert_int_equal(verdict_at(0, true, 1).id, 1);
    pass(SL_MON_HOUR);
    sl_mon_calm(mon, SL_MON_CHECK_GPU_ERROR);
    pass(2 * SL_MON_HOUR);
    sl_mon_calm(mon, SL_MON_CHECK_GPU_ERROR);
    assert_int_equal(sl_mon_subject_state(one), SL_MON_OK);
    verdict_at(0, true, 0);
    assert_int_equal(verdict_at(0, false, 1).closed_ns, now.wall_ns);
    bad(3);
    assert_int_equal(verdict_at(0, false, 2).id, 1);
    verdict = verdict_at(2, false, 1);
    assert_int_equal(verdict.id, sl_mon_store_next(store) - 1);
    assert_true(verdict.is_fatal);
}

static void who_has_seen_a_verdict_is_kept(void **state)
{
    (void)state;
    bad(3);
    assert_int_equal(sl_mon_store_verdict_ack(store, 2, 5, "nobody"), -ENOENT);
    assert_int_equal(sl_mon_store_verdict_ack(store, 1, 5, "anna"), 0);
    assert_int_equal(sl_mon_store_verdict_ack(store, 1, 9, "otto"), 0);
    reopen(&plenty);
    assert_int_equal(verdict_at(0, true, 1).acked_ns, 5);
    assert_string_equal(verdict_at(0, true, 1).acked_by, "anna");
}

/* So of a check that a later agent has not, or of a transition that came when the disk was full. */
static void a_verdict_of_what_is_not_known_any_more_ends(void **state)
{
    (void)state;
    bad(3);
    bad(4);
    assert_int_equal(sl_mon_store_forget(store, gpu(4)), 0);
    reopen(&plenty);
    assert_int_equal(sl_mon_store_restore(store, mon, 77), 0);
    assert_int_equal(verdict_at(0, true, 1).id, 1);
    assert_int_equal(verdict_at(2, false, 1).closed_ns, 77);
    assert_null(sl_mon_find(mon, SL_MON_GPU, "0000:04:00.0"));
}

/* The disk is full, and later it is not: nothing is missing, and all is in its order. */
static void what_could_not_be_stored_is_stored_later(void **state)
{
    struct sl_mon_record records[8];
    struct rlimit before, none;

    (void)state;
    bad(1);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (unsigned i = 2; i < 5; i++)
        sl_mon_sample(mon, gpu(i), SL_MON_CHECK_GPU_FATAL, true, &evidence);
    assert_int_not_equal(stored, 0);
    assert_int_equal(sl_mon_store_waiting(store), 3);
    assert_int_not_equal(sl_mon_store_retry(store), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(sl_mon_store_retry(store), 0);
    assert_int_equal(sl_mon_store_waiting(store), 0);
    assert_int_equal(sl_mon_store_lost(store), 0);
    bad(5);
    assert_int_equal(sl_mon_store_list(store, 0, records, 8), 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(records[i].id, i + 1);
    assert_string_equal(records[4].subject, "0000:05:00.0");
}

static void what_waits_for_too_long_is_lost_and_counted(void **state)
{
    struct rlimit before, none;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (unsigned i = 0; i < 300; i++) {
        sl_mon_sample(mon, gpu(1), SL_MON_CHECK_GPU_FATAL, true, &evidence);
        sl_mon_clear(mon, gpu(1));
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(sl_mon_store_waiting(store), 256);
    assert_int_equal(sl_mon_store_lost(store), 600 - 256);
    assert_int_equal(sl_mon_store_retry(store), 0);
}

static void outputs_go_on_where_they_were(void **state)
{
    uint64_t at = 99;

    (void)state;
    assert_int_equal(sl_mon_store_acked(store, "slurm", &at), 0);
    assert_int_equal(at, 0);
    assert_int_equal(sl_mon_store_ack(store, "slurm", 17), 0);
    assert_int_equal(sl_mon_store_ack(store, "journal", 3), 0);
    reopen(&plenty);
    assert_int_equal(sl_mon_store_acked(store, "slurm", &at), 0);
    assert_int_equal(at, 17);
}

static void flip(void)
{
    static bool is_bad;

    is_bad = !is_bad;
    sl_mon_set_time(mon, &now);
    if (is_bad)
        sl_mon_sample(mon, gpu(1), SL_MON_CHECK_GPU_FATAL, true, &evidence);
    else
        sl_mon_clear(mon, gpu(1));
}

static void the_oldest_give_way(void **state)
{
    const struct sl_mon_store_options few = {.transitions_max = 100};
    struct sl_mon_record record;

    (void)state;
    reopen(&few);
    for (unsigned i = 0; i < 2000; i++)
        flip();
    assert_int_equal(sl_mon_store_next(store), 2001);
    assert_int_equal(sl_mon_store_list(store, 0, &record, 1), 1);
    assert_true(record.id >= 2001 - 100 - 256);
}

static void a_file_that_may_not_grow_goes_on(void **state)
{
    const struct sl_mon_store_options small = {.transitions_max = 1000000, .bytes_max = 200000};
    struct stat file;

    (void)state;
    reopen(&small);
    for (unsigned i = 0; i < 3000; i++) {
        stored = 1;
        flip();
        assert_int_equal(stored, 0);
    }
    assert_int_equal(sl_mon_store_next(store), 3001);
    assert_int_equal(stat(path, &file), 0);
    assert_true(file.st_size <= 200000);
}

/* ---- damage ---- */

static void damage(off_t at, size_t len)
{
    char junk[8192];
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    memset(junk, 0xa5, sizeof(junk));
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, junk, len, at), len);
    close(fd);
}

static void a_damaged_file_is_set_aside_and_the_agent_goes_on(void **state)
{
    static const off_t places[] = {0, 20, 4096, 8192};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(places); i++) {
        if (i > 0) {
            end(NULL);
            begin(NULL);
        }
        for (unsigned j = 0; j < 400; j++)
            flip();
        sl_mon_store_close(store);
        store = NULL;
        damage(places[i], 4096);
        reopen(&plenty);
        assert_true(strncmp(aside, path, strlen(path)) == 0 && strlen(aside) > strlen(path));
        assert_int_equal(access(aside, F_OK), 0);
        assert_int_equal(sl_mon_store_next(store), 1);
        bad(9);
        reopen(&plenty);
        assert_string_equal(aside, "");
        assert_int_equal(sl_mon_store_next(store), 2);
    }
}

static void what_is_no_store_at_all_is_set_aside(void **state)
{
    FILE *file;

    (void)state;
    sl_mon_store_close(store);
    store = NULL;
    file = fopen(path, "we");
    fputs("this was somebody's letter to his mother, and is not short at all", file);
    fclose(file);
    reopen(&plenty);
    assert_int_not_equal(aside[0], '\0');
    bad(1);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    struct sl_mon_store *none = NULL;

    (void)state;
    assert_int_equal(sl_mon_store_open("/no/such/folder/state.db", &plenty, &none, aside, 128),
                     -EACCES);
    assert_non_null(strstr(sluice_last_error(), "/no/such/folder/state.db"));
    assert_null(none);
}

/* ---- killed at any moment ---- */

/* Stores, and says on the pipe what it knows to be stored. */
static void child(int fd)
{
    reopen(&plenty);
    for (;;) {
        uint64_t id = sl_mon_store_next(store);

        stored = 1;
        flip();
        if (stored != 0 || write(fd, &id, sizeof(id)) != sizeof(id))
            _exit(1);
    }
}

static void nothing_that_was_acknowledged_is_lost_by_a_kill(void **state)
{
    struct sl_rng rng;
    uint64_t total = 0;

    (void)state;
    sl_rng_init(&rng, 3);
    for (unsigned round = 0; round < 25; round++) {
        struct sl_mon_record record;
        uint64_t id, last = 0;
        int fds[2], status;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        sl_mon_store_close(store); /* no connection is carried over a fork */
        store = NULL;
        pid_t pid = fork();

        if (pid == 0)
            child(fds[1]);
        close(fds[1]);
        /* Some rounds, and then at any moment of the next one. */
        for (uint64_t n = sl_rng_below(&rng, 13); n > 0; n--) {
            assert_int_equal(read(fds[0], &id, sizeof(id)), sizeof(id));
            last = id;
        }
        usleep((useconds_t)sl_rng_below(&rng, 5000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        while (read(fds[0], &id, sizeof(id)) == sizeof(id))
            last = id;
        close(fds[0]);
        reopen(&plenty);
        assert_string_equal(aside, "");
        assert_true(sl_mon_store_next(store) > last);
        if (last != 0) {
            assert_int_equal(sl_mon_store_list(store, last, &record, 1), 1);
            assert_int_equal(record.id, last);
        }
        total = sl_mon_store_next(store);
    }
    assert_true(total > 100);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(what_was_stored_is_there_after_a_restart),
        CASE(a_fault_is_a_fault_after_a_restart_and_not_after_a_boot),
        CASE(a_verdict_lasts_until_all_is_well),
        CASE(who_has_seen_a_verdict_is_kept),
        CASE(a_verdict_of_what_is_not_known_any_more_ends),
        CASE(what_could_not_be_stored_is_stored_later),
        CASE(what_waits_for_too_long_is_lost_and_counted),
        CASE(outputs_go_on_where_they_were),
        CASE(the_oldest_give_way),
        CASE(a_file_that_may_not_grow_goes_on),
        CASE(a_damaged_file_is_set_aside_and_the_agent_goes_on),
        CASE(what_is_no_store_at_all_is_set_aside),
        CASE(a_folder_that_is_not_there_is_named),
        CASE(nothing_that_was_acknowledged_is_lost_by_a_kill)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
