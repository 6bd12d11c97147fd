/* SPDX-License-Identifier: Apache-2.0 */
/* What a forked child keeps and loses: descriptors, memory, the number of its process. */
#include "core/fork.h"

#include "core/err.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* What the child found, in bits: exit statuses go up to 255. */
static int in_child(int (*look)(void))
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0)
        _exit(look());
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int ours[2], theirs[2];

static int which_are_open(void)
{
    return is_open(ours[0]) | is_open(ours[1]) << 1 | is_open(theirs[0]) << 2 |
           is_open(theirs[1]) << 3;
}

static void a_child_loses_what_was_named_and_nothing_else(void **state)
{
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ours), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, theirs), 0);
    assert_int_equal(sl_fork_closes(ours[0]), ours[0]);
    assert_int_equal(sl_fork_closes(ours[1]), ours[1]);
    assert_int_equal(in_child(which_are_open), 4 | 8);
    assert_int_equal(which_are_open(), 1 | 2 | 4 | 8);
    for (int i = 0; i < 2; i++) {
        close(ours[i]);
        close(theirs[i]);
    }
}

/* Nobody says when a descriptor is closed, and the kernel gives its number to whatever the
 * application opens next. */
static void a_number_that_the_application_has_now_stays_open_in_the_child(void **state)
{
    static const char *const kinds[] = {
        "a socket, then a socket", "a memory file, then a memory file", "a socket, then a pipe"};
    char byte = 0;

    (void)state;
    for (unsigned kind = 0; kind < SL_ARRAY_LEN(kinds); kind++) {
        int next[2];

        if (kind == 1) {
            ours[0] = memfd_create("ours", MFD_CLOEXEC);
            ours[1] = memfd_create("ours", MFD_CLOEXEC);
        } else {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ours), 0);
        }
        sl_fork_closes(ours[0]);
        sl_fork_closes(ours[1]);
        close(ours[0]); /* ours[1] is open still */
        if (kind == 0)
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, next), 0);
        else if (kind == 1)
            assert_true((next[0] = memfd_create("theirs", 0)) >= 0 &&
                        (next[1] = dup(next[0])) >= 0);
        else
            assert_int_equal(pipe(next), 0);
        memcpy(theirs, next, sizeof(theirs));
        assert_int_equal(theirs[0], ours[0]); /* the lowest number that is free */
        if (in_child(which_are_open) != (1 | 4 | 8))
            fail_msg("%s: the child has lost what is not ours, or has what is", kinds[kind]);
        if (kind == 2) { /* and in the parent all goes on */
            assert_int_equal(write(theirs[1], "!", 1), 1);
            assert_int_equal(read(theirs[0], &byte, 1), 1);
        }
        close(ours[1]);
        close(theirs[0]);
        close(theirs[1]);
    }
}

static void numbers_beyond_the_table_pass(void **state)
{
    (void)state;
    assert_int_equal(sl_fork_closes(-EMFILE), -EMFILE);
    assert_int_equal(sl_fork_closes(1 << 30), 1 << 30);
    assert_int_equal(in_child(which_are_open) & 1, is_open(ours[0]));
}

static uint64_t life;

static int which_life(void)
{
    uint64_t mine;

    if (sl_fork_same(life) || sl_fork_refuse() != -EINVAL)
        return 1;
    mine = sl_fork_life();
    return mine == life || !sl_fork_same(mine) || sl_fork_life() != mine ? 2 : 0;
}

static void a_child_has_a_number_of_its_own(void **state)
{
    (void)state;
    life = sl_fork_life();
    assert_int_not_equal(life, 0);
    assert_true(sl_fork_same(life));
    assert_int_equal(in_child(which_life), 0);
    assert_true(sl_fork_same(life));
}

static unsigned hooked;

static void hook(void)
{
    hooked++;
    errno = EDOM; /* as whoever closes something may leave it */
}

static int what_the_hook_left(void)
{
    return errno != EDOM ? (int)hooked : 77;
}

static void a_hook_runs_once_in_each_child_and_keeps_errno(void **state)
{
    (void)state;
    sl_fork_on_child(hook);
    sl_fork_on_child(hook);
    errno = 0;
    assert_int_equal(in_child(what_the_hook_left), 1);
    assert_int_equal(hooked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_loses_what_was_named_and_nothing_else),
        cmocka_unit_test(a_number_that_the_application_has_now_stays_open_in_the_child),
        cmocka_unit_test(numbers_beyond_the_table_pass),
        cmocka_unit_test(a_child_has_a_number_of_its_own),
        cmocka_unit_test(a_hook_runs_once_in_each_child_and_keeps_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
