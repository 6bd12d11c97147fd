/* SPDX-License-Identifier: Apache-2.0 */
/* The timing wheel, against a list of times that is searched from end to end. */
#include "core/err.h"
#include "core/rng.h"
#include "dpdk/cc/wheel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define SLOT UINT64_C(256)

struct item {
    struct sl_dp_timer timer;
    unsigned fired;
    uint64_t fired_ns;
    struct sl_dp_wheel *wheel;
    struct item *other;   /* to cancel when this one fires */
    uint64_t again_ns;    /* to arm this one for when it fires */
    uint64_t other_at_ns; /* to arm other for */
};

static void fire(struct sl_dp_timer *timer, uint64_t now_ns)
{
    struct item *item = sl_container_of(timer, struct item, timer);

    assert_false(sl_dp_timer_armed(timer));
    item->fired++;
    item->fired_ns = now_ns;
    if (item->other != NULL && item->other_at_ns == 0)
        sl_dp_wheel_cancel(item->wheel, &item->other->timer);
    else if (item->other != NULL)
        sl_dp_wheel_arm(item->wheel, &item->other->timer, item->other_at_ns);
    if (item->again_ns != 0)
        sl_dp_wheel_arm(item->wheel, timer, item->again_ns);
}

static void item_init(struct item *item, struct sl_dp_wheel *wheel)
{
    *item = (struct item){.timer.fire = fire, .wheel = wheel};
}

static uint64_t round_up(uint64_t at_ns)
{
    return at_ns > UINT64_MAX - SLOT ? UINT64_MAX : (at_ns + SLOT - 1) / SLOT * SLOT;
}

static void a_timer_fires_once_and_not_before_its_time(void **state)
{
    struct sl_dp_wheel wheel;
    struct item item;
    /* Each level of the wheel, at its edges, and times that are no multiple of a slot. */
    for (unsigned bit = 0; bit < 63; bit++) {
        for (int more = -1; more <= 1; more++) {
            uint64_t start = 1000, at = start + (UINT64_C(1) << bit) + (uint64_t)more;
            sl_dp_wheel_init(&wheel, start);
            item_init(&item, &wheel);
            sl_dp_wheel_arm(&wheel, &item.timer, at);
            if (at > start)
                assert_int_equal(0, sl_dp_wheel_advance(&wheel, at - 1));
            assert_int_equal(1, sl_dp_wheel_advance(&wheel, round_up(at)));
            assert_int_equal(0, sl_dp_wheel_advance(&wheel, round_up(at) + SLOT));
            assert_int_equal(1, item.fired);
            assert_true(sl_dp_wheel_next(&wheel) == UINT64_MAX);
        }
    }
}

static void what_is_next_is_never_later_than_the_next_timer_and_leads_to_it(void **state)
{
    struct sl_dp_wheel wheel;
    struct item item;
    /* Who sleeps until next, again and again, is there in time, after a handful of naps. */
    for (unsigned bit = 0; bit < 63; bit++) {
        uint64_t now = UINT64_C(123456789), at = now + (UINT64_C(1) << bit) + 77;
        unsigned naps = 0;
        sl_dp_wheel_init(&wheel, now);
        item_init(&item, &wheel);
        sl_dp_wheel_arm(&wheel, &item.timer, at);
        while (item.fired == 0) {
            uint64_t next = sl_dp_wheel_next(&wheel);
            assert_true(next > now);
            assert_true(next <= round_up(at));
            now = next;
            sl_dp_wheel_advance(&wheel, now);
            naps++;
            assert_true(naps <= SL_DP_WHEEL_LEVELS);
        }
        assert_true(item.fired_ns == round_up(at));
    }
}

static void a_timer_in_the_past_fires_in_the_next_advance(void **state)
{
    struct sl_dp_wheel wheel;
    struct item item;

    sl_dp_wheel_init(&wheel, 5000);
    item_init(&item, &wheel);
    sl_dp_wheel_arm(&wheel, &item.timer, 10);
    assert_true(sl_dp_wheel_next(&wheel) == 0);
    assert_int_equal(1, sl_dp_wheel_advance(&wheel, 5000));
    assert_true(sl_dp_wheel_next(&wheel) == UINT64_MAX);
    /* And one that arms itself for the past again, once per advance. */
    item.again_ns = 10;
    sl_dp_wheel_arm(&wheel, &item.timer, 0);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(1, sl_dp_wheel_advance(&wheel, 5000 + i * SLOT));
}

static void a_timer_at_the_end_of_time_waits(void **state)
{
    struct sl_dp_wheel wheel;
    struct item item;

    sl_dp_wheel_init(&wheel, 5000);
    item_init(&item, &wheel);
    sl_dp_wheel_arm(&wheel, &item.timer, UINT64_MAX);
    assert_true(sl_dp_wheel_next(&wheel) > UINT64_C(1) << 63);
    assert_int_equal(0, sl_dp_wheel_advance(&wheel, UINT64_MAX - 1000));
    assert_true(sl_dp_timer_armed(&item.timer));
}

static void timers_of_one_slot_all_fire(void **state)
{
    struct sl_dp_wheel wheel;
    struct item items[100];

    sl_dp_wheel_init(&wheel, 0);
    for (unsigned i = 0; i < 100; i++) {
        item_init(&items[i], &wheel);
        sl_dp_wheel_arm(&wheel, &items[i].timer, 70000);
    }
    for (unsigned i = 0; i < 100; i += 3)
        sl_dp_wheel_cancel(&wheel, &items[i].timer);
    assert_int_equal(66, sl_dp_wheel_advance(&wheel, 80000));
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(i % 3 != 0, items[i].fired);
}

static void a_cancelled_timer_does_not_fire(void **state)
{
    struct sl_dp_wheel wheel;
    struct item item;

    sl_dp_wheel_init(&wheel, 0);
    item_init(&item, &wheel);
    sl_dp_wheel_cancel(&wheel, &item.timer); /* was not armed */
    sl_dp_wheel_arm(&wheel, &item.timer, 3 * SLOT);
    sl_dp_wheel_cancel(&wheel, &item.timer);
    sl_dp_wheel_cancel(&wheel, &item.timer);
    assert_false(sl_dp_timer_armed(&item.timer));
    assert_true(sl_dp_wheel_next(&wheel) == UINT64_MAX);
    assert_int_equal(0, sl_dp_wheel_advance(&wheel, 100 * SLOT));
    sl_dp_wheel_arm(&wheel, &item.timer, 0);
    sl_dp_wheel_cancel(&wheel, &item.timer);
    assert_int_equal(0, sl_dp_wheel_advance(&wheel, 101 * SLOT));
}

static void a_timer_that_is_put_off_fires_at_the_last_time_given(void **state)
{
    struct sl_dp_wheel wheel;
    struct item item;

    sl_dp_wheel_init(&wheel, 0);
    item_init(&item, &wheel);
    for (uint64_t now = 0; now < 1000000; now += 1000) { /* as each answer puts off a timeout */
        sl_dp_wheel_arm(&wheel, &item.timer, now + 20000);
        assert_int_equal(0, sl_dp_wheel_advance(&wheel, now));
    }
    assert_int_equal(0, sl_dp_wheel_advance(&wheel, 999000 + 20000 - 1));
    assert_int_equal(1, sl_dp_wheel_advance(&wheel, round_up(999000 + 20000)));
    /* And one that is drawn near. */
    sl_dp_wheel_arm(&wheel, &item.timer, 90000000);
    sl_dp_wheel_arm(&wheel, &item.timer, 2000000);
    assert_int_equal(1, sl_dp_wheel_advance(&wheel, round_up(2000000)));
    assert_int_equal(2, item.fired);
}

static void a_callback_may_cancel_and_arm_what_would_fire_with_it(void **state)
{
    struct sl_dp_wheel wheel;
    struct item items[4];

    sl_dp_wheel_init(&wheel, 0);
    for (unsigned i = 0; i < 4; i++)
        item_init(&items[i], &wheel);
    /* Whichever fires first cancels the other. */
    items[0].other = &items[1];
    items[1].other = &items[0];
    sl_dp_wheel_arm(&wheel, &items[0].timer, 1000);
    sl_dp_wheel_arm(&wheel, &items[1].timer, 1000);
    assert_int_equal(1, sl_dp_wheel_advance(&wheel, 2000));
    assert_int_equal(1, items[0].fired + items[1].fired);
    assert_true(sl_dp_wheel_next(&wheel) == UINT64_MAX);
    /* Whichever fires first puts off the other, and itself. */
    items[2].other = &items[3];
    items[3].other = &items[2];
    items[2].other_at_ns = items[3].other_at_ns = 50000;
    items[2].again_ns = items[3].again_ns = 60000;
    sl_dp_wheel_arm(&wheel, &items[2].timer, 3000);
    sl_dp_wheel_arm(&wheel, &items[3].timer, 3000);
    assert_int_equal(1, sl_dp_wheel_advance(&wheel, 4000));
    items[2].other = items[3].other = NULL;
    items[2].again_ns = items[3].again_ns = 0;
    assert_int_equal(1, sl_dp_wheel_advance(&wheel, round_up(50000)));
    assert_int_equal(1, sl_dp_wheel_advance(&wheel, round_up(60000)));
    assert_true(sl_dp_wheel_next(&wheel) == UINT64_MAX);
}

static void a_clock_that_jumps_by_hours_fires_all_that_is_due_at_once(void **state)
{
    uint64_t hour = UINT64_C(3600) * 1000000000;
    struct sl_dp_wheel wheel;
    struct item items[50];

    sl_dp_wheel_init(&wheel, 17 * hour);
    for (unsigned i = 0; i < 50; i++) {
        item_init(&items[i], &wheel);
        sl_dp_wheel_arm(&wheel, &items[i].timer, 17 * hour + (UINT64_C(1) << i));
    }
    unsigned due = 0;
    for (unsigned i = 0; i < 50; i++)
        due += round_up(17 * hour + (UINT64_C(1) << i)) <= 20 * hour;
    assert_true(due < 50);
    assert_int_equal(due, sl_dp_wheel_advance(&wheel, 20 * hour));
    assert_int_equal(50 - due, sl_dp_wheel_advance(&wheel, UINT64_MAX));
}

/* What the wheel must do, as plainly as possible: a timer fires in an advance when its slot has
 * been reached, or, armed for the past, in the next one. */
struct model {
    bool armed;
    uint64_t at_ns;
    unsigned fired;
};

#define ITEMS 60

static void check_advance(struct sl_dp_wheel *wheel, struct item *items, struct model *model,
                          uint64_t now_ns)
{
    unsigned due = 0;
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < ITEMS; i++) {
        /* Between its time and the next slot's beginning it may do either. */
        bool must = model[i].armed && now_ns >= round_up(model[i].at_ns);
        bool may = model[i].armed && now_ns >= model[i].at_ns;
        model[i].fired += must;
        items[i].other = NULL;
        if (may && !must) {
            sl_dp_wheel_cancel(wheel, &items[i].timer);
            model[i].armed = false;
        } else if (must) {
            model[i].armed = false;
        }
        due += must;
    }
    assert_int_equal(due, sl_dp_wheel_advance(wheel, now_ns));
    for (unsigned i = 0; i < ITEMS; i++) {
        assert_int_equal(model[i].fired, items[i].fired);
        assert_int_equal(model[i].armed, sl_dp_timer_armed(&items[i].timer));
        if (model[i].armed && round_up(model[i].at_ns) < least)
            least = round_up(model[i].at_ns);
    }
    assert_true(sl_dp_wheel_next(wheel) <= least);
}

static void the_wheel_does_what_a_plain_list_does(void **state)
{
    struct item items[ITEMS];
    struct model model[ITEMS];
    struct sl_dp_wheel wheel;
    struct sl_rng rng;

    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t now_ns;
        sl_rng_init(&rng, seed);
        now_ns = sl_rng_u64(&rng) >> sl_rng_range(&rng, 8, 50);
        sl_dp_wheel_init(&wheel, now_ns);
        for (unsigned i = 0; i < ITEMS; i++) {
            item_init(&items[i], &wheel);
            model[i] = (struct model){.armed = false};
        }
        for (unsigned step = 0; step < 2000; step++) {
            unsigned i = (unsigned)sl_rng_below(&rng, ITEMS);
            uint64_t far = sl_rng_u64(&rng) >> sl_rng_range(&rng, 20, 63);
            switch (sl_rng_below(&rng, 4)) {
            case 0:
                now_ns += sl_rng_u64(&rng) >> sl_rng_range(&rng, 26, 63);
                check_advance(&wheel, items, model, now_ns);
                break;
            case 1:
                sl_dp_wheel_cancel(&wheel, &items[i].timer);
                model[i].armed = false;
                break;
            default:
                if (sl_rng_chance(&rng, 8))
                    far = far > now_ns ? 0 - now_ns : 0 - far; /* the past */
                model[i].at_ns = now_ns + far;
                model[i].armed = true;
                sl_dp_wheel_arm(&wheel, &items[i].timer, model[i].at_ns);
                break;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timer_fires_once_and_not_before_its_time),
        cmocka_unit_test(what_is_next_is_never_later_than_the_next_timer_and_leads_to_it),
        cmocka_unit_test(a_timer_in_the_past_fires_in_the_next_advance),
        cmocka_unit_test(a_timer_at_the_end_of_time_waits),
        cmocka_unit_test(timers_of_one_slot_all_fire),
        cmocka_unit_test(a_cancelled_timer_does_not_fire),
        cmocka_unit_test(a_timer_that_is_put_off_fires_at_the_last_time_given),
        cmocka_unit_test(a_callback_may_cancel_and_arm_what_would_fire_with_it),
        cmocka_unit_test(a_clock_that_jumps_by_hours_fires_all_that_is_due_at_once),
        cmocka_unit_test(the_wheel_does_what_a_plain_list_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
