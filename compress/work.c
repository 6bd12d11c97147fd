/* SPDX-License-Identifier: Apache-2.0 */
/* What codecs cost: ratios, measured by `sluice-compress table`, which prints them beside these. */
#include "compress/work.h"

/* encode, decode, add */
static const struct sl_code_work table[SL_CODEC_ID_COUNT] = {
    [SL_CODEC_RAW] = {1.8f, 1.8f, 1.8f},   [SL_CODEC_BF16] = {1.8f, 1.7f, 2},
    [SL_CODEC_FP16] = {1.8f, 1.7f, 2},     [SL_CODEC_BQ8] = {2.4f, 1.5f, 1.8f},
    [SL_CODEC_BQ4] = {2.9f, 1.7f, 1.9f},   [SL_CODEC_BQ2] = {2.8f, 1.6f, 1.8f},
    [SL_CODEC_E4M3] = {2.5f, 1.9f, 1.9f},  [SL_CODEC_E5M2] = {2.5f, 2, 2},
    [SL_CODEC_MXFP8] = {2.9f, 2, 2},       [SL_CODEC_MXFP4] = {2.8f, 1.6f, 1.9f},
    [SL_CODEC_NVFP4] = {4.5f, 2, 2},       [SL_CODEC_E3M0] = {2.5f, 1.6f, 1.8f},
    [SL_CODEC_SIGN] = {1.7f, 1.5f, 1.5f},  [SL_CODEC_TOPK] = {4, 1.5f, 1.3f},
    [SL_CODEC_RANDK] = {2.5f, 2.5f, 2.2f}, [SL_CODEC_SHIQ] = {4.4f, 2.7f, 2.3f},
    [SL_CODEC_SKETCH] = {30, 40, 40},      [SL_CODEC_DCT] = {47, 30, 30},
    [SL_CODEC_KMEANS] = {19, 8.5f, 8.5f},  [SL_CODEC_PALETTE] = {3.8f, 5, 6.8f},
    [SL_CODEC_RANS] = {6.7f, 6.8f, 9.2f},  [SL_CODEC_ROW8] = {4, 2.5f, 2.8f},
    [SL_CODEC_ROWE4M3] = {4, 2.7f, 3},
};

/* On top: a word of random bits for every two elements; butterflies before or after. */
static const struct sl_code_work at_random = {2.2f, 0, 0}, rotation = {1, 1.4f, 3};

static void add(struct sl_code_work *work, const struct sl_code_work *more)
{
    work->encode += more->encode;
    work->decode += more->decode;
    work->add += more->add;
}

struct sl_code_work sl_codec_work(const struct sl_codec_spec *spec)
{
    struct sl_code_work work = table[spec->id < SL_CODEC_ID_COUNT ? spec->id : SL_CODEC_RAW];

    if ((spec->flags & SL_SPEC_STOCHASTIC) != 0)
        add(&work, &at_random);
    if ((spec->flags & SL_SPEC_ROTATED) != 0)
        add(&work, &rotation);
    return work;
}

/* Of numbers whose exponents are near each other, as those of weights and gradients are: sign and
 * mantissa stay, some 3 bits tell the exponent. */
float sl_codec_usual(const struct sl_codec_spec *spec)
{
    if (spec->id != SL_CODEC_PALETTE && spec->id != SL_CODEC_RANS)
        return 0;
    return (spec->dtype == SLUICE_F32 ? 27.0f : spec->dtype == SLUICE_BF16 ? 11.0f : 14.0f) / 8;
}

void sl_codec_work_unit(const void *in, size_t len, void *out)
{
    static const struct sl_codec_spec unit = {.id = SL_CODEC_BQ8, .dtype = SLUICE_F32};
    static const struct sl_codec_at at;

    sl_codec_by_id(unit.id)->encode(&unit, &at, in, len / sizeof(float), out);
}
