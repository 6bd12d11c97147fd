/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for what is not zero behind heads, scales and codes (docs/design/0041-codecs.md, Layout of
 * a tile). */
#include "compress/padding.h"

#include "compress/codecs.h"
#include "core/err.h"

/* A tile: head, scales, codes of whole blocks, or of rows, whose last one may be short; the last
 * two filled up to 16 bytes each. */
struct layout {
    uint8_t head, head_used; /* bytes */
    uint8_t scale;           /* bytes, of each block */
    uint8_t bits;            /* of a code; 0: the codec has no such tiles */
    uint8_t block;           /* elements; 0: those of a row */
};

static const struct layout layouts[SL_CODEC_ID_COUNT] = {
    [SL_CODEC_BF16] = {.bits = 16, .block = 1},
    [SL_CODEC_FP16] = {.bits = 16, .block = 1},
    [SL_CODEC_BQ8] = {.scale = 2, .bits = 8, .block = 128},
    [SL_CODEC_BQ4] = {.head = 16, .head_used = 1, .scale = 1, .bits = 4, .block = 32},
    [SL_CODEC_BQ2] = {.head = 16, .head_used = 1, .scale = 1, .bits = 2, .block = 32},
    [SL_CODEC_E4M3] = {.scale = 2, .bits = 8, .block = 128},
    [SL_CODEC_E5M2] = {.scale = 2, .bits = 8, .block = 128},
    [SL_CODEC_MXFP8] = {.scale = 1, .bits = 8, .block = 32},
    [SL_CODEC_MXFP4] = {.scale = 1, .bits = 4, .block = 32},
    [SL_CODEC_NVFP4] = {.head = 16, .head_used = 4, .scale = 1, .bits = 4, .block = 16},
    [SL_CODEC_E3M0] = {.scale = 2, .bits = 4, .block = 128},
    [SL_CODEC_ROW8] = {.scale = 2, .bits = 8},
    [SL_CODEC_ROWE4M3] = {.scale = 2, .bits = 8},
    [SL_CODEC_SIGN] = {.head = 16, .head_used = 4, .bits = 1, .block = 8},
};

static bool are_zero(const uint8_t *in, size_t first, size_t end)
{
    while (first < end && in[first] == 0)
        first++;
    return first >= end;
}

/* The last block's codes behind so many bits, which lie within whole bytes. */
static bool is_zero_behind(const uint8_t *codes, size_t bits, size_t end)
{
    return (bits % 8 == 0 || codes[bits / 8] >> bits % 8 == 0) &&
           are_zero(codes, (bits + 7) / 8, end);
}

/* Rotated blocks have codes for the zeros that fill them up. */
static bool is_padded(const struct layout *l, const struct sl_codec_spec *spec, const uint8_t *tile,
                      size_t count, size_t *len)
{
    bool rotated = (spec->flags & SL_SPEC_ROTATED) != 0;
    size_t block = l->block != 0 ? l->block : spec->row, blocks = (count + block - 1) / block;
    size_t scales = l->head + blocks * l->scale, codes = sl_codec_round16(scales);
    size_t code_len = l->block != 0 ? blocks * block * l->bits / 8 : count;
    size_t end = sl_codec_round16(code_len), used = rotated ? code_len * 8 : count * l->bits;

    *len = codes + end;
    return are_zero(tile, l->head_used, l->head) && are_zero(tile, scales, codes) &&
           is_zero_behind(tile + codes, used, end);
}

int sl_codec_check_padding(const struct sl_codec_spec *spec, const void *in, uint64_t count)
{
    const struct layout *layout = &layouts[spec->id];
    size_t most = sl_codec_tile(spec), len;
    const uint8_t *tile = in;

    for (uint64_t first = 0; layout->bits != 0 && first < count; first += most, tile += len) {
        size_t n = count - first < most ? (size_t)(count - first) : most;

        if (!is_padded(layout, spec, tile, n, &len))
            return sl_fail(-EBADMSG,
                           "tile %llu of this %s has numbers where there is room for none: its "
                           "padding is not zero",
                           (unsigned long long)(first / most), sl_codec_by_id(spec->id)->name);
    }
    return 0;
}
