/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger on the wire of live ports: test_hostile [SEEDS]. Without the secret of a flow he
 * resets nothing, adds no byte and slows nothing down. */
#include "tests/unit/dpdk/stranger.h"

#include "core/clock.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LIST "ring:h/0@ip=10.7.0.1/24@gw=10.7.0.254 ring:h/1@ip=10.7.0.2/24"
#define WARM_MESSAGES 2
#define MESSAGES 60
#define RUN_MS 20000
#define ROUNDS 5

static struct live_pair pair;
static struct stranger stranger;
static unsigned seeds = 3;

/* Packets that were thrown away, at both ends. */
static uint64_t thrown(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < 2; i++) {
        struct sl_dpdk_port_stats port;

        sl_dpdk_port_stats(pair.end[i].port, &port);
        sum += port.foreign + port.unknown + pair.end[i].engine.dropped_bad +
               pair.end[i].engine.dropped_secret + pair.end[i].engine.dropped_crc;
    }
    return sum;
}

static uint64_t repeated(void)
{
    struct sl_dp_flow_stats a, b;

    sl_dp_flow_stats(pair.end[0].flow, &a);
    sl_dp_flow_stats(pair.end[1].flow, &b);
    return a.resent_packets + b.resent_packets;
}

static void run(uint32_t messages, const char *what)
{
    if (!live_run(&pair, true, messages, RUN_MS, stranger_act, &stranger))
        fail_msg("%s: %u of %u and %u of %u messages, %lu and %lu wrong; %s %s", what,
                 pair.end[0].retired, pair.end[0].posted, pair.end[1].retired, pair.end[1].posted,
                 (unsigned long)pair.end[0].wrong, (unsigned long)pair.end[1].wrong,
                 pair.end[0].failed, pair.end[1].failed);
}

static void attack(enum sl_forge_kind kind, unsigned seed)
{
    const char *what = sl_forge_word(kind);
    uint64_t thrown_before, sent_before = stranger.sent, resent_before, seen_before;
    struct sl_dpdk_way ways[2] = {pair.end[0].way, pair.end[1].way};

    sl_rng_init(&stranger.forge.rng, seed * 64 + kind);
    stranger.kind = kind;
    stranger.percent = 0;
    sl_forge_forget(&stranger.forge);
    assert_int_equal(live_renew(&pair), 0);
    run(WARM_MESSAGES, what);
    thrown_before = thrown();
    resent_before = repeated();
    seen_before = stranger.seen;
    stranger.percent = 50;
    run(MESSAGES, what);
    stranger.percent = 0;
    run(1, what); /* what he sent last has come */
    uint64_t sent = stranger.sent - sent_before, came = thrown() - thrown_before;
    uint64_t seen = stranger.seen - seen_before, again = repeated() - resent_before;

    if (sent < seen / 4)
        fail_msg("%s: only %lu packets beside %lu", what, (unsigned long)sent, (unsigned long)seen);
    /* Copies are no lies; ARP is counted nowhere. All else is thrown away, each packet. */
    if (came != (kind == SL_FORGE_DOUBLE || kind == SL_FORGE_ARP_LIE ? 0 : sent))
        fail_msg("%s: %lu of %lu packets were thrown away", what, (unsigned long)came,
                 (unsigned long)sent);
    if (again > seen / 50)
        fail_msg("%s: %lu of %lu packets were sent again", what, (unsigned long)again,
                 (unsigned long)seen);
    assert_memory_equal(ways[0].head, pair.end[0].way.head, 12);
    assert_memory_equal(ways[1].head, pair.end[1].way.head, 12);
    assert_int_equal(live_renew(&pair), 0); /* headers made anew go the same way */
    assert_memory_equal(ways[0].head, pair.end[0].way.head, 12);
    assert_memory_equal(ways[1].head, pair.end[1].way.head, 12);
}

static void whatever_a_stranger_sends_nothing_ends_nothing_is_added(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        for (int kind = 0; kind < SL_FORGE_KINDS; kind++)
            attack((enum sl_forge_kind)kind, seed);
    }
}

/* Of the processor, by both ends; the stranger's own time is not counted. */
static double time_of_run(unsigned percent)
{
    uint64_t before = pair.busy_ns;

    stranger.percent = percent;
    run(4 * MESSAGES, "time");
    return (double)(pair.busy_ns - before);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* What a packet takes that is looked at and thrown away: the transfer has the rest. */
static void a_transfer_beside_a_stranger_has_nearly_its_speed(void **state)
{
    static const unsigned percents[] = {10, 100};

    (void)state;
    stranger.kind = SL_FORGE_FIELDS;
    for (size_t i = 0; i < 2; i++) {
        double ratios[ROUNDS];

        for (unsigned round = 0; round < ROUNDS; round++) {
            double alone = time_of_run(0);

            ratios[round] = alone / time_of_run(percents[i]);
        }
        qsort(ratios, ROUNDS, sizeof(ratios[0]), compare);
        printf("# beside a stranger who sends %u packets for 100: %.2f of its speed alone (%.2f to "
               "%.2f)\n",
               percents[i], ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
        assert_true(ratios[ROUNDS / 2] > 0.5);
    }
    stranger.percent = 0;
}

/* ---- ARP ---- */

static const struct sl_dpdk_address far = {.ip = {10, 9, 0, 1}, .udp_port = 47809};
static const uint8_t good[6] = {2, 1, 1, 1, 1, 1}, evil[6] = {2, 0xee, 0xee, 0xee, 0xee, 0xee};

static void say(const uint8_t mac[6])
{
    stranger_says(&stranger, 0, mac, (const uint8_t[4]){10, 7, 0, 254});
    (void)sl_dpdk_user_poll(pair.end[0].user, pair.end[0].port, 64);
}

/* The first answer counts, and none before the question or after it. */
static void a_gateway_is_who_answers_first_when_it_is_asked(void **state)
{
    struct sl_dpdk_way way;

    (void)state;
    say(evil);
    assert_int_equal(sl_dpdk_way_make(pair.end[0].port, &far, 50000, 0, &way), -EAGAIN);
    say(good);
    say(evil);
    assert_int_equal(sl_dpdk_way_make(pair.end[0].port, &far, 50000, 0, &way), 0);
    assert_memory_equal(way.head, good, 6);
}

static int open_all(void **state)
{
    (void)state;
    if (live_open(&pair, LIST) != 0 || stranger_open(&stranger, &pair, "h") != 0) {
        printf("# %s\n", sluice_last_error());
        return -1;
    }
    return live_run(&pair, true, 4, RUN_MS, stranger_act, &stranger) ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    live_close(&pair);
    stranger_close(&stranger);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gateway_is_who_answers_first_when_it_is_asked),
        cmocka_unit_test(whatever_a_stranger_sends_nothing_ends_nothing_is_added),
        cmocka_unit_test(a_transfer_beside_a_stranger_has_nearly_its_speed),
    };

    seeds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    return cmocka_run_group_tests(tests, open_all, close_all);
}
