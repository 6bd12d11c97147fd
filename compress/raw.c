/* SPDX-License-Identifier: Apache-2.0 */
/* The elements as they are: what every other codec is measured against. */
#include "compress/codecs.h"

#include "compress/elements.h"

static size_t raw_size(const struct sl_codec_spec *spec, size_t count)
{
    return count * (spec->dtype == SLUICE_F32 ? 4 : 2);
}

static size_t raw_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                         const void *in, size_t count, void *out)
{
    size_t len = raw_size(spec, count);

    if (len > 0)
        memcpy(out, in, len);
    return len;
}

static int raw_decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t len, size_t count, void *out)
{
    int err = sl_codec_check_len(spec, len, count);

    if (err == 0 && len > 0)
        memcpy(out, in, len);
    return err;
}

static int raw_decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, size_t len, size_t count, float *sum)
{
    size_t elem = raw_size(spec, 1);
    float tile[256];
    int err = sl_codec_check_len(spec, len, count);

    for (size_t i = 0; err == 0 && i < count; i += 256) {
        size_t n = count - i < 256 ? count - i : 256;
        const float *x = sl_elements_floats(spec->dtype, (const char *)in + i * elem, n, tile);

        for (size_t j = 0; j < n; j++)
            sum[i + j] += x[j];
    }
    return err;
}

const struct sl_codec sl_codec_raw = {
    .name = "raw",
    .help = "the elements as they are",
    .id = SL_CODEC_RAW,
    .flags = SL_CODEC_FIXED | SL_CODEC_LOSSLESS,
    .size = raw_size,
    .encode = raw_encode,
    .decode = raw_decode,
    .decode_add = raw_decode_add,
};
