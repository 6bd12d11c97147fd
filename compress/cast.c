/* SPDX-License-Identifier: Apache-2.0 */
/* Shorter floats: bf16 and fp16, rounded to nearest even or at random. */
#include "compress/codecs.h"
#include "compress/elements.h"
#include "compress/tile.h"

static unsigned half_of(const struct sl_codec_spec *spec)
{
    return spec->id == SL_CODEC_BF16 ? SLUICE_BF16 : SLUICE_F16;
}

static size_t cast_size(const struct sl_codec_spec *spec, size_t count)
{
    return sl_codec_round16(count * sizeof(uint16_t));
}

static size_t cast_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, size_t count, void *out)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    size_t len = cast_size(spec, count), elem = spec->dtype == SLUICE_F32 ? 4 : 2;
    bool stream = len >= SL_STREAM_BYTES, at_random = (spec->flags & SL_SPEC_STOCHASTIC) != 0;

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        const char *from = (const char *)in + first * elem;
        float scratch[SL_TILE];
        uint16_t random[SL_TILE];
        const float *x = sl_elements_floats(spec->dtype, from, tile.count, scratch);

        if (at_random)
            kernels->random(at->first + first, tile.units, at->stream, at->step, spec->seed,
                            random);
        kernels->narrow(half_of(spec), x, tile.count, at_random ? random : NULL, stream,
                        (char *)out + first * sizeof(uint16_t));
    }
    sl_tile_fence(len);
    memset((char *)out + count * sizeof(uint16_t), 0, len - count * sizeof(uint16_t));
    return len;
}

static size_t cast_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                            const void *in, float *residual, size_t count, void *out)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    bool at_random = (spec->flags & SL_SPEC_STOCHASTIC) != 0;
    size_t len = cast_size(spec, count);

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        uint16_t random[SL_TILE];
        const void *next;
        const float *x = sl_tile_floats(&tile, spec->dtype, in, count, scratch, &next);

        if (at_random)
            kernels->random(at->first + first, SL_TILE, at->stream, at->step, spec->seed, random);
        kernels->feedback_narrow(half_of(spec), x, residual + first, SL_TILE,
                                 at_random ? random : NULL, len >= SL_STREAM_BYTES,
                                 (char *)out + first * sizeof(uint16_t));
    }
    sl_tile_fence(len);
    return len;
}

static int cast_decode_to(const struct sl_codec_spec *spec, const void *in, size_t len,
                          size_t count, unsigned dtype, void *out, bool add)
{
    int err = sl_codec_check_len(spec, len, count);

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        enum sl_put put;
        float *to = sl_tile_target(&tile, dtype, out, count, add, scratch, &put);

        sl_codec_kernels()->widen(half_of(spec), (const char *)in + first * sizeof(uint16_t),
                                  tile.count, put, to);
        if (to == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
    sl_tile_fence(add ? 0 : count * sl_dtype_bytes(dtype));
    return err;
}

static int cast_decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                       const void *in, size_t len, size_t count, void *out)
{
    return cast_decode_to(spec, in, len, count, spec->dtype, out, false);
}

static int cast_decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                           const void *in, size_t len, size_t count, float *sum)
{
    return cast_decode_to(spec, in, len, count, SLUICE_F32, sum, true);
}

const struct sl_codec sl_codec_bf16 = {
    .name = "bf16",
    .help = "the upper half of an f32",
    .id = SL_CODEC_BF16,
    .flags = SL_CODEC_FIXED | SL_CODEC_STOCHASTIC | SL_CODEC_UNBIASED,
    .size = cast_size,
    .encode = cast_encode,
    .decode = cast_decode,
    .decode_add = cast_decode_add,
    .feedback = cast_feedback,
};

const struct sl_codec sl_codec_fp16 = {
    .name = "fp16",
    .help = "IEEE binary16",
    .id = SL_CODEC_FP16,
    .flags = SL_CODEC_FIXED | SL_CODEC_STOCHASTIC | SL_CODEC_UNBIASED,
    .size = cast_size,
    .encode = cast_encode,
    .decode = cast_decode,
    .decode_add = cast_decode_add,
    .feedback = cast_feedback,
};
