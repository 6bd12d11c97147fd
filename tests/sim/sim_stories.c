/* SPDX-License-Identifier: Apache-2.0 */
/* Bugs that the swarm found, each as a scripted run that goes wrong again without its fix. Judged
 * as the swarm's runs are. */
#include "core/err.h"
#include "tests/sim/seeds.h"
#include "tests/sim/swarm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A calm network without windows, on which nothing is called yet. */
static void begin(struct swarm *s, uint32_t ranks, enum swarm_mode mode)
{
    seeds_quiet();
    memset(s, 0, sizeof(*s));
    s->seed = 1;
    s->ranks = ranks;
    s->mode = mode;
    sl_config_defaults(&s->config);
    s->config.timeout_ms = 400;
    s->config.connect_timeout_ms = 2000;
    s->config.shm_window_bytes = 128 << 10;
    s->config.status_signal = SL_OFF;
    s->config.tune = SL_TUNE_OFF;
    sl_sim_params_init(&s->params, ranks, 1);
    s->params.host = s->host;
    s->params.windows = false;
    s->params.faults = s->faults;
}

static void call(struct swarm *s, enum sl_coll coll, size_t count, enum sluice_dtype dtype,
                 uint32_t root)
{
    s->calls[s->call_count++] = (struct swarm_call){
        .coll = coll, .dtype = dtype, .op = SLUICE_SUM, .root = root, .count = count};
}

/* The last of these calls so far is another at this rank. */
static void but_rank(struct swarm *s, uint32_t culprit, enum sluice_dtype dtype, uint32_t root)
{
    s->culprit = culprit;
    s->odd = s->call_count - 1;
    s->wrong = s->calls[s->odd];
    s->wrong.dtype = dtype;
    s->wrong.root = root;
}

static void must_end_as_judged(struct swarm *s)
{
    char why[512] = "";

    if (!swarm_run(s, why, sizeof(why)))
        fail_msg("%s", why);
}

static void tell(struct swarm *s)
{
    must_end_as_judged(s);
    swarm_clean_up(s);
}

/* Swarm seed 22: a reduce of two types; the root took what came for its own. */
static void a_failed_step_keeps_its_operation_from_ending_well(void **state)
{
    struct swarm s;

    (void)state;
    begin(&s, 2, SWARM_MISMATCH);
    s.params.eager_max = 0;
    call(&s, SL_REDUCE, 5404, SLUICE_F64, 0);
    but_rank(&s, 0, SLUICE_BF16, 0);
    call(&s, SL_ALLREDUCE, 9185, SLUICE_F16, 0);
    call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
    must_end_as_judged(&s);
    assert_int_equal(s.rank[0].result[0], -EPROTO);
    swarm_clean_up(&s);
}

/* Swarm seed 54: the last words met full queues, and the others heard of a lost connection only. */
static void an_abort_is_told_though_queues_are_full(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct swarm s;

        begin(&s, 4, SWARM_ABORT);
        s.params.seed = seed;
        s.params.ctrls_max = 1;
        s.params.eagain_in = 2;
        /* All pairs are connected first: who dials a rank that has left hears of no abort. */
        call(&s, SL_ALL_TO_ALL, 10, SLUICE_I8, 0);
        call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
        s.calls[0].blocking = s.calls[1].blocking = true;
        call(&s, SL_ALLREDUCE, 1000, SLUICE_F32, 0);
        call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
        s.culprit = 2;
        s.abort_at = 3;
        must_end_as_judged(&s);
        for (uint32_t r = 0; r < s.ranks; r++)
            assert_int_equal(s.rank[r].result[3], -ECANCELED);
        swarm_clean_up(&s);
    }
}

/* Swarm seeds 619 and 891: 14 ranks of one host and 2 of another did not choose the same
 * algorithm. */
static void hosts_with_different_numbers_of_ranks_choose_alike(void **state)
{
    static const size_t counts[] = {1, 300, 5000, 12251, 20116, 60000};
    struct swarm s;

    (void)state;
    begin(&s, 16, SWARM_WELL);
    s.host[14] = s.host[15] = 1;
    s.params.windows = true;
    for (unsigned i = 0; i < SL_ARRAY_LEN(counts); i++)
        call(&s, SL_ALLREDUCE, counts[i], SLUICE_I32, 0);
    tell(&s);
}

/* Swarm seed 702: through windows a scatter's root needs nothing of the others. */
static void a_scatter_with_two_roots_through_windows_is_noticed(void **state)
{
    struct swarm s;

    (void)state;
    begin(&s, 3, SWARM_MISMATCH);
    s.params.windows = true;
    call(&s, SL_ALLREDUCE, 134, SLUICE_F32, 0);
    call(&s, SL_SCATTER, 2455, SLUICE_F16, 0);
    but_rank(&s, 1, SLUICE_F16, 1);
    call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
    tell(&s);
}

/* Swarm seed 6310: a stranger's message shifted what came after it by one place, and ranks handed
 * that on. */
static void nothing_is_passed_on_once_calls_differ(void **state)
{
    struct swarm s;

    (void)state;
    begin(&s, 6, SWARM_MISMATCH);
    s.params.eager_max = 0;
    s.params.latency_ns = 32768;
    s.params.ns_per_kib = 316;
    s.params.sends_max = 26;
    s.params.recvs_max = 14;
    call(&s, SL_SCATTER, 24258, SLUICE_U8, 1);
    but_rank(&s, 3, SLUICE_U8, 2);
    call(&s, SL_REDUCE_SCATTER, 83277, SLUICE_U8, 0);
    call(&s, SL_REDUCE, 7, SLUICE_U32, 4);
    s.calls[2].blocking = true;
    call(&s, SL_ALL_GATHER, 36, SLUICE_I8, 0);
    call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
    tell(&s);
}

/* Swarm seed 102710: both ranks send and neither receives, and the barrier went by windows. */
static void two_roots_of_two_ranks_are_noticed_at_the_next_call(void **state)
{
    struct swarm s;

    (void)state;
    begin(&s, 2, SWARM_MISMATCH);
    s.params.windows = true;
    call(&s, SL_BROADCAST, 17, SLUICE_I8, 0);
    but_rank(&s, 1, SLUICE_I8, 1);
    call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
    must_end_as_judged(&s);
    for (uint32_t r = 0; r < s.ranks; r++)
        assert_non_null(strstr(s.rank[r].text[1],
                               "number 1: rank 0 called broadcast(17 i8, root 0), rank 1 called"));
    swarm_clean_up(&s);
}

/* Swarm seed 104166: the same with scatters, after calls that were alike. */
static void two_roots_of_a_scatter_are_noticed_after_calls_that_were_alike(void **state)
{
    struct swarm s;

    (void)state;
    begin(&s, 2, SWARM_MISMATCH);
    s.params.windows = true;
    s.config.shm_window_bytes = 16384;
    call(&s, SL_ALLREDUCE, 9, SLUICE_I64, 1);
    call(&s, SL_SEND, 1, SLUICE_F16, 0);
    call(&s, SL_SCATTER, 7, SLUICE_U8, 1);
    s.calls[2].blocking = true;
    but_rank(&s, 0, SLUICE_U8, 0);
    call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
    must_end_as_judged(&s);
    for (uint32_t r = 0; r < s.ranks; r++)
        assert_non_null(strstr(s.rank[r].text[3],
                               "number 2: rank 0 called scatter(7 u8, root 0), rank 1 called"));
    swarm_clean_up(&s);
}

/* Swarm seed 2790: the odd rank led its host, needed nothing of the other host, and was through
 * with everything. */
static void the_leader_of_a_host_hears_that_its_scatter_was_another(void **state)
{
    static const uint32_t hosts[] = {0, 0, 1, 1};
    struct swarm s;

    (void)state;
    begin(&s, 4, SWARM_MISMATCH);
    s.seed = 2790;
    memcpy(s.host, hosts, sizeof(hosts));
    s.params.windows = true;
    s.config.shm_window_bytes = 16384;
    s.params.latency_ns = 1024;
    s.params.eager_max = 1024;
    s.faults[0] = (struct sl_sim_fault){
        .kind = SL_SIM_FREEZE, .rank = 2, .at_ns = 342880, .for_ns = 16943841};
    s.params.fault_count = 1;
    call(&s, SL_ALLREDUCE, 4557, SLUICE_U8, 3);
    call(&s, SL_ALLREDUCE, 9303, SLUICE_BF16, 3);
    call(&s, SL_SCATTER, 9, SLUICE_F32, 1);
    for (unsigned i = 0; i < s.call_count; i++)
        s.calls[i].blocking = true;
    but_rank(&s, 2, SLUICE_F32, 2);
    call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
    must_end_as_judged(&s);
    for (uint32_t r = 0; r < s.ranks; r++)
        assert_non_null(strstr(s.rank[r].text[3],
                               "number 3: ranks 0-1,3 called scatter(9 f32, root 1), rank 2"));
    swarm_clean_up(&s);
}

/* Swarm seed 1040838: what a rank leaves out of a scatter that sends nothing shows in the barrier,
 * from rank to rank: those who heard of it in the last round only were through and had left. */
static void no_rank_gets_through_a_barrier_after_calls_that_differ(void **state)
{
    struct swarm s;

    (void)state;
    begin(&s, 8, SWARM_MISMATCH);
    s.params.latency_ns = 8192;
    s.params.jitter_ns = 16384;
    s.params.ns_per_kib = 173;
    s.params.eager_max = 0;
    s.params.sends_max = 3;
    s.params.recvs_max = 8;
    call(&s, SL_REDUCE_SCATTER, 59, SLUICE_U8, 5);
    call(&s, SL_SCATTER, 1, SLUICE_F64, 4);
    but_rank(&s, 0, SLUICE_F64, 4);
    s.wrong.count = 0;
    call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
    must_end_as_judged(&s);
    for (uint32_t r = 0; r < s.ranks; r++)
        assert_non_null(strstr(s.rank[r].text[2],
                               "number 2: rank 0 called scatter(0 f64, root 4), ranks 1-7 called"));
    swarm_clean_up(&s);
}

/* Swarm seeds 1005785, 1015003 and 1016880: a rank that was through with everything destroyed its
 * communicator. Others, to whom it had said all that they needed, had not looked at its window
 * since, or still had to ask for its messages, and took that for waiting. */
static void a_rank_that_is_through_may_leave_at_once(void **state)
{
    static const uint32_t hosts[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2};

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct swarm s;

        begin(&s, 10, SWARM_WELL);
        s.seed = s.params.seed = seed;
        memcpy(s.host, hosts, sizeof(hosts));
        s.params.windows = true;
        s.config.shm_window_bytes = 8192 << seed % 2;
        s.params.latency_ns = 256;
        s.params.jitter_ns = seed % 3;
        s.params.ns_per_kib = 149;
        s.params.eager_max = 0;
        s.params.sends_max = 3;
        s.params.recvs_max = 4;
        snprintf(s.config.algo, sizeof(s.config.algo), "%s", seed % 4 == 3 ? "biring" : "halving");
        call(&s, SL_GATHER, 1059, SLUICE_I8, 3);
        call(&s, SL_BROADCAST, 58, SLUICE_U8, 5);
        call(&s, SL_REDUCE, 12, SLUICE_BF16, 7);
        must_end_as_judged(&s);
        swarm_clean_up(&s);
    }
}

/* A rank is gone at each moment of making communicators: what is pending then must not outlive its
 * memory (seen by the address sanitizer), and the first reason is the one that is told. */
static void a_rank_lost_while_connecting_is_named(void **state)
{
    (void)state;
    for (uint64_t at_ns = 0; at_ns < 200000; at_ns += 2500) {
        for (unsigned told = 0; told < 2; told++) {
            struct swarm s;

            begin(&s, 5, SWARM_FATAL);
            s.split = true;
            s.params.windows = true;
            s.faults[0] = (struct sl_sim_fault){
                .kind = SL_SIM_CRASH, .rank = 3, .at_ns = at_ns, .for_ns = told ? 3000 : SL_NEVER};
            s.params.fault_count = 1;
            call(&s, SL_ALLREDUCE, 100, SLUICE_F32, 0);
            call(&s, SL_BARRIER, 1, SLUICE_I8, 0);
            tell(&s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_step_keeps_its_operation_from_ending_well),
        cmocka_unit_test(an_abort_is_told_though_queues_are_full),
        cmocka_unit_test(hosts_with_different_numbers_of_ranks_choose_alike),
        cmocka_unit_test(a_scatter_with_two_roots_through_windows_is_noticed),
        cmocka_unit_test(nothing_is_passed_on_once_calls_differ),
        cmocka_unit_test(two_roots_of_two_ranks_are_noticed_at_the_next_call),
        cmocka_unit_test(two_roots_of_a_scatter_are_noticed_after_calls_that_were_alike),
        cmocka_unit_test(the_leader_of_a_host_hears_that_its_scatter_was_another),
        cmocka_unit_test(no_rank_gets_through_a_barrier_after_calls_that_differ),
        cmocka_unit_test(a_rank_that_is_through_may_leave_at_once),
        cmocka_unit_test(a_rank_lost_while_connecting_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
