/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"
#include "core/event.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t now;

static uint64_t told(const struct sl_clock *clock)
{
    (void)clock;
    return now;
}

static const struct sl_clock clock_told = {told};
static struct sl_event_ring ring;
static struct sl_worker worker = {.clock = &clock_told, .events = &ring};
static struct sl_event out[SL_EVENT_RING + 1];
static struct sl_event_reader reader;

/* Of a transport: two kinds with numbers of their own. */
static uint16_t first;
static const struct sl_event_kind kinds[] = {
    {SL_EVENT_FREE, "gone", "path", "status", SL_EVENT_SHOW},
    {SL_EVENT_FREE, "given", "bytes", "", SL_EVENT_SHOW_NONE},
};
static const struct sl_event_set set = {"pigeon", kinds, 2, NULL, &first};
#define GONE first
#define GIVEN (first + 1u)

static int fresh(void **state)
{
    (void)state;
    assert_int_equal(sl_event_register(&set), 0);
    memset(&ring, 0, sizeof(ring));
    sl_event_ring_init(&ring);
    reader = (struct sl_event_reader){.ring = &ring};
    memset(out, 0, sizeof(out));
    now = 0;
    return 0;
}

/* The library's, and a module's. */
static void another_copy_of_a_set_is_that_set(void **state)
{
    static const struct sl_event_kind one[] = {{22, "up", "", "", SL_EVENT_SHOW},
                                               {23, "over", "", "", SL_EVENT_SHOW}};
    static const struct sl_event_kind copy[] = {{22, "up", "", "", SL_EVENT_SHOW},
                                                {23, "over", "", "", SL_EVENT_SHOW}};
    static const struct sl_event_kind other[] = {{22, "up", "", "", SL_EVENT_SHOW},
                                                 {23, "under", "", "", SL_EVENT_SHOW}};
    static const struct sl_event_set sets[] = {{"kite", one, 2, NULL, NULL},
                                               {"kite", copy, 2, NULL, NULL},
                                               {"kite", other, 2, NULL, NULL},
                                               {"wind", copy, 2, NULL, NULL}};

    (void)state;
    assert_int_equal(sl_event_register(&sets[0]), 0);
    uint8_t area = sl_event_area(22);

    assert_int_equal(sl_event_register(&sets[1]), 0);
    assert_int_equal(sl_event_area(22), area);
    assert_int_equal(sl_event_register(&sets[2]), -EEXIST);
    assert_int_equal(sl_event_register(&sets[3]), -EEXIST);
}

static void a_record_says_what_when_and_to_whom(void **state)
{
    (void)state;
    now = 42;
    sl_event(&worker, GONE, 5, 2, 12);
    assert_int_equal(sl_event_read(&reader, out, 4), 1);
    assert_int_equal(out[0].time_ns, 42);
    assert_int_equal(out[0].kind, GONE);
    assert_int_equal(out[0].area, sl_event_area(GONE));
    assert_int_not_equal(out[0].area, 0);
    assert_int_equal(out[0].peer, 5);
    assert_int_equal(out[0].a, 2);
    assert_int_equal(out[0].b, 12);
    assert_int_equal(sl_event_read(&reader, out, 4), 0);
}

static void records_come_out_once_and_in_order(void **state)
{
    size_t got = 0;

    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        sl_event(&worker, SL_EVENT_PEER_LOST, 1, i, 0);
    got += sl_event_read(&reader, out, 0);
    got += sl_event_read(&reader, out, 3);
    got += sl_event_read(&reader, out + got, SL_EVENT_RING);
    assert_int_equal(got, 10);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(out[i].a, i);
}

static void the_oldest_of_a_full_ring_give_way_and_are_missed(void **state)
{
    struct sl_event_totals totals;

    (void)state;
    for (uint64_t i = 0; i < SL_EVENT_RING + 7; i++)
        sl_event(&worker, i % 2 == 0 ? SL_EVENT_PEER_LOST : SL_EVENT_COMM_FAILED, 0, i, 0);
    sl_event_totals(&ring, &totals);
    assert_int_equal(totals.dropped, 0);
    assert_int_equal(totals.counts[SL_EVENT_PEER_LOST] + totals.counts[SL_EVENT_COMM_FAILED],
                     SL_EVENT_RING + 7);
    assert_int_equal(totals.counts[SL_EVENT_PEER_LOST], SL_EVENT_RING / 2 + 4);
    assert_int_equal(totals.counts[GIVEN], 0);
    assert_int_equal(sl_event_read(&reader, out, SL_EVENT_RING + 1), SL_EVENT_RING);
    assert_int_equal(reader.missed, 7);
    assert_int_equal(out[0].a, 7);
    assert_int_equal(out[SL_EVENT_RING - 1].a, SL_EVENT_RING + 6);
}

static void two_readers_do_not_disturb_each_other(void **state)
{
    struct sl_event_reader other = {.ring = &ring};

    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        sl_event(&worker, SL_EVENT_PEER_LOST, 1, i, 0);
    assert_int_equal(sl_event_read(&reader, out, 4), 3);
    assert_int_equal(sl_event_read(&other, out, 4), 3);
    assert_int_equal(out[2].a, 2);
}

static void a_kind_says_how_often_it_came_and_when(void **state)
{
    const struct sl_event_row *row = &ring.rows[GONE];

    (void)state;
    assert_string_equal(row->name, "gone");
    assert_string_equal(row->area, "pigeon");
    assert_string_equal(row->b, "status");
    for (now = 5; now < 8; now++)
        sl_event(&worker, GONE, 1, 0, 0);
    assert_int_equal(atomic_load(&row->count), 3);
    assert_int_equal(atomic_load(&row->first_ns), 5);
    assert_int_equal(atomic_load(&row->last_ns), 7);
}

static void a_worker_without_a_ring_notes_nothing(void **state)
{
    const struct sl_worker bare = {.clock = &clock_told};

    (void)state;
    sl_event(&bare, GIVEN, 0, 0, 0);
    assert_int_equal(sl_event_read(&reader, out, 1), 0);
}

static void lines_name_only_what_the_kind_has(void **state)
{
    const struct sl_event down = {.time_ns = 12000000345, .kind = GONE, .peer = 5, .a = 2, .b = 12};
    const struct sl_event own = {.kind = GIVEN, .peer = SL_EVENT_NOBODY, .a = 4096, .b = 9};
    const struct sl_event foreign = {.kind = 999, .area = 99, .peer = 1, .a = 3, .b = UINT64_MAX};
    char text[128], cut[8];

    (void)state;
    sl_event_text(&down, text, sizeof(text));
    assert_string_equal(text, "12.000000345 pigeon gone peer 5 path 2 status 12");
    sl_event_text(&own, text, sizeof(text));
    assert_string_equal(text, "0.000000000 pigeon given bytes 4096");
    sl_event_text(&foreign, text, sizeof(text));
    assert_string_equal(text, "0.000000000 unknown unknown peer 1 a 3 b -1");
    sl_event_text(&down, cut, sizeof(cut));
    assert_string_equal(cut, "12.0000");
    assert_string_equal(sl_event_name(SL_EVENT_KINDS_MAX), "unknown");
}

static void kinds_keep_the_numbers_that_they_were_given(void **state)
{
    static const struct sl_event_kind taken[] = {
        {SL_EVENT_PEER_LOST, "mine", "", "", SL_EVENT_SHOW}};
    static const struct sl_event_set again = {"again", taken, 1, NULL, NULL};
    static uint16_t at;
    static struct sl_event_kind many[SL_EVENT_KINDS_MAX];
    struct sl_event_set crowd = {"crowd", many, SL_EVENT_KINDS_MAX - SL_EVENT_OWN - 1, NULL, &at};
    uint16_t before = first;

    (void)state;
    assert_true(first >= SL_EVENT_OWN);
    assert_int_equal(sl_event_register(&set), 0);
    assert_int_equal(first, before);
    assert_int_equal(sl_event_register(&again), -EEXIST);
    assert_string_equal(sluice_last_error(),
                        "the event mine of again has number 12, which is that of peer_lost");
    assert_string_equal(sl_event_name(SL_EVENT_PEER_LOST), "peer_lost");
    for (unsigned i = 0; i < SL_ARRAY_LEN(many); i++)
        many[i] = (struct sl_event_kind){SL_EVENT_FREE, "x", "", "", SL_EVENT_SHOW};
    assert_int_equal(sl_event_register(&crowd), -ENOSPC);
    assert_int_equal(sl_event_shown(GIVEN), SL_EVENT_SHOW_NONE);
    assert_int_equal(sl_event_shown(SL_EVENT_PEER_LOST), SL_EVENT_SHOW);
}

#define MANY 200000u
#define WRITERS 2u

static _Atomic unsigned writing;

static void *write_many(void *arg)
{
    uint64_t own = (uint64_t)(uintptr_t)arg;

    for (uint64_t i = 0; i < MANY; i++)
        sl_event(&worker, SL_EVENT_PEER_LOST, (uint32_t)own, i, ~i);
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

static void readers_see_whole_records_in_each_writers_order(void **state)
{
    struct sl_event_totals totals;
    uint64_t seen = 0, next[WRITERS] = {0};
    pthread_t writers[WRITERS];
    bool last = false;

    (void)state;
    atomic_store(&writing, WRITERS);
    for (uintptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_many, (void *)i), 0);
    while (!last) {
        last = atomic_load(&writing) == 0; /* what was written before is read below */
        size_t count = sl_event_read(&reader, out, SL_EVENT_RING);

        for (size_t i = 0; i < count; i++) {
            uint64_t *expected = &next[out[i].peer % WRITERS];

            if (out[i].a < *expected || out[i].b != ~out[i].a || out[i].peer >= WRITERS)
                fail_msg("record %llu is torn or out of order", (unsigned long long)seen);
            *expected = out[i].a + 1;
            seen++;
        }
    }
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    sl_event_totals(&ring, &totals);
    /* A number whose event was dropped holds the reader up until the ring has gone round. */
    uint64_t unread = atomic_load(&ring.written) - reader.next;

    assert_true(unread == 0 || totals.dropped > 0);
    assert_int_equal(seen + reader.missed + unread, WRITERS * MANY);
    assert_int_equal(totals.counts[SL_EVENT_PEER_LOST], WRITERS * MANY);
    assert_true(seen > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_copy_of_a_set_is_that_set),
        cmocka_unit_test_setup(a_record_says_what_when_and_to_whom, fresh),
        cmocka_unit_test_setup(records_come_out_once_and_in_order, fresh),
        cmocka_unit_test_setup(the_oldest_of_a_full_ring_give_way_and_are_missed, fresh),
        cmocka_unit_test_setup(two_readers_do_not_disturb_each_other, fresh),
        cmocka_unit_test_setup(a_kind_says_how_often_it_came_and_when, fresh),
        cmocka_unit_test_setup(a_worker_without_a_ring_notes_nothing, fresh),
        cmocka_unit_test_setup(lines_name_only_what_the_kind_has, fresh),
        cmocka_unit_test_setup(kinds_keep_the_numbers_that_they_were_given, fresh),
        cmocka_unit_test_setup(readers_see_whole_records_in_each_writers_order, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
