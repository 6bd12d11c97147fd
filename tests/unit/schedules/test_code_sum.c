/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce by encodings that add: what the builder puts where, and mistakes that the prover must
 * find. */
#include "tests/util/adding_codes.h"
#include "tests/util/mistakes.h"

#include "core/err.h"
#include "schedules/build.h"
#include "testing/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define TILE ADDING_TILE
#define COUNT (24 * TILE)

static struct test_coll coll;

static struct sl_shape shape_of(const struct sl_code *code, uint32_t size, uint64_t count)
{
    return (struct sl_shape){.coll = SL_ALLREDUCE,
                             .size = size,
                             .count = count,
                             .esize = 4,
                             .chunk = 2 * TILE,
                             .code = code,
                             .within = {&sl_algo_doubling, &sl_algo_ring}};
}

static void build(const struct sl_shape *base)
{
    test_coll_fini(&coll);
    assert_int_equal(test_coll_build(&coll, &sl_algo_code_sum, base, 1), 0);
    assert_int_equal(sl_check(coll.shapes, coll.schedules, 1), 0);
}

static void build_scaled(void)
{
    struct sl_shape base = shape_of(&adding_scaled_code, 3, COUNT);

    build(&base);
}

/* The idx-th of that kind and term; any kind: -1. */
static struct sl_step *step_of(uint32_t rank, int kind, unsigned term, uint32_t idx)
{
    struct sl_schedule *s = &coll.schedules[rank];

    for (uint32_t i = 0; i < s->step_count; i++)
        if ((kind < 0 || s->steps[i].kind == kind) && s->steps[i].term == term && idx-- == 0)
            return &s->steps[i];
    fail_msg("no such step");
    return NULL;
}

static uint32_t count_of(uint32_t rank, unsigned kind, unsigned term)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < coll.schedules[rank].step_count; i++)
        count += coll.schedules[rank].steps[i].kind == kind &&
                 coll.schedules[rank].steps[i].term == term;
    return count;
}

static void caught(const char *sentence, const char *other)
{
    mistake_caught(&coll, sentence, other);
}

static void each_element_is_encoded_once_and_decoded_once(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 16; n++) {
        struct sl_shape base = shape_of(&adding_scaled_code, n, COUNT);

        build(&base);
        for (uint32_t r = 0; r < n; r++) {
            uint64_t scaled = 0, coded = 0, decoded = 0;

            for (uint32_t i = 0; i < 12; i++) {
                scaled += step_of(r, SL_STEP_ENCODE_TERM, 1, i)->count;
                coded += step_of(r, SL_STEP_ENCODE_TERM, 2, i)->count;
                decoded += step_of(r, SL_STEP_DECODE_SUM, 2, i)->count;
            }
            assert_true(scaled == COUNT && coded == COUNT && decoded == COUNT);
            assert_int_equal(count_of(r, SL_STEP_ENCODE_TERM, 1), 12);
            assert_int_equal(count_of(r, SL_STEP_ENCODE_TERM, 2), 12);
            assert_int_equal(count_of(r, SL_STEP_DECODE_SUM, 2), 12);
        }
    }
    test_coll_fini(&coll);
}

/* Rank 1 begins with its block 0, whose pieces it encodes, and sends, before others. */
static void pieces_are_encoded_as_they_are_sent(void **state)
{
    struct sl_shape base = shape_of(&adding_float_code, 3, 48 * TILE);

    (void)state;
    base.within[0] = &sl_algo_ring;
    build(&base);
    const struct sl_schedule *s = &coll.schedules[2];
    const struct sl_step *first = step_of(2, SL_STEP_ENCODE_TERM, 1, 0);
    const struct sl_step *send = step_of(2, SL_STEP_SEND, 1, 0);

    assert_true(first == &s->steps[0] && first->src_off == 16 * TILE * 4);
    assert_true(send < step_of(2, SL_STEP_ENCODE_TERM, 1, 3));
    assert_true(send->dep_count != 0 && s->deps[send->dep_first] == 0);
    assert_true(step_of(2, SL_STEP_DECODE_SUM, 1, 0) < &s->steps[s->step_count - 1]);
    test_coll_fini(&coll);
}

static void a_rank_with_scales_of_its_own_is_found(void **state)
{
    (void)state;
    /* Its own, as they were before others had their part in them. */
    build_scaled();
    struct sl_step *first = step_of(1, SL_STEP_ENCODE_TERM, 2, 0);

    first->dep_count = 1;
    first->dep_first = step_of(1, -1, 1, 1)->dep_first;
    caught("goes by numbers that not all ranks have their part in",
           "nothing puts the two in order");

    /* Those of other elements. */
    build_scaled();
    step_of(1, SL_STEP_ENCODE_TERM, 2, 0)->before += 4;
    caught("of a term, where byte", NULL);
    build_scaled();
    step_of(1, SL_STEP_DECODE_SUM, 2, 3)->before -= 4;
    caught("of a term, where byte", NULL);
    build_scaled();
    step_of(1, SL_STEP_ENCODE_TERM, 2, 0)->before = SL_NO_TERM;
    caught("goes by a term before where there is none, or by none", NULL);
}

/* Of a sum, what came out is encoded and reduced again. */
static void what_is_encoded_again_is_found(void **state)
{
    struct sl_shape base = shape_of(&adding_scaled_code, 3, COUNT);

    (void)state;
    base.in_place = true;
    build(&base);
    struct sl_schedule *s = &coll.schedules[1];
    struct sl_step again = *step_of(1, SL_STEP_ENCODE_TERM, 2, 0);

    again.channel = (uint16_t)s->channel_count++;
    sl_schedule_add(s, &again);
    for (uint32_t i = 0; i + 1 < s->step_count; i++)
        sl_schedule_depend(s, i);
    caught("encodes what are no elements of this rank's in, as they were", NULL);
}

static void what_is_decoded_before_all_are_in_it_is_found(void **state)
{
    (void)state;
    build_scaled();
    struct sl_step *step = step_of(2, SL_STEP_DECODE_SUM, 2, 0);

    step->dep_count = 0;
    caught("where nothing has been written", "nothing puts the two in order");

    build_scaled();
    step_of(0, SL_STEP_DECODE_SUM, 2, 0)->flags = 0;
    caught("was never marked final", NULL);

    build_scaled();
    step_of(0, SL_STEP_DECODE_SUM, 2, 2)->tile++;
    caught("has elements that are not those of its tile", NULL);

    build_scaled();
    step_of(0, SL_STEP_DECODE_SUM, 2, 2)->src_off += TILE;
    caught("of a term, where byte", NULL);
}

/* A receive that waits for nothing meets a message of the term before. */
static void messages_that_overtake_those_of_the_term_before_are_found(void **state)
{
    (void)state;
    build_scaled();
    struct sl_schedule *s = &coll.schedules[1];
    bool any = false;

    for (uint32_t i = 0; i < s->step_count; i++)
        if (s->steps[i].term == 2 && sl_step_row(&s->steps[i])->message == SL_RECEIVES) {
            s->steps[i].dep_count = 0;
            any = true;
        }
    assert_true(any);
    caught("which is of another term", NULL);
}

static void numbers_that_are_cut_or_missing_are_found(void **state)
{
    struct sl_shape base = shape_of(&adding_float_code, 3, COUNT);

    (void)state;
    base.within[0] = &sl_algo_ring;
    build(&base);
    step_of(0, SL_STEP_SEND, 1, 0)->src_off += 2;
    caught("cuts a number in two", NULL);
    build(&base);
    step_of(0, SL_STEP_ENCODE_TERM, 1, 0)->wire_len -= 4;
    caught("has not as many numbers as its elements have", NULL);
    build(&base);
    step_of(0, SL_STEP_SEND, 1, 0)->term = 0;
    caught("is of a term where there are none, or of none where there are", NULL);
    build(&base);
    step_of(0, SL_STEP_SEND, 1, 0)->term = 2;
    caught("is of a term that the code has not", NULL);
}

static void what_it_is_not_for_is_refused(void **state)
{
    struct sl_shape base = shape_of(&adding_scaled_code, 1, COUNT), plain;

    (void)state;
    assert_int_equal(test_coll_build(&coll, &sl_algo_code_sum, &base, 1), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "a codec whose encodings of so many ranks add"));
    test_coll_fini(&coll);
    base = shape_of(&adding_scaled_code, 65, COUNT); /* sums do not fit */
    assert_int_equal(test_coll_build(&coll, &sl_algo_code_sum, &base, 1), -ENOTSUP);
    test_coll_fini(&coll);
    base = shape_of(&adding_scaled_code, 3, COUNT);
    base.within[1] = NULL;
    assert_int_equal(test_coll_build(&coll, &sl_algo_code_sum, &base, 1), -ENOTSUP);
    test_coll_fini(&coll);
    base = shape_of(NULL, 3, COUNT);
    assert_int_equal(test_coll_build(&coll, &sl_algo_code_sum, &base, 1), -ENOTSUP);
    test_coll_fini(&coll);

    base = plain = shape_of(&adding_scaled_code, 3, COUNT);
    plain.within[0] = &sl_algo_ring;
    assert_int_not_equal(sl_shape_hash(&base, "code_sum"), sl_shape_hash(&plain, "code_sum"));
    base.count = 0;
    assert_int_equal(test_coll_build(&coll, &sl_algo_code_sum, &base, 1), 0);
    assert_int_equal(coll.schedules[0].step_count, 0);
    test_coll_fini(&coll);
}

static void a_schedule_prints_terms(void **state)
{
    struct sl_shape base = shape_of(&adding_scaled_code, 2, TILE);
    char text[4096] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    (void)state;
    base.within[1] = &sl_algo_doubling;
    build(&base);
    sl_schedule_print(&coll.schedules[1], out);
    fclose(out);
    assert_string_equal(
        text,
        "code_sum: 9 steps, 8 channels, tmp 256, in bytes\n"
        "    0  ch0  encode_term in[0..8) → tmp[0..8) term 1 stream 1 tile 0 by-runner 1\n"
        "    1  ch4  copy        tmp[0..8) → tmp[72..80) term 1 after 0\n"
        "    2  ch2  send        tmp[72..80) to 0 term 1 after 1\n"
        "    3  ch3  recv_reduce tmp[72..80) with 0 → tmp[0..8) remote-first final term 1 after "
        "0,1\n"
        "    4  ch0  encode_term in[0..8) → tmp[128..136) term 2 stream 1 tile 0 by-runner 1 after "
        "1,2,3\n"
        "    5  ch7  copy        tmp[128..136) → tmp[200..208) term 2 after 4\n"
        "    6  ch5  send        tmp[200..208) to 0 term 2 after 5\n"
        "    7  ch6  recv_reduce tmp[200..208) with 0 → tmp[128..136) remote-first final term 2 "
        "after 4,5\n"
        "    8  ch1  decode_sum  tmp[128..136) → out[0..8) final term 2 by-runner 1 after 7\n");
    test_coll_fini(&coll);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_is_encoded_once_and_decoded_once),
        cmocka_unit_test(pieces_are_encoded_as_they_are_sent),
        cmocka_unit_test(a_rank_with_scales_of_its_own_is_found),
        cmocka_unit_test(what_is_encoded_again_is_found),
        cmocka_unit_test(what_is_decoded_before_all_are_in_it_is_found),
        cmocka_unit_test(messages_that_overtake_those_of_the_term_before_are_found),
        cmocka_unit_test(numbers_that_are_cut_or_missing_are_found),
        cmocka_unit_test(what_it_is_not_for_is_refused),
        cmocka_unit_test(a_schedule_prints_terms),
    };

    return cmocka_run_group_tests_name("code_sum", tests, NULL, NULL);
}
