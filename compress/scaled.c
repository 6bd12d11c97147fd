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

/* The scales of blocks with these maxima, into the message; what they mean, and their inverses. */
static void write_scales(const struct sl_scaled *scaled, const uint32_t *maxima, size_t blocks,
                         float *values, float *inverses, uint8_t *out)
{
    if (scaled->halves.most != 0)
        sl_codec_kernels()->scales(&scaled->halves, maxima, blocks, values, inverses, out);
    else
        scaled->make(maxima, blocks, out, values, inverses);
}

static void find_maxima(const struct sl_scaled *scaled, const struct sl_input *x, size_t count,
                        uint32_t *maxima)
{
    const struct sl_codec_kernels *common = sl_codec_kernels();

    if (scaled->block == 16)
        sl_scaled_kernels_of(common)->maxima16(x, count, maxima);
    else
        common->maxima(x, count, scaled->block, maxima);
}

/* Codes of blocks that have no scale become 0; and what is left of a block that is not finite. */
static void clear_blocks(const struct sl_scaled *scaled, const uint32_t *maxima,
                         const float *inverses, size_t blocks, float *residual, uint8_t *codes)
{
    size_t len = (size_t)scaled->block * sl_minifloat_format(scaled->kind).bits / 8;
    uint32_t some = 0;

    for (size_t b = 0; b < blocks; b++)
        some |= sl_f32_bits(inverses[b]) == 0;
    for (size_t b = 0; some != 0 && b < blocks; b++) {
        if (sl_f32_bits(inverses[b]) == 0)
            memset(codes + b * len, 0, len);
        if (maxima[b] >= SL_BITS_INF && residual != NULL)
            memset(residual + b * scaled->block, 0, scaled->block * sizeof(*residual));
    }
}

/* Scales and codes of elements, or of the sums that they become in a residual, if there is one. */
static void encode_part(const struct sl_scaled *scaled, const struct sl_input *x, float *residual,
                        size_t count, bool stream, uint8_t *scales, uint8_t *codes)
{
    const struct sl_scaled_kernels *kernels = sl_scaled_kernels_of(sl_codec_kernels());
    size_t blocks = count / scaled->block;
    uint32_t maxima[SL_SCALED_BLOCKS_MAX];
    float values[SL_SCALED_BLOCKS_MAX], inverses[SL_SCALED_BLOCKS_MAX];

    if (residual != NULL)
        sl_codec_kernels()->feedback_maxima(x, count, scaled->block, residual, maxima);
    else
        find_maxima(scaled, x, count, maxima);
    write_scales(scaled, maxima, blocks, values, inverses, scales);
    if (residual != NULL)
        kernels->feedback[scaled->kind](x->next, residual, count, scaled->block, inverses, values,
                                        stream, codes);
    else
        kernels->encode[scaled->kind](x, count, scaled->block, inverses, stream, codes);
    clear_blocks(scaled, maxima, inverses, blocks, residual, codes);
}

/* Elements that are still in registers' reach when their scales are known, as in bq.c. */
#define CHUNK ((size_t)1024)

/* A whole tile, part by part, but where scales depend on all of a tile. */
static void encode_whole(const struct sl_scaled *scaled, const struct sl_input *x, float *residual,
                         bool stream, uint8_t *out)
{
    struct layout at = layout_of(scaled, SL_TILE);
    size_t chunk = scaled->block == 16 || residual == NULL ? SL_TILE : CHUNK;

    for (size_t first = 0; first < SL_TILE; first += chunk) {
        struct sl_input part = sl_input_from(x, first);

        if (chunk < SL_TILE)
            part.next = NULL;
        encode_part(scaled, &part, residual != NULL ? residual + first : NULL, chunk, stream,
                    out + first / scaled->block * scaled->scale_bytes,
                    out + at.codes + first * sl_minifloat_format(scaled->kind).bits / 8);
    }
}

/* What is no whole tile. x: whole units. What lies behind the blocks of count elements is 0, and so
 * are its codes. */
static void encode_last(const struct sl_scaled *scaled, const struct sl_tile *tile,
                        const struct sl_input *x, uint8_t *out)
{
    struct layout at = layout_of(scaled, tile->count);
    _Alignas(16) uint8_t scales[SL_TILE], codes[SL_TILE];

    encode_part(scaled, x, NULL, tile->units, false, scales, codes);
    memset(out + at.codes - 16, 0, 16);
    memcpy(out, scales, scaled->head + at.blocks * scaled->scale_bytes);
    memcpy(out + at.codes, codes, at.code_len);
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
        struct sl_input x = sl_tile_input(&tile, spec->dtype, in, count, scratch);

        uint8_t *to = (uint8_t *)out + first / SL_TILE * step;

        if (tile.count == SL_TILE)
            encode_whole(scaled, &x, NULL, len >= SL_STREAM_BYTES, to);
        else
            encode_last(scaled, &tile, &x, to);
    }
    sl_tile_fence(len);
    return len;
}

static void decode_tile(const struct sl_scaled *scaled, const struct sl_tile *tile,
                        const uint8_t *in, const struct sl_output *out)
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
    kernels->decode[scaled->kind](codes, tile->units, scaled->block, scales, out);
}

size_t sl_scaled_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, float *residual, size_t count, void *out)
{
    const struct sl_scaled *scaled = scaled_of(spec);
    size_t step = layout_of(scaled, SL_TILE).len, len = count / SL_TILE * step;

    for (size_t first = 0; first < count; first += SL_TILE) {
        struct sl_tile tile = sl_tile_at(first, count);
        float scratch[SL_TILE];
        struct sl_input x = sl_tile_input(&tile, spec->dtype, in, count, scratch);

        encode_whole(scaled, &x, residual + first, len >= SL_STREAM_BYTES,
                     (uint8_t *)out + first / SL_TILE * step);
    }
    sl_tile_fence(len);
    return len;
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
        struct sl_output to = sl_tile_output(&tile, dtype, out, count, add, scratch);

        decode_tile(scaled, &tile, (const uint8_t *)in + first / SL_TILE * step, &to);
        if (to.at == scratch)
            sl_tile_deliver(&tile, dtype, out, add, scratch);
    }
    sl_tile_fence(add ? 0 : count * sl_dtype_bytes(dtype));
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
