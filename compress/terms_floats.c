/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs whose messages are floats alone: their bytes are the numbers. */
#include "compress/terms_codecs.h"

#include "core/err.h"

static void types(const struct sl_codec_spec *spec, struct sl_code_term *terms)
{
    terms[0] = (struct sl_code_term){SLUICE_F32, SLUICE_SUM};
}

static size_t len(const struct sl_codec_spec *spec, unsigned term, uint32_t ranks, size_t count)
{
    return sl_codec_by_id(spec->id)->size(spec, count) / sizeof(float);
}

static void encode(const struct sl_terms_at *at, const float *in, size_t count, void *out)
{
    struct sl_codec_spec spec = sl_terms_spec(at);
    struct sl_codec_at alike = {.first = at->at.first, .step = at->at.step};

    sl_codec_by_id(spec.id)->encode(&spec, &alike, in, count, out);
}

static void decode(const struct sl_terms_at *at, const void *in, uint32_t parts, size_t count,
                   float *out)
{
    struct sl_codec_spec spec = sl_terms_spec(at);
    struct sl_codec_at alike = {.first = at->at.first, .step = at->at.step};
    const struct sl_codec *codec = sl_codec_by_id(spec.id);
    int err = codec->decode(&spec, &alike, in, codec->size(&spec, count), count, out);

    sl_assert(err == 0); /* any floats of that number are such a message */
}

const struct sl_terms sl_terms_floats = {
    .count = 1, .types = types, .len = len, .encode = encode, .decode = decode};
