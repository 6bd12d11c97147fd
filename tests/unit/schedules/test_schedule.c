/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/util/shapes.h"

#include "core/err.h"
#include "testing/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void added_steps_keep_their_dependencies(void **state)
{
    struct sl_schedule s;

    (void)state;
    sl_schedule_init(&s, "test");
    for (uint32_t i = 0; i < 100; i++) {
        struct sl_step step = {.kind = SL_STEP_POST, .channel = i % 3, .value = i};
        assert_int_equal(sl_schedule_add(&s, &step), i);
        for (uint32_t dep = 0; i >= 2 && dep < 2; dep++)
            sl_schedule_depend(&s, dep);
    }
    assert_int_equal(sl_schedule_finish(&s), 0);
    assert_int_equal(s.channel_count, 3);
    assert_int_equal(s.steps[99].value, 99);
    assert_int_equal(s.steps[99].dep_count, 2);
    assert_int_equal(s.deps[s.steps[99].dep_first + 1], 1);
    sl_schedule_fini(&s);
}

static void a_failed_append_ends_in_finish(void **state)
{
    struct sl_schedule s;

    (void)state;
    sl_schedule_init(&s, "test");
    s.error = -ENOMEM;
    assert_int_equal(sl_schedule_add(&s, &(struct sl_step){.kind = SL_STEP_POST}), 0);
    assert_int_equal(s.step_count, 0);
    assert_int_equal(sl_schedule_finish(&s), -ENOMEM);
    sl_schedule_fini(&s);
}

static void a_step_prints_as_one_line(void **state)
{
    struct sl_schedule s;
    char text[512] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    (void)state;
    sl_schedule_init(&s, "test");
    s.tmp_count = 5;
    sl_schedule_add(
        &s, &(struct sl_step){.kind = SL_STEP_RECV, .peer = 2, .dst_buf = SL_BUF_TMP, .count = 5});
    sl_schedule_add(&s, &(struct sl_step){.kind = SL_STEP_SEND,
                                          .channel = 1,
                                          .peer = 3,
                                          .src_buf = SL_BUF_TMP,
                                          .src_off = 1,
                                          .count = 4});
    sl_schedule_depend(&s, 0);
    sl_schedule_print(&s, out);
    fclose(out);
    assert_string_equal(text, "test: 2 steps, 2 channels, tmp 5\n"
                              "    0  ch0  recv        from 2 → tmp[0..5)\n"
                              "    1  ch1  send        tmp[1..5) to 3 after 0\n");
    sl_schedule_fini(&s);
}

static void the_hash_tells_shapes_apart_but_not_ranks(void **state)
{
    struct sl_shape a = {.coll = SL_ALLREDUCE, .rank = 0, .size = 4, .count = 100, .esize = 4};
    struct sl_shape b = a;

    (void)state;
    b.rank = 3;
    b.in_place = true;
    assert_int_equal(sl_shape_hash(&a, "ring"), sl_shape_hash(&b, "ring"));
    assert_int_not_equal(sl_shape_hash(&a, "ring"), sl_shape_hash(&a, "gnir"));
    b = a;
    b.count++;
    assert_int_not_equal(sl_shape_hash(&a, "ring"), sl_shape_hash(&b, "ring"));
    b = a;
    b.root = 1;
    assert_int_not_equal(sl_shape_hash(&a, "ring"), sl_shape_hash(&b, "ring"));
    b = a;
    b.coll = SL_REDUCE;
    assert_int_not_equal(sl_shape_hash(&a, "ring"), sl_shape_hash(&b, "ring"));
}

static void both_ends_of_a_message_have_one_hash(void **state)
{
    struct sl_shape send = {
        .coll = SL_SEND, .rank = 1, .size = 4, .root = 2, .count = 5, .esize = 4};
    struct sl_shape recv = send;

    (void)state;
    recv.coll = SL_RECV;
    recv.rank = 2;
    recv.root = 1;
    assert_int_equal(sl_shape_hash(&send, "p2p"), sl_shape_hash(&recv, "p2p"));
}

static void a_message_of_two_ranks_is_proved(void **state)
{
    struct sl_shape shapes[2] = {
        {.coll = SL_SEND, .rank = 0, .size = 2, .root = 1, .count = 5, .esize = 4},
        {.coll = SL_RECV, .rank = 1, .size = 2, .root = 0, .count = 5, .esize = 4},
    };
    struct sl_schedule schedules[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(test_algo("p2p")->build(&shapes[i], &schedules[i]), 0);
    assert_int_equal(sl_check(shapes, schedules, 1), 0);
    for (int i = 0; i < 2; i++)
        sl_schedule_fini(&schedules[i]);
}

static void every_cost_is_positive_where_a_schedule_exists(void **state)
{
    struct sl_costs costs = {.shm = {300, 0.1},
                             .net = {20000, 0.3},
                             .sync = 100,
                             .copy = 0.08,
                             .reduce = 0.1,
                             .step = 20,
                             .ranks_per_core = 1};

    (void)state;
    for (size_t a = 0; sl_algos[a] != NULL; a++) {
        for (unsigned c = 0; c < SL_ALL_TO_ALL_V; c++) {
            if ((sl_algos[a]->colls & 1u << c) == 0)
                continue;
            for (uint32_t n = 1; n < 9; n++) {
                struct sl_shape shape = {.coll = (enum sl_coll)c,
                                         .size = n,
                                         .count = 1000,
                                         .esize = 4,
                                         .win_count = 100000};
                struct sl_schedule s;
                int rc = sl_algos[a]->build(&shape, &s);
                double small = sl_algos[a]->cost(&shape, &costs);
                shape.count = 20000;
                double large = sl_algos[a]->cost(&shape, &costs);
                sl_schedule_fini(&s);
                assert_int_equal(rc == 0, small >= 0);
                if (rc == 0 && large >= 0)
                    assert_true(small < large);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_steps_keep_their_dependencies),
        cmocka_unit_test(a_failed_append_ends_in_finish),
        cmocka_unit_test(a_step_prints_as_one_line),
        cmocka_unit_test(the_hash_tells_shapes_apart_but_not_ranks),
        cmocka_unit_test(both_ends_of_a_message_have_one_hash),
        cmocka_unit_test(a_message_of_two_ranks_is_proved),
        cmocka_unit_test(every_cost_is_positive_where_a_schedule_exists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
