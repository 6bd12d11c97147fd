/* SPDX-License-Identifier: Apache-2.0 */
/* Directions of a seed: each sign by a model, parts that fit, projections, and their mean. */
#include "draw.h"

#include "compress/philox.h"
#include "compress/seedscalar.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define COUNT 10000

static const struct sl_direction z = {.seed = 77, .stream = 3, .step = 4};
static float input[COUNT], signs[COUNT], out[COUNT];

static void signs_are_bits_of_philox(void **state)
{
    static const size_t counts[] = {0, 1, 31, 32, 33, 127, 128, 129, COUNT};
    const uint64_t first = (UINT64_C(1) << 42) + 128;
    size_t below = 0;

    for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++) {
        memset(signs, 0x55, sizeof(signs));
        sl_direction_fill(&z, first, counts[n], signs);
        for (size_t i = 0; i < counts[n]; i++) {
            uint64_t number = (first + i) / 128;
            const uint32_t counter[4] = {(uint32_t)number, (uint32_t)(number >> 32), 3, 4};
            uint32_t words[4];

            sl_philox(counter, 77, words);
            assert_true(signs[i] == (words[i % 128 / 32] & 1u << i % 32 ? -1.0f : 1.0f));
            below += n == 8 && signs[i] < 0;
        }
    }
    assert_in_range(below, COUNT / 2 - 250, COUNT / 2 + 250);
}

static void parts_are_those_of_the_whole(void **state)
{
    sl_direction_fill(&z, 0, COUNT, signs);
    for (size_t first = 0; first < COUNT; first += 384)
        sl_direction_fill(&z, first, COUNT - first < 384 ? COUNT - first : 384, out + first);
    assert_memory_equal(signs, out, sizeof(signs));
}

static void a_projection_is_summed_in_its_order(void **state)
{
    for (size_t count = 0; count <= COUNT; count += count < 40 ? 1 : 911) {
        double sum = 0, size = 0, plain = 0;

        draw_fill(DRAW_SPREAD, input, count);
        sl_direction_fill(&z, 0, count, signs);
        for (size_t tile = 0; tile < count; tile += 4096) {
            double lanes[16] = {0}, part = 0;

            for (size_t i = tile; i < count && i < tile + 4096; i++)
                lanes[(i - tile) % 16] += (double)input[i] * (double)signs[i];
            for (size_t j = 0; j < 16; j++)
                part = j == 0 ? lanes[0] : part + lanes[j];
            sum += part;
        }
        for (size_t i = 0; i < count; i++) {
            plain += (double)input[i] * (double)signs[i];
            size += fabs((double)input[i]);
        }
        assert_true(sl_direction_project(&z, 0, input, count) == sum);
        assert_true(fabs(sum - plain) <= 1e-12 * size);
    }
}

static void a_step_adds_the_scalar_with_each_sign(void **state)
{
    draw_fill(DRAW_GAUSSIAN, input, COUNT);
    memcpy(out, input, sizeof(input));
    sl_direction_fill(&z, 0, COUNT, signs);
    sl_direction_apply(&z, 0, -0.37f, COUNT, out);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(out[i] == input[i] + -0.37f * signs[i]);
}

static void steps_along_many_seeds_lead_along_the_gradient(void **state)
{
    enum { SEEDS = 4000, FEW = 50 };
    double mean[FEW] = {0};

    draw_fill(DRAW_GAUSSIAN, input, FEW);
    for (unsigned s = 0; s < SEEDS; s++) {
        struct sl_direction along = {.seed = 1000 + s};

        memset(out, 0, sizeof(out));
        sl_direction_apply(&along, 0, (float)sl_direction_project(&along, 0, input, FEW), FEW, out);
        for (size_t i = 0; i < FEW; i++)
            mean[i] += (double)out[i] / SEEDS;
    }
    /* E z <z, g> = g; each part has the deviation of the others together, about 7. */
    for (size_t i = 0; i < FEW; i++)
        assert_true(fabs(mean[i] - (double)input[i]) < 5 * 7 / sqrt(SEEDS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signs_are_bits_of_philox),
        cmocka_unit_test(parts_are_those_of_the_whole),
        cmocka_unit_test(a_projection_is_summed_in_its_order),
        cmocka_unit_test(a_step_adds_the_scalar_with_each_sign),
        cmocka_unit_test(steps_along_many_seeds_lead_along_the_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
