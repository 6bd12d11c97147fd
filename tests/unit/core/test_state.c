/* SPDX-License-Identifier: Apache-2.0 */
/* The state page: written, read while it is written, read of the stopped and the dead, found and
 * taken away. Pages that no process of ours wrote are in test_state_read.c. */
#include "core/clock.h"
#include "core/err.h"
#include "core/state_file.h"
#include "core/state_page.h"
#include "core/state_read.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a page in this process ---- */

static void open_own(const char *state)
{
    struct sl_config config;

    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "STATE", state), 0);
    assert_int_equal(sl_config_set(&config, "JOB", "a job"), 0);
    sl_state_open(&config, 3, 8);
}

static struct sl_state_reader own_reader(void)
{
    struct sl_state_reader reader;
    size_t bytes;
    const void *page = sl_state_memory(&bytes);

    assert_non_null(page);
    assert_int_equal(sl_state_read_memory(page, bytes, &reader), 0);
    return reader;
}

static void a_record_is_read_as_it_was_put(void **state)
{
    struct sl_state_process process;
    struct sl_state_op op = {.comm = 7, .moved = 4096, .coll = "allreduce"}, back;

    (void)state;
    open_own("on");
    struct sl_state_reader reader = own_reader();
    int place = sl_state_take(SL_STATE_OP);

    assert_int_equal(sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &back, sizeof(back)),
                     SL_STATE_UNUSED);
    sl_state_put(SL_STATE_OP, place, &op);
    assert_int_equal(sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &back, sizeof(back)),
                     SL_STATE_WHOLE);
    assert_int_equal(back.comm, 7);
    assert_int_equal(back.moved, 4096);
    assert_string_equal(back.coll, "allreduce");
    sl_state_give(SL_STATE_OP, place);
    assert_int_equal(sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &back, sizeof(back)),
                     SL_STATE_WHOLE);
    assert_int_equal(back.comm, 0);
    assert_int_equal(sl_state_get(&reader, SL_STATE_PROCESS, 0, &process, sizeof(process)),
                     SL_STATE_WHOLE);
    assert_int_equal(process.pid, getpid());
    assert_int_equal(process.rank, 3);
    assert_string_equal(process.job, "a job");
    assert_true(process.start_ticks > 0);
}

static void records_end_when_all_are_taken(void **state)
{
    int places[SL_STATE_OPS];

    (void)state;
    open_own("on");
    for (int i = 0; i < SL_STATE_OPS; i++) {
        places[i] = sl_state_take(SL_STATE_OP);
        assert_true(places[i] >= 0);
    }
    assert_int_equal(sl_state_take(SL_STATE_OP), -1);
    sl_state_give(SL_STATE_OP, places[5]);
    assert_int_equal(sl_state_take(SL_STATE_OP), places[5]);
    for (int i = 0; i < SL_STATE_OPS; i++)
        sl_state_give(SL_STATE_OP, places[i]);
}

static void keep_stat(void *arg, int fd, bool lives)
{
    assert_true(lives);
    assert_int_equal(fstat(fd, arg), 0);
}

static uint64_t memory_of_own_page(void)
{
    struct stat st = {0};

    assert_int_equal(sl_state_file_find(getpid(), keep_stat, &st), 1);
    return (uint64_t)st.st_blocks * 512;
}

static int path_places[SL_STATE_PATHS_MAX];
static _Atomic int paths_taken; /* and written */

/* Path i is to rank i, and has sent i bytes. */
static void *take_paths(void *arg)
{
    for (int i = 0; i < SL_STATE_PATHS_MAX; i++) {
        struct sl_state_path path = {.comm = 1, .peer = i, .sent_bytes = (uint64_t)i};

        path_places[i] = sl_state_take(SL_STATE_PATH);
        if (path_places[i] < 0)
            break;
        sl_state_put(SL_STATE_PATH, path_places[i], &path);
        atomic_store(&paths_taken, i + 1);
    }
    return arg;
}

/* Returns how many are there. */
static int check_paths(const struct sl_state_reader *reader)
{
    int whole = 0;

    for (uint32_t i = 0; i < sl_state_count(reader, SL_STATE_PATH); i++) {
        struct sl_state_path path;

        if (sl_state_get(reader, SL_STATE_PATH, i, &path, sizeof(path)) != SL_STATE_WHOLE ||
            path.comm == 0)
            continue;
        assert_int_equal(path.sent_bytes, path.peer);
        whole++;
    }
    return whole;
}

static void check_own_file(void *arg, int fd, bool lives)
{
    struct sl_state_reader reader;

    assert_true(lives);
    if (sl_state_read_fd(fd, &reader) != 0)
        fail_msg("%s", sluice_last_error());
    *(int *)arg = check_paths(&reader);
}

static void paths_get_their_memory_as_they_are_taken_and_any_reader_copes(void **state)
{
    int shown = 0;
    pthread_t writer;

    (void)state;
    open_own("on");
    struct sl_state_reader before = own_reader(), reader = before;
    uint64_t small = memory_of_own_page();

    assert_int_equal(sl_state_count(&before, SL_STATE_PATH), 0);
    assert_in_range(small, 1, 160 << 10);
    assert_int_equal(pthread_create(&writer, NULL, take_paths, NULL), 0);
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 10 * SL_NS_PER_S;
         shown < SL_STATE_PATHS_MAX && sl_now(&sl_clock_monotonic) < end;) {
        int done = atomic_load(&paths_taken);

        assert_int_equal(sl_state_file_find(getpid(), check_own_file, &shown), 1);
        assert_true(shown >= done);
        reader = own_reader();
        assert_true(check_paths(&reader) >= shown);
    }
    pthread_join(writer, NULL);
    assert_int_equal(shown, SL_STATE_PATHS_MAX);
    assert_int_equal(sl_state_take(SL_STATE_PATH), -1);
    assert_in_range(memory_of_own_page(), small + SL_STATE_PATHS_MAX * sizeof(struct sl_state_path),
                    small + SL_STATE_PATHS_MAX * sizeof(struct sl_state_path) + 8192);
    assert_int_equal(check_paths(&before), 0); /* it knows the table of then */
    for (int i = 0; i < SL_STATE_PATHS_MAX; i++)
        sl_state_give(SL_STATE_PATH, path_places[i]);
    assert_int_equal(check_paths(&reader), 0);
    int place = sl_state_take(SL_STATE_PATH);

    assert_int_equal(place, 0);
    sl_state_give(SL_STATE_PATH, place);
}

/* ---- while it is written ---- */

#define SCRIBBLES 500

static _Atomic bool writing;

/* Records whose numbers are all alike. */
static void *put_alike(void *arg)
{
    int place = *(int *)arg;

    for (uint64_t i = 1; atomic_load(&writing); i++) {
        struct sl_state_op op = {
            .comm = i, .since_ns = i, .updated_ns = i, .idle_ns = i, .count = i, .moved = i};

        sl_state_put(SL_STATE_OP, place, &op);
        if (i % 4 == 0)
            sched_yield();
    }
    return NULL;
}

static void no_record_is_of_two_writings(void **state)
{
    unsigned whole = 0;
    pthread_t writer;

    (void)state;
    open_own("on");
    struct sl_state_reader reader = own_reader();
    int place = sl_state_take(SL_STATE_OP);

    atomic_store(&writing, true);
    assert_int_equal(pthread_create(&writer, NULL, put_alike, &place), 0);
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 10 * SL_NS_PER_S;
         whole < SCRIBBLES && sl_now(&sl_clock_monotonic) < end;) {
        struct sl_state_op op;

        if (sl_state_get(&reader, SL_STATE_OP, (uint32_t)place, &op, sizeof(op)) !=
                SL_STATE_WHOLE ||
            op.comm == 0)
            continue;
        whole++;
        if (op.since_ns != op.comm || op.idle_ns != op.comm || op.count != op.comm ||
            op.moved != op.comm)
            fail_msg("record %llu has parts of another", (unsigned long long)op.comm);
    }
    atomic_store(&writing, false);
    pthread_join(writer, NULL);
    sl_state_give(SL_STATE_OP, place);
    assert_int_equal(whole, SCRIBBLES);
}

/* ---- other processes ---- */

/* A process with a page; it says a byte and waits to be killed. */
static pid_t start_owner(const char *setting, void (*then)(void))
{
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();

    if (pid == 0) {
        open_own(setting);
        if (then != NULL)
            then();
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void end_owner(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

struct seen {
    int pages;
    bool lives;
    int32_t pid;
    uint64_t torn;
};

static void see(void *arg, int fd, bool lives)
{
    struct seen *seen = arg;
    struct sl_state_reader reader;
    struct sl_state_process process;
    struct sl_state_op op;

    assert_int_equal(sl_state_read_fd(fd, &reader), 0);
    sl_state_get(&reader, SL_STATE_PROCESS, 0, &process, sizeof(process));
    seen->pages++;
    seen->lives = lives;
    seen->pid = process.pid;
    for (uint32_t i = 0; i < sl_state_count(&reader, SL_STATE_OP); i++)
        seen->torn += sl_state_get(&reader, SL_STATE_OP, i, &op, sizeof(op)) == SL_STATE_TORN;
}

static struct seen look_at(pid_t pid)
{
    struct seen seen = {0};

    int found = sl_state_file_find(pid, see, &seen);

    assert_int_equal(found, seen.pages);
    return seen;
}

/* As it would be if the process died in the middle of sl_state_put(). */
static void begin_to_write(void)
{
    struct sl_state_op op = {.comm = 1};
    size_t bytes;
    struct sl_state_reader reader = own_reader();
    int place = sl_state_take(SL_STATE_OP);

    sl_state_put(SL_STATE_OP, place, &op);
    for (unsigned i = 0; i < reader.section_count; i++)
        if (reader.sections[i].kind == SL_STATE_OP)
            ++*(uint64_t *)(uintptr_t)((const char *)sl_state_memory(&bytes) +
                                       reader.sections[i].offset +
                                       (size_t)place * reader.sections[i].record_bytes);
}

static void the_page_of_a_stopped_and_of_a_killed_process_is_read(void **state)
{
    pid_t pid = start_owner("on", begin_to_write);
    struct seen seen = look_at(pid);

    (void)state;
    assert_int_equal(seen.pages, 1);
    assert_true(seen.lives);
    assert_int_equal(seen.pid, pid);
    kill(pid, SIGSTOP);
    seen = look_at(pid);
    assert_int_equal(seen.pages, 1);
    assert_true(seen.lives);
    end_owner(pid);
    seen = look_at(pid);
    assert_int_equal(seen.pages, 1);
    assert_false(seen.lives);
    assert_int_equal(seen.pid, pid);
    assert_int_equal(seen.torn, 1);
    sl_state_file_clean(sl_wall_s());
    assert_int_equal(look_at(pid).pages, 1);
    sl_state_file_clean(sl_wall_s() + 4000);
    assert_int_equal(sl_state_file_find(pid, see, &seen), -ESRCH);
    assert_non_null(strstr(sluice_last_error(), "there is no process"));
}

/* As from another mount namespace. */
static void the_page_of_a_living_process_needs_no_name(void **state)
{
    pid_t pid = start_owner("on", NULL);
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.0", (unsigned)geteuid(), (int)pid);
    assert_int_equal(unlink(path), 0);
    struct seen seen = look_at(pid);

    assert_int_equal(seen.pages, 1);
    assert_int_equal(seen.pid, pid);
    end_owner(pid);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Of a process that had this number. */
static void a_name_that_was_left_behind_is_taken_and_costs_nothing(void **state)
{
    unsigned before = open_descriptors();
    struct sl_state_file file;
    char path[64];
    int left = -1;

    (void)state;
    for (int i = 0; left < 0 && i < 8; i++) { /* the page of this process has the first */
        snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.%d", (unsigned)geteuid(), (int)getpid(),
                 i);
        left = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    }
    assert_true(left >= 0);
    close(left);
    assert_int_equal(sl_state_file_open(4096, 4096, &file), 0);
    sl_state_file_publish(&file);
    assert_string_equal(file.path, path);
    assert_int_equal(open_descriptors(), before + 1);
    sl_state_file_close(&file, false);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(access(path, F_OK), -1);
}

static void no_more_than_so_many_dead_pages_stay(void **state)
{
    pid_t pids[SL_STATE_DEAD_MAX + 3];
    int left = 0;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(pids); i++) {
        pids[i] = start_owner("on", NULL);
        end_owner(pids[i]);
    }
    sl_state_file_clean(sl_wall_s());
    for (size_t i = 0; i < SL_ARRAY_LEN(pids); i++) {
        struct seen seen = {0};

        left += sl_state_file_find(pids[i], see, &seen) == 1;
    }
    assert_in_range(left, 0, SL_STATE_DEAD_MAX);
    sl_state_file_clean(sl_wall_s() + 4000);
}

static void end_well(void)
{
    exit(0);
}

static pid_t run_to_its_end(const char *setting)
{
    pid_t pid = fork();

    if (pid == 0) {
        open_own(setting);
        end_well();
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void a_process_that_ends_well_leaves_nothing_unless_it_was_asked_to(void **state)
{
    struct seen seen = {0};
    char path[64];
    pid_t pid = run_to_its_end("on");

    (void)state;
    assert_int_equal(sl_state_file_find(pid, see, &seen), -ESRCH);
    pid = run_to_its_end("keep");
    assert_int_equal(look_at(pid).pages, 1);
    sl_state_file_clean(sl_wall_s() + 4000);
    assert_int_equal(look_at(pid).pages, 1);
    snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.0", (unsigned)geteuid(), (int)pid);
    assert_int_equal(unlink(path), 0);
}

static void off_makes_no_page(void **state)
{
    pid_t pid = start_owner("off", NULL);

    (void)state;
    assert_int_equal(look_at(pid).pages, 0);
    end_owner(pid);
}

/* What a child does with its own page does not show on its parent's, and neither goes with the
 * other's end. */
static void a_child_has_a_page_of_its_own(void **state)
{
    int status;

    (void)state;
    open_own("on");
    struct seen seen = look_at(getpid());
    pid_t pid = fork();

    assert_int_equal(seen.pages, 1);
    if (pid == 0) {
        size_t bytes;

        if (sl_state_memory(&bytes) != NULL)
            _exit(1);
        if (sl_state_take(SL_STATE_OP) >= 0)
            _exit(2);
        open_own("on");
        seen = look_at(getpid());
        exit(seen.pages == 1 && seen.pid == (int32_t)getpid() ? 0 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    seen = look_at(getpid());
    assert_int_equal(seen.pages, 1);
    assert_int_equal(seen.pid, getpid());
}

static void a_page_that_another_user_made_is_not_believed(void **state)
{
    pid_t pid = start_owner("on", NULL);
    char path[64];

    (void)state;
    end_owner(pid);
    snprintf(path, sizeof(path), "/dev/shm/sluice.%u.%d.0", (unsigned)geteuid(), (int)pid);
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    if (geteuid() == 0) {
        struct seen seen = {0};

        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(sl_state_file_find(pid, see, &seen), -ESRCH);
        sl_state_file_clean(sl_wall_s() + 4000);
        assert_int_equal(access(path, F_OK), 0);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_read_as_it_was_put),
        cmocka_unit_test(records_end_when_all_are_taken),
        cmocka_unit_test(paths_get_their_memory_as_they_are_taken_and_any_reader_copes),
        cmocka_unit_test(no_record_is_of_two_writings),
        cmocka_unit_test(the_page_of_a_stopped_and_of_a_killed_process_is_read),
        cmocka_unit_test(the_page_of_a_living_process_needs_no_name),
        cmocka_unit_test(a_name_that_was_left_behind_is_taken_and_costs_nothing),
        cmocka_unit_test(no_more_than_so_many_dead_pages_stay),
        cmocka_unit_test(a_process_that_ends_well_leaves_nothing_unless_it_was_asked_to),
        cmocka_unit_test(off_makes_no_page),
        cmocka_unit_test(a_child_has_a_page_of_its_own),
        cmocka_unit_test(a_page_that_another_user_made_is_not_believed),
    };

    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
