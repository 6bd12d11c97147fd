/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's codecs without a GPU: compress/cuda/gpu.c over a driver whose kernels are those of the
 * emulation, byte for byte against the codecs of the CPU.
 */
#include "compress/cuda/gpu.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/compress/cuda_inputs.h"
#include "tests/unit/compress/emulated_driver.h"

#define MOST (3 * SL_TILE + 1)
#define RANKS 3

/* ---- both ways ---- */

static struct sl_gpu_codecs *gpu;
static const struct sl_codec_at place = {.first = 5 * (uint64_t)SL_TILE, .stream = 3, .step = 9};

/* Room to a byte, so that sanitizers see what goes past it. */
static void *room(size_t len)
{
    void *at = NULL;

    assert_int_equal(posix_memalign(&at, 16, len == 0 ? 1 : len), 0);
    memset(at, 0xa5, len);
    return at;
}

/* NaN may have any payload where sums made it. */
static void assert_floats_equal(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(a[i] != a[i] && b[i] != b[i]))
            fail_msg("element %zu: %a, not %a", i, (double)a[i], (double)b[i]);
}

static void assert_bytes_equal(const struct sl_codec_spec *spec, const char *what, const void *got,
                               const void *want, size_t len)
{
    const uint8_t *a = got, *b = want;

    for (size_t i = 0; i < len; i++)
        if (a[i] != b[i])
            fail_msg("%s %s, dtype %u, flags %u: byte %zu of %zu is 0x%02x, not 0x%02x",
                     sl_codec_by_id(spec->id)->name, what, spec->dtype, spec->flags, i, len, a[i],
                     b[i]);
}

static size_t elem_of(const struct sl_codec_spec *spec)
{
    return spec->dtype == SLUICE_F32 ? 4 : 2;
}

static void encode_and_decode(const struct sl_codec_spec *spec, const void *in, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t len = codec->size(spec, count), bytes = count * elem_of(spec);
    void *want = room(len), *got = room(len), *want_out = room(bytes), *got_out = room(bytes);
    float *want_sum = room(count * 4), *got_sum = room(count * 4);

    assert_int_equal(codec->encode(spec, &place, in, count, want), len);
    assert_int_equal(sl_gpu_encode(gpu, spec, &place, in, count, got, NULL), 0);
    assert_bytes_equal(spec, "encoded", got, want, len);
    assert_int_equal(codec->decode(spec, &place, want, len, count, want_out), 0);
    assert_int_equal(sl_gpu_decode(gpu, spec, got, len, count, got_out, NULL), 0);
    assert_bytes_equal(spec, "decoded", got_out, want_out, bytes);
    for (size_t i = 0; i < count; i++)
        want_sum[i] = got_sum[i] = (float)(i % 100) / 7 - 3;
    assert_int_equal(codec->decode_add(spec, &place, want, len, count, want_sum), 0);
    assert_int_equal(sl_gpu_decode_add(gpu, spec, want, len, count, got_sum, NULL), 0);
    assert_floats_equal(got_sum, want_sum, count);
    free(want);
    free(got);
    free(want_out);
    free(got_out);
    free(want_sum);
    free(got_sum);
}

static void with_feedback(const struct sl_codec_spec *spec, const void *in, size_t count)
{
    size_t len = sl_codec_by_id(spec->id)->size(spec, count);
    void *want = room(len), *got = room(len);
    float *want_left = room(count * 4), *got_left = room(count * 4);

    for (size_t i = 0; i < count; i++)
        want_left[i] = got_left[i] = (float)(i % 31) / 64 - 0.25f;
    for (unsigned step = 0; step < 2; step++) {
        assert_int_equal(sl_codec_encode_feedback(spec, &place, in, want_left, count, want), len);
        assert_int_equal(sl_gpu_encode_feedback(gpu, spec, &place, in, got_left, count, got, NULL),
                         0);
        assert_bytes_equal(spec, "encoded with feedback", got, want, len);
        assert_bytes_equal(spec, "residual", got_left, want_left, count * 4);
    }
    free(want);
    free(got);
    free(want_left);
    free(got_left);
}

static void reduced(const struct sl_codec_spec *spec, const void *in, size_t count, float factor)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t len = codec->size(spec, count), got_len = 0;
    void *want = room(len), *got = room(len), *messages[RANKS];
    struct sl_codec_at at = place;

    for (unsigned w = 0; w < RANKS; w++) {
        messages[w] = room(len);
        at.stream = 100 + w; /* so that they differ, where rounding is at random */
        codec->encode(spec, &at, in, count, messages[w]);
    }
    assert_int_equal(sl_codec_reduce(spec, &place, (const void *const *)messages, RANKS, len,
                                     factor, spec, &place, count, want, &got_len),
                     0);
    assert_int_equal(got_len, len);
    assert_int_equal(sl_gpu_reduce(gpu, spec, &place, (const void *const *)messages, RANKS, len,
                                   factor, count, got, NULL),
                     0);
    assert_bytes_equal(spec, "reduced", got, want, len);
    for (unsigned w = 0; w < RANKS; w++)
        free(messages[w]);
    free(want);
    free(got);
}

/* ---- over codecs, types, inputs and lengths ---- */

struct trial {
    const char *codec;
    unsigned flags;
};

static const struct trial trials[] = {
    {"bf16", 0},  {"bf16", SL_SPEC_STOCHASTIC},
    {"fp16", 0},  {"fp16", SL_SPEC_STOCHASTIC},
    {"bq8", 0},   {"bq8", SL_SPEC_STOCHASTIC},
    {"bq4", 0},   {"bq4", SL_SPEC_STOCHASTIC},
    {"bq2", 0},   {"bq2", SL_SPEC_STOCHASTIC},
    {"e4m3", 0},  {"e5m2", 0},
    {"mxfp8", 0}, {"mxfp4", 0},
    {"nvfp4", 0}, {"e3m0", 0},
    {"sign", 0},
};
static const unsigned dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};

static void spec_of(const struct trial *trial, unsigned dtype, struct sl_codec_spec *out)
{
    const struct sl_codec *codec = sl_codec_by_name(trial->codec);

    assert_non_null(codec);
    *out = (struct sl_codec_spec){
        .id = codec->id, .dtype = (uint8_t)dtype, .flags = (uint8_t)trial->flags};
    if (trial->flags != 0)
        out->seed = 0x123456789abcdef0;
    assert_int_equal(sl_gpu_codecs_load(gpu, codec->id), 0);
}

static void for_all(void (*each)(const struct sl_codec_spec *, const void *, size_t),
                    const size_t *counts, unsigned count_count)
{
    char *in = room(MOST * 4 + 16);
    struct sl_codec_spec spec;

    for (unsigned t = 0; t < SL_ARRAY_LEN(trials); t++)
        for (unsigned d = 0; d < SL_ARRAY_LEN(dtypes); d++) {
            spec_of(&trials[t], dtypes[d], &spec);
            for (unsigned c = 0; c < count_count; c++) {
                unsigned kind = (t + d + c) % INPUT_COUNT;
                /* Now and then not where vectors could be loaded. */
                char *at = in + (c % 3 == 2 ? elem_of(&spec) : 0);

                inputs_fill(kind, spec.dtype, counts[c], t * 100 + d * 10 + c, at);
                each(&spec, at, counts[c]);
            }
        }
    free(in);
}

static void every_length_has_the_bytes_of_the_cpu(void **state)
{
    static const size_t counts[] = {0,   1,   3,    15,   16,   17,   31,   33,   127,
                                    128, 129, 1000, 1024, 1025, 4095, 4096, 4097, MOST};

    (void)state;
    for_all(encode_and_decode, counts, SL_ARRAY_LEN(counts));
}

static void every_kind_of_input_has_the_bytes_of_the_cpu(void **state)
{
    char *in = room(SL_TILE * 4);
    struct sl_codec_spec spec;

    (void)state;
    for (unsigned t = 0; t < SL_ARRAY_LEN(trials); t++)
        for (unsigned d = 0; d < SL_ARRAY_LEN(dtypes); d++)
            for (unsigned kind = 0; kind < INPUT_COUNT; kind++) {
                spec_of(&trials[t], dtypes[d], &spec);
                inputs_fill(kind, spec.dtype, SL_TILE, kind + 1000, in);
                encode_and_decode(&spec, in, SL_TILE);
            }
    free(in);
}

/* Bytes that no encoder makes. */
static void bytes_of_strangers_decode_as_on_the_cpu(void **state)
{
    const size_t count = SL_TILE + 100;
    struct sl_codec_spec spec;

    (void)state;
    for (unsigned t = 0; t < SL_ARRAY_LEN(trials); t++) {
        spec_of(&trials[t], SLUICE_F32, &spec);
        const struct sl_codec *codec = sl_codec_by_id(spec.id);
        size_t len = codec->size(&spec, count);
        float *want = room(count * 4), *got = room(count * 4);
        uint8_t *in = room(len);

        for (unsigned round = 0; round < 6; round++) {
            inputs_fill(INPUT_BITS, SLUICE_F16, len / 2, 7 * t + round, in);
            if (spec.id == SL_CODEC_BQ8) /* scales of every second block are no numbers */
                for (size_t b = 0; b < SL_TILE / 128; b += 2)
                    memcpy(in + 2 * b, &(uint16_t){b % 4 == 0 ? 0xff80 : 0x7f81}, 2);
            assert_int_equal(codec->decode(&spec, &place, in, len, count, want), 0);
            assert_int_equal(sl_gpu_decode(gpu, &spec, in, len, count, got, NULL), 0);
            assert_bytes_equal(&spec, "of strangers", got, want, count * 4);
        }
        free(want);
        free(got);
        free(in);
    }
}

static void residuals_are_those_of_the_cpu(void **state)
{
    static const size_t counts[] = {1, 129, 4096, 4100, MOST};

    (void)state;
    for_all(with_feedback, counts, SL_ARRAY_LEN(counts));
}

static void sum_of_three(const struct sl_codec_spec *spec, const void *in, size_t count)
{
    reduced(spec, in, count, 1.0f);
}

static void mean_of_three(const struct sl_codec_spec *spec, const void *in, size_t count)
{
    reduced(spec, in, count, 1.0f / 3);
}

static void reduced_messages_have_the_bytes_of_the_cpu(void **state)
{
    static const size_t counts[] = {1, 33, 4096, 4097};

    (void)state;
    for_all(sum_of_three, counts, SL_ARRAY_LEN(counts));
    for_all(mean_of_three, counts, 3);
}

/* ---- what cannot be ---- */

static void what_cannot_be_is_refused_before_the_driver_sees_it(void **state)
{
    struct sl_codec_spec spec = {.id = SL_CODEC_BF16, .dtype = SLUICE_F32};
    struct sl_gpu_codecs *other = NULL;
    static char bytes[8192 + 16] __attribute__((aligned(16)));
    static float floats[SL_TILE + 4] __attribute__((aligned(16)));
    const void *ins[SL_GPU_REDUCE_MOST + 1] = {bytes, bytes + 1};

    (void)state;
    assert_int_equal(sl_gpu_codecs_create(&other), 0);
    assert_int_equal(sl_gpu_encode(other, &spec, &place, floats, 8, bytes, NULL), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "bf16 were not loaded"));
    assert_int_equal(sl_gpu_codecs_load(other, SL_CODEC_RAW), -ENOTSUP);
    assert_int_equal(sl_gpu_codecs_load(other, 200), -ENOTSUP);
    assert_int_equal(sl_gpu_codecs_load(other, SL_CODEC_BF16), 0);
    emulated_driver.launches = 0;
    assert_int_equal(sl_gpu_encode(other, &spec, &place, floats, 8, bytes + 4, NULL), -EINVAL);
    assert_int_equal(sl_gpu_encode(other, &spec, &place, (char *)floats + 2, 8, bytes, NULL),
                     -EINVAL);
    assert_int_equal(sl_gpu_decode(other, &spec, bytes, 15, 8, floats, NULL), -EBADMSG);
    assert_int_equal(sl_gpu_decode(other, &spec, bytes + 2, 16, 8, floats, NULL), -EINVAL);
    assert_int_equal(sl_gpu_decode_add(other, &spec, bytes, 32, 8, floats, NULL), -EBADMSG);
    assert_int_equal(sl_gpu_reduce(other, &spec, &place, ins, 0, 16, 1, 8, bytes, NULL), -EINVAL);
    assert_int_equal(
        sl_gpu_reduce(other, &spec, &place, ins, SL_GPU_REDUCE_MOST + 1, 16, 1, 8, bytes, NULL),
        -EINVAL);
    assert_int_equal(sl_gpu_reduce(other, &spec, &place, ins, 2, 16, 1, 8, bytes, NULL), -EINVAL);
    spec.flags = SL_SPEC_ROTATED;
    assert_int_equal(sl_gpu_encode(other, &spec, &place, floats, 8, bytes, NULL), -ENOTSUP);
    assert_int_equal(emulated_driver.launches, 0);
    spec.flags = 0;
    assert_int_equal(sl_gpu_encode(other, &spec, &place, floats, 0, bytes, NULL), 0);
    assert_int_equal(emulated_driver.launches, 0);
    emulated_driver.launch_result = 700;
    assert_int_equal(sl_gpu_encode(other, &spec, &place, floats, 8, bytes, NULL), -EIO);
    assert_non_null(strstr(sluice_last_error(), "cuLaunchKernel failed: CUDA_ERROR_ILLEGAL"));
    emulated_driver.launch_result = 0;
    sl_gpu_codecs_destroy(other);
}

static int open_gpu(void **state)
{
    (void)state;
    emulated_driver_use();
    return sl_gpu_codecs_create(&gpu);
}

static int close_gpu(void **state)
{
    (void)state;
    sl_gpu_codecs_destroy(gpu);
    return emulated_driver.loaded == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_has_the_bytes_of_the_cpu),
        cmocka_unit_test(every_kind_of_input_has_the_bytes_of_the_cpu),
        cmocka_unit_test(bytes_of_strangers_decode_as_on_the_cpu),
        cmocka_unit_test(residuals_are_those_of_the_cpu),
        cmocka_unit_test(reduced_messages_have_the_bytes_of_the_cpu),
        cmocka_unit_test(what_cannot_be_is_refused_before_the_driver_sees_it),
    };

    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
