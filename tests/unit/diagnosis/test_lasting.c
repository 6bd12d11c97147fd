/* SPDX-License-Identifier: Apache-2.0 */
/* What a window of time is too little for, and two of them that share no message are enough for. */
#include "monitor/diagnosis/comm_lasting.h"
#include "tests/unit/diagnosis/net_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define S ((int64_t)1000000000)
#define APART_NS (16 * S)
#define WINDOW_S 10.0

static uint32_t slow_rank;

static double of_sender(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    (void)context, (void)dst, (void)path;
    return src == slow_rank ? *(const double *)context : 1;
}

/* Eight ranks, of which one sends so many times as slowly. */
static void job_begin(struct net *net, const double *factor)
{
    net_begin(net, 8, 7);
    net->factor = of_sender;
    net->context = factor;
    net->noise = 0.6;
    net->messages = 30;
    net_all_to_all(net);
    assert_int_equal(sl_job_seal(net->job), 0);
}

/* The window in whose time it is judged after looks at such a job. */
static double look(struct sl_comm_lasting *lasting, double factor, int64_t now_ns)
{
    struct sl_comm_options options = SL_COMM_OPTIONS;
    struct net net;

    options.window_s = WINDOW_S;
    job_begin(&net, &factor);
    assert_int_equal(sl_comm_lasting_look(lasting, net.job, now_ns, APART_NS, &options), 0);
    net_end(&net);
    return options.window_s;
}

static bool is_accused(double factor, double window_s, double looks)
{
    struct sl_comm_options options = SL_COMM_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};
    struct net net;
    bool is_it;

    options.window_s = window_s;
    options.looks = looks;
    job_begin(&net, &factor);
    assert_int_equal(sl_comm_find(net.job, &options, &verdicts), 0);
    is_it = verdicts.count > 0;
    sl_verdicts_free(&verdicts);
    net_end(&net);
    return is_it;
}

/* The least factor that is accused in a window of so long by so many looks. */
static double least_of(double window_s, double looks)
{
    for (unsigned percent = 150; percent < 5000; percent += 5)
        if (is_accused(percent / 100.0, window_s, looks))
            return percent / 100.0;
    fail_msg("no factor is accused");
    return 0;
}

/* The least factor that is accused in a window of so long, and not in a shorter one. */
static double factor_of(double window_s, double shorter_s)
{
    double factor = least_of(window_s, 1);

    assert_false(is_accused(factor, shorter_s, 1));
    return factor;
}

/* A factor whose evidence is between both thresholds. */
static double factor_between(void)
{
    return factor_of(3600, WINDOW_S);
}

static void a_sender_that_stands_out_in_windows_apart_is_accused(void **state)
{
    struct sl_comm_lasting lasting = {.names = NULL};
    double factor = factor_between();

    (void)state;
    for (int64_t now_ns = 0; now_ns < APART_NS; now_ns += S)
        assert_true(look(&lasting, factor, now_ns) == WINDOW_S);
    assert_true(look(&lasting, factor, APART_NS) > WINDOW_S);
    sl_comm_lasting_free(&lasting);
}

/* 30 messages are few for a look alone; noise that passes is not in two looks. */
static void few_messages_are_enough_in_two_looks(void **state)
{
    struct sl_comm_lasting lasting = {.names = NULL};
    double factor = least_of(3600, 2);

    (void)state;
    assert_false(is_accused(factor, 3600, 1));
    for (int64_t now_ns = 0; now_ns < APART_NS; now_ns += S)
        assert_true(look(&lasting, factor, now_ns) == WINDOW_S);
    assert_true(look(&lasting, factor, APART_NS) > WINDOW_S);
    sl_comm_lasting_free(&lasting);
}

static void one_that_does_not_in_a_look_between_is_not(void **state)
{
    struct sl_comm_lasting lasting = {.names = NULL};
    double factor = factor_between();

    (void)state;
    for (int64_t now_ns = 0; now_ns < 2 * APART_NS; now_ns += S)
        assert_true(look(&lasting, now_ns == 12 * S || now_ns == 24 * S ? 1 : factor, now_ns) ==
                    WINDOW_S);
    sl_comm_lasting_free(&lasting);
}

static void one_that_stands_out_less_in_looks_between_is_accused(void **state)
{
    struct sl_comm_lasting lasting = {.names = NULL};
    double factor = factor_between(), less = factor_of(50 * 86400.0, 3600);

    (void)state;
    assert_true(look(&lasting, factor, 0) == WINDOW_S);
    for (int64_t now_ns = S; now_ns <= APART_NS; now_ns += S)
        assert_true(look(&lasting, less, now_ns) == WINDOW_S);
    assert_true(look(&lasting, factor, APART_NS + S) > WINDOW_S);
    sl_comm_lasting_free(&lasting);
}

static void one_that_always_stands_out_less_is_not(void **state)
{
    struct sl_comm_lasting lasting = {.names = NULL};
    double less = factor_of(50 * 86400.0, 3600);

    (void)state;
    for (int64_t now_ns = 0; now_ns < 2 * APART_NS; now_ns += S)
        assert_true(look(&lasting, less, now_ns) == WINDOW_S);
    sl_comm_lasting_free(&lasting);
}

static void two_that_stand_out_in_turn_are_not(void **state)
{
    struct sl_comm_lasting lasting = {.names = NULL};
    double factor = factor_between();

    (void)state;
    for (int64_t now_ns = 0; now_ns < 2 * APART_NS; now_ns += S) {
        slow_rank = now_ns / S % 8 < 4 ? 5 : 2;
        assert_true(look(&lasting, factor, now_ns) == WINDOW_S);
    }
    slow_rank = 5;
    sl_comm_lasting_free(&lasting);
}

static void nobody_who_is_healthy_lasts(void **state)
{
    struct sl_comm_lasting lasting = {.names = NULL};

    (void)state;
    for (int64_t now_ns = 0; now_ns < 2 * APART_NS; now_ns += S)
        assert_true(look(&lasting, 1, now_ns) == WINDOW_S);
    sl_comm_lasting_free(&lasting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sender_that_stands_out_in_windows_apart_is_accused),
        cmocka_unit_test(few_messages_are_enough_in_two_looks),
        cmocka_unit_test(one_that_does_not_in_a_look_between_is_not),
        cmocka_unit_test(one_that_stands_out_less_in_looks_between_is_accused),
        cmocka_unit_test(one_that_always_stands_out_less_is_not),
        cmocka_unit_test(two_that_stand_out_in_turn_are_not),
        cmocka_unit_test(nobody_who_is_healthy_lasts),
    };

    slow_rank = 5;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
