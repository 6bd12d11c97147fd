/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports are avoided and when they are tried again: by cases, and by random walks against a
 * second account of what has to hold. */
#include "monitor/steer.h"

#include "core/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define S UINT64_C(1000000000)
#define PORTS 4

static const struct sl_steer_rules standard = {
    .ports = 2, .rest_ns = 60 * S, .trial_ns = 30 * S, .trial_weight = 10};
static const char *const names[PORTS] = {"a:1", "b:1", "c:1", "d:1"};
static struct sl_steer own;
static struct sl_steer_view views[PORTS];
static uint64_t now;
static unsigned told;

static void count_changes(void *arg, const struct sl_steer_port *port, enum sl_steer_state from,
                          const char *why)
{
    (void)arg;
    assert_int_not_equal(port->state, from);
    assert_true(strlen(why) > 0);
    told++;
}

static int begin(void **state)
{
    (void)state;
    sl_steer_init(&own, &standard);
    own.changed = count_changes;
    now = 1000 * S;
    told = 0;
    for (unsigned i = 0; i < PORTS; i++)
        views[i] = (struct sl_steer_view){.name = names[i], .is_up = true};
    sl_steer_see(&own, now, views, PORTS);
    return 0;
}

/* A second, in which all ports that are not avoided carry. */
static void second(void)
{
    now += S;
    for (unsigned i = 0; i < PORTS; i++)
        if (own.count <= i || own.ports[i].state != SL_STEER_AVOIDED)
            views[i].carried += 1000;
    sl_steer_see(&own, now, views, PORTS);
}

static void seconds(unsigned count)
{
    while (count-- > 0)
        second();
}

/* It is bad, and seen to be so. */
static void bad_second(unsigned i)
{
    views[i].is_open = views[i].is_bad = true;
    views[i].bads++;
    second();
}

/* Nothing is seen any more; the verdict is held. */
static void calm(unsigned i)
{
    views[i].is_bad = false;
}

static void expect(unsigned i, enum sl_steer_state state, unsigned weight)
{
    assert_string_equal(sl_steer_state_name(own.ports[i].state), sl_steer_state_name(state));
    assert_int_equal(sl_steer_weight(&own, &own.ports[i]), weight);
}

static void a_verdict_has_it_avoided_and_a_try_gives_it_back(void **state)
{
    (void)state;
    seconds(5);
    expect(0, SL_STEER_IN_USE, 100);
    bad_second(0);
    expect(0, SL_STEER_AVOIDED, 0);
    expect(1, SL_STEER_IN_USE, 100);
    calm(0);
    seconds(58);
    expect(0, SL_STEER_AVOIDED, 0);
    seconds(2);
    expect(0, SL_STEER_TRIED, 10);
    seconds(29);
    expect(0, SL_STEER_TRIED, 10);
    second();
    expect(0, SL_STEER_IN_USE, 100);
    seconds(300); /* the verdict is open still, which is no news */
    expect(0, SL_STEER_IN_USE, 100);
    views[0].is_open = false;
    seconds(300);
    assert_int_equal(told, 3);
    assert_int_equal(own.changes[SL_STEER_AVOIDED], 1);
}

static void evidence_while_it_is_avoided_begins_its_rest_anew(void **state)
{
    (void)state;
    bad_second(0);
    for (unsigned i = 0; i < 5; i++) {
        seconds(50);
        bad_second(0);
    }
    expect(0, SL_STEER_AVOIDED, 0);
    assert_int_equal(own.ports[0].relapses, 0);
    seconds(60);
    expect(0, SL_STEER_TRIED, 10);
}

static void a_try_that_fails_makes_the_next_rest_longer(void **state)
{
    uint64_t rest = 60;

    (void)state;
    bad_second(0);
    for (unsigned i = 0; i < 9; i++) {
        seconds((unsigned)rest);
        expect(0, SL_STEER_TRIED, 10);
        bad_second(0);
        expect(0, SL_STEER_TRIED, 10); /* one may be chance */
        bad_second(0);
        expect(0, SL_STEER_AVOIDED, 0);
        rest = rest < 60 << SL_STEER_DOUBLINGS ? 2 * rest : rest;
        assert_int_equal(sl_steer_rest_ns(&own, &own.ports[0]), rest * S);
    }
}

/* No traffic proves nothing. */
static void a_try_without_traffic_does_not_end(void **state)
{
    (void)state;
    bad_second(0);
    seconds(60);
    expect(0, SL_STEER_TRIED, 10);
    for (unsigned i = 0; i < 500; i++) {
        now += S;
        sl_steer_see(&own, now, views, PORTS);
    }
    expect(0, SL_STEER_TRIED, 10);
    seconds(30);
    expect(0, SL_STEER_IN_USE, 100);
}

static void a_verdict_that_closes_by_silence_gives_nothing_back(void **state)
{
    (void)state;
    bad_second(0);
    views[0].is_open = views[0].is_bad = false;
    seconds(30);
    expect(0, SL_STEER_AVOIDED, 0);
    seconds(30);
    expect(0, SL_STEER_TRIED, 10);
}

static void given_back_too_early_it_rests_longer(void **state)
{
    (void)state;
    bad_second(0);
    calm(0);
    seconds(60 + 30);
    expect(0, SL_STEER_IN_USE, 100);
    bad_second(0);
    expect(0, SL_STEER_AVOIDED, 0);
    assert_int_equal(own.ports[0].relapses, 1);
    calm(0);
    seconds(120 + 30 + SL_STEER_FORGET * 120); /* and long after it is forgotten */
    expect(0, SL_STEER_IN_USE, 100);
    bad_second(0);
    assert_int_equal(own.ports[0].relapses, 0);
}

static void not_too_many_and_never_the_last(void **state)
{
    (void)state;
    bad_second(0);
    bad_second(1);
    bad_second(2);
    bad_second(2);
    expect(1, SL_STEER_AVOIDED, 0);
    expect(2, SL_STEER_IN_USE, 100);
    assert_true(own.ports[2].is_refused);
    assert_int_equal(own.refused, 1); /* once, however often it is seen */
    begin(NULL);
    own.rules.ports = 63;
    views[3].is_up = false; /* the last one is none that could carry */
    bad_second(0);
    bad_second(1);
    bad_second(2);
    expect(1, SL_STEER_AVOIDED, 0);
    expect(2, SL_STEER_IN_USE, 100);
    views[3].is_up = true; /* now it may go */
    bad_second(2);
    expect(2, SL_STEER_AVOIDED, 0);
    bad_second(3);
    expect(3, SL_STEER_IN_USE, 100);
}

static void a_slower_link_is_given_less_while_its_verdict_is_open(void **state)
{
    (void)state;
    views[1].weight = 50;
    bad_second(1);
    expect(1, SL_STEER_LOWERED, 50);
    views[1].weight = 25;
    calm(1);
    seconds(500);
    expect(1, SL_STEER_LOWERED, 25);
    views[1].is_open = false;
    second();
    expect(1, SL_STEER_IN_USE, 100);
    views[1].weight = 0;
    bad_second(1);
    expect(1, SL_STEER_AVOIDED, 0);
    assert_int_equal(own.ports[1].relapses, 0);
}

static void an_operator_has_the_last_word(void **state)
{
    (void)state;
    bad_second(0);
    views[0].clears++;
    calm(0);
    second();
    expect(0, SL_STEER_IN_USE, 100);
    seconds(100);
    expect(0, SL_STEER_IN_USE, 100);
}

static void a_port_that_is_gone_holds_no_place(void **state)
{
    (void)state;
    own.rules.ports = 1;
    bad_second(3);
    expect(3, SL_STEER_AVOIDED, 0);
    now += S;
    sl_steer_see(&own, now, views, 3);
    assert_int_equal(own.count, 3);
    views[0].is_open = views[0].is_bad = true;
    views[0].bads++;
    now += S;
    sl_steer_see(&own, now, views, 3);
    expect(0, SL_STEER_AVOIDED, 0);
}

/* ---- restarts ---- */

static uint64_t kept[PORTS];

static uint64_t recall_kept(void *arg, const char *name)
{
    (void)arg;
    for (unsigned i = 0; i < PORTS; i++)
        if (strcmp(names[i], name) == 0)
            return kept[i];
    return 0;
}

static void restart(void)
{
    for (unsigned i = 0; i < PORTS; i++)
        kept[i] = i < own.count ? sl_steer_pack(&own.ports[i]) : 0;
    struct sl_steer_rules rules = own.rules;

    sl_steer_init(&own, &rules);
    own.changed = count_changes;
    own.recall = recall_kept;
    now += 5 * S;
    sl_steer_see(&own, now, views, PORTS);
}

static void it_goes_on_in_each_state_after_a_restart(void **state)
{
    (void)state;
    bad_second(0);
    calm(0);
    restart();
    expect(0, SL_STEER_AVOIDED, 0);
    seconds(60);
    expect(0, SL_STEER_TRIED, 10);
    restart();
    expect(0, SL_STEER_TRIED, 10);
    bad_second(0);
    bad_second(0);
    expect(0, SL_STEER_AVOIDED, 0);
    restart();
    assert_int_equal(own.ports[0].relapses, 1);
    calm(0);
    seconds(120 + 30);
    expect(0, SL_STEER_IN_USE, 100);
    views[0].is_bad = true; /* as the store has it, of long ago */
    restart();
    expect(0, SL_STEER_IN_USE, 100);
    views[1].weight = 40;
    bad_second(1);
    restart();
    expect(1, SL_STEER_LOWERED, 40);
}

static void a_number_that_is_damaged_is_a_state_all_the_same(void **state)
{
    (void)state;
    own.recall = recall_kept;
    for (unsigned i = 0; i < 2000; i++) {
        struct sl_rng rng;

        sl_rng_init(&rng, i);
        for (unsigned k = 0; k < PORTS; k++)
            kept[k] = sl_rng_u64(&rng);
        own.count = 0;
        sl_steer_see(&own, now, views, PORTS);
        for (unsigned k = 0; k < PORTS; k++) {
            assert_in_range(own.ports[k].state, 0, SL_STEER_TRIED);
            assert_in_range(own.ports[k].relapses, 0, SL_STEER_DOUBLINGS);
        }
    }
}

/* ---- random walks ---- */

/* What has to hold after each step, whatever has happened. */
static void check_laws(const struct sl_steer *before)
{
    unsigned out = 0, whole = 0;

    for (unsigned i = 0; i < PORTS; i++) {
        const struct sl_steer_port *port = &own.ports[i], *was = &before->ports[i];
        const struct sl_steer_view *view = &views[i];
        enum sl_steer_state from = was->state, to = port->state;
        bool is_cleared = view->clears != was->clears;

        assert_string_equal(port->name, names[i]);
        assert_true(port->relapses <= SL_STEER_DOUBLINGS);
        out += to == SL_STEER_AVOIDED || to == SL_STEER_TRIED;
        whole += view->is_up && (to == SL_STEER_IN_USE || to == SL_STEER_LOWERED);
        if (from == to)
            continue;
        if (to == SL_STEER_AVOIDED && from != SL_STEER_TRIED)
            assert_true(view->is_open && view->is_bad && view->bads > was->bads);
        if (to == SL_STEER_AVOIDED && from == SL_STEER_TRIED)
            assert_true(view->bads >= was->bads + SL_STEER_AGAIN);
        if (to == SL_STEER_TRIED)
            assert_true(from == SL_STEER_AVOIDED &&
                        now - was->quiet_ns >= sl_steer_rest_ns(before, was));
        if (to == SL_STEER_IN_USE && from == SL_STEER_AVOIDED)
            assert_true(is_cleared);
        if (to == SL_STEER_IN_USE && from == SL_STEER_TRIED)
            assert_true(is_cleared || now - was->since_ns >= own.rules.trial_ns);
        if (to == SL_STEER_LOWERED)
            assert_true(view->is_open && view->weight > 0);
    }
    assert_true(out <= own.rules.ports);
    /* The last one that can carry was not taken by us. */
    if (sl_steer_count(&own, SL_STEER_AVOIDED) > sl_steer_count(before, SL_STEER_AVOIDED) &&
        sl_steer_count(&own, SL_STEER_TRIED) == sl_steer_count(before, SL_STEER_TRIED))
        assert_true(whole > 0);
}

static void walk(uint64_t seed)
{
    struct sl_rng rng;
    struct sl_steer before;
    bool is_broken[PORTS] = {false};

    begin(NULL);
    sl_rng_init(&rng, seed);
    own.rules.ports = 1 + (unsigned)(sl_rng_u64(&rng) % 4);
    for (unsigned step = 0; step < 3000; step++) {
        for (unsigned i = 0; i < PORTS; i++) {
            struct sl_steer_view *view = &views[i];
            bool carries = own.ports[i].state != SL_STEER_AVOIDED && sl_rng_u64(&rng) % 8 != 0;

            is_broken[i] ^= sl_rng_u64(&rng) % 400 == 0;
            view->is_up ^= sl_rng_u64(&rng) % 500 == 0;
            view->carried += carries ? 1 + sl_rng_u64(&rng) % 100 : 0;
            if (is_broken[i] && carries && sl_rng_u64(&rng) % 3 != 0) {
                view->bads++;
                view->is_open = view->is_bad = true;
                view->weight = sl_rng_u64(&rng) % 16 == 0 ? 50 : 0;
            } else if (sl_rng_u64(&rng) % 6 == 0) {
                view->is_bad = false;
            } else if (sl_rng_u64(&rng) % 100 == 0) {
                view->is_open = view->is_bad = false;
            }
            view->clears += sl_rng_u64(&rng) % 2000 == 0;
        }
        now += S * (1 + sl_rng_u64(&rng) % 3);
        before = own;
        if (sl_rng_u64(&rng) % 700 == 0) {
            restart();
            continue;
        }
        sl_steer_see(&own, now, views, PORTS);
        check_laws(&before);
    }
    /* All is well from now on: all of them come back. */
    for (unsigned i = 0; i < PORTS; i++) {
        views[i].is_open = views[i].is_bad = false;
        views[i].is_up = true;
    }
    seconds((60 << SL_STEER_DOUBLINGS) + 30 + 2);
    for (unsigned i = 0; i < PORTS; i++)
        expect(i, SL_STEER_IN_USE, 100);
}

static void random_walks_keep_the_laws(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        walk(seed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(a_verdict_has_it_avoided_and_a_try_gives_it_back),
        CASE(evidence_while_it_is_avoided_begins_its_rest_anew),
        CASE(a_try_that_fails_makes_the_next_rest_longer),
        CASE(a_try_without_traffic_does_not_end),
        CASE(a_verdict_that_closes_by_silence_gives_nothing_back),
        CASE(given_back_too_early_it_rests_longer),
        CASE(not_too_many_and_never_the_last),
        CASE(a_slower_link_is_given_less_while_its_verdict_is_open),
        CASE(an_operator_has_the_last_word),
        CASE(a_port_that_is_gone_holds_no_place),
        CASE(it_goes_on_in_each_state_after_a_restart),
        CASE(a_number_that_is_damaged_is_a_state_all_the_same),
        CASE(random_walks_keep_the_laws),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
