/* SPDX-License-Identifier: Apache-2.0 */
/* When a node is taken out and comes back: by cases, by random walks against a second, simpler
 * account of what has to hold. Attempts with a controller are in test_isolate_attempt.c. */
#include "monitor/isolate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define S UINT64_C(1000000000)

static const struct sl_isolate_rules standard = {.classes = "NICDegraded, RankLost",
                                                 .hold_ns = 600 * S,
                                                 .window_ns = 86400 * S,
                                                 .times = 3,
                                                 .share_percent = 10,
                                                 .least_nodes = 1};
static struct sl_isolate own;
static struct sl_isolate_time now;
static uint64_t next_id;

static void begin_with(const struct sl_isolate_rules *rules)
{
    sl_isolate_init(&own, rules, 7);
    now = (struct sl_isolate_time){.mono_ns = 1000 * S, .wall_ns = 5000000 * S};
    next_id = 1;
}

static int begin(void **state)
{
    (void)state;
    begin_with(&standard);
    return 0;
}

static void later(uint64_t s)
{
    now.mono_ns += s * S;
    now.wall_ns += s * S;
}

/* As the owner stores: numbers to what is new, and whatever is over is stored. */
static void store(struct sl_isolate *isolate)
{
    for (unsigned i = 0; i < isolate->count; i++) {
        if (isolate->actions[i].id == 0)
            isolate->actions[i].id = next_id++;
        isolate->actions[i].is_stored = true;
    }
}

static struct sl_isolate_verdict fatal(uint64_t id)
{
    return (struct sl_isolate_verdict){.id = id, .is_fatal = true, .condition = "NICDown"};
}

static struct sl_isolate_action *see(const struct sl_isolate_verdict *verdicts, unsigned count)
{
    sl_isolate_see(&own, &now, verdicts, count);
    store(&own);
    return sl_isolate_next(&own, now.mono_ns);
}

static void ends(struct sl_isolate_action *action, enum sl_isolate_result result)
{
    assert_non_null(action);
    sl_isolate_begun(action);
    assert_null(sl_isolate_next(&own, UINT64_MAX)); /* one after the other */
    sl_isolate_ended(&own, action, result, 0, &now);
    store(&own);
}

static void a_fatal_verdict_takes_the_node_out_and_a_lesser_one_does_not(void **state)
{
    struct sl_isolate_verdict verdicts[] = {{.id = 3, .condition = "PeerSlow"},
                                            {.id = 4, .condition = "NIC"}};
    struct sl_isolate_action *action;

    (void)state;
    assert_null(see(verdicts, 2));
    assert_int_equal(own.wanted, 0);
    verdicts[1].is_fatal = true;
    action = see(verdicts, 2);
    assert_non_null(action);
    assert_int_equal(action->kind, SL_ISOLATE_OUT);
    assert_int_equal(action->verdict, 4);
    assert_int_equal(own.wanted, 1);
}

static void a_class_that_is_listed_takes_it_out_too(void **state)
{
    struct sl_isolate_verdict verdict = {.id = 3, .condition = "RankLost"};

    (void)state;
    assert_non_null(see(&verdict, 1));
    begin_with(&standard);
    verdict.condition = "Rank";
    assert_null(see(&verdict, 1));
    verdict.condition = "";
    assert_null(see(&verdict, 1));
}

static void nothing_is_performed_that_is_not_stored(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    sl_isolate_see(&own, &now, &verdict, 1);
    assert_int_equal(own.count, 1);
    assert_null(sl_isolate_next(&own, now.mono_ns));
    store(&own);
    assert_non_null(sl_isolate_next(&own, now.mono_ns));
}

static void it_comes_back_when_all_are_closed_and_stay_so(void **state)
{
    struct sl_isolate_verdict verdicts[] = {fatal(3), fatal(5)};
    struct sl_isolate_action *action;

    (void)state;
    ends(see(verdicts, 2), SL_ISOLATE_IS_DONE);
    ends(see(verdicts, 2), SL_ISOLATE_IS_DONE);
    assert_true(own.is_out);
    assert_null(see(verdicts, 1)); /* one of two */
    later(10000);
    assert_null(see(verdicts, 1));
    assert_null(see(NULL, 0));
    later(599);
    assert_null(see(NULL, 0));
    later(1);
    action = see(NULL, 0);
    assert_non_null(action);
    assert_int_equal(action->kind, SL_ISOLATE_BACK);
    assert_int_equal(action->verdict, 5);
    ends(action, SL_ISOLATE_IS_DONE);
    assert_false(own.is_out);
    assert_null(see(NULL, 0));
    assert_int_equal(own.count, 0);
}

static void the_time_begins_anew_with_each_verdict(void **state)
{
    struct sl_isolate_verdict verdicts[] = {fatal(3), fatal(5)};

    (void)state;
    ends(see(verdicts, 1), SL_ISOLATE_IS_DONE);
    assert_null(see(NULL, 0));
    later(599);
    ends(see(&verdicts[1], 1), SL_ISOLATE_IS_DONE);
    later(1);
    assert_null(see(NULL, 0));
    later(599);
    assert_null(see(NULL, 0));
    later(1);
    assert_non_null(see(NULL, 0));
}

static void by_people_only_is_for_good(void **state)
{
    struct sl_isolate_rules rules = standard;
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    rules.hold_ns = UINT64_MAX;
    begin_with(&rules);
    ends(see(&verdict, 1), SL_ISOLATE_IS_DONE);
    assert_null(see(NULL, 0));
    later(100000000);
    assert_null(see(NULL, 0));
}

static void what_fails_is_tried_again_later_and_later(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);
    uint64_t last = 0;

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        struct sl_isolate_action *action = see(&verdict, 1);
        uint64_t wait;

        ends(action, i % 2 == 0 ? SL_ISOLATE_FAILED : SL_ISOLATE_TIMED_OUT);
        assert_int_equal(own.count, 1);
        wait = own.actions[0].due_ns - now.mono_ns;
        assert_true(wait >= 3 * S / 4 && wait <= 75 * S);
        assert_true(i < 2 || i > 5 || wait > last);
        last = wait;
        assert_null(sl_isolate_next(&own, now.mono_ns + wait - 1));
        now.mono_ns += wait;
    }
    ends(see(&verdict, 1), SL_ISOLATE_IS_DONE);
    assert_int_equal(own.actions[0].attempts, 13);
    later(1000);
    assert_null(see(&verdict, 1));
}

static void when_the_other_side_says_how_long_it_is_waited_for(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);
    struct sl_isolate_action *action = see(&verdict, 1);

    (void)state;
    sl_isolate_begun(action);
    sl_isolate_ended(&own, action, SL_ISOLATE_FAILED, 120 * S, &now);
    assert_int_equal(action->due_ns - now.mono_ns, 120 * S);
    sl_isolate_begun(action);
    sl_isolate_ended(&own, action, SL_ISOLATE_FAILED, 86400 * S, &now);
    assert_int_equal(action->due_ns - now.mono_ns, 600 * S);
}

static void what_an_operator_knows_of_takes_nothing_out(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    verdict.is_acked = true;
    assert_null(see(&verdict, 1));
    assert_int_equal(own.count, 0);
    verdict = fatal(4);
    assert_non_null(see(&verdict, 1));
    verdict.is_acked = true;
    assert_null(see(&verdict, 1)); /* just in time */
    assert_int_equal(own.actions[0].state, SL_ISOLATE_WITHDRAWN);
    assert_false(own.is_out);
}

/* An operator who has seen it does not send work to a node that is broken. */
static void an_ack_brings_nothing_back(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    ends(see(&verdict, 1), SL_ISOLATE_IS_DONE);
    verdict.is_acked = true;
    assert_null(see(&verdict, 1));
    later(10000);
    assert_null(see(&verdict, 1));
    assert_true(own.is_out);
}

static void who_brings_it_back_by_hand_is_not_contradicted(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    ends(see(&verdict, 1), SL_ISOLATE_IS_DONE);
    later(100000);
    assert_null(see(&verdict, 1)); /* the same verdict, once */
    assert_null(see(NULL, 0));
    later(600);
    ends(see(NULL, 0), SL_ISOLATE_IS_LEFT_ALONE);
    assert_false(own.is_out);
    later(600);
    assert_null(see(NULL, 0));
}

static void what_was_left_alone_is_not_brought_back(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    ends(see(&verdict, 1), SL_ISOLATE_IS_LEFT_ALONE);
    later(10);
    assert_null(see(&verdict, 1));
    assert_null(see(NULL, 0));
    later(10000);
    assert_null(see(NULL, 0));
    assert_int_equal(own.count, 0);
}

static void what_is_over_before_it_is_done_is_withdrawn(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    assert_non_null(see(&verdict, 1));
    assert_null(see(NULL, 0));
    later(10000);
    assert_null(see(NULL, 0)); /* nothing was ever tried: nothing is to be undone */
    verdict = fatal(4);
    ends(see(&verdict, 1), SL_ISOLATE_TIMED_OUT);
    assert_null(see(NULL, 0));
    assert_true(own.is_out); /* perhaps */
    later(600);
    assert_int_equal(see(NULL, 0)->kind, SL_ISOLATE_BACK);
}

static void a_new_verdict_withdraws_the_way_back(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);
    struct sl_isolate_action *action;

    (void)state;
    ends(see(&verdict, 1), SL_ISOLATE_IS_DONE);
    assert_null(see(NULL, 0));
    later(600);
    assert_int_equal(see(NULL, 0)->kind, SL_ISOLATE_BACK);
    verdict = fatal(9);
    action = see(&verdict, 1);
    assert_int_equal(action->kind, SL_ISOLATE_OUT);
    ends(action, SL_ISOLATE_IS_DONE);
    assert_null(see(&verdict, 1));
    assert_true(own.is_out);
}

static void what_the_breaker_refuses_is_asked_for_again(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);
    struct sl_isolate_action *action = see(&verdict, 1);

    (void)state;
    ends(action, SL_ISOLATE_IS_REFUSED);
    assert_true(sl_isolate_is_refused(&own));
    assert_false(own.is_out);
    later(29);
    assert_null(see(&verdict, 1));
    later(31);
    ends(see(&verdict, 1), SL_ISOLATE_IS_DONE);
    assert_false(sl_isolate_is_refused(&own));
    /* And what is not wanted any more is not refused either. */
    begin_with(&standard);
    ends(see(&verdict, 1), SL_ISOLATE_IS_REFUSED);
    assert_null(see(NULL, 0));
    assert_false(sl_isolate_is_refused(&own));
    assert_false(own.is_out);
}

static void a_node_that_comes_and_goes_is_taken_out_so_often_only(void **state)
{
    struct sl_isolate_verdict verdict;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        verdict = fatal(10 + i);
        struct sl_isolate_action *action = see(&verdict, 1);

        assert_true(sl_isolate_may(&own, action, now.wall_ns));
        ends(action, SL_ISOLATE_IS_DONE);
        see(NULL, 0);
        later(600);
        ends(see(NULL, 0), SL_ISOLATE_IS_DONE);
    }
    verdict = fatal(20);
    assert_false(sl_isolate_may(&own, see(&verdict, 1), now.wall_ns));
    assert_false(sl_isolate_may(&own, see(&verdict, 1), now.wall_ns - 100000 * S)); /* a clock */
    later(86400 - 3 * 600 - 1);
    assert_false(sl_isolate_may(&own, see(&verdict, 1), now.wall_ns));
    later(1);
    assert_true(sl_isolate_may(&own, see(&verdict, 1), now.wall_ns));
}

static void more_verdicts_of_a_node_that_is_out_do_not_count(void **state)
{
    struct sl_isolate_rules rules = standard;
    struct sl_isolate_verdict verdicts[5];

    (void)state;
    rules.times = 1;
    begin_with(&rules);
    for (unsigned i = 0; i < 5; i++) {
        verdicts[i] = fatal(10 + i);
        struct sl_isolate_action *action = see(verdicts, i + 1);

        assert_true(sl_isolate_may(&own, action, now.wall_ns));
        ends(action, SL_ISOLATE_IS_DONE);
    }
    assert_int_equal(own.times, 1);
}

/* It may be out already: then the attempt finds out, and undoes nothing. */
static void an_attempt_of_which_nobody_knows_is_made_again(void **state)
{
    struct sl_isolate_rules rules = standard;
    struct sl_isolate_verdict verdict = fatal(3);

    (void)state;
    rules.times = 1;
    begin_with(&rules);
    ends(see(&verdict, 1), SL_ISOLATE_IS_DONE);
    see(NULL, 0);
    later(600);
    ends(see(NULL, 0), SL_ISOLATE_IS_DONE);
    verdict = fatal(4);
    see(&verdict, 1)->may_have_acted = true;
    assert_true(sl_isolate_may(&own, see(&verdict, 1), now.wall_ns));
}

static void a_restart_changes_nothing(void **state)
{
    struct sl_isolate_verdict verdict = fatal(3);
    struct sl_isolate_action out = {.id = 7, .verdict = 3, .kind = SL_ISOLATE_OUT};
    struct sl_isolate_action back = {.id = 8, .verdict = 3, .kind = SL_ISOLATE_BACK};

    (void)state;
    out.attempts = 1; /* cut short */
    sl_isolate_restore(&own, &out, 0);
    assert_int_equal(see(&verdict, 1)->id, 7);
    begin_with(&standard);
    out.state = SL_ISOLATE_DONE;
    sl_isolate_restore(&own, &out, now.wall_ns);
    assert_null(see(&verdict, 1));
    assert_true(own.is_out);
    assert_int_equal(own.times, 1);
    assert_null(see(NULL, 0));
    later(600);
    assert_int_equal(see(NULL, 0)->kind, SL_ISOLATE_BACK);
    begin_with(&standard);
    sl_isolate_restore(&own, &out, now.wall_ns);
    sl_isolate_restore(&own, &back, 0);
    assert_int_equal(see(NULL, 0)->id, 8);
    begin_with(&standard);
    sl_isolate_restore(&own, &out, now.wall_ns);
    back.state = SL_ISOLATE_DONE;
    sl_isolate_restore(&own, &back, now.wall_ns);
    assert_false(own.is_out);
    assert_null(see(NULL, 0));
    later(10000);
    assert_null(see(NULL, 0));
}

static void a_cut_short_attempt_that_is_not_wanted_any_more_is_undone(void **state)
{
    struct sl_isolate_action out = {.id = 7, .verdict = 3, .kind = SL_ISOLATE_OUT, .attempts = 1};

    (void)state;
    sl_isolate_restore(&own, &out, 0);
    assert_null(see(NULL, 0));
    assert_true(own.is_out);
    later(600);
    assert_int_equal(see(NULL, 0)->kind, SL_ISOLATE_BACK);
}

static void a_long_history_leaves_room_for_what_is_new(void **state)
{
    struct sl_isolate_verdict verdict = fatal(1000);

    (void)state;
    for (uint64_t i = 1; i <= 500; i++) {
        struct sl_isolate_action out = {
            .id = i, .verdict = i, .kind = SL_ISOLATE_OUT, .state = SL_ISOLATE_DONE};

        sl_isolate_restore(&own, &out, i);
    }
    next_id = 501;
    assert_int_equal(see(&verdict, 1)->verdict, 1000);
    assert_int_equal(own.left_out, 0);
}

static void more_than_there_is_room_for_is_counted(void **state)
{
    struct sl_isolate_verdict verdicts[SL_ISOLATE_ACTIONS + 5];

    (void)state;
    for (unsigned i = 0; i < SL_ISOLATE_ACTIONS + 5; i++)
        verdicts[i] = fatal(1 + i);
    assert_non_null(see(verdicts, SL_ISOLATE_ACTIONS + 5));
    assert_int_equal(own.count, SL_ISOLATE_ACTIONS);
    assert_int_equal(own.left_out, 5);
}

/* ---- random walks ---- */

#define MOST 12

/* What has to hold, written down without the machine: of each verdict, what was done for it. */
struct account {
    struct sl_isolate_verdict open[MOST];
    unsigned count, done, backs;
    uint64_t next_verdict, last_open_ns; /* some verdict that counts was open then */
    uint64_t tried[400];                 /* OUT attempts that may have acted, by verdict */
    bool acted[400], acked[400], final[400];
    bool really_out; /* the node, in the world */
};

static void walk_verdicts(struct account *account, struct sl_rng *rng)
{
    uint64_t dice = sl_rng_u64(rng) % 8;

    if (dice == 0 && account->count < MOST && account->next_verdict < 399) {
        account->open[account->count] = fatal(++account->next_verdict);
        account->open[account->count].is_fatal = sl_rng_u64(rng) % 3 != 0;
        account->open[account->count].condition = "PeerSlow";
        account->count++;
    } else if (dice == 1 && account->count > 0) {
        unsigned gone = (unsigned)(sl_rng_u64(rng) % account->count);

        memmove(&account->open[gone], &account->open[gone + 1],
                (account->count - gone - 1) * sizeof(account->open[0]));
        account->count--;
    } else if (dice == 2 && account->count > 0) {
        unsigned which = (unsigned)(sl_rng_u64(rng) % account->count);

        account->open[which].is_acked = true;
        account->acked[account->open[which].id] = true;
    }
}

static bool is_open(const struct account *account, uint64_t id, bool *is_acked)
{
    for (unsigned i = 0; i < account->count; i++)
        if (account->open[i].id == id && account->open[i].is_fatal) {
            *is_acked = account->open[i].is_acked;
            return true;
        }
    return false;
}

static void walk_perform(struct account *account, struct sl_isolate_action *action,
                         struct sl_rng *rng)
{
    uint64_t dice = sl_rng_u64(rng) % 10;
    enum sl_isolate_result result = dice < 5   ? SL_ISOLATE_IS_DONE
                                    : dice < 6 ? SL_ISOLATE_IS_LEFT_ALONE
                                    : dice < 7 ? SL_ISOLATE_IS_REFUSED
                                    : dice < 9 ? SL_ISOLATE_FAILED
                                               : SL_ISOLATE_TIMED_OUT;
    bool is_acked = false, effect = result == SL_ISOLATE_IS_DONE ||
                                    (result >= SL_ISOLATE_FAILED && sl_rng_u64(rng) % 2 == 0);

    if (action->kind == SL_ISOLATE_OUT) {
        assert_true(is_open(account, action->verdict, &is_acked) && !is_acked);
        assert_false(account->final[action->verdict]); /* once */
        if (result == SL_ISOLATE_IS_DONE || result == SL_ISOLATE_IS_LEFT_ALONE)
            account->final[action->verdict] = true;
        if (effect)
            account->really_out = true;
        if (result == SL_ISOLATE_IS_REFUSED || result == SL_ISOLATE_IS_LEFT_ALONE)
            account->really_out = false; /* it was looked at, and is not out by us */
        account->done += result == SL_ISOLATE_IS_DONE;
    } else {
        for (unsigned i = 0; i < account->count; i++)
            assert_false(account->open[i].is_fatal);
        assert_true(now.mono_ns - account->last_open_ns >= 600 * S);
        if (result == SL_ISOLATE_IS_REFUSED)
            result = SL_ISOLATE_FAILED;
        if (effect || result == SL_ISOLATE_IS_LEFT_ALONE)
            account->really_out = false;
        account->backs += result == SL_ISOLATE_IS_DONE;
    }
    sl_isolate_begun(action);
    sl_isolate_ended(&own, action, result, 0, &now);
}

/* At the end: what is wanted comes to be, whatever happened before. */
static void walk_ends(struct account *account)
{
    account->count = 0;
    for (unsigned i = 0; i < 2000; i++) {
        struct sl_isolate_action *action = see(NULL, 0);

        if (action != NULL) {
            assert_int_equal(action->kind, SL_ISOLATE_BACK);
            sl_isolate_begun(action);
            sl_isolate_ended(&own, action, SL_ISOLATE_IS_DONE, 0, &now);
            account->really_out = false;
        }
        later(1);
    }
    assert_false(account->really_out);
    assert_false(own.is_out);
    assert_int_equal(sl_isolate_waiting(&own), 0);
    assert_int_equal(own.count, 0);
}

static void random_walks_keep_the_rules(void **state)
{
    unsigned done = 0, backs = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct account account = {.next_verdict = 0};
        struct sl_rng rng;

        begin_with(&standard);
        own.rules.times = 32;
        own.rules.window_ns = 1;
        sl_rng_init(&rng, seed);
        for (unsigned step = 0; step < 300; step++) {
            struct sl_isolate_action *action;

            walk_verdicts(&account, &rng);
            for (unsigned i = 0; i < account.count; i++)
                if (account.open[i].is_fatal)
                    account.last_open_ns = now.mono_ns;
            action = see(account.open, account.count);
            if (action != NULL)
                walk_perform(&account, action, &rng);
            assert_true(!account.really_out || own.is_out || sl_isolate_waiting(&own) > 0);
            later(sl_rng_u64(&rng) % 4 == 0 ? sl_rng_u64(&rng) % 900 : 1);
        }
        done += account.done;
        backs += account.backs;
        walk_ends(&account);
    }
    assert_true(done > 1000 && backs > 200); /* or it says nothing */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(a_fatal_verdict_takes_the_node_out_and_a_lesser_one_does_not),
        CASE(a_class_that_is_listed_takes_it_out_too),
        CASE(nothing_is_performed_that_is_not_stored),
        CASE(it_comes_back_when_all_are_closed_and_stay_so),
        CASE(the_time_begins_anew_with_each_verdict),
        CASE(by_people_only_is_for_good),
        CASE(what_fails_is_tried_again_later_and_later),
        CASE(when_the_other_side_says_how_long_it_is_waited_for),
        CASE(what_an_operator_knows_of_takes_nothing_out),
        CASE(an_ack_brings_nothing_back),
        CASE(who_brings_it_back_by_hand_is_not_contradicted),
        CASE(what_was_left_alone_is_not_brought_back),
        CASE(what_is_over_before_it_is_done_is_withdrawn),
        CASE(a_new_verdict_withdraws_the_way_back),
        CASE(what_the_breaker_refuses_is_asked_for_again),
        CASE(a_node_that_comes_and_goes_is_taken_out_so_often_only),
        CASE(more_verdicts_of_a_node_that_is_out_do_not_count),
        CASE(an_attempt_of_which_nobody_knows_is_made_again),
        CASE(a_restart_changes_nothing),
        CASE(a_cut_short_attempt_that_is_not_wanted_any_more_is_undone),
        CASE(a_long_history_leaves_room_for_what_is_new),
        CASE(more_than_there_is_room_for_is_counted),
        CASE(random_walks_keep_the_rules)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
