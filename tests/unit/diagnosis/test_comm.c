/* SPDX-License-Identifier: Apache-2.0 */
/* Slow communication: networks made here, of which a part is slow, or none. */
#include "net_maker.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

struct fault {
    uint32_t src, dst, path; /* UINT32_MAX: any */
    double factor;
};

static double of_fault(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    const struct fault *fault = context;
    bool is_it = (fault->src == UINT32_MAX || fault->src == src) &&
                 (fault->dst == UINT32_MAX || fault->dst == dst) &&
                 (fault->path == UINT32_MAX || fault->path == path);

    return is_it ? fault->factor : 1;
}

static const struct fault slow_link = {3, 4, UINT32_MAX, 2};
static const struct fault slow_sender = {3, UINT32_MAX, UINT32_MAX, 2};
static const struct fault slow_receiver = {UINT32_MAX, 3, UINT32_MAX, 2};

/* Who only its one neighbour sees cannot be told from it. */
static void a_ring_gives_the_set_of_sender_receiver_and_link(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 16, 1);
    net.factor = of_fault;
    net.context = &slow_link;
    net_ring(&net, 1);
    assert_string_equal(net_judge(&net), "slow_link 3>4 +2");
    assert_int_equal(net_verdicts()->list[0].others[0].kind, SL_OBJECT_RANK);
    assert_int_equal(net_verdicts()->list[0].others[0].a, 3);
    assert_int_equal(net_verdicts()->list[0].others[1].a, 4);
    assert_true(net_verdicts()->list[0].probability < 0.5);
    assert_true(net_says("rank 3 as a sender; rank 4 as a receiver"));
    assert_true(net_says("to tell them apart, probe rank 3 to rank 0, rank 0 to rank 4"));
    net_end(&net);
}

/* The probes that the verdict asks for decide it. */
static void probes_break_the_set(void **state)
{
    static const struct {
        struct fault fault;
        const char *text;
    } cases[] = {{{3, 4, UINT32_MAX, 2}, "slow_link 3>4"},
                 {{3, UINT32_MAX, UINT32_MAX, 2}, "slow_sender 3"},
                 {{UINT32_MAX, 4, UINT32_MAX, 2}, "slow_receiver 4"}};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct net net;

        net_begin(&net, 16, 2);
        net.factor = of_fault;
        net.context = &cases[i].fault;
        net_ring(&net, 1);
        net_edge(&net, 3, 0);
        net_edge(&net, 0, 4);
        assert_string_equal(net_judge(&net), cases[i].text);
        net_end(&net);
    }
}

static void two_neighbours_tell_sender_receiver_and_link_apart(void **state)
{
    static const struct {
        const struct fault *fault;
        const char *text;
    } cases[] = {{&slow_link, "slow_link 3>4"},
                 {&slow_sender, "slow_sender 3"},
                 {&slow_receiver, "slow_receiver 3"}};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct net net;

        net_begin(&net, 16, 3);
        net.factor = of_fault;
        net.context = cases[i].fault;
        net_ring(&net, 1);
        net_ring(&net, 15);
        assert_string_equal(net_judge(&net), cases[i].text);
        net_end(&net);
        net_begin(&net, 24, 4);
        net.factor = of_fault;
        net.context = cases[i].fault;
        net_all_to_all(&net);
        assert_string_equal(net_judge(&net), cases[i].text);
        net_end(&net);
    }
}

static double both_ways(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    uint32_t rank = *(const uint32_t *)context;

    (void)path;
    return src == rank || dst == rank ? 1.8 : 1;
}

static void a_slow_port_is_slow_both_ways(void **state)
{
    static const uint32_t rank = 5;
    struct net net;

    (void)state;
    net_begin(&net, 16, 5);
    net.factor = both_ways;
    net.context = &rank;
    net_ring(&net, 1);
    assert_string_equal(net_judge(&net), "slow_link 5");
    net_end(&net);
    /* On all paths: it is none of them. */
    net_begin(&net, 16, 29);
    net.paths = 2;
    net.factor = both_ways;
    net.context = &rank;
    net_ring(&net, 1);
    assert_string_equal(net_judge(&net), "slow_link 5");
    net_end(&net);
}

/* ---- what is no fault ---- */

/* Ranks with an even number have NICs of half the speed: what they send or receive takes twice as
 * long. */
static double even_is_half(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    (void)context;
    (void)path;
    return src % 2 == 0 || dst % 2 == 0 ? 2 : 1;
}

static double low_rails_are_half(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    (void)context;
    (void)src;
    (void)dst;
    return path < 2 ? 2 : 1;
}

static void kinds_of_hardware_are_no_fault(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 24, 6);
    net.factor = even_is_half;
    net_all_to_all(&net);
    assert_string_equal(net_judge(&net), "");
    net_end(&net);
    net_begin(&net, 16, 7);
    net.paths = 4;
    net.factor = low_rails_are_half;
    net_ring(&net, 1);
    net_ring(&net, 15);
    assert_string_equal(net_judge(&net), "");
    net_end(&net);
}

static double half_and_slow(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    return even_is_half(context, src, dst, path) * (src == 7 ? 1.7 : 1);
}

static void a_fault_among_kinds_of_hardware_is_found(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 24, 8);
    net.factor = half_and_slow;
    net_all_to_all(&net);
    assert_string_equal(net_judge(&net), "slow_sender 7");
    assert_true(net_says("several speeds"));
    net_end(&net);
}

static void healthy_networks_are_silent(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct net net;

        net_begin(&net, 4 + seed % 29, seed);
        net.noise = 0.01 + 0.29 * (double)(seed % 7) / 6;
        net.messages = seed % 5 == 0 ? 3 : 500;
        net.size = (uint64_t)1 << (4 + seed % 20);
        if (seed % 3 == 0)
            net_all_to_all(&net);
        else
            net_ring(&net, 1);
        if (seed % 3 == 1)
            net_ring(&net, net.job->rank_count - 1);
        assert_string_equal(net_judge(&net), "");
        net_end(&net);
    }
}

/* Small messages take a latency: nobody is slow by the byte for sending them. */
static void sizes_are_compared_with_their_like(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 16, 9);
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t step = 1; step < 16; step++) {
            net.size = (uint64_t)1 << (8 + (r * 5 + step * 3) % 16);
            net.factor = of_fault;
            net.context = &slow_sender;
            net_edge(&net, r, (r + step) % 16);
        }
    net_judge(&net);
    for (uint32_t i = 0; i < net_verdicts()->count; i++)
        assert_int_equal(net_verdicts()->list[i].accused.a, 3);
    net_end(&net);
}

/* Longer than any that its peers send, and in proportion. */
static void a_larger_message_takes_longer(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 16, 26);
    net_ring(&net, 1);
    net.size = 6 << 20;
    net_edge(&net, 3, 9);
    assert_string_equal(net_judge(&net), "");
    net_end(&net);
}

static void two_messages_are_no_evidence(void **state)
{
    static const struct fault fault = {3, 4, UINT32_MAX, 50};
    struct net net;

    (void)state;
    net_begin(&net, 16, 27);
    net.factor = of_fault;
    net.context = &fault;
    for (net.messages = 2; net.messages <= 3; net.messages++) {
        net_ring(&net, 1);
        assert_string_equal(net_judge(&net), net.messages == 2 ? "" : "slow_link 3>4 +2");
        net.job->edge_count = 0;
    }
    net_end(&net);
}

static double every_third_is_longer(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    (void)context;
    (void)dst;
    (void)path;
    return src % 3 == 0 ? 1.6 : 1;
}

/* Six of twenty links of a ring, alike: a longer way, such as over a second switch. */
static void a_kind_of_link_is_no_fault(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 20, 28);
    net.factor = every_third_is_longer;
    net_ring(&net, 1);
    assert_string_equal(net_judge(&net), "");
    net_end(&net);
}

/* ---- groups ---- */

static double leaf_up(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    uint32_t leaf = *(const uint32_t *)context;

    (void)path;
    return src / 8 == leaf && dst / 8 != leaf ? 1.6 : 1;
}

static double leaf_all(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    uint32_t leaf = *(const uint32_t *)context;

    (void)path;
    return src / 8 == leaf || dst / 8 == leaf ? 1.6 : 1;
}

static double host_outside(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    return src / 8 != dst / 8 ? leaf_all(context, src, dst, path) : 1;
}

static void place(struct net *net, uint32_t per_host, uint32_t per_leaf)
{
    for (uint32_t r = 0; r < net->job->rank_count; r++) {
        char host[16], leaf[16];

        snprintf(host, sizeof(host), "h%02u", r / per_host);
        snprintf(leaf, sizeof(leaf), "leaf%u", r / per_leaf);
        net_host(net, r, host);
        if (r % per_host == 0)
            net_port(net, host, "", leaf);
    }
}

static void faults_are_lifted_to_leaves(void **state)
{
    static const uint32_t leaf = 2;
    struct net net;

    (void)state;
    net_begin(&net, 48, 10);
    place(&net, 1, 8);
    net.factor = leaf_up;
    net.context = &leaf;
    net_all_to_all(&net);
    assert_string_equal(net_judge(&net), "slow_group leaf2");
    assert_true(net_says("what goes up from leaf leaf2"));
    net_end(&net);
    net_begin(&net, 48, 11);
    place(&net, 1, 8);
    net.factor = leaf_all;
    net.context = &leaf;
    net_all_to_all(&net);
    assert_string_equal(net_judge(&net), "slow_group leaf2");
    net_end(&net);
}

/* A ring leaves a leaf once: its uplink is one more that could be it. */
static void a_ring_over_leaves_has_their_uplinks_in_the_set(void **state)
{
    static const struct fault fault = {15, 16, UINT32_MAX, 3};
    struct net net;

    (void)state;
    net_begin(&net, 48, 12);
    place(&net, 1, 8);
    net.factor = of_fault;
    net.context = &fault;
    net_ring(&net, 1);
    assert_string_equal(net_judge(&net), "slow_link 15>16 +4");
    assert_true(net_says("what goes up from leaf leaf1; what comes down to leaf leaf2"));
    net_end(&net);
}

static void one_slow_rail_of_eight_is_a_fault(void **state)
{
    static const struct fault fault = {UINT32_MAX, UINT32_MAX, 5, 2};
    struct net net;

    (void)state;
    net_begin(&net, 16, 13);
    net.paths = 8;
    net.factor = of_fault;
    net.context = &fault;
    net_ring(&net, 1);
    assert_string_equal(net_judge(&net), "slow_group mlx5_5");
    assert_int_equal(net_verdicts()->list[0].accused.kind, SL_OBJECT_RAIL);
    net_end(&net);
}

static void one_path_of_several_is_told_apart(void **state)
{
    static const struct fault fault = {3, UINT32_MAX, 1, 2};
    struct net net;

    (void)state;
    net_begin(&net, 16, 14);
    net.paths = 4;
    net.factor = of_fault;
    net.context = &fault;
    net_ring(&net, 1);
    net_ring(&net, 2);
    assert_string_equal(net_judge(&net), "slow_sender 3 mlx5_1");
    net_end(&net);
}

static double via_spine(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    (void)context;
    (void)path;
    return (src * 7 + dst * 3) % 4 == 1 ? 1.7 : 1;
}

static void a_switch_on_the_way_is_found_by_the_routes(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 24, 15);
    net.factor = via_spine;
    net_all_to_all(&net);
    for (uint32_t src = 0; src < 24; src++)
        for (uint32_t dst = 0; dst < 24; dst++) {
            char name[16];
            struct sl_job_route route = {.src = src, .dst = dst};

            snprintf(name, sizeof(name), "spine%u", (src * 7 + dst * 3) % 4);
            route.via = sl_job_text(net.job, name, strlen(name));
            assert_int_equal(sl_job_add_route(net.job, &route), 0);
        }
    assert_string_equal(net_judge(&net), "slow_group spine1");
    net_end(&net);
}

static double two_faults(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    (void)context;
    (void)path;
    return (src == 3 ? 2 : 1) * (dst == 11 ? 1.6 : 1);
}

static void two_faults_are_two_verdicts(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 24, 16);
    net.factor = two_faults;
    net_all_to_all(&net);
    assert_string_equal(net_judge(&net), "slow_sender 3, slow_receiver 11");
    net_end(&net);
}

static double leaf_and_rank(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    return leaf_all(context, src, dst, path) * (src == 17 || dst == 17 ? 2 : 1);
}

static void a_slower_rank_below_a_slow_leaf_is_found_too(void **state)
{
    static const uint32_t leaf = 2;
    struct net net;

    (void)state;
    net_begin(&net, 48, 17);
    place(&net, 1, 8);
    net.factor = leaf_and_rank;
    net.context = &leaf;
    net_all_to_all(&net);
    assert_string_equal(net_judge(&net), "slow_link 17, slow_group leaf2");
    net_end(&net);
}

static void hosts_of_several_ranks_are_lifted_to(void **state)
{
    static const uint32_t host = 2;
    struct net net;

    (void)state;
    net_begin(&net, 48, 18);
    place(&net, 8, 16);
    net.factor = host_outside;
    net.context = &host;
    net_all_to_all(&net);
    net_judge(&net);
    assert_int_equal(net_verdicts()->count, 1);
    assert_int_equal(net_verdicts()->list[0].cls, SL_VERDICT_SLOW_GROUP);
    assert_int_equal(net_verdicts()->list[0].accused.kind, SL_OBJECT_HOST);
    net_end(&net);
}

/* ---- what naive rules would say ---- */

static double seconds(const struct sl_job_edge *edge)
{
    return edge->wait_s[SL_JOB_WAIT_WIRE];
}

/* Who is beyond the mean of all senders by two standard deviations: how many. */
static uint32_t beyond_two_sigma(const struct sl_job *job, bool *has_fault, uint32_t rank)
{
    double rows[64] = {0}, mean = 0, square = 0;
    uint32_t found = 0, count = job->rank_count;

    for (size_t i = 0; i < job->edge_count; i++)
        rows[job->edges[i].src] += seconds(&job->edges[i]);
    for (uint32_t r = 0; r < count; r++)
        mean += rows[r] / count;
    for (uint32_t r = 0; r < count; r++)
        square += (rows[r] - mean) * (rows[r] - mean) / count;
    *has_fault = rows[rank] > mean + 2 * sqrt(square);
    for (uint32_t r = 0; r < count; r++)
        found += rows[r] > mean + 2 * sqrt(square);
    return found;
}

static const struct sl_job_edge *slowest(const struct sl_job *job)
{
    const struct sl_job_edge *most = &job->edges[0];

    for (size_t i = 1; i < job->edge_count; i++)
        if (seconds(&job->edges[i]) > seconds(most))
            most = &job->edges[i];
    return most;
}

static double slow_receivers_too(const void *context, uint32_t src, uint32_t dst, uint32_t path)
{
    return half_and_slow(context, src, dst, path) * (src == 4 && dst == 6 ? 1.04 : 1);
}

/* Controls: they must fail, or these cases would be too easy. */
static void naive_rules_fail(void **state)
{
    bool has_fault;
    struct net net;

    (void)state;
    /* The slowest cell is one of many, of a healthy network too: that names a link. */
    net_begin(&net, 24, 8);
    net.factor = slow_receivers_too;
    net_all_to_all(&net);
    assert_int_equal(slowest(net.job)->src, 7);
    assert_string_equal(net_judge(&net),
                        "slow_sender 7"); /* and not the link to one of its peers */
    net_end(&net);
    /* The slow sender is one of those of which the slower half of the hardware raises the mean. */
    net_begin(&net, 24, 23);
    net.factor = half_and_slow;
    for (uint32_t r = 0; r < 24; r++)
        for (uint32_t step = 1; step < 24; step += r % 2 == 0 ? 1 : 2)
            net_edge(&net, r, (r + step) % 24);
    beyond_two_sigma(net.job, &has_fault, 7);
    assert_false(has_fault);
    net_judge(&net);
    net_end(&net);
    /* Of a healthy ring somebody always is beyond two sigma, or the slowest. */
    net_begin(&net, 48, 24);
    net_ring(&net, 1);
    assert_true(beyond_two_sigma(net.job, &has_fault, 0) > 0);
    assert_string_equal(net_judge(&net), "");
    net_end(&net);
}

/* ---- what comes in ---- */

static void the_order_of_edges_does_not_matter(void **state)
{
    char first[4096], said[1024];
    struct net net;

    (void)state;
    net_begin(&net, 16, 19);
    net.factor = two_faults;
    net_all_to_all(&net);
    snprintf(first, sizeof(first), "%s", net_judge(&net));
    assert_int_equal(net_verdicts()->count, 2);
    snprintf(said, sizeof(said), "%s", net_verdicts()->list[0].evidence[0]);
    for (size_t i = net.job->edge_count - 1; i > 0; i--) {
        size_t k = sl_rng_below(&net.rng, i + 1);
        struct sl_job_edge swap = net.job->edges[i];

        net.job->edges[i] = net.job->edges[k];
        net.job->edges[k] = swap;
    }
    assert_string_equal(first, net_judge(&net));
    assert_string_equal(said, net_verdicts()->list[0].evidence[0]);
    net_end(&net);
}

static void nonsense_is_left_out(void **state)
{
    static const double values[] = {NAN,    INFINITY, -INFINITY, -1,    0,     1e308,
                                    1e-320, 1e30,     1,         1e-30, 1e100, -0.0};
    struct net net;

    (void)state;
    net_begin(&net, 12, 20);
    for (unsigned i = 0; i < 3000; i++) {
        struct sl_job_edge edge = {
            .src = (uint32_t)sl_rng_below(&net.rng, 12),
            .dst = (uint32_t)sl_rng_below(&net.rng, 12),
            .path = sl_rng_chance(&net.rng, 4) ? UINT32_MAX : 0,
            .messages = sl_rng_chance(&net.rng, 3) ? UINT64_MAX : sl_rng_below(&net.rng, 3),
            .bytes = sl_rng_chance(&net.rng, 3) ? UINT64_MAX : sl_rng_below(&net.rng, 5),
            .lost = UINT64_MAX};

        for (unsigned k = 0; k < SL_JOB_WAITS; k++)
            edge.wait_s[k] = values[sl_rng_below(&net.rng, 12)];
        assert_int_equal(sl_job_add_edge(net.job, &edge), 0);
        if (i % 100 == 99)
            net_judge(&net);
    }
    net_end(&net);
}

/* Without edges, messages that both ends list. */
static void messages_of_traces_make_a_matrix(void **state)
{
    struct net net;
    uint32_t comm;

    (void)state;
    net_begin(&net, 12, 21);
    assert_int_equal(sl_job_add_comm(net.job, sl_job_text(net.job, "pp", 2), &comm), 0);
    for (uint32_t seq = 0; seq < 200; seq++)
        for (uint32_t r = 0; r < 12; r++) {
            int64_t at = (int64_t)seq * 100000000, wait = (int64_t)sl_rng_below(&net.rng, 40000000);
            int64_t took = 1000000 + (int64_t)sl_rng_below(&net.rng, 40000);
            uint32_t peer = (r + 1) % 12;
            struct sl_job_op op = {.rank = r,
                                   .comm = comm,
                                   .peer = peer,
                                   .seq = seq,
                                   .bytes = 1 << 20,
                                   .issue_ns = SL_JOB_NEVER,
                                   .start_ns = at,
                                   .kind = SL_JOB_SEND,
                                   .state = SL_JOB_DONE};

            if (r == 6)
                took *= 3;
            op.start_ns = at + (seq % 2 == 0 ? wait : 0);
            op.end_ns = at + wait + took;
            assert_int_equal(sl_job_add_op(net.job, &op), 0);
            op.kind = SL_JOB_RECV;
            op.rank = peer;
            op.peer = r;
            /* Of another clock. */
            op.start_ns = 7777 + at + (seq % 2 == 0 ? 0 : wait);
            op.end_ns += 7777;
            assert_int_equal(sl_job_add_op(net.job, &op), 0);
        }
    assert_string_equal(net_judge(&net), "slow_link 6>7 +2");
    net_end(&net);
}

static void flushes_accuse_the_receiver_alone(void **state)
{
    struct net net;

    (void)state;
    net_begin(&net, 16, 22);
    net_ring(&net, 1);
    for (size_t i = 0; i < net.job->edge_count; i++)
        net.job->edges[i].wait_s[SL_JOB_WAIT_FLUSH] =
            0.01 * (1 + 0.01 * (double)sl_rng_below(&net.rng, 3)) *
            (net.job->edges[i].dst == 9 ? 4 : 1);
    assert_string_equal(net_judge(&net), "slow_receiver 9");
    assert_true(net_says("flushes into GPU memory"));
    net_end(&net);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The figure is in docs/perf/diagnosis-comm.md; here only what no machine should exceed. */
static void a_matrix_of_1024_by_1024_is_judged_quickly(void **state)
{
    struct net net;
    double begin, took;

    (void)state;
    net_begin(&net, 1024, 25);
    net.factor = of_fault;
    net.context = &slow_sender;
    net_all_to_all(&net);
    begin = now_ms();
    assert_string_equal(net_judge(&net), "slow_sender 3");
    took = now_ms() - begin;
    printf("# 1024 x 1024: %.0f ms of processor time\n", took);
    assert_true(took < 3000);
    net_end(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_gives_the_set_of_sender_receiver_and_link),
        cmocka_unit_test(probes_break_the_set),
        cmocka_unit_test(two_neighbours_tell_sender_receiver_and_link_apart),
        cmocka_unit_test(a_slow_port_is_slow_both_ways),
        cmocka_unit_test(kinds_of_hardware_are_no_fault),
        cmocka_unit_test(a_fault_among_kinds_of_hardware_is_found),
        cmocka_unit_test(healthy_networks_are_silent),
        cmocka_unit_test(sizes_are_compared_with_their_like),
        cmocka_unit_test(a_larger_message_takes_longer),
        cmocka_unit_test(two_messages_are_no_evidence),
        cmocka_unit_test(a_kind_of_link_is_no_fault),
        cmocka_unit_test(faults_are_lifted_to_leaves),
        cmocka_unit_test(a_ring_over_leaves_has_their_uplinks_in_the_set),
        cmocka_unit_test(one_slow_rail_of_eight_is_a_fault),
        cmocka_unit_test(one_path_of_several_is_told_apart),
        cmocka_unit_test(a_switch_on_the_way_is_found_by_the_routes),
        cmocka_unit_test(two_faults_are_two_verdicts),
        cmocka_unit_test(a_slower_rank_below_a_slow_leaf_is_found_too),
        cmocka_unit_test(hosts_of_several_ranks_are_lifted_to),
        cmocka_unit_test(naive_rules_fail),
        cmocka_unit_test(the_order_of_edges_does_not_matter),
        cmocka_unit_test(nonsense_is_left_out),
        cmocka_unit_test(messages_of_traces_make_a_matrix),
        cmocka_unit_test(a_matrix_of_1024_by_1024_is_judged_quickly),
        cmocka_unit_test(flushes_accuse_the_receiver_alone),
    };

    return cmocka_run_group_tests_name("diagnosis_comm", tests, NULL, NULL);
}
