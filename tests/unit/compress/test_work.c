/* SPDX-License-Identifier: Apache-2.0 */
/* What is predicted of codecs: work that every one of them has, and lengths that are near those of
 * real encodings. compress_tool.sh compares the work with what is measured. */
#include "compress/work.h"

#include "core/err.h"
#include "floats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT 65536

static void every_codec_takes_work_and_more_with_random_numbers_or_a_rotation(void **state)
{
    (void)state;
    for (size_t i = 0; sl_codec_row(i) != NULL; i++) {
        struct sl_codec_spec spec = {.id = sl_codec_row(i)->id, .dtype = SLUICE_F32};
        struct sl_code_work plain = sl_codec_work(&spec), more;

        assert_true(plain.encode >= 1 && plain.decode >= 1 && plain.add >= 1);
        spec.flags = SL_SPEC_STOCHASTIC;
        more = sl_codec_work(&spec);
        assert_true(more.encode > plain.encode && more.decode == plain.decode);
        spec.flags = SL_SPEC_ROTATED;
        more = sl_codec_work(&spec);
        assert_true(more.encode > plain.encode && more.decode > plain.decode &&
                    more.add > plain.add);
    }
}

/* As gradients are: exponents near each other. */
static void fill(uint8_t dtype, void *out)
{
    static float floats[COUNT];

    for (size_t i = 0; i < COUNT; i++)
        floats[i] = floats_gauss() * 0x1p-7f;
    if (dtype == SLUICE_F32)
        memcpy(out, floats, sizeof(floats));
    else
        sl_elements_narrow((enum sluice_dtype)dtype, floats, COUNT, out);
}

static void lengths_that_are_known_late_are_predicted_within_a_tenth(void **state)
{
    static const uint8_t ids[] = {SL_CODEC_PALETTE, SL_CODEC_RANS};
    const struct sl_codec_at at = {0};
    void *in = aligned_alloc(64, COUNT * sizeof(float)), *out;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(ids); i++)
        for (size_t d = 0; d < SL_ARRAY_LEN(floats_dtypes); d++) {
            struct sl_codec_spec spec = {.id = ids[i], .dtype = floats_dtypes[d]};
            const struct sl_codec *codec = sl_codec_by_id(spec.id);
            double usual = (double)sl_codec_usual(&spec) * COUNT;

            fill(spec.dtype, in);
            out = aligned_alloc(64, (codec->size(&spec, COUNT) + 63) / 64 * 64);
            double len = (double)codec->encode(&spec, &at, in, COUNT, out);

            if (len < 0.9 * usual || len > 1.1 * usual)
                fail_msg("%s of %s: %g bytes, and %g are predicted", codec->name,
                         sluice_dtype_name((enum sluice_dtype)spec.dtype), len, usual);
            free(out);
        }
    free(in);
}

static void lengths_that_are_fixed_are_not_predicted(void **state)
{
    (void)state;
    for (size_t i = 0; sl_codec_row(i) != NULL; i++) {
        struct sl_codec_spec spec = {.id = sl_codec_row(i)->id, .dtype = SLUICE_F32};

        if ((sl_codec_row(i)->flags & SL_CODEC_FIXED) != 0)
            assert_true(sl_codec_usual(&spec) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_takes_work_and_more_with_random_numbers_or_a_rotation),
        cmocka_unit_test(lengths_that_are_known_late_are_predicted_within_a_tenth),
        cmocka_unit_test(lengths_that_are_fixed_are_not_predicted),
    };

    return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
