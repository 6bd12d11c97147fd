/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Palette messages of peers and files: nothing is read outside them, nothing written outside the
 * elements, and all paths say and write the same. What is accepted, or any bytes taken as elements,
 * comes back bit for bit when it is encoded.
 *
 * Input: u8 type (of three), u16 count, then the message.
 */
#include "compress/palette.h"

#include "compress/codecs.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const struct sl_codec_spec *spec, const void *in, size_t count)
{
    size_t bytes = count * sl_lossless_width(spec->dtype), bound, len;
    uint8_t *message, *out = malloc(bytes + 1);

    bound = sl_codec_palette.size(spec, count);
    message = malloc(bound + 1);
    for (size_t p = 0; p < sl_lossless_path_count; p++) {
        if (sl_lossless_paths[p]->lacks() != NULL)
            continue;
        len = sl_palette_encode_by(sl_lossless_paths[p], spec, in, count, message);
        sl_assert(len <= bound);
        sl_assert(sl_palette_decode_by(&sl_lossless_c, spec, message, len, count, out) == 0);
        sl_assert(memcmp(in, out, bytes) == 0);
    }
    free(message);
    free(out);
}

/* Exactly as much memory as is needed, so that a sanitizer sees what goes beyond. */
static void decode(const struct sl_codec_spec *spec, const uint8_t *message, size_t len,
                   size_t count)
{
    size_t bytes = count * sl_lossless_width(spec->dtype);
    uint8_t *in = malloc(len + 1), *out = malloc(bytes + 1), *other = malloc(bytes + 1);
    int err;

    memcpy(in, message, len);
    memset(out, 0, bytes);
    err = sl_palette_decode_by(&sl_lossless_c, spec, in, len, count, out);
    sl_assert(err == 0 || err == -EBADMSG);
    for (size_t p = 0; p < sl_lossless_path_count; p++) {
        if (sl_lossless_paths[p]->lacks() != NULL)
            continue;
        memset(other, 0, bytes);
        sl_assert(sl_palette_decode_by(sl_lossless_paths[p], spec, in, len, count, other) == err);
        sl_assert(err != 0 || memcmp(out, other, bytes) == 0);
    }
    if (err == 0)
        round_trip(spec, out, count);
    free(in);
    free(out);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t dtypes[] = {SLUICE_BF16, SLUICE_F32, SLUICE_F16};
    struct sl_codec_spec spec = {.id = SL_CODEC_PALETTE};

    if (size < 3)
        return 0;
    spec.dtype = dtypes[data[0] % 3];
    decode(&spec, data + 3, size - 3, (size_t)(data[1] | data[2] << 8) % (3 * SL_TILE));
    round_trip(&spec, data + 3, (size - 3) / sl_lossless_width(spec.dtype));
    return 0;
}
