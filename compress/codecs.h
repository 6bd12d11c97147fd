/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of all codecs, one a file, and what they share. */
#ifndef SL_COMPRESS_CODECS_H
#define SL_COMPRESS_CODECS_H

#include "compress/codec.h"

extern const struct sl_codec sl_codec_raw;
extern const struct sl_codec sl_codec_bf16;
extern const struct sl_codec sl_codec_fp16;
extern const struct sl_codec sl_codec_bq8;
extern const struct sl_codec sl_codec_bq4;
extern const struct sl_codec sl_codec_bq2;
extern const struct sl_codec sl_codec_sign;
extern const struct sl_codec sl_codec_topk;
extern const struct sl_codec sl_codec_randk;
extern const struct sl_codec sl_codec_shiq;
extern const struct sl_codec sl_codec_sketch;
extern const struct sl_codec sl_codec_dct;
extern const struct sl_codec sl_codec_kmeans;
extern const struct sl_codec sl_codec_e4m3;
extern const struct sl_codec sl_codec_e5m2;
extern const struct sl_codec sl_codec_mxfp8;
extern const struct sl_codec sl_codec_mxfp4;
extern const struct sl_codec sl_codec_nvfp4;
extern const struct sl_codec sl_codec_e3m0;
extern const struct sl_codec sl_codec_palette;
extern const struct sl_codec sl_codec_rans;
extern const struct sl_codec sl_codec_row8;
extern const struct sl_codec sl_codec_rowe4m3;

/* What a codec makes use of beside the type of the elements. */
enum {
    SL_USES_BITS = 1 << 0,
    SL_USES_K = 1 << 1,
    SL_USES_ROWS = 1 << 2,
    SL_USES_RANKS = 1 << 3,
    SL_USES_SEED = 1 << 4, /* also when it does not round at random */
    SL_USES_ROTATED = 1 << 5,
    SL_USES_ROW = 1 << 6
};

/* For check() of a row: -EINVAL and a sentence where spec sets what the codec has no use for. */
int sl_codec_check_used(const struct sl_codec_spec *spec, unsigned used);

/* For the decoders of SL_CODEC_FIXED: -EBADMSG and a sentence where len is not size(). */
int sl_codec_check_len(const struct sl_codec_spec *spec, size_t len, size_t count);

static inline size_t sl_codec_round16(size_t len)
{
    return (len + 15) & ~(size_t)15;
}

#endif
