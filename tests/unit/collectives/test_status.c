/* SPDX-License-Identifier: Apache-2.0 */
/* The live report, read from another process and printed on SIGUSR1. */
#include "core/err.h"
#include "collectives/comm.h"
#include "collectives/status.h"

#include <sluice/sluice.h>

#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process with a communicator of one rank. Its stderr goes to *err; it lives until it is
 * killed. */
static pid_t start_child(const char *signal_setting, int *err)
{
    int ready[2], errors[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(errors), 0);
    pid_t pid = fork();

    if (pid == 0) {
        struct sluice_comm *comm;

        dup2(errors[1], STDERR_FILENO);
        setenv("SLUICE_STATUS_SIGNAL", signal_setting, 1);
        setenv("SLUICE_LAUNCHER", "none", 1);
        /* Twice: the handler must not call itself. */
        if (sluice_comm_from_env(&comm) != 0 || sluice_comm_from_env(&comm) != 0 ||
            write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    close(errors[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *err = errors[0];
    return pid;
}

static void end_child(pid_t pid, int err)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(err);
}

static void the_report_of_another_process_can_be_printed(void **state)
{
    char *text = NULL;
    size_t len = 0;
    int err;
    pid_t pid = start_child("off", &err);
    FILE *out = open_memstream(&text, &len);

    (void)state;
    assert_int_equal(sl_status_print_process((int)pid, out), 0);
    fclose(out);
    assert_non_null(strstr(text, "communicator of 1 ranks, this is rank 0"));
    assert_non_null(strstr(text, "nothing is under way"));
    free(text);
    end_child(pid, err);
}

static void a_process_without_communicator_and_none_at_all_are_told_apart(void **state)
{
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        for (;;)
            pause();
    assert_int_equal(sl_status_print_process((int)pid, stdout), -ENOENT);
    assert_non_null(strstr(sluice_last_error(), "has no communicator"));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(sl_status_print_process((int)pid, stdout), -ESRCH);
    assert_non_null(strstr(sluice_last_error(), "there is no process"));
}

static void sigusr1_prints_the_report_when_it_was_asked_for(void **state)
{
    char text[512] = "";
    int err;
    pid_t pid = start_child("on", &err);

    (void)state;
    kill(pid, SIGUSR1);
    assert_true(read(err, text, sizeof(text) - 1) > 0);
    assert_non_null(strstr(text, "communicator of 1 ranks"));
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it lives */
    end_child(pid, err);
}

static void sigusr1_is_the_programs_own_otherwise(void **state)
{
    int err, status;
    pid_t pid = start_child("auto", &err);

    (void)state;
    kill(pid, SIGUSR1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
    close(err);
}

/* The handler may be reading it in another thread. */
static void the_page_of_a_closed_communicator_stays_mapped_and_is_used_again(void **state)
{
    struct sluice_comm *comm;
    unsigned char there;

    setenv("SLUICE_LAUNCHER", "none", 1);
    assert_int_equal(sluice_comm_from_env(&comm), 0);
    void *page = comm->page;

    assert_non_null(page);
    sluice_comm_destroy(comm);
    assert_int_equal(mincore(page, 1, &there), 0);
    for (int i = 0; i < 200; i++) { /* more than there are places */
        assert_int_equal(sluice_comm_from_env(&comm), 0);
        assert_ptr_equal(comm->page, page);
        sluice_comm_destroy(comm);
    }
}

/* Fills the pipe behind the descriptor. */
static void fill(int fd)
{
    char byte = 0;

    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (write(fd, &byte, 1) == 1)
        ;
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
}

static void a_full_pipe_does_not_stop_a_process_that_is_asked(void **state)
{
    int after[2], errors[2];

    assert_int_equal(pipe(after), 0);
    assert_int_equal(pipe(errors), 0);
    pid_t pid = fork();

    if (pid == 0) {
        struct sluice_comm *comm;

        setenv("SLUICE_STATUS_SIGNAL", "on", 1);
        setenv("SLUICE_LAUNCHER", "none", 1);
        if (sluice_comm_from_env(&comm) != 0)
            _exit(1);
        fill(errors[1]);
        dup2(errors[1], STDERR_FILENO);
        raise(SIGUSR1);
        _exit(write(after[1], "", 1) == 1 ? 0 : 2);
    }
    struct pollfd wait = {.fd = after[0], .events = POLLIN};

    close(after[1]);
    assert_int_equal(poll(&wait, 1, 10000), 1);
    assert_true((wait.revents & POLLIN) != 0);
    end_child(pid, errors[0]);
    close(errors[1]);
    close(after[0]);
}

static void a_limit_of_file_sizes_costs_the_report_alone(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct rlimit none = {0, 0};
        struct sluice_comm *comm;

        setenv("SLUICE_LAUNCHER", "none", 1);
        if (setrlimit(RLIMIT_FSIZE, &none) != 0 || sluice_comm_from_env(&comm) != 0)
            _exit(1);
        _exit(comm->page == NULL && sluice_barrier(comm, NULL) == 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_of_another_process_can_be_printed),
        cmocka_unit_test(a_process_without_communicator_and_none_at_all_are_told_apart),
        cmocka_unit_test(sigusr1_prints_the_report_when_it_was_asked_for),
        cmocka_unit_test(sigusr1_is_the_programs_own_otherwise),
        cmocka_unit_test(the_page_of_a_closed_communicator_stays_mapped_and_is_used_again),
        cmocka_unit_test(a_full_pipe_does_not_stop_a_process_that_is_asked),
        cmocka_unit_test(a_limit_of_file_sizes_costs_the_report_alone),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
