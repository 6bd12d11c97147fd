/* SPDX-License-Identifier: Apache-2.0 */
/* Lossless messages by the GPU's kernels, without a GPU: against the codec of the CPU. */
#include "compress/cuda/gpu_palette.h"

#include "compress/codec.h"
#include "compress/cuda/emulated.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/compress/cuda_inputs.h"
#include "tests/unit/compress/emulated_driver.h"

#define MOST (3 * SL_TILE + 1)

static struct sl_gpu_palette *palette;
static const struct sl_codec *codec;
static const unsigned dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};

static void *room(size_t len)
{
    void *at = NULL;

    assert_int_equal(posix_memalign(&at, 16, len == 0 ? 1 : len), 0);
    memset(at, 0xa5, len);
    return at;
}

static void *work_for(size_t count)
{
    return memset(room(sl_gpu_palette_work_size(count)), 0, sl_gpu_palette_work_size(count));
}

static void work_free(void *work, size_t count)
{
    const char *at = work;

    for (size_t i = 0; i < sl_gpu_palette_work_size(count); i++)
        assert_int_equal(at[i], 0);
    free(work);
}

/* Some more kinds: what takes a palette, and what nothing helps. */
enum { FEW = INPUT_COUNT, HALF_ZEROS, KINDS };

static void fill(unsigned kind, unsigned dtype, size_t count, uint64_t seed, void *out)
{
    static const float few[] = {0, 1e-30f, 1e30f, 1, 1e-20f, 0, 0, 1e20f};
    float *x;

    if (kind < INPUT_COUNT) {
        inputs_fill(kind, dtype, count, seed, out);
        return;
    }
    x = room(count * 4);
    for (size_t i = 0; i < count; i++) {
        uint32_t r = inputs_random(&seed);

        x[i] = kind == FEW ? few[r >> 20 & 7] : (r & 1) != 0 ? 0 : inputs_normal(&seed);
    }
    sl_elements_narrow(dtype, x, count, out);
    free(x);
}

static void both_ways(unsigned dtype, unsigned kind, size_t count, size_t shift)
{
    const struct sl_codec_spec spec = {.id = SL_CODEC_PALETTE, .dtype = (uint8_t)dtype};
    const struct sl_codec_at at = {.first = 0};
    size_t elem = dtype == SLUICE_F32 ? 4 : 2, bytes = count * elem, most, len;
    char *in = room(bytes + elem), *from = in + shift * elem, *out = room(bytes + elem);
    void *want, *got, *work = work_for(count);
    unsigned long long got_len = 0;
    uint32_t error = 0;

    fill(kind, dtype, count, count * 31 + kind, from);
    most = codec->size(&spec, count);
    want = room(most);
    got = room(most);
    len = codec->encode(&spec, &at, from, count, want);
    assert_int_equal(sl_gpu_palette_encode(palette, dtype, from, count, got, &got_len, work, NULL),
                     0);
    assert_int_equal(got_len, len);
    for (size_t i = 0; i < len; i++)
        if (((uint8_t *)got)[i] != ((uint8_t *)want)[i])
            fail_msg("dtype %u kind %u count %zu: byte %zu of %zu is 0x%02x, not 0x%02x", dtype,
                     kind, count, i, len, ((uint8_t *)got)[i], ((uint8_t *)want)[i]);
    got = realloc(got, len == 0 ? 1 : len); /* so that reads behind it are seen */
    memset(out, 0x5a, bytes + elem);
    assert_int_equal(sl_gpu_palette_decode(palette, dtype, got, len, count, out + shift * elem,
                                           &error, work, NULL),
                     0);
    assert_int_equal(error, 0);
    assert_memory_equal(out + shift * elem, from, bytes);
    free(in);
    free(out);
    free(want);
    free(got);
    work_free(work, count);
}

static void messages_are_those_of_the_cpu(void **state)
{
    static const size_t counts[] = {0, 1, 63, 64, 65, 500, 513, 4096, 4097, MOST};

    (void)state;
    for (unsigned d = 0; d < SL_ARRAY_LEN(dtypes); d++)
        for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++)
            for (unsigned kind = 0; kind < KINDS; kind++)
                if (counts[c] == 4096 || (c + kind) % 4 == 0)
                    both_ways(dtypes[d], kind, counts[c], c % 2);
}

/* On a GPU, more than a hundred tiles are between a block and the nearest that knows all before. */
static void blocks_at_once_make_the_same_message(void **state)
{
    (void)state;
    sl_emu_at_once(140);
    both_ways(SLUICE_BF16, INPUT_TIES, 140 * SL_TILE + 1, 0);
    sl_emu_at_once(8);
    both_ways(SLUICE_F32, INPUT_NORMAL, 258 * SL_TILE - 4095, 0);
    sl_emu_at_once(1);
}

/* One byte of a good message is another, or it ends elsewhere: told, or decoded to something, but
 * nothing outside is touched, which sanitizers see. */
static void forged_messages_do_no_harm(void **state)
{
    const struct sl_codec_spec spec = {.id = SL_CODEC_PALETTE, .dtype = SLUICE_BF16};
    const struct sl_codec_at at = {.first = 0};
    const size_t count = 2 * SL_TILE + 70, raw = 2 * SL_TILE + 128;
    size_t most = codec->size(&spec, count), len;
    char *in = room(count * 2), *good = room(most), *out = room(count * 2);
    uint64_t seed = 5;
    unsigned refused = 0;

    (void)state;
    fill(INPUT_NORMAL, SLUICE_BF16, count, 1, in);
    len = codec->encode(&spec, &at, in, count, good);
    for (unsigned i = 0; i < 150; i++) {
        size_t place = i < 48 ? raw + i : inputs_random(&seed) % len;
        size_t now = i % 10 == 9 ? len - 1 - i % 20 : len;
        char *bad = memcpy(room(now), good, now);
        void *work = work_for(count);
        uint32_t error = 0;
        int err;

        if (place < now)
            bad[place] ^= (char)(1 + inputs_random(&seed) % 255);
        err = sl_gpu_palette_decode(palette, SLUICE_BF16, bad, now, count, out, &error, work, NULL);
        assert_int_equal(err, 0);
        err = codec->decode(&spec, &at, bad, now, count, in);
        if (err != 0)
            assert_int_equal(error, 1);
        else if (error == 0)
            assert_memory_equal(out, in, count * 2);
        refused += error;
        free(bad);
        work_free(work, count);
    }
    assert_in_range(refused, 20, 150); /* a flip in the raw plane is another number */
    assert_int_equal(
        sl_gpu_palette_decode(palette, SLUICE_BF16, good, raw, count, out, NULL, NULL, NULL),
        -EBADMSG);
    free(in);
    free(good);
    free(out);
}

static int open_gpu(void **state)
{
    (void)state;
    emulated_driver_use();
    return sl_gpu_palette_create(&palette);
}

static int close_gpu(void **state)
{
    (void)state;
    sl_gpu_palette_destroy(palette);
    return emulated_driver.loaded == 0 ? 0 : -1;
}

int main(void)
{
    codec = sl_codec_by_name("palette");
    if (codec == NULL) {
        print_message("1..0 # SKIP this build has no codec palette\n");
        return 0;
    }

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_those_of_the_cpu),
        cmocka_unit_test(blocks_at_once_make_the_same_message),
        cmocka_unit_test(forged_messages_do_no_harm),
    };

    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
