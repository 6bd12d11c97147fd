/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the tiles of codecs whose blocks of small floats share a scale. */
#include "compress/scaled.h"

#include "compress/codecs.h"
#include "compress/tile.h"
#include "core/err.h"

#include <string.h>

static const struct sl_scaled *scaled_of(const struct sl_codec_spec *spec)
{
    switch (spec->id) {
    case SL_CODEC_E4M3: return &sl_scaled_e4m3;
    case SL_CODEC_E5M2: return &sl_scaled_e5m2;
    case SL_CODEC_MXFP8: return &sl_scaled_mxfp8;
    case SL_CODEC_MXFP4: return &sl_scaled_mxfp4;
    case SL_CODEC_NVFP4: return &sl_scaled_nvfp4;
    default: sl_dassert(spec->id == SL_CODEC_E3M0); return &sl_scaled_e3m0;
    }
}

/* Where the parts of a tile of count elements lie. */
struct layout {
    size_t blocks, codes, code_len, len;
};

static struct layout layout_of(const struct sl_scaled *scaled, size_t count)
{
    size_t blocks = (count + scaled->block - 1) / scaled->block;
    struct layout at = {.blocks = blocks};

    if (count == 0)
        return at;
    at.codes = sl_codec_round16(scaled->head + blocks * scaled->scale_bytes);
    at.code_len = blocks * scaled->block * sl_minifloat_format(scaled->kind).bits / 8;
    at.len = at.codes + sl_codec_round16(at.code_len);
    return at;
}

size_t sl_scaled_size(const struct sl_codec_spec *spec, size_t count)
{
    const struct sl_scaled *scaled = scaled_of(spec);

    return count / SL_TILE * layout_of(scaled, SL_TILE).len +
           layout_of(scaled, count % SL_TILE).len;
}

/* The scales of blocks with these maxima, into the message; their inverses. */
static void write_scales(const struct sl_scaled *scaled, const struct layout *at,
                         const uint32_t *maxima, float *inverses, uint8_t *out)
{
    float values[SL_SCALED_BLOCKS_MAX];

    memset(out + at->codes - 16, 0, 16);
    if (scaled->halves.most != 0)
        sl_codec_kernels()->scales(&scaled->halves, maxima, at->blocks, values, inverses, out);
    else
        scaled->make(maxima, at->blocks, out, inverses);
}

static void find_maxima(const struct sl_scaled *scaled, const float *x, size_t count,
                        uint32_t *maxima)
{
    const struct sl_codec_kernels *common = sl_codec_kernels();

    if (scaled->block == 16)
        sl_scaled_kernels_of(common)->maxima16(x, count, maxima);
    else
        common->maxima(x, count, scaled->block, NULL, maxima);
}

/* x: whole units. What lies behind the blocks of count elements is 0, and so are its codes. */
static void encode_tile(const struct sl_scaled *scaled, const struct sl_tile *tile, const float *x,
                        const void *next, bool stream, uint8_t *out)
{
    const struct sl_scaled_kernels *kernels = sl_scaled_kernels_of(sl_codec_kernels());
    struct layout at = layout_of(scaled, tile->count);
    uint32_t maxima[SL_SCALED_BLOCKS_MAX];
    float inverses[SL_SCALED_BLOCKS_MAX] = {0};
    uint8_t spare[SL_TILE];

    find_maxima(scaled, x, tile->units, maxima);
    write_scales(scaled, &at, maxima, inverses, out);
    if (tile->count == SL_TILE) {
        kernels->encode[scaled->kind](x, SL_TILE, scaled->block, inverses, next, stream,
                                      out + at.codes);
        return;
    }
    kernels->encode[scaled->kind](x, tile->units, scaled->block, inverses, NULL, false, spare);
    memcpy(out + at.codes, spare, at.code_len);
    memset(out + at.codes + at.code_len, 0, at.len - at.codes - at.code_len);
}

size_t sl_scaled_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const void *in, size_t count, void *out)
{
    const struct sl_scaled *scaled = scaled_of(spec);
    size_t step = layout_of(scaled, SL_TILE).len, len = sl_scaled_size(spec, count);

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        const void *next;
        const float *x = sl_tile_floats(&tile, spec->dtype, in, count, scratch, &next);

        encode_tile(scaled, &tile, x, next, len >= SL_STREAM_BYTES,
                    (uint8_t *)out + first / SL_TILE * step);
    }
    sl_codec_kernels()->fence();
    return len;
}

static void decode_tile(const struct sl_scaled *scaled, const struct sl_tile *tile,
                        const uint8_t *in, enum sl_put put, float *out)
{
    const struct sl_scaled_kernels *kernels = sl_scaled_kernels_of(sl_codec_kernels());
    struct layout at = layout_of(scaled, tile->count);
    float scales[SL_SCALED_BLOCKS_MAX] = {0};
    uint8_t spare[SL_TILE];
    const uint8_t *codes = in + at.codes;

    scaled->read(in, at.blocks, scales);
    if (tile->count < SL_TILE) {
        memset(spare, 0, sizeof(spare));
        codes = memcpy(spare, codes, at.code_len);
    }
    kernels->decode[scaled->kind](codes, tile->units, scaled->block, scales, put, out);
}

/* The sum lies in the residual until what was sent is taken off. */
static void feedback_tile(const struct sl_scaled *scaled, const float *x, float *residual,
                          const void *next, uint8_t *out)
{
    const struct sl_codec_kernels *common = sl_codec_kernels();
    struct layout at = layout_of(scaled, SL_TILE);
    const struct sl_scaled_kernels *kernels = sl_scaled_kernels_of(common);
    uint32_t maxima[SL_SCALED_BLOCKS_MAX];
    float inverses[SL_SCALED_BLOCKS_MAX], scales[SL_SCALED_BLOCKS_MAX];

    if (scaled->block == 16) {
        common->feedback_sum(x, residual, SL_TILE, residual);
        find_maxima(scaled, residual, SL_TILE, maxima);
    } else {
        common->feedback_maxima(x, SL_TILE, scaled->block, residual, maxima);
    }
    write_scales(scaled, &at, maxima, inverses, out);
    /* The codes are read again at once: not past the caches. */
    kernels->encode[scaled->kind](residual, SL_TILE, scaled->block, inverses, next, false,
                                  out + at.codes);
    scaled->read(out, at.blocks, scales);
    kernels->rest[scaled->kind](out + at.codes, SL_TILE, scaled->block, scales, residual);
}

size_t sl_scaled_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, float *residual, size_t count, void *out)
{
    const struct sl_scaled *scaled = scaled_of(spec);
    size_t step = layout_of(scaled, SL_TILE).len;

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        const void *next;
        const float *x = sl_tile_floats(&tile, spec->dtype, in, count, scratch, &next);

        feedback_tile(scaled, x, residual + first, next, (uint8_t *)out + first / SL_TILE * step);
    }
    return count / SL_TILE * step;
}

static int decode_to(const struct sl_codec_spec *spec, const void *in, size_t len, size_t count,
                     unsigned dtype, void *out, bool add)
{
    const struct sl_scaled *scaled = scaled_of(spec);
    size_t step = layout_of(scaled, SL_TILE).len;
    int err = sl_codec_check_len(spec, len, count);

    for (size_t first = 0; err == 0 && first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        enum sl_put put;
        float *to = sl_tile_target(&tile, dtype, out, count, add, scratch, &put);

        decode_tile(scaled, &tile, (const uint8_t *)in + first / SL_TILE * step, put, to);
        if (to == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
    sl_codec_kernels()->fence();
    return err;
}

int sl_scaled_decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t len, size_t count, void *out)
{
    return decode_to(spec, in, len, count, spec->dtype, out, false);
}

int sl_scaled_decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                         const void *in, size_t len, size_t count, float *sum)
{
    return decode_to(spec, in, len, count, SLUICE_F32, sum, true);
}

void sl_scaled_read_bf16(const uint8_t *in, size_t blocks, float *scales)
{
    for (size_t i = 0; i < blocks; i++) {
        uint16_t scale;

        memcpy(&scale, in + i * sizeof(scale), sizeof(scale));
        scales[i] =
            (scale & 0x7fff) >= SL_BITS_INF >> 16 ? sl_f32_of(SL_BITS_NAN) : sl_f32_of_bf16(scale);
    }
}
