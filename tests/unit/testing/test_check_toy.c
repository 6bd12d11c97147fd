/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves schedules with encodings and with steps that runners have, then plants mistakes in them
 * and looks for the sentence that names each.
 */
#include "tests/toy/toy.h"
#include "tests/util/mistakes.h"

#include "core/err.h"
#include "testing/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct test_coll coll;

static void build(const struct sl_algo *algo, uint32_t size, uint64_t count, bool in_place)
{
    struct sl_shape base = {.coll = algo == &toy_ring ? SL_ALL_GATHER : SL_ALLREDUCE,
                            .size = size,
                            .count = count,
                            .esize = 4,
                            .in_place = in_place};

    test_coll_fini(&coll);
    assert_int_equal(test_coll_build(&coll, algo, &base, 1), 0);
    for (uint64_t seed = 0; seed < 5; seed++)
        if (sl_check(coll.shapes, coll.schedules, seed) != 0)
            fail_msg("%s, %u ranks, %d elements: %s", algo->name, size, (int)count,
                     sluice_last_error());
}

static void encodings_of_open_and_fixed_length_are_proved(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 16; n++) {
        for (uint64_t count = 1; count < 4 * n; count += n / 2 + 1) {
            build(&toy_oneshot, n, count, count % 2 == 0);
            build(&toy_oneshot_fixed, n, count, count % 2 != 0);
            build(&toy_ring, n, count, count % 2 == 0);
            build(&toy_dma, n, count, false);
        }
    }
    build(&toy_ring, 64, 3, false);
    test_coll_fini(&coll);
}

static struct sl_step *step_of(uint32_t rank, unsigned kind, uint32_t idx)
{
    return mistake_step(&coll, rank, kind, idx);
}

static void caught(const char *sentence, const char *other)
{
    mistake_caught(&coll, sentence, other);
}

static const char order[] = "nothing puts the two in order";
static const char unwritten[] = "where nothing has been written";

static void a_send_that_does_not_wait_for_its_encoding_is_a_race(void **state)
{
    (void)state;
    build(&toy_oneshot, 3, 30, false);
    step_of(1, SL_STEP_SEND, 0)->dep_count = 0;
    caught(order, unwritten);
}

/* Started in order, in one channel: but a runner ends what it has in any order. */
static void steps_of_a_runner_in_one_channel_are_in_no_order(void **state)
{
    (void)state;
    build(&toy_dma, 3, 10, false);
    struct sl_step *reduce = step_of(0, SL_STEP_REDUCE, 1);
    assert_int_equal(reduce->dep_count, 2);
    coll.schedules[0].deps[reduce->dep_first] = coll.schedules[0].deps[reduce->dep_first + 1];
    caught(order, "reduces more operands");
}

static void the_same_steps_without_a_runner_are_in_order(void **state)
{
    (void)state;
    build(&toy_dma, 3, 10, false);
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t i = 0; i < coll.schedules[r].step_count; i++)
            coll.schedules[r].steps[i].runner = 0;
        struct sl_step *reduce = step_of(r, SL_STEP_REDUCE, 1);
        coll.schedules[r].deps[reduce->dep_first] = coll.schedules[r].deps[reduce->dep_first + 1];
    }
    for (uint64_t seed = 0; seed < 5; seed++)
        assert_int_equal(sl_check(coll.shapes, coll.schedules, seed), 0);
    test_coll_fini(&coll);
}

static void pieces_of_the_wire_that_overlap_are_found(void **state)
{
    (void)state;
    build(&toy_oneshot, 3, 30, false);
    step_of(0, SL_STEP_RECV, 1)->dst_off -= 60;
    caught(order, "that are not one encoding");
}

static void a_length_from_elsewhere_is_named(void **state)
{
    (void)state;
    build(&toy_oneshot, 3, 30, false);
    assert_int_equal(step_of(2, SL_STEP_SEND, 1)->length_from, 3);
    step_of(2, SL_STEP_SEND, 1)->length_from = 1; /* of another encoding */
    caught("takes the length from elsewhere than from step", NULL);

    build(&toy_oneshot, 3, 30, false);
    step_of(2, SL_STEP_SEND, 0)->length_from = 0; /* all of the room */
    caught("takes the length from elsewhere than from step", "expects 50 bytes");

    build(&toy_oneshot_fixed, 3, 30, false);
    step_of(2, SL_STEP_SEND, 0)->length_from = 1;
    caught("that tells none", NULL);
}

static void a_receive_without_room_is_named(void **state)
{
    (void)state;
    build(&toy_oneshot, 3, 30, false);
    step_of(1, SL_STEP_RECV, 0)->wire_len -= 1;
    caught("has room for 49 bytes, but is sent up to 50", NULL);

    build(&toy_oneshot, 3, 30, false);
    step_of(1, SL_STEP_RECV, 0)->flags = 0;
    caught("that tells none", "expects 50 bytes, but is sent up to 50");

    build(&toy_oneshot_fixed, 3, 30, false);
    step_of(1, SL_STEP_RECV, 0)->wire_len = 36;
    caught("expects 36 bytes, but is sent 40", NULL);
}

static void an_owner_that_keeps_what_it_encoded_differs_from_the_others(void **state)
{
    (void)state;
    build(&toy_oneshot, 3, 30, false);
    struct sl_step *own = step_of(1, SL_STEP_DECODE, 1);
    assert_int_equal(own->dst_off, 10);
    *own = (struct sl_step){.kind = SL_STEP_COPY,
                            .src_buf = SL_BUF_TMP,
                            .dst_buf = SL_BUF_OUT,
                            .dst_off = 10,
                            .count = 10,
                            .dep_first = own->dep_first,
                            .dep_count = own->dep_count};
    caught("is summed in another order on rank 1 than on rank 0", NULL);

    build(&toy_ring, 3, 5, false);
    own = step_of(2, SL_STEP_DECODE, 0);
    assert_int_equal(own->dst_off, 10);
    *own = (struct sl_step){.kind = SL_STEP_COPY,
                            .src_buf = SL_BUF_IN,
                            .dst_buf = SL_BUF_OUT,
                            .dst_off = 10,
                            .count = 5};
    caught("is another value on rank 2 than on rank 0", NULL);
}

static void bytes_for_other_elements_are_found(void **state)
{
    (void)state;
    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_DECODE, 1)->count = 4;
    caught("makes 4 elements of bytes that stand for 5", NULL);

    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_DECODE, 1)->runner = TOY_FIXED;
    caught("decodes by runner 2 what runner 1 encoded", NULL);

    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_DECODE, 1)->wire_len--;
    caught("that are not one encoding", NULL);

    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_SEND, 1)->src_buf = SL_BUF_IN;
    step_of(0, SL_STEP_SEND, 1)->src_off = 0;
    caught("are not both of the wire", NULL);
}

static void what_no_runner_can_do_is_refused(void **state)
{
    (void)state;
    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_DECODE, 0)->runner = 0;
    caught("has no runner", NULL);

    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_SEND, 0)->runner = 1;
    caught("is nothing that one could do", NULL);

    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_ENCODE, 0)->dst_buf = SL_BUF_OUT;
    caught("elements where the wire belongs", NULL);

    build(&toy_ring, 3, 5, false);
    coll.schedules[1].wire_bytes--;
    caught("outside its buffer", NULL);

    build(&toy_ring, 3, 5, false);
    step_of(0, SL_STEP_DECODE, 0)->flags = SL_STEP_UP_TO;
    caught("has a flag that means nothing for it", NULL);
}

static void steps_of_the_wire_print_bytes(void **state)
{
    char text[2048] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    (void)state;
    build(&toy_ring, 2, 20, false);
    sl_schedule_print(&coll.schedules[1], out);
    fclose(out);
    assert_string_equal(
        text,
        "toy_ring: 5 steps, 3 channels, tmp 0, wire 228 bytes\n"
        "    0  ch0  encode      in[0..20) → wire[0..100) up-to by-runner 1\n"
        "    1  ch0  decode      wire[0..100) → out[20..40) length-of 0 by-runner 1 after 0\n"
        "    2  ch1  send        wire[0..100) to 0 length-of 0 after 0\n"
        "    3  ch2  recv        from 0 → wire[128..228) up-to\n"
        "    4  ch0  decode      wire[128..228) → out[0..20) length-of 3 by-runner 1 after 3\n");
    test_coll_fini(&coll);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodings_of_open_and_fixed_length_are_proved),
        cmocka_unit_test(a_send_that_does_not_wait_for_its_encoding_is_a_race),
        cmocka_unit_test(steps_of_a_runner_in_one_channel_are_in_no_order),
        cmocka_unit_test(the_same_steps_without_a_runner_are_in_order),
        cmocka_unit_test(pieces_of_the_wire_that_overlap_are_found),
        cmocka_unit_test(a_length_from_elsewhere_is_named),
        cmocka_unit_test(a_receive_without_room_is_named),
        cmocka_unit_test(an_owner_that_keeps_what_it_encoded_differs_from_the_others),
        cmocka_unit_test(bytes_for_other_elements_are_found),
        cmocka_unit_test(what_no_runner_can_do_is_refused),
        cmocka_unit_test(steps_of_the_wire_print_bytes),
    };

    return cmocka_run_group_tests_name("check_toy", tests, NULL, NULL);
}
