/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1, with a launcher played over a socket pair. */
#include "launch/pmi.h"

#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "launch/launch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A launcher that expects these lines and gives these answers, then hangs up. */
struct script {
    int fd;
    const char *const (*line)[2];
    size_t count;
    int unexpected; /* lines that were not as the script has them */
    pthread_t thread;
};

static void *play(void *arg)
{
    struct script *script = arg;
    char got[SL_PMI_LINE_MAX];

    for (size_t i = 0; i < script->count; i++) {
        size_t len = 0;

        while (len < sizeof(got) - 1 && recv(script->fd, got + len, 1, 0) == 1 && got[len] != '\n')
            len++;
        got[len] = '\0';
        script->unexpected += strcmp(got, script->line[i][0]) != 0;
        (void)!send(script->fd, script->line[i][1], strlen(script->line[i][1]), MSG_NOSIGNAL);
    }
    shutdown(script->fd, SHUT_RDWR);
    return NULL;
}

static int open_script(struct script *script, const char *const (*line)[2], size_t count)
{
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    *script = (struct script){.fd = fd[1], .line = line, .count = count};
    return fd[0];
}

static void begin(struct script *script)
{
    assert_int_equal(pthread_create(&script->thread, NULL, play, script), 0);
}

static int start(struct script *script, const char *const (*line)[2], size_t count)
{
    int fd = open_script(script, line, count);

    begin(script);
    return fd;
}

static void stop(struct script *script, int fd)
{
    close(fd);
    assert_int_equal(pthread_join(script->thread, NULL), 0);
    close(script->fd);
    assert_int_equal(script->unexpected, 0);
}

static uint64_t soon(void)
{
    return sl_now(&sl_clock_monotonic) + 10 * SL_NS_PER_S;
}

#define INIT                                                                                       \
    {"cmd=init pmi_version=1 pmi_subversion=1",                                                    \
     "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},                                \
        {"cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=16\n"},              \
    {                                                                                              \
        "cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1_0\n"                                   \
    }

static void a_whole_conversation_goes_as_mpichs_launcher_has_it(void **state)
{
    static const char *const lines[][2] = {
        INIT,
        {"cmd=put kvsname=kvs_1_0 key=k value=v1", "cmd=put_result rc=0 msg=success\n"},
        {"cmd=barrier_in", "cmd=barrier_out\n"},
        {"cmd=get kvsname=kvs_1_0 key=k", "cmd=get_result rc=0 msg=success value=v1\n"},
        {"cmd=finalize", "cmd=finalize_ack\n"},
    };
    struct script script;
    struct sl_pmi pmi;
    char value[16];
    int fd = start(&script, lines, SL_ARRAY_LEN(lines));

    (void)state;
    assert_int_equal(sl_pmi_init(&pmi, fd, soon()), 0);
    assert_int_equal(sl_pmi_put(&pmi, "k", "v1", soon()), 0);
    assert_int_equal(sl_pmi_barrier(&pmi, soon()), 0);
    assert_int_equal(sl_pmi_get(&pmi, "k", value, sizeof(value), soon()), 0);
    assert_string_equal(value, "v1");
    assert_int_equal(sl_pmi_finalize(&pmi, soon()), 0);
    stop(&script, fd);
}

/* The conversation is the rank's, not that of what it forks: a launcher that hears a farewell takes
 * it for finished. */
static void a_forked_child_does_not_take_leave(void **state)
{
    static const char *const lines[][2] = {
        INIT,
        {"cmd=put kvsname=kvs_1_0 key=sluice-place-0 value=v1",
         "cmd=put_result rc=0 msg=success\n"},
        {"cmd=barrier_in", "cmd=barrier_out\n"},
        {"cmd=get kvsname=kvs_1_0 key=sluice-place-0",
         "cmd=get_result rc=0 msg=success value=v1\n"},
        {"the child has ended", "\n"},
        {"cmd=finalize", "cmd=finalize_ack\n"},
    };
    static const char ended[] = "the child has ended\n";
    struct script script;
    int fd = open_script(&script, lines, SL_ARRAY_LEN(lines)), status;

    fflush(NULL);
    pid_t rank = fork();
    if (rank == 0) {
        char value[16];

        if (sl_pmi_share(fd, "v1", value, sizeof(value), 10000) != 0 || strcmp(value, "v1") != 0)
            _exit(1);
        pid_t child = fork();
        if (child == 0)
            exit(0);
        if (child < 0 || waitpid(child, &status, 0) != child ||
            send(fd, ended, strlen(ended), 0) != (ssize_t)strlen(ended) ||
            recv(fd, value, 1, 0) != 1)
            _exit(2);
        exit(0);
    }
    /* Only now: a rank forked beside a thread may find locks that nobody gives back. */
    begin(&script);
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    stop(&script, fd);
}

/* What another program has put there, or what was cut. Not 0: what the rank did instead. */
static int launch_by_pmi(int fd)
{
    struct sl_exchange *exchange;
    struct sl_config config;
    char number[16];

    snprintf(number, sizeof(number), "%d", fd);
    setenv("PMI_FD", number, 1);
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    sl_config_defaults(&config);
    config.launcher = SL_LAUNCHER_PMI;
    config.connect_timeout_ms = 10000;
    if (sl_launch(&config, NULL, &exchange) != -EPROTO)
        return 1;
    return strstr(sluice_last_error(), "the launcher's store gave something else") == NULL ? 2 : 0;
}

static void what_is_no_place_is_not_taken_from_the_store(void **state)
{
    static const char *const lines[][2] = {
        INIT,
        {"cmd=barrier_in", "cmd=barrier_out\n"},
        {"cmd=get kvsname=kvs_1_0 key=sluice-place-0",
         "cmd=get_result rc=0 msg=success value=elsewhere\n"},
    };
    struct script script;
    int fd = open_script(&script, lines, SL_ARRAY_LEN(lines)), status;

    (void)state;
    fflush(NULL);
    pid_t rank = fork();
    if (rank == 0)
        _exit(launch_by_pmi(fd));
    begin(&script);
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    stop(&script, fd);
}

static void a_value_longer_than_the_launcher_keeps_is_not_sent(void **state)
{
    static const char *const lines[][2] = {INIT};
    struct script script;
    struct sl_pmi pmi;
    int fd = start(&script, lines, SL_ARRAY_LEN(lines));

    (void)state;
    assert_int_equal(sl_pmi_init(&pmi, fd, soon()), 0);
    assert_int_equal(sl_pmi_put(&pmi, "k", "0123456789abcdef", soon()), -EMSGSIZE);
    stop(&script, fd);
}

static void a_launcher_that_hangs_up_is_gone(void **state)
{
    static const char *const lines[][2] = {INIT};
    struct script script;
    struct sl_pmi pmi;
    int fd = start(&script, lines, SL_ARRAY_LEN(lines));

    (void)state;
    assert_int_equal(sl_pmi_init(&pmi, fd, soon()), 0);
    assert_int_equal(sl_pmi_barrier(&pmi, soon()), -ECONNRESET);
    stop(&script, fd);
}

static void a_silent_launcher_times_out(void **state)
{
    struct sl_pmi pmi;
    int fd[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    assert_int_equal(sl_pmi_init(&pmi, fd[0], sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_MS),
                     -ETIMEDOUT);
    close(fd[0]);
    close(fd[1]);
}

static void answers_of_more_than_a_line_are_refused(void **state)
{
    static const char *const lines[][2] = {
        {"cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init rc=0\ncmd=x\n"}};
    struct script script;
    struct sl_pmi pmi;
    int fd = start(&script, lines, SL_ARRAY_LEN(lines));

    (void)state;
    assert_int_equal(sl_pmi_init(&pmi, fd, soon()), -EPROTO);
    stop(&script, fd);
}

static void each_line_is_checked_before_use(void **state)
{
    char out[8] = "same";

    (void)state;
    assert_int_equal(sl_pmi_parse("cmd=maxes a=1", "my_kvsname", "a", out, sizeof(out)), -EPROTO);
    assert_int_equal(sl_pmi_parse("", "maxes", NULL, NULL, 0), -EPROTO);
    assert_int_equal(sl_pmi_parse("cmd=maxesx", "maxes", NULL, NULL, 0), -EPROTO);
    assert_int_equal(sl_pmi_parse("cmd=put_result rc=-1 msg=\x1b[2J", "put_result", NULL, NULL, 0),
                     -EPROTO);
    assert_null(strchr(sluice_last_error(), '\x1b'));
    assert_int_equal(sl_pmi_parse("cmd=put_result rc=01", "put_result", NULL, NULL, 0), -EPROTO);
    assert_int_equal(sl_pmi_parse("cmd=x rc=0", "x", "value", out, sizeof(out)), -EPROTO);
    assert_int_equal(sl_pmi_parse("cmd=x value=12345678", "x", "value", out, sizeof(out)),
                     -EMSGSIZE);
    assert_string_equal(out, "same");
    assert_int_equal(sl_pmi_parse("cmd=x xvalue=no  value=1234567", "x", "value", out, sizeof(out)),
                     0);
    assert_string_equal(out, "1234567");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_conversation_goes_as_mpichs_launcher_has_it),
        cmocka_unit_test(a_forked_child_does_not_take_leave),
        cmocka_unit_test(what_is_no_place_is_not_taken_from_the_store),
        cmocka_unit_test(a_value_longer_than_the_launcher_keeps_is_not_sent),
        cmocka_unit_test(a_launcher_that_hangs_up_is_gone),
        cmocka_unit_test(a_silent_launcher_times_out),
        cmocka_unit_test(answers_of_more_than_a_line_are_refused),
        cmocka_unit_test(each_line_is_checked_before_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
