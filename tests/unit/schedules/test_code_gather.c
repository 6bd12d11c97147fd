/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce by gathered encodings: when it is taken, and mistakes that the prover must find. */
#include "coded.h"

static const struct sl_code few = {.bytes = bytes, .tile = TILE, .sparse = true, .mark = 7};

static void a_rank_that_adds_its_elements_as_they_are_is_found(void **state)
{
    struct sl_shape base = shape_of(SL_ALLREDUCE, 3, TILE);

    (void)state;
    build_by(&sl_algo_code_gather, &base);
    struct sl_step *own = step_of(0, SL_STEP_DECODE, 0);

    assert_int_equal(own->stream, 0);
    *own = (struct sl_step){.kind = SL_STEP_COPY,
                            .channel = own->channel,
                            .src_buf = SL_BUF_IN,
                            .dst_buf = SL_BUF_OUT,
                            .count = TILE};
    caught("is summed in another order on rank 1 than on rank 0", NULL);
}

/* As the messages come: its own before another's. Each waits for what it adds. */
static void a_rank_that_adds_in_another_order_is_found(void **state)
{
    struct sl_shape base = shape_of(SL_ALLREDUCE, 4, TILE);

    (void)state;
    build_by(&sl_algo_code_gather, &base);
    struct sl_step *first = step_of(2, SL_STEP_DECODE_REDUCE, 0);
    struct sl_step *second = step_of(2, SL_STEP_DECODE_REDUCE, 1), keep = *first;
    uint32_t *deps = coll.schedules[2].deps, there = deps[first->dep_first];

    assert_true(first->stream == 1 && second->stream == 2);
    deps[first->dep_first] = deps[second->dep_first];
    deps[second->dep_first] = there;
    first->src_off = second->src_off;
    first->stream = second->stream;
    second->src_off = keep.src_off;
    second->stream = keep.stream;
    caught("is summed in another order on rank 2 than on rank 0", NULL);
}

static void a_value_goes_through_the_codec_once(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 9; n++) {
        struct sl_shape base = shape_of(SL_ALLREDUCE, n, 3 * TILE);

        build_by(&sl_algo_code_gather, &base);
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(count_of(r, SL_STEP_ENCODE), 3);
            assert_int_equal(count_of(r, SL_STEP_SEND), 3 * (n - 1));
            for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(step_of(r, SL_STEP_ENCODE, i)->stage, 0);
                assert_int_equal(step_of(r, SL_STEP_DECODE, i)->stream, 0);
            }
            for (uint32_t i = 0; i < 3 * (n - 1); i++) {
                const struct sl_step *step = step_of(r, SL_STEP_DECODE_REDUCE, i);

                assert_int_equal(step->stream, i % (n - 1) + 1);
                assert_int_equal(step->flags, step->stream == n - 1 ? SL_STEP_FINAL : 0);
            }
        }
    }
    test_coll_fini(&coll);
}

/* Bytes that the rank that sends most sends. */
static uint64_t most_sent(void)
{
    uint64_t most = 0;

    for (uint32_t r = 0; r < coll.built; r++) {
        uint64_t sent = 0;

        for (uint32_t i = 0; i < coll.schedules[r].step_count; i++)
            if (coll.schedules[r].steps[i].kind == SL_STEP_SEND)
                sent += coll.schedules[r].steps[i].wire_len;
        most = sent > most ? sent : most;
    }
    return most;
}

/* For codecs that keep few elements: where one shot would send as much, or more. */
static void it_is_taken_where_it_sends_no_more_than_one_shot(void **state)
{
    unsigned taken = 0;

    (void)state;
    for (uint32_t n = 2; n <= 9; n++) {
        for (uint64_t count = 1; count < 6 * TILE; count += 3) {
            struct sl_shape base = shape_of(SL_ALLREDUCE, n, count);

            assert_false(sl_algo_code_gather.unasked(&base));
            base.code = &few;
            build_by(&sl_algo_code_gather, &base);
            uint64_t gathered = most_sent();

            build_by(&sl_algo_oneshot, &base);
            assert_int_equal(sl_algo_code_gather.unasked(&base), gathered <= most_sent());
            assert_int_equal(sl_algo_code_gather.unasked(&base), n == 2 || count <= TILE);
            taken += sl_algo_code_gather.unasked(&base);
        }
    }
    assert_int_equal(taken, 16 + 7 * 3);
    test_coll_fini(&coll);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_adds_its_elements_as_they_are_is_found),
        cmocka_unit_test(a_rank_that_adds_in_another_order_is_found),
        cmocka_unit_test(a_value_goes_through_the_codec_once),
        cmocka_unit_test(it_is_taken_where_it_sends_no_more_than_one_shot),
    };

    return cmocka_run_group_tests_name("code_gather", tests, NULL, NULL);
}
