/* SPDX-License-Identifier: Apache-2.0 */
/* Shared-scale integers: scales that ranks agree on, then codes. */
#include "compress/shiq.h"
#include "compress/terms_codecs.h"

enum { SCALES, CODES };

static bool is_wide(const struct sl_codec_spec *spec)
{
    return spec->bits == 16;
}

static uint32_t ranks_most(const struct sl_codec_spec *spec)
{
    return is_wide(spec) ? 32767 : 127;
}

static void types(const struct sl_codec_spec *spec, struct sl_code_term *terms)
{
    terms[SCALES] = (struct sl_code_term){SLUICE_U32, SLUICE_MAX};
    terms[CODES] = (struct sl_code_term){is_wide(spec) ? SLUICE_U32 : SLUICE_I8, SLUICE_SUM};
}

static size_t len(const struct sl_codec_spec *spec, unsigned term, uint32_t ranks, size_t count)
{
    return term == SCALES ? sl_shiq_scale_count(count) : is_wide(spec) ? (count + 1) / 2 : count;
}

/* Codes as large as a sum of so many has room for. */
static struct sl_codec_spec spec_of(const struct sl_terms_at *at)
{
    struct sl_codec_spec spec = sl_terms_spec(at);

    spec.ranks = spec.ranks > at->ranks ? spec.ranks : at->ranks;
    return spec;
}

/* As whole numbers, high * 65536 + low: their sum is that of the highs and of the lows. */
static void join(const int16_t *codes, size_t count, uint32_t *out)
{
    for (size_t i = 0; i < count; i += 2) {
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): the caller wrote count */
        int32_t low = codes[i], high = i + 1 < count ? codes[i + 1] : 0;

        out[i / 2] = ((uint32_t)high << 16) + (uint32_t)low;
    }
}

static void part(const uint32_t *in, size_t count, int16_t *codes)
{
    for (size_t i = 0; i < count; i += 2) {
        int16_t low = (int16_t)in[i / 2];

        codes[i] = low;
        if (i + 1 < count)
            codes[i + 1] = (int16_t)((in[i / 2] - (uint32_t)low) >> 16);
    }
}

static void encode(const struct sl_terms_at *at, const float *in, size_t count, void *out)
{
    struct sl_codec_spec spec = spec_of(at);
    int16_t codes[SL_TILE];

    if (at->term == SCALES) {
        sl_shiq_scales(&spec, in, count, out);
        return;
    }
    sl_shiq_quantise(&spec, &at->at, in, count, at->before, is_wide(&spec) ? codes : out);
    if (is_wide(&spec))
        join(codes, count, out);
}

static void decode(const struct sl_terms_at *at, const void *in, uint32_t parts, size_t count,
                   float *out)
{
    struct sl_codec_spec spec = spec_of(at);
    int16_t codes[SL_TILE];

    if (is_wide(&spec))
        part(in, count, codes);
    sl_shiq_dequantise(&spec, is_wide(&spec) ? codes : in, count, at->before, 1, out);
}

const struct sl_terms sl_terms_shiq = {.count = 2,
                                       .types = types,
                                       .len = len,
                                       .ranks_most = ranks_most,
                                       .encode = encode,
                                       .decode = decode};
