/* SPDX-License-Identifier: Apache-2.0 */
/* State that is saved and loaded: whole, in other pieces, by other numbers of ranks, damaged. */
#include "compress/state.h"

#include "compress/codec.h"
#include "compress/topk.h"
#include "core/code.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT 1000

static float residual[COUNT], shard[100], factor[60], back[COUNT], back_shard[100], back_factor[60];
static struct sl_topk_state threshold, back_threshold;
static _Alignas(8) uint8_t bytes[16384];
static size_t len;

/* Saves all there is, with other numbers in each. */
static void save(uint32_t ranks)
{
    const struct sl_state_part parts[] = {
        {7, 0, SL_STATE_RESIDUAL, residual, sizeof(residual)},
        {7, 300, SL_STATE_SHARD_RESIDUAL, shard, sizeof(shard)},
        {7, 0, SL_STATE_THRESHOLD, &threshold, sizeof(threshold)},
        {9, 0, SL_STATE_FACTOR, factor, sizeof(factor)},
    };

    for (size_t i = 0; i < COUNT; i++)
        residual[i] = (float)i;
    for (size_t i = 0; i < 100; i++)
        shard[i] = (float)i + 0.5f;
    for (size_t i = 0; i < 60; i++)
        factor[i] = -(float)i;
    threshold = (struct sl_topk_state){.threshold = 0x3f800000, .age = 5};
    memset(back, 0x55, sizeof(back));
    memset(back_shard, 0x55, sizeof(back_shard));
    memset(back_factor, 0x55, sizeof(back_factor));
    memset(&back_threshold, 0x55, sizeof(back_threshold));
    memset(bytes, 0xa5, sizeof(bytes));
    len = sl_state_size(parts, 4);
    sl_state_save(parts, 4, ranks, 1234, bytes);
    assert_int_equal(bytes[len], 0xa5);
}

static const struct sl_state_part whole[] = {
    {9, 0, SL_STATE_FACTOR, back_factor, sizeof(back_factor)},
    {7, 0, SL_STATE_THRESHOLD, &back_threshold, sizeof(back_threshold)},
    {7, 0, SL_STATE_RESIDUAL, back, sizeof(back)},
    {7, 300, SL_STATE_SHARD_RESIDUAL, back_shard, sizeof(back_shard)},
};

static void assert_nothing_changed(void)
{
    const uint8_t *b = (const uint8_t *)back, *f = (const uint8_t *)back_factor;

    for (size_t i = 0; i < sizeof(back); i++)
        assert_int_equal(b[i], 0x55);
    for (size_t i = 0; i < sizeof(back_factor); i++)
        assert_int_equal(f[i], 0x55);
}

static void what_is_saved_is_loaded_by_its_id(void **state)
{
    uint64_t step = 0;

    save(4);
    assert_int_equal(sl_state_load(whole, 4, 4, bytes, len, &step), 0);
    assert_int_equal(step, 1234);
    assert_memory_equal(back, residual, sizeof(residual));
    assert_memory_equal(back_shard, shard, sizeof(shard));
    assert_memory_equal(back_factor, factor, sizeof(factor));
    assert_memory_equal(&back_threshold, &threshold, sizeof(threshold));
    assert_int_equal(sl_state_load(whole, 4, 4, bytes, len, NULL), 0);
}

static void nothing_is_state_too(void **state)
{
    sl_state_save(NULL, 0, 4, 8, bytes);
    assert_int_equal(sl_state_load(NULL, 0, 4, bytes, sl_state_size(NULL, 0), NULL), 0);
}

static void residuals_are_loaded_in_other_pieces(void **state)
{
    struct sl_state_part pieces[] = {
        whole[0],
        whole[1],
        {7, 700, SL_STATE_RESIDUAL, back + 700, 300 * 4},
        {7, 0, SL_STATE_RESIDUAL, back, 1 * 4},
        {7, 1, SL_STATE_RESIDUAL, back + 1, 699 * 4},
        whole[3],
    };
    const struct sl_state_part other[] = {
        whole[0],
        whole[1],
        whole[3],
        {7, 0, SL_STATE_RESIDUAL, back, 350 * 4},
        {7, 350, SL_STATE_RESIDUAL, back + 350, 650 * 4},
    };

    save(4);
    assert_int_equal(sl_state_load(pieces, 6, 4, bytes, len, NULL), 0);
    assert_memory_equal(back, residual, sizeof(residual));
    /* And those that were saved in pieces, in others. */
    len = sl_state_size(pieces, 6);
    sl_state_save(pieces, 6, 4, 0, bytes);
    memset(back, 0x55, sizeof(back));
    assert_int_equal(sl_state_load(other, 5, 4, bytes, len, NULL), 0);
    assert_memory_equal(back, residual, sizeof(residual));
    /* One element less, or one twice. */
    pieces[3].len = 0;
    assert_int_equal(sl_state_load(pieces, 6, 4, bytes, len, NULL), -EINVAL);
    pieces[3].len = 8;
    assert_int_equal(sl_state_load(pieces, 6, 4, bytes, len, NULL), -EINVAL);
}

static void what_is_saved_twice_does_not_stand_for_the_rest(void **state)
{
    const struct sl_state_part twice[] = {
        {7, 0, SL_STATE_RESIDUAL, residual, 500 * 4},
        {7, 0, SL_STATE_RESIDUAL, residual, 500 * 4},
    };

    save(4);
    len = sl_state_size(twice, 2);
    sl_state_save(twice, 2, 4, 0, bytes);
    assert_int_equal(sl_state_load(whole + 2, 1, 4, bytes, len, NULL), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "twice"));
    assert_nothing_changed();
}

static void another_number_of_ranks_begins_its_shards_anew(void **state)
{
    struct sl_state_part parts[4];

    memcpy(parts, whole, sizeof(parts));
    save(4);
    parts[3] = (struct sl_state_part){7, 500, SL_STATE_SHARD_RESIDUAL, back_shard, 50 * 4};
    assert_int_equal(sl_state_load(parts, 4, 8, bytes, len, NULL), 0);
    assert_memory_equal(back, residual, sizeof(residual));
    for (size_t i = 0; i < 50; i++)
        assert_true(back_shard[i] == 0);
    /* The same number has them all. */
    save(4);
    assert_int_equal(sl_state_load(parts, 4, 4, bytes, len, NULL), -EBADMSG);
    assert_nothing_changed();
}

/* Known by their count, own elements may have residuals on one side alone; but not some of them. */
static void elements_that_are_counted_may_have_no_residual(void **state)
{
    uint32_t turns = 5, back_turns = 0;
    const struct sl_state_part parts[] = {
        {7, 100, SL_STATE_TURN, &turns, sizeof(turns), .count = 200},
        {7, 100, SL_STATE_RESIDUAL, residual, 200 * 4},
    };
    struct sl_state_part to[] = {
        {7, 100, SL_STATE_TURN, &back_turns, sizeof(back_turns), .count = 200},
        {7, 100, SL_STATE_RESIDUAL, back, 200 * 4},
    };

    save(4); /* forgets what other cases have loaded */
    len = sl_state_size(parts, 2);
    sl_state_save(parts, 2, 4, 0, bytes);
    assert_int_equal(sl_state_load(to, 1, 4, bytes, len, NULL), -EINVAL); /* the same owners */
    assert_int_equal(sl_state_load(to, 1, 8, bytes, len, NULL), 0);
    assert_int_equal(back_turns, 5);
    sl_state_save(parts + 1, 1, 4, 0, bytes); /* of no count */
    assert_int_equal(sl_state_load(NULL, 0, 8, bytes, sl_state_size(parts + 1, 1), NULL), -EINVAL);

    len = sl_state_size(parts, 1);
    sl_state_save(parts, 1, 4, 0, bytes);
    assert_int_equal(sl_state_load(to, 2, 4, bytes, len, NULL), -EBADMSG);
    assert_int_equal(sl_state_load(to + 1, 1, 8, bytes, len, NULL), -EINVAL); /* of no count */
    assert_nothing_changed();
    assert_int_equal(sl_state_load(to, 2, 8, bytes, len, NULL), 0);
    for (size_t i = 0; i < 200; i++)
        assert_true(back[i] == 0);

    sl_state_save(parts, 2, 4, 0, bytes);
    len = sl_state_size(parts, 2);
    to[1].first = 101; /* some have one */
    assert_int_equal(sl_state_load(to, 2, 8, bytes, len, NULL), -EBADMSG);
}

static void what_is_missing_or_left_over_is_named(void **state)
{
    struct sl_state_part parts[5];

    save(4);
    memcpy(parts, whole, sizeof(whole));
    parts[4] = (struct sl_state_part){8, 0, SL_STATE_RESIDUAL, back, 4};
    assert_int_equal(sl_state_load(parts, 5, 4, bytes, len, NULL), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "residual with id 8"));
    assert_int_equal(sl_state_load(parts + 1, 3, 4, bytes, len, NULL), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "factor with id 9"));
    parts[0].len -= 4; /* of another shape */
    assert_int_equal(sl_state_load(parts, 4, 4, bytes, len, NULL), -EBADMSG);
    parts[0].len += 4;
    parts[2].first = 1;
    assert_int_equal(sl_state_load(parts, 4, 4, bytes, len, NULL), -EBADMSG);
    assert_nothing_changed();
}

static void bytes_may_lie_at_any_address(void **state)
{
    static uint8_t room[sizeof(bytes) + 8];
    const struct sl_state_part residuals = {7, 0, SL_STATE_RESIDUAL, residual, sizeof(residual)};
    const struct sl_state_part to = {7, 0, SL_STATE_RESIDUAL, back, sizeof(back)};

    save(4);
    for (size_t odd = 1; odd < 8; odd++) {
        memset(back, 0x55, sizeof(back));
        len = sl_state_size(&residuals, 1);
        sl_state_save(&residuals, 1, 4, 0, room + odd);
        assert_int_equal(sl_state_load(&to, 1, 4, room + odd, len, NULL), 0);
        assert_memory_equal(back, residual, sizeof(residual));
    }
}

static void what_another_codec_has_left_is_refused_by_name(void **state)
{
    struct sl_state_part part = {7, 0, SL_STATE_RESIDUAL, residual, 400, .mark = 0};
    struct sl_state_part to = {7, 0, SL_STATE_RESIDUAL, back, 400, .mark = 0};

    save(4);
    part.mark = sl_code_mark(SL_CODEC_BQ4, 0xabcde1);
    len = sl_state_size(&part, 1);
    sl_state_save(&part, 1, 4, 0, bytes);
    to.mark = sl_code_mark(SL_CODEC_BQ8, 0xabcde1);
    assert_int_equal(sl_state_load(&to, 1, 4, bytes, len, NULL), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "is of bq4, parameters abcde1"));
    assert_non_null(strstr(sluice_last_error(), "it is of bq8, parameters abcde1"));
    to.mark = sl_code_mark(SL_CODEC_BQ4, 0xabcde3); /* other parameters */
    assert_int_equal(sl_state_load(&to, 1, 4, bytes, len, NULL), -EINVAL);
    to.mark = 0;
    assert_int_equal(sl_state_load(&to, 1, 4, bytes, len, NULL), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "it is of no codec"));
    assert_nothing_changed();
    to.mark = part.mark;
    assert_int_equal(sl_state_load(&to, 1, 4, bytes, len, NULL), 0);
    assert_memory_equal(back, residual, 400);
}

static void of_pieces_what_was_encoded_most_often_counts(void **state)
{
    uint32_t turns[3] = {4, 9, 2}, back_turns[2] = {77, 77};
    const struct sl_state_part saved[] = {
        {5, 0, SL_STATE_TURN, &turns[0], 4, .count = 100},
        {5, 100, SL_STATE_TURN, &turns[1], 4, .count = 50},
        {5, 150, SL_STATE_TURN, &turns[2], 4, .count = 50},
    };
    struct sl_state_part cut[] = {
        {5, 101, SL_STATE_TURN, &back_turns[0], 4, .count = 99},
        {5, 0, SL_STATE_TURN, &back_turns[1], 4, .count = 100},
    };

    len = sl_state_size(saved, 3);
    sl_state_save(saved, 3, 4, 0, bytes);
    assert_int_equal(sl_state_load(cut, 2, 8, bytes, len, NULL), -EINVAL); /* number 100 is left */
    assert_true(back_turns[0] == 77 && back_turns[1] == 77);
    cut[0].first = 100;
    cut[0].count = 101;
    assert_int_equal(sl_state_load(cut, 2, 8, bytes, len, NULL), -EBADMSG); /* there is no 200 */
    cut[0].count = 100;
    assert_int_equal(sl_state_load(cut, 2, 8, bytes, len, NULL), 0);
    assert_true(back_turns[0] == 9 && back_turns[1] == 4);
    cut[1].first = 50; /* of another cut: 50 to 150, and what is left of it */
    cut[0] = (struct sl_state_part){5, 150, SL_STATE_TURN, &back_turns[0], 4, .count = 50};
    assert_int_equal(sl_state_load(cut, 2, 8, bytes, len, NULL), -EINVAL);
}

static void any_bit_that_is_wrong_is_noticed(void **state)
{
    save(4);
    for (size_t bit = 0; bit < len * 8; bit += bit < 5000 ? 1 : 97) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(sl_state_load(whole, 4, 4, bytes, len, NULL), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < len; cut += 3)
        assert_int_equal(sl_state_load(whole, 4, 4, bytes, cut, NULL), -EBADMSG);
    assert_nothing_changed();
    bytes[4] = 3;
    assert_int_equal(sl_state_load(whole, 4, 4, bytes, len, NULL), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "version 3"));
}

/* The checksum of a forger, who knows how it is made. */
static void seal(uint8_t *at, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325, word;

    memset(at + 16, 0, 8);
    for (size_t i = 0; i < size; i += 8) {
        memcpy(&word, at + i, 8);
        sum = (sum ^ word) * 0x100000001b3;
        sum ^= sum >> 29;
    }
    memcpy(at + 16, &sum, 8);
}

static void forged_lengths_lead_nowhere(void **state)
{
    static const uint64_t odd[] = {
        0, 4, 5, 1000, 3996, 4004, 1 << 20, UINT64_MAX, UINT64_MAX - 3, INT64_MAX, UINT64_MAX - 39};

    for (size_t field = 0; field < 6; field++)
        for (size_t i = 0; i < SL_ARRAY_LEN(odd); i++) {
            static const size_t places[] = {40 + 16, 40 + 8, 40 + 32, 36, 32, 40 + 24};
            uint8_t *copy;
            int err;

            save(4);
            copy = aligned_alloc(8, len);
            assert_non_null(copy);
            memcpy(copy, bytes, len);
            memcpy(copy + places[field], &odd[i], field < 3 ? 8 : 4);
            seal(copy, len);
            err = sl_state_load(whole, 4, 4, copy, len, NULL);
            assert_true(err == -EBADMSG || err == -EINVAL ||
                        (err == 0 && (field == 4 || memcmp(copy + 40, bytes + 40, 40) == 0)));
            free(copy);
        }
}

/* Or the data of what comes behind would be read. */
static void elements_without_bytes_are_refused(void **state)
{
    const struct sl_state_part ten = {7, 0, SL_STATE_RESIDUAL, residual, 40};
    const struct sl_state_part all = {7, 0, SL_STATE_RESIDUAL, back, sizeof(back)};
    const uint64_t count = COUNT;
    uint8_t *copy;

    save(4);
    len = sl_state_size(&ten, 1);
    copy = malloc(len);
    assert_non_null(copy);
    sl_state_save(&ten, 1, 4, 0, copy);
    memcpy(copy + 40 + 32, &count, 8);
    seal(copy, len);
    assert_int_equal(sl_state_load(&all, 1, 4, copy, len, NULL), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "has 40 bytes for 1000 elements"));
    assert_nothing_changed();
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_loaded_by_its_id),
        cmocka_unit_test(nothing_is_state_too),
        cmocka_unit_test(residuals_are_loaded_in_other_pieces),
        cmocka_unit_test(what_is_saved_twice_does_not_stand_for_the_rest),
        cmocka_unit_test(another_number_of_ranks_begins_its_shards_anew),
        cmocka_unit_test(elements_that_are_counted_may_have_no_residual),
        cmocka_unit_test(what_is_missing_or_left_over_is_named),
        cmocka_unit_test(bytes_may_lie_at_any_address),
        cmocka_unit_test(what_another_codec_has_left_is_refused_by_name),
        cmocka_unit_test(of_pieces_what_was_encoded_most_often_counts),
        cmocka_unit_test(any_bit_that_is_wrong_is_noticed),
        cmocka_unit_test(forged_lengths_lead_nowhere),
        cmocka_unit_test(elements_without_bytes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
