/* SPDX-License-Identifier: Apache-2.0 */
/* Probes between agents: packets of others, how many are answered, and what follows from times. */
#include "monitor/probe.h"

#include "core/rng.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SECRET "a secret that all agents share"

static uint8_t key[SL_DIGEST_BYTES];

static int begin(void **state)
{
    (void)state;
    return sl_probe_key(SECRET, strlen(SECRET), key);
}

static struct sl_probe_packet usual(void)
{
    return (struct sl_probe_packet){.kind = SL_PROBE_ANSWER,
                                    .len = 300,
                                    .session = UINT64_C(0x0123456789abcdef),
                                    .number = 77,
                                    .seen = 70,
                                    .sent_ns = UINT64_C(1764103151123456789),
                                    .came_ns = 5,
                                    .answered_ns = UINT64_MAX,
                                    .host = "node17"};
}

static void what_is_written_is_read_again(void **state)
{
    struct sl_probe_packet packet = usual(), got;
    uint8_t bytes[300];

    (void)state;
    assert_int_equal(sl_probe_write(&packet, key, bytes), 0);
    assert_int_equal(sl_probe_read(bytes, sizeof(bytes), key, &got), 0);
    assert_int_equal(got.kind, packet.kind);
    assert_int_equal(got.len, packet.len);
    assert_true(got.session == packet.session && got.number == 77 && got.seen == 70);
    assert_true(got.sent_ns == packet.sent_ns && got.came_ns == 5 && got.answered_ns == UINT64_MAX);
    assert_string_equal(got.host, "node17");
}

static void what_somebody_else_makes_is_refused(void **state)
{
    struct sl_probe_packet packet = usual(), got;
    uint8_t bytes[300], other[SL_DIGEST_BYTES];

    (void)state;
    assert_int_equal(sl_probe_write(&packet, key, bytes), 0);
    for (unsigned i = 0; i < SL_PROBE_LEAST; i++) {
        bytes[i] ^= 1;
        assert_int_equal(sl_probe_read(bytes, sizeof(bytes), key, &got), -EBADMSG);
        bytes[i] ^= 1;
    }
    for (size_t len = 0; len < sizeof(bytes); len++)
        assert_int_equal(sl_probe_read(bytes, len, key, &got), -EBADMSG);
    assert_int_equal(sl_probe_key("another secret of others", 24, other), 0);
    assert_int_equal(sl_probe_read(bytes, sizeof(bytes), other, &got), -EBADMSG);
    assert_int_equal(sl_probe_read(bytes, sizeof(bytes), key, &got), 0);
    /* Signed, and a name that would move a terminal all the same. */
    snprintf(packet.host, sizeof(packet.host), "a\033[2J");
    assert_int_equal(sl_probe_write(&packet, key, bytes), 0);
    assert_int_equal(sl_probe_read(bytes, sizeof(bytes), key, &got), -EBADMSG);
}

static void so_many_are_answered_and_no_more(void **state)
{
    struct sl_probe_bucket bucket;
    uint64_t now = 1000000000;
    unsigned taken = 0;

    (void)state;
    sl_probe_bucket_init(&bucket, 1000, now);
    for (unsigned i = 0; i < 100000; i++) {
        now += 100000; /* 10,000 a second for ten seconds */
        taken += sl_probe_bucket_take(&bucket, now);
    }
    assert_in_range(taken, 10000, 10000 + 1000 / 4 + 1);
    assert_false(sl_probe_bucket_take(&bucket, now));
    assert_true(sl_probe_bucket_take(&bucket, now + 1000000));
    taken = 0;
    for (unsigned i = 0; i < 1000; i++) /* after a long rest no more than a burst */
        taken += sl_probe_bucket_take(&bucket, now + UINT64_C(3600000000000));
    assert_in_range(taken, 250, 252);
}

static void packets_of_a_session_are_counted(void **state)
{
    static struct sl_probe_sessions sessions;

    (void)state;
    for (unsigned i = 1; i <= 5; i++)
        assert_int_equal(sl_probe_seen(&sessions, 7, i), i);
    for (unsigned i = 0; i < SL_PROBE_SESSIONS - 1; i++)
        assert_int_equal(sl_probe_seen(&sessions, 100 + i, 10 + i), 1);
    assert_int_equal(sl_probe_seen(&sessions, 7, 100), 6);
    assert_int_equal(sl_probe_seen(&sessions, 999, 101), 1); /* in place of the oldest */
    assert_int_equal(sl_probe_seen(&sessions, 100, 102), 1);
    assert_int_equal(sl_probe_seen(&sessions, 7, 103), 7);
}

static void loss_and_delay_are_those_of_the_way(void **state)
{
    struct sl_probe_time times[1000] = {{.rtt_ns = 0}};
    struct sl_probe_result result;
    uint32_t seen = 0, lost[2] = {0};
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 5);
    for (unsigned i = 0; i < 1000; i++) {
        bool there = i != 999 && sl_rng_u64(&rng) % 10 == 0;
        bool back = i != 999 && sl_rng_u64(&rng) % 20 == 0;
        int64_t extra = (int64_t)(sl_rng_u64(&rng) % 1000);

        lost[0] += there;
        lost[1] += !there && back;
        if (there)
            continue;
        seen++;
        if (back)
            continue;
        /* The other's clock is an hour behind. */
        times[i] = (struct sl_probe_time){.rtt_ns = 30000 + extra,
                                          .there_ns = 10000 + extra - 3600000000000,
                                          .back_ns = 20000 + 3600000000000,
                                          .seen = seen,
                                          .is_answered = true};
    }
    assert_int_equal(sl_probe_judge(times, 1000, &result), 0);
    assert_int_equal(result.answered, 1000 - lost[0] - lost[1]);
    assert_int_equal(result.lost_there, lost[0]);
    assert_int_equal(result.lost_back, lost[1]);
    assert_in_range(result.rtt.least_ns, 30000, 30020);
    assert_in_range(result.rtt.p50_ns, 30400, 30600);
    assert_in_range(result.rtt.p99_ns, 30950, 31000);
    assert_int_equal(result.there.least_ns, 0);
    assert_in_range(result.there.p99_ns, 900, 1000);
    assert_int_equal(result.back.most_ns, 0);
}

static void nothing_answered_and_strange_counts_are_no_trouble(void **state)
{
    struct sl_probe_time times[3] = {{.rtt_ns = 0}};
    struct sl_probe_result result;

    (void)state;
    assert_int_equal(sl_probe_judge(times, 3, &result), 0);
    assert_int_equal(result.answered, 0);
    assert_int_equal(result.lost_there + result.lost_back, 0);
    times[1].is_answered = true;
    times[1].seen = 1000; /* the other counts duplicates, or another asker's */
    assert_int_equal(sl_probe_judge(times, 3, &result), 0);
    assert_int_equal(result.lost_there, 0);
    assert_int_equal(result.lost_back, 1);
    times[1].seen = 0;
    assert_int_equal(sl_probe_judge(times, 3, &result), 0);
    assert_int_equal(result.lost_there, 1);
    assert_int_equal(sl_probe_judge(times, 0, &result), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(what_is_written_is_read_again),
        CASE(what_somebody_else_makes_is_refused),
        CASE(so_many_are_answered_and_no_more),
        CASE(packets_of_a_session_are_counted),
        CASE(loss_and_delay_are_those_of_the_way),
        CASE(nothing_answered_and_strange_counts_are_no_trouble),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
