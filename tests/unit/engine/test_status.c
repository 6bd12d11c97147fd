/* SPDX-License-Identifier: Apache-2.0 */
/* The live report, read from another process and printed on SIGUSR1. */
#include "core/err.h"
#include "collectives/status.h"

#include <sluice/sluice.h>

#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process with a communicator of one rank. Its stderr goes to *err; it lives until it is killed. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_of_another_process_can_be_printed),
        cmocka_unit_test(a_process_without_communicator_and_none_at_all_are_told_apart),
        cmocka_unit_test(sigusr1_prints_the_report_when_it_was_asked_for),
        cmocka_unit_test(sigusr1_is_the_programs_own_otherwise),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
