/* SPDX-License-Identifier: Apache-2.0 */
/* What the monitor makes of samples, and what users of other monitors complain about. */
#include "core/err.h"
#include "monitor/engine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_mon *mon;
static struct sl_mon_time now;
static struct sl_mon_transition told[64];
static char told_name[64][SL_MON_NAME], told_text[64][SL_MON_TEXT];
static unsigned told_count;

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    assert_true(told_count < SL_ARRAY_LEN(told));
    told[told_count] = *transition;
    strcpy(told_name[told_count], transition->subject->name);
    strcpy(told_text[told_count++], transition->evidence->text);
}

static void pass(uint64_t ns)
{
    now.mono_ns += ns;
    now.wall_ns += ns;
    now.boot_ns += ns;
    sl_mon_set_time(mon, &now);
}

static int begin(void **state)
{
    const struct sl_mon_options options = {.subjects_max = 8, .on_transition = on_transition};

    (void)state;
    told_count = 0;
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    now = (struct sl_mon_time){
        .mono_ns = 1000 * SL_MON_HOUR, .wall_ns = 2000 * SL_MON_HOUR, .boot_ns = 500 * SL_MON_HOUR};
    sl_mon_set_time(mon, &now);
    sl_mon_set_boot(mon, "boot-1");
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_destroy(mon);
    mon = NULL;
    return 0;
}

static const struct sl_mon_evidence evidence = {
    .source = "sysfs", .before = 7, .after = 9, .text = "link_downed went from 7 to 9"};

static struct sl_mon_subject *port(const char *name)
{
    struct sl_mon_subject *subject = sl_mon_subject(mon, SL_MON_PORT, name);

    assert_non_null(subject);
    return subject;
}

static void bad(struct sl_mon_subject *subject, enum sl_mon_check check)
{
    sl_mon_sample(mon, subject, check, true, &evidence);
}

static enum sl_mon_state state_of(const struct sl_mon_subject *subject, enum sl_mon_check check)
{
    return (enum sl_mon_state)sl_mon_condition(subject, check)->state;
}

/* ---- what is told ---- */

static void a_transition_tells_what_when_and_why(void **state)
{
    struct sl_mon_subject *subject = port("mlx5_0:1");

    (void)state;
    sl_mon_use(mon, subject);
    bad(subject, SL_MON_CHECK_PORT_DOWN);
    assert_int_equal(told_count, 1);
    assert_int_equal(told[0].id, 1);
    assert_int_equal(told[0].check, SL_MON_CHECK_PORT_DOWN);
    assert_int_equal(told[0].step.from, SL_MON_OK);
    assert_int_equal(told[0].step.to, SL_MON_BAD);
    assert_int_equal(told[0].time.mono_ns, now.mono_ns);
    assert_int_equal(told[0].time.wall_ns, now.wall_ns);
    assert_string_equal(told[0].boot_id, "boot-1");
    assert_string_equal(told_name[0], "mlx5_0:1");
    assert_string_equal(told_text[0], "link_downed went from 7 to 9");
    assert_int_equal(sl_mon_subject_state(subject), SL_MON_BAD);
    bad(subject, SL_MON_CHECK_PORT_DOWN);
    assert_int_equal(told_count, 1); /* said once */
}

static void numbers_of_transitions_go_on_where_the_store_ends(void **state)
{
    const struct sl_mon_options options = {
        .subjects_max = 1, .next_id = 42, .on_transition = on_transition};

    (void)state;
    end(NULL);
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    sl_mon_set_time(mon, &now);
    bad(sl_mon_subject(mon, SL_MON_HOST, "host"), SL_MON_CHECK_HOST_HUNG);
    assert_int_equal(told[0].id, 42);
}

static void each_kind_has_checks_of_its_own_in_one_row(void **state)
{
    unsigned sum = 0;

    (void)state;
    for (unsigned kind = 0; kind < SL_MON_KINDS; kind++) {
        enum sl_mon_check first;
        unsigned count = sl_mon_checks_of((enum sl_mon_kind)kind, &first);

        assert_true(count > 0);
        for (unsigned i = 0; i < count; i++)
            assert_int_equal(sl_mon_checks[first + i].kind, kind);
        sum += count;
    }
    assert_int_equal(sum, SL_MON_CHECK_COUNT);
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++) {
        const struct sl_mon_policy *policy = &sl_mon_checks[i].policy;

        assert_true(policy->bad >= 1 && policy->bad <= policy->of &&
                    policy->of <= SL_MON_WINDOW_MAX);
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(sl_mon_checks[i].name, sl_mon_checks[j].name);
    }
}

static void room_for_subjects_is_bounded_and_what_is_left_out_is_counted(void **state)
{
    char name[16];

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "eth%u", i);
        port(name);
    }
    assert_null(sl_mon_subject(mon, SL_MON_PORT, "eth8"));
    assert_int_equal(sl_mon_left_out(mon), 1);
    sl_mon_forget(mon, sl_mon_find(mon, SL_MON_PORT, "eth3"));
    assert_null(sl_mon_find(mon, SL_MON_PORT, "eth3"));
    port("eth8");
    unsigned count = 0;

    for (const struct sl_mon_subject *at = sl_mon_next(mon, NULL); at != NULL;
         at = sl_mon_next(mon, at))
        count++;
    assert_int_equal(count, 8);
}

static void a_clock_that_is_set_back_changes_nothing(void **state)
{
    struct sl_mon_subject *subject = port("eth0");

    (void)state;
    sl_mon_use(mon, subject);
    bad(subject, SL_MON_CHECK_PORT_DOWN);
    uint64_t since_ns = sl_mon_condition(subject, SL_MON_CHECK_PORT_DOWN)->since_ns;

    now.wall_ns = 1;
    now.mono_ns -= SL_MON_HOUR; /* as no kernel does */
    sl_mon_set_time(mon, &now);
    sl_mon_sample(mon, subject, SL_MON_CHECK_PORT_DOWN, false, NULL);
    assert_int_equal(told_count, 1); /* held for a minute, of which none has passed */
    assert_int_equal(sl_mon_time(mon)->mono_ns, since_ns);
    assert_int_equal(sl_mon_time(mon)->wall_ns, 1);
}

/* ---- the complaints of docs/monitor.md, by tool and thread ---- */

/* NVSentinel 1361, 1462, 1528: ports that are down by design are reported fatal. */
static void a_port_that_nobody_uses_is_quiet(void **state)
{
    struct sl_mon_subject *subject = port("mlx5_3:1");

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        pass(SL_MON_S);
        bad(subject, SL_MON_CHECK_PORT_DOWN);
        bad(subject, SL_MON_CHECK_PORT_FLAP);
    }
    assert_int_equal(told_count, 0);
    sl_mon_use(mon, subject);
    pass(SL_MON_IN_USE_NS);
    bad(subject, SL_MON_CHECK_PORT_DOWN); /* it was in use a minute ago */
    assert_int_equal(told_count, 1);
}

/* node-problem-detector 215, 673: a condition never returns to false. */
static void what_is_over_clears_by_itself_and_is_remembered(void **state)
{
    struct sl_mon_subject *subject = port("eth0");

    (void)state;
    sl_mon_use(mon, subject);
    bad(subject, SL_MON_CHECK_PORT_DOWN);
    for (unsigned i = 0; i < 400; i++) {
        pass(SL_MON_S);
        sl_mon_sample(mon, subject, SL_MON_CHECK_PORT_DOWN, false, NULL);
    }
    assert_int_equal(state_of(subject, SL_MON_CHECK_PORT_DOWN), SL_MON_OK);
    assert_int_equal(told_count, 3); /* bad, recovering, ok */
    assert_true(told[1].time.mono_ns - told[0].time.mono_ns >= SL_MON_MIN);
    assert_int_equal(sl_mon_condition(subject, SL_MON_CHECK_PORT_DOWN)->entered[SL_MON_BAD], 1);
}

/* gpud PR 1110: a drop is healthy again at once, and operators miss it. */
static void a_short_drop_stays_to_be_seen(void **state)
{
    struct sl_mon_subject *subject = port("eth0");

    (void)state;
    sl_mon_use(mon, subject);
    bad(subject, SL_MON_CHECK_PORT_FLAP);
    pass(SL_MON_S);
    sl_mon_calm(mon, SL_MON_CHECK_PORT_FLAP);
    assert_int_equal(state_of(subject, SL_MON_CHECK_PORT_FLAP), SL_MON_BAD);
    pass(10 * SL_MON_MIN);
    sl_mon_calm(mon, SL_MON_CHECK_PORT_FLAP);
    assert_int_equal(state_of(subject, SL_MON_CHECK_PORT_FLAP), SL_MON_RECOVERING);
    pass(SL_MON_HOUR);
    sl_mon_calm(mon, SL_MON_CHECK_PORT_FLAP);
    assert_int_equal(state_of(subject, SL_MON_CHECK_PORT_FLAP), SL_MON_OK);
}

/* NVSentinel 1528, 1529: stale conditions after a reboot. */
static void another_boot_begins_anew_and_history_stays(void **state)
{
    struct sl_mon_subject *gpu = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0");

    (void)state;
    bad(gpu, SL_MON_CHECK_GPU_FATAL);
    pass(100 * SL_MON_HOUR);
    sl_mon_calm(mon, SL_MON_CHECK_GPU_FATAL);
    assert_int_equal(state_of(gpu, SL_MON_CHECK_GPU_FATAL), SL_MON_BAD); /* until then */
    sl_mon_set_boot(mon, "boot-1");
    assert_int_equal(told_count, 1);
    sl_mon_set_boot(mon, "boot-2");
    assert_int_equal(told_count, 2);
    assert_int_equal(told[1].step.input, SL_MON_IN_BOOT);
    assert_string_equal(told[1].boot_id, "boot-2");
    assert_int_equal(state_of(gpu, SL_MON_CHECK_GPU_FATAL), SL_MON_OK);
    assert_int_equal(sl_mon_condition(gpu, SL_MON_CHECK_GPU_FATAL)->entered[SL_MON_BAD], 1);
    assert_true(told[1].history > 0.7);
}

/* NVSentinel 1701: links train after each boot, 214 of 288 nodes were reported. */
static void what_happens_right_after_a_boot_is_no_evidence(void **state)
{
    struct sl_mon_subject *subject = port("mlx5_0:1");

    (void)state;
    now.boot_ns = 10 * SL_MON_S;
    sl_mon_set_time(mon, &now);
    sl_mon_use(mon, subject);
    bad(subject, SL_MON_CHECK_PORT_DOWN);
    bad(subject, SL_MON_CHECK_PORT_FLAP);
    bad(subject, SL_MON_CHECK_PORT_SYMBOL);
    assert_int_equal(told_count, 0);
}

/* NVSentinel 1492: one flap is protected, the ones after it are not. */
static void each_relapse_is_told(void **state)
{
    struct sl_mon_subject *subject = port("eth0");

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        sl_mon_use(mon, subject);
        bad(subject, SL_MON_CHECK_PORT_FLAP);
        assert_int_equal(state_of(subject, SL_MON_CHECK_PORT_FLAP), SL_MON_BAD);
        pass(11 * SL_MON_MIN);
        sl_mon_calm(mon, SL_MON_CHECK_PORT_FLAP);
        assert_int_equal(state_of(subject, SL_MON_CHECK_PORT_FLAP), SL_MON_RECOVERING);
    }
    assert_int_equal(told_count, 6);
    assert_int_equal(sl_mon_condition(subject, SL_MON_CHECK_PORT_FLAP)->entered[SL_MON_BAD], 3);
}

/* DCGM 277, dcgm-exporter 190: two equal errors in a row are one. */
static void equal_errors_in_a_row_are_told_each(void **state)
{
    struct sl_mon_subject *gpu = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0");

    (void)state;
    for (unsigned i = 0; i < 5; i++)
        bad(gpu, SL_MON_CHECK_GPU_ERROR);
    assert_int_equal(told_count, 5);
    assert_int_equal(told[0].step.to, SL_MON_BAD);
    assert_int_equal(told[0].step.from, SL_MON_OK);
    for (unsigned i = 1; i < 5; i++) {
        assert_int_equal(told[i].id, i + 1);
        assert_int_equal(told[i].step.from, SL_MON_BAD);
        assert_int_equal(told[i].step.to, SL_MON_BAD);
    }
    assert_int_equal(sl_mon_condition(gpu, SL_MON_CHECK_GPU_ERROR)->bads, 5);
}

/* A log that repeats itself for hours must not fill the store; how much there was is told. */
static void a_flood_of_events_is_told_as_a_number(void **state)
{
    struct sl_mon_subject *gpu = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0");
    unsigned tells;

    (void)state;
    for (unsigned i = 0; i < 1 + SL_MON_EVENTS_AT_ONCE + 1000; i++) {
        bad(gpu, SL_MON_CHECK_GPU_ERROR);
        told_count = told_count > 60 ? 60 : told_count;
    }
    assert_int_equal(told[59].id, 60);
    tells = 1 + SL_MON_EVENTS_AT_ONCE;
    told_count = 0;
    pass(SL_MON_S / SL_MON_EVENTS_PER_S);
    bad(gpu, SL_MON_CHECK_GPU_ERROR);
    bad(gpu, SL_MON_CHECK_GPU_ERROR);
    assert_int_equal(told_count, 1);
    assert_int_equal(told[0].id, tells + 1);
    assert_string_equal(told_text[0], "link_downed went from 7 to 9 (1000 more were not told)");
    assert_int_equal(sl_mon_condition(gpu, SL_MON_CHECK_GPU_ERROR)->bads,
                     1 + SL_MON_EVENTS_AT_ONCE + 1000 + 2);
    told_count = 0;
    pass(SL_MON_HOUR);
    for (unsigned i = 0; i < SL_MON_EVENTS_AT_ONCE; i++) {
        told_count = 0;
        bad(gpu, SL_MON_CHECK_GPU_ERROR);
        assert_int_equal(told_count, 1);
    }
    assert_int_equal(sl_mon_condition(gpu, SL_MON_CHECK_GPU_FATAL)->bads, 0);
}

/* What is asked often and may well be bad is no event. */
static void samples_of_a_check_that_is_not_quiet_are_no_events(void **state)
{
    struct sl_mon_subject *one = port("mlx5_0:1");

    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        pass(SL_MON_S);
        sl_mon_use(mon, one);
        bad(one, SL_MON_CHECK_PORT_DOWN);
    }
    assert_int_equal(told_count, 1);
}

static unsigned forgotten;

static void on_forget(void *arg, const struct sl_mon_subject *subject)
{
    (void)arg;
    assert_string_equal(subject->name, "pid 7");
    assert_int_equal(sl_mon_subject_state(subject), SL_MON_OK);
    forgotten++;
}

static void what_is_wrong_with_a_process_ends_with_it(void **state)
{
    const struct sl_mon_options options = {
        .subjects_max = 8, .on_transition = on_transition, .on_forget = on_forget};
    struct sl_mon_subject *process;

    (void)state;
    sl_mon_destroy(mon);
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    sl_mon_set_time(mon, &now);
    process = sl_mon_subject(mon, SL_MON_PROCESS, "pid 7");
    bad(process, SL_MON_CHECK_PROCESS_STOPPED);
    forgotten = 0;
    sl_mon_forget(mon, process);
    assert_int_equal(told_count, 2);
    assert_int_equal(told[1].step.input, SL_MON_IN_GONE);
    assert_int_equal(told[1].step.from, SL_MON_BAD);
    assert_int_equal(told[1].step.to, SL_MON_OK);
    assert_int_equal(forgotten, 1);
    assert_null(sl_mon_find(mon, SL_MON_PROCESS, "pid 7"));
}

static void an_operator_clears_a_subject(void **state)
{
    struct sl_mon_subject *gpu = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0");

    (void)state;
    bad(gpu, SL_MON_CHECK_GPU_FATAL);
    assert_true(sl_mon_clear(mon, gpu));
    assert_int_equal(told[1].step.input, SL_MON_IN_CLEAR);
    assert_int_equal(sl_mon_subject_state(gpu), SL_MON_OK);
    assert_false(sl_mon_clear(mon, gpu));
}

static void what_the_store_had_comes_back_without_a_transition(void **state)
{
    struct sl_mon_subject *gpu = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0");
    struct sl_mon_condition condition = {
        .state = SL_MON_BAD, .since_ns = now.mono_ns, .bad_ns = now.mono_ns, .bads = 3};

    (void)state;
    sl_mon_restore(mon, gpu, SL_MON_CHECK_GPU_FATAL, &condition);
    assert_int_equal(told_count, 0);
    assert_int_equal(sl_mon_subject_state(gpu), SL_MON_BAD);
    sl_mon_set_boot(mon, "boot-2");
    assert_int_equal(told_count, 1);
}

static void without_room_or_somebody_to_tell_there_is_no_monitor(void **state)
{
    struct sl_mon *none = NULL;

    (void)state;
    assert_int_equal(sl_mon_create(&(struct sl_mon_options){.subjects_max = 1}, &none), -EINVAL);
    assert_int_equal(sl_mon_create(&(struct sl_mon_options){.on_transition = on_transition}, &none),
                     -EINVAL);
    assert_null(none);
    sl_mon_destroy(NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_transition_tells_what_when_and_why),
        CASE(numbers_of_transitions_go_on_where_the_store_ends),
        CASE(each_kind_has_checks_of_its_own_in_one_row),
        CASE(room_for_subjects_is_bounded_and_what_is_left_out_is_counted),
        CASE(a_clock_that_is_set_back_changes_nothing),
        CASE(a_port_that_nobody_uses_is_quiet),
        CASE(what_is_over_clears_by_itself_and_is_remembered),
        CASE(a_short_drop_stays_to_be_seen),
        CASE(another_boot_begins_anew_and_history_stays),
        CASE(what_happens_right_after_a_boot_is_no_evidence),
        CASE(each_relapse_is_told),
        CASE(equal_errors_in_a_row_are_told_each),
        CASE(a_flood_of_events_is_told_as_a_number),
        CASE(samples_of_a_check_that_is_not_quiet_are_no_events),
        CASE(what_is_wrong_with_a_process_ends_with_it),
        CASE(an_operator_clears_a_subject),
        CASE(what_the_store_had_comes_back_without_a_transition),
        CASE(without_room_or_somebody_to_tell_there_is_no_monitor)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
