/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codecs, and what a spec may say. */
#include "compress/codec.h"

#include "compress/codecs.h"
#include "compress/rows.h"
#include "core/err.h"

#include <string.h>

static const struct sl_codec *const rows[] = {
    &sl_codec_raw,    &sl_codec_bf16,  &sl_codec_fp16,    &sl_codec_bq8,    &sl_codec_bq4,
    &sl_codec_bq2,    &sl_codec_sign,  &sl_codec_e4m3,    &sl_codec_e5m2,   &sl_codec_mxfp8,
    &sl_codec_topk,   &sl_codec_randk, &sl_codec_shiq,    &sl_codec_sketch, &sl_codec_dct,
    &sl_codec_kmeans, &sl_codec_mxfp4, &sl_codec_nvfp4,   &sl_codec_e3m0,   &sl_codec_palette,
    &sl_codec_rans,   &sl_codec_row8,  &sl_codec_rowe4m3,
};

const struct sl_codec *sl_codec_by_id(unsigned id)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++)
        if (rows[i]->id == id)
            return rows[i];
    return NULL;
}

const struct sl_codec *sl_codec_by_name(const char *name)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i]->name, name) == 0)
            return rows[i];
    return NULL;
}

const struct sl_codec *sl_codec_row(size_t idx)
{
    return idx < SL_ARRAY_LEN(rows) ? rows[idx] : NULL;
}

int sl_codec_check_used(const struct sl_codec_spec *spec, unsigned used)
{
    const char *name = sl_codec_by_id(spec->id)->name;
    const struct {
        unsigned use;
        const char *key;
        bool set;
    } keys[] = {
        {SL_USES_BITS, "bits", spec->bits != 0},
        {SL_USES_K, "k", spec->k != 0},
        {SL_USES_ROWS, "rows", spec->rows != 0},
        {SL_USES_ROW, "row", spec->row != 0},
        {SL_USES_RANKS, "ranks", spec->ranks != 0},
        {SL_USES_ROTATED, "rotated", (spec->flags & SL_SPEC_ROTATED) != 0},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++)
        if (keys[i].set && (used & keys[i].use) == 0)
            return sl_fail(-EINVAL, "codec %s has no %s", name, keys[i].key);
    if (spec->seed != 0 && (used & SL_USES_SEED) == 0 && (spec->flags & SL_SPEC_STOCHASTIC) == 0)
        return sl_fail(-EINVAL,
                       "codec %s draws random numbers, and has a seed, only with "
                       "stochastic=on",
                       name);
    return 0;
}

size_t sl_codec_tile(const struct sl_codec_spec *spec)
{
    return spec->row != 0 ? sl_rows_tile(spec->row) : SL_TILE;
}

int sl_codec_check(const struct sl_codec_spec *spec)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);

    if (codec == NULL)
        return sl_fail(-EINVAL, "there is no codec number %u", spec->id);
    if (spec->dtype != SLUICE_F32 && spec->dtype != SLUICE_BF16 && spec->dtype != SLUICE_F16)
        return sl_fail(-EINVAL, "codec %s takes elements of f32, bf16 or f16, not of %s",
                       codec->name, sluice_dtype_name((enum sluice_dtype)spec->dtype));
    if ((spec->flags & ~(SL_SPEC_STOCHASTIC | SL_SPEC_ROTATED)) != 0)
        return sl_fail(-EINVAL, "codec %s knows no flags 0x%x", codec->name, spec->flags);
    if ((spec->flags & SL_SPEC_STOCHASTIC) != 0 && (codec->flags & SL_CODEC_STOCHASTIC) == 0)
        return sl_fail(-EINVAL, "codec %s cannot round at random", codec->name);
    return codec->check != NULL ? codec->check(spec) : sl_codec_check_used(spec, 0);
}

int sl_codec_check_len(const struct sl_codec_spec *spec, size_t len, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t size = count <= SL_CODEC_COUNT_MOST ? codec->size(spec, count) : 0;

    if (count > SL_CODEC_COUNT_MOST || len != size)
        return sl_fail(-EBADMSG, "a %s message of %zu elements has %zu bytes, not %zu", codec->name,
                       count, size, len);
    return 0;
}
