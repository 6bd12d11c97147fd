/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of encodings: who encodes what and how often, and mistakes that the prover must find. */
#include "coded.h"

/* The step of rank that decodes the owner's shard of one tile. */
static struct sl_step *decode_of(uint32_t rank, uint32_t owner)
{
    for (uint32_t n = 0;; n++) {
        struct sl_step *step = step_of(rank, SL_STEP_DECODE, n);

        if (step->dst_buf == SL_BUF_OUT && step->dst_off == owner * TILE)
            return step;
    }
}

static void an_owner_that_keeps_the_sum_as_it_was_before_the_codec_is_found(void **state)
{
    struct sl_shape base = shape_of(SL_ALLREDUCE, 3, 3 * TILE);

    (void)state;
    build_by(&sl_algo_code_ring, &base);
    for (uint32_t n = 0;; n++) { /* of the last sum's place */
        const struct sl_step *sum = step_of(1, SL_STEP_ENCODE, n);
        struct sl_step *own = decode_of(1, 1);

        if (sum->stage != 2)
            continue;
        *own = (struct sl_step){.kind = SL_STEP_COPY,
                                .channel = own->channel,
                                .src_buf = SL_BUF_TMP,
                                .src_off = sum->src_off,
                                .dst_buf = SL_BUF_OUT,
                                .dst_off = TILE,
                                .count = TILE,
                                .dep_first = own->dep_first,
                                .dep_count = own->dep_count};
        break;
    }
    caught("is summed in another order on rank 1 than on rank 0", NULL);
}

/* W of all elements, however many ranks there are: each rank encodes each tile once, but that of
 * its own shard, which it completes. */
static void each_tile_is_encoded_once_by_each_rank(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 9; n++) {
        struct sl_shape base = shape_of(SL_ALLREDUCE, n, (uint64_t)n * TILE);

        build_by(&sl_algo_code_ring, &base);
        for (uint32_t r = 0; r < n; r++) {
            bool seen[9] = {false};

            assert_int_equal(count_of(r, SL_STEP_ENCODE), n);
            assert_int_equal(count_of(r, SL_STEP_DECODE_REDUCE), n - 1);
            assert_int_equal(count_of(r, SL_STEP_DECODE), n);
            assert_int_equal(count_of(r, SL_STEP_SEND), 2 * (n - 1));
            for (uint32_t i = 0; i < n; i++) {
                const struct sl_step *step = step_of(r, SL_STEP_ENCODE, i);
                uint32_t hops = (r + n - step->tile - 1) % n; /* since it began */

                assert_false(seen[step->tile]);
                seen[step->tile] = true;
                assert_int_equal(step->stream, r);
                assert_int_equal(step->stage, step->tile == r ? 2 : 1);
                assert_int_equal(step->src_buf, hops == 0 ? SL_BUF_IN : SL_BUF_TMP);
            }
        }
    }
    test_coll_fini(&coll);
}

static void a_rank_has_two_neighbours(void **state)
{
    struct sl_shape base = shape_of(SL_ALLREDUCE, 7, 40 * TILE);

    (void)state;
    build_by(&sl_algo_code_ring, &base);
    for (uint32_t r = 0; r < 7; r++)
        for (uint32_t i = 0; i < coll.schedules[r].step_count; i++) {
            const struct sl_step *step = &coll.schedules[r].steps[i];

            if (step->kind == SL_STEP_SEND)
                assert_int_equal(step->peer, (r + 1) % 7);
            if (step->kind == SL_STEP_RECV)
                assert_int_equal(step->peer, (r + 6) % 7);
        }
    test_coll_fini(&coll);
}

/* So many that the smallest batches go round. */
static uint64_t many_bytes(const struct sl_code *of, uint64_t count)
{
    return bytes(of, count) << 17;
}

/* Memory is that of a batch of pieces, however many ranks and pieces there are. */
static void places_of_the_wire_are_used_in_turns(void **state)
{
    const struct sl_code large = {.bytes = many_bytes, .tile = TILE, .mark = 8};
    struct sl_shape base = shape_of(SL_ALLREDUCE, 5, 5 * TILE * 23);

    (void)state;
    base.code = &large;
    build_by(&sl_algo_code_ring, &base);
    assert_int_equal(coll.schedules[0].wire_bytes, 16 * many_bytes(&large, TILE));
    assert_int_equal(coll.schedules[0].tmp_count, 2 * TILE);
    for (uint32_t n = 20;; n++) { /* one that waits for a send */
        struct sl_step *step = step_of(3, SL_STEP_ENCODE, n);

        if (step->stage != 1 || step->dep_count < 2)
            continue;
        step->dep_count = 1;
        break;
    }
    caught("nothing puts the two in order", "that are not one encoding");
}

static void it_is_taken_by_nobody_who_does_not_ask(void **state)
{
    struct sl_shape base = shape_of(SL_ALLREDUCE, 3, 3 * TILE);

    (void)state;
    assert_false(sl_algo_code_ring.unasked(&base));
    assert_string_equal(sl_algo_code_ring.recipe, "ring");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_that_keeps_the_sum_as_it_was_before_the_codec_is_found),
        cmocka_unit_test(each_tile_is_encoded_once_by_each_rank),
        cmocka_unit_test(a_rank_has_two_neighbours),
        cmocka_unit_test(places_of_the_wire_are_used_in_turns),
        cmocka_unit_test(it_is_taken_by_nobody_who_does_not_ask),
    };

    return cmocka_run_group_tests_name("code_ring", tests, NULL, NULL);
}
