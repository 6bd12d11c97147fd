/* SPDX-License-Identifier: Apache-2.0 */
/* Plants mistakes in good schedules and looks for the sentence that names each. */
#include "tests/util/mistakes.h"

#include "core/err.h"
#include "testing/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct test_coll coll;

static void build(const char *algo, enum sl_coll what, uint32_t size, uint64_t count,
                  uint64_t chunk, bool in_place)
{
    struct sl_shape base = {.coll = what,
                            .size = size,
                            .count = count,
                            .esize = 4,
                            .chunk = chunk,
                            .win_count = 4096,
                            .in_place = in_place};

    test_coll_fini(&coll);
    assert_int_equal(test_coll_build(&coll, test_algo(algo), &base, 1), 0);
    if (sl_check(coll.shapes, coll.schedules, 1) != 0)
        fail_msg("before the mistake: %s", sluice_last_error());
}

static struct sl_step *step_of(uint32_t rank, unsigned kind, uint32_t idx)
{
    return mistake_step(&coll, rank, kind, idx);
}

static void drop(uint32_t rank, const struct sl_step *step)
{
    struct sl_schedule *s = &coll.schedules[rank];
    uint32_t idx = (uint32_t)(step - s->steps);

    memmove(&s->steps[idx], &s->steps[idx + 1], (s->step_count - idx - 1) * sizeof(*step));
    s->step_count--;
}

static void caught(const char *sentence)
{
    mistake_caught(&coll, sentence, NULL);
}

static void a_wrong_block_is_named_by_its_elements(void **state)
{
    (void)state;
    build("ring", SL_ALLREDUCE, 4, 40, 0, false);
    step_of(1, SL_STEP_RECV_REDUCE, 0)->src_off -= 10;
    caught("rank 1, step 1 (recv_reduce): reduces operands of different elements");
}

static void a_wrong_buffer_loses_an_operand(void **state)
{
    (void)state;
    build("ring", SL_ALLREDUCE, 3, 30, 0, false);
    step_of(2, SL_STEP_SEND, 1)->src_buf = SL_BUF_IN;
    caught("holds the operand of rank 1 0 times");
}

static void a_missing_dependency_is_a_race(void **state)
{
    (void)state;
    build("ring", SL_REDUCE_SCATTER, 4, 10, 0, false);
    step_of(3, SL_STEP_SEND, 2)->dep_count = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_int_equal(sl_check(coll.shapes, coll.schedules, seed), -EINVAL);
        assert_true(strstr(sluice_last_error(), "nothing has been written") != NULL ||
                    strstr(sluice_last_error(), "nothing puts the two in order") != NULL);
    }
    test_coll_fini(&coll);
}

static void a_slot_of_tmp_reused_while_it_is_sent_is_a_race(void **state)
{
    (void)state;
    build("ring", SL_REDUCE_SCATTER, 5, 10, 0, false);
    struct sl_step *step = step_of(1, SL_STEP_RECV_REDUCE, 2);
    assert_int_equal(step->dep_count, 1);
    step->dep_count = 0;
    caught("overwrites tmp");
}

static void swapped_operands_of_one_rank_are_another_order(void **state)
{
    (void)state;
    build("doubling", SL_ALLREDUCE, 4, 10, 0, false);
    step_of(3, SL_STEP_RECV_REDUCE, 1)->flags &= ~SL_STEP_REMOTE_FIRST;
    caught("is summed in another order on rank 3 than on rank 0");
}

static void an_operand_counted_twice_is_one_too_many(void **state)
{
    (void)state;
    build("flat", SL_ALLREDUCE, 3, 10, 0, false);
    step_of(1, SL_STEP_REDUCE_WIN, 0)->flags = 0;
    sl_schedule_add(&coll.schedules[1], &(struct sl_step){.kind = SL_STEP_REDUCE,
                                                          .flags = SL_STEP_FINAL,
                                                          .src_buf = SL_BUF_IN,
                                                          .dst_buf = SL_BUF_OUT,
                                                          .count = 10});
    caught("reduces more operands than there are ranks");
}

static void an_operand_in_place_of_another_is_counted(void **state)
{
    (void)state;
    build("binomial", SL_REDUCE, 4, 10, 0, false);
    /* Rank 2 sends its own operand and rank 0's sum misses rank 3. */
    step_of(2, SL_STEP_SEND, 0)->src_buf = SL_BUF_IN;
    caught("holds the operand of rank 3 0 times");
}

static void a_rank_that_never_posts_is_named(void **state)
{
    (void)state;
    build("flat", SL_ALL_GATHER, 3, 10, 0, false);
    drop(2, step_of(2, SL_STEP_POST, 0));
    caught("rank 2: never posts");
}

static void a_missing_await_is_a_race_in_the_window(void **state)
{
    (void)state;
    build("direct", SL_ALLREDUCE, 3, 400, 100, false);
    drop(0, step_of(0, SL_STEP_AWAIT, 2));
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_int_equal(sl_check(coll.shapes, coll.schedules, seed), -EINVAL);
        assert_true(strstr(sluice_last_error(), "nothing has been written") != NULL ||
                    strstr(sluice_last_error(), "nothing puts the two in order") != NULL);
    }
    test_coll_fini(&coll);
}

static void a_slot_staged_too_early_is_a_race(void **state)
{
    (void)state;
    build("direct", SL_BROADCAST, 3, 800, 100, false);
    struct sl_step *await = step_of(0, SL_STEP_AWAIT, 1);
    assert_int_equal(await->value, 2);
    await->value = 1;
    caught("overwrites win");
}

static void three_slots_are_too_few_for_the_rounds_of_allreduce(void **state)
{
    (void)state;
    build("direct", SL_ALLREDUCE, 3, 800, 100, false);
    /* Chunk 4 of rank 1 goes where chunk 1 still is. */
    struct sl_schedule *s = &coll.schedules[1];
    uint32_t posts = 0;
    for (uint32_t i = 0; i < s->step_count; i++) {
        posts += s->steps[i].kind == SL_STEP_POST;
        if (posts == 4 && s->steps[i].kind == SL_STEP_COPY)
            s->steps[i].dst_off += s->steps[i].dst_off < 112 ? 100 : 0;
    }
    caught("nothing puts the two in order");
}

static void messages_in_another_order_differ_in_length(void **state)
{
    (void)state;
    build("binomial", SL_GATHER, 5, 10, 0, false);
    struct sl_step *a = step_of(0, SL_STEP_RECV, 0), *b = step_of(0, SL_STEP_RECV, 1);
    uint32_t peer = a->peer;
    a->peer = b->peer;
    b->peer = peer;
    caught("elements, but the message that it meets");
}

static void messages_of_one_length_in_another_order_land_wrong(void **state)
{
    (void)state;
    build("ring", SL_BROADCAST, 2, 40, 20, false);
    struct sl_step *a = step_of(0, SL_STEP_SEND, 0), *b = step_of(0, SL_STEP_SEND, 1);
    uint64_t off = a->src_off;
    assert_int_not_equal(off, b->src_off);
    a->src_off = b->src_off;
    b->src_off = off;
    caught("but should come from element");
}

static void a_rank_with_another_root_leaves_someone_alone(void **state)
{
    (void)state;
    build("linear", SL_SCATTER, 3, 10, 0, false);
    struct sl_shape other = coll.shapes[2];
    other.root = 1;
    sl_schedule_fini(&coll.schedules[2]);
    assert_int_equal(test_algo("linear")->build(&other, &coll.schedules[2]), 0);
    caught("of rank 2 meets it");
}

static void two_channels_to_one_peer_are_refused(void **state)
{
    (void)state;
    build("ring", SL_ALLREDUCE, 3, 30, 0, false);
    struct sl_step *step = step_of(1, SL_STEP_SEND, 2);
    step->channel = 1;
    caught("meets its peer in two channels");
}

static void final_twice_is_named(void **state)
{
    (void)state;
    build("ring", SL_ALLREDUCE, 3, 30, 0, false);
    step_of(0, SL_STEP_RECV_REDUCE, 0)->flags |= SL_STEP_FINAL;
    caught("reduces a value that was already marked final");
}

static void final_never_is_named(void **state)
{
    (void)state;
    build("halving", SL_ALLREDUCE, 4, 40, 0, false);
    step_of(1, SL_STEP_RECV_REDUCE, 1)->flags &= ~SL_STEP_FINAL;
    caught("was never marked final");
}

static void in_place_without_care_is_caught(void **state)
{
    (void)state;
    build("pairwise", SL_ALL_TO_ALL, 4, 10, 0, false);
    for (uint32_t r = 0; r < 4; r++)
        coll.shapes[r].in_place = true;
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_int_equal(sl_check(coll.shapes, coll.schedules, seed), -EINVAL);
    test_coll_fini(&coll);
}

static void writing_to_in_is_refused(void **state)
{
    (void)state;
    build("ring", SL_ALL_GATHER, 3, 10, 0, false);
    step_of(0, SL_STEP_RECV, 0)->dst_buf = SL_BUF_IN;
    step_of(0, SL_STEP_RECV, 0)->dst_off = 0;
    caught("writes to in, which is the caller's");
}

static void leaving_a_buffer_is_refused(void **state)
{
    (void)state;
    build("ring", SL_ALL_GATHER, 3, 10, 0, false);
    step_of(0, SL_STEP_RECV, 1)->dst_off += 11;
    caught("writes outside its buffer");
}

static void waiting_in_a_circle_is_found(void **state)
{
    (void)state;
    build("dissemination", SL_BARRIER, 2, 0, 0, false);
    for (uint32_t r = 0; r < 2; r++) {
        struct sl_schedule *s = &coll.schedules[r];
        struct sl_step send = s->steps[0];
        s->steps[0] = s->steps[1];
        s->step_count = 1;
        sl_schedule_add(s, &send);
        sl_schedule_depend(s, 0);
    }
    caught("waits in a circle");
}

static void a_barrier_of_too_few_rounds_is_found(void **state)
{
    (void)state;
    build("dissemination", SL_BARRIER, 4, 0, 0, false);
    for (uint32_t r = 0; r < 4; r++)
        coll.schedules[r].step_count = 2;
    caught("may end the barrier before rank");
}

static void posts_that_fall_are_refused(void **state)
{
    (void)state;
    build("direct", SL_GATHER, 2, 400, 100, false);
    step_of(1, SL_STEP_POST, 1)->value = 1;
    caught("posts a value that does not rise");
}

static void waiting_for_a_post_that_never_comes_is_named(void **state)
{
    (void)state;
    build("direct", SL_ALL_GATHER, 2, 400, 100, false);
    step_of(1, SL_STEP_AWAIT, 0)->value = 99;
    caught("rank 0 never posts 99");
}

static void ranks_that_disagree_on_the_last_post_are_named(void **state)
{
    (void)state;
    build("flat", SL_BARRIER, 3, 0, 0, false);
    step_of(1, SL_STEP_POST, 0)->value = 2;
    coll.schedules[1].win_values = 2;
    caught("disagree on the group or on the last post");
}

static void an_output_left_out_is_named(void **state)
{
    (void)state;
    build("flat", SL_ALL_GATHER, 3, 10, 0, false);
    drop(2, step_of(2, SL_STEP_GET, 1));
    caught("is never written");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_block_is_named_by_its_elements),
        cmocka_unit_test(a_wrong_buffer_loses_an_operand),
        cmocka_unit_test(a_missing_dependency_is_a_race),
        cmocka_unit_test(a_slot_of_tmp_reused_while_it_is_sent_is_a_race),
        cmocka_unit_test(swapped_operands_of_one_rank_are_another_order),
        cmocka_unit_test(an_operand_counted_twice_is_one_too_many),
        cmocka_unit_test(an_operand_in_place_of_another_is_counted),
        cmocka_unit_test(a_rank_that_never_posts_is_named),
        cmocka_unit_test(a_missing_await_is_a_race_in_the_window),
        cmocka_unit_test(a_slot_staged_too_early_is_a_race),
        cmocka_unit_test(three_slots_are_too_few_for_the_rounds_of_allreduce),
        cmocka_unit_test(messages_in_another_order_differ_in_length),
        cmocka_unit_test(messages_of_one_length_in_another_order_land_wrong),
        cmocka_unit_test(a_rank_with_another_root_leaves_someone_alone),
        cmocka_unit_test(two_channels_to_one_peer_are_refused),
        cmocka_unit_test(final_twice_is_named),
        cmocka_unit_test(final_never_is_named),
        cmocka_unit_test(in_place_without_care_is_caught),
        cmocka_unit_test(writing_to_in_is_refused),
        cmocka_unit_test(leaving_a_buffer_is_refused),
        cmocka_unit_test(waiting_in_a_circle_is_found),
        cmocka_unit_test(a_barrier_of_too_few_rounds_is_found),
        cmocka_unit_test(posts_that_fall_are_refused),
        cmocka_unit_test(waiting_for_a_post_that_never_comes_is_named),
        cmocka_unit_test(ranks_that_disagree_on_the_last_post_are_named),
        cmocka_unit_test(an_output_left_out_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
