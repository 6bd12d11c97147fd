/* SPDX-License-Identifier: Apache-2.0 */
/* The runner of a codec's steps, and what an operation keeps for error feedback. */
#include "compress/runner.h"

#include "compress/elements.h"
#include "core/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define N 5000

static struct sl_code_runner runner;
static _Alignas(64) unsigned char wire[N * 4 + 4096];
static float in[N], out[N];

static void begin(const char *text)
{
    struct sl_codec_spec spec;

    assert_int_equal(sl_codec_parse(text, &spec), 0);
    sl_code_runner_init(&runner, &spec);
    for (unsigned i = 0; i < N; i++)
        in[i] = (float)((int)(i * 7919 % 2001) - 1000) / 777.0f;
}

static int run(struct sl_work work, uint64_t *len)
{
    struct sl_req req = {.status = SL_PENDING};
    int result = runner.base.ops->start(&runner.base, &work, &req);

    runner.base.ops->progress(&runner.base, 1);
    if (len != NULL)
        *len = req.len;
    return result;
}

static struct sl_work encodes(const void *from, size_t elem, uint64_t count)
{
    return (struct sl_work){.kind = SL_WORK_ENCODE,
                            .dtype = SLUICE_F32,
                            .op = SLUICE_SUM,
                            .divisor = 1,
                            .count = count,
                            .src = from,
                            .dst = wire,
                            .src_len = count * elem,
                            .dst_len = sizeof(wire)};
}

static struct sl_work decodes(enum sl_work_kind kind, void *to, uint64_t count, uint64_t len)
{
    return (struct sl_work){.kind = kind,
                            .dtype = SLUICE_F32,
                            .op = SLUICE_SUM,
                            .divisor = 1,
                            .count = count,
                            .src = wire,
                            .dst = to,
                            .src_len = len,
                            .dst_len = count * sizeof(float)};
}

static void what_is_encoded_is_decoded_as_the_codec_does_it(void **state)
{
    static _Alignas(64) unsigned char plain[sizeof(wire)];
    const struct sl_codec_at at = {.first = 3 * SL_TILE, .stream = 5, .step = 9};
    struct sl_work work;
    uint64_t len;

    (void)state;
    begin("bf16:stochastic=on,seed=11");
    work = encodes(in, 4, N);
    work.tile = 3;
    work.stream = 5;
    work.turn = 9;
    assert_int_equal(run(work, &len), 1);
    assert_int_equal(len, sl_code_runner_code(&runner, SLUICE_F32, true)
                              ->bytes(sl_code_runner_code(&runner, SLUICE_F32, true), N));
    assert_int_equal(runner.codec->encode(&runner.codes[0].spec, &at, in, N, plain), len);
    assert_memory_equal(wire, plain, len);
    assert_int_equal(run(decodes(SL_WORK_DECODE, out, N, len), NULL), 1);
    for (unsigned i = 0; i < N; i++)
        assert_true(out[i] - in[i] < 0.01f && in[i] - out[i] < 0.01f);
    assert_true(runner.tally.messages == 1 && runner.tally.elements == N &&
                runner.tally.bytes == len);
}

static void sums_are_in_f32_and_averages_one_product(void **state)
{
    uint16_t halves[N];
    struct sl_work work;
    uint64_t len;

    (void)state;
    begin("bf16");
    sl_elements_narrow(SLUICE_BF16, in, N, halves);
    work = encodes(halves, 2, N);
    work.dtype = SLUICE_BF16;
    assert_int_equal(run(work, &len), 1);
    memcpy(out, in, sizeof(out));
    work = decodes(SL_WORK_DECODE_REDUCE, out, N, len);
    work.dtype = SLUICE_BF16;
    assert_int_equal(run(work, NULL), -ENOTSUP); /* into bf16 */
    work.dst_wide = true;
    work.divisor = 3;
    assert_int_equal(run(work, NULL), 1);
    for (unsigned i = 0; i < N; i++)
        assert_true(out[i] == (in[i] + sl_f32_of_bf16(halves[i])) * (1.0f / 3.0f));

    /* ... and to the elements of the call by a copy. */
    work = (struct sl_work){.kind = SL_WORK_COPY,
                            .dtype = SLUICE_BF16,
                            .src_wide = true,
                            .count = N,
                            .src = out,
                            .dst = halves,
                            .dst_len = sizeof(halves)};
    assert_int_equal(run(work, NULL), 1);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(halves[i], sl_bf16_of(out[i]));
}

/* Within hosts the elements' own bytes may be sent, and summed in f32 all the same. */
static void bytes_of_elements_are_summed_in_f32(void **state)
{
    uint16_t halves[N];
    struct sl_work work;
    uint64_t len;

    (void)state;
    begin("raw");
    sl_elements_narrow(SLUICE_BF16, in, N, halves);
    work = encodes(halves, 2, N);
    work.dtype = SLUICE_BF16;
    assert_int_equal(run(work, &len), 1);
    assert_int_equal(len, 2 * N);
    memset(out, 0x5c, sizeof(out));
    work = decodes(SL_WORK_DECODE, out, N, len);
    work.dtype = SLUICE_BF16;
    work.dst_wide = true;
    assert_int_equal(run(work, NULL), 1);
    work.kind = SL_WORK_DECODE_REDUCE;
    assert_int_equal(run(work, NULL), 1);
    for (unsigned i = 0; i < N; i++)
        assert_true(out[i] == 2 * sl_f32_of_bf16(halves[i]));
    work = encodes(out, 4, N);
    work.dtype = SLUICE_BF16;
    work.src_wide = true;
    assert_int_equal(run(work, NULL), -ENOTSUP);
}

static void a_runner_is_full_until_its_progress_is_called(void **state)
{
    struct sl_work work = encodes(in, 4, N);
    struct sl_req req;
    unsigned taken = 0;

    (void)state;
    begin("raw");
    while (runner.base.ops->start(&runner.base, &work, &req) == 1)
        taken++;
    assert_int_equal(taken, (65536 + N - 1) / N);
    assert_int_equal(runner.base.ops->start(&runner.base, &work, &req), -EAGAIN);
    assert_int_equal(runner.base.ops->progress(&runner.base, 1), 0);
    assert_int_equal(runner.base.ops->start(&runner.base, &work, &req), 1);
}

static void what_a_codec_cannot_do_is_refused(void **state)
{
    struct sl_work work = encodes(in, 4, N);

    (void)state;
    begin("raw");
    work.dst_len = 4 * N - 1;
    assert_int_equal(run(work, NULL), -EMSGSIZE);
    work.dst_len = sizeof(wire);
    work.dtype = SLUICE_I32;
    assert_int_equal(run(work, NULL), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "takes no elements of i32"));
    work = decodes(SL_WORK_DECODE_REDUCE, out, N, 4 * N);
    work.op = SLUICE_MAX;
    assert_int_equal(run(work, NULL), -ENOTSUP);
    work = decodes(SL_WORK_REDUCE, out, N, 4 * N);
    assert_int_equal(run(work, NULL), -ENOTSUP);
    work = decodes(SL_WORK_DECODE, out, N, 4 * N - 4);
    assert_int_equal(run(work, NULL), -EBADMSG);

    assert_null(sl_code_runner_code(&runner, SLUICE_I32, false));
    assert_null(sl_code_runner_code(&runner, SLUICE_F16, true)); /* its sums would be f16 */
    assert_non_null(sl_code_runner_code(&runner, SLUICE_F16, false));
}

static void marks_differ_by_codec_and_by_parameter(void **state)
{
    const char *const texts[] = {"raw", "bf16", "bf16:stochastic=on", "bf16:stochastic=on,seed=1",
                                 "fp16"};
    uint32_t marks[SL_ARRAY_LEN(texts)];

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++) {
        begin(texts[i]);
        marks[i] = runner.codes[0].base.mark;
        assert_int_equal(sl_code_mark_name(marks[i]), runner.codec->id);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(marks[i], marks[j]);
        begin(texts[i]);
        assert_int_equal(runner.codes[2].base.mark, marks[i]);
    }
}

static void the_error_is_measured_when_asked_for(void **state)
{
    double power = 0, error = 0;

    (void)state;
    begin("bf16");
    runner.measure = true;
    assert_int_equal(run(encodes(in, 4, N), NULL), 1);
    for (unsigned i = 0; i < N; i++) {
        double lacks = (double)in[i] - sl_f32_of_bf16(sl_bf16_of(in[i]));

        power += (double)in[i] * in[i];
        error += lacks * lacks;
    }
    assert_true(error > 0 && runner.tally.power == power && runner.tally.error == error);
}

/* ---- residuals ---- */

static struct sl_code_state *made(uint64_t first, uint64_t count, uint64_t owned)
{
    const struct sl_code_extent extents[SL_CODE_STAGES] = {{first, count}, {7, owned}};
    struct sl_code_state *made;

    assert_int_equal(sl_code_state_create(extents, NULL, &made), 0);
    return made;
}

static void what_is_lost_is_added_the_next_time(void **state)
{
    struct sl_code_state *kept = made(2, 4, 1);
    double sum[N] = {0};
    uint64_t len;

    (void)state;
    begin("bf16");
    for (unsigned round = 0; round < 64; round++) {
        struct sl_work work = encodes(in, 4, N);

        work.tile = 3;
        work.state = kept;
        assert_int_equal(run(work, &len), 1);
        assert_int_equal(run(decodes(SL_WORK_DECODE, out, N, len), NULL), 1);
        for (unsigned i = 0; i < N; i++)
            sum[i] += out[i];
    }
    for (unsigned i = 0; i < N; i++) {
        double lacks = 64 * (double)in[i] - sum[i];

        assert_true(lacks < 0.006 && lacks > -0.006); /* one rounding of one element, not 64 */
        assert_true(kept->residuals[0][SL_TILE + i] - lacks < 1e-4);
    }
    for (unsigned i = 0; i < SL_TILE; i++)
        assert_true(kept->residuals[0][i] == 0 && kept->residuals[1][i] == 0);
    sl_code_state_destroy(kept);
}

static void stages_have_residuals_of_their_own(void **state)
{
    struct sl_code_state *kept = made(2, 4, 1);

    (void)state;
    assert_ptr_equal(sl_code_state_at(kept, 0, 5, SL_TILE), kept->residuals[0] + 3 * SL_TILE);
    assert_ptr_equal(sl_code_state_at(kept, 1, 7, 10), kept->residuals[1]);
    assert_null(sl_code_state_at(kept, 2, 0, 1));
    assert_null(sl_code_state_at(kept, SL_CODE_STAGES, 0, 1));
    assert_null(sl_code_state_at(NULL, 0, 0, 1));
    sl_code_state_destroy(kept);
    sl_code_state_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_encoded_is_decoded_as_the_codec_does_it),
        cmocka_unit_test(sums_are_in_f32_and_averages_one_product),
        cmocka_unit_test(bytes_of_elements_are_summed_in_f32),
        cmocka_unit_test(a_runner_is_full_until_its_progress_is_called),
        cmocka_unit_test(what_a_codec_cannot_do_is_refused),
        cmocka_unit_test(marks_differ_by_codec_and_by_parameter),
        cmocka_unit_test(the_error_is_measured_when_asked_for),
        cmocka_unit_test(what_is_lost_is_added_the_next_time),
        cmocka_unit_test(stages_have_residuals_of_their_own),
    };

    return cmocka_run_group_tests_name("runner", tests, NULL, NULL);
}
