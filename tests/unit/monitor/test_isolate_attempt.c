/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt to take a node out or bring it back, with a controller that fails, lies and is asked
 * by many nodes at once. */
#include "core/err.h"
#include "monitor/isolate.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct sl_isolate_rules standard = {.share_percent = 10, .least_nodes = 1};

#define NODES 200

/* What a controller knows. Each look of a node sees all that happened before it. */
static struct {
    bool is_out[NODES], by_others[NODES];
    char mark[NODES][SL_ISOLATE_MARK];
    uint64_t since[NODES], clock;
    unsigned all, looks, outs, backs;
    int fail_look, fail_out, fail_back, conflicts;
    bool lies; /* takes what it is asked for and does nothing */
} controller;

struct node {
    unsigned number;
    const char *mark;
};

static unsigned out_before(unsigned number)
{
    unsigned before = 0;

    for (unsigned i = 0; i < controller.all; i++)
        before += i != number && controller.is_out[i] &&
                  (controller.by_others[i] || !controller.is_out[number] ||
                   controller.since[i] < controller.since[number]);
    return before;
}

static int look(void *arg, struct sl_isolate_view *out)
{
    const struct node *node = arg;

    controller.looks++;
    if (controller.fail_look != 0)
        return sl_fail(controller.fail_look, "look fails");
    memset(out, 0, sizeof(*out));
    out->node = !controller.is_out[node->number]     ? SL_ISOLATE_IS_IN
                : controller.by_others[node->number] ? SL_ISOLATE_OUT_BY_OTHERS
                                                     : SL_ISOLATE_OUT_BY_US;
    strcpy(out->mark, controller.mark[node->number]);
    out->all = controller.all;
    out->before = out_before(node->number);
    return 0;
}

static int take_out(void *arg)
{
    const struct node *node = arg;

    controller.outs++;
    if (controller.conflicts > 0) {
        controller.conflicts--;
        return sl_fail(-EAGAIN, "conflict");
    }
    if (controller.fail_out != 0)
        return sl_fail(controller.fail_out, "out fails");
    if (controller.lies)
        return 0;
    controller.is_out[node->number] = true;
    controller.since[node->number] = ++controller.clock;
    strcpy(controller.mark[node->number], node->mark);
    return 0;
}

static int bring_back(void *arg)
{
    const struct node *node = arg;

    controller.backs++;
    if (controller.fail_back != 0)
        return sl_fail(controller.fail_back, "back fails");
    controller.is_out[node->number] = false;
    return 0;
}

/* How nodes act at the same time: inside the pause of one the next begins. */
static unsigned nest, nested_most;
static const struct sl_isolate_ops ops;
static enum sl_isolate_result results[NODES];

static void settle(void *arg)
{
    char why[256], mark[SL_ISOLATE_MARK];

    (void)arg;
    if (nest >= nested_most)
        return;
    struct node next = {.number = ++nest};

    snprintf(mark, sizeof(mark), "%u.b", next.number);
    next.mark = mark;
    results[next.number] =
        sl_isolate_attempt(&ops, &next, &standard, SL_ISOLATE_OUT, mark, why, sizeof(why));
}

static const struct sl_isolate_ops ops = {
    .look = look, .out = take_out, .back = bring_back, .settle = settle};

static int controller_begin(void **state)
{
    (void)state;
    memset(&controller, 0, sizeof(controller));
    controller.all = NODES;
    nest = nested_most = 0;
    return 0;
}

static enum sl_isolate_result attempt(enum sl_isolate_kind kind)
{
    struct node node = {.number = 0, .mark = "17.b"};
    char why[256] = "";
    enum sl_isolate_result result =
        sl_isolate_attempt(&ops, &node, &standard, kind, node.mark, why, sizeof(why));

    assert_true(why[0] != '\0');
    return result;
}

static unsigned how_many_out(void)
{
    unsigned out = 0;

    for (unsigned i = 0; i < controller.all; i++)
        out += controller.is_out[i];
    return out;
}

static void an_attempt_is_repeated_without_a_second_effect(void **state)
{
    (void)state;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_DONE);
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_DONE);
    assert_int_equal(controller.outs, 1);
    assert_int_equal(attempt(SL_ISOLATE_BACK), SL_ISOLATE_IS_DONE);
    assert_int_equal(attempt(SL_ISOLATE_BACK), SL_ISOLATE_IS_LEFT_ALONE);
    assert_int_equal(controller.backs, 1);
}

static void what_others_took_out_is_theirs(void **state)
{
    (void)state;
    controller.is_out[0] = controller.by_others[0] = true;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_LEFT_ALONE);
    assert_int_equal(attempt(SL_ISOLATE_BACK), SL_ISOLATE_IS_LEFT_ALONE);
    assert_int_equal(controller.outs + controller.backs, 0);
}

static void a_share_of_all_nodes_may_be_out(void **state)
{
    struct sl_isolate_rules rules = standard;

    (void)state;
    assert_int_equal(sl_isolate_allowed(&rules, 200), 20);
    assert_int_equal(sl_isolate_allowed(&rules, 19), 1);
    assert_int_equal(sl_isolate_allowed(&rules, 5), 1); /* least */
    rules.least_nodes = 0;
    assert_int_equal(sl_isolate_allowed(&rules, 9), 0);
    for (unsigned i = 1; i <= 19; i++)
        controller.is_out[i] = controller.by_others[i] = true;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_DONE);
    controller.is_out[0] = false;
    controller.is_out[20] = true;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_REFUSED);
    assert_int_equal(controller.outs, 1);
}

/* A second verdict of a node that is out: it was let go once, and is not counted again. */
static void what_is_out_by_an_earlier_verdict_stays_out(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 50; i++)
        controller.is_out[i] = controller.by_others[i] = true;
    controller.is_out[0] = true;
    strcpy(controller.mark[0], "16.b");
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_DONE);
    assert_int_equal(controller.outs + controller.backs, 0);
    assert_int_equal(controller.looks, 1);
}

/* A switch that dies makes hundreds of nodes bad in the same second. */
static void of_many_that_go_at_once_no_more_stay_than_may(void **state)
{
    (void)state;
    nested_most = 150;
    results[0] = attempt(SL_ISOLATE_OUT);
    assert_int_equal(nest, 20); /* those after that were refused at once, as 20 were out */
    assert_int_equal(how_many_out(), 20);
    controller_begin(NULL);
    /* All have looked before any has acted: the looks lie. */
    controller.all = 100; /* 10 may */
    for (unsigned i = 0; i < 60; i++) {
        struct node node = {.number = i, .mark = "1.b"};

        assert_int_equal(take_out(&node), 0);
    }
    for (unsigned i = 60; i-- > 0;) { /* the last first: the worst order */
        struct node node = {.number = i, .mark = "1.b"};
        char why[256];

        results[i] =
            sl_isolate_attempt(&ops, &node, &standard, SL_ISOLATE_OUT, "1.b", why, sizeof(why));
    }
    assert_int_equal(how_many_out(), 10);
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(results[i], i < 10 ? SL_ISOLATE_IS_DONE : SL_ISOLATE_IS_REFUSED);
}

static void a_conflict_is_looked_at_again_and_not_for_ever(void **state)
{
    (void)state;
    controller.conflicts = 3;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_DONE);
    assert_int_equal(controller.outs, 4);
    controller_begin(NULL);
    controller.conflicts = 100;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_FAILED);
    assert_int_equal(controller.outs, 5);
}

static void errors_are_passed_on(void **state)
{
    (void)state;
    controller.fail_look = -ETIMEDOUT;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_TIMED_OUT);
    controller.fail_look = -EIO;
    assert_int_equal(attempt(SL_ISOLATE_BACK), SL_ISOLATE_FAILED);
    controller.fail_look = 0;
    controller.fail_out = -EIO;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_FAILED);
    controller.fail_out = 0;
    controller.lies = true;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_FAILED);
    controller.lies = false;
    assert_int_equal(attempt(SL_ISOLATE_OUT), SL_ISOLATE_IS_DONE);
    controller.fail_back = -ETIMEDOUT;
    assert_int_equal(attempt(SL_ISOLATE_BACK), SL_ISOLATE_TIMED_OUT);
}

static void marks_are_what_a_label_may_be(void **state)
{
    char mark[SL_ISOLATE_MARK];

    (void)state;
    sl_isolate_mark(17, "3f2a-9c1d-77", mark, sizeof(mark));
    assert_string_equal(mark, "17.3f2a9c1d");
    assert_true(sl_isolate_is_mark(mark, strlen(mark)));
    sl_isolate_mark(17, "", mark, sizeof(mark));
    assert_true(sl_isolate_is_mark(mark, strlen(mark)));
    assert_false(sl_isolate_is_mark("17", 2));
    assert_false(sl_isolate_is_mark("17.", 3));
    assert_false(sl_isolate_is_mark(".b", 2));
    assert_false(sl_isolate_is_mark("17.b-", 5));
    assert_false(sl_isolate_is_mark("", 0));
    assert_false(sl_isolate_is_mark("maintenance", 11));
}

int main(void)
{
#define ATTEMPT(name) cmocka_unit_test_setup(name, controller_begin)
    const struct CMUnitTest tests[] = {ATTEMPT(an_attempt_is_repeated_without_a_second_effect),
                                       ATTEMPT(what_others_took_out_is_theirs),
                                       ATTEMPT(a_share_of_all_nodes_may_be_out),
                                       ATTEMPT(what_is_out_by_an_earlier_verdict_stays_out),
                                       ATTEMPT(of_many_that_go_at_once_no_more_stay_than_may),
                                       ATTEMPT(a_conflict_is_looked_at_again_and_not_for_ever),
                                       ATTEMPT(errors_are_passed_on),
                                       ATTEMPT(marks_are_what_a_label_may_be)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
