/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The orders of the lock-free structures, on a machine with weak memory (machine.h): the product's
 * own code, compiled for it, in stories of two or three threads. With one of its orders weakened a
 * story fails: its case prints which execution, and why.
 */
#include "tests/model/story.h"

#include "collectives/window.h"
#include "core/event.h"
#include "core/seqlock.h"

/* ---- the machine itself: what each order does, and what its absence does not ---- */

static struct {
    _Atomic uint64_t x, y;
    uint64_t plain;
} *const words = (void *)model_shared;
static uint64_t saw[2];
static bool seen_both_old, seen_reordered;
static memory_order store_order, load_order;
static bool fenced;

static void no_begin(void)
{
    saw[0] = saw[1] = 1;
}

static void message_writer(void)
{
    atomic_store_explicit(&words->x, 1, memory_order_relaxed);
    atomic_store_explicit(&words->y, 1, store_order);
}

static void message_reader(void)
{
    if (atomic_load_explicit(&words->y, load_order) == 1)
        seen_reordered |= atomic_load_explicit(&words->x, memory_order_relaxed) == 0;
}

static bool message_is_reordered(memory_order store, memory_order load)
{
    static const struct model_story story = {no_begin, {message_writer, message_reader}, NULL};

    store_order = store;
    load_order = load;
    seen_reordered = false;
    assert_true(model_run(&story, 8, 100000) > 0);
    return seen_reordered;
}

static void left(void)
{
    atomic_store_explicit(&words->x, 1, memory_order_relaxed);
    if (fenced)
        atomic_thread_fence(memory_order_seq_cst);
    saw[0] = atomic_load_explicit(&words->y, memory_order_relaxed);
}

static void right(void)
{
    atomic_store_explicit(&words->y, 1, memory_order_relaxed);
    if (fenced)
        atomic_thread_fence(memory_order_seq_cst);
    saw[1] = atomic_load_explicit(&words->x, memory_order_relaxed);
}

static void note_both(void)
{
    seen_both_old |= saw[0] == 0 && saw[1] == 0;
}

static bool both_may_miss_each_other(bool with_fences)
{
    static const struct model_story story = {no_begin, {left, right}, note_both};

    fenced = with_fences;
    seen_both_old = false;
    assert_true(model_run(&story, 8, 100000) > 0);
    return seen_both_old;
}

static void plain_writer(void)
{
    words->plain = 7;
    atomic_store_explicit(&words->y, 1, store_order);
}

static void plain_reader(void)
{
    if (atomic_load_explicit(&words->y, load_order) == 1)
        model_check(words->plain == 7);
}

static void the_machine_is_as_weak_as_the_orders_allow(void **state)
{
    static const struct model_story plain = {no_begin, {plain_writer, plain_reader}, NULL};

    (void)state;
    assert_false(message_is_reordered(memory_order_release, memory_order_acquire));
    assert_true(message_is_reordered(memory_order_relaxed, memory_order_acquire));
    assert_true(message_is_reordered(memory_order_release, memory_order_relaxed));
    assert_false(both_may_miss_each_other(true));
    assert_true(both_may_miss_each_other(false));

    store_order = memory_order_release;
    load_order = memory_order_acquire;
    assert_true(model_run(&plain, 8, 100000) > 0);
    store_order = memory_order_relaxed;
    assert_true(model_run(&plain, 8, 100000) < 0);
    assert_non_null(strstr(model_why, "data race"));
}

/* ---- windows ---- */

static struct sl_win_slot *slot_of(unsigned rank, uint64_t op)
{
    return (struct sl_win_slot *)(void *)(model_shared + 1024 * rank) + op % 2;
}

static bool shows(unsigned rank, uint64_t op, uint64_t counter)
{
    return sl_win_passed(sl_win_word(slot_of(rank, op)), counter * SL_WIN_UNIT);
}

static void show(unsigned rank, uint64_t op, uint64_t counter)
{
    sl_win_publish(slot_of(rank, op), counter * SL_WIN_UNIT, op);
}

/* One rank of two: each op writes its slot, reads the other's, says so, and may write again. */
static void window_rank(unsigned self)
{
    for (uint64_t op = 1; op <= 2; op++) {
        uint64_t *out = (uint64_t *)(void *)slot_of(self, 0)->payload;
        const uint64_t *in = (const uint64_t *)(const void *)slot_of(1 - self, 0)->payload;

        *out = op * 10 + self;
        show(self, 0, op * 2 - 1);
        UNTIL(shows(1 - self, 0, op * 2 - 1));
        model_check(*in == op * 10 + 1 - self);
        show(self, 0, op * 2);
        UNTIL(shows(1 - self, 0, op * 2));
    }
}

static void window_rank_0(void)
{
    window_rank(0);
}

static void window_rank_1(void)
{
    window_rank(1);
}

static void windows_hold_what_was_published(void **state)
{
    static const struct model_story story = {
        nothing_to_begin, {window_rank_0, window_rank_1}, NULL};

    (void)state;
    run_story(&story, 5, 60000);
}

/* A root runs ahead, here with two slots: it writes one again when the other rank has begun the
 * operation after the one that was in it. That rank says so before it reads what that operation
 * brings. */
static void window_root(void)
{
    for (uint64_t op = 1; op <= 4; op++) {
        if (op > 2)
            UNTIL(shows(1, op - 1, op - 1));
        *(uint64_t *)(void *)slot_of(0, op)->payload = op * 10;
        show(0, op, op);
    }
}

static void window_taker(void)
{
    for (uint64_t op = 1; op <= 4; op++) {
        show(1, op, op);
        UNTIL(shows(0, op, op));
        model_check((sl_win_word(slot_of(0, op)) & SL_WIN_TAG_MASK) == op);
        model_check(*(const uint64_t *)(const void *)slot_of(0, op)->payload == op * 10);
    }
}

static void a_root_that_runs_ahead_overwrites_nothing_unread(void **state)
{
    static const struct model_story story = {nothing_to_begin, {window_root, window_taker}, NULL};

    (void)state;
    run_story(&story, 8, 60000);
}

/* ---- events ---- */

static struct sl_event_ring *const ring = (void *)model_shared;

/* A lap has been written: each new event takes the place of an old one. Its words are its number,
 * twice. */
static void events_begin(void)
{
    atomic_store_explicit(&ring->written, SL_EVENT_RING, memory_order_relaxed);
    for (unsigned i = 0; i < 2; i++) {
        ring->slots[i].event = (struct sl_event){.a = i, .b = i};
        atomic_store_explicit(&ring->slots[i].turn, i + 1, memory_order_relaxed);
    }
}

static void note(uint64_t number)
{
    const struct sl_event event = {.kind = UINT16_MAX, .a = number, .b = number};

    sl_event_put(ring, &event);
}

static void event_writer(void)
{
    note(SL_EVENT_RING);
    note(SL_EVENT_RING + 1);
}

static void read_from(uint64_t next)
{
    struct sl_event_reader reader = {.ring = ring, .next = next};

    for (unsigned i = 0; i < 2; i++) {
        struct sl_event out[2];
        size_t count = sl_event_read(&reader, out, 2);

        for (size_t k = 0; k < count; k++)
            model_check(out[k].a == out[k].b && out[k].a >= next && out[k].a < reader.next);
    }
}

static void event_reader(void)
{
    read_from(0);
}

static void late_reader(void)
{
    read_from(SL_EVENT_RING);
}

/* Two threads at one record, one of them a lap behind. */
static void slow_writer(void)
{
    note(SL_EVENT_RING);
}

static void next_lap_writer(void)
{
    if (atomic_load_explicit(&ring->written, memory_order_relaxed) != SL_EVENT_RING + 1)
        return;
    atomic_store_explicit(&ring->written, 2 * SL_EVENT_RING, memory_order_relaxed);
    note(2 * SL_EVENT_RING);
}

static void lap_reader(void)
{
    const struct sl_event_record *record = &ring->slots[0];
    uint64_t turn = atomic_load_explicit(&record->turn, memory_order_acquire);
    struct sl_event copy;

    if (turn == 0)
        return;
    model_copy_words(&copy, &record->event, sizeof(copy));
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&record->turn, memory_order_relaxed) == turn)
        model_check(copy.a == turn - 1 && copy.b == turn - 1);
}

/* An event of a later lap does not give way to an earlier one. */
static void laps_end(void)
{
    if (atomic_load_explicit(&ring->written, memory_order_relaxed) == 2 * SL_EVENT_RING + 1 &&
        atomic_load_explicit(&ring->slots[0].turn, memory_order_relaxed) == SL_EVENT_RING + 1)
        model_check(atomic_load_explicit(&ring->dropped, memory_order_relaxed) == 1);
}

static void events_are_read_whole_while_they_give_way(void **state)
{
    static const struct model_story full = {events_begin, {event_writer, event_reader}, NULL};
    static const struct model_story late = {events_begin, {event_writer, late_reader}, NULL};
    static const struct model_story laps = {
        events_begin, {slow_writer, next_lap_writer, lap_reader}, laps_end};

    (void)state;
    run_story(&full, 4, 60000);
    run_story(&late, 4, 60000);
    run_story(&laps, 4, 60000);
}

/* ---- pages that are written while they are read ---- */

static struct {
    _Atomic uint64_t version;
    uint64_t text[2];
} *const page = (void *)model_shared;

static void page_writer(void)
{
    for (uint64_t i = 1; i <= 2; i++) {
        uint64_t text[2] = {i, i};

        sl_seq_write_begin(&page->version);
        model_copy_words(page->text, text, sizeof(text));
        sl_seq_write_end(&page->version);
    }
}

static void page_reader(void)
{
    uint64_t text[2], before = sl_seq_read_begin(&page->version);

    model_copy_words(text, page->text, sizeof(text));
    if (sl_seq_read_whole(&page->version, before))
        model_check(text[0] == text[1] && text[0] == before / 2);
}

static void a_torn_page_is_told(void **state)
{
    static const struct model_story story = {nothing_to_begin, {page_writer, page_reader}, NULL};

    (void)state;
    run_story(&story, 8, 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_is_as_weak_as_the_orders_allow),
        cmocka_unit_test(windows_hold_what_was_published),
        cmocka_unit_test(a_root_that_runs_ahead_overwrites_nothing_unread),
        cmocka_unit_test(events_are_read_whole_while_they_give_way),
        cmocka_unit_test(a_torn_page_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
