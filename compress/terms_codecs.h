/* SPDX-License-Identifier: Apache-2.0 */
/* How each codec whose encodings add makes their numbers: for terms.c alone. */
#ifndef SL_COMPRESS_TERMS_CODECS_H
#define SL_COMPRESS_TERMS_CODECS_H

#include "compress/terms.h"

/* How a codec does it. A tile is at most SL_TILE floats. */
struct sl_terms {
    unsigned count;
    void (*types)(const struct sl_codec_spec *spec, struct sl_code_term *terms);
    /* numbers of a tile of count elements */
    size_t (*len)(const struct sl_codec_spec *spec, unsigned term, uint32_t ranks, size_t count);
    uint32_t (*ranks_most)(const struct sl_codec_spec *spec); /* NULL: any number */
    void (*encode)(const struct sl_terms_at *at, const float *in, size_t count, void *out);
    /* parts: how many ranks have theirs in the numbers: all, or one */
    void (*decode)(const struct sl_terms_at *at, const void *in, uint32_t parts, size_t count,
                   float *out);
};

/* terms_floats.c: randk, sketch; terms_shiq.c; terms_vote.c */
extern const struct sl_terms sl_terms_floats, sl_terms_shiq, sl_terms_vote;

/* at's spec, of floats. */
static inline struct sl_codec_spec sl_terms_spec(const struct sl_terms_at *at)
{
    struct sl_codec_spec spec = *at->spec;

    spec.dtype = SLUICE_F32;
    return spec;
}

#endif
