/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of a state page: by a reading each second, of a page that may be anything. */
#include "core/err.h"
#include "monitor/page.h"

#include "pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct test_page made;
static struct sl_mon_page page;
static struct sl_mon_page_change change;
static int fd;

static int begin(void **state)
{
    (void)state;
    page_init(&made, 4711, 300000);
    fd = page_memfd(&made);
    sl_mon_page_init(&page, fd);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_page_fini(&page);
    close(fd);
    return 0;
}

static void read_page(void)
{
    assert_int_equal(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
    assert_int_equal(sl_mon_page_read(&page, &change), 0);
}

static struct sl_state_comm *comm(unsigned place, uint64_t number)
{
    made.comms[place] = (struct sl_state_comm){
        .turn = 2, .number = number, .id = 0xabc0 + number, .rank = 3, .size = 8, .culprit = -1};
    made.process.comms_made++;
    return &made.comms[place];
}

static void calls(struct sl_state_comm *of, uint64_t begun, uint64_t ended)
{
    /* The place of the last one's shape stands above. */
    atomic_store(&of->calls.begun[0], begun | UINT64_C(5) << SL_STATE_SHAPE_SHIFT);
    atomic_store(&of->calls.ended[0], ended);
}

static void op(unsigned place, uint64_t number, uint64_t since_ns, int32_t peer)
{
    made.ops[place] = (struct sl_state_op){.turn = 4,
                                           .comm = number,
                                           .since_ns = since_ns,
                                           .count = 1000,
                                           .seq = 12,
                                           .root = -1,
                                           .step = 7,
                                           .steps = 42,
                                           .peer = peer,
                                           .coll = "allreduce",
                                           .dtype = "f32",
                                           .redop = "sum",
                                           .algo = "ring",
                                           .doing = "waits for a message of",
                                           .path = "tcp"};
}

static void calls_are_counted_from_reading_to_reading(void **state)
{
    (void)state;
    calls(comm(2, 1), 100, 99);
    calls(comm(5, 2), 10, 10);
    read_page();
    assert_int_equal(page.comm_count, 2);
    assert_int_equal(change.begun[0], 110);
    assert_int_equal(change.ended[0], 109);
    assert_int_equal(page.under_way, 1);
    calls(&made.comms[2], 150, 150);
    read_page();
    assert_int_equal(change.begun[0], 50);
    assert_int_equal(change.ended[0], 51);
    assert_int_equal(page.under_way, 0);
    read_page();
    assert_int_equal(change.begun[0], 0);
}

static void a_communicator_in_the_place_of_another_one_begins_at_0(void **state)
{
    (void)state;
    calls(comm(0, 1), 100, 100);
    read_page();
    calls(comm(0, 2), 120, 120);
    read_page();
    assert_int_equal(change.begun[0], 120);
    made.comms[0].number = 0; /* destroyed */
    read_page();
    assert_int_equal(page.comm_count, 0);
    assert_int_equal(change.begun[0], 0);
}

static void one_that_is_made_later_is_seen_at_once(void **state)
{
    (void)state;
    comm(0, 1);
    read_page();
    read_page();
    comm(15, 2);
    read_page();
    assert_int_equal(page.comm_count, 2);
    made.comms[14] = made.comms[15]; /* even where the count of them was not told */
    made.comms[14].number = 3;
    for (unsigned i = 0; i < 8; i++)
        read_page();
    assert_int_equal(page.comm_count, 3);
}

static void the_operation_that_is_waited_for_longest_is_told(void **state)
{
    char text[512];

    (void)state;
    calls(comm(0, 1), 3, 1);
    op(4, 1, 2000000000, 5);
    op(6, 1, 1000000000, 6);
    read_page();
    assert_int_equal(page.op_count, 2);
    assert_int_equal(page.op.peer, 6);
    assert_int_equal(page.op_comm_id, 0xabc1);
    sl_mon_page_text(&page, UINT64_C(4100000000), text, sizeof(text));
    assert_string_equal(text, "it was in allreduce number 12 (1000 f32 sum, ring) at step 7 of 42, "
                              "waits for a message of rank 6 by tcp, 0 bytes so far, no progress "
                              "for 0.000 s, since 3.1 s");
    made.ops[6].comm = 0;
    read_page();
    assert_int_equal(page.op.peer, 5);
    calls(&made.comms[0], 3, 3);
    made.ops[4].comm = 0;
    read_page();
    assert_int_equal(page.op_count, 0);
    sl_mon_page_text(&page, 0, text, sizeof(text));
    assert_string_equal(text, "no operation was under way");
}

static void a_communicator_breaks_once(void **state)
{
    char text[256];

    (void)state;
    comm(0, 1);
    read_page();
    assert_int_equal(change.broken, 0);
    made.comms[0].flags = SL_STATE_BROKEN;
    made.comms[0].error = -104;
    made.comms[0].culprit = 6;
    snprintf(made.comms[0].error_text, sizeof(made.comms[0].error_text), "rank 6\033 is gone");
    read_page();
    assert_int_equal(change.broken, 1);
    assert_true(page.comms[0].is_new_break);
    assert_int_equal(page.comms[0].culprit, 6);
    sl_mon_page_why(&page, &page.comms[0], text, sizeof(text));
    assert_string_equal(text, "rank 6? is gone");
    read_page();
    assert_int_equal(change.broken, 0);
    assert_false(page.comms[0].is_new_break);
}

static void what_is_being_written_stays_as_it_was(void **state)
{
    (void)state;
    calls(comm(0, 1), 10, 9);
    read_page();
    made.comms[0].turn = 3;
    made.comms[0].size = 99;
    read_page();
    assert_int_equal(page.comm_count, 1);
    assert_int_equal(page.comms[0].size, 8);
    assert_int_equal(page.under_way, 1);
}

static void events_are_counted_by_kind(void **state)
{
    (void)state;
    made.rows[3] = (struct sl_event_row){.turn = 2, .name = "path_down"};
    atomic_store(&made.rows[3].count, 5);
    made.rows[4] = (struct sl_event_row){.turn = 2, .name = "Evil\"}\n1"};
    made.rows[5] = (struct sl_event_row){.turn = 0, .name = "half"};
    atomic_store(&made.rows[5].count, 5);
    read_page();
    assert_int_equal(change.events[3], 5);
    assert_string_equal(page.event_names[3], "path_down");
    assert_string_equal(page.event_names[4], "_vil___1");
    assert_int_equal(change.events[5], 0);
    atomic_store(&made.rows[3].count, 7);
    read_page();
    assert_int_equal(change.events[3], 2);
}

/* ---- paths ---- */

static unsigned changes;
static uint64_t failures, bytes;

static int16_t port(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "rxe0:1") == 0 ? 0 : strcmp(name, "rxe1:1") == 0 ? 1 : -1;
}

static void changed(void *arg, int16_t number, const struct sl_mon_path_change *what)
{
    (void)arg;
    (void)number;
    changes++;
    failures += what->failures;
    bytes += what->bytes;
}

static void path(unsigned place, const char *name, uint64_t sent)
{
    struct sl_state_path *at = &made.paths[place];

    *at = (struct sl_state_path){
        .turn = at->turn + 2, .comm = 1, .peer = 5, .sent_bytes = sent, .ups = 1, .state = "up"};
    snprintf(at->name, sizeof(at->name), "%s", name);
}

/* Paths are looked at every other time. */
static void read_paths(void)
{
    changes = 0;
    failures = bytes = 0;
    for (unsigned i = 0; i < 2; i++) {
        read_page();
        sl_mon_page_paths(&page, SL_MON_S, port, changed, NULL);
    }
}

static void paths_that_changed_are_read(void **state)
{
    (void)state;
    path(0, "rxe0:1 > 198.51.100.2", 1000);
    path(100, "tcp (fallback)", 0);
    read_paths();
    assert_int_equal(changes, 2);
    assert_int_equal(bytes, 0); /* of before: nobody knows when */
    assert_int_equal(page.paths[0].port, 0);
    assert_int_equal(page.paths[100].port, -1);
    read_paths();
    assert_int_equal(changes, 0);
    path(0, "rxe0:1 > 198.51.100.2", 1500);
    made.paths[0].failures = 2;
    read_paths();
    assert_int_equal(changes, 1);
    assert_int_equal(bytes, 500);
    assert_int_equal(failures, 2);
    made.paths[0].comm = 0;
    made.paths[0].turn += 2;
    read_paths();
    assert_int_equal(page.paths[0].comm, 0);
}

static void a_path_that_is_being_written_waits_for_the_next_time(void **state)
{
    (void)state;
    path(3, "rxe0:1 > 198.51.100.2", 1000);
    made.paths[3].turn = 3;
    read_paths();
    assert_int_equal(changes, 0);
    made.paths[3].turn = 4;
    read_paths();
    assert_int_equal(changes, 1);
}

static void operations_in_late_places_are_found_too(void **state)
{
    (void)state;
    calls(comm(0, 1), 3, 1);
    op(15, 1, 1000, 6);
    for (unsigned i = 0; i < 4; i++)
        read_page();
    assert_int_equal(page.op_count, 0); /* not each time */
    read_page();
    assert_int_equal(page.op_count, 1);
    for (unsigned i = 0; i < 5; i++)
        op(i, 1, 2000, 6);
    read_page(); /* many are under way: all are looked at */
    assert_int_equal(page.op_count, 6);
}

/* ---- pages that are meant to hurt ---- */

static void a_page_that_is_cut_is_none(void **state)
{
    (void)state;
    comm(0, 1);
    read_page();
    for (off_t size = sizeof(made) - 1; size >= 0; size -= 997) {
        assert_int_equal(ftruncate(fd, size), 0);
        for (unsigned i = 0; i < 3; i++)
            (void)sl_mon_page_read(&page, &change);
        int err = 0; /* its table is read again, soon */

        for (unsigned i = 0; i < 4 && err == 0; i++)
            err = sl_mon_page_read(&page, &change);
        assert_int_equal(err, -EPROTO);
    }
}

static void sizes_that_are_meant_to_hurt_are_bounded(void **state)
{
    (void)state;
    comm(0, 1);
    made.sections[1].count = 65536;
    made.sections[1].record_bytes = 16;
    made.sections[3].count = 65536;
    made.sections[3].record_bytes = 16;
    made.sections[5].record_bytes = 16;
    made.header.file_bytes = 4 << 20;
    assert_int_equal(ftruncate(fd, 4 << 20), 0);
    sl_mon_page_init(&page, fd);
    read_paths();
    assert_true(page.comm_count <= SL_MON_PAGE_COMMS);
    assert_true(page.path_count <= SL_MON_PAGE_PATHS);
    made.sections[1].record_bytes = 8;
    assert_int_equal(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
    sl_mon_page_fini(&page);
    sl_mon_page_init(&page, fd);
    assert_int_equal(sl_mon_page_read(&page, &change), -EPROTO);
}

static void random_pages_do_no_harm(void **state)
{
    unsigned seed = 7;

    (void)state;
    for (unsigned i = 0; i < PAGE_COMMS; i++)
        calls(comm(i, i + 1), 10, 9);
    for (unsigned i = 0; i < PAGE_OPS; i++)
        op(i, i + 1, i, 1);
    const struct test_page good = made;

    for (unsigned round = 0; round < 2000; round++) {
        char text[64], *raw = (char *)&made;

        made = good;
        for (unsigned i = 0; i < 20; i++)
            raw[(unsigned)rand_r(&seed) % (i < 10 ? 512 : sizeof(made))] = (char)rand_r(&seed);
        assert_int_equal(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
        if (sl_mon_page_read(&page, &change) != 0)
            continue;
        sl_mon_page_paths(&page, SL_MON_S, port, changed, NULL);
        sl_mon_page_text(&page, SL_MON_S, text, sizeof(text));
        assert_true(page.comm_count <= SL_MON_PAGE_COMMS && page.op_count <= SL_MON_PAGE_OPS);
        assert_true(strlen(text) < sizeof(text));
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(calls_are_counted_from_reading_to_reading),
        CASE(a_communicator_in_the_place_of_another_one_begins_at_0),
        CASE(one_that_is_made_later_is_seen_at_once),
        CASE(the_operation_that_is_waited_for_longest_is_told),
        CASE(a_communicator_breaks_once),
        CASE(what_is_being_written_stays_as_it_was),
        CASE(events_are_counted_by_kind),
        CASE(paths_that_changed_are_read),
        CASE(a_path_that_is_being_written_waits_for_the_next_time),
        CASE(operations_in_late_places_are_found_too),
        CASE(a_page_that_is_cut_is_none),
        CASE(sizes_that_are_meant_to_hurt_are_bounded),
        CASE(random_pages_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
