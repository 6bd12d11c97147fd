/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks started on this host: they meet, and their ends are told apart. Each case forks a starter
 * of its own, since a starter's children return from sl_local_start as ranks. */
#include "launch/launch.h"

#include "core/clock.h"
#include "core/err.h"

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

/* The starter's exit status for count ranks that run body. */
static int start(int count, uint64_t grace_ms, rank_body *body)
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
    assert_int_equal(waitpid(starter, &status, 0), starter);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
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
        cmocka_unit_test(ranks_meet_for_every_count_from_1_to_16),
        cmocka_unit_test(the_worst_exit_status_is_the_starters),
        cmocka_unit_test(a_killed_rank_counts_as_128_and_its_signal),
        cmocka_unit_test(ranks_that_hang_after_a_failure_are_ended_and_do_not_hide_it),
        cmocka_unit_test(a_silly_count_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
