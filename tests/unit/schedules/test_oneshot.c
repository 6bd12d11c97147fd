/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of encodings: what the builders put where, and mistakes that the prover must find. */
#include "coded.h"

static const struct sl_code open_code = {.bytes = bytes, .tile = TILE, .up_to = true, .mark = 6};

static void build(const struct sl_shape *base)
{
    build_by(base->coll == SL_BROADCAST ? &sl_algo_code_chain : &sl_algo_oneshot, base);
}

static void an_owner_that_keeps_the_sum_as_it_was_before_the_codec_is_found(void **state)
{
    struct sl_shape base = shape_of(SL_ALLREDUCE, 3, 3 * TILE);

    (void)state;
    build(&base);
    struct sl_step *own = step_of(1, SL_STEP_DECODE, 1);
    assert_true(own->dst_buf == SL_BUF_OUT && own->dst_off == TILE);
    *own = (struct sl_step){.kind = SL_STEP_COPY,
                            .channel = own->channel,
                            .src_buf = SL_BUF_TMP,
                            .dst_buf = SL_BUF_OUT,
                            .dst_off = TILE,
                            .count = TILE,
                            .dep_first = own->dep_first,
                            .dep_count = own->dep_count};
    caught("is summed in another order on rank 1 than on rank 0", NULL);

    base = shape_of(SL_BROADCAST, 3, TILE);
    base.root = 2;
    build(&base);
    own = step_of(2, SL_STEP_DECODE, 0);
    *own = (struct sl_step){.kind = SL_STEP_COPY,
                            .channel = own->channel,
                            .src_buf = SL_BUF_IN,
                            .dst_buf = SL_BUF_OUT,
                            .count = TILE};
    caught("is another value on rank 2 than on rank 0", NULL);
}

/* Not in that in which they came. The prover lets any order be that all ranks share, as one rank
 * alone sums a shard. */
static void sums_are_taken_in_the_order_of_ranks(void **state)
{
    const enum sl_coll colls[] = {SL_ALLREDUCE, SL_REDUCE_SCATTER};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_shape base = shape_of(colls[i], 5, i == 0 ? 5 * TILE : TILE);

        build(&base);
        for (uint32_t r = 0; r < 5; r++) {
            assert_int_equal(step_of(r, SL_STEP_DECODE, 0)->stream, 0);
            for (uint32_t from = 1; from < 5; from++) {
                const struct sl_step *step = step_of(r, SL_STEP_DECODE_REDUCE, from - 1);

                assert_int_equal(step->stream, from);
                assert_int_equal(step->flags, from == 4 ? SL_STEP_FINAL : 0);
            }
        }
    }
    test_coll_fini(&coll);
}

/* A place of the wire is written again once all that read it are through. */
static void a_place_of_the_wire_that_is_used_too_early_is_found(void **state)
{
    struct sl_shape base = shape_of(SL_ALLREDUCE, 3, 3 * TILE * 20);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        build(&base);
        for (uint32_t n = 0;; n++) {
            struct sl_step *step = step_of(1, i < 2 ? SL_STEP_ENCODE : SL_STEP_RECV, n);

            if (i == 1 && step->stage == 0)
                continue;
            if (step->dep_count < (i == 1 ? 3u : 1u) ||
                (i == 3 && step->dst_off > step_of(1, SL_STEP_RECV, n + 1)->dst_off))
                continue;
            step->dep_count = i == 1; /* of a sum the first is the sum itself */
            break;
        }
        caught("nothing puts the two in order", "that are not one encoding");
    }
}

static void other_random_numbers_at_both_ends_are_found(void **state)
{
    struct sl_shape base = shape_of(SL_ALL_TO_ALL, 3, 3 * TILE);

    (void)state;
    build(&base);
    step_of(2, SL_STEP_DECODE, 0)->stream++;
    caught("what was encoded as tile", NULL);
    build(&base);
    step_of(2, SL_STEP_DECODE, 0)->tile += 3;
    caught("what was encoded as tile", NULL);
}

static void sums_in_f32_are_for_runners_alone(void **state)
{
    struct sl_shape base = shape_of(SL_REDUCE_SCATTER, 3, TILE);

    (void)state;
    base.esize = 2;
    build(&base);
    assert_true(coll.schedules[0].wide_tmp && coll.schedules[0].tmp_count == 2 * TILE);
    assert_int_equal(step_of(0, SL_STEP_COPY, 0)->runner, SL_CODE_RUNNER);
    step_of(0, SL_STEP_COPY, 0)->runner = 0;
    caught("takes f32 for elements of the call", NULL);

    base.esize = 4;
    build(&base);
    assert_true(!coll.schedules[0].wide_tmp && coll.schedules[0].tmp_count == 0);
    assert_int_equal(count_of(0, SL_STEP_COPY), 0);
    test_coll_fini(&coll);
}

/* Of each rank's elements, and of the sum: whatever the number of ranks is. */
static void a_value_goes_through_the_codec_twice_at_most(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 16; n++) {
        struct sl_shape base = shape_of(SL_ALLREDUCE, n, (uint64_t)n * TILE);

        build(&base);
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(count_of(r, SL_STEP_ENCODE), n + 1);
            for (uint32_t i = 0; i < n + 1; i++) {
                const struct sl_step *step = step_of(r, SL_STEP_ENCODE, i);

                assert_true(step->stage == (step->src_buf == SL_BUF_TMP));
                assert_int_equal(step->stream, step->stage == 0 ? r : n + r);
            }
        }
        base = shape_of(SL_ALL_GATHER, n, TILE);
        build(&base);
        assert_int_equal(count_of(n - 1, SL_STEP_ENCODE), 1);
    }
    test_coll_fini(&coll);
}

static void ranks_with_another_codec_have_another_hash(void **state)
{
    struct sl_shape a = shape_of(SL_ALLREDUCE, 4, 100), b = a, raw = a;

    (void)state;
    b.code = &open_code;
    raw.code = NULL;
    assert_int_not_equal(sl_shape_hash(&a, "oneshot"), sl_shape_hash(&b, "oneshot"));
    assert_int_not_equal(sl_shape_hash(&a, "oneshot"), sl_shape_hash(&raw, "oneshot"));
}

static void pieces_are_whole_tiles_and_longer_where_there_are_many(void **state)
{
    static const struct sl_code large = {.bytes = bytes, .tile = 4096, .mark = 5};
    const struct {
        uint64_t count, piece;
    } cases[] = {{100, 100},         {10000, 8192},      {1 << 18, 1 << 15}, {1 << 20, 1 << 16},
                 {1 << 22, 1 << 17}, {1 << 24, 1 << 18}, {1 << 28, 1 << 18}, {1 << 30, 1 << 19}};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_shape base = shape_of(SL_ALLREDUCE, 2, cases[i].count);

        base.chunk = 0;
        base.code = &large;
        assert_int_equal(test_coll_build(&coll, &sl_algo_oneshot, &base, 1), 0);
        assert_int_equal(step_of(1, SL_STEP_ENCODE, 0)->count, cases[i].piece);
        test_coll_fini(&coll);
    }
}

static void a_schedule_prints_stages_and_streams(void **state)
{
    struct sl_shape base = shape_of(SL_REDUCE_SCATTER, 2, TILE);
    char text[2048] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    (void)state;
    base.esize = 2;
    build(&base);
    sl_schedule_print(&coll.schedules[1], out);
    fclose(out);
    assert_string_equal(
        text,
        "oneshot: 7 steps, 5 channels, tmp 16 of f32, wire 202 bytes\n"
        "    0  ch2  encode      in[0..8) → wire[0..10) stream 1 tile 0 by-runner 1\n"
        "    1  ch3  send        wire[0..10) to 0 after 0\n"
        "    2  ch2  encode      in[8..16) → wire[64..74) stream 1 tile 1 by-runner 1\n"
        "    3  ch4  recv        from 0 → wire[128..138)\n"
        "    4  ch0  decode      wire[128..138) → tmp[0..8) stream 0 tile 1 by-runner 1 after 3\n"
        "    5  ch0  decode_reduce wire[64..74) → tmp[0..8) final stream 1 tile 1 by-runner 1 "
        "after 2,4\n"
        "    6  ch0  copy        tmp[0..8) → out[0..8) by-runner 1 after 5\n");
    test_coll_fini(&coll);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_that_keeps_the_sum_as_it_was_before_the_codec_is_found),
        cmocka_unit_test(sums_are_taken_in_the_order_of_ranks),
        cmocka_unit_test(a_place_of_the_wire_that_is_used_too_early_is_found),
        cmocka_unit_test(other_random_numbers_at_both_ends_are_found),
        cmocka_unit_test(sums_in_f32_are_for_runners_alone),
        cmocka_unit_test(a_value_goes_through_the_codec_twice_at_most),
        cmocka_unit_test(ranks_with_another_codec_have_another_hash),
        cmocka_unit_test(pieces_are_whole_tiles_and_longer_where_there_are_many),
        cmocka_unit_test(a_schedule_prints_stages_and_streams),
    };

    return cmocka_run_group_tests_name("oneshot", tests, NULL, NULL);
}
