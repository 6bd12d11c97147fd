/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written once over any codec, tile by tile: the reduction of encoded messages, and error
 * feedback. A tile's floats stay in the nearest caches between the passes over it.
 */
#include "compress/codec.h"

#include "compress/codecs.h"
#include "compress/elements.h"
#include "compress/kernels.h"
#include "core/err.h"

/* Encoded, floats are floats whatever the message was made of, but where the bytes are those of the
 * elements. */
static bool keeps_dtype(const struct sl_codec *codec, const struct sl_codec_spec *spec)
{
    return (codec->flags & SL_CODEC_LOSSLESS) != 0 && spec->dtype != SLUICE_F32;
}

static size_t encode_tile(const struct sl_codec *codec, const struct sl_codec_spec *spec,
                          const struct sl_codec_at *at, const float *in, size_t count, void *out)
{
    struct sl_codec_spec floats = *spec;
    uint16_t halves[SL_TILE];

    if (keeps_dtype(codec, spec)) {
        sl_elements_narrow(spec->dtype, in, count, halves);
        return codec->encode(spec, at, halves, count, out);
    }
    floats.dtype = SLUICE_F32;
    return codec->encode(&floats, at, in, count, out);
}

static int decode_tile(const struct sl_codec *codec, const struct sl_codec_spec *spec,
                       const struct sl_codec_at *at, const void *in, size_t len, size_t count,
                       float *out)
{
    struct sl_codec_spec floats = *spec;
    uint16_t halves[SL_TILE];
    int err;

    if (keeps_dtype(codec, spec)) {
        err = codec->decode(spec, at, in, len, count, halves);
        if (err == 0)
            sl_elements_widen(spec->dtype, halves, count, out);
        return err;
    }
    floats.dtype = SLUICE_F32;
    return codec->decode(&floats, at, in, len, count, out);
}

static struct sl_codec_at at_tile(const struct sl_codec_at *at, size_t first)
{
    struct sl_codec_at tile = *at;

    tile.first += first;
    return tile;
}

int sl_codec_reduce(const struct sl_codec_spec *in_spec, const struct sl_codec_at *in_at,
                    const void *const *in, unsigned ranks, size_t len, float factor,
                    const struct sl_codec_spec *out_spec, const struct sl_codec_at *out_at,
                    size_t count, void *out, size_t *out_len)
{
    const struct sl_codec *from = sl_codec_by_id(in_spec->id), *to = sl_codec_by_id(out_spec->id);
    size_t step = from->size(in_spec, SL_TILE), done = 0;
    int err = sl_codec_check_len(in_spec, len, count);

    sl_dassert((from->flags & to->flags & SL_CODEC_FIXED) != 0 && ranks > 0);
    sl_dassert(in_spec->row == 0 && out_spec->row == 0);
    for (size_t first = 0; err == 0 && first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE, at = first / SL_TILE * step;
        size_t bytes = n == SL_TILE ? step : len - at;
        struct sl_codec_at here = at_tile(in_at, first), there = at_tile(out_at, first);
        float sum[SL_TILE];

        err = decode_tile(from, in_spec, &here, (const char *)in[0] + at, bytes, n, sum);
        for (unsigned w = 1; err == 0 && w < ranks; w++)
            err = from->decode_add(in_spec, &here, (const char *)in[w] + at, bytes, n, sum);
        if (err != 0)
            break;
        if (factor != 1.0f)
            sl_codec_kernels()->times(sum, n, factor);
        done += encode_tile(to, out_spec, &there, sum, n, (char *)out + done);
    }
    if (err == 0)
        *out_len = done;
    return err;
}

int sl_codec_decode_mean(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                         const void *in, size_t len, size_t count, float factor, float *sum)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t tile = sl_codec_tile(spec), step = codec->size(spec, tile);
    int err;

    if (factor == 1.0f || (codec->flags & SL_CODEC_FIXED) == 0) {
        err = codec->decode_add(spec, at, in, len, count, sum);
        if (err == 0 && factor != 1.0f)
            sl_codec_kernels()->times(sum, count, factor);
        return err;
    }
    err = sl_codec_check_len(spec, len, count);
    for (size_t first = 0; err == 0 && first < count; first += tile) {
        size_t n = count - first < tile ? count - first : tile, off = first / tile * step;
        struct sl_codec_at here = at_tile(at, first);

        err = codec->decode_add(spec, &here, (const char *)in + off, n == tile ? step : len - off,
                                n, sum + first);
        if (err == 0)
            sl_codec_kernels()->times(sum + first, n, factor);
    }
    return err;
}

/* One tile, or less. */
static size_t feedback_tile(const struct sl_codec *codec, const struct sl_codec_spec *spec,
                            const struct sl_codec_at *at, const void *in, float *residual,
                            size_t count, void *out)
{
    const struct sl_codec_kernels *kernels = sl_codec_kernels();
    float sum[SL_TILE], sent[SL_TILE];
    const float *x = sl_elements_floats(spec->dtype, in, count, sum);
    size_t len;
    int err;

    kernels->feedback_sum(x, residual, count, sum);
    len = encode_tile(codec, spec, at, sum, count, out);
    err = decode_tile(codec, spec, at, out, len, count, sent);
    sl_assert(err == 0); /* its own bytes */
    kernels->feedback_rest(sum, sent, count, residual);
    return len;
}

size_t sl_codec_encode_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                                const void *in, float *residual, size_t count, void *out)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2, done = 0, first = 0;

    sl_dassert((codec->flags & SL_CODEC_FIXED) != 0 && spec->row == 0);
    if (codec->feedback != NULL && count >= SL_TILE)
        done = codec->feedback(spec, at, in, residual, count / SL_TILE * SL_TILE, out);
    if (done > 0)
        first = count / SL_TILE * SL_TILE;
    for (; first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE;
        struct sl_codec_at here = at_tile(at, first);

        done += feedback_tile(codec, spec, &here, (const char *)in + first * elem, residual + first,
                              n, (char *)out + done);
    }
    return done;
}
