/* SPDX-License-Identifier: Apache-2.0 */
/* The software switch's forwarding, queues and faults, with a clock and frames of the test. */
#include "testing/dpdk/fabric.h"

#include "core/err.h"
#include "testing/dpdk/fault.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SENT_MAX 20000
#define HEAD 42
#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static struct sl_fabric fabric;
static int alive; /* frames that were made and not given back */
static unsigned room = SENT_MAX;
static uint64_t now_ns;

static struct sent {
    unsigned port, tag, len;
    uint64_t ns;
    uint8_t ecn;
    bool is_damaged, has_good_sum;
} sent[SENT_MAX];
static unsigned sent_count;

/* The sum over an IPv4 header that holds its checksum. */
static bool has_good_sum(const uint8_t *ip)
{
    uint32_t sum = 0;
    for (unsigned i = 0; i < 20; i += 2)
        sum += (uint32_t)ip[i] << 8 | ip[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

/* Every byte behind the tag is 0 in a whole frame. */
static bool is_damaged(const uint8_t *bytes, unsigned len)
{
    for (unsigned i = HEAD + 4; i < len; i++)
        if (bytes[i])
            return true;
    return false;
}

static unsigned take(void *arg, unsigned port, struct sl_fabric_frame *frames, unsigned count)
{
    unsigned took = 0;
    for (; took < count && sent_count < room; took++) {
        const uint8_t *bytes = frames[took].bytes;
        struct sent *to = &sent[sent_count++];
        *to = (struct sent){.port = port, .len = frames[took].len, .ns = now_ns};
        memcpy(&to->tag, bytes + HEAD, 4);
        to->ecn = bytes[15] & 3;
        to->has_good_sum = has_good_sum(bytes + 14);
        to->is_damaged = is_damaged(bytes, to->len);
        free(frames[took].owner);
        alive--;
    }
    return took;
}

static void drop(void *arg, struct sl_fabric_frame *frame)
{
    free(frame->owner);
    alive--;
}

static bool copy(void *arg, const struct sl_fabric_frame *frame, struct sl_fabric_frame *out)
{
    void *bytes = malloc(frame->len);
    memcpy(bytes, frame->bytes, frame->len);
    *out = (struct sl_fabric_frame){.owner = bytes, .bytes = bytes, .len = frame->len};
    alive++;
    return true;
}

static const struct sl_fabric_ops ops = {.send = take, .drop = drop, .copy = copy};

static int set_up(void **state)
{
    alive = 0;
    sent_count = 0;
    room = SENT_MAX;
    now_ns = MS;
    return sl_fabric_init(&fabric, 4, 7, &ops, NULL);
}

/* Whatever a case did, every frame was given back once. */
static int tear_down(void **state)
{
    sl_fabric_fini(&fabric);
    return alive;
}

static void do_line(const char *line)
{
    if (sl_fabric_command(&fabric, line) < 0)
        fail_msg("%s: %s", line, sluice_last_error());
}

static void write_sum(uint8_t *ip)
{
    uint32_t sum = 0;
    for (unsigned i = 0; i < 20; i += 2)
        sum += (uint32_t)ip[i] << 8 | ip[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

/* An IPv4 frame of UDP from host `from` to host `to` by that source port; 255: to all. */
static void frame_of(unsigned from, unsigned to, unsigned source, unsigned tag, unsigned len,
                     unsigned ecn)
{
    uint8_t *bytes = calloc(1, len);
    memset(bytes, to == 255 ? 255 : 2, 6);
    bytes[5] = (uint8_t)to;
    memset(bytes + 6, 2, 6);
    bytes[11] = (uint8_t)from;
    bytes[12] = 8;
    bytes[14] = 0x45;
    bytes[15] = (uint8_t)ecn;
    bytes[23] = 17;
    write_sum(bytes + 14);
    bytes[34] = (uint8_t)(source >> 8);
    bytes[35] = (uint8_t)source;
    memcpy(bytes + HEAD, &tag, 4);
    struct sl_fabric_frame frame = {.owner = bytes, .bytes = bytes, .len = len};
    alive++;
    sl_fabric_receive(&fabric, from, &frame, now_ns);
}

static void frames(unsigned from, unsigned to, unsigned count, unsigned len)
{
    for (unsigned i = 0; i < count; i++) {
        frame_of(from, to, 5000, i, len, 2);
        if (i % 7 == 6) /* so that a burst goes over the end of a queue, too */
            sl_fabric_run(&fabric, now_ns);
    }
    sl_fabric_run(&fabric, now_ns);
}

/* Every host has spoken, so that nothing is flooded. */
static void all_known(void)
{
    for (unsigned i = 0; i < 4; i++)
        frame_of(i, 255, 1, 0, 64, 0);
    sl_fabric_run(&fabric, now_ns);
    sent_count = 0;
    do_line("reset");
}

static void a_frame_to_nobody_known_goes_to_all_others(void **state)
{
    frames(1, 3, 1, 100);
    assert_int_equal(sent_count, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_not_equal(sent[i].port, 1);
}

static void a_frame_goes_to_the_port_where_its_address_was_heard_last(void **state)
{
    all_known();
    frames(0, 2, 1, 100);
    assert_int_equal(sent_count, 1);
    assert_int_equal(sent[0].port, 2);
    /* Host 2 moves to port 3. */
    uint8_t moved[64] = {255, 255, 255, 255, 255, 255, 2, 2, 2, 2, 2, 2};
    struct sl_fabric_frame frame = {.owner = malloc(64), .len = 64};
    frame.bytes = memcpy(frame.owner, moved, 64);
    alive++;
    sl_fabric_receive(&fabric, 3, &frame, now_ns);
    sl_fabric_run(&fabric, now_ns);
    sent_count = 0;
    frames(0, 2, 1, 100);
    assert_int_equal(sent_count, 1);
    assert_int_equal(sent[0].port, 3);
}

static void a_frame_to_the_port_it_came_from_and_a_short_one_go_nowhere(void **state)
{
    all_known();
    frames(0, 0, 1, 100);
    struct sl_fabric_frame frame = {.owner = calloc(1, 8), .len = 8};
    frame.bytes = frame.owner;
    alive++;
    sl_fabric_receive(&fabric, 1, &frame, now_ns);
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 0);
    assert_int_equal(alive, 0);
}

static void a_thousand_addresses_and_more_do_not_hurt(void **state)
{
    for (unsigned i = 0; i < 5000; i++) {
        uint8_t *bytes = calloc(1, 64);
        memset(bytes, 255, 6);
        memcpy(bytes + 8, &i, 4);
        struct sl_fabric_frame frame = {.owner = bytes, .bytes = bytes, .len = 64};
        alive++;
        sl_fabric_receive(&fabric, i % 4, &frame, now_ns);
        sl_fabric_run(&fabric, now_ns);
        sent_count = 0;
    }
    all_known();
    frames(0, 2, 1, 100);
    assert_int_equal(sent_count, 1);
}

static void a_shaped_port_sends_at_its_rate_and_loses_what_its_queue_does_not_hold(void **state)
{
    all_known();
    do_line("shape port=1 rate=8M queue=10000"); /* a byte a microsecond */
    frames(0, 1, 20, 1000);
    assert_int_equal(sent_count, 0);
    assert_int_equal(sl_fabric_next(&fabric), now_ns + 1000 * US);
    assert_int_equal(fabric.ports[1].counts.full, 10);
    uint64_t start = now_ns;
    for (; sl_fabric_next(&fabric) != UINT64_MAX; sl_fabric_run(&fabric, now_ns))
        now_ns = sl_fabric_next(&fabric);
    assert_int_equal(sent_count, 10);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(sent[i].ns - start, (i + 1) * 1000 * US);
    assert_int_equal(fabric.ports[1].counts.queue_most, 10000);
    assert_int_equal(fabric.ports[1].from[0], 10000);
}

static void short_frames_tell_how_long_the_queue_was_and_all_how_late_they_left(void **state)
{
    all_known();
    do_line("shape port=1 rate=8M queue=10000"); /* a byte a microsecond */
    frames(0, 1, 3, 1000);
    frames(0, 1, 1, 100);
    frames(0, 1, 1, SL_FABRIC_SHORT + 1);
    const struct sl_fabric_counts *counts = &fabric.ports[1].counts;
    now_ns += 2100 * US; /* the switch did not run */
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 2);
    assert_int_equal(counts->behind_sum, (1100 + 100) * US);
    assert_int_equal(counts->behind_most, 1100 * US);
    now_ns += 1000 * US;
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(counts->short_frames, 1);
    assert_int_equal(counts->short_wait_sum, 3100 * US);
    assert_int_equal(counts->short_wait_most, 3100 * US);
}

/* ---- classes ---- */

#define HIGH_TOS (20 << 2 | 2)

static void run_until(uint64_t end_ns)
{
    for (uint64_t next; (next = sl_fabric_next(&fabric)) <= end_ns;) {
        now_ns = next > now_ns ? next : now_ns;
        sl_fabric_run(&fabric, now_ns);
    }
    now_ns = end_ns;
}

static void a_frame_of_the_preferred_class_waits_for_the_one_on_the_wire_alone(void **state)
{
    all_known();
    do_line("shape port=1 rate=8M queue=100000 high=20"); /* a byte a microsecond */
    uint64_t start_ns = now_ns;
    frames(0, 1, 10, 1000);
    run_until(start_ns + 1500 * US); /* half of the second one */
    frame_of(2, 1, 5000, 100, 100, HIGH_TOS);
    frame_of(2, 1, 5000, 101, 100, HIGH_TOS);
    frame_of(2, 1, 5000, 102, 100, 2); /* not of it */
    run_until(start_ns + 20 * MS);
    assert_int_equal(sent_count, 13);
    assert_int_equal(sent[2].tag, 100);
    assert_int_equal(sent[2].ns - start_ns, 2100 * US);
    assert_int_equal(sent[3].tag, 101);
    assert_int_equal(sent[4].tag, 2);
    assert_int_equal(sent[4].ns - start_ns, 3200 * US);
    assert_int_equal(sent[12].tag, 102);
    assert_int_equal(fabric.ports[1].counts.high, 2);
}

/* What came after the wire was free does not go before what was there. */
static void the_order_is_that_of_the_times_at_which_the_wire_was_free(void **state)
{
    all_known();
    do_line("shape port=1 rate=8M queue=100000 high=20");
    frames(0, 1, 3, 1000);
    now_ns += 1500 * US; /* the switch did not run: the second one is on the wire by now */
    frame_of(2, 1, 5000, 100, 100, HIGH_TOS);
    uint64_t came_ns = now_ns;
    run_until(now_ns + 10 * MS);
    assert_int_equal(sent[1].tag, 1);
    assert_int_equal(sent[2].tag, 100);
    assert_int_equal(sent[2].ns - came_ns, 600 * US);
    assert_int_equal(sent[3].tag, 2);
}

static void the_preferred_class_takes_no_more_than_its_share_from_the_other(void **state)
{
    all_known();
    do_line("shape port=1 rate=8M queue=2000000 high=20 high_share=0.2");
    for (unsigned i = 0; i < 1000; i++) { /* a second of each */
        frame_of(0, 1, 5000, 0, 1000, 2);
        frame_of(2, 1, 5000, 1, 1000, HIGH_TOS);
    }
    run_until(now_ns + 1000 * MS);
    unsigned high = 0;
    for (unsigned i = 0; i < sent_count; i++)
        high += sent[i].tag;
    assert_in_range(sent_count, 999, 1001);
    assert_in_range(high, 200, 220); /* and a burst at the start */
    run_until(now_ns + 2000 * MS);   /* alone it may have all of it */
    assert_int_equal(sent_count, 2000);
}

static void a_queue_of_one_class_neither_fills_nor_marks_the_preferred_one(void **state)
{
    all_known();
    do_line("shape port=1 rate=8M queue=10000 mark=2000 phantom=1 high=20");
    frames(0, 1, 20, 1000);
    assert_int_equal(fabric.ports[1].counts.full, 10);
    frame_of(2, 1, 5000, 100, 1000, HIGH_TOS);
    run_until(now_ns + 20 * MS);
    assert_int_equal(sent_count, 11);
    for (unsigned i = 0; i < sent_count; i++)
        if (sent[i].tag == 100)
            assert_int_equal(sent[i].ecn, 2);
    assert_in_range(fabric.ports[1].counts.marked, 7, 8);
    now_ns += 100 * MS;
    for (unsigned i = 0; i < 4; i++) /* what goes first counts for all */
        frame_of(2, 1, 5000, 0, 1000, HIGH_TOS);
    sent_count = 0;
    frame_of(0, 1, 5000, 5, 1000, 2);
    run_until(now_ns + 20 * MS);
    assert_int_equal(sent[4].tag, 5);
    assert_int_equal(sent[4].ecn, 3);
    assert_int_equal(sent[3].ecn, 3);
    assert_int_equal(sent[1].ecn, 2);
}

static void an_ipv6_packet_has_its_class_across_two_bytes(void **state)
{
    uint8_t bytes[14 + 40] = {[12] = 0x86, 0xdd, 0x65, 0x2a};
    struct sl_fabric_frame frame = {.bytes = bytes, .len = sizeof(bytes)};

    assert_int_equal(sl_fault_dscp(&frame), 20);
    bytes[13] = 0; /* of another protocol */
    assert_int_equal(sl_fault_dscp(&frame), -1);
}

static void the_phantom_queue_marks_who_understands_marks_while_the_real_one_is_short(void **state)
{
    all_known();
    do_line("shape port=1 rate=8M queue=100000 mark=2000 phantom=0.5");
    /* A frame each time the wire is free: the real queue never holds two, the phantom one grows by
     * half a frame each time. */
    for (unsigned i = 0; i < 20; i++) {
        frame_of(0, 1, 5000, i, 1000, i % 2 ? 2 : 0);
        now_ns += 1000 * US;
        sl_fabric_run(&fabric, now_ns);
    }
    assert_int_equal(sent_count, 20);
    assert_int_equal(fabric.ports[1].counts.queue_most, 1000);
    assert_int_equal(sent[1].ecn, 2);
    assert_int_equal(sent[19].ecn, 3);
    assert_int_equal(sent[18].ecn, 0);
    unsigned marked = 0;
    for (unsigned i = 0; i < 20; i++) {
        marked += sent[i].ecn == 3;
        assert_true(sent[i].has_good_sum);
    }
    assert_int_equal(marked, fabric.ports[1].counts.marked);
    assert_in_range(marked, 7, 9);
    /* It empties while nothing comes. */
    now_ns += 1000 * MS;
    frames(0, 1, 1, 1000);
    now_ns += 1000 * US;
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent[20].ecn, 2);
}

/* The class is across two bytes, and what is beside it stays. */
static void packets_of_ipv6_are_marked_and_named_by_their_source_port(void **state)
{
    uint8_t bytes[14 + 40 + 8] = {[12] = 0x86, 0xdd,      0x66,        0x2a,
                                  0xbc,        [20] = 17, [54] = 0x13, 0x88};
    struct sl_fabric_frame frame = {.bytes = bytes, .len = sizeof(bytes)};

    assert_true(sl_fault_mark(&frame));
    assert_int_equal(bytes[14], 0x66);
    assert_int_equal(bytes[15], 0x3a);
    assert_false(sl_fault_mark(&frame)); /* it is already */
    bytes[15] = 0x0a;
    assert_false(sl_fault_mark(&frame)); /* cannot be marked */
    do_line("cut sport=5000");
    assert_true(sl_fault_draw(&fabric, &frame).lost);
    bytes[55] = 0x89;
    assert_false(sl_fault_draw(&fabric, &frame).lost);
}

static void losses_duplicates_and_damage_come_as_often_as_asked(void **state)
{
    all_known();
    do_line("fault loss=0.1 dup=0.05 corrupt=0.2");
    frames(0, 1, 10000, 200);
    const struct sl_fabric_counts *counts = &fabric.ports[1].counts;
    assert_in_range(counts->lost, 900, 1100);
    assert_in_range(counts->twice, 380, 520);
    assert_in_range(counts->damaged, 1650, 1950);
    assert_int_equal(sent_count, 10000 - counts->lost + counts->twice);
    unsigned damaged = 0;
    for (unsigned i = 0; i < sent_count; i++)
        damaged += sent[i].is_damaged;
    /* The rest hit the headers. */
    assert_in_range(damaged, counts->damaged / 2, counts->damaged);
}

static void one_seed_gives_the_same_faults_again(void **state)
{
    uint64_t lost[3];
    all_known();
    do_line("fault loss=0.5");
    for (unsigned i = 0; i < 3; i++) {
        do_line(i == 2 ? "seed value=6" : "seed value=5");
        do_line("reset");
        sent_count = 0;
        frames(0, 1, 1000, 100);
        lost[i] = 0;
        for (unsigned j = 0; j < sent_count; j++)
            lost[i] = lost[i] * 31 + sent[j].tag;
    }
    assert_int_equal(lost[0], lost[1]);
    assert_int_not_equal(lost[0], lost[2]);
}

static void late_frames_are_overtaken_and_delayed_ones_keep_their_order(void **state)
{
    all_known();
    do_line("fault out=1 delay_us=100");
    do_line("fault out=2 reorder=0.3 hold_us=50");
    frames(0, 1, 100, 100);
    assert_int_equal(sent_count, 0);
    assert_int_equal(sl_fabric_next(&fabric), now_ns + 100 * US);
    now_ns += 100 * US;
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 100);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(sent[i].tag, i);

    sent_count = 0;
    unsigned back = 0;
    for (unsigned i = 0; i < 1000; i++, now_ns += US) {
        frame_of(0, 2, 5000, i, 100, 2);
        sl_fabric_run(&fabric, now_ns);
    }
    now_ns += 50 * US;
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 1000);
    for (unsigned i = 1; i < 1000; i++)
        back += sent[i].tag < sent[i - 1].tag;
    assert_in_range(back, 100, 400);
}

static void a_cut_names_a_port_a_source_port_or_a_route_and_heals(void **state)
{
    all_known();
    do_line("cut port=3");
    frames(0, 3, 5, 100);
    frames(3, 0, 5, 100);
    assert_int_equal(sent_count, 0);
    frames(0, 1, 5, 100);
    assert_int_equal(sent_count, 5);
    do_line("heal port=3");
    frames(0, 3, 5, 100);
    assert_int_equal(sent_count, 10);

    do_line("cut sport=6000-6001");
    for (unsigned source = 5999; source < 6003; source++)
        frame_of(0, 1, source, source, 100, 2);
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 12);
    assert_int_equal(sent[10].tag, 5999);
    assert_int_equal(sent[11].tag, 6002);
    do_line("heal");
    frame_of(0, 1, 6000, 0, 100, 2);
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 13);

    do_line("cut in=0 route=2"); /* the third byte behind UDP */
    for (unsigned route = 0; route < 4; route++) {
        frame_of(0, 1, 5000, route << 16, 100, 2);
        frame_of(2, 1, 5000, route << 16, 100, 2);
    }
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 13 + 7);
}

static void a_port_that_takes_nothing_keeps_its_frames_in_order(void **state)
{
    all_known();
    room = 10;
    frames(0, 1, 100, 100);
    assert_int_equal(sent_count, 10);
    assert_true(sl_fabric_next(&fabric) <= now_ns);
    frames(0, 1, 0, 0);
    room = SENT_MAX;
    sl_fabric_run(&fabric, now_ns);
    assert_int_equal(sent_count, 100);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(sent[i].tag, i);
}

static void a_lossless_switch_says_when_it_has_no_room(void **state)
{
    all_known();
    room = 0;
    frames(0, 1, 400, 9000);
    assert_true(sl_fabric_has_room(&fabric));
    do_line("lossless");
    assert_true(sl_fabric_has_room(&fabric));
    frames(0, 1, 60, 9000);
    assert_false(sl_fabric_has_room(&fabric));
    assert_int_equal(fabric.ports[1].counts.full, 0);
    do_line("lossless value=0");
    assert_true(sl_fabric_has_room(&fabric));
}

static void a_line_that_is_wrong_changes_nothing_and_is_named(void **state)
{
    static const char *const bad[] = {
        "",
        "hop",
        "fault loss=1.1",
        "fault loss=-0.1",
        "fault loss=nan",
        "fault loss",
        "fault loss=",
        "fault rate=1G",
        "fault sport=9-8",
        "fault sport=1-65536",
        "fault sport=123456789-2",
        "fault route=256",
        "cut loss=0.5",
        "cut port=32",
        "shape rate=-1",
        "shape rate=1X",
        "shape rate=1GG",
        "shape port=4 rate=1G",
        "shape phantom=0",
        "shape high=64",
        "shape high=",
        "shape high_share=1.1",
        "seed 5",
    };
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (sl_fabric_command(&fabric, bad[i]) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    char longer[2000];
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = 0;
    assert_int_equal(sl_fabric_command(&fabric, longer), -EINVAL);
    assert_int_equal(fabric.rule_count, 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(fabric.ports[i].rate, 0);
    do_line("shape high=20");
    do_line("shape port=2 high=none");
    assert_int_equal(fabric.ports[1].high, 20);
    assert_int_equal(fabric.ports[2].high, SL_FABRIC_ANY);
}

static void faults_for_the_same_frames_replace_one_another_up_to_a_limit(void **state)
{
    do_line("fault port=1 loss=0.5");
    do_line("fault port=1 loss=0.25");
    assert_int_equal(fabric.rule_count, 1);
    assert_int_equal(fabric.rules[0].loss, UINT64_C(1) << 30);
    do_line("cut port=1 route=1");
    do_line("cut port=1 route=2");
    assert_int_equal(fabric.rule_count, 3);
    char line[64];
    for (unsigned i = 3; i < SL_FABRIC_RULES; i++) {
        snprintf(line, sizeof(line), "cut sport=%u", i);
        do_line(line);
    }
    assert_int_equal(sl_fabric_command(&fabric, "cut sport=5000"), -EINVAL);
    do_line("heal sport=5");
    do_line("cut sport=5000");
}

static void counters_are_printed_as_one_line(void **state)
{
    char text[8192] = "";
    const bool up[SL_FABRIC_PORTS] = {true, true};
    all_known();
    frames(0, 1, 3, 100);
    FILE *out = fmemopen(text, sizeof(text), "w");
    sl_fabric_print(&fabric, up, out);
    fclose(out);
    assert_non_null(strstr(text, "{\"port\": 1, \"up\": true, \"in_frames\": 0"));
    assert_non_null(strstr(text, "\"out_frames\": 3, \"out_bytes\": 300"));
    assert_non_null(strstr(text, "\"bytes_from\": [300, 0, 0, 0]"));
    assert_non_null(strstr(text, "{\"port\": 3, \"up\": false"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void a_mirror_gets_a_copy_of_all_that_others_send(void **state)
{
    all_known();
    do_line("mirror port=3");
    do_line("cut out=2");
    frames(0, 1, 5, 100);
    frames(0, 2, 5, 100); /* lost, but heard */
    assert_int_equal(sent_count, 15);
    for (unsigned i = 0; i < 15; i++)
        assert_true(sent[i].port == 3 || sent[i].port == 1);
    sent_count = 0;
    frames(0, 255, 1, 100); /* once, like everybody */
    assert_int_equal(sent_count, 2);
    frames(3, 0, 1, 100); /* what it says itself it does not hear */
    assert_int_equal(sent_count, 3);
    do_line("mirror");
    frames(0, 1, 1, 100);
    assert_int_equal(sent_count, 4);
    assert_int_equal(sl_fabric_command(&fabric, "mirror port=4"), -EINVAL);
    assert_int_equal(sl_fabric_command(&fabric, "mirror rate=1G"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_frame_to_nobody_known_goes_to_all_others),
        CASE(a_frame_goes_to_the_port_where_its_address_was_heard_last),
        CASE(a_mirror_gets_a_copy_of_all_that_others_send),
        CASE(a_frame_to_the_port_it_came_from_and_a_short_one_go_nowhere),
        CASE(a_thousand_addresses_and_more_do_not_hurt),
        CASE(a_shaped_port_sends_at_its_rate_and_loses_what_its_queue_does_not_hold),
        CASE(short_frames_tell_how_long_the_queue_was_and_all_how_late_they_left),
        CASE(a_frame_of_the_preferred_class_waits_for_the_one_on_the_wire_alone),
        CASE(the_order_is_that_of_the_times_at_which_the_wire_was_free),
        CASE(the_preferred_class_takes_no_more_than_its_share_from_the_other),
        CASE(a_queue_of_one_class_neither_fills_nor_marks_the_preferred_one),
        CASE(an_ipv6_packet_has_its_class_across_two_bytes),
        CASE(the_phantom_queue_marks_who_understands_marks_while_the_real_one_is_short),
        CASE(packets_of_ipv6_are_marked_and_named_by_their_source_port),
        CASE(losses_duplicates_and_damage_come_as_often_as_asked),
        CASE(one_seed_gives_the_same_faults_again),
        CASE(late_frames_are_overtaken_and_delayed_ones_keep_their_order),
        CASE(a_cut_names_a_port_a_source_port_or_a_route_and_heals),
        CASE(a_port_that_takes_nothing_keeps_its_frames_in_order),
        CASE(a_lossless_switch_says_when_it_has_no_room),
        CASE(a_line_that_is_wrong_changes_nothing_and_is_named),
        CASE(faults_for_the_same_frames_replace_one_another_up_to_a_limit),
        CASE(counters_are_printed_as_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
