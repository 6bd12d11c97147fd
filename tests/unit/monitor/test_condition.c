/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a condition: by hand, and against its rules on random walks. */
#include "core/rng.h"
#include "monitor/condition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define S UINT64_C(1000000000)

static const struct sl_mon_policy sampled = {
    .bad = 3, .of = 5, .in_use = true, .grace_ns = 60 * S, .hold_ns = 20 * S, .clear_ns = 10 * S};
static const struct sl_mon_policy quiet = {
    .bad = 1, .of = 1, .quiet = true, .hold_ns = 20 * S, .clear_ns = 10 * S};

static struct sl_mon_condition condition;
static struct sl_mon_step last;
static uint64_t now_ns;

static int begin(void **state)
{
    (void)state;
    now_ns = 1000 * S;
    sl_mon_condition_init(&condition, now_ns);
    return 0;
}

static bool sample(const struct sl_mon_policy *policy, bool is_bad)
{
    const struct sl_mon_sample one = {
        .now_ns = now_ns, .boot_ns = now_ns, .is_bad = is_bad, .in_use = true};

    now_ns += S;
    return sl_mon_condition_sample(&condition, policy, &one, &last);
}

static void expect(enum sl_mon_state state)
{
    assert_string_equal(sl_mon_state_name(condition.state), sl_mon_state_name(state));
}

static void it_is_suspect_at_first_and_bad_when_confirmed(void **state)
{
    (void)state;
    assert_true(sample(&sampled, true));
    expect(SL_MON_SUSPECT);
    assert_false(sample(&sampled, false));
    assert_false(sample(&sampled, true));
    expect(SL_MON_SUSPECT);
    assert_true(sample(&sampled, true));
    expect(SL_MON_BAD);
    assert_int_equal(last.input, SL_MON_IN_CONFIRM);
}

static void what_is_not_confirmed_is_forgotten_after_the_window(void **state)
{
    (void)state;
    sample(&sampled, true);
    for (unsigned i = 0; i < 4; i++)
        assert_false(sample(&sampled, false));
    assert_true(sample(&sampled, false));
    expect(SL_MON_OK);
    sample(&sampled, true);
    sample(&sampled, true);
    expect(SL_MON_SUSPECT); /* and begins to count anew */
}

static void bad_is_held_and_recovers_before_it_is_good(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        sample(&sampled, true);
    uint64_t since_ns = condition.since_ns;

    while (condition.state == SL_MON_BAD)
        sample(&sampled, false);
    assert_true(condition.since_ns - since_ns >= sampled.hold_ns);
    expect(SL_MON_RECOVERING);
    assert_true(sample(&sampled, false)); /* the last bad one is long ago */
    expect(SL_MON_OK);
}

static void one_bad_sample_while_it_recovers_and_it_is_bad_again(void **state)
{
    (void)state;
    struct sl_mon_policy slow = sampled;

    slow.clear_ns = 100 * S;
    for (unsigned i = 0; i < 3; i++)
        sample(&slow, true);
    while (condition.state == SL_MON_BAD)
        sample(&slow, false);
    expect(SL_MON_RECOVERING);
    assert_true(sample(&slow, true));
    expect(SL_MON_BAD);
    assert_int_equal(condition.entered[SL_MON_BAD], 2);
}

static void a_fresh_boot_and_a_subject_that_nobody_uses_give_no_evidence(void **state)
{
    struct sl_mon_sample one = {
        .now_ns = now_ns, .boot_ns = 59 * S, .is_bad = true, .in_use = true};

    (void)state;
    for (unsigned i = 0; i < 10; i++)
        assert_false(sl_mon_condition_sample(&condition, &sampled, &one, &last));
    one.boot_ns = 60 * S;
    one.in_use = false;
    for (unsigned i = 0; i < 10; i++)
        assert_false(sl_mon_condition_sample(&condition, &sampled, &one, &last));
    assert_int_equal(condition.bads, 0);
    one.in_use = true;
    assert_true(sl_mon_condition_sample(&condition, &sampled, &one, &last));
}

static void silence_clears_only_what_is_quiet(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        sample(&sampled, true);
    now_ns += 1000 * S;
    assert_false(
        sl_mon_condition_tick(&condition, &sampled, now_ns, &last)); /* its source is dead */
    expect(SL_MON_BAD);
    begin(NULL);
    sample(&quiet, true);
    expect(SL_MON_BAD);
    assert_false(sl_mon_condition_tick(&condition, &quiet, now_ns, &last));
    now_ns += 20 * S;
    assert_true(sl_mon_condition_tick(&condition, &quiet, now_ns, &last));
    expect(SL_MON_RECOVERING);
    assert_true(sl_mon_condition_tick(&condition, &quiet, now_ns, &last));
    expect(SL_MON_OK);
    assert_false(sl_mon_condition_tick(&condition, &quiet, now_ns, &last));
}

static void what_is_for_good_stays_until_a_boot_or_an_operator(void **state)
{
    struct sl_mon_policy good = quiet;

    (void)state;
    good.hold_ns = SL_MON_NEVER;
    sample(&good, true);
    now_ns += UINT64_C(1000000) * S;
    assert_false(sl_mon_condition_tick(&condition, &good, now_ns, &last));
    assert_true(sl_mon_condition_reset(&condition, SL_MON_IN_BOOT, now_ns, &last));
    expect(SL_MON_OK);
    sample(&good, true);
    assert_true(sl_mon_condition_reset(&condition, SL_MON_IN_CLEAR, now_ns, &last));
    expect(SL_MON_OK);
    assert_int_equal(condition.bads, 2); /* history stays */
    assert_int_equal(condition.entered[SL_MON_BAD], 2);
}

static void one_that_was_bad_often_is_believed_earlier(void **state)
{
    (void)state;
    for (unsigned times = 0; times < 2; times++) {
        for (unsigned i = 0; i < 3; i++)
            sample(&sampled, true);
        expect(SL_MON_BAD);
        sl_mon_condition_reset(&condition, SL_MON_IN_BOOT, now_ns, &last);
    }
    assert_true(sl_mon_condition_history(&condition, now_ns) > 1.99);
    condition.history = 2.5;
    sample(&sampled, true);
    expect(SL_MON_SUSPECT);
    sample(&sampled, true);
    expect(SL_MON_BAD);
    sl_mon_condition_reset(&condition, SL_MON_IN_BOOT, now_ns, &last);
    now_ns += 4 * SL_MON_HALF_LIFE_NS;
    assert_true(sl_mon_condition_history(&condition, now_ns) < 0.25);
    sample(&sampled, true);
    sample(&sampled, true);
    expect(SL_MON_SUSPECT);
}

/* ---- the rules, on random walks ---- */

struct walk {
    struct sl_rng rng;
    struct sl_mon_policy policy;
    struct sl_mon_condition before;
    uint32_t window; /* as it should be */
    unsigned known;
    uint64_t bad_ns, entered_ns;
};

static void draw(struct walk *walk, uint64_t seed)
{
    sl_rng_init(&walk->rng, seed);
    uint8_t of = (uint8_t)sl_rng_range(&walk->rng, 1, 8);

    walk->policy = (struct sl_mon_policy){.of = of,
                                          .bad = (uint8_t)sl_rng_range(&walk->rng, 1, of),
                                          .in_use = sl_rng_below(&walk->rng, 2) != 0,
                                          .quiet = sl_rng_below(&walk->rng, 2) != 0,
                                          .grace_ns = sl_rng_below(&walk->rng, 100) * S,
                                          .hold_ns = sl_rng_below(&walk->rng, 50) * S,
                                          .clear_ns = sl_rng_below(&walk->rng, 50) * S};
    walk->window = 0;
    walk->known = 0;
    walk->bad_ns = 0;
    walk->entered_ns = now_ns;
}

static unsigned bads_in(const struct walk *walk, uint32_t window)
{
    return (unsigned)__builtin_popcount(
        window & (walk->policy.of >= 32 ? UINT32_MAX : (1u << walk->policy.of) - 1));
}

/* Whatever happened: only what may follow, and for its reason. */
static void judge(struct walk *walk, bool changed, bool was_bad, bool counted)
{
    uint8_t from = walk->before.state, to = condition.state;

    assert_int_equal(changed, from != to);
    assert_true(condition.bads >= walk->before.bads && condition.good >= walk->before.good);
    for (unsigned i = 0; i < SL_MON_STATES; i++)
        assert_int_equal(condition.entered[i], walk->before.entered[i] + (changed && i == to));
    assert_true(condition.history >= 0);
    if (was_bad && !counted)
        assert_false(changed);
    if (!changed)
        return;
    assert_int_equal(last.from, from);
    assert_int_equal(last.to, to);
    assert_int_equal(condition.since_ns, now_ns);
    if (last.input == SL_MON_IN_BOOT || last.input == SL_MON_IN_CLEAR) {
        assert_int_equal(to, SL_MON_OK);
    } else if (to == SL_MON_SUSPECT) {
        assert_true(from == SL_MON_OK && was_bad);
    } else if (to == SL_MON_BAD && from != SL_MON_RECOVERING) {
        bool is_lemon = sl_mon_condition_history(&walk->before, now_ns) >= SL_MON_LEMON;

        assert_true(was_bad);
        assert_true(bads_in(walk, walk->window) >=
                    (is_lemon ? (walk->policy.bad + 1u) / 2 : walk->policy.bad));
    } else if (to == SL_MON_RECOVERING) {
        assert_true(from == SL_MON_BAD && !was_bad);
        assert_true(now_ns - walk->entered_ns >= walk->policy.hold_ns);
    } else if (to == SL_MON_OK && from == SL_MON_RECOVERING) {
        assert_true(!was_bad && now_ns - walk->bad_ns >= walk->policy.clear_ns);
    } else if (to == SL_MON_OK) {
        assert_true(from == SL_MON_SUSPECT && !was_bad);
    }
}

static void walk_on(struct walk *walk)
{
    unsigned kind = (unsigned)sl_rng_below(&walk->rng, 40);
    const struct sl_mon_sample one = {.now_ns = now_ns,
                                      .boot_ns = sl_rng_below(&walk->rng, 200) * S,
                                      .is_bad = sl_rng_below(&walk->rng, 3) == 0,
                                      .in_use = sl_rng_below(&walk->rng, 4) != 0};
    bool counted = one.boot_ns >= walk->policy.grace_ns && (one.in_use || !walk->policy.in_use);
    bool changed, is_sample = kind < 32, was_bad = is_sample && one.is_bad;

    walk->before = condition;
    if (kind >= 38) {
        changed = sl_mon_condition_reset(&condition, kind == 38 ? SL_MON_IN_BOOT : SL_MON_IN_CLEAR,
                                         now_ns, &last);
        walk->window = 0;
    } else if (!is_sample) {
        changed = sl_mon_condition_tick(&condition, &walk->policy, now_ns, &last);
        assert_true(!changed || walk->policy.quiet);
    } else {
        if (counted || !one.is_bad)
            walk->window = walk->window << 1 | one.is_bad;
        if (counted && one.is_bad)
            walk->bad_ns = now_ns;
        changed = sl_mon_condition_sample(&condition, &walk->policy, &one, &last);
    }
    judge(walk, changed, was_bad, counted);
    if (changed) {
        walk->entered_ns = now_ns;
        if (condition.state == SL_MON_OK)
            walk->window = 0;
    }
    now_ns += sl_rng_below(&walk->rng, 8) * S;
}

static void random_walks_keep_to_the_rules(void **state)
{
    struct walk walk;
    uint64_t reached[SL_MON_STATES] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        begin(NULL);
        draw(&walk, seed);
        for (unsigned i = 0; i < 400; i++) {
            walk_on(&walk);
            reached[condition.state]++;
        }
    }
    for (unsigned i = 0; i < SL_MON_STATES; i++)
        assert_true(reached[i] > 10000);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(it_is_suspect_at_first_and_bad_when_confirmed),
        CASE(what_is_not_confirmed_is_forgotten_after_the_window),
        CASE(bad_is_held_and_recovers_before_it_is_good),
        CASE(one_bad_sample_while_it_recovers_and_it_is_bad_again),
        CASE(a_fresh_boot_and_a_subject_that_nobody_uses_give_no_evidence),
        CASE(silence_clears_only_what_is_quiet),
        CASE(what_is_for_good_stays_until_a_boot_or_an_operator),
        CASE(one_that_was_bad_often_is_believed_earlier),
        CASE(random_walks_keep_to_the_rules)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
