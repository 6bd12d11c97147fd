/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are kept by the shape of the call; SLUICE_ALGO; long calls are timed. */
#include "world.h"

#include "collectives/select.h"

#include "collectives/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

static struct sl_call call_of(uint64_t count)
{
    return (struct sl_call){.coll = SL_ALLREDUCE, .dtype = SLUICE_I32, .count = count};
}

static void same_and_other(struct sluice_comm **comm, int rank)
{
    struct sl_call call = call_of(10), other = call_of(11), in_place = call_of(10);
    struct sl_plan *a, *b;

    (void)rank;
    in_place.in_place = true;
    EXPECT(sl_plan_get(*comm, &call, &a) == 0);
    EXPECT(sl_plan_get(*comm, &call, &b) == 0 && a == b);
    EXPECT(sl_plan_get(*comm, &other, &b) == 0 && a != b);
    EXPECT(sl_plan_get(*comm, &in_place, &b) == 0 && a != b);
    EXPECT((*comm)->calls.plan_count >= 3);
}

static void many_shapes(struct sluice_comm **comm, int rank)
{
    struct sl_call first = call_of(1);
    struct sl_plan *plan;

    (void)rank;
    for (uint64_t count = 1; count <= 600; count++) {
        struct sl_call call = call_of(count);

        EXPECT(sl_plan_get(*comm, &call, &plan) == 0);
        EXPECT(sl_plan_get(*comm, &first, &plan) == 0); /* in use all the time: it stays */
        EXPECT((*comm)->calls.plan_count <= 512);
    }
    EXPECT(plan->call.count == 1);
}

static void v_shapes(struct sluice_comm **comm, int rank)
{
    uint64_t counts[1] = {4}, offs[1] = {0}, moved[1] = {2}, fewer[1] = {3};
    const struct {
        const uint64_t *in_counts, *in_offs, *out_counts, *out_offs;
    } others[] = {{fewer, offs, counts, offs},
                  {counts, moved, counts, offs},
                  {counts, offs, fewer, offs},
                  {counts, offs, counts, moved}};
    struct sl_call call = {.coll = SL_ALL_TO_ALL_V,
                           .dtype = SLUICE_I32,
                           .in_counts = counts,
                           .in_offs = offs,
                           .out_counts = counts,
                           .out_offs = offs};
    struct sl_plan *a, *b;

    (void)rank;
    EXPECT(sl_plan_get(*comm, &call, &a) == 0);
    EXPECT(a->call.in_counts != counts); /* the arrays are the caller's: the plan has its own */
    EXPECT(sl_plan_get(*comm, &call, &b) == 0 && a == b);
    for (size_t i = 0; i < SL_ARRAY_LEN(others); i++) {
        call.in_counts = others[i].in_counts;
        call.in_offs = others[i].in_offs;
        call.out_counts = others[i].out_counts;
        call.out_offs = others[i].out_offs;
        EXPECT(sl_plan_get(*comm, &call, &b) == 0 && a != b);
    }
}

static void the_same_call_gets_the_same_plan_and_another_shape_another(void **state)
{
    (void)state;
    RUN(1, "", same_and_other);
    RUN(1, "", v_shapes);
}

static void the_plan_unused_for_longest_goes_when_there_are_too_many(void **state)
{
    (void)state;
    RUN(1, "", many_shapes);
}

/* ---- SLUICE_ALGO ---- */

static const char *algo_of(struct sluice_comm *comm, enum sl_coll coll)
{
    struct sl_call call = {.coll = coll, .dtype = SLUICE_I32, .count = 1000};
    struct sl_plan *plan;

    return sl_plan_get(comm, &call, &plan) == 0 ? plan->schedule.algo : "none";
}

static void forced_everywhere(struct sluice_comm **comm, int rank)
{
    (void)rank;
    EXPECT(strcmp(algo_of(*comm, SL_ALLREDUCE), "ring") == 0);
    EXPECT(strcmp(algo_of(*comm, SL_REDUCE_SCATTER), "ring") == 0);
    EXPECT(strcmp(algo_of(*comm, SL_GATHER), "none") != 0); /* has no ring: chosen freely */
}

static void forced_for_one(struct sluice_comm **comm, int rank)
{
    (void)rank;
    EXPECT(strcmp(algo_of(*comm, SL_ALLREDUCE), "ring") == 0);
    EXPECT(strcmp(algo_of(*comm, SL_ALL_GATHER), "bruck") == 0);
}

static void forced_unsuited(struct sluice_comm **comm, int rank)
{
    struct sl_call call = call_of(1 << 20);
    struct sl_plan *plan;

    (void)rank;
    EXPECT_ERROR(sl_plan_get(*comm, &call, &plan), -EINVAL,
                 "SLUICE_ALGO forces flat, which cannot");
}

static void an_algorithm_can_be_forced_for_all_or_for_one_collective(void **state)
{
    (void)state;
    RUN(3, "ALGO=ring", forced_everywhere);
    RUN(3, "ALGO=allreduce:ring,all_gather:bruck", forced_for_one);
}

/* Before anybody meets: a communicator whose every call would fail helps nobody. */
static void an_item_that_can_force_nothing_is_refused(void **state)
{
    static const struct {
        const char *setting, *words;
    } cases[] = {{"rong", "'rong', which is no algorithm"},
                 {"ring,", NULL},
                 {"allreduce:ring,all_gather:", "'', which is no algorithm"},
                 {"al_reduce:ring", "'al_reduce', which is no collective"},
                 {"allreduced:ring", "'allreduced', which is no collective"},
                 {"allreduc:ring", "'allreduc', which is no collective"},
                 {":ring", "'', which is no collective"},
                 {"allreduce:bruck", "bruck for allreduce, which it does not do"},
                 {"all_to_all:pairwise,allgather:frob", "'frob', which is no algorithm"}};

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        int err = sl_forced_check(cases[i].setting);

        assert_int_equal(err, cases[i].words != NULL ? -EINVAL : 0);
        if (err != 0 && strstr(sluice_last_error(), cases[i].words) == NULL)
            fail_msg("%s: %s", cases[i].setting, sluice_last_error());
    }
}

static void names_of_collectives_are_those_of_any_tongue(void **state)
{
    static const char *const names[] = {"all_to_all", "alltoall", "AllToAll", "all-to-all",
                                        "ALLTOALL"};
    const struct sl_algo *algo;
    char setting[64];

    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) {
        snprintf(setting, sizeof(setting), "%s:Bruck", names[i]);
        assert_int_equal(sl_forced_check(setting), 0);
        assert_int_equal(sl_forced_algo(setting, SL_ALL_TO_ALL, &algo), 0);
        assert_non_null(algo);
        assert_string_equal(algo->name, "bruck");
        assert_int_equal(sl_forced_algo(setting, SL_ALL_TO_ALL_V, &algo), 0);
        assert_null(algo);
    }
}

/* A little ahead by the model, messages were a third behind in truth. */
static void undecided(struct sluice_comm **comm, int rank)
{
    static const struct {
        double beta;
        const char *chosen;
    } cases[] = {{0.06, ": flat ("}, {0.0518, ": flat ("}, {0.03, ": binomial ("}};
    struct sl_call call = {.coll = SL_BROADCAST, .dtype = SLUICE_F32, .count = 16384};

    if (rank != 0)
        return;
    (*comm)->costs.shm.alpha = 224;
    (*comm)->costs.sync = 160;
    (*comm)->costs.copy = 0.008;
    (*comm)->costs.reduce = 0.004;
    (*comm)->correction.windows = (*comm)->correction.messages = 1.25;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        char *text = NULL;
        size_t len;
        FILE *out = open_memstream(&text, &len);

        (*comm)->costs.shm.beta = cases[i].beta;
        EXPECT(out != NULL && sl_select_explain(*comm, &call, out) == 0);
        fclose(out);
        EXPECT(strstr(text, cases[i].chosen) != NULL);
        free(text);
    }
}

static void messages_take_the_place_of_windows_if_they_are_ahead_by_a_tenth(void **state)
{
    RUN(2, "SHM_WINDOW_BYTES=1048576", undecided);
}

/* Pieces are counted in elements: one that is smaller than an element is an element. */
static void tiny_chunks(struct sluice_comm **comm, int rank)
{
    struct sl_call call = call_of(100);
    struct sl_schedule schedule;
    struct sl_shape shape;

    (void)rank;
    sl_call_shape(*comm, &call, &shape);
    EXPECT(sl_select_build(*comm, &shape, &schedule) == 0);
    sl_schedule_fini(&schedule);
    EXPECT(shape.chunk == ((*comm)->config.chunk_bytes + 3) / 4);
}

static void a_chunk_is_an_element_at_least(void **state)
{
    RUN(2, "CHUNK_BYTES=1 ALGO=ring", tiny_chunks);
    RUN(2, "CHUNK_BYTES=3 ALGO=ring", tiny_chunks);
    RUN(2, "CHUNK_BYTES=8 ALGO=ring", tiny_chunks);
    RUN(2, "ALGO=ring", tiny_chunks);
}

static void an_algorithm_that_does_not_suit_is_refused(void **state)
{
    (void)state;
    RUN(2, "ALGO=flat", forced_unsuited);
}

/* ---- what calls take ---- */

static void times_long_calls(struct sluice_comm **comm, int rank)
{
    static int32_t in[2][100000], out[2][100000];
    struct sl_call lengthy = call_of(100000), brief = call_of(10);
    struct sl_plan *plan;

    for (int i = 0; i < 5; i++) {
        EXPECT(sluice_allreduce(*comm, in[rank], out[rank], 100000, SLUICE_I32, SLUICE_SUM, NULL) ==
               0);
        EXPECT(sluice_allreduce(*comm, in[rank], out[rank], 10, SLUICE_I32, SLUICE_SUM, NULL) == 0);
    }
    EXPECT(sl_plan_get(*comm, &lengthy, &plan) == 0);
    EXPECT(plan->samples == 3 && plan->least_ns > 0); /* of the calls 1, 3 and 5 */
    EXPECT(plan->predicted_ns > 20000);
    EXPECT(sl_plan_get(*comm, &brief, &plan) == 0);
    EXPECT(plan->calls == 5 && plan->samples == 0); /* the clock would cost more than it tells */
}

static void every_second_long_call_is_timed_and_no_short_one(void **state)
{
    (void)state;
    RUN(2, "", times_long_calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_second_long_call_is_timed_and_no_short_one),
        cmocka_unit_test(the_same_call_gets_the_same_plan_and_another_shape_another),
        cmocka_unit_test(the_plan_unused_for_longest_goes_when_there_are_too_many),
        cmocka_unit_test(an_algorithm_can_be_forced_for_all_or_for_one_collective),
        cmocka_unit_test(an_item_that_can_force_nothing_is_refused),
        cmocka_unit_test(names_of_collectives_are_those_of_any_tongue),
        cmocka_unit_test(a_chunk_is_an_element_at_least),
        cmocka_unit_test(messages_take_the_place_of_windows_if_they_are_ahead_by_a_tenth),
        cmocka_unit_test(an_algorithm_that_does_not_suit_is_refused),
    };

    return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
