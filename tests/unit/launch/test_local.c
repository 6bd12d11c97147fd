/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks started on this host: they meet, and their ends are told apart. Each case forks a starter
 * of its own, since a starter's children return from sl_local_start as ranks. */
#include "launch/launch.h"

#include "core/clock.h"
#include "core/err.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What a rank does after two exchanges; its result is the process's exit status. */
typedef int rank_body(struct sl_exchange *exchange);

static int gather_twice(struct sl_exchange *exchange)
{
    uint32_t mine, all[64];

    for (uint32_t round = 0; round < 2; round++) {
        mine = (uint32_t)exchange->rank * 10 + round;
        if (exchange->allgather(exchange, &mine, sizeof(mine), all) != 0)
            return 1;
        for (int i = 0; i < exchange->size; i++)
            if (all[i] != (uint32_t)i * 10 + round)
                return 2;
    }
    return 0;
}

static int meet_and_run(rank_body *body)
{
    struct sl_config config;
    struct sl_exchange *exchange;

    if (sl_config_from_env(&config, environ) != 0 || sl_launch(&config, NULL, &exchange) != 0) {
        fprintf(stderr, "# %s\n", sluice_last_error());
        return 99;
    }
    int code = gather_twice(exchange) ?: body(exchange);

    exchange->close(exchange);
    return code;
}

/* A starter of count ranks that run body. */
static pid_t start_only(int count, uint64_t grace_ms, rank_body *body)
{
    int status;

    fflush(NULL);
    pid_t starter = fork();
    assert_true(starter >= 0);
    if (starter == 0) {
        alarm(60);
        int code = sl_local_start(count, grace_ms, &status);

        if (code == 1)
            _exit(meet_and_run(body));
        _exit(code == 0 ? status : 98);
    }
    return starter;
}

static int status_of(pid_t starter)
{
    int status;

    assert_int_equal(waitpid(starter, &status, 0), starter);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The starter's exit status for count ranks that run body. */
static int start(int count, uint64_t grace_ms, rank_body *body)
{
    return status_of(start_only(count, grace_ms, body));
}

/* ---- what the starter says ---- */

static int end_badly(struct sl_exchange *exchange)
{
    (void)exchange;
    return 7;
}

static void ranks_that_end_after_the_first_share_a_line(void **state)
{
    char text[2048] = {0};
    size_t len = 0;
    int ends[2], kept = dup(2);
    ssize_t n;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], 2), 2);
    pid_t starter = start_only(4, 10000, end_badly);

    dup2(kept, 2);
    close(kept);
    close(ends[1]);
    while (len < sizeof(text) - 1 && (n = read(ends[0], text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    close(ends[0]);
    assert_int_equal(status_of(starter), 7);
    const char *second = strchr(text, '\n');

    assert_non_null(second);
    assert_non_null(strstr(text, "ended with exit status 7\n"));
    assert_non_null(strstr(++second, "of 4 ended with exit status 7 after that\n"));
    assert_non_null(strstr(second, "ranks "));
    if (strchr(second, '\n') != text + len - 1)
        print_error("the starter said: %s", text);
    assert_ptr_equal(strchr(second, '\n'), text + len - 1); /* and no third */
}

/* ---- what ranks tell of their life: a byte each time, and the end of the file when none is left
 * ---- */

static int life[2];

static void say(char word)
{
    (void)!write(life[1], &word, 1);
}

/* Bytes until there are count of word (or all, 0: until nobody is left to write), or the time is
 * over. Returns how many of word came; -1: the time was over first. */
static int hear(char word, int count)
{
    uint64_t end_ns = sl_now(&sl_clock_monotonic) + 15 * SL_NS_PER_S;
    int seen = 0;

    while (sl_now(&sl_clock_monotonic) < end_ns) {
        struct pollfd wait = {.fd = life[0], .events = POLLIN};
        char got;

        if (poll(&wait, 1, 100) <= 0)
            continue;
        if (read(life[0], &got, 1) <= 0)
            return seen;
        seen += got == word;
        if (count != 0 && seen == count)
            return seen;
    }
    return -1;
}

static void open_life(void)
{
    assert_int_equal(pipe2(life, O_CLOEXEC), 0);
}

/* Once the starter is made: what it and its ranks hold is all. */
static void hold_no_life(void)
{
    close(life[1]);
}

static void say_and_end(int sig)
{
    say(sig == SIGINT ? 'I' : sig == SIGTERM ? 'T' : 'H');
    _exit(5);
}

/* Says that it is there, then which signal ends it. */
static int live_until_told(struct sl_exchange *exchange)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

    alarm(40); /* whoever survives a case does not survive the test */
    for (size_t i = 0; i < SL_ARRAY_LEN(signals); i++)
        signal(signals[i], say_and_end);
    say('.');
    for (;;)
        pause();
    return exchange->rank;
}

static int do_nothing(struct sl_exchange *exchange)
{
    (void)exchange;
    return 0;
}

static void ranks_meet_for_every_count_from_1_to_16(void **state)
{
    (void)state;
    for (int count = 1; count <= 16; count++)
        assert_int_equal(start(count, 1000, do_nothing), 0);
}

static int fail_as_rank_2(struct sl_exchange *exchange)
{
    return exchange->rank == 2 ? 7 : 0;
}

static void the_worst_exit_status_is_the_starters(void **state)
{
    (void)state;
    assert_int_equal(start(4, 1000, fail_as_rank_2), 7);
}

static int die_as_rank_1(struct sl_exchange *exchange)
{
    if (exchange->rank == 1)
        kill(getpid(), SIGKILL);
    return 0;
}

static void a_killed_rank_counts_as_128_and_its_signal(void **state)
{
    (void)state;
    assert_int_equal(start(3, 1000, die_as_rank_1), 128 + SIGKILL);
}

static int hang_unless_rank_0(struct sl_exchange *exchange)
{
    if (exchange->rank == 0)
        return 3;
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

static void ranks_that_hang_after_a_failure_are_ended_and_do_not_hide_it(void **state)
{
    uint64_t start_ns = sl_now(&sl_clock_monotonic);

    (void)state;
    assert_int_equal(start(3, 50, hang_unless_rank_0), 3);
    assert_true(sl_now(&sl_clock_monotonic) - start_ns < 20 * SL_NS_PER_S);
}

static void a_signal_to_the_starter_reaches_every_rank_and_is_its_status(void **state)
{
    static const struct {
        int sig;
        char word;
    } cases[] = {{SIGINT, 'I'}, {SIGTERM, 'T'}, {SIGHUP, 'H'}};

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        open_life();
        pid_t starter = start_only(3, 1000, live_until_told);

        hold_no_life();
        assert_int_equal(hear('.', 3), 3);
        kill(starter, cases[i].sig);
        assert_int_equal(hear(cases[i].word, 0), 3);
        assert_int_equal(status_of(starter), 128 + cases[i].sig);
        close(life[0]);
    }
}

/* Says which of the two it heard, and ends well after both. */
static int hear_user_signals(struct sl_exchange *exchange)
{
    sigset_t both;
    int sig;

    (void)exchange;
    alarm(40);
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    sigprocmask(SIG_BLOCK, &both, NULL);
    say('.');
    for (int i = 0; i < 2; i++) {
        if (sigwait(&both, &sig) != 0)
            return 1;
        say(sig == SIGUSR1 ? '1' : '2');
    }
    return 0;
}

static void signals_of_the_user_reach_every_rank_and_end_none(void **state)
{
    open_life();
    pid_t starter = start_only(3, 1000, hear_user_signals);

    hold_no_life();
    assert_int_equal(hear('.', 3), 3);
    kill(starter, SIGUSR2);
    assert_int_equal(hear('2', 3), 3);
    kill(starter, SIGUSR1);
    assert_int_equal(hear('1', 0), 3);
    assert_int_equal(status_of(starter), 0);
    close(life[0]);
}

static void ranks_end_with_a_starter_that_is_killed(void **state)
{
    int status;

    open_life();
    pid_t starter = start_only(3, 1000, live_until_told);

    hold_no_life();
    assert_int_equal(hear('.', 3), 3);
    kill(starter, SIGKILL);
    assert_int_equal(waitpid(starter, &status, 0), starter);
    assert_int_equal(hear('T', 0), 3);
    close(life[0]);
}

static int stop_unless_rank_0(struct sl_exchange *exchange)
{
    if (exchange->rank == 0)
        return 3;
    signal(SIGTERM, say_and_end);
    raise(SIGSTOP);
    for (;;)
        pause();
}

/* Otherwise it would hear of its end by SIGKILL only, and could put nothing in order. */
static void a_stopped_rank_is_continued_to_end(void **state)
{
    open_life();
    pid_t starter = start_only(3, 1000, stop_unless_rank_0);

    hold_no_life();
    assert_int_equal(hear('T', 0), 2);
    assert_int_equal(status_of(starter), 5); /* the worst, which is that of say_and_end() */
    close(life[0]);
}

static void a_silly_count_is_refused(void **state)
{
    int status;

    (void)state;
    assert_int_equal(sl_local_start(0, 0, &status), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "0 ranks cannot be started here; from 1 to 65536 would do");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_end_after_the_first_share_a_line),
        cmocka_unit_test(ranks_meet_for_every_count_from_1_to_16),
        cmocka_unit_test(the_worst_exit_status_is_the_starters),
        cmocka_unit_test(a_killed_rank_counts_as_128_and_its_signal),
        cmocka_unit_test(ranks_that_hang_after_a_failure_are_ended_and_do_not_hide_it),
        cmocka_unit_test(a_signal_to_the_starter_reaches_every_rank_and_is_its_status),
        cmocka_unit_test(signals_of_the_user_reach_every_rank_and_end_none),
        cmocka_unit_test(ranks_end_with_a_starter_that_is_killed),
        cmocka_unit_test(a_stopped_rank_is_continued_to_end),
        cmocka_unit_test(a_silly_count_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
