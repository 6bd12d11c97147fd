/* SPDX-License-Identifier: Apache-2.0 */
#include "collectives/calibrate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static const struct sl_costs good = {{250, 0.08}, {8000, 0.15}, 150, 0.03, 0.03, 0.05, 10, 0.04, 1};

static void costs_must_be_positive_numbers(void **state)
{
    const double bad[] = {0, -1, NAN, -NAN, INFINITY, -INFINITY, 1e300};

    (void)state;
    assert_true(sl_costs_sane(&good));
    for (size_t field = 0; field < 10; field++)
        for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
            struct sl_costs costs = good;

            memcpy((uint8_t *)&costs + field * sizeof(double), &bad[i], sizeof(double));
            assert_false(sl_costs_sane(&costs));
        }
}

/* Rank 0's verdict, with its costs overwritten on the way to the others. */
static struct sl_costs told;

static int false_rank_0(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    for (int i = 0; i < exchange->size; i++)
        memcpy((uint8_t *)out + (size_t)i * len, in, len);
    memcpy(out, &told, sizeof(told));
    return 0;
}

static void costs_of_a_false_rank_0_are_refused(void **state)
{
    struct sl_exchange exchange = {.rank = 1, .size = 2, .allgather = false_rank_0};
    static struct sl_plan *plans[4096];
    struct sl_ep connected = {.peer = 0};
    struct sl_peer peers[SL_PEERS_PAGE] = {{.ep = &connected, .wanted = true, .open = true}};
    struct sl_peer *page = peers;
    uint32_t hosts[2] = {0, 0};
    struct sl_worker worker = {.clock = &sl_clock_monotonic};
    struct sluice_comm comm = {.rank = 1,
                               .size = 2,
                               .worker = &worker,
                               .peers = {.size = 2, .pages = &page},
                               .host = hosts,
                               .calls.plans = plans};

    (void)state;
    sl_config_defaults(&comm.config);
    comm.config.tune = SL_TUNE_OFF;
    sl_list_init(&comm.calls.plan_lru);
    told = good;
    told.net.beta = NAN;
    assert_int_equal(sl_costs_find(&comm, &exchange), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "rank 0"));
}

/* ---- what is measured while other programs run ---- */

static const struct sl_costs_facts two_ranks = {.ranks = 2, .ranks_per_core = 1, .maps = true};
static const struct sl_costs_facts crowded = {.ranks = 64, .ranks_per_core = 32, .maps = true};
static const struct sl_costs_facts two_by_tcp = {.ranks = 2, .ranks_per_core = 1, .maps = false};
static const struct sl_costs_facts four_on_two = {.ranks = 4, .ranks_per_core = 2, .maps = true};

static struct sl_series series_of(const double *rounds, uint32_t count)
{
    struct sl_series series = {.count = count};

    memcpy(series.of_round, rounds, count * sizeof(*rounds));
    return series;
}

/* A barrier of two ranks while two busy loops had both cores: medians of 12, in ns, as they
 * came. */
static const double beside_busy_loops[] = {917504,  4012331, 131, 3998102, 2871, 129,
                                           8003411, 128,     141, 4000977, 1204, 133};

static void the_rounds_in_which_all_ranks_ran_are_found(void **state)
{
    struct sl_series series = series_of(beside_busy_loops, SL_ARRAY_LEN(beside_busy_loops));
    double ns;

    (void)state;
    assert_true(sl_series_estimate(&series, sl_costs_tolerance(&two_ranks), &ns));
    assert_true(ns == 128);
    assert_true(sl_series_disturbed(&series, sl_costs_tolerance(&two_ranks))); /* 5 of 12 agree */
}

static void one_lucky_round_is_not_believed(void **state)
{
    const double rounds[] = {2400, 31, 2510, 2380, 2600};
    struct sl_series series = series_of(rounds, SL_ARRAY_LEN(rounds));
    double ns;

    (void)state;
    assert_true(sl_series_estimate(&series, sl_costs_tolerance(&four_on_two), &ns));
    assert_true(ns == 2380);
    assert_false(sl_series_disturbed(&series, sl_costs_tolerance(&four_on_two)));
}

static void rounds_that_do_not_agree_say_so(void **state)
{
    const double rounds[] = {917504, 16384, 4000000, 262144, 65536};
    struct sl_series series = series_of(rounds, SL_ARRAY_LEN(rounds)), none = {.count = 0};
    double ns;

    (void)state;
    assert_false(sl_series_estimate(&series, sl_costs_tolerance(&two_ranks), &ns));
    assert_true(ns == 16384); /* still the best there is */
    assert_true(sl_series_disturbed(&series, sl_costs_tolerance(&two_ranks)));
    assert_false(sl_series_estimate(&none, sl_costs_tolerance(&two_ranks), &ns));
    assert_false(sl_series_disturbed(&none, sl_costs_tolerance(&two_ranks))); /* was not measured */
}

/* ---- what hardware can be ---- */

/* Found in a cache: measured in 2 ms while the machine was busy, and used for ever after. */
static struct sl_costs poisoned(void)
{
    struct sl_costs costs = good;

    costs.sync = 917504;
    costs.shm.alpha = 16384;
    return costs;
}

static void what_no_hardware_has_is_replaced_by_what_is_usual(void **state)
{
    struct sl_costs costs = poisoned(), usual = good;

    (void)state;
    assert_int_equal(sl_costs_repair(&usual, &two_ranks), 0);
    assert_true(sl_costs_equal(&usual, &good));
    assert_int_equal(sl_costs_repair(&costs, &two_ranks), 2);
    assert_true(costs.sync == sl_costs_built_in.sync);
    assert_true(costs.shm.alpha == sl_costs_built_in.shm.alpha);
    costs = poisoned();
    assert_int_equal(sl_costs_repair(&costs, &two_by_tcp), 1); /* 16 us are no wonder over tcp */
    assert_true(costs.shm.alpha == 16384);
    costs = poisoned();
    assert_int_equal(sl_costs_repair(&costs, &four_on_two), 1); /* nor where cores are shared */
    assert_true(costs.sync == 2400);
}

/* ---- from job to job ---- */

#define NOW UINT64_C(1800000000)
#define HOST 42

static struct sl_kept_costs measured(bool calm, double sync)
{
    struct sl_kept_costs kept = {.calm = calm, .measured_s = NOW, .host = HOST, .costs = good};

    kept.costs.sync = sync;
    return kept;
}

static void three_jobs_that_agree_settle_the_costs(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, fresh = measured(true, 128);

    (void)state;
    assert_false(sl_kept_usable(&kept, &two_ranks, HOST, NOW));
    for (unsigned job = 1; job <= 3; job++) {
        assert_false(sl_kept_settled(&kept, &two_ranks));
        assert_true(sl_kept_merge(&kept, &fresh, 0));
        assert_true(sl_kept_usable(&kept, &two_ranks, HOST, NOW));
        assert_int_equal(kept.confirmed, job);
        fresh.costs.sync = 160; /* near enough: what there is stays, and so do choices */
    }
    assert_true(sl_kept_settled(&kept, &two_ranks));
    assert_true(kept.costs.sync == 128);
}

static void another_word_begins_anew(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, fresh = measured(true, 128),
                         other = measured(true, 512);

    (void)state;
    sl_kept_merge(&kept, &other, 0);
    sl_kept_merge(&kept, &other, 0);
    kept.doubts = 2;
    assert_true(sl_kept_merge(&kept, &fresh, 0));
    assert_int_equal(kept.confirmed, 1);
    assert_int_equal(kept.doubts, 0);
    assert_true(kept.costs.sync == 128);
}

static void a_busy_machine_never_overrules_a_quiet_one(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, busy = measured(false, 2400),
                         quiet = measured(true, 128);

    (void)state;
    assert_true(sl_kept_merge(&kept, &busy, 0));
    assert_false(sl_kept_settled(&kept, &two_ranks));
    assert_true(sl_kept_merge(&kept, &quiet, 0)); /* replaced, though it was there first */
    assert_true(kept.costs.sync == 128);
    busy.measured_s++;
    assert_true(sl_kept_merge(&kept, &busy, 0)); /* that somebody looked is written */
    assert_true(kept.costs.sync == 128 && kept.calm && kept.measured_s == NOW);
    assert_int_equal(kept.confirmed, 1);
}

/* 64 ranks on 2 cores: each job measured for a second. */
static void where_ranks_share_cores_eight_jobs_look_and_no_more(void **state)
{
    struct sl_kept_costs kept = {.version = 0};
    struct sl_correction parted = {0, 0.015};

    (void)state;
    for (unsigned job = 1; job <= 8; job++) {
        struct sl_kept_costs fresh = measured(job % 2 == 0, job % 4 == 0 ? 4e5 : 3e6);

        assert_false(sl_kept_settled(&kept, &crowded));
        assert_true(sl_kept_merge(&kept, &fresh, 0));
    }
    assert_true(sl_kept_settled(&kept, &crowded));
    assert_false(sl_kept_settled(&kept, &two_ranks));
    assert_true(sl_kept_learn(&kept, &parted));
    assert_false(sl_kept_settled(&kept, &crowded));
}

static void on_a_machine_that_is_always_busy_the_lowest_of_eight_jobs_counts(void **state)
{
    struct sl_kept_costs kept = {.version = 0};

    (void)state;
    for (unsigned job = 1; job <= 8; job++) {
        struct sl_kept_costs busy = measured(false, job == 5 ? 256 : 1024);

        assert_false(sl_kept_settled(&kept, &two_ranks));
        assert_true(sl_kept_merge(&kept, &busy, 0));
    }
    assert_true(kept.costs.sync == 256);
    assert_true(sl_kept_settled(&kept, &two_ranks));
}

/* As on a machine that is busy: 250 ns for a message beside 2 us for a sync would choose
 * messages. */
static void beside_what_was_impossible_nothing_is_longer_than_usual(void **state)
{
    struct sl_costs costs = sl_costs_built_in;

    (void)state;
    costs.shm.alpha = 4e6;
    costs.sync = 2000;
    costs.copy = sl_costs_built_in.copy / 2;
    costs.net.alpha = 10 * sl_costs_built_in.net.alpha;
    assert_int_equal(sl_costs_repair(&costs, &two_ranks), 1);
    assert_true(costs.shm.alpha == sl_costs_built_in.shm.alpha);
    assert_true(costs.sync == sl_costs_built_in.sync);
    assert_true(costs.copy == sl_costs_built_in.copy / 2); /* others' work makes nothing shorter */
    assert_true(costs.net.alpha == 10 * sl_costs_built_in.net.alpha); /* of another moment */
    costs.sync = 2000;
    assert_int_equal(sl_costs_repair(&costs, &two_ranks), 0);
    assert_true(costs.sync == 2000); /* by itself, that is a host */
}

static void what_had_to_be_repaired_serves_one_job_and_is_not_kept(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, bad = measured(true, 917504);
    unsigned repaired = sl_costs_repair(&bad.costs, &two_ranks);

    (void)state;
    assert_int_equal(repaired, 1);
    assert_false(sl_kept_merge(&kept, &bad, repaired));
    assert_true(kept.costs.sync == 150);
}

static void costs_of_another_time_host_or_version_are_not_used(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, fresh = measured(true, 128), old;

    (void)state;
    sl_kept_merge(&kept, &fresh, 0);
    assert_true(sl_kept_usable(&kept, &two_ranks, HOST, NOW + 30 * 86400));
    assert_false(sl_kept_usable(&kept, &two_ranks, HOST, NOW + 30 * 86400 + 1));
    assert_false(sl_kept_usable(&kept, &two_ranks, HOST, NOW - 2 * 86400)); /* of the future */
    assert_false(sl_kept_usable(&kept, &two_ranks, HOST + 1, NOW));
    old = kept;
    old.version++;
    assert_false(sl_kept_usable(&old, &two_ranks, HOST, NOW));
    old = kept;
    old.costs = poisoned(); /* by whatever way it came there */
    assert_false(sl_kept_usable(&old, &two_ranks, HOST, NOW));
    old = kept;
    old.correction.windows = 1e9;
    assert_false(sl_kept_usable(&old, &two_ranks, HOST, NOW));
}

/* ---- from operations ---- */

static void operations_correct_predictions_by_little(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, fresh = measured(true, 128);
    struct sl_correction fits = {1.05, 0}, slower = {1.4, 0}, faster = {0, 0.6};

    (void)state;
    sl_kept_merge(&kept, &fresh, 0);
    assert_false(sl_kept_learn(&kept, &fits));
    assert_true(kept.correction.windows == 0);
    assert_true(sl_kept_learn(&kept, &slower));
    assert_true(kept.correction.windows == 1.25 && kept.correction.messages == 0);
    assert_false(sl_kept_learn(&kept, &slower)); /* a quarter at most */
    assert_true(sl_kept_learn(&kept, &faster));
    assert_true(kept.correction.messages == 0.875 && kept.correction.windows == 1.25);
    for (int i = 0; i < 5; i++)
        sl_kept_learn(&kept, &fits);
    assert_true(sl_correction_sane(&kept.correction));
    assert_int_equal(kept.confirmed, 1);
}

static void costs_that_have_parted_from_what_operations_take_are_measured_again(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, fresh = measured(true, 128);
    struct sl_correction parted = {0, 0.015};
    unsigned again = 0;

    (void)state;
    for (int job = 0; job < 30; job++) {
        if (!sl_kept_settled(&kept, &two_ranks)) {
            again++;
            sl_kept_merge(&kept, &fresh, 0);
        } else {
            sl_kept_learn(&kept, &parted);
        }
    }
    assert_true(sl_kept_settled(
        &kept, &two_ranks)); /* measured anew three times: then it is the program, not the costs */
    assert_int_equal(again, 3 + 3 * 3);
    assert_int_equal(kept.doubts, 3);
    assert_true(kept.correction.messages == 0);
}

static void people_are_told_when_and_how_well(void **state)
{
    struct sl_kept_costs kept = {.version = 0}, fresh = measured(true, 128);
    char text[SL_COSTS_SOURCE_MAX];

    (void)state;
    sl_kept_merge(&kept, &fresh, 0);
    kept.doubts = 1;
    kept.correction.windows = 1.25;
    sl_kept_describe(&kept, text, sizeof(text));
    assert_string_equal(
        text, "measured 2027-01-15 08:00 UTC on a quiet machine, 1 in a row, doubted by 1 job, "
              "corrected: windows x1.25, messages x1.00");
    kept.doubts = 2;
    sl_kept_describe(&kept, text, sizeof(text));
    assert_non_null(strstr(text, ", doubted by 2 jobs, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_must_be_positive_numbers),
        cmocka_unit_test(costs_of_a_false_rank_0_are_refused),
        cmocka_unit_test(the_rounds_in_which_all_ranks_ran_are_found),
        cmocka_unit_test(one_lucky_round_is_not_believed),
        cmocka_unit_test(rounds_that_do_not_agree_say_so),
        cmocka_unit_test(what_no_hardware_has_is_replaced_by_what_is_usual),
        cmocka_unit_test(three_jobs_that_agree_settle_the_costs),
        cmocka_unit_test(another_word_begins_anew),
        cmocka_unit_test(a_busy_machine_never_overrules_a_quiet_one),
        cmocka_unit_test(where_ranks_share_cores_eight_jobs_look_and_no_more),
        cmocka_unit_test(on_a_machine_that_is_always_busy_the_lowest_of_eight_jobs_counts),
        cmocka_unit_test(beside_what_was_impossible_nothing_is_longer_than_usual),
        cmocka_unit_test(what_had_to_be_repaired_serves_one_job_and_is_not_kept),
        cmocka_unit_test(costs_of_another_time_host_or_version_are_not_used),
        cmocka_unit_test(operations_correct_predictions_by_little),
        cmocka_unit_test(costs_that_have_parted_from_what_operations_take_are_measured_again),
        cmocka_unit_test(people_are_told_when_and_how_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
